// SPDX-License-Identifier: Apache-2.0
//
// Goyal et al., Accurate, Large Minibatch SGD (arXiv 1706.02677): a gradient that is the mean over k times as many
// examples is worth k times the learning rate, to which the first epochs lead from the rate of one replica.
#include <math.h>
#include <stdio.h>

#include "common/job/job.h"

static double scale_factor(const struct ps_job *job, uint32_t replicas)
{
    switch (job->scale_rate) {
    case PS_SCALE_LINEAR:
        return replicas;
    case PS_SCALE_SQRT:
        return sqrt(replicas);
    default:
        return 1;
    }
}

uint64_t ps_job_examples_per_step(const struct ps_job *job, uint32_t replicas)
{
    const bool alone = job->strategy == PS_STRATEGY_PARAMETER_SERVER && job->update != PS_SYNC;
    const uint32_t pushes = job->n_push > 1 ? (uint32_t)job->n_push : 1;
    uint32_t batches = alone ? pushes : replicas;
    if (job->strategy == PS_STRATEGY_PARAMETER_SERVER && job->replicas_to_aggregate &&
        (uint32_t)job->replicas_to_aggregate < batches)
        batches = (uint32_t)job->replicas_to_aggregate;
    return (uint64_t)job->batch_size * batches;
}

// A schedule's rates are proportional to these.
static void scale_schedule(struct ps_schedule *s, double factor)
{
    s->initial *= factor;
    s->warmup_initial *= factor;
    s->end_learning_rate *= factor;
    for (size_t i = 0; s->kind == PS_PIECEWISE && i <= s->n_boundaries; i++)
        s->value[i] *= factor;
}

// A rate that follows no schedule becomes a constant one, which begins with a warm-up.
static void scale_warm_up(struct ps_job *job, double from, uint64_t steps)
{
    struct ps_schedule *s = &job->schedule;
    if (s->kind == PS_SCHEDULE_NONE)
        *s = (struct ps_schedule){.kind = PS_CONSTANT, .initial = job->hypers[PS_HYPER_LEARNING_RATE].value};
    s->warmup_initial = from;
    s->warmup_steps = steps;
}

static double scale_first_rate(const struct ps_job *job)
{
    const struct ps_schedule *s = &job->schedule;
    if (s->kind == PS_SCHEDULE_NONE)
        return job->hypers[PS_HYPER_LEARNING_RATE].value;
    return s->kind == PS_PIECEWISE ? s->value[0] : s->initial;
}

enum ps_code ps_job_scale_rate(struct ps_job *job, uint32_t replicas, uint64_t examples, struct ps_error *e)
{
    const double factor = scale_factor(job, replicas), from = scale_first_rate(job);
    double *rate = &job->hypers[PS_HYPER_LEARNING_RATE].value;
    e->code = PS_OK;
    if (job->scale_rate == PS_SCALE_NONE)
        return PS_OK;
    *rate *= factor;
    scale_schedule(&job->schedule, factor);
    if (job->warmup_epochs > 0)
        scale_warm_up(job, from,
                      (uint64_t)llround(job->warmup_epochs *
                                        ceil((double)examples / (double)ps_job_examples_per_step(job, replicas))));
    if (job->schedule.kind != PS_SCHEDULE_NONE && ps_schedule_check(&job->schedule, e) == PS_OK)
        *rate = ps_schedule_rate(&job->schedule, 0);
    else if (e->code == PS_OK && *rate > PS_RATE_MAX)
        ps_fail(e, PS_INVALID_ARGUMENT, "it is %g; it must be at most %g", *rate, PS_RATE_MAX);
    return e->code ? ps_error_prefix(e, "optimizer.learning_rate times %g, for %u replicas", factor, replicas) : PS_OK;
}

void ps_job_scale_text(const struct ps_job *job, uint32_t replicas, char *to, size_t size)
{
    const struct ps_schedule *s = &job->schedule;
    const double to_rate = scale_first_rate(job), factor = scale_factor(job, replicas);
    const int n = snprintf(to, size, "learning rate %.6g: %.6g times %.6g, for %u replica%s", to_rate, to_rate / factor,
                           factor, replicas, replicas == 1 ? "" : "s");
    if (job->warmup_epochs > 0 && n > 0 && (size_t)n < size)
        snprintf(to + n, size - (size_t)n, "; from %.6g in the first %ju steps", s->warmup_initial,
                 (uintmax_t)s->warmup_steps);
}
