// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/touch.h"

// The first access of this task: after the allocation's birth, and kept for its end.
static bool touch_first(emu_allocation *allocation, const emu_task &task)
{
    for (uint32_t &user : allocation->users)
        if (emu_task_at(user).actor == task.actor) {
            user = task.id;
            return emu_task_ordered(allocation->born, task);
        }
    allocation->users.push_back(task.id);
    return emu_task_ordered(allocation->born, task);
}

static bool touch_is_last_user(const emu_allocation *allocation, uint32_t task)
{
    for (uint32_t user : allocation->users)
        if (user == task)
            return true;
    return false;
}

bool emu_touch(const void *pointer, size_t size, emu_kind kind, const emu_access &now, int device, emu_fault *fault)
{
    emu_allocation *a = emu_memory_find(pointer);
    *fault = emu_fault{EMU_NO_MEMORY, now, kind, pointer, size, a, {}};
    auto refuse = [fault](emu_wrong wrong) {
        fault->wrong = wrong;
        return false;
    };
    if (!a)
        return false;
    size_t offset = (uintptr_t)pointer - a->base;
    if (offset > a->size || size > a->size - offset)
        return refuse(EMU_OUTSIDE);
    if (a->device >= 0 && device != EMU_ANY_DEVICE && a->device != device && !emu_peer_enabled(device, a->device))
        return refuse(EMU_OTHER_DEVICE);
    const emu_task &task = emu_task_at(now.task);
    if (a->freed)
        return refuse(EMU_FREED);
    if (!touch_is_last_user(a, now.task) && !touch_first(a, task))
        return refuse(EMU_NOT_YET);
    if (emu_shadow_touch(a->shadow, offset, size, kind, now, 0, &fault->finding))
        return true;
    return refuse(fault->finding.unordered ? EMU_UNORDERED : EMU_UNWRITTEN);
}

// ---- sentences -----------------------------------------------------------------------------------------------------

static std::string touch_thread_text(const emu_access &access)
{
    unsigned threads = emu_task_at(access.task).block_threads;
    return emu_format("thread %u of block %u", access.thread % threads, access.thread / threads);
}

static bool touch_is_kernel(uint32_t task)
{
    return emu_task_at(task).what.compare(0, 7, "kernel ") == 0;
}

static std::string touch_who(const emu_access &access)
{
    std::string who = emu_task_text(access.task);
    return touch_is_kernel(access.task) ? who + ", " + touch_thread_text(access) + "," : who;
}

static const char *touch_verb(emu_kind kind)
{
    return kind == EMU_WRITE ? "writes" : kind == EMU_ATOMIC ? "atomically changes" : "reads";
}

// "writes 4 bytes at file.cu:8"
static std::string touch_what(const emu_fault &f)
{
    return emu_format("%s %zu bytes%s", touch_verb(f.kind), f.size, emu_pc_suffix(f.now.pc).c_str());
}

// "16 bytes past the end of the 64 bytes of cudaMalloc (file.cu:3)"
static std::string touch_where(const emu_fault &f)
{
    const emu_allocation *a = f.allocation;
    if (!a)
        return "shared memory";
    std::string all = emu_format("the %zu bytes of %s", a->size, a->made_by.c_str());
    uintptr_t address = (uintptr_t)f.pointer;
    if (address < a->base)
        return emu_format("%zu bytes before the start of ", (size_t)(a->base - address)) + all;
    if (address >= a->base + a->size)
        return emu_format("%zu bytes past the end of ", (size_t)(address - a->base - a->size)) + all;
    return emu_format("at byte %zu of ", (size_t)(address - a->base)) + all;
}

static std::string touch_unordered_text(const emu_fault &f)
{
    const emu_access &before = f.finding.before;
    std::string other =
        emu_format("%s it%s", f.finding.before_wrote ? "writes" : "reads", emu_pc_suffix(before.pc).c_str());
    if (before.task == f.now.task)
        return touch_who(f.now) + " " + touch_what(f) + ", " + touch_where(f) + ", and " + touch_thread_text(before) +
               " " + other + " with no barrier between them: expected one";
    return touch_who(f.now) + " " + touch_what(f) + ", " + touch_where(f) + ", and " + touch_who(before) + " " + other +
           " with nothing that orders the two: expected an event, or a wait, between them";
}

static std::string touch_freed_text(const emu_fault &f)
{
    bool begun = f.now.task < f.allocation->freed;  // was it on its way when the memory was freed?
    return ", " + touch_where(f) + ", which " + f.allocation->freed_by + " has freed" +
           (begun ? " while this had not ended: expected a wait before it" : ": expected no use after it");
}

std::string emu_fault_text(const emu_fault &f)
{
    std::string head = touch_who(f.now) + " " + touch_what(f);
    switch (f.wrong) {
    case EMU_NO_MEMORY:
        return head + emu_format(" through %p, a pointer of the host: expected memory of the device", f.pointer);
    case EMU_OUTSIDE:
        return head + ", " + touch_where(f) + ": expected an access inside them";
    case EMU_MISALIGNED:
        return head + ", " + touch_where(f) + ", at an address that is no multiple of their size: expected one";
    case EMU_OTHER_DEVICE:
        return head + ", " + touch_where(f) +
               emu_format(", memory of device %d: expected its own, or cudaDeviceEnablePeerAccess",
                          f.allocation->device);
    case EMU_NOT_MAPPED:
        return head + ", " + touch_where(f) + ", pinned memory of the host: expected cudaHostAllocMapped, or a copy";
    case EMU_NOT_YET:
        return head + ", " + touch_where(f) +
               ", and nothing orders the allocation before it: expected the same stream or an event";
    case EMU_FREED:
        return head + touch_freed_text(f);
    case EMU_UNWRITTEN:
        return head + ", " + touch_where(f) + ", that nothing has written: expected a write before it";
    case EMU_UNORDERED:
        return touch_unordered_text(f);
    }
    return head;
}

// ---- suspects ------------------------------------------------------------------------------------------------------

static bool suspected;
static emu_fault suspect;

void emu_suspect(const emu_fault &fault)
{
    if (!suspected)
        suspect = fault;
    suspected = true;
}

bool emu_suspects(bool in_shared_memory)
{
    return suspected && (!in_shared_memory || !suspect.allocation);
}

void emu_suspect_confirm()
{
    suspected = false;
    emu_fail(emu_fault_text(suspect));
}

void emu_suspects_reset()
{
    suspected = false;
}

// ---- without threads -----------------------------------------------------------------------------------------------

static bool touch_or_fail(const void *pointer, size_t size, emu_kind kind, const emu_access &now, int device)
{
    emu_fault fault;
    if (size == 0 || emu_touch(pointer, size, kind, now, device, &fault))
        return true;
    if (fault.wrong == EMU_UNWRITTEN) {
        emu_suspect(fault);
        return true;
    }
    emu_fail(emu_fault_text(fault));
    return false;
}

bool emu_touch_range(const void *pointer, size_t size, emu_kind kind, uint32_t task)
{
    return touch_or_fail(pointer, size, kind, emu_access{task, 0, 0, 0, 0}, emu_task_at(task).device);
}

bool emu_touch_any(const void *pointer, size_t size, emu_kind kind, uint32_t task, emu_pc pc)
{
    return touch_or_fail(pointer, size, kind, emu_access{task, 0, 0, 0, pc}, EMU_ANY_DEVICE);
}
