// SPDX-License-Identifier: Apache-2.0
//
// What the files of workerd/data share: how a split is kept, how a file is read, and the parsers. A parser is
// a function over a buffer, so that it can be fuzzed; its errors say what and where in the file, and the
// loader that read the file puts its path before them.
#ifndef WK_DATA_INTERNAL_H
#define WK_DATA_INTERNAL_H

#include "common/file/npy.h"
#include "workerd/data/data.h"

// A split in memory. Examples stay in the type they came in: images of bytes take a quarter of their floats.
struct wk_part {
    struct wk_split split;
    uint8_t *bytes;              // (examples, inputs), yet to be multiplied by the data's scale; or NULL
    float *floats;               // (examples, inputs), scaled, where bytes is NULL
    int32_t *label;              // (examples,); or NULL
    float *target;               // (examples, targets), where label is NULL
    struct wk_drawing *drawing;  // digits: what is not drawn yet; else NULL
};

// An example's x and y are in memory when this returns. Any thread.
void wk_part_need(const struct wk_part *part, uint64_t example);
// digits.c: draws an example unless it has been.
void wk_drawing_need(const struct wk_part *part, uint64_t example);
void wk_drawing_free(struct wk_drawing *drawing);  // may be NULL

struct wk_data {
    struct wk_part train, test;
    double scale;  // of bytes
};

// malloc'd rows * columns elements; NULL and RESOURCE_EXHAUSTED in e if there is no such memory.
void *wk_array(uint64_t rows, uint64_t columns, size_t element, struct ps_error *e);
// Room for the y of part->split.examples: labels, or targets of this shape (rank 0: numbers), whose elements a file
// has: their count fits.
enum ps_code wk_part_alloc_y(struct wk_part *part, bool labels, const uint64_t *shape, size_t rank, struct ps_error *e);
// Stores element i of y. A label has to be an integer from 0 to 2^31 - 2, a target a finite float32.
enum ps_code wk_part_put_y(struct wk_part *part, uint64_t i, double value, struct ps_error *e);

// The first limit bytes of a file, plain or gzip; malloc'd. The error names the path.
enum ps_code wk_file_read(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e);

// IDX: magic (0, 0, type, rank), the dimensions as big-endian 32 bits, the elements. Only unsigned bytes
// (type 8).
struct wk_idx {
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    size_t header;            // bytes before the elements
    uint64_t count;           // elements
    const uint8_t *elements;  // in the buffer parsed
};
size_t wk_idx_header_size(size_t rank);
// The header alone, from at least wk_idx_header_size(rank) bytes; elements is not set.
enum ps_code wk_idx_header(const uint8_t *bytes, size_t size, size_t rank, struct wk_idx *idx, struct ps_error *e);
// A whole file: neither short nor with bytes to spare.
enum ps_code wk_idx_parse(const uint8_t *bytes, size_t size, size_t rank, struct wk_idx *idx, struct ps_error *e);

// CSV: a line per example, fields with commas between them, the last is y; no quotes. The first line is a
// header if none of its fields is a number. On error the part may hold memory, which wk_part_fini frees.
enum ps_code wk_csv_parse(const char *text, size_t size, bool labels, struct wk_part *part, struct ps_error *e);

// npy. One element of any kind but 'S', 'V' and float16.
double wk_npy_element(const struct ps_npy *npy, uint64_t i);

// Images drawn by the program. Draws example number `example` of a seed; returns its label.
enum { WK_DIGIT_SIDE = 28, WK_DIGIT_PIXELS = WK_DIGIT_SIDE * WK_DIGIT_SIDE };
int32_t wk_digit_draw(uint64_t seed, uint64_t example, uint8_t pixels[WK_DIGIT_PIXELS]);

// One per kind of wk_data_spec. On error the parts may hold memory, which wk_data_free frees.
enum ps_code wk_idx_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e);
enum ps_code wk_csv_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e);
enum ps_code wk_npy_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e);
enum ps_code wk_digits_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e);

void wk_part_fini(struct wk_part *part);

#endif
