// SPDX-License-Identifier: Apache-2.0
//
// Inside a model: Keras's layers in order, each with the shape it gives, and the parameters in the order of the layers.
//
// keras.c fills it, replica.c runs it. Shapes are those of one example; a replica multiplies them by its rows.
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/wire/dtype.h"
#include "workerd/nn/json.h"
#include "workerd/nn/model.h"
#include "workerd/nn/op.h"

enum {
    NN_MAX_LAYERS = 10000,
    NN_MAX_ELEMENTS = INT32_MAX,  // of an activation or a parameter: the operators count in ints
    NN_MAX_WINDOW = 256,          // cells of a pooling window: the position of the maximum is kept in a byte
};

enum nn_layer_kind { NN_INPUT, NN_CONV2D, NN_DENSE, NN_MAXPOOL, NN_FLATTEN, NN_ACTIVATE, NN_DROPOUT };
enum nn_function { NN_F_LINEAR, NN_F_RELU, NN_F_SOFTMAX };

struct nn_layer {
    enum nn_layer_kind kind;
    const char *class_name;  // Keras's: "Conv2D"
    char *name;              // "conv2d"
    bool trainable;
    uint64_t shape[PS_MAX_RANK];  // of its output
    size_t rank;
    uint64_t count;             // elements of its output
    enum nn_function function;  // what follows a convolution or a dense layer; what an activation computes
    union {
        struct nn_conv2d conv;
        struct nn_dense dense;
        struct nn_maxpool pool;
        float rate;
    };
    int kernel, bias;  // indices of parameters; -1: none
};

// How a parameter starts.
enum nn_init_kind { NN_INIT_CONSTANT, NN_INIT_UNIFORM, NN_INIT_NORMAL, NN_INIT_TRUNCATED };

struct nn_init {
    enum nn_init_kind kind;
    double a, b;  // the constant a; uniform in [a, b); normal with mean a and standard deviation b
};

// Reads an initializer: Keras's object, or its name as a string. Keras's own seeds are read over: what is drawn depends
// on the job's seed. Absent or null: fallback ("GlorotUniform").
enum ps_code nn_init_read(const struct nn_json *at, const char *fallback, const uint64_t *shape, size_t rank,
                          struct nn_init *init, struct ps_error *e);
// Draws count values for the parameter with this index.
void nn_init_draw(const struct nn_init *init, uint64_t seed, uint64_t index, uint64_t count, float *value);

struct nn_variable {
    struct nn_param param;
    struct nn_init init;
};

struct nn_model {
    char *name;  // "sequential"
    struct nn_layer *layer;
    size_t layers;
    struct nn_variable *variable;
    size_t variables;
};

#endif
