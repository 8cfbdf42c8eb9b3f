// SPDX-License-Identifier: Apache-2.0
// Messages between bytes and structs, one mechanism for both transports and both directions.
//
// Receives slice lists from rpc; hands headers (decoded by decode.c) and payloads (the received bytes, where they lie)
// to the service and to libclient. No state; any thread.
#ifndef PS_COMMON_WIRE_H
#define PS_COMMON_WIRE_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/error.h"
#include "common/wire/slice.h"

enum {
    PS_PROTOCOL = 2,
    PS_PAYLOAD_FIELD = 15,
    PS_HEADER_MAX = 4 << 20,     // bytes of a message without its payload
    PS_DECODE_MAX = 32 << 20,    // heap that one decoded header may take
    PS_MESSAGE_MAX = 8 << 20,    // bytes of a whole message
    PS_CHUNK_MAX = 4 << 20,      // bytes of payload in a request; of a whole reply to a read
    PS_BLOCK_BYTES = 512 << 10,  // bytes of values in a block
    PS_MSG_WRITE_MORE = 5,       // bytes that ps_msg_write writes at most besides the message
    PS_WINDOW = 256,             // open sequences of one client
};

// Decodes a message; *payload (cleared first) gets references to the bytes of field 15, which must come last.
// The header is decoded with an allocator that refuses to pass PS_DECODE_MAX. Free with ps_msg_free().
// INVALID_ARGUMENT: not this message, a payload that is not the last field, or a string that is not UTF-8 or has a NUL
// in it.
// RESOURCE_EXHAUSTED: over a bound.
enum ps_code ps_msg_unpack(const ProtobufCMessageDescriptor *type, const struct ps_slices *in, ProtobufCMessage **out,
                           struct ps_slices *payload, struct ps_error *e);
void ps_msg_free(ProtobufCMessage *m);
// Finds the two parts of a message and decodes neither: the header is the first *header bytes, *payload (cleared first)
// gets references. The same bounds and errors; `name` is the message's.
enum ps_code ps_msg_split(const char *name, const struct ps_slices *in, size_t *header, struct ps_slices *payload,
                          struct ps_error *e);

// Appends the message to *out: the header in one fresh slice, then the payload's own slices (moved; may be NULL).
// Where there is no memory *out is broken.
void ps_msg_pack(const ProtobufCMessage *m, struct ps_slices *payload, struct ps_slices *out);

// Writes the message's header to memory that has room for it; payload_len bytes are to follow. Returns its length: that
// of the message, and at most PS_MSG_WRITE_MORE bytes more.
size_t ps_msg_write(const ProtobufCMessage *m, size_t payload_len, uint8_t *to);

// Where records wait to be sent, a request, and its reply, goes before those of a lower priority; never before one that
// has none (0).
static inline bool ps_goes_before(uint32_t priority, uint32_t other)
{
    return other && priority > other;
}

struct ps_record_head {
    uint64_t id;
    uint32_t method, timeout_ms, code, priority;
    const char *error;
};

// One record of the gathered stream (message Record). body holds references.
struct ps_record {
    uint64_t id;
    uint32_t method;      // enum of the proto
    uint32_t timeout_ms;  // requests
    uint32_t code;        // replies
    uint32_t priority;    // requests
    char error[512];      // replies
    struct ps_slices body;
};

// Takes the record that starts at *offset of a StreamMessage and moves *offset past it. Skips fields it does not
// know. INVALID_ARGUMENT: not a record. The caller clears r->body.
enum ps_code ps_record_next(const struct ps_slices *message, size_t *offset, struct ps_record *r, struct ps_error *e);
void ps_record_pack(struct ps_record *r, struct ps_slices *out);  // moves r->body
// Writes the same record without its body, of which body_len bytes are to follow, to memory that has room for
// PS_RECORD_HEAD bytes and the error text (NULL: none). Returns how many it wrote.
enum { PS_RECORD_HEAD = 48 };
size_t ps_record_write(const struct ps_record_head *r, size_t body_len, uint8_t *to);

#endif
