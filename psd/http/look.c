// SPDX-License-Identifier: Apache-2.0
#include "psd/http/look.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/wire/wire.h"
#include "psd/http/ask.h"

enum ps_code psd_look_status(struct psd_core *core, Paramserver__V1__StatusReply **status, struct ps_error *e)
{
    const Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__STATUS, &request.base,
                        &paramserver__v1__status_reply__descriptor, (ProtobufCMessage **)status, e);
}

// NULL: a job that is gone by now, or no memory for its members.
static Paramserver__V1__WorkersReply *look_ask_workers(struct psd_core *core, char *job)
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

enum ps_code psd_look_take(struct psd_core *core, struct psd_look *look, struct ps_error *e)
{
    *look = (struct psd_look){0};
    if (psd_look_status(core, &look->status, e))
        return e->code;
    Paramserver__V1__StatusReply *status = look->status;
    look->workers = ps_try_alloc_array(status->n_jobs, sizeof(void *));
    if (!look->workers) {
        ps_msg_free(&status->base);
        return ps_no_memory(e, "a list of workers");
    }
    for (size_t i = 0; status->task == 0 && i < status->n_jobs; i++)
        look->workers[i] = look_ask_workers(core, status->jobs[i]->name);
    return PS_OK;
}

enum ps_code psd_look_take_waits(struct psd_core *core, struct psd_look *look, struct ps_error *e)
{
    const Paramserver__V1__WaitsRequest request = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    return psd_http_ask(core, PARAMSERVER__V1__METHOD__WAITS, &request.base, &paramserver__v1__waits_reply__descriptor,
                        (ProtobufCMessage **)&look->waits, e);
}

void psd_look_free(struct psd_look *look)
{
    for (size_t i = 0; i < look->status->n_jobs; i++)
        if (look->workers[i])
            ps_msg_free(&look->workers[i]->base);
    if (look->waits)
        ps_msg_free(&look->waits->base);
    free(look->workers);
    ps_msg_free(&look->status->base);
}
