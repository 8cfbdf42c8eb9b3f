// SPDX-License-Identifier: Apache-2.0
// Decodes protobuf messages into protobuf-c's structs, as protobuf-c does, but into one allocation where that is
// enough: a request on the hot path costs one malloc, not one for each of its parts. Encoding is protobuf-c's, which
// allocates nothing.
//
// Where this accepts a message, protobuf-c does too, with the same contents. Unknown fields are skipped and not kept; a
// string that is no UTF-8 or has a NUL in it is refused.
//
// Receives from: wire. Hands to: nobody. No state; any thread.
#ifndef PS_COMMON_DECODE_H
#define PS_COMMON_DECODE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

enum ps_decoded { PS_DECODED, PS_DECODED_MALFORMED, PS_DECODED_NOT_TEXT, PS_DECODED_TOO_LARGE, PS_DECODED_NO_MEMORY };

// budget: bytes of heap that the message may take. *out only where it is decoded; free it with ps_decode_free.
enum ps_decoded ps_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len, size_t budget,
                          ProtobufCMessage **out);
void ps_decode_free(ProtobufCMessage *m);  // may be NULL

#endif
