// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/emit.h"

#include <math.h>
#include <string.h>

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/conv2d_pool.h"
#include "workerd/nn/ops/embedding.h"
#include "workerd/nn/ops/mask.h"
#include "workerd/nn/ops/normalize.h"

const struct nn_layer *nn_emit_layer(const struct nn_emitter *m, const struct nn_call *call)
{
    return call->child ? call->child : &m->model->layer[call->layer];
}

const struct nn_type *nn_emit_type(const struct nn_emitter *m, int value)
{
    return &m->model->value[value].type;
}

int nn_emit_tensor(const struct nn_emitter *m, int value)
{
    return m->tensor[value];
}

int *nn_emit_more(struct nn_emitter *m, const struct nn_call *call, int k)
{
    return &m->tensor[call->more[k]];
}

// Made when something first asks for it.
static int emit_mask_value(struct nn_emitter *m, int value)
{
    const struct nn_call *call = &m->model->call[m->model->value[value].call];
    if (m->tensor[value] < 0)
        m->tensor[value] = nn_emit_layer(m, call)->class->mask(m, call);
    return m->tensor[value];
}

int nn_emit_mask_of(struct nn_emitter *m, int value)
{
    const int mask = value < 0 ? -1 : m->model->value[value].mask;
    return mask < 0 ? -1 : emit_mask_value(m, mask);
}

int nn_emit_mask(struct nn_emitter *m, const struct nn_call *call, int k)
{
    return call->mask[k] < 0 ? -1 : emit_mask_value(m, call->mask[k]);
}

static struct nn_type emit_rows_of(const struct nn_emitter *m, const struct nn_type *of)
{
    struct nn_type type = {.dtype = of->dtype, .rank = of->rank + 1, .dim = {m->rows}};
    for (int i = 0; i < of->rank; i++)
        type.dim[i + 1] = of->dim[i];
    return type;
}

int nn_emit_column(const struct nn_emitter *m, enum nn_column column, enum nn_dtype dtype)
{
    return nn_tape_input(m->tape, column, &(struct nn_type){dtype, 1, {m->rows}});
}

int nn_emit_input(struct nn_emitter *m, const struct nn_call *call)
{
    const struct nn_type type = emit_rows_of(m, nn_emit_type(m, call->out));
    int k = 0;
    while (m->model->input[k] != call->out)
        k++;
    return nn_tape_input(m->tape, NN_COLUMN_INPUT + k, &type);
}

int nn_emit_examples(struct nn_emitter *m)
{
    if (m->example >= 0)
        return m->example;
    const int times = m->spread ? m->spread : 1;
    m->example = nn_tape_input(m->tape, NN_COLUMN_EXAMPLE, &(struct nn_type){NN_UINT64, 1, {m->rows / times}});
    if (times > 1)
        nn_tape_put(m->tape, &nn_op_spread, &times, sizeof times, &m->example, 1, &m->example, 1);
    return m->example;
}

// Everything is another number than NaN is.
int nn_emit_ones(struct nn_emitter *m, int tensor)
{
    const double none = (double)NAN;
    nn_tape_put(m->tape, &nn_op_not_equal, &none, sizeof none, &tensor, 1, &tensor, 1);
    return tensor;
}

int nn_emit_view(struct nn_emitter *m, int tensor, const struct nn_type *type)
{
    const struct nn_type rows = emit_rows_of(m, type);
    return nn_tape_view(m->tape, tensor, &rows);
}

int nn_emit_weight(struct nn_emitter *m, int variable)
{
    const struct nn_param *p = &m->model->variable[variable].param;
    struct nn_type type = {.dtype = NN_FLOAT, .rank = (int)p->rank};
    for (size_t i = 0; i < p->rank; i++)
        type.dim[i] = (int64_t)p->shape[i];
    if (m->weight[variable] < 0)
        m->weight[variable] = nn_tape_weight(m->tape, variable, &type, p->trainable);
    return m->weight[variable];
}

int nn_emit_variable(struct nn_emitter *m, const struct nn_call *call, int k)
{
    return nn_emit_weight(m, nn_emit_layer(m, call)->variable[k]);
}

void nn_emit_state(struct nn_emitter *m, const struct nn_call *call, int k, int tensor)
{
    const int variable = nn_emit_layer(m, call)->variable[k];
    if (m->training && m->model->variable[variable].param.rule)
        nn_tape_deliver(m->tape, tensor, variable);
}

int nn_emit_weighted(struct nn_emitter *m, const struct nn_call *call, const struct nn_op_class *class,
                     const void *attr, size_t attr_bytes)
{
    const struct nn_layer *l = nn_emit_layer(m, call);
    int in[1 + NN_LAYER_VARIABLES] = {nn_emit_tensor(m, call->in[0])}, out;
    for (int i = 0; i < l->n_variables; i++)
        in[1 + i] = nn_emit_variable(m, call, i);
    nn_tape_put(m->tape, class, attr, attr_bytes, in, 1 + l->n_variables, &out, 1);
    return out;
}

// The last operator, if it made the tensor and nobody else reads that.
static struct nn_op *emit_last_maker(const struct nn_emitter *m, int tensor)
{
    struct nn_op *op = tensor >= 0 ? nn_tape_maker(m->tape, tensor) : NULL;
    return op == &m->tape->op[m->tape->n_ops - 1] && m->tape->n_ops > m->fixed ? op : NULL;
}

// The place of an activation in an operator that can compute one, if it computes none yet.
static enum nn_activation *emit_free_activation(const struct nn_emitter *m, int tensor)
{
    struct nn_op *op = emit_last_maker(m, tensor);
    enum nn_activation *act = NULL;
    if (op && op->class == &nn_op_conv2d)
        act = &((struct nn_conv2d *)op->attr)->act;
    else if (op && op->class == &nn_op_dense)
        act = &((struct nn_dense *)op->attr)->act;
    else if (op && nn_normalize_takes_activation(op))
        act = &((struct nn_normalize *)op->attr)->act;
    return act && *act == NN_LINEAR ? act : NULL;
}

static int emit_log_softmax(struct nn_emitter *m, int tensor)
{
    const struct nn_axis_function attr = {NN_F_LOG_SOFTMAX, tensor >= 0 ? m->tape->tensor[tensor].type.rank - 1 : 0};
    nn_tape_put(m->tape, &nn_op_axis_function, &attr, sizeof attr, &tensor, 1, &tensor, 1);
    return tensor;
}

int nn_emit_function(struct nn_emitter *m, int tensor, struct nn_function f)
{
    enum nn_activation *act = f.kind == NN_F_RELU ? emit_free_activation(m, tensor) : NULL;
    if (f.kind == NN_F_LOG_SOFTMAX)
        return emit_log_softmax(m, tensor);
    if (act)
        *act = NN_RELU;
    else if (f.kind == NN_F_RELU || f.kind == NN_F_SOFTMAX)
        nn_tape_put(m->tape, f.kind == NN_F_RELU ? &nn_op_relu : &nn_op_softmax, NULL, 0, &tensor, 1, &tensor, 1);
    else if (f.kind != NN_F_LINEAR)
        nn_tape_put(m->tape, &nn_op_activation, &f, sizeof f, &tensor, 1, &tensor, 1);
    return tensor;
}

// A convolution whose output goes nowhere but into this pooling, and which the device does together with it, leaves the
// tape: *join does the work of both.
static bool emit_takes_conv2d(struct nn_emitter *m, int tensor, const struct nn_pool2d *pool, struct nn_op *join)
{
    struct nn_op *op = emit_last_maker(m, tensor);
    if (!m->device || !m->device->joins || !op || op->class != &nn_op_conv2d || m->tape->tensor[tensor].view_of >= 0)
        return false;
    const struct nn_conv2d_pool attr = {*(const struct nn_conv2d *)op->attr};
    struct nn_op both = *op;
    both.class = &nn_op_conv2d_pool;
    memcpy(both.attr, &attr, sizeof attr);
    if (!nn_conv2d_pool_joins(&attr.conv, pool) || !m->device->joins(&both))
        return false;
    *join = both;
    nn_tape_remove(m->tape, op);
    return true;
}

int nn_emit_maxpool(struct nn_emitter *m, int tensor, const struct nn_pool2d *attr)
{
    struct nn_op join;
    int out[2];
    if (emit_takes_conv2d(m, tensor, attr, &join))
        nn_tape_put(m->tape, join.class, join.attr, sizeof(struct nn_conv2d_pool), join.in, join.n_in, out, 2);
    else
        nn_tape_put(m->tape, &nn_op_maxpool, attr, sizeof *attr, &tensor, 1, out, 2);
    return out[0];
}
