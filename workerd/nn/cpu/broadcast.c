// SPDX-License-Identifier: Apache-2.0
//
// Operators of two tensors where one may stand for all places along a dimension, and the sums over such dimensions.
// Neighbouring dimensions that are alike in both are one.
#include <string.h>

#include "workerd/nn/cpu/cpu.h"
#include "workerd/nn/cpu/lanes.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/penalty.h"

// ---- loops --------------------------------------------------------------------------------------------------------

// Of a line of n: both along it; b the same for all; a the same for all.
typedef void broadcast_loop(size_t n, const float *a, const float *b, float *y);

#define BINARY(name, value)                                                                           \
    static inline float broadcast_##name(float p, float q){value} PS_PER_CPU static void name##_both( \
        size_t n, const float *a, const float *b, float *y)                                           \
    {                                                                                                 \
        PS_ELEMENTWISE                                                                                \
        for (size_t i = 0; i < n; i++)                                                                \
            y[i] = broadcast_##name(a[i], b[i]);                                                      \
    }                                                                                                 \
    PS_PER_CPU static void name##_one_b(size_t n, const float *a, const float *b, float *y)           \
    {                                                                                                 \
        const float one = *b;                                                                         \
        PS_ELEMENTWISE                                                                                \
        for (size_t i = 0; i < n; i++)                                                                \
            y[i] = broadcast_##name(a[i], one);                                                       \
    }                                                                                                 \
    PS_PER_CPU static void name##_one_a(size_t n, const float *a, const float *b, float *y)           \
    {                                                                                                 \
        const float one = *a;                                                                         \
        PS_ELEMENTWISE                                                                                \
        for (size_t i = 0; i < n; i++)                                                                \
            y[i] = broadcast_##name(one, b[i]);                                                       \
    }

// clang-format off
BINARY(plus, return p + q;)
BINARY(minus, return p - q;)
BINARY(times, return p * q;)
BINARY(greater, const float m = q > p ? q : p; return q == q ? m : q;)
BINARY(lesser, const float m = q < p ? q : p; return q == q ? m : q;)
// clang-format on

#define LOOPS(name)                             \
    {                                           \
        name##_both, name##_one_b, name##_one_a \
    }
static broadcast_loop *const broadcast_loops[][3] = {
    [NN_B_ADD] = LOOPS(plus),        [NN_B_SUBTRACT] = LOOPS(minus), [NN_B_MULTIPLY] = LOOPS(times),
    [NN_B_MAXIMUM] = LOOPS(greater), [NN_B_MINIMUM] = LOOPS(lesser),
};

// ---- two tensors --------------------------------------------------------------------------------------------------

// y's dimensions, and of a and b the elements to the next place along each; 0 where one stands for all.
struct broadcast {
    int rank;
    size_t dim[NN_MAX_RANK], step[2][NN_MAX_RANK];
};

static bool broadcast_is_like(const struct broadcast *w, int k, int64_t dim, const struct nn_type *x, int i)
{
    return (w->step[k][w->rank - 1] == 0) == (x->dim[i] == 1 && dim > 1);
}

// First the steps are 1 or 0, then they are counted.
static void broadcast_start(struct broadcast *w, const struct nn_type *y, const struct nn_type *a,
                            const struct nn_type *b)
{
    const struct nn_type *const of[2] = {a, b};
    *w = (struct broadcast){.rank = 0};
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] == 1)
            continue;
        if (w->rank > 0 && broadcast_is_like(w, 0, y->dim[i], a, i) && broadcast_is_like(w, 1, y->dim[i], b, i)) {
            w->dim[w->rank - 1] *= (size_t)y->dim[i];
            continue;
        }
        for (int k = 0; k < 2; k++)
            w->step[k][w->rank] = of[k]->dim[i] > 1;
        w->dim[w->rank++] = (size_t)y->dim[i];
    }
    for (int k = 0; k < 2; k++) {
        size_t step = 1;
        for (int i = w->rank; i--;) {
            const bool along = w->step[k][i] != 0;
            w->step[k][i] = along ? step : 0;
            step *= along ? w->dim[i] : 1;
        }
    }
}

// Where line `line` of y, along the last dimension, begins in a or b.
static size_t broadcast_begin(const struct broadcast *w, int k, size_t line)
{
    size_t begin = 0;
    for (int i = w->rank - 1; i-- > 0; line /= w->dim[i])
        begin += line % w->dim[i] * w->step[k][i];
    return begin;
}

// Lines [first, last) of y, of n elements each. Those of the last dimension but one follow each other.
static void broadcast_lines(const struct nn_frame *f, const struct broadcast *w, size_t n, size_t first, size_t last)
{
    const enum nn_binary_kind kind = ((const struct nn_binary *)f->op->attr)->kind;
    const int end = w->rank - 1;
    const bool one_a = end >= 0 && w->step[0][end] == 0, one_b = end >= 0 && w->step[1][end] == 0;
    broadcast_loop *loop = broadcast_loops[kind][one_b ? 1 : one_a ? 2 : 0];
    const size_t run = end > 0 ? w->dim[end - 1] : 1;
    for (size_t line = first; line < last;) {
        const float *a = (const float *)f->in[0] + broadcast_begin(w, 0, line);
        const float *b = (const float *)f->in[1] + broadcast_begin(w, 1, line);
        for (size_t left = run - line % run; left > 0 && line < last; left--, line++) {
            loop(n, a, b, (float *)f->out[0] + line * n);
            a += end > 0 ? w->step[0][end - 1] : 0;
            b += end > 0 ? w->step[1][end - 1] : 0;
        }
    }
}

enum { PIECE = 1024 };  // elements of a line that is the whole tensor, which threads share by pieces

static void broadcast_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    struct broadcast w;
    broadcast_start(&w, &f->op->out_type[0], &f->op->in_type[0], &f->op->in_type[1]);
    if (w.rank > 1) {
        broadcast_lines(f, &w, w.dim[w.rank - 1], first, last);
        return;
    }
    const size_t n = nn_type_count(&f->op->out_type[0]), from = first * PIECE;
    const size_t to = last * PIECE < n ? last * PIECE : n;
    const bool along_a = w.rank > 0 && w.step[0][0] > 0, along_b = w.rank > 0 && w.step[1][0] > 0;
    const enum nn_binary_kind kind = ((const struct nn_binary *)f->op->attr)->kind;
    broadcast_loops[kind][w.rank == 0 || (along_a && along_b) ? 0
                          : along_a                           ? 1
                                    : 2](to - from, (const float *)f->in[0] + (along_a ? from : 0),
                                         (const float *)f->in[1] + (along_b ? from : 0), (float *)f->out[0] + from);
}

static void binary_run(const struct nn_frame *f)
{
    struct broadcast w;
    const size_t n = nn_type_count(&f->op->out_type[0]);
    broadcast_start(&w, &f->op->out_type[0], &f->op->in_type[0], &f->op->in_type[1]);
    if (w.rank > 1)
        nn_cpu_share(f->context, n / w.dim[w.rank - 1], nn_cpu_least(w.dim[w.rank - 1]), broadcast_part, (void *)f);
    else
        nn_cpu_share(f->context, (n + PIECE - 1) / PIECE, nn_cpu_least(PIECE), broadcast_part, (void *)f);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

PS_PER_CPU static double reduce_line(size_t n, const float *x)
{
    return nn_cpu_sum_lanes(n, x);
}

PS_PER_CPU static void reduce_rows(size_t rows, size_t n, const float *restrict x, float *restrict sum)
{
    memset(sum, 0, n * sizeof *sum);
    for (size_t r = 0; r < rows; r++, x += n)
        for (size_t i = 0; i < n; i++)
            sum[i] += x[i];
}

// x as (outer, over, inner), of which the middle is summed. False: there is more of it.
static bool reduce_find(const struct nn_op *op, size_t to[3])
{
    const struct nn_type *x = &op->in_type[0], *y = &op->out_type[0];
    int at = 0;
    to[0] = to[1] = to[2] = 1;
    for (int i = 0; i < x->rank; i++) {
        const bool over = x->dim[i] > 1 && y->dim[i] == 1;
        if (x->dim[i] == 1)
            continue;
        at += over ? at == 0 : at == 1;
        if (over && at == 2)
            return false;
        to[at] *= (size_t)x->dim[i];
    }
    return true;
}

static void reduce_part(void *arg, size_t first, size_t last)
{
    const struct nn_frame *f = arg;
    size_t n[3];
    reduce_find(f->op, n);
    for (size_t i = first; i < last; i++) {
        const float *x = (const float *)f->in[0] + i * n[1] * n[2];
        float *y = (float *)f->out[0] + i * n[2];
        if (n[2] == 1)
            *y = (float)reduce_line(n[1], x);
        else
            reduce_rows(n[1], n[2], x, y);
    }
}

static void reduce_run(const struct nn_frame *f)
{
    size_t n[3];
    if (!reduce_find(f->op, n))
        f->op->class->reference(f);
    else if (n[0] == 1 && n[2] > 1)
        nn_cpu_sum_rows(f->context, n[1], n[2], f->in[0], f->out[0]);
    else
        nn_cpu_share(f->context, n[0], nn_cpu_least(n[1] * n[2]), reduce_part, (void *)f);
}

// ---- one tensor ---------------------------------------------------------------------------------------------------

PS_PER_CPU static void affine_loop(size_t n, float scale, float offset, const float *x, float *y)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++)
        y[i] = scale * x[i] + offset;
}

static void affine_run(const struct nn_frame *f)
{
    const struct nn_affine *a = (const struct nn_affine *)f->op->attr;
    affine_loop(nn_type_count(&f->op->out_type[0]), a->scale, a->offset, f->in[0], f->out[0]);
}

// The sums of |x| and of its squares.
PS_PER_CPU static void penalty_sums(size_t n, const float *x, double *size, double *squares)
{
    enum { LANES = 16 };
    float a[LANES] = {0}, s[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (size_t i = 0; i < LANES; i++) {
            a[i] += __builtin_fabsf(x[at + i]);
            s[i] += x[at + i] * x[at + i];
        }
    for (size_t i = 0; at + i < n; i++) {
        a[i] += __builtin_fabsf(x[at + i]);
        s[i] += x[at + i] * x[at + i];
    }
    for (size_t i = 0; i < LANES; i++) {
        *size += (double)a[i];
        *squares += (double)s[i];
    }
}

static void penalty_run(const struct nn_frame *f)
{
    const struct nn_penalty *a = (const struct nn_penalty *)f->op->attr;
    const size_t n = nn_type_count(&f->op->in_type[0]);
    const float *x = f->in[0];
    double sum = f->op->n_in > 1 ? (double)*(const float *)f->in[1] : 0, size = 0, squares = 0;
    for (size_t i = 0; i < n; i += PIECE)
        penalty_sums(n - i < PIECE ? n - i : PIECE, x + i, &size, &squares);
    *(float *)f->out[0] = (float)(sum + (double)a->l1 * size + (double)a->l2 * squares);
}

PS_PER_CPU static void penalty_slope(size_t n, float l1, float l2, const float *x, float *dx)
{
    PS_ELEMENTWISE
    for (size_t i = 0; i < n; i++) {
        const float above = x[i] > 0 ? l1 : 0, sign = x[i] < 0 ? -l1 : above;
        dx[i] = sign + 2 * l2 * x[i];
    }
}

static void penalty_run_backward(const struct nn_frame *f)
{
    const struct nn_penalty *a = (const struct nn_penalty *)f->op->attr;
    const float by = *(const float *)f->in[1];
    penalty_slope(nn_type_count(&f->op->out_type[0]), by * (float)a->l1, by * (float)a->l2, f->in[0], f->out[0]);
}

const struct nn_kernel nn_cpu_affine = {.run = affine_run};
const struct nn_kernel nn_cpu_binary = {.run = binary_run};
const struct nn_kernel nn_cpu_penalty = {.run = penalty_run};
const struct nn_kernel nn_cpu_penalty_backward = {.run = penalty_run_backward};
const struct nn_kernel nn_cpu_reduce = {.run = reduce_run};
