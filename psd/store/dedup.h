// SPDX-License-Identifier: Apache-2.0
//
// What a block knows of the requests that it has taken, so that each takes effect once.
//
// Receives from: block. Hands to: nobody. Threads: any; guarded by the block's lock.
#ifndef PSD_DEDUP_H
#define PSD_DEDUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/wire.h"

// Which sequences of one client a block has taken: all below base, and those whose bit (sequence % PS_WINDOW)
// is set.
struct psd_mark {
    uint64_t base;
    uint64_t bits[PS_WINDOW / 64];
};

// What a mutating request is known by.
struct psd_request_id {
    uint32_t client;  // index in the job
    uint64_t sequence, oldest;
};

void psd_mark_advance(struct psd_mark *mark, uint64_t oldest);
bool psd_mark_test(const struct psd_mark *mark, uint64_t sequence);
void psd_mark_set(struct psd_mark *mark, uint64_t sequence);

#endif
