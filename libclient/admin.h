// SPDX-License-Identifier: Apache-2.0
//
// One call to one ps task, for tools that steer (psctl). The client is an observer (rank -1) made by psc_connect:
// that connects to nobody, so one task that is down does not hide the others; it shows here, per call.
#ifndef PSC_ADMIN_H
#define PSC_ADMIN_H

#include <protobuf-c/protobuf-c.h>

#include "common/error.h"

struct psc_client;

// Sends request as `method` (Method of the proto) and waits for the answer, at most timeout_ms. The Caller of data and
// membership requests is filled in here. *reply is set on success only; ps_msg_free() frees it.
// Errors are prefixed with the task and its address: "ps:1 (host:7071): ...". Never tries a second time.
enum ps_code psc__admin_call(struct psc_client *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply, int timeout_ms,
                             struct ps_error *e);

#endif
