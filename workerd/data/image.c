// SPDX-License-Identifier: Apache-2.0
#include "workerd/data/image.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/data/source.h"

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

enum ps_code wk_image_alloc(struct wk_image *image, uint64_t height, uint64_t width, enum ps_color color,
                            bool size_only, struct ps_error *e)
{
    size_t channels = color == PS_COLOR_GRAYSCALE ? 1 : 3;
    if (height < 1 || width < 1 || height > WK_IMAGE_SIDE || width > WK_IMAGE_SIDE)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the image is %" PRIu64 " by %" PRIu64 " pixels, expected 1 to %d each",
                       height, width, WK_IMAGE_SIDE);
    *image = (struct wk_image){.height = (size_t)height, .width = (size_t)width, .channels = channels};
    if (size_only)
        return PS_OK;
    image->pixels = wk_array(height, width, channels, e);
    return image->pixels ? PS_OK : PS_RESOURCE_EXHAUSTED;
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

// ---- resizing -----------------------------------------------------------------------------------------------------

// Output pixel i lies between two of the input's n, the second of which counts `part`.
static void image_find_neighbours(size_t i, size_t n, size_t out, size_t *low, size_t *high, float *part)
{
    float at = ((float)i + 0.5f) * (float)n / (float)out - 0.5f;
    at = at < 0 ? 0 : at > (float)(n - 1) ? (float)(n - 1) : at;
    *low = (size_t)at;
    *high = *low + 1 < n ? *low + 1 : *low;
    *part = at - (float)*low;
}

void wk_image_resize(const struct wk_image *from, size_t height, size_t width, uint8_t *to)
{
    size_t c = from->channels, row = from->width * c;
    for (size_t i = 0; i < height; i++)
        for (size_t j = 0; j < width; j++) {
            size_t top, bottom, left, right;
            float down, across;
            image_find_neighbours(i, from->height, height, &top, &bottom, &down);
            image_find_neighbours(j, from->width, width, &left, &right, &across);
            for (size_t k = 0; k < c; k++) {
                const uint8_t *a = from->pixels + top * row + k, *b = from->pixels + bottom * row + k;
                float above = (float)a[left * c] + ((float)a[right * c] - (float)a[left * c]) * across;
                float below = (float)b[left * c] + ((float)b[right * c] - (float)b[left * c]) * across;
                *to++ = (uint8_t)(above + (below - above) * down + 0.5f);
            }
        }
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
