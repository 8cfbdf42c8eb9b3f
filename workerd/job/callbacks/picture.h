// SPDX-License-Identifier: Apache-2.0
//
// A variable as a picture, black where it is least, white where it is greatest:
//
//     (n)              a row
//     (in, out)        a matrix, lying on its side where it is higher than wide, as in Keras's TensorBoard
//     (k, in, out)     a tile (k, in) for each of out, side by side
//     (h, w, in, out)  a tile (h, w) for each pair: a row for each of in
//
// Tiles have a line of black between them.
#ifndef WK_PICTURE_H
#define WK_PICTURE_H

#include "workerd/nn/model.h"

struct wk_picture {
    uint32_t width, height;
    uint8_t *gray;  // [height][width], malloc'd
};

// False: p has more dimensions than that, no elements, or more of them than WK_PICTURE_MOST.
enum { WK_PICTURE_MOST = 1 << 20 };
bool wk_picture_of(const struct nn_param *p, const float *value, struct wk_picture *picture);
void wk_picture_free(struct wk_picture *picture);
// As a PNG of *size bytes, malloc'd. NULL: zlib has no memory.
uint8_t *wk_picture_png(const struct wk_picture *picture, size_t *size);

#endif
