// SPDX-License-Identifier: Apache-2.0
//
// What the vector code of conv2d_pool works on, and its three versions: for vectors of 16, 8 and 4 floats.
#ifndef NN_CPU_CONV2D_POOL_H
#define NN_CPU_CONV2D_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Images are in memory of their own where they are padded, else in the tensor.
struct conv2d_pool {
    int rows;              // images of a batch
    int kh, kw, c, oc;     // the kernel (kh, kw, c, oc)
    int width;             // floats in a row of an image: pixels times channels
    int cells_y, cells_x;  // of y
    size_t image, cells;   // floats in an image; cells of an image times oc
    int run;               // floats that a kernel's row covers in a row of an image: kw * c
    int run_padded;        // the same, in whole vectors
    bool relu;
};

// The gradients of an image that are not 0, a list for each channel of some: which pixel each belongs to.
struct conv2d_pool_gives {
    int32_t *at;  // floats from the image's begin
    float *g;
    int *n;
    size_t step;  // from one channel's list to the next: a vector longer than there are cells
};

struct conv2d_pool_isa {
    int vector;  // floats
    // The kernel in the order in which forward reads it.
    void (*pack)(const struct conv2d_pool *s, const float *kernel, float *packed);
    // One image to its cells.
    void (*forward)(const struct conv2d_pool *s, const float *x, const float *packed, const float *bias, float *y,
                    uint8_t *at);
    // The same by Winograd's tiles, for a 3x3 kernel.
    int tiles;  // that are worked on together
    void (*pack_tiles)(const struct conv2d_pool *s, const float *kernel, float *packed);
    void (*forward_tiles)(const struct conv2d_pool *s, const float *x, const float *packed, const float *bias, float *y,
                          uint8_t *at, float *scratch);
    // Of one image, the lists of channels [from, to), `from` the first of a vector's; db (oc), which may be NULL, +=
    // the sums of them.
    void (*list)(const struct conv2d_pool *s, int from, int to, const float *y, const uint8_t *at, const float *dy,
                 const struct conv2d_pool_gives *gives, float *db);
    // sum (oc's kernel rows, kh of run_padded) += g * x of each give of a channel.
    void (*weights)(const struct conv2d_pool *s, const float *x, const struct conv2d_pool_gives *gives, int channel,
                    float *sum);
    // Where runs are shorter than vectors: dkernel (kh, kw, c, oc) += x * the gradient of each cell of an image, and db
    // (oc), which may be NULL, += those gradients. taps: where each element of the kernel's (kh, kw, c) lies in an
    // image.
    void (*weights_dense)(const struct conv2d_pool *s, const float *x, const int *taps, const float *y,
                          const uint8_t *at, const float *dy, float *dkernel, float *db);
    // dx at each give of a channel += g * oc's kernel rows.
    void (*data)(const struct conv2d_pool *s, const float *rows, const struct conv2d_pool_gives *gives, int channel,
                 float *dx);
};

enum { CONV2D_POOL_TAPS = 9 };  // weights_dense takes so many at a time: taps are a multiple of it

// Tests lower it: no wider vectors are taken.
extern int conv2d_pool_widest;
extern const struct conv2d_pool_isa conv2d_pool_16, conv2d_pool_8, conv2d_pool_4;

#endif
