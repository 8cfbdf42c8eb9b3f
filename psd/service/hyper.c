// SPDX-License-Identifier: Apache-2.0
//
// SetHyper: a hyperparameter of the job's rule is changed by hand, on all tasks in one round (psd/control/agree.h).
#include "psd/job/hyper.h"

#include <inttypes.h>
#include <string.h>

#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/service/service.h"

static enum ps_code set_hyper_find_job(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "this is ps task %" PRIu32 ", hyperparameters are changed at task 0",
                       t->core->config.task);
    if (!t->job)  // it has not waited
        t->job = psd_job_find(&t->core->table, r->job);
    if (!t->job)
        return ps_fail(e, PS_NOT_FOUND, "there is no job '%.128s'", r->job);
    if (psd_request_check_owner(t, t->job))
        return e->code;
    if (!atomic_load(&t->job->declared) || !psd_control_declared(t->job))
        return ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' is not declared yet", t->job->name);
    if (r->round && !psd_job_is_sync(t->job))
        return ps_fail(e, PS_INVALID_ARGUMENT, "job '%s' is not sync: it has no rounds", t->job->name);
    return PS_OK;
}

// The value, beside all others that are in force or to come.
static enum ps_code set_hyper_check(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r)
{
    struct psd_job *job = t->job;
    double hyper[PS_RULE_MAX_HYPERS];
    pthread_rwlock_rdlock(&job->snapshot_lock);
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        hyper[i] = psd_hyper_of_job(job, i, UINT64_MAX);
    pthread_rwlock_unlock(&job->snapshot_lock);
    if (ps_rule_set(job->rule, hyper, r->name, r->value, &t->error) == PS_OK)
        ps_rule_check_parts(job->rule, hyper, &t->error);
    if (t->error.code == PS_OK && job->rule->hyper[psd_hyper_find(job->rule, r->name)].fixed)
        ps_fail(&t->error, PS_INVALID_ARGUMENT, "%s of rule %s cannot be changed: the variables' slots are made by it",
                r->name, job->rule->name);
    return t->error.code;
}

// Job locked. The round that uses the change, when all tasks have it.
static int set_hyper_propose(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r, uint64_t greatest,
                             uint64_t *round)
{
    struct psd_proposal p = {.kind = PARAMSERVER__V1__AGREE_KIND__HYPER, .bytes = sizeof r->value + strlen(r->name)};
    bool was_parked = t->call->parked_since != 0;
    if (psd_job_has_failed(t->job))
        return psd_request_fail_ended(t);
    memcpy(p.value, &r->value, sizeof r->value);
    memcpy(p.value + sizeof r->value, r->name, strlen(r->name));  // a name of the rule: it fits
    int code = psd_agree_propose(t->job, &p, r->round, greatest, was_parked, round, &t->error);
    const struct psd_wait wait = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_CHANGE};
    return code == PSD_WAITS ? psd_park(t, &t->job->agree->lead.waiting, &t->job->lock, &wait) : code;
}

int psd_set_hyper(struct psd_request *t)
{
    const Paramserver__V1__SetHyperRequest *r = (const Paramserver__V1__SetHyperRequest *)t->request;
    Paramserver__V1__SetHyperReply out = PARAMSERVER__V1__SET_HYPER_REPLY__INIT;
    if (set_hyper_find_job(t, r) || (t->call->parked_since == 0 && set_hyper_check(t, r)))
        return (int)t->error.code;
    uint64_t greatest = psd_agree_decided_round(t->job);
    pthread_mutex_lock(&t->job->lock);
    int code = set_hyper_propose(t, r, greatest, &out.round);
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        psd_agree_go_on(t->job, &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}
