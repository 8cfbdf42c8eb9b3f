// SPDX-License-Identifier: Apache-2.0
//
// In which order buckets of gradients leave (buckets.h), where the network is slower than the backward pass. They
// become ready from the last layers to the first, 0 ... n - 1, and the next forward pass needs n - 1 first and 0 last.
// So whenever the network is free, the one of those that are ready leaves that is needed first (as the priorities of
// Jayarajan et al., Priority-based parameter propagation, MLSys 2019; Peng et al., ByteScheduler, SOSP 2019). Where a
// step takes longer to compute than to travel, none leaves that would keep the last one waiting.
//
//     ready:   0   1   2   3   4   5   6   7 |
//     leave:    0----- 2----- 5-----| 7----- 6----- 4----- 3----- 1-----
//                                       the step waits for this one
//
// All ranks must have the same order before a step begins. They compute it from what they have measured in steps before
// that, which they tell each other. A bucket is ready after the longest time that a rank takes from its first gradient
// on; and its sum takes the shortest time of all ranks', as the one that begins last with it waits for no other one.
// (Of a small array, which is sent directly, the minimum is too short: that rank does not wait until the others have
// it. Where sums follow one another, the next one includes that wait.) Where the network keeps up, or nearly so, all
// leave as they become ready.
#ifndef WK_BUCKET_ORDER_H
#define WK_BUCKET_ORDER_H

#include <stdbool.h>
#include <stddef.h>

struct wk_bucket_order {
    size_t n;
    size_t *at;       // [n] buckets, in the order in which they leave
    size_t last;      // at[last] is n - 1, for which the step waits; those behind it leave while the next step begins
    bool knows;       // times, of steps that were not the first:
    double *ready;    // [n] ns, from the first gradient on
    double *takes;    // [n] ns
    double computes;  // ns, in a step, forward and backward
};

void wk_bucket_order_open(struct wk_bucket_order *o, size_t n);
void wk_bucket_order_close(struct wk_bucket_order *o);

// Nothing is known: as they become ready.
void wk_bucket_order_reset(struct wk_bucket_order *o);
// From the times of one more step, [ranks, 2 n + 1]: each rank's ready, takes and computes, of one bucket or more. What
// was known before weighs as much.
void wk_bucket_order_learn(struct wk_bucket_order *o, const double *times, size_t ranks);

#endif
