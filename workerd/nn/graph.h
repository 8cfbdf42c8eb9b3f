// SPDX-License-Identifier: Apache-2.0
//
// What a model means: layers that are called on values and give values. A layer that is called several times has its
// variables once. Calls stand in an order in which each comes after those that make what it reads.
//
// Types are those of one example; a program adds the rows of its batch in front.
#ifndef NN_GRAPH_H
#define NN_GRAPH_H

#include "workerd/nn/init.h"
#include "workerd/nn/model.h"
#include "workerd/nn/op.h"
#include "workerd/nn/regularizer.h"

enum {
    NN_MAX_LAYERS = 10000,
    NN_MAX_ELEMENTS = INT32_MAX,  // of a value or a variable: the operators count in ints
    NN_CALL_IN = 16,
    NN_CALL_MORE = 4,  // values that a call gives behind the first: the states of Bidirectional(LSTM)
    NN_LAYER_VARIABLES = 16,
    NN_LAYER_CHILDREN = 2,
};

struct nn_layer_class;

struct nn_layer {
    const struct nn_layer_class *class;
    char *name;   // "conv2d"
    char *saved;  // where Keras 3 saves it: "layers/conv2d/"; NULL: it is not in the document
    bool trainable;
    uint32_t called;                                // how often, so far
    void *config;                                   // the class's struct
    int variable[NN_LAYER_VARIABLES], n_variables;  // those of the layers that it wraps, too
    uint32_t number;                                // of its random numbers: its place among the layers
    struct nn_layer *child;                         // the layers that it wraps: Bidirectional, TimeDistributed
    int n_children;
    char *path;                      // of one that another wraps: "bidirectional/forward_lstm"; NULL: its name
    struct nn_regularizer activity;  // of what it gives, for each row
};

// A mask is a value like any other: 1 where something stands, 0 where nothing does; float, in the first dimensions of
// what it belongs to: (steps) of (steps, features).
struct nn_value {
    struct nn_type type;
    int call;                // that makes it
    int mask;                // the value that says what of it counts; -1: all does
    int64_t ids;             // what reads it has so many places for its numbers: an Embedding's rows; 0: any may come
    int64_t below;           // its numbers are below this; 0: not known
    bool text;               // an input of strings: nn_port.words
    struct nn_words *words;  // the value's
    const int32_t *only;     // numbers that may come, ascending, of a layer's settings; NULL: any
    int64_t n_only;
};

struct nn_call {
    int layer;
    const struct nn_layer *child;  // NULL: the layer itself is called, not one that it wraps
    int in[NN_CALL_IN], n_in;      // values
    int mask[NN_CALL_IN];          // of each input: the document's, or the value's own; -1: none. Behind those, others
                                   // that the document names
    bool flag;                     // what else the call says (nn_argument)
    bool inference;                // it does what it does where nothing is trained
    uint32_t stream;               // of its random numbers: the layer's number, and which of its calls this is
    double constant;
    int out;
    int more[NN_CALL_MORE], n_more;  // the values behind out
    struct nn_call *inner;           // its calls of the layers that it wraps
    int n_inner;
};

struct nn_variable {
    struct nn_param param;
    struct nn_init init;
    struct nn_regularizer regularizer;
    struct nn_constraint constraint;
};

struct nn_model {
    char *name;  // "sequential"
    struct nn_layer *layer;
    struct nn_value *value;
    struct nn_call *call;
    struct nn_variable *variable;
    size_t layers, values, calls, variables, cap_values, cap_variables;
    int input[NN_MAX_PORTS], output[NN_MAX_PORTS];  // values
    int n_inputs, n_outputs;
    char *output_name[NN_MAX_PORTS];
    bool keras2;               // as Keras 2 means it
    const char *synchronized;  // the first layer that says so of itself, and is trainable; NULL: none does
    enum nn_synchronize synchronize;
    char *document;  // the JSON that it was read from
    char *metadata;  // of the .keras file that it was read from; NULL: another kind of file
};

// How Keras calls an object of a class where it saves it: "conv2d_transpose" of "Conv2DTranspose". The caller frees it.
char *nn_saved_name(const char *class_name);

struct ps_zip;

// The .keras file that a document is of: its entries, and its metadata.json, of which the model gets a copy.
struct nn_archive {
    const struct ps_zip *zip;
    const char *metadata;
};

// nn_model_parse of so many bytes; archive: NULL where they are of no .keras file.
enum ps_code nn_model_read(const char *text, size_t length, const char *name, const struct nn_archive *archive,
                           struct nn_model **model, struct ps_error *e);

#endif
