// SPDX-License-Identifier: Apache-2.0
// Gradients that travel encoded. A tensor is encoded in one piece, in memory of the operation's own, and its extents
// point into that: what comes of an element does not depend on how the tensor is cut.
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/math/encoding.h"
#include "common/wire/dtype.h"
#include "libclient/op.h"

void psc__op_free_encoded(struct psc_op *op)
{
    for (uint32_t i = 0; op->encoded && i < op->n_tensors; i++)
        free(op->encoded[i]);
    free(op->encoded);
    op->encoded = NULL;
}

static uint64_t encode_first(const psc_tensor *t)
{
    return t->part ? t->first : 0;
}

enum ps_code psc__op_check_encoding(const struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e)
{
    const char *name = op->name;
    if (!spec->encoding)
        return PS_OK;
    if (!ps_is_encoding((int)spec->encoding))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: encoding %d: expected 0, PSC_BFLOAT16 or PSC_SCALED_INT8", name,
                       (int)spec->encoding);
    if (spec->atomic)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: atomic does not go with an encoding", name);
    if (!spec->residual)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: an encoding without residual, where what it loses is kept", name);
    for (size_t i = 0; i < spec->n; i++)
        if (spec->residual[i] && spec->tensors[i].dtype != PSC_FLOAT32)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is %s: only gradients of float32 are encoded",
                           spec->tensors[i].name, ps_dtype_name((int)spec->tensors[i].dtype));
    return PS_OK;
}

static bool encode_tensor(struct psc_op *op, const psc_tensor *t, float *residual, uint8_t **to)
{
    const int dtype = (int)op->encoding;
    const size_t scales = ps_encoding_scales(dtype, encode_first(t), t->count);
    *to = ps_try_alloc(scales + ps_encoding_numbers(dtype, t->count));
    if (*to)
        ps_encoding_write(dtype, encode_first(t), t->count, t->data, residual, *to, *to + scales);
    return *to;
}

static void encode_point(const struct psc_op *op, const psc_tensor *t, struct psc__extent *extent)
{
    const int dtype = (int)op->encoding;
    const uint64_t first = encode_first(t);
    uint8_t *scales = op->encoded[extent->tensor];
    const size_t before = ps_encoding_numbers(dtype, extent->first - first);
    extent->encoded = true;
    extent->data = scales + ps_encoding_scales(dtype, first, t->count) + before;
    extent->scale_bytes = ps_encoding_scales(dtype, extent->first, extent->count);
    // The first group of the extent is also the last of the elements up to its own first.
    extent->scales = extent->scale_bytes ? scales + ps_encoding_scales(dtype, first, extent->first - first + 1) -
                                               ps_encoding_scales(dtype, 0, 1)
                                         : NULL;
    extent->bytes = extent->scale_bytes + ps_encoding_numbers(dtype, extent->count);
}

// Bytes of payload, which have been counted as of floats.
static void encode_count(struct psc_op *op)
{
    struct psc__op_request *r;
    TAILQ_FOREACH(r, &op->requests, link)
    {
        r->is.bytes = 0;
        for (uint32_t i = r->first_extent; i != PSC__NO_EXTENT; i = op->extents[i].next)
            r->is.bytes += op->extents[i].bytes;
    }
}

enum ps_code psc__op_encode_gradients(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e)
{
    if (!spec->encoding)
        return PS_OK;
    op->encoding = spec->encoding;
    op->encoded = ps_try_alloc_array(op->n_tensors, sizeof *op->encoded);
    if (!op->encoded)
        return ps_no_memory(e, "gradients that are encoded");
    for (size_t i = 0; i < spec->n; i++)
        if (spec->residual[i] && !encode_tensor(op, &spec->tensors[i], spec->residual[i], &op->encoded[i]))
            return ps_no_memory(e, "gradients that are encoded");
    for (uint32_t i = 0; i < op->n_extents; i++)
        if (op->encoded[op->extents[i].tensor])
            encode_point(op, &spec->tensors[op->extents[i].tensor], &op->extents[i]);
    encode_count(op);
    return PS_OK;
}
