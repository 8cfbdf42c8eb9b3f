// SPDX-License-Identifier: Apache-2.0
//
// Columns whose elements lie at regular distances: of npy, npz, IDX, CIFAR, and of what CSV and text became.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

struct records {
    struct wk_source base;
    struct wk_field *field;  // one per column
    struct wk_block **block;
    size_t blocks;
    uint64_t *line;        // (examples); NULL: rows are counted
    size_t *field_number;  // of a column in its file; NULL: it needs none
    size_t numbered;       // columns that have one
};

enum { CHUNK = 4096 };  // bytes converted at a time

double wk_element(char kind, size_t width, const uint8_t *at)
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
    memcpy(&v, at, width);
    if (kind == 'f')
        return width == 4 ? v.f4 : v.f8;
    bool is_signed = kind == 'i';
    switch (width) {
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

static enum ps_code records_fail(size_t element, size_t count, double value, const char *expected, struct ps_error *e)
{
    if (count == 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the value is %.15g, expected %s", value, expected);
    return ps_fail(e, PS_INVALID_ARGUMENT, "element %zu is %.15g, expected %s", element, value, expected);
}

// Elements [first, first + n) of count, as they lie in the file, become what the column's dtype says.
static enum ps_code records_convert(const struct wk_field *f, const struct wk_column *c, const uint8_t *raw,
                                    size_t first, size_t n, void *to, struct ps_error *e)
{
    size_t plane = f->planes ? c->count / f->planes : 0;
    for (size_t i = first; i < first + n; i++, raw += f->width) {
        size_t at = plane ? i % plane * f->planes + i / plane : i;
        if (c->dtype == NN_UINT8) {
            ((uint8_t *)to)[at] = *raw;
            continue;
        }
        double value = wk_element(f->kind, f->width, raw);
        if (c->dtype == NN_INT32) {
            if (!(value >= INT32_MIN && value <= INT32_MAX && value == floor(value)))
                return records_fail(i, c->count, value, "an integer of 32 bits", e);
            ((int32_t *)to)[at] = (int32_t)value;
            continue;
        }
        if (!(fabs(value) <= FLT_MAX))
            return records_fail(i, c->count, value, "a finite float32", e);
        ((float *)to)[at] = (float)value;
    }
    return PS_OK;
}

static enum ps_code records_check_floats(const float *value, size_t n, struct ps_error *e)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= fabsf(value[i]) <= FLT_MAX;
    for (size_t i = 0; !finite && i < n; i++)
        if (!(fabsf(value[i]) <= FLT_MAX))
            return records_fail(i, n, (double)value[i], "a finite float32", e);
    return PS_OK;
}

// Are the bytes of the file those of the column?
static bool records_is_plain(const struct wk_field *f)
{
    return !f->planes && (f->width == 1 ? f->kind == 'u' : f->width == 4 && f->kind != 'u');
}

static enum ps_code records_read(const struct wk_source *s, uint64_t example, size_t column, void *to,
                                 struct ps_error *e)
{
    const struct wk_field *f = &((const struct records *)s)->field[column];
    const struct wk_column *c = &s->column[column];
    uint64_t at = f->offset + example * f->stride;
    if (records_is_plain(f)) {
        if (wk_block_read(f->block, at, c->count * f->width, to, e))
            return e->code;
        return c->dtype == NN_FLOAT ? records_check_floats(to, c->count, e) : PS_OK;
    }
    uint8_t raw[CHUNK];
    size_t most = CHUNK / f->width;
    for (size_t done = 0, n; done < c->count; done += n, at += n * f->width) {
        n = c->count - done < most ? c->count - done : most;
        if (wk_block_read(f->block, at, n * f->width, raw, e) || records_convert(f, c, raw, done, n, to, e))
            return e->code;
    }
    return PS_OK;
}

static void records_where(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size)
{
    const struct records *r = (const struct records *)s;
    const char *path = r->field[column].block->path;
    if (r->line && column < r->numbered)
        snprintf(to, size, "%s: line %" PRIu64 ", field %zu (%s)", path, r->line[example], r->field_number[column],
                 s->column[column].name);
    else if (r->line)
        snprintf(to, size, "%s: line %" PRIu64, path, r->line[example]);
    else
        snprintf(to, size, "%s: row %" PRIu64, path, example);
}

// Fields of one type that follow each other in each record.
static bool records_merge(struct wk_source *s, const size_t *columns, size_t n)
{
    struct records *r = (struct records *)s;
    struct wk_field first = r->field[columns[0]];
    const enum nn_dtype dtype = s->column[columns[0]].dtype;
    uint64_t end = first.offset, count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct wk_field *f = &r->field[columns[i]];
        if (f->block != first.block || f->stride != first.stride || f->kind != first.kind || f->width != first.width ||
            f->planes || f->offset != end || s->column[columns[i]].dtype != dtype)
            return false;
        end += s->column[columns[i]].count * f->width;
        count += s->column[columns[i]].count;
    }
    wk_records_add(s, "", first, &count, 1)->dtype = dtype;
    return true;
}

static void records_destroy(struct wk_source *s)
{
    struct records *r = (struct records *)s;
    for (size_t i = 0; i < r->blocks; i++)
        wk_block_free(r->block[i]);
    free(r->block);
    free(r->field);
    free(r->line);
    free(r->field_number);
    wk_source_fini(s);
    free(r);
}

static const struct wk_source_class records_class = {
    .read = records_read, .where = records_where, .merge = records_merge, .free = records_destroy};

struct wk_source *wk_records_create(uint64_t examples)
{
    struct records *r = ps_alloc(sizeof *r);
    r->base = (struct wk_source){.class = &records_class, .examples = examples, .quick = true};
    return &r->base;
}

void wk_records_own(struct wk_source *s, struct wk_block *block)
{
    struct records *r = (struct records *)s;
    r->block = ps_realloc(r->block, (r->blocks + 1) * sizeof(struct wk_block *));
    r->block[r->blocks++] = block;
    s->quick = s->quick && block->bytes;
}

struct wk_column *wk_records_add(struct wk_source *s, const char *name, struct wk_field field, const uint64_t *shape,
                                 size_t rank)
{
    struct records *r = (struct records *)s;
    enum nn_dtype dtype = field.kind == 'f' ? NN_FLOAT : field.kind == 'u' && field.width == 1 ? NN_UINT8 : NN_INT32;
    r->field = ps_realloc(r->field, (s->columns + 1) * sizeof *r->field);
    r->field[s->columns] = field;
    struct wk_column *c = wk_source_add(s, name, dtype, shape, rank);
    c->wide = dtype == NN_INT32 && (field.width == 8 || (field.width == 4 && field.kind == 'u'));
    c->doubles = dtype == NN_FLOAT && field.width == 8;
    return c;
}

void wk_records_set_lines(struct wk_source *s, uint64_t *line, size_t *field)
{
    struct records *r = (struct records *)s;
    r->line = line;
    r->field_number = field;
    r->numbered = s->columns;
}
