// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "workerd/nn/cpu/cpu.h"

PS_PER_CPU static void positive_part(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];  // a NaN stays one
}

PS_PER_CPU static void keep_where_positive(size_t n, const float *y, const float *dy, float *dx)
{
    for (size_t i = 0; i < n; i++) {
        float d = dy[i];
        dx[i] = y[i] > 0 ? d : 0;
    }
}

PS_PER_CPU static void add_to_rows(size_t rows, size_t n, const float *restrict b, float *restrict y)
{
    for (size_t r = 0; r < rows; r++, y += n)
        for (size_t i = 0; i < n; i++)
            y[i] += b[i];
}

PS_PER_CPU static void sum_rows(size_t rows, size_t n, const float *restrict y, float *restrict sum)
{
    memset(sum, 0, n * sizeof *sum);
    for (size_t r = 0; r < rows; r++, y += n)
        for (size_t i = 0; i < n; i++)
            sum[i] += y[i];
}

PS_PER_CPU static void add_elements(size_t n, const float *a, const float *b, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void nn_cpu_bias_activation(enum nn_activation act, size_t rows, size_t n, const float *b, float *y)
{
    if (b)
        add_to_rows(rows, n, b, y);
    if (act == NN_RELU)
        positive_part(rows * n, y, y);
}

void nn_cpu_sum_rows(size_t rows, size_t n, const float *x, float *sum)
{
    sum_rows(rows, n, x, sum);
}

static void relu_run(const struct nn_frame *f)
{
    positive_part(nn_type_count(&f->op->out_type[0]), f->in[0], f->out[0]);
}

static void relu_run_backward(const struct nn_frame *f)
{
    keep_where_positive(nn_type_count(&f->op->out_type[0]), f->in[0], f->in[1], f->out[0]);
}

static void add_run(const struct nn_frame *f)
{
    add_elements(nn_type_count(&f->op->out_type[0]), f->in[0], f->in[1], f->out[0]);
}

static void copy_run(const struct nn_frame *f)
{
    memcpy(f->out[0], f->in[0], nn_type_bytes(&f->op->out_type[0]));
}

const struct nn_kernel nn_cpu_copy = {.run = copy_run};
const struct nn_kernel nn_cpu_relu = {.run = relu_run};
const struct nn_kernel nn_cpu_relu_backward = {.run = relu_run_backward};
const struct nn_kernel nn_cpu_add = {.run = add_run};
