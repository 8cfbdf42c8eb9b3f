// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one. What costs is exp: a polynomial over all classes of a row at once.
#include <math.h>
#include <string.h>

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/vector.h"

static float row_greatest(int n, const float *x)
{
    float max = x[0];
    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

// to may be NULL: only the sum is wanted.
PS_PER_CPU static double exp_row(int n, const float *restrict x, float max, float *restrict to)
{
    enum { LANES = 32 };
    float part[LANES];
    double sum = 0;
    for (int first = 0; first < n; first += LANES) {
        int lanes = n - first < LANES ? n - first : LANES;
        for (int i = 0; i < lanes; i++)
            part[i] = vector_exp_of_negative(x[first + i] - max);
        for (int i = 0; i < lanes; i++)
            sum += (double)part[i];
        if (to)
            memcpy(to + first, part, (size_t)lanes * sizeof *to);
    }
    return sum;
}

PS_PER_CPU static void scale_row(int n, float by, const float *x, float *y)
{
    PS_ELEMENTWISE
    for (int i = 0; i < n; i++)
        y[i] = x[i] * by;
}

// The exponentials go where a result is wanted, and become it there.
static float xent_row(int n, const float *x, int32_t label, float scale, float *y, float *dx)
{
    float max = row_greatest(n, x), *e = y ? y : dx;
    double sum = exp_row(n, x, max, e);
    if (dx) {
        scale_row(n, (float)((double)scale / sum), e, dx);
        dx[label] -= scale;
    }
    if (y)
        scale_row(n, (float)(1 / sum), e, y);
    return (float)(log(sum) + (double)(max - x[label]));
}

static void softmax_xent_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    const struct nn_loss_outputs *a = (const struct nn_loss_outputs *)f->op->attr;
    const size_t n = (size_t)f->op->in_type[0].dim[1];
    const float *x = f->in[0], *weight = f->in[2];
    const int32_t *label = f->in[1];
    float *loss = f->out[0], *y = a->probabilities ? f->out[1] : NULL;
    float *dx = a->gradient ? f->out[1 + a->probabilities] : NULL;
    for (size_t r = first; r < last; r++)
        loss[r] = xent_row((int)n, x + r * n, label[r], weight[r], y ? y + r * n : NULL, dx ? dx + r * n : NULL);
}

static void softmax_xent_run(const struct nn_frame *f)
{
    const struct nn_type *x = &f->op->in_type[0];
    nn_cpu_share(f->context, (size_t)x->dim[0], nn_cpu_least(4 * (size_t)x->dim[1]), softmax_xent_part, (void *)f);
}

const struct nn_kernel nn_cpu_softmax_xent = {.run = softmax_xent_run};
