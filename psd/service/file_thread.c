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
    bool stop, stopped;  // stopped: the thread is gone; of who stops it alone
};

// Returns the calls that are there, after a second at the latest.
static struct psd_call *file_thread_wait(struct psd_file_thread *s, bool *stop)
{
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&s->lock);
    if (!s->calls.n && !s->stop)
        ps_cond_wait_until(&s->changed, &s->lock, ps_now() + PS_SECOND);
    psd_ready_all(&ready, &s->calls);
    *stop = s->stop;
    pthread_mutex_unlock(&s->lock);
    return ready;
}

static void *file_thread_run(void *arg)
{
    struct psd_file_thread *s = arg;
    uint64_t ticked = 0;
    if (s->work.nice)  // Linux: of the thread alone; where it is not granted, it is as the others
        setpriority(PRIO_PROCESS, 0, s->work.nice);
    for (bool stop = false; !stop;) {
        struct psd_call *ready = file_thread_wait(s, &stop);
        const uint64_t now = psd_now(s->work.core);
        s->work.run_ready(s->work.core, ready);
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
    const int code = psd_park(q, &s->calls, &s->lock, &(struct psd_wait){.kind = 0});
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return code;
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
