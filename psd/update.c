// SPDX-License-Identifier: Apache-2.0
#include "psd/update.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "psd/step.h"

bool psd_job_fail(struct psd_job *job, const char *reason)
{
    int no = 0;
    if (!atomic_compare_exchange_strong(&job->failed, &no, 1))
        return false;
    snprintf(job->failure, sizeof job->failure, "%s", reason);
    ps_utf8_repair(job->failure);
    atomic_store(&job->failed, 2);
    ps_warn("job '%s' has ended: %s", job->name, job->failure);
    return true;
}

// Walks payload bytes in runs of whole, aligned elements: the received bytes themselves where they are
// aligned, else a copy of a few KiB. Slices of the network may begin and end anywhere.
struct run {
    const struct ps_rope *payload;
    size_t offset, left;  // bytes
    size_t elem;
    const void *data;
    size_t n;  // elements
    _Alignas(64) uint8_t scratch[16 << 10];
};

static bool next_run(struct run *r)
{
    if (r->left == 0)
        return false;
    size_t at = r->offset, i = 0;
    while (at >= r->payload->v[i].len)
        at -= r->payload->v[i++].len;
    const uint8_t *here = r->payload->v[i].data + at;
    size_t bytes = r->payload->v[i].len - at;
    bytes = (bytes < r->left ? bytes : r->left) / r->elem * r->elem;
    if (bytes == 0 || (uintptr_t)here % r->elem) {
        bytes = r->left < sizeof r->scratch ? r->left : sizeof r->scratch;
        ps_rope_copy_out(r->payload, r->offset, bytes, r->scratch);
        here = r->scratch;
    }
    r->data = here;
    r->n = bytes / r->elem;
    r->offset += bytes;
    r->left -= bytes;
    return true;
}

void psd_update_push(const struct psd_job *job, const struct psd_variable *v, struct psd_block *b, struct psd_page *out,
                     const struct ps_rope *payload, size_t offset)
{
    struct psd_step step;
    struct run r = {.payload = payload, .offset = offset, .left = b->value_bytes, .elem = sizeof(float)};
    psd_step_init(&step, job, v, b, 0);
    for (size_t at = 0; next_run(&r); at += r.n)
        psd_step_apply(&step, b, out, at, r.n, r.data);
    b->steps++;
}

#define ADD(type)                                                          \
    do {                                                                   \
        const type *from = (const type *)b->page->data + at, *by = r.data; \
        type *to = (type *)out->data + at;                                 \
        for (size_t i = 0; i < r.n; i++)                                   \
            to[i] = from[i] + by[i];                                       \
    } while (0)

static void copy_slots(const struct psd_block *b, struct psd_page *out)
{
    size_t from = psd_slot_offset(b->value_bytes, 0);
    if (out != b->page && b->page->bytes > from)
        memcpy(out->data + from, b->page->data + from, b->page->bytes - from);
}

// Integers wrap around.
void psd_update_add(int dtype, const struct psd_block *b, struct psd_page *out, const struct ps_rope *payload,
                    size_t offset)
{
    struct run r = {.payload = payload, .offset = offset, .left = b->value_bytes, .elem = ps_dtype_size(dtype)};
    for (size_t at = 0; next_run(&r); at += r.n) {
        switch (dtype) {
        case PS_FLOAT32:
            ADD(float);
            break;
        case PS_FLOAT64:
            ADD(double);
            break;
        case PS_INT32:
            ADD(uint32_t);
            break;
        case PS_INT64:
            ADD(uint64_t);
            break;
        }
    }
    copy_slots(b, out);
}

void psd_update_put(const struct psd_block *b, struct psd_page *out, const struct ps_rope *payload, size_t offset)
{
    ps_rope_copy_out(payload, offset, b->value_bytes, out->data);
    copy_slots(b, out);
}
