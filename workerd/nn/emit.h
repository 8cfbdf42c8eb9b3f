// SPDX-License-Identifier: Apache-2.0
//
// From a model to the operators of one step: its calls in their order, then the loss, then, to train, the backward
// pass. Each file calls those to its right: emit_step.c, emit_loss.c, emit_calls.c, emit_penalty.c, emit.c.
#ifndef NN_EMIT_H
#define NN_EMIT_H

#include "workerd/nn/device.h"
#include "workerd/nn/graph.h"
#include "workerd/nn/setting.h"
#include "workerd/nn/tape.h"

// The inputs of a program, each of so many rows.
enum nn_column {
    NN_COLUMN_EXAMPLE,  // (rows) uint64, the examples' numbers
    NN_COLUMN_WEIGHT,   // (rows): what is made small is the sum of these times the rows' losses
    NN_COLUMN_INPUT,    // the first of the model's inputs: (rows, its shape)
    // That of the first output: like the output, or labels, like the output without its last axis.
    NN_COLUMN_TARGET = NN_COLUMN_INPUT + NN_MAX_PORTS,
    NN_COLUMNS = NN_COLUMN_TARGET + NN_MAX_PORTS
};

// Tensors of the tape that are kept.
struct nn_emitted {
    int output[NN_MAX_PORTS];  // (rows, the output's shape)
    // Of each row of the output, seen as a matrix of what is along its last axis; its weight in the mean.
    int loss[NN_MAX_PORTS], weight[NN_MAX_PORTS];
    int counts[NN_MAX_PORTS];  // of each row, above 0 where the output's mask says that it counts; -1: it has no mask
    int penalty;               // (1): what the regularizers add to the mean loss; -1: there are none
};

// emit_step.c: loss[k] is that of output k. device: for which operators are joined.
void nn_emit(const struct nn_model *m, const struct nn_device *device, const struct ps_loss *loss, int rows,
             bool training, struct nn_tape *t, struct nn_emitted *to);

// ---- for layers ---------------------------------------------------------------------------------------------------

struct nn_emitter {
    struct nn_tape *tape;
    const struct nn_model *model;
    const struct nn_device *device;  // NULL: nothing is joined
    int rows;
    bool training;
    int example;  // the tensor; -1: nothing has asked for it
    int *tensor;  // [values]
    int *weight;  // [variables]; -1: not on the tape yet
    int penalty;  // (1), the sum so far of what regularizers add to the loss; -1: nothing
    int fixed;    // operators before this one stay as they are: several read what they give
    int spread;   // rows of this program for each of the batch's; 0: 1
};

const struct nn_layer *nn_emit_layer(const struct nn_emitter *m, const struct nn_call *call);
const struct nn_type *nn_emit_type(const struct nn_emitter *m, int value);  // of one example
int nn_emit_tensor(const struct nn_emitter *m, int value);
// The mask of the call's input k, float (rows, as the mask's value says): 1 where something stands; -1: it has none.
int nn_emit_mask(struct nn_emitter *m, const struct nn_call *call, int k);
// The tensor of what the call gives behind its first output.
int *nn_emit_more(struct nn_emitter *m, const struct nn_call *call, int k);
// That of an output of the model.
int nn_emit_mask_of(struct nn_emitter *m, int value);
// emit_calls.c: layer number k of those that the call's layer wraps, on this tensor; `spread` rows of it are one of the
// batch's.
int nn_emit_inner(struct nn_emitter *m, const struct nn_call *call, int k, int tensor, int spread);
int nn_emit_input(struct nn_emitter *m, const struct nn_call *call);
int nn_emit_examples(struct nn_emitter *m);
// The value of the layer's variable k.
int nn_emit_variable(struct nn_emitter *m, const struct nn_call *call, int k);
int nn_emit_weight(struct nn_emitter *m, int variable);  // that of the model
// Adds to m->penalty: what a layer's activity regularizer says of what it gives; those of all trainable variables.
void nn_emit_activity(struct nn_emitter *m, const struct nn_layer *l, int tensor);
void nn_emit_regularizers(struct nn_emitter *m);
// What a batch has for the layer's variable k, which is a state: it stands in the gradient's place.
void nn_emit_state(struct nn_emitter *m, const struct nn_call *call, int k, int tensor);
// Ones of the shape of a tensor.
int nn_emit_ones(struct nn_emitter *m, int tensor);
// A tensor seen as a value of this type.
int nn_emit_view(struct nn_emitter *m, int tensor, const struct nn_type *type);
// The operator `class` of the call's input and the layer's variables.
int nn_emit_weighted(struct nn_emitter *m, const struct nn_call *call, const struct nn_op_class *class,
                     const void *attr, size_t attr_bytes);
// The maximum of each window; by the operator that made the tensor, where the device joins the two.
int nn_emit_maxpool(struct nn_emitter *m, int tensor, const struct nn_pool2d *attr);
// A relu is computed by the operator that made the tensor, where it can.
int nn_emit_function(struct nn_emitter *m, int tensor, struct nn_function function);

// ---- for losses ---------------------------------------------------------------------------------------------------

int nn_emit_column(const struct nn_emitter *m, enum nn_column column, enum nn_dtype dtype);  // (rows)
// emit_calls.c: what the loss of output k sees while the model is trained, the last operator that changes a value; or
// NULL.
const struct nn_op *nn_emit_last_op(const struct nn_model *model, struct nn_tape *t, int k);
// emit_loss.c: the loss of output k; *dx, while the model is trained, is the gradient by tensor *x.
void nn_emit_loss(struct nn_emitter *m, const struct ps_loss *loss, int k, struct nn_emitted *to, int *x, int *dx);

// ---- for a step, emit_calls.c ---------------------------------------------------------------------------------------

// Allocates what it knows of each value and variable of m->model, of which nothing is on the tape yet; fini frees that.
void nn_emitter_init(struct nn_emitter *m);
void nn_emitter_fini(struct nn_emitter *m);
// The model's calls in their order, as far as the tape has no error.
void nn_emit_calls(struct nn_emitter *m);

#endif
