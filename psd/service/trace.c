// SPDX-License-Identifier: Apache-2.0
//
// Trace: the calls that have waited, out of the traces of all jobs (psd/job/trace.h). Here their text is made.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/utf8.h"
#include "psd/service/service.h"

enum { PAST_OVERHEAD = 64, PAST_REPLY_ROOM = PS_CHUNK_MAX - 1024 };

struct past {
    Paramserver__V1__PastWait out;
    uint8_t client[16];
    char what[PSD_WAIT_TEXT_MAX];
};

// A page of the list of all.
struct past_list {
    struct psd_past_wait *ring;  // [PSD_TRACE_WAITS] one job's
    struct past *v;
    size_t n, cap;
    size_t skip, total;
    size_t bytes;  // that those of v take in the reply, at most
    uint64_t now;
    bool broken;  // memory was lacking
};

static void past_name(const struct psd_job *job, const struct psd_wait *wait, char what[PSD_WAIT_TEXT_MAX])
{
    static const char *const fixed[] = {[PARAMSERVER__V1__WAIT_KIND__FOR_RANK] = "its rank",
                                        [PARAMSERVER__V1__WAIT_KIND__FOR_DECLARATION] = "the job to be declared",
                                        [PARAMSERVER__V1__WAIT_KIND__FOR_CHANGE] = "all ps tasks to agree on a change",
                                        [PARAMSERVER__V1__WAIT_KIND__FOR_FILE] = "a file on the ps task's disk"};
    const uint64_t number = wait->number;
    if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_ROUND)
        snprintf(what, PSD_WAIT_TEXT_MAX, "round %" PRIu64 " of '%.180s'", number, job->variables[wait->variable].name);
    else if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_NORM)
        snprintf(what, PSD_WAIT_TEXT_MAX, "the norm of round %" PRIu64, number);
    else if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_BARRIER)
        snprintf(what, PSD_WAIT_TEXT_MAX, "barrier '%s'", wait->name);
    else if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_REDUCTION)
        snprintf(what, PSD_WAIT_TEXT_MAX, "reduction '%s'", wait->name);
    else if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_SHARE)
        snprintf(what, PSD_WAIT_TEXT_MAX, "the rest of epoch %" PRIu64, number);
    else if (wait->kind == PARAMSERVER__V1__WAIT_KIND__FOR_CLOCK)
        snprintf(what, PSD_WAIT_TEXT_MAX, "clock %" PRIu64, number);
    else
        snprintf(what, PSD_WAIT_TEXT_MAX, "%s", fixed[wait->kind] ? fixed[wait->kind] : "");
    ps_utf8_repair(what);
}

static void past_fill(struct past *p, struct psd_job *job, const struct psd_past_wait *from, uint64_t now)
{
    Paramserver__V1__PastWait *out = &p->out;
    paramserver__v1__past_wait__init(out);
    out->job = job->name;
    out->method = (Paramserver__V1__Method)from->method;
    out->worker = from->worker;
    memcpy(p->client, from->client, sizeof p->client);
    out->kind = (Paramserver__V1__WaitKind)from->wait.kind;
    past_name(job, &from->wait, p->what);
    out->whom = from->whom;
    out->end = (Paramserver__V1__WaitEnd)from->end;
    out->waited_us = (from->until - from->since) / 1000;
    out->ended_us = now > from->until ? (now - from->until) / 1000 : 0;
}

static void past_list_add(struct past_list *h, struct psd_job *job, const struct psd_past_wait *from)
{
    const bool wanted = h->total++ >= h->skip && h->bytes < PAST_REPLY_ROOM && !h->broken;
    struct past *v = wanted ? ps_try_reserve(h->v, h->n + 1, &h->cap, sizeof *v) : NULL;
    h->broken |= wanted && !v;
    if (!v)
        return;
    h->v = v;
    past_fill(&v[h->n], job, from, h->now);
    h->bytes += PAST_OVERHEAD + strlen(job->name) + strlen(v[h->n].what);
    h->n++;
}

static void past_list_add_job(struct past_list *h, struct psd_job *job)
{
    const size_t n = atomic_load(&job->declared) ? psd_trace_copy(job, h->ring) : 0;
    for (size_t i = 0; i < n; i++)
        past_list_add(h, job, &h->ring[i]);
}

static int past_list_reply(struct psd_request *t, const struct past_list *h)
{
    Paramserver__V1__TraceReply out = PARAMSERVER__V1__TRACE_REPLY__INIT;
    out.waits = ps_try_alloc_array(h->n, sizeof(void *));
    if (!out.waits)
        return ps_no_memory(&t->error, "a list of waits");
    for (size_t i = 0; i < h->n; i++) {
        struct past *p = &h->v[i];
        p->out.client = (ProtobufCBinaryData){sizeof p->client, p->client};
        p->out.what = p->what;
        out.waits[i] = &p->out;
    }
    out.generation = t->core->generation;
    out.n_waits = h->n;
    out.total = (uint32_t)h->total;
    const int code = psd_request_reply(t, &out.base, NULL);
    free(out.waits);
    return code;
}

int psd_trace(struct psd_request *t)
{
    const Paramserver__V1__TraceRequest *r = (const Paramserver__V1__TraceRequest *)t->request;
    struct past_list h = {.skip = r->skip, .now = psd_now(t->core)};
    struct psd_jobs jobs;
    int code = (int)psd_jobs_hold(&t->core->table, r->job, &jobs, &t->error);
    if (code != PS_OK)
        return code;
    h.ring = ps_try_alloc_array(PSD_TRACE_WAITS, sizeof *h.ring);
    for (size_t i = 0; h.ring && i < jobs.n; i++)
        past_list_add_job(&h, jobs.v[i]);
    code = !h.ring || h.broken ? (int)ps_no_memory(&t->error, "a list of waits") : past_list_reply(t, &h);
    psd_jobs_release(&jobs);
    free(h.ring);
    free(h.v);
    return code;
}
