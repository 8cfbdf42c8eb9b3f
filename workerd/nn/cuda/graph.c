// SPDX-License-Identifier: Apache-2.0
//
// What a step queues, recorded once and queued as a whole from then on: a small network takes longer to queue than to
// compute.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/cuda/cuda.h"

struct nn_cuda_graph {
    cudaGraphExec_t exec;
    const void *scratch;  // where the kernels look for it
};

bool nn_cuda_record(struct nn_context *c)
{
    if (c->error.code)
        return false;
    c->recorded_from = c->taken;
    nn_cuda_note(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "the capture of a step");
    return c->error.code == PS_OK;
}

// The copies' stream has to end where it began, in the stream of the kernels. No copy of a graph is waited for alone.
static void graph_join_copies(struct nn_context *c)
{
    if (c->taken != c->recorded_from) {
        nn_cuda_note(c, cudaEventRecord(c->queued, c->copies), "an event");
        nn_cuda_note(c, cudaStreamWaitEvent(c->stream, c->queued, 0), "an event");
    }
    c->finished = c->taken;
}

static cudaGraphExec_t graph_end(struct nn_context *c)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    graph_join_copies(c);
    nn_cuda_note(c, cudaStreamEndCapture(c->stream, &graph), "the capture of a step");
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaGraphInstantiate(&exec, graph, 0), "a graph");
    if (graph)
        cudaGraphDestroy(graph);
    return exec;
}

// What could not be recorded is queued as it is: that is no error.
void *nn_cuda_recorded(struct nn_context *c)
{
    const cudaGraphExec_t exec = graph_end(c);
    if (!exec) {
        cudaGetLastError();
        c->error = (struct ps_error){PS_OK, ""};
        return NULL;
    }
    struct nn_cuda_graph *g = ps_alloc(sizeof *g);
    g->exec = exec;
    g->scratch = c->scratch;
    return g;
}

bool nn_cuda_replay(struct nn_context *c, void *graph)
{
    const struct nn_cuda_graph *g = graph;
    if (g->scratch != c->scratch)
        return false;
    if (c->error.code == PS_OK)
        nn_cuda_note(c, cudaGraphLaunch(g->exec, c->stream), "a graph");
    return true;
}

void nn_cuda_free_graph(struct nn_context *c, void *graph)
{
    struct nn_cuda_graph *g = graph;
    cudaSetDevice(c->index);
    cudaGraphExecDestroy(g->exec);
    free(g);
}
