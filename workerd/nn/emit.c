// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/emit.h"

#include "workerd/nn/layer.h"

struct emitter {
    struct nn_tape *tape;
    const struct nn_model *model;
    int rows;
    bool training;
    int example;  // the tensor; -1: nothing has asked for it
    int x;        // what the layers so far have made
};

static struct nn_type emit_type(const struct emitter *m, const uint64_t *shape, size_t rank)
{
    struct nn_type type = {.dtype = NN_FLOAT, .rank = (int)rank + 1, .dim = {m->rows}};
    for (size_t i = 0; i < rank; i++)
        type.dim[i + 1] = (int64_t)shape[i];
    return type;
}

static int emit_column(const struct emitter *m, enum nn_column column, enum nn_dtype dtype)
{
    return nn_tape_input(m->tape, column, &(struct nn_type){dtype, 1, {m->rows}});
}

static int emit_weight(const struct emitter *m, const struct nn_layer *l, int variable)
{
    const struct nn_param *p = &m->model->variable[variable].param;
    struct nn_type type = {.dtype = NN_FLOAT, .rank = (int)p->rank};
    for (size_t i = 0; i < p->rank; i++)
        type.dim[i] = (int64_t)p->shape[i];
    return nn_tape_weight(m->tape, variable, &type, l->trainable);
}

// ---- layers -------------------------------------------------------------------------------------------------------

// A convolution or a dense layer: x, kernel[, bias].
static void emit_weighted(struct emitter *m, const struct nn_layer *l, const struct nn_op_class *class,
                          const void *attr, size_t attr_bytes)
{
    int in[3] = {m->x, emit_weight(m, l, l->kernel)};
    if (l->bias >= 0)
        in[2] = emit_weight(m, l, l->bias);
    nn_tape_put(m->tape, class, attr, attr_bytes, in, l->bias >= 0 ? 3 : 2, &m->x, 1);
}

// The place of an activation in an operator that can compute one, if it computes none yet.
static enum nn_activation *emit_free_activation(const struct emitter *m)
{
    struct nn_op *op = m->x >= 0 ? nn_tape_maker(m->tape, m->x) : NULL;
    enum nn_activation *act = NULL;
    if (op && op->class == &nn_op_conv2d)
        act = &((struct nn_conv2d *)op->attr)->act;
    else if (op && op->class == &nn_op_dense)
        act = &((struct nn_dense *)op->attr)->act;
    return act && *act == NN_LINEAR ? act : NULL;
}

static void emit_function(struct emitter *m, enum nn_function function)
{
    enum nn_activation *act = function == NN_F_RELU ? emit_free_activation(m) : NULL;
    if (act)
        *act = NN_RELU;
    else if (function != NN_F_LINEAR)
        nn_tape_put(m->tape, function == NN_F_RELU ? &nn_op_relu : &nn_op_softmax, NULL, 0, &m->x, 1, &m->x, 1);
}

static void emit_dropout(struct emitter *m, const struct nn_layer *l)
{
    const struct nn_dropout attr = {.rate = l->rate, .layer = (uint32_t)(l - m->model->layer)};
    if (!m->training || l->rate <= 0)
        return;
    if (m->example < 0)
        m->example = emit_column(m, NN_COLUMN_EXAMPLE, NN_UINT64);
    nn_tape_put(m->tape, &nn_op_dropout, &attr, sizeof attr, (int[]){m->x, m->example}, 2, &m->x, 1);
}

static void emit_layer(struct emitter *m, const struct nn_layer *l)
{
    const struct nn_type type = emit_type(m, l->shape, l->rank);
    int pooled[2];
    m->tape->layer = l->name;
    switch (l->kind) {
    case NN_CONV2D:
        emit_weighted(m, l, &nn_op_conv2d, &l->conv, sizeof l->conv);
        emit_function(m, l->function);
        break;
    case NN_DENSE:
        emit_weighted(m, l, &nn_op_dense, &l->dense, sizeof l->dense);
        emit_function(m, l->function);
        break;
    case NN_MAXPOOL:
        nn_tape_put(m->tape, &nn_op_maxpool, &l->pool, sizeof l->pool, &m->x, 1, pooled, 2);
        m->x = pooled[0];
        break;
    case NN_ACTIVATE:
        emit_function(m, l->function);
        break;
    case NN_DROPOUT:
        emit_dropout(m, l);
        break;
    case NN_INPUT:
        m->x = nn_tape_input(m->tape, NN_COLUMN_X, &type);
        break;
    case NN_FLATTEN:
        m->x = nn_tape_view(m->tape, m->x, &type);
        break;
    }
}

// ---- the loss -----------------------------------------------------------------------------------------------------

// Cross-entropy needs the logits: a probability that is too small for a float has neither loss nor gradient. Keras
// finds them only where the softmax is the model's last layer; of one below a Flatten it takes what comes out.
static bool emit_ends_in_softmax(const struct emitter *m)
{
    const struct nn_op *op = nn_tape_maker(m->tape, m->x);
    const struct nn_layer *last = &m->model->layer[m->model->layers - 1];
    while (last->kind == NN_ACTIVATE && last->function == NN_F_LINEAR)
        last--;
    return op && op->class == &nn_op_softmax && op->layer == last->name;
}

// Takes the softmax off the tape: the loss computes it. Its input is the logits.
static int emit_remove_softmax(struct emitter *m)
{
    return m->tape->op[--m->tape->n_ops].in[0];
}

static void emit_loss(struct emitter *m, const struct nn_loss *loss, struct nn_emitted *to, int *x, int *dx)
{
    bool fused = loss->kind == NN_SPARSE_XENT && !loss->from_logits && emit_ends_in_softmax(m);
    const struct nn_op_class *class = loss->kind == NN_MSE         ? &nn_op_mse
                                      : fused || loss->from_logits ? &nn_op_softmax_xent
                                                                   : &nn_op_sparse_xent;
    const struct nn_loss_outputs attr = {.gradient = m->training, .probabilities = fused};
    int out[3];
    *x = fused ? emit_remove_softmax(m) : m->x;
    m->tape->layer = "the loss";
    int expected = loss->kind == NN_MSE ? nn_tape_input(m->tape, NN_COLUMN_TARGET, &m->tape->tensor[*x].type)
                                        : emit_column(m, NN_COLUMN_LABEL, NN_INT32);
    int weight = emit_column(m, NN_COLUMN_WEIGHT, NN_FLOAT);
    nn_tape_put(m->tape, class, &attr, sizeof attr, (int[]){*x, expected, weight}, 3, out, 1 + fused + m->training);
    to->loss = out[0];
    to->output = fused ? out[1] : m->x;
    *dx = m->training ? out[1 + fused] : -1;
}

void nn_emit(const struct nn_model *model, const struct nn_loss *loss, int rows, bool training, struct nn_tape *t,
             struct nn_emitted *to)
{
    struct emitter m = {.tape = t, .model = model, .rows = rows, .training = training, .example = -1, .x = -1};
    int x, dx;
    for (size_t i = 0; i < model->layers && !t->error.code; i++)
        emit_layer(&m, &model->layer[i]);
    if (t->error.code)
        return;
    emit_loss(&m, loss, to, &x, &dx);
    if (t->error.code)
        return;
    t->tensor[to->loss].kept = t->tensor[to->output].kept = true;
    if (training)
        nn_tape_differentiate(t, &x, &dx, 1);
}
