// SPDX-License-Identifier: Apache-2.0
//
// The core: makes and ends itself, takes calls in, keeps the job table and the clock.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "common/base/utf8.h"
#include "psd/control/agree.h"
#include "psd/job/staging.h"
#include "psd/service/service.h"
#include "psd/service/session.h"
#include "psd/service/waits.h"
#include "psd/sync/sync.h"

static void unref_snapshots_job(void *ctx, struct psd_job *job)
{
    psd_job_unref(ctx, job);
}

static void run_ready(void *core, struct psd_call *ready)
{
    psd_run_ready(core, ready);
}

static void unref_job(void *core, struct psd_job *job)
{
    psd_job_unref(core, job);
}

enum ps_code psd_core_create(const struct psd_config *config, const struct psd_world *world, struct psd_core **out,
                             struct ps_error *e)
{
    if (config->tasks == 0 || config->task >= config->tasks)
        return ps_fail(e, PS_INVALID_ARGUMENT, "ps task %" PRIu32 " of %" PRIu32 ": expected one below the number",
                       config->task, config->tasks);
    struct psd_core *core = ps_try_alloc(sizeof *core);
    if (!core)
        return ps_no_memory(e, "the core");
    core->config = *config;
    core->world = *world;
    core->started = core->rates_at = world->now(world->ctx);
    while (core->generation == 0)
        core->generation = world->random(world->ctx);
    psd_runs_init(&core->runs, world->wall ? world->wall(world->ctx) * 1000 : 0);
    psd_pool_init(&core->pool, config->memory_bytes);
    core->sync_host = (struct psd_sync_host){.task = config->task,
                                             .workers = world->workers,
                                             .world = world->ctx,
                                             .send = world->send,
                                             .core = core,
                                             .run_ready = run_ready,
                                             .unref_job = unref_job};
    pthread_mutex_init(&core->table, NULL);
    pthread_mutex_init(&core->cancelling, NULL);
    psd_snapshots_init(&core->snapshots, &core->pool, unref_snapshots_job, core);
    pthread_mutex_init(&core->tick_lock, NULL);
    *out = core;
    return PS_OK;
}

void psd_core_destroy(struct psd_core *core)
{
    psd_snapshots_fini(&core->snapshots);
    while (core->jobs) {
        struct psd_job *job = core->jobs;
        core->jobs = job->next;
        psd_control_free(job->control);
        psd_view_free(job->view);
        psd_job_free(job);
    }
    psd_pool_fini(&core->pool);
    pthread_mutex_destroy(&core->tick_lock);
    pthread_mutex_destroy(&core->cancelling);
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

void psd_job_ref(struct psd_core *core, struct psd_job *job)
{
    (void)core;
    atomic_fetch_add(&job->refs, 1);
}

void psd_job_unref(struct psd_core *core, struct psd_job *job)
{
    if (!job || atomic_fetch_sub(&job->refs, 1) > 1)
        return;
    // Whoever cancels a call that was parked here may still want a lock of the job's.
    pthread_mutex_lock(&core->cancelling);
    pthread_mutex_unlock(&core->cancelling);
    psd_control_free(job->control);
    psd_view_free(job->view);
    psd_job_free(job);
}

void psd_job_install(struct psd_core *core, struct psd_job *job)
{
    job->host = &core->sync_host;
    job->next = core->jobs;
    core->jobs = job;
}

static bool collect(struct psd_waiters *list, void *ready)
{
    psd_ready_all(ready, list);
    return false;
}

void psd_job_collect(struct psd_job *job, struct psd_call **ready)
{
    psd_waits_walk(NULL, job, &(struct psd_look){collect, NULL, ready});
}

void psd_job_remove(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_job **at = &core->jobs;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = job->next;
    atomic_store(&job->removed, true);
    if (atomic_load(&job->declared))
        psd_runs_remember(&core->runs, job->name, atomic_load(&job->run));
    psd_job_fail(job, "it was stopped or replaced");
    psd_job_collect(job, ready);
    job->refs--;
}

// Table lock held.
static bool is_void(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool over = atomic_load(&job->failed) == 2 || (job->control && psd_control_is_over(job));
    pthread_mutex_unlock(&job->lock);
    return over && !job->declaring && !atomic_load(&job->declared);
}

bool psd_job_drop_void(struct psd_request *t)
{
    struct psd_job *oldest = NULL;
    for (struct psd_job *job = t->core->jobs; job; job = job->next)
        if (is_void(job))
            oldest = job;
    if (!oldest)
        return false;
    oldest->refs++;
    t->gone = oldest;
    psd_job_remove(t->core, oldest, &t->ready);
    return true;
}

enum ps_code psd_job_make_place(struct psd_request *t)
{
    size_t n = 0;
    for (const struct psd_job *job = t->core->jobs; job; job = job->next)
        n++;
    if (n < PSD_MAX_JOBS || psd_job_drop_void(t))
        return PS_OK;
    return ps_fail(&t->error, PS_RESOURCE_EXHAUSTED, "ps task %" PRIu32 " has %zu jobs and takes no more: stop one",
                   t->core->config.task, n);
}

void psd_drop_gone(struct psd_request *t)
{
    if (!t->gone)
        return;
    psd_snapshots_expire(&t->core->snapshots, 0, t->gone);
    psd_job_unref(t->core, t->gone);
    t->gone = NULL;
}

int psd_request_fail_ended(struct psd_request *t)
{
    return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: %s", t->job->name, t->job->failure);
}

// ---- parked calls -------------------------------------------------------------------------------------------------

int psd_park(struct psd_request *q, struct psd_waiters *list, pthread_mutex_t *lock)
{
    struct psd_call *call = q->call;
    if (atomic_load(&q->core->draining))
        return ps_fail(&q->error, PS_UNAVAILABLE, "ps task %" PRIu32 " is shutting down", q->core->config.task);
    if (q->job && atomic_load(&q->job->failed) == 2)
        return psd_request_fail_ended(q);
    if (call->parked_since == 0) {
        call->parked_since = psd_now(q->core);
        psd_call_shrink(&q->payload);
        ps_slices_clear(&call->request);
    }
    if (q->caller) {
        call->worker = q->caller->worker;
        memmove(call->client, q->caller->client.data, sizeof call->client);
    }
    call->message = (void *)q->request;
    ps_slices_move(&call->payload, &q->payload);
    ps_slices_move(&call->room, &q->room);
    call->room_data = q->room_data;
    call->job = q->job;
    if (call->job)
        psd_job_ref(q->core, call->job);
    if (psd_waiters_add(list, lock, call))
        return PSD_PARKED;
    return ps_fail(&q->error, PS_CANCELLED, "the client is gone");
}

void psd_request_wait_with(struct psd_request *q, int (*resume)(struct psd_request *q), void *state,
                           void (*state_free)(void *state))
{
    q->call->resume = resume;
    q->call->state = state;
    q->call->state_free = state_free;
}

void psd_call_answer(struct psd_core *core, struct psd_call *call, enum ps_code code, const char *text,
                     struct ps_slices *body)
{
    ps_slices_clear(&call->request);
    ps_slices_clear(&call->payload);
    ps_slices_clear(&call->room);
    ps_msg_free(call->message);
    if (call->state_free)
        call->state_free(call->state);
    struct psd_job *job = call->job;
    call->message = call->state = call->job = NULL;
    call->state_free = NULL;
    call->reply(call, code, text, body);
    psd_job_unref(core, job);
}

void psd_core_cancel(struct psd_core *core, struct psd_call *call)
{
    struct ps_slices nothing = PS_ROPE_EMPTY;
    pthread_mutex_lock(&core->cancelling);
    atomic_store(&call->cancelled, true);
    bool parked = psd_call_take(call, psd_control_forget_call);
    pthread_mutex_unlock(&core->cancelling);
    if (parked)
        psd_call_answer(core, call, PS_CANCELLED, "the client is gone", &nothing);
}

// ---- time ---------------------------------------------------------------------------------------------------------

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

enum ps_code psd_jobs_hold(struct psd_core *core, const char *name, struct psd_jobs *jobs, struct ps_error *e)
{
    size_t n = 0;
    *jobs = (struct psd_jobs){0};
    pthread_mutex_lock(&core->table);
    for (struct psd_job *job = core->jobs; job; job = job->next)
        n++;
    jobs->v = ps_try_alloc_array(n, sizeof(struct psd_job *));
    for (struct psd_job *job = jobs->v ? core->jobs : NULL; job; job = job->next) {
        if (name[0] && strcmp(name, job->name) != 0)
            continue;
        job->refs++;
        jobs->v[jobs->n++] = job;
    }
    pthread_mutex_unlock(&core->table);
    if (!jobs->v)
        return ps_no_memory(e, "a list of jobs");
    if (name[0] && jobs->n == 0) {
        psd_jobs_release(core, jobs);
        return ps_fail(e, PS_NOT_FOUND, "ps task %" PRIu32 " has no job '%.128s'", core->config.task, name);
    }
    return PS_OK;
}

void psd_jobs_release(struct psd_core *core, struct psd_jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++)
        psd_job_unref(core, jobs->v[i]);
    free(jobs->v);
    *jobs = (struct psd_jobs){0};
}

static void tick_job(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    psd_control_tick(core, job, now, ready);
    psd_agree_tick(core, job, now, ready);
    psd_sync_advance_all(job, ready);
    psd_staging_tick(job, now);
    psd_waits_end_late(core, job, now);
    if (atomic_load(&job->failed) == 2)
        psd_job_collect(job, ready);
}

// What is done every second. Tick lock held.
static void tick_second(struct psd_core *core, const struct psd_jobs *jobs, uint64_t now)
{
    if (now - core->rates_at < PS_SECOND)
        return;
    for (size_t i = 0; i < jobs->n; i++) {
        tick_rates(jobs->v[i], (double)(now - core->rates_at) / (double)PS_SECOND);
        psd_waits_log_stalls(core, jobs->v[i], now);
    }
    psd_waits_log_stalls(core, NULL, now);
    core->rates_at = now;
}

// Ticks that come late mean that this process was stopped or had no processor: nobody was heard meanwhile.
enum { LATE_TICK_MS = 500 };

void psd_core_tick(struct psd_core *core)
{
    struct psd_call *ready = NULL;
    struct psd_jobs jobs;
    pthread_mutex_lock(&core->tick_lock);
    uint64_t now = psd_now(core);
    core->slept = core->ticked_at && now - core->ticked_at > LATE_TICK_MS * PS_MS ? now - core->ticked_at : 0;
    core->slept_in_all += core->slept;
    core->ticked_at = now;
    if (psd_jobs_hold(core, "", &jobs, NULL) == PS_OK) {
        for (size_t i = 0; i < jobs.n; i++)
            tick_job(core, jobs.v[i], now, &ready);
        tick_second(core, &jobs, now);
        psd_jobs_release(core, &jobs);
    }
    pthread_mutex_unlock(&core->tick_lock);
    psd_waits_end_late(core, NULL, now);
    psd_snapshots_expire(&core->snapshots, now, NULL);
    psd_run_ready(core, ready);
}

// Everything that is parked wants to park again, and is told.
void psd_core_drain(struct psd_core *core)
{
    struct psd_call *all = NULL;
    atomic_store(&core->draining, true);
    pthread_mutex_lock(&core->table);
    for (struct psd_job *job = core->jobs; job; job = job->next)
        psd_job_collect(job, &all);
    psd_ready_all(&all, &core->joining);
    pthread_mutex_unlock(&core->table);
    psd_run_ready(core, all);
}

// ---- calls --------------------------------------------------------------------------------------------------------

#define WITH_CALLER 1
#define WITH_JOB 2
#define SMALL_REPLY 4
#define MOVES_DATA 8

// What is done for a method before its own steps: the caller is checked; the job is looked up and must live; there is
// room for a small reply; a worker that moves data shows that it lives.
static const struct method {
    const char *name;
    const ProtobufCMessageDescriptor *type;
    psd_method_fn run;
    int needs;
} methods[] = {
#define METHOD(NAME, type, fn, needs) \
    [PARAMSERVER__V1__METHOD__##NAME] = {#NAME, &paramserver__v1__##type##_request__descriptor, fn, needs}
    METHOD(JOIN, join, psd_join, WITH_CALLER),
    METHOD(HEARTBEAT, heartbeat, psd_heartbeat, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(LEAVE, leave, psd_leave, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(BARRIER, barrier, psd_barrier, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(LEASE, lease, psd_lease, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(DECLARE, declare, psd_declare, WITH_CALLER | SMALL_REPLY),
    METHOD(DESCRIBE, describe, psd_describe, WITH_CALLER | WITH_JOB),
    METHOD(PUT, update, psd_put, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(ASSIGN_ADD, update, psd_assign_add, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PUSH, update, psd_push, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(GET, read, psd_get, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PULL, read, psd_pull, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(STATUS, status, psd_status, 0),
    METHOD(WORKERS, workers, psd_workers, 0),
    METHOD(STOP_JOB, stop_job, psd_stop_job, SMALL_REPLY),
    METHOD(SET_MEMBERS, set_members, psd_set_members, 0),
    METHOD(ASSIGN_SUB, update, psd_assign_sub, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(PUSH_PULL, update, psd_push_pull, WITH_CALLER | WITH_JOB | MOVES_DATA),
    METHOD(REDUCE, reduce, psd_reduce, WITH_CALLER | WITH_JOB),
    METHOD(CLOCK, clock, psd_clock, WITH_CALLER | WITH_JOB | SMALL_REPLY),
    METHOD(WAITS, waits, psd_waits, 0),
    METHOD(SET_HYPER, set_hyper, psd_set_hyper, SMALL_REPLY),
    METHOD(DRAIN, drain, psd_drain, SMALL_REPLY),
    METHOD(AGREE, agree, psd_agree, SMALL_REPLY),
    METHOD(SUM_SQUARES, sum_squares, psd_sum_squares, 0),
    METHOD(OPEN, open, psd_open, SMALL_REPLY),
#undef METHOD
};

static enum ps_code check_caller(struct psd_request *t, const struct method *m)
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
    if (!ps_utf8_is_plain(c->job))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the job's name has control characters", m->name);
    if (c->client.len != 16)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the client id has %zu bytes, expected 16", m->name,
                       c->client.len);
    if (c->generation && c->generation != t->core->generation)
        return ps_fail(&t->error, PS_ABORTED,
                       "ps task %" PRIu32 " has restarted and lost the job's state: it is in generation %016" PRIx64
                       ", the caller knew %016" PRIx64,
                       t->core->config.task, t->core->generation, c->generation);
    if (c->run >= PSD_RUN_LIMIT)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: run %" PRIu64 " was never given out", m->name, c->run);
    if (m->run != psd_join)
        psd_runs_hear(&t->core->runs, c->run);
    return PS_OK;
}

// Those who do not belong to the job learn its run by a Describe. Task 0 gives it to workers when they join.
static bool dispatch_may_name_no_run(const struct psd_request *t, const struct method *m)
{
    return t->caller->worker == 0 &&
           (m->run == psd_describe ||
            (m->run == psd_get && !((const Paramserver__V1__ReadRequest *)t->request)->if_newer));
}

static enum ps_code dispatch_no_job(struct psd_request *t, const struct method *m)
{
    pthread_mutex_lock(&t->core->table);
    uint64_t past = psd_runs_past(&t->core->runs, t->caller->job);
    pthread_mutex_unlock(&t->core->table);
    if (t->caller->run && t->caller->run < past)
        return ps_fail(&t->error, PS_ABORTED, "%s: run %" PRIu64 " of job '%s' has ended", m->name, t->caller->run,
                       t->caller->job);
    return ps_fail(&t->error, PS_NOT_FOUND, "%s: ps task %" PRIu32 " has no job '%s'", m->name, t->core->config.task,
                   t->caller->job);
}

static enum ps_code dispatch_check_run(struct psd_request *t, const struct method *m)
{
    uint64_t run = atomic_load(&t->job->run), asked = t->caller->run;
    bool waits = m->run == psd_describe && ((const Paramserver__V1__DescribeRequest *)t->request)->wait;
    if (asked == 0 && !dispatch_may_name_no_run(t, m))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s: the request names no run of job '%s'", m->name,
                       t->job->name);
    if (asked && asked < run)
        ps_sometimes(PS_SOMETIMES_OLD_RUN);
    if (asked && asked < run)
        return ps_fail(&t->error, PS_ABORTED, "%s: run %" PRIu64 " of job '%s' has ended, this is run %" PRIu64,
                       m->name, asked, t->job->name, run);
    if (asked > run && !waits)
        return ps_fail(&t->error, PS_UNAVAILABLE,
                       "%s: ps task %" PRIu32 " has not heard of run %" PRIu64 " of job '%s' yet, this is run %" PRIu64,
                       m->name, t->core->config.task, asked, t->job->name, run);
    return PS_OK;
}

// Is it the caller's run, and does it live?
static enum ps_code dispatch_check_job(struct psd_request *t, const struct method *m)
{
    if (dispatch_check_run(t, m))
        return t->error.code;
    if (atomic_load(&t->job->failed) == 2 && m->run != psd_get && m->run != psd_describe && m->run != psd_leave)
        return (enum ps_code)psd_request_fail_ended(t);
    return PS_OK;
}

static enum ps_code find_job(struct psd_request *t, const struct method *m)
{
    t->job = psd_job_find(t->core, t->caller->job);
    if (!t->job && m->run == psd_describe && ((const Paramserver__V1__DescribeRequest *)t->request)->wait)
        return PS_OK;  // it waits for the job itself
    if (!t->job)
        return dispatch_no_job(t, m);
    return dispatch_check_job(t, m);
}

// At the control task. Without a lock: who looks at it (psd/control/member.c) can do with the one before.
static void dispatch_hear(const struct psd_request *q)
{
    struct psd_job *job = q->job;
    if (q->core->config.task || !q->caller->worker || !atomic_load(&job->declared) || q->caller->worker > job->workers)
        return;
    struct psd_heard *heard = &job->heard[q->caller->worker - 1];
    uint64_t slept = atomic_load_explicit(&q->core->slept_in_all, memory_order_relaxed);
    atomic_store_explicit(&heard->incarnation, q->caller->incarnation, memory_order_relaxed);
    atomic_store_explicit(&heard->at, psd_now(q->core) - slept, memory_order_relaxed);
}

int psd_fail_later(struct psd_request *t, int code)
{
    if (code == PS_RESOURCE_EXHAUSTED && t->call->parked_since)
        code = (int)(t->error.code = PS_UNAVAILABLE);
    return code;
}

static const struct method *dispatch_method(const struct psd_call *call)
{
    bool known = call->method > 0 && call->method < (int)(sizeof methods / sizeof methods[0]);
    return known ? &methods[call->method] : NULL;
}

static enum ps_code dispatch_decode(struct psd_request *q, const struct method *m)
{
    ProtobufCMessage *request = NULL;
    enum ps_code code = ps_msg_unpack(m->type, &q->call->request, &request, &q->payload, &q->error);
    q->request = request;
    return code;
}

// The caller of a request that has one, which is its field 1.
static const Paramserver__V1__Caller *dispatch_caller(const struct psd_request *q, const struct method *m)
{
    return m->needs & WITH_CALLER
               ? *(Paramserver__V1__Caller *const *)((const char *)q->request + m->type->fields[0].offset)
               : NULL;
}

// Who calls, and the job, from the session of the stream: what was found out for the request before this one is not found
// out again.
static enum ps_code dispatch_use_session(struct psd_request *q, const struct method *m)
{
    struct psd_session *s = *q->call->session;
    Paramserver__V1__Caller *caller = (Paramserver__V1__Caller *)dispatch_caller(q, m);
    if (!s)
        return ps_fail(&q->error, PS_FAILED_PRECONDITION,
                       "%s: the request leaves its caller to the session of the stream, which has none: expected Open "
                       "before it",
                       m->name);
    if (psd_session_is_lost(s))
        return ps_fail(&q->error, PS_UNAVAILABLE, "%s: there was no memory to open the session of the stream", m->name);
    psd_session_complete(s, q->call, caller);
    q->caller = caller;
    q->job = psd_session_job(s);
    bool known = q->job != NULL;
    if (known ? dispatch_check_job(q, m) : check_caller(q, m) || find_job(q, m))
        return q->error.code;
    if (!known)
        psd_session_set_job(s, q->job);
    caller->job = q->job->name;
    return PS_OK;
}

static bool dispatch_is_in_session(const struct psd_request *q, const struct method *m)
{
    const Paramserver__V1__Caller *caller = m->needs & MOVES_DATA && q->call->session ? dispatch_caller(q, m) : NULL;
    return caller && psd_session_is_meant(caller);
}

static enum ps_code dispatch_find_caller(struct psd_request *q, const struct method *m)
{
    if (dispatch_is_in_session(q, m))
        return dispatch_use_session(q, m);
    if (m->needs & WITH_CALLER && check_caller(q, m))
        return q->error.code;
    return m->needs & WITH_JOB ? find_job(q, m) : PS_OK;
}

// A call comes: PSD_PARKED, or its code with the reply or the error in *q.
static int dispatch_start(struct psd_request *q, const struct method *m)
{
    int code = (int)dispatch_decode(q, m);
    if (code == PS_OK)
        code = (int)dispatch_find_caller(q, m);
    if (code == PS_OK && m->needs & MOVES_DATA)
        dispatch_hear(q);
    if (code == PS_OK && m->needs & SMALL_REPLY)
        code = (int)psd_request_reserve(q, PSD_REPLY_BYTES);
    if (code == PS_OK)
        code = m->run(q);
    if (code == PS_RESOURCE_EXHAUSTED && m->run == psd_open && q->call->session)
        psd_session_lose(q->call->session);
    return code;
}

// What it has waited for is there, or its job has ended, or begun another run.
static int dispatch_go_on(struct psd_request *q, const struct method *m)
{
    struct psd_call *call = q->call;
    q->request = call->message;
    q->caller = dispatch_caller(q, m);
    ps_slices_move(&q->payload, &call->payload);
    ps_slices_move(&q->room, &call->room);
    q->room_data = call->room_data;
    q->job = call->job;
    call->message = call->job = NULL;
    if (!q->job && m->needs & WITH_JOB && find_job(q, m))
        return (int)q->error.code;
    const bool of_run = q->job && m->run != psd_join;  // a Join is of whatever run there is
    if (of_run && q->caller && dispatch_check_run(q, m))
        return (int)q->error.code;
    if (of_run && atomic_load(&q->job->failed) == 2) {
        ps_sometimes(PS_SOMETIMES_PARKED_ENDED);
        return psd_request_fail_ended(q);
    }
    return call->resume ? call->resume(q) : m->run(q);
}

static void run_one(struct psd_core *core, struct psd_call *call, struct psd_call **ready)
{
    struct psd_request q = {.core = core, .call = call};
    const struct method *m = dispatch_method(call);
    int code = m ? PS_OK : (int)ps_fail(&q.error, PS_UNIMPLEMENTED, "there is no method %d", call->method);
    if (m)
        code = call->message ? dispatch_go_on(&q, m) : dispatch_start(&q, m);
    if (code != PSD_PARKED) {
        if (!call->message)
            ps_msg_free((ProtobufCMessage *)q.request);
        psd_call_answer(core, call, (enum ps_code)code, code ? q.error.text : "", &q.reply);
        ps_slices_clear(&q.reply);
    }
    psd_job_unref(core, q.job);
    ps_slices_clear(&q.payload);
    ps_slices_clear(&q.room);
    psd_move_calls(ready, &q.ready);
}

void psd_run_ready(struct psd_core *core, struct psd_call *ready)
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
    call->stall_told = false;
    call->worker = 0;
    memset(call->client, 0, sizeof call->client);
    atomic_init(&call->lock, NULL);
    atomic_init(&call->cancelled, false);
    call->list = NULL;
    call->payload = call->room = (struct ps_slices)PS_ROPE_EMPTY;
    call->message = call->state = call->job = NULL;
    call->resume = NULL;
    call->state_free = NULL;
    psd_run_ready(core, call);
}

enum ps_code psd_request_reserve(struct psd_request *t, size_t bytes)
{
    ps_slices_clear(&t->room);
    ps_slices_add(&t->room, ps_slice_new(bytes, &t->room_data));
    return t->room.len ? PS_OK : ps_no_memory(&t->error, "the answer");
}

int psd_request_reply(struct psd_request *t, const ProtobufCMessage *reply, struct ps_slices *payload)
{
    if (!payload && t->room.len >= protobuf_c_message_get_packed_size(reply) + PS_MSG_WRITE_MORE) {
        t->room.v[0].len = t->room.len = ps_msg_write(reply, 0, t->room_data);
        ps_slices_move(&t->reply, &t->room);
        return PS_OK;
    }
    ps_msg_pack(reply, payload, &t->reply);
    if (!t->reply.broken)
        return PS_OK;
    ps_slices_clear(&t->reply);
    return psd_fail_later(t, ps_no_memory(&t->error, "the answer"));
}
