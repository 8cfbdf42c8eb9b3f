// SPDX-License-Identifier: Apache-2.0
//
// Sums over the elements of each statistic or parameter in one pass over x and dy, in parts; then of the parts.
#ifndef NN_CUDA_NORMALIZER_SUMS_H
#define NN_CUDA_NORMALIZER_SUMS_H

#include "workerd/nn/cuda/normalizer.h"

// ---- what is summed -----------------------------------------------------------------------------------------------

// Of some numbers: how many, their mean, the sum of the squares of their distances from it.
struct moments {
    float n, mean, squares;

    // Of all together (Chan, Golub and LeVeque, Algorithms for computing the sample variance, 1983): no difference of
    // large sums, however far the mean is from 0.
    static __device__ struct moments of(const struct moments &x, const struct moments &y)
    {
        const float n = x.n + y.n, d = y.mean - x.mean, share = __fdividef(y.n, n);
        const struct moments m = {n, x.mean + d * share, x.squares + y.squares + d * d * x.n * share};
        return y.n == 0 ? x : x.n == 0 ? y : m;
    }
};

struct two_sums {
    float a, b;

    static __device__ struct two_sums of(const struct two_sums &x, const struct two_sums &y)
    {
        const struct two_sums sum = {x.a + y.a, x.b + y.b};
        return sum;
    }
};

static __device__ struct moments nn_cuda_of_lane(const struct moments &x, int by)
{
    const struct moments y = {nn_cuda_of_lane(x.n, by), nn_cuda_of_lane(x.mean, by), nn_cuda_of_lane(x.squares, by)};
    return y;
}

static __device__ struct two_sums nn_cuda_of_lane(const struct two_sums &x, int by)
{
    const struct two_sums y = {nn_cuda_of_lane(x.a, by), nn_cuda_of_lane(x.b, by)};
    return y;
}

// Of the j-th column of v, of which the first n are there and the others are 0.
template <int N> static __device__ struct moments moments_of_places(const nn_cuda_floats<N> *v, int j, int n)
{
    struct moments m = {(float)n, 0, 0};
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++)
        m.mean += v[k].at[j];
    m.mean *= 1 / (float)(n > 0 ? n : 1);
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++) {
        const float d = k < n ? v[k].at[j] - m.mean : 0;
        m.squares += d * d;
    }
    return m;
}

// Each of these adds places of N columns to N sums; of a line elsewhere, to its own.
template <int N> struct of_moments {
    typedef struct moments sum;
    enum { WIDTH = N };

    __device__ of_moments(const struct normalizer &, size_t)
    {
    }
    __device__ void add(const float *x, const float *, const struct nn_cuda_places &p, struct moments *to) const
    {
        nn_cuda_floats<N> v[NN_CUDA_PLACES];
        nn_cuda_load_places(x, p, v);
#pragma unroll
        for (int j = 0; j < N; j++)
            to[j] = moments::of(to[j], moments_of_places(v, j, p.n));
    }
};

// With h the normalized x: dy h and dy, the gradients of gamma and beta.
template <int N> struct of_columns {
    typedef struct two_sums sum;
    enum { WIDTH = N };
    norms<N> norm;

    __device__ of_columns(const struct normalizer &a, size_t column) : norm(a, normalize_place{column, column})
    {
    }
    __device__ void add(const float *x, const float *dy, const struct nn_cuda_places &p, struct two_sums *to) const
    {
        nn_cuda_floats<N> u[NN_CUDA_PLACES], v[NN_CUDA_PLACES];
        nn_cuda_load_places(x, p, u);
        nn_cuda_load_places(dy, p, v);
#pragma unroll
        for (int k = 0; k < NN_CUDA_PLACES; k++)
            for (int j = 0; j < N && k < p.n; j++) {
                const float h = norm.hat(j, u[k].at[j]), d = norm.before(j, h, v[k].at[j]);
                to[j] = two_sums::of(to[j], two_sums{d * h, d});
            }
    }
};

// The same of elements anywhere, which are asked where they are; of_slopes: g h and g, with g = dy gamma.
template <int N, bool TIMES_GAMMA> struct of_places {
    typedef struct two_sums sum;
    enum { WIDTH = N };
    const struct normalizer &a;

    __device__ of_places(const struct normalizer &a_, size_t) : a(a_)
    {
    }
    __device__ struct two_sums at(float x, float dy, size_t i) const
    {
        const norms<1> norm(a, normalize_place_of(a, i));
        const float h = norm.hat(0, x), d = norm.before(0, h, dy) * (TIMES_GAMMA ? norm.gamma.at[0] : 1);
        return two_sums{d * h, d};
    }
    __device__ void add(const float *x, const float *dy, const struct nn_cuda_places &p, struct two_sums *to) const
    {
        nn_cuda_floats<N> u[NN_CUDA_PLACES], v[NN_CUDA_PLACES];
        nn_cuda_load_places(x, p, u);
        nn_cuda_load_places(dy, p, v);
#pragma unroll
        for (int k = 0; k < NN_CUDA_PLACES; k++)
            for (int j = 0; j < N && k < p.n; j++)
                to[j] = two_sums::of(to[j], at(u[k].at[j], v[k].at[j], p.at[k] + j));
    }
};
template <int N> using of_parameters = of_places<N, false>;
template <int N> using of_slopes = of_places<N, true>;

// ---- sums of parts ------------------------------------------------------------------------------------------------

// The sums of each line, part by part: to (parts, lines). Shared memory of a size that the launch gives: a template's
// own is not shared where the GPU is emulated.
template <class Of>
static __global__ void sum_columns(struct nn_cuda_columns c, struct normalizer a, const float *x, const float *dy,
                                   typename Of::sum *to)
{
    NN_CUDA_SHARED(typename Of::sum, part);
    const size_t column = nn_cuda_column<Of::WIDTH>();
    typename Of::sum sum[Of::WIDTH] = {};
    if (column < c.columns) {
        const Of of(a, column);
        NN_CUDA_COLUMN_EACH(step, c)
        of.add(x, dy, nn_cuda_places_of(c, step, column), sum);
    }
    nn_cuda_sum_columns_of_block<Of::WIDTH>(sum, part);
    for (int j = 0; j < Of::WIDTH && threadIdx.y == 0 && column < c.columns; j++)
        to[blockIdx.y * c.columns + column + j] = sum[j];
}

static __device__ struct nn_cuda_places line_places(const struct lines_along &l, size_t first, size_t i, size_t by)
{
    struct nn_cuda_places p = nn_cuda_places_from(i, by, l.n);
#pragma unroll
    for (int k = 0; k < NN_CUDA_PLACES; k++)
        p.at[k] = first + line_place(l.summed, l.summed_dim, l.summed_step, p.at[k]);
    return p;
}

template <class Of>
static __global__ void sum_lines(size_t lines, struct lines_along l, struct normalizer a, const float *x,
                                 const float *dy, typename Of::sum *to)
{
    NN_CUDA_SHARED(typename Of::sum, part);
    const size_t k = nn_cuda_line(), by = (size_t)gridDim.y * blockDim.x;
    typename Of::sum sum = {};
    if (k >= lines)
        return;
    const Of of(a, 0);
    const size_t first = line_place(l.kept, l.kept_dim, l.kept_step, k);
    for (size_t i = blockIdx.y * blockDim.x + threadIdx.x; i < l.n; i += NN_CUDA_PLACES * by)
        of.add(x, dy, line_places(l, first, i, by), &sum);
    sum = nn_cuda_team_all<typename Of::sum>(sum, part);
    if (threadIdx.x == 0)
        to[blockIdx.y * lines + k] = sum;
}

// As many parts as keep a GPU busy, and none with less than a block of threads has at a time.
static unsigned lines_parts(const struct lines_along *l)
{
    const size_t useful = l->n / (NN_CUDA_TEAM_MOST * NN_CUDA_PLACES);
    const size_t wanted = l->lines < NN_CUDA_COLUMN_BLOCKS ? NN_CUDA_COLUMN_BLOCKS / l->lines : 1;
    const size_t parts = useful < wanted ? useful : wanted;
    return parts ? (unsigned)parts : 1;
}

// What a plan reserves for the sums of parts, whatever the columns of a thread.
static size_t lines_bytes(const struct lines_along *l)
{
    const size_t one = nn_cuda_columns_of(l->n, l->lines, 1).grid.y;
    const size_t wide = nn_cuda_columns_of(l->n, l->lines, NN_CUDA_VECTOR).grid.y;
    const size_t parts = !l->columns ? lines_parts(l) : one > wide ? one : wide;
    return l->lines * parts * sizeof(struct moments);
}

template <class Of>
static unsigned sum_columns_of(struct nn_context *c, const struct lines_along *l, const struct normalizer *n,
                               const float *x, const float *dy)
{
    const struct nn_cuda_columns columns = nn_cuda_columns_of(l->n, l->lines, Of::WIDTH);
    const size_t shared = columns.block.x * columns.block.y * Of::WIDTH * sizeof(typename Of::sum);
    NN_CUDA_RUN(c, (sum_columns<Of>), columns.grid, columns.block, shared, columns, *n, x, dy,
                (typename Of::sum *)c->scratch);
    return columns.grid.y;
}

template <class Of>
static unsigned sum_lines_of(struct nn_context *c, const struct lines_along *l, const struct normalizer *n,
                             const float *x, const float *dy)
{
    const unsigned parts = lines_parts(l);
    const dim3 team = parts > 1 ? dim3(NN_CUDA_TEAM_MOST) : nn_cuda_team(l->lines, l->n, 1);
    NN_CUDA_RUN(c, (sum_lines<Of>), dim3(nn_cuda_teams(l->lines, team), parts), team,
                NN_CUDA_PARTS * sizeof(typename Of::sum), l->lines, *l, *n, x, dy, (typename Of::sum *)c->scratch);
    return parts;
}

static bool normalizer_has_vectors(const struct normalizer *n, size_t columns, const float *x, const float *dy)
{
    return nn_cuda_has_vectors(columns, x, dy, n->mean, n->variance, n->gamma, n->beta, n->mean_g, n->mean_gh);
}

// To the scratch memory: the sums of each line in so many parts.
template <template <int> class Of>
static unsigned sum_in_parts(struct nn_context *c, const struct lines_along *l, const struct normalizer *n,
                             const float *x, const float *dy)
{
    if (!l->columns)
        return sum_lines_of<Of<1>>(c, l, n, x, dy);
    if (normalizer_has_vectors(n, l->lines, x, dy))
        return sum_columns_of<Of<NN_CUDA_VECTOR>>(c, l, n, x, dy);
    return sum_columns_of<Of<1>>(c, l, n, x, dy);
}

// ---- sums of lines ------------------------------------------------------------------------------------------------

struct to_moments {
    typedef struct moments sum;
    float *mean, *variance;

    __device__ void put(size_t line, const struct moments &m) const
    {
        mean[line] = m.mean;
        variance[line] = m.squares / m.n;
    }
};

// The gradients of gamma and beta, each of which may be NULL.
struct to_parameters {
    typedef struct two_sums sum;
    float *dgamma, *dbeta;

    __device__ void put(size_t line, const struct two_sums &s) const
    {
        if (dgamma)
            dgamma[line] = s.a;
        if (dbeta)
            dbeta[line] = s.b;
    }
};

// With g = dy gamma, h the normalized x: the means of g and of g h.
struct to_slopes {
    typedef struct two_sums sum;
    float scale, *mean_g, *mean_gh;

    __device__ void put(size_t line, const struct two_sums &s) const
    {
        mean_g[line] = s.b * scale;
        mean_gh[line] = s.a * scale;
    }
};

// Both, where a statistic is a parameter.
struct to_columns {
    typedef struct two_sums sum;
    struct to_parameters parameters;
    struct to_slopes slopes;
    const float *gamma;

    __device__ void put(size_t line, const struct two_sums &s) const
    {
        const float by = gamma ? gamma[line] : 1;
        parameters.put(line, s);
        slopes.put(line, two_sums{s.a * by, s.b * by});
    }
};

// A column of threads for each line, side by side as the sums are.
template <class To> static __global__ void sum_parts(size_t lines, unsigned parts, const typename To::sum *from, To to)
{
    NN_CUDA_SHARED(typename To::sum, part);
    const size_t k = nn_cuda_column<1>();
    typename To::sum sum = {};
    if (k < lines)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < parts; p += blockDim.y)
            sum = To::sum::of(sum, from[p * lines + k]);
    nn_cuda_sum_columns_of_block<1>(&sum, part);
    if (threadIdx.y == 0 && k < lines)
        to.put(k, sum);
}

template <class To> static void sum_of_parts(struct nn_context *c, size_t lines, unsigned parts, const To &to)
{
    unsigned y = 1;
    while (y < 64 && y < parts)
        y *= 2;
    const unsigned x = NN_CUDA_COLUMN_THREADS / y;
    NN_CUDA_RUN(c, (sum_parts<To>), (unsigned)((lines + x - 1) / x), dim3(x, y),
                NN_CUDA_COLUMN_THREADS * sizeof(typename To::sum), lines, parts, (const typename To::sum *)c->scratch,
                to);
}

#endif
