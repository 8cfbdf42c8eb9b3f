// SPDX-License-Identifier: Apache-2.0
//
// keras/src/losses/losses.py, and keras/src/backend/tensorflow/nn.py for the cross-entropies; gradients as TensorFlow
// has them where a function has an edge: what is clipped has none outside the bounds, of max(a, b) the first has it
// where both are equal.
#include "workerd/nn/ops/losses.h"

#include <math.h>
#include <string.h>

#include "workerd/nn/tape.h"

static const double EPSILON = 1e-7;  // Keras's
static const nn_real ONE_LESS =
    (nn_real)(1 - 1e-7);  // as a float it is 1 - 1.2e-7, whose logarithm of the rest shows it

// One row. Of what a function gives, dx (n) is the gradient by p, NULL where that is not wanted.
struct loss_row {
    const struct ps_loss *loss;
    size_t n;
    const nn_real *p, *t;
    nn_real *y, *dx;
    bool binary;  // all targets of the batch are 0 or 1
};

static double loss_clip(double p, double least, double most)
{
    return p < least ? least : p > most ? most : p;  // a NaN stays one
}

static bool loss_is_inside(double p, double least, double most)
{
    return !(p < least || p > most);
}

static double loss_sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double loss_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

// ---- of elements, whose mean it is --------------------------------------------------------------------------------

static double loss_mae(const struct loss_row *r, double p, double t, double *slope)
{
    (void)r;
    *slope = p > t ? 1 : p < t ? -1 : p - t;
    return fabs(p - t);
}

static double loss_mape(const struct loss_row *r, double p, double t, double *slope)
{
    const double base = fmax(fabs(t), EPSILON);
    double error = 100 * loss_mae(r, p, t, slope) / base;
    *slope *= 100 / base;
    return error;
}

static double loss_msle(const struct loss_row *r, double p, double t, double *slope)
{
    (void)r;
    const double floor_p = p < EPSILON ? EPSILON : p, floor_t = t < EPSILON ? EPSILON : t;
    const double d = log(floor_p + 1) - log(floor_t + 1);
    *slope = p < EPSILON ? 0 : 2 * d / (floor_p + 1);
    return d * d;
}

static double loss_huber(const struct loss_row *r, double p, double t, double *slope)
{
    const double delta = r->loss->delta, error = p - t;
    if (fabs(error) > delta) {
        *slope = error > 0 ? delta : -delta;
        return delta * fabs(error) - 0.5 * delta * delta;
    }
    *slope = error;
    return 0.5 * error * error;
}

static double loss_log_cosh(const struct loss_row *r, double p, double t, double *slope)
{
    (void)r;
    const double x = p - t;
    *slope = tanh(x);
    return x + loss_softplus(-2 * x) - log(2);
}

static double loss_hinge(const struct loss_row *r, double p, double t, double *slope)
{
    const double side = r->binary ? 2 * t - 1 : t, lack = 1 - side * p;
    *slope = lack < 0 ? 0 : -side;
    return lack < 0 ? 0 : lack;
}

static double loss_squared_hinge(const struct loss_row *r, double p, double t, double *slope)
{
    double lack = loss_hinge(r, p, t, slope);
    *slope *= 2 * lack;
    return lack * lack;
}

static double loss_poisson(const struct loss_row *r, double p, double t, double *slope)
{
    (void)r;
    *slope = 1 - t / (p + EPSILON);
    return p - t * log(p + EPSILON);
}

static double loss_smooth_binary(const struct loss_row *r, double t)
{
    const double smoothing = r->loss->label_smoothing;
    return t * (1 - smoothing) + 0.5 * smoothing;
}

// Of a probability.
static double loss_binary_of(double p, double t, double *slope)
{
    const double q = loss_clip(p, EPSILON, ONE_LESS);
    *slope = loss_is_inside(p, EPSILON, ONE_LESS) ? (1 - t) / (1 - q) - t / q : 0;
    return -t * log(q) - (1 - t) * log(1 - q);
}

static double loss_binary_xent(const struct loss_row *r, double x, double t, double *slope)
{
    t = loss_smooth_binary(r, t);
    if (!r->loss->from_logits)
        return loss_binary_of(x, t, slope);
    *slope = loss_sigmoid(x) - t;
    return loss_softplus(x) - x * t;
}

// The cross-entropy times (1 - p_t)^gamma, p_t the probability of the right answer.
static double loss_binary_focal(const struct loss_row *r, double x, double t, double *slope)
{
    const struct ps_loss *l = r->loss;
    t = loss_smooth_binary(r, t);
    const double p = l->from_logits ? loss_sigmoid(x) : x, dp = l->from_logits ? p * (1 - p) : 1;
    const double wrong = 1 - (t * p + (1 - t) * (1 - p)), factor = pow(wrong, l->gamma);
    const double balance = l->apply_class_balancing ? t * l->alpha + (1 - t) * (1 - l->alpha) : 1;
    const double entropy = l->from_logits ? loss_softplus(x) - x * t : loss_binary_of(x, t, slope);
    if (l->from_logits)
        *slope = p - t;
    const double steep = l->gamma > 0 ? l->gamma * pow(wrong, l->gamma - 1) * (1 - 2 * t) * dp : 0;
    *slope = balance * (factor * *slope + steep * entropy);
    return balance * factor * entropy;
}

typedef double (*loss_element)(const struct loss_row *r, double p, double t, double *slope);

static const loss_element loss_elements[PS_LOSS_KINDS] = {
    [PS_LOSS_MAE] = loss_mae,
    [PS_LOSS_MAPE] = loss_mape,
    [PS_LOSS_MSLE] = loss_msle,
    [PS_LOSS_HUBER] = loss_huber,
    [PS_LOSS_LOG_COSH] = loss_log_cosh,
    [PS_LOSS_HINGE] = loss_hinge,
    [PS_LOSS_SQUARED_HINGE] = loss_squared_hinge,
    [PS_LOSS_POISSON] = loss_poisson,
    [PS_LOSS_BINARY_XENT] = loss_binary_xent,
    [PS_LOSS_BINARY_FOCAL] = loss_binary_focal,
};

static double loss_mean_of_elements(const struct loss_row *r)
{
    const loss_element element = loss_elements[r->loss->kind];
    double sum = 0, slope;
    for (size_t i = 0; i < r->n; i++) {
        sum += element(r, r->p[i], r->t[i], &slope);
        if (r->dx)
            r->dx[i] = (nn_real)(slope / (double)r->n);
        if (r->y)
            r->y[i] = (nn_real)loss_sigmoid(r->p[i]);
    }
    return sum / (double)r->n;
}

// ---- of rows ------------------------------------------------------------------------------------------------------

static double loss_smooth(const struct loss_row *r, size_t i)
{
    const double smoothing = r->loss->label_smoothing;
    return r->t[i] * (1 - smoothing) + smoothing / (double)r->n;
}

static double loss_greatest(const struct loss_row *r)
{
    double max = r->p[0];
    for (size_t i = 1; i < r->n; i++)
        max = r->p[i] > max || isnan(r->p[i]) ? r->p[i] : max;
    return max;
}

// The gradient is softmax(x) - t, as in TensorFlow: targets are taken to add up to 1.
static double loss_xent_of_logits(const struct loss_row *r)
{
    const double max = loss_greatest(r);
    double sum = 0, loss = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += exp(r->p[i] - max);
    for (size_t i = 0; i < r->n; i++) {
        const double p = exp(r->p[i] - max) / sum, t = loss_smooth(r, i);
        loss += t > 0 || t < 0 ? t * (log(sum) + max - r->p[i]) : 0;
        if (r->y)
            r->y[i] = (nn_real)p;
        if (r->dx)
            r->dx[i] = (nn_real)(p - t);
    }
    return loss;
}

// -t log q, and its slope by q. With focal, times alpha (1 - q)^gamma.
static double loss_xent_term(const struct loss_row *r, size_t i, double q, double *slope)
{
    const struct ps_loss *l = r->loss;
    const double entropy = -loss_smooth(r, i) * log(q);
    *slope = -loss_smooth(r, i) / q;
    if (l->kind == PS_LOSS_XENT)
        return entropy;
    const double factor = l->alpha * pow(1 - q, l->gamma);
    const double steep = l->gamma > 0 ? -l->alpha * l->gamma * pow(1 - q, l->gamma - 1) : 0;
    *slope = factor * *slope + steep * entropy;
    return factor * entropy;
}

// q = clip(p / sum of p): d loss / d p_j = (g_j - sum_i g_i p_i / sum) / sum, where g_i = d loss / d q_i.
static double loss_xent_of_probabilities(const struct loss_row *r)
{
    double sum = 0, loss = 0, dot = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->p[i];
    for (size_t i = 0; i < r->n; i++) {
        const double share = r->p[i] / sum;
        double slope;
        loss += loss_xent_term(r, i, loss_clip(share, EPSILON, ONE_LESS), &slope);
        slope = loss_is_inside(share, EPSILON, ONE_LESS) ? slope : 0;
        dot += slope * share;
        if (r->dx)
            r->dx[i] = (nn_real)slope;
    }
    for (size_t i = 0; r->dx && i < r->n; i++)
        r->dx[i] = (nn_real)((r->dx[i] - dot) / sum);
    return loss;
}

static double loss_xent(const struct loss_row *r)
{
    return r->loss->from_logits ? loss_xent_of_logits(r) : loss_xent_of_probabilities(r);
}

static double loss_kl(const struct loss_row *r)
{
    double loss = 0;
    for (size_t i = 0; i < r->n; i++) {
        const double p = loss_clip(r->p[i], EPSILON, 1), t = loss_clip(r->t[i], EPSILON, 1);
        loss += t * log(t / p);
        if (r->dx)
            r->dx[i] = (nn_real)(loss_is_inside(r->p[i], EPSILON, 1) ? -t / p : 0);
    }
    return loss;
}

// max(1 + max((1 - t) p) - sum(t p), 0); of several that are greatest, each has its part of the gradient.
static double loss_categorical_hinge(const struct loss_row *r)
{
    double right = 0, wrong = -HUGE_VAL, ties = 0;
    for (size_t i = 0; i < r->n; i++) {
        const double other = (1 - r->t[i]) * r->p[i];
        right += r->t[i] * r->p[i];
        ties = other > wrong ? 1 : ties + !(other < wrong);
        wrong = other > wrong || isnan(other) ? other : wrong;
    }
    const double lack = wrong - right + 1;
    for (size_t i = 0; r->dx && i < r->n; i++) {
        const double t = r->t[i];
        const bool greatest = !((1 - t) * r->p[i] < wrong);
        r->dx[i] = (nn_real)(lack < 0 ? 0 : (greatest ? (1 - t) / ties : 0) - t);
    }
    return lack < 0 ? 0 : lack;
}

// 1 / |x|, at most 1 / EPSILON.
static double loss_inverse_norm(size_t n, const nn_real *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum > EPSILON * EPSILON || isnan(sum) ? 1 / sqrt(sum) : 1 / EPSILON;
}

static double loss_cosine(const struct loss_row *r)
{
    const double by_p = loss_inverse_norm(r->n, r->p), by_t = loss_inverse_norm(r->n, r->t);
    double dot = 0;
    for (size_t i = 0; i < r->n; i++)
        dot += (double)r->p[i] * by_p * r->t[i] * by_t;
    const double fall = by_p < 1 / EPSILON ? dot * by_p * by_p : 0;
    for (size_t i = 0; r->dx && i < r->n; i++)
        r->dx[i] = (nn_real)(r->p[i] * fall - r->t[i] * by_t * by_p);
    return -dot;
}

typedef double (*loss_function)(const struct loss_row *r);

static const loss_function loss_rows[PS_LOSS_KINDS] = {
    [PS_LOSS_XENT] = loss_xent,     [PS_LOSS_FOCAL] = loss_xent_of_probabilities,
    [PS_LOSS_KL] = loss_kl,         [PS_LOSS_CATEGORICAL_HINGE] = loss_categorical_hinge,
    [PS_LOSS_COSINE] = loss_cosine,
};

// ---- the operator -------------------------------------------------------------------------------------------------

static enum ps_code loss_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_loss_attr *a = (const struct nn_loss_attr *)op->attr;
    const struct nn_type *x = &op->in_type[0];
    if (x->rank != 2 || memcmp(x, &op->in_type[1], sizeof *x) != 0)
        return nn_op_fail(op, e, "expected outputs of shape (rows, width) and targets like them");
    nn_loss_outputs_infer(op, a->probabilities, a->gradient);
    return PS_OK;
}

static bool loss_targets_are_binary(size_t n, const nn_real *t)
{
    for (size_t i = 0; i < n; i++)
        if (t[i] < 0 || t[i] > 1 || (t[i] > 0 && t[i] < 1) || isnan(t[i]))
            return false;
    return true;
}

static void loss_reference(const struct nn_frame *f)
{
    const struct nn_loss_attr *a = (const struct nn_loss_attr *)f->op->attr;
    const size_t rows = (size_t)f->op->in_type[0].dim[0], n = (size_t)f->op->in_type[0].dim[1];
    const nn_real *x = f->in[0], *target = f->in[1], *weight = f->in[2];
    const loss_function function = loss_rows[a->loss.kind] ? loss_rows[a->loss.kind] : loss_mean_of_elements;
    const bool hinge = a->loss.kind == PS_LOSS_HINGE || a->loss.kind == PS_LOSS_SQUARED_HINGE;
    nn_real *loss = f->out[0], *y = a->probabilities ? f->out[1] : NULL;
    nn_real *dx = a->gradient ? f->out[1 + a->probabilities] : NULL;
    struct loss_row r = {.loss = &a->loss, .n = n, .binary = hinge && loss_targets_are_binary(rows * n, target)};
    for (size_t i = 0; i < rows; i++) {
        r.p = x + i * n;
        r.t = target + i * n;
        r.y = y ? y + i * n : NULL;
        r.dx = dx ? dx + i * n : NULL;
        loss[i] = (nn_real)function(&r);
        for (size_t j = 0; r.dx && j < n; j++)
            r.dx[j] *= weight[i];
    }
}

const struct nn_op_class nn_op_loss = {.name = "loss", .infer = loss_infer, .reference = loss_reference};

// ---- weights ------------------------------------------------------------------------------------------------------

static enum ps_code loss_weights_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_loss_weights *a = (const struct nn_loss_weights *)op->attr;
    const int64_t n = op->in_type[0].dim[0] * a->steps;
    if (op->n_in > 1 && nn_type_count(&op->in_type[1]) != (size_t)n)
        return nn_op_fail(op, e, "expected a mask of the rows' steps");
    op->out_type[0] = (struct nn_type){NN_FLOAT, 1, {n}};
    return PS_OK;
}

static bool loss_mask_has(const struct nn_type *type, const void *mask, size_t i)
{
    return type->dtype == NN_UINT8   ? ((const uint8_t *)mask)[i] != 0
           : type->dtype == NN_INT32 ? ((const int32_t *)mask)[i] != 0
                                     : ((const nn_real *)mask)[i] > 0 || ((const nn_real *)mask)[i] < 0;
}

static void loss_weights_reference(const struct nn_frame *f)
{
    const size_t steps = (size_t)((const struct nn_loss_weights *)f->op->attr)->steps;
    const size_t n = nn_type_count(&f->op->out_type[0]);
    const void *mask = f->op->n_in > 1 ? f->in[1] : NULL;
    const nn_real *weight = f->in[0];
    nn_real *to = f->out[0];
    double count = 0;
    for (size_t i = 0; i < n; i++)
        count += !mask || loss_mask_has(&f->op->in_type[1], mask, i);
    const double scale = count > 0 ? (double)n / count / (double)steps : 0;
    for (size_t i = 0; i < n; i++)
        to[i] = !mask || loss_mask_has(&f->op->in_type[1], mask, i) ? (nn_real)(weight[i / steps] * scale) : 0;
}

const struct nn_op_class nn_op_loss_weights = {
    .name = "loss_weights", .infer = loss_weights_infer, .reference = loss_weights_reference};
