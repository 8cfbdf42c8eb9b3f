// SPDX-License-Identifier: Apache-2.0
//
// What a job costs the ps tasks that own its partitions. Pure; psctl plan shows it, so that a job's memory is known
// before it starts. It is never less than what psd asks for (psd/job/declaration.c counts its own structs) and, but for
// the constants' rounding up, no more.
#ifndef PS_COMMON_MEMORY_H
#define PS_COMMON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes.
enum {
    PS_MEMORY_JOB = 102400,        // on each task, and most of it for the waits that are kept; as are those for each
    PS_MEMORY_VARIABLE = 544,      // variable there is,
    PS_MEMORY_PARTITION = 64,      // partition
    PS_MEMORY_WORKER = 32,         // and worker
    PS_MEMORY_MEMBER = 1088,       // on the control task, for each worker
    PS_MEMORY_TASK = 32,           // and each ps task;
    PS_MEMORY_NORM = 192,          // of a sync job also for each variable and each partition there is
    PS_MEMORY_PAGE = 128,          // beside the data of a page
    PS_MEMORY_BLOCK = 128,         // beside its page
    PS_MEMORY_ROUND = 512,         // of a partition that takes part in rounds
    PS_MEMORY_CONTRIBUTION = 128,  // of each worker, to such a partition
    PS_MEMORY_GRADIENT = 16,       // of each worker, for each block of it, beside the page
    PS_MEMORY_DEDUP = 40,          // of each client, for each block that it has changed
    PS_MEMORY_ALIGN = 64,          // of each slot in a block's page
};

struct ps_memory_part {
    uint64_t count;          // elements
    int dtype;               // enum ps_dtype; strings are counted as empty ones
    size_t slots;            // further arrays of that size
    uint32_t round_workers;  // whose gradients a round holds; 0: takes part in none
};

struct ps_memory {
    uint64_t blocks;
    uint64_t values, slots;  // bytes
    uint64_t rounds;         // of the gradients of an open round
    uint64_t kept;           // about all that: with many workers and small variables it is most of it
};

// A job as one task knows it, whatever lies there.
struct ps_memory_job {
    uint64_t variables, partitions, workers, tasks;
    bool sync, control;  // control: it is the control task
};

// Bytes of that.
uint64_t ps_memory_job(const struct ps_memory_job *job);
// Adds one partition. False, and *m is as it was: there is no such dtype, or more than 63 bits can count.
bool ps_memory_add(struct ps_memory *m, const struct ps_memory_part *part);
// Without dedup: what psd asks for before it takes a job.
uint64_t ps_memory_total(const struct ps_memory *m);
// Of so many clients once each has changed every block.
uint64_t ps_memory_dedup(const struct ps_memory *m, uint64_t clients);

// How psd divides its --memory: an eighth, within bounds, for requests and answers in flight, a little for the process
// itself, and what is left for blocks, which jobs are admitted by.
#define PS_MEMORY_LEAST (UINT64_C(4) << 20)  // bytes: it takes no less
uint64_t ps_memory_in_flight(uint64_t memory);
uint64_t ps_memory_for_blocks(uint64_t memory);

#endif
