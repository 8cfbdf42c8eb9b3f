// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/load.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "tools/psbench/process.h"
#include "tools/psbench/stop.h"

enum {
    LEAST_CALLS = 4,  // of each worker: its measurement goes on until it has them
    READY_MS = 60000,
    DONE_MS = 120000,
    LEAST_WARM_MS = 100,
    LOOK_MS = 100,  // for a signal that came just before a wait
};

struct load {
    struct bench_case *c;
    const struct load_how *how;
    pid_t *workers;
    struct load_time *time;    // shared with the workers
    struct load_meter *meter;  // [workers], likewise
    size_t shared_bytes;
    int news;
};

// ---- in a worker --------------------------------------------------------------------------------------------------

static void load_report(struct load_meter *m, char what)
{
    while (write(m->news, &what, 1) < 0 && errno == EINTR) {
    }
}

void load_ready(struct load_meter *m)
{
    m->before = ps_now();
    load_report(m, 'r');
}

void load_done(struct load_meter *m)
{
    load_report(m, 'd');
    while (!atomic_load(&m->time->over))
        ps_sleep(PS_MS);
}

bool load_count(struct load_meter *m, uint64_t *started, uint64_t calls)
{
    uint64_t begin = atomic_load_explicit(&m->time->begin, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&m->time->end, memory_order_relaxed);
    pthread_mutex_lock(&m->lock);
    uint64_t now = ps_now();
    bool more = end == 0 || now < end || m->calls < LEAST_CALLS;
    if (begin == 0 || now < begin) {
        m->before = now;
    } else if (more) {
        m->calls += calls;
        m->last = now;
        histogram_add(&m->latency, (now - *started) / calls);
    }
    pthread_mutex_unlock(&m->lock);
    *started = now;
    return more;
}

static _Noreturn void load_work(const struct load *l, int rank)
{
    struct load_meter *m = &l->meter[rank];
    if (l->how->work(l->how->arg, rank, m, &m->error))
        load_report(m, 'f');
    _exit(0);
}

// ---- in psbench ---------------------------------------------------------------------------------------------------

static enum ps_code load_start(struct load *l, struct ps_error *e)
{
    int pipes[2];
    size_t n = (size_t)l->c->workers;
    l->shared_bytes = sizeof *l->time + n * sizeof *l->meter;
    void *shared = mmap(NULL, l->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe2(pipes, O_CLOEXEC) != 0)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot set up the workers: %s", strerror(errno));
    l->meter = shared;
    l->time = (struct load_time *)(l->meter + n);
    l->workers = ps_alloc(n * sizeof *l->workers);
    l->news = pipes[0];
    enum ps_code code = PS_OK;
    for (size_t i = 0; i < n && !code; i++) {
        struct load_meter *m = &l->meter[i];
        m->time = l->time;
        m->news = pipes[1];
        pthread_mutex_init(&m->lock, NULL);
        l->workers[i] = process_fork();
        if (l->workers[i] == 0)
            load_work(l, (int)i);
        if (l->workers[i] < 0)
            code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot fork: %s", strerror(errno));
    }
    close(pipes[1]);
    return code;
}

static enum ps_code load_describe_failure(const struct load *l, const char *what, struct ps_error *e)
{
    for (int i = 0; i < l->c->workers; i++)
        if (l->meter[i].error.code) {
            *e = l->meter[i].error;
            return ps_error_prefix(e, "worker %d", i);
        }
    return ps_fail(e, PS_INTERNAL, "not every worker %s", what);
}

// Until every worker has sent its news, which are not that it failed.
static enum ps_code load_await(struct load *l, const char *what, int timeout_ms, struct ps_error *e)
{
    uint64_t until = ps_now() + (uint64_t)timeout_ms * PS_MS;
    for (long left = l->c->workers; left > 0;) {
        char news = '\0';
        struct pollfd p = {.fd = l->news, .events = POLLIN};
        bool has_news = poll(&p, 1, LOOK_MS) > 0;
        if (stop_asked(e))
            return e->code;
        if (has_news && (read(l->news, &news, 1) != 1 || news == 'f'))
            return load_describe_failure(l, what, e);
        left -= has_news;
        if (ps_now() > until)
            return ps_fail(e, PS_DEADLINE_EXCEEDED, "not every worker %s within %d s", what, timeout_ms / 1000);
    }
    return PS_OK;
}

// In naps: a signal that comes just before one is seen after it.
static enum ps_code load_sleep(uint64_t until, struct ps_error *e)
{
    while (!stop_asked(e)) {
        uint64_t now = ps_now(), nap = now < until ? until - now : 0;
        if (nap == 0)
            return PS_OK;
        ps_sleep(nap < LOOK_MS * PS_MS ? nap : LOOK_MS * PS_MS);
    }
    return e->code;
}

static uint64_t load_cpu_of_all(const pid_t *pids, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += process_cpu(pids[i]);
    return sum;
}

static uint64_t load_rss_of_all(const pid_t *pids, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += process_rss(pids[i]);
    return sum;
}

// All workers as one: from the last call of any of them before calls count to the last that counts.
static void load_sum_up(const struct load *l, struct bench_sample *sample)
{
    uint64_t before = 0, last = 0, calls = 0, least = UINT64_MAX, most = 0;
    for (long i = 0; i < l->c->workers; i++) {
        const struct load_meter *m = &l->meter[i];
        before = m->before > before ? m->before : before;
        last = m->last > last ? m->last : last;
        calls += m->calls;
        least = m->calls < least ? m->calls : least;
        most = m->calls > most ? m->calls : most;
        histogram_merge(&l->c->latency, &m->latency);
    }
    double mean = (double)calls / (double)l->c->workers;
    sample->calls_per_s = (double)calls / ((double)(last - before) / 1e9);
    sample->bytes_per_s = sample->calls_per_s * (double)l->c->size;
    sample->share_min = (double)least / mean;
    sample->share_max = (double)most / mean;
}

static enum ps_code load_measure(struct load *l, struct bench_sample *sample, struct ps_error *e)
{
    const double seconds = l->how->seconds;
    const pid_t *servers = l->how->servers;
    size_t n = (size_t)l->c->workers, n_servers = l->how->n_servers;
    if (load_await(l, "got ready", READY_MS, e))
        return e->code;
    uint64_t warm = (uint64_t)fmax(seconds / 4 * 1e9, LEAST_WARM_MS * 1e6);
    uint64_t begin = ps_now() + warm, end = begin + (uint64_t)(seconds * 1e9);
    atomic_store(&l->time->end, end);
    atomic_store(&l->time->begin, begin);
    if (load_sleep(begin, e))
        return e->code;
    uint64_t clients0 = load_cpu_of_all(l->workers, n), servers0 = load_cpu_of_all(servers, n_servers);
    uint64_t measured = ps_now();
    if (load_sleep(end, e))
        return e->code;
    uint64_t clients1 = load_cpu_of_all(l->workers, n), servers1 = load_cpu_of_all(servers, n_servers);
    measured = ps_now() - measured;
    if (load_await(l, "ended its calls", DONE_MS, e))
        return e->code;
    load_sum_up(l, sample);
    double bytes = sample->bytes_per_s * (double)measured / 1e9;
    sample->client_cpu = (double)(clients1 - clients0) / 1e9 / bytes;
    sample->server_cpu = n_servers ? (double)(servers1 - servers0) / 1e9 / bytes : NAN;
    sample->client_rss = (double)load_rss_of_all(l->workers, n);
    sample->server_rss = n_servers ? (double)load_rss_of_all(servers, n_servers) : NAN;
    atomic_store(&l->time->over, true);
    return PS_OK;
}

// Workers end by themselves after their calls; where there was an error they may be in the middle of anything.
static void load_end(struct load *l, bool failed)
{
    for (long i = 0; l->workers && i < l->c->workers; i++) {
        if (l->workers[i] <= 0)
            continue;
        if (failed)
            kill(l->workers[i], SIGKILL);
        while (waitpid(l->workers[i], NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (l->meter)
        munmap(l->meter, l->shared_bytes);
    if (l->news >= 0)
        close(l->news);
    free(l->workers);
}

enum ps_code load_run(struct bench_case *c, const struct load_how *how, struct bench_sample *sample, struct ps_error *e)
{
    struct load l = {.c = c, .how = how, .news = -1};
    enum ps_code code = load_start(&l, e);
    if (!code)
        code = load_measure(&l, sample, e);
    load_end(&l, code != PS_OK);
    return code;
}
