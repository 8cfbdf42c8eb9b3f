// SPDX-License-Identifier: Apache-2.0
//
// Workers that train a job whatever happens to them, and keep account of it. A rank is killed, stopped for a while or
// declared dead, and comes back as a later incarnation (a life). Each push adds 1 to a slot of its own, in every
// partition of "slots": what became of it can be read there.
#ifndef SIM_TRAINER_H
#define SIM_TRAINER_H

#include "libclient/client.h"
#include "tests/sim/features.h"
#include "tests/sim/sim.h"

enum {
    TRAINERS = 4,
    EPOCHS = 3,     // at most
    EXAMPLES = 30,  // in an epoch; no multiple of the batch
    BATCH = 4,
    SLOTS = 192,
    MAX_PARTITIONS = 4,
    MAX_LIVES = 64,
    MAX_LEASES = 256,
};

// One push of one life, whose slot is its index.
struct push {
    uint32_t rank;
    uint64_t epoch, first, round;
    uint32_t rows;
    bool acknowledged, atomic, added;  // added: its slot of "extra" as well, acknowledged
                                       // round 0: it was applied on arrival
    uint32_t stale;                    // partitions that dropped it
};

// async, ssp: a range of an epoch in the hands of one life. It is done when the control task has answered the next
// request; asked: when it may have taken that up.
struct lease {
    uint64_t epoch, first, count;
    bool asked, done;
};

struct trial;

struct life {
    struct trial *trial;
    uint32_t rank;
    struct psc_world world;
    struct psc_client *client;
    psc_share share;
    uint64_t epoch, taken, steps, closed;
    uint64_t clock, slowest, version;
    int pending;  // operations of this step under way
    struct push *push;
    struct lease *lease;           // the share's
    struct lease *trained, *next;  // async, ssp: before it, not told yet; after it, asked for ahead
    psc_share ahead;               // next's
    float *weights, *gradient, extra[SLOTS];
    int64_t sum;
    bool joined, over, finished;
    uint64_t asleep_until;  // ns
    struct ps_error error;
};

struct trial {
    uint64_t seed;
    uint32_t features;
    psc_update update;
    uint32_t staleness, enough;  // enough: replicas_to_aggregate, 0: all
    uint32_t share_rounds;       // of a sync share; 0: all
    uint32_t ps, partitions;
    uint32_t epochs;
    bool follows;  // the workers train each share as it says
    struct sim *sim;
    bool declared, ended;
    bool calm;              // the faults have stopped
    bool replacing;         // the workers of the first run are dead, those of the second have not started
    bool replaces;          // this is the second run
    const void *over_run;   // the control task's state of the run that is over, once it is
    bool lost;              // its second run ended before it was declared, and a third has begun
    const void *first_run;  // the control task's state of the run that was replaced
    struct life *current[TRAINERS];
    bool finished[TRAINERS];
    struct life *lives[MAX_LIVES];
    uint32_t n_lives;
    struct push pushes[SLOTS];
    uint32_t n_pushes;
    struct lease leases[MAX_LEASES];
    uint32_t n_leases;
    psc_update modes[EPOCHS];  // of each epoch that has begun; 0: none has been met
    int64_t sum;               // that the last reduction came to, for all alike
    bool summed;
};

// Fails the test with the seed.
#define CHECK(trial, condition, ...)                                                                              \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            char on_[512];                                                                                        \
            print_message("# seed %" PRIu64 ", %s, with %s: %s:%d: %s\n", (trial)->seed, trial_name(trial),       \
                          sim_features_text((trial)->features, on_, sizeof on_), __FILE__, __LINE__, #condition); \
            fail_msg(__VA_ARGS__);                                                                                \
        }                                                                                                         \
    } while (0)
const char *trial_name(const struct trial *t);
static inline bool trial_has(const struct trial *t, enum sim_feature f)
{
    return sim_feature_on(t->features, f);
}

void trainer_start(struct trial *t, uint32_t rank);  // its first life, or the next
void trainer_kill(struct life *l);
// Kills every worker. As soon as the control task takes the job for over, its account is dropped, and a first life of
// every rank starts with `replace`; what the first run has under way in the network goes on arriving.
void trial_replace(struct trial *t);
void trainers_stop(struct trial *t);  // the trial has ended: its clients are closed
void trainers_free(struct trial *t);
// Does the control task know this life as a live member?
bool trainer_is_member(const struct life *l);
bool trial_is_over(const struct trial *t);

#endif
