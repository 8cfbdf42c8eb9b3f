// SPDX-License-Identifier: Apache-2.0
//
// Batch, layer and group normalization. x is an array of four axes; means are taken over the elements of a statistic,
// the gradients of gamma and beta over those of a parameter: each is a set of lines of numbers (struct lines_along),
// which are summed in parts, then the parts: one pass over x, one over x and dy. Where statistics and parameters are
// the columns of one matrix, as batch normalization has them with channels last, those are also the gradients' sums,
// and threads keep what belongs to their columns (columns.h).
#include "workerd/nn/cuda/normalizer_sums.h"

// ---- what is put --------------------------------------------------------------------------------------------------

// Each of these gives the j-th of N elements side by side.
template <int N> struct normalized {
    enum { WIDTH = N };
    norms<N> norm;

    __device__ normalized(const struct normalizer &a, const struct normalize_place &p) : norm(a, p)
    {
    }
    __device__ float at(int j, float x, float) const
    {
        const float v = norm.of_hat(j, norm.hat(j, x));
        return norm.relu && v < 0 ? 0 : v;
    }
};

// With h the normalized x and means over the elements of a statistic: dx = (g - mean(g) - h mean(g h)) / sqrt(variance
// + epsilon).
template <int N> struct slopes {
    enum { WIDTH = N };
    norms<N> norm;
    nn_cuda_floats<N> mean_g, mean_gh;

    __device__ slopes(const struct normalizer &a, const struct normalize_place &p)
        : norm(a, p), mean_g(nn_cuda_load<N>(a.mean_g + p.statistic)), mean_gh(nn_cuda_load<N>(a.mean_gh + p.statistic))
    {
    }
    __device__ float at(int j, float x, float dy) const
    {
        const float h = norm.hat(j, x), g = norm.before(j, h, dy) * norm.gamma.at[j];
        return (g - mean_g.at[j] - h * mean_gh.at[j]) * norm.inverse.at[j];
    }
};

// Of dy, by a variance through which no gradient goes.
template <int N> struct slopes_by {
    enum { WIDTH = N };
    norms<N> norm;

    __device__ slopes_by(const struct normalizer &a, const struct normalize_place &p) : norm(a, p)
    {
    }
    __device__ float at(int j, float dy, float) const
    {
        return dy * norm.gamma.at[j] * norm.inverse.at[j];
    }
};

template <class Put>
static __global__ void put_columns(struct nn_cuda_columns c, struct normalizer a, const float *x, const float *dy,
                                   float *y)
{
    const size_t column = nn_cuda_column<Put::WIDTH>();
    if (column >= c.columns)
        return;
    const Put put(a, normalize_place{column, column});
    NN_CUDA_COLUMN_EACH(step, c)
    {
        nn_cuda_floats<Put::WIDTH> u[NN_CUDA_PLACES], v[NN_CUDA_PLACES];
        const struct nn_cuda_places p = nn_cuda_places_of(c, step, column);
        nn_cuda_load_places(x, p, u);
        nn_cuda_load_places(dy, p, v);
#pragma unroll
        for (int k = 0; k < NN_CUDA_PLACES; k++) {
            for (int j = 0; j < Put::WIDTH; j++)
                u[k].at[j] = put.at(j, u[k].at[j], v[k].at[j]);
            if (k < p.n)
                nn_cuda_store(y + p.at[k], u[k]);
        }
    }
}

template <class Put>
static __global__ void put_places(size_t n, struct normalizer a, const float *x, const float *dy, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = Put(a, normalize_place_of(a, i)).at(0, x[i], dy ? dy[i] : 0);
}

template <class Put>
static void put_columns_of(struct nn_context *c, size_t rows, const struct normalizer *n, const float *x,
                           const float *dy, float *y)
{
    const struct nn_cuda_columns columns = nn_cuda_columns_of(rows, n->columns, Put::WIDTH);
    NN_CUDA_RUN(c, (put_columns<Put>), columns.grid, columns.block, 0, columns, *n, x, dy, y);
}

// y (of `type`) of x and dy, which may be NULL.
template <template <int> class Put>
static void put_all(struct nn_context *c, const struct nn_type *type, const struct normalizer *n, const float *x,
                    const float *dy, float *y)
{
    const size_t count = nn_type_count(type);
    if (!n->columns)
        NN_CUDA_RUN_EACH(c, (put_places<Put<1>>), count, *n, x, dy, y);
    else if (normalizer_has_vectors(n, n->columns, x, dy) && nn_cuda_has_vectors(n->columns, y))
        put_columns_of<Put<NN_CUDA_VECTOR>>(c, count / n->columns, n, x, dy, y);
    else
        put_columns_of<Put<1>>(c, count / n->columns, n, x, dy, y);
}

// ---- forward ------------------------------------------------------------------------------------------------------

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

static void cuda_find_moments(const struct nn_frame *f, const struct normalizer *n, float *mean, float *variance)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct lines_along l = lines_of(a, a->statistic);
    const struct to_moments to = {mean, variance};
    sum_of_parts(f->context, l.lines, sum_in_parts<of_moments>(f->context, &l, n, nn_cuda_in(f, 0), NULL), to);
}

static void cuda_moments_run(const struct nn_frame *f)
{
    const struct normalizer n = normalizer_of(normalize_of(f->op), NULL, NULL, NULL, NULL);
    cuda_find_moments(f, &n, nn_cuda_out(f, 0), nn_cuda_out(f, 1));
}

static void cuda_normalize_run(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n =
        normalizer_of(a, nn_cuda_out(f, 1), nn_cuda_out(f, 2), a->scale ? nn_cuda_in(f, 1) : NULL,
                      a->center ? nn_cuda_in(f, 1 + a->scale) : NULL);
    cuda_find_moments(f, &n, nn_cuda_out(f, 1), nn_cuda_out(f, 2));
    put_all<normalized>(f->context, &f->op->in_type[0], &n, nn_cuda_in(f, 0), NULL, nn_cuda_out(f, 0));
}

static void cuda_normalize_by_run(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n = normalizer_of(a, nn_cuda_in(f, 1), nn_cuda_in(f, 2), a->scale ? nn_cuda_in(f, 3) : NULL,
                                              a->center ? nn_cuda_in(f, 3 + a->scale) : NULL);
    put_all<normalized>(f->context, &f->op->in_type[0], &n, nn_cuda_in(f, 0), NULL, nn_cuda_out(f, 0));
}

// ---- backward -----------------------------------------------------------------------------------------------------

// Behind the sums of parts, in the scratch memory, so that a vector of them may be loaded: the means of g and of g h.
static size_t normalize_means_at(const struct nn_normalize *a)
{
    const struct lines_along s = lines_of(a, a->statistic), p = lines_of(a, a->parameter);
    const size_t by_statistic = lines_bytes(&s), by_parameter = lines_bytes(&p);
    return ((by_statistic > by_parameter ? by_statistic : by_parameter) + 15) & ~(size_t)15;
}

static enum ps_code cuda_normalize_plan_backward(struct nn_context *c, const struct nn_op *op, void **plan,
                                                 struct ps_error *e)
{
    const struct nn_normalize *a = normalize_of(op);
    const size_t statistics = nn_type_count(&op->in_type[1]);
    (void)plan;
    return nn_cuda_reserve(c, normalize_means_at(a) + 2 * statistics * sizeof(float), e);
}

static void cuda_find_slopes(const struct nn_frame *f, const struct normalizer *n, const struct to_parameters *to,
                             const struct to_slopes *means)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct lines_along l = lines_of(a, a->statistic), p = lines_of(a, a->parameter);
    const float *x = nn_cuda_in(f, 0), *dy = nn_cuda_in(f, 3);
    if (n->columns) {
        const struct to_columns both = {*to, *means, n->gamma};
        sum_of_parts(f->context, l.lines, sum_in_parts<of_columns>(f->context, &l, n, x, dy), both);
        return;
    }
    if (to->dgamma || to->dbeta)
        sum_of_parts(f->context, p.lines, sum_in_parts<of_parameters>(f->context, &p, n, x, dy), *to);
    sum_of_parts(f->context, l.lines, sum_in_parts<of_slopes>(f->context, &l, n, x, dy), *means);
}

static void cuda_normalize_run_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const size_t statistics = nn_type_count(&f->op->in_type[1]), n_x = nn_type_count(&f->op->in_type[0]);
    struct normalizer n = normalizer_of(a, nn_cuda_in(f, 1), nn_cuda_in(f, 2), a->scale ? nn_cuda_in(f, 4) : NULL,
                                        a->center && a->act == NN_RELU ? nn_cuda_in(f, 4 + a->scale) : NULL);
    float *const mean_g = (float *)(void *)((char *)f->context->scratch + normalize_means_at(a));
    const struct to_parameters to = {a->scale ? nn_cuda_out(f, 1) : NULL,
                                     a->center ? nn_cuda_out(f, 1 + a->scale) : NULL};
    const struct to_slopes means = {(float)statistics / (float)n_x, mean_g, mean_g + statistics};
    cuda_find_slopes(f, &n, &to, &means);
    n.mean_g = means.mean_g;
    n.mean_gh = means.mean_gh;
    put_all<slopes>(f->context, &f->op->in_type[0], &n, nn_cuda_in(f, 0), nn_cuda_in(f, 3), nn_cuda_out(f, 0));
}

static void cuda_normalize_by_run_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_of(f->op);
    const struct normalizer n = normalizer_of(a, NULL, nn_cuda_in(f, 0), a->scale ? nn_cuda_in(f, 2) : NULL, NULL);
    put_all<slopes_by>(f->context, &f->op->in_type[1], &n, nn_cuda_in(f, 1), NULL, nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_normalize = {cuda_normalize_plan, cuda_normalize_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_backward = {cuda_normalize_plan_backward, cuda_normalize_run_backward, NULL,
                                                     NULL};
const struct nn_kernel nn_cuda_moments = {cuda_normalize_plan, cuda_moments_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_by = {NULL, cuda_normalize_by_run, NULL, NULL};
const struct nn_kernel nn_cuda_normalize_by_backward = {NULL, cuda_normalize_by_run_backward, NULL, NULL};
