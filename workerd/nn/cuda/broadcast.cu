// SPDX-License-Identifier: Apache-2.0
//
// Operators of two tensors of which one may have 1 place where the other has many, and the sums that are their
// gradients.
#include <math.h>

#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/binary.h"

// ---- places -------------------------------------------------------------------------------------------------------

// A walk over dimensions: from the number of an element to where it stands in two arrays. Dimensions that both arrays
// have without a gap are one.
struct walk {
    int rank;
    size_t dim[NN_MAX_RANK];
    size_t step[2][NN_MAX_RANK];  // 0 where one place stands for all
};

struct walk_place {
    size_t at[2];
};

static __device__ struct walk_place walk_to(const struct walk &w, size_t i)
{
    struct walk_place p = {{0, 0}};
    for (int k = w.rank - 1; k > 0; k--) {
        const size_t rest = nn_cuda_quotient(i, w.dim[k]), at = i - rest * w.dim[k];
        p.at[0] += at * w.step[0][k];
        p.at[1] += at * w.step[1][k];
        i = rest;
    }
    p.at[0] += i * w.step[0][0];
    p.at[1] += i * w.step[1][0];
    return p;
}

static void walk_push(struct walk *w, size_t dim, const size_t step[2])
{
    const int last = w->rank - 1;
    const bool joins = w->rank > 0 && w->step[0][last] == dim * step[0] && w->step[1][last] == dim * step[1];
    const int k = joins ? last : w->rank++;
    w->dim[k] = joins ? w->dim[k] * dim : dim;
    w->step[0][k] = step[0];
    w->step[1][k] = step[1];
}

// Elements to the next place along a dimension.
static size_t walk_step(const struct nn_type *type, int axis)
{
    size_t step = 1;
    for (int i = axis + 1; i < type->rank; i++)
        step *= (size_t)type->dim[i];
    return type->dim[axis] == 1 ? 0 : step;
}

static struct walk walk_of(const struct nn_type *y, const struct nn_type *a, const struct nn_type *b)
{
    struct walk w = {};
    for (int i = 0; i < y->rank; i++) {
        const size_t step[2] = {walk_step(a, i), walk_step(b, i)};
        if (y->dim[i] > 1)
            walk_push(&w, (size_t)y->dim[i], step);
    }
    if (w.rank == 0)
        w.dim[w.rank++] = 1;
    return w;
}

// ---- binary, choose -----------------------------------------------------------------------------------------------

static __device__ float binary_of(enum nn_binary_kind kind, float a, float b)
{
    switch (kind) {
    case NN_B_ADD:
        return a + b;
    case NN_B_SUBTRACT:
        return a - b;
    case NN_B_MULTIPLY:
        return a * b;
    case NN_B_MAXIMUM:
        return b > a || isnan(b) ? b : a;
    case NN_B_MINIMUM:
        return b < a || isnan(b) ? b : a;
    }
    return 0;
}

static __global__ void combine_two(size_t n, struct walk w, enum nn_binary_kind kind, const float *a, const float *b,
                                   float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const struct walk_place p = walk_to(w, i);
        y[i] = binary_of(kind, a[p.at[0]], b[p.at[1]]);
    }
}

static __global__ void choose_one(size_t n, struct walk w, struct nn_choose c, const float *a, const float *b,
                                  const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const struct walk_place p = walk_to(w, i);
        const float x = a[p.at[0]], z = b[p.at[1]];
        const bool first = c.kind == NN_B_MAXIMUM ? x >= z : x <= z;
        dx[i] = first == (c.of == 0) ? dy[i] : 0;
    }
}

static struct walk walk_of_frame(const struct nn_frame *f)
{
    return walk_of(&f->op->out_type[0], &f->op->in_type[0], &f->op->in_type[1]);
}

static void cuda_binary_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, combine_two, nn_type_count(&f->op->out_type[0]), walk_of_frame(f),
                     nn_cuda_attr<nn_binary>(f)->kind, nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_out(f, 0));
}

static void cuda_choose_run(const struct nn_frame *f)
{
    NN_CUDA_RUN_EACH(f->context, choose_one, nn_type_count(&f->op->out_type[0]), walk_of_frame(f),
                     *nn_cuda_attr<nn_choose>(f), nn_cuda_in(f, 0), nn_cuda_in(f, 1), nn_cuda_in(f, 2),
                     nn_cuda_out(f, 0));
}

// ---- reduce -------------------------------------------------------------------------------------------------------

// A team for each element of y: `kept` says where the elements that it sums begin, `summed` where they lie from there.
static __global__ void sum_places(size_t lines, struct walk kept, struct walk summed, size_t n, const float *x,
                                  float *y)
{
    __shared__ float part[NN_CUDA_PARTS];
    const size_t k = nn_cuda_line();
    float sum = 0;
    if (k >= lines)
        return;
    x += walk_to(kept, k).at[0];
    NN_CUDA_TEAM_EACH(j, n)
    sum += x[walk_to(summed, j).at[0]];
    sum = nn_cuda_team_sum(sum, part);
    if (threadIdx.x == 0)
        y[k] = sum;
}

// The dimensions of x that y has, or those that it has not.
static struct walk reduce_walk(const struct nn_op *op, bool kept)
{
    const struct nn_type *x = &op->in_type[0];
    struct nn_type part = *x;
    for (int i = 0; i < x->rank; i++)
        part.dim[i] = (op->out_type[0].dim[i] == 1) == kept ? 1 : x->dim[i];
    struct walk w = {};
    for (int i = 0; i < x->rank; i++) {
        const size_t step[2] = {walk_step(x, i), 0};
        if (part.dim[i] > 1)
            walk_push(&w, (size_t)part.dim[i], step);
    }
    if (w.rank == 0)
        w.dim[w.rank++] = 1;
    return w;
}

// Is it the sum of the rows of a matrix?
static bool reduce_is_of_rows(const struct walk *kept, const struct walk *summed)
{
    return kept->rank == 1 && kept->step[0][0] == 1 && summed->rank == 1;
}

static enum ps_code cuda_reduce_plan(struct nn_context *c, const struct nn_op *op, void **plan, struct ps_error *e)
{
    const size_t n = nn_type_count(&op->out_type[0]);
    const struct walk kept = reduce_walk(op, true), summed = reduce_walk(op, false);
    *plan = NULL;
    return reduce_is_of_rows(&kept, &summed) ? nn_cuda_reserve_sum(c, nn_type_count(&op->in_type[0]) / n, n, e) : PS_OK;
}

static void cuda_reduce_run(const struct nn_frame *f)
{
    const struct nn_type *x = &f->op->in_type[0];
    const size_t lines = nn_type_count(&f->op->out_type[0]), n = nn_type_count(x) / lines;
    const struct walk kept = reduce_walk(f->op, true), summed = reduce_walk(f->op, false);
    if (reduce_is_of_rows(&kept, &summed)) {
        nn_cuda_sum_rows(f->context, n, lines, nn_cuda_in(f, 0), nn_cuda_out(f, 0));
        return;
    }
    const dim3 team = nn_cuda_team(lines, n, summed.step[0][summed.rank - 1]);
    NN_CUDA_RUN_TEAMS(f->context, sum_places, team, lines, kept, summed, n, nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_binary = {NULL, cuda_binary_run, NULL, NULL};
const struct nn_kernel nn_cuda_choose = {NULL, cuda_choose_run, NULL, NULL};
const struct nn_kernel nn_cuda_reduce = {cuda_reduce_plan, cuda_reduce_run, NULL, NULL};
