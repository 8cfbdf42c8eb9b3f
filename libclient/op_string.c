// SPDX-License-Identifier: Apache-2.0
// Strings of an operation. In a payload a range of n strings is their n lengths (uint32, little-endian), then all
// their bytes.
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "libclient/op.h"

void psc_strings_free(psc_string *strings, uint64_t count)
{
    for (uint64_t i = 0; strings && i < count; i++) {
        free(strings[i].data);
        strings[i] = (psc_string){0};
    }
}

static uint8_t *strings_encode(const psc_string *s, uint64_t n, uint64_t bytes)
{
    uint8_t *data = ps_try_alloc(bytes), *to = data ? data + n * PS_STRING_LENGTH : NULL;
    for (uint64_t i = 0; data && i < n; i++) {
        uint32_t len = htole32((uint32_t)s[i].len);
        memcpy(data + i * sizeof len, &len, sizeof len);
        if (s[i].len)
            memcpy(to, s[i].data, s[i].len);
        to += s[i].len;
    }
    return data;
}

enum ps_code psc__op_encode(struct psc_op *op, struct ps_error *e)
{
    for (uint32_t i = 0; i < op->n_extents; i++) {
        struct psc__extent *extent = &op->extents[i];
        if (!extent->is_strings)
            continue;
        if (op->ticket.mutates)
            extent->data = strings_encode(extent->strings, extent->count, extent->bytes);
        else
            extent->strings = ps_try_alloc_array(extent->count, sizeof *extent->strings);
        if (op->ticket.mutates ? !extent->data : !extent->strings)
            return ps_no_memory(e, "strings");
    }
    return PS_OK;
}

enum ps_code psc__strings_take(psc_string *to, uint64_t n, const uint8_t *lengths, const uint8_t **bytes,
                               const uint8_t *end, struct ps_error *e)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t len;
        memcpy(&len, lengths + i * sizeof len, sizeof len);
        len = le32toh(len);
        if (len > (size_t)(end - *bytes))
            return ps_fail(e, PS_INTERNAL, "answered with a string of %" PRIu32 " bytes, of which %zu came", len,
                           (size_t)(end - *bytes));
        void *data = len ? ps_try_alloc(len) : NULL;
        if (len && !data)
            return ps_no_memory(e, "a string");
        if (len)
            memcpy(data, *bytes, len);
        *bytes += len;
        free(to[i].data);
        to[i] = (psc_string){data, len};
    }
    return PS_OK;
}

void psc__op_hand_over(struct psc_op *op)
{
    if (op->ticket.mutates)
        return;
    for (uint32_t i = 0; i < op->n_extents; i++) {
        struct psc__extent *extent = &op->extents[i];
        if (!extent->is_strings || !extent->touched)
            continue;
        if (op->seen)
            psc_strings_free((psc_string *)(void *)extent->into, extent->count);
        memcpy(extent->into, extent->strings, extent->count * sizeof *extent->strings);
        free(extent->strings);
        extent->strings = NULL;
    }
}

void psc__op_free_strings(struct psc_op *op)
{
    for (uint32_t i = 0; i < op->n_extents; i++) {
        struct psc__extent *extent = &op->extents[i];
        if (!extent->is_strings)
            continue;
        if (op->ticket.mutates) {
            free(extent->data);
        } else {
            psc_strings_free(extent->strings, extent->count);
            free(extent->strings);
        }
    }
}
