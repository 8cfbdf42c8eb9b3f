// SPDX-License-Identifier: Apache-2.0
#include "psd/service/file_thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

struct psd_file_thread {
    struct psd_file_thread_work work;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct psd_waiters calls;
    struct psd_call *next;  // those that are no longer parked, the one that came first first
    struct psd_call seen;   // what may be looked at of the call that is worked on
    bool works;             // there is one
    bool stop, stopped;     // stopped: the thread is gone; of who stops it alone
};

static void file_thread_begin(struct psd_file_thread *s, struct psd_call *call)
{
    s->seen = (struct psd_call){.method = call->method,
                                .deadline = call->deadline,
                                .parked_since = call->parked_since,
                                .worker = call->worker,
                                .job = call->job};
    memcpy(s->seen.client, call->client, sizeof s->seen.client);
    s->next = call->next;
    call->next = NULL;
}

// The next call, after a second at the latest: NULL where there is none.
static struct psd_call *file_thread_next(struct psd_file_thread *s, bool *stop)
{
    pthread_mutex_lock(&s->lock);
    if (!s->next && !s->calls.n && !s->stop)
        ps_cond_wait_until(&s->changed, &s->lock, ps_now() + PS_SECOND);
    if (!s->next)
        psd_ready_all(&s->next, &s->calls);
    struct psd_call *call = s->next;
    s->works = call != NULL;
    if (call)
        file_thread_begin(s, call);
    *stop = s->stop && !call;
    pthread_mutex_unlock(&s->lock);
    return call;
}

static void file_thread_work(struct psd_file_thread *s, struct psd_call *call)
{
    s->work.run_ready(s->work.core, call);
    pthread_mutex_lock(&s->lock);
    s->works = false;
    pthread_mutex_unlock(&s->lock);
}

static void *file_thread_run(void *arg)
{
    struct psd_file_thread *s = arg;
    uint64_t ticked = 0;
    if (s->work.nice)  // Linux: of the thread alone; where it is not granted, it is as the others
        setpriority(PRIO_PROCESS, 0, s->work.nice);
    for (bool stop = false; !stop;) {
        struct psd_call *call = file_thread_next(s, &stop);
        const uint64_t now = psd_now(s->work.core);
        if (call)
            file_thread_work(s, call);
        if (s->work.tick && now - ticked >= PS_SECOND) {
            s->work.tick(s->work.core);
            ticked = now;
        }
    }
    return NULL;
}

enum ps_code psd_file_thread_start(const struct psd_file_thread_work *work, struct psd_file_thread **thread,
                                   struct ps_error *e)
{
    struct psd_file_thread *s = ps_try_alloc(sizeof *s);
    if (!s)
        return ps_no_memory(e, "the thread for files");
    s->work = *work;
    pthread_mutex_init(&s->lock, NULL);
    ps_cond_init(&s->changed);
    const int error = pthread_create(&s->thread, NULL, file_thread_run, s);
    if (error) {
        s->stopped = true;
        psd_file_thread_free(s);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot start the thread for files: %s", strerror(error));
    }
    *thread = s;
    return PS_OK;
}

int psd_file_thread_park(struct psd_request *q, struct psd_file_thread *s)
{
    pthread_mutex_lock(&s->lock);
    const int code = psd_park(q, &s->calls, &s->lock, &(struct psd_wait){.kind = PARAMSERVER__V1__WAIT_KIND__FOR_FILE});
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return code;
}

static void file_thread_look_at(const struct psd_call *call, const struct psd_job *job,
                                void (*look)(const struct psd_call *call, void *arg), void *arg)
{
    for (; call; call = call->next)
        if (call->job == job)
            look(call, arg);
}

void psd_file_thread_look(struct psd_file_thread *s, const struct psd_job *job,
                          void (*look)(const struct psd_call *call, void *arg), void *arg)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    file_thread_look_at(s->works ? &s->seen : NULL, job, look, arg);
    file_thread_look_at(s->next, job, look, arg);
    file_thread_look_at(s->calls.first, job, look, arg);
    pthread_mutex_unlock(&s->lock);
}

void psd_file_thread_stop(struct psd_file_thread *s)
{
    if (!s || s->stopped)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->stopped = true;
}

void psd_file_thread_free(struct psd_file_thread *s)
{
    if (!s)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
