// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message of any type: decoded within bounds, or a sentence; and what was decoded survives being packed
// again. Byte 0 says which type, byte 1 where slices end.
#include <stdlib.h>
#include <string.h>

#include "common/wire/decode.h"
#include "common/wire/wire.h"
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
    &paramserver__v1__stream_message__descriptor,    &paramserver__v1__describe_request__descriptor,
    &paramserver__v1__declare_reply__descriptor,     &paramserver__v1__heartbeat_reply__descriptor,
    &paramserver__v1__leave_reply__descriptor,       &paramserver__v1__barrier_reply__descriptor,
    &paramserver__v1__lease_reply__descriptor,       &paramserver__v1__push_pull_reply__descriptor,
    &paramserver__v1__reduce_request__descriptor,    &paramserver__v1__reduce_reply__descriptor,
    &paramserver__v1__clock_request__descriptor,     &paramserver__v1__clock_reply__descriptor,
    &paramserver__v1__status_request__descriptor,    &paramserver__v1__workers_request__descriptor,
    &paramserver__v1__workers_reply__descriptor,     &paramserver__v1__waits_request__descriptor,
    &paramserver__v1__waits_reply__descriptor,       &paramserver__v1__set_hyper_request__descriptor,
    &paramserver__v1__set_hyper_reply__descriptor,   &paramserver__v1__set_mode_request__descriptor,
    &paramserver__v1__set_mode_reply__descriptor,    &paramserver__v1__drain_request__descriptor,
    &paramserver__v1__drain_reply__descriptor,       &paramserver__v1__stop_job_request__descriptor,
    &paramserver__v1__set_members_reply__descriptor, &paramserver__v1__agree_request__descriptor,
    &paramserver__v1__agree_reply__descriptor,       &paramserver__v1__sum_squares_request__descriptor,
    &paramserver__v1__sum_squares_reply__descriptor, &paramserver__v1__open_request__descriptor,
    &paramserver__v1__open_reply__descriptor,        &paramserver__v1__submit_request__descriptor,
    &paramserver__v1__list_request__descriptor,      &paramserver__v1__list_reply__descriptor,
    &paramserver__v1__cancel_request__descriptor,    &paramserver__v1__logs_request__descriptor,
    &paramserver__v1__logs_reply__descriptor,        &paramserver__v1__next_request__descriptor,
    &paramserver__v1__next_reply__descriptor,        &paramserver__v1__report_request__descriptor,
    &paramserver__v1__stored_job__descriptor,
};

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static struct ps_slices slices_of(const uint8_t *data, size_t size, size_t step)
{
    struct ps_slices r = PS_SLICES_EMPTY;
    for (size_t at = 0; at < size; at += step)
        ps_slices_add(&r, (struct ps_slice){data + at, size - at < step ? size - at : step, NULL});
    return r;
}

static bool same(const struct ps_slices *a, const struct ps_slices *b)
{
    if (a->len != b->len)
        return false;
    uint8_t *x = malloc(a->len + 1), *y = malloc(a->len + 1);
    ps_slices_copy_out(a, 0, a->len, x);
    ps_slices_copy_out(b, 0, b->len, y);
    bool equal = memcmp(x, y, a->len) == 0;
    free(x);
    free(y);
    return equal;
}

// protobuf-c keeps what it does not know, even with field number 0 where that takes two bytes, which it then refuses in
// the one byte that it makes of it.
static void drop_unknown(ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->n_unknown_fields; i++)
        free(m->unknown_fields[i].data);
    free(m->unknown_fields);
    m->unknown_fields = NULL;
    m->n_unknown_fields = 0;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        void *member = (char *)m + f->offset;
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        ProtobufCMessage **values = repeated ? *(ProtobufCMessage ***)member : member;
        size_t n = repeated ? *(size_t *)(void *)((char *)m + f->quantifier_offset) : 1;
        for (size_t k = 0; f->type == PROTOBUF_C_TYPE_MESSAGE && k < n; k++)
            if (values[k])
                drop_unknown(values[k]);
    }
}

// Longer encodings of the same value may go, but not grow: what was packed unpacks to the same again.
static void message(const ProtobufCMessageDescriptor *type, const struct ps_slices *in)
{
    struct ps_slices payload = PS_SLICES_EMPTY, kept = PS_SLICES_EMPTY, again = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    struct ps_error e = {0};
    if (ps_msg_unpack(type, in, &m, &payload, &e)) {
        expect(e.text[0] && payload.len == 0);
        return;
    }
    expect(payload.len <= in->len);
    ps_slices_add_range(&kept, &payload, 0, payload.len);
    drop_unknown(m);
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
    ps_slices_clear(&payload);
    ps_slices_clear(&kept);
    ps_slices_clear(&again);
}

static uint8_t *packed(const ProtobufCMessage *m, size_t *len)
{
    uint8_t *bytes = malloc(protobuf_c_message_get_packed_size(m) + 1);
    *len = protobuf_c_message_pack(m, bytes);
    return bytes;
}

// What the codec takes protobuf-c takes, and understands alike.
static void oracle(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    ProtobufCMessage *ours, *theirs;
    size_t a, b;
    if (ps_decode(type, data, size, PS_DECODE_MAX, &ours) != PS_DECODED)
        return;
    theirs = protobuf_c_message_unpack(type, NULL, size, data);
    expect(theirs != NULL);
    drop_unknown(theirs);
    uint8_t *x = packed(ours, &a), *y = packed(theirs, &b);
    expect(a == b && memcmp(x, y, a) == 0);
    free(x);
    free(y);
    ps_decode_free(ours);
    protobuf_c_message_free_unpacked(theirs, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct ps_slices in = slices_of(data + 2, size - 2, data[1] ? data[1] : size);
    message(types[data[0] % (sizeof types / sizeof *types)], &in);
    oracle(types[data[0] % (sizeof types / sizeof *types)], data + 2, size - 2);
    ps_slices_clear(&in);
    return 0;
}
