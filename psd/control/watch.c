// SPDX-License-Identifier: Apache-2.0
//
// A task that is not the control task looks whether that still knows the job. Workers notice within seconds that the
// control task is gone, and end; nobody would tell this task. So where nothing moves for a while, it asks. A job of
// which this task knows that it is done stays so: nobody waits in it, whatever has become of the control task. It asks,
// too, where another user declares a job of this name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/control/state.h"
#include "psd/job/table.h"
#include "psd/job/users.h"

// A Status under way. It holds a reference on the job.
struct watch_question {
    struct psd_job *job;
    uint64_t run;
};

// Is the job, in this run or an earlier one, among those that the control task has listed? *owned: is one of this name
// its user's? That of this run is, whatever name the name service has had for the user there.
static bool watch_is_known(const struct watch_question *q, const struct ps_slices *reply, bool *owned)
{
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    bool known = false;
    *owned = true;
    if (ps_msg_unpack(&paramserver__v1__status_reply__descriptor, reply, &m, &nothing, NULL))
        return true;  // what cannot be read says nothing
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)m;
    *owned = false;
    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, q->job->name) != 0)
            continue;
        known |= status->jobs[i]->run <= q->run;
        *owned |= status->jobs[i]->run == q->run || strcmp(status->jobs[i]->user, q->job->user->name) == 0;
    }
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
    bool owned = true;
    const bool known = code != PS_OK || watch_is_known(q, reply, &owned);
    pthread_mutex_lock(&job->lock);
    job->watch.asking = job->watch.doubted = false;
    if (code == PS_OK) {
        job->watch.answered = job->watch.heard_at = now;
        job->watch.disowned = !owned;
    }
    const uint64_t silent = now - job->watch.answered;
    const bool over = psd_job_is_over(job);
    pthread_mutex_unlock(&job->lock);
    if (!known)
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
        w->since = w->answered = now;
    w->moved = moved;
    if (w->doubted && !w->asking)
        return now;
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
    const uint64_t due = psd_job_is_over(job) && !job->watch.doubted ? UINT64_MAX : watch_due(job, now);
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

enum psd_watch_owner psd_watch_owner(struct psd_job *job)
{
    const uint64_t now = psd_host_now(job->host);
    struct psd_watch *w = &job->watch;
    pthread_mutex_lock(&job->lock);
    const bool fresh = w->heard_at && now < w->heard_at + PSD_WATCH_AGAIN_MS * PS_MS;
    const enum psd_watch_owner owner = !fresh ? PSD_OWNER_UNKNOWN : w->disowned ? PSD_OWNER_IS_GONE : PSD_OWNER_STAYS;
    w->doubted |= !fresh;
    pthread_mutex_unlock(&job->lock);
    psd_job_touch(job);
    return owner;
}

const struct psd_component psd_watch_component = {.name = "watch", .tick = watch_tick};
