// SPDX-License-Identifier: Apache-2.0
//
// Gradients of float32 in fewer bytes, and back: what a worker sends where the network is slow.
//
//     PS_BFLOAT16     the upper half of each float, rounded to the nearest: 2 bytes
//     PS_SCALED_INT8  a scale for each group of PS_ENCODING_GROUP elements, the greatest of their sizes / 127, and for
//                     each element how many times the scale it is, rounded to the nearest: 1 byte, and 4 for a group
//
// Groups are counted from a variable's element 0, so that what comes of an element does not depend on the ranges that a
// gradient is cut into. A range's encoding is the scales of the groups that it touches, little-endian floats, then one
// number for each element. A group with a NaN or an infinity comes back as NaN, all of it.
//
// What an encoding loses is not lost where the sender keeps it and adds it to its next gradient (error feedback: Seide
// et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014; Karimireddy et al., arXiv 1901.09847).
//
// Pure functions; any thread. The same bits on every machine.
#ifndef PS_COMMON_ENCODING_H
#define PS_COMMON_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PS_ENCODING_GROUP = 256 };

bool ps_is_encoding(int dtype);
// Bytes of the scales of elements [first, first + n), n > 0, and of their numbers.
size_t ps_encoding_scales(int dtype, uint64_t first, uint64_t n);
size_t ps_encoding_numbers(int dtype, uint64_t n);

// Encodes x[i] + residual[i]; residual[i] becomes what of it is lost, 0 where that is no number. n elements each, from
// the variable's element `first` on. scales and numbers may lie anywhere.
void ps_encoding_write(int dtype, uint64_t first, size_t n, const float *x, float *residual, uint8_t *scales,
                       uint8_t *numbers);
// The first element that would come back as an infinity or NaN, because x[i] + residual[i] is one or its encoding makes
// it one; n: there is none.
size_t ps_encoding_nonfinite_first(int dtype, size_t n, const float *x, const float *residual);
// scales begins with that of the group of `first`.
void ps_encoding_read(int dtype, uint64_t first, size_t n, const uint8_t *scales, const uint8_t *numbers, float *x);

#endif
