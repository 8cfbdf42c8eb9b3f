// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/job/evaluate.h"
#include "workerd/job/step.h"

// Steps that find caches and memory cold, and those that are looked at where the job does not say `steps`.
enum { PROFILE_WARM = 5, PROFILE_STEPS = 100 };

// What lies around the operators.
static const char *const profile_part[WK_PARTS][2] = {
    [WK_PART_NEXT] = {"(strategy)", "next examples"},
    [WK_PART_BEGIN] = {"(strategy)", "begin"},
    [WK_PART_FEED] = {"(feed)", "request, wait"},
    [WK_PART_NEED] = {"(strategy)", "need: values come"},
    [WK_PART_READY] = {"(strategy)", "ready: gradients"},
    [WK_PART_MODEL] = {"(model)", "losses, metrics"},
    [WK_PART_END] = {"(strategy)", "end"},
    [WK_PART_REPORT] = {"(strategy)", "report"},
};

struct profile {
    struct wk_run *run;
    struct wk_stepper stepper;
    const struct nn_program *program;
    size_t ops, lines;      // of one step: operators, then parts
    uint64_t *ns;           // [steps][lines], and the last step's own
    uint64_t *whole;        // [steps]: by the wall clock
    struct nn_times times;  // in the step that runs
    uint64_t part[WK_PARTS], at;
    size_t steps, trained, wanted;
};

// A line of the table.
struct profile_line {
    const char *layer, *op, *kernel;
    double us, flop;  // flop 0: not counted
};

// ---- steps --------------------------------------------------------------------------------------------------------

static void profile_lap(void *arg, enum wk_part part)
{
    struct profile *p = arg;
    uint64_t now = ps_now();
    p->part[part] += now - p->at;
    p->at = now;
}

static enum ps_code profile_train(struct profile *p, const struct wk_work *work, struct ps_error *e)
{
    const struct wk_run *run = p->run;
    const struct wk_group *group = run->strategy->group;
    struct nn_result result = {0};
    bool happened;
    if (wk_stepper_train(&p->stepper, work, &result, &happened, e))
        return e->code;
    if (work->rows > 0 && group->report)
        group->report(run->state, work->step + 1, 0, result.loss / work->rows);
    profile_lap(p, WK_PART_REPORT);
    return PS_OK;
}

// Of the replica's time what the program's operators and the hooks did not take is the model's.
static void profile_keep(struct profile *p, uint64_t whole)
{
    uint64_t *ns = p->ns + p->steps * p->lines, inside = p->times.need + p->times.ready;
    for (size_t k = 0; k < p->ops; k++) {
        ns[k] = p->times.op[k];
        inside += ns[k];
    }
    p->part[WK_PART_NEED] = p->times.need;
    p->part[WK_PART_READY] = p->times.ready;
    p->part[WK_PART_MODEL] -= inside;
    memcpy(ns + p->ops, p->part, sizeof p->part);
    p->whole[p->steps++] = whole;
}

// One step, if the epoch has one more: all of its wall time is in one of the lines.
static enum ps_code profile_step(struct profile *p, uint64_t epoch, bool *some, struct ps_error *e)
{
    const uint64_t began = p->at = ps_now();
    struct wk_work work;
    memset(p->part, 0, sizeof p->part);
    memset(p->times.op, 0, p->ops * sizeof *p->times.op);
    p->times.need = p->times.ready = 0;
    if (wk_stepper_next(&p->stepper, epoch, &work, some, e) || !*some)
        return e->code;
    profile_lap(p, WK_PART_NEXT);
    if (profile_train(p, &work, e))
        return e->code;
    if (p->trained++ >= PROFILE_WARM && work.rows == p->run->env.job->batch_size)
        profile_keep(p, p->at - began);
    return PS_OK;
}

static enum ps_code profile_steps(struct profile *p, struct ps_error *e)
{
    const struct ps_job *job = p->run->env.job;
    bool late;
    uint64_t epoch = p->run->strategy->sharder->first_epoch(p->run->state, &late);
    for (; epoch < job->epochs && p->steps < p->wanted && !p->stepper.drained; epoch++) {
        wk_stepper_begin_epoch(&p->stepper);
        for (bool some = true; some && p->steps < p->wanted;)
            if (wk_stopped(p->run, e) || profile_step(p, epoch, &some, e))
                return e->code;
    }
    if (p->steps)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "--profile leaves out the first %d steps and smaller batches: expected more steps of %d examples",
                   PROFILE_WARM, job->batch_size);
}

// ---- the table ----------------------------------------------------------------------------------------------------

static int profile_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// In microseconds; of every stride-th of n.
static double profile_median(const uint64_t *ns, size_t n, size_t stride)
{
    uint64_t *sorted = ps_alloc(n * sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = ns[i * stride];
    qsort(sorted, n, sizeof *sorted, profile_compare);
    const double median = (double)(sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    free(sorted);
    return median / 1e3;
}

static struct profile_line profile_line_at(const struct profile *p, size_t i)
{
    struct profile_line line = {.kernel = "", .us = profile_median(p->ns + i, p->steps, p->lines)};
    if (i < p->ops) {
        const struct nn_op *op = nn_program_op(p->program, (int)i);
        line.layer = op->layer;
        line.op = op->class->name;
        line.kernel = nn_program_kernel(p->program, (int)i);
        line.flop = op->class->flop ? op->class->flop(op) : 0;
    } else {
        line.layer = profile_part[i - p->ops][0];
        line.op = profile_part[i - p->ops][1];
    }
    return line;
}

static void profile_widen(int *width, const char *text)
{
    const int n = (int)strlen(text);
    *width = n > *width ? n : *width;
}

static void profile_print_line(const struct profile *p, const struct profile_line *l, const int width[3], double sum,
                               double peak)
{
    printf("%-*s  %-*s  %-*s  %5zu  %9.1f  %5.1f%%", width[0], l->layer, width[1], l->op, width[2], l->kernel, p->steps,
           l->us, sum > 0 ? 100 * l->us / sum : 0);
    if (l->flop > 0 && l->us > 0) {
        const double rate = l->flop / l->us / 1e3;
        printf("  %8.2f  %7.1f", l->flop / 1e6, rate);
        if (peak > 0)
            printf("  %3.0f%%", 100 * rate * 1e9 / peak);
    }
    putchar('\n');
}

static void profile_print(const struct profile *p, const struct profile_line *line, double sum, double flop,
                          double peak)
{
    int width[3] = {5, 8, 6};
    for (size_t i = 0; i < p->lines; i++) {
        profile_widen(&width[0], line[i].layer);
        profile_widen(&width[1], line[i].op);
        profile_widen(&width[2], line[i].kernel);
    }
    printf("%-*s  %-*s  %-*s  calls    us/step   share     MFLOP  GFLOP/s  peak\n", width[0], "layer", width[1],
           "operator", width[2], "kernel");
    for (size_t i = 0; i < p->lines; i++)
        profile_print_line(p, &line[i], width, sum, peak);
    const struct profile_line all = {"sum", "", "", sum, flop};
    profile_print_line(p, &all, width, sum, peak);
    printf("A step of %d examples takes %.1f us by the wall clock: medians of %zu steps.\n",
           p->run->env.job->batch_size, profile_median(p->whole, p->steps, 1), p->steps);
    if (peak > 0)
        printf("Peak: %.1f GFLOP/s, fused multiply-adds in registers on %d thread%s, measured now.\n", peak / 1e9,
               p->run->env.job->threads, p->run->env.job->threads == 1 ? "" : "s");
}

static json_t *profile_json_line(const struct profile *p, const struct profile_line *l, double sum, double peak)
{
    json_t *v = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f}", "layer", l->layer, "operator", l->op, "kernel", l->kernel,
                          "calls", (json_int_t)p->steps, "us", l->us, "share", sum > 0 ? l->us / sum : 0.0);
    if (l->flop > 0)
        json_object_set_new(v, "flop", json_real(l->flop));
    if (l->flop > 0 && l->us > 0) {
        json_object_set_new(v, "flop_per_second", json_real(l->flop / l->us * 1e6));
        if (peak > 0)
            json_object_set_new(v, "of_peak", json_real(l->flop / l->us * 1e6 / peak));
    }
    return v;
}

static void profile_print_json(const struct profile *p, const struct profile_line *line, double sum, double flop,
                               double peak)
{
    json_t *lines = json_array();
    for (size_t i = 0; i < p->lines; i++)
        json_array_append_new(lines, profile_json_line(p, &line[i], sum, peak));
    json_t *all = json_pack("{s:I, s:I, s:i, s:f, s:f, s:f, s:f, s:o}", "steps", (json_int_t)p->steps, "batch_size",
                            (json_int_t)p->run->env.job->batch_size, "threads", p->run->env.job->threads, "step_us",
                            profile_median(p->whole, p->steps, 1), "sum_us", sum, "flop", flop, "peak_flop_per_second",
                            peak, "lines", lines);
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(all);
}

static void profile_show(const struct profile *p, bool json, double peak)
{
    struct profile_line *line = ps_alloc(p->lines * sizeof *line);
    double sum = 0, flop = 0;
    for (size_t i = 0; i < p->lines; i++) {
        line[i] = profile_line_at(p, i);
        sum += line[i].us;
        flop += line[i].flop;
    }
    (json ? profile_print_json : profile_print)(p, line, sum, flop, peak);
    free(line);
}

// ---- all of it ----------------------------------------------------------------------------------------------------

static void profile_fini(struct profile *p)
{
    nn_replica_time(p->run->env.replica, NULL);
    wk_stepper_close(&p->stepper);
    free(p->ns);
    free(p->whole);
    free(p->times.op);
}

static enum ps_code profile_init(struct profile *p, struct ps_error *e)
{
    const struct wk_run *run = p->run;
    const struct ps_job *job = run->env.job;
    if (nn_replica_program(run->env.replica, &p->program, e))
        return e->code;
    p->ops = (size_t)nn_program_ops(p->program);
    p->lines = p->ops + WK_PARTS;
    p->wanted = job->steps && job->steps < 100 * PROFILE_STEPS ? (size_t)job->steps : PROFILE_STEPS;
    p->ns = ps_alloc(p->wanted * p->lines * sizeof *p->ns);
    p->whole = ps_alloc(p->wanted * sizeof *p->whole);
    p->times.op = ps_alloc((p->ops + 1) * sizeof *p->times.op);
    nn_replica_time(run->env.replica, &p->times);
    p->stepper.lap = profile_lap;
    p->stepper.lap_arg = p;
    return wk_stepper_open(&p->stepper, p->run, run->strategy->sharder->seed(run->state), e);
}

// The machine may be slower at the end than in the beginning: its peak is the better of the two.
enum ps_code wk_profile(struct wk_run *run, bool json, struct ps_error *e)
{
    struct profile p = {.run = run};
    const double before = nn_replica_peak(run->env.replica);
    enum ps_code code = profile_init(&p, e);
    if (code == PS_OK)
        code = profile_steps(&p, e);
    if (code == PS_OK) {
        const double after = nn_replica_peak(run->env.replica);
        profile_show(&p, json, after > before ? after : before);
    }
    profile_fini(&p);
    return code;
}
