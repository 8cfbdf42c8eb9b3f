// SPDX-License-Identifier: Apache-2.0
//
// In double, and with the same bits on every machine: ps tasks evaluate a schedule each for itself.
#include "common/math/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/math/elementary.h"
#include "common/math/rule.h"

static const char *const names[] = {[PS_SCHEDULE_NONE] = "",        [PS_CONSTANT] = "constant",
                                    [PS_PIECEWISE] = "piecewise",   [PS_EXPONENTIAL] = "exponential",
                                    [PS_COSINE] = "cosine",         [PS_COSINE_RESTARTS] = "cosine_restarts",
                                    [PS_POLYNOMIAL] = "polynomial", [PS_INVERSE_TIME] = "inverse_time"};

enum { N_KINDS = sizeof names / sizeof *names };

#define T_MUL_MIN 1.01  // of those that are not 1
#define POWER_MAX 1000.0

enum ps_schedule_kind ps_schedule_find(const char *name)
{
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(names[i], name) == 0)
            return (enum ps_schedule_kind)i;
    return PS_SCHEDULE_NONE;
}

const char *ps_schedule_name(enum ps_schedule_kind kind)
{
    return names[kind];
}

void ps_schedule_names(char *to, size_t size)
{
    size_t at = 0;
    for (int i = PS_CONSTANT; i < N_KINDS && at < size; i++)
        at += (size_t)snprintf(to + at, size - at, "%s%s",
                               i == PS_CONSTANT  ? ""
                               : i < N_KINDS - 1 ? ", "
                                                 : " or ",
                               names[i]);
}

// ---- what makes sense ---------------------------------------------------------------------------------------------

static enum ps_code check_real(const struct ps_schedule *s, const char *what, double value, double max,
                               struct ps_error *e)
{
    if (value >= 0 && value <= max)  // so that NaN fails
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s of schedule %s is %g; it must lie between 0 and %g", what,
                   names[s->kind], value, max);
}

// Where 0, which is also what is not said, makes no sense.
static enum ps_code check_needed(const struct ps_schedule *s, const char *what, bool given, struct ps_error *e)
{
    if (given)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT, "schedule %s needs %s above 0", names[s->kind], what);
}

static enum ps_code check_piecewise(const struct ps_schedule *s, struct ps_error *e)
{
    if (s->n_boundaries < 1 || s->n_boundaries > PS_SCHEDULE_MAX_BOUNDARIES)
        return ps_fail(e, PS_INVALID_ARGUMENT, "schedule piecewise has %zu boundaries; it must have 1 to %d",
                       s->n_boundaries, PS_SCHEDULE_MAX_BOUNDARIES);
    for (size_t i = 1; i < s->n_boundaries; i++)
        if (s->boundary[i] <= s->boundary[i - 1])
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "boundaries of schedule piecewise must grow, but %" PRIu64 " follows %" PRIu64,
                           s->boundary[i], s->boundary[i - 1]);
    for (size_t i = 0; i <= s->n_boundaries; i++)
        if (check_real(s, "a value", s->value[i], PS_RATE_MAX, e) != PS_OK)
            return e->code;
    return PS_OK;
}

static enum ps_code check_rate_of_decay(const struct ps_schedule *s, struct ps_error *e)
{
    if (check_real(s, "decay_rate", s->decay_rate, PS_RATE_MAX, e) != PS_OK)
        return e->code;
    return check_needed(s, "decay_rate", s->decay_rate > 0, e);
}

static enum ps_code check_polynomial(const struct ps_schedule *s, struct ps_error *e)
{
    if (check_real(s, "end_learning_rate", s->end_learning_rate, PS_RATE_MAX, e) != PS_OK ||
        check_real(s, "power", s->power, POWER_MAX, e) != PS_OK)
        return e->code;
    return check_needed(s, "power", s->power > 0, e);
}

// Periods that hardly grow are too many to count at each step.
static enum ps_code check_restarts(const struct ps_schedule *s, struct ps_error *e)
{
    if (!(s->t_mul == 1 || (s->t_mul >= T_MUL_MIN && s->t_mul <= PS_RATE_MAX)))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "t_mul of schedule cosine_restarts is %g; it must be 1, or lie between %g and %g", s->t_mul,
                       T_MUL_MIN, PS_RATE_MAX);
    if (check_real(s, "m_mul", s->m_mul, PS_RATE_MAX, e) != PS_OK || check_needed(s, "m_mul", s->m_mul > 0, e) != PS_OK)
        return e->code;
    return check_real(s, "alpha", s->alpha, 1, e);
}

enum ps_code ps_schedule_check(const struct ps_schedule *s, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    e = e ? e : &why;
    if ((unsigned)s->kind >= N_KINDS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there is no schedule %d", (int)s->kind);
    if (s->kind == PS_SCHEDULE_NONE)
        return PS_OK;
    if (check_real(s, "warmup_initial", s->warmup_initial, PS_RATE_MAX, e) != PS_OK)
        return e->code;
    if (s->kind == PS_PIECEWISE)
        return check_piecewise(s, e);
    if (check_real(s, "initial", s->initial, PS_RATE_MAX, e) != PS_OK ||
        check_needed(s, "initial", s->initial > 0, e) != PS_OK)
        return e->code;
    if (s->kind != PS_CONSTANT && check_needed(s, "decay_steps", s->decay_steps > 0, e) != PS_OK)
        return e->code;
    switch (s->kind) {
    case PS_EXPONENTIAL:
    case PS_INVERSE_TIME:
        return check_rate_of_decay(s, e);
    case PS_COSINE:
        return check_real(s, "alpha", s->alpha, 1, e);
    case PS_COSINE_RESTARTS:
        return check_restarts(s, e);
    case PS_POLYNOMIAL:
        return check_polynomial(s, e);
    default:
        return PS_OK;
    }
}

// ---- the rate -----------------------------------------------------------------------------------------------------

static double schedule_piecewise(const struct ps_schedule *s, uint64_t step)
{
    size_t i = 0;
    while (i < s->n_boundaries && step > s->boundary[i])
        i++;
    return s->value[i];
}

// How often decay_steps have passed.
static double schedule_periods(const struct ps_schedule *s, uint64_t step)
{
    double periods = (double)step / (double)s->decay_steps;
    return s->staircase ? floor(periods) : periods;
}

static double schedule_exponential(const struct ps_schedule *s, uint64_t step)
{
    return s->initial * ps_power(s->decay_rate, schedule_periods(s, step));
}

static double schedule_inverse_time(const struct ps_schedule *s, uint64_t step)
{
    return s->initial / (1 + s->decay_rate * schedule_periods(s, step));
}

// Where done of a cosine of this height (as a fraction of initial) is behind.
static double schedule_cosine_at(const struct ps_schedule *s, double done, double height)
{
    return s->initial * ((1 - s->alpha) * 0.5 * height * (1 + ps_cos_pi(done)) + s->alpha);
}

static double schedule_cosine(const struct ps_schedule *s, uint64_t step)
{
    return schedule_cosine_at(s, step < s->decay_steps ? (double)step / (double)s->decay_steps : 1, 1);
}

// Each cosine is t_mul times as long and m_mul times as high as the one before. Keras finds it by logarithms of floats,
// which may take the step of a restart for the last one before it.
static double schedule_cosine_restarts(const struct ps_schedule *s, uint64_t step)
{
    double length = (double)s->decay_steps, at = (double)step, height = 1;
    if (s->t_mul == 1) {
        height = ps_power(s->m_mul, (double)(step / s->decay_steps));
        at = (double)(step % s->decay_steps);
    }
    for (; at >= length; length *= s->t_mul, height *= s->m_mul)
        at -= length;
    return schedule_cosine_at(s, at / length, height);
}

// With cycle it comes down anew in the first multiple of decay_steps that the step is not beyond: from less each time.
static double schedule_polynomial(const struct ps_schedule *s, uint64_t step)
{
    double length = (double)s->decay_steps, at = (double)step;
    if (s->cycle && step > s->decay_steps)
        length *= ceil(at / length);
    double done = at < length ? at / length : 1;
    return (s->initial - s->end_learning_rate) * ps_power(1 - done, s->power) + s->end_learning_rate;
}

double ps_schedule_rate(const struct ps_schedule *s, uint64_t step)
{
    if (step < s->warmup_steps) {
        double target = s->kind == PS_PIECEWISE ? s->value[0] : s->initial;
        return s->warmup_initial + (target - s->warmup_initial) * ((double)step / (double)s->warmup_steps);
    }
    step -= s->warmup_steps;
    switch (s->kind) {
    case PS_PIECEWISE:
        return schedule_piecewise(s, step);
    case PS_EXPONENTIAL:
        return fmin(schedule_exponential(s, step), PS_RATE_MAX);
    case PS_COSINE:
        return schedule_cosine(s, step);
    case PS_COSINE_RESTARTS:
        return fmin(schedule_cosine_restarts(s, step), PS_RATE_MAX);
    case PS_POLYNOMIAL:
        return schedule_polynomial(s, step);
    case PS_INVERSE_TIME:
        return schedule_inverse_time(s, step);
    default:
        return s->initial;
    }
}
