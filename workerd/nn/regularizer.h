// SPDX-License-Identifier: Apache-2.0
//
// What Keras attaches to a variable besides its initializer: a regularizer, which is a term of the loss, and a
// constraint, which changes the variable after each update.
#ifndef NN_REGULARIZER_H
#define NN_REGULARIZER_H

#include "workerd/nn/json.h"

struct nn_regularizer {
    double l1, l2;
};

struct nn_constraint {
    enum { NN_FREE, NN_MAX_NORM, NN_MIN_MAX_NORM, NN_NON_NEG, NN_UNIT_NORM } kind;
    double min, max, rate;
    unsigned axes;  // bit i: a norm is that of all places along dimension i
};

// An object of Keras, or its name as a string. Absent or null: none.
enum ps_code nn_regularizer_read(const struct nn_json *at, struct nn_regularizer *r, struct ps_error *e);
enum ps_code nn_constraint_read(const struct nn_json *at, size_t rank, struct nn_constraint *c, struct ps_error *e);

const char *nn_constraint_name(const struct nn_constraint *c);  // Keras's; NULL: it is NN_FREE
void nn_constraint_apply(const struct nn_constraint *c, const uint64_t *shape, size_t rank, float *value);

#endif
