// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel: its blocks one after the other, the threads of a block as fibers, with barriers, shuffles and shared
// memory, in an order that is drawn.
#ifndef EMU_KERNEL_H
#define EMU_KERNEL_H

#include "tests/cuda/touch.h"

enum {
    EMU_THREADS_MAX = 1024,
    EMU_SHARED_MAX = 48 * 1024,        // without cudaFuncSetAttribute
    EMU_SHARED_OPTIN_MAX = 99 * 1024,  // with it: as many as a small GPU has
};

struct emu_kernel {
    std::string name;
    emu_place at;
    std::shared_ptr<const emu_call> call;
    dim3 grid, block;
    size_t shared;
};

// In the task. On an error emu_fail has been called.
void emu_kernel_run(const emu_kernel &kernel, uint32_t task);

void emu_launches_reset();

// Does this thread of the host run a kernel's own code now?
bool emu_in_kernel();
// An access by the thread of the kernel that runs now; does not return if it is wrong.
void emu_kernel_touch(const void *pointer, size_t size, emu_kind kind, const void *return_address);

#endif
