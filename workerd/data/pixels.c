// SPDX-License-Identifier: Apache-2.0
//
// An image's pixels, whatever it was decoded from: their memory, and the same in another size.
#include <inttypes.h>

#include "workerd/data/image.h"
#include "workerd/data/source.h"

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

// Output pixel i lies between two of the input's n, the second of which counts `part`.
static void pixels_find_neighbours(size_t i, size_t n, size_t out, size_t *low, size_t *high, float *part)
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
            pixels_find_neighbours(i, from->height, height, &top, &bottom, &down);
            pixels_find_neighbours(j, from->width, width, &left, &right, &across);
            for (size_t k = 0; k < c; k++) {
                const uint8_t *a = from->pixels + top * row + k, *b = from->pixels + bottom * row + k;
                float above = (float)a[left * c] + ((float)a[right * c] - (float)a[left * c]) * across;
                float below = (float)b[left * c] + ((float)b[right * c] - (float)b[left * c]) * across;
                *to++ = (uint8_t)(above + (below - above) * down + 0.5f);
            }
        }
}
