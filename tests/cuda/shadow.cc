// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/shadow.h"
#include <stdlib.h>

enum {
    WRITTEN = 1,
    ATOMIC = 2,        // the last write was atomic
    MANY_THREADS = 4,  // beside `read`, others of its warp have read it since the warp's last barrier
    MANY_WARPS = 8,    // ... and of its block since the block's last barrier
    MANY_BLOCKS = 16,  // ... and of other blocks
    MANY = MANY_THREADS | MANY_WARPS | MANY_BLOCKS
};

struct emu_cell {
    emu_access write, read;
    uint32_t others;  // reads by tasks that are not ordered with `read`, 0: none
    uint32_t generation;
    uint32_t flags;
};

struct shadow_read {
    emu_access access;
    uint32_t flags, next;
};
static std::vector<shadow_read> reads(1);  // 0 is none
static uint32_t unused_reads;

void emu_shadow_init(emu_shadow &shadow, size_t size)
{
    shadow = emu_shadow{};
    shadow.size = size;
}

void emu_shadow_fini(emu_shadow &shadow)
{
    free(shadow.cells);
    shadow.cells = nullptr;
}

void emu_shadows_reset()
{
    reads.resize(1);
    unused_reads = 0;
}

// ---- lists of reads ------------------------------------------------------------------------------------------------

static uint32_t read_add(const emu_access &access, uint32_t flags, uint32_t next)
{
    uint32_t index = unused_reads;
    if (index)
        unused_reads = reads[index].next;
    else {
        index = (uint32_t)reads.size();
        reads.emplace_back();
    }
    reads[index] = shadow_read{access, flags, next};
    return index;
}

static void read_drop_all(uint32_t *list)
{
    while (*list) {
        uint32_t index = *list;
        *list = reads[index].next;
        reads[index].next = unused_reads;
        unused_reads = index;
    }
}

// ---- cells ---------------------------------------------------------------------------------------------------------

// One cell per byte from now on. Reads that share a list get lists of their own.
static void shadow_refine(emu_shadow &shadow)
{
    size_t count = (shadow.size + 3) / 4 * 4;
    emu_cell *fine = (emu_cell *)calloc(count, sizeof *fine);
    for (size_t i = 0; shadow.cells && i < count; i++) {
        fine[i] = shadow.cells[i / 4];
        if (i % 4 == 0)
            continue;
        fine[i].others = 0;
        for (uint32_t r = shadow.cells[i / 4].others; r; r = reads[r].next)
            fine[i].others = read_add(reads[r].access, reads[r].flags, fine[i].others);
    }
    free(shadow.cells);
    shadow.cells = fine;
    shadow.granule = 1;
}

static void shadow_prepare(emu_shadow &shadow, size_t offset, size_t size)
{
    if (shadow.granule == 4 && (offset | size) & 3)
        shadow_refine(shadow);
    else if (!shadow.cells)
        shadow.cells = (emu_cell *)calloc((shadow.size + 3) / 4, sizeof *shadow.cells);
}

static bool shadow_same_block(const emu_access &a, const emu_access &b, unsigned block_threads)
{
    return a.thread / block_threads == b.thread / block_threads;
}

static bool shadow_same_warp(const emu_access &a, const emu_access &b, unsigned block_threads)
{
    return a.thread % block_threads / 32 == b.thread % block_threads / 32;
}

// Is an access of the same kernel, and all that its flags stand for, ordered by barriers or by being one thread's?
static bool shadow_threads_ordered(const emu_access &before, uint32_t flags, const emu_access &now,
                                   unsigned block_threads)
{
    if (before.thread == now.thread && !(flags & MANY))
        return true;
    if (flags & MANY_BLOCKS || !shadow_same_block(before, now, block_threads))
        return false;
    if (before.block_phase != now.block_phase)
        return true;
    if (flags & MANY_WARPS || !shadow_same_warp(before, now, block_threads))
        return false;
    return before.warp_phase != now.warp_phase;
}

static bool shadow_ordered(const emu_access &before, uint32_t flags, const emu_access &now, const emu_task &task)
{
    if (!before.task)
        return true;
    if (before.task != now.task)
        return emu_task_ordered(before.task, task);
    return shadow_threads_ordered(before, flags, now, task.block_threads);
}

static bool shadow_conflict(emu_finding *finding, const emu_access &before, bool wrote)
{
    finding->unordered = true;
    finding->before = before;
    finding->before_wrote = wrote;
    return false;
}

// A second read within one kernel: keeps the one that orders least.
static void cell_read_again(emu_cell *cell, const emu_access &now, unsigned block_threads)
{
    emu_access &before = cell->read;
    if (!shadow_same_block(before, now, block_threads))
        cell->flags |= MANY_BLOCKS;
    else if (before.block_phase != now.block_phase)
        cell->flags &= ~(uint32_t)(MANY_THREADS | MANY_WARPS);
    else if (!shadow_same_warp(before, now, block_threads))
        cell->flags |= MANY_WARPS;
    else if (before.warp_phase != now.warp_phase)
        cell->flags &= ~(uint32_t)MANY_THREADS;
    else if (before.thread != now.thread)
        cell->flags |= MANY_THREADS;
    before = now;
}

static bool cell_read(const emu_shadow &shadow, emu_cell *cell, emu_kind kind, const emu_access &now,
                      const emu_task &task, emu_finding *finding)
{
    if (!shadow_ordered(cell->write, 0, now, task))
        return shadow_conflict(finding, cell->write, true);
    if (!(cell->flags & WRITTEN) && kind == EMU_READ && !shadow.by_host)
        finding->unwritten = true;
    if (cell->read.task == now.task) {
        cell_read_again(cell, now, task.block_threads);
        return true;
    }
    if (cell->read.task && !emu_task_ordered(cell->read.task, task))
        cell->others = read_add(cell->read, cell->flags & MANY, cell->others);
    cell->read = now;
    cell->flags &= ~(uint32_t)MANY;
    return true;
}

static bool cell_write(const emu_shadow &shadow, emu_cell *cell, emu_kind kind, const emu_access &now,
                       const emu_task &task, emu_finding *finding)
{
    bool both_atomic = kind == EMU_ATOMIC && cell->flags & ATOMIC;
    if (!both_atomic && !shadow_ordered(cell->write, 0, now, task))
        return shadow_conflict(finding, cell->write, true);
    if (!shadow_ordered(cell->read, cell->flags, now, task))
        return shadow_conflict(finding, cell->read, false);
    for (uint32_t r = cell->others; r; r = reads[r].next)
        if (!shadow_ordered(reads[r].access, reads[r].flags, now, task))
            return shadow_conflict(finding, reads[r].access, false);
    if (kind == EMU_ATOMIC && !(cell->flags & WRITTEN) && !shadow.by_host)
        finding->unwritten = true;
    read_drop_all(&cell->others);
    cell->write = now;
    cell->read.task = 0;
    cell->flags = WRITTEN | (kind == EMU_ATOMIC ? ATOMIC : 0);
    return true;
}

bool emu_shadow_touch(emu_shadow &shadow, size_t offset, size_t size, emu_kind kind, const emu_access &now,
                      uint32_t generation, emu_finding *finding)
{
    shadow_prepare(shadow, offset, size);
    const emu_task &task = emu_task_at(now.task);
    *finding = emu_finding{};
    bool reads_only = kind == EMU_READ || kind == EMU_READ_TO_COPY;
    for (size_t at = offset; at < offset + size; at += shadow.granule) {
        emu_cell *cell = &shadow.cells[at / shadow.granule];
        if (cell->generation != generation) {
            read_drop_all(&cell->others);
            *cell = emu_cell{};
            cell->generation = generation;
        }
        if (!(reads_only ? cell_read : cell_write)(shadow, cell, kind, now, task, finding))
            return false;
    }
    return !finding->unwritten;
}

void emu_shadow_copy_unwritten(emu_shadow &to, size_t to_offset, emu_shadow &from, size_t from_offset, size_t size)
{
    if (from.by_host)
        return;
    if (to.granule != from.granule || (to_offset | from_offset | size) & 3) {
        if (to.granule == 4)
            shadow_refine(to);
        if (from.granule == 4)
            shadow_refine(from);
    }
    for (size_t i = 0; i < size; i += to.granule)
        if (!(from.cells[(from_offset + i) / from.granule].flags & WRITTEN))
            to.cells[(to_offset + i) / to.granule].flags &= ~(uint32_t)WRITTEN;
}
