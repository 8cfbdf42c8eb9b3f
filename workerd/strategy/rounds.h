// SPDX-License-Identifier: Apache-2.0
//
// What replicas that stay equal do together, one round after the other: a step, whose gradients all add up; or a sum of
// what each has measured. Where a worker is lost, those that are left go on from the same round:
//
//     A worker may have taken a round that another one has not, one round and no more: it lacked the last numbers. Who is
//     behind gets what the round gave, from the lowest rank that has it: after a step the variables and what the
//     optimizer keeps of them, or the sum. Where nobody has taken it, all take it again; but a step
//     that some have begun to apply is completed (buckets.h).
//
//     A worker that comes back has taken none. It is let in between two steps, and gets everything. So does one to
//     which another one was lost that gave it variables: what it has is of two steps.
//
// What is added up lies in memory of these rounds, or of the caller until the workers have met anew: others may still
// send from it, and write to it, when a worker is lost.
//
// Receives from: mirrored.c, buckets.c. Hands to: collective.h, local_rule.h. Threads: the replica's.
#ifndef WK_ROUNDS_H
#define WK_ROUNDS_H

#include "workerd/collective/collective.h"
#include "workerd/strategy/local_rule.h"

enum wk_round { WK_ROUND_STEP, WK_ROUND_SUM };

struct wk_rounds {
    const struct wk_env *env;
    struct wk_local_rule *rule;
    uint64_t epoch, end, steps;  // where training goes on: the epoch, examples of it that all have trained; steps

    uint64_t taken;      // rounds
    enum wk_round last;  // what the last of them was,
    double *sum;         // and what it gave where it was a sum, n_sum numbers
    size_t n_sum;
    int64_t arrival;  // 0: this replica began with the others; else the greater the later it came; -1: it is let in yet
    uint32_t chief;   // the rank of who has been there for longest, of several the lowest
    bool is_new;      // this replica has come back, and has nothing yet
    bool is_torn;     // it has got some of the variables of a later step, and not all yet
    bool met;         // the workers have met anew since wk_rounds_met
    double *table;    // [replicas] what each says of itself, when they agreed last
    double *arrivals;  // [workers] as they agreed last; INFINITY: it was not among them, or was just let in
    double *numbers;   // [numbers_size] that are added up
    float *array;      // [array_size] that is handed over
    size_t numbers_size, array_size;
    // Where a worker is lost and nobody is behind: all that are left call it, new ones too, in the round at hand. It
    // completes that round or does nothing. NULL: it does nothing.
    enum ps_code (*complete)(void *arg, struct ps_error *e);
    void *arg;
};

void wk_rounds_open(struct wk_rounds *r, const struct wk_env *env, struct wk_local_rule *rule);
void wk_rounds_close(struct wk_rounds *r);
// The rank of this replica, of those that are in it at the moment.
uint32_t wk_rounds_rank(const struct wk_rounds *r);
uint32_t wk_rounds_ranks(const struct wk_rounds *r);
// Has nobody been there for longer, of those who have met? Of several the lowest rank leads.
bool wk_rounds_leads(const struct wk_rounds *r);
// The same of those that are left where all end: as wk_collective_leads. ask: as wk_collective_ask_leader.
bool wk_rounds_leads_rest(const struct wk_rounds *r);
void wk_rounds_ask_leader(const struct wk_rounds *r);

// Sums of all ranks' numbers, at once. what: as in struct wk_reduction. ABORTED: a worker is lost, or has ended; what
// belongs to a round comes back with wk_rounds_meet, and until then the values are not the caller's.
enum ps_code wk_rounds_add_up(struct wk_rounds *r, void *values, size_t n, enum wk_number type, const char *what,
                              struct ps_error *e);
// Sums of arrays that stay the caller's: of one that all are to have it is the only one, or of several. own NULL: this
// rank adds nothing. *sum: the rounds', until the next call.
enum ps_code wk_rounds_add_arrays(struct wk_rounds *r, const float *own, size_t n, const char *what, const float **sum,
                                  struct ps_error *e);
// The same as a round. ABORTED: there is no going on.
enum ps_code wk_rounds_sum(struct wk_rounds *r, double *values, size_t n, struct ps_error *e);
// A step is over.
void wk_rounds_take_step(struct wk_rounds *r, uint64_t end, uint64_t steps);
// After ABORTED in the midst of a step: those that are left meet, and where this worker hosts them and admits it those
// who come back. *behind: the others had taken it; so has this replica now, whose variables and slots are those after
// it. Otherwise nobody has. NOT_FOUND: all that are left are new. Another error: there is no going on.
enum ps_code wk_rounds_meet(struct wk_rounds *r, bool admits, bool *behind, struct ps_error *e);
// Does anybody want to come back? Between two steps, by all ranks. They are let in, where they do: ABORTED, and it is
// as after wk_rounds_meet.
enum ps_code wk_rounds_let_in(struct wk_rounds *r, struct ps_error *e);
// By a replica that is new, instead of beginning: gets everything. NOT_FOUND: all are new.
enum ps_code wk_rounds_join(struct wk_rounds *r, struct ps_error *e);
// Have the workers met anew since this was asked last? Then who trains what has changed, from epoch, end and steps on.
bool wk_rounds_met(struct wk_rounds *r);

// Sets what adds nothing to any number, 0 of either sign included.
void wk_rounds_clear(float *values, size_t n);

#endif
