// SPDX-License-Identifier: Apache-2.0
#include "psd/http/http.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/http/json.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/wire/wire.h"
#include "psd/http/files.h"
#include "psd/http/history.h"
#include "psd/http/overview.h"
#include "psd/http/sampler.h"
#include "psd/http/status.h"
#include "psd/http/view.h"

enum { PAGES = 9 };

struct psd_http {
    struct psd_core *core;
    struct psd_history *history;
    struct psd_sampler *sampler;
    struct ps_http *server;
    struct ps_http_page pages[PAGES];
};

// ---- pages --------------------------------------------------------------------------------------------------------

static enum ps_code http_make_metrics(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    struct ps_overview overview;
    if (psd_overview_take(h->core, &overview, e))
        return e->code;
    enum ps_code code = psd_view_text(overview.status, overview.workers, text, e);
    psd_overview_free(&overview);
    return code;
}

static enum ps_code http_make_status(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    struct ps_overview overview;
    if (psd_overview_take(h->core, &overview, e))
        return e->code;
    enum ps_code code = psd_overview_take_waits(h->core, &overview, e);
    if (code == PS_OK)
        code = psd_status_text(&overview, text, e);
    psd_overview_free(&overview);
    return code;
}

static enum ps_code http_make_history(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    return psd_history_text(h->history, text, e);
}

// The core answers: whoever held one of its locks for ever would keep this page waiting.
static enum ps_code http_make_health(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    Paramserver__V1__StatusReply *status;
    if (psd_overview_status(h->core, &status, e))
        return e->code;
    ps_msg_free(&status->base);
    return ps_http_make_ok(NULL, text, e);
}

static enum ps_code http_make_readiness(void *ctx, char **text, struct ps_error *e)
{
    struct psd_http *h = ctx;
    Paramserver__V1__StatusReply *status;
    if (psd_overview_status(h->core, &status, e))
        return e->code;
    const bool draining = status->draining;
    const uint32_t task = status->task;
    ps_msg_free(&status->base);
    if (draining)
        return ps_fail(e, PS_FAILED_PRECONDITION, PSD_DRAINS, task);
    return ps_http_make_ok(NULL, text, e);
}

// ---- start and end ------------------------------------------------------------------------------------------------

// The table of what is served.
static void http_set_pages(struct psd_http *h)
{
    const struct ps_http_page pages[PAGES] = {
        {"/metrics", PS_METRICS_TYPE, http_make_metrics, h},
        {"/healthz", PS_HTTP_PLAIN, http_make_health, h},
        {"/readyz", PS_HTTP_PLAIN, http_make_readiness, h},
        {"/status.json", PS_JSON_TYPE, http_make_status, h},
        {"/history.json", PS_JSON_TYPE, http_make_history, h},
        {"/", "text/html; charset=utf-8", psd_file_make, (void *)&psd_file_html},
        {"/page.css", "text/css; charset=utf-8", psd_file_make, (void *)&psd_file_css},
        {"/page.js", "text/javascript; charset=utf-8", psd_file_make, (void *)&psd_file_js},
        {"/icon.svg", "image/svg+xml", psd_file_make, (void *)&psd_file_icon},
    };
    memcpy(h->pages, pages, sizeof pages);
}

static enum ps_code http_start_parts(struct psd_http *h, const char *address, bool insecure, struct ps_error *e)
{
    h->history = psd_history_create();
    if (!h->history)
        return ps_no_memory(e, "the history of the status page");
    if (psd_sampler_start(h->core, h->history, &h->sampler, e))
        return e->code;
    return ps_http_open(address, insecure, h->pages, PAGES, "/metrics; the status page is /", &h->server, e);
}

enum ps_code psd_http_start(struct psd_core *core, const char *address, bool insecure, struct psd_http **http,
                            struct ps_error *e)
{
    struct psd_http *h = ps_try_alloc(sizeof *h);
    *http = NULL;
    if (!h)
        return ps_no_memory(e, "the HTTP server");
    h->core = core;
    http_set_pages(h);
    enum ps_code code = http_start_parts(h, address, insecure, e);
    if (code == PS_OK)
        *http = h;
    else
        psd_http_stop(h);
    return code;
}

void psd_http_stop(struct psd_http *h)
{
    if (!h)
        return;
    ps_http_stop(h->server);
    psd_sampler_stop(h->sampler);
    psd_history_destroy(h->history);
    free(h);
}

int psd_http_port(const struct psd_http *h)
{
    return ps_http_port(h->server);
}
