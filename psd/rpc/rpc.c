// SPDX-License-Identifier: Apache-2.0
#include "psd/rpc/rpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "psd/rpc/health.h"
#include "psd/rpc/reflection.h"

struct psd_rpc {
    struct psd_world world;
    struct ps_tls *tls;      // NULL: none
    struct ps_munge *munge;  // likewise
    struct ps_client *peers;
    struct ps_server *server;  // NULL: not started
    struct psd_core *core;
    struct psd_health health;
    struct psd_reflection *reflection;  // NULL: not started
    struct ps_service_method standard[4];
};

// ---- calls in -----------------------------------------------------------------------------------------------------

// The handler's part of a server's call.
struct inbound {
    struct psd_call call;
    struct ps_call *from;
};

static void inbound_reply(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct inbound *in = (struct inbound *)call;
    ps_call_reply(in->from, code, text, body);
}

static void inbound_let_go(struct psd_call *call)
{
    ps_call_let_go(((struct inbound *)call)->from);
}

static void rpc_on_call(void *ctx, struct ps_call *from)
{
    struct psd_rpc *r = ctx;
    struct inbound *in = from->user;
    in->from = from;
    in->call.method = from->method;
    in->call.deadline = from->deadline;
    in->call.from = from->from;
    in->call.reply = inbound_reply;
    in->call.let_go = inbound_let_go;
    in->call.session = (struct psd_session **)from->stream;
    ps_slices_move(&in->call.request, &from->request);
    psd_core_call(r->core, &in->call);
}

static void rpc_on_cancel(void *ctx, struct ps_call *from)
{
    struct psd_rpc *r = ctx;
    struct inbound *in = from->user;
    psd_core_cancel(r->core, &in->call);
}

static void rpc_on_stream_ended(void *ctx, void *session)
{
    (void)ctx;
    psd_session_close(session);
}

// ---- the core's world ---------------------------------------------------------------------------------------------

static const uint64_t send_timeout = 5 * PS_SECOND;

struct outbound {
    void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply);
    void *arg;
    uint32_t task;
};

static void rpc_on_reply(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct outbound *out = arg;
    if (code)
        ps_debug("ps:%u: %s: %s", out->task, ps_code_name(code), text);
    out->done(out->arg, code, reply);
    free(out);
}

static void rpc_world_send(void *ctx, uint32_t task, int method, struct ps_slices *request,
                           void (*done)(void *arg, enum ps_code code, const struct ps_slices *reply), void *arg)
{
    struct psd_rpc *r = ctx;
    struct outbound *out = ps_alloc(sizeof *out);
    *out = (struct outbound){done, arg, task};
    ps_client_call(r->peers, task, method, &(struct ps_call_options){.deadline = ps_now() + send_timeout}, request,
                   rpc_on_reply, out);
}

static uint64_t rpc_world_now(void *ctx)
{
    (void)ctx;
    return ps_now();
}

static uint64_t rpc_world_random(void *ctx)
{
    (void)ctx;
    return ps_random();
}

static uint64_t rpc_world_resident(void *ctx)
{
    unsigned long pages = 0;
    (void)ctx;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%*s %lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t rpc_world_wall(void *ctx)
{
    struct timespec t;
    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t rpc_world_queued(void *ctx)
{
    const struct psd_rpc *r = ctx;
    return r->server ? ps_server_queued(r->server) : 0;
}

static uint64_t rpc_world_certificate_until(void *ctx)
{
    const struct psd_rpc *r = ctx;
    return r->tls ? (uint64_t)ps_tls_until(r->tls) : 0;
}

// ---- start and end ------------------------------------------------------------------------------------------------

struct psd_rpc *psd_rpc_create(const char *const *peers, size_t n, struct ps_tls *tls, struct ps_munge *munge,
                               struct ps_error *e)
{
    const struct ps_client_options options = {.tls = tls, .munge = munge, .to = PS_ROLE_PSD};
    struct ps_client *client = ps_client_create(peers, n, &options);
    if (!client) {
        ps_no_thread(e, "connections", errno);
        return NULL;
    }
    struct psd_rpc *r = ps_alloc(sizeof *r);
    r->tls = tls;
    r->munge = munge;
    r->peers = client;
    psd_health_init(&r->health);
    r->world = (struct psd_world){
        .ctx = r,
        .now = rpc_world_now,
        .random = rpc_world_random,
        .resident = rpc_world_resident,
        .wall = rpc_world_wall,
        .queued = rpc_world_queued,
        .certificate_until = rpc_world_certificate_until,
        .send = rpc_world_send,
    };
    return r;
}

const struct psd_world *psd_rpc_world(struct psd_rpc *r)
{
    return &r->world;
}

// The services that every gRPC server has.
static enum ps_code rpc_prepare_standard(struct psd_rpc *r, struct ps_error *e)
{
    const struct ps_service_method methods[] = {
        {"/grpc.health.v1.Health/Check", PS_SERVICE_UNARY, psd_health_check, &r->health},
        {"/grpc.health.v1.Health/Watch", PS_SERVICE_WATCH, psd_health_watch, &r->health},
        {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", PS_SERVICE_EACH, psd_reflection_answer, NULL},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", PS_SERVICE_EACH, psd_reflection_answer,
         NULL},
    };
    enum ps_code code = psd_reflection_create(&r->reflection, e);
    if (code)
        return code;
    memcpy(r->standard, methods, sizeof methods);
    r->standard[2].ctx = r->standard[3].ctx = r->reflection;
    return PS_OK;
}

enum ps_code psd_rpc_start(struct psd_rpc *r, struct psd_core *core, const struct psd_rpc_listen *listen,
                           struct ps_error *e)
{
    const struct ps_server_options options = {
        .tls = r->tls,
        .munge = r->munge,
        .known_as = listen->known_as,
        .insecure = listen->insecure,
        .threads = listen->threads,
        .bytes = listen->bytes,
        .call_bytes = sizeof(struct inbound),
        .call = rpc_on_call,
        .cancel = rpc_on_cancel,
        .stream_ended = rpc_on_stream_ended,
        .ctx = r,
        .methods = r->standard,
        .n_methods = sizeof r->standard / sizeof *r->standard,
    };
    if (rpc_prepare_standard(r, e))
        return e->code;
    r->core = core;
    return ps_server_start(listen->addresses, listen->n, &options, &r->server, e);
}

int psd_rpc_port(const struct psd_rpc *r, size_t i)
{
    return ps_server_port(r->server, i);
}

void psd_rpc_drain(struct psd_rpc *r)
{
    psd_health_stop(&r->health);
    ps_server_changed(r->server);
    ps_server_drain(r->server);
}

bool psd_rpc_stop(struct psd_rpc *r, uint64_t grace_ns)
{
    enum ps_stop stop = r->server ? ps_server_stop(r->server, grace_ns) : PS_STOP_DONE;
    if (stop != PS_STOP_DONE)
        ps_warn("some calls were cut: their answers could not be sent in time");
    ps_client_stop(r->peers);
    return stop != PS_STOP_STUCK;
}

void psd_rpc_destroy(struct psd_rpc *r)
{
    if (r->server)
        ps_server_destroy(r->server);
    psd_reflection_destroy(r->reflection);
    ps_client_destroy(r->peers);
    free(r);
}
