// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow's records and what stands in them:
//
//     record    length (8 bytes, little-endian), masked CRC-32C of these, data, masked CRC-32C of the data
//               (tensorflow/core/lib/io/record_writer.h)
//     data      a tf.train.Example in protobuf's encoding: a map from names to lists of bytes, floats or integers
//               (tensorflow/core/example/feature.proto)
#include "workerd/data/tfrecord.h"

#include <inttypes.h>
#include <string.h>

// ---- records ------------------------------------------------------------------------------------------------------

static uint32_t record_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

enum ps_code wk_record_header(const uint8_t header[PS_TFRECORD_HEAD], uint64_t at, uint64_t size, uint64_t *length,
                              struct ps_error *e)
{
    uint32_t crc = ps_masked_crc32c(header, 8), said = record_u32(header + 8);
    *length = record_u32(header) | (uint64_t)record_u32(header + 4) << 32;
    if (crc != said)
        return ps_fail(e, PS_DATA_LOSS,
                       "the CRC of the record's length at byte %" PRIu64
                       " is 0x%08x, expected 0x%08x: no TFRecord file, "
                       "or damaged",
                       at, crc, said);
    uint64_t left = size - at - PS_TFRECORD_HEAD;
    if (*length > UINT32_MAX || left < PS_TFRECORD_TAIL || *length > left - PS_TFRECORD_TAIL)
        return ps_fail(e, PS_DATA_LOSS,
                       "the record at byte %" PRIu64 " has %" PRIu64 " bytes, but the file ends after %" PRIu64 " more",
                       at, *length, left);
    return PS_OK;
}

enum ps_code wk_record_check(const uint8_t *record, uint64_t length, struct ps_error *e)
{
    uint32_t crc = ps_masked_crc32c(record, (size_t)length), said = record_u32(record + length);
    return crc == said ? PS_OK : ps_fail(e, PS_DATA_LOSS, "the record's CRC is 0x%08x, expected 0x%08x", crc, said);
}

// ---- protobuf -----------------------------------------------------------------------------------------------------

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static bool proto_varint(struct wk_bytes *b, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && b->n > 0; shift += 7) {
        uint8_t byte = *b->at++;
        b->n--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool proto_take(struct wk_bytes *b, uint64_t n, struct wk_bytes *to)
{
    if (n > b->n)
        return false;
    *to = (struct wk_bytes){b->at, (size_t)n};
    b->at += n;
    b->n -= (size_t)n;
    return true;
}

// The next field: its number and wire type, and what it has (of VARINT the value).
struct proto_field {
    uint64_t number;
    int type;
    struct wk_bytes bytes;
    uint64_t value;
};

static bool proto_next(struct wk_bytes *b, struct proto_field *f)
{
    uint64_t key, n = 0;
    if (!proto_varint(b, &key))
        return false;
    f->number = key >> 3;
    f->type = key & 7;
    switch (f->type) {
    case VARINT:
        return proto_varint(b, &f->value);
    case FIXED64:
        return proto_take(b, 8, &f->bytes);
    case FIXED32:
        return proto_take(b, 4, &f->bytes);
    case LENGTH:
        return proto_varint(b, &n) && proto_take(b, n, &f->bytes);
    default:
        return false;
    }
}

// ---- tf.train.Example ---------------------------------------------------------------------------------------------

static enum ps_code example_fail(struct ps_error *e)
{
    return ps_fail(e, PS_DATA_LOSS, "the record is no tf.train.Example");
}

// A list's elements: of bytes one field each; numbers side by side in one field, or one field each.
static bool example_next_element(struct wk_feature *f, struct proto_field *field)
{
    while (f->packed.n == 0 && f->list.n > 0) {
        if (!proto_next(&f->list, field))
            return false;
        if (field->number != 1)
            continue;
        if (f->kind == WK_FEATURE_BYTES || field->type != LENGTH)
            return field->type == (f->kind == WK_FEATURE_BYTES   ? LENGTH
                                   : f->kind == WK_FEATURE_FLOAT ? FIXED32
                                                                 : VARINT);
        f->packed = field->bytes;
    }
    if (f->packed.n == 0)
        return false;
    return f->kind == WK_FEATURE_FLOAT ? proto_take(&f->packed, 4, &field->bytes)
                                       : proto_varint(&f->packed, &field->value);
}

bool wk_feature_next_bytes(struct wk_feature *f, struct wk_bytes *value)
{
    struct proto_field field;
    if (f->kind != WK_FEATURE_BYTES || !example_next_element(f, &field))
        return false;
    *value = field.bytes;
    return true;
}

bool wk_feature_next_number(struct wk_feature *f, double *value)
{
    struct proto_field field;
    if (f->kind == WK_FEATURE_BYTES || f->kind == WK_FEATURE_NONE || !example_next_element(f, &field))
        return false;
    if (f->kind == WK_FEATURE_FLOAT) {
        float number;
        memcpy(&number, field.bytes.at, sizeof number);
        *value = number;
    } else {
        *value = (double)(int64_t)field.value;
    }
    return true;
}

// Feature: which of the three lists it has.
static bool example_take_value(struct wk_bytes value, struct wk_feature *to)
{
    struct proto_field f;
    while (value.n > 0) {
        if (!proto_next(&value, &f))
            return false;
        if (f.number < WK_FEATURE_BYTES || f.number > WK_FEATURE_INT || f.type != LENGTH)
            continue;
        to->kind = (enum wk_feature_kind)f.number;
        to->list = f.bytes;
    }
    return true;
}

// An entry of the map: its name and value.
static bool example_take_entry(struct wk_bytes entry, struct wk_feature *to)
{
    struct proto_field f;
    *to = (struct wk_feature){.kind = WK_FEATURE_NONE};
    while (entry.n > 0) {
        if (!proto_next(&entry, &f))
            return false;
        if (f.number == 1 && f.type == LENGTH)
            to->name = f.bytes;
        else if (f.number == 2 && f.type == LENGTH && !example_take_value(f.bytes, to))
            return false;
    }
    return true;
}

enum ps_code wk_example_next(struct wk_example *x, struct wk_feature *feature, bool *more, struct ps_error *e)
{
    struct proto_field f;
    for (;;) {
        while (x->features.n == 0) {
            if (x->rest.n == 0) {
                *more = false;
                return PS_OK;
            }
            if (!proto_next(&x->rest, &f))
                return example_fail(e);
            if (f.number == 1 && f.type == LENGTH)
                x->features = f.bytes;
        }
        if (!proto_next(&x->features, &f))
            return example_fail(e);
        if (f.number != 1 || f.type != LENGTH)
            continue;
        *more = true;
        return example_take_entry(f.bytes, feature) ? PS_OK : example_fail(e);
    }
}
