// SPDX-License-Identifier: Apache-2.0
#include "psd/service/session.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

struct psd_session {
    Paramserver__V1__Caller caller;  // points to what follows
    uint8_t client[16];
    struct psd_job *job;  // kept (psd/job/job.h), which does not keep its variables; NULL: not known
    char name[];          // of the job
};

static void session_forget_job(struct psd_session *s)
{
    if (s->job)
        psd_job_forget(s->job);
    s->job = NULL;
}

// Stands where one should be for which there was no memory.
static struct psd_session session_lost;

void psd_session_close(struct psd_session *s)
{
    if (!s || s == &session_lost)
        return;
    session_forget_job(s);
    free(s);
}

void psd_session_lose(struct psd_session **at)
{
    psd_session_close(*at);
    *at = &session_lost;
}

bool psd_session_is_lost(const struct psd_session *s)
{
    return s == &session_lost;
}

bool psd_session_is_meant(const Paramserver__V1__Caller *c)
{
    return !c->protocol && !c->job[0] && !c->client.len;
}

void psd_session_complete(const struct psd_session *s, struct psd_call *call, Paramserver__V1__Caller *caller)
{
    uint64_t sequence = caller->sequence, oldest = caller->oldest;
    *caller = s->caller;
    memcpy(call->client, s->client, sizeof call->client);
    caller->client.data = call->client;
    caller->sequence = sequence;
    caller->oldest = oldest;
}

struct psd_job *psd_session_job(struct psd_session *s)
{
    if (!s->job)
        return NULL;
    if (atomic_load(&s->job->place) != PS_NO_ITEM && psd_job_try_ref(s->job))
        return s->job;
    session_forget_job(s);
    return NULL;
}

void psd_session_set_job(struct psd_session *s, struct psd_job *job)
{
    session_forget_job(s);
    psd_job_keep(job);
    s->job = job;
}

// NULL: no memory.
static struct psd_session *session_new(const Paramserver__V1__Caller *caller)
{
    size_t len = strlen(caller->job);
    struct psd_session *s = ps_try_alloc(sizeof *s + len + 1);
    if (!s)
        return NULL;
    s->caller = *caller;
    s->caller.job = memcpy(s->name, caller->job, len);
    s->caller.client.data = memcpy(s->client, caller->client.data, sizeof s->client);
    return s;
}

// Whether such a caller is obeyed is told to each of its requests.
int psd_open(struct psd_request *t)
{
    Paramserver__V1__OpenReply out = PARAMSERVER__V1__OPEN_REPLY__INIT;
    struct psd_session **at = t->call->session;
    const Paramserver__V1__Caller *caller = ((const Paramserver__V1__OpenRequest *)t->request)->caller;
    if (!at)
        return (int)ps_fail(&t->error, PS_FAILED_PRECONDITION, "a stream has a session, a unary call has none");
    if (!caller || !caller->job[0] || strlen(caller->job) > 128 || caller->client.len != 16)
        return (int)ps_fail(&t->error, PS_INVALID_ARGUMENT,
                            "expected a caller with a job of 1 to 128 bytes and a client id of 16");
    struct psd_session *s = session_new(caller);
    if (!s)
        return (int)ps_no_memory(&t->error, "a session");
    psd_session_close(*at);
    *at = s;
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}
