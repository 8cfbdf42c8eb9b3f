// SPDX-License-Identifier: Apache-2.0
//
// Learning rates that follow the step. Pure functions, used by psd and by the strategies that keep variables in the
// worker. Formulas and names are Keras 3's (keras.optimizers.schedules), all of which are here; a linear warm-up may
// come before any of them. That of Keras's CosineDecay is the same one: there warmup_target is `initial`, and
// initial_learning_rate `warmup_initial`.
#ifndef PS_COMMON_SCHEDULE_H
#define PS_COMMON_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum ps_schedule_kind {
    PS_SCHEDULE_NONE,
    PS_CONSTANT,
    PS_PIECEWISE,        // PiecewiseConstantDecay
    PS_EXPONENTIAL,      // ExponentialDecay
    PS_COSINE,           // CosineDecay
    PS_COSINE_RESTARTS,  // CosineDecayRestarts
    PS_POLYNOMIAL,       // PolynomialDecay
    PS_INVERSE_TIME,     // InverseTimeDecay
};

enum { PS_SCHEDULE_MAX_BOUNDARIES = 32 };

struct ps_schedule {
    enum ps_schedule_kind kind;
    double initial;                                 // not piecewise
    uint64_t decay_steps;                           // neither constant nor piecewise; of the first cosine that restarts
    double decay_rate;                              // exponential, inverse_time
    bool staircase;                                 // exponential, inverse_time
    double alpha;                                   // cosine, cosine_restarts
    double t_mul, m_mul;                            // cosine_restarts: of each cosine's length and height
    double end_learning_rate, power;                // polynomial
    bool cycle;                                     // polynomial
    size_t n_boundaries;                            // piecewise
    uint64_t boundary[PS_SCHEDULE_MAX_BOUNDARIES];  // values[i] holds up to and with step boundary[i]
    double value[PS_SCHEDULE_MAX_BOUNDARIES + 1];
    uint64_t warmup_steps;  // the first ones; the schedule's own steps are counted from 0 after them
    double warmup_initial;
};

// Fields that psc_schedule and the message Schedule have by the same names: all but kind, boundaries and values.
#define PS_SCHEDULE_NUMBERS(X) \
    X(initial)                 \
    X(decay_steps)             \
    X(decay_rate)              \
    X(staircase)               \
    X(alpha)                   \
    X(t_mul)                   \
    X(m_mul)                   \
    X(end_learning_rate)       \
    X(power)                   \
    X(cycle)                   \
    X(n_boundaries)            \
    X(warmup_steps)            \
    X(warmup_initial)

enum ps_schedule_kind ps_schedule_find(const char *name);  // PS_SCHEDULE_NONE: "" or unknown
const char *ps_schedule_name(enum ps_schedule_kind kind);
void ps_schedule_names(char *to, size_t size);  // "constant, piecewise, ... or inverse_time"
// INVALID_ARGUMENT names what is missing or out of range.
enum ps_code ps_schedule_check(const struct ps_schedule *s, struct ps_error *e);
// The rate at a step, from 0 (Keras's optimizer.iterations). kind is not NONE.
double ps_schedule_rate(const struct ps_schedule *s, uint64_t step);

#endif
