// SPDX-License-Identifier: Apache-2.0
//
// How a variable starts: Keras's initializers, drawn from counter-based random numbers.
#ifndef NN_INIT_H
#define NN_INIT_H

#include "workerd/nn/json.h"

enum nn_init_kind {
    NN_INIT_CONSTANT,
    NN_INIT_UNIFORM,
    NN_INIT_NORMAL,
    NN_INIT_TRUNCATED,
    NN_INIT_IDENTITY,
    NN_INIT_ORTHOGONAL
};

struct nn_init {
    enum nn_init_kind kind;
    double a, b;  // the constant a; uniform in [a, b); normal with mean a and standard deviation b; times the gain a
    uint64_t rows, columns;         // of the matrix that an orthogonal value or the identity is
    uint64_t ones_begin, ones_end;  // elements that are 1, whatever the others are: LSTM's bias
};

// Reads an initializer: Keras's object, or its name as a string. Keras's own seeds are read over: what is drawn depends
// on the job's seed. Absent or null: fallback ("GlorotUniform").
enum ps_code nn_init_read(const struct nn_json *at, const char *fallback, const uint64_t *shape, size_t rank,
                          struct nn_init *init, struct ps_error *e);
// Draws count values for the variable with this index.
void nn_init_draw(const struct nn_init *init, uint64_t seed, uint64_t index, uint64_t count, float *value);

#endif
