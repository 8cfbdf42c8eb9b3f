// SPDX-License-Identifier: Apache-2.0
//
// Max-pooling over NHWC, all channels of a pixel at once. oneDNN's own takes four times as long in this layout.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/cpu/cpu.h"

struct maxpool {
    struct nn_plan plan;
    struct nn_maxpool shape;
};

// The part of a window that lies inside the image: cells [y0, y1) x [x0, x1) of it, and pixel (0, 0) of the window,
// which may itself lie outside.
struct window {
    int y0, y1, x0, x1;
    ptrdiff_t origin;
};

static void maxpool_free(struct nn_plan *plan)
{
    free(plan);
}

enum ps_code nn_cpu_maxpool_plan(struct nn_context *ctx, const struct nn_maxpool *s, struct nn_plan **plan,
                                 struct ps_error *e)
{
    enum ps_code code = nn_maxpool_check(s, e);
    if (code)
        return code;
    struct maxpool *m = ps_alloc(sizeof *m);
    m->plan.ctx = ctx;
    m->plan.free = maxpool_free;
    m->shape = *s;
    *plan = &m->plan;
    return PS_OK;
}

static inline int at_least(int a, int b)
{
    return a > b ? a : b;
}

static inline int at_most(int a, int b)
{
    return a < b ? a : b;
}

static inline struct window window_at(const struct nn_maxpool *s, int n, int oy, int ox)
{
    int y = oy * s->sh - s->pad_top, x = ox * s->sw - s->pad_left;
    return (struct window){
        .y0 = at_least(0, -y),
        .y1 = at_most(s->ph, s->h - y),
        .x0 = at_least(0, -x),
        .x1 = at_most(s->pw, s->w - x),
        .origin = (((ptrdiff_t)n * s->h + y) * s->w + x) * s->c,
    };
}

// Takes cell k's pixel x (c) into the maximum so far, of which a NaN is one.
static inline void take_greater(int c, const float *restrict x, uint8_t k, float *restrict y, uint8_t *restrict at)
{
    for (int i = 0; i < c; i++) {
        uint8_t was = at[i];
        bool greater = !(x[i] <= y[i]) & (y[i] == y[i]);
        at[i] = greater ? k : was;
        y[i] = greater ? x[i] : y[i];
    }
}

PS_PER_CPU static void pool_row(const struct nn_maxpool *s, int n, int oy, const float *x, float *y, uint8_t *at)
{
    for (int ox = 0; ox < s->ow; ox++, y += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        ptrdiff_t first = w.origin + ((ptrdiff_t)w.y0 * s->w + w.x0) * s->c;
        memcpy(y, x + first, (size_t)s->c * sizeof *y);
        memset(at, w.y0 * s->pw + w.x0, (size_t)s->c);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                take_greater(s->c, x + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c, (uint8_t)(ky * s->pw + kx), y,
                             at);
    }
}

void nn_cpu_maxpool_forward(struct nn_plan *p, const float *x, float *y, uint8_t *at)
{
    const struct nn_maxpool *s = &((struct maxpool *)p)->shape;
    size_t row = (size_t)s->ow * s->c;
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++, y += row, at += row)
            pool_row(s, n, oy, x, y, at);
}

// Gives cell k's pixel dx (c) the gradient of the channels whose maximum it was.
static inline void give_back(int c, const float *restrict dy, const uint8_t *restrict at, uint8_t k, float *restrict dx)
{
    for (int i = 0; i < c; i++)
        dx[i] += at[i] == k ? dy[i] : 0;
}

PS_PER_CPU static void unpool_row(const struct nn_maxpool *s, int n, int oy, const float *dy, const uint8_t *at,
                                  float *dx)
{
    for (int ox = 0; ox < s->ow; ox++, dy += s->c, at += s->c) {
        struct window w = window_at(s, n, oy, ox);
        for (int ky = w.y0; ky < w.y1; ky++)
            for (int kx = w.x0; kx < w.x1; kx++)
                give_back(s->c, dy, at, (uint8_t)(ky * s->pw + kx), dx + w.origin + ((ptrdiff_t)ky * s->w + kx) * s->c);
    }
}

void nn_cpu_maxpool_backward(struct nn_plan *p, const float *dy, const uint8_t *at, float *dx)
{
    const struct nn_maxpool *s = &((struct maxpool *)p)->shape;
    size_t row = (size_t)s->ow * s->c;
    memset(dx, 0, (size_t)s->n * s->h * s->w * s->c * sizeof *dx);
    for (int n = 0; n < s->n; n++)
        for (int oy = 0; oy < s->oh; oy++, dy += row, at += row)
            unpool_row(s, n, oy, dy, at, dx);
}
