// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/tape.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void nn_tape_init(struct nn_tape *t)
{
    *t = (struct nn_tape){.layer = ""};
}

void nn_tape_fini(struct nn_tape *t)
{
    free(t->tensor);
    free(t->op);
}

static void *tape_grow(void *array, int n, int *cap, size_t size)
{
    if (n < *cap)
        return array;
    *cap = *cap ? 2 * *cap : 64;
    return ps_realloc(array, (size_t)*cap * size);
}

static int tape_add(struct nn_tape *t, const struct nn_tensor *tensor)
{
    t->tensor = tape_grow(t->tensor, t->n_tensors, &t->cap_tensors, sizeof *t->tensor);
    t->tensor[t->n_tensors] = *tensor;
    return t->n_tensors++;
}

int nn_tape_input(struct nn_tape *t, int column, const struct nn_type *type)
{
    return tape_add(t, &(struct nn_tensor){.type = *type, .place = NN_PLACE_INPUT, .index = column, .view_of = -1});
}

int nn_tape_weight(struct nn_tape *t, int variable, const struct nn_type *type, bool trainable)
{
    return tape_add(
        t, &(struct nn_tensor){
               .type = *type, .place = NN_PLACE_WEIGHT, .index = variable, .view_of = -1, .learns = trainable});
}

static int tape_root(const struct nn_tape *t, int tensor)
{
    while (t->tensor[tensor].view_of >= 0)
        tensor = t->tensor[tensor].view_of;
    return tensor;
}

int nn_tape_view(struct nn_tape *t, int tensor, const struct nn_type *type)
{
    if (t->error.code)
        return tensor;
    const struct nn_tensor *of = &t->tensor[tensor];
    assert(type->dtype == of->type.dtype && nn_type_count(type) == nn_type_count(&of->type));
    return tape_add(t, &(struct nn_tensor){.type = *type, .view_of = tensor, .learns = of->learns});
}

void nn_tape_put(struct nn_tape *t, const struct nn_op_class *class, const void *attr, size_t attr_bytes, const int *in,
                 int n_in, int *out, int n_out)
{
    assert(n_in <= NN_OP_IN && n_out <= NN_OP_OUT && attr_bytes <= NN_ATTR_BYTES);
    struct nn_op op = {.class = class, .n_in = n_in, .n_out = n_out, .layer = t->layer, .backward = t->backward};
    bool learns = false;
    if (attr)
        memcpy(op.attr, attr, attr_bytes);
    for (int i = 0; i < n_in && !t->error.code; i++) {
        op.in[i] = in[i];
        op.in_type[i] = t->tensor[in[i]].type;
        learns |= t->tensor[in[i]].learns;
    }
    for (int k = 0; k < n_out; k++)
        out[k] = -1;
    if (t->error.code)
        return;
    if (class->infer(&op, &t->error)) {
        ps_error_prefix(&t->error, "layer \"%s\"", t->layer);
        return;
    }
    for (int k = 0; k < n_out; k++)
        out[k] = op.out[k] = tape_add(t, &(struct nn_tensor){.type = op.out_type[k], .view_of = -1, .learns = learns});
    t->op = tape_grow(t->op, t->n_ops, &t->cap_ops, sizeof *t->op);
    t->op[t->n_ops++] = op;
}

void nn_tape_remove(struct nn_tape *t, struct nn_op *op)
{
    struct nn_op *end = t->op + t->n_ops--;
    memmove(op, op + 1, (size_t)(end - op - 1) * sizeof *op);
}

// What is an input, a weight, or another variable's, cannot be the variable's own memory.
void nn_tape_deliver(struct nn_tape *t, int tensor, int variable)
{
    if (t->error.code)
        return;
    int g = tape_root(t, tensor);
    if (t->tensor[g].place != NN_PLACE_TEMPORARY)
        nn_tape_put(t, &nn_op_copy, NULL, 0, &g, 1, &g, 1);
    if (t->error.code)
        return;
    t->tensor[g].place = NN_PLACE_GRADIENT;
    t->tensor[g].index = variable;
}

struct nn_op *nn_tape_maker(const struct nn_tape *t, int tensor)
{
    int root = tape_root(t, tensor);
    for (int i = t->n_ops; i--;)
        for (int k = 0; k < t->op[i].n_out; k++)
            if (t->op[i].out[k] == root)
                return &t->op[i];
    return NULL;
}

// ---- the backward pass --------------------------------------------------------------------------------------------

// gradient[tensor]: the sum so far of what its readers give back; -1: nothing has come. Those of views are their
// roots'.
struct backward {
    struct nn_tape *tape;
    int *gradient;
    int n;  // tensors of the forward pass
};

// Adds dx to the gradient of a tensor.
static void backward_add(struct backward *b, int tensor, int dx)
{
    struct nn_tape *t = b->tape;
    int root = tape_root(t, tensor), *sum = &b->gradient[root];
    if (t->error.code)
        return;
    if (root != tensor) {
        struct nn_type type = t->tensor[root].type;
        dx = nn_tape_view(t, dx, &type);
    }
    if (*sum < 0)
        *sum = dx;
    else
        nn_tape_put(t, &nn_op_add, NULL, 0, (int[]){*sum, dx}, 2, sum, 1);
}

// The gradient of an output, in the shape of that output; -1: the loss does not depend on it.
static int backward_of(struct backward *b, int tensor)
{
    return b->gradient[tape_root(b->tape, tensor)];
}

static void backward_op(struct backward *b, int index)
{
    const struct nn_op op = b->tape->op[index];  // the array may move
    int dy[NN_OP_OUT], dx[NN_OP_IN];
    bool wanted[NN_OP_IN], any_dy = false, any = false;
    for (int k = 0; k < op.n_out; k++) {
        dy[k] = backward_of(b, op.out[k]);
        any_dy |= dy[k] >= 0;
    }
    for (int i = 0; i < op.n_in; i++) {
        wanted[i] = b->tape->tensor[op.in[i]].learns;
        any |= wanted[i];
        dx[i] = -1;
    }
    if (!any || !any_dy || !op.class->differentiate)
        return;
    b->tape->layer = op.layer;
    op.class->differentiate(b->tape, &op, dy, wanted, dx);
    for (int i = 0; i < op.n_in; i++)
        if (wanted[i] && dx[i] >= 0)
            backward_add(b, op.in[i], dx[i]);
}

// What a weight's gradient ends up in is the variable's own memory.
static void backward_deliver(struct backward *b)
{
    struct nn_tape *t = b->tape;
    for (int i = 0; i < b->n && !t->error.code; i++) {
        if (t->tensor[i].place != NN_PLACE_WEIGHT || !t->tensor[i].learns || b->gradient[i] < 0)
            continue;
        nn_tape_deliver(t, b->gradient[i], t->tensor[i].index);
    }
}

// ---- what is computed again ---------------------------------------------------------------------------------------

// The last operator goes to this place.
static void tape_move_last(struct nn_tape *t, int to)
{
    const struct nn_op last = t->op[t->n_ops - 1];
    memmove(&t->op[to + 1], &t->op[to], (size_t)(t->n_ops - 1 - to) * sizeof last);
    t->op[to] = last;
}

// The first operator from `from` on that reads a tensor, or a view of it; n_ops: none.
static int tape_first_reader(const struct nn_tape *t, int tensor, int from)
{
    for (int k = from; k < t->n_ops; k++)
        for (int i = 0; i < t->op[k].n_in; i++)
            if (tape_root(t, t->op[k].in[i]) == tensor)
                return k;
    return t->n_ops;
}

bool nn_tape_is_read(const struct nn_tape *t, int tensor)
{
    return tape_first_reader(t, tape_root(t, tensor), 0) < t->n_ops;
}

// Operators from `from` on read `other` instead.
static void tape_replace(struct nn_tape *t, int tensor, int other, int from)
{
    for (int k = from; k < t->n_ops; k++)
        for (int i = 0; i < t->op[k].n_in; i++) {
            const int in = t->op[k].in[i];
            if (tape_root(t, in) != tensor)
                continue;
            const struct nn_type type = t->tensor[in].type;
            const int seen = in == tensor ? other : nn_tape_view(t, other, &type);
            t->op[k].in[i] = seen;
        }
}

// What the backward pass, which begins at operator `forward`, reads of the forward pass, and is cheap to compute where
// that reads it, need not live until then.
static void tape_compute_again(struct nn_tape *t, int forward)
{
    for (int k = 0; k < forward && !t->error.code; k++) {
        const struct nn_op op = t->op[k];  // the array may move
        const int reader = op.class->again ? tape_first_reader(t, op.out[0], forward) : t->n_ops;
        if (reader == t->n_ops || t->tensor[op.out[0]].kept)
            continue;
        t->layer = op.layer;
        const int y = op.class->again(t, &op);
        if (y < 0)
            continue;
        tape_move_last(t, reader);
        tape_replace(t, op.out[0], y, reader + 1);
    }
}

void nn_tape_differentiate(struct nn_tape *t, const int *y, const int *dy, int n)
{
    struct backward b = {.tape = t, .n = t->n_tensors};
    int n_ops = t->n_ops;
    if (t->error.code)
        return;
    t->backward = true;
    b.gradient = ps_alloc((size_t)t->n_tensors * sizeof *b.gradient);
    for (int i = 0; i < t->n_tensors; i++)
        b.gradient[i] = -1;
    for (int i = 0; i < n; i++)
        backward_add(&b, y[i], dy[i]);
    for (int i = n_ops; i-- && !t->error.code;)
        backward_op(&b, i);
    backward_deliver(&b);
    tape_compute_again(t, n_ops);
    free(b.gradient);
}
