// SPDX-License-Identifier: Apache-2.0
//
// The memory of the emulated devices, and pinned memory. Each device has a range of addresses that the host cannot
// touch except while a kernel runs; copies and libraries use a second mapping of the same pages. Allocations lie far
// apart, start as NaN, and their addresses are not given again before emu_reset.
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include "tests/cuda/shadow.h"

enum {
    EMU_PINNED = -1,  // in place of a device
    EMU_DEVICES_MAX = 8
};

struct emu_allocation {
    uintptr_t base;
    size_t size;
    int device;           // or EMU_PINNED
    bool mapped;          // pinned memory that kernels may touch
    std::string made_by;  // the call, with its place
    uint32_t born;        // the task from which on it is there
    uint32_t freed;       // the task from which on it is not, 0: none yet
    std::string freed_by;
    emu_shadow shadow;
    std::vector<uint32_t> users;  // the last task of each actor that has touched it

    ~emu_allocation()
    {
        emu_shadow_fini(shadow);
    }
};

void emu_memory_reset(int devices, size_t device_memory);

// NULL: there is no room.
emu_allocation *emu_memory_make(int device, size_t size, const std::string &by, uint32_t born);
// All accesses until now must be ordered before this task: if one is not, it is returned, else 0.
uint32_t emu_memory_free(emu_allocation *allocation, const std::string &by, uint32_t task);

bool emu_memory_owns(const void *pointer);  // an address of a device or of pinned memory, allocated or not
// The allocation that it points into, or the nearest one; NULL if there is none.
emu_allocation *emu_memory_find(const void *pointer);
// Where the emulator itself reads and writes what the pointer means; the pointer itself if it is the host's.
void *emu_memory_alias(const void *pointer);

size_t emu_memory_used(int device);
size_t emu_memory_live();

// Kernels run between these.
void emu_memory_open();
void emu_memory_close();

#endif
