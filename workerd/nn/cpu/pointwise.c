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

// Of n columns of rows of `width`.
PS_PER_CPU static void sum_rows(size_t rows, size_t width, size_t n, const float *restrict y, float *restrict sum)
{
    memset(sum, 0, n * sizeof *sum);
    for (size_t r = 0; r < rows; r++, y += width)
        for (size_t i = 0; i < n; i++)
            sum[i] += y[i];
}

PS_PER_CPU static void add_elements(size_t n, const float *a, const float *b, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

// A loop over elements, rows or columns.
struct pointwise {
    size_t rows, n;
    const float *a, *b;
    float *y;
    enum nn_activation act;
};

static void bias_part(void *arg, size_t first, size_t last)
{
    const struct pointwise *p = arg;
    float *y = p->y + first * p->n;
    if (p->b)
        add_to_rows(last - first, p->n, p->b, y);
    if (p->act == NN_RELU)
        positive_part((last - first) * p->n, y, y);
}

void nn_cpu_bias_activation(const struct nn_context *context, enum nn_activation act, size_t rows, size_t n,
                            const float *b, float *y)
{
    struct pointwise p = {.n = n, .b = b, .y = y, .act = act};
    if (b || act == NN_RELU)
        nn_cpu_share(context, rows, nn_cpu_least(n), bias_part, &p);
}

enum { COLUMNS = 16 };  // of a sum, that one thread has at least: a line of the cache

static void sum_part(void *arg, size_t first, size_t last)
{
    const struct pointwise *p = arg;
    const size_t from = first * COLUMNS, to = last * COLUMNS < p->n ? last * COLUMNS : p->n;
    sum_rows(p->rows, p->n, to - from, p->a + from, p->y + from);
}

void nn_cpu_sum_rows(const struct nn_context *context, size_t rows, size_t n, const float *x, float *sum)
{
    struct pointwise p = {.rows = rows, .n = n, .a = x, .y = sum};
    nn_cpu_share(context, (n + COLUMNS - 1) / COLUMNS, nn_cpu_least(COLUMNS * rows), sum_part, &p);
}

static void relu_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    positive_part(last - first, (const float *)f->in[0] + first, (float *)f->out[0] + first);
}

static void relu_part_backward(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    keep_where_positive(last - first, (const float *)f->in[0] + first, (const float *)f->in[1] + first,
                        (float *)f->out[0] + first);
}

static void add_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    add_elements(last - first, (const float *)f->in[0] + first, (const float *)f->in[1] + first,
                 (float *)f->out[0] + first);
}

static void copy_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    memcpy((char *)f->out[0] + first, (const char *)f->in[0] + first, last - first);
}

static void pointwise_share(const struct nn_frame *f, nn_cpu_part *part)
{
    nn_cpu_share(f->context, nn_type_count(&f->op->out_type[0]), NN_CPU_SHARED, part, (void *)f);
}

static void relu_run(const struct nn_frame *f)
{
    pointwise_share(f, relu_part);
}

static void relu_run_backward(const struct nn_frame *f)
{
    pointwise_share(f, relu_part_backward);
}

static void add_run(const struct nn_frame *f)
{
    pointwise_share(f, add_part);
}

static void copy_run(const struct nn_frame *f)
{
    nn_cpu_share(f->context, nn_type_bytes(&f->op->out_type[0]), sizeof(float) * NN_CPU_SHARED, copy_part, (void *)f);
}

const struct nn_kernel nn_cpu_copy = {.run = copy_run};
const struct nn_kernel nn_cpu_relu = {.run = relu_run};
const struct nn_kernel nn_cpu_relu_backward = {.run = relu_run_backward};
const struct nn_kernel nn_cpu_add = {.run = add_run};
