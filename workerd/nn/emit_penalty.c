// SPDX-License-Identifier: Apache-2.0
//
// What regularizers add to the loss: of a batch, not of each of its rows.
#include "workerd/nn/emit.h"
#include "workerd/nn/ops/penalty.h"

static void emit_add_penalty(struct nn_emitter *m, const struct nn_regularizer *r, double times, int tensor)
{
    const struct nn_penalty attr = {(float)(r->l1 * times), (float)(r->l2 * times)};
    int in[] = {tensor, m->penalty};
    if (r->l1 > 0 || r->l2 > 0)
        nn_tape_put(m->tape, &nn_op_penalty, &attr, sizeof attr, in, m->penalty < 0 ? 1 : 2, &m->penalty, 1);
}

// The mean over the rows of what each row's activity adds.
void nn_emit_activity(struct nn_emitter *m, const struct nn_layer *l, int tensor)
{
    emit_add_penalty(m, &l->activity, 1 / (double)m->rows, tensor);
}

void nn_emit_regularizers(struct nn_emitter *m)
{
    for (size_t i = 0; i < m->model->variables && !m->tape->error.code; i++) {
        const struct nn_variable *v = &m->model->variable[i];
        m->tape->layer = v->param.layer;
        if (v->param.trainable && (v->regularizer.l1 > 0 || v->regularizer.l2 > 0))
            emit_add_penalty(m, &v->regularizer, 1, nn_emit_weight(m, (int)i));
    }
}
