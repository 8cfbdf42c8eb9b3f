// SPDX-License-Identifier: Apache-2.0
//
// Normalization as kernels see it: where an element's statistic and parameter are, and which elements are those of a
// statistic or a parameter.
#ifndef NN_CUDA_NORMALIZER_H
#define NN_CUDA_NORMALIZER_H

#include "workerd/nn/cuda/columns.h"
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
    size_t columns;  // of which each is a statistic and a parameter; 0: they are not the columns of one matrix
    float epsilon;
    bool relu;
    const float *mean, *variance, *gamma, *beta;  // gamma and beta: NULL where there are none
    const float *mean_g, *mean_gh;                // of the backward pass: see struct to_slopes
};

static __device__ struct normalize_place normalize_place_of(const struct normalizer &a, size_t element)
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

static void normalizer_steps(const struct nn_normalize *a, const bool *along, size_t step[NN_NORMALIZE_AXES])
{
    size_t n = 1;
    for (int i = NN_NORMALIZE_AXES; i--;) {
        step[i] = along[i] ? n : 0;
        n *= along[i] ? (size_t)a->dim[i] : 1;
    }
}

// What N elements side by side need, each of which has a statistic and a parameter of its own, unless N is 1.
template <int N> struct norms {
    nn_cuda_floats<N> mean, inverse, gamma, beta;
    bool relu;

    // p: of the first of them
    __device__ norms(const struct normalizer &a, const struct normalize_place &p)
        : mean(read(a.mean, p.statistic, 0)), inverse(read(a.variance, p.statistic, 0)),
          gamma(read(a.gamma, p.parameter, 1)), beta(read(a.beta, p.parameter, 0)), relu(a.relu)
    {
        for (int j = 0; j < N; j++)
            inverse.at[j] = rsqrtf(inverse.at[j] + a.epsilon);
    }
    static __device__ nn_cuda_floats<N> read(const float *from, size_t at, float otherwise)
    {
        nn_cuda_floats<N> v;
        if (from)
            return nn_cuda_load<N>(from + at);
        for (int j = 0; j < N; j++)
            v.at[j] = otherwise;
        return v;
    }
    __device__ float hat(int j, float x) const
    {
        return (x - mean.at[j]) * inverse.at[j];
    }
    __device__ float of_hat(int j, float h) const
    {
        return h * gamma.at[j] + beta.at[j];
    }
    // The gradient by what is before the activation, from that by what is behind it.
    __device__ float before(int j, float h, float dy) const
    {
        return !relu || of_hat(j, h) > 0 ? dy : 0;
    }
};

// ---- lines --------------------------------------------------------------------------------------------------------

// For each place along some axes, the elements at all places along the others; axes next to each other that are alike
// are one. `columns`: a line is a column of a matrix.
struct lines_along {
    size_t lines, n;
    int kept, summed;                                                  // how many axes
    size_t kept_dim[NN_NORMALIZE_AXES], kept_step[NN_NORMALIZE_AXES];  // from the last axis
    size_t summed_dim[NN_NORMALIZE_AXES], summed_step[NN_NORMALIZE_AXES];
    bool columns;
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
    l.columns = l.summed <= 1 && (l.kept == 0 || (l.kept == 1 && l.kept_step[0] == 1));
    return l;
}

static struct normalizer normalizer_of(const struct nn_normalize *a, const float *mean, const float *variance,
                                       const float *gamma, const float *beta)
{
    const struct lines_along s = lines_of(a, a->statistic), p = lines_of(a, a->parameter);
    struct normalizer n = {};
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        n.dim[i] = (size_t)a->dim[i];
    normalizer_steps(a, a->statistic, n.statistic);
    normalizer_steps(a, a->parameter, n.parameter);
    n.columns = s.columns && p.columns && s.lines == p.lines ? s.lines : 0;
    n.epsilon = a->epsilon;
    n.relu = a->act == NN_RELU;
    n.mean = mean;
    n.variance = variance;
    n.gamma = gamma;
    n.beta = beta;
    return n;
}

#endif
