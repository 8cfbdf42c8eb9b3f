// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/emit.h"
#include "workerd/nn/layer.h"

void nn_emitter_init(struct nn_emitter *m)
{
    m->tensor = ps_alloc((m->model->values + 1) * sizeof *m->tensor);
    m->weight = ps_alloc((m->model->variables + 1) * sizeof *m->weight);
    for (size_t i = 0; i < m->model->values; i++)
        m->tensor[i] = -1;
    for (size_t i = 0; i < m->model->variables; i++)
        m->weight[i] = -1;
    m->penalty = -1;
}

void nn_emitter_fini(struct nn_emitter *m)
{
    free(m->tensor);
    free(m->weight);
}

// A call, and what its activity regularizer says of all that it gives.
static int emit_call(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    const bool training = m->training;
    m->training = training && !call->inference;
    const int out = l->class->emit(m, call);
    m->training = training;
    nn_emit_activity(m, l, out);
    for (int k = 0; k < call->n_more; k++)
        nn_emit_activity(m, l, *nn_emit_more(m, call, k));
    return out;
}

int nn_emit_inner(struct nn_emitter *m, const struct nn_call *call, int k, int tensor, int spread)
{
    const struct nn_call *inner = &call->inner[k];
    const int example = m->example, before = m->spread;
    m->tensor[inner->in[0]] = tensor;
    if (spread > 1) {
        m->example = -1;
        m->spread = (before ? before : 1) * spread;
        m->rows *= spread;
    }
    const int out = m->tensor[inner->out] = emit_call(m, inner);
    if (spread > 1) {
        m->example = example;
        m->spread = before;
        m->rows /= spread;
    }
    return out;
}

// Do several read it?
static bool emit_is_shared(const struct nn_model *model, int value)
{
    int readers = 0;
    for (int k = 0; k < model->n_outputs; k++)
        readers += model->output[k] == value;
    for (size_t i = 0; i < model->calls; i++)
        for (int k = 0; k < model->call[i].n_in; k++)
            readers += model->call[i].in[k] == value;
    return readers > 1;
}

void nn_emit_calls(struct nn_emitter *m)
{
    for (size_t i = 0; i < m->model->calls && !m->tape->error.code; i++) {
        const struct nn_call *call = &m->model->call[i];
        const struct nn_layer *l = nn_emit_layer(m, call);
        m->tape->layer = l->name;
        m->tensor[call->out] = emit_call(m, call);
        if (emit_is_shared(m->model, call->out))
            m->fixed = m->tape->n_ops;
    }
}

const struct nn_op *nn_emit_last_op(const struct nn_model *model, struct nn_tape *t, int k)
{
    struct nn_emitter m = {.tape = t, .model = model, .rows = 1, .training = true, .example = -1};
    nn_emitter_init(&m);
    nn_emit_calls(&m);
    const struct nn_op *op = t->error.code ? NULL : nn_tape_maker(t, nn_emit_tensor(&m, model->output[k]));
    nn_emitter_fini(&m);
    return op;
}
