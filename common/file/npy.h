// SPDX-License-Identifier: Apache-2.0
//
// NumPy's format: "\x93NUMPY", version (major, minor), the header's length (16 bits in version 1, 32 bits after), the
// header (a Python dict of exactly descr, fortran_order and shape, padded with blanks), the elements.
//     https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef PS_COMMON_NPY_H
#define PS_COMMON_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/wire/dtype.h"

// A file of numpy.save, versions 1 to 3, little-endian and in C order.
struct ps_npy {
    // 'u', 'i', 'f'; 'b': bool; 'S': bytes, the shorter ones filled up with zeros; 'V': two bytes that NumPy has no
    // name for, such as a bfloat16
    char kind;
    size_t width;  // bytes per element: 1, 2, 4, 8; of 'S' any
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    uint64_t count;
    const uint8_t *elements;  // in the buffer parsed, of any alignment
};

// Object arrays are pickles, which run what they please where they are read: they are refused like any other type that
// is not named above.
enum ps_code ps_npy_parse(const uint8_t *bytes, size_t size, struct ps_npy *npy, struct ps_error *e);

// What stands before the elements, format version 1.0; its length. rank <= PS_MAX_RANK, descr such as "<f4".
enum { PS_NPY_HEADER_MAX = 512 };
size_t ps_npy_header(const char *descr, const uint64_t *shape, size_t rank, char to[PS_NPY_HEADER_MAX]);

#endif
