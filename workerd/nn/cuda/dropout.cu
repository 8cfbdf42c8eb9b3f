// SPDX-License-Identifier: Apache-2.0
//
// What is drawn at random: dropout, noise, flips and windows. The same numbers as ops/dropout.c and ops/noise.c draw.
#include "common/math/philox.h"
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/noise.h"

// Whose numbers: all but the place.
struct draws {
    uint64_t seed, stream;
};

static __device__ struct draws draws_of(const struct nn_step *step, uint32_t layer)
{
    const struct draws d = {step->seed, (uint64_t)layer << 32 | step->number};
    return d;
}

static __device__ void draw_words(const struct draws &d, uint64_t place, uint32_t word[4])
{
    ps_philox(d.seed, PS_RANDOM_DROPOUT, d.stream, place, word);
}

static const uint64_t *examples_of(const struct nn_frame *f)
{
    return (const uint64_t *)f->in[1];
}

// ---- dropout ------------------------------------------------------------------------------------------------------

// Four numbers are drawn at once: a thread has the elements, up to four, of a row to which they belong. The first and
// the last four of a row may be another row's, too.
static __global__ void drop_out(size_t n, const struct nn_step *step, uint32_t layer, size_t groups, uint64_t per,
                                float rate, float scale, const uint64_t *example, const float *x, float *y)
{
    const struct draws d = draws_of(step, layer);
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, groups);
        const uint64_t first = example[row] * per, four = first / 4 + (i - row * groups);
        uint32_t word[4];
        draw_words(d, four, word);
        for (uint64_t k = 0; k < 4; k++) {
            const uint64_t j = four * 4 + k - first;  // before the row's first, it is huge
            if (j < per)
                y[row * per + j] = ps_uniform(word[k]) >= rate ? x[row * per + j] * scale : 0;
        }
    }
}

static void cuda_dropout_run(const struct nn_frame *f)
{
    const struct nn_dropout *a = nn_cuda_attr<nn_dropout>(f);
    const size_t rows = (size_t)f->op->in_type[0].dim[0], per = nn_type_count(&f->op->in_type[0]) / rows;
    const size_t groups = (per + 6) / 4;
    NN_CUDA_RUN_EACH(f->context, drop_out, rows * groups, f->step, a->layer, groups, per, a->rate,
                     (float)(1 / (1 - a->rate)), examples_of(f), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

// ---- noise --------------------------------------------------------------------------------------------------------

struct noise_shape {
    int rank;
    size_t dim[NN_MAX_RANK];
    bool shared[NN_MAX_RANK];
    size_t per;
    uint64_t drawn;  // of an example
};

// The place of element j of an example among what is drawn for that.
static __device__ uint64_t noise_place(const struct noise_shape &s, size_t j)
{
    uint64_t place = 0, step = 1;
    for (int i = s.rank - 1; i > 0; i--) {
        const size_t rest = nn_cuda_quotient(j, s.dim[i]);
        if (!s.shared[i]) {
            place += (j - rest * s.dim[i]) * step;
            step *= s.dim[i];
        }
        j = rest;
    }
    return place;
}

// Box and Muller's, two of two.
static __device__ float noise_normal(const uint32_t word[4], size_t i)
{
    const float radius = sqrtf(-2 * logf(1 - ps_uniform(word[i & 2])));
    const float angle = 2 * ps_uniform(word[(i & 2) + 1]);
    return radius * (i & 1 ? sinpif(angle) : cospif(angle));
}

static __device__ float noise_of(const struct nn_noise &a, float scale, const uint32_t word[4], size_t i, float x)
{
    if (a.kind == nn_noise::NN_NOISE_DROPS)
        return ps_uniform(word[i]) >= a.amount ? x * scale : 0;
    const float z = a.amount * noise_normal(word, i);
    return a.kind == nn_noise::NN_NOISE_ADDED ? x + z : x * (1 + z);
}

static __global__ void add_noise(size_t n, const struct nn_step *step, struct nn_noise a, struct noise_shape s,
                                 float scale, const uint64_t *example, const float *x, float *y)
{
    const struct draws d = draws_of(step, a.layer);
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, s.per);
        const uint64_t place = example[row] * s.drawn + noise_place(s, i - row * s.per);
        uint32_t word[4];
        draw_words(d, place / 4, word);
        y[i] = noise_of(a, scale, word, place % 4, x[i]);
    }
}

static struct noise_shape noise_shape_of(const struct nn_type *x, const struct nn_noise *a)
{
    struct noise_shape s = {};
    s.rank = x->rank;
    s.per = nn_type_count(x) / (size_t)x->dim[0];
    s.drawn = 1;
    for (int i = 0; i < x->rank; i++) {
        s.dim[i] = (size_t)x->dim[i];
        s.shared[i] = a->shared[i];
        s.drawn *= i > 0 && !a->shared[i] ? s.dim[i] : 1;
    }
    return s;
}

static void cuda_noise_run(const struct nn_frame *f)
{
    const struct nn_noise *a = nn_cuda_attr<nn_noise>(f);
    NN_CUDA_RUN_EACH(f->context, add_noise, nn_type_count(&f->op->in_type[0]), f->step, *a,
                     noise_shape_of(&f->op->in_type[0], a), (float)(1 / (1 - a->amount)), examples_of(f),
                     nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

// ---- flips, windows -----------------------------------------------------------------------------------------------
//
// A team for each row of pixels.

struct images {
    size_t h, w, c;
};

static __global__ void flip_images(size_t lines, const struct nn_step *step, struct nn_flip a, struct images m,
                                   const uint64_t *example, const float *x, float *y)
{
    const size_t k = nn_cuda_line(), image = k / m.h, row = k - image * m.h;
    uint32_t word[4];
    if (k >= lines)
        return;
    draw_words(draws_of(step, a.layer), example[image], word);
    const bool across = a.horizontal && word[0] >> 31, down = a.vertical && word[1] >> 31;
    const size_t from = (image * m.h + (down ? m.h - 1 - row : row)) * m.w * m.c;
    NN_CUDA_TEAM_EACH(j, m.w * m.c)
    {
        const size_t pixel = nn_cuda_quotient(j, m.c);
        y[k * m.w * m.c + j] = x[from + (across ? (m.w - 1 - pixel) * m.c + (j - pixel * m.c) : j)];
    }
}

static void cuda_flip_run(const struct nn_frame *f)
{
    const struct nn_flip *a = nn_cuda_attr<nn_flip>(f);
    const int64_t *dim = f->op->in_type[0].dim;
    const struct images m = {(size_t)dim[1], (size_t)dim[2], (size_t)dim[3]};
    const size_t lines = (size_t)dim[0] * m.h;
    NN_CUDA_RUN_TEAMS(f->context, flip_images, nn_cuda_team(lines, m.w * m.c, 1), lines, f->step, *a, m, examples_of(f),
                      nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

// Where the window of an example begins along an axis.
static __device__ size_t window_begin(const struct nn_window &a, const uint32_t word[4], int axis)
{
    return (size_t)((uint64_t)word[axis] * (uint64_t)(a.from[axis] - a.to[axis] + 1) >> 32);
}

// Rows of the windows: y from x.
static __global__ void copy_windows(size_t lines, const struct nn_step *step, struct nn_window a, size_t c,
                                    const uint64_t *example, const float *x, float *y)
{
    const size_t k = nn_cuda_line(), h = (size_t)a.to[0], width = (size_t)a.to[1] * c, image = k / h;
    uint32_t word[4];
    if (k >= lines)
        return;
    draw_words(draws_of(step, a.layer), example[image], word);
    const size_t row = image * (size_t)a.from[0] + window_begin(a, word, 0) + (k - image * h);
    const size_t from = (row * (size_t)a.from[1] + window_begin(a, word, 1)) * c;
    NN_CUDA_TEAM_EACH(j, width)
    y[k * width + j] = x[from + j];
}

// Rows of the images: dx from dy where the window is, 0 elsewhere.
static __global__ void copy_windows_back(size_t lines, const struct nn_step *step, struct nn_window a, size_t c,
                                         const uint64_t *example, const float *dy, float *dx)
{
    const size_t k = nn_cuda_line(), h = (size_t)a.from[0], width = (size_t)a.from[1] * c, image = k / h;
    uint32_t word[4];
    if (k >= lines)
        return;
    draw_words(draws_of(step, a.layer), example[image], word);
    // Before the window's first, both are huge.
    const size_t row = k - image * h - window_begin(a, word, 0), first = window_begin(a, word, 1) * c;
    const size_t part = (size_t)a.to[1] * c, from = (image * (size_t)a.to[0] + row) * part;
    NN_CUDA_TEAM_EACH(j, width)
    dx[k * width + j] = row < (size_t)a.to[0] && j - first < part ? dy[from + (j - first)] : 0;
}

static void cuda_window_run(const struct nn_frame *f)
{
    const struct nn_window *a = nn_cuda_attr<nn_window>(f);
    const int64_t *dim = f->op->out_type[0].dim;
    const size_t lines = (size_t)(dim[0] * dim[1]), c = (size_t)dim[3];
    NN_CUDA_RUN_TEAMS(f->context, copy_windows, nn_cuda_team(lines, (size_t)dim[2] * c, 1), lines, f->step, *a, c,
                      examples_of(f), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

static void cuda_window_run_backward(const struct nn_frame *f)
{
    const struct nn_window *a = nn_cuda_attr<nn_window>(f);
    const int64_t *dim = f->op->out_type[0].dim;
    const size_t lines = (size_t)(dim[0] * dim[1]), c = (size_t)dim[3];
    NN_CUDA_RUN_TEAMS(f->context, copy_windows_back, nn_cuda_team(lines, (size_t)dim[2] * c, 1), lines, f->step, *a, c,
                      examples_of(f), nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_dropout = {NULL, cuda_dropout_run, NULL, NULL};
const struct nn_kernel nn_cuda_noise = {NULL, cuda_noise_run, NULL, NULL};
const struct nn_kernel nn_cuda_flip = {NULL, cuda_flip_run, NULL, NULL};
const struct nn_kernel nn_cuda_window = {NULL, cuda_window_run, NULL, NULL};
const struct nn_kernel nn_cuda_window_backward = {NULL, cuda_window_run_backward, NULL, NULL};
