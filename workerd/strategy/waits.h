// SPDX-License-Identifier: Apache-2.0
//
// How long a replica waits, and for what: for workerd --http, and as spans of its timeline.
//
//     uint64_t start = wk_wait_begin(env);
//     ... a wait ...
//     wk_wait_end(env, WK_WAIT_CLOCK, "clock", start);
//
// Receives from: strategies, the step loop. Threads: the one that owns the replica adds, any reads.
#ifndef WK_WAITS_H
#define WK_WAITS_H

#include <stdatomic.h>

#include "workerd/strategy/strategy.h"

enum wk_wait {
    WK_WAIT_EXAMPLES,   // to be told which examples are next
    WK_WAIT_BATCH,      // that the feed has made a batch of them
    WK_WAIT_WEIGHTS,    // weights of the ps tasks, and that these have taken a gradient
    WK_WAIT_CLOCK,      // ssp: the slowest worker
    WK_WAIT_GRADIENTS,  // what all replicas add up in a step
    WK_WAIT_WORKERS,    // that all workers come to the end of an epoch, or of the training
    WK_WAITS
};

struct wk_waits {
    atomic_uint_least64_t ns[WK_WAITS];
    unsigned depth;  // a wait within another one counts as that; the replica's thread's
};

// Where nobody asks, 0. wk_wait_end follows, whatever becomes of the wait.
static inline uint64_t wk_wait_begin(const struct wk_env *env)
{
    if (env->waits)
        env->waits->depth++;
    return env->compute || env->waits ? ps_now() : 0;
}

// name: the span's.
static inline void wk_wait_end(const struct wk_env *env, enum wk_wait what, const char *name, uint64_t start)
{
    if (env->waits && --env->waits->depth == 0)
        atomic_fetch_add_explicit(&env->waits->ns[what], ps_now() - start, memory_order_relaxed);
    ps_track_end(env->compute, &(struct ps_span){PS_SPAN_WAIT, name, start});
}

#endif
