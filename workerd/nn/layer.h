// SPDX-License-Identifier: Apache-2.0
//
// A Keras layer: layers/ has one file for each, with its settings, the shapes and variables that it makes of them
// (build), and its operators (emit); layers/table.c has one line for each.
//
// While a model is read, a layer's settings are put into a struct of its class by the class's table, and build works
// out what it gives for what comes in. Where that does not fit, the error names the place in the document.
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include "workerd/nn/emit.h"
#include "workerd/nn/graph.h"
#include "workerd/nn/json.h"
#include "workerd/nn/setting.h"

struct nn_building;

// ---- settings -----------------------------------------------------------------------------------------------------

enum nn_key_kind {
    NN_KEY_SIZE,         // int, 1 or more
    NN_KEY_PAIR,         // int[2], (height, width), each 1 or more: [3, 3], or 3 for both
    NN_KEY_COUNTS,       // int[2], likewise, each 0 or more; null: -1
    NN_KEY_MARGINS,      // int[2][2], of height and width at both ends: 1, [1, 2], or [[1, 2], [3, 4]]
    NN_KEY_BOOL,         // bool
    NN_KEY_REAL,         // double, min to below max
    NN_KEY_PADDING,      // enum nn_padding: "valid" or "same", and "causal" where that is `word`
    NN_KEY_FUNCTION,     // struct nn_function: an activation
    NN_KEY_CHOICE,       // int: which of `words`; null is the first, absent is number `fallback`
    NN_KEY_AXIS,         // int, an axis as Keras has it: the batch is 0, and below that from the end. nn_axis_of
    NN_KEY_LAST_AXIS,    // must be the last axis: -1, or its number
    NN_KEY_ONLY_WORD,    // must be this word, which is all we have
    NN_KEY_ONLY_NUMBER,  // must be the number `fallback`
    NN_KEY_INITIALIZER,  // read where its variable is made
    NN_KEY_BY_BUILD,     // read by the class's build
    NN_KEY_NONE,         // means nothing here: seeds are the job's
    NN_KEY_REFUSED,      // must be null or false: Keras has it and we do not
};

struct nn_key {
    const char *name;
    enum nn_key_kind kind;
    size_t offset;  // in the class's struct
    bool required;
    double fallback, min, max;
    const char *word;
    bool sequence;             // (height, width) are the steps of a sequence, as an image of height 1: [3], or 3
    const char *const *words;  // ends with NULL
};

#define NN_AT(type, member) .offset = offsetof(type, member)
// What a layer with a kernel has: T has members function and use_bias.
#define NN_KEYS_OF_WEIGHTS(T)                                                                                          \
    {"activation", NN_KEY_FUNCTION, NN_AT(T, function)}, {"use_bias", NN_KEY_BOOL, NN_AT(T, use_bias), .fallback = 1}, \
        {"kernel_initializer", NN_KEY_INITIALIZER}, {"bias_initializer", NN_KEY_INITIALIZER},                          \
        {"kernel_regularizer", NN_KEY_BY_BUILD}, {"bias_regularizer", NN_KEY_BY_BUILD},                                \
        {"activity_regularizer", NN_KEY_BY_BUILD}, {"kernel_constraint", NN_KEY_BY_BUILD},                             \
        {"bias_constraint", NN_KEY_BY_BUILD},                                                                          \
    {                                                                                                                  \
        "lora_rank", NN_KEY_REFUSED                                                                                    \
    }

// ---- a class ------------------------------------------------------------------------------------------------------

// What a call may be given by name.
struct nn_argument {
    const char *name;
    enum {
        NN_ARG_INPUT,  // a value, behind those that stand without a name
        NN_ARG_MASK,   // the mask of input number `input`; of 0, or a list of all
        NN_ARG_FLAG,   // true or false: flag of the call
    } kind;
    int input;
};

struct nn_layer_class {
    const char *name;           // Keras's: "Conv2D"
    size_t config_bytes;        // of its struct of settings
    const struct nn_key *keys;  // ends with a name NULL; besides those that every layer has
    // Sets b->out, and adds the layer's variables, on each call: a later one has to need those of the first.
    enum ps_code (*build)(struct nn_building *b, struct ps_error *e);
    // Puts its operators on the tape; returns the tensor that it gives. If it gives more, it puts that where
    // nn_emit_more says.
    int (*emit)(struct nn_emitter *m, const struct nn_call *call);
    // What is left out below is 0.
    bool passes_mask;  // what it gives has the mask of its first input, unless build says otherwise
    bool integers;     // it takes a value of integers; the others expect floats
    bool strings;      // it takes an input of strings; no other does
    bool vocabulary;   // its config has one, which a .keras file may hold beside the config
    bool any_dtype;    // its config's dtype says nothing: of what it gives build decides
    bool counts;       // Keras saves a whole number behind its variables, which nothing here needs
    // What Keras saves by a name, although it stands in the config: *count numbers; NULL: nothing.
    const float *(*saves)(const void *config, const char **name, uint64_t *count);
    bool constant;                        // a call has a number behind its input
    const struct nn_argument *arguments;  // ends with a name NULL; NULL: its input, and the mask of that
    // Puts the mask of what the call gives on the tape, where build has asked for a new one.
    int (*mask)(struct nn_emitter *m, const struct nn_call *call);
};

extern const struct nn_layer_class *const nn_layer_classes[];
extern const size_t nn_layer_n_classes;
extern const struct nn_layer_class nn_layer_input;  // what a model begins with
extern const struct nn_layer_class nn_layer_string_lookup;

// ---- for build ----------------------------------------------------------------------------------------------------

struct nn_building {
    struct nn_model *model;
    const struct nn_json *at, *config;  // $.config.layers[i] and its config
    struct nn_layer *layer;
    struct nn_building *outer;  // of the layer that wraps this one; NULL: none does
    bool first;                 // of the layer's calls
    int own_variables;          // that this call has made, or where it is not the first, met again
    const struct nn_value *in[NN_CALL_IN];
    int n_in;
    int value[NN_CALL_IN], mask[NN_CALL_IN];  // the inputs' numbers and those of their masks; -1: none, or build's word
    bool named_mask;                          // the document names the mask of the first
    struct nn_value copy[NN_CALL_IN];         // what in[] points to: the model's may move
    bool flag;
    bool inference;                     // as that of the call
    uint32_t stream;                    // likewise
    struct nn_type out;                 // of one example
    struct nn_type more[NN_CALL_MORE];  // of what else it gives; none of it has a mask
    int n_more;
    int64_t below;  // of whole numbers that it gives: what they are below; 0: not known
    bool text;      // it gives strings: an input
    // The mask of what it gives: a value, -1 for none, or NN_NEW_MASK: class->mask makes one of new_mask's type.
    int out_mask;
    struct nn_type new_mask;
    struct nn_call *inner;  // those that nn_build_inner has made
    int n_inner;
};

enum { NN_NEW_MASK = -2 };

// Which dimension of an example of this rank an NN_KEY_AXIS is: -1 is the last one of each call's input.
static inline int nn_axis_of(int axis, int rank)
{
    return axis < 0 ? axis + rank : axis - 1;
}

// Reads one, of an input of this rank. at: where it stands, for the message.
enum ps_code nn_axis_read(const struct nn_json *at, const json_t *value, int rank, int *axis, struct ps_error *e);

// The settings of a layer.
#define NN_CONFIG(type, layer) ((const type *)(layer)->config)

enum ps_code nn_build_inputs(struct nn_building *b, int n, struct ps_error *e);  // expects so many inputs
// Adds variable `what` ("kernel"). On a later call the layer has it: INVALID_ARGUMENT where it has another shape than
// this call needs. Its initializer ("kernel_initializer") is the config's, or the fallback; likewise its regularizer
// and its constraint.
enum ps_code nn_build_variable(struct nn_building *b, const char *what, const char *fallback,
                               const struct nn_type *type, struct ps_error *e);
// Adds variable `what`, a state: no gradient changes it, but while its layer is trained it follows by `momentum` what
// batches have.
enum ps_code nn_build_state(struct nn_building *b, const char *what, const char *fallback, const struct nn_type *type,
                            double momentum, struct ps_error *e);
// Adds variable `what`, of whose rows a batch reads some.
enum ps_code nn_build_table(struct nn_building *b, const char *what, const char *fallback, const struct nn_type *type,
                            struct ps_error *e);
// As nn_build_variable, but the initializer is that of another name: "depthwise_initializer".
enum ps_code nn_build_variable_by(struct nn_building *b, const char *what, const char *initializer,
                                  const char *fallback, const struct nn_type *type, struct ps_error *e);
// The config's "activity_regularizer".
enum ps_code nn_build_activity(struct nn_building *b, struct ps_error *e);
// A value of this type that call number `call` of the model makes.
int nn_build_value(struct nn_model *m, const struct nn_type *type, int call);
// The input is one of numbers in [0, ids).
void nn_build_ids(struct nn_building *b, int64_t ids);
// Calls b->layer on the values b->value: reads its settings, where this is the first call, and builds it.
enum ps_code nn_build_call(struct nn_building *b, struct ps_error *e);
// Calls layer number k of those that this one wraps on an input of this type, with the mask of input 0 where it is to
// have that; *out is what it gives. at: its object; name: that which it has here; NULL: its own.
enum ps_code nn_build_inner(struct nn_building *b, int k, const struct nn_json *at, const char *name,
                            const struct nn_type *in, bool mask, struct nn_type *out, struct ps_error *e);
// "kernel" of this type, whose last dimension counts the outputs, and "bias" where the layer has one.
enum ps_code nn_build_kernel_bias(struct nn_building *b, const struct nn_type *kernel, bool bias, struct ps_error *e);

// INVALID_ARGUMENT: `what` of this type has too many elements.
enum ps_code nn_build_elements(const struct nn_json *at, const char *what, const struct nn_type *type, uint64_t *count,
                               struct ps_error *e);

// ---- for the reader of documents ----------------------------------------------------------------------------------

// Are all settings known, and none that we do not have?
enum ps_code nn_keys_check(const struct nn_json *config, const struct nn_layer_class *class, struct ps_error *e);
// Fills the class's struct. b->in has the call's inputs; on a later call only axes are read, whether those have them.
enum ps_code nn_keys_read(const struct nn_building *b, const struct nn_layer_class *class, void *config,
                          struct ps_error *e);

#endif
