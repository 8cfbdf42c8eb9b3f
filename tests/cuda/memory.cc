// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/memory.h"
#include <algorithm>
#include <memory>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static const size_t arena_size = (size_t)8 << 30;  // addresses, not memory
static const size_t alignment = 256;

struct arena {
    char *base = nullptr, *alias = nullptr;  // as the program and as the emulator see it
    int file = -1;
    size_t next = 0;                                           // offset of the first address never given
    size_t used = 0;                                           // bytes allocated and not freed
    std::vector<std::unique_ptr<emu_allocation>> allocations;  // by address
};
static arena arenas[EMU_DEVICES_MAX + 1];  // the last one is pinned memory
static char *arenas_base;
static int device_count;
static size_t memory_limit;
static bool is_open, stays_open;

static struct arena *arena_of(int device)
{
    return &arenas[device == EMU_PINNED ? EMU_DEVICES_MAX : device];
}

// The arenas lie side by side.
static struct arena *arena_find(const void *pointer)
{
    size_t offset = (uintptr_t)pointer - (uintptr_t)arenas_base;
    return arenas_base && offset < arena_size * (EMU_DEVICES_MAX + 1) ? &arenas[offset / arena_size] : nullptr;
}

// ---- mapping -------------------------------------------------------------------------------------------------------

static char *arena_map(void *at, size_t size, int protection, int file)
{
    int flags = MAP_NORESERVE | (at ? MAP_FIXED : 0) | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void *base = mmap(at, size, protection, flags, file, 0);
    if (base == MAP_FAILED) {
        perror("CUDA emulator: mmap");
        abort();
    }
    return (char *)base;
}

static void arena_create(struct arena *a)
{
    char *at = arenas_base + (size_t)(a - arenas) * arena_size;
    if (a == arena_of(EMU_PINNED)) {
        a->base = a->alias = arena_map(at, arena_size, PROT_READ | PROT_WRITE, -1);
        return;
    }
    a->file = memfd_create("device", MFD_CLOEXEC);
    if (a->file < 0 || ftruncate(a->file, (off_t)arena_size) < 0) {
        perror("CUDA emulator: memfd_create");
        abort();
    }
    a->alias = arena_map(NULL, arena_size, PROT_READ | PROT_WRITE, a->file);
    a->base = arena_map(at, arena_size, PROT_NONE, a->file);
}

static void arena_reset(struct arena *a)
{
    a->allocations.clear();
    if (a->next)
        madvise(a->alias, a->next, a->file < 0 ? MADV_DONTNEED : MADV_REMOVE);
    a->next = a->used = 0;
}

static void memory_protect(int protection)
{
    for (int i = 0; i < device_count; i++)
        if (arenas[i].next)
            mprotect(arenas[i].base, (arenas[i].next + 4095) / 4096 * 4096, protection);
}

void emu_memory_open()
{
    if (!is_open)
        memory_protect(PROT_READ | PROT_WRITE);
    is_open = true;
}

void emu_memory_close()
{
    if (is_open && !stays_open) {
        memory_protect(PROT_NONE);
        is_open = false;
    }
}

// ---- the host touches a device's memory ----------------------------------------------------------------------------

static struct sigaction other_handler;

static const void *memory_fault_pc(const void *context)
{
#if defined(__x86_64__)
    return (const void *)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const void *)((const ucontext_t *)context)->uc_mcontext.pc;
#else
    return nullptr;
#endif
}

// Says so, and lets the access happen.
static void memory_on_fault(int signal, siginfo_t *info, void *context)
{
    struct arena *a = arena_find(info->si_addr);
    if (!a || is_open) {
        sigaction(signal, &other_handler, NULL);
        return;  // the access comes again, for who was there before
    }
    const emu_allocation *allocation = emu_memory_find(info->si_addr);
    emu_pc pc = emu_pc_of((const char *)memory_fault_pc(context) + 1);
    emu_fail(emu_format("the host touches memory of device %d (%p%s)%s: expected a copy, or work on a stream",
                        (int)(a - arenas), info->si_addr, allocation ? (", of " + allocation->made_by).c_str() : "",
                        emu_pc_suffix(pc).c_str()));
    stays_open = true;
    memory_protect(PROT_READ | PROT_WRITE);
    is_open = true;
}

static void memory_install_handler()
{
    static bool installed;
    if (installed)
        return;
    installed = true;
    struct sigaction action = {};
    action.sa_sigaction = memory_on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &other_handler);
}

// ---- allocations ---------------------------------------------------------------------------------------------------

void emu_memory_reset(int devices, size_t device_memory)
{
    memory_install_handler();
    stays_open = false;
    emu_memory_close();
    for (struct arena &a : arenas)
        if (a.base)
            arena_reset(&a);
    device_count = devices;
    memory_limit = device_memory;
    if (!arenas_base)
        arenas_base = arena_map(NULL, arena_size * (EMU_DEVICES_MAX + 1), PROT_NONE, -1);
    for (int i = EMU_PINNED; i < devices; i++)
        if (!arena_of(i)->base)
            arena_create(arena_of(i));
}

emu_allocation *emu_memory_make(int device, size_t size, const std::string &by, uint32_t born)
{
    struct arena *a = arena_of(device);
    size_t room = (size + alignment - 1) / alignment * alignment;
    size_t gap = 4096 + std::min(room / 4, (size_t)1 << 20) / alignment * alignment;
    if (a->used + size > memory_limit || a->next + 2 * gap + room > arena_size)
        return nullptr;
    std::unique_ptr<emu_allocation> made(new emu_allocation{});
    made->base = (uintptr_t)a->base + a->next + gap;
    made->size = size;
    made->device = device;
    made->made_by = by;
    made->born = born;
    emu_shadow_init(made->shadow, size);
    made->shadow.by_host = device == EMU_PINNED;
    bool was_open = is_open;
    emu_memory_close();
    a->next += gap + room;
    a->used += size;
    a->allocations.push_back(std::move(made));
    emu_allocation *allocation = a->allocations.back().get();
    memset(emu_memory_alias((void *)allocation->base), 0xff, size);  // NaN
    if (was_open)
        emu_memory_open();
    return allocation;
}

uint32_t emu_memory_free(emu_allocation *allocation, const std::string &by, uint32_t task)
{
    uint32_t unordered = 0;
    for (uint32_t user : allocation->users)
        if (user != task && !emu_task_ordered(user, emu_task_at(task)))
            unordered = user;
    allocation->freed = task;
    allocation->freed_by = by;
    arena_of(allocation->device)->used -= allocation->size;
    return unordered;
}

bool emu_memory_owns(const void *pointer)
{
    return arena_find(pointer);
}

// Between two allocations the nearer one.
emu_allocation *emu_memory_find(const void *pointer)
{
    struct arena *a = arena_find(pointer);
    uintptr_t address = (uintptr_t)pointer;
    if (!a || a->allocations.empty())
        return nullptr;
    auto &all = a->allocations;
    auto next = std::upper_bound(all.begin(), all.end(), address,
                                 [](uintptr_t x, const std::unique_ptr<emu_allocation> &y) { return x < y->base; });
    if (next == all.begin())
        return next->get();
    emu_allocation *before = std::prev(next)->get();
    uintptr_t end = before->base + before->size;
    if (next != all.end() && address >= end && (*next)->base - address < address - end)
        return next->get();
    return before;
}

void *emu_memory_alias(const void *pointer)
{
    struct arena *a = arena_find(pointer);
    return a ? a->alias + ((uintptr_t)pointer - (uintptr_t)a->base) : const_cast<void *>(pointer);
}

size_t emu_memory_used(int device)
{
    return arena_of(device)->used;
}

size_t emu_memory_live()
{
    size_t live = 0;
    for (struct arena &a : arenas)
        for (auto &allocation : a.allocations)
            live += !allocation->freed;
    return live;
}
