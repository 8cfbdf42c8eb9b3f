// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/normalize.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/ops/moments.h"
#include "workerd/nn/tape.h"

static int64_t normalize_count(const struct nn_normalize *a, const bool *along)
{
    int64_t n = 1;
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        n *= along[i] ? a->dim[i] : 1;
    return n;
}

int64_t nn_normalize_statistics(const struct nn_normalize *a)
{
    return normalize_count(a, a->statistic);
}

int64_t nn_normalize_parameters(const struct nn_normalize *a)
{
    return normalize_count(a, a->parameter);
}

bool nn_normalize_takes_activation(const struct nn_op *op)
{
    const struct nn_normalize *a = (const struct nn_normalize *)op->attr;
    bool columns = op->class == &nn_op_normalize && a->dim[2] * a->dim[3] == 1;
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        columns = columns && a->statistic[i] == (i == 1) && a->parameter[i] == (i == 1);
    return columns;
}

// ---- types --------------------------------------------------------------------------------------------------------

static const struct nn_normalize *normalize_attr(const struct nn_op *op)
{
    return (const struct nn_normalize *)op->attr;
}

static enum ps_code normalize_check(const struct nn_op *op, const struct nn_type *x, struct ps_error *e)
{
    const struct nn_normalize *a = normalize_attr(op);
    size_t n = 1;
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        n *= (size_t)a->dim[i];
    return n == nn_type_count(x) ? PS_OK : nn_op_fail(op, e, "the axes are not those of its input");
}

static enum ps_code normalize_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type statistic = {NN_FLOAT, 1, {nn_normalize_statistics(normalize_attr(op))}};
    op->out_type[0] = op->in_type[0];
    op->out_type[1] = op->out_type[2] = statistic;
    return normalize_check(op, &op->in_type[0], e);
}

static enum ps_code normalize_infer_moments(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->out_type[1] = (struct nn_type){NN_FLOAT, 1, {nn_normalize_statistics(normalize_attr(op))}};
    return normalize_check(op, &op->in_type[0], e);
}

static enum ps_code normalize_infer_by(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->in_type[0];
    return normalize_check(op, &op->in_type[0], e);
}

static enum ps_code normalize_infer_backward(struct nn_op *op, struct ps_error *e)
{
    const struct nn_normalize *a = normalize_attr(op);
    const struct nn_type parameter = {NN_FLOAT, 1, {nn_normalize_parameters(a)}};
    op->out_type[0] = op->in_type[0];
    for (int i = 0; i < a->scale + a->center; i++)
        op->out_type[1 + i] = parameter;
    return normalize_check(op, &op->in_type[0], e);
}

static enum ps_code normalize_infer_by_backward(struct nn_op *op, struct ps_error *e)
{
    op->out_type[0] = op->in_type[1];
    return normalize_check(op, &op->in_type[1], e);
}

static void normalize_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                    int *dx)
{
    const struct nn_normalize *a = normalize_attr(op);
    const int in[6] = {op->in[0], op->out[1], op->out[2], dy[0], op->in[1], op->in[1 + a->scale]};
    int out[3], n_in = 4 + a->scale;
    (void)wanted;
    if (dy[0] < 0)
        return;
    if (a->act == NN_RELU && a->center)
        n_in++;
    nn_tape_put(t, &nn_op_normalize_backward, a, sizeof *a, in, n_in, out, 1 + a->scale + a->center);
    dx[0] = out[0];
    // Gammas and betas may have several axes of their own: the gradients are theirs.
    for (int i = 1; i < op->n_in; i++)
        dx[i] = nn_tape_view(t, out[i], &op->in_type[i]);
}

// What came out, by the statistics there are: x is kept in any case. What the activation saves, this costs.
static int normalize_again(struct nn_tape *t, const struct nn_op *op)
{
    const struct nn_normalize *a = normalize_attr(op);
    const int in[5] = {op->in[0], op->out[1], op->out[2], op->in[1], op->in[2]};
    int y = -1;
    if (a->act != NN_LINEAR)
        nn_tape_put(t, &nn_op_normalize_by, a, sizeof *a, in, 3 + a->scale + a->center, &y, 1);
    return y;
}

static void normalize_differentiate_by(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                       int *dx)
{
    const struct nn_normalize *a = normalize_attr(op);
    if (a->synchronized)
        nn_moments_differentiate(t, op, dy[0], wanted, dx);
    else if (wanted[0])
        nn_tape_put(t, &nn_op_normalize_by_backward, a, sizeof *a, (int[]){op->in[2], dy[0], op->in[3]}, 2 + a->scale,
                    dx, 1);
}

// ---- references ---------------------------------------------------------------------------------------------------

// The element at hand, and which statistic and parameter are its own.
struct place {
    const struct nn_normalize *a;
    size_t count, statistic, parameter;
};

static struct place place_of(const struct nn_normalize *a, size_t element)
{
    struct place p = {.a = a, .count = element};
    size_t s = 1, g = 1;
    for (int i = NN_NORMALIZE_AXES; i--;) {
        size_t at = element % (size_t)a->dim[i];
        element /= (size_t)a->dim[i];
        p.statistic += a->statistic[i] ? s * at : 0;
        p.parameter += a->parameter[i] ? g * at : 0;
        s *= a->statistic[i] ? (size_t)a->dim[i] : 1;
        g *= a->parameter[i] ? (size_t)a->dim[i] : 1;
    }
    return p;
}

static double normalize_inverse(const struct nn_normalize *a, nn_real variance)
{
    return 1 / sqrt((double)variance + (double)a->epsilon);
}

// Sums over all elements of each statistic; `of` gives the element's.
static double *normalize_sums(const struct nn_frame *f, const struct nn_type *type,
                              double (*of)(const struct nn_frame *f, const struct place *p))
{
    const struct nn_normalize *a = normalize_attr(f->op);
    const size_t statistics = (size_t)nn_normalize_statistics(a), n = nn_type_count(type);
    double *sum = ps_alloc(statistics * sizeof *sum);
    for (size_t i = 0; i < n; i++) {
        const struct place p = place_of(a, i);
        sum[p.statistic] += of(f, &p) / (double)(n / statistics);
    }
    return sum;
}

static double normalize_x(const struct nn_frame *f, const struct place *p)
{
    return ((const nn_real *)f->in[0])[p->count];
}

static double normalize_square(const struct nn_frame *f, const struct place *p)
{
    double d = (double)((const nn_real *)f->in[0])[p->count] - ((const nn_real *)f->out[1])[p->statistic];
    return d * d;
}

static void normalize_put(const struct nn_frame *f, const nn_real *mean, const nn_real *variance, int gamma)
{
    const struct nn_normalize *a = normalize_attr(f->op);
    const nn_real *x = f->in[0];
    nn_real *y = f->out[0];
    for (size_t i = 0; i < nn_type_count(&f->op->in_type[0]); i++) {
        const struct place p = place_of(a, i);
        double v = ((double)x[i] - mean[p.statistic]) * normalize_inverse(a, variance[p.statistic]);
        v *= a->scale ? (double)((const nn_real *)f->in[gamma])[p.parameter] : 1;
        v += a->center ? (double)((const nn_real *)f->in[gamma + a->scale])[p.parameter] : 0;
        y[i] = a->act == NN_RELU && v < 0 ? 0 : (nn_real)v;
    }
}

// To outputs 1 and 2.
static void normalize_find_moments(const struct nn_frame *f)
{
    const size_t n = (size_t)nn_normalize_statistics(normalize_attr(f->op));
    nn_real *mean = f->out[1], *variance = f->out[2];
    double *sum = normalize_sums(f, &f->op->in_type[0], normalize_x);
    for (size_t i = 0; i < n; i++)
        mean[i] = (nn_real)sum[i];
    free(sum);
    sum = normalize_sums(f, &f->op->in_type[0], normalize_square);
    for (size_t i = 0; i < n; i++)
        variance[i] = (nn_real)sum[i];
    free(sum);
}

static void normalize_reference(const struct nn_frame *f)
{
    normalize_find_moments(f);
    normalize_put(f, f->out[1], f->out[2], 1);
}

static void normalize_reference_moments(const struct nn_frame *f)
{
    void *const out[3] = {NULL, f->out[0], f->out[1]};
    struct nn_frame to = *f;
    to.out = out;
    normalize_find_moments(&to);
}

static void normalize_reference_by(const struct nn_frame *f)
{
    normalize_put(f, f->in[1], f->in[2], 3);
}

// Of the backward pass: the normalized x, and the gradient by it.
static double normalize_hat(const struct nn_frame *f, const struct place *p)
{
    double d = (double)((const nn_real *)f->in[0])[p->count] - ((const nn_real *)f->in[1])[p->statistic];
    return d * normalize_inverse(p->a, ((const nn_real *)f->in[2])[p->statistic]);
}

// The gradient by what is before the activation.
static double normalize_dy(const struct nn_frame *f, const struct place *p)
{
    const struct nn_normalize *a = p->a;
    const double dy = ((const nn_real *)f->in[3])[p->count];
    double z = a->act == NN_RELU ? normalize_hat(f, p) : 1;
    if (a->act == NN_RELU && a->scale)
        z *= (double)((const nn_real *)f->in[4])[p->parameter];
    if (a->act == NN_RELU && a->center)
        z += (double)((const nn_real *)f->in[4 + a->scale])[p->parameter];
    return z > 0 ? dy : 0;
}

static double normalize_slope(const struct nn_frame *f, const struct place *p)
{
    double dy = normalize_dy(f, p);
    return p->a->scale ? dy * ((const nn_real *)f->in[4])[p->parameter] : dy;
}

static double normalize_slope_hat(const struct nn_frame *f, const struct place *p)
{
    return normalize_slope(f, p) * normalize_hat(f, p);
}

// With g = dy * gamma, h the normalized x and means over the elements of a statistic:
// dx = (g - mean(g) - h * mean(g * h)) / sqrt(variance + epsilon); dgamma = sum of dy * h, dbeta = sum of dy.
static void normalize_reference_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_attr(f->op);
    const struct nn_type *type = &f->op->in_type[0];
    const size_t parameters = (size_t)nn_normalize_parameters(a);
    const nn_real *variance = f->in[2];
    double *g = normalize_sums(f, type, normalize_slope), *gh = normalize_sums(f, type, normalize_slope_hat);
    double *sum = ps_alloc(2 * parameters * sizeof *sum);
    nn_real *dx = f->out[0];
    for (size_t i = 0; i < nn_type_count(type); i++) {
        const struct place p = place_of(a, i);
        double h = normalize_hat(f, &p), v = normalize_slope(f, &p) - g[p.statistic] - h * gh[p.statistic];
        sum[p.parameter] += normalize_dy(f, &p) * h;
        sum[parameters + p.parameter] += normalize_dy(f, &p);
        dx[i] = (nn_real)(v * normalize_inverse(a, variance[p.statistic]));
    }
    for (size_t i = 0; i < parameters; i++) {
        if (a->scale)
            ((nn_real *)f->out[1])[i] = (nn_real)sum[i];
        if (a->center)
            ((nn_real *)f->out[1 + a->scale])[i] = (nn_real)sum[parameters + i];
    }
    free(g);
    free(gh);
    free(sum);
}

static void normalize_reference_by_backward(const struct nn_frame *f)
{
    const struct nn_normalize *a = normalize_attr(f->op);
    const nn_real *variance = f->in[0], *dy = f->in[1];
    nn_real *dx = f->out[0];
    for (size_t i = 0; i < nn_type_count(&f->op->in_type[1]); i++) {
        const struct place p = place_of(a, i);
        double gamma = a->scale ? (double)((const nn_real *)f->in[2])[p.parameter] : 1;
        dx[i] = (nn_real)((double)dy[i] * gamma * normalize_inverse(a, variance[p.statistic]));
    }
}

const struct nn_op_class nn_op_normalize = {.name = "normalize",
                                            .infer = normalize_infer,
                                            .differentiate = normalize_differentiate,
                                            .again = normalize_again,
                                            .reference = normalize_reference};
const struct nn_op_class nn_op_normalize_backward = {
    .name = "normalize_backward", .infer = normalize_infer_backward, .reference = normalize_reference_backward};
const struct nn_op_class nn_op_moments = {
    .name = "moments", .infer = normalize_infer_moments, .reference = normalize_reference_moments};
const struct nn_op_class nn_op_normalize_by = {.name = "normalize_by",
                                               .infer = normalize_infer_by,
                                               .differentiate = normalize_differentiate_by,
                                               .reference = normalize_reference_by,
                                               .in_place = 1 + 0};
const struct nn_op_class nn_op_normalize_by_backward = {.name = "normalize_by_backward",
                                                        .infer = normalize_infer_by_backward,
                                                        .reference = normalize_reference_by_backward,
                                                        .in_place = 1 + 1};
