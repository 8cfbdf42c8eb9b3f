// SPDX-License-Identifier: Apache-2.0
//
// What may happen in a trial. A seed draws which of these features are on, so that some trials see one fault alone and
// others all at once; SIM_OFF=name,name switches features off whatever the seed drew. A failing seed is run again with
// one feature less at a time, and what is left of them is printed: the fewest that still fail.
#ifndef SIM_FEATURES_H
#define SIM_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(NAME, name in SIM_OFF, weight: on in so many of 8 seeds)
#define SIM_FEATURES(X)                                                                                       \
    X(CUT, "cut", 6)             /* connections are cut */                                                    \
    X(REPEAT, "repeat", 6)       /* requests arrive twice */                                                  \
    X(LOSE, "lose", 6)           /* unary requests and answers are lost */                                    \
    X(LATE, "late", 6)           /* unary messages and copies arrive seconds late */                          \
    X(KILL, "kill", 6)           /* workers are killed, and come back */                                      \
    X(STALL, "stall", 6)         /* workers are stopped for a while */                                        \
    X(TAKE_OVER, "take_over", 6) /* a stopped worker's successor comes before it goes on */                   \
    X(STALL_PSD, "stall_psd", 6) /* psds are stopped for a while */                                           \
    X(REPLACE, "replace", 2)     /* the job is run again, with `replace`, while the first run is under way */ \
    X(UNARY, "unary", 7)         /* half of the workers make unary calls */                                   \
    X(ATOMIC, "atomic", 6)       /* some pushes are atomic */                                                 \
    X(PUSH_PULL, "push_pull", 6) /* some steps are one PushPull */                                            \
    X(ADD, "add", 6)             /* some steps AssignAdd as well */                                           \
    X(SET_RATE, "set_rate", 6)   /* of a job that began as sync the learning rate is changed on the way */    \
    X(READER, "reader", 7)       /* somebody reads all the while */                                           \
    X(LONG_READ, "long_read", 2) /* reads of several messages, while a psd is short of memory */              \
    X(SET_MODE, "set_mode", 4)   /* the next epoch is to be async, ssp or sync, and there is one more */

enum sim_feature {
#define X(NAME, text, weight) SIM_##NAME,
    SIM_FEATURES(X)
#undef X
        SIM_N_FEATURES
};

uint32_t sim_features_draw(uint64_t seed);  // bit i: feature i is on
static inline bool sim_feature_on(uint32_t features, enum sim_feature f)
{
    return features >> f & 1;
}
// Their names with commas between, into text; "none" where there are none. Returns text.
const char *sim_features_text(uint32_t features, char *text, size_t size);

// Runs this program again with SIM_SEED=seed, SIM_SEEDS=1 and ever fewer features, and prints the fewest with which it
// still fails. Does nothing in such a child.
void sim_shrink(uint64_t seed);

#endif
