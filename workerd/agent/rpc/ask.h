// SPDX-License-Identifier: Apache-2.0
//
// Questions of an agent to ps task 0, one at a time.
//
// Receives from: agent. Hands to: common/rpc. Threads: one asks; the client's own takes the answer.
#ifndef WK_ASK_H
#define WK_ASK_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"

struct wk_ask;

// tls and munge outlive it; NULL: none. NULL is returned where there is no thread for it (RESOURCE_EXHAUSTED).
struct wk_ask *wk_ask_open(const char *const *addresses, size_t n, struct ps_tls *tls, struct ps_munge *munge,
                           struct ps_error *e);
void wk_ask_close(struct wk_ask *a);
// Waits for the answer, some seconds at most. *reply is set on success alone; ps_msg_free frees it.
enum ps_code wk_ask(struct wk_ask *a, int method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct ps_error *e);

#endif
