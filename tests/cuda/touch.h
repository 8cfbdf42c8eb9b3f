// SPDX-License-Identifier: Apache-2.0
//
// Every access to device and pinned memory, by kernels, copies, libraries and watched host code, is checked here.
#ifndef EMU_TOUCH_H
#define EMU_TOUCH_H

#include "tests/cuda/memory.h"

enum emu_wrong {
    EMU_NO_MEMORY,     // neither a device's nor pinned
    EMU_OUTSIDE,       // of the allocation
    EMU_MISALIGNED,    // for its size
    EMU_OTHER_DEVICE,  // without peer access
    EMU_NOT_MAPPED,    // pinned memory in a kernel
    EMU_NOT_YET,       // allocated, but not ordered before this
    EMU_FREED,
    EMU_UNWRITTEN,
    EMU_UNORDERED
};

enum { EMU_ANY_DEVICE = -2 };

struct emu_fault {
    emu_wrong wrong;
    emu_access now;
    emu_kind kind;
    const void *pointer;
    size_t size;
    const emu_allocation *allocation;  // NULL: none, or shared memory
    emu_finding finding;
};

// May `now` do this? device: whose memory it may touch, EMU_ANY_DEVICE: everyone's.
bool emu_touch(const void *pointer, size_t size, emu_kind kind, const emu_access &now, int device, emu_fault *fault);
std::string emu_fault_text(const emu_fault &fault);

// A read of what nothing has written may be one that ran before its writer, which nothing orders: then the writer is
// to be named, too. So it is kept, and an error only if nothing else is found once all that can run has run.
void emu_suspect(const emu_fault &fault);
bool emu_suspects(bool in_shared_memory);
void emu_suspect_confirm();
void emu_suspects_reset();

// For a library (the task's device), for a copy or the host (any device): emu_fail where it may not.
bool emu_touch_range(const void *pointer, size_t size, emu_kind kind, uint32_t task);
bool emu_touch_any(const void *pointer, size_t size, emu_kind kind, uint32_t task, emu_pc pc = 0);

bool emu_peer_enabled(int device, int peer);

#endif
