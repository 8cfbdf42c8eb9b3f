// SPDX-License-Identifier: Apache-2.0
//
// Who has called a ps task, and what, in the words of psctl's tables.
#ifndef PSCTL_CALLER_H
#define PSCTL_CALLER_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

// "worker 3"; NULL: 0, which is none. worker: as in Caller.
json_t *caller_worker(uint32_t worker);
// The same, or the beginning of the id of a client that is none; NULL: the call named no caller.
json_t *caller_name(uint32_t worker, const ProtobufCBinaryData *client);
const char *caller_method(int method);  // "PULL"; NULL: not known

#endif
