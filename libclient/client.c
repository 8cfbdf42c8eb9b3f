// SPDX-License-Identifier: Apache-2.0
#include "libclient/client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/signals.h"
#include "libclient/cluster.h"
#include "libclient/layout.h"
#include "libclient/op.h"

enum { DEFAULT_TIMEOUT_MS = 60000, DEFAULT_CHUNK = 512 << 10, STOP_LOOK_MS = 200, STOP_GRACE_MS = 8000 };

#define WAIT_IS_LONG (2 * PS_SECOND)
#define WAIT_LOOK (PS_SECOND / 2)

// ---- making one ---------------------------------------------------------------------------------------------------

static enum ps_code options_check(const psc_options *o, struct ps_error *e)
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
    if (o->share_rounds && o->update != PSC_SYNC && !o->follows_mode)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: share_rounds is %u, which is for sync alone", o->share_rounds);
    if (o->share_batch && !o->follows_mode)
        return ps_fail(e, PS_INVALID_ARGUMENT, "options: share_batch is for a program with follows_mode");
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

static void client_init_identity(struct psc_client *c)
{
    c->pid = getpid();
    for (size_t i = 0; i < sizeof c->id; i += sizeof(uint64_t)) {
        uint64_t r = c->world.random(c->world.ctx);
        memcpy(c->id + i, &r, sizeof r);
    }
}

static bool client_init_tasks(struct psc_client *c, const struct psc_cluster *cluster)
{
    c->tasks = ps_try_alloc_array(cluster->is.n, sizeof *c->tasks);
    for (uint32_t i = 0; c->tasks && i < cluster->is.n; i++) {
        c->tasks[i].client = c;
        c->tasks[i].index = i;
        c->n_tasks++;
        if (!(c->tasks[i].address = ps_try_strdup(cluster->is.addresses[i])))
            return false;
    }
    return c->tasks;
}

static void client_init_options(struct psc_client *c, const psc_options *options)
{
    c->rank = options->rank;
    c->workers = options->workers;
    c->min_workers = options->min_workers ? options->min_workers : 1;
    c->update = options->update;
    c->staleness = options->staleness;
    c->share_rounds = options->share_rounds;
    c->follows_mode = options->follows_mode;
    c->share_batch = options->share_batch;
    c->join_within_ms = (uint32_t)options->join_within_ms;
    c->on_existing = options->on_existing;
    c->unary = options->transport == PSC_UNARY;
    c->timeout_ns = (uint64_t)(options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS) * PS_MS;
    c->refused_ns = options->refused_ms > 0 ? (uint64_t)options->refused_ms * PS_MS : 0;
    c->chunk_bytes = options->chunk_bytes ? options->chunk_bytes : DEFAULT_CHUNK;
    c->stop = options->stop;
    c->waits = options->waits;
    c->waits_arg = options->waits_arg;
}

// What it has but for its world.
static void client_free_memory(struct psc_client *c)
{
    psc__cutting_free(c);
    psc__ops_free(c);
    psc__calls_free(c);
    psc__queues_free(c);
    psc__layout_free(c->layout);
    for (uint32_t i = 0; i < c->n_tasks; i++)
        free(c->tasks[i].address);
    free(c->tasks);
    free(c->job);
    free(c->configuration);
    free(c);
}

static struct psc_client *client_new(const struct psc_cluster *cluster, const psc_options *options,
                                     const struct psc_world *world)
{
    struct psc_client *c = ps_try_alloc(sizeof *c);
    if (!c)
        return NULL;
    TAILQ_INIT(&c->later);
    TAILQ_INIT(&c->enders);
    psc__window_init(&c->window);
    c->world = *world;
    c->job = ps_try_strdup(options->job);
    c->configuration = ps_try_strdup(options->configuration ? options->configuration : "");
    client_init_options(c, options);
    client_init_identity(c);
    if (c->job && c->configuration && client_init_tasks(c, cluster) && psc__queues_create(c) && psc__ops_create(c) &&
        psc__calls_create(c))
        return c;
    client_free_memory(c);
    return NULL;
}

static void client_end_stopped(void *arg)
{
    struct psc_client *c = arg;
    psc__lock(c);
    psc__end(c, PS_CANCELLED, "%s", c->stopped.text);
    psc__unlock(c);
}

// Locked. Who is in the middle of a step may end it: a gradient that has come to some tasks only, or that has been
// applied without an answer, would make the weights others than those of any step.
static void client_stop(struct psc_client *c, int number)
{
    // 1 may be SIGHUP's number, or what a handler has left that tells no signals apart.
    ps_fail(&c->stopped, PS_CANCELLED, "stopped by %s", number == 1 ? "a signal" : ps_signal_name(number));
    psc__calls_stop(c);
    psc__after(c, c->layout ? STOP_GRACE_MS * PS_MS : 0, client_end_stopped, c);
}

// A signal handler can do no more than leave a number behind: it is looked for from time to time.
static void client_look_for_stop(void *arg)
{
    struct psc_client *c = arg;
    psc__lock(c);
    const int number = ps_signal_number(c->stop);
    if (c->ended.code == PS_OK && number)
        client_stop(c, number);
    else if (c->ended.code == PS_OK)
        psc__after(c, STOP_LOOK_MS * PS_MS, client_look_for_stop, c);
    psc__unlock(c);
}

// What has been waited for since before `since`, in `what`; "": nothing that is worth a word.
static void client_name_wait(struct psc_client *c, uint64_t since, char *what, size_t size)
{
    what[0] = 0;
    for (uint32_t t = 0; t < c->n_tasks; t++)
        if (psc__queue_is_down(&c->queues[t], since)) {
            snprintf(what, size, PSC__TASK ": %.160s", PSC__TASK_ARGS(&c->tasks[t]), c->queues[t].why.text);
            return;
        }
    psc__calls_name_wait(c, since, what, size);
    if (!what[0])
        psc__ops_name_wait(c, since, what, size);
}

static void client_look_for_waits(void *arg)
{
    struct psc_client *c = arg;
    char what[sizeof c->waits_for];
    psc__lock(c);
    uint64_t now = psc__now(c);
    client_name_wait(c, now > WAIT_IS_LONG ? now - WAIT_IS_LONG : 0, what, sizeof what);
    bool changed = what[0] && strcmp(what, c->waits_for) != 0;
    memcpy(c->waits_for, what, sizeof what);
    bool ended = c->ended.code != PS_OK;
    psc__unlock(c);
    if (ended)
        return;
    if (changed)
        c->waits(c->waits_arg, what);
    psc__lock(c);
    if (c->ended.code == PS_OK)
        psc__after(c, WAIT_LOOK, client_look_for_waits, c);
    psc__unlock(c);
}

enum ps_code psc__client_create(const struct psc_cluster *cluster, const struct psc_options *options,
                                const struct psc_world *world, struct psc_client **client, struct ps_error *e)
{
    enum ps_code code = options_check(options, e);
    struct psc_client *c = code == PS_OK ? client_new(cluster, options, world) : NULL;
    if (!c) {
        world->shutdown(world->ctx);
        world->destroy(world->ctx);
        return code == PS_OK ? ps_no_memory(e, "a client") : code;
    }
    pthread_mutex_init(&c->lock, NULL);
    if (c->stop)
        client_look_for_stop(c);
    if (c->waits)
        psc__after(c, WAIT_LOOK, client_look_for_waits, c);
    *client = c;
    return PS_OK;
}

// ---- and its end --------------------------------------------------------------------------------------------------

void psc__client_free(struct psc_client *c)
{
    psc__lock(c);
    psc__end(c, PS_CANCELLED, "the client was closed");
    psc__unlock(c);
    c->world.shutdown(c->world.ctx);
    psc__ops_drain(c);
    psc__calls_free(c);
    c->world.destroy(c->world.ctx);
    pthread_mutex_destroy(&c->lock);
    client_free_memory(c);
}
