// SPDX-License-Identifier: Apache-2.0
#include "workerd/data/image.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool image_is_png(const uint8_t *bytes, size_t n)
{
    return n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static bool image_is_jpeg(const uint8_t *bytes, size_t n)
{
    return n >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0;
}

bool wk_image_is(const uint8_t *bytes, size_t n)
{
    return image_is_png(bytes, n) || image_is_jpeg(bytes, n);
}

static enum ps_code image_decode(const uint8_t *bytes, size_t n, enum ps_color color, bool size_only,
                                 struct wk_image *image, struct ps_error *e)
{
    *image = (struct wk_image){0};
    if (image_is_png(bytes, n))
        return wk_png_decode(bytes, n, color, size_only, image, e);
    if (image_is_jpeg(bytes, n))
        return wk_jpeg_decode(bytes, n, color, size_only, image, e);
    return ps_fail(e, PS_DATA_LOSS, "it is neither a PNG nor a JPEG image");
}

enum ps_code wk_image_size(const uint8_t *bytes, size_t n, uint64_t shape[2], struct ps_error *e)
{
    struct wk_image image;
    if (image_decode(bytes, n, PS_COLOR_RGB, true, &image, e))
        return e->code;
    shape[0] = image.height;
    shape[1] = image.width;
    return PS_OK;
}

enum ps_code wk_image_decode(const uint8_t *bytes, size_t n, enum ps_color color, struct wk_image *image,
                             struct ps_error *e)
{
    return image_decode(bytes, n, color, false, image, e);
}

enum ps_code wk_image_read(const uint8_t *bytes, size_t n, enum ps_color color, const uint64_t shape[3], bool resize,
                           uint8_t *to, struct ps_error *e)
{
    struct wk_image image;
    if (wk_image_decode(bytes, n, color, &image, e))
        return e->code;
    bool same = image.height == shape[0] && image.width == shape[1];
    enum ps_code code = PS_OK;
    if (same)
        memcpy(to, image.pixels, image.height * image.width * image.channels);
    else if (resize)
        wk_image_resize(&image, (size_t)shape[0], (size_t)shape[1], to);
    else
        code = ps_fail(e, PS_INVALID_ARGUMENT,
                       "the image is %zu by %zu pixels, expected %" PRIu64 " by %" PRIu64
                       " as the first: data.image_size would resize all",
                       image.height, image.width, shape[0], shape[1]);
    free(image.pixels);
    return code;
}
