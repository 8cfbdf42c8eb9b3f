// SPDX-License-Identifier: Apache-2.0
#include "workerd/data/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

struct wk_column *wk_source_add(struct wk_source *s, const char *name, enum nn_dtype dtype, const uint64_t *shape,
                                size_t rank)
{
    s->column = ps_realloc(s->column, (s->columns + 1) * sizeof *s->column);
    struct wk_column *c = &s->column[s->columns++];
    *c = (struct wk_column){.name = ps_strdup(name), .dtype = dtype, .rank = rank, .count = 1};
    for (size_t i = 0; i < rank; i++)
        c->count *= c->shape[i] = shape[i];
    return c;
}

int wk_source_find(const struct wk_source *s, const char *name)
{
    for (size_t i = 0; i < s->columns; i++)
        if (strcmp(s->column[i].name, name) == 0)
            return (int)i;
    char place[24];
    for (size_t i = 0; i < s->columns; i++) {
        snprintf(place, sizeof place, "%zu", s->column[i].place);
        if (s->column[i].place && strcmp(place, name) == 0)
            return (int)i;
    }
    return -1;
}

void wk_source_free(struct wk_source *s)
{
    if (s)
        s->class->free(s);
}

void wk_source_fini(struct wk_source *s)
{
    for (size_t i = 0; i < s->columns; i++)
        free(s->column[i].name);
    free(s->column);
}

void *wk_array(uint64_t rows, uint64_t columns, size_t element, struct ps_error *e)
{
    size_t size;
    void *p = NULL;
    if (!__builtin_mul_overflow(rows, columns, &size) && !__builtin_mul_overflow(size, element, &size))
        p = malloc(size ? size : 1);
    if (!p)
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for %" PRIu64 " times %" PRIu64 " elements of %zu bytes", rows,
                columns, element);
    return p;
}

// ---- one after the other ------------------------------------------------------------------------------------------

struct concat {
    struct wk_source base;
    struct wk_source **part;
    size_t parts;
};

static const struct wk_source *concat_find(const struct wk_source *s, uint64_t *example)
{
    const struct concat *c = (const struct concat *)s;
    size_t i = 0;
    for (; *example >= c->part[i]->examples; i++)
        *example -= c->part[i]->examples;
    return c->part[i];
}

static enum ps_code concat_read(const struct wk_source *s, uint64_t example, size_t column, void *to,
                                struct ps_error *e)
{
    const struct wk_source *part = concat_find(s, &example);
    return part->class->read(part, example, column, to, e);
}

static void concat_where(const struct wk_source *s, uint64_t example, size_t column, char *to, size_t size)
{
    const struct wk_source *part = concat_find(s, &example);
    part->class->where(part, example, column, to, size);
}

static void concat_free(struct wk_source *s)
{
    struct concat *c = (struct concat *)s;
    for (size_t i = 0; i < c->parts; i++)
        wk_source_free(c->part[i]);
    free(c->part);
    wk_source_fini(s);
    free(c);
}

static const struct wk_source_class concat_class = {.read = concat_read, .where = concat_where, .free = concat_free};

static bool columns_equal(const struct wk_column *a, const struct wk_column *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

enum ps_code wk_concat_create(struct wk_source **part, size_t n, struct wk_source **out, struct ps_error *e)
{
    struct concat *c = ps_alloc(sizeof *c);
    c->base = (struct wk_source){.class = &concat_class, .quick = true};
    c->part = ps_alloc(n * sizeof *c->part);
    c->parts = n;
    bool alike = true;
    for (size_t i = 0; i < n; i++) {
        c->part[i] = part[i];
        c->base.examples += part[i]->examples;
        c->base.quick = c->base.quick && part[i]->quick;
        alike = alike && part[i]->columns == part[0]->columns;
        for (size_t k = 0; alike && k < part[0]->columns; k++)
            alike = columns_equal(&part[i]->column[k], &part[0]->column[k]);
    }
    for (size_t k = 0; k < part[0]->columns; k++) {
        const struct wk_column *from = &part[0]->column[k];
        struct wk_column *to = wk_source_add(&c->base, from->name, from->dtype, from->shape, from->rank);
        to->y = from->y;
        to->classes = from->classes;
    }
    *out = &c->base;
    if (alike)
        return PS_OK;
    wk_source_free(*out);
    *out = NULL;
    return ps_fail(e, PS_INVALID_ARGUMENT, "the files do not have the same columns, of the same types and shapes");
}
