// SPDX-License-Identifier: Apache-2.0
//
// Gradients that replicas add up while the backward pass goes on, in buckets: ranges of the replica's memory, cut in
// the order in which the pass makes them ready (Li et al., PyTorch Distributed, VLDB 2020, section 3.2).
//
// Where the network is slower than the pass, some have not travelled when it ends; and those of the first layers, which
// the next forward pass needs first, are the last that become ready. So they overtake others (bucket_order.h), a step
// waits for their sum alone, and the rule is applied to the variables of each bucket as soon as its sum is there, while
// the next forward pass computes with those before them.
//
// The first layers' sum says that all ranks have computed all of their gradients. So a step in which one has it counts,
// and is never taken back: where a worker is lost then, those that are left complete the sums that nobody has with
// their own gradients, of which they keep copies. (Nothing may fail between the last gradient and wk_buckets_end.)
//
// Not so for replicas that add up something else in the forward pass (synchronized normalization): the step before is
// over by then.
//
// Receives from: mirrored.c. Hands to: bucket_order.h, collective.h, device_sums.h, local_rule.h, rounds.h. Threads:
// the replica's.
#ifndef WK_BUCKETS_H
#define WK_BUCKETS_H

#include "workerd/strategy/bucket_order.h"
#include "workerd/strategy/device_sums.h"
#include "workerd/strategy/rounds.h"

// The ranks agree on the order so many steps after they did last; first in the third step after they have met, as a
// process's first one takes longer than others.
enum { WK_BUCKETS_AGREE_EVERY = 8, WK_BUCKETS_AGREE_FIRST = 2 };

struct wk_bucket {
    float *values;            // the gradients, and then their sum
    float *copy;              // for the others, where a worker is lost: this replica's gradients, once applied the sum
    size_t count;             // numbers, with the padding between two gradients
    const size_t *variables;  // [n] in the order in which they become ready
    size_t n;
    const char *name;  // of the first of them, and how many there are besides: "+2"
    char others[24];
    // Of the step at hand.
    char what[WK_WHAT];  // "dense/kernel+2 in step 7", of a long name its end
    size_t missing;      // variables that are not ready yet
    struct wk_reduction sum;
    bool applied;    // the variables have it
    uint64_t ready;  // ns, ps_now
    uint64_t start;  // likewise, where somebody wants to know
};

struct wk_buckets {
    const struct wk_env *env;
    struct wk_local_rule *rule;
    struct wk_rounds *rounds;
    struct wk_device_sums *sums;  // while it is on, the devices add up; else the collective does
    struct wk_bucket *bucket;
    size_t n;
    struct wk_bucket **of;  // by variable; NULL: it has no gradient that travels
    enum wk_number type;
    enum wk_operation operation;
    bool may_overlap;  // may the rule be applied to some variables before all sums have come?
    struct wk_bucket_order order;
    float *copies;     // memory of copy
    uint64_t reforms;  // of the collective, when a step began last
    unsigned since;    // steps since the ranks last agreed on the order
    // Of the step at hand.
    uint64_t epoch, step;
    uint64_t start;   // ns, ps_now
    float weight;     // of this replica's gradients in the mean
    bool overlaps;    // some leave behind the last bucket: they still travel in the next step
    size_t begun;     // that have left
    bool open;        // the pass is over, and some sums are still to come
    uint64_t waited;  // ns, for sums
    bool timed;       // of a full batch, and the collective adds its buckets up: the next one may tell its times
    bool agrees;      // the ranks tell each other those of the step before:
    double *times;    // [ranks, 2 n + 1] as wk_bucket_order_learn has them
    struct wk_reduction agreement;
    double *table;  // [ranks, n + 1] what each rank has of an open step, while they agree
};

// rule, rounds and sums stay. The rule is open.
void wk_buckets_open(struct wk_buckets *b, const struct wk_env *env, struct wk_local_rule *rule,
                     struct wk_rounds *rounds, struct wk_device_sums *sums);
void wk_buckets_close(struct wk_buckets *b);

// A step's backward pass begins. No step is open.
void wk_buckets_begin(struct wk_buckets *b, const struct wk_work *work);
// A variable's gradient is final. Buckets that are complete leave, in the order that all ranks have.
void wk_buckets_ready(struct wk_buckets *b, size_t variable);
// After the pass. Where the step overlaps with the next one, it is open and counts from now on, and the rule has been
// applied to the variables that became ready last. Else all sums are there, and the rule is not applied. Errors as
// wk_collective_wait, or wk_device_sums_wait: then an open step counts only where another rank has it, as
// wk_buckets_complete says.
enum ps_code wk_buckets_end(struct wk_buckets *b, struct ps_error *e);
// Of an open step: waits for the sum of a bucket, or for all of them, and applies the rule to its variables. After the
// last one no step is open any more. Errors as wk_collective_wait.
enum ps_code wk_buckets_apply(struct wk_buckets *b, struct wk_bucket *one, struct ps_error *e);
enum ps_code wk_buckets_apply_all(struct wk_buckets *b, struct ps_error *e);

// Those that are left when a worker is lost, all of them: where a rank has an open step, they complete it, and
// *completed says so. Errors as wk_rounds_add_up: those that are left then call it again.
enum ps_code wk_buckets_complete(struct wk_buckets *b, bool *completed, struct ps_error *e);
// Does the open step count? Not where this rank still waits for the sum that says so.
bool wk_buckets_counts(const struct wk_buckets *b);
// There is no going on with the others: a step that counts is completed without them, any other one is dropped.
void wk_buckets_complete_alone(struct wk_buckets *b);
// The workers have met anew: nothing is under way, and no step is open.
void wk_buckets_forget(struct wk_buckets *b);

#endif
