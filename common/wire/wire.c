// SPDX-License-Identifier: Apache-2.0
//
// The protobuf wire format as far as it is read by hand: the top level of a message, to find the payload without
// copying it, and the stream's records, whose headers must not cost an allocation. Headers are decoded by decode.c and
// encoded by protobuf-c.
#include "common/wire/wire.h"

#include <stdlib.h>
#include <string.h>

#include "common/wire/codec.h"
#include "common/wire/decode.h"

enum wire_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

enum { VARINT_MAX = 10 };

// Field numbers of StreamMessage and Record.
enum { STREAM_RECORDS = 1 };
enum {
    RECORD_ID = 1,
    RECORD_METHOD = 2,
    RECORD_TIMEOUT = 3,
    RECORD_CODE = 4,
    RECORD_ERROR = 5,
    RECORD_PRIORITY = 6,
    RECORD_BODY = 15
};

// ---- reading ------------------------------------------------------------------------------------------------------

// A place in a slice list. Slices may end anywhere, inside a varint too.
struct cursor {
    const struct ps_slices *in;
    size_t i, at;     // slice, and byte in it; at < v[i].len unless the slice list has ended
    size_t pos, end;  // bytes from the start of the slice list; what is read stays below end
};

static void cursor_advance(struct cursor *c, size_t n)  // n <= end - pos
{
    c->pos += n;
    c->at += n;
    while (c->i < c->in->n && c->at >= c->in->v[c->i].len)
        c->at -= c->in->v[c->i++].len;
}

static struct cursor cursor_at(const struct ps_slices *in, size_t pos)  // pos <= in->len
{
    struct cursor c = {.in = in, .end = in->len};
    cursor_advance(&c, pos);
    return c;
}

static bool wire_read_varint(struct cursor *c, uint64_t *value)
{
    uint64_t v = 0;
    size_t most = c->end - c->pos < VARINT_MAX ? c->end - c->pos : VARINT_MAX;
    const struct ps_slice *s = most ? &c->in->v[c->i] : NULL;
    if (most && s->len - c->at > most) {  // most lie in one slice, and do not end it
        const uint8_t *at = s->data + c->at;
        for (size_t i = 0; i < most; i++) {
            v |= (uint64_t)(at[i] & 0x7f) << (7 * i);
            if (at[i] >= 0x80)
                continue;
            c->at += i + 1;
            c->pos += i + 1;
            *value = v;
            return true;
        }
        return false;
    }
    for (int i = 0; i < VARINT_MAX && c->pos < c->end; i++) {
        uint8_t byte = c->in->v[c->i].data[c->at];
        cursor_advance(c, 1);
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *value = v;
            return true;
        }
    }
    return false;
}

struct field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;  // VARINT
    size_t start;    // of the tag
    size_t len;      // LENGTH: bytes that follow; the cursor stands before them
};

// Reads a tag and, where it has one, the value. Fixed-size values are skipped: no field of ours has one.
static bool read_field(struct cursor *c, struct field *f)
{
    uint64_t tag, len;
    f->start = c->pos;
    if (!wire_read_varint(c, &tag) || tag >> 3 == 0 || tag >> 32)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = tag & 7;
    f->len = 0;
    switch (f->type) {
    case VARINT:
        return wire_read_varint(c, &f->value);
    case LENGTH:
        if (!wire_read_varint(c, &len) || len > c->end - c->pos)
            return false;
        f->len = len;
        return true;
    case FIXED64:
    case FIXED32:
        len = f->type == FIXED64 ? 8 : 4;
        if (len > c->end - c->pos)
            return false;
        cursor_advance(c, len);
        return true;
    }
    return false;  // groups, and types that do not exist
}

// ---- messages -----------------------------------------------------------------------------------------------------

// Where a message's header ends, and where its payload lies.
struct layout {
    size_t header;
    size_t payload, payload_len;
};

static enum ps_code find_payload(const char *name, const struct ps_slices *in, struct layout *l, struct ps_error *e)
{
    struct cursor c = cursor_at(in, 0);
    struct field f;
    *l = (struct layout){.header = in->len};
    while (c.pos < c.end) {
        if (!read_field(&c, &f))
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s: malformed at byte %zu of %zu", name, f.start, in->len);
        if (f.number == PS_PAYLOAD_FIELD) {
            if (f.type != LENGTH || c.pos + f.len != c.end)
                return ps_fail(e, PS_INVALID_ARGUMENT, "%s: the payload (field %d) must be bytes and come last", name,
                               PS_PAYLOAD_FIELD);
            *l = (struct layout){f.start, c.pos, f.len};
            return PS_OK;
        }
        cursor_advance(&c, f.len);
    }
    return PS_OK;
}

// A few bytes of input can turn into a hundred times as much heap: PS_DECODE_MAX bounds it.
static enum ps_code wire_decode(const ProtobufCMessageDescriptor *type, const struct ps_slices *in, size_t len,
                                ProtobufCMessage **out, struct ps_error *e)
{
    bool split = in->n > 0 && in->v[0].len < len;
    uint8_t *scratch = split ? malloc(len) : NULL;
    if (split && !scratch)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for a header of %zu bytes", type->short_name, len);

    const uint8_t *header = len ? ps_slices_peek(in, 0, len, scratch) : (const uint8_t *)"";
    enum ps_decoded decoded = ps_decode(type, header, len, PS_DECODE_MAX, out);
    free(scratch);
    switch (decoded) {
    case PS_DECODED:
        return PS_OK;
    case PS_DECODED_TOO_LARGE:
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: takes more than %d MiB of memory once decoded", type->short_name,
                       PS_DECODE_MAX >> 20);
    case PS_DECODED_NO_MEMORY:
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory to decode a header of %zu bytes", type->short_name,
                       len);
    case PS_DECODED_NOT_TEXT:
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: a text that is not UTF-8, or has a NUL in it", type->short_name);
    default:
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: malformed header of %zu bytes", type->short_name, len);
    }
}

enum ps_code ps_msg_split(const char *name, const struct ps_slices *in, size_t *header, struct ps_slices *payload,
                          struct ps_error *e)
{
    struct layout l;
    ps_slices_clear(payload);
    if (in->len > PS_MESSAGE_MAX)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: %zu bytes, at most %d MiB are accepted", name, in->len,
                       PS_MESSAGE_MAX >> 20);
    enum ps_code code = find_payload(name, in, &l, e);
    if (code)
        return code;
    if (l.header > PS_HEADER_MAX)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: header of %zu bytes, at most %d MiB are accepted", name, l.header,
                       PS_HEADER_MAX >> 20);
    ps_slices_add_range(payload, in, l.payload, l.payload_len);
    if (payload->broken) {
        ps_slices_clear(payload);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for its payload's slices", name);
    }
    *header = l.header;
    return PS_OK;
}

enum ps_code ps_msg_unpack(const ProtobufCMessageDescriptor *type, const struct ps_slices *in, ProtobufCMessage **out,
                           struct ps_slices *payload, struct ps_error *e)
{
    size_t header;
    enum ps_code code = ps_msg_split(type->short_name, in, &header, payload, e);
    if (code == PS_OK)
        code = wire_decode(type, in, header, out, e);
    if (code != PS_OK)
        ps_slices_clear(payload);
    return code;
}

void ps_msg_free(ProtobufCMessage *m)
{
    ps_decode_free(m);
}

// ---- writing ------------------------------------------------------------------------------------------------------

void ps_msg_pack(const ProtobufCMessage *m, struct ps_slices *payload, struct ps_slices *out)
{
    size_t header = protobuf_c_message_get_packed_size(m), payload_len = payload ? payload->len : 0;
    size_t tail = payload_len ? ps_length_size(payload_len) : 0;
    uint8_t *to;
    struct ps_slice s = ps_slice_new(header + tail, &to);
    if (to) {
        to += protobuf_c_message_pack(m, to);
        if (tail)
            ps_put_length(to, PS_PAYLOAD_FIELD, payload_len);
    } else {
        out->broken = true;
    }
    ps_slices_add(out, s);
    if (payload)
        ps_slices_move(out, payload);
}

size_t ps_msg_write(const ProtobufCMessage *m, size_t payload_len, uint8_t *to)
{
    uint8_t *end = to + protobuf_c_message_pack(m, to);
    if (payload_len)
        end = ps_put_length(end, PS_PAYLOAD_FIELD, payload_len);
    return (size_t)(end - to);
}

// ---- records ------------------------------------------------------------------------------------------------------

static enum ps_code bad_record(const struct ps_slices *message, size_t pos, struct ps_error *e)
{
    return ps_fail(e, PS_INVALID_ARGUMENT, "StreamMessage: not a record at byte %zu of %zu", pos, message->len);
}

static void record_error(struct cursor *c, size_t len, struct ps_record *r)
{
    size_t n = len < sizeof r->error ? len : sizeof r->error - 1;
    ps_slices_copy_out(c->in, c->pos, n, r->error);
    r->error[n] = 0;
}

// One field of a record; the cursor moves past it. False: not what the field should be.
static bool record_field(struct cursor *c, const struct field *f, struct ps_record *r)
{
    bool varint = f->type == VARINT, bytes = f->type == LENGTH;
    switch (f->number) {
    case RECORD_ID:
        r->id = f->value;
        return varint;
    case RECORD_METHOD:
        r->method = (uint32_t)f->value;
        return varint;
    case RECORD_TIMEOUT:
        r->timeout_ms = (uint32_t)f->value;
        return varint;
    case RECORD_CODE:
        r->code = (uint32_t)f->value;
        return varint;
    case RECORD_PRIORITY:
        r->priority = (uint32_t)f->value;
        return varint;
    case RECORD_ERROR:
        record_error(c, f->len, r);
        break;
    case RECORD_BODY:
        if (!bytes || c->pos + f->len != c->end)
            return false;
        ps_slices_add_range(&r->body, c->in, c->pos, f->len);  // may be broken: whoever takes the record looks
        break;
    default:
        bytes = true;  // whatever it is, it has been read
    }
    cursor_advance(c, f->len);
    return bytes;
}

enum ps_code ps_record_next(const struct ps_slices *message, size_t *offset, struct ps_record *r, struct ps_error *e)
{
    struct cursor c = cursor_at(message, *offset);
    struct field f = {0};
    r->id = 0;
    r->method = r->timeout_ms = r->code = r->priority = 0;
    r->error[0] = 0;
    r->body = PS_SLICES_EMPTY;
    if (!read_field(&c, &f) || f.number != STREAM_RECORDS || f.type != LENGTH)
        return bad_record(message, *offset, e);
    c.end = c.pos + f.len;
    while (c.pos < c.end) {
        size_t pos = c.pos;
        if (!read_field(&c, &f) || !record_field(&c, &f, r)) {
            ps_slices_clear(&r->body);
            return bad_record(message, pos, e);
        }
    }
    *offset = c.end;
    return PS_OK;
}

size_t ps_record_write(const struct ps_record_head *r, size_t body, uint8_t *to)
{
    size_t error = r->error ? strlen(r->error) : 0;
    size_t header = ps_uint_size(r->id) + ps_uint_size(r->method) + ps_uint_size(r->timeout_ms) +
                    ps_uint_size(r->code) + ps_uint_size(r->priority) + (error ? ps_length_size(error) + error : 0) +
                    (body ? ps_length_size(body) : 0);
    uint8_t *at = ps_put_length(to, STREAM_RECORDS, header + body);
    at = ps_put_uint(at, RECORD_ID, r->id);
    at = ps_put_uint(at, RECORD_METHOD, r->method);
    at = ps_put_uint(at, RECORD_TIMEOUT, r->timeout_ms);
    at = ps_put_uint(at, RECORD_CODE, r->code);
    at = ps_put_uint(at, RECORD_PRIORITY, r->priority);
    if (error) {
        at = ps_put_length(at, RECORD_ERROR, error);
        at = (uint8_t *)memcpy(at, r->error, error) + error;
    }
    if (body)
        at = ps_put_length(at, RECORD_BODY, body);
    return (size_t)(at - to);
}

void ps_record_pack(struct ps_record *r, struct ps_slices *out)
{
    struct ps_record_head head = {r->id, r->method, r->timeout_ms, r->code, r->priority, r->error};
    uint8_t *to;
    struct ps_slice s = ps_slice_new(PS_RECORD_HEAD + strlen(r->error), &to);
    if (!to) {
        ps_slices_clear(&r->body);
        out->broken = true;
        return;
    }
    s.len = ps_record_write(&head, r->body.len, to);
    ps_slices_add(out, s);
    ps_slices_move(out, &r->body);
}
