// SPDX-License-Identifier: Apache-2.0
#include "psd/http/http.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "psd/http/ask.h"
#include "psd/http/view.h"

enum { PAGES = 3 };

struct psd_http {
    struct psd_core *core;
    struct ps_http *server;
    struct ps_http_page pages[PAGES];
};

// ---- what the core is asked ---------------------------------------------------------------------------------------

// Of the task and all jobs. Freed with ps_msg_free.
static enum ps_code http_ask_status(struct psd_core *core, Paramserver__V1__StatusReply **status, struct ps_error *e)
{
    const Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__STATUS, &request.base,
                        &paramserver__v1__status_reply__descriptor, (ProtobufCMessage **)status, e);
}

// NULL: a job that is gone by now, or no memory for its members.
static Paramserver__V1__WorkersReply *http_ask_workers(struct psd_core *core, char *job)
{
    Paramserver__V1__WorkersRequest request = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    Paramserver__V1__WorkersReply *reply = NULL;
    struct ps_error e;
    request.job = job;
    if (psd_http_ask(core, PARAMSERVER__V1__METHOD__WORKERS, &request.base, &paramserver__v1__workers_reply__descriptor,
                     (ProtobufCMessage **)&reply, &e))
        return NULL;
    return reply;
}

// ---- pages --------------------------------------------------------------------------------------------------------

static enum ps_code http_make_view(struct psd_core *core, const Paramserver__V1__StatusReply *status, char **text,
                                   struct ps_error *e)
{
    Paramserver__V1__WorkersReply **workers = ps_try_alloc_array(status->n_jobs, sizeof(void *));
    if (!workers)
        return ps_no_memory(e, "a list of workers");
    for (size_t i = 0; status->task == 0 && i < status->n_jobs; i++)
        workers[i] = http_ask_workers(core, status->jobs[i]->name);
    enum ps_code code = psd_view_text(status, workers, text, e);
    for (size_t i = 0; i < status->n_jobs; i++)
        if (workers[i])
            ps_msg_free(&workers[i]->base);
    free(workers);
    return code;
}

static enum ps_code http_make_metrics(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    Paramserver__V1__StatusReply *status;
    if (http_ask_status(h->core, &status, e))
        return e->code;
    enum ps_code code = http_make_view(h->core, status, text, e);
    ps_msg_free(&status->base);
    return code;
}

static enum ps_code http_say_ok(char **text, struct ps_error *e)
{
    *text = ps_try_strdup("ok\n");
    return *text ? PS_OK : ps_no_memory(e, "an answer");
}

// The core answers: whoever held one of its locks for ever would keep this page waiting.
static enum ps_code http_make_health(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    Paramserver__V1__StatusReply *status;
    if (http_ask_status(h->core, &status, e))
        return e->code;
    ps_msg_free(&status->base);
    return http_say_ok(text, e);
}

static enum ps_code http_make_readiness(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    Paramserver__V1__StatusReply *status;
    if (http_ask_status(h->core, &status, e))
        return e->code;
    const bool draining = status->draining;
    const uint32_t task = status->task;
    ps_msg_free(&status->base);
    if (draining)
        return ps_fail(e, PS_FAILED_PRECONDITION, "ps task %" PRIu32 " is being drained: it takes no new jobs", task);
    return http_say_ok(text, e);
}

// ---- start and end ------------------------------------------------------------------------------------------------

enum ps_code psd_http_start(struct psd_core *core, const char *address, bool insecure, struct psd_http **http,
                            struct ps_error *e)
{
    struct psd_http *h = ps_try_alloc(sizeof *h);
    *http = NULL;
    if (!h)
        return ps_no_memory(e, "the HTTP server");
    *h = (struct psd_http){.core = core,
                           .pages = {{"/metrics", PS_METRICS_TYPE, http_make_metrics, h},
                                     {"/healthz", "text/plain; charset=utf-8", http_make_health, h},
                                     {"/readyz", "text/plain; charset=utf-8", http_make_readiness, h}}};
    if (ps_http_start(address, insecure, h->pages, PAGES, &h->server, e)) {
        free(h);
        return ps_error_prefix(e, "--http");
    }
    ps_info("metrics: port %d of %s, /metrics", ps_http_port(h->server), address);
    *http = h;
    return PS_OK;
}

void psd_http_stop(struct psd_http *h)
{
    if (h)
        ps_http_stop(h->server);
    free(h);
}
