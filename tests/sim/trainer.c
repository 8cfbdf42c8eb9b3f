// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/control/state.h"
#include "psd/service/service.h"
#include "tests/sim/long_read.h"

static const char *const addresses[] = {"a:1", "b:1", "c:1"};

const char *trial_name(const struct trial *t)
{
    return t->update == PSC_ASYNC ? "async" : t->update == PSC_SSP ? "ssp" : t->enough ? "sync with backup" : "sync";
}

// ---- what the control task knows ----------------------------------------------------------------------------------

static struct psd_job *job_of(const struct trial *t)
{
    return psd_job_lookup(&sim_core(t->sim, 0)->table, "job");
}

bool trainer_is_member(const struct life *l)
{
    const struct psd_job *job = job_of(l->trial);
    const struct psd_member *m = job && job->control ? &job->control->members[l->rank] : NULL;
    return m && psd_is_live(m) && m->incarnation == l->client->member.incarnation;
}

bool trial_is_over(const struct trial *t)
{
    const struct psd_job *job = job_of(t);
    return job && job->control && job->control != t->first_run && psd_job_is_over(job);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

static void begin_again(void *arg)
{
    struct life *l = arg;
    if (l->trial->current[l->rank] == l && !trial_is_over(l->trial) && !l->trial->replacing && !l->trial->ended)
        trainer_start(l->trial, l->rank);
}

static void come_back(struct life *l)
{
    l->over = true;
    sim_after(l->trial->sim, 100 * PS_MS + sim_random(l->trial->sim) % (2 * PS_SECOND), begin_again, l);
}

static void on_given_up(void *arg, const struct ps_error *e)
{
    (void)e;
    come_back(arg);
}

// A life that fails leaves, says why, and comes back. It fails for no other reason than that its place was taken from
// it, or has not become free yet.
static bool failed(struct life *l, const struct ps_error *e)
{
    if (e->code == PS_OK || l->error.code != PS_OK)
        return e->code != PS_OK;
    if (l->trial->ended)
        return true;
    bool deaf = strstr(e->text, "the control task, has been silent");  // or nobody heard the answers
    CHECK(l->trial, !l->joined || !trainer_is_member(l) || trial_is_over(l->trial) || deaf, "worker %" PRIu32 ": %s",
          l->rank, e->text);
    l->error = *e;
    psc__leave(l->client, e->text, on_given_up, l);
    return true;
}

static bool result_failed(struct life *l, const psc_result *r)
{
    struct ps_error e = {.code = (enum ps_code)r->error.code};
    snprintf(e.text, sizeof e.text, "%s", r->error.text);
    return failed(l, &e);
}

void trainer_kill(struct life *l)
{
    sim_kill(l->trial->sim, &l->world);
    come_back(l);
}

static void on_left(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    (void)e;  // it may have been declared dead on its way out
    l->over = l->finished = l->trial->finished[l->rank] = true;
}

static void on_together(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (!failed(l, e))
        psc__leave(l->client, NULL, on_left, l);
}

static void on_summed(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    struct trial *t = l->trial;
    if (failed(l, e))
        return;
    CHECK(t, !t->summed || t->sum == l->sum, "worker %" PRIu32 " has %" PRId64 ", another %" PRId64, l->rank, l->sum,
          t->sum);
    t->summed = true;
    t->sum = l->sum;
    psc__barrier(l->client, "finish", on_together, l);
}

static void finish(struct life *l)
{
    l->sum = (int64_t)l->steps;
    psc__reduce(l->client, "steps", PSC_SUM, PSC_INT64, &l->sum, 1, NULL, on_summed, l);
}

// ---- shares -------------------------------------------------------------------------------------------------------

static void next_step(struct life *l);

// The epoch that it has a share of.
static bool is_sync(const struct life *l)
{
    return l->share.update == PSC_SYNC;
}

static void on_lease(void *arg, const struct ps_error *e);

static void next_share(struct life *l)
{
    if (l->lease)
        l->lease->asked = true;
    if (l->trained)
        l->trained->asked = true;
    const bool whole = l->trial->update == PSC_SYNC && !l->trial->follows;
    psc__lease(l->client, l->epoch, EXAMPLES, whole ? BATCH : 2 * BATCH, l->closed, &l->share, on_lease, l);
}

static psc_tensor slots_of(const struct trial *t, float *data)
{
    return (psc_tensor){"slots", data, (uint64_t)t->partitions * SLOTS, PSC_FLOAT32};
}

static void on_caught_up(void *arg, const psc_result *r)
{
    struct life *l = arg;
    if (result_failed(l, r))
        return;
    l->closed = r->round;
    next_step(l);
}

// Who knows nothing of the last round waits until it has closed.
static void catch_up(struct life *l)
{
    psc_tensor weights = slots_of(l->trial, l->weights);
    psc_pull(l->client, &weights, 1, l->share.round, on_caught_up, l, NULL);
}

static void note_mode(const struct life *l, const psc_share *share)
{
    struct trial *t = l->trial;
    CHECK(t, !t->modes[l->epoch] || t->modes[l->epoch] == share->update, "an epoch has two modes");
    t->modes[l->epoch] = share->update;
}

static struct lease *note_lease(const struct life *l, const psc_share *share)
{
    struct trial *t = l->trial;
    CHECK(t, t->n_leases < MAX_LEASES, "too many leases");
    note_mode(l, share);
    struct lease *noted = &t->leases[t->n_leases++];
    *noted = (struct lease){l->epoch, share->first, share->count, false, false};
    return noted;
}

static void on_lease(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (failed(l, e))
        return;
    if (l->lease)
        l->lease->done = true;
    if (l->trained)
        l->trained->done = true;
    l->lease = l->trained = NULL;
    l->taken = 0;
    if (l->share.count == 0 && ++l->epoch == l->trial->epochs) {
        finish(l);
        return;
    }
    if (l->share.count == 0) {
        next_share(l);
        return;
    }
    if (!is_sync(l))
        l->lease = note_lease(l, &l->share);
    else if (l->share.first < l->share.end)  // else it closes rounds of the epoch before, perhaps
        note_mode(l, &l->share);
    if (is_sync(l) && l->share.round > l->closed)
        catch_up(l);
    else
        next_step(l);
}

static bool is_used_up(const struct life *l)
{
    return l->taken == (is_sync(l) ? l->share.steps : l->share.count);
}

// The share's next batch, which in a sync job may be empty.
static void take_batch(struct life *l, struct push *p)
{
    uint64_t left;
    if (is_sync(l)) {
        uint64_t first = l->share.first + l->taken++ * l->share.stride;
        p->first = first < l->share.end ? first : l->share.end;
        left = l->share.end - p->first;
    } else {
        p->first = l->share.first + l->taken;
        left = l->share.count - l->taken;
        l->taken += left < BATCH ? left : BATCH;
    }
    p->rows = (uint32_t)(left < BATCH ? left : BATCH);
}

// ---- steps --------------------------------------------------------------------------------------------------------

static void take_next(struct life *l)
{
    l->trained = l->lease;
    l->lease = l->next;
    l->next = NULL;
    l->share = l->ahead;
    l->taken = 0;
}

static void step_done(struct life *l)
{
    if (l->over || --l->pending)
        return;
    for (uint32_t k = 0; l->push && k < l->trial->partitions; k++)
        l->gradient[k * SLOTS + (l->push - l->trial->pushes)] = 0;
    l->push = NULL;
    l->steps++;
    if (is_used_up(l) && l->next)
        take_next(l);
    if (is_used_up(l))
        next_share(l);
    else
        next_step(l);
}

static void note_push(struct life *l, const psc_result *r)
{
    // A partition may have closed the round with the gradients of those who died, before this share began.
    bool first = l->closed == l->share.round && r->stale < l->trial->partitions;
    CHECK(l->trial, r->stale == 0 || l->trial->enough || first || !trainer_is_member(l),
          "round %" PRIu64 " was closed without worker %" PRIu32 ", a member", l->closed + 1, l->rank);
    if (!l->push)
        return;
    l->push->acknowledged = true;
    l->push->stale = r->stale;
}

static void note_pull(struct life *l, const psc_result *r, bool pushed)
{
    // A push to a round brings no version of its own.
    CHECK(l->trial, r->version >= l->version || (pushed && is_sync(l)), "version %" PRIu64 " after %" PRIu64,
          r->version, l->version);
    if (!pushed || !is_sync(l))
        l->version = r->version;
    if (is_sync(l))
        l->closed = pushed ? r->open_round - 1 : r->round;
}

static void on_push(void *arg, const psc_result *r)
{
    struct life *l = arg;
    if (result_failed(l, r))
        return;
    note_push(l, r);
    step_done(l);
}

static void on_add(void *arg, const psc_result *r)
{
    struct life *l = arg;
    if (result_failed(l, r))
        return;
    l->push->added = true;
    step_done(l);
}

static void on_pull(void *arg, const psc_result *r)
{
    struct life *l = arg;
    if (result_failed(l, r))
        return;
    note_pull(l, r, false);
    step_done(l);
}

static void on_push_pull(void *arg, const psc_result *r)
{
    struct life *l = arg;
    if (result_failed(l, r))
        return;
    note_push(l, r);
    note_pull(l, r, true);
    step_done(l);
}

// 0: one PushPull, 1: an atomic push, 2: a push and an AssignAdd, 3: a push.
static uint64_t trial_way(const struct trial *t)
{
    static const enum sim_feature needs[] = {SIM_PUSH_PULL, SIM_ATOMIC, SIM_ADD};
    uint64_t way = sim_random(t->sim) % 4;
    return way < 3 && !trial_has(t, needs[way]) ? 3 : way;
}

// The gradient goes out in one of several ways, and what the next step needs comes back.
static void push(struct life *l, const struct push *batch)
{
    struct trial *t = l->trial;
    psc_tensor gradient = slots_of(t, l->gradient), weights = slots_of(t, l->weights);
    psc_push_options options = {.round = is_sync(l) ? l->closed + 1 : 0, .examples = batch->rows};
    uint64_t way = trial_way(t);
    if (batch->rows) {
        CHECK(t, t->n_pushes < SLOTS, "too many pushes");
        l->push = &t->pushes[t->n_pushes];
        *l->push = *batch;
        l->push->round = options.round;
        for (uint32_t k = 0; k < t->partitions; k++)
            l->gradient[k * SLOTS + t->n_pushes] = -1;  // is subtracted
        t->n_pushes++;
    }
    if (way == 0) {
        l->pending = 1;
        psc_push_pull(l->client, &gradient, &weights, 1, &options, on_push_pull, l, NULL);
        return;
    }
    options.atomic = way == 1 && !is_sync(l);
    if (l->push)
        l->push->atomic = options.atomic;
    l->pending = 2 + (way == 2 && l->push);
    psc_push(l->client, &gradient, 1, &options, on_push, l, NULL);
    if (way == 2 && l->push) {
        size_t slot = (size_t)(l->push - t->pushes);
        l->extra[slot] = 1;
        psc_tensor one = {"extra", &l->extra[slot], 1, PSC_FLOAT32, .part = true, .first = slot};
        psc_assign_add(l->client, &one, 1, on_add, l, NULL);
    }
    psc_pull(l->client, &weights, 1, options.round, on_pull, l, NULL);
}

static void on_ahead(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (failed(l, e))
        return;
    if (l->trained)
        l->trained->done = true;
    l->trained = NULL;
    if (l->ahead.count)
        l->next = note_lease(l, &l->ahead);
    step_done(l);
}

// With the last batch of its range a worker may ask for the next one.
static void ask_ahead(struct life *l)
{
    if (is_sync(l) || !is_used_up(l) || sim_random(l->trial->sim) % 2)
        return;
    if (l->trained)
        l->trained->asked = true;
    l->pending++;
    psc__lease_ahead(l->client, l->epoch, EXAMPLES, 2 * BATCH, &l->ahead, on_ahead, l);
}

static void train(void *arg)
{
    struct life *l = arg;
    struct push batch = {.rank = l->rank, .epoch = l->epoch};
    if (l->over || l->error.code)
        return;
    take_batch(l, &batch);
    push(l, &batch);
    ask_ahead(l);
}

// Computing takes its time, of some longer.
static void compute(struct life *l)
{
    uint64_t time = (20 + l->rank * 20) * PS_MS;
    l->world.after(l->world.ctx, time + sim_random(l->trial->sim) % time, train, l);
}

static void on_clock(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (!failed(l, e))
        compute(l);
}

static void next_step(struct life *l)
{
    if (l->share.update == PSC_SSP)
        psc__clock(l->client, l->steps, true, &l->clock, &l->slowest, on_clock, l);
    else
        compute(l);
}

// ---- start --------------------------------------------------------------------------------------------------------

static void on_ready(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (failed(l, e))
        return;
    l->trial->declared = true;
    l->epoch = psc_is_late(l->client) ? psc_data_epoch(l->client) : 0;
    if (l->epoch < l->trial->epochs)
        next_share(l);
    else
        psc__leave(l->client, NULL, on_left, l);
}

static void declare(struct life *l)
{
    const struct trial *t = l->trial;
    const uint64_t slots_shape[] = {t->partitions, SLOTS}, extra_shape[] = {SLOTS};
    const uint64_t long_shape[] = {t->partitions, LONG_COUNT};
    const psc_variable variables[] = {
        {.name = "slots", .dtype = PSC_FLOAT32, .shape = slots_shape, .rank = 2, .trainable = true},
        {.name = "extra", .dtype = PSC_FLOAT32, .shape = extra_shape, .rank = 1},
        {.name = "long", .dtype = PSC_FLOAT32, .shape = long_shape, .rank = 2},
    };
    const psc_hyper rate = {"learning_rate", 1};
    char partitioner[16];
    snprintf(partitioner, sizeof partitioner, "fixed:%" PRIu32, t->partitions);
    const psc_declaration d = {.variables = variables,
                               .n_variables = trial_has(t, SIM_LONG_READ) ? 3 : 2,
                               .rule = "sgd",
                               .hypers = &rate,
                               .n_hypers = 1,
                               .placement = "round_robin",
                               .partitioner = partitioner,
                               .replicas_to_aggregate = t->enough};
    psc__declare(l->client, &d, NULL, on_ready, l);
}

static void on_joined(void *arg, const struct ps_error *e)
{
    struct life *l = arg;
    if (failed(l, e))
        return;
    l->joined = true;
    if (l->rank == 0 && !l->trial->declared)
        declare(l);
    else
        psc__attach(l->client, on_ready, l);
}

void trainer_start(struct trial *t, uint32_t rank)
{
    struct life *l = ps_alloc(sizeof *l);
    psc_cluster *cluster;
    bool unary = sim_random(t->sim) % 2 && trial_has(t, SIM_UNARY);
    CHECK(t, t->n_lives < MAX_LIVES, "too many lives");
    *l = (struct life){.trial = t, .rank = rank, .world = sim_world(t->sim)};
    t->lives[t->n_lives++] = t->current[rank] = l;
    l->weights = ps_alloc((size_t)t->partitions * SLOTS * sizeof(float));
    l->gradient = ps_alloc((size_t)t->partitions * SLOTS * sizeof(float));
    if (unary)
        sim_world_loosen(&l->world);
    psc_options options = {.job = "job",
                           .rank = (int)rank,
                           .workers = TRAINERS,
                           .update = t->update,
                           .staleness = t->update == PSC_SSP ? t->staleness : 0,
                           .follows_mode = t->follows,
                           .share_batch = t->follows ? BATCH : 0,
                           .share_rounds = t->follows || t->update == PSC_SYNC ? t->share_rounds : 0,
                           .on_existing = t->replaces ? PSC_REPLACE : PSC_REFUSE,
                           .transport = unary ? PSC_UNARY : PSC_STREAM,
                           .chunk_bytes = 1024,  // a request for each partition
                           .join_within_ms = 5000,
                           .timeout_ms = 20000};
    psc_cluster_create(addresses, t->ps, &cluster, NULL);
    if (psc__client_create(cluster, &options, &l->world, &l->client, &l->error))
        fail_msg("%s", l->error.text);
    psc_cluster_free(cluster);
    psc__join(l->client, on_joined, l);
}

static void replace_when_over(void *arg)
{
    struct trial *t = arg;
    if (!trial_is_over(t)) {
        sim_after(t->sim, 50 * PS_MS, replace_when_over, t);
        return;
    }
    t->replacing = false;
    t->replaces = true;
    t->first_run = job_of(t)->control;
    t->n_pushes = t->n_leases = 0;
    memset(t->pushes, 0, sizeof t->pushes);
    memset(t->leases, 0, sizeof t->leases);
    memset(t->modes, 0, sizeof t->modes);
    for (uint32_t rank = 0; rank < TRAINERS; rank++)
        trainer_start(t, rank);
}

void trial_replace(struct trial *t)
{
    t->replacing = true;
    t->declared = t->summed = false;
    for (uint32_t i = 0; i < t->n_lives; i++) {  // those too whose successors wait for their ranks
        sim_kill(t->sim, &t->lives[i]->world);
        t->lives[i]->over = true;
    }
    memset(t->finished, 0, sizeof t->finished);
    replace_when_over(t);
}

void trainers_stop(struct trial *t)
{
    t->ended = true;
    for (uint32_t i = 0; i < t->n_lives; i++) {
        psc__client_free(t->lives[i]->client);
        t->lives[i]->client = NULL;
        t->lives[i]->over = true;
    }
}

void trainers_free(struct trial *t)
{
    for (uint32_t i = 0; i < t->n_lives; i++) {
        struct life *l = t->lives[i];
        free(l->weights);
        free(l->gradient);
        free(l);
    }
}
