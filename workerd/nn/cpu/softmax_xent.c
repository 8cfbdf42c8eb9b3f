// SPDX-License-Identifier: Apache-2.0
//
// Softmax and cross-entropy in one. What costs is exp: a polynomial over all classes of a row at once.
#include <math.h>
#include <string.h>

#include "workerd/nn/cpu/cpu.h"

// e^x for x <= 0 to within 2 units of the last place, 0 below -87, NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2;
// e^r by its series; 2^n through the exponent's bits.
static inline float exp_of_negative(float x)
{
    const float to_integer = 12582912;  // 1.5 * 2^23: added to a small number, its last bits are the nearest integer
    float t = x * 1.44269504f + to_integer, n = t - to_integer;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts
    float p = 1 + r * (1 + r * (1 / 2.0f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits << 23) + 0x3f800000;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87 ? 0 : p * power;
}

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
            part[i] = exp_of_negative(x[first + i] - max);
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

void nn_cpu_softmax_xent(int rows, int valid, int classes, const float *x, const int32_t *label, float *y, float *loss,
                         float *dx)
{
    for (int r = 0; r < valid; r++) {
        size_t at = (size_t)r * (size_t)classes;
        loss[r] = xent_row(classes, x + at, label[r], 1 / (float)valid, y ? y + at : NULL, dx ? dx + at : NULL);
    }
    if (dx)
        memset(dx + (size_t)valid * (size_t)classes, 0, (size_t)(rows - valid) * (size_t)classes * sizeof *dx);
}
