// SPDX-License-Identifier: Apache-2.0
#include "common/base/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/thread.h"

// What is added to the niceness of the threads.
enum { NICER = 5 };

struct ps_workers {
    pthread_mutex_t lock;
    pthread_cond_t came;  // work, or they are to stop
    pthread_cond_t done;  // some loop
    struct ps_work *first, **end;
    bool stopping;
    unsigned n;
    pthread_t threads[];
};

static void *workers_thread(void *arg)
{
    struct ps_workers *w = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, 0) + NICER);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct ps_work *work = w->first;
        if (work) {
            w->first = work->next;
            w->end = w->first ? w->end : &w->first;
            pthread_mutex_unlock(&w->lock);
            work->run(work);
            pthread_mutex_lock(&w->lock);
        } else if (w->stopping) {
            break;
        } else {
            pthread_cond_wait(&w->came, &w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct ps_workers *ps_workers_create(unsigned n)
{
    n = n ? n : ps_thread_processors();
    struct ps_workers *w = ps_try_alloc(sizeof *w + n * sizeof w->threads[0]);
    if (!w)
        return NULL;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    pthread_cond_init(&w->done, NULL);
    sigset_t before;
    ps_thread_block_signals(&before);
    while (w->n < n && pthread_create(&w->threads[w->n], NULL, workers_thread, w) == 0)
        w->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (w->n)
        return w;
    ps_workers_free(w);
    return NULL;
}

void ps_workers_stop(struct ps_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->came);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->n; i++)
        pthread_join(w->threads[i], NULL);
}

void ps_workers_free(struct ps_workers *w)
{
    if (!w)
        return;
    pthread_cond_destroy(&w->came);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// False: they stop, and the work is left to the caller.
static bool workers_add(struct ps_workers *w, struct ps_work *work)
{
    pthread_mutex_lock(&w->lock);
    bool stopping = w->stopping;
    if (!stopping) {
        work->next = NULL;
        *w->end = work;
        w->end = &work->next;
        pthread_cond_signal(&w->came);
    }
    pthread_mutex_unlock(&w->lock);
    return !stopping;
}

void ps_workers_run(struct ps_workers *w, struct ps_work *work)
{
    if (!w || !workers_add(w, work))
        work->run(work);
}

// ---- a loop over many threads -------------------------------------------------------------------------------------

struct loop_helper {
    struct ps_work work;  // first
    struct loop *loop;
};

// A helper that begins when nothing is left looks at `next` alone: fn and arg are gone by then.
struct loop {
    struct ps_workers *workers;
    uint32_t n;
    void (*fn)(void *arg, uint32_t i);
    void *arg;
    atomic_uint next, done, refs;
    struct loop_helper helpers[];
};

static void loop_unref(struct loop *l)
{
    if (atomic_fetch_sub(&l->refs, 1) == 1)
        free(l);
}

static void loop_take_part(struct loop *l)
{
    uint32_t i, mine = 0;
    while ((i = atomic_fetch_add(&l->next, 1)) < l->n) {
        l->fn(l->arg, i);
        mine++;
    }
    if (mine && atomic_fetch_add(&l->done, mine) + mine == l->n) {
        pthread_mutex_lock(&l->workers->lock);
        pthread_cond_broadcast(&l->workers->done);
        pthread_mutex_unlock(&l->workers->lock);
    }
}

static void loop_help(struct ps_work *work)
{
    struct loop *l = ((struct loop_helper *)work)->loop;
    loop_take_part(l);
    loop_unref(l);
}

void ps_workers_for(struct ps_workers *w, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    unsigned helpers = w && n > 1 ? (n - 1 < w->n ? n - 1 : w->n) : 0;
    struct loop *l = helpers ? ps_try_alloc(sizeof *l + helpers * sizeof l->helpers[0]) : NULL;
    if (!l) {
        for (uint32_t i = 0; i < n; i++)
            fn(arg, i);
        return;
    }
    l->workers = w;
    l->n = n;
    l->fn = fn;
    l->arg = arg;
    atomic_init(&l->refs, 1);
    for (unsigned k = 0; k < helpers; k++) {
        l->helpers[k] = (struct loop_helper){{loop_help, NULL}, l};
        atomic_fetch_add(&l->refs, 1);
        if (!workers_add(w, &l->helpers[k].work))
            loop_unref(l);
    }
    loop_take_part(l);
    pthread_mutex_lock(&w->lock);
    while (atomic_load(&l->done) < n)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
    loop_unref(l);
}
