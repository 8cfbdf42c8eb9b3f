// SPDX-License-Identifier: Apache-2.0
//
// Cross-entropy of logits with what each output is to be: autoencoders have it for every pixel. Other losses are the
// reference's.
#include "workerd/nn/ops/losses.h"

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/vector.h"

// t, smoothed, is t * (1 - smoothing) + smoothing / 2. y and dx may be NULL; dx is times `by`. Returns the row's sum.
PS_PER_CPU static double binary_xent_row(size_t n, float smoothing, float by, const float *restrict x,
                                         const float *restrict t, float *restrict y, float *restrict dx)
{
    enum { LANES = 32 };
    double sum = 0;
    for (size_t at = 0; at < n; at += LANES) {
        const size_t m = n - at < LANES ? n - at : LANES;
        float loss[LANES], p[LANES], slope[LANES];
        for (size_t i = 0; i < m; i++) {
            const float target = t[at + i] * (1 - smoothing) + 0.5f * smoothing;
            loss[i] = vector_softplus(x[at + i]) - x[at + i] * target;
            p[i] = vector_sigmoid(x[at + i]);
            slope[i] = (p[i] - target) * by;
        }
        for (size_t i = 0; i < m; i++)
            sum += (double)loss[i];
        for (size_t i = 0; y && i < m; i++)
            y[at + i] = p[i];
        for (size_t i = 0; dx && i < m; i++)
            dx[at + i] = slope[i];
    }
    return sum;
}

static void binary_xent_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_loss_attr *a = (const struct nn_loss_attr *)f->op->attr;
    const size_t n = (size_t)f->op->in_type[0].dim[1];
    const float *x = f->in[0], *t = f->in[1], *weight = f->in[2];
    float *y = a->probabilities ? f->out[1] : NULL, *dx = a->gradient ? f->out[1 + a->probabilities] : NULL;
    for (size_t r = first; r < last; r++)
        ((float *)f->out[0])[r] =
            (float)(binary_xent_row(n, (float)a->loss.label_smoothing, weight[r] / (float)n, x + r * n, t + r * n,
                                    y ? y + r * n : NULL, dx ? dx + r * n : NULL) /
                    (double)n);
}

static void loss_run(const struct nn_frame *f)
{
    const struct nn_loss_attr *a = (const struct nn_loss_attr *)f->op->attr;
    const struct nn_type *x = &f->op->in_type[0];
    if (a->loss.kind == PS_LOSS_BINARY_XENT && a->loss.from_logits)
        nn_cpu_share(f->context, (size_t)x->dim[0], nn_cpu_least(8 * (size_t)x->dim[1]), binary_xent_part, (void *)f);
    else
        f->op->class->reference(f);
}

const struct nn_kernel nn_cpu_loss = {.run = loss_run};
