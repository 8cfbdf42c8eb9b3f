// SPDX-License-Identifier: Apache-2.0
//
// What the files that read Keras's models share.
#ifndef NN_KERAS_H
#define NN_KERAS_H

#include "common/file/zip.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/setting.h"

// The model as far as it is read.
struct keras_reader {
    struct nn_model *model;
    size_t cap_calls;
    const struct ps_zip *archive;  // the .keras file that holds the document; NULL: another does
    bool inference;                // what is called now is called with training=False
};

// ---- layers and their calls (keras_layer.c) -----------------------------------------------------------------------

// Of a layer's object: its class, and that its settings are known.
enum ps_code keras_check_layer(const struct nn_json *at, const struct nn_json *config,
                               const struct nn_layer_class **class, struct ps_error *e);
// Adds a layer; takes over name. keras_read_model has made room.
struct nn_layer *keras_put_layer(struct keras_reader *r, const struct nn_layer_class *class, char *name);
// What a call is given.
struct keras_arguments {
    int in[NN_CALL_IN], n_in;  // values
    int mask[NN_CALL_IN];      // those that the document names; -1: none
    bool flag;
    bool inference;  // Keras 2's training=False: it does not train, whatever the model does
    double constant;
};

void keras_no_arguments(struct keras_arguments *a);
// Calls a layer; out[*n_out] is what it gives. Its settings are read with its first call.
enum ps_code keras_call(struct keras_reader *r, const struct nn_json *at, const struct nn_json *config,
                        struct nn_layer *layer, const struct keras_arguments *a, int *out, int *n_out,
                        struct ps_error *e);

// ---- what a .keras file holds beside the document (load.c) ---------------------------------------------------------

// The vocabulary of the layer that is saved there ("layers/string_lookup/"), if its config has none, into its config.
enum ps_code keras_load_vocabulary(const struct ps_zip *archive, const char *saved, const struct nn_json *config,
                                   struct ps_error *e);

// ---- models (keras_model.c) ---------------------------------------------------------------------------------------

// Reads the whole document: its layers, and a call of it on its own inputs. Sets the inputs and outputs of r->model.
enum ps_code keras_read_model(struct keras_reader *r, const struct nn_json *root, struct ps_error *e);

#endif
