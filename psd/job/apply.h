// SPDX-License-Identifier: Apache-2.0
//
// Changing one block: by a rule, by addition, by overwriting.
//
// Receives from: service, staging. Hands to: storage, numbers, the rules of common/. Threads: any.
#ifndef PSD_UPDATE_H
#define PSD_UPDATE_H

#include "psd/job/shard.h"

enum psd_effect { PSD_PUT, PSD_ADD, PSD_SUBTRACT, PSD_RULE };

// What a method of the proto does to a variable outside rounds: a push to one without a rule adds.
enum psd_effect psd_update_effect(int method, const struct psd_variable *v);

// A payload that is walked through: the slice of the last look, and the offset at which that begins. Looks may go back,
// at the cost of another walk.
struct psd_feed {
    const struct ps_slices *payload;
    size_t slice, base;
};

void psd_feed_copy(struct psd_feed *feed, size_t offset, size_t len, void *to);
// Calls fn with runs of whole, aligned elements, each short enough to stay in the first-level cache: the received bytes
// themselves where they are aligned, else a copy. first: the index of the run's first element. false ends the walk.
void psd_feed_walk(struct psd_feed *feed, size_t offset, size_t bytes, size_t elem,
                   bool (*fn)(void *arg, size_t first, const void *data, size_t n), void *arg);

// All of a request's pieces in one block, as one update: of a slice the rule changes those elements alone, and that
// counts as one step of the block. out gets all of the page. The block's lock and the job's cut (shared, or exclusive)
// are held, between psd_block_begin_with and psd_block_commit. count: each piece's nonfinite is set, while its numbers are
// in the cache.
void psd_update_block(const struct psd_job *job, enum psd_effect change, struct psd_extent *pieces, size_t n,
                      struct psd_block *b, struct psd_page *out, struct psd_feed *feed, bool count);
// Bytes of the page that a block has after such an update; the block's lock is held.
size_t psd_update_page_bytes(const struct psd_extent *piece, const struct psd_block *b);

// How many of the numbers that a piece brings are NaN or infinite. *first (may be NULL): the first of them, counted as
// an element of the variable.
uint64_t psd_update_nonfinite(const struct psd_extent *piece, struct psd_feed *feed, uint64_t *first);

// Ends the job: sets its failure text unless it has one (false). What waits in it is collected at the next tick at the
// latest.
bool psd_job_fail(struct psd_job *job, const char *reason);

#endif
