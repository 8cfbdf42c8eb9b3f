// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/epoch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/job/evaluate.h"
#include "workerd/strategy/waits.h"

// Where each is in the array: after these flags and counts come the stage and the epoch of each worker (0: it is not in
// it), then the arrival of each, then what the leader's callbacks tell, then the sums of the training, and those of the
// validation.
enum { EPOCH_FINISHED, EPOCH_STOP, EPOCH_STEERS, EPOCH_FINAL, EPOCH_EVALUATED, EPOCH_SAYS, EPOCH_RATE, EPOCH_HEAD };

// What the leader says of the rate.
enum { EPOCH_SAYS_NOTHING, EPOCH_RATE_IS_SET, EPOCH_FOLLOWS_SCHEDULE };

enum epoch_stage { EPOCH_FIGURES = 1, EPOCH_VALIDATION, EPOCH_DECISION, EPOCH_STAGES };

static uint64_t epoch_replicas(const struct wk_run *run)
{
    return run->env.replicas ? run->env.replicas : 1;
}

static size_t epoch_n_sums(const struct wk_run *run)
{
    return nn_measures_sums(nn_replica_measures(run->env.replica));
}

static double *epoch_arrivals(const struct wk_run *run, const struct wk_epoch *p)
{
    return p->sums + EPOCH_HEAD + epoch_replicas(run);
}

static double *epoch_found(const struct wk_run *run, const struct wk_epoch *p)
{
    return epoch_arrivals(run, p) + epoch_replicas(run);
}

static double *epoch_trained(const struct wk_run *run, const struct wk_epoch *p)
{
    return epoch_found(run, p) + WK_FOUND;
}

static double *epoch_validated(const struct wk_run *run, const struct wk_epoch *p)
{
    return epoch_trained(run, p) + epoch_n_sums(run);
}

static size_t epoch_size(const struct wk_run *run)
{
    return EPOCH_HEAD + 2 * epoch_replicas(run) + WK_FOUND + 2 * epoch_n_sums(run);
}

static uint64_t epoch_arrival(const struct wk_run *run)
{
    const struct wk_group *group = run->strategy->group;
    return group->arrival ? group->arrival(run->state) : 0;
}

static void epoch_put(double *to, const struct wk_meter *meter, size_t n)
{
    if (meter && meter->of)
        memcpy(to, meter->sum, n * sizeof *to);
}

static uint64_t epoch_said_by(const struct wk_epoch *p, uint64_t rank)
{
    return (uint64_t)p->sums[EPOCH_HEAD + rank];
}

// Who is in it; the furthest stage of any, and of the workers at that one the furthest epoch and who has been there for
// longest.
static enum epoch_stage epoch_find_members(const struct wk_run *run, struct wk_epoch *p)
{
    const double *arrivals = epoch_arrivals(run, p);
    uint64_t furthest = 0;
    p->members = p->index = 0;
    for (uint64_t rank = 0; rank < epoch_replicas(run); rank++) {
        const uint64_t said = epoch_said_by(p, rank), stage = said % EPOCH_STAGES, epoch = said / EPOCH_STAGES;
        p->members += said != 0;
        p->index += said != 0 && rank < run->env.replica_rank;
        if (stage > furthest || (stage && stage == furthest && arrivals[rank] < arrivals[p->leader]))
            p->leader = rank;
        if (stage > furthest || (stage && stage == furthest && epoch > p->epoch))
            p->epoch = epoch;
        furthest = stage > furthest ? stage : furthest;
    }
    return (enum epoch_stage)furthest;
}

// Adds up what all bring. Returns the stage at which the furthest are.
static enum ps_code epoch_sum(struct wk_run *run, struct wk_epoch *p, enum epoch_stage stage,
                              enum epoch_stage *furthest, struct ps_error *e)
{
    p->sums[EPOCH_FINISHED] = p->finished;
    p->sums[EPOCH_STOP] = p->stop;
    p->sums[EPOCH_STEERS] = p->steers;
    p->sums[EPOCH_FINAL] = p->final;
    // Who follows has no part in what this stage is about.
    p->sums[EPOCH_HEAD + run->env.replica_rank] =
        (double)(p->epoch * EPOCH_STAGES + (p->follows ? EPOCH_FIGURES : stage));
    epoch_arrivals(run, p)[run->env.replica_rank] = (double)epoch_arrival(run);
    const uint64_t start = wk_wait_begin(&run->env);
    const enum ps_code code = run->strategy->group->sum(run->state, p->sums, epoch_size(run), e);
    wk_wait_end(&run->env, WK_WAIT_WORKERS, "all workers", start);
    if (code)
        return code;
    *furthest = epoch_find_members(run, p);
    p->stop = p->sums[EPOCH_STOP] > 0;
    return PS_OK;
}

static void epoch_clear(const struct wk_run *run, struct wk_epoch *p)
{
    memset(p->sums, 0, epoch_size(run) * sizeof *p->sums);
}

// ---- look ---------------------------------------------------------------------------------------------------------

// One share of the test split, with the weights of all.
static enum ps_code epoch_evaluate_share(struct wk_run *run, struct wk_epoch *p, struct ps_error *e)
{
    struct wk_meter meter = {0};
    uint64_t examples = 0;
    enum ps_code code = wk_evaluate_share(run, p->index, p->members, &meter, &examples, e);
    epoch_clear(run, p);
    if (code == PS_OK)
        epoch_put(epoch_validated(run, p), &meter, epoch_n_sums(run));
    p->sums[EPOCH_EVALUATED] = (double)examples;
    wk_meter_reset(&meter);
    return code;
}

// Until all of the split has been evaluated by workers who lived until it was added up.
static enum ps_code epoch_validate(struct wk_run *run, struct wk_epoch *p, struct ps_error *e)
{
    const double all = (double)wk_data_test(run->data)->examples;
    const struct wk_meter none = {0};
    enum epoch_stage furthest;
    while (p->sums[EPOCH_EVALUATED] < all)
        if (epoch_evaluate_share(run, p, e) || epoch_sum(run, p, EPOCH_VALIDATION, &furthest, e))
            return e->code;
    const struct wk_meter meter = {nn_replica_measures(run->env.replica), epoch_validated(run, p)};
    wk_evaluate_set(run, all > 0 ? &meter : &none);
    return PS_OK;
}

// What the sums say of the epoch.
static void epoch_take_figures(struct wk_run *run, struct wk_epoch *p, enum epoch_stage furthest)
{
    const struct wk_meter meter = {nn_replica_measures(run->env.replica), epoch_trained(run, p)};
    run->figures.n = 0;
    wk_evaluate_forget(run);
    const bool gone = p->late && p->members == 1 && epoch_replicas(run) > 1;
    p->follows = furthest > EPOCH_FIGURES || gone;
    p->decided = furthest == EPOCH_DECISION || gone;
    // Whether there is more to be done is what the others have found.
    p->steers = p->sums[EPOCH_STEERS] > (p->follows && p->steers ? 1 : 0);
    p->final = p->follows ? p->sums[EPOCH_FINAL] > 0 : p->stop || p->sums[EPOCH_FINISHED] >= (double)p->members;
    if (!p->follows && meter.sum[0] > 0)
        wk_meter_figures(&meter, "", &run->figures);
}

enum ps_code wk_epoch_look(struct wk_run *run, struct wk_epoch *p, struct ps_error *e)
{
    enum epoch_stage furthest;
    p->sums = ps_alloc(epoch_size(run) * sizeof *p->sums);
    epoch_put(epoch_trained(run, p), p->meter, epoch_n_sums(run));
    if (epoch_sum(run, p, EPOCH_FIGURES, &furthest, e))
        return e->code;
    epoch_take_figures(run, p, furthest);
    return run->strategy->home->refresh(run->state, e) || (!p->decided && epoch_validate(run, p, e)) ? e->code : PS_OK;
}

// ---- decide -------------------------------------------------------------------------------------------------------

static void epoch_say_rate(struct wk_run *run, struct wk_epoch *p)
{
    const struct wk_home *home = run->strategy->home;
    if (!home->take_rate)
        return;
    const bool follows = home->follows_schedule(run->state);
    p->sums[EPOCH_SAYS] = follows ? EPOCH_FOLLOWS_SCHEDULE : EPOCH_RATE_IS_SET;
    p->sums[EPOCH_RATE] = follows ? 0 : home->rate(run->state);
}

// All go on at the leader's rate, or follow the schedule with it: the callbacks of one that has come back, or of
// another job file, may have found another one.
static void epoch_take_rate(struct wk_run *run, const struct wk_epoch *p)
{
    const struct wk_home *home = run->strategy->home;
    if (home->take_rate && p->sums[EPOCH_SAYS] > EPOCH_SAYS_NOTHING)
        home->take_rate(run->state, p->sums[EPOCH_SAYS] < EPOCH_FOLLOWS_SCHEDULE, p->sums[EPOCH_RATE]);
}

static void epoch_say(struct wk_run *run, struct wk_epoch *p)
{
    epoch_say_rate(run, p);
    memcpy(epoch_found(run, p), p->found, sizeof p->found);
}

bool wk_epoch_leads(const struct wk_run *run, const struct wk_epoch *p)
{
    return p->leader == run->env.replica_rank && !p->follows;
}

// Where who was to tell the rate is gone, another one tells it again.
enum ps_code wk_epoch_decide(struct wk_run *run, struct wk_epoch *p, struct ps_error *e)
{
    const struct wk_home *home = run->strategy->home;
    enum epoch_stage furthest;
    uint64_t leader;
    if (p->decided || p->final || !p->steers)
        return PS_OK;
    do {
        leader = p->leader;
        const bool leads = wk_epoch_leads(run, p);
        if (leads && home->tell_rate && home->tell_rate(run->state, e))
            return e->code;
        epoch_clear(run, p);
        if (leads)
            epoch_say(run, p);
        p->stop |= leads && p->stop_if_leads;
        if (epoch_sum(run, p, EPOCH_DECISION, &furthest, e))
            return e->code;
    } while (epoch_said_by(p, leader) == 0);
    epoch_take_rate(run, p);
    memcpy(p->found, epoch_found(run, p), sizeof p->found);
    return PS_OK;
}

void wk_epoch_free(struct wk_epoch *p)
{
    free(p->sums);
    p->sums = NULL;
}
