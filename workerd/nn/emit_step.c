// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/emit.h"
#include "workerd/nn/ops/noise.h"

// The penalty is one more thing that is made small: by its own gradient of 1.
static int emit_penalty(struct nn_emitter *m, struct nn_emitted *to, int *x, int *dx)
{
    static const float one[] = {1};
    const struct nn_constant attr = {one, 1};
    nn_emit_regularizers(m);
    to->penalty = *x = m->penalty;
    if (m->penalty < 0 || m->tape->error.code)
        return 0;
    m->tape->tensor[m->penalty].kept = true;
    nn_tape_put(m->tape, &nn_op_constant, &attr, sizeof attr, NULL, 0, dx, 1);
    return 1;
}

static void emit_step(struct nn_emitter *m, const struct ps_loss *loss, struct nn_emitted *to)
{
    struct nn_tape *t = m->tape;
    int x[NN_MAX_PORTS + 1], dx[NN_MAX_PORTS + 1], n = m->model->n_outputs;
    nn_emit_calls(m);
    for (int k = 0; k < n && !t->error.code; k++) {
        nn_emit_loss(m, &loss[k], k, to, &x[k], &dx[k]);
        if (!t->error.code)
            t->tensor[to->loss[k]].kept = t->tensor[to->output[k]].kept = t->tensor[to->weight[k]].kept = true;
        if (!t->error.code && to->counts[k] >= 0)
            t->tensor[to->counts[k]].kept = true;
    }
    n += emit_penalty(m, to, &x[n], &dx[n]);
    if (m->training && !t->error.code)
        nn_tape_differentiate(t, x, dx, n);
}

void nn_emit(const struct nn_model *model, const struct nn_device *device, const struct ps_loss *loss, int rows,
             bool training, struct nn_tape *t, struct nn_emitted *to)
{
    struct nn_emitter m = {
        .tape = t, .model = model, .device = device, .rows = rows, .training = training, .example = -1};
    nn_emitter_init(&m);
    emit_step(&m, loss, to);
    nn_emitter_fini(&m);
}
