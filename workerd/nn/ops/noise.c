// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/noise.h"

#include <math.h>
#include <string.h>

#include "common/math/philox.h"
#include "workerd/nn/tape.h"

// ---- noise --------------------------------------------------------------------------------------------------------

static enum ps_code noise_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

// What is drawn does not depend on x: the same is drawn again for the gradient, but what is added has none.
static void noise_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    const struct nn_noise *a = (const struct nn_noise *)op->attr;
    (void)wanted;
    dx[0] = dy[0];
    if (a->kind != NN_NOISE_ADDED)
        nn_tape_put(t, &nn_op_noise, a, sizeof *a, (int[]){dy[0], op->in[1]}, 2, dx, 1);
}

static double noise_normal(const uint32_t word[4], size_t i)
{
    double radius = sqrt(-2 * log(1 - (double)ps_uniform(word[i & 2])));
    double angle = 2 * M_PI * (double)ps_uniform(word[(i & 2) + 1]);
    return radius * (i & 1 ? sin(angle) : cos(angle));
}

static nn_real noise_of(const struct nn_noise *a, const struct nn_step *step, uint64_t place, nn_real x)
{
    uint32_t word[4];
    ps_philox(step->seed, PS_RANDOM_DROPOUT, (uint64_t)a->layer << 32 | step->number, place / 4, word);
    if (a->kind == NN_NOISE_DROPS)
        return ps_uniform(word[place % 4]) >= a->amount ? x * (nn_real)(1 / (1 - a->amount)) : 0;
    nn_real d = (nn_real)((double)a->amount * noise_normal(word, place % 4));
    return a->kind == NN_NOISE_ADDED ? x + d : x * (1 + d);
}

// The place of element j of an example among what is drawn for that.
static uint64_t noise_place(const struct nn_noise *a, const struct nn_type *x, size_t j)
{
    uint64_t place = 0, step = 1;
    for (int i = x->rank; i-- > 1; j /= (size_t)x->dim[i]) {
        if (a->shared[i])
            continue;
        place += j % (size_t)x->dim[i] * step;
        step *= (uint64_t)x->dim[i];
    }
    return place;
}

static void noise_reference(const struct nn_frame *f)
{
    const struct nn_noise *a = (const struct nn_noise *)f->op->attr;
    const struct nn_type *type = &f->op->in_type[0];
    const nn_real *x = f->in[0];
    const uint64_t *example = f->in[1];
    nn_real *y = f->out[0];
    const size_t rows = (size_t)type->dim[0], per = nn_type_count(type) / rows;
    const uint64_t drawn = noise_place(a, type, per - 1) + 1;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < per; j++, x++, y++)
            *y = noise_of(a, f->step, example[r] * drawn + noise_place(a, type, j), *x);
}

// ---- flips --------------------------------------------------------------------------------------------------------

static enum ps_code flip_infer(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->in_type[0];
    return op->in_type[0].rank == 4 ? PS_OK : nn_op_fail(op, e, "expected images");
}

// What is turned round twice is as it was.
static void flip_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_flip, op->attr, sizeof(struct nn_flip), (int[]){dy[0], op->in[1]}, 2, dx, 1);
}

static void flip_image(const int64_t dim[3], bool horizontal, bool vertical, const nn_real *x, nn_real *y)
{
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t j = 0; j < dim[1]; j++, y += dim[2]) {
            const int64_t row = vertical ? dim[0] - 1 - i : i, column = horizontal ? dim[1] - 1 - j : j;
            memcpy(y, x + (row * dim[1] + column) * dim[2], (size_t)dim[2] * sizeof *y);
        }
}

static void flip_reference(const struct nn_frame *f)
{
    const struct nn_flip *a = (const struct nn_flip *)f->op->attr;
    const struct nn_type *type = &f->op->in_type[0];
    const uint64_t *example = f->in[1], stream = (uint64_t)a->layer << 32 | f->step->number;
    const size_t rows = (size_t)type->dim[0], per = nn_type_count(type) / rows;
    for (size_t r = 0; r < rows; r++) {
        uint32_t word[4];
        ps_philox(f->step->seed, PS_RANDOM_DROPOUT, stream, example[r], word);
        flip_image(type->dim + 1, a->horizontal && word[0] >> 31, a->vertical && word[1] >> 31,
                   (const nn_real *)f->in[0] + r * per, (nn_real *)f->out[0] + r * per);
    }
}

// ---- windows ------------------------------------------------------------------------------------------------------

static enum ps_code window_give(struct nn_op *op, const int in[2], const int out[2], struct ps_error *e)
{
    const struct nn_window *a = (const struct nn_window *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    op->out_type[0] = (struct nn_type){NN_FLOAT, 4, {x->dim[0], out[0], out[1], x->dim[3]}};
    if (x->rank != 4 || x->dim[1] != in[0] || x->dim[2] != in[1] || a->to[0] > a->from[0] || a->to[1] > a->from[1])
        return nn_op_fail(op, e, "expected images, and a window that is not larger");
    return PS_OK;
}

static enum ps_code window_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_window *a = (const struct nn_window *)op->attr;
    return window_give(op, a->from, a->to, e);
}

static enum ps_code window_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_window *a = (const struct nn_window *)op->attr;
    return window_give(op, a->to, a->from, e);
}

static void window_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted, int *dx)
{
    (void)wanted;
    nn_tape_put(t, &nn_op_window_backward, op->attr, sizeof(struct nn_window), (int[]){dy[0], op->in[1]}, 2, dx, 1);
}

// Copies between the window of image r and the whole of it.
static void window_copy(const struct nn_frame *f, size_t r, nn_real *whole, nn_real *part, bool out_of_it)
{
    const struct nn_window *a = (const struct nn_window *)f->op->attr;
    const uint64_t *example = f->in[1], stream = (uint64_t)a->layer << 32 | f->step->number;
    const size_t channels = (size_t)f->op->in_type[0].dim[3], width = (size_t)a->to[1] * channels;
    uint32_t word[4];
    size_t at[2];
    ps_philox(f->step->seed, PS_RANDOM_DROPOUT, stream, example[r], word);
    for (int k = 0; k < 2; k++)
        at[k] = (size_t)((uint64_t)word[k] * (uint64_t)(a->from[k] - a->to[k] + 1) >> 32);
    for (size_t i = 0; i < (size_t)a->to[0]; i++) {
        nn_real *row = whole + ((at[0] + i) * (size_t)a->from[1] + at[1]) * channels;
        memcpy(out_of_it ? part + i * width : row, out_of_it ? row : part + i * width, width * sizeof *row);
    }
}

static void window_run(const struct nn_frame *f, bool backward)
{
    const struct nn_window *a = (const struct nn_window *)f->op->attr;
    const size_t rows = (size_t)f->op->in_type[0].dim[0], channels = (size_t)f->op->in_type[0].dim[3];
    const size_t whole = (size_t)a->from[0] * (size_t)a->from[1] * channels;
    const size_t part = (size_t)a->to[0] * (size_t)a->to[1] * channels;
    nn_real *x = backward ? f->out[0] : (void *)f->in[0], *y = backward ? (void *)f->in[0] : f->out[0];
    if (backward)
        memset(x, 0, nn_type_bytes(&f->op->out_type[0]));
    for (size_t r = 0; r < rows; r++)
        window_copy(f, r, x + r * whole, y + r * part, !backward);
}

static void window_reference(const struct nn_frame *f)
{
    window_run(f, false);
}

static void window_reference_backward(const struct nn_frame *f)
{
    window_run(f, true);
}

// ---- constants ----------------------------------------------------------------------------------------------------

static enum ps_code constant_infer(struct nn_op *op, struct ps_error *e)
{
    (void)e;
    op->out_type[0] = (struct nn_type){NN_FLOAT, 1, {((const struct nn_constant *)op->attr)->n}};
    return PS_OK;
}

static void constant_reference(const struct nn_frame *f)
{
    const struct nn_constant *a = (const struct nn_constant *)f->op->attr;
    nn_real *y = f->out[0];
    for (int64_t i = 0; i < a->n; i++)
        y[i] = (nn_real)a->value[i];
}

const struct nn_op_class nn_op_noise = {.name = "noise",
                                        .infer = noise_infer,
                                        .differentiate = noise_differentiate,
                                        .reference = noise_reference,
                                        .in_place = 1 + 0,
                                        .draws = true};
const struct nn_op_class nn_op_flip = {.name = "flip",
                                       .infer = flip_infer,
                                       .differentiate = flip_differentiate,
                                       .reference = flip_reference,
                                       .draws = true};
const struct nn_op_class nn_op_window = {.name = "window",
                                         .infer = window_infer,
                                         .differentiate = window_differentiate,
                                         .reference = window_reference,
                                         .draws = true};
const struct nn_op_class nn_op_window_backward = {
    .name = "window_backward", .infer = window_infer_backward, .reference = window_reference_backward, .draws = true};
const struct nn_op_class nn_op_constant = {
    .name = "constant", .infer = constant_infer, .reference = constant_reference};
