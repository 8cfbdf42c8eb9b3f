// SPDX-License-Identifier: Apache-2.0
// A world for libclient's tests: a few ps tasks in memory, a network that fails when told to, and a clock that moves
// when nothing else is left to do. It keeps to the contract, in the least code: arithmetic is float32's, pushes add (or
// are counted in a round), a block takes a sequence once, and every arrival is written down.
#ifndef TESTS_FAKE_PS_H
#define TESTS_FAKE_PS_H

#include <stdatomic.h>

#include "common/wire/progress.h"
#include "libclient/transport.h"

enum { FAKE_TASKS = 3, FAKE_VARIABLES = 8, FAKE_ARRIVALS = 8192 };

// What happens to a request on its way.
enum fake_fate {
    FAKE_DELIVER,
    FAKE_CUT_BEFORE,  // the connection breaks: this request and those behind it are lost, and all answers on their way
    FAKE_CUT_AFTER,   // likewise, but this request has taken effect
    FAKE_REFUSE,      // RESOURCE_EXHAUSTED
    FAKE_ABORT,       // ABORTED
    FAKE_NO_JOB,      // NOT_FOUND
    FAKE_UNKNOWN,     // UNAUTHENTICATED
    FAKE_GARBAGE,     // an answer that is none
    FAKE_GONE,        // nobody listens
    FAKE_LOSE,        // never arrives, is never answered: its deadline ends it
};

struct fake_arrival {
    uint32_t task;
    int method;
    uint32_t priority;
    uint64_t sequence, oldest, first, count, round, version, snapshot, atomic_bytes;
    size_t bytes;  // of payload
    size_t tensors;
    bool duplicate;  // changed nothing
};

struct fake;

// Decides the fate of the n-th request (from 0, over all tasks) as it arrives.
typedef enum fake_fate (*fake_fate_fn)(struct fake *f, uint32_t task, int method, uint64_t n);

struct fake {
    // Set by the test.
    uint64_t seed;      // of what takes how long
    bool unary;         // requests overtake each other, and only the one call is cut
    bool shuffle;       // answers overtake each other
    uint64_t read_ns;   // that the answer to a read is longer on its way
    fake_fate_fn fate;  // NULL: all is well
    uint64_t param;     // for fate
    int watched;        // a method, of which is kept
    uint64_t deadline;  // that of the last call
    bool answers_to_wrong_task;
    bool silent;          // heartbeats are lost
    bool end_job;         // heartbeats are answered with ABORTED
    bool runs_behind;     // all partitions but a variable's first, by a round
    bool counts_whole;    // of a push to a round the last request of each partition says whether it counts
    uint64_t round;       // closed; a Pull of a later one is parked until it is and fake_wake is called
    bool barrier_open;    // likewise
    size_t reply_bytes;   // a read's answer holds at most so much; 0: all
    bool joins;           // a range's blocks come as one tensor
    bool forgets_staged;  // what is kept of an atomic update
    bool late, drain;
    uint32_t dead_after_ms;  // as Join says; 0: 3000
    uint64_t resumptions;
    const uint64_t *share;  // what a Lease is answered with: first, count, stride, end, steps; NULL: what fits
    bool left;              // worker 0, which makes another epoch of the members
    bool heir;              // and whoever is the chief now is in the place of one that is dead
    uint64_t chief_silent_ms;
    uint64_t furthest;
    uint64_t data_epoch, lease_epoch, slowest;
    size_t collective_size;           // so many workers make a Reduce complete
    bool hold_memory;                 // keeps the slices of updates until fake_release_memory
    bool keeps_memory;                // which shutdown does not call
    uint64_t generation[FAKE_TASKS];  // as made by fake_world
    uint64_t newest[FAKE_TASKS];      // numbers that they know

    void (*aside)(bool);  // may be NULL. What the fake does between true and false is not the client's doing

    // Seen by the test.
    struct fake_arrival arrivals[FAKE_ARRIVALS];
    size_t n_arrivals;
    _Atomic uint64_t now;
    uint64_t arrived;
    int leaves, heartbeats;
    char reason[512];  // of the last Leave
    uint64_t step;     // of the last heartbeat, as the next
    struct ps_progress progress;
    uint64_t checkpoint;  // as the last heartbeat says, as the next three
    bool checkpoint_failed;
    char checkpoint_text[64];
    bool waits;
    int worlds;  // that are not destroyed: none is used afterwards
    int cuts;
    int met;              // Reduces
    int released;         // snapshots
    char last_name[128];  // of these
    uint32_t staleness, join_within_ms;
    char configuration[64];  // the last Join's
    uint64_t joined_after;   // the newest in the last Join
    uint64_t split_blocks;   // that a sequence came to in two requests: must stay 0

    struct fake_inside *in;
};

struct psc_world fake_world(struct fake *f);  // f zeroed before; the first call initializes it
// Runs until *done is not 0. False: nothing is left to happen, or `seconds` of the fake's time have passed.
bool fake_run(struct fake *f, atomic_int *done, double seconds);
void fake_idle(struct fake *f, double seconds);  // runs that long
void fake_wake(struct fake *f);
void fake_release_memory(struct fake *f);
uint32_t fake_owner(struct fake *f, const char *variable, uint64_t element);
float fake_value(struct fake *f, const char *variable, uint64_t element);     // at its owner
const void *fake_at(struct fake *f, const char *variable, uint64_t element);  // likewise: a number, or a psc_string
const void *fake_declared(struct fake *f);                                    // the DeclareRequest
void fake_free(struct fake *f);

#endif
