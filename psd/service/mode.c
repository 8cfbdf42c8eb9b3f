// SPDX-License-Identifier: Apache-2.0
//
// SetMode: how a job is trained from its next epoch on (psd/control/mode.c). What needs room on all tasks waits for
// them.
#include <inttypes.h>

#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/service/service.h"

static enum ps_code set_mode_find_job(struct psd_request *t, const Paramserver__V1__SetModeRequest *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "this is ps task %" PRIu32 ", a job's mode is changed at task 0",
                       t->core->config.task);
    if (!t->job)  // it has not waited
        t->job = psd_job_find(&t->core->table, r->job);
    if (!t->job)
        return ps_fail(e, PS_NOT_FOUND, "there is no job '%.128s'", r->job);
    if (!atomic_load(&t->job->declared) || !psd_control_declared(t->job))
        return ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is not declared yet", t->job->name);
    return PS_OK;
}

int psd_set_mode(struct psd_request *t)
{
    const Paramserver__V1__SetModeRequest *r = (const Paramserver__V1__SetModeRequest *)t->request;
    Paramserver__V1__SetModeReply out = PARAMSERVER__V1__SET_MODE_REPLY__INIT;
    if (set_mode_find_job(t, r))
        return (int)t->error.code;
    const bool was_parked = t->call->parked_since != 0;
    pthread_mutex_lock(&t->job->lock);
    int code = psd_job_has_failed(t->job) ? psd_request_fail_ended(t)
                                          : psd_mode_set(t->job, r, was_parked, &out, &t->ready, &t->error);
    if (code == PSD_WAITS)
        code = psd_park(t, &t->job->agree->lead.waiting, &t->job->lock,
                        &(struct psd_wait){.kind = PARAMSERVER__V1__WAIT_KIND__FOR_CHANGE});
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_agree_go_on(t->job, &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}
