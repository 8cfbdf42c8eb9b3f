// SPDX-License-Identifier: Apache-2.0
#include "libclient/layout.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "common/wire/wire.h"

// ---- names --------------------------------------------------------------------------------------------------------

struct psc__variable *psc__layout_find(const struct psc__layout *l, const char *name)
{
    return ps_name_table_find(&l->names, name);
}

enum ps_code psc__layout_no_such(const struct psc__layout *l, const char *name, struct ps_error *e)
{
    const char **names = ps_try_alloc_array(l->n_variables, sizeof *names);
    for (size_t i = 0; names && i < l->n_variables; i++)
        names[i] = l->variables[i].is.name;
    const char *near = names ? ps_nearest(name, names, (int)l->n_variables) : NULL;
    free(names);
    if (near)
        return ps_fail(e, PS_NOT_FOUND, "no variable '%s' is declared; did you mean '%s'?", name, near);
    return ps_fail(e, PS_NOT_FOUND, "no variable '%s' among the %zu declared", name, l->n_variables);
}

// ---- making it ----------------------------------------------------------------------------------------------------

static bool layout_copy_hypers(psc_variable *to, const psc_variable *from)
{
    psc_hyper *hypers = ps_try_alloc_array(from->n_hypers, sizeof *hypers);
    to->hypers = hypers;
    for (size_t i = 0; hypers && i < from->n_hypers; i++) {
        hypers[i] = (psc_hyper){ps_try_strdup(from->hypers[i].name), from->hypers[i].value};
        to->n_hypers++;
        if (!hypers[i].name)
            return false;
    }
    return hypers;
}

// What was copied of it belongs to the layout, on failure too.
static bool layout_copy_variable(psc_variable *to, const psc_variable *from)
{
    uint64_t *shape = ps_try_alloc_array(from->rank, sizeof *shape);
    *to = (psc_variable){.dtype = from->dtype, .rank = from->rank, .trainable = from->trainable, .shape = shape};
    to->name = ps_try_strdup(from->name);
    to->rule = from->rule ? ps_try_strdup(from->rule) : NULL;
    if (shape && from->rank)
        memcpy(shape, from->shape, from->rank * sizeof *shape);
    return shape && to->name && (to->rule || !from->rule) && layout_copy_hypers(to, from);
}

static void layout_free_variable(struct psc__variable *v)
{
    for (size_t i = 0; i < v->is.n_hypers; i++)
        free((char *)v->is.hypers[i].name);
    free((psc_hyper *)v->is.hypers);
    free((char *)v->is.rule);
    free((char *)v->is.name);
    free((uint64_t *)v->is.shape);
}

static enum ps_code layout_add_variable(struct psc__layout *l, const psc_variable *from, uint64_t block_bytes,
                                        struct ps_error *e)
{
    uint64_t count;
    if (!from->name || !from->name[0])
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable %zu has no name", l->n_variables);
    if (ps_shape_count(from->shape, from->rank, (int)from->dtype, &count, e) != PS_OK)
        return ps_error_prefix(e, "variable '%s'", from->name);
    if (psc__layout_find(l, from->name))
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is declared twice", from->name);
    struct psc__variable *v = &l->variables[l->n_variables++];
    if (!layout_copy_variable(&v->is, from) || !ps_name_table_put(&l->names, v->is.name, v))
        return ps_no_memory(e, "the variables");
    v->count = count;
    v->elem_size = (uint32_t)ps_dtype_size((int)from->dtype);
    v->block_elems = v->elem_size ? (uint32_t)(block_bytes / v->elem_size) : PS_STRING_BLOCK;
    return PS_OK;
}

static uint64_t layout_blocks_in(uint64_t elems, uint32_t block_elems)
{
    return (elems + block_elems - 1) / block_elems;
}

// Takes the partitions of variable i from *next on.
static enum ps_code layout_add_partitions(struct psc__layout *l, uint32_t i, const struct ps_partition **next,
                                          const struct ps_partition *end, uint32_t tasks, struct ps_error *e)
{
    struct psc__variable *v = &l->variables[i];
    uint64_t covered = 0;
    v->first_partition = (uint32_t)l->n_partitions;
    for (; *next < end && (*next)->var == i; (*next)++) {
        const struct ps_partition *p = *next;
        if (p->first != covered || p->count == 0 || p->count > v->count - covered)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': partition %u does not follow the one before it",
                           v->is.name, v->n_partitions);
        if (p->task >= tasks)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': partition %u lies on ps:%u, of %u ps tasks",
                           v->is.name, v->n_partitions, p->task, tasks);
        l->partitions[l->n_partitions++] = (struct psc__partition){i, p->task, p->first, p->count, l->n_blocks};
        l->n_blocks += layout_blocks_in(p->count, v->block_elems);
        v->n_partitions++;
        covered += p->count;
    }
    if (covered != v->count)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': its partitions cover %llu of %llu elements", v->is.name,
                       (unsigned long long)covered, (unsigned long long)v->count);
    return PS_OK;
}

static enum ps_code layout_fill(struct psc__layout *l, const psc_variable *variables, size_t n_variables,
                                const struct ps_partition *partitions, size_t n_partitions, uint32_t tasks,
                                uint64_t block_bytes, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    const struct ps_partition *next = partitions, *end = partitions + n_partitions;
    if (block_bytes == 0 || block_bytes % sizeof(double) || block_bytes > PS_CHUNK_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "blocks of %llu bytes: expected a multiple of 8 up to %d",
                       (unsigned long long)block_bytes, PS_CHUNK_MAX);
    for (size_t i = 0; i < n_variables && code == PS_OK; i++)
        code = layout_add_variable(l, &variables[i], block_bytes, e);
    for (size_t i = 0; i < n_variables && code == PS_OK; i++)
        code = layout_add_partitions(l, (uint32_t)i, &next, end, tasks, e);
    if (code == PS_OK && next != end)
        return ps_fail(e, PS_INVALID_ARGUMENT, "partition %zu is not in the order of the variables",
                       (size_t)(next - partitions));
    return code;
}

enum ps_code psc__layout_create(const psc_variable *variables, size_t n_variables,
                                const struct ps_partition *partitions, size_t n_partitions, uint32_t tasks,
                                uint64_t block_bytes, struct psc__layout **layout, struct ps_error *e)
{
    struct psc__layout *l = ps_try_alloc(sizeof *l);
    if (!l)
        return ps_no_memory(e, "the variables");
    l->variables = ps_try_alloc_array(n_variables, sizeof *l->variables);
    l->partitions = ps_try_alloc_array(n_partitions, sizeof *l->partitions);
    enum ps_code code = l->variables && l->partitions
                            ? layout_fill(l, variables, n_variables, partitions, n_partitions, tasks, block_bytes, e)
                            : ps_no_memory(e, "the variables");
    if (code == PS_OK && !(l->versions = ps_try_alloc_array(l->n_blocks + 1, sizeof *l->versions)))
        code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for the versions of %llu blocks",
                       (unsigned long long)l->n_blocks);
    if (code == PS_OK)
        *layout = l;
    else
        psc__layout_free(l);
    return code;
}

void psc__layout_free(struct psc__layout *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_variables; i++)
        layout_free_variable(&l->variables[i]);
    free(l->variables);
    free(l->partitions);
    free(l->versions);
    ps_name_table_free(&l->names);
    free(l);
}

uint64_t psc__layout_blocks(const struct psc__variable *v, const struct psc__partition *p, uint64_t range_first,
                            uint64_t range_count, uint64_t *first)
{
    uint64_t from = (range_first - p->first) / v->block_elems;
    *first = p->first_block + from;
    return layout_blocks_in(range_first - p->first + range_count, v->block_elems) - from;
}
