// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/loss.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double CLIP = 1e-7;  // Keras's epsilon

// y = exp(x - max x), so that nothing overflows. Returns its sum. y may be NULL.
static double exp_shifted(int n, const nn_real *x, nn_real *y, double *max)
{
    *max = x[0];
    for (int i = 1; i < n; i++)
        *max = x[i] > *max ? x[i] : *max;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double v = exp(x[i] - *max);
        sum += v;
        if (y)
            y[i] = (nn_real)v;
    }
    return sum;
}

static void softmax_row(int n, const nn_real *x, nn_real *y)
{
    double max, sum = exp_shifted(n, x, y, &max);
    for (int i = 0; i < n; i++)
        y[i] = (nn_real)(y[i] / sum);
}

void nn_softmax_forward(int rows, int classes, const nn_real *x, nn_real *y)
{
    for (size_t r = 0; r < (size_t)rows; r++)
        softmax_row(classes, x + r * classes, y + r * classes);
}

// dy_j/dx_i = y_j * ([i = j] - y_i), so dx_i = y_i * (dy_i - sum_j dy_j * y_j).
void nn_softmax_backward(int rows, int classes, const nn_real *y, const nn_real *dy, nn_real *dx)
{
    for (int r = 0; r < rows; r++, y += classes, dy += classes, dx += classes) {
        double dot = 0;
        for (int i = 0; i < classes; i++)
            dot += (double)dy[i] * y[i];
        for (int i = 0; i < classes; i++)
            dx[i] = (nn_real)(y[i] * (dy[i] - dot));
    }
}

static void clear_padding(int rows, int valid, int per, nn_real *dx)
{
    if (dx)
        memset(dx + (size_t)valid * per, 0, (size_t)(rows - valid) * per * sizeof *dx);
}

// y and dx, each of which may be NULL, from e = exp(x - max x), whose sum is sum.
static nn_real softmax_xent_row(int n, const nn_real *x, int32_t label, double scale, nn_real *y, nn_real *dx)
{
    double max, sum = exp_shifted(n, x, NULL, &max);
    for (int i = 0; (y || dx) && i < n; i++) {
        double p = exp(x[i] - max) / sum;
        if (y)
            y[i] = (nn_real)p;
        if (dx)
            dx[i] = (nn_real)((i == label ? p - 1 : p) * scale);
    }
    return (nn_real)(log(sum) + max - x[label]);
}

void nn_softmax_xent(int rows, int valid, int classes, const nn_real *x, const int32_t *label, nn_real *y,
                     nn_real *loss, nn_real *dx)
{
    for (int r = 0; r < valid; r++) {
        size_t at = (size_t)r * classes;
        loss[r] = softmax_xent_row(classes, x + at, label[r], 1.0 / valid, y ? y + at : NULL, dx ? dx + at : NULL);
    }
    clear_padding(rows, valid, classes, dx);
}

static double xent_clip(nn_real p)
{
    return p < CLIP ? CLIP : p > 1 - CLIP ? 1 - CLIP : p;  // a NaN stays one
}

// With q = clip(p) and s = sum q: loss = log s - log q[label], d loss/d q_i = 1 / s - [i = label] / q_i.
static nn_real sparse_xent_row(int n, const nn_real *p, int32_t label, double scale, nn_real *dx)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += xent_clip(p[i]);
    for (int i = 0; dx && i < n; i++) {
        bool held = p[i] < CLIP || p[i] > 1 - CLIP;
        dx[i] = held ? 0 : (nn_real)((1 / sum - (i == label ? 1 / xent_clip(p[i]) : 0)) * scale);
    }
    return (nn_real)(log(sum) - log(xent_clip(p[label])));
}

void nn_sparse_xent(int rows, int valid, int classes, const nn_real *p, const int32_t *label, nn_real *loss,
                    nn_real *dx)
{
    for (int r = 0; r < valid; r++) {
        size_t at = (size_t)r * classes;
        loss[r] = sparse_xent_row(classes, p + at, label[r], 1.0 / valid, dx ? dx + at : NULL);
    }
    clear_padding(rows, valid, classes, dx);
}

// loss = mean_i (x_i - target_i)^2
void nn_mse(int rows, int valid, int per, const nn_real *x, const nn_real *target, nn_real *loss, nn_real *dx)
{
    double scale = 2.0 / ((double)per * valid);
    for (int r = 0; r < valid; r++) {
        double sum = 0;
        for (size_t i = (size_t)r * per; i < (size_t)(r + 1) * per; i++) {
            double d = (double)x[i] - target[i];
            sum += d * d;
            if (dx)
                dx[i] = (nn_real)(scale * d);
        }
        loss[r] = (nn_real)(sum / per);
    }
    clear_padding(rows, valid, per, dx);
}
