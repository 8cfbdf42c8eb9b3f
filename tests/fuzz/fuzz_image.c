// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG: whatever the bytes, an error or an image of the size that its header says. Images are small here: what
// a header may claim costs memory that fuzzing has not.
#include <stdlib.h>

#include "workerd/data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (int color = PS_COLOR_RGB; color <= PS_COLOR_GRAYSCALE; color++) {
        struct ps_error e;
        struct wk_image image;
        uint64_t shape[2];
        if (wk_image_size(bytes, size, shape, &e) != PS_OK || shape[0] * shape[1] > 1 << 16)
            continue;
        if (wk_image_decode(bytes, size, (enum ps_color)color, &image, &e) != PS_OK)
            continue;
        unsigned sum = 0;
        if (image.height != shape[0] || image.width != shape[1] || image.channels != (color ? 1 : 3))
            abort();
        for (size_t i = 0; i < image.height * image.width * image.channels; i++)
            sum += image.pixels[i];
        if (sum == 1)
            shape[0]++;
        free(image.pixels);
    }
    return 0;
}
