// SPDX-License-Identifier: Apache-2.0
//
// The service Queue: jobs that wait for workers. All of it runs on the thread for files (file_thread.h), which owns the
// queue.
#include "psd/queue/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/control/state.h"
#include "psd/service/file_thread.h"
#include "psd/service/service.h"

void psd_note_queue(struct psd_core *core)
{
    const struct psd_queue_figures f = psd_queue_count(core->queue, psd_wall(core));
    atomic_store(&core->queued_jobs, f.queued);
    atomic_store(&core->running_jobs, f.running);
    atomic_store(&core->failed_jobs, f.failed);
    atomic_store(&core->lately_failed_jobs, f.failed_lately);
    atomic_store(&core->oldest_job_ms, f.oldest_ms);
}

// ---- the other ps tasks -------------------------------------------------------------------------------------------

// A job is declared on all tasks, and one that drains refuses it. Each knows itself whether it does: a task that has
// been started again does not, and one that cannot be reached now is taken at its last word.
static void queue_on_status(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct psd_other_task *other = arg;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    if (code == PS_OK && ps_msg_unpack(&paramserver__v1__status_reply__descriptor, reply, &m, &nothing, NULL) == PS_OK)
        atomic_store(&other->drains, ((const Paramserver__V1__StatusReply *)m)->draining);
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    atomic_store(&other->known, true);
    atomic_store(&other->asked, false);
}

void psd_ask_who_drains(struct psd_core *core)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    request.job = (char *)"-";  // none of this name, so that the answer is short
    for (uint32_t i = 1; core->others && i < core->config.tasks; i++) {
        struct psd_other_task *other = &core->others[i];
        struct ps_slices message = PS_SLICES_EMPTY;
        if (atomic_exchange(&other->asked, true))
            continue;
        ps_msg_pack(&request.base, NULL, &message);
        core->world.send(core->world.ctx, i, PARAMSERVER__V1__METHOD__STATUS, &message, queue_on_status, other);
    }
}

// Jobs of the queue wait while a task drains, or has not been asked yet.
static void queue_hold_while_draining(struct psd_core *core)
{
    char why[PSD_QUEUE_WAITS_MAX] = "";
    for (uint32_t i = core->config.tasks; i--;) {
        const struct psd_other_task *other = &core->others[i];
        if (i ? atomic_load(&other->drains) : atomic_load(&core->refuses_jobs))
            snprintf(why, sizeof why, PSD_DRAINS, i);
        else if (i && !atomic_load(&other->known) && !why[0])
            snprintf(why, sizeof why, "ps task %" PRIu32 " has not said yet whether it takes jobs", i);
    }
    psd_queue_hold(core->queue, why);
}

// ---- what a job has left ------------------------------------------------------------------------------------------

// A job of the queue that has ended keeps its variables until another one begins, which may need their room.
static const char queue_lets_go[] = "it has ended, and the next job of the queue needs its room";

// A worker of the queue's job has been in the job of this name: that is the queue's, unless it is older.
static void queue_note_run(struct psd_request *t, const struct psd_queue_job *of)
{
    struct psd_job *job = psd_job_find(&t->core->table, of->name);
    if (!job)
        return;
    pthread_mutex_lock(&job->lock);
    if (job->control && psd_request_owns(t, job) && job->control->opened >= of->began)
        atomic_store(&job->queued_run, atomic_load(&job->run));
    pthread_mutex_unlock(&job->lock);
    psd_job_unref(job);
}

// Has a worker of the queue's job, which has no backup, been refused the job of this name, as its last run has failed?
static bool queue_was_refused(const struct psd_request *t, const struct psd_queue_job *of)
{
    struct psd_job *job = psd_job_find(&t->core->table, of->name);
    if (!job)
        return false;
    pthread_mutex_lock(&job->lock);
    const bool refused = job->control && job->control->refused;
    pthread_mutex_unlock(&job->lock);
    psd_job_unref(job);
    return refused;
}

// Table lock held.
static bool queue_has_left(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    const bool over = psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    return over && !job->declaring && atomic_load(&job->queued_run) == atomic_load(&job->run);
}

// Of another name than the one that runs, which may go on with what is there.
static void queue_take_leftover(struct psd_core *core, const char *running)
{
    struct psd_job *gone = NULL;
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&core->table.lock);
    struct psd_job *job = core->table.oldest;
    while (job && (strcmp(job->name, running) == 0 || !queue_has_left(job)))
        job = job->newer;
    if (job && (core->leftover.job = ps_try_strdup(job->name))) {
        core->leftover.run = atomic_load(&job->run);
        if (psd_job_has_failed(job))  // else its end is logged now
            ps_info("job '%s' is gone: %s", job->name, queue_lets_go);
        psd_job_take_out(&core->table, job, queue_lets_go, &gone, &ready);
    }
    pthread_mutex_unlock(&core->table.lock);
    psd_drop_job(core, gone);
    psd_host_run_ready(&core->host, ready);
}

// It has let go, or has nothing of that run; else it is asked again.
static void queue_on_let_go(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct psd_other_task *other = arg;
    (void)reply;
    atomic_store(&other->let_go, code == PS_OK || code == PS_NOT_FOUND || code == PS_FAILED_PRECONDITION);
    atomic_store(&other->asked_to, false);
}

static void queue_tell_leftover(struct psd_core *core)
{
    Paramserver__V1__SetMembersRequest request = PARAMSERVER__V1__SET_MEMBERS_REQUEST__INIT;
    request.job = core->leftover.job;
    request.run = core->leftover.run;
    request.failure = (char *)queue_lets_go;
    request.since = 1;  // of no member
    request.forget = true;
    for (uint32_t i = 1; i < core->config.tasks; i++) {
        struct psd_other_task *other = &core->others[i];
        struct ps_slices message = PS_SLICES_EMPTY;
        if (atomic_load(&other->let_go) || atomic_exchange(&other->asked_to, true))
            continue;
        ps_msg_pack(&request.base, NULL, &message);
        core->world.send(core->world.ctx, i, PARAMSERVER__V1__METHOD__SET_MEMBERS, &message, queue_on_let_go, other);
    }
}

static bool queue_all_let_go(const struct psd_core *core)
{
    bool all = true;
    for (uint32_t i = 1; i < core->config.tasks; i++)
        all &= atomic_load(&core->others[i].let_go);
    return all;
}

static void queue_let_go(struct psd_core *core)
{
    const struct psd_queue_job *running = psd_queue_running(core->queue);
    if (core->leftover.job && queue_all_let_go(core)) {
        free(core->leftover.job);
        core->leftover.job = NULL;
    }
    if (!core->leftover.job && running) {
        for (uint32_t i = 1; i < core->config.tasks; i++)
            atomic_store(&core->others[i].let_go, false);
        queue_take_leftover(core, running->name);
    }
    if (core->leftover.job)
        queue_tell_leftover(core);
}

void psd_pass_time_in_queue(struct psd_core *core)
{
    psd_queue_tick(core->queue, psd_now(core), psd_wall(core));
    queue_let_go(core);
    psd_note_queue(core);
}

// ---- the thread for files -----------------------------------------------------------------------------------------

// On the thread for files; where the call is on another one, it is parked for that.
static int queue_enter(struct psd_request *t)
{
    if (t->core->config.task)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "the queue is at ps task 0, this is %" PRIu32,
                       t->core->config.task);
    if (!t->core->file_thread)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "ps task 0 has no folder for a queue: expected it to be started with --queue FOLDER");
    return t->call->parked_since ? PS_OK : psd_file_thread_park(t, t->core->file_thread);
}

static void queue_describe(const struct psd_core *core, const struct psd_queue_job *job,
                           Paramserver__V1__QueuedJob *out)
{
    psd_queue_describe(job, out);
    out->present = psd_queue_present(core->queue, job, psd_now(core));
    out->unwritten = job->unwritten;
}

// ---- of people ----------------------------------------------------------------------------------------------------

int psd_submit(struct psd_request *t)
{
    const Paramserver__V1__SubmitRequest *r = (const Paramserver__V1__SubmitRequest *)t->request;
    Paramserver__V1__SubmitReply out = PARAMSERVER__V1__SUBMIT_REPLY__INIT;
    const int code = queue_enter(t);
    if (code != PS_OK)  // parked: the thread for files may have answered it by now, and freed the request
        return code;
    const struct psd_queue_submission s = {r->job, psd_request_user(t), r->text, r->priority, r->workers};
    if (psd_queue_submit(t->core->queue, &s, psd_wall(t->core), &out.number, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

static int queue_reply_list(struct psd_request *t, struct psd_queue_job **jobs, size_t n)
{
    Paramserver__V1__ListReply out = PARAMSERVER__V1__LIST_REPLY__INIT;
    Paramserver__V1__QueuedJob *v = ps_try_alloc_array(n + 1, sizeof *v);
    out.jobs = ps_try_alloc_array(n + 1, sizeof(void *));
    int code = v && out.jobs ? PS_OK : (int)ps_no_memory(&t->error, "a list of jobs");
    for (size_t i = 0; code == PS_OK && i < n; i++) {
        queue_describe(t->core, jobs[i], &v[i]);
        out.jobs[out.n_jobs++] = &v[i];
    }
    out.generation = t->core->generation;
    out.clock_ms = psd_wall(t->core);
    if (code == PS_OK)
        code = psd_request_reply(t, &out.base, NULL);
    free(out.jobs);
    free(v);
    return code;
}

int psd_list(struct psd_request *t)
{
    const Paramserver__V1__ListRequest *r = (const Paramserver__V1__ListRequest *)t->request;
    int code = queue_enter(t);
    struct psd_queue_job *one;
    size_t n;
    if (code != PS_OK)
        return code;
    if (r->job[0])
        return psd_queue_find(t->core->queue, r->job, &one, &t->error) ? (int)t->error.code
                                                                       : queue_reply_list(t, &one, 1);
    struct psd_queue_job **all = psd_queue_list(t->core->queue, &n);
    code = all ? queue_reply_list(t, all, n) : (int)ps_no_memory(&t->error, "a list of jobs");
    free(all);
    return code;
}

int psd_cancel(struct psd_request *t)
{
    const Paramserver__V1__CancelRequest *r = (const Paramserver__V1__CancelRequest *)t->request;
    Paramserver__V1__CancelReply out = PARAMSERVER__V1__CANCEL_REPLY__INIT;
    struct psd_queue_job *job;
    int code = queue_enter(t);
    if (code != PS_OK)
        return code;
    if (r->forget) {
        if (psd_queue_forget(t->core->queue, r->job, &out.forgotten, &t->error))
            return (int)t->error.code;
        out.generation = t->core->generation;
        return psd_request_reply(t, &out.base, NULL);
    }
    if (psd_queue_cancel(t->core->queue, r->job, psd_wall(t->core), &job, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    out.number = job->number;
    out.state = (Paramserver__V1__QueueState)job->state;
    return psd_request_reply(t, &out.base, NULL);
}

static int queue_reply_log(struct psd_request *t, const struct psd_queue_job *job, uint64_t offset, uint8_t *room)
{
    Paramserver__V1__LogsReply out = PARAMSERVER__V1__LOGS_REPLY__INIT;
    out.offset = offset;
    out.text.data = room;
    if (psd_queue_read(t->core->queue, job, &out.offset, room, PSD_QUEUE_READ_BYTES, &out.text.len, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    out.number = job->number;
    out.state = (Paramserver__V1__QueueState)job->state;
    out.code = job->code;
    return psd_request_reply(t, &out.base, NULL);
}

int psd_logs(struct psd_request *t)
{
    const Paramserver__V1__LogsRequest *r = (const Paramserver__V1__LogsRequest *)t->request;
    struct psd_queue_job *job;
    int code = queue_enter(t);
    if (code != PS_OK)
        return code;
    if (psd_queue_find(t->core->queue, r->job, &job, &t->error))
        return (int)t->error.code;
    uint8_t *room = ps_try_alloc(PSD_QUEUE_READ_BYTES);
    code = room ? queue_reply_log(t, job, r->offset, room) : (int)ps_no_memory(&t->error, "a job's output");
    free(room);
    return code;
}

// ---- of workers ---------------------------------------------------------------------------------------------------

static enum ps_code queue_client(struct psd_request *t, uint32_t rank, const ProtobufCBinaryData *id,
                                 struct psd_queue_client *client)
{
    *client = (struct psd_queue_client){.rank = rank,
                                        .user = psd_request_user(t),
                                        .account = t->call->from ? ps_identity_account(t->call->from) : NULL};
    if (id->len != sizeof client->id)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "the client id has %zu bytes, expected 16", id->len);
    memcpy(client->id, id->data, sizeof client->id);
    return PS_OK;
}

int psd_next(struct psd_request *t)
{
    const Paramserver__V1__NextRequest *r = (const Paramserver__V1__NextRequest *)t->request;
    Paramserver__V1__NextReply out = PARAMSERVER__V1__NEXT_REPLY__INIT;
    struct psd_queue_client from;
    struct psd_queue_job *job;
    char why[PSD_QUEUE_WAITS_MAX] = "";
    int code = queue_enter(t);
    if (code != PS_OK)
        return code;
    queue_hold_while_draining(t->core);
    if (queue_client(t, r->rank, &r->client, &from) ||
        psd_queue_next(t->core->queue, &from, psd_now(t->core), psd_wall(t->core), &job, why, sizeof why, &t->error))
        return (int)t->error.code;
    out.generation = t->core->generation;
    out.waits = why;
    if (job) {
        queue_let_go(t->core);
        out.number = job->number;
        out.job = job->name;
        out.text = job->text;
        out.workers = job->workers;
    }
    return psd_request_reply(t, &out.base, NULL);
}

int psd_report(struct psd_request *t)
{
    const Paramserver__V1__ReportRequest *r = (const Paramserver__V1__ReportRequest *)t->request;
    Paramserver__V1__ReportReply out = PARAMSERVER__V1__REPORT_REPLY__INIT;
    struct psd_queue_client from;
    struct psd_queue_report report = {.number = r->number,
                                      .offset = r->offset,
                                      .output = r->output.data,
                                      .len = r->output.len,
                                      .ended = r->ended,
                                      .waits = r->waits,
                                      .code = r->code};
    int code = queue_enter(t);
    bool stop;
    if (code != PS_OK)
        return code;
    const struct psd_queue_job *running = psd_queue_running(t->core->queue);
    report.refused = r->ended && r->waits && running && queue_was_refused(t, running);
    if (queue_client(t, r->rank, &r->client, &from) ||
        psd_queue_report(t->core->queue, &from, &report, psd_now(t->core), psd_wall(t->core), &stop, &t->error))
        return (int)t->error.code;
    if (running && running->number == r->number && !r->waits)
        queue_note_run(t, running);
    out.generation = t->core->generation;
    out.stop = stop;
    return psd_request_reply(t, &out.base, NULL);
}
