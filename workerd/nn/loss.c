// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/loss.h"

#include <math.h>
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

// -log softmax(x)[label]; its gradient is softmax(x) - onehot(label).
static nn_real xent_logits(int n, const nn_real *x, int32_t label, double scale, nn_real *dx)
{
    double max, sum = exp_shifted(n, x, dx, &max);
    if (dx) {
        for (int i = 0; i < n; i++)
            dx[i] = (nn_real)(dx[i] / sum * scale);
        dx[label] -= (nn_real)scale;
    }
    return (nn_real)(log(sum) + max - x[label]);
}

// -log clip(p[label]); where the clip holds p fast there is no gradient.
static nn_real xent_probabilities(int n, const nn_real *p, int32_t label, double scale, nn_real *dx)
{
    double clipped = fmin(fmax(p[label], CLIP), 1 - CLIP);
    if (dx) {
        memset(dx, 0, (size_t)n * sizeof *dx);
        if (p[label] >= CLIP && p[label] <= 1 - CLIP)
            dx[label] = (nn_real)(-scale / clipped);
    }
    return (nn_real)-log(clipped);
}

void nn_sparse_xent(int rows, int valid, int classes, int from_logits, const nn_real *x, const int32_t *label,
                    nn_real *loss, nn_real *dx)
{
    for (int r = 0; r < valid; r++) {
        const nn_real *row = x + (size_t)r * classes;
        nn_real *gradient = dx ? dx + (size_t)r * classes : NULL;
        loss[r] = from_logits ? xent_logits(classes, row, label[r], 1.0 / valid, gradient)
                              : xent_probabilities(classes, row, label[r], 1.0 / valid, gradient);
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
