// SPDX-License-Identifier: Apache-2.0
#include "psd/service/reply.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

enum ps_code psd_reply_init(struct psd_reply *d, size_t n_results, const struct psd_extent *extents, size_t n,
                            struct ps_error *e)
{
    size_t bytes = PSD_REPLY_BYTES + n_results * PSD_RESULT_BYTES;
    *d = (struct psd_reply){0};
    for (size_t i = 0; i < n; i++)
        bytes += PSD_TENSOR_BYTES + strlen(extents[i].variable->name);
    struct ps_slice header = ps_slice_new(bytes, &d->header);
    if (!d->header)
        return ps_no_memory(e, "the reply");
    d->room = bytes;
    ps_slices_add(&d->slices, header);
    // Each extent is a slice; of strings two.
    size_t slices = 1 + 2 * n;
    if (!d->slices.broken && slices > d->slices.cap) {
        struct ps_slice *v = ps_try_realloc(d->slices.v, slices * sizeof *v);
        d->slices.broken = !v;
        d->slices.v = v ? v : d->slices.v;
        d->slices.cap = v ? slices : d->slices.cap;
    }
    if (n) {
        d->own = ps_try_alloc_array(n, sizeof *d->own);
        d->tensors = ps_try_alloc_array(n, sizeof *d->tensors);
    }
    if (d->slices.broken || (n && (!d->own || !d->tensors))) {
        psd_reply_fini(d);
        return ps_no_memory(e, "the reply");
    }
    return PS_OK;
}

void psd_reply_fini(struct psd_reply *d)
{
    ps_slices_clear(&d->slices);
    free(d->own);
    free(d->tensors);
    *d = (struct psd_reply){0};
}

// An extent that follows on the last one of the same range is of the same tensor of the reply.
static void add_header(struct psd_reply *d, const struct psd_extent *p, const struct psd_pinned *at)
{
    Paramserver__V1__Tensor *tensor = d->n_tensors ? d->tensors[d->n_tensors - 1] : NULL;
    if (!tensor || d->last->tensor != p->tensor) {
        tensor = d->tensors[d->n_tensors] = &d->own[d->n_tensors];
        d->n_tensors++;
        paramserver__v1__tensor__init(tensor);
        tensor->partition = p->named;
        if (!p->named)
            tensor->variable = p->variable->name;
        tensor->dtype = (Paramserver__V1__DType)p->variable->dtype;
        tensor->first = p->first;
        tensor->slot = p->slot;
        tensor->version = at->version;
    }
    tensor->count += p->count;
    tensor->changes += at->version;
    if (at->version < tensor->version)
        tensor->version = at->version;
    if (p->variable->dtype == PS_STRING)
        tensor->bytes += p->bytes;
    d->last = p;
}

static void add_slice(struct psd_reply *d, struct psd_page *page, size_t offset, size_t len)
{
    ps_slices_add(&d->slices, (struct ps_slice){page->data + offset, len, &page->owner});
}

// Bytes of elements [first, first + n) of a block of strings.
static size_t text_bytes(const struct psd_page *page, uint32_t first, uint32_t n)
{
    const uint32_t *lengths = (const uint32_t *)page->data + first;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += lengths[i];
    return bytes;
}

// All their lengths, then all their bytes, which hold a reference of their own.
static void add_strings(struct psd_reply *d, const struct psd_extent *v, const struct psd_pinned *pinned, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_slice(d, pinned[i].page, (size_t)v[i].offset * PS_STRING_LENGTH, (size_t)v[i].count * PS_STRING_LENGTH);
    for (size_t i = 0; i < n; i++) {
        size_t text = (size_t)psd_extent_block(&v[i])->count * PS_STRING_LENGTH;
        ps_owner_ref(&pinned[i].page->owner);
        add_slice(d, pinned[i].page, text + text_bytes(pinned[i].page, 0, v[i].offset),
                  v[i].bytes - (size_t)v[i].count * PS_STRING_LENGTH);
    }
}

void psd_reply_add(struct psd_reply *d, const struct psd_extent *v, const struct psd_pinned *pinned, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_header(d, &v[i], &pinned[i]);
    if (n && v->variable->dtype == PS_STRING) {
        add_strings(d, v, pinned, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        add_slice(d, pinned[i].page, pinned[i].from + v[i].offset * ps_dtype_size(v[i].variable->dtype), v[i].bytes);
}

void psd_reply_add_values(struct psd_reply *d, struct psd_job *job, const struct psd_extent *v, size_t n, bool averages)
{
    pthread_rwlock_rdlock(&job->snapshot_lock);
    for (size_t i = 0; i < n; i++) {
        struct psd_pinned pinned = averages ? psd_pin_average(&v[i]) : psd_pin(&v[i]);
        psd_reply_add(d, &v[i], &pinned, 1);
    }
    pthread_rwlock_unlock(&job->snapshot_lock);
}

int psd_reply_send(struct psd_reply *d, struct psd_request *t, const ProtobufCMessage *reply)
{
    struct ps_slice *header = &d->slices.v[0];
    size_t values = d->slices.len - header->len, bytes = protobuf_c_message_get_packed_size(reply) + PS_MSG_WRITE_MORE;
    if (bytes > d->room) {
        psd_reply_fini(d);
        return (int)ps_fail(&t->error, PS_INTERNAL, "the reply's header takes %zu bytes, more than were reserved",
                            bytes);
    }
    d->slices.len = values;
    header->len = ps_msg_write(reply, values, d->header);
    d->slices.len += header->len;
    atomic_fetch_add(&t->job->bytes_moved, values);
    ps_slices_move(&t->reply, &d->slices);
    psd_reply_fini(d);
    return PS_OK;
}

int psd_reply_send_results(struct psd_reply *d, struct psd_request *t, const Paramserver__V1__TensorResult *results,
                           size_t n)
{
    enum { REPLY_GENERATION = 1, REPLY_RESULTS = 2 };
    uint8_t *to = ps_put_uint(d->header, REPLY_GENERATION, t->core->generation);
    for (size_t i = 0; i < n; i++) {
        const Paramserver__V1__TensorResult *r = &results[i];
        const struct ps_tensor_result result = {.outcome = r->outcome,
                                                .blocks = r->blocks,
                                                .duplicates = r->duplicates,
                                                .version = r->version,
                                                .staleness = r->staleness,
                                                .round = r->round,
                                                .nonfinite = r->nonfinite};
        to = ps_put_result(to, REPLY_RESULTS, &result);
    }
    d->slices.len = d->slices.v[0].len = (size_t)(to - d->header);
    ps_slices_move(&t->reply, &d->slices);
    psd_reply_fini(d);
    return PS_OK;
}

// ---- rounds -------------------------------------------------------------------------------------------------------

int psd_wait_for_round(struct psd_request *t, const struct psd_extents *extents, uint64_t wanted, size_t *at)
{
    struct psd_round *round = psd_sync_lock_open(extents, wanted, at);
    int code;
    if (!round)
        return PS_OK;
    const struct psd_wait wait = {
        .kind = PARAMSERVER__V1__WAIT_KIND__FOR_ROUND, .number = wanted, .variable = round->partition->variable};
    if (psd_sync_is_over(round))
        code = (int)ps_fail(&t->error, PS_ABORTED,
                            "job '%s' is done: its workers have gone, and round %" PRIu64 " is not closed any more",
                            t->job->name, wanted);
    else
        code = psd_park(t, &round->waiting, &round->lock, &wait);
    pthread_mutex_unlock(&round->lock);
    return code;
}
