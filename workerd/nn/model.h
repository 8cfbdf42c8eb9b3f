// SPDX-License-Identifier: Apache-2.0
//
// A network, from the file to the numbers:
//
//     model       keras*.c read Keras JSON: layers (layers/), their calls on values, models within models, variables
//     tape        emit*.c put one step on it: the calls' operators, the losses, what regularizes; an operator that does
//                 the work of several stands for them where the device has it; differentiation adds the backward pass
//     operators   ops/: what each computes, its gradient, its reference in plain C
//     kernels     a device picks one per operator and shape: cpu/ (oneDNN, vector code), or the reference
//     program     program.c: a tape with kernels and memory, ready to run; one per number of rows, to train or evaluate
//     replica     replica.c: the variables, the programs that use them, and a device
//
// Who owns memory: a model its layers, a tape (then its program) its operators, a kernel's plan its scratch. The
// replica owns the values and gradients of the variables, and one arena for all tensors between operators, in which
// tensors that do not live at the same time share places; callers read and write values and gradients between steps.
// Where the device has memory of its own, that is where the arena lies; values and gradients are the host's, with twins
// there (program_device.c copies between them). Batches are the feed's.
//
// nn_model is immutable once loaded and may be shared by threads. nn_replica belongs to one thread at a time.
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/job/loss.h"
#include "common/wire/dtype.h"
#include "workerd/nn/program.h"

struct nn_measures;
struct nn_metric;
struct nn_model;
struct nn_replica;

enum { NN_MAX_PORTS = 16 };

// The words of an input of strings, which a StringLookup reads: a batch has a word's place in this list, or -1 for any
// other word; closed: there may be no other.
struct nn_words {
    int64_t n;
    bool closed;
    const char *word[];
};

// An input or an output of a model: the name of its layer, or of the inner model that gives it, and the type of one
// example.
struct nn_port {
    const char *name;
    const struct nn_type *type;
    int64_t ids;  // of an input that an Embedding reads: its numbers are in [0, ids); 0: they may be any
    const struct nn_words *words;  // of an input of strings, whose dtype is NN_INT32; else NULL
    const int32_t *only;           // the numbers that may come, n_only, ascending; NULL: any
    int64_t n_only;
};

// A call of a layer: its name, "dense", or where it was called before "dense/call_2"; the layer's class; what it gives
// for an example; the nodes whose outputs it reads.
struct nn_node {
    char name[256];
    const char *kind;
    const struct nn_type *type;
    int in[NN_MAX_PORTS], n_in;
};

struct nn_param {
    const char *name;   // Keras 3's variable.path: "sequential/conv2d/kernel"
    const char *layer;  // "conv2d"
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    uint64_t count;
    bool trainable;  // by the gradient
    bool table;      // an Embedding's: a batch reads some of its rows
    // Of what is not trainable, but follows what batches have: the rule by which a batch's value, which stands in the
    // gradient's place, comes into it, and the rule's momentum; NULL: nothing changes it.
    const char *rule;
    double momentum;
};

// Does a step change it?
static inline bool nn_param_changes(const struct nn_param *p)
{
    return p->trainable || p->rule;
}

// What a batch is: columns of so many rows. input[k] is (rows, the shape of input k), row-major, of its dtype;
// target[k] what the loss of output k compares with: float (rows, the output's shape), or where ps_loss_has_labels
// int32 (rows, that without its last axis). weight[row] is how much an example counts in the loss. Numbers that an
// Embedding looks up have to be in its table (nn_port.ids, nn_port.only): if one is not, INVALID_ARGUMENT names it, and
// nothing is computed.
struct nn_batch {
    int rows;
    const void *input[NN_MAX_PORTS];
    const void *target[NN_MAX_PORTS];
    const uint64_t *example;  // (rows) their numbers in the data; NULL where nothing is drawn by them
    const float *weight;      // (rows); NULL: each 1
};

// Sums over the batch's rows: what is divided by their number is Keras's mean.
struct nn_result {
    double loss;  // of all outputs, each times its weight; for each row once more what the regularizers add
    double output[NN_MAX_PORTS];  // of each, not times its weight
    // What is measured (measure.h), those and the metrics: nn_measures_sums(of) sums, until the replica's next call.
    const struct nn_measures *of;
    const double *sums;
};

// Keras 3's and Keras 2's Sequential and Functional, from JSON or a .keras file. Errors name the file, the JSON path
// ("$.config.layers[3].config.units") and what was expected; an unknown layer or activation says which are known.
enum ps_code nn_model_load(const char *path, struct nn_model **model, struct ps_error *e);
enum ps_code nn_model_parse(const char *json, const char *name, struct nn_model **model, struct ps_error *e);
void nn_model_free(struct nn_model *model);

// The names of the layers, activations and initializers that there are; NULL from the last on.
const char *nn_layer_name(size_t i);
const char *nn_function_name(size_t i);
const char *nn_initializer_name(size_t i);

size_t nn_model_params(const struct nn_model *model);
const struct nn_param *nn_model_param(const struct nn_model *model, size_t i);
size_t nn_model_inputs(const struct nn_model *model);
size_t nn_model_outputs(const struct nn_model *model);
struct nn_port nn_model_input(const struct nn_model *model, size_t k);
struct nn_port nn_model_output(const struct nn_model *model, size_t k);
// Is loss[k] computable from output k: classes, activation? FAILED_PRECONDITION names what does not fit.
enum ps_code nn_model_check_loss(const struct nn_model *model, const struct ps_loss *loss, struct ps_error *e);
// Initial value of parameter i by its initializer (GlorotUniform, HeUniform, HeNormal, GlorotNormal, LecunUniform,
// LecunNormal, RandomUniform, RandomNormal, TruncatedNormal, Zeros, Ones, Constant), drawn from (seed, i).
void nn_model_init_param(const struct nn_model *model, size_t i, uint64_t seed, float *value);
// Where the Keras that has written the model saves each parameter in a .weights.h5: "layers/conv2d/vars/0".
// nn_model_params of them, then what Keras expects there besides: what stands in the model's JSON, too, which is
// `value` (the model's); or whole numbers that nothing here needs. Ends with path NULL.
struct nn_saved {
    char *path;
    const float *value;  // count numbers; NULL: it is a parameter's, or a whole number of 0
    uint64_t count;
};
struct nn_saved *nn_model_saved(const struct nn_model *model);
void nn_model_free_saved(struct nn_saved *saved);
// The model's JSON, in which a .keras file of Keras 2 has got the keras_version of that file's metadata.json; and where
// it comes from a .keras file, that metadata.json, else NULL. The model's.
const char *nn_model_document(const struct nn_model *model);
bool nn_model_is_keras2(const struct nn_model *model);
const char *nn_model_metadata(const struct nn_model *model);
// The first BatchNormalization that is trainable and `synchronized`; NULL: none is.
const char *nn_model_synchronized(const struct nn_model *model);
// Which layers normalize by what all replicas have that take a step together (nn_hooks.sum). Before any replica is made
// of the model, which is changed.
enum nn_synchronize { NN_SYNCHRONIZE_MARKED, NN_SYNCHRONIZE_NONE, NN_SYNCHRONIZE_ALL };
void nn_model_synchronize(struct nn_model *model, enum nn_synchronize which);
// Applies parameter i's constraint to a value that a step has changed.
void nn_model_constrain(const struct nn_model *model, size_t i, float *value);
const char *nn_model_constraint(const struct nn_model *model, size_t i);  // Keras's name of it; NULL: it has none
// Its calls of layers, in an order in which each comes after those that make what it reads.
size_t nn_model_nodes(const struct nn_model *model);
struct nn_node nn_model_node(const struct nn_model *model, size_t i);
// A table like model.summary(): layer (type), output shape, parameters. malloc'd.
char *nn_model_summary(const struct nn_model *model);

// rows: the most a batch will have. device: "cpu", "gpu:1", "ref" (nn_device_find). loss[k] is that of output k.
// Compiles the training of such a batch.
enum ps_code nn_replica_create(const struct nn_model *model, const char *device, int rows, int threads, uint64_t seed,
                               const struct ps_loss *loss, struct nn_replica **replica, struct ps_error *e);
void nn_replica_free(struct nn_replica *r);
// What is measured of each batch, besides the losses. FAILED_PRECONDITION: a metric does not fit its output.
enum ps_code nn_replica_measure(struct nn_replica *r, const struct nn_metric *metrics, size_t n, struct ps_error *e);
const struct nn_measures *nn_replica_measures(const struct nn_replica *r);
// To what the device may round the factors of matrix products; one whose products are float32's does not.
void nn_replica_set_precision(struct nn_replica *r, enum nn_precision precision);
// Plans the training anew. FAILED_PRECONDITION: the device has no other convolutions.
enum ps_code nn_replica_set_convolutions(struct nn_replica *r, enum nn_convolutions which, struct ps_error *e);
// Dropout draws from this seed from the next step on, not from that of create.
void nn_replica_reseed(struct nn_replica *r, uint64_t seed);
float *nn_replica_param(struct nn_replica *r, size_t i);  // 64-byte aligned, the caller reads and writes
float *nn_replica_grad(struct nn_replica *r,
                       size_t i);  // of the mean loss over the batch's rows; of what a step changes only
// The device applies this rule, in its own memory: from now on values and gradients stay there between steps; what
// nn_replica_param and nn_replica_grad return are copies, to be asked for anew after each step. A hook `ready` says
// then that what makes the gradient is queued. False: it does not.
bool nn_replica_keep(struct nn_replica *r, const struct ps_rule *rule, const double *hyper);
bool nn_replica_can_keep(const struct nn_replica *r, const struct ps_rule *rule, const double *hyper);
// The host has them again, as at first. Between two steps; no sum is under way.
void nn_replica_keep_no_more(struct nn_replica *r);
// Then: before values, or slots that were taken, are written to a file or given to others: INTERNAL: they are not what
// the device had, which has failed.
enum ps_code nn_replica_fetch(struct nn_replica *r, struct ps_error *e);
// Then: memory of the device for so many floats, the replica's, once; copies of it, which are waited for.
enum ps_code nn_replica_get_slots(struct nn_replica *r, size_t n, float **slots, struct ps_error *e);
enum ps_code nn_replica_put_slots(struct nn_replica *r, float *to, const float *from, size_t n, struct ps_error *e);
void nn_replica_take_slots(struct nn_replica *r, float *to, const float *from, size_t n);
// Then: queues n updates. Slots are of the device's memory; g, w_in and w_out are set here. Nothing waits for them: an
// error comes with the next step, or with nn_replica_fetch.
void nn_replica_apply(struct nn_replica *r, struct nn_update *update, size_t n);
// Then: sums of gradients over the replicas that keep theirs (nn_device_sums), of n numbers from variable i's gradient
// on.
enum ps_code nn_replica_check_sums(struct nn_replica *r, enum nn_sums_way way, struct ps_error *e);
// A number of its device, as nn_device_sums has it; 0: it is not known, or nobody needs it.
uint64_t nn_replica_identity_in_sums(const struct nn_replica *r);
enum ps_code nn_replica_name_sums(const struct nn_replica *r, char name[NN_SUMS_NAME], struct ps_error *e);
enum ps_code nn_replica_join_sums(struct nn_replica *r, const struct nn_sums_ranks *ranks, struct ps_error *e);
void nn_replica_add_gradients(struct nn_replica *r, size_t i, size_t n, float scale);
enum ps_code nn_replica_look_at_sums(struct nn_replica *r, bool *done, struct ps_error *e);
void nn_replica_abort_sums(struct nn_replica *r);
// Forward and backward. A batch of no rows makes all gradients 0. hooks, which may be NULL, are told of the variables.
// The first batch of a number of rows is compiled for: RESOURCE_EXHAUSTED if there is no memory for that.
enum ps_code nn_replica_train(struct nn_replica *r, const struct nn_batch *b, uint64_t step,
                              const struct nn_hooks *hooks, struct nn_result *result, struct ps_error *e);
// The variables that a step changes, in the order in which they become ready. Their values, and in the same order their
// gradients, lie one after the other, each on a 64-byte boundary with zeros between: what becomes ready together is one
// range. The replica's.
size_t nn_replica_order(const struct nn_replica *r, const size_t **variable);
// Forward only, dropout off. One row or more. Errors as nn_replica_train.
enum ps_code nn_replica_evaluate(struct nn_replica *r, const struct nn_batch *b, struct nn_result *result,
                                 struct ps_error *e);
// For profiles. The program that trains a full batch: the replica's, until the next step of another size. Where the
// times of its runs are added from the next step on; NULL: nowhere. FLOP per second that the device reaches at best at
// this moment; 0: not known.
enum ps_code nn_replica_program(struct nn_replica *r, const struct nn_program **program, struct ps_error *e);
void nn_replica_time(struct nn_replica *r, struct nn_times *times);
double nn_replica_peak(struct nn_replica *r);
// From the next step on, each operator that is run is a span of this track; NULL: of none.
void nn_replica_track(struct nn_replica *r, struct ps_track *track);
// Bytes of what lies between the operators of the largest step so far: of the planned one, from the start.
size_t nn_replica_arena(const struct nn_replica *r);
// Of the last call: (rows, the shape of output k); and of each row of that as a matrix, along its last axis, a number
// above 0 where the output's mask says that it counts, NULL: it has no mask.
const float *nn_replica_output(struct nn_replica *r, size_t k);
const float *nn_replica_counts(struct nn_replica *r, size_t k);

#endif
