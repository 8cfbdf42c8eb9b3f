// SPDX-License-Identifier: Apache-2.0
//
// Who touches memory, and what is known to have ended before. An actor does one thing after the other: the host, a
// stream, a branch of a graph. A task is one thing that an actor does: a kernel, a copy, what the host does between
// two calls. A task's clock has, per actor, how many of its tasks ended before this one began, whatever the order of
// execution was: by the order of a stream, by events, and by calls in which the host waits.
#ifndef EMU_TASK_H
#define EMU_TASK_H

#include "tests/cuda/report.h"
#include <vector>

typedef std::vector<uint32_t> emu_clock;
void emu_clock_join(emu_clock &to, const emu_clock &from);

struct emu_task {
    uint32_t actor, count;  // the count-th task of this actor, from 1
    emu_clock clock;
    std::string what;  // "kernel scale", "cudaMemcpyAsync"
    emu_place at;
    int device, stream;      // stream: -1: the host
    unsigned block_threads;  // of a kernel
    uint32_t id;
};

uint32_t emu_actor_create();

// The actor's next task, after what clock says; clock goes on with it. Ids start with 1.
uint32_t emu_task_create(uint32_t actor, emu_clock &clock, const std::string &what, emu_place at, int device,
                         int stream);
emu_task &emu_task_at(uint32_t id);
bool emu_task_ordered(uint32_t before, const emu_task &now);
// "kernel scale (file.cu:12, stream 2 of device 0)"
std::string emu_task_text(uint32_t id);

void emu_tasks_reset();

#endif
