// SPDX-License-Identifier: Apache-2.0
//
// Sparse categorical cross-entropy of probabilities that no softmax gives (keras.ops.sparse_categorical_crossentropy,
// from_logits=False): they are clipped to [1e-7, 1 - 1e-7] and made to add up to 1. With q = clip(p) and s = sum q:
//   loss = log s - log q[label],  d loss / d q_i = 1 / s - [i = label] / q_i,  and nought where the clip holds p_i.
#include <math.h>

#include "workerd/nn/tape.h"

static const double CLIP = 1e-7;  // Keras's epsilon

static enum ps_code sparse_xent_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)op->attr;
    const struct nn_type *p = &op->in_type[0];
    if (p->rank != 2)
        return nn_op_fail(op, e, "expected probabilities of shape (rows, classes)");
    nn_loss_outputs_infer(op, false, a->gradient);
    return PS_OK;
}

static double sparse_xent_clip(nn_real p)
{
    return p < CLIP ? CLIP : p > 1 - CLIP ? 1 - CLIP : p;  // a NaN stays one
}

static nn_real sparse_xent_row(size_t n, const nn_real *p, int32_t label, nn_real weight, nn_real *dx)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += sparse_xent_clip(p[i]);
    for (size_t i = 0; dx && i < n; i++) {
        bool held = p[i] < CLIP || p[i] > 1 - CLIP;
        double slope = 1 / sum - ((int32_t)i == label ? 1 / sparse_xent_clip(p[i]) : 0);
        dx[i] = held ? 0 : (nn_real)(slope * weight);
    }
    return (nn_real)(log(sum) - log(sparse_xent_clip(p[label])));
}

static void sparse_xent_reference(const struct nn_frame *f)
{
    size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    const nn_real *p = f->in[0], *weight = f->in[2];
    const int32_t *label = f->in[1];
    nn_real *loss = f->out[0], *dx = f->op->n_out > 1 ? f->out[1] : NULL;
    for (size_t r = 0; r < rows; r++)
        loss[r] = sparse_xent_row(n, p + r * n, label[r], weight[r], dx ? dx + r * n : NULL);
}

const struct nn_op_class nn_op_sparse_xent = {
    .name = "sparse_xent", .infer = sparse_xent_infer, .reference = sparse_xent_reference};
