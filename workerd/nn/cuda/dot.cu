// SPDX-License-Identifier: Apache-2.0
//
// Products of two tensors, example by example: by cuBLAS, where the axis of each that is summed over is its first or
// its last one. Lines made as long as 1: a thread each.
#include <math.h>

#include "workerd/nn/cuda/cuda.h"
#include "workerd/nn/ops/dot.h"

// ---- products -----------------------------------------------------------------------------------------------------

// An operand of an example: a matrix of others x summed, or transposed, of summed x others.
struct dot_operand {
    size_t others, summed;
    bool transposed, fits;
};

static struct dot_operand dot_operand_of(const struct nn_type *type, int axis)
{
    size_t before = 1, after = 1;
    for (int i = 1; i < type->rank; i++)
        *(i < axis ? &before : &after) *= i == axis ? 1 : (size_t)type->dim[i];
    const struct dot_operand o = {before * after, (size_t)type->dim[axis], after > 1, before == 1 || after == 1};
    return o;
}

static size_t dot_elements(const struct dot_operand *o)
{
    return o->others * o->summed;
}

// As others x summed, or transposed once more.
static struct nn_cuda_matrix dot_matrix(const struct dot_operand *o, const float *data, bool transposed)
{
    const struct nn_cuda_matrix m = {data, o->transposed ? o->others : o->summed, o->transposed != transposed,
                                     dot_elements(o)};
    return m;
}

bool nn_cuda_dot_fits(const struct nn_op *op)
{
    const struct nn_dot *a = (const struct nn_dot *)(const void *)op->attr;
    return dot_operand_of(&op->in_type[0], a->axis[0]).fits && dot_operand_of(&op->in_type[1], a->axis[1]).fits;
}

bool nn_cuda_dot_backward_fits(const struct nn_op *op)
{
    const struct nn_dot_backward *a = (const struct nn_dot_backward *)(const void *)op->attr;
    return dot_operand_of(&a->to, a->dot.axis[a->of]).fits && dot_operand_of(&op->in_type[0], a->dot.axis[!a->of]).fits;
}

// y (a's others, b's others)
static void cuda_dot_run(const struct nn_frame *f)
{
    const struct nn_dot *d = nn_cuda_attr<nn_dot>(f);
    const struct dot_operand a = dot_operand_of(&f->op->in_type[0], d->axis[0]),
                             b = dot_operand_of(&f->op->in_type[1], d->axis[1]);
    const struct nn_cuda_product p = {a.others,
                                      b.others,
                                      a.summed,
                                      dot_matrix(&a, nn_cuda_in(f, 0), false),
                                      dot_matrix(&b, nn_cuda_in(f, 1), true),
                                      1,
                                      nn_cuda_out(f, 0),
                                      b.others,
                                      a.others * b.others,
                                      (size_t)f->op->in_type[0].dim[0]};
    nn_cuda_multiply(f->context, &p);
}

// With y's gradient as (to's others, from's others), or that transposed: dto = dy from; where it lies transposed, dto^T
// = from^T dy^T.
static void cuda_dot_run_backward(const struct nn_frame *f)
{
    const struct nn_dot_backward *d = nn_cuda_attr<nn_dot_backward>(f);
    const struct dot_operand to = dot_operand_of(&d->to, d->dot.axis[d->of]),
                             from = dot_operand_of(&f->op->in_type[0], d->dot.axis[!d->of]);
    const bool across = d->of == 1;  // dy is (from's others, to's others)
    const size_t columns = across ? to.others : from.others, y = to.others * from.others;
    const struct nn_cuda_matrix dy = {nn_cuda_in(f, 1), columns, across != to.transposed, y};
    const struct nn_cuda_matrix other = dot_matrix(&from, nn_cuda_in(f, 0), to.transposed);
    const struct nn_cuda_product p = {to.transposed ? to.summed : to.others,
                                      to.transposed ? to.others : to.summed,
                                      from.others,
                                      to.transposed ? other : dy,
                                      to.transposed ? dy : other,
                                      1,
                                      nn_cuda_out(f, 0),
                                      to.transposed ? to.others : to.summed,
                                      dot_elements(&to),
                                      (size_t)d->to.dim[0]};
    nn_cuda_multiply(f->context, &p);
}

static const char *cuda_dot_info(const void *plan)
{
    (void)plan;
    return "cublas";
}

// ---- unit length --------------------------------------------------------------------------------------------------

// y = x / |x|; with dy, dx = (dy - y (y . dy)) / |x|, without the second term where the length is the shortest one. A
// line has n elements, `step` apart.
static __global__ void unit_length(size_t lines, size_t n, size_t step, float shortest, const float *x, const float *dy,
                                   float *to)
{
    NN_CUDA_EACH(k, lines)
    {
        const size_t first = k / step * n * step + k % step;
        float squares = 0, along = 0;
        for (size_t i = 0; i < n; i++) {
            const float v = x[first + i * step];
            squares += v * v;
            along += dy ? v * dy[first + i * step] : 0.0f;
        }
        const bool own = sqrtf(squares) > shortest || isnan(squares);
        const float length = own ? sqrtf(squares) : shortest;
        along = own ? along : 0.0f;
        for (size_t i = first; i < first + n * step; i += step) {
            const float y = x[i] / length;
            to[i] = dy ? (dy[i] - y * along / length) / length : y;
        }
    }
}

static void cuda_unit_length_run(const struct nn_frame *f)
{
    const struct nn_type *type = &f->op->in_type[0];
    const struct nn_unit_length *attr = nn_cuda_attr<nn_unit_length>(f);
    const int axis = attr->axis;
    size_t n = (size_t)type->dim[axis], step = 1;
    for (int i = axis + 1; i < type->rank; i++)
        step *= (size_t)type->dim[i];
    NN_CUDA_RUN_EACH(f->context, unit_length, nn_type_count(type) / n, n, step, attr->shortest, nn_cuda_in(f, 0),
                     f->op->n_in > 1 ? nn_cuda_in(f, 1) : NULL, nn_cuda_out(f, 0));
}

const struct nn_kernel nn_cuda_dot = {NULL, cuda_dot_run, NULL, cuda_dot_info};
const struct nn_kernel nn_cuda_dot_backward = {NULL, cuda_dot_run_backward, NULL, cuda_dot_info};
const struct nn_kernel nn_cuda_unit_length = {NULL, cuda_unit_length_run, NULL, NULL};
