// SPDX-License-Identifier: Apache-2.0
//
// Images that differ a little each time they are seen. Everything is drawn from Philox(seed, PS_RANDOM_AUGMENT, epoch,
// example), so that a worker, a thread and a resumed run see the same.
#include <string.h>

#include "common/math/philox.h"
#include "workerd/data/data_internal.h"

// Of one example, word 0 decides flips and the crop; noise takes those after it.
static uint64_t augment_counter(uint64_t example, uint32_t k, uint64_t draw)
{
    return example << 28 | (uint64_t)k << 24 | draw;
}

static void augment_flip(const struct wk_port *port, bool across, bool down, const float *from, float *to)
{
    size_t h = port->image[0], w = port->image[1], c = port->image[2];
    for (size_t i = 0; i < h; i++)
        for (size_t j = 0; j < w; j++)
            memcpy(to + (i * w + j) * c, from + ((down ? h - 1 - i : i) * w + (across ? w - 1 - j : j)) * c,
                   c * sizeof *to);
}

// As if zeros stood around it: what moves in from outside is zero.
static void augment_shift(const struct wk_port *port, long top, long left, const float *from, float *to)
{
    long h = (long)port->image[0], w = (long)port->image[1];
    size_t c = port->image[2];
    for (long i = 0; i < h; i++)
        for (long j = 0; j < w; j++) {
            float *pixel = to + (size_t)(i * w + j) * c;
            bool inside = i + top >= 0 && i + top < h && j + left >= 0 && j + left < w;
            if (inside)
                memcpy(pixel, from + (size_t)((i + top) * w + j + left) * c, c * sizeof *to);
            else
                memset(pixel, 0, c * sizeof *to);
        }
}

// Irwin and Hall: a sum of twelve uniform numbers less 6 has mean 0, variance 1, and no tails beyond 6; no function of
// libm, whose bits differ between machines, is asked.
static void augment_noise(float deviation, uint32_t k, uint64_t seed, uint64_t epoch, uint64_t example, size_t n,
                          float *to)
{
    uint32_t word[12];
    for (size_t i = 0; i < n; i++) {
        float sum = -6;
        for (uint64_t d = 0; d < 3; d++)
            ps_philox(seed, PS_RANDOM_AUGMENT, epoch, augment_counter(example, k, 1 + 3 * i + d), word + 4 * d);
        for (int d = 0; d < 12; d++)
            sum += ps_uniform(word[d]);
        to[i] += deviation * sum;
    }
}

static long augment_draw_shift(uint32_t word, int crop)
{
    return (long)((uint64_t)word * (uint32_t)(2 * crop + 1) >> 32) - crop;
}

void wk_augment(const struct wk_augment *a, const struct wk_port *port, uint32_t k, uint64_t seed, uint64_t epoch,
                uint64_t example, float *raw, float *to)
{
    size_t n = port->image[0] * port->image[1] * port->image[2];
    uint32_t word[4];
    // The same for all inputs of an example: images of one scene stay together.
    ps_philox(seed, PS_RANDOM_AUGMENT, epoch, augment_counter(example, 0, 0), word);
    bool across = a->flip & PS_FLIP_HORIZONTAL && word[0] >> 31, down = a->flip & PS_FLIP_VERTICAL && word[1] >> 31;
    if (across || down) {
        memcpy(raw, to, n * sizeof *raw);
        augment_flip(port, across, down, raw, to);
    }
    if (a->crop) {
        memcpy(raw, to, n * sizeof *raw);
        augment_shift(port, augment_draw_shift(word[2], a->crop), augment_draw_shift(word[3], a->crop), raw, to);
    }
    if (a->noise > 0)
        augment_noise((float)a->noise, k, seed, epoch, example, n, to);
}
