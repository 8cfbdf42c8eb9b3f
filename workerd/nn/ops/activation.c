// SPDX-License-Identifier: Apache-2.0
//
// Functions of each element alone: y = f(x), dx = f'(x) dy. Formulas are Keras's (keras.activations).
#include "workerd/nn/ops/activation.h"

#include <math.h>

#include "workerd/nn/tape.h"

static const double GELU_SCALE = 0.79788456080286536, GELU_CUBE = 0.044715;  // sqrt(2 / pi); Hendrycks and Gimpel 2016

// ---- values and slopes --------------------------------------------------------------------------------------------
//
// A slope takes the function's value, or its argument: the table says which.

static double sigmoid_of(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double softplus_of(double x)
{
    return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
}

static double rectifier_value(const struct nn_function *f, double x)
{
    return x > (double)f->b ? (x > (double)f->c ? (double)f->c : x) : (double)f->a * (x - (double)f->b);
}

static double rectifier_slope(const struct nn_function *f, double x)
{
    return x > (double)f->c ? 0 : x > (double)f->b ? 1 : (double)f->a;
}

static double elu_value(const struct nn_function *f, double x)
{
    return x > 0 ? (double)f->b * x : (double)f->a * expm1(x);
}

static double elu_slope(const struct nn_function *f, double y)
{
    return y > 0 ? (double)f->b : y + (double)f->a;
}

static double ramp_value(const struct nn_function *f, double x)
{
    double v = (double)f->a * x + (double)f->b;
    return v < (double)f->c ? (double)f->c : v > 1 ? 1 : v;
}

static double ramp_slope(const struct nn_function *f, double y)
{
    return y > (double)f->c && y < 1 ? (double)f->a : 0;
}

static double exponential_value(const struct nn_function *f, double x)
{
    (void)f;
    return exp(x);
}

static double exponential_slope(const struct nn_function *f, double y)
{
    (void)f;
    return y;
}

static double gelu_value(const struct nn_function *f, double x)
{
    (void)f;
    return x * 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_slope(const struct nn_function *f, double x)
{
    (void)f;
    return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-x * x / 2) * GELU_SCALE / 2;
}

static double gelu_approximate_value(const struct nn_function *f, double x)
{
    (void)f;
    return 0.5 * x * (1 + tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)));
}

static double gelu_approximate_slope(const struct nn_function *f, double x)
{
    double t = tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x));
    (void)f;
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBE * x * x);
}

static double hard_shrink_value(const struct nn_function *f, double x)
{
    return fabs(x) <= (double)f->a ? 0 : x;
}

static double shrink_slope(const struct nn_function *f, double y)
{
    (void)f;
    return y == 0 ? 0 : 1;
}

static double soft_shrink_value(const struct nn_function *f, double x)
{
    return fabs(x) <= (double)f->a ? 0 : x < 0 ? x + (double)f->a : x - (double)f->a;
}

static double hard_silu_value(const struct nn_function *f, double x)
{
    double v = x / 6 + 0.5;
    (void)f;
    return x * (v < 0 ? 0 : v > 1 ? 1 : v);
}

static double hard_silu_slope(const struct nn_function *f, double x)
{
    (void)f;
    return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5;
}

static double log_sigmoid_value(const struct nn_function *f, double x)
{
    (void)f;
    return -softplus_of(-x);
}

static double log_sigmoid_slope(const struct nn_function *f, double y)
{
    (void)f;
    return -expm1(y);
}

static double mish_value(const struct nn_function *f, double x)
{
    (void)f;
    return x * tanh(softplus_of(x));
}

static double mish_slope(const struct nn_function *f, double x)
{
    double t = tanh(softplus_of(x));
    (void)f;
    return t + x * (1 - t * t) * sigmoid_of(x);
}

static double sigmoid_value(const struct nn_function *f, double x)
{
    (void)f;
    return sigmoid_of(x);
}

static double sigmoid_slope(const struct nn_function *f, double y)
{
    (void)f;
    return y * (1 - y);
}

static double silu_value(const struct nn_function *f, double x)
{
    (void)f;
    return x * sigmoid_of(x);
}

static double silu_slope(const struct nn_function *f, double x)
{
    double s = sigmoid_of(x);
    (void)f;
    return s * (1 + x * (1 - s));
}

static double softplus_value(const struct nn_function *f, double x)
{
    (void)f;
    return softplus_of(x);
}

static double softplus_slope(const struct nn_function *f, double y)
{
    (void)f;
    return -expm1(-y);
}

static double softsign_value(const struct nn_function *f, double x)
{
    (void)f;
    return x / (1 + fabs(x));
}

static double softsign_slope(const struct nn_function *f, double y)
{
    double v = 1 - fabs(y);
    (void)f;
    return v * v;
}

static double sparse_plus_value(const struct nn_function *f, double x)
{
    (void)f;
    return x <= -1 ? 0 : x < 1 ? (x + 1) * (x + 1) / 4 : x;
}

static double sparse_plus_slope(const struct nn_function *f, double x)
{
    (void)f;
    return x <= -1 ? 0 : x < 1 ? (x + 1) / 2 : 1;
}

static double squareplus_value(const struct nn_function *f, double x)
{
    return (x + sqrt(x * x + (double)f->a)) / 2;
}

static double squareplus_slope(const struct nn_function *f, double x)
{
    return (1 + x / sqrt(x * x + (double)f->a)) / 2;
}

static double tanh_value(const struct nn_function *f, double x)
{
    (void)f;
    return tanh(x);
}

static double tanh_slope(const struct nn_function *f, double y)
{
    (void)f;
    return 1 - y * y;
}

static double tanh_shrink_value(const struct nn_function *f, double x)
{
    (void)f;
    return x - tanh(x);
}

static double tanh_shrink_slope(const struct nn_function *f, double x)
{
    double t = tanh(x);
    (void)f;
    return t * t;
}

static const struct activation_row {
    double (*value)(const struct nn_function *f, double x);
    double (*slope)(const struct nn_function *f, double v);
    bool by_value;  // the slope follows from the function's value, otherwise from its argument
} rows[NN_FUNCTIONS] = {
    [NN_F_RECTIFIER] = {rectifier_value, rectifier_slope, false},
    [NN_F_ELU] = {elu_value, elu_slope, true},
    [NN_F_RAMP] = {ramp_value, ramp_slope, true},
    [NN_F_EXPONENTIAL] = {exponential_value, exponential_slope, true},
    [NN_F_GELU] = {gelu_value, gelu_slope, false},
    [NN_F_GELU_APPROXIMATE] = {gelu_approximate_value, gelu_approximate_slope, false},
    [NN_F_HARD_SHRINK] = {hard_shrink_value, shrink_slope, true},
    [NN_F_HARD_SILU] = {hard_silu_value, hard_silu_slope, false},
    [NN_F_LOG_SIGMOID] = {log_sigmoid_value, log_sigmoid_slope, true},
    [NN_F_MISH] = {mish_value, mish_slope, false},
    [NN_F_SIGMOID] = {sigmoid_value, sigmoid_slope, true},
    [NN_F_SILU] = {silu_value, silu_slope, false},
    [NN_F_SOFT_SHRINK] = {soft_shrink_value, shrink_slope, true},
    [NN_F_SOFTPLUS] = {softplus_value, softplus_slope, true},
    [NN_F_SOFTSIGN] = {softsign_value, softsign_slope, true},
    [NN_F_SPARSE_PLUS] = {sparse_plus_value, sparse_plus_slope, false},
    [NN_F_SQUAREPLUS] = {squareplus_value, squareplus_slope, false},
    [NN_F_TANH] = {tanh_value, tanh_slope, true},
    [NN_F_TANH_SHRINK] = {tanh_shrink_value, tanh_shrink_slope, false},
};

// ---- the operator -------------------------------------------------------------------------------------------------

static enum ps_code activation_infer(struct nn_op *op, struct ps_error *e)
{
    const struct nn_function *f = (const struct nn_function *)op->attr;
    if (f->kind >= NN_FUNCTIONS || !rows[f->kind].value)
        return nn_op_fail(op, e, "expected a function of each element");
    op->out_type[0] = op->in_type[0];
    return PS_OK;
}

static void activation_differentiate(struct nn_tape *t, const struct nn_op *op, const int *dy, const bool *wanted,
                                     int *dx)
{
    const struct nn_function *f = (const struct nn_function *)op->attr;
    int of = rows[f->kind].by_value ? op->out[0] : op->in[0];
    (void)wanted;
    nn_tape_put(t, &nn_op_activation_backward, f, sizeof *f, (int[]){of, dy[0]}, 2, dx, 1);
}

static void activation_reference(const struct nn_frame *frame)
{
    const struct nn_function *f = (const struct nn_function *)frame->op->attr;
    const nn_real *x = frame->in[0];
    nn_real *y = frame->out[0];
    for (size_t i = 0, n = nn_type_count(&frame->op->out_type[0]); i < n; i++)
        y[i] = (nn_real)rows[f->kind].value(f, (double)x[i]);
}

static void activation_reference_backward(const struct nn_frame *frame)
{
    const struct nn_function *f = (const struct nn_function *)frame->op->attr;
    const nn_real *v = frame->in[0], *dy = frame->in[1];
    nn_real *dx = frame->out[0];
    for (size_t i = 0, n = nn_type_count(&frame->op->out_type[0]); i < n; i++)
        dx[i] = (nn_real)(rows[f->kind].slope(f, (double)v[i]) * (double)dy[i]);
}

const struct nn_op_class nn_op_activation = {.name = "activation",
                                             .infer = activation_infer,
                                             .differentiate = activation_differentiate,
                                             .reference = activation_reference,
                                             .in_place = 1 + 0};
const struct nn_op_class nn_op_activation_backward = {.name = "activation_backward",
                                                      .infer = activation_infer,
                                                      .reference = activation_reference_backward,
                                                      .in_place = 1 + 1};
