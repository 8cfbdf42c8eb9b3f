// SPDX-License-Identifier: Apache-2.0
//
// Where the ranges of a request lie: the extents of blocks of this task that they cover.
//
// Receives from: service. Hands to: nobody. Threads: any; a declaration that stands is read without a lock.
#ifndef PSD_LOCATE_H
#define PSD_LOCATE_H

#include "psd/job/job.h"

// A run of elements inside one block of this task.
struct psd_extent {
    struct psd_variable *variable;
    struct psd_partition *partition;
    struct psd_round *round;  // the partition's when the request came: the same for all that is done for it
    uint64_t first;           // element of the variable
    uint32_t block;
    uint32_t offset, count;  // elements inside the block
    uint32_t tensor;         // of the request,
    uint32_t named;          // and the partition that it names, + 1; 0: it names the variable
    uint32_t slot;           // of the rule, counted from 1, instead of the values; 0: the values
    uint32_t bytes;          // of the values; of STRING as they are in a payload, 0 until that is known
    uint32_t at;             // updates: where they begin in the payload
    uint32_t text_at;        // STRING: at is where the lengths begin, this where the bytes do
    uint32_t nonfinite;      // pushes: its elements that are NaN or infinite, as far as they have been applied
};

struct psd_extents {
    struct psd_extent *v;
    size_t n, cap;
    uint64_t bytes;
};

// What a request does with its ranges: an update of a STRING variable or a push to a round covers whole blocks.
enum psd_access { PSD_READ, PSD_UPDATE, PSD_PUSH };

// Appends the extents of the ranges of a request, which must lie on this task, those of one variable one after the
// other and in order, in a read those of its slots after those of its values (NOT_FOUND, OUT_OF_RANGE,
// INVALID_ARGUMENT, FAILED_PRECONDITION say what was asked and what is here). Extents in one block are neighbours, but
// for slots. payload: bytes that an update brings, so that it costs no more than it weighs.
enum ps_code psd_job_locate(const struct psd_job *job, Paramserver__V1__Tensor *const *tensors, size_t n,
                            enum psd_access access, size_t payload, struct psd_extents *extents, struct ps_error *e);
// The elements of one range, wherever they lie; fails as psd_job_locate does.
enum ps_code psd_job_find_range(const struct psd_job *job, const Paramserver__V1__Tensor *tensor,
                                const struct psd_variable **variable, uint64_t *first, uint64_t *count,
                                struct ps_error *e);
void psd_extents_free(struct psd_extents *extents);

// The index past the last of the extents from i on that lie in the block of extent i.
static inline size_t psd_extents_block_end(const struct psd_extents *extents, size_t i)
{
    size_t end = i + 1;
    while (end < extents->n && extents->v[end].partition == extents->v[i].partition &&
           extents->v[end].block == extents->v[i].block)
        end++;
    return end;
}

static inline struct psd_block *psd_extent_block(const struct psd_extent *p)
{
    return &p->partition->blocks[p->block];
}

#endif
