// SPDX-License-Identifier: Apache-2.0
//
// What a partition costs the ps task that owns it. Pure: psd refuses by it, psctl plan shows it, so that a job's memory
// is known before it starts.
//
// The constants are what psd's structs take, with what malloc and alignment add; psd asserts that they do.
#ifndef PS_COMMON_MEMORY_H
#define PS_COMMON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PS_MEMORY_PAGE = 128,         // beside the data of a page
    PS_MEMORY_BLOCK = 88,         // beside its page
    PS_MEMORY_ROUND = 112,        // of a partition that takes part in rounds
    PS_MEMORY_CONTRIBUTION = 96,  // of each worker, to such a partition
    PS_MEMORY_GRADIENT = 9,       // of each worker, for each block of it, beside the page
    PS_MEMORY_MARK = 40,          // of each client, for each block that it has changed
};

struct ps_memory_part {
    uint64_t count;          // elements
    size_t elem_size;        // bytes
    size_t slots;            // further arrays of that size
    uint32_t round_workers;  // whose gradients a round holds; 0: takes part in none
};

struct ps_memory {
    uint64_t blocks;
    uint64_t values, slots;  // bytes
    uint64_t rounds;         // of the gradients of an open round
    uint64_t kept;           // about blocks and rounds: with many workers and small variables that is most of it
};

// Adds one partition. False, and *m is as it was: more than 63 bits can count.
bool ps_memory_add(struct ps_memory *m, const struct ps_memory_part *part);
// Without marks: what psd asks for before it takes a job.
uint64_t ps_memory_total(const struct ps_memory *m);
// Of so many clients once each has changed every block.
uint64_t ps_memory_marks(const struct ps_memory *m, uint64_t clients);

#endif
