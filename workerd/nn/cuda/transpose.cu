// SPDX-License-Identifier: Apache-2.0
//
// The same elements elsewhere: tensors one after the other, axes in another order, rows several times.
#include "workerd/nn/cuda/teams.h"
#include "workerd/nn/ops/concat.h"
#include "workerd/nn/ops/transpose.h"

// ---- concat -------------------------------------------------------------------------------------------------------

// Lines of `width` elements, so many elements apart in x and in y.
static __global__ void copy_lines(size_t n, size_t width, size_t x_step, size_t y_step, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t line = nn_cuda_quotient(i, width), j = i - line * width;
        y[line * y_step + j] = x[line * x_step + j];
    }
}

// Elements of `places` places along an axis and all that comes after it: what lies together.
static size_t concat_width(const struct nn_type *type, int axis, int64_t places)
{
    size_t n = (size_t)places;
    for (int i = axis + 1; i < type->rank; i++)
        n *= (size_t)type->dim[i];
    return n;
}

static void cuda_concat_run(const struct nn_frame *f)
{
    const int axis = nn_cuda_attr<nn_concat>(f)->axis;
    const struct nn_type *y = &f->op->out_type[0];
    const size_t whole = concat_width(y, axis, y->dim[axis]), lines = nn_type_count(y) / whole;
    float *to = nn_cuda_out(f, 0);
    for (int k = 0; k < f->op->n_in; k++) {
        const size_t width = concat_width(y, axis, f->op->in_type[k].dim[axis]);
        NN_CUDA_RUN_EACH(f->context, copy_lines, lines * width, width, width, whole, nn_cuda_in(f, k), to);
        to += width;
    }
}

static void cuda_concat_run_backward(const struct nn_frame *f)
{
    const struct nn_slice *a = nn_cuda_attr<nn_slice>(f);
    const struct nn_type *y = &f->op->in_type[0];
    const size_t whole = concat_width(y, a->axis, y->dim[a->axis]), width = concat_width(y, a->axis, a->places);
    NN_CUDA_RUN_EACH(f->context, copy_lines, nn_type_count(&f->op->out_type[0]), width, whole, width,
                     nn_cuda_in(f, 0) + concat_width(y, a->axis, a->first), nn_cuda_out(f, 0));
}

// ---- transpose ----------------------------------------------------------------------------------------------------

// The axes of y; those that lie next to each other in x, too, are one.
struct transposition {
    int rank;
    size_t dim[NN_MAX_RANK], step[NN_MAX_RANK];  // step: in x
};

static struct transposition transposition_of(const struct nn_type *x, const struct nn_transpose *a)
{
    struct transposition t = {};
    for (int k = 0; k < x->rank; k++) {
        const size_t dim = (size_t)x->dim[a->from[k]];
        size_t step = 1;
        for (int i = a->from[k] + 1; i < x->rank; i++)
            step *= (size_t)x->dim[i];
        const bool joins = t.rank > 0 && t.step[t.rank - 1] == dim * step;
        const int to = joins ? t.rank - 1 : t.rank;
        t.dim[to] = joins ? t.dim[to] * dim : dim;
        t.step[to] = step;
        t.rank += dim > 1 && !joins;
    }
    return t;
}

static __global__ void transpose_axes(size_t n, struct transposition t, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    {
        size_t from = 0, rest = i;
        for (int k = t.rank - 1; k >= 0; k--) {
            const size_t before = nn_cuda_quotient(rest, t.dim[k]);
            from += (rest - before * t.dim[k]) * t.step[k];
            rest = before;
        }
        y[i] = x[from];
    }
}

enum { TILE = 32, TILE_LINES = 8 };

// Matrices (rows, columns), one after the other: a tile is read by rows and written by columns.
static __global__ void transpose_matrices(size_t rows, size_t columns, const float *x, float *y)
{
    __shared__ float tile[TILE][TILE + 1];  // one more: a column lies in all banks
    const size_t first = (size_t)blockIdx.x * TILE, top = (size_t)blockIdx.y * TILE;
    const size_t matrix = (size_t)blockIdx.z * rows * columns;
    for (size_t k = threadIdx.y; k < TILE; k += TILE_LINES)
        if (top + k < rows && first + threadIdx.x < columns)
            tile[k][threadIdx.x] = x[matrix + (top + k) * columns + first + threadIdx.x];
    __syncthreads();
    for (size_t k = threadIdx.y; k < TILE; k += TILE_LINES)
        if (first + k < columns && top + threadIdx.x < rows)
            y[matrix + (first + k) * rows + top + threadIdx.x] = tile[threadIdx.x][k];
}

// Is it one of matrices? A launch has room for so many.
static bool transposes_matrices(const struct transposition *t)
{
    const int k = t->rank - 2;
    const size_t most = 65535, count = k == 1 ? t->dim[0] : 1;
    if (k < 0 || k > 1 || t->step[k] != 1 || t->step[k + 1] != t->dim[k])
        return false;
    return count <= most && t->dim[k + 1] <= most * TILE && (k == 0 || t->step[0] == t->dim[1] * t->dim[2]);
}

static void cuda_transpose_run(const struct nn_frame *f)
{
    const struct transposition t = transposition_of(&f->op->in_type[0], nn_cuda_attr<nn_transpose>(f));
    const size_t n = nn_type_count(&f->op->out_type[0]);
    if (transposes_matrices(&t)) {
        const size_t columns = t.dim[t.rank - 2], rows = t.dim[t.rank - 1];
        const dim3 grid((unsigned)((columns + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE),
                        (unsigned)(n / rows / columns));
        NN_CUDA_RUN(f->context, transpose_matrices, grid, dim3(TILE, TILE_LINES), 0, rows, columns, nn_cuda_in(f, 0),
                    nn_cuda_out(f, 0));
        return;
    }
    NN_CUDA_RUN_EACH(f->context, transpose_axes, n, t, nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

// ---- repeat -------------------------------------------------------------------------------------------------------

static __global__ void repeat_rows(size_t n, size_t times, size_t width, const float *x, float *y)
{
    NN_CUDA_EACH(i, n)
    y[i] = x[nn_cuda_quotient(i, times * width) * width + nn_cuda_remainder(i, width)];
}

static __global__ void repeat_rows_backward(size_t n, size_t times, size_t width, const float *dy, float *dx)
{
    NN_CUDA_EACH(i, n)
    {
        const size_t row = nn_cuda_quotient(i, width), first = row * times * width + (i - row * width);
        float sum = 0;
        for (size_t k = 0; k < times; k++)
            sum += dy[first + k * width];
        dx[i] = sum;
    }
}

static void cuda_repeat_run(const struct nn_frame *f)
{
    const struct nn_type *y = &f->op->out_type[0];
    NN_CUDA_RUN_EACH(f->context, repeat_rows, nn_type_count(y), (size_t)y->dim[1], (size_t)y->dim[2], nn_cuda_in(f, 0),
                     nn_cuda_out(f, 0));
}

static void cuda_repeat_run_backward(const struct nn_frame *f)
{
    const struct nn_type *dy = &f->op->in_type[0];
    NN_CUDA_RUN_EACH(f->context, repeat_rows_backward, nn_type_count(&f->op->out_type[0]), (size_t)dy->dim[1],
                     (size_t)dy->dim[2], nn_cuda_in(f, 0), nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_concat = {NULL, cuda_concat_run, NULL, NULL};
const struct nn_kernel nn_cuda_concat_backward = {NULL, cuda_concat_run_backward, NULL, NULL};
const struct nn_kernel nn_cuda_transpose = {NULL, cuda_transpose_run, NULL, NULL};
const struct nn_kernel nn_cuda_repeat = {NULL, cuda_repeat_run, NULL, NULL};
const struct nn_kernel nn_cuda_repeat_backward = {NULL, cuda_repeat_run_backward, NULL, NULL};
