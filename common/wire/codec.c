// SPDX-License-Identifier: Apache-2.0
#include "common/wire/codec.h"

enum { VARINT_BYTES = 10 };

// Field numbers of TensorResult.
enum {
    RESULT_OUTCOME = 1,
    RESULT_VERSION,
    RESULT_STALENESS,
    RESULT_ROUND,
    RESULT_BLOCKS,
    RESULT_DUPLICATES,
    RESULT_NONFINITE
};

// ---- writing ------------------------------------------------------------------------------------------------------

size_t ps_varint_size(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

uint8_t *ps_put_varint(uint8_t *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *to++ = (uint8_t)(v | 0x80);
    *to++ = (uint8_t)v;
    return to;
}

size_t ps_uint_size(uint64_t v)
{
    return v ? 1 + ps_varint_size(v) : 0;
}

uint8_t *ps_put_uint(uint8_t *to, uint32_t field, uint64_t v)
{
    if (!v)
        return to;
    *to++ = (uint8_t)(field << 3 | PS_VARINT);
    return ps_put_varint(to, v);
}

size_t ps_length_size(size_t len)
{
    return 1 + ps_varint_size(len);
}

uint8_t *ps_put_length(uint8_t *to, uint32_t field, size_t len)
{
    *to++ = (uint8_t)(field << 3 | PS_LENGTH);
    return ps_put_varint(to, len);
}

// ---- reading ------------------------------------------------------------------------------------------------------

static bool reader_varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (int i = 0; i < VARINT_BYTES && *at < end; i++) {
        uint8_t byte = *(*at)++;
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *value = v;
            return true;
        }
    }
    return false;
}

bool ps_read_field(struct ps_reader *r, struct ps_field *f)
{
    const uint8_t *at = r->at;
    uint64_t tag, len;
    if (at == r->end || !reader_varint(&at, r->end, &tag) || tag >> 3 == 0 || tag >> 32)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum ps_wire_type)(tag & 7);
    f->data = at;
    f->len = 0;
    switch (f->type) {
    case PS_VARINT:
        if (!reader_varint(&at, r->end, &f->value))
            return false;
        break;
    case PS_LENGTH:
        if (!reader_varint(&at, r->end, &len) || len > (size_t)(r->end - at))
            return false;
        f->data = at;
        f->len = (size_t)len;
        at += len;
        break;
    case PS_FIXED64:
    case PS_FIXED32:
        len = f->type == PS_FIXED64 ? 8 : 4;
        if (len > (size_t)(r->end - at))
            return false;
        at += len;
        break;
    default:
        return false;  // groups, and types that do not exist
    }
    r->at = at;
    return true;
}

// ---- messages -----------------------------------------------------------------------------------------------------

bool ps_read_tensor(const struct ps_field *f, struct ps_tensor_head *t)
{
    struct ps_reader r = {f->data, f->data + f->len};
    struct ps_field in;
    uint64_t numbers[PS_TENSOR_PARTITION + 1] = {0};
    while (ps_read_field(&r, &in)) {
        if (in.number < PS_TENSOR_FIRST || in.number > PS_TENSOR_PARTITION)
            continue;
        if (in.type != PS_VARINT)
            return false;
        numbers[in.number] = in.value;
    }
    *t = (struct ps_tensor_head){.first = numbers[PS_TENSOR_FIRST],
                                 .count = numbers[PS_TENSOR_COUNT],
                                 .version = numbers[PS_TENSOR_VERSION],
                                 .changes = numbers[PS_TENSOR_CHANGES],
                                 .bytes = numbers[PS_TENSOR_BYTES],
                                 .partition = numbers[PS_TENSOR_PARTITION]};
    return r.at == r.end;
}

bool ps_read_result(const struct ps_field *f, struct ps_tensor_result *t)
{
    struct ps_reader r = {f->data, f->data + f->len};
    struct ps_field in;
    uint64_t numbers[RESULT_NONFINITE + 1] = {0};
    while (ps_read_field(&r, &in)) {
        if (in.number > RESULT_NONFINITE)
            continue;
        if (in.type != PS_VARINT)
            return false;
        numbers[in.number] = in.value;
    }
    *t = (struct ps_tensor_result){.outcome = (uint32_t)numbers[RESULT_OUTCOME],
                                   .blocks = (uint32_t)numbers[RESULT_BLOCKS],
                                   .duplicates = (uint32_t)numbers[RESULT_DUPLICATES],
                                   .version = numbers[RESULT_VERSION],
                                   .staleness = numbers[RESULT_STALENESS],
                                   .round = numbers[RESULT_ROUND],
                                   .nonfinite = numbers[RESULT_NONFINITE]};
    return r.at == r.end;
}
