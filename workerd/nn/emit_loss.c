// SPDX-License-Identifier: Apache-2.0
//
// The loss of an output: its operator, what it is weighted by, and whether it fits the model.
#include "workerd/nn/emit.h"
#include "workerd/nn/ops/activation.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/losses.h"

// An output as a loss sees it: a matrix.
struct loss_shape {
    int rows, steps, width;  // steps: of an example; rows: of the batch, times steps
};

static struct loss_shape loss_shape_of(const struct nn_type *example, int rows)
{
    int width = example->rank ? (int)example->dim[example->rank - 1] : 1;
    int steps = (int)nn_type_count(example) / width;
    return (struct loss_shape){rows * steps, steps, width};
}

static bool loss_is_of_classes(const struct ps_loss *loss)
{
    return loss->kind == PS_LOSS_SPARSE_XENT || loss->kind == PS_LOSS_XENT || loss->kind == PS_LOSS_FOCAL;
}

static bool loss_is_binary(const struct ps_loss *loss)
{
    return loss->kind == PS_LOSS_BINARY_XENT || loss->kind == PS_LOSS_BINARY_FOCAL;
}

// What turns logits into the probabilities that the loss is about; NULL: it is not about any.
static const char *loss_activation(const struct ps_loss *loss)
{
    return loss_is_of_classes(loss) ? "softmax" : loss_is_binary(loss) ? "sigmoid" : NULL;
}

static bool loss_is_activation(const struct ps_loss *loss, const struct nn_op *op)
{
    if (loss_is_of_classes(loss))
        return op->class == &nn_op_softmax;
    return loss_is_binary(loss) && op->class == &nn_op_activation &&
           ((const struct nn_function *)op->attr)->kind == NN_F_SIGMOID;
}

// ---- operators ----------------------------------------------------------------------------------------------------

// Cross-entropy needs the logits: a probability that is too small for a float has neither loss nor gradient. Keras
// finds them only where the activation is the model's last layer, whoever else reads what it gives; of one below a
// Flatten it takes what comes out.
static struct nn_op *loss_find_activation(const struct nn_emitter *m, const struct ps_loss *loss, int output)
{
    const bool wanted = !loss->from_logits && loss->kind != PS_LOSS_FOCAL;
    struct nn_op *op = wanted ? nn_tape_maker(m->tape, output) : NULL;
    return op && loss_is_activation(loss, op) && m->tape->tensor[output].view_of < 0 ? op : NULL;
}

// Does only the loss of output k want what the activation gives? Others are another layer, an activity regularizer, or
// another output.
static bool loss_is_only_reader(const struct nn_emitter *m, const struct nn_op *activation, int k)
{
    bool only = !nn_tape_is_read(m->tape, activation->out[0]);
    for (int i = 0; i < m->model->n_outputs && only; i++)
        only = i == k || nn_tape_maker(m->tape, nn_emit_tensor(m, m->model->output[i])) != activation;
    return only;
}

static int loss_as_matrix(struct nn_emitter *m, int tensor, const struct loss_shape *s)
{
    const struct nn_type *type = &m->tape->tensor[tensor].type, matrix = {NN_FLOAT, 2, {s->rows, s->width}};
    return type->rank == 2 ? tensor : nn_tape_view(m->tape, tensor, &matrix);
}

static int loss_expected(struct nn_emitter *m, const struct ps_loss *loss, int k, const struct loss_shape *s)
{
    const struct nn_type labels = {NN_INT32, 1, {s->rows}}, numbers = {NN_FLOAT, 2, {s->rows, s->width}};
    return nn_tape_input(m->tape, NN_COLUMN_TARGET + k, ps_loss_has_labels(loss) ? &labels : &numbers);
}

// Of each row of the matrix in the mean; counts: of nn_emitted.
static int loss_weight(struct nn_emitter *m, const struct loss_shape *s, int value, int *counts)
{
    const struct nn_loss_weights attr = {s->steps};
    const int mask = nn_emit_mask_of(m, value);
    int weight = nn_emit_column(m, NN_COLUMN_WEIGHT, NN_FLOAT), in[2] = {weight, mask};
    const bool masked = mask >= 0 && nn_type_count(&m->tape->tensor[mask].type) == (size_t)m->rows * (size_t)s->steps;
    if (masked)
        in[1] = nn_tape_view(m->tape, mask, &(struct nn_type){NN_FLOAT, 2, {m->rows, s->steps}});
    *counts = -1;
    if (masked) {
        const int alike[2] = {nn_emit_ones(m, weight), in[1]};
        nn_tape_put(m->tape, &nn_op_loss_weights, &attr, sizeof attr, alike, 2, counts, 1);
    }
    if (s->steps > 1 || masked)
        nn_tape_put(m->tape, &nn_op_loss_weights, &attr, sizeof attr, in, 1 + masked, &weight, 1);
    return weight;
}

// Its own operator, or the one of all others.
static const struct nn_op_class *loss_class(const struct ps_loss *loss)
{
    return loss->kind == PS_LOSS_MSE           ? &nn_op_mse
           : loss->kind != PS_LOSS_SPARSE_XENT ? &nn_op_loss
           : loss->from_logits                 ? &nn_op_softmax_xent
                                               : &nn_op_sparse_xent;
}

// in: output, target, weight.
static void loss_put(struct nn_emitter *m, const struct ps_loss *loss, bool probabilities, const int in[3], int out[3])
{
    const struct nn_op_class *class = loss_class(loss);
    const struct nn_loss_outputs own = {.gradient = m->training, .probabilities = probabilities};
    const struct nn_loss_attr attr = {.loss = *loss, .gradient = m->training, .probabilities = probabilities};
    const int n = 1 + probabilities + m->training;
    if (class == &nn_op_loss)
        nn_tape_put(m->tape, class, &attr, sizeof attr, in, 3, out, n);
    else
        nn_tape_put(m->tape, class, &own, sizeof own, in, 3, out, n);
}

void nn_emit_loss(struct nn_emitter *m, const struct ps_loss *loss, int k, struct nn_emitted *to, int *x, int *dx)
{
    const int value = m->model->output[k], output = nn_emit_tensor(m, value);
    const struct loss_shape s = loss_shape_of(nn_emit_type(m, value), m->rows);
    struct nn_op *activation = loss_find_activation(m, loss, output);
    const bool fused = activation && loss_is_only_reader(m, activation, k);  // the loss computes it
    struct ps_loss seen = *loss;
    int out[3] = {-1, -1, -1};
    m->tape->layer = "the loss";
    *x = activation ? activation->in[0] : output;
    if (fused)
        nn_tape_remove(m->tape, activation);
    if (m->tape->error.code)
        return;
    *x = loss_as_matrix(m, *x, &s);
    seen.from_logits |= activation != NULL;
    if (loss->kind == PS_LOSS_FOCAL && loss->from_logits)
        nn_tape_put(m->tape, &nn_op_softmax, NULL, 0, x, 1, x, 1);
    to->weight[k] = loss_weight(m, &s, value, &to->counts[k]);
    loss_put(m, &seen, fused, (int[]){*x, loss_expected(m, loss, k, &s), to->weight[k]}, out);
    to->loss[k] = out[0];
    to->output[k] = fused ? out[1] : output;
    *dx = m->training ? out[1 + fused] : -1;
    const struct nn_affine by = {(float)loss->weight, 0};
    if (m->training && (loss->weight > 1 || loss->weight < 1))
        nn_tape_put(m->tape, &nn_op_affine, &by, sizeof by, dx, 1, dx, 1);
}

// ---- does a loss fit? ---------------------------------------------------------------------------------------------

static const char *loss_name(const struct ps_loss *loss)
{
    return ps_losses.named[loss->kind].name;
}

static enum ps_code loss_check_classes(const struct ps_loss *loss, const struct nn_port *out, struct ps_error *e)
{
    char text[128];
    const bool classes = loss_is_of_classes(loss) || loss->kind == PS_LOSS_CATEGORICAL_HINGE;
    if (!classes || (out->type->rank > 0 && out->type->dim[out->type->rank - 1] > 1))
        return PS_OK;
    return ps_fail(
        e, PS_FAILED_PRECONDITION,
        "loss %s expects an output of shape (classes,), or (..., classes), with 2 or more classes, but layer \"%s\" "
        "gives %s",
        loss_name(loss), out->name,
        ps_shape_text((const uint64_t *)out->type->dim, (size_t)out->type->rank, text, sizeof text));
}

// Operators that give any number: what comes from them is no probability.
static bool loss_is_unbounded(const struct nn_op *op)
{
    return op && (op->class == &nn_op_dense || op->class == &nn_op_conv2d);
}

static enum ps_code loss_check_activation(const struct nn_model *m, const struct ps_loss *loss, int k,
                                          const struct nn_port *out, struct ps_error *e)
{
    const char *activation = loss_activation(loss);
    struct nn_tape tape;
    if (!activation)
        return PS_OK;
    nn_tape_init(&tape);
    const struct nn_op *op = nn_emit_last_op(m, &tape, k);
    const bool probabilities = op && loss_is_activation(loss, op), logits = loss_is_unbounded(op);
    const char *layer = op ? op->layer : out->name;
    nn_tape_fini(&tape);
    if (loss->from_logits && probabilities)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "layer \"%s\" ends in a %s, but the loss expects logits: set from_logits to false, or "
                       "remove the %s from the model",
                       layer, activation, activation);
    if (!loss->from_logits && logits)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "layer \"%s\" gives logits, but the loss expects probabilities: set from_logits to true, or "
                       "end the model in a %s",
                       layer, activation);
    return PS_OK;
}

enum ps_code nn_model_check_loss(const struct nn_model *m, const struct ps_loss *loss, struct ps_error *e)
{
    for (int k = 0; k < m->n_outputs; k++) {
        const struct nn_port out = nn_model_output(m, (size_t)k);
        if (loss_check_classes(&loss[k], &out, e) || loss_check_activation(m, &loss[k], k, &out, e))
            return e->code;
    }
    return PS_OK;
}
