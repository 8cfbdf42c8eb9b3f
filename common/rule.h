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

#include "common/error.h"

enum { PS_RULE_MAX_SLOTS = 3, PS_RULE_MAX_HYPERS = 8 };

// One application. w and slot are read from *_in and written to *_out, which are either the same (in place) or do not
// overlap. n elements each. g is the mean gradient.
struct ps_rule_args {
    size_t n;
    uint64_t step;  // 1 for the first application to this block (Keras's iterations + 1)
    const float *g;
    const float *w_in;
    float *w_out;
    const float *slot_in[PS_RULE_MAX_SLOTS];
    float *slot_out[PS_RULE_MAX_SLOTS];
};

struct ps_rule;

// hyper[i] is the value of ps_rule_hyper(rule, i).
typedef void (*ps_rule_apply_fn)(const double *hyper, const struct ps_rule_args *a);

struct ps_rule_hyper {
    const char *name;
    double value;     // the default
    double min, max;  // accepted values, both inclusive
    bool flag;        // 0 or 1 and nothing between
};

struct ps_rule {
    const char *name;
    int slots;  // float32 arrays of the variable's size, zero at first
    const char *slot_name[PS_RULE_MAX_SLOTS];
    struct ps_rule_hyper hyper[PS_RULE_MAX_HYPERS];  // ends with name NULL
    ps_rule_apply_fn apply;
};

// assign_add, sgd (momentum = 0: no slot), momentum (sgd with momentum, nesterov), adam. NULL: no such rule.
const struct ps_rule *ps_rule_find(const char *name);
// The i-th rule, NULL past the last.
const struct ps_rule *ps_rule_at(int i);
// The rule that a Keras optimizer is ("sgd", "Adam": any case), given its momentum: sgd with one other than 0 is the
// rule momentum, whose hyperparameters are all that Keras's sgd takes. NULL: no such optimizer.
const struct ps_rule *ps_rule_for_optimizer(const char *keras_name, double momentum);
// Copies the defaults into hyper[PS_RULE_MAX_HYPERS].
void ps_rule_defaults(const struct ps_rule *rule, double *hyper);
// Sets one by name. INVALID_ARGUMENT names the rule, the key (with the nearest known one) or the accepted range.
enum ps_code ps_rule_set(const struct ps_rule *rule, double *hyper, const char *name, double value, struct ps_error *e);

#endif
