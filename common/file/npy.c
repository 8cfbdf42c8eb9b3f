// SPDX-License-Identifier: Apache-2.0
#include "common/file/npy.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
static bool npy_take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

static enum ps_code npy_fail_expected(const struct cursor *c, const char *what, struct ps_error *e)
{
    return ps_fail(e, PS_DATA_LOSS, "byte %td of the header dict: expected %s", c->at - c->start, what);
}

static bool parse_number(struct cursor *c, uint64_t *value)
{
    skip_blanks(c);
    if (c->at == c->end || !isdigit((unsigned char)*c->at))
        return false;
    for (*value = 0; c->at < c->end && isdigit((unsigned char)*c->at); c->at++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *c->at - '0', value))
            return false;
    return true;
}

static bool npy_is_known(char order, char kind, uint64_t width)
{
    switch (kind) {
    case 'u':
    case 'i':
        return order == (width == 1 ? '|' : '<') && (width == 1 || width == 2 || width == 4 || width == 8);
    case 'f':
        return order == '<' && (width == 2 || width == 4 || width == 8);
    case 'b':
        return order == '|' && width == 1;
    case 'S':
        return order == '|';
    case 'V':
        return (order == '|' || order == '<') && width == 2;
    default:
        return false;
    }
}

// "'<f4'"
static enum ps_code parse_descr(struct cursor *c, struct ps_npy *npy, struct ps_error *e)
{
    skip_blanks(c);
    struct cursor at = *c;
    uint64_t width;
    if (npy_take_word(&at, "'") && at.end - at.at > 2) {
        char order = at.at[0], kind = at.at[1];
        at.at += 2;
        if (parse_number(&at, &width) && npy_take_word(&at, "'") && npy_is_known(order, kind, width)) {
            npy->kind = kind;
            npy->width = (size_t)width;
            *c = at;
            return PS_OK;
        }
    }
    return npy_fail_expected(
        c,
        "a descr of '|b1', '|u1', '|i1', '<u2', '<i2', '<u4', '<i4', '<u8', '<i8', '<f2', '<f4', '<f8' or '|S' "
        "and a width",
        e);
}

static enum ps_code parse_order(struct cursor *c, struct ps_npy *npy, struct ps_error *e)
{
    (void)npy;
    return npy_take_word(c, "False")
               ? PS_OK
               : npy_fail_expected(c, "a fortran_order of False: save np.ascontiguousarray(x)", e);
}

static enum ps_code parse_shape(struct cursor *c, struct ps_npy *npy, struct ps_error *e)
{
    if (!npy_take_word(c, "("))
        return npy_fail_expected(c, "a shape such as (60000, 28, 28)", e);
    npy->rank = 0;
    for (bool more = true; !npy_take_word(c, ")"); more = npy_take_word(c, ",")) {
        if (!more)
            return npy_fail_expected(c, "',' or ')' after a dimension", e);
        if (npy->rank == PS_MAX_RANK)
            return npy_fail_expected(c, "at most 8 dimensions", e);
        if (!parse_number(c, &npy->shape[npy->rank++]))
            return npy_fail_expected(c, "a dimension that fits 64 bits", e);
    }
    return PS_OK;
}

static enum ps_code npy_parse_header(struct cursor *c, struct ps_npy *npy, struct ps_error *e)
{
    static const struct {
        const char *key;
        enum ps_code (*parse)(struct cursor *, struct ps_npy *, struct ps_error *);
    } entry[] = {{"'descr'", parse_descr}, {"'fortran_order'", parse_order}, {"'shape'", parse_shape}};
    enum { ENTRIES = sizeof entry / sizeof *entry };
    bool seen[ENTRIES] = {false};
    if (!npy_take_word(c, "{"))
        return npy_fail_expected(c, "'{'", e);
    for (int n = 0; n < ENTRIES; n++) {
        int i = 0;
        while (i < ENTRIES && (seen[i] || !npy_take_word(c, entry[i].key)))
            i++;
        if (i == ENTRIES)
            return npy_fail_expected(c, "the keys 'descr', 'fortran_order' and 'shape', each once", e);
        seen[i] = true;
        if (!npy_take_word(c, ":"))
            return npy_fail_expected(c, "':' after a key", e);
        enum ps_code code = entry[i].parse(c, npy, e);
        if (code != PS_OK)
            return code;
        if (!npy_take_word(c, ",") && n < ENTRIES - 1)
            return npy_fail_expected(c, "',' and the next of 'descr', 'fortran_order' and 'shape'", e);
    }
    if (!npy_take_word(c, "}"))
        return npy_fail_expected(c, "'}' after the three keys", e);
    skip_blanks(c);
    return c->at == c->end ? PS_OK : npy_fail_expected(c, "blanks up to its end", e);
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

enum ps_code ps_npy_parse(const uint8_t *bytes, size_t size, struct ps_npy *npy, struct ps_error *e)
{
    struct cursor c;
    char shape[128];
    uint64_t need;
    *npy = (struct ps_npy){0};
    enum ps_code code = find_header(bytes, size, &c, e);
    if (code == PS_OK)
        code = npy_parse_header(&c, npy, e);
    // The bound of float64, the widest number there is.
    if (code == PS_OK)
        code = ps_shape_count(npy->shape, npy->rank, PS_FLOAT64, &npy->count, e);
    if (code != PS_OK)
        return code;
    npy->elements = (const uint8_t *)c.end;
    size_t have = size - (size_t)(npy->elements - bytes);
    if (__builtin_mul_overflow(npy->count, npy->width, &need) || have != need)
        return ps_fail(e, PS_DATA_LOSS, "%zu bytes follow the header, expected %" PRIu64 " x %zu for shape %s of %c%zu",
                       have, npy->count, npy->width, ps_shape_text(npy->shape, npy->rank, shape, sizeof shape),
                       npy->kind, npy->width);
    return PS_OK;
}

// ---- writing ------------------------------------------------------------------------------------------------------

size_t ps_npy_header(const char *descr, const uint64_t *shape, size_t rank, char to[PS_NPY_HEADER_MAX])
{
    const size_t align = 64;  // of the elements in the file
    size_t start = LENGTH + 2, len = start;
    len += (size_t)snprintf(to + len, PS_NPY_HEADER_MAX - len, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                            descr);
    for (size_t i = 0; i < rank; i++)
        len += (size_t)snprintf(to + len, PS_NPY_HEADER_MAX - len, "%" PRIu64 ",%s", shape[i], i + 1 < rank ? " " : "");
    len += (size_t)snprintf(to + len, PS_NPY_HEADER_MAX - len, "), }");
    while ((len + 1) % align)
        to[len++] = ' ';
    to[len++] = '\n';
    memcpy(to, magic, sizeof magic);
    to[VERSION] = 1;
    to[VERSION + 1] = 0;
    to[LENGTH] = (char)((len - start) & 0xff);
    to[LENGTH + 1] = (char)((len - start) >> 8);
    return len;
}
