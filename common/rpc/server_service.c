// SPDX-License-Identifier: Apache-2.0
//
// A call of a method outside of the contract: received, answered, sent; one small message each way at a time, whatever
// the client does.
//
// Whoever has something for a call to do (a request has come, the server drains, a watched answer may have changed)
// calls served_changed(). One thread works on a call at a time; while a message is on its way out none does, and
// served_changed() only notes that there is more to do.
#include <grpc/byte_buffer_reader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/rpc/server_inside.h"

struct ps__served {
    struct ps_server *server;
    struct ps__service *service;
    TAILQ_ENTRY(ps__served) link;  // in the server's, under its lock
    grpc_call *grpc;
    atomic_size_t refs;  // one per operation of the core
    struct ps_event received, sent, ended, closed;
    grpc_byte_buffer *incoming, *outgoing;
    int cancelled;

    // Of the thread that set busy, or of the operation under way: while one receives, the request is that one's.
    grpc_slice request;  // a copy, which pins nothing of gRPC's; empty where it is too long
    size_t request_len;
    uint8_t last[PS_WATCHED_MAX];  // what a watcher was sent
    size_t last_len;
    bool sent_any;

    pthread_mutex_t lock;  // all below
    bool busy;             // a thread works on it, a message is being sent, or its status: then for good
    bool changed;          // there is more to look at
    bool asked;            // a request is to be answered; stays with a watcher
    bool said_all;         // the client has
    bool draining;         // the server is
};

// ---- a call begins and ends ---------------------------------------------------------------------------------------

static bool served_enter(struct ps__served *c)
{
    struct ps_server *s = c->server;
    atomic_fetch_add(&s->refs, 1);
    pthread_mutex_lock(&s->lock);
    s->live++;
    s->n_served++;
    TAILQ_INSERT_TAIL(&s->served, c, link);
    bool draining = s->draining;
    pthread_mutex_unlock(&s->lock);
    return draining;
}

static void served_leave(struct ps__served *c)
{
    struct ps_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    TAILQ_REMOVE(&s->served, c, link);
    s->n_served--;
    pthread_mutex_unlock(&s->lock);
    ps__server_leave(s, NULL);
}

static bool served_try_ref(struct ps__served *c)  // under the server's lock; false: it is being freed
{
    size_t n = atomic_load(&c->refs);
    while (n && !atomic_compare_exchange_weak(&c->refs, &n, n + 1))
        continue;
    return n != 0;
}

static void served_unref(struct ps__served *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    grpc_slice_unref(c->request);
    if (c->outgoing)
        grpc_byte_buffer_destroy(c->outgoing);
    grpc_call_unref(c->grpc);
    atomic_fetch_sub(&c->service->calls, 1);
    pthread_mutex_destroy(&c->lock);
    served_leave(c);
    free(c);
}

// ---- operations of the core ---------------------------------------------------------------------------------------

// While it is under way it has a reference.
static void served_start(struct ps__served *c, const grpc_op *ops, size_t n, struct ps_event *ev)
{
    atomic_fetch_add(&c->refs, 1);
    if (ps_cq_batch(&c->server->cq, c->grpc, ops, n, ev))
        return;
    grpc_call_cancel(c->grpc, NULL);
    served_unref(c);
}

static void served_receive(struct ps__served *c)
{
    grpc_slice_unref(c->request);
    c->request = grpc_empty_slice();
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->incoming};
    served_start(c, &op, 1, &c->received);
}

static grpc_op served_status_op(enum ps_code code, grpc_slice *text)
{
    return (grpc_op){
        .op = GRPC_OP_SEND_STATUS_FROM_SERVER,
        .data.send_status_from_server = {.status = (grpc_status_code)code, .status_details = text},
    };
}

static void served_end(struct ps__served *c, enum ps_code code, const char *text)
{
    grpc_slice details = grpc_slice_from_copied_string(code ? text : "");
    grpc_op op = served_status_op(code, &details);
    served_start(c, &op, 1, &c->ended);
    grpc_slice_unref(details);
}

static void served_send(struct ps__served *c, const struct ps_slices *reply)
{
    bool last = c->service->method->kind == PS_SERVICE_UNARY;
    grpc_slice body = grpc_slice_malloc(reply->len), none = grpc_empty_slice();
    ps_slices_copy_out(reply, 0, reply->len, GRPC_SLICE_START_PTR(body));
    c->outgoing = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = c->outgoing},
        served_status_op(PS_OK, &none),
    };
    served_start(c, ops, last ? 2 : 1, last ? &c->ended : &c->sent);
}

// ---- work ---------------------------------------------------------------------------------------------------------

static enum ps_code served_answer(struct ps__served *c, struct ps_slices *reply, struct ps_error *e)
{
    const struct ps_service_method *method = c->service->method;
    if (c->request_len > PS_SERVICE_REQUEST_MAX)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: a request of %zu bytes, at most %d are accepted", method->path,
                       c->request_len, PS_SERVICE_REQUEST_MAX);
    struct ps_slices in = PS_SLICES_EMPTY;
    ps_slices_add(&in, (struct ps_slice){GRPC_SLICE_START_PTR(c->request), GRPC_SLICE_LENGTH(c->request), NULL});
    enum ps_code code = in.broken ? ps_no_memory(e, method->path) : method->answer(method->ctx, &in, reply, e);
    ps_slices_clear(&in);
    if (code == PS_OK && reply->broken)
        code = ps_no_memory(e, method->path);
    if (code == PS_OK && method->kind == PS_SERVICE_WATCH && reply->len > PS_WATCHED_MAX)
        code = ps_fail(e, PS_INTERNAL, "%s: a reply of %zu bytes, at most %d can be watched", method->path, reply->len,
                       PS_WATCHED_MAX);
    return code;
}

// Not what the watcher was sent last? Then it is about to be.
static bool served_is_news(struct ps__served *c, const struct ps_slices *reply)
{
    uint8_t now[PS_WATCHED_MAX];
    ps_slices_copy_out(reply, 0, reply->len, now);
    if (c->sent_any && c->last_len == reply->len && memcmp(c->last, now, reply->len) == 0)
        return false;
    memcpy(c->last, now, reply->len);
    c->last_len = reply->len;
    return c->sent_any = true;
}

// What there is to do for a call, in this order.
struct news {
    bool asked, draining, said_all;
};

// True: an operation was started, which leaves the call busy.
static bool served_step(struct ps__served *c, const struct news *news)
{
    const struct ps_service_method *method = c->service->method;
    bool watched = method->kind == PS_SERVICE_WATCH;
    if (news->asked) {
        struct ps_slices reply = PS_SLICES_EMPTY;
        struct ps_error e;
        enum ps_code code = served_answer(c, &reply, &e);
        bool sends = code == PS_OK && (!watched || served_is_news(c, &reply));
        if (sends)
            served_send(c, &reply);
        else if (code)
            served_end(c, code, e.text);
        ps_slices_clear(&reply);
        if (sends || code)
            return true;
    }
    if (news->draining)
        served_end(c, PS_UNAVAILABLE, PS__SHUTTING_DOWN);
    else if (news->said_all && method->kind == PS_SERVICE_EACH)
        served_end(c, PS_OK, "");
    else if (news->said_all)
        served_end(c, PS_INVALID_ARGUMENT, "the call brought no request");
    return news->draining || news->said_all;
}

// By the thread that set c->busy, until there is nothing to do or something on its way. It has a reference.
static void served_work(struct ps__served *c)
{
    bool more, watched = c->service->method->kind == PS_SERVICE_WATCH;
    struct news news;
    do {
        pthread_mutex_lock(&c->lock);
        c->busy = more = c->changed;
        c->changed = false;
        news = (struct news){c->asked, c->draining, c->said_all};
        c->asked &= watched || !more;
        pthread_mutex_unlock(&c->lock);
    } while (more && !served_step(c, &news));
}

static void served_changed(struct ps__served *c)  // locked; lets go of it
{
    bool mine = !c->busy;
    c->changed = true;
    c->busy = true;
    pthread_mutex_unlock(&c->lock);
    if (mine)
        served_work(c);
}

// ---- events -------------------------------------------------------------------------------------------------------

static void served_take_request(struct ps__served *c)
{
    grpc_byte_buffer_reader reader;
    c->request_len = grpc_byte_buffer_length(c->incoming);
    if (c->request_len <= PS_SERVICE_REQUEST_MAX && grpc_byte_buffer_reader_init(&reader, c->incoming)) {
        c->request = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(c->incoming);
}

static void served_on_received(struct ps_event *ev, bool ok)
{
    (void)ok;  // without a message, nothing more comes
    struct ps__served *c = PS_CONTAINER(ev, struct ps__served, received);
    bool asked = c->incoming;
    if (asked)
        served_take_request(c);
    pthread_mutex_lock(&c->lock);
    c->asked = asked;
    c->said_all = !asked;
    served_changed(c);
    served_unref(c);
}

static void served_on_sent(struct ps_event *ev, bool ok)
{
    (void)ok;  // to a client that is gone there is nothing more to receive, and its watch goes with served_on_closed
    struct ps__served *c = PS_CONTAINER(ev, struct ps__served, sent);
    grpc_byte_buffer_destroy(c->outgoing);
    c->outgoing = NULL;
    if (c->service->method->kind == PS_SERVICE_EACH)
        served_receive(c);
    pthread_mutex_lock(&c->lock);
    c->changed = true;
    pthread_mutex_unlock(&c->lock);
    served_work(c);
    served_unref(c);
}

static void served_on_ended(struct ps_event *ev, bool ok)
{
    (void)ok;
    served_unref(PS_CONTAINER(ev, struct ps__served, ended));
}

static void served_on_closed(struct ps_event *ev, bool ok)
{
    (void)ok;
    served_unref(PS_CONTAINER(ev, struct ps__served, closed));
}

// ---- what the server does with it ---------------------------------------------------------------------------------

static void served_refuse(struct ps__served *c)
{
    char text[192];
    snprintf(text, sizeof text, "%s: %d calls are open here already", c->service->method->path, PS_SERVICE_CALLS);
    served_end(c, PS_RESOURCE_EXHAUSTED, text);
}

void ps__service_begin(struct ps_server *s, struct ps__service *service, grpc_call *grpc)
{
    struct ps__served *c = ps_try_alloc(sizeof *c);
    if (!c) {
        grpc_call_cancel(grpc, NULL);
        grpc_call_unref(grpc);
        return;
    }
    c->server = s;
    c->service = service;
    c->grpc = grpc;
    c->received.fn = served_on_received;
    c->sent.fn = served_on_sent;
    c->ended.fn = served_on_ended;
    c->closed.fn = served_on_closed;
    pthread_mutex_init(&c->lock, NULL);
    atomic_init(&c->refs, 1);  // this function's
    c->busy = true;            // until it has begun
    c->request = grpc_empty_slice();
    bool full = atomic_fetch_add(&service->calls, 1) >= PS_SERVICE_CALLS;
    bool draining = served_enter(c);

    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->cancelled},
    };
    served_start(c, ops, 2, &c->closed);
    if (full) {
        served_refuse(c);
    } else {
        served_receive(c);
        pthread_mutex_lock(&c->lock);
        c->draining |= draining;
        c->changed = true;
        pthread_mutex_unlock(&c->lock);
        served_work(c);
    }
    served_unref(c);
}

// The one after c, or the first; referenced, and c is not any more. NULL: that was the last.
static struct ps__served *served_next(struct ps_server *s, struct ps__served *c)
{
    struct ps__served *n;
    pthread_mutex_lock(&s->lock);
    n = c ? TAILQ_NEXT(c, link) : TAILQ_FIRST(&s->served);
    while (n && !served_try_ref(n))
        n = TAILQ_NEXT(n, link);
    pthread_mutex_unlock(&s->lock);
    if (c)
        served_unref(c);
    return n;
}

static void served_changed_all(struct ps_server *s, bool draining)
{
    for (struct ps__served *c = served_next(s, NULL); c; c = served_next(s, c)) {
        pthread_mutex_lock(&c->lock);
        c->draining |= draining;
        served_changed(c);
    }
}

void ps_server_changed(struct ps_server *s)
{
    served_changed_all(s, false);
}

void ps__services_drain(struct ps_server *s)
{
    served_changed_all(s, true);
}
