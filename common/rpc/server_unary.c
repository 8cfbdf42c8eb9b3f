// SPDX-License-Identifier: Apache-2.0
//
// A unary call: taken up with its request, handed over, answered with one batch. Whether its client is still there is
// heard all the while.
//
// Calls of a lane (ps_method_lane) wait for nobody's data: where calls or requests have no room they are taken in a
// reserve of their own.
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
    atomic_uint refs;   // until it is answered, until it is closed, and while it is handed over or cancelled
    atomic_uint seen;   // of enum unary_seen
    enum ps_lane lane;  // whose room it has
    grpc_byte_buffer *incoming;
    grpc_byte_buffer *message;  // the answer
    struct ps_event closed, received, answered;
    struct ps__receiver receiver;
    struct ps__sender sender;
    int cancelled;
    struct ps_identity from;
};

// The handler is asked to end a call once it was handed over and its client is gone, in whichever order.
enum unary_seen { UNARY_HANDED_OVER = 1, UNARY_GONE = 2, UNARY_ANSWERED = 4 };

static void unary_unref(struct unary *u)
{
    if (atomic_fetch_sub(&u->refs, 1) != 1)
        return;
    struct ps_server *s = u->base.server;
    atomic_fetch_sub(&s->budget.answers, u->base.bytes);
    if (u->lane)
        ps__budget_return_lane(&s->budget, u->lane);
    else
        ps__budget_return_calls(&s->budget, 1, PS__UNARY_BYTES);
    ps_slices_clear(&u->base.call.request);
    if (u->message)
        grpc_byte_buffer_destroy(u->message);
    grpc_call_unref(u->grpc);
    free(u);
    ps__server_leave(s, NULL);
}

// Notes what was seen; cancels where that makes both. The caller has a reference.
static void unary_saw(struct unary *u, enum unary_seen what)
{
    struct ps_server *s = u->base.server;
    unsigned both = UNARY_HANDED_OVER | UNARY_GONE, before = atomic_fetch_or(&u->seen, what);
    if (((before | what) & both) == both && !(before & UNARY_ANSWERED) && s->options.cancel)
        s->options.cancel(s->options.ctx, &u->base.call);
}

static void unary_on_closed(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct unary *u = PS_CONTAINER(ev, struct unary, closed);
    if (u->cancelled)
        unary_saw(u, UNARY_GONE);
    unary_unref(u);
}

// ---- the answer ---------------------------------------------------------------------------------------------------

static void unary_on_answered(struct ps_event *ev, bool ok)
{
    (void)ok;  // a client that is gone does not hear it
    struct unary *u = PS_CONTAINER(ev, struct unary, answered);
    ps__budget_end_send(&u->base.server->budget, &u->sender);
    unary_unref(u);
}

// Small answers are sent whatever others leave unread.
enum { LARGE_ANSWER = 64 << 10 };

static void unary_reply(struct ps__call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct unary *u = (struct unary *)call;
    struct ps_server *s = u->base.server;
    atomic_fetch_or(&u->seen, UNARY_ANSWERED);
    if (code == PS_OK && body->len > LARGE_ANSWER && !ps__budget_has_answers(&s->budget)) {
        code = PS_RESOURCE_EXHAUSTED;
        text = "too many answers wait here for clients that do not read them";
        ps_slices_clear(body);
    } else if (code == PS_OK && !(u->message = ps_slices_to_buffer(body, &s->loans))) {
        code = PS_RESOURCE_EXHAUSTED;
        text = "no memory for the reply";
    }
    u->base.bytes = u->message ? grpc_byte_buffer_length(u->message) : 0;
    atomic_fetch_add(&s->budget.answers, u->base.bytes);
    ps_slices_clear(&u->base.call.request);
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[3] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = (grpc_status_code)code, .status_details = &details}},
    };
    size_t n = 2;
    if (u->message)
        ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = u->message};
    ps__budget_begin_send(&s->budget, &u->sender, u->grpc);
    if (!ps_cq_batch(&s->cq, u->grpc, ops, n, &u->answered)) {
        ps__budget_end_send(&s->budget, &u->sender);
        unary_unref(u);
    }
    grpc_slice_unref(details);
}

// ---- the request --------------------------------------------------------------------------------------------------

// What the next one may bring: the largest of late.
static void unary_learn(struct ps__budget *budget, size_t bytes)
{
    size_t was = atomic_load(&budget->unary_bytes), faded = was - was / 8;
    atomic_store(&budget->unary_bytes, bytes > faded ? bytes : faded);
}

static void unary_hand_over(struct unary *u)
{
    struct ps_server *s = u->base.server;
    atomic_fetch_add(&u->refs, 1);
    s->options.call(s->options.ctx, &u->base.call);
    unary_saw(u, UNARY_HANDED_OVER);
    unary_unref(u);
}

static void unary_on_received(struct ps_event *ev, bool ok)
{
    (void)ok;  // without a message, the client is gone or did not keep to the rules
    struct unary *u = PS_CONTAINER(ev, struct unary, received);
    struct ps_server *s = u->base.server;
    struct ps_call *call = &u->base.call;
    if (!u->lane)
        ps__budget_received(&s->budget, &u->receiver);
    if (!u->incoming) {
        ps_call_reply(call, PS_INVALID_ARGUMENT, "the call brought no message", NULL);
    } else if (!ps__server_received(s, u->incoming, &call->request)) {
        ps_call_reply(call, PS_RESOURCE_EXHAUSTED, "no memory for the request", NULL);
    } else {
        if (!u->lane)
            unary_learn(&s->budget, call->request.len);
        unary_hand_over(u);
    }
}

static void unary_receive(struct ps__receiver *r)
{
    struct unary *u = PS_CONTAINER(r, struct unary, receiver);
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->incoming};
    if (ps_cq_batch(&u->base.server->cq, u->grpc, &op, 1, &u->received))
        return;
    if (!u->lane)
        ps__budget_received(&u->base.server->budget, r);
    unary_unref(u);
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
    u->closed.fn = unary_on_closed;
    u->received.fn = unary_on_received;
    u->answered.fn = unary_on_answered;
    u->receiver.go = unary_receive;
    atomic_init(&u->refs, 2);
    atomic_init(&u->seen, 0);
    ps__server_enter(s, NULL);
    return u;
}

// A batch of its own, at once: a call that waits for another's must not wait for a client that is gone.
static void unary_listen(struct unary *u)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &u->cancelled};
    if (!ps_cq_batch(&u->base.server->cq, u->grpc, &op, 1, &u->closed))
        unary_unref(u);
}

void ps__unary_begin(struct ps_server *s, int method, grpc_call *grpc, uint64_t deadline,
                     const struct ps_identity *from)
{
    struct unary *u = unary_new(s, grpc);
    if (!u)
        return;
    struct ps_call *call = &u->base.call;
    u->from = *from;
    call->from = &u->from;
    call->method = method;
    call->deadline = ps__answer_by(ps_now(), deadline);
    u->lane = ps_method_lane(method);
    if (u->lane && !ps__budget_take_lane(&s->budget, u->lane))
        u->lane = PS_LANE_NONE;
    bool fits = u->lane || ps__budget_take_calls(&s->budget, 1, PS__UNARY_BYTES);
    unary_listen(u);
    if (u->lane) {
        unary_receive(&u->receiver);
    } else if (fits && !ps__budget_is_full(&s->budget)) {
        if (ps__budget_ask(&s->budget, &u->receiver, 0, atomic_load(&s->budget.unary_bytes)))
            unary_receive(&u->receiver);
    } else {
        char text[160];
        snprintf(text, sizeof text, "%s: more requests wait here than there is room for: %zu MiB, %d calls",
                 ps_method_name(method), s->budget.bytes >> 20, PS_SERVER_CALLS);
        ps_call_reply(call, PS_RESOURCE_EXHAUSTED, text, NULL);
    }
}
