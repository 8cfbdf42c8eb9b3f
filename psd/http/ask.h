// SPDX-License-Identifier: Apache-2.0
//
// A call of this process to its own core, which waits for the answer.
//
// Receives from: the HTTP pages. Hands to: psd_core_call. Threads: any that may wait.
#ifndef PSD_HTTP_ASK_H
#define PSD_HTTP_ASK_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/error.h"
#include "psd/service/core.h"

// *reply, of that type, is freed with ps_msg_free. An error is the method's, or that of a reply that is not understood.
enum ps_code psd_http_ask(struct psd_core *core, int method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct ps_error *e);

#endif
