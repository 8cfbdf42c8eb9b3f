// SPDX-License-Identifier: Apache-2.0
#ifndef PSCTL_NPY_H
#define PSCTL_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

// Writes an array as NumPy's .npy (format version 1.0) to path, "-" for standard output. On failure no file
// is left.
enum ps_code npy_write(const char *path, int dtype, const uint64_t *shape, size_t rank, const void *data,
                       uint64_t count, struct ps_error *e);

#endif
