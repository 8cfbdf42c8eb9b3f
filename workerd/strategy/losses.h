// SPDX-License-Identifier: Apache-2.0
//
// The steps of a training, of which only the newest are kept: one that runs for weeks takes no more memory, and sums no
// more up at its end, than one of a day.
//
// Receives from: the step loop, checkpoints, history.c. Threads: the one that owns the replica.
#ifndef WK_LOSSES_H
#define WK_LOSSES_H

#include "workerd/strategy/strategy.h"

enum { WK_LOSSES_KEPT = 1000000 };  // at most, and at least half as many

// Makes it one of so many steps, if it has fewer: those that come to it are empty. What it forgets counts in
// examples_before. How many it keeps depends on steps alone, so that all workers add up the same ones.
void wk_losses_extend(struct wk_history *h, uint64_t steps);
static inline uint64_t wk_losses_kept(const struct wk_history *h)
{
    return h->steps > h->first ? h->steps - h->first : 0;
}
void wk_losses_free(struct wk_history *h);

#endif
