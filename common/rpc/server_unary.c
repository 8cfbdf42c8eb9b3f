// SPDX-License-Identifier: Apache-2.0
//
// A unary call: taken up with its request, handed over, answered with one batch.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/rpc/buffer.h"
#include "common/rpc/method.h"
#include "common/rpc/server_inside.h"
#include "common/wire/wire.h"

struct unary {
    struct ps__call base;
    grpc_call *grpc;
    grpc_byte_buffer *incoming;
    grpc_byte_buffer *message;  // the answer
    struct ps_event received, answered;
    struct ps__receiver receiver;
    struct ps__sender sender;
    int cancelled;
};

static void unary_free(struct unary *u)
{
    struct ps_server *s = u->base.server;
    atomic_fetch_sub(&s->room.answers, u->base.bytes);
    ps__room_return_calls(&s->room, 1, PS__UNARY_BYTES);
    ps_slices_clear(&u->base.call.request);
    if (u->message)
        grpc_byte_buffer_destroy(u->message);
    grpc_call_unref(u->grpc);
    free(u);
    ps__server_leave(s, NULL);
}

// ---- the answer ---------------------------------------------------------------------------------------------------

static void unary_on_answered(struct ps_event *ev, bool ok)
{
    (void)ok;  // a client that is gone does not hear it
    struct unary *u = PS_CONTAINER(ev, struct unary, answered);
    ps__room_end_send(&u->base.server->room, &u->sender);
    unary_free(u);
}

// Small answers are sent whatever others leave unread.
enum { LARGE_ANSWER = 64 << 10 };

static void unary_reply(struct ps__call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct unary *u = (struct unary *)call;
    struct ps_server *s = u->base.server;
    if (code == PS_OK && body->len > LARGE_ANSWER && !ps__room_has_answers(&s->room)) {
        code = PS_RESOURCE_EXHAUSTED;
        text = "too many answers wait here for clients that do not read them";
        ps_slices_clear(body);
    } else if (code == PS_OK && !(u->message = ps_slices_to_buffer(body, &s->loans))) {
        code = PS_RESOURCE_EXHAUSTED;
        text = "no memory for the reply";
    }
    u->base.bytes = u->message ? grpc_byte_buffer_length(u->message) : 0;
    atomic_fetch_add(&s->room.answers, u->base.bytes);
    ps_slices_clear(&u->base.call.request);
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &u->cancelled},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = (grpc_status_code)code, .status_details = &details}},
    };
    size_t n = 3;
    if (u->message)
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = u->message};
    ps__room_begin_send(&s->room, &u->sender, u->grpc);
    if (!ps_cq_batch(&s->cq, u->grpc, ops, n, &u->answered)) {
        ps__room_end_send(&s->room, &u->sender);
        unary_free(u);
    }
    grpc_slice_unref(details);
}

// ---- the request --------------------------------------------------------------------------------------------------

// What the next one may bring: the largest of late.
static void unary_learn(struct ps__room *room, size_t bytes)
{
    size_t was = atomic_load(&room->unary_bytes), faded = was - was / 8;
    atomic_store(&room->unary_bytes, bytes > faded ? bytes : faded);
}

static void unary_on_received(struct ps_event *ev, bool ok)
{
    (void)ok;  // without a message, the client is gone or did not keep to the rules
    struct unary *u = PS_CONTAINER(ev, struct unary, received);
    struct ps_server *s = u->base.server;
    struct ps_call *call = &u->base.call;
    ps__room_received(&s->room, &u->receiver);
    if (!u->incoming) {
        ps_call_reply(call, PS_INVALID_ARGUMENT, "the call brought no message", NULL);
    } else if (!ps__server_received(s, u->incoming, &call->request)) {
        ps_call_reply(call, PS_RESOURCE_EXHAUSTED, "no memory for the request", NULL);
    } else {
        unary_learn(&s->room, call->request.len);
        s->options.call(s->options.ctx, call);
    }
}

static void unary_receive(struct ps__receiver *r)
{
    struct unary *u = PS_CONTAINER(r, struct unary, receiver);
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->incoming};
    if (ps_cq_batch(&u->base.server->cq, u->grpc, &op, 1, &u->received))
        return;
    ps__room_received(&u->base.server->room, r);
    unary_free(u);
}

static struct unary *unary_new(struct ps_server *s, grpc_call *grpc)
{
    struct unary *u = ps__call_alloc(s, sizeof *u);
    if (!u) {
        ps__server_drop_call(grpc);
        return NULL;
    }
    u->base.reply = unary_reply;
    u->grpc = grpc;
    u->received.fn = unary_on_received;
    u->answered.fn = unary_on_answered;
    u->receiver.go = unary_receive;
    ps__server_enter(s, NULL);
    return u;
}

void ps__unary_begin(struct ps_server *s, int method, grpc_call *grpc, uint64_t deadline)
{
    struct unary *u = unary_new(s, grpc);
    if (!u)
        return;
    struct ps_call *call = &u->base.call;
    call->method = method;
    call->deadline = ps__answer_by(ps_now(), deadline);
    bool room = ps__room_take_calls(&s->room, 1, PS__UNARY_BYTES);
    if (room && !ps__room_is_full(&s->room)) {
        if (ps__room_ask(&s->room, &u->receiver, 0, atomic_load(&s->room.unary_bytes)))
            unary_receive(&u->receiver);
        return;
    }
    char text[160];
    snprintf(text, sizeof text, "%s: more requests wait here than there is room for: %zu MiB, %d calls",
             ps_method_name(method), s->room.bytes >> 20, PS_SERVER_CALLS);
    ps_call_reply(call, PS_RESOURCE_EXHAUSTED, text, NULL);
}
