// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callbacks/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "common/base/alloc.h"

// ---- pixels -------------------------------------------------------------------------------------------------------

// Where an element lies: tiles of height x width in rows and columns, and how far apart its elements are.
struct tiles {
    uint64_t rows, columns, height, width;
    uint64_t row_step, column_step, y_step, x_step;
};

static bool picture_lay_out(const struct nn_param *p, struct tiles *t)
{
    const uint64_t *d = p->shape;
    switch (p->rank) {
    case 1:
        *t = (struct tiles){1, 1, 1, d[0], 0, 0, 0, 1};
        return true;
    case 2:
        *t = d[0] > d[1] ? (struct tiles){1, 1, d[1], d[0], 0, 0, 1, d[1]}
                         : (struct tiles){1, 1, d[0], d[1], 0, 0, d[1], 1};
        return true;
    case 3:
        *t = (struct tiles){1, d[2], d[0], d[1], 0, 1, d[1] * d[2], d[2]};
        return true;
    case 4:
        *t = (struct tiles){d[2], d[3], d[0], d[1], d[3], 1, d[1] * d[2] * d[3], d[2] * d[3]};
        return true;
    default:
        return false;
    }
}

// What is not finite is black.
static uint8_t picture_shade(double x, double least, double most)
{
    return isfinite(x) && most > least ? (uint8_t)lrint(255 * (x - least) / (most - least)) : 0;
}

static void picture_range(const float *value, uint64_t n, double *least, double *most)
{
    *least = INFINITY;
    *most = -INFINITY;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(value[i]))
            continue;
        *least = fmin(*least, (double)value[i]);
        *most = fmax(*most, (double)value[i]);
    }
}

bool wk_picture_of(const struct nn_param *p, const float *value, struct wk_picture *picture)
{
    struct tiles t;
    double least, most;
    if (p->count == 0 || p->count > WK_PICTURE_MOST || !picture_lay_out(p, &t))
        return false;
    picture_range(value, p->count, &least, &most);
    picture->width = (uint32_t)(t.columns * (t.width + 1) - 1);
    picture->height = (uint32_t)(t.rows * (t.height + 1) - 1);
    picture->gray = ps_alloc((size_t)picture->width * picture->height);
    for (uint64_t i = 0; i < p->count; i++) {
        const uint64_t x = i % t.width, y = i / t.width % t.height, tile = i / t.width / t.height;
        const uint64_t column = tile % t.columns, row = tile / t.columns;
        const uint64_t at = row * t.row_step + column * t.column_step + y * t.y_step + x * t.x_step;
        picture->gray[(row * (t.height + 1) + y) * picture->width + column * (t.width + 1) + x] =
            picture_shade((double)value[at], least, most);
    }
    return true;
}

void wk_picture_free(struct wk_picture *picture)
{
    free(picture->gray);
}

// ---- PNG: https://www.w3.org/TR/png-3 -----------------------------------------------------------------------------

static uint8_t *png_put_number(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (24 - 8 * i));
    return to + 4;
}

// The chunk's bytes may be in their place already.
static uint8_t *png_put_chunk(uint8_t *to, const char *type, const void *data, size_t n)
{
    uint8_t *head = png_put_number(to, (uint32_t)n);
    memcpy(head, type, 4);
    if (n)
        memmove(head + 4, data, n);
    return png_put_number(head + 4 + n, (uint32_t)crc32(0, head, (uInt)(4 + n)));
}

uint8_t *wk_picture_png(const struct wk_picture *picture, size_t *size)
{
    static const uint8_t signature[8] = "\x89PNG\r\n\x1A\n";
    enum { CHUNK = 12, BITS = 8 };
    uint8_t header[13] = {0};
    const size_t row = (size_t)picture->width + 1, all = row * picture->height;
    uint8_t *rows = ps_alloc(all);  // each begins with its filter: none
    for (size_t y = 0; y < picture->height; y++)
        memcpy(rows + y * row + 1, picture->gray + y * picture->width, picture->width);
    uLongf packed = compressBound((uLong)all);
    uint8_t *png = ps_alloc(sizeof signature + sizeof header + packed + 3 * CHUNK), *at = png;
    memcpy(at, signature, sizeof signature);
    png_put_number(png_put_number(header, picture->width), picture->height)[0] = BITS;  // gray, one byte a pixel
    at = png_put_chunk(at + sizeof signature, "IHDR", header, sizeof header);
    const int code = compress(at + 8, &packed, rows, (uLong)all);
    free(rows);
    if (code != Z_OK) {
        free(png);
        return NULL;
    }
    at = png_put_chunk(at, "IDAT", at + 8, packed);
    at = png_put_chunk(at, "IEND", NULL, 0);
    *size = (size_t)(at - png);
    return png;
}
