// SPDX-License-Identifier: Apache-2.0
//
// What the control task does in an agreement: it proposes, asks all tasks phase by phase, and says what was decided.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/job/table.h"

// ---- phases: the job is locked ------------------------------------------------------------------------------------

static const char *lead_name(const struct psd_job *job)
{
    return psd_agree_kind_of(job, job->agree->lead.p.kind)->name;
}

static void lead_begin_phase(const struct psd_host *host, struct psd_agree_lead *x, psd_agree_phase phase)
{
    x->phase = phase;
    x->begun = psd_host_now(host);
    x->silent_at = x->begun + PSD_AGREE_SILENT_MS * PS_MS;
    x->n_answered = 0;
    for (uint32_t i = 0; i < x->tasks; i++)
        x->answers[i] = PSD_TO_ASK;
}

static void lead_begin_try(struct psd_job *job, uint64_t round)
{
    struct psd_agree_lead *x = &job->agree->lead;
    x->p.number++;
    x->p.round = round;
    x->too_late = false;
    const bool two_phases = psd_agree_kind_of(job, x->p.kind)->between_rounds || psd_job_is_sync(job);
    lead_begin_phase(job->host, x, two_phases ? PSD_AGREE_PREPARE : PSD_AGREE_COMMIT);
}

static void lead_report(struct psd_agree_lead *x, struct psd_call **ready)
{
    x->decided = true;
    psd_ready_all(ready, &x->waiting);
}

static void lead_give_up(const struct psd_host *host, struct psd_agree_lead *x, struct psd_call **ready)
{
    lead_begin_phase(host, x, PSD_AGREE_FORGET);
    lead_report(x, ready);
}

// Is the change in force at some tasks, and will it be at all?
static bool lead_goes_on(const struct psd_agree_lead *x)
{
    return x->phase == PSD_AGREE_COMMIT || (x->begun_before && (x->phase == PSD_AGREE_PREPARE || x->too_late));
}

static uint32_t lead_first_silent(const struct psd_agree_lead *x)
{
    uint32_t task = 0;
    while (task < x->tasks && x->answers[task] == PSD_ANSWERED)
        task++;
    return task;
}

static void lead_note_answer(struct psd_agree_lead *x, uint32_t task)
{
    x->n_answered += x->answers[task] != PSD_ANSWERED;
    x->answers[task] = PSD_ANSWERED;
}

// A task has no memory for the change.
static void lead_fail_room(struct psd_job *job, uint32_t task, uint64_t missing)
{
    struct psd_agree_lead *x = &job->agree->lead;
    ps_fail(&x->error, PS_RESOURCE_EXHAUSTED,
            "%s: ps task %" PRIu32 " lacks %" PRIu64 " bytes for %s; nothing has changed", lead_name(job), task,
            missing, psd_agree_kind_of(job, x->p.kind)->room_for);
}

// A task has answered in this phase.
static void lead_take_verdict(struct psd_job *job, uint32_t task, const struct psd_agree_verdict *v,
                              struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    char what[PSD_AGREE_TEXT_MAX];
    lead_note_answer(x, task);
    x->greatest = v->greatest > x->greatest ? v->greatest : x->greatest;
    if (x->phase != PSD_AGREE_PREPARE || v->prepared)
        return;
    if (v->missing) {
        lead_fail_room(job, task, v->missing);
        lead_give_up(job->host, x, ready);
        return;
    }
    if (v->code == PS_OK && !x->asked) {
        x->too_late = true;
        lead_begin_phase(job->host, x, PSD_AGREE_FORGET);
        return;
    }
    if (v->code == PS_OK) {
        ps_fail(&x->error, PS_OUT_OF_RANGE,
                "%s: round %" PRIu64 " is closed on ps task %" PRIu32 ", which has closed %" PRIu64
                ": name a later one, or none",
                lead_name(job), x->asked, task, v->greatest);
    } else {
        psd_agree_describe(job, &x->p, what, sizeof what);
        ps_fail(&x->error, v->code, "%s: ps task %" PRIu32 " does not agree that %s: %s", lead_name(job), task, what,
                v->code == PS_RESOURCE_EXHAUSTED ? "too many changes wait for their rounds there"
                                                 : ps_code_name(v->code));
    }
    lead_give_up(job->host, x, ready);
}

// Goes from a phase that is over to the next one. False: it is not over, or nothing follows.
static bool lead_end_phase(struct psd_job *job, struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    char what[PSD_AGREE_TEXT_MAX];
    if (x->phase == PSD_AGREE_NONE || x->n_answered < x->tasks)
        return false;
    if (x->phase == PSD_AGREE_PREPARE) {
        if (x->p.round && x->greatest >= x->p.round)
            x->p.round = x->greatest + 1;  // of what is between two: it is prepared where rounds have closed since
        lead_begin_phase(job->host, x, PSD_AGREE_COMMIT);
        return true;
    }
    if (x->phase == PSD_AGREE_FORGET && x->too_late) {
        x->ahead = x->ahead < PSD_AGREE_AHEAD_MAX ? 2 * x->ahead : x->ahead;
        lead_begin_try(job, x->greatest + x->ahead);
        return true;
    }
    const bool committed = x->phase == PSD_AGREE_COMMIT;
    const struct psd_proposal p = x->p;
    const struct psd_agree_kind *kind = psd_agree_kind_of(job, p.kind);
    if (committed) {
        psd_agree_describe(job, &x->p, what, sizeof what);
        if (x->p.round)
            ps_info("job '%s': %s, from round %" PRIu64 " on", job->name, what, x->p.round);
        else
            ps_info("job '%s': %s from now on", job->name, what);
    }
    lead_begin_phase(job->host, x, PSD_AGREE_NONE);
    lead_report(x, ready);
    if (committed && kind->done)
        kind->done(job, &p, ready);
    return false;
}

// A task has been silent for long: a proposal that is not begun everywhere is given up, one that goes on keeps nobody
// waiting.
static void lead_check_time(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    char what[PSD_AGREE_TEXT_MAX];
    const bool goes_on = lead_goes_on(x);
    double seconds = (double)(now - x->begun) / (double)PS_SECOND;
    if (x->phase == PSD_AGREE_NONE || x->decided || now < x->silent_at || x->n_answered == x->tasks)
        return;
    psd_agree_describe(job, &x->p, what, sizeof what);
    if (goes_on)
        ps_fail(&x->error, PS_UNAVAILABLE,
                "%s: %s, and ps task %" PRIu32 " has not heard of it for %.1f s; it will when it answers",
                lead_name(job), what, lead_first_silent(x), seconds);
    else
        ps_fail(&x->error, PS_UNAVAILABLE, "%s: ps task %" PRIu32 " has not answered for %.1f s; nothing has changed",
                lead_name(job), lead_first_silent(x), seconds);
    x->too_late = x->too_late && goes_on;  // else there is no other try
    if (x->phase == PSD_AGREE_PREPARE && !goes_on)
        lead_give_up(job->host, x, ready);
    else
        lead_report(x, ready);
}

psd_agree_phase psd_agree_decision(const struct psd_job *job, uint64_t number, uint64_t *round, uint64_t *newest)
{
    const struct psd_agree_lead *x = &job->agree->lead;
    *newest = x->p.number;
    *round = x->p.round;
    if (number != x->p.number || (x->phase != PSD_AGREE_PREPARE && x->phase != PSD_AGREE_COMMIT))
        return PSD_AGREE_FORGET;
    return x->phase;
}

// ---- messages -----------------------------------------------------------------------------------------------------

// An Agree under way. It holds a reference on the job.
struct lead_message {
    struct psd_job *job;
    uint32_t task;
    psd_agree_phase phase;
    uint64_t number;
};

static struct psd_agree_verdict lead_read_reply(psd_agree_phase phase, enum ps_code code, const struct ps_slices *reply)
{
    struct psd_agree_verdict v = {.code = code};
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    if (code == PS_OK)
        v.code = ps_msg_unpack(&paramserver__v1__agree_reply__descriptor, reply, &m, &nothing, NULL);
    if (v.code == PS_OK) {
        v.prepared = phase == PSD_AGREE_PREPARE && ((Paramserver__V1__AgreeReply *)m)->prepared;
        v.greatest = ((Paramserver__V1__AgreeReply *)m)->round;
        v.missing = phase == PSD_AGREE_PREPARE ? ((Paramserver__V1__AgreeReply *)m)->missing : 0;
        v.code = v.missing ? PS_RESOURCE_EXHAUSTED : PS_OK;
    }
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return v;
}

// Has the task been heard? A task that may not have been, cannot know yet or has no memory is asked again at the next
// tick.
static bool lead_is_answer(psd_agree_phase phase, const struct psd_agree_verdict *v)
{
    return v->code == PS_OK || v->missing ||
           (phase == PSD_AGREE_PREPARE && v->code != PS_UNAVAILABLE && v->code != PS_DEADLINE_EXCEEDED &&
            v->code != PS_CANCELLED && v->code != PS_UNKNOWN && v->code != PS_RESOURCE_EXHAUSTED);
}

static void lead_on_reply(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct lead_message *a = arg;
    struct psd_agree_lead *x = &a->job->agree->lead;
    struct psd_call *ready = NULL;
    struct psd_agree_verdict v = lead_read_reply(a->phase, code, reply);
    pthread_mutex_lock(&a->job->lock);
    bool current = x->phase == a->phase && x->p.number == a->number && x->answers[a->task] == PSD_ASKED;
    if (current && lead_is_answer(a->phase, &v))
        lead_take_verdict(a->job, a->task, &v, &ready);
    else if (current)
        x->answers[a->task] = PSD_TO_ASK;
    pthread_mutex_unlock(&a->job->lock);
    if (current && lead_is_answer(a->phase, &v))
        psd_agree_go_on(a->job, &ready);
    psd_host_run_ready(a->job->host, ready);
    psd_job_unref(a->job);
    free(a);
}

// Job locked. The next task but this one that is to be asked, with what; NULL: none, or there is no memory for it: the
// next tick tries again.
static struct lead_message *lead_next_message(struct psd_job *job, struct ps_slices *message)
{
    struct psd_agree_lead *x = &job->agree->lead;
    uint32_t task = 1;
    while (task < x->tasks && x->answers[task] != PSD_TO_ASK)
        task++;
    struct lead_message *a = x->phase != PSD_AGREE_NONE && task < x->tasks ? ps_try_alloc(sizeof *a) : NULL;
    if (!a)
        return NULL;
    *a = (struct lead_message){job, task, x->phase, x->p.number};
    if (!psd_agree_pack(job, x->phase, &x->p, message)) {
        ps_slices_clear(message);
        free(a);
        return NULL;
    }
    x->answers[task] = PSD_ASKED;
    return a;
}

static void lead_ask_others(struct psd_job *job)
{
    struct lead_message *a;
    do {
        struct ps_slices message = PS_SLICES_EMPTY;
        pthread_mutex_lock(&job->lock);
        a = lead_next_message(job, &message);
        pthread_mutex_unlock(&job->lock);
        if (!a)
            return;
        psd_job_ref(job);
        job->host->send(job->host->world, a->task, PARAMSERVER__V1__METHOD__AGREE, &message, lead_on_reply, a);
    } while (true);
}

// The control task's own part in the phase.
static void lead_ask_self(struct psd_job *job, struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    pthread_mutex_lock(&job->lock);
    const psd_agree_phase phase = x->phase;
    const struct psd_proposal p = x->p;
    bool now = phase != PSD_AGREE_NONE && x->answers[0] == PSD_TO_ASK;
    if (now)
        x->answers[0] = PSD_ASKED;
    pthread_mutex_unlock(&job->lock);
    if (!now)
        return;
    struct psd_agree_verdict v = psd_agree_take(job, phase, &p, ready);
    pthread_mutex_lock(&job->lock);
    const bool current = x->phase == phase && x->p.number == p.number;
    if (current && v.code == PS_UNAVAILABLE)
        x->answers[0] = PSD_ASK_LATER;
    else if (current)
        lead_take_verdict(job, 0, &v, ready);
    pthread_mutex_unlock(&job->lock);
}

void psd_agree_go_on(struct psd_job *job, struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    bool next;
    do {
        lead_ask_self(job, ready);
        lead_ask_others(job);
        pthread_mutex_lock(&job->lock);
        next = lead_end_phase(job, ready) || (x->phase != PSD_AGREE_NONE && x->answers[0] == PSD_TO_ASK);
        pthread_mutex_unlock(&job->lock);
    } while (next);
}

// ---- proposals ----------------------------------------------------------------------------------------------------

// Is this the proposal that is being made, or was made last?
static bool lead_is_same(const struct psd_agree_lead *x, const struct psd_proposal *p, uint64_t asked)
{
    return x->p.number && x->p.kind == p->kind && x->asked == asked && x->p.bytes == p->bytes &&
           memcmp(x->p.value, p->value, p->bytes) == 0;
}

static int lead_fail_busy(const struct psd_job *job, const char *name, struct ps_error *e)
{
    const struct psd_agree_lead *x = &job->agree->lead;
    char what[PSD_AGREE_TEXT_MAX];
    psd_agree_describe(job, &x->p, what, sizeof what);
    return ps_fail(e, PS_ABORTED,
                   "%s: one change at a time: ps task %" PRIu32 " must hear first %s %s; nothing has changed", name,
                   lead_first_silent(x), x->phase == PSD_AGREE_FORGET ? "that it is given up that" : "that", what);
}

static int lead_outcome(struct psd_agree_lead *x, uint64_t *round, struct ps_error *e)
{
    *round = x->p.round;
    if (x->error.code)
        *e = x->error;
    return (int)x->error.code;
}

// Who asks for a change that goes on, and has been told that a task is silent, waits for that once more.
static void lead_wait_again(const struct psd_host *host, struct psd_agree_lead *x)
{
    x->decided = false;
    x->error = (struct ps_error){PS_OK, ""};
    x->silent_at = psd_host_now(host) + PSD_AGREE_SILENT_MS * PS_MS;
}

int psd_agree_propose(struct psd_job *job, const struct psd_proposal *p, uint64_t asked, uint64_t greatest,
                      bool was_parked, uint64_t *round, struct ps_error *e)
{
    struct psd_agree_lead *x = &job->agree->lead;
    const char *name = psd_agree_kind_of(job, p->kind)->name;
    const bool same = lead_is_same(x, p, asked);
    if (was_parked && same && x->decided)
        return lead_outcome(x, round, e);
    if (same && x->decided && lead_goes_on(x))
        lead_wait_again(job->host, x);
    if (x->phase != PSD_AGREE_NONE && same && !x->decided)
        return PSD_WAITS;
    if (was_parked)
        return ps_fail(e, PS_UNAVAILABLE, "%s: another change has come since; ask again", name);
    if (x->phase != PSD_AGREE_NONE)
        return lead_fail_busy(job, name, e);
    if (asked && asked <= greatest)
        return ps_fail(e, PS_OUT_OF_RANGE,
                       "%s: round %" PRIu64 " is closed already, the last one is %" PRIu64
                       ": name a later one, or none",
                       name, asked, greatest);
    const uint64_t number = x->p.number;
    x->p = *p;
    x->p.number = number;
    x->p.any_round = asked == 0;
    x->error = (struct ps_error){PS_OK, ""};
    x->decided = false;
    x->asked = asked;
    x->ahead = PSD_AGREE_AHEAD;
    x->greatest = greatest;
    x->begun_before = false;
    const bool between = psd_agree_kind_of(job, p->kind)->between_rounds;
    lead_begin_try(job, asked || between ? asked : psd_job_is_sync(job) ? greatest + PSD_AGREE_AHEAD : 0);
    return PSD_WAITS;
}

// On the tasks that have it, a change that was for any round, or for one that was reached, holds from this run's first
// on.
void psd_agree_lead_again(struct psd_job *job, struct psd_call **ready)
{
    struct psd_agree_lead *x = &job->agree->lead;
    const bool begun = lead_goes_on(x);
    x->phase = PSD_AGREE_NONE;
    x->decided = false;
    psd_ready_all(ready, &x->waiting);
    if (!begun || psd_agree_kind_of(job, x->p.kind)->between_rounds)
        return;
    if (x->p.any_round || x->p.round <= job->resumed_round) {
        x->p.any_round = true;
        x->p.round = 1;
    }
    x->error = (struct ps_error){PS_OK, ""};
    x->asked = x->greatest = 0;
    x->ahead = PSD_AGREE_AHEAD;
    x->begun_before = true;
    lead_begin_try(job, psd_job_is_sync(job) ? x->p.round : 0);
}

// ---- time, and whom calls wait for --------------------------------------------------------------------------------

void psd_agree_press_on(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    bool under_way = psd_agree_is_busy(job);
    if (under_way && job->agree->lead.answers[0] == PSD_ASK_LATER)
        job->agree->lead.answers[0] = PSD_TO_ASK;
    if (under_way)
        lead_check_time(job, now, ready);
    pthread_mutex_unlock(&job->lock);
    if (under_way)
        psd_agree_go_on(job, ready);
}

void psd_agree_walk(struct psd_job *job, const struct psd_look *look)
{
    char change[PSD_AGREE_TEXT_MAX], what[PSD_WAIT_TEXT_MAX], whom[PSD_WAIT_TEXT_MAX] = "";
    if (!atomic_load(&job->declared))
        return;
    pthread_mutex_lock(&job->lock);
    struct psd_agree_lead *x = &job->agree->lead;
    bool wanted = x->waiting.n && look->look(&x->waiting, look->arg);
    if (wanted) {
        uint32_t silent = lead_first_silent(x);
        psd_agree_describe(job, &x->p, change, sizeof change);
        snprintf(what, sizeof what, "all ps tasks to agree that %s", change);
        if (x->phase != PSD_AGREE_NONE && silent < x->tasks)
            snprintf(whom, sizeof whom, "ps task %" PRIu32, silent);
    }
    pthread_mutex_unlock(&job->lock);
    if (wanted)
        psd_look_report(look, job, what, whom);
}
