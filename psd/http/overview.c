// SPDX-License-Identifier: Apache-2.0
#include "psd/http/overview.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/wire/members.h"
#include "common/wire/wire.h"
#include "psd/http/ask.h"

enum ps_code psd_overview_status(struct psd_core *core, Paramserver__V1__StatusReply **status, struct ps_error *e)
{
    const Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__STATUS, &request.base,
                        &paramserver__v1__status_reply__descriptor, (ProtobufCMessage **)status, e);
}

static enum ps_code overview_page_of_workers(void *core, const Paramserver__V1__WorkersRequest *request,
                                             Paramserver__V1__WorkersReply **reply, struct ps_error *e)
{
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__WORKERS, &request->base,
                        &paramserver__v1__workers_reply__descriptor, (ProtobufCMessage **)reply, e);
}

// NULL: a job that is gone by now, or no memory for its members.
static Paramserver__V1__WorkersReply *overview_ask_workers(struct psd_core *core, char *job)
{
    Paramserver__V1__WorkersReply *reply;
    struct ps_error e;
    return ps_members_ask(job, overview_page_of_workers, core, &reply, &e) ? NULL : reply;
}

enum ps_code psd_overview_take(struct psd_core *core, struct ps_overview *overview, struct ps_error *e)
{
    *overview = (struct ps_overview){0};
    if (psd_overview_status(core, &overview->status, e))
        return e->code;
    Paramserver__V1__StatusReply *status = overview->status;
    overview->workers = ps_try_alloc_array(status->n_jobs, sizeof(void *));
    if (!overview->workers) {
        ps_msg_free(&status->base);
        return ps_no_memory(e, "a list of workers");
    }
    for (size_t i = 0; status->task == 0 && i < status->n_jobs; i++)
        overview->workers[i] = overview_ask_workers(core, status->jobs[i]->name);
    return PS_OK;
}

enum ps_code psd_overview_take_waits(struct psd_core *core, struct ps_overview *overview, struct ps_error *e)
{
    const Paramserver__V1__WaitsRequest request = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__WAITS, &request.base, &paramserver__v1__waits_reply__descriptor,
                        (ProtobufCMessage **)&overview->waits, e);
}

void psd_overview_free(struct ps_overview *overview)
{
    for (size_t i = 0; i < overview->status->n_jobs; i++)
        if (overview->workers[i])
            ps_msg_free(&overview->workers[i]->base);
    if (overview->waits)
        ps_msg_free(&overview->waits->base);
    free(overview->workers);
    ps_msg_free(&overview->status->base);
}
