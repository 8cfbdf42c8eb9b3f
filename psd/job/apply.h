// SPDX-License-Identifier: Apache-2.0
//
// Changing one block: by a rule, by addition, by overwriting.
//
// Receives from: service, staging. Hands to: step, store. Threads: any.
#ifndef PSD_APPLY_H
#define PSD_APPLY_H

#include "psd/job/locate.h"
#include "psd/job/payload.h"

enum psd_effect { PSD_PUT, PSD_ADD, PSD_SUBTRACT, PSD_RULE };

// What a method of the proto does to a variable outside rounds: a push to one without a rule adds.
enum psd_effect psd_update_effect(int method, const struct psd_variable *v);

// All of a request's extents in one block, as one update: of a slice the rule changes those elements alone, and that
// counts as one step of the block.
struct psd_update {
    const struct psd_job *job;
    enum psd_effect how;
    struct psd_extent *extents;
    size_t n;
    struct psd_feed *feed;
    const struct psd_request_id *id;
    bool promised;   // as in psd_write
    bool count;      // each extent's nonfinite is set, while its numbers are in the cache
    uint32_t slot;   // PSD_PUT: overwrites this one, counted from 1; 0: the values
    uint64_t steps;  // PSD_PUT: that the block has had from then on; 0: as before
};

// psd_block_write of it. The job's snapshot lock is held, shared or exclusive.
enum psd_written psd_update_block(const struct psd_update *u, struct psd_page **spare, uint64_t *found,
                                  uint64_t *version);
// Bytes of the page that a block has after an update of its extent.
size_t psd_update_page_bytes(const struct psd_extent *extent);

// How many of the numbers that an extent brings are NaN or infinite. *first (may be NULL): the first of them, counted
// as an element of the variable.
uint64_t psd_update_nonfinite(const struct psd_extent *extent, struct psd_feed *feed, uint64_t *first);

#endif
