// SPDX-License-Identifier: Apache-2.0
#include "psd/job/trace.h"

#include <stdlib.h>

#include "common/base/alloc.h"

void psd_trace_add(struct psd_job *job, const struct psd_past_wait *wait)
{
    struct psd_trace *trace = job->trace;
    pthread_mutex_lock(&trace->lock);
    trace->ring[trace->added++ % PSD_TRACE_WAITS] = *wait;
    pthread_mutex_unlock(&trace->lock);
}

size_t psd_trace_copy(struct psd_job *job, struct psd_past_wait waits[PSD_TRACE_WAITS])
{
    struct psd_trace *trace = job->trace;
    pthread_mutex_lock(&trace->lock);
    const size_t n = trace->added < PSD_TRACE_WAITS ? (size_t)trace->added : PSD_TRACE_WAITS;
    for (size_t i = 0; i < n; i++)
        waits[i] = trace->ring[(trace->added - 1 - i) % PSD_TRACE_WAITS];
    pthread_mutex_unlock(&trace->lock);
    return n;
}

// ---- with the declaration -----------------------------------------------------------------------------------------

static bool trace_bytes(const struct psd_job *job, uint32_t task, size_t *bytes)
{
    (void)job;
    (void)task;
    return !__builtin_add_overflow(*bytes, sizeof(struct psd_trace), bytes);
}

static enum ps_code trace_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    (void)task;
    struct psd_trace *trace = ps_try_alloc(sizeof *trace);
    if (!trace)
        return ps_no_memory(e, "the waits that are kept");
    pthread_mutex_init(&trace->lock, NULL);
    job->trace = trace;
    return PS_OK;
}

static void trace_destroy(struct psd_job *job)
{
    if (!job->trace)
        return;
    pthread_mutex_destroy(&job->trace->lock);
    free(job->trace);
    job->trace = NULL;
}

const struct psd_component psd_trace_component = {
    .name = "trace", .bytes = trace_bytes, .create = trace_create, .destroy = trace_destroy};
