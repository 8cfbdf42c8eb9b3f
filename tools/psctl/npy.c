// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/file/npy.h"
#include "common/file/output.h"
#include "common/math/half.h"
#include "libclient/psclient.h"

enum { DESCR_MAX = 24 };

size_t npy_element_size(int dtype)
{
    switch (dtype) {
    case PSC_UINT8:
        return 1;
    case PSC_BFLOAT16:
    case PSC_FLOAT16:
        return 2;
    case PSC_FLOAT32:
    case PSC_INT32:
        return 4;
    case PSC_FLOAT64:
    case PSC_INT64:
        return 8;
    case PSC_STRING:
        return sizeof(psc_string);
    default:
        return 0;
    }
}

void npy_elements_free(const struct npy_array *a)
{
    psc_string *s = a->data;
    for (uint64_t i = 0; a->dtype == PSC_STRING && s && i < a->count; i++)
        free(s[i].data);
}

// ---- writing ------------------------------------------------------------------------------------------------------

static const char *npy_dtype_text(int dtype)
{
    switch (dtype) {
    case PSC_FLOAT32:
    case PSC_BFLOAT16:
        return "<f4";
    case PSC_FLOAT64:
        return "<f8";
    case PSC_FLOAT16:
        return "<f2";
    case PSC_INT32:
        return "<i4";
    case PSC_INT64:
        return "<i8";
    default:
        return "|u1";
    }
}

// The least width that holds every element, at least 1 as NumPy has it.
static enum ps_code string_width(const struct npy_array *a, size_t *width, struct ps_error *e)
{
    const psc_string *s = a->data;
    size_t most = 1;
    for (uint64_t i = 0; i < a->count; i++) {
        if (s[i].len && ((const char *)s[i].data)[s[i].len - 1] == '\0')
            return ps_fail(e, PS_DATA_LOSS,
                           "element %" PRIu64 " ends in a zero byte, which NumPy's type S does not keep", i);
        most = s[i].len > most ? s[i].len : most;
    }
    *width = most;
    return PS_OK;
}

static void write_strings(const struct npy_array *a, size_t width, FILE *file)
{
    const psc_string *s = a->data;
    char *cell = ps_alloc(width);
    for (uint64_t i = 0; i < a->count; i++) {
        memset(cell, 0, width);
        if (s[i].len)
            memcpy(cell, s[i].data, s[i].len);
        fwrite(cell, 1, width, file);
    }
    free(cell);
}

static void write_elements(const struct npy_array *a, size_t width, FILE *file)
{
    if (a->dtype == PSC_STRING) {
        write_strings(a, width, file);
    } else if (a->dtype == PSC_BFLOAT16) {
        for (uint64_t i = 0; i < a->count; i++) {
            float f = ps_of_bfloat16(((const uint16_t *)a->data)[i]);
            fwrite(&f, sizeof f, 1, file);
        }
    } else {
        fwrite(a->data, npy_element_size(a->dtype), a->count, file);
    }
}

static void write_all(const struct npy_array *a, size_t width, FILE *file)
{
    char head[PS_NPY_HEADER_MAX], type[DESCR_MAX];
    if (a->dtype == PSC_STRING)
        snprintf(type, sizeof type, "|S%zu", width);
    else
        snprintf(type, sizeof type, "%s", npy_dtype_text(a->dtype));
    fwrite(head, 1, ps_npy_header(type, a->shape, a->rank, head), file);
    write_elements(a, width, file);
}

enum ps_code npy_write(const char *path, const struct npy_array *a, struct ps_error *e)
{
    size_t width = 0;
    struct ps_output o;
    if (a->dtype == PSC_STRING && string_width(a, &width, e))
        return e->code;
    if (strcmp(path, "-") == 0) {
        write_all(a, width, stdout);
        return PS_OK;
    }
    if (ps_output_open(&o, path, e))
        return e->code;
    write_all(a, width, o.file);
    return ps_output_commit(&o, e);
}

// ---- reading ------------------------------------------------------------------------------------------------------

// *bytes is malloc'd.
static enum ps_code npy_read_all(const char *path, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t have = 0, room = 1 << 16, got;
    uint8_t *to = NULL;
    if (!file)
        return ps_fail(e, PS_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    do {
        uint8_t *more = ps_try_realloc(to, room);
        if (!more)
            break;
        to = more;
        got = fread(to + have, 1, room - have, file);
        have += got;
        room *= 2;
    } while (have == room / 2);
    bool complete = feof(file), failed = ferror(file);
    int error = errno;
    if (file != stdin)
        fclose(file);
    if (!complete) {
        free(to);
        return failed ? ps_fail(e, PS_NOT_FOUND, "cannot read %s: %s", path, strerror(error)) : ps_no_memory(e, path);
    }
    *bytes = to;
    *size = have;
    return PS_OK;
}

// Does the file's type stand for the variable's?
static bool same_type(const struct ps_npy *npy, int dtype)
{
    const char *want = npy_dtype_text(dtype);
    if (dtype == PSC_STRING)
        return npy->kind == 'S';
    if (dtype == PSC_BFLOAT16 && npy->kind == 'V')
        return true;
    return npy->kind == want[1] && npy->width == (size_t)(want[2] - '0');
}

static enum ps_code npy_check_array(const struct ps_npy *npy, const struct npy_array *a, struct ps_error *e)
{
    char have[128], want[128];
    if (!same_type(npy, a->dtype))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "its elements are of NumPy's type %c%zu, the variable is %s: expected %s", npy->kind, npy->width,
                       ps_dtype_name(a->dtype), a->dtype == PSC_STRING ? "S" : npy_dtype_text(a->dtype) + 1);
    if (npy->rank != a->rank || memcmp(npy->shape, a->shape, a->rank * sizeof *a->shape) != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "its shape is %s, expected %s",
                       ps_shape_text(npy->shape, npy->rank, have, sizeof have),
                       ps_shape_text(a->shape, a->rank, want, sizeof want));
    return PS_OK;
}

static size_t length_of(const uint8_t *cell, size_t width)
{
    while (width && cell[width - 1] == 0)
        width--;
    return width;
}

static void take_elements(const struct ps_npy *npy, const struct npy_array *a)
{
    if (a->dtype == PSC_STRING) {
        psc_string *s = a->data;
        for (uint64_t i = 0; i < a->count; i++) {
            const uint8_t *cell = npy->elements + i * npy->width;
            s[i].len = length_of(cell, npy->width);
            s[i].data = ps_alloc(s[i].len + 1);
            memcpy(s[i].data, cell, s[i].len);
        }
    } else if (a->dtype == PSC_BFLOAT16 && npy->kind == 'f') {
        for (uint64_t i = 0; i < a->count; i++) {
            float f;
            memcpy(&f, npy->elements + i * sizeof f, sizeof f);
            ((uint16_t *)a->data)[i] = ps_to_bfloat16(f);
        }
    } else {
        memcpy(a->data, npy->elements, a->count * npy->width);
    }
}

enum ps_code npy_read(const char *path, const struct npy_array *a, struct ps_error *e)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct ps_npy npy;
    if (npy_read_all(path, &bytes, &size, e))
        return e->code;
    enum ps_code code = ps_npy_parse(bytes, size, &npy, e);
    if (code == PS_OK)
        code = npy_check_array(&npy, a, e);
    if (code == PS_OK)
        take_elements(&npy, a);
    else
        ps_error_prefix(e, "%s", path);
    free(bytes);
    return code;
}
