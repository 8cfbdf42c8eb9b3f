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

void nn_cpu_relu_forward(size_t n, const float *x, float *y)
{
    positive_part(n, x, y);
}

void nn_cpu_relu_backward(size_t n, const float *y, const float *dy, float *dx)
{
    keep_where_positive(n, y, dy, dx);
}

void nn_cpu_bias_activation(enum nn_activation act, size_t rows, size_t n, const float *b, float *y)
{
    if (b)
        add_to_rows(rows, n, b, y);
    if (act == NN_RELU)
        positive_part(rows * n, y, y);
}

void nn_cpu_bias_gradient(size_t rows, size_t n, const float *dy, float *db)
{
    sum_rows(rows, n, dy, db);
}
