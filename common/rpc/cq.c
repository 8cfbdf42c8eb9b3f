// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cq.h"

#include <pthread.h>
#include <sched.h>

#include "common/base/clock.h"
#include "common/base/log.h"

// For the life of the process: grpc_shutdown may wait 10 s for a poller of the core's own.
static pthread_once_t once = PTHREAD_ONCE_INIT;

void ps_cq_init(struct ps_cq *cq)
{
    pthread_once(&once, grpc_init);
    cq->queue = grpc_completion_queue_create_for_next(NULL);
    atomic_init(&cq->ops, 1);
    atomic_init(&cq->misses, 0);
    atomic_init(&cq->waits, 0);
}

void ps_cq_fini(struct ps_cq *cq)
{
    grpc_completion_queue_destroy(cq->queue);
}

bool ps_cq_begin(struct ps_cq *cq)
{
    size_t n = atomic_load(&cq->ops);
    do {
        if (n == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&cq->ops, &n, n + 1));
    return true;
}

void ps_cq_end(struct ps_cq *cq)
{
    if (atomic_fetch_sub(&cq->ops, 1) == 1)
        grpc_completion_queue_shutdown(cq->queue);
}

void ps_cq_close(struct ps_cq *cq)
{
    ps_cq_end(cq);
}

bool ps_cq_batch(struct ps_cq *cq, grpc_call *call, const grpc_op *ops, size_t n, struct ps_event *ev)
{
    if (!ps_cq_begin(cq))
        return false;
    grpc_call_error error = grpc_call_start_batch(call, ops, n, ev, NULL);
    if (error == GRPC_CALL_OK)
        return true;
    ps_error_log("grpc_call_start_batch: %s", grpc_call_error_to_string(error));
    ps_cq_end(cq);
    return false;
}

gpr_timespec ps_timespec(uint64_t ns)
{
    if (ns == UINT64_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return (gpr_timespec){(int64_t)(ns / PS_SECOND), (int32_t)(ns % PS_SECOND), GPR_CLOCK_MONOTONIC};
}

// ---- what is next -------------------------------------------------------------------------------------------------
//
// Busy polling. Who sends to a thread that sleeps has to wake it. On a virtual machine that costs it more than the copy
// of 64 KiB does, and a thread that keeps up with its sender sleeps after every segment. So a thread that finds nothing
// to do looks again a few times before it waits to be woken; not all the time, so that what comes meanwhile is read at
// once. Between two looks whoever else wants the core has it. Where it was in vain a few times, events are far apart;
// where somebody wanted the core, who yields to him gets it back later than who is woken. Then only one wait in many is
// tried again.

enum { LOOKS = 6, MISSES = 4, TRIED_AGAIN = 32 };
static const uint64_t look_again_ns = 5000, wanted_ns = 50000;

static bool cq_may_poll(struct ps_cq *cq)
{
    return atomic_load_explicit(&cq->misses, memory_order_relaxed) < MISSES ||
           atomic_fetch_add_explicit(&cq->waits, 1, memory_order_relaxed) % TRIED_AGAIN == 0;
}

// True: nobody wanted the core for long.
static bool cq_let_others_run(void)
{
    const uint64_t begun = ps_now();
    uint64_t took;
    do {
        sched_yield();
        took = ps_now() - begun;
    } while (took < look_again_ns);
    return took < wanted_ns;
}

static grpc_event cq_look(struct ps_cq *cq)
{
    return grpc_completion_queue_next(cq->queue, gpr_time_0(GPR_CLOCK_MONOTONIC), NULL);
}

static void cq_note_polled(struct ps_cq *cq, bool hit, bool mine)
{
    const int misses = atomic_load_explicit(&cq->misses, memory_order_relaxed);
    const int next = !mine ? MISSES : hit ? 0 : misses < MISSES ? misses + 1 : MISSES;
    atomic_store_explicit(&cq->misses, next, memory_order_relaxed);
}

static grpc_event cq_poll(struct ps_cq *cq)
{
    bool mine = true;
    grpc_event e = cq_look(cq);
    for (int i = 0; i < LOOKS && mine && e.type == GRPC_QUEUE_TIMEOUT; i++) {
        mine = cq_let_others_run();
        e = cq_look(cq);
    }
    cq_note_polled(cq, e.type != GRPC_QUEUE_TIMEOUT, mine);
    return e;
}

static grpc_event cq_next(struct ps_cq *cq, uint64_t until)
{
    grpc_event e = {.type = GRPC_QUEUE_TIMEOUT};
    if (cq_may_poll(cq))
        e = cq_poll(cq);
    if (e.type == GRPC_QUEUE_TIMEOUT)
        e = grpc_completion_queue_next(cq->queue, ps_timespec(until), NULL);
    return e;
}

enum ps_cq_step ps_cq_step(struct ps_cq *cq, uint64_t until)
{
    grpc_event e = cq_next(cq, until);
    if (e.type == GRPC_QUEUE_TIMEOUT)
        return PS_CQ_TIMEOUT;
    if (e.type == GRPC_QUEUE_SHUTDOWN)
        return PS_CQ_SHUTDOWN;
    // What was written before the operation was started is visible here by locks of the core's own, which a race
    // detector does not see. It sees this, and ps_cq_begin.
    atomic_load(&cq->ops);
    struct ps_event *ev = e.tag;
    ev->fn(ev, e.success);
    ps_cq_end(cq);
    return PS_CQ_EVENT;
}
