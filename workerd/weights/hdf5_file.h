// SPDX-License-Identifier: Apache-2.0
//
// HDF5, as far as Keras's weights need it: arrays of floats, each under its path.
#ifndef WK_HDF5_FILE_H
#define WK_HDF5_FILE_H

#include "common/file/safetensors.h"

// FAILED_PRECONDITION: this program was built without HDF5.
enum ps_code wk_hdf5_check(struct ps_error *e);

// All arrays of floats of the file that lies in memory. Left out are the states of an optimizer and of metrics, and
// "model_weights/" in front of names, with which Keras 2 keeps the model apart from these. DATA_LOSS: it is damaged.
//
// The library trusts its input in places, and has crashed on damaged files: it reads in a child process, of which
// nothing but a safetensors file in memory comes back.
enum ps_code wk_hdf5_read(const uint8_t *bytes, size_t size, struct ps_safetensors **file, struct ps_error *e);

// A file with these tensors under their names, of which "a/b" is b in group a; one without data is the whole number 0.
// *bytes is malloc'd.
enum ps_code wk_hdf5_write(const struct ps_safetensor *tensor, size_t n, uint8_t **bytes, size_t *size,
                           struct ps_error *e);

#endif
