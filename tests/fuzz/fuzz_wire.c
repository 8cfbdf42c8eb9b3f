// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message of any type, and as a stream's records: decoded within bounds, or a sentence; and what was
// decoded survives being packed again. Byte 0 says which type, byte 1 where slices end.
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "proto/paramserver.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &paramserver__v1__update_request__descriptor,    &paramserver__v1__update_reply__descriptor,
    &paramserver__v1__read_request__descriptor,      &paramserver__v1__read_reply__descriptor,
    &paramserver__v1__declare_request__descriptor,   &paramserver__v1__describe_reply__descriptor,
    &paramserver__v1__join_request__descriptor,      &paramserver__v1__join_reply__descriptor,
    &paramserver__v1__heartbeat_request__descriptor, &paramserver__v1__barrier_request__descriptor,
    &paramserver__v1__lease_request__descriptor,     &paramserver__v1__leave_request__descriptor,
    &paramserver__v1__status_reply__descriptor,      &paramserver__v1__set_members_request__descriptor,
    &paramserver__v1__stream_message__descriptor,
};

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static struct ps_rope rope_of(const uint8_t *data, size_t size, size_t step)
{
    struct ps_rope r = PS_ROPE_EMPTY;
    for (size_t at = 0; at < size; at += step)
        ps_rope_add(&r, (struct ps_slice){data + at, size - at < step ? size - at : step, NULL});
    return r;
}

static bool same(const struct ps_rope *a, const struct ps_rope *b)
{
    if (a->len != b->len)
        return false;
    uint8_t *x = malloc(a->len + 1), *y = malloc(a->len + 1);
    ps_rope_copy_out(a, 0, a->len, x);
    ps_rope_copy_out(b, 0, b->len, y);
    bool equal = memcmp(x, y, a->len) == 0;
    free(x);
    free(y);
    return equal;
}

// Unknown fields and longer encodings of the same value may go, but not grow: what was packed unpacks to the same again.
static void message(const ProtobufCMessageDescriptor *type, const struct ps_rope *in)
{
    struct ps_rope payload = PS_ROPE_EMPTY, kept = PS_ROPE_EMPTY, again = PS_ROPE_EMPTY;
    ProtobufCMessage *m;
    struct ps_error e = {0};
    if (ps_msg_unpack(type, in, &m, &payload, &e)) {
        expect(e.text[0] && payload.len == 0);
        return;
    }
    expect(payload.len <= in->len);
    ps_rope_add_range(&kept, &payload, 0, payload.len);
    ps_msg_pack(m, &payload, &again);
    ps_msg_free(m);
    expect(payload.len == 0);
    if (again.len <= PS_MESSAGE_MAX && again.len - kept.len <= PS_HEADER_MAX) {
        enum ps_code code = ps_msg_unpack(type, &again, &m, &payload, NULL);
        expect(code == PS_OK || code == PS_RESOURCE_EXHAUSTED);
        if (code == PS_OK) {
            expect(same(&payload, &kept));
            ps_msg_free(m);
        }
    }
    ps_rope_clear(&payload);
    ps_rope_clear(&kept);
    ps_rope_clear(&again);
}

static void records(const struct ps_rope *in)
{
    struct ps_record r, s;
    struct ps_error e = {0};
    for (size_t offset = 0, end; offset < in->len; offset = end) {
        struct ps_rope packed = PS_ROPE_EMPTY, body = PS_ROPE_EMPTY;
        size_t at = 0;
        end = offset;
        if (ps_record_next(in, &end, &r, &e)) {
            expect(e.text[0] && r.body.n == 0);
            return;
        }
        expect(end > offset && end <= in->len && r.body.len < end - offset);
        ps_rope_add_range(&body, &r.body, 0, r.body.len);
        ps_record_pack(&r, &packed);
        expect(ps_record_next(&packed, &at, &s, NULL) == PS_OK && at == packed.len);
        expect(s.id == r.id && s.method == r.method && s.timeout_ms == r.timeout_ms && s.code == r.code);
        expect(strcmp(s.error, r.error) == 0 && same(&s.body, &body));
        ps_rope_clear(&s.body);
        ps_rope_clear(&body);
        ps_rope_clear(&packed);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct ps_rope in = rope_of(data + 2, size - 2, data[1] ? data[1] : size);
    message(types[data[0] % (sizeof types / sizeof *types)], &in);
    records(&in);
    ps_rope_clear(&in);
    return 0;
}
