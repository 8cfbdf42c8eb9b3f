// SPDX-License-Identifier: Apache-2.0
#include "psd/http/sampler.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

struct psd_sampler {
    struct psd_core *core;
    struct psd_history *history;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool is_over;  // guarded by lock
};

// False: it is over.
static bool sampler_wait(struct psd_sampler *s)
{
    const uint64_t until = ps_now() + PSD_HISTORY_SECONDS * PS_SECOND;
    pthread_mutex_lock(&s->lock);
    while (!s->is_over && ps_cond_wait_until(&s->ends, &s->lock, until))
        continue;
    const bool over = s->is_over;
    pthread_mutex_unlock(&s->lock);
    return !over;
}

// An overview for which there is no memory is left out.
static void *sampler_run(void *arg)
{
    struct psd_sampler *s = arg;
    struct ps_overview overview;
    struct ps_error e;
    do {
        if (psd_overview_take(s->core, &overview, &e))
            continue;
        psd_history_add(s->history, &overview);
        psd_overview_free(&overview);
    } while (sampler_wait(s));
    return NULL;
}

// Signals are the process's other threads'.
static int sampler_start_thread(struct psd_sampler *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, sampler_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void sampler_init(struct psd_sampler *s)
{
    ps_cond_init(&s->ends);
    pthread_mutex_init(&s->lock, NULL);
}

static void sampler_free(struct psd_sampler *s)
{
    pthread_cond_destroy(&s->ends);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

enum ps_code psd_sampler_start(struct psd_core *core, struct psd_history *history, struct psd_sampler **sampler,
                               struct ps_error *e)
{
    struct psd_sampler *s = ps_try_alloc(sizeof *s);
    *sampler = NULL;
    if (!s)
        return ps_no_memory(e, "the history of the status page");
    *s = (struct psd_sampler){.core = core, .history = history};
    sampler_init(s);
    if (sampler_start_thread(s)) {
        sampler_free(s);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "there is no thread for the history of the status page");
    }
    *sampler = s;
    return PS_OK;
}

void psd_sampler_stop(struct psd_sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_over = true;
    pthread_cond_signal(&s->ends);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    sampler_free(s);
}
