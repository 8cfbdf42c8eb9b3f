// SPDX-License-Identifier: Apache-2.0
// The protobuf encoding by hand, for the messages that carry tensors: no allocation, no descriptor, no copy of a name.
// What is written and read is what protobuf-c would write and read (tests/unit/test_wire.c).
//
// Receives headers from wire.h's ps_msg_split; hands values and pointers into these bytes to libclient. No state; any
// thread.
#ifndef PS_COMMON_CODEC_H
#define PS_COMMON_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_wire_type { PS_VARINT = 0, PS_FIXED64 = 1, PS_LENGTH = 2, PS_FIXED32 = 5 };

// ---- writing: to memory that has room; each returns the end of what it wrote --------------------------------------

static inline size_t ps_varint_size(uint64_t v)
{
    int bits = 64 - __builtin_clzll(v | 1);
    return ((size_t)bits + 6) / 7;
}

static inline uint8_t *ps_put_varint(uint8_t *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *to++ = (uint8_t)(v | 0x80);
    *to++ = (uint8_t)v;
    return to;
}

// A number in a field below 16; nothing where it is 0, as in proto3.
static inline size_t ps_uint_size(uint64_t v)
{
    return v ? 1 + ps_varint_size(v) : 0;
}

static inline uint8_t *ps_put_uint(uint8_t *to, uint32_t field, uint64_t v)
{
    if (!v)
        return to;
    *to++ = (uint8_t)(field << 3 | PS_VARINT);
    return ps_put_varint(to, v);
}

// The tag and length of len bytes, which the caller writes next: of a string, bytes or a message. Field below 16.
static inline size_t ps_length_size(size_t len)
{
    return 1 + ps_varint_size(len);
}

static inline uint8_t *ps_put_length(uint8_t *to, uint32_t field, size_t len)
{
    *to++ = (uint8_t)(field << 3 | PS_LENGTH);
    return ps_put_varint(to, len);
}

// ---- reading ------------------------------------------------------------------------------------------------------

struct ps_reader {
    const uint8_t *at, *end;
};

struct ps_field {
    uint32_t number;
    enum ps_wire_type type;
    uint64_t value;       // all but PS_LENGTH; of fixed size as they lie there, the lowest byte first
    const uint8_t *data;  // PS_LENGTH
    size_t len;
};

// A number that is no field: of a packed list. False: none is there, or more than 64 bits.
bool ps_read_varint(struct ps_reader *r, uint64_t *value);
bool ps_read_fixed(struct ps_reader *r, size_t bytes, uint64_t *value);
// The next field. False: the end, or, where r->at is not r->end, no protobuf.
bool ps_read_field(struct ps_reader *r, struct ps_field *f);

// ---- messages -----------------------------------------------------------------------------------------------------

// Field numbers of Tensor.
enum {
    PS_TENSOR_VARIABLE = 1,
    PS_TENSOR_DTYPE,
    PS_TENSOR_SHAPE,
    PS_TENSOR_FIRST,
    PS_TENSOR_COUNT,
    PS_TENSOR_VERSION,
    PS_TENSOR_CHANGES,
    PS_TENSOR_BYTES,
    PS_TENSOR_PARTITION,
    PS_TENSOR_SLOT
};

// Tensor, in a request that names partitions, and in the reply to it; dtype: of an encoded gradient alone.
struct ps_tensor_head {
    uint64_t dtype, first, count, version, changes, bytes, partition, slot;
};

// TensorResult.
struct ps_tensor_result {
    uint32_t outcome, blocks, duplicates;
    uint64_t version, staleness, round, nonfinite;
};

// Writes it as a field below 16: at most PS_RESULT_BYTES.
enum { PS_RESULT_BYTES = 64 };
uint8_t *ps_put_result(uint8_t *to, uint32_t field, const struct ps_tensor_result *t);

// f: a field of type PS_LENGTH that is such a message. False: malformed.
bool ps_read_tensor(const struct ps_field *f, struct ps_tensor_head *t);
bool ps_read_result(const struct ps_field *f, struct ps_tensor_result *t);

#endif
