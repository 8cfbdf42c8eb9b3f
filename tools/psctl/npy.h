// SPDX-License-Identifier: Apache-2.0
//
// Values of variables as NumPy's .npy files, for get and put. In memory a value is what libclient reads and writes:
// elements of the variable's dtype, or psc_string for STRING.
//
//     float32, float64, float16, int32, int64, uint8   NumPy's own types
//     bfloat16   NumPy has none: written as float32, which holds each exactly; a float32 read is rounded to the
//                nearest, ties to even. ml_dtypes' bfloat16 (two bytes of NumPy's void) is read as it stands
//     STRING     'S' of the longest element's width. As NumPy does, zero bytes at an element's end are not kept: an
//                element that ends in one is not written
#ifndef PSCTL_NPY_H
#define PSCTL_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// What a file holds or is to hold. data is count elements.
struct npy_array {
    int dtype;  // the variable's
    const uint64_t *shape;
    size_t rank;
    uint64_t count;
    void *data;
};

// Bytes of an element in memory; 0: no such dtype.
size_t npy_element_size(int dtype);
// Frees what elements point to, not data itself.
void npy_elements_free(const struct npy_array *a);

// Writes to path as common/file/output.h does, or to standard output ("-"), whose errors stay with stdout. DATA_LOSS:
// an element cannot be written; nothing was begun.
enum ps_code npy_write(const char *path, const struct npy_array *a, struct ps_error *e);

// Reads elements of a->dtype and a->shape into a->data, from path, "-" for standard input. INVALID_ARGUMENT names both
// types or both shapes where the file's is another; DATA_LOSS: not such a file; NOT_FOUND and the like: not readable.
// On success STRING elements are to be freed by npy_elements_free, as those of a psc_get are.
enum ps_code npy_read(const char *path, const struct npy_array *a, struct ps_error *e);

#endif
