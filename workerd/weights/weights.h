// SPDX-License-Identifier: Apache-2.0
//
// Weights in files, of any kind that there is:
//
//     safetensors     any name; each tensor by a name of its own (workerd/strategy/weights.c knows the spellings)
//     .weights.h5     HDF5, as Keras writes it: each tensor where it lies, "layers/conv2d/vars/0"
//     .keras          a zip file of the model's JSON and such weights (workerd/nn/load.c has the whole of it)
//
// What is read is known by its first bytes, what is written by its name. HDF5 is an option of configure: hdf5.c, or
// hdf5_none.c, which refuses.
//
// Threads: any, one at a time.
#ifndef WK_WEIGHTS_H
#define WK_WEIGHTS_H

#include "common/file/safetensors.h"
#include "workerd/nn/model.h"

// Freed with ps_safetensors_free. Errors name the file. FAILED_PRECONDITION: its kind needs HDF5, which is not there.
enum ps_code wk_weights_read(const char *path, struct ps_safetensors **file, struct ps_error *e);

// Can a file of this name be written? FAILED_PRECONDITION as above.
enum ps_code wk_weights_check_output(const char *path, struct ps_error *e);

// value[i] is parameter i's. The file appears as those of common/file/output.h do.
enum ps_code wk_weights_write(const char *path, const struct nn_model *model, const float *const *value,
                              struct ps_error *e);

#endif
