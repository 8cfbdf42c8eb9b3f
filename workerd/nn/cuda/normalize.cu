// SPDX-License-Identifier: Apache-2.0
//
// Batch, layer and group normalization. x is an array of four axes; means are taken over the elements of a statistic,
// the gradients of gamma and beta over those of a parameter: each is a set of lines of numbers (struct lines_along),
// which are summed in parts, then the parts.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/normalize.h"

// ---- places -------------------------------------------------------------------------------------------------------

struct normalize_place {
    size_t statistic, parameter;
};

// The axes as sizes, and what normalize needs at each element.
struct normalizer {
    size_t dim[NN_NORMALIZE_AXES];
    size_t statistic[NN_NORMALIZE_AXES], parameter[NN_NORMALIZE_AXES];  // from one place along the axis to the next
    float epsilon;
    bool relu;
    const float *mean, *variance, *gamma, *beta;  // gamma and beta: NULL where there are none
};

static __device__ struct normalize_place place_of(const struct normalizer &a, size_t element)
{
    struct normalize_place p = {0, 0};
    for (int i = NN_NORMALIZE_AXES - 1; i >= 0; i--) {
        if (a.dim[i] == 1)
            continue;
        const size_t rest = nn_cuda_quotient(element, a.dim[i]), at = element - rest * a.dim[i];
        p.statistic += at * a.statistic[i];
        p.parameter += at * a.parameter[i];
        element = rest;
    }
    return p;
}

static __device__ float inverse_of(const struct normalizer &a, size_t statistic)
{
    return 1 / sqrtf(a.variance[statistic] + a.epsilon);
}

static __device__ float gamma_of(const struct normalizer &a, size_t parameter)
{
    return a.gamma ? a.gamma[parameter] : 1;
}

static __device__ float beta_of(const struct normalizer &a, size_t parameter)
{
    return a.beta ? a.beta[parameter] : 0;
}

static void normalizer_steps(const struct nn_normalize *a, const bool *along, size_t step[NN_NORMALIZE_AXES])
{
    size_t n = 1;
    for (int i = NN_NORMALIZE_AXES; i--;) {
        step[i] = along[i] ? n : 0;
        n *= along[i] ? (size_t)a->dim[i] : 1;
    }
}

static struct normalizer normalizer_of(const struct nn_normalize *a, const float *mean, const float *variance,
                                       const float *gamma, const float *beta)
{
    struct normalizer n = {};
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        n.dim[i] = (size_t)a->dim[i];
    normalizer_steps(a, a->statistic, n.statistic);
    normalizer_steps(a, a->parameter, n.parameter);
    n.epsilon = a->epsilon;
    n.relu = a->act == NN_RELU;
    n.mean = mean;
    n.variance = variance;
    n.gamma = gamma;
    n.beta = beta;
    return n;
}

// ---- lines --------------------------------------------------------------------------------------------------------

// For each place along some axes, the elements at all places along the others; axes next to each other that are alike
// are one. `columns`: a line is a column of a matrix.
struct lines_along {
    size_t lines, n;
    int kept, summed;                                                  // how many axes
    size_t kept_dim[NN_NORMALIZE_AXES], kept_step[NN_NORMALIZE_AXES];  // from the last axis
    size_t summed_dim[NN_NORMALIZE_AXES], summed_step[NN_NORMALIZE_AXES];
    bool columns;
    unsigned parts;  // of a line
};

static __device__ size_t line_place(int axes, const size_t *dim, const size_t *step, size_t i)
{
    size_t at = 0;
    for (int k = 0; k + 1 < axes; k++) {
        const size_t rest = nn_cuda_quotient(i, dim[k]);
        at += (i - rest * dim[k]) * step[k];
        i = rest;
    }
    return axes > 0 ? at + i * step[axes - 1] : 0;
}

// One more axis before those there are.
static void lines_push(int *axes, size_t *dim, size_t *step, size_t size, size_t by, bool joins)
{
    if (joins) {
        dim[*axes - 1] *= size;
        return;
    }
    dim[*axes] = size;
    step[(*axes)++] = by;
}

enum { LINE_COLUMNS = 32, LINE_ROWS = 8, LINES_BLOCKS = 1024, LINES_OF_PART = 256 };

// As many parts as keep a GPU busy, and none of few elements.
static unsigned lines_parts(const struct lines_along *l)
{
    const size_t blocks = l->columns ? (l->lines + LINE_COLUMNS - 1) / LINE_COLUMNS : l->lines;
    const size_t useful = l->n / LINES_OF_PART, wanted = blocks < LINES_BLOCKS ? (size_t)LINES_BLOCKS / blocks : 1;
    const size_t parts = useful < wanted ? useful : wanted;
    return parts ? (unsigned)parts : 1;
}

static struct lines_along lines_of(const struct nn_normalize *a, const bool *along)
{
    struct lines_along l = {};
    size_t step = 1;
    int before = -1;  // was the axis behind this one kept?
    l.lines = l.n = 1;
    for (int i = NN_NORMALIZE_AXES; i--; step *= (size_t)a->dim[i]) {
        const size_t dim = (size_t)a->dim[i];
        if (dim == 1)
            continue;
        if (along[i])
            lines_push(&l.kept, l.kept_dim, l.kept_step, dim, step, before == 1);
        else
            lines_push(&l.summed, l.summed_dim, l.summed_step, dim, step, before == 0);
        *(along[i] ? &l.lines : &l.n) *= dim;
        before = along[i];
    }
    l.columns = l.kept == 1 && l.summed == 1 && l.kept_step[0] == 1 && l.lines >= LINE_COLUMNS / 2;
    l.parts = lines_parts(&l);
    return l;
}

// Two sums of each line, part by part: to (parts, lines).
struct two_sums {
    float a, b;
};

struct two_plus {
    static __device__ struct two_sums of(const struct two_sums &x, const struct two_sums &y)
    {
        const struct two_sums sum = {x.a + y.a, x.b + y.b};
        return sum;
    }
};

// Of::at(normalizer, x, dy, element): what is added to the two sums. Shared memory of a size that the launch gives: a
// template's own is not shared where the GPU is emulated.
template <class Of>
static __global__ void sum_columns(struct lines_along l, struct normalizer a, const float *x, const float *dy,
                                   struct two_sums *to)
{
    NN_CUDA_SHARED(struct two_sums, part);
    const size_t column = (size_t)blockIdx.x * LINE_COLUMNS + threadIdx.x;
    struct two_sums sum = {0, 0};
    for (size_t j = blockIdx.y * LINE_ROWS + threadIdx.y; column < l.lines && j < l.n; j += gridDim.y * LINE_ROWS)
        sum = two_plus::of(sum, Of::at(a, x, dy, j * l.summed_step[0] + column));
    part[threadIdx.y * LINE_COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= l.lines)
        return;
    for (int k = 1; k < LINE_ROWS; k++)
        sum = two_plus::of(sum, part[k * LINE_COLUMNS + threadIdx.x]);
    to[blockIdx.y * l.lines + column] = sum;
}

template <class Of>
static __global__ void sum_lines(size_t lines, struct lines_along l, struct normalizer a, const float *x,
                                 const float *dy, struct two_sums *to)
{
    NN_CUDA_SHARED(float, part);
    const size_t k = nn_cuda_line();
    struct two_sums sum = {0, 0};
    if (k >= lines)
        return;
    const size_t first = line_place(l.kept, l.kept_dim, l.kept_step, k);
    for (size_t j = blockIdx.y * blockDim.x + threadIdx.x; j < l.n; j += gridDim.y * blockDim.x)
        sum = two_plus::of(sum, Of::at(a, x, dy, first + line_place(l.summed, l.summed_dim, l.summed_step, j)));
    sum.a = nn_cuda_team_sum(sum.a, part);
    sum.b = nn_cuda_team_sum(sum.b, part);
    if (threadIdx.x == 0)
        to[blockIdx.y * lines + k] = sum;
}

static __global__ void sum_parts_of_lines(size_t lines, unsigned parts, const struct two_sums *from, float scale,
                                          float *a, float *b)
{
    NN_CUDA_EACH(k, lines)
    {
        struct two_sums sum = from[k];
        for (unsigned p = 1; p < parts; p++)
            sum = two_plus::of(sum, from[p * lines + k]);
        if (a)
            a[k] = sum.a * scale;
        if (b)
            b[k] = sum.b * scale;
    }
}

// What a plan reserves: the sums of parts, then two numbers for each line.
static size_t lines_bytes(const struct lines_along *l)
{
    return l->lines * l->parts * sizeof(struct two_sums);
}

// The two sums of each line times scale, to a and b, of which one may be NULL.
template <class Of>
static void sum_of_lines(struct nn_context *c, const struct lines_along *l, const struct normalizer *n, const float *x,
                         const float *dy, float scale, float *a, float *b)
{
    struct two_sums *const sums = (struct two_sums *)c->scratch;
    if (l->columns) {
        const dim3 grid((unsigned)((l->lines + LINE_COLUMNS - 1) / LINE_COLUMNS), l->parts);
        NN_CUDA_RUN(c, (sum_columns<Of>), grid, dim3(LINE_COLUMNS, LINE_ROWS),
                    LINE_ROWS * LINE_COLUMNS * sizeof(struct two_sums), *l, *n, x, dy, sums);
    } else {
        const dim3 team = l->parts > 1 ? dim3(NN_CUDA_TEAM_MOST) : nn_cuda_team(l->lines, l->n, 1);
        const dim3 grid(nn_cuda_teams(l->lines, team), l->parts);
        NN_CUDA_RUN(c, (sum_lines<Of>), grid, team, NN_CUDA_PARTS * sizeof(float), l->lines, *l, *n, x, dy, sums);
    }
    NN_CUDA_RUN_EACH(c, sum_parts_of_lines, l->lines, l->parts, (const struct two_sums *)sums, scale, a, b);
}

// ---- forward ------------------------------------------------------------------------------------------------------

struct of_x {
    static __device__ struct two_sums at(const struct normalizer &, const float *x, const float *, size_t i)
    {
        const struct two_sums s = {x[i], 0};
        return s;
    }
};

// Of the distance from the mean, which is known.
struct of_squares {
    static __device__ struct two_sums at(const struct normalizer &a, const float *x, const float *, size_t i)
    {
        const float d = x[i] - a.mean[place_of(a, i).statistic];
        const struct two_sums s = {d * d, 0};
        return s;
    }
};

static __global__ void put_normalized(size_t n, struct normalizer a, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const struct normalize_place p = place_of(a, i);
        const float hat = (x[i] - a.mean[p.statistic]) * inverse_of(a, p.statistic);
        const float v = hat * gamma_of(a, p.parameter) + beta_of(a, p.parameter);
        y[i] = a.relu && v < 0 ? 0 : v;
    }
}

static const struct nn_normalize *normalize_of(const struct nn_op *op)
{
    return (const struct nn_normalize *)(const void *)op->attr;
}

static enum ps_code cuda_normalize_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    const struct lines_along l = lines_of(normalize_of(op), normalize_of(op)->statistic);
    (void)plan;
    return nn_cuda_reserve(c, lines_bytes(&l), e);
}

// n has the mean that this finds.
static void cuda_find_moments(const struct nn_frame *f, const struct normalizer *n, float *mean, float *variance)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct lines_along l = lines_of(a, a->statistic);
    const float *x = nn_cuda_in(f, 0);
    sum_of_lines<of_x>(f->context, &l, n, x, NULL, 1 / (float)l.n, mean, NULL);
    sum_of_lines<of_squares>(f->context, &l, n, x, NULL, 1 / (float)l.n, variance, NULL);
}

static void cuda_moments_run(const struct nn_frame *f)
{
    const struct normalizer n = normalizer_of(normalize_of(f->op), nn_cuda_out(f, 0), NULL, NULL, NULL);
    cuda_find_moments(f, &n, nn_cuda_out(f, 0), nn_cuda_out(f, 1));
}

static void cuda_normalize_run(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n =
        normalizer_of(a, nn_cuda_out(f, 1), nn_cuda_out(f, 2), a->scale ? nn_cuda_in(f, 1) : NULL,
                      a->center ? nn_cuda_in(f, 1 + a->scale) : NULL);
    const float *x = nn_cuda_in(f, 0);
    cuda_find_moments(f, &n, nn_cuda_out(f, 1), nn_cuda_out(f, 2));
    NN_CUDA_RUN_EACH(f->context, put_normalized, nn_type_count(&f->op->in_type[0]), n, x, nn_cuda_out(f, 0));
}

static void cuda_normalize_by_run(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n = normalizer_of(a, nn_cuda_in(f, 1), nn_cuda_in(f, 2), a->scale ? nn_cuda_in(f, 3) : NULL,
                                              a->center ? nn_cuda_in(f, 3 + a->scale) : NULL);
    NN_CUDA_RUN_EACH(f->context, put_normalized, nn_type_count(&f->op->in_type[0]), n, nn_cuda_in(f, 0),
                     nn_cuda_out(f, 0));
}

// ---- backward -----------------------------------------------------------------------------------------------------

// An element of the backward pass: the normalized x, and the gradient by what is before the activation.
struct normalize_slope {
    float hat, dy;
};

static __device__ struct normalize_slope slope_at(const struct normalizer &a, const struct normalize_place &p,
                                                  const float *x, const float *dy, size_t i)
{
    const float hat = (x[i] - a.mean[p.statistic]) * inverse_of(a, p.statistic);
    const bool on = !a.relu || hat * gamma_of(a, p.parameter) + beta_of(a, p.parameter) > 0;
    const struct normalize_slope s = {hat, on ? dy[i] : 0};
    return s;
}

// g = dy gamma, and g times the normalized x.
struct of_slopes {
    static __device__ struct two_sums at(const struct normalizer &a, const float *x, const float *dy, size_t i)
    {
        const struct normalize_place p = place_of(a, i);
        const struct normalize_slope v = slope_at(a, p, x, dy, i);
        const float g = v.dy * gamma_of(a, p.parameter);
        const struct two_sums s = {g, g * v.hat};
        return s;
    }
};

// The gradients of gamma and beta.
struct of_parameters {
    static __device__ struct two_sums at(const struct normalizer &a, const float *x, const float *dy, size_t i)
    {
        const struct normalize_slope v = slope_at(a, place_of(a, i), x, dy, i);
        const struct two_sums s = {v.dy * v.hat, v.dy};
        return s;
    }
};

// With h the normalized x and means over the elements of a statistic: dx = (g - mean(g) - h mean(g h)) / sqrt(variance
// + epsilon).
static __global__ void put_slopes(size_t n, struct normalizer a, const float *mean_g, const float *mean_gh,
                                  const float *x, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct normalize_place p = place_of(a, i);
        const struct normalize_slope v = slope_at(a, p, x, dy, i);
        const float g = v.dy * gamma_of(a, p.parameter);
        dx[i] = (g - mean_g[p.statistic] - v.hat * mean_gh[p.statistic]) * inverse_of(a, p.statistic);
    }
}

// Behind the sums of parts, in the scratch memory: the means of g and of g h.
static size_t normalize_means_at(const struct nn_normalize *a)
{
    const struct lines_along s = lines_of(a, a->statistic), p = lines_of(a, a->parameter);
    const size_t by_statistic = lines_bytes(&s), by_parameter = lines_bytes(&p);
    return by_statistic > by_parameter ? by_statistic : by_parameter;
}

static enum ps_code cuda_normalize_plan_backward(struct nn_context *c, const struct nn_op *op, void **plan,
                                                 struct ps_error *e)
{
    const struct nn_normalize *a = normalize_of(op);
    const size_t statistics = nn_type_count(&op->in_type[1]);
    (void)plan;
    return nn_cuda_reserve(c, normalize_means_at(a) + 2 * statistics * sizeof(float), e);
}

static void cuda_normalize_run_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct lines_along l = lines_of(a, a->statistic), p = lines_of(a, a->parameter);
    const struct normalizer n = normalizer_of(a, nn_cuda_in(f, 1), nn_cuda_in(f, 2), a->scale ? nn_cuda_in(f, 4) : NULL,
                                              a->center && a->act == NN_RELU ? nn_cuda_in(f, 4 + a->scale) : NULL);
    const float *x = nn_cuda_in(f, 0), *dy = nn_cuda_in(f, 3);
    float *const mean_g = (float *)(void *)((char *)f->context->scratch + normalize_means_at(a));
    float *const mean_gh = mean_g + l.lines;
    if (a->scale || a->center)
        sum_of_lines<of_parameters>(f->context, &p, &n, x, dy, 1, a->scale ? nn_cuda_out(f, 1) : NULL,
                                    a->center ? nn_cuda_out(f, 1 + a->scale) : NULL);
    sum_of_lines<of_slopes>(f->context, &l, &n, x, dy, 1 / (float)l.n, mean_g, mean_gh);
    NN_CUDA_RUN_EACH(f->context, put_slopes, nn_type_count(&f->op->in_type[0]), n, (const float *)mean_g,
                     (const float *)mean_gh, x, dy, nn_cuda_out(f, 0));
}

static __global__ void put_slopes_by(size_t n, struct normalizer a, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct normalize_place p = place_of(a, i);
        dx[i] = dy[i] * gamma_of(a, p.parameter) * inverse_of(a, p.statistic);
    }
}

static void cuda_normalize_by_run_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n = normalizer_of(a, NULL, nn_cuda_in(f, 0), a->scale ? nn_cuda_in(f, 2) : NULL, NULL);
    NN_CUDA_RUN_EACH(f->context, put_slopes_by, nn_type_count(&f->op->in_type[1]), n, nn_cuda_in(f, 1),
                     nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_normalize = {cuda_normalize_plan, cuda_normalize_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_backward = {cuda_normalize_plan_backward, cuda_normalize_run_backward, NULL,
                                                     NULL};
const struct nn_kernel nn_cuda_moments = {cuda_normalize_plan, cuda_moments_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_by = {NULL, cuda_normalize_by_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_by_backward = {NULL, cuda_normalize_by_run_backward, NULL, NULL};
