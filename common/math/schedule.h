// SPDX-License-Identifier: Apache-2.0
//
// Learning rates that follow the step. Pure functions, used by psd and by the strategies that keep variables in the
// worker. Formulas and names are Keras 3's (keras.optimizers.schedules): PiecewiseConstantDecay, ExponentialDecay,
// CosineDecay; a linear warm-up may come before any of them.
#ifndef PS_COMMON_SCHEDULE_H
#define PS_COMMON_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum ps_schedule_kind { PS_SCHEDULE_NONE, PS_CONSTANT, PS_PIECEWISE, PS_EXPONENTIAL, PS_COSINE };

enum { PS_SCHEDULE_MAX_BOUNDARIES = 32 };

struct ps_schedule {
    enum ps_schedule_kind kind;
    double initial;                                 // not piecewise
    uint64_t decay_steps;                           // exponential, cosine
    double decay_rate;                              // exponential
    bool staircase;                                 // exponential
    double alpha;                                   // cosine
    size_t n_boundaries;                            // piecewise
    uint64_t boundary[PS_SCHEDULE_MAX_BOUNDARIES];  // values[i] holds up to and with step boundary[i]
    double value[PS_SCHEDULE_MAX_BOUNDARIES + 1];
    uint64_t warmup_steps;  // the first ones; the schedule's own steps are counted from 0 after them
    double warmup_initial;
};

enum ps_schedule_kind ps_schedule_find(const char *name);  // PS_SCHEDULE_NONE: "" or unknown
const char *ps_schedule_name(enum ps_schedule_kind kind);
// INVALID_ARGUMENT names what is missing or out of range.
enum ps_code ps_schedule_check(const struct ps_schedule *s, struct ps_error *e);
// The rate at a step, from 0 (Keras's optimizer.iterations). kind is not NONE.
double ps_schedule_rate(const struct ps_schedule *s, uint64_t step);

#endif
