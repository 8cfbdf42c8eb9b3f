// SPDX-License-Identifier: Apache-2.0
//
// The job's rule, applied where the variables lie: in the replica's own memory, from its gradients. Slots (momentum and
// the like) are kept here.
//
// Receives from: the strategies whose variables are the replica's. Hands to: the rules of common/math. Threads: the
// replica's.
#ifndef WK_LOCAL_RULE_H
#define WK_LOCAL_RULE_H

#include "common/math/rule.h"
#include "workerd/strategy/strategy.h"

struct wk_local_rule {
    const struct wk_env *env;
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    int n_slots;       // of each trainable parameter; 0: another replica applies the rule
    float **slots;     // [params * n_slots], NULL where a parameter is not trainable
    uint64_t began;    // the step with which it begins: in a worker that comes late, whose slots are new, not 0
    uint64_t ahead;    // from a checkpoint: it has been applied so many more times than there were steps (modulo 2^64)
    bool rate_is_set;  // by a callback: it follows no schedule any more
    float *factor;     // [params] what clipping by norm multiplies the gradients by
    struct wk_kept_slots *kept;    // where the replica's device applies the rule: the slots there; NULL: the host does
    struct wk_kept_slots *unused;  // or those that there were
};

// applies: this replica does; else it has no slots. Whatever it returns, wk_local_rule_close follows.
// RESOURCE_EXHAUSTED: no memory for the slots.
enum ps_code wk_local_rule_open(struct wk_local_rule *r, const struct wk_env *env, bool applies, struct ps_error *e);
void wk_local_rule_close(struct wk_local_rule *r);
// Where the replica's device can apply the rule, it does from now on, and values, gradients and slots stay there
// between steps. For whoever uses no hooks, and asks the replica for values when it wants them.
enum ps_code wk_local_rule_keep(struct wk_local_rule *r, struct ps_error *e);
bool wk_local_rule_can_keep(const struct wk_local_rule *r);
// From now on the host applies it, as at first.
void wk_local_rule_keep_no_more(struct wk_local_rule *r);

// INVALID_ARGUMENT: the variable's gradient has a NaN or an infinity; the text names it and the element. Otherwise *e
// stays as it is.
enum ps_code wk_check_gradient(const struct wk_env *env, size_t variable, struct ps_error *e);
// Likewise, of all that a step changes.
enum ps_code wk_local_rule_check_finite(const struct wk_local_rule *r, struct ps_error *e);
// Clips the gradients, applies the rule to all that it trains and a state's own rule to the states. step: the job's,
// from 0, which a schedule of the learning rate follows. Where the device applies it, nothing waits for that: an error
// of it comes with the next step, or with the values.
enum ps_code wk_local_rule_apply(struct wk_local_rule *r, uint64_t step, struct ps_error *e);
// Can it be applied to some variables before the gradients of all are known? Not where it clips by a norm.
bool wk_local_rule_is_by_variable(const struct wk_local_rule *r);
// Where it can, and the host applies it: does that to these variables. Each gets its turn before the next
// step's gradients come.
void wk_local_rule_apply_to(struct wk_local_rule *r, const size_t *variables, size_t n, uint64_t step);
// The learning rate of this step, the job's. Setting another one ends a schedule.
bool wk_local_rule_follows_schedule(const struct wk_local_rule *r);
double wk_local_rule_rate(const struct wk_local_rule *r, uint64_t step);
void wk_local_rule_set_rate(struct wk_local_rule *r, uint64_t step, double rate);
// As wk_home.take_rate.
void wk_local_rule_take_rate(struct wk_local_rule *r, bool is_set, double rate);
// Are averages of the weights kept? And puts them in the weights' place.
bool wk_local_rule_averages(const struct wk_local_rule *r);
void wk_local_rule_take_averages(struct wk_local_rule *r);

// Calls fn with each array that a replica keeps: the values of its variables, then the slots, in an order that the
// model and the rule decide. Another code than PS_OK ends it.
typedef enum ps_code (*wk_array_fn)(void *arg, float *values, size_t n, struct ps_error *e);
enum ps_code wk_local_rule_each(const struct wk_local_rule *r, wk_array_fn fn, void *arg, struct ps_error *e);

// The slots, which come to the host for that, and the learning rate. INVALID_ARGUMENT, FAILED_PRECONDITION: the
// checkpoint has not what it should.
void wk_local_rule_save(const struct wk_local_rule *r, struct wk_checkpoint *to);
enum ps_code wk_local_rule_load(struct wk_local_rule *r, const struct wk_checkpoint *from, struct ps_error *e);

#endif
