// SPDX-License-Identifier: Apache-2.0
//
// What every task does in an agreement: it prepares, commits and forgets, and asks what became of what it has prepared.
#include "psd/control/agree.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "psd/job/table.h"
#include "psd/sync/sync.h"

// ---- words --------------------------------------------------------------------------------------------------------

const struct psd_agree_kind *psd_agree_kind_of(const struct psd_job *job, int kind)
{
    const struct psd_agree_kinds *kinds = &job->agree->kinds;
    return kind >= 0 && (size_t)kind < kinds->n ? kinds->v[kind] : NULL;
}

void psd_agree_describe(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size)
{
    psd_agree_kind_of(job, p->kind)->describe(job, p, text, size);
}

bool psd_agree_pack(const struct psd_job *job, psd_agree_phase phase, const struct psd_proposal *p,
                    struct ps_slices *message)
{
    Paramserver__V1__AgreeRequest m = PARAMSERVER__V1__AGREE_REQUEST__INIT;
    m.job = job->name;
    m.run = atomic_load(&job->run);
    m.number = p->number;
    m.round = p->round;
    m.kind = (Paramserver__V1__AgreeKind)p->kind;
    m.any_round = p->any_round;
    m.value = (ProtobufCBinaryData){p->bytes, (uint8_t *)p->value};
    m.phase = phase;
    ps_msg_pack(&m.base, NULL, message);
    return !message->broken;
}

// ---- one task's part ----------------------------------------------------------------------------------------------

// The greatest and the least round that is decided among this task's partitions (none: 0, UINT64_MAX). No partition
// here needs what was in use before the least.
static void agree_decided_rounds(struct psd_job *job, uint64_t *greatest, uint64_t *least)
{
    *greatest = 0;
    *least = UINT64_MAX;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_round *round = job->partitions[i].round;
        if (!round)
            continue;
        uint64_t decided = psd_round_decided(round);
        *greatest = decided > *greatest ? decided : *greatest;
        *least = decided < *least ? decided : *least;
    }
}

uint64_t psd_agree_decided_round(struct psd_job *job)
{
    uint64_t greatest, least;
    agree_decided_rounds(job, &greatest, &least);
    return greatest;
}

// Job locked. What is prepared is no more: it has been taken, or is forgotten.
static void agree_unprepare(struct psd_job *job, bool taken)
{
    struct psd_agree *a = job->agree;
    const struct psd_agree_kind *kind = psd_agree_kind_of(job, a->prepared.kind);
    a->prepared.number = 0;
    atomic_store(&job->held, 0);
    if (!taken && kind->forget)
        kind->forget(job, &a->prepared);
}

// Job locked. What was prepared up to this number is decided now.
static void agree_decide(struct psd_job *job, uint64_t number, bool taken)
{
    struct psd_agree *a = job->agree;
    if (number > a->decided)
        a->decided = number;
    if (a->prepared.number && a->prepared.number <= a->decided)
        agree_unprepare(job, taken && a->prepared.number == number);
}

// The round is held first and looked at then: what closes it has its lock, and sees the one or is seen by the other.
static struct psd_agree_verdict agree_prepare(struct psd_job *job, const struct psd_proposal *p)
{
    struct psd_agree *a = job->agree;
    const struct psd_agree_kind *kind = psd_agree_kind_of(job, p->kind);
    struct psd_agree_verdict v = {.code = PS_OK};
    uint64_t least;
    pthread_mutex_lock(&job->lock);
    bool fresh = p->number > a->decided && p->number > a->prepared.number;
    if (fresh) {
        agree_decide(job, a->prepared.number, false);  // of an earlier one nothing will be heard any more
        a->prepared = *p;
        a->since = psd_host_now(job->host);
        a->inquired = 0;
        a->logged = false;
        atomic_store(&job->held, kind->between_rounds ? 0 : p->round);
    }
    if (kind->between_rounds && a->prepared.number == p->number)
        v.code = kind->reserve(job, p, 0, &v.missing);
    pthread_mutex_unlock(&job->lock);
    agree_decided_rounds(job, &v.greatest, &least);
    const bool late = !kind->between_rounds && v.greatest >= p->round;
    if (!kind->between_rounds)
        v.code = kind->reserve(job, p, least, &v.missing);
    pthread_mutex_lock(&job->lock);
    v.prepared = a->prepared.number == p->number && !late && v.code == PS_OK;
    pthread_mutex_unlock(&job->lock);
    if (late)
        ps_sometimes(PS_SOMETIMES_PREPARED_LATE);
    return v;
}

static struct psd_agree_verdict agree_commit(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    struct psd_agree *a = job->agree;
    struct psd_agree_verdict v = {.code = PS_OK, .prepared = true};
    const struct psd_agree_kind *kind = psd_agree_kind_of(job, p->kind);
    pthread_mutex_lock(&job->lock);
    const bool two_phases = kind->between_rounds || psd_job_is_sync(job);
    bool prepared = a->prepared.number == p->number, fresh = p->number > a->decided;
    if (fresh && two_phases && !prepared)
        v.code = PS_FAILED_PRECONDITION;
    else if (fresh && !two_phases)
        v.code = kind->reserve(job, p, 0, &v.missing);
    if (fresh && v.code == PS_OK) {
        a->prepared.round = prepared ? p->round : a->prepared.round;
        kind->take(job, prepared ? &a->prepared : p, ready);
        agree_decide(job, p->number, true);
    }
    pthread_mutex_unlock(&job->lock);
    return v;
}

struct psd_agree_verdict psd_agree_take(struct psd_job *job, psd_agree_phase phase, const struct psd_proposal *p,
                                        struct psd_call **ready)
{
    struct psd_agree_verdict v = {.code = PS_OK};
    uint64_t least;
    if (phase == PSD_AGREE_PREPARE)
        v = agree_prepare(job, p);
    else if (phase == PSD_AGREE_COMMIT)
        v = agree_commit(job, p, ready);
    else
        agree_decided_rounds(job, &v.greatest, &least);
    const bool refused = phase == PSD_AGREE_PREPARE && !v.prepared && !psd_agree_kind_of(job, p->kind)->between_rounds;
    if (phase == PSD_AGREE_FORGET || refused) {
        pthread_mutex_lock(&job->lock);
        agree_decide(job, p->number, false);
        pthread_mutex_unlock(&job->lock);
    }
    if (!psd_round_is_held(job, UINT64_MAX))
        psd_sync_advance_all(job, ready);
    return v;
}

// ---- inquiries ----------------------------------------------------------------------------------------------------

// An INQUIRE under way. It holds a reference on the job.
struct agree_inquiry {
    struct psd_job *job;
    uint64_t number;
};

// What the control task has answered: NONE where it has not.
static psd_agree_phase inquiry_read(enum ps_code code, const struct ps_slices *reply, uint64_t *round, uint64_t *newest)
{
    psd_agree_phase phase = PSD_AGREE_NONE;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    if (code == PS_OK && ps_msg_unpack(&paramserver__v1__agree_reply__descriptor, reply, &m, &nothing, NULL) == PS_OK) {
        phase = ((Paramserver__V1__AgreeReply *)m)->decision;
        *newest = ((Paramserver__V1__AgreeReply *)m)->newest;
        *round = ((Paramserver__V1__AgreeReply *)m)->round;
    }
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return phase;
}

// A number that the control task never gave away is forgotten without being counted as decided: its own next ones are
// lower.
static void agree_forget_unknown(struct psd_job *job, uint64_t number, uint64_t newest)
{
    pthread_mutex_lock(&job->lock);
    if (job->agree->prepared.number == number) {
        agree_unprepare(job, false);
        agree_decide(job, number < newest ? number : newest, false);
    }
    pthread_mutex_unlock(&job->lock);
}

static void inquiry_on_reply(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct agree_inquiry *q = arg;
    struct psd_call *ready = NULL;
    uint64_t round = 0, newest = 0;
    psd_agree_phase decision = inquiry_read(code, reply, &round, &newest);
    if (decision == PSD_AGREE_COMMIT) {
        struct psd_proposal p = {.number = q->number};
        pthread_mutex_lock(&q->job->lock);
        if (q->job->agree->prepared.number == q->number)
            p = q->job->agree->prepared;
        pthread_mutex_unlock(&q->job->lock);
        p.round = round;
        if (p.kind)
            psd_agree_take(q->job, PSD_AGREE_COMMIT, &p, &ready);
    } else if (decision == PSD_AGREE_FORGET) {
        agree_forget_unknown(q->job, q->number, newest);
        psd_sync_advance_all(q->job, &ready);
    }
    psd_host_run_ready(q->job->host, ready);
    psd_job_unref(q->job);
    free(q);
}

// Job locked. Is it time to ask what became of what is prepared?
static bool inquiry_is_due(struct psd_agree *a, uint64_t now)
{
    uint64_t due = a->inquired ? a->inquired + PSD_INQUIRE_AGAIN_MS * PS_MS : a->since + PSD_INQUIRE_AFTER_MS * PS_MS;
    return a->lead.tasks == 0 && a->prepared.number && now >= due;
}

// Job locked.
static void agree_log_held(struct psd_job *job, uint64_t now)
{
    struct psd_agree *a = job->agree;
    char what[PSD_AGREE_TEXT_MAX];
    if (!a->prepared.number || a->logged || now < a->since + PSD_HELD_TOO_LONG_MS * PS_MS)
        return;
    a->logged = true;
    psd_agree_describe(job, &a->prepared, what, sizeof what);
    ps_warn("job '%s': rounds from %" PRIu64 " on have waited for %.1f s to hear from ps task 0 whether %s", job->name,
            a->prepared.round, (double)(now - a->since) / (double)PS_SECOND, what);
}

void psd_agree_watch(struct psd_job *job, uint64_t now)
{
    const struct psd_host *host = job->host;
    struct ps_slices message = PS_SLICES_EMPTY;
    struct agree_inquiry *q = NULL;
    pthread_mutex_lock(&job->lock);
    struct psd_agree *a = job->agree;
    agree_log_held(job, now);
    if (inquiry_is_due(a, now) && (q = ps_try_alloc(sizeof *q))) {
        a->inquired = now;
        *q = (struct agree_inquiry){job, a->prepared.number};
        if (!psd_agree_pack(job, PSD_AGREE_INQUIRE, &a->prepared, &message)) {
            ps_slices_clear(&message);
            free(q);
            q = NULL;  // the next tick tries again
            a->inquired = 0;
        }
    }
    pthread_mutex_unlock(&job->lock);
    if (!q)
        return;
    psd_job_ref(job);
    host->send(host->world, 0, PARAMSERVER__V1__METHOD__AGREE, &message, inquiry_on_reply, q);
}
