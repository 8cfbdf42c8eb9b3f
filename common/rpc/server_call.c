// SPDX-License-Identifier: Apache-2.0
//
// What every kind of call needs of the server: memory, a place in its count, the way back. Knows no kind of call.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/rpc/server_inside.h"
#include "common/wire/wire.h"

static size_t call_own_bytes(size_t size)
{
    const size_t align = _Alignof(max_align_t);
    return (size + align - 1) / align * align;
}

static void call_init(struct ps_server *s, struct ps__call *c, size_t own)
{
    c->server = s;
    c->call.user = (char *)c + own;
}

void *ps__call_alloc(struct ps_server *s, size_t size)
{
    size_t own = call_own_bytes(size);
    struct ps__call *c = ps_try_alloc(own + s->options.call_bytes);
    if (c)
        call_init(s, c, own);
    return c;
}

void ps__call_renew(struct ps_server *s, void *call, size_t size)
{
    size_t own = call_own_bytes(size);
    memset(call, 0, own + s->options.call_bytes);
    call_init(s, call, own);
}

// None where a sanitizer is to see who uses a call too long.
#ifdef __SANITIZE_ADDRESS__
enum { IDLE_CALLS = 0, TAKEN_CALLS = 32 };
#else
enum { IDLE_CALLS = 1024, TAKEN_CALLS = 32 };
#endif

static void idle_free(struct ps__idle *list)
{
    while (list) {
        struct ps__idle *next = list->next;
        free(list);
        list = next;
    }
}

struct ps__idle *ps__idle_take(struct ps_server *s)
{
    struct ps__idle *list = NULL, *one;
    pthread_mutex_lock(&s->lock);
    for (int n = 0; n < TAKEN_CALLS && (one = s->idle); n++) {
        s->idle = one->next;
        s->n_idle--;
        one->next = list;
        list = one;
    }
    pthread_mutex_unlock(&s->lock);
    return list;
}

void ps__idle_give(struct ps_server *s, struct ps__idle *list)
{
    struct ps__idle **end = &list;
    size_t n = 0;
    if (!list)
        return;
    for (; *end; n++)
        end = &(*end)->next;
    pthread_mutex_lock(&s->lock);
    if (s->n_idle + n <= IDLE_CALLS && s->n_streams) {
        *end = s->idle;
        s->idle = list;
        s->n_idle += n;
        list = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    idle_free(list);
}

void ps_call_let_go(struct ps_call *call)
{
    struct ps__call *c = (struct ps__call *)call;
    if (c->let_go)
        c->let_go(c);
}

void ps_call_reply(struct ps_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct ps__call *c = (struct ps__call *)call;
    struct ps_slices none = PS_SLICES_EMPTY;
    body = body ? body : &none;
    if (code == PS_OK && body->broken) {
        code = PS_RESOURCE_EXHAUSTED;
        text = "no memory for the reply";
    } else if (code == PS_OK && body->len > PS_BODY_MAX) {
        code = PS_INTERNAL;
        text = "the reply is larger than a message may be";
    }
    if (code != PS_OK)
        ps_slices_clear(body);
    c->reply(c, code, text ? text : "", body);
}

// Part of the time is left for the way back and for what is late here; of short times, a quarter.
uint64_t ps__answer_by(uint64_t now, uint64_t deadline)
{
    const uint64_t margin = 150 * PS_MS;
    if (deadline == UINT64_MAX || deadline <= now)
        return deadline;
    uint64_t left = deadline - now;
    return deadline - (left / 4 < margin ? left / 4 : margin);
}

void ps__server_unref(struct ps_server *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    pthread_cond_destroy(&s->called);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->known_lock);
    ps__budget_fini(&s->budget);
    for (size_t i = 0; i < s->n_tls; i++)
        ps_tls_close(s->tls[i].tls);
    ps_munge_close(s->options.munge);
    free(s->known_as);
    free(s->tls);
    free(s->threads);
    free(s->ports);
    free(s->services);
    free(s);
}

bool ps__server_enter(struct ps_server *s, struct ps__stream *stream)
{
    atomic_fetch_add(&s->refs, 1);
    pthread_mutex_lock(&s->lock);
    s->live++;
    if (stream) {
        s->n_streams++;
        TAILQ_INSERT_TAIL(&s->streams, stream, link);
        pthread_cond_broadcast(&s->called);
    }
    bool draining = s->draining;
    pthread_mutex_unlock(&s->lock);
    return draining;
}

void ps__server_leave(struct ps_server *s, struct ps__stream *stream)
{
    struct ps__idle *dropped = NULL;
    pthread_mutex_lock(&s->lock);
    if (stream) {
        s->n_streams--;
        TAILQ_REMOVE(&s->streams, stream, link);
    }
    if (s->n_streams == 0) {
        pthread_cond_broadcast(&s->called);
        dropped = s->idle;
        s->idle = NULL;
        s->n_idle = 0;
    }
    if (--s->live == s->n_served)
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    idle_free(dropped);
    ps__server_unref(s);
}

static void call_on_freed(void *arg, size_t bytes)
{
    struct ps_server *s = arg;
    atomic_fetch_sub(&s->budget.requests, bytes);
    ps__server_unref(s);
}

bool ps__server_received(struct ps_server *s, grpc_byte_buffer *buffer, struct ps_slices *out)
{
    size_t bytes = grpc_byte_buffer_length(buffer);
    atomic_fetch_add(&s->refs, 1);
    atomic_fetch_add(&s->budget.requests, bytes);
    bool ok = ps_slices_from_buffer(out, buffer, call_on_freed, s);
    if (!ok)
        call_on_freed(s, bytes);
    return ok;
}

void ps__server_drop_call(grpc_call *grpc)
{
    grpc_call_cancel_with_status(grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, "no memory for the call", NULL);
    grpc_call_unref(grpc);
}

// A call that is answered with a status before its request is read.
struct refusal {
    struct ps_event ended;
    struct ps_server *server;
    grpc_call *grpc;
    int cancelled;
};

static void refusal_free(struct refusal *r)
{
    struct ps_server *s = r->server;
    ps__budget_return_calls(&s->budget, 1, PS__UNARY_BYTES);
    grpc_call_unref(r->grpc);
    free(r);
    ps__server_leave(s, NULL);
}

static void refusal_on_ended(struct ps_event *ev, bool ok)
{
    (void)ok;  // a client that is gone does not hear it
    refusal_free(PS_CONTAINER(ev, struct refusal, ended));
}

void ps__call_refuse(struct ps_server *s, grpc_call *grpc, enum ps_code code, const char *text)
{
    struct refusal *r = ps_try_alloc(sizeof *r);
    if (!r) {
        ps__server_drop_call(grpc);
        return;
    }
    *r = (struct refusal){.ended.fn = refusal_on_ended, .server = s, .grpc = grpc};
    ps__server_enter(s, NULL);
    ps__budget_take_calls(&s->budget, 1, PS__UNARY_BYTES);
    grpc_slice details = grpc_slice_from_copied_string(text);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &r->cancelled},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
         .data.send_status_from_server = {.status = (grpc_status_code)code, .status_details = &details}},
    };
    if (!ps_cq_batch(&s->cq, grpc, ops, sizeof ops / sizeof *ops, &r->ended))
        refusal_free(r);
    grpc_slice_unref(details);
}
