// SPDX-License-Identifier: Apache-2.0
//
// What ps tasks say to each other: SetMembers, Agree. Each decodes, finds the job in the run that is meant, hands the
// message to psd/control, and answers.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/service/service.h"

// The job, if it is here and in the run that is meant: what is said of an earlier run must not reach this one.
static enum ps_code peer_find_job(struct psd_request *t, const char *method, const char *name, uint64_t run)
{
    t->job = psd_job_find(&t->core->table, name);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "%s: ps task %" PRIu32 " has no job '%.128s'", method,
                       t->core->config.task, name);
    if (run != atomic_load(&t->job->run))
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "%s: job '%s' is in another run here than %" PRIu64, method,
                       t->job->name, run);
    return PS_OK;
}

static enum ps_code peer_refuse_at_control(struct psd_request *t, const char *method)
{
    if (t->core->config.task != 0)
        return PS_OK;
    return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                   "%s: this is the control task, which says it to the other ps tasks", method);
}

// ---- SetMembers ---------------------------------------------------------------------------------------------------

// The members in a message: all, each rank once, or those that have changed.
static enum ps_code set_members_read(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                                     struct psd_view_delta *d)
{
    const uint32_t workers = t->job->workers;
    bool *seen = ps_try_alloc_array(workers, sizeof *seen);
    enum ps_code code = PS_OK;
    if (r->n_members > workers || (r->since == 0 && r->n_members != workers))
        code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: %zu of %" PRIu32 " members are named",
                       r->n_members, workers);
    else if (!psd_view_delta_init(d, r->n_members) || !seen)
        code = ps_no_memory(&t->error, "a view of the members");
    d->since = r->since;
    d->epoch = r->epoch;
    for (size_t i = 0; i < r->n_members && code == PS_OK; i++) {
        const Paramserver__V1__Member *m = r->members[i];
        if (m->rank >= workers) {
            code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: rank %" PRIu32 " of %" PRIu32 " workers",
                           m->rank, workers);
        } else if (seen[m->rank]) {
            code = ps_fail(&t->error, PS_INVALID_ARGUMENT, "set members: rank %" PRIu32 " is named twice", m->rank);
        } else {
            seen[m->rank] = true;
            d->v[i] = (struct psd_view_entry){m->rank, m->state, m->excluded, m->incarnation, 0, 0};
        }
    }
    free(seen);
    return code;
}

// In the run that is meant, unless another one is about to go on with it.
static void set_members_forget(struct psd_request *t, const char *why)
{
    struct psd_table *table = &t->core->table;
    pthread_mutex_lock(&table->lock);
    if (psd_job_lookup(table, t->job->name) == t->job && !t->job->declaring)
        psd_job_take_out(table, t->job, why, &t->gone, &t->ready);
    pthread_mutex_unlock(&table->lock);
    psd_drop_gone(t);
}

static enum ps_code set_members_take(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r,
                                     struct psd_view_delta *d)
{
    if (!r->failure[0])
        return psd_view_take(t->job, r->run, t->job->workers, d, &t->ready, &t->error);
    if (r->forget) {
        set_members_forget(t, r->failure);
        return PS_OK;
    }
    psd_job_end(t->job, r->run, r->failure, r->interrupted);
    psd_job_collect(t->job, &t->ready);
    return PS_OK;
}

// The control task has never had that run declared, and it has ended: what was declared for it here goes, but for
// values of an earlier run that it has gone on with. Those that it was to replace go, too: the control task has let its
// own go. A declaration of it that comes late is refused; one that is under way is waited for.
static int set_members_end_undeclared(struct psd_request *t, const Paramserver__V1__SetMembersRequest *r)
{
    struct psd_table *table = &t->core->table;
    Paramserver__V1__SetMembersReply out = PARAMSERVER__V1__SET_MEMBERS_REPLY__INIT;
    pthread_mutex_lock(&table->lock);
    psd_runs_remember(&table->runs, r->job, r->run);
    struct psd_job *job = psd_job_lookup(table, r->job);
    const bool here = job && atomic_load(&job->run) == r->run;
    const bool replaced = job && r->forget && atomic_load(&job->run) < r->run;
    if ((here || replaced) && job->declaring) {
        ps_fail(&t->error, PS_UNAVAILABLE, "set members: job '%s' is being declared", job->name);
    } else if (here || replaced) {
        psd_job_ref(job);
        t->gone = job;
        psd_job_end(job, r->run, r->failure, r->interrupted);
        psd_job_collect(job, &t->ready);
        if (replaced || !job->resumed)
            psd_job_remove(table, job, replaced ? "it was replaced" : r->failure, &t->ready);
    }
    pthread_mutex_unlock(&table->lock);
    psd_drop_gone(t);
    if (t->error.code)
        return (int)t->error.code;
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

// What counts here of those who were named.
static void set_members_reply(struct psd_request *t, const struct psd_view_delta *d, uint64_t *counted,
                              uint64_t *in_all)
{
    Paramserver__V1__SetMembersReply out = PARAMSERVER__V1__SET_MEMBERS_REPLY__INIT;
    for (size_t i = 0; i < d->n; i++) {
        counted[i] = d->v[i].counted;
        in_all[i] = d->v[i].counted_in_all;
    }
    out.generation = t->core->generation;
    out.n_counted = out.n_counted_in_all = d->n;
    out.counted = counted;
    out.counted_in_all = in_all;
    out.open_round = d->open;
    psd_request_reply(t, &out.base, NULL);
}

enum { COUNTED_BYTES = 2 * 10 };  // of a reply, for one worker

int psd_set_members(struct psd_request *t)
{
    const Paramserver__V1__SetMembersRequest *r = (const Paramserver__V1__SetMembersRequest *)t->request;
    struct psd_view_delta d = {0};
    if (peer_refuse_at_control(t, "set members"))
        return (int)t->error.code;
    if (r->undeclared && r->failure[0])
        return set_members_end_undeclared(t, r);
    if (peer_find_job(t, "set members", r->job, r->run) || set_members_read(t, r, &d) ||
        psd_request_reserve(t, PSD_REPLY_BYTES + d.n * COUNTED_BYTES)) {
        psd_view_delta_free(&d);
        return (int)t->error.code;
    }
    uint64_t *counted = ps_try_alloc_array(2 * d.n + 1, sizeof *counted);
    if (!counted)
        ps_no_memory(&t->error, "what counts here");
    else if (set_members_take(t, r, &d) == PS_OK)
        set_members_reply(t, &d, counted, counted + d.n);
    free(counted);
    psd_view_delta_free(&d);
    return (int)t->error.code;
}

// ---- Agree --------------------------------------------------------------------------------------------------------

static enum ps_code agree_check(struct psd_request *t, const Paramserver__V1__AgreeRequest *r, struct psd_proposal *p)
{
    struct ps_error *e = &t->error;
    const struct psd_agree_kind *kind = psd_agree_kind_of(t->job, (int)r->kind);
    const bool sync = psd_job_is_sync(t->job);
    if (r->phase < PSD_AGREE_PREPARE || r->phase > PSD_AGREE_INQUIRE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "agree: phase %d is none of PREPARE, COMMIT, FORGET, INQUIRE",
                       (int)r->phase);
    if (r->number == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "agree: proposals are counted from 1");
    if (!kind)
        return ps_fail(e, PS_INVALID_ARGUMENT, "agree: kind %d is not known here", (int)r->kind);
    if (r->value.len > sizeof p->value)
        return ps_fail(e, PS_INVALID_ARGUMENT, "agree: a value of %zu bytes; expected at most %zu", r->value.len,
                       sizeof p->value);
    if (!kind->between_rounds && (sync ? r->round == 0 : r->round != 0 || r->phase != PSD_AGREE_COMMIT))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       sync ? "agree: a change of a sync job names its round, from 1"
                            : "agree: a job without rounds takes COMMIT alone, for round 0");
    *p = (struct psd_proposal){
        .number = r->number, .round = r->round, .any_round = r->any_round, .kind = (int)r->kind, .bytes = r->value.len};
    if (r->value.len)
        memcpy(p->value, r->value.data, r->value.len);
    return kind->check(t->job, p, e) ? ps_error_prefix(e, "agree") : PS_OK;
}

// The control task says what was decided.
static int agree_answer_inquiry(struct psd_request *t, const struct psd_proposal *p)
{
    Paramserver__V1__AgreeReply out = PARAMSERVER__V1__AGREE_REPLY__INIT;
    pthread_mutex_lock(&t->job->lock);
    out.decision = psd_agree_decision(t->job, p->number, &out.round, &out.newest);
    pthread_mutex_unlock(&t->job->lock);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

int psd_agree(struct psd_request *t)
{
    const Paramserver__V1__AgreeRequest *r = (const Paramserver__V1__AgreeRequest *)t->request;
    Paramserver__V1__AgreeReply out = PARAMSERVER__V1__AGREE_REPLY__INIT;
    struct psd_proposal p;
    if (peer_find_job(t, "agree", r->job, r->run) || agree_check(t, r, &p))
        return (int)t->error.code;
    if (r->phase == PSD_AGREE_INQUIRE && t->core->config.task != 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "agree: what was decided is known at ps task 0");
    if (r->phase == PSD_AGREE_INQUIRE)
        return agree_answer_inquiry(t, &p);
    if (peer_refuse_at_control(t, "agree"))
        return (int)t->error.code;
    if (psd_job_has_failed(t->job))
        return psd_request_fail_ended(t);
    struct psd_agree_verdict v = psd_agree_take(t->job, r->phase, &p, &t->ready);
    if (v.code == PS_FAILED_PRECONDITION)
        return ps_fail(&t->error, v.code, "agree: proposal %" PRIu64 " is not prepared here", r->number);
    if (v.code == PS_UNAVAILABLE)
        return ps_fail(&t->error, v.code, "agree: a round is under way");
    if (v.code && !v.missing)
        return ps_fail(&t->error, v.code, "agree: too many changes wait for their rounds already");
    out.generation = t->core->generation;
    out.prepared = v.prepared;
    out.missing = v.missing;
    out.round = v.greatest;
    return psd_request_reply(t, &out.base, NULL);
}
