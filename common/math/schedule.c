// SPDX-License-Identifier: Apache-2.0
//
// In double, and with the same bits on every machine: ps tasks evaluate a schedule each for itself.
#include "common/math/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/math/elementary.h"
#include "common/math/rule.h"

static const char *const names[] = {[PS_SCHEDULE_NONE] = "",
                                    [PS_CONSTANT] = "constant",
                                    [PS_PIECEWISE] = "piecewise",
                                    [PS_EXPONENTIAL] = "exponential",
                                    [PS_COSINE] = "cosine"};

enum { N_KINDS = sizeof names / sizeof *names };

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

enum ps_code ps_schedule_check(const struct ps_schedule *s, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    bool decays = s->kind == PS_EXPONENTIAL || s->kind == PS_COSINE;
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
    if (decays && check_needed(s, "decay_steps", s->decay_steps > 0, e) != PS_OK)
        return e->code;
    if (s->kind == PS_EXPONENTIAL && (check_real(s, "decay_rate", s->decay_rate, PS_RATE_MAX, e) != PS_OK ||
                                      check_needed(s, "decay_rate", s->decay_rate > 0, e) != PS_OK))
        return e->code;
    return s->kind == PS_COSINE ? check_real(s, "alpha", s->alpha, 1, e) : PS_OK;
}

// ---- the rate -----------------------------------------------------------------------------------------------------

static double schedule_piecewise(const struct ps_schedule *s, uint64_t step)
{
    size_t i = 0;
    while (i < s->n_boundaries && step > s->boundary[i])
        i++;
    return s->value[i];
}

static double schedule_exponential(const struct ps_schedule *s, uint64_t step)
{
    double periods = (double)step / (double)s->decay_steps;
    return s->initial * ps_power(s->decay_rate, s->staircase ? floor(periods) : periods);
}

static double schedule_cosine(const struct ps_schedule *s, uint64_t step)
{
    double done = step < s->decay_steps ? (double)step / (double)s->decay_steps : 1;
    return s->initial * ((1 - s->alpha) * 0.5 * (1 + ps_cos_pi(done)) + s->alpha);
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
    default:
        return s->initial;
    }
}
