// SPDX-License-Identifier: Apache-2.0
//
// The shadow of some memory: for each byte who wrote it last and who has read it since. It finds reads of bytes that
// nothing has written, and two accesses, one of them a write, that nothing orders. It is exact: what it reports
// depends on clocks and barriers, not on the order in which things happened to run.
//
// A cell stands for four bytes, until somebody touches fewer: then for one.
#ifndef EMU_SHADOW_H
#define EMU_SHADOW_H

#include "tests/cuda/task.h"

enum emu_kind {
    EMU_READ,
    EMU_READ_TO_COPY,  // what is not written yet may be copied, and is not written there either
    EMU_WRITE,
    EMU_ATOMIC  // reads and writes; two of them need no order
};

struct emu_access {
    uint32_t task;                     // 0: none
    uint32_t thread;                   // of a kernel: the block's index times the threads of a block, and the thread's
    uint16_t block_phase, warp_phase;  // how many barriers it has passed
    emu_pc pc;
};

struct emu_cell;
struct emu_shadow {
    size_t size = 0;       // bytes
    unsigned granule = 4;  // bytes per cell
    bool by_host = false;  // written by the host, unseen: counts as written
    emu_cell *cells = nullptr;
};

void emu_shadow_init(emu_shadow &shadow, size_t size);
void emu_shadow_fini(emu_shadow &shadow);

struct emu_finding {
    bool unordered;  // with this one
    emu_access before;
    bool before_wrote;
    bool unwritten;  // but kept as read, so that a write beside it is found
};

// Are these bytes read or written in order, and written when they are read? Cells of another generation count as never
// touched.
bool emu_shadow_touch(emu_shadow &shadow, size_t offset, size_t size, emu_kind kind, const emu_access &now,
                      uint32_t generation, emu_finding *finding);

// After a copy: bytes that nothing has written in `from` are not written in `to` either.
void emu_shadow_copy_unwritten(emu_shadow &to, size_t to_offset, emu_shadow &from, size_t from_offset, size_t size);

void emu_shadows_reset();

#endif
