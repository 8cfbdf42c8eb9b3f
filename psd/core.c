// SPDX-License-Identifier: Apache-2.0
//
// The core: makes and ends itself, takes calls in, keeps the job table and the clock.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "psd/service.h"
#include "psd/update.h"

enum ps_code psd_core_create(const struct psd_config *config, const struct psd_world *world, struct psd_core **out,
                             struct ps_error *e)
{
    if (config->tasks == 0 || config->task >= config->tasks)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps task %" PRIu32 " of %" PRIu32 ": expected one below the number",
                       config->task, config->tasks);
    struct psd_core *core = ps_alloc(sizeof *core);
    core->config = *config;
    core->world = *world;
    core->started = core->rates_at = world->now(world->ctx);
    while (core->generation == 0)
        core->generation = world->random(world->ctx);
    psd_pool_init(&core->pool, config->memory_bytes);
    pthread_mutex_init(&core->table, NULL);
    pthread_mutex_init(&core->snapshot_lock, NULL);
    pthread_mutex_init(&core->tick_lock, NULL);
    *out = core;
    return PS_OK;
}

void psd_core_destroy(struct psd_core *core)
{
    psd_expire_snapshots(core, UINT64_MAX, NULL);
    while (core->jobs) {
        struct psd_job *job = core->jobs;
        core->jobs = job->next;
        psd_control_free(job->control);
        psd_job_free(job);
    }
    psd_pool_fini(&core->pool);
    pthread_mutex_destroy(&core->tick_lock);
    pthread_mutex_destroy(&core->snapshot_lock);
    pthread_mutex_destroy(&core->table);
    free(core);
}

// ---- job table ----------------------------------------------------------------------------------------------------

struct psd_job *psd_job_lookup(struct psd_core *core, const char *name)
{
    struct psd_job *job = core->jobs;
    while (job && strcmp(job->name, name) != 0)
        job = job->next;
    return job;
}

struct psd_job *psd_job_find(struct psd_core *core, const char *name)
{
    pthread_mutex_lock(&core->table);
    struct psd_job *job = psd_job_lookup(core, name);
    if (job)
        job->refs++;
    pthread_mutex_unlock(&core->table);
    return job;
}

void psd_job_unref(struct psd_core *core, struct psd_job *job)
{
    if (!job)
        return;
    pthread_mutex_lock(&core->table);
    bool last = --job->refs == 0;
    pthread_mutex_unlock(&core->table);
    if (last) {
        psd_control_free(job->control);
        psd_job_free(job);
    }
}

struct psd_job *psd_job_install(struct psd_core *core, const char *name)
{
    struct psd_job *job = psd_job_new(name, &core->pool);
    job->next = core->jobs;
    core->jobs = job;
    return job;
}

void psd_job_collect(struct psd_job *job, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    psd_ready_all(ready, &job->waiting);
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (round) {
            pthread_mutex_lock(&round->lock);
            psd_ready_all(ready, &round->waiting);
            pthread_mutex_unlock(&round->lock);
        }
    }
    psd_control_collect(job, ready);
}

void psd_job_remove(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_job **at = &core->jobs;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    psd_job_fail(job, "it was stopped or replaced");
    psd_job_collect(job, ready);
    job->refs--;
}

void psd_drop_gone(struct psd_turn *t)
{
    if (!t->gone)
        return;
    psd_expire_snapshots(t->core, 0, t->gone);
    psd_job_unref(t->core, t->gone);
    t->gone = NULL;
}

int psd_turn_fail_ended(struct psd_turn *t)
{
    return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: %s", t->job->name, t->job->failure);
}

// ---- parked calls -------------------------------------------------------------------------------------------------

int psd_park(struct psd_turn *t, struct psd_waiters *list)
{
    if (atomic_load(&t->core->draining))
        return ps_fail(&t->error, PS_UNAVAILABLE, "ps task %" PRIu32 " is shutting down", t->core->config.task);
    if (t->job && atomic_load(&t->job->failed) == 2)
        return psd_turn_fail_ended(t);
    if (t->call->parked_since == 0 && !psd_call_keep(t->call))
        return ps_no_memory(&t->error, "a call that waits");
    if (t->call->parked_since == 0)
        t->call->parked_since = t->core->world.now(t->core->world.ctx);
    psd_waiters_add(list, t->call);
    return PSD_PARKED;
}

int psd_ready_one(struct psd_turn *t)
{
    t->call->next = t->ready;
    t->ready = t->call;
    return PSD_PARKED;
}

// ---- time ---------------------------------------------------------------------------------------------------------

static void answer(struct psd_call *call, enum ps_code code, const char *text)
{
    struct ps_rope nothing = PS_ROPE_EMPTY;
    ps_rope_clear(&call->request);
    call->reply(call, code, text, &nothing);
}

static void answer_late(struct psd_job *job, struct psd_call *late, uint64_t now)
{
    while (late) {
        struct psd_call *call = late;
        char whom[256], text[384];
        late = call->next;
        psd_waits_for(job, call, whom, sizeof whom);
        snprintf(text, sizeof text, "waited %.1f s for %s", (double)(now - call->parked_since) / (double)PS_SECOND,
                 whom);
        answer(call, PS_DEADLINE_EXCEEDED, text);
    }
}

static void tick_job(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    struct psd_call *late = NULL;
    psd_control_tick(core, job, now, ready);
    pthread_mutex_lock(&job->lock);
    psd_take_late(&job->waiting, now, &late);
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (round) {
            pthread_mutex_lock(&round->lock);
            psd_take_late(&round->waiting, now, &late);
            pthread_mutex_unlock(&round->lock);
        }
    }
    psd_control_take_late(job, now, &late);
    answer_late(job, late, now);
    if (atomic_load(&job->failed) == 2)
        psd_job_collect(job, ready);
}

static void tick_rates(struct psd_job *job, double seconds)
{
    uint64_t updates = atomic_load(&job->updates), bytes = atomic_load(&job->bytes_moved);
    pthread_mutex_lock(&job->lock);
    job->updates_per_second = (double)(updates - job->last_updates) / seconds;
    job->bytes_per_second = (double)(bytes - job->last_bytes) / seconds;
    job->last_updates = updates;
    job->last_bytes = bytes;
    pthread_mutex_unlock(&job->lock);
}

// Runs fn on every job of the moment, each referenced while it runs.
static void for_each_job(struct psd_core *core, void (*fn)(struct psd_core *, struct psd_job *, void *), void *arg)
{
    size_t n = 0;
    pthread_mutex_lock(&core->table);
    for (struct psd_job *job = core->jobs; job; job = job->next)
        n++;
    struct psd_job **jobs = ps_alloc(n * sizeof(struct psd_job *));
    n = 0;
    for (struct psd_job *job = core->jobs; job; job = job->next) {
        job->refs++;
        jobs[n++] = job;
    }
    pthread_mutex_unlock(&core->table);
    for (size_t i = 0; i < n; i++) {
        fn(core, jobs[i], arg);
        psd_job_unref(core, jobs[i]);
    }
    free(jobs);
}

struct tick {
    uint64_t now;
    double seconds;  // since the last rates; 0: not yet due
    struct psd_call *ready;
};

static void tick_one(struct psd_core *core, struct psd_job *job, void *arg)
{
    struct tick *tick = arg;
    tick_job(core, job, tick->now, &tick->ready);
    if (tick->seconds > 0)
        tick_rates(job, tick->seconds);
}

static void run_all(struct psd_core *core, struct psd_call *ready);

void psd_core_tick(struct psd_core *core)
{
    struct tick tick = {.now = core->world.now(core->world.ctx)};
    struct psd_call *late = NULL;
    pthread_mutex_lock(&core->tick_lock);
    if (tick.now - core->rates_at >= PS_SECOND) {
        tick.seconds = (double)(tick.now - core->rates_at) / (double)PS_SECOND;
        core->rates_at = tick.now;
    }
    for_each_job(core, tick_one, &tick);
    pthread_mutex_unlock(&core->tick_lock);
    pthread_mutex_lock(&core->table);
    psd_take_late(&core->joining, tick.now, &late);
    pthread_mutex_unlock(&core->table);
    answer_late(NULL, late, tick.now);
    psd_expire_snapshots(core, tick.now, NULL);
    run_all(core, tick.ready);
}

static void drain_one(struct psd_core *core, struct psd_job *job, void *arg)
{
    (void)core;
    psd_job_collect(job, arg);
}

void psd_core_drain(struct psd_core *core)
{
    struct psd_call *all = NULL;
    atomic_store(&core->draining, true);
    for_each_job(core, drain_one, &all);
    pthread_mutex_lock(&core->table);
    psd_ready_all(&all, &core->joining);
    pthread_mutex_unlock(&core->table);
    run_all(core, all);  // each wants to park again, and is told
}

// ---- calls --------------------------------------------------------------------------------------------------------

#define WITH_CALLER 1
#define WITH_JOB 2

// What is done for a method before its own steps: the caller is checked; the job is looked up and must live.
static const struct method {
    const char *name;
    const ProtobufCMessageDescriptor *type;
    psd_method_fn run;
    int needs;
} methods[] = {
#define METHOD(NAME, type, fn, needs) \
    [PARAMSERVER__V1__METHOD__##NAME] = {#NAME, &paramserver__v1__##type##_request__descriptor, fn, needs}
    METHOD(JOIN, join, psd_join, WITH_CALLER),
    METHOD(HEARTBEAT, heartbeat, psd_heartbeat, WITH_CALLER | WITH_JOB),
    METHOD(LEAVE, leave, psd_leave, WITH_CALLER | WITH_JOB),
    METHOD(BARRIER, barrier, psd_barrier, WITH_CALLER | WITH_JOB),
    METHOD(LEASE, lease, psd_lease, WITH_CALLER | WITH_JOB),
    METHOD(DECLARE, declare, psd_declare, WITH_CALLER),
    METHOD(DESCRIBE, describe, psd_describe, WITH_CALLER | WITH_JOB),
    METHOD(PUT, update, psd_put, WITH_CALLER | WITH_JOB),
    METHOD(ASSIGN_ADD, update, psd_assign_add, WITH_CALLER | WITH_JOB),
    METHOD(PUSH, update, psd_push, WITH_CALLER | WITH_JOB),
    METHOD(GET, read, psd_get, WITH_CALLER | WITH_JOB),
    METHOD(PULL, read, psd_pull, WITH_CALLER | WITH_JOB),
    METHOD(STATUS, status, psd_status, 0),
    METHOD(WORKERS, workers, psd_workers, 0),
    METHOD(STOP_JOB, stop_job, psd_stop_job, 0),
    METHOD(SET_MEMBERS, set_members, psd_set_members, 0),
    METHOD(ASSIGN_SUB, update, psd_assign_sub, WITH_CALLER | WITH_JOB),
    METHOD(PUSH_PULL, update, psd_push_pull, WITH_CALLER | WITH_JOB),
    METHOD(REDUCE, reduce, psd_reduce, WITH_CALLER | WITH_JOB),
    METHOD(CLOCK, clock, psd_clock, WITH_CALLER | WITH_JOB),
    METHOD(WAITS, waits, psd_waits, 0),
    METHOD(SET_HYPER, set_hyper, psd_set_hyper, 0),
    METHOD(DRAIN, drain, psd_drain, 0),
    METHOD(PREPARE_HYPER, prepare_hyper, psd_prepare_hyper, 0),
    METHOD(SUM_SQUARES, sum_squares, psd_sum_squares, 0),
#undef METHOD
};

static enum ps_code check_caller(struct psd_turn *t, const struct method *m)
{
    // The caller is field 1 of every request that has one.
    const Paramserver__V1__Caller *c =
        *(Paramserver__V1__Caller *const *)((const char *)t->request + m->type->fields[0].offset);
    if (!c)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the request names no caller", m->name);
    t->caller = c;
    if (c->protocol != PS_PROTOCOL)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "%s: protocol %" PRIu32 " is not spoken here; this is %d",
                       m->name, c->protocol, PS_PROTOCOL);
    if (c->job[0] == '\0' || strlen(c->job) > 128)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the job needs a name of 1 to 128 bytes", m->name);
    if (c->client.len != 16)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the client id has %zu bytes, expected 16", m->name,
                       c->client.len);
    if (c->generation && c->generation != t->core->generation)
        return ps_fail(&t->error, PS_ABORTED,
                       "ps task %" PRIu32 " is in generation %016" PRIx64 ", the caller knew %016" PRIx64
                       ": it has restarted and its state is not what the caller saw",
                       t->core->config.task, t->core->generation, c->generation);
    return PS_OK;
}

static enum ps_code find_job(struct psd_turn *t, const struct method *m)
{
    t->job = psd_job_find(t->core, t->caller->job);
    if (!t->job && m->run == psd_describe && ((const Paramserver__V1__DescribeRequest *)t->request)->wait)
        return PS_OK;  // it waits for the job itself
    if (!t->job)
        return ps_fail(&t->error, PS_NOT_FOUND, "%s: ps task %" PRIu32 " has no job '%s': declare it first", m->name,
                       t->core->config.task, t->caller->job);
    if (atomic_load(&t->job->failed) == 2 && m->run != psd_get && m->run != psd_describe && m->run != psd_leave)
        return (enum ps_code)psd_turn_fail_ended(t);
    return PS_OK;
}

// One turn of a call: PSD_PARKED, or its code with the reply or the error in *t.
static int take_turn(struct psd_turn *t)
{
    int code;
    ProtobufCMessage *request = NULL;
    const struct method *m = t->call->method > 0 && t->call->method < (int)(sizeof methods / sizeof methods[0])
                                 ? &methods[t->call->method]
                                 : NULL;
    if (!m)
        return ps_fail(&t->error, PS_UNIMPLEMENTED, "there is no method %d", t->call->method);
    code = (int)ps_msg_unpack(m->type, &t->call->request, &request, &t->payload, &t->error);
    if (code != PS_OK)
        return code;
    t->request = request;
    if (m->needs & WITH_CALLER)
        code = (int)check_caller(t, m);
    if (code == PS_OK && m->needs & WITH_JOB)
        code = (int)find_job(t, m);
    if (code == PS_OK)
        code = m->run(t);
    psd_job_unref(t->core, t->job);
    ps_rope_clear(&t->payload);
    ps_msg_free(request);
    return code;
}

static void run_one(struct psd_core *core, struct psd_call *call, struct psd_call **ready)
{
    struct psd_turn t = {.core = core, .call = call};
    int code = take_turn(&t);
    if (code != PSD_PARKED) {
        ps_rope_clear(&call->request);
        call->reply(call, (enum ps_code)code, code ? t.error.text : "", &t.reply);
        ps_rope_clear(&t.reply);
    }
    psd_move_calls(ready, &t.ready);
}

static void run_all(struct psd_core *core, struct psd_call *ready)
{
    while (ready) {
        struct psd_call *call = ready;
        ready = call->next;
        run_one(core, call, &ready);
    }
}

void psd_core_call(struct psd_core *core, struct psd_call *call)
{
    call->next = NULL;
    call->parked_since = 0;
    run_all(core, call);
}

int psd_turn_reply(struct psd_turn *t, const ProtobufCMessage *reply, struct ps_rope *payload)
{
    ps_msg_pack(reply, payload, &t->reply);
    return PS_OK;
}
