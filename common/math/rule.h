// SPDX-License-Identifier: Apache-2.0
// Update rules: how a gradient changes a variable. Pure functions over one block, used by psd (on storage's blocks)
// and by the strategies that keep variables in the worker.
//
// Formulas, names and defaults of hyperparameters are Keras 3's (keras.optimizers), float32 throughout.
#ifndef PS_COMMON_RULE_H
#define PS_COMMON_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// Slots: a rule's own (at most 3), and those of what any rule that learns may have besides.
enum { PS_RULE_MAX_OWN_SLOTS = 3, PS_RULE_MAX_SLOTS = 5, PS_RULE_MAX_HYPERS = 16 };

#define PS_RATE_MAX 1e6  // the greatest learning rate

// Where a rule that learns (see below) has the hyperparameters that all of those have; its own follow. 0: off.
enum {
    PS_HYPER_LEARNING_RATE,
    PS_HYPER_WEIGHT_DECAY,     // w -= w * weight_decay * learning_rate, before the update
    PS_HYPER_CLIPNORM,         // of each variable's gradient
    PS_HYPER_CLIPVALUE,        // of each element
    PS_HYPER_GLOBAL_CLIPNORM,  // of the gradient of all variables together
    // Gradients are added up in the slot gradient_accumulator; every so many steps the rule is applied to their mean,
    // as its step of that number. 1: off, too.
    PS_HYPER_ACCUMULATION_STEPS,
    // The moving average of the weights after each step is kept in the slot average, and every overwrite_frequency
    // applications of the rule the weights become it. Whoever ends a training takes the average for the weights.
    PS_HYPER_USE_EMA,
    PS_HYPER_EMA_MOMENTUM,
    PS_HYPER_EMA_OVERWRITE_FREQUENCY,
    PS_HYPER_OWN
};

// A gradient may lie anywhere in a received message.
typedef float ps_unaligned_float __attribute__((aligned(1)));

// One application. w and slot are read from *_in and written to *_out, which are either the same (in place) or do not
// overlap. n elements each. g is the mean gradient.
struct ps_rule_args {
    size_t n;
    uint64_t step;      // 1 for the first application to this block (Keras's _iterations + 1)
    bool trainable;     // false: clipping and weight decay pass it by
    float clip_factor;  // where trainable: what clipping by norm multiplies g by (ps_clip_factor), else 1
    const ps_unaligned_float *g;
    const float *w_in;
    float *w_out;
    const float *slot_in[PS_RULE_MAX_SLOTS];
    float *slot_out[PS_RULE_MAX_SLOTS];
};

// hyper[i] is the value of rule->hyper[i].
typedef void (*ps_rule_apply_fn)(const double *hyper, const struct ps_rule_args *a);

enum ps_hyper_type { PS_HYPER_REAL, PS_HYPER_COUNT, PS_HYPER_FLAG };

struct ps_rule_hyper {
    const char *name;
    double value;             // the default
    double min, max;          // accepted values, both inclusive
    enum ps_hyper_type type;  // COUNT: a whole number; FLAG: 0 or 1
    bool fixed;               // the slots depend on it: not to be changed when they are made
};

struct ps_rule {
    const char *name;
    bool learns;    // g is a gradient: there is a learning rate, and the others of PS_HYPER_*
    int own_slots;  // float32 arrays of the variable's size, without those that hyperparameters add: see ps_rule_slots
    const char *own_slot_name[PS_RULE_MAX_OWN_SLOTS];
    int slot_start[PS_RULE_MAX_OWN_SLOTS];           // index of the hyperparameter it starts at; 0: starts at 0
    struct ps_rule_hyper hyper[PS_RULE_MAX_HYPERS];  // ends with name NULL
    ps_rule_apply_fn apply;                          // without clipping and weight decay; called by ps_rule_apply
};

// assign_add; sgd, momentum, nesterov, adagrad, adadelta, rmsprop, rmsprop_momentum, rmsprop_centered, adam, adamw,
// adam_amsgrad, adamw_amsgrad, nadam, adamax, lion, ftrl; delayed_nesterov, which is not Keras's; ema. NULL: no such
// rule. Keras's Adafactor, Lamb and Muon are not among them: what they do to an element depends on a whole variable.
const struct ps_rule *ps_rule_find(const char *name);
// The i-th rule, NULL past the last.
const struct ps_rule *ps_rule_at(int i);
bool ps_rule_has(const struct ps_rule *rule, const char *hyper);
void ps_rule_names(char *names, size_t size);  // "assign_add, sgd, ..."

// Copies the defaults into hyper[PS_RULE_MAX_HYPERS].
void ps_rule_defaults(const struct ps_rule *rule, double *hyper);
// Sets one by name. INVALID_ARGUMENT names the rule, the key (with the nearest known one) or the accepted range.
enum ps_code ps_rule_set(const struct ps_rule *rule, double *hyper, const char *name, double value, struct ps_error *e);
// What no hyperparameter knows alone, when all are set: of the three ways to clip at most one may be on.
enum ps_code ps_rule_check(const struct ps_rule *rule, const double *hyper, struct ps_error *e);
// Likewise for whoever has variables in parts: with accumulation nothing is clipped by its norm there, as nobody has
// the accumulated gradient of a variable whole.
enum ps_code ps_rule_check_parts(const struct ps_rule *rule, const double *hyper, struct ps_error *e);
// How many slots there are with these hyperparameters, and Keras's name of the k-th.
int ps_rule_slots(const struct ps_rule *rule, const double *hyper);
const char *ps_rule_slot_name(const struct ps_rule *rule, const double *hyper, int k);
// The slot that keeps the average of the weights; -1: none does.
int ps_rule_average_slot(const struct ps_rule *rule, const double *hyper);
// What every element of slot k is before the first application.
float ps_rule_slot_init(const struct ps_rule *rule, const double *hyper, int k);

// The gradient is scaled and clipped, the weight decayed, then the rule applied. Where the learning rate follows a
// schedule, hyper[PS_HYPER_LEARNING_RATE] is that of the step. Elements do not know of each other: a block may be cut
// into as many applications as one likes.
void ps_rule_apply(const struct ps_rule *rule, const double *hyper, const struct ps_rule_args *a);

// For clipping by norm: the sum of the squares of g, in an order that depends on n alone.
double ps_sum_squares(const float *g, size_t n);
// min(1, limit / norm). NaN where the sum is not finite, as in Keras's global_clipnorm; 1 where limit is 0.
float ps_clip_factor(double sum_squares, double limit);

// The rule that a Keras optimizer, or delayed_nesterov, is ("sgd", "Adam": any case). Of those that differ in their
// slots it is the one with the fewest that will do: sgd, momentum, nesterov (flag: sgd's `nesterov`); rmsprop,
// rmsprop_momentum, rmsprop_centered (flag: rmsprop's `centered`); adam, adam_amsgrad and adamw, adamw_amsgrad (flag:
// their `amsgrad`). With a momentum and without the flag it has all hyperparameters that any of them has. NULL: no such
// optimizer.
const struct ps_rule *ps_rule_for_optimizer(const char *keras_name, double momentum, bool flag);

#endif
