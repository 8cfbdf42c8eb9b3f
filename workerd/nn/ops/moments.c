// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/ops/moments.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/tape.h"

static const struct nn_normalize *moments_attr(const struct nn_op *op)
{
    return (const struct nn_normalize *)op->attr;
}

static size_t moments_count(const struct nn_op *op)
{
    return (size_t)nn_normalize_statistics(moments_attr(op));
}

// Elements of this replica for each mean.
static double moments_elements(const struct nn_op *op)
{
    const struct nn_normalize *a = moments_attr(op);
    double n = 1;
    for (int i = 0; i < NN_NORMALIZE_AXES; i++)
        n *= a->statistic[i] ? 1 : (double)a->dim[i];
    return n;
}

static enum ps_code moments_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_type statistic = {NN_FLOAT, 1, {nn_normalize_statistics(moments_attr(op))}};
    op->out_type[0] = op->out_type[1] = statistic;
    for (int i = 0; i < op->n_in; i++)
        if (nn_type_count(&op->in_type[i]) != moments_count(op))
            return nn_op_fail(op, e, "input %d has %zu numbers: expected one for each mean, %zu", i,
                              nn_type_count(&op->in_type[i]), moments_count(op));
    return PS_OK;
}

// The number of elements, then two sums for each mean.
static size_t moments_sums(const struct nn_op *op)
{
    return 1 + 2 * moments_count(op);
}

// As one replica that has the whole batch.
static void moments_alone(const struct nn_frame *f)
{
    double *sums = ps_alloc(moments_sums(f->op) * sizeof *sums);
    f->op->class->give(f, sums);
    f->op->class->take(f, sums);
    free(sums);
}

// ---- forward ------------------------------------------------------------------------------------------------------

// Sums of x and of its squares, in double: with means m_r and variances v_r of n_r elements, the batch's variance is
// sum(n_r (v_r + m_r^2)) / N - m^2, which is Chan, Golub and LeVeque's sum of n_r v_r + n_r (m_r - m)^2, over N
// (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979).
static void moments_give(const struct nn_frame *f, double *sums)
{
    const nn_real *mean = f->in[0], *variance = f->in[1];
    const size_t count = moments_count(f->op);
    const double n = sums[0] = moments_elements(f->op);
    for (size_t i = 0; i < count; i++) {
        sums[1 + i] = n * (double)mean[i];
        sums[1 + count + i] = n * ((double)variance[i] + (double)mean[i] * (double)mean[i]);
    }
}

// A variance that should be 0 may come out a little below that; a NaN stays one.
static void moments_take(const struct nn_frame *f, const double *sums)
{
    nn_real *mean = f->out[0], *variance = f->out[1];
    const size_t count = moments_count(f->op);
    for (size_t i = 0; i < count; i++) {
        const double m = sums[1 + i] / sums[0], v = sums[1 + count + i] / sums[0] - m * m;
        mean[i] = (nn_real)m;
        variance[i] = (nn_real)(v < 0 ? 0 : v);
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------

// Each replica's sums count by its part of the batch, n_r / N, as its gradients do: sums over the batch are
// sum(n_r s_r) / N.
static void slopes_give(const struct nn_frame *f, double *sums)
{
    const nn_real *dgamma = f->in[0], *dbeta = f->in[1];
    const size_t count = moments_count(f->op);
    const double n = sums[0] = moments_elements(f->op);
    for (size_t i = 0; i < count; i++) {
        sums[1 + i] = n * (double)dgamma[i];
        sums[1 + count + i] = n * (double)dbeta[i];
    }
}

// With S the batch's sum of dy and s this replica's, S' and s' those of dy h: what is taken back is S / n instead of
// s / n, because all gradients of this replica will be multiplied by n / N; and likewise S'.
static void slopes_take(const struct nn_frame *f, const double *sums)
{
    const struct nn_normalize *a = moments_attr(f->op);
    const nn_real *dgamma = f->in[0], *dbeta = f->in[1], *variance = f->in[2], *gamma = a->scale ? f->in[3] : NULL;
    nn_real *scale = f->out[0], *offset = f->out[1];
    const size_t count = moments_count(f->op);
    const double n = moments_elements(f->op);
    for (size_t i = 0; i < count; i++) {
        const double by = (gamma ? (double)gamma[i] : 1) / sqrt((double)variance[i] + (double)a->epsilon) / n;
        scale[i] = (nn_real)(by * ((double)dgamma[i] - sums[1 + i] / sums[0]));
        offset[i] = (nn_real)(by * ((double)dbeta[i] - sums[1 + count + i] / sums[0]));
    }
}

// dx of this replica alone, and what the others add to that.
static int moments_put_dx(struct nn_tape *t, const struct nn_op *op, int dx, const int *sums)
{
    const struct nn_normalize *a = moments_attr(op);
    struct nn_normalize by = *a;
    int in[5] = {sums[0], sums[1], op->in[2], op->in[3]}, more;
    nn_tape_put(t, &nn_op_join_slopes, a, sizeof *a, in, 3 + a->scale, in + 3, 2);
    by.scale = by.center = true;
    by.synchronized = false;
    nn_tape_put(t, &nn_op_normalize_by, &by, sizeof by, (int[]){op->in[0], op->in[1], op->in[2], in[3], in[4]}, 5,
                &more, 1);
    nn_tape_put(t, &nn_op_add, NULL, 0, (int[]){dx, more}, 2, &dx, 1);
    return dx;
}

// Both sums are wanted, whether the layer has a gamma and a beta or not.
void nn_moments_differentiate(struct nn_tape *t, const struct nn_op *op, int dy, const bool *wanted, int *dx)
{
    const struct nn_affine ones = {0, 1};
    struct nn_normalize a = *moments_attr(op);
    int gamma = op->in[3], out[3];
    if (!a.scale)
        nn_tape_put(t, &nn_op_affine, &ones, sizeof ones, &op->in[2], 1, &gamma, 1);
    a.scale = a.center = true;
    nn_tape_put(t, &nn_op_normalize_backward, &a, sizeof a, (int[]){op->in[0], op->in[1], op->in[2], dy, gamma}, 5, out,
                3);
    if (wanted[0])
        dx[0] = moments_put_dx(t, op, out[0], out + 1);
    for (int i = 3; i < op->n_in; i++)
        dx[i] = nn_tape_view(t, out[1 + (i > 3 || !moments_attr(op)->scale)], &op->in_type[i]);
}

const struct nn_op_class nn_op_join_moments = {.name = "join_moments",
                                               .infer = moments_infer,
                                               .reference = moments_alone,
                                               .sums = moments_sums,
                                               .give = moments_give,
                                               .take = moments_take};
const struct nn_op_class nn_op_join_slopes = {.name = "join_slopes",
                                              .infer = moments_infer,
                                              .reference = moments_alone,
                                              .sums = moments_sums,
                                              .give = slopes_give,
                                              .take = slopes_take};
