// SPDX-License-Identifier: Apache-2.0
//
// Rare states that the code must be right in, and that tests must therefore reach: each is named here once, and marked
// where it is met by ps_sometimes(). tests/sim counts them over all its seeds, and fails where one was never met: then
// either the state cannot occur any more, or the simulation has lost the way to it.
//
// The idea is FoundationDB's ("TEST" macros, Zhou et al., SIGMOD 2021, section 4) and Antithesis's ("sometimes").
//
// A mark is one relaxed increment of a counter of the whole process. It stands on rare paths only, never on the path
// of an ordinary push or pull. Any thread.
#ifndef PS_COMMON_SOMETIMES_H
#define PS_COMMON_SOMETIMES_H

#include <stdatomic.h>
#include <stdint.h>

// X(NAME, what was met)
#define PS_SOMETIMES(X)                                                             \
    X(DUPLICATE, "a request came again after it had been applied")                  \
    X(STALE_PUSH, "a gradient came for a round that was closed")                    \
    X(PINNED_UPDATE, "an update met a block that a reader had pinned")              \
    X(OLD_RUN, "a request of an earlier run came to the run that replaced it")      \
    X(OLD_INCARNATION, "a request of a worker came after its successor's")          \
    X(PARKED_LATE, "a parked call reached its deadline")                            \
    X(PARKED_ENDED, "a parked call ended with its job")                             \
    X(LATE_VIEW, "a list of members came after a newer one")                        \
    X(ROUND_SHRUNK, "a round closed because a worker it waited for had gone")       \
    X(LEASE_RETURNED, "a dead worker's range went back")                            \
    X(MODE_CHANGED, "a job's next epoch began in another mode")                     \
    X(ROUNDS_BEGUN, "a job came into its rounds between two epochs")                \
    X(ROUNDS_ENDED, "a job left its rounds between two epochs")                     \
    X(PREPARED_LATE, "a change was prepared for a round that a task had closed")    \
    X(HELD, "a round was complete and waited for a change to be decided")           \
    X(BARRIER_AGAIN, "a barrier that had been passed was entered again by a retry") \
    X(STAGED_PART, "an atomic update waited for the rest of it")                    \
    X(RETURNED, "a worker joined as the successor of a dead one")                   \
    X(PUSH_CUT, "an update was sent to a psd again after another had applied it")   \
    X(PIN_REVOKED, "a reader came for the rest of what was not pinned any more")

enum ps_sometimes {
#define X(NAME, text) PS_SOMETIMES_##NAME,
    PS_SOMETIMES(X)
#undef X
        PS_N_SOMETIMES
};

extern _Atomic uint64_t ps_sometimes_met[PS_N_SOMETIMES];

static inline void ps_sometimes(enum ps_sometimes what)
{
    atomic_fetch_add_explicit(&ps_sometimes_met[what], 1, memory_order_relaxed);
}

const char *ps_sometimes_text(enum ps_sometimes what);

#endif
