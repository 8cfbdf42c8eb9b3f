// SPDX-License-Identifier: Apache-2.0
#include "common/wire/decode.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/wire/codec.h"

enum { DEPTH_MAX = 4, FIRST_ARRAY = 4 };

// ---- memory -------------------------------------------------------------------------------------------------------

// Memory of one message; the message itself is the first thing in the first block.
struct codec_block {
    struct codec_block *next;
    _Alignas(16) uint8_t data[];
};

struct codec {
    struct codec_block *first, *last;
    uint8_t *at;
    size_t left;    // in the last block
    size_t budget;  // for more blocks
    enum ps_decoded result;
};

static bool codec_fail(struct codec *c, enum ps_decoded why)
{
    c->result = why;
    return false;
}

static bool codec_grow(struct codec *c, size_t size)
{
    if (size > c->budget)
        return codec_fail(c, PS_DECODED_TOO_LARGE);
    struct codec_block *b = malloc(sizeof *b + size);
    if (!b)
        return codec_fail(c, PS_DECODED_NO_MEMORY);
    b->next = NULL;
    *(c->last ? &c->last->next : &c->first) = b;
    c->last = b;
    c->at = b->data;
    c->left = size;
    c->budget -= size;
    return true;
}

// NULL: see c->result.
static void *codec_alloc(struct codec *c, size_t size)
{
    enum { BLOCK = 8 << 10 };
    size = (size + 15) & ~(size_t)15;
    if (size > c->left && !codec_grow(c, size > BLOCK || c->budget < BLOCK ? size : BLOCK))
        return NULL;
    void *p = c->at;
    c->at += size;
    c->left -= size;
    return p;
}

// ---- fields -------------------------------------------------------------------------------------------------------

// How a number stands on the wire, or PS_LENGTH for what is none.
static enum ps_wire_type type_on_wire(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return PS_LENGTH;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return PS_FIXED64;
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return PS_FIXED32;
    default:
        return PS_VARINT;
    }
}

static size_t size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
        return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(ProtobufCMessage *);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    default:
        return 4;
    }
}

static void decode_store_number(ProtobufCType type, uint64_t v, void *to)
{
    uint32_t half = (uint32_t)v;
    if (type == PROTOBUF_C_TYPE_BOOL)
        half = v != 0;
    else if (type == PROTOBUF_C_TYPE_SINT32)
        half = half >> 1 ^ -(half & 1);
    else if (type == PROTOBUF_C_TYPE_SINT64)
        v = v >> 1 ^ -(v & 1);
    if (size_of(type) == sizeof v)
        memcpy(to, &v, sizeof v);
    else
        memcpy(to, &half, sizeof half);
}

static bool decode_bytes(struct codec *c, const struct ps_field *in, ProtobufCBinaryData *to)
{
    to->len = in->len;
    to->data = to->len ? codec_alloc(c, to->len) : NULL;
    if (to->data)
        memcpy(to->data, in->data, to->len);
    return to->data || !to->len;
}

static bool decode_text(struct codec *c, const struct ps_field *in, char **to)
{
    size_t len = in->len;
    char *text = codec_alloc(c, len + 1);
    if (!text)
        return false;
    memcpy(text, in->data, len);
    text[len] = 0;
    *to = text;
    return (strlen(text) == len && ps_utf8_valid(text)) || codec_fail(c, PS_DECODED_NOT_TEXT);
}

static bool decode_message(struct codec *c, struct ps_reader in, ProtobufCMessage *m, int depth);

// One that comes twice is refused: implementations do not agree on what that means.
static bool decode_part(struct codec *c, const struct ps_field *item, const ProtobufCMessageDescriptor *type,
                        ProtobufCMessage **to, int depth)
{
    ProtobufCMessage *m = *to ? NULL : codec_alloc(c, type->sizeof_message);
    if (!m)
        return false;
    protobuf_c_message_init(type, m);
    *to = m;
    return decode_message(c, (struct ps_reader){item->data, item->data + item->len}, m, depth + 1);
}

static bool decode_value(struct codec *c, const struct ps_field *item, const ProtobufCFieldDescriptor *f, void *to,
                         int depth)
{
    if (item->type != type_on_wire(f->type))
        return false;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return decode_text(c, item, to);
    case PROTOBUF_C_TYPE_BYTES:
        return decode_bytes(c, item, to);
    case PROTOBUF_C_TYPE_MESSAGE:
        return decode_part(c, item, f->descriptor, to, depth);
    default:
        decode_store_number(f->type, item->value, to);
        return true;
    }
}

// Room for one element more at the end of a repeated field, whose arrays grow by doubling.
static void *repeated_end(struct codec *c, const ProtobufCFieldDescriptor *f, ProtobufCMessage *m)
{
    size_t *n = (size_t *)(void *)((char *)m + f->quantifier_offset), size = size_of(f->type);
    char **array = (char **)(void *)((char *)m + f->offset);
    if (*n == 0 || (*n >= FIRST_ARRAY && (*n & (*n - 1)) == 0)) {
        char *larger = codec_alloc(c, (*n ? 2 * *n : FIRST_ARRAY) * size);
        if (!larger)
            return NULL;
        if (*n)
            memcpy(larger, *array, *n * size);
        *array = larger;
    }
    void *end = *array + *n * size;
    memset(end, 0, size);
    return end;
}

static bool decode_repeated(struct codec *c, const struct ps_field *item, const ProtobufCFieldDescriptor *f,
                            ProtobufCMessage *m, int depth)
{
    size_t *n = (size_t *)(void *)((char *)m + f->quantifier_offset);
    struct ps_reader packed = {item->data, item->data + item->len};
    struct ps_field one = *item;
    enum ps_wire_type type = type_on_wire(f->type);
    bool is_packed = item->type == PS_LENGTH && type != PS_LENGTH;
    one.type = is_packed ? type : item->type;
    while (!is_packed || packed.at < packed.end) {
        if (is_packed && !(type == PS_VARINT ? ps_read_varint(&packed, &one.value)
                                             : ps_read_fixed(&packed, type == PS_FIXED64 ? 8 : 4, &one.value)))
            return false;
        void *end = repeated_end(c, f, m);
        if (!end || !decode_value(c, &one, f, end, depth))
            return false;
        ++*n;
        if (!is_packed)
            break;
    }
    return true;
}

static bool decode_chosen(struct codec *c, const struct ps_field *item, const ProtobufCFieldDescriptor *f,
                          ProtobufCMessage *m, int depth)
{
    uint32_t *which = (uint32_t *)(void *)((char *)m + f->quantifier_offset);
    void *to = (char *)m + f->offset;
    if (*which != f->id)
        memset(to, 0, size_of(f->type));
    *which = f->id;
    return decode_value(c, item, f, to, depth);
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, uint32_t number)
{
    if (number - 1 < type->n_fields && type->fields[number - 1].id == number)
        return &type->fields[number - 1];
    return protobuf_c_message_descriptor_get_field(type, number);
}

static bool decode_message(struct codec *c, struct ps_reader in, ProtobufCMessage *m, int depth)
{
    struct ps_field item = {0};
    if (depth > DEPTH_MAX)
        return false;
    while (in.at < in.end) {
        if (!ps_read_field(&in, &item))
            return false;
        const ProtobufCFieldDescriptor *f = find_field(m->descriptor, item.number);
        if (!f)
            continue;
        bool good = f->label == PROTOBUF_C_LABEL_REPEATED    ? decode_repeated(c, &item, f, m, depth)
                    : f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF ? decode_chosen(c, &item, f, m, depth)
                                                             : decode_value(c, &item, f, (char *)m + f->offset, depth);
        if (!good)
            return false;
    }
    return true;
}

// ---- a message ----------------------------------------------------------------------------------------------------

static void free_blocks(struct codec_block *b)
{
    while (b) {
        struct codec_block *next = b->next;
        free(b);
        b = next;
    }
}

enum ps_decoded ps_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len, size_t budget,
                          ProtobufCMessage **out)
{
    enum { PARTS = 256, PER_BYTE = 4, FIRST_MAX = 8 << 10 };
    struct codec c = {.budget = budget, .result = PS_DECODED_MALFORMED};
    // All of a usual push or pull, small enough for malloc's fast path.
    size_t guess = type->sizeof_message + PARTS + PER_BYTE * len;
    if (guess > FIRST_MAX)
        guess = type->sizeof_message > FIRST_MAX ? type->sizeof_message : FIRST_MAX;
    if (!codec_grow(&c, (guess + 15) & ~(size_t)15))
        return c.result;
    ProtobufCMessage *m = codec_alloc(&c, type->sizeof_message);
    if (!m) {
        free_blocks(c.first);
        return c.result;
    }
    protobuf_c_message_init(type, m);
    if (!decode_message(&c, (struct ps_reader){data, data + len}, m, 0)) {
        free_blocks(c.first);
        return c.result;
    }
    *out = m;
    return PS_DECODED;
}

void ps_decode_free(ProtobufCMessage *m)
{
    if (m)
        free_blocks((struct codec_block *)(void *)((char *)m - offsetof(struct codec_block, data)));
}
