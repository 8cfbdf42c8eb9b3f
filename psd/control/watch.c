// SPDX-License-Identifier: Apache-2.0
//
// A task that is not the control task looks whether that still knows the job. Workers notice within seconds that the
// control task is gone, and end; nobody would tell this task. So where nothing moves for a while, it asks. A job of
// which this task knows that it is done stays so: nobody waits in it, whatever has become of the control task.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/control/state.h"
#include "psd/job/table.h"

// A Status under way. It holds a reference on the job.
struct watch_question {
    struct psd_job *job;
    uint64_t run;
};

// Is the job, in this run or an earlier one, among those that the control task has listed?
static bool watch_is_known(const struct watch_question *q, const struct ps_slices *reply)
{
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    bool known = false;
    if (ps_msg_unpack(&paramserver__v1__status_reply__descriptor, reply, &m, &nothing, NULL))
        return true;  // what cannot be read says nothing
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)m;
    for (size_t i = 0; i < status->n_jobs; i++)
        known |= strcmp(status->jobs[i]->name, q->job->name) == 0 && status->jobs[i]->run <= q->run;
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return known;
}

static void watch_on_reply(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct watch_question *q = arg;
    struct psd_job *job = q->job;
    struct psd_call *ready = NULL;
    char why[128] = "";
    const uint64_t now = psd_host_now(job->host);
    pthread_mutex_lock(&job->lock);
    job->watch.asking = false;
    if (code == PS_OK)
        job->watch.answered = now;
    const uint64_t silent = now - job->watch.answered;
    const bool over = psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    if (code == PS_OK && !watch_is_known(q, reply))
        snprintf(why, sizeof why, "ps task 0, the control task, does not know it any more");
    else if (code != PS_OK && silent >= PSD_WATCH_SILENT_MS * PS_MS)
        snprintf(why, sizeof why, "ps task 0, the control task, has not answered for %.0f s", (double)silent / 1e9);
    if (why[0] && !over && psd_job_fail(job, q->run, why))
        psd_job_collect(job, &ready);
    psd_host_run_ready(job->host, ready);
    psd_job_unref(job);
    free(q);
}

// Job locked. When it asks, if nothing moves until then; UINT64_MAX: it has asked.
static uint64_t watch_due(struct psd_job *job, uint64_t now)
{
    struct psd_watch *w = &job->watch;
    const uint64_t moved = atomic_load(&job->bytes_moved);
    if (w->moved != moved || !w->since)
        *w = (struct psd_watch){.moved = moved, .since = now, .answered = now, .asking = w->asking, .asked = w->asked};
    const uint64_t idle = w->since + PSD_WATCH_IDLE_MS * PS_MS, again = w->asked + PSD_WATCH_AGAIN_MS * PS_MS;
    return w->asking ? UINT64_MAX : idle > again ? idle : again;
}

static uint64_t watch_tick(struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    struct ps_slices message = PS_SLICES_EMPTY;
    (void)ready;
    if (job->host->task == 0 || !atomic_load(&job->declared))
        return UINT64_MAX;
    pthread_mutex_lock(&job->lock);
    const uint64_t due = psd_job_is_over(job) ? UINT64_MAX : watch_due(job, now);
    struct watch_question *q = due <= now ? ps_try_alloc(sizeof *q) : NULL;
    if (q) {
        *q = (struct watch_question){job, atomic_load(&job->run)};
        job->watch.asking = true;
        job->watch.asked = now;
    }
    pthread_mutex_unlock(&job->lock);
    if (!q)
        return due;
    request.job = job->name;
    ps_msg_pack(&request.base, NULL, &message);
    psd_job_ref(job);
    job->host->send(job->host->world, 0, PARAMSERVER__V1__METHOD__STATUS, &message, watch_on_reply, q);
    return UINT64_MAX;
}

const struct psd_component psd_watch_component = {.name = "watch", .tick = watch_tick};
