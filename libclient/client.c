// SPDX-License-Identifier: Apache-2.0
#include "libclient/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/call.h"
#include "libclient/cluster.h"
#include "libclient/op.h"

enum { DEFAULT_TIMEOUT_MS = 60000, DEFAULT_CHUNK = 512 << 10, STOP_LOOK_MS = 200 };

// ---- the lock, time -----------------------------------------------------------------------------------------------

void psc__lock(struct psc_client *c)
{
    pthread_mutex_lock(&c->lock);
}

void psc__unlock(struct psc_client *c)
{
    TAILQ_HEAD(, psc__later) now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &c->later, link);
    pthread_mutex_unlock(&c->lock);
    struct psc__later *l;
    while ((l = TAILQ_FIRST(&now))) {
        TAILQ_REMOVE(&now, l, link);
        l->run(l);
    }
}

void psc__run_later(struct psc_client *c, struct psc__later *l, void (*run)(struct psc__later *))
{
    l->run = run;
    TAILQ_INSERT_TAIL(&c->later, l, link);
}

uint64_t psc__now(struct psc_client *c)
{
    return c->world.now(c->world.ctx);
}

void psc__after(struct psc_client *c, uint64_t delay_ns, void (*fn)(void *), void *arg)
{
    c->world.after(c->world.ctx, delay_ns, fn, arg);
}

// ---- what all requests share --------------------------------------------------------------------------------------

void psc__caller_init(Paramserver__V1__Caller *caller, const struct psc__task *t, uint64_t sequence)
{
    struct psc_client *c = t->client;
    paramserver__v1__caller__init(caller);
    caller->protocol = PS_PROTOCOL;
    caller->job = c->job;
    caller->client = (ProtobufCBinaryData){sizeof c->id, c->id};
    caller->incarnation = c->incarnation;
    caller->sequence = sequence;
    caller->oldest = c->window.oldest;
    caller->generation = t->generation;
    caller->worker = (uint32_t)(c->rank + 1);
}

bool psc__saw_generation(struct psc__task *t, uint64_t generation)
{
    if (generation == 0 || generation == t->generation)
        return true;
    if (t->generation == 0) {
        t->generation = generation;
        return true;
    }
    psc__end(t->client, PS_ABORTED, PSC__TASK " has restarted and lost its state (generation %llu, was %llu)",
             PSC__TASK_ARGS(t), (unsigned long long)generation, (unsigned long long)t->generation);
    return false;
}

const char *psc__method_name(int method)
{
    static const char *const names[] = {
        "call",       "join",   "heartbeat", "leave", "barrier",   "lease",   "declare",  "describe",    "put",
        "assign_add", "push",   "get",       "pull",  "status",    "workers", "stop job", "set members", "assign_sub",
        "push_pull",  "reduce", "clock",     "waits", "set hyper", "drain",   "agree",    "sum squares"};
    return names[method >= 0 && method < (int)(sizeof names / sizeof *names) ? method : 0];
}

void psc__lost_job(struct psc__task *t, const char *text)
{
    psc__end(t->client, PS_ABORTED, PSC__TASK ": %s: it was stopped or replaced", PSC__TASK_ARGS(t), text);
}

void psc__end(struct psc_client *c, enum ps_code code, const char *format, ...)
{
    if (c->ended.code != PS_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(c->ended.text, sizeof c->ended.text, format, args);
    va_end(args);
    c->ended.code = code;
    c->window.closed = true;
    psc__ops_fail(c, &c->ended);
    psc__calls_fail(c, &c->ended);
}

// ---- making one ---------------------------------------------------------------------------------------------------

static enum ps_code check_options(const psc_options *o, struct ps_error *e)
{
    if (!o->job || !o->job[0])
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: the job has no name");
    if (o->rank < -1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: rank is %d; expected 0 or above, or -1 for an observer",
                       o->rank);
    if (o->rank >= 0 && (uint32_t)o->rank >= o->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: rank is %d, but the job has %u workers: ranks count from 0",
                       o->rank, o->workers);
    if (o->rank >= 0 && o->update != PSC_ASYNC && o->update != PSC_SYNC && o->update != PSC_SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: update is %d; expected async, ssp or sync", (int)o->update);
    if (o->staleness && o->update != PSC_SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: staleness is %u, which is for ssp alone", o->staleness);
    if (o->min_workers > o->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: min_workers is %u of %u workers", o->min_workers, o->workers);
    if (o->timeout_ms < 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: timeout_ms is %d", o->timeout_ms);
    if (o->join_within_ms < 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: join_within_ms is %d", o->join_within_ms);
    if (o->chunk_bytes > PS_CHUNK_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: chunk_bytes is %zu; expected at most %d", o->chunk_bytes,
                       PS_CHUNK_MAX);
    return PS_OK;
}

// Grows from one start of a worker to the next.
static uint64_t incarnation_of(const struct psc_world *world)
{
    struct timespec t;
    if (world->incarnation)
        return world->incarnation;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void init_identity(struct psc_client *c)
{
    for (size_t i = 0; i < sizeof c->id; i += sizeof(uint64_t)) {
        uint64_t r = c->world.random(c->world.ctx);
        memcpy(c->id + i, &r, sizeof r);
    }
    c->incarnation = incarnation_of(&c->world);
}

static bool init_tasks(struct psc_client *c, const struct psc_cluster *cluster)
{
    c->tasks = ps_try_alloc_array(cluster->is.n, sizeof *c->tasks);
    for (uint32_t i = 0; c->tasks && i < cluster->is.n; i++) {
        c->tasks[i].client = c;
        c->tasks[i].index = i;
        psc__queue_init(&c->tasks[i].queue);
        c->n_tasks++;
        if (!(c->tasks[i].address = ps_try_strdup(cluster->is.addresses[i])))
            return false;
    }
    return c->tasks;
}

static void init_options(struct psc_client *c, const psc_options *options)
{
    c->rank = options->rank;
    c->workers = options->workers;
    c->min_workers = options->min_workers ? options->min_workers : 1;
    c->update = options->update;
    c->staleness = options->staleness;
    c->join_within_ms = (uint32_t)options->join_within_ms;
    c->on_existing = options->on_existing;
    c->unary = options->transport == PSC_UNARY;
    c->timeout_ns = (uint64_t)(options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS) * PS_MS;
    c->chunk_bytes = options->chunk_bytes ? options->chunk_bytes : DEFAULT_CHUNK;
    c->stop = options->stop;
}

// What it has but for its world.
static void free_memory(struct psc_client *c)
{
    psc__ops_unreserve(c);
    psc__layout_free(c->layout);
    for (uint32_t i = 0; i < c->n_tasks; i++)
        free(c->tasks[i].address);
    free(c->tasks);
    free(c->scratch.tensors);
    free(c->scratch.pointers);
    free(c->member.run_id);
    free(c->job);
    free(c);
}

static struct psc_client *client_new(const struct psc_cluster *cluster, const psc_options *options,
                                     const struct psc_world *world)
{
    struct ps_error e;
    struct psc_client *c = ps_try_alloc(sizeof *c);
    if (!c)
        return NULL;
    TAILQ_INIT(&c->later);
    TAILQ_INIT(&c->ops);
    TAILQ_INIT(&c->spares);
    TAILQ_INIT(&c->calls);
    psc__window_init(&c->window);
    c->world = *world;
    c->job = ps_try_strdup(options->job);
    init_options(c, options);
    init_identity(c);
    if (c->job && init_tasks(c, cluster) && psc__ops_reserve(c, &e) == PS_OK)
        return c;
    free_memory(c);
    return NULL;
}

// A signal handler can do no more than leave a number behind: it is looked for from time to time.
static void look_for_stop(void *arg)
{
    struct psc_client *c = arg;
    psc__lock(c);
    if (*c->stop)
        psc__end(c, PS_CANCELLED, "stopped by signal %d", (int)*c->stop);
    else if (c->ended.code == PS_OK)
        psc__after(c, STOP_LOOK_MS * PS_MS, look_for_stop, c);
    psc__unlock(c);
}

enum ps_code psc_client_create(const struct psc_cluster *cluster, const struct psc_options *options,
                               const struct psc_world *world, struct psc_client **client, struct ps_error *e)
{
    enum ps_code code = check_options(options, e);
    struct psc_client *c = code == PS_OK ? client_new(cluster, options, world) : NULL;
    if (!c) {
        world->shutdown(world->ctx);
        world->destroy(world->ctx);
        return code == PS_OK ? ps_no_memory(e, "a client") : code;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->told, NULL);
    if (c->stop)
        look_for_stop(c);
    *client = c;
    return PS_OK;
}

// ---- and its end --------------------------------------------------------------------------------------------------

// Every operation gets its end told, whoever still holds its memory: after the world's shutdown only threads that are
// about to let go of it.
static void drain(struct psc_client *c)
{
    psc__lock(c);
    while (!TAILQ_EMPTY(&c->ops)) {
        if (psc__ops_finish_refused(c)) {
            psc__unlock(c);  // callbacks may start others, which are refused
            psc__lock(c);
        } else {
            pthread_cond_wait(&c->told, &c->lock);
        }
    }
    psc__unlock(c);
}

void psc__client_free(struct psc_client *c)
{
    psc__lock(c);
    psc__end(c, PS_CANCELLED, "the client was closed");
    psc__unlock(c);
    c->world.shutdown(c->world.ctx);
    drain(c);
    psc__calls_free(c);
    c->world.destroy(c->world.ctx);
    pthread_cond_destroy(&c->told);
    pthread_mutex_destroy(&c->lock);
    free_memory(c);
}
