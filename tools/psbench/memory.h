// SPDX-License-Identifier: Apache-2.0
//
// The limits of memory: one thread that copies, or applies a rule, over a variable's size again and again.
#ifndef PSBENCH_MEMORY_H
#define PSBENCH_MEMORY_H

#include "common/math/rule.h"
#include "tools/psbench/load.h"

// A load_work_fn. arg: struct bench_case.
enum ps_code memory_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

// A variable of n floats with its slots, changed by the rule as psd does it.
struct memory_variable {
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    uint64_t step;
    float *w, *slot[PS_RULE_MAX_SLOTS];
};

void memory_variable_init(struct memory_variable *v, enum bench_rule rule, uint64_t n);
// Elements [first, first + n) by the gradient g[n].
void memory_variable_apply(struct memory_variable *v, uint64_t first, const float *g, size_t n);

#endif
