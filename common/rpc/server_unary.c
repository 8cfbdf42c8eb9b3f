// SPDX-License-Identifier: Apache-2.0
//
// A unary call: taken up with its request, handed over, answered with one batch.
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/rpc/buffer.h"
#include "common/rpc/method.h"
#include "common/rpc/server_inside.h"
#include "common/wire.h"

struct unary {
    struct ps__call base;
    grpc_call *grpc;
    grpc_byte_buffer *message;  // the answer
    struct ps_event answered;
    int cancelled;
    bool admitted;
};

static void unary_free(struct unary *u)
{
    struct ps_server *s = u->base.server;
    if (u->admitted) {
        atomic_fetch_sub(&s->unary_calls, 1);
        atomic_fetch_sub(&s->unary_bytes, u->base.bytes);
    }
    ps_rope_clear(&u->base.call.request);
    if (u->message)
        grpc_byte_buffer_destroy(u->message);
    grpc_call_unref(u->grpc);
    free(u);
    ps__server_leave(s, NULL);
}

static void on_answered(struct ps_event *ev, bool ok)
{
    (void)ok;  // a client that is gone does not hear it
    unary_free(PS_CONTAINER(ev, struct unary, answered));
}

static void unary_reply(struct ps__call *call, enum ps_code code, const char *text, struct ps_rope *body)
{
    struct unary *u = (struct unary *)call;
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &u->cancelled},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = (grpc_status_code)code, .status_details = &details}},
    };
    size_t n = 3;
    if (code == PS_OK) {
        u->message = ps_rope_to_buffer(body, &u->base.server->loans);
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = u->message};
    }
    if (!ps_cq_batch(&u->base.server->cq, u->grpc, ops, n, &u->answered))
        unary_free(u);
    grpc_slice_unref(details);
}

static struct unary *unary_new(struct ps_server *s, grpc_call *grpc)
{
    struct unary *u = ps__call_alloc(s, sizeof *u);
    u->base.reply = unary_reply;
    u->grpc = grpc;
    u->answered.fn = on_answered;
    ps__server_enter(s, NULL);
    return u;
}

static bool admit(struct ps_server *s, struct unary *u)
{
    u->admitted = true;
    u->base.bytes = u->base.call.request.len;
    size_t calls = atomic_fetch_add(&s->unary_calls, 1) + 1;
    size_t bytes = atomic_fetch_add(&s->unary_bytes, u->base.bytes) + u->base.bytes;
    return calls <= PS_UNARY_CALLS && (bytes <= PS_UNARY_BYTES || calls == 1);
}

void ps__unary_begin(struct ps_server *s, int method, grpc_call *grpc, uint64_t deadline, grpc_byte_buffer *request)
{
    struct unary *u = unary_new(s, grpc);
    struct ps_call *call = &u->base.call;
    call->method = method;
    call->deadline = ps__answer_by(ps_now(), deadline);
    if (request)
        ps_rope_from_buffer(&call->request, request);
    if (admit(s, u)) {
        s->options.call(s->options.ctx, call);
        return;
    }
    char text[128];
    snprintf(text, sizeof text, "%s: more than %d calls or %d MiB wait for an answer here", ps_method_name(method),
             PS_UNARY_CALLS, PS_UNARY_BYTES >> 20);
    ps_call_reply(call, PS_RESOURCE_EXHAUSTED, text, NULL);
}

void ps__unary_refuse(struct ps_server *s, grpc_call *grpc, enum ps_code code, const char *text)
{
    ps_call_reply(&unary_new(s, grpc)->base.call, code, text, NULL);
}
