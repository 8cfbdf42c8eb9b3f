// SPDX-License-Identifier: Apache-2.0
//
// Loops of our own on the threads of oneDNN: both ask libgomp for its team, so that no second set of threads waits
// while the first one works.
#include <omp.h>
#include <stdatomic.h>

#include "workerd/nn/cpu/cpu.h"

// What "#pragma omp parallel" becomes. Called as it is, so that nothing that ThreadSanitizer sees is handed over
// between threads but by the two counts of a share.
extern void GOMP_parallel(void (*region)(void *), void *data, unsigned threads, unsigned flags);

struct share {
    size_t n;
    nn_cpu_part *part;
    void *arg;
    unsigned control;
    atomic_int begun, done;
};

static void share_range(const struct share *s, size_t at, size_t of)
{
    const size_t first = s->n * at / of, last = s->n * (at + 1) / of;
    if (first < last)
        s->part(s->arg, first, last);
}

// A thread of the team has its own way with small numbers: it is to be the caller's (nn_device.enter).
static void share_region(void *data)
{
    struct share *s = data;
    if (atomic_load_explicit(&s->begun, memory_order_acquire)) {
#ifdef __SSE__
        __builtin_ia32_ldmxcsr(s->control);
#endif
        share_range(s, (size_t)omp_get_thread_num(), (size_t)omp_get_num_threads());
    }
    atomic_fetch_add_explicit(&s->done, 1, memory_order_release);
}

void nn_cpu_share(const struct nn_context *context, size_t n, size_t least, nn_cpu_part *part, void *arg)
{
    struct share s = {.n = n, .part = part, .arg = arg};
    size_t threads = n / (least > 0 ? least : 1);
    threads = threads < (size_t)context->threads ? threads : (size_t)context->threads;
    if (threads < 2) {
        share_range(&s, 0, 1);
        return;
    }
#ifdef __SSE__
    s.control = __builtin_ia32_stmxcsr();
#endif
    atomic_store_explicit(&s.begun, 1, memory_order_release);
    GOMP_parallel(share_region, &s, (unsigned)threads, 0);
    (void)atomic_load_explicit(&s.done, memory_order_acquire);
}
