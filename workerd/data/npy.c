// SPDX-License-Identifier: Apache-2.0
//
// NumPy's format: "\x93NUMPY", version (major, minor), the header's length (16 bits in version 1, 32 bits
// after), the header (a Python dict of exactly descr, fortran_order and shape, padded with blanks), the
// elements.
#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/data/data_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they stand in the file");

static const char magic[6] = "\x93NUMPY";
enum { VERSION = sizeof magic, LENGTH = VERSION + 2 };

struct cursor {
    const char *start, *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

// The next token is this word: goes past it.
static bool take(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

static enum ps_code expected(const struct cursor *c, const char *what, struct ps_error *e)
{
    return ps_fail(e, PS_DATA_LOSS, "byte %td of the header dict: expected %s", c->at - c->start, what);
}

static enum ps_code parse_descr(struct cursor *c, struct wk_npy *npy, struct ps_error *e)
{
    static const char *const known[] = {"'|u1'", "'|i1'", "'<u2'", "'<i2'", "'<u4'",
                                        "'<i4'", "'<u8'", "'<i8'", "'<f4'", "'<f8'"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (take(c, known[i])) {
            npy->kind = known[i][2];
            npy->width = (size_t)(known[i][3] - '0');
            return PS_OK;
        }
    return expected(c, "a descr of '|u1', '|i1', '<u2', '<i2', '<u4', '<i4', '<u8', '<i8', '<f4' or '<f8'", e);
}

static enum ps_code parse_order(struct cursor *c, struct wk_npy *npy, struct ps_error *e)
{
    (void)npy;
    return take(c, "False") ? PS_OK : expected(c, "a fortran_order of False (elements in C order)", e);
}

static bool parse_dimension(struct cursor *c, uint64_t *value)
{
    skip_blanks(c);
    if (c->at == c->end || !isdigit((unsigned char)*c->at))
        return false;
    for (*value = 0; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *c->at - '0', value))
            return false;
    return true;
}

static enum ps_code parse_shape(struct cursor *c, struct wk_npy *npy, struct ps_error *e)
{
    if (!take(c, "("))
        return expected(c, "a shape such as (60000, 28, 28)", e);
    npy->rank = 0;
    for (bool more = true; !take(c, ")"); more = take(c, ",")) {
        if (!more)
            return expected(c, "',' or ')' after a dimension", e);
        if (npy->rank == PS_MAX_RANK)
            return expected(c, "at most 8 dimensions", e);
        if (!parse_dimension(c, &npy->shape[npy->rank++]))
            return expected(c, "a dimension that fits 64 bits", e);
    }
    return PS_OK;
}

static enum ps_code parse_header(struct cursor *c, struct wk_npy *npy, struct ps_error *e)
{
    static const struct {
        const char *key;
        enum ps_code (*parse)(struct cursor *, struct wk_npy *, struct ps_error *);
    } entry[] = {{"'descr'", parse_descr}, {"'fortran_order'", parse_order}, {"'shape'", parse_shape}};
    enum { ENTRIES = sizeof entry / sizeof *entry };
    bool seen[ENTRIES] = {false};
    if (!take(c, "{"))
        return expected(c, "'{'", e);
    for (int n = 0; n < ENTRIES; n++) {
        int i = 0;
        while (i < ENTRIES && (seen[i] || !take(c, entry[i].key)))
            i++;
        if (i == ENTRIES)
            return expected(c, "the keys 'descr', 'fortran_order' and 'shape', each once", e);
        seen[i] = true;
        if (!take(c, ":"))
            return expected(c, "':' after a key", e);
        enum ps_code code = entry[i].parse(c, npy, e);
        if (code != PS_OK)
            return code;
        if (!take(c, ",") && n < ENTRIES - 1)
            return expected(c, "',' and the next of 'descr', 'fortran_order' and 'shape'", e);
    }
    if (!take(c, "}"))
        return expected(c, "'}' after the three keys", e);
    skip_blanks(c);
    return c->at == c->end ? PS_OK : expected(c, "blanks up to its end", e);
}

// Finds the dict between the preamble and the elements.
static enum ps_code find_header(const uint8_t *bytes, size_t size, struct cursor *c, struct ps_error *e)
{
    if (size < LENGTH || memcmp(bytes, magic, sizeof magic) != 0)
        return ps_fail(e, PS_DATA_LOSS, "the file does not begin with \\x93NUMPY: expected a file of numpy.save");
    int version = bytes[VERSION];
    if (version < 1 || version > 3)
        return ps_fail(e, PS_DATA_LOSS, "version %d of the npy format, expected 1, 2 or 3", version);
    size_t width = version == 1 ? 2 : 4, length = 0, start = LENGTH + width;
    for (size_t i = 0; i < width && LENGTH + i < size; i++)
        length |= (size_t)bytes[LENGTH + i] << (8 * i);
    if (size < start || size - start < length)
        return ps_fail(e, PS_DATA_LOSS, "the file ends after %zu bytes, inside its header (expected %zu and more)",
                       size, start + length);
    c->start = c->at = (const char *)bytes + start;
    c->end = c->start + length;
    return PS_OK;
}

enum ps_code wk_npy_parse(const uint8_t *bytes, size_t size, struct wk_npy *npy, struct ps_error *e)
{
    struct cursor c;
    char shape[128];
    *npy = (struct wk_npy){0};
    enum ps_code code = find_header(bytes, size, &c, e);
    if (code == PS_OK)
        code = parse_header(&c, npy, e);
    // The bound of float64, the widest element there is.
    if (code == PS_OK)
        code = ps_shape_count(npy->shape, npy->rank, PS_FLOAT64, &npy->count, e);
    if (code != PS_OK)
        return code;
    npy->elements = (const uint8_t *)c.end;
    size_t have = size - (size_t)(npy->elements - bytes);
    if (have != npy->count * npy->width)
        return ps_fail(e, PS_DATA_LOSS, "%zu bytes follow the header, expected %" PRIu64 " for shape %s of %c%zu", have,
                       npy->count * npy->width, ps_shape_text(npy->shape, npy->rank, shape, sizeof shape), npy->kind,
                       npy->width);
    return PS_OK;
}

double wk_npy_element(const struct wk_npy *npy, uint64_t i)
{
    union {
        uint8_t u1;
        uint16_t u2;
        uint32_t u4;
        uint64_t u8;
        int8_t i1;
        int16_t i2;
        int32_t i4;
        int64_t i8;
        float f4;
        double f8;
    } v;
    memcpy(&v, npy->elements + i * npy->width, npy->width);
    if (npy->kind == 'f')
        return npy->width == 4 ? v.f4 : v.f8;
    bool is_signed = npy->kind == 'i';
    switch (npy->width) {
    case 1:
        return is_signed ? v.i1 : v.u1;
    case 2:
        return is_signed ? v.i2 : v.u2;
    case 4:
        return is_signed ? (double)v.i4 : (double)v.u4;
    default:
        return is_signed ? (double)v.i8 : (double)v.u8;
    }
}

static enum ps_code read_npy(const char *path, uint8_t **bytes, struct wk_npy *npy, struct ps_error *e)
{
    size_t size;
    enum ps_code code = wk_file_read(path, SIZE_MAX, bytes, &size, e);
    if (code != PS_OK)
        return code;
    code = wk_npy_parse(*bytes, size, npy, e);
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

static enum ps_code take_floats(struct wk_part *part, const struct wk_npy *npy, struct ps_error *e)
{
    part->floats = wk_array(npy->count, 1, sizeof *part->floats, e);
    if (!part->floats)
        return PS_RESOURCE_EXHAUSTED;
    for (uint64_t i = 0; i < npy->count; i++) {
        double value = wk_npy_element(npy, i);
        if (!(fabs(value) <= FLT_MAX))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "element %" PRIu64 " of example %" PRIu64 " is %g, expected a finite "
                           "float32",
                           i % part->split.inputs, i / part->split.inputs, value);
        part->floats[i] = (float)value;
    }
    return PS_OK;
}

// Bytes stay bytes: the elements move to the front of the file's buffer, which then is the part's.
static enum ps_code take_x(struct wk_part *part, const struct wk_npy *npy, uint8_t **bytes, struct ps_error *e)
{
    struct wk_split *split = &part->split;
    if (npy->rank < 2)
        return ps_fail(e, PS_INVALID_ARGUMENT, "x has rank %zu, expected the examples and at least one dimension more",
                       npy->rank);
    split->examples = npy->shape[0];
    split->rank = npy->rank - 1;
    memcpy(split->shape, npy->shape + 1, split->rank * sizeof *split->shape);
    split->inputs = npy->count / split->examples;
    if (npy->kind == 'f')
        return take_floats(part, npy, e);
    if (npy->kind == 'i' || npy->width != 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "x is of type %c%zu, expected uint8, float32 or float64", npy->kind,
                       npy->width);
    part->bytes = memmove(*bytes, npy->elements, npy->count);
    *bytes = NULL;
    return PS_OK;
}

static enum ps_code take_y(struct wk_part *part, bool labels, const struct wk_npy *npy, struct ps_error *e)
{
    uint64_t n = part->split.examples;
    if (npy->rank < 1 || npy->shape[0] != n)
        return ps_fail(e, PS_INVALID_ARGUMENT, "y has %" PRIu64 " rows, expected %" PRIu64 " as x has",
                       npy->rank ? npy->shape[0] : 1, n);
    if (labels && npy->count != n)
        return ps_fail(e, PS_INVALID_ARGUMENT, "y has %" PRIu64 " elements per example, expected one class number",
                       npy->count / n);
    enum ps_code code = wk_part_alloc_y(part, labels, npy->count / n, e);
    for (uint64_t i = 0; i < npy->count && code == PS_OK; i++)
        if ((code = wk_part_put_y(part, i, wk_npy_element(npy, i), e)) != PS_OK)
            ps_error_prefix(e, "row %" PRIu64, i / part->split.targets);
    return code;
}

static enum ps_code load_x(const char *path, struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes = NULL;
    struct wk_npy npy;
    enum ps_code code = read_npy(path, &bytes, &npy, e);
    if (code == PS_OK && (code = take_x(part, &npy, &bytes, e)) != PS_OK)
        ps_error_prefix(e, "%s", path);
    free(bytes);
    return code;
}

static enum ps_code load_y(const char *path, bool labels, struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes = NULL;
    struct wk_npy npy;
    enum ps_code code = read_npy(path, &bytes, &npy, e);
    if (code == PS_OK && (code = take_y(part, labels, &npy, e)) != PS_OK)
        ps_error_prefix(e, "%s", path);
    free(bytes);
    return code;
}

enum ps_code wk_npy_open(const struct wk_data_spec *spec, struct wk_data *data, struct ps_error *e)
{
    enum ps_code code = load_x(spec->x, &data->train, e);
    if (code == PS_OK)
        code = load_y(spec->y, spec->labels, &data->train, e);
    if (code == PS_OK && spec->x_test)
        code = load_x(spec->x_test, &data->test, e);
    if (code == PS_OK && spec->x_test)
        code = load_y(spec->y_test, spec->labels, &data->test, e);
    return code;
}
