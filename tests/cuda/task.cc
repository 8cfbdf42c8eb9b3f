// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/task.h"
#include "tests/cuda/forever.h"
#include <algorithm>
#include <deque>

static auto &tasks = emu_forever<std::deque<emu_task>>();
static auto &counts = emu_forever<std::vector<uint32_t>>();  // per actor

void emu_clock_join(emu_clock &to, const emu_clock &from)
{
    if (to.size() < from.size())
        to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        to[i] = std::max(to[i], from[i]);
}

uint32_t emu_actor_create()
{
    counts.push_back(0);
    return (uint32_t)counts.size() - 1;
}

uint32_t emu_task_create(uint32_t actor, emu_clock &clock, const std::string &what, emu_place at, int device,
                         int stream)
{
    if (clock.size() <= actor)
        clock.resize(actor + 1);
    clock[actor] = ++counts[actor];
    uint32_t id = (uint32_t)tasks.size() + 1;
    tasks.push_back(emu_task{actor, counts[actor], clock, what, at, device, stream, 1, id});
    return id;
}

emu_task &emu_task_at(uint32_t id)
{
    return tasks[id - 1];
}

bool emu_task_ordered(uint32_t before, const emu_task &now)
{
    const emu_task &task = emu_task_at(before);
    return task.actor < now.clock.size() && now.clock[task.actor] >= task.count;
}

std::string emu_task_text(uint32_t id)
{
    const emu_task &task = emu_task_at(id);
    if (task.stream < 0)
        return emu_format("the host (after %s)", emu_place_text(task.at).c_str());
    return emu_format("%s (%s, stream %d of device %d)", task.what.c_str(), emu_place_text(task.at).c_str(),
                      task.stream, task.device);
}

void emu_tasks_reset()
{
    tasks.clear();
    counts.clear();
}
