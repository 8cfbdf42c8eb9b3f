// SPDX-License-Identifier: Apache-2.0
#include "common/wire/codec.h"

enum { VARINT_BYTES = 10, SHORT_BYTES = 5 };  // of 64 bits; of tags and lengths

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

// ---- reading ------------------------------------------------------------------------------------------------------

// Of at most max bytes.
static bool reader_varint(struct ps_reader *r, int max, uint64_t *value)
{
    const uint8_t *at = r->at;
    uint64_t v = 0;
    if (at < r->end && *at < 0x80) {  // most are one byte
        *value = *at;
        r->at++;
        return true;
    }
    for (int i = 0; i < max && at < r->end; i++) {
        uint8_t byte = *at++;
        if (i == VARINT_BYTES - 1 && byte > 1)
            return false;
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *value = v;
            r->at = at;
            return true;
        }
    }
    return false;
}

bool ps_read_varint(struct ps_reader *r, uint64_t *value)
{
    return reader_varint(r, VARINT_BYTES, value);
}

bool ps_read_fixed(struct ps_reader *r, size_t n, uint64_t *value)
{
    if ((size_t)(r->end - r->at) < n)
        return false;
    *value = 0;
    for (size_t i = 0; i < n; i++)
        *value |= (uint64_t)r->at[i] << (8 * i);
    r->at += n;
    return true;
}

static bool reader_value(struct ps_reader *r, struct ps_field *f)
{
    uint64_t len;
    switch (f->type) {
    case PS_VARINT:
        return ps_read_varint(r, &f->value);
    case PS_FIXED64:
        return ps_read_fixed(r, 8, &f->value);
    case PS_FIXED32:
        return ps_read_fixed(r, 4, &f->value);
    case PS_LENGTH:
        if (!reader_varint(r, SHORT_BYTES, &len) || len > (size_t)(r->end - r->at))
            return false;
        f->data = r->at;
        f->len = (size_t)len;
        r->at += len;
        return true;
    }
    return false;  // groups, and types that do not exist
}

bool ps_read_field(struct ps_reader *r, struct ps_field *f)
{
    struct ps_reader from = *r;
    uint64_t tag;
    if (!reader_varint(&from, SHORT_BYTES, &tag) || tag >> 3 == 0 || tag >> 32)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum ps_wire_type)(tag & 7);
    f->data = from.at;
    f->len = 0;
    if (!reader_value(&from, f))
        return false;
    *r = from;
    return true;
}

// ---- messages -----------------------------------------------------------------------------------------------------

bool ps_read_tensor(const struct ps_field *f, struct ps_tensor_head *t)
{
    struct ps_reader r = {f->data, f->data + f->len};
    struct ps_field in;
    uint64_t numbers[PS_TENSOR_SLOT + 1] = {0};
    while (ps_read_field(&r, &in)) {
        if (in.number < PS_TENSOR_FIRST || in.number > PS_TENSOR_SLOT)
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
                                 .partition = numbers[PS_TENSOR_PARTITION],
                                 .slot = numbers[PS_TENSOR_SLOT]};
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

uint8_t *ps_put_result(uint8_t *to, uint32_t field, const struct ps_tensor_result *t)
{
    const uint64_t numbers[] = {
        [RESULT_OUTCOME] = t->outcome,    [RESULT_VERSION] = t->version, [RESULT_STALENESS] = t->staleness,
        [RESULT_ROUND] = t->round,        [RESULT_BLOCKS] = t->blocks,   [RESULT_DUPLICATES] = t->duplicates,
        [RESULT_NONFINITE] = t->nonfinite};
    uint8_t *begin = to + 2, *end = begin;  // a tag, and a length of one byte
    for (uint32_t i = RESULT_OUTCOME; i <= RESULT_NONFINITE; i++)
        end = ps_put_uint(end, i, numbers[i]);
    ps_put_length(to, field, (size_t)(end - begin));
    return end;
}
