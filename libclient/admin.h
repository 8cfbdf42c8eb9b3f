// SPDX-License-Identifier: Apache-2.0
//
// One call to one ps task, for tools that steer (psctl). The client is an observer (rank -1): making it connects to
// nobody, so one task that is down does not hide the others; it shows here, per call.
#ifndef PSC_ADMIN_H
#define PSC_ADMIN_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/error.h"
#include "libclient/psclient.h"

// As psc_connect, for calls that are made once: what an attempt to connect takes is bounded by options->timeout_ms.
psc_code psc__admin_connect(const psc_cluster *cluster, const psc_options *options, psc_client **client,
                            psc_error *error);

// Sends request as `method` (Method of the proto) and waits for the answer, at most timeout_ms. The Caller of data and
// membership requests is filled in here. *reply is set on success only; ps_msg_free() frees it.
// Errors are prefixed with the task and its address: "ps:1 (host:7071): ...". Never tries a second time.
enum ps_code psc__admin_call(struct psc_client *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply, int timeout_ms,
                             struct ps_error *e);

#endif
