// SPDX-License-Identifier: Apache-2.0
//
// A tape: the operators of one step in the order in which they run, and the tensors between them. Layers and losses put
// the forward pass on it; nn_tape_differentiate puts the backward pass behind that. program.h makes memory and kernels
// of it.
//
// Every tensor is written by one operator, and every gradient is a tensor like any other: what a fan-out sums, what
// lives how long and what may lie in another's memory is found in one list.
//
// A tape remembers its first error and ignores what comes after it, so that layers need not look at each call.
//
// Receives from: layers, losses. Hands to: program. Threads: one.
#ifndef NN_TAPE_H
#define NN_TAPE_H

#include "workerd/nn/op.h"

enum nn_place {
    NN_PLACE_TEMPORARY,  // in the arena of the program, between its maker and its last reader
    NN_PLACE_INPUT,      // a column of the batch: index is its number
    NN_PLACE_WEIGHT,     // the value of variable `index`
    NN_PLACE_GRADIENT,   // the gradient of variable `index`, written by the last operator that adds to it
};

struct nn_tensor {
    struct nn_type type;
    enum nn_place place;
    int index;
    int view_of;  // the tensor whose memory this is, seen in another shape; -1: it is its own
    bool learns;  // the loss's gradient by it is wanted: a trainable weight, or made from one
    bool kept;    // read after the last operator
};

struct nn_tape {
    struct nn_tensor *tensor;
    int n_tensors, cap_tensors;
    struct nn_op *op;
    int n_ops, cap_ops;
    const char *layer;  // of the operators that are put on it; borrowed
    bool backward;      // they are of the backward pass
    struct ps_error error;
};

void nn_tape_init(struct nn_tape *t);
void nn_tape_fini(struct nn_tape *t);

// Each returns a tensor.
int nn_tape_input(struct nn_tape *t, int column, const struct nn_type *type);
int nn_tape_weight(struct nn_tape *t, int variable, const struct nn_type *type, bool trainable);
int nn_tape_view(struct nn_tape *t, int tensor, const struct nn_type *type);  // as many elements, of the same dtype
// Puts an operator behind the others. attr: a copy of the class's struct is kept; NULL where it has none. out[n_out],
// which may be in: -1 after an error.
void nn_tape_put(struct nn_tape *t, const struct nn_op_class *class, const void *attr, size_t attr_bytes, const int *in,
                 int n_in, int *out, int n_out);
// Takes an operator off the tape again; nobody reads what it makes.
void nn_tape_remove(struct nn_tape *t, struct nn_op *op);
// A tensor is to be what stands in the place of a variable's gradient.
void nn_tape_deliver(struct nn_tape *t, int tensor, int variable);
// The operator that made a tensor (seen through views), or NULL.
struct nn_op *nn_tape_maker(const struct nn_tape *t, int tensor);
bool nn_tape_is_read(const struct nn_tape *t, int tensor);  // by an operator, as it is or as a view

// Puts the backward pass behind the operators so far: from the gradient dy[i] of y[i] to the gradients of all trainable
// weights, whose tensors become NN_PLACE_GRADIENT. Operators that only what does not learn would need are left out.
void nn_tape_differentiate(struct nn_tape *t, const int *y, const int *dy, int n);

#endif
