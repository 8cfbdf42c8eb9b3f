// SPDX-License-Identifier: Apache-2.0
#include "psd/job/locate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void psd_extents_free(struct psd_extents *extents)
{
    free(extents->v);
    *extents = (struct psd_extents){0};
}

// Room for one more extent; NULL: no memory.
static struct psd_extent *new_extent(struct psd_extents *extents)
{
    struct psd_extent *v = ps_try_reserve(extents->v, extents->n + 1, &extents->cap, sizeof *v);
    if (!v)
        return NULL;
    extents->v = v;
    return &extents->v[extents->n++];
}

// Elements [first, end) of a variable, which a request's tensor of that index names.
struct range {
    struct psd_variable *variable;
    uint64_t first, end;
    uint32_t tensor;
    uint32_t named, slot;  // as in psd_extent
    enum psd_access access;
};

// The blocks of partition p that the range touches before `stop`; moves its first there.
static enum ps_code locate_blocks(struct range *r, struct psd_partition *p, uint64_t stop, struct psd_extents *extents,
                                  struct ps_error *e)
{
    const struct psd_variable *v = r->variable;
    struct psd_round *round = p->round;
    bool whole = r->access != PSD_READ && (v->dtype == PS_STRING || (r->access == PSD_PUSH && round));
    size_t size = ps_dtype_size(v->dtype);
    while (r->first < stop) {
        uint64_t at = r->first - p->first;
        uint32_t block = (uint32_t)(at / p->block_count), offset = (uint32_t)(at % p->block_count);
        uint32_t left = p->blocks[block].count - offset;
        uint32_t count = stop - r->first < left ? (uint32_t)(stop - r->first) : left;
        if (whole && count != p->blocks[block].count)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "variable '%s': elements [%" PRIu64 ", %" PRIu64 ") cut block %" PRIu32
                           " of the partition at %" PRIu64 "; %s covers whole blocks of %" PRIu32 " elements",
                           v->name, r->first, r->end, block, p->first,
                           v->dtype == PS_STRING ? "an update of strings" : "a push to a round", p->block_count);
        struct psd_extent *extent = new_extent(extents);
        if (!extent)
            return ps_no_memory(e, "the blocks of a request");
        *extent = (struct psd_extent){.variable = r->variable,
                                      .partition = p,
                                      .round = round,
                                      .first = r->first,
                                      .block = block,
                                      .offset = offset,
                                      .count = count,
                                      .tensor = r->tensor,
                                      .named = r->named,
                                      .slot = r->slot,
                                      .bytes = (uint32_t)(count * size)};
        extents->bytes += extent->bytes;
        r->first += count;
    }
    return PS_OK;
}

static enum ps_code check_against(const struct psd_variable *v, const Paramserver__V1__Tensor *t, struct ps_error *e)
{
    char have[128], got[128];
    if (t->dtype && (int)t->dtype != v->dtype)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is %s, the request says %s", v->name,
                       ps_dtype_name(v->dtype), ps_dtype_name((int)t->dtype));
    if (t->n_shape && (t->n_shape != v->rank || memcmp(t->shape, v->shape, v->rank * sizeof *v->shape) != 0))
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' has shape %s, the request says %s", v->name,
                       ps_shape_text(v->shape, v->rank, have, sizeof have),
                       ps_shape_text(t->shape, t->n_shape, got, sizeof got));
    if (t->first > v->count || t->count > v->count - t->first)
        return ps_fail(e, PS_OUT_OF_RANGE,
                       "variable '%s' has %" PRIu64 " elements, the request says [%" PRIu64 ", +%" PRIu64 ")", v->name,
                       v->count, t->first, t->count);
    return PS_OK;
}

// The partition of a variable in which an element of it lies.
static struct psd_partition *partition_of(const struct psd_job *job, const struct psd_variable *v, uint64_t element)
{
    uint32_t low = v->first_partition, high = low + v->n_partitions;  // it is in [low, high)
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (job->partitions[middle].first <= element)
            low = middle;
        else
            high = middle;
    }
    return &job->partitions[low];
}

// NULL: there is none.
static struct psd_variable *locate_variable(const struct psd_job *job, const Paramserver__V1__Tensor *t)
{
    if (!t->partition)
        return psd_job_variable(job, t->variable);
    return t->partition <= job->n_partitions ? &job->variables[job->partitions[t->partition - 1].variable] : NULL;
}

static enum ps_code locate_fail_unknown(const struct psd_job *job, const Paramserver__V1__Tensor *t, struct ps_error *e)
{
    if (!t->partition)
        return ps_fail(e, PS_NOT_FOUND, "job '%s' has no variable '%.128s'", job->name, t->variable);
    return ps_fail(e, PS_NOT_FOUND, "job '%s' has no partition %" PRIu32 ": it has %" PRIu32 ", counted from 0",
                   job->name, t->partition - 1, job->n_partitions);
}

// The partition that a tensor names: is the range, which is in the variable, within it?
static enum ps_code locate_check_partition(const struct psd_job *job, const struct psd_variable *v,
                                           const Paramserver__V1__Tensor *t, struct ps_error *e)
{
    const struct psd_partition *p = &job->partitions[t->partition - 1];
    if (t->variable[0])
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%.128s' and partition %" PRIu32 ": expected one of them to be named", t->variable,
                       t->partition - 1);
    if ((t->first || t->count) && (t->first < p->first || t->first + t->count > p->first + p->count))
        return ps_fail(e, PS_OUT_OF_RANGE,
                       "variable '%s': partition %" PRIu32 " has [%" PRIu64 ", +%" PRIu64
                       "), the request says [%" PRIu64 ", +%" PRIu64 ")",
                       v->name, t->partition - 1, p->first, p->count, t->first, t->count);
    return PS_OK;
}

static enum ps_code locate_check_slot(const struct psd_variable *v, const Paramserver__V1__Tensor *t,
                                      const struct range *last, struct ps_error *e)
{
    if (t->slot > (uint32_t)v->blank.slots)
        return ps_fail(e, PS_FAILED_PRECONDITION, "variable '%s' has %d slots, the request is for number %" PRIu32,
                       v->name, v->blank.slots, t->slot);
    if (last->variable == v && (t->slot < last->slot || (t->slot != last->slot && last->access != PSD_READ)))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': slot %" PRIu32 " comes after slot %" PRIu32 "; expected %s", v->name, t->slot,
                       last->slot, last->access == PSD_READ ? "slots in order" : "one of them in an update");
    return PS_OK;
}

// last: the range before this one in the request; becomes this one.
static enum ps_code take_range(const struct psd_job *job, const Paramserver__V1__Tensor *t, struct range *last,
                               struct ps_error *e)
{
    struct psd_variable *v = locate_variable(job, t);
    if (!v)
        return locate_fail_unknown(job, t, e);
    if (check_against(v, t, e) || (t->partition && locate_check_partition(job, v, t, e)) ||
        locate_check_slot(v, t, last, e))
        return e->code;
    const struct psd_partition *p = t->partition ? &job->partitions[t->partition - 1] : NULL;
    bool whole = !t->first && !t->count;
    uint64_t first = p && whole ? p->first : t->first;
    uint64_t end = !whole ? t->first + t->count : p ? p->first + p->count : v->count;
    if (first == end)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': the range at %" PRIu64 " is empty", v->name, first);
    if (last->variable == v && last->slot == t->slot && first < last->end)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': the range at %" PRIu64 " comes after one that ends at %" PRIu64
                       "; expected ranges in order, without overlap",
                       v->name, first, last->end);
    last->variable = v;
    last->named = t->partition;
    last->slot = t->slot;
    last->first = first;
    last->end = end;
    return PS_OK;
}

enum ps_code psd_job_find_range(const struct psd_job *job, const Paramserver__V1__Tensor *tensor,
                                const struct psd_variable **variable, uint64_t *first, uint64_t *count,
                                struct ps_error *e)
{
    struct range r = {0};
    if (take_range(job, tensor, &r, e))
        return e->code;
    *variable = r.variable;
    *first = r.first;
    *count = r.end - r.first;
    return PS_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct psd_variable *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y);
}

// Does each variable of a request come once, with all its ranges? What is unknown here is found out later.
static enum ps_code check_variables(const struct psd_job *job, Paramserver__V1__Tensor *const *tensors, size_t n,
                                    struct ps_error *e)
{
    const struct psd_variable **v = ps_try_alloc_array(n, sizeof *v), *twice = NULL;
    size_t found = 0;
    if (!v)
        return ps_no_memory(e, "the variables of a request");
    for (size_t i = 0; i < n; i++) {
        v[found] = locate_variable(job, tensors[i]);
        found += found == 0 || v[found] != v[found - 1];
    }
    qsort(v, found, sizeof *v, by_address);
    for (size_t i = 1; i < found; i++)
        if (v[i] && v[i] == v[i - 1])
            twice = v[i];
    free(v);
    return twice ? ps_fail(e, PS_INVALID_ARGUMENT,
                           "variable '%s' comes again after another one; expected its ranges one after the other",
                           twice->name)
                 : PS_OK;
}

enum ps_code psd_job_locate(const struct psd_job *job, Paramserver__V1__Tensor *const *tensors, size_t n,
                            enum psd_access access, size_t payload, struct psd_extents *extents, struct ps_error *e)
{
    struct range r = {.access = access};
    bool in_order = true;  // as they were declared, which is how clients send them: none comes again
    uint64_t need = 0;
    if (n == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the request names no tensor");
    for (r.tensor = 0; r.tensor < n; r.tensor++) {
        const struct psd_variable *last = r.variable;
        if (take_range(job, tensors[r.tensor], &r, e))
            return e->code;
        // Before more blocks are looked up: a request could name the same ones again and again.
        if (in_order && r.variable < last && check_variables(job, tensors, n, e))
            return e->code;
        in_order &= r.variable >= last;
        need += (r.end - r.first) * psd_element_bytes(r.variable);
        if (access != PSD_READ && need > payload)
            return ps_fail(e, PS_INVALID_ARGUMENT, "the tensors need at least %" PRIu64 " bytes of payload, %zu came",
                           need, payload);
        while (r.first < r.end) {
            struct psd_partition *p = partition_of(job, r.variable, r.first);
            uint64_t stop = p->first + p->count < r.end ? p->first + p->count : r.end;
            if (!p->blocks)
                return ps_fail(e, PS_FAILED_PRECONDITION,
                               "variable '%s': elements from %" PRIu64 " on lie on ps task %" PRIu32 ", not here",
                               r.variable->name, r.first, p->task);
            if (locate_blocks(&r, p, stop, extents, e))
                return e->code;
        }
    }
    return PS_OK;
}
