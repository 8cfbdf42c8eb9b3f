// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG images, decoded by libpng and libjpeg: to bytes, (height, width, channels), 3 channels or 1.
// Transparency is left out; 16 bits become 8. Where configure found no such library the error says so.
#ifndef WK_IMAGE_H
#define WK_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/job/job.h"

enum { WK_IMAGE_SIDE = 1 << 14 };  // the most

struct wk_image {
    size_t height, width, channels;
    uint8_t *pixels;  // (height, width, channels), malloc'd
};

bool wk_image_is(const uint8_t *bytes, size_t n);  // by its first bytes
// Height and width, of the header alone.
enum ps_code wk_image_size(const uint8_t *bytes, size_t n, uint64_t shape[2], struct ps_error *e);
enum ps_code wk_image_decode(const uint8_t *bytes, size_t n, enum ps_color color, struct wk_image *image,
                             struct ps_error *e);
// Bilinear with half-pixel centres and without antialiasing, as Keras's; rounded to bytes.
void wk_image_resize(const struct wk_image *from, size_t height, size_t width, uint8_t *to);
// Decodes to a shape, which the image has unless it is to be resized.
enum ps_code wk_image_read(const uint8_t *bytes, size_t n, enum ps_color color, const uint64_t shape[3], bool resize,
                           uint8_t *to, struct ps_error *e);

// One per library; size_only: pixels stay NULL.
enum ps_code wk_png_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                           struct ps_error *e);
enum ps_code wk_jpeg_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only, struct wk_image *image,
                            struct ps_error *e);
// As JPEG and PIL have it, 0.299 R + 0.587 G + 0.114 B.
static inline uint8_t wk_image_gray(const uint8_t rgb[3])
{
    return (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000) >> 16);
}
// Are sides of this size taken? Allocates the pixels unless size_only.
enum ps_code wk_image_alloc(struct wk_image *image, uint64_t height, uint64_t width, enum ps_color color,
                            bool size_only, struct ps_error *e);

#endif
