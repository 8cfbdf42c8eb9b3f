// SPDX-License-Identifier: Apache-2.0
//
// The values of a request where they lie in the received bytes, read in runs.
//
// Receives from: service. Hands to: apply, staging. Threads: a feed belongs to its request.
#ifndef PSD_PAYLOAD_H
#define PSD_PAYLOAD_H

#include "common/wire/slice.h"

// A payload that is walked through: the slice of the last look, and the offset at which that begins. Looks may go back,
// at the cost of another walk.
struct psd_feed {
    const struct ps_slices *payload;
    size_t slice, base;
};

void psd_feed_copy(struct psd_feed *feed, size_t offset, size_t len, void *to);
// Calls fn with runs of whole elements of at most 8 bytes, where they lie in the received bytes: unaligned, and each
// short enough to stay in the first-level cache. An element that two slices share is copied. first: the index of the
// run's first element. false ends the walk.
void psd_feed_walk(struct psd_feed *feed, size_t offset, size_t bytes, size_t elem,
                   bool (*fn)(void *arg, size_t first, const void *data, size_t n), void *arg);

#endif
