// SPDX-License-Identifier: Apache-2.0
//
// Masks, what they leave, and its mean.
#include <string.h>

#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/mask.h"

// ---- masks --------------------------------------------------------------------------------------------------------

static __global__ void differs_from(size_t n, const float *x, float number, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = x[i] != number;
}

static __global__ void integer_differs_from(size_t n, const int32_t *x, double number, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = (double)x[i] != number;
}

static __global__ void any_of_line(size_t lines, size_t n, const float *x, float *y)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t k = nn_cuda_line();
    float found = 0;
    if (k >= lines)
        return;
    NN_CUDA_TEAM_EACH(j, n)
    found = x[k * n + j] != 0 ? 1 : found;
    found = nn_cuda_team_max(found, part);
    if (threadIdx.x == 0)
        y[k] = found;
}

static __global__ void both_masks(size_t n, bool either, const float *a, const float *b, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = either ? a[i] != 0 || b[i] != 0 : a[i] != 0 && b[i] != 0;
}

static __global__ void apply_mask(size_t n, size_t width, const float *x, const float *m, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = m[nn_cuda_quotient(i, width)] != 0 ? x[i] : 0;
}

static void cuda_not_equal_run(const struct nn_frame *f)
{
    const size_t n = nn_type_count(&f->op->out_type[0]);
    double number;
    memcpy(&number, f->op->attr, sizeof number);
    if (f->op->in_type[0].dtype == NN_INT32)
        NN_CUDA_RUN_EACH(f->context, integer_differs_from, n, (const int32_t *)f->in[0], number, nn_cuda_out(f, 0));
    else
        NN_CUDA_RUN_EACH(f->context, differs_from, n, nn_cuda_in(f, 0), (float)number, nn_cuda_out(f, 0));
}

static void cuda_any_run(const struct nn_frame *f)
{
    const struct nn_type *x = &f->op->in_type[0];
    const size_t lines = nn_type_rows(x), n = (size_t)x->dim[x->rank - 1];
    NN_CUDA_RUN_TEAMS(f->context, any_of_line, nn_cuda_team(lines, n, 1), lines, n, nn_cuda_in(f, 0),
                      nn_cuda_out(f, 0));
}

static void cuda_mask_or_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, both_masks, nn_type_count(&f->op->out_type[0]), true, nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_mask_and_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, both_masks, nn_type_count(&f->op->out_type[0]), false, nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_masked_run(const struct nn_frame *f)
{
    const size_t n = nn_type_count(&f->op->in_type[0]);
    NN_CUDA_RUN_EACH(f->context, apply_mask, n, n / nn_type_count(&f->op->in_type[1]), nn_cuda_in(f, 0),
                     nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

// ---- the mean of what counts --------------------------------------------------------------------------------------

// Rows of `steps` steps of `width` elements. A thread for each element of a row's mean.
static __global__ void mean_of_steps(size_t n, size_t steps, size_t width, const float *x, const float *m, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, width), j = i - row * width;
        float sum = 0, count = 0;
        for (size_t s = 0; s < steps; s++)
            if (m[row * steps + s] != 0) {
                sum += x[(row * steps + s) * width + j];
                count += 1;
            }
        y[i] = sum / count;
    }
}

// A team for each row.
static __global__ void mean_of_steps_backward(size_t rows, size_t steps, size_t width, const float *m, const float *dy,
                                              float *dx)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t r = nn_cuda_line();
    float count = 0;
    if (r >= rows)
        return;
    NN_CUDA_TEAM_EACH(s, steps)
    count += m[r * steps + s] != 0;
    count = nn_cuda_team_sum(count, part);
    NN_CUDA_TEAM_EACH(k, steps * width)
    {
        const size_t s = nn_cuda_quotient(k, width);
        dx[r * steps * width + k] = m[r * steps + s] != 0 ? dy[r * width + (k - s * width)] / count : 0;
    }
}

static void cuda_masked_mean_run(const struct nn_frame *f)
{
    const struct nn_type *m = &f->op->in_type[1];
    const size_t n = nn_type_count(&f->op->out_type[0]), rows = (size_t)m->dim[0];
    NN_CUDA_RUN_EACH(f->context, mean_of_steps, n, (size_t)m->dim[1], n / rows, nn_cuda_in(f, 0), nn_cuda_in(f, 1),
                     nn_cuda_out(f, 0));
}

static void cuda_masked_mean_run_backward(const struct nn_frame *f)
{
    const struct nn_type *m = &f->op->in_type[0];
    const size_t rows = (size_t)m->dim[0], steps = (size_t)m->dim[1], width = nn_type_count(&f->op->in_type[1]) / rows;
    NN_CUDA_RUN_TEAMS(f->context, mean_of_steps_backward, nn_cuda_team(rows, steps * width, 1), rows, steps, width,
                      nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_not_equal = {NULL, cuda_not_equal_run, NULL, NULL};
const struct nn_kernel nn_cuda_any = {NULL, cuda_any_run, NULL, NULL};
const struct nn_kernel nn_cuda_mask_or = {NULL, cuda_mask_or_run, NULL, NULL};
const struct nn_kernel nn_cuda_mask_and = {NULL, cuda_mask_and_run, NULL, NULL};
const struct nn_kernel nn_cuda_masked = {NULL, cuda_masked_run, NULL, NULL};
const struct nn_kernel nn_cuda_masked_mean = {NULL, cuda_masked_mean_run, NULL, NULL};
const struct nn_kernel nn_cuda_masked_mean_backward = {NULL, cuda_masked_mean_run_backward, NULL, NULL};
