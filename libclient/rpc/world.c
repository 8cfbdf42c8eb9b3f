// SPDX-License-Identifier: Apache-2.0
#include "libclient/rpc/world.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/client.h"
#include "libclient/cluster.h"

struct rpc_world {
    struct ps_client *client;
    struct ps_tls *tls;      // NULL: none
    struct ps_munge *munge;  // likewise
    bool stream;
};

static void psc_rpc_call(void *ctx, uint32_t task, int method, uint32_t priority, uint64_t deadline,
                         struct ps_slices *request, psc_reply_fn reply, void *arg)
{
    struct rpc_world *w = ctx;
    ps_client_call(w->client, task, method,
                   &(struct ps_call_options){.deadline = deadline, .stream = w->stream, .priority = priority}, request,
                   reply, arg);
}

static void psc_rpc_open(void *ctx, uint32_t task, int method, struct ps_slice request)
{
    struct rpc_world *w = ctx;
    ps_client_open(w->client, task, method, request);
}

static void psc_rpc_cut(void *ctx)
{
    struct rpc_world *w = ctx;
    ps_client_cut(w->client);
}

static uint64_t psc_rpc_now(void *ctx)
{
    (void)ctx;
    return ps_now();
}

static void psc_rpc_after(void *ctx, uint64_t delay_ns, void (*fn)(void *arg), void *arg)
{
    struct rpc_world *w = ctx;
    ps_client_after(w->client, delay_ns, fn, arg);
}

static uint64_t psc_rpc_random(void *ctx)
{
    (void)ctx;
    return ps_random();
}

static void psc_rpc_shutdown(void *ctx)
{
    struct rpc_world *w = ctx;
    ps_client_stop(w->client);
}

static void psc_rpc_free(struct rpc_world *w)
{
    ps_tls_close(w->tls);
    ps_munge_close(w->munge);
    free(w);
}

static void psc_rpc_destroy(void *ctx)
{
    struct rpc_world *w = ctx;
    ps_client_destroy(w->client);
    psc_rpc_free(w);
}

static enum ps_code psc_rpc_start(struct rpc_world *w, const struct psc_cluster *cluster,
                                  const struct psc_world_rpc_options *o, struct ps_error *e)
{
    if (ps_cluster_has_tls(&cluster->is) && ps_tls_open(&cluster->is.tls, o->role, &w->tls, e))
        return ps_error_prefix(e, "TLS");
    if (cluster->is.munge && ps_munge_open(cluster->is.munge_socket, false, &w->munge, e))
        return e->code;
    const struct ps_client_options options = {.attempt_ms = o->attempt_ms,
                                              .tls = w->tls,
                                              .munge = w->munge,
                                              .to = PS_ROLE_PSD,
                                              .control_apart = o->transport == PSC_UNARY};
    w->client = ps_client_create((const char *const *)cluster->is.addresses, cluster->is.n, &options);
    if (w->client)
        return PS_OK;
    return ps_no_thread(e, "connections", errno);
}

enum ps_code psc__world_rpc_create(const struct psc_cluster *cluster, const struct psc_world_rpc_options *o,
                                   struct psc_world *world, struct ps_error *e)
{
    if (o->transport != PSC_STREAM && o->transport != PSC_UNARY)
        return ps_fail(e, PS_INVALID_ARGUMENT, "transport %d: expected PSC_STREAM or PSC_UNARY", (int)o->transport);
    struct rpc_world *w = ps_try_alloc(sizeof *w);
    if (!w)
        return ps_no_memory(e, "the connections");
    if (psc_rpc_start(w, cluster, o, e)) {
        psc_rpc_free(w);
        return e->code;
    }
    w->stream = o->transport == PSC_STREAM;
    *world = (struct psc_world){
        .ctx = w,
        .call = psc_rpc_call,
        .open = psc_rpc_open,
        .cut = psc_rpc_cut,
        .now = psc_rpc_now,
        .after = psc_rpc_after,
        .random = psc_rpc_random,
        .shutdown = psc_rpc_shutdown,
        .destroy = psc_rpc_destroy,
    };
    return PS_OK;
}
