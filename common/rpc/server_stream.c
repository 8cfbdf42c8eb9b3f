// SPDX-License-Identifier: Apache-2.0
//
// A gathered stream. Messages are received one after the other; each is parsed and its records are handed over in
// order, by one thread at a time. The next message is received meanwhile, once there is room for it. Answers wait in
// the outbox while another message is being sent or handed over, so that a burst of requests is answered with few
// messages. While there are too many of them, no request is handed over.
//
// Every function that changes the state ends with stream_unlock_and_advance(): it looks what can be started now.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/rpc/buffer.h"
#include "common/rpc/method.h"
#include "common/rpc/server_inside.h"
#include "common/wire/wire.h"

struct ps__message {
    STAILQ_ENTRY(ps__message) link;
    struct ps_slices bytes;
};

// A body of so many bytes, as most have, is copied into its record, and its own memory let go of at once.
enum { SMALL_BODY = 64 };

struct ps__record {
    struct ps__call base;
    struct ps__stream *stream;
    TAILQ_ENTRY(ps__record) link;  // of the message it came with, then in the outbox
    TAILQ_ENTRY(ps__record) of_all;
    bool cancelled;   // the handler was asked to end it
    bool cancelling;  // is being asked, by a thread that frees it where it has been answered
    bool answered;    // meanwhile
    uint64_t id;
    uint32_t priority;
    enum ps_code code;  // the answer
    char *text;         // NULL: none
    struct ps_slices body;
    size_t small_len;  // of a body that is kept here
    uint8_t small[SMALL_BODY];
};

// ---- memory -------------------------------------------------------------------------------------------------------

static void stream_ref(struct ps__stream *st)
{
    atomic_fetch_add(&st->refs, 1);
}

bool ps__stream_try_ref(struct ps__stream *st)
{
    size_t n = atomic_load(&st->refs);
    while (n && !atomic_compare_exchange_weak(&st->refs, &n, n + 1))
        continue;
    return n != 0;
}

void ps__stream_unref(struct ps__stream *st)
{
    if (atomic_fetch_sub(&st->refs, 1) != 1)
        return;
    struct ps_server *s = st->server;
    if (st->outgoing)
        grpc_byte_buffer_destroy(st->outgoing);
    grpc_call_unref(st->grpc);
    if (st->user)
        s->options.stream_ended(s->options.ctx, st->user);
    atomic_fetch_sub(&s->budget.answers, st->answer_bytes);
    ps__server_leave(s, st);
    pthread_mutex_destroy(&st->lock);
    free(st);
}

static struct ps__message *message_new(struct ps_server *s, grpc_byte_buffer *buffer)
{
    struct ps__message *m = ps_try_alloc(sizeof *m);
    if (m && ps__server_received(s, buffer, &m->bytes))
        return m;
    if (!m)
        grpc_byte_buffer_destroy(buffer);
    free(m);
    return NULL;
}

static void message_free(struct ps__message *m)
{
    if (m)
        ps_slices_clear(&m->bytes);
    free(m);
}

static void record_clear(struct ps__record *r)
{
    ps_slices_clear(&r->base.call.request);
    ps_slices_clear(&r->body);
    free(r->text);
}

static void record_free(struct ps__record *r)
{
    ps__budget_return_calls(&r->base.server->budget, 1, PS__RECORD_BYTES);
    record_clear(r);
    free(r);
}

static void records_free(struct ps_server *s, struct ps__records *list)
{
    struct ps__record *r;
    struct ps__idle *idle = NULL;
    size_t n = 0;
    for (; (r = TAILQ_FIRST(list)); n++) {
        TAILQ_REMOVE(list, r, link);
        record_clear(r);
        struct ps__idle *one = (struct ps__idle *)(void *)r;
        one->next = idle;
        idle = one;
    }
    if (n)
        ps__budget_return_calls(&s->budget, n, n * PS__RECORD_BYTES);
    ps__idle_give(s, idle);
}

// ---- what can be started ------------------------------------------------------------------------------------------

static size_t stream_request_limit(const struct ps_server *s)
{
    return s->budget.bytes / 4 < PS_STREAM_BYTES ? s->budget.bytes / 4 : PS_STREAM_BYTES;
}

// At most one message waits besides the one that is handed over: how many records it brings is not known yet.
static bool stream_may_receive(const struct ps__stream *st)
{
    return st->state == PS__OPEN && !st->receiving && STAILQ_EMPTY(&st->inbox) &&
           st->request_bytes < stream_request_limit(st->server) &&
           (st->unanswered < PS_STREAM_CALLS || ps__budget_has_calls(&st->server->budget));
}

// May more requests be handed over? Where the server has too many answers, until one is there.
static bool stream_may_answer(const struct ps__stream *st)
{
    size_t bytes = atomic_load_explicit(&st->answer_bytes, memory_order_relaxed);
    return bytes == 0 || (bytes < PS_STREAM_ANSWERS && ps__budget_has_answers(&st->server->budget));
}

// Moves what the next message takes from the outbox to *out.
static void stream_take_outbox(struct ps__stream *st, struct ps__records *out)
{
    struct ps__record *r;
    size_t n = 0, bytes = 0;
    if (st->sending || st->corked || st->state >= PS__FAILED)
        return;
    while ((r = TAILQ_FIRST(&st->outbox)) && n < PS_GATHER_RECORDS) {
        if (n && bytes + r->base.bytes > ps_gather_most(st->gather_limit, r->priority))
            break;
        n++;
        bytes += r->base.bytes;
        TAILQ_REMOVE(&st->outbox, r, link);
        TAILQ_INSERT_TAIL(out, r, link);
    }
    st->sending_bytes = bytes;
    st->sending_at = n ? ps_now() : 0;
}

static bool stream_must_hand_over(const struct ps__stream *st)
{
    bool waiting = !STAILQ_EMPTY(&st->inbox) || st->n_parsed;
    if (st->state >= PS__FAILED)
        return !st->handling && (waiting || !st->has_cancelled);
    return !st->handling && waiting && stream_may_answer(st);
}

// Answers that are sent, or that nobody wants.
static void stream_forget_answers(struct ps__stream *st, size_t bytes)
{
    st->answer_bytes -= bytes;
    atomic_fetch_sub(&st->server->budget.answers, bytes);
}

static bool stream_may_end(const struct ps__stream *st)
{
    bool answered = !st->handling && STAILQ_EMPTY(&st->inbox) && !st->unanswered && TAILQ_EMPTY(&st->outbox);
    return !st->status_sent && !st->sending && (st->state == PS__FAILED || (st->state == PS__ENDING && answered));
}

static void stream_start_receive(struct ps__stream *st, size_t own);
static void stream_start_send(struct ps__stream *st, struct ps__records *records);
static void stream_start_status(struct ps__stream *st);
static void stream_drop_answers(struct ps__stream *st, struct ps__records *dropped)
{
    struct ps__record *r;
    TAILQ_FOREACH(r, &st->outbox, link)
    stream_forget_answers(st, r->base.bytes);
    TAILQ_CONCAT(dropped, &st->outbox, link);
}

// Expects the lock held, and lets go of it. The caller has a reference.
static void stream_unlock_and_advance(struct ps__stream *st)
{
    struct ps__records send = TAILQ_HEAD_INITIALIZER(send), dropped = TAILQ_HEAD_INITIALIZER(dropped);
    if (st->state >= PS__FAILED)
        stream_drop_answers(st, &dropped);
    stream_take_outbox(st, &send);
    bool receiving = stream_may_receive(st), sending = !TAILQ_EMPTY(&send);
    size_t own = st->request_bytes;
    st->receiving |= receiving;
    st->sending |= sending;
    bool ending = stream_may_end(st);
    st->status_sent |= ending;
    pthread_mutex_unlock(&st->lock);

    if (receiving)
        stream_start_receive(st, own);
    if (sending)
        stream_start_send(st, &send);
    if (ending)
        stream_start_status(st);
    records_free(st->server, &dropped);
}

// A batch with one operation; while it is under way it has a reference. False: the queue is shut down.
static bool stream_start(struct ps__stream *st, const grpc_op *op, struct ps_event *ev)
{
    stream_ref(st);
    if (ps_cq_batch(&st->server->cq, st->grpc, op, 1, ev))
        return true;
    pthread_mutex_lock(&st->lock);
    st->state = PS__CUT;
    stream_unlock_and_advance(st);
    ps__stream_unref(st);
    return false;
}

// There is room: by the stream's own question, or by ps__budget_work, for which it keeps a reference.
static void stream_receive(struct ps__stream *st)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &st->incoming};
    if (!stream_start(st, &op, &st->received))
        ps__budget_received(&st->server->budget, &st->receiver);
}

static void stream_receive_late(struct ps__receiver *r)
{
    struct ps__stream *st = PS_CONTAINER(r, struct ps__stream, receiver);
    stream_receive(st);
    ps__stream_unref(st);
}

static void stream_start_receive(struct ps__stream *st, size_t own)
{
    stream_ref(st);
    if (ps__budget_ask(&st->server->budget, &st->receiver, own, st->last_bytes))
        stream_receive_late(&st->receiver);
}

static void stream_end_with(struct ps__stream *st, int state, enum ps_code code, const char *text);

// What was taken to be sent is lost, and so is the stream: its client asks again.
static void stream_fail_send(struct ps__stream *st)
{
    pthread_mutex_lock(&st->lock);
    stream_forget_answers(st, st->sending_bytes);
    st->sending = false;
    pthread_mutex_unlock(&st->lock);
    stream_end_with(st, PS__FAILED, PS_RESOURCE_EXHAUSTED, "no memory for the answers");
}

static void stream_start_send(struct ps__stream *st, struct ps__records *records)
{
    struct ps__record *r;
    struct ps_packer message;
    ps_packer_init(&message, &st->server->loans);
    TAILQ_FOREACH(r, records, link)
    {
        const struct ps_record_head head = {.id = r->id, .code = r->code, .error = r->text};
        if (r->small_len)
            ps_packer_add_small_record(&message, &head, r->small, r->small_len);
        else
            ps_packer_add_record(&message, &head, &r->body);
    }
    records_free(st->server, records);
    st->outgoing = ps_packer_end(&message);
    if (!st->outgoing) {
        stream_fail_send(st);
        return;
    }
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = st->outgoing};
    ps__budget_begin_send(&st->server->budget, &st->sender, st->grpc);
    if (!stream_start(st, &op, &st->sent))
        ps__budget_end_send(&st->server->budget, &st->sender);
}

static void stream_start_status(struct ps__stream *st)
{
    grpc_slice text = grpc_slice_from_copied_string(st->status.code ? st->status.text : "");
    grpc_op op = {
        .op = GRPC_OP_SEND_STATUS_FROM_SERVER,
        .data.send_status_from_server = {.status = (grpc_status_code)st->status.code, .status_details = &text}};
    stream_start(st, &op, &st->ended);
    grpc_slice_unref(text);
}

static void stream_end_with(struct ps__stream *st, int state, enum ps_code code, const char *text)
{
    pthread_mutex_lock(&st->lock);
    if ((int)st->state < state) {
        st->state = state;
        ps_fail(&st->status, code, "%s", text);
    }
    stream_unlock_and_advance(st);
}

void ps__stream_drain(struct ps__stream *st)
{
    stream_end_with(st, PS__ENDING, PS_UNAVAILABLE, PS__SHUTTING_DOWN);
}

// ---- requests -----------------------------------------------------------------------------------------------------

static char *record_text(const char *text)
{
    size_t len = strnlen(text, sizeof((struct ps_error *)NULL)->text - 1);
    char *copy = ps_try_alloc(len + 1);
    return copy ? memcpy(copy, text, len) : NULL;
}

static void record_keep_body(struct ps__record *r, struct ps_slices *body)
{
    if (body->len > sizeof r->small) {
        ps_slices_move(&r->body, body);
        return;
    }
    r->small_len = body->len;
    ps_slices_copy_out(body, 0, body->len, r->small);
    ps_slices_clear(body);
}

// An answer goes before so many others at most: nobody's priorities make psd walk over all that it has to send.
enum { GOES_BEFORE_MOST = 256 };

// Behind those that it does not go before.
static void stream_post(struct ps__stream *st, struct ps__record *r)
{
    struct ps__record *before = TAILQ_LAST(&st->outbox, ps__records);
    for (int n = 0; before && n < GOES_BEFORE_MOST && ps_goes_before(r->priority, before->priority); n++)
        before = TAILQ_PREV(before, ps__records, link);
    if (before)
        TAILQ_INSERT_AFTER(&st->outbox, before, r, link);
    else
        TAILQ_INSERT_HEAD(&st->outbox, r, link);
}

static void record_reply(struct ps__call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct ps__record *r = (struct ps__record *)call;
    struct ps__stream *st = r->stream;
    size_t admitted = r->base.bytes;
    r->code = code;
    r->text = code ? record_text(text) : NULL;  // without memory, the code alone
    r->base.bytes = body->len + PS_RECORD_OVERHEAD + (r->text ? strlen(r->text) : 0);
    record_keep_body(r, body);
    ps_slices_clear(&r->base.call.request);

    pthread_mutex_lock(&st->lock);
    st->unanswered--;
    st->request_bytes -= admitted;
    TAILQ_REMOVE(&st->all, r, of_all);
    r->answered = true;
    if (!r->cancelling) {
        st->answer_bytes += r->base.bytes;
        atomic_fetch_add(&st->server->budget.answers, r->base.bytes);
        stream_post(st, r);  // a stream that has failed drops it
    }
    stream_unlock_and_advance(st);
    ps__stream_unref(st);
}

// The thread that hands over this record looks for what it may receive when it is done with it.
static void record_let_go(struct ps__call *call)
{
    struct ps__stream *st = ((struct ps__record *)call)->stream;
    pthread_mutex_lock(&st->lock);
    st->request_bytes -= call->bytes;
    pthread_mutex_unlock(&st->lock);
    call->bytes = 0;
}

// In idle memory, or new. NULL: no memory.
static struct ps__record *record_alloc(struct ps_server *s, struct ps__idle **idle)
{
    if (!*idle)
        *idle = ps__idle_take(s);
    struct ps__idle *one = *idle;
    if (!one)
        return ps__call_alloc(s, sizeof(struct ps__record));
    *idle = one->next;
    ps__call_renew(s, one, sizeof(struct ps__record));
    return (struct ps__record *)(void *)one;
}

static void record_init(struct ps__record *r, struct ps__stream *st, struct ps_record *in, size_t bytes, uint64_t now)
{
    r->base.reply = record_reply;
    r->base.let_go = record_let_go;
    r->base.bytes = bytes;
    r->base.call.method = (int)in->method;
    r->base.call.deadline = in->timeout_ms ? ps__answer_by(now, now + in->timeout_ms * PS_MS) : UINT64_MAX;
    r->base.call.request = in->body;
    r->base.call.stream = &st->user;
    r->base.call.from = &st->from;
    r->stream = st;
    r->id = in->id;
    r->priority = in->priority;
}

static enum ps_code stream_take_records(struct ps__stream *st, const struct ps_slices *message, struct ps__records *out,
                                        size_t *n, struct ps__idle **idle, struct ps_error *e)
{
    uint64_t now = ps_now();
    size_t offset = 0;
    for (*n = 0; offset < message->len; ++*n) {
        struct ps_record in;
        size_t start = offset;
        if (*n == PS_MESSAGE_RECORDS)
            return ps_fail(e, PS_RESOURCE_EXHAUSTED, "StreamMessage: more than %d records", PS_MESSAGE_RECORDS);
        enum ps_code code = ps_record_next(message, &offset, &in, e);
        if (code)
            return code;
        struct ps__record *r = in.body.broken ? NULL : record_alloc(st->server, idle);
        if (!r) {
            ps_slices_clear(&in.body);
            return ps_no_memory(e, "a request");
        }
        record_init(r, st, &in, offset - start, now);
        TAILQ_INSERT_TAIL(out, r, link);
    }
    return PS_OK;
}

// The records of a message; where there is an error, those before it.
static enum ps_code stream_parse(struct ps__stream *st, const struct ps_slices *message, struct ps__records *out,
                                 size_t *n, struct ps_error *e)
{
    struct ps__idle *idle = NULL;
    enum ps_code code = stream_take_records(st, message, out, n, &idle, e);
    ps__budget_take_calls(&st->server->budget, *n, *n * PS__RECORD_BYTES);
    ps__idle_give(st->server, idle);
    return code;
}

static void record_hand_over(struct ps__record *r)
{
    struct ps_server *s = r->base.server;
    char text[96];
    if (ps_method_streams(r->base.call.method)) {
        s->options.call(s->options.ctx, &r->base.call);
        return;
    }
    snprintf(text, sizeof text, "method %d (%s) is not served on the stream", r->base.call.method,
             ps_method_name(r->base.call.method));
    ps_call_reply(&r->base.call, PS_UNIMPLEMENTED, text, NULL);
}

// The next message's records become what is to do.
static void stream_open_message(struct ps__stream *st, struct ps__message *m)
{
    struct ps__record *r;
    struct ps_error e;
    size_t n;
    enum ps_code code = stream_parse(st, &m->bytes, &st->parsed, &n, &e);
    if (code) {
        records_free(st->server, &st->parsed);
        stream_end_with(st, PS__FAILED, code, e.text);
        n = 0;
    }
    atomic_fetch_add(&st->refs, n);
    pthread_mutex_lock(&st->lock);
    st->n_parsed = n;
    st->unanswered += n;
    TAILQ_FOREACH(r, &st->parsed, link)
    TAILQ_INSERT_TAIL(&st->all, r, of_all);
    if (code)
        st->request_bytes -= m->bytes.len;
    pthread_mutex_unlock(&st->lock);
    message_free(m);
}

// So many requests handed over, their answers leave, so that the client does not stand idle while the rest is worked
// at.
enum { FLUSH_RECORDS = 32, FLUSH_BYTES = 256 << 10 };

static void stream_flush(struct ps__stream *st)
{
    pthread_mutex_lock(&st->lock);
    st->corked = false;
    stream_unlock_and_advance(st);
    pthread_mutex_lock(&st->lock);
    st->corked = true;
    pthread_mutex_unlock(&st->lock);
}

// Hands over what is to do, as long as its answers have room. Returns how many.
static size_t stream_hand_over_records(struct ps__stream *st)
{
    struct ps__record *r;
    size_t n = 0, records = 0, bytes = 0;
    for (; (r = TAILQ_FIRST(&st->parsed)) && stream_may_answer(st); n++) {
        TAILQ_REMOVE(&st->parsed, r, link);
        bytes += r->base.bytes;
        record_hand_over(r);
        if (++records < FLUSH_RECORDS && bytes < FLUSH_BYTES)
            continue;
        stream_flush(st);
        records = bytes = 0;
    }
    return n;
}

// Nobody waits for them any more.
static size_t stream_drop_records(struct ps__stream *st)
{
    struct ps__record *r;
    size_t n = 0;
    for (; (r = TAILQ_FIRST(&st->parsed)); n++) {
        TAILQ_REMOVE(&st->parsed, r, link);
        ps_call_reply(&r->base.call, PS_CANCELLED, "", NULL);
    }
    return n;
}

// Asks the handler to end what it still has of a stream that nobody reads. Locked; by the thread that set st->handling.
static void stream_cancel_records(struct ps__stream *st)
{
    struct ps_server *s = st->server;
    struct ps__record *r;
    st->has_cancelled = true;
    while (s->options.cancel && (r = TAILQ_FIRST(&st->all)) && !r->cancelled) {
        TAILQ_REMOVE(&st->all, r, of_all);
        TAILQ_INSERT_TAIL(&st->all, r, of_all);  // behind those that are still to be asked for
        r->cancelled = r->cancelling = true;
        pthread_mutex_unlock(&st->lock);
        s->options.cancel(s->options.ctx, &r->base.call);
        pthread_mutex_lock(&st->lock);
        r->cancelling = false;
        if (!r->answered)
            continue;
        pthread_mutex_unlock(&st->lock);
        record_free(r);
        pthread_mutex_lock(&st->lock);
    }
}

// By the thread that set st->handling.
static void stream_hand_over(struct ps__stream *st)
{
    pthread_mutex_lock(&st->lock);
    while ((st->n_parsed || !STAILQ_EMPTY(&st->inbox)) && (st->state >= PS__FAILED || stream_may_answer(st))) {
        bool wanted = st->state < PS__FAILED;
        struct ps__message *m = st->n_parsed ? NULL : STAILQ_FIRST(&st->inbox);
        if (m)
            STAILQ_REMOVE_HEAD(&st->inbox, link);
        st->corked = true;
        pthread_mutex_unlock(&st->lock);

        if (m)
            stream_open_message(st, m);
        size_t n = wanted ? stream_hand_over_records(st) : stream_drop_records(st);

        pthread_mutex_lock(&st->lock);
        st->corked = false;
        st->n_parsed -= n;
        stream_unlock_and_advance(st);
        pthread_mutex_lock(&st->lock);
    }
    if (st->state >= PS__FAILED && !st->has_cancelled)
        stream_cancel_records(st);
    st->handling = false;
    stream_unlock_and_advance(st);
}

// After an event: as stream_unlock_and_advance, and hands over the requests that can be.
static void stream_unlock_and_work(struct ps__stream *st)
{
    bool handing = stream_must_hand_over(st);
    st->handling |= handing;
    stream_unlock_and_advance(st);
    if (handing)
        stream_hand_over(st);
}

// ---- events -------------------------------------------------------------------------------------------------------

static void stream_on_received(struct ps_event *ev, bool ok)
{
    (void)ok;  // without a message, nothing more comes: said the client, or lost is the connection
    struct ps__stream *st = PS_CONTAINER(ev, struct ps__stream, received);
    bool came = st->incoming != NULL;
    struct ps__message *m = came ? message_new(st->server, st->incoming) : NULL;
    st->incoming = NULL;
    ps__budget_received(&st->server->budget, &st->receiver);

    pthread_mutex_lock(&st->lock);
    st->receiving = false;
    if (!came && st->state == PS__OPEN) {
        st->state = PS__ENDING;
    } else if (!m && st->state == PS__OPEN) {
        st->state = PS__FAILED;
        ps_fail(&st->status, PS_RESOURCE_EXHAUSTED, "no memory for a message");
    } else if (m && st->state == PS__OPEN) {
        STAILQ_INSERT_TAIL(&st->inbox, m, link);
        st->request_bytes += m->bytes.len;
        st->last_bytes = m->bytes.len;
        m = NULL;
    }
    stream_unlock_and_work(st);
    message_free(m);  // came after the end
    ps__stream_unref(st);
}

static void stream_on_sent(struct ps_event *ev, bool ok)
{
    struct ps__stream *st = PS_CONTAINER(ev, struct ps__stream, sent);
    ps__budget_end_send(&st->server->budget, &st->sender);
    grpc_byte_buffer_destroy(st->outgoing);
    st->outgoing = NULL;
    pthread_mutex_lock(&st->lock);
    st->sending = false;
    stream_forget_answers(st, st->sending_bytes);
    st->gather_limit = ps_gather_next(st->gather_limit, st->sending_bytes, ps_now() - st->sending_at);
    if (!ok)
        st->state = PS__CUT;
    stream_unlock_and_work(st);
    ps__stream_unref(st);
}

static void stream_on_ended(struct ps_event *ev, bool ok)
{
    (void)ok;
    ps__stream_unref(PS_CONTAINER(ev, struct ps__stream, ended));
}

static void stream_on_closed(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps__stream *st = PS_CONTAINER(ev, struct ps__stream, closed);
    pthread_mutex_lock(&st->lock);
    st->state = PS__CUT;
    stream_unlock_and_work(st);
    ps__stream_unref(st);
}

static bool stream_is_one_too_many(struct ps_server *s)
{
    size_t most = s->budget.bytes / PS_STREAM_OWN;
    pthread_mutex_lock(&s->lock);
    bool many = s->n_streams >= most;
    pthread_mutex_unlock(&s->lock);
    return many;
}

static struct ps__stream *stream_new(struct ps_server *s, grpc_call *grpc, const struct ps_identity *from)
{
    struct ps__stream *st = ps_try_alloc(sizeof *st);
    if (!st)
        return NULL;
    st->server = s;
    st->grpc = grpc;
    st->from = *from;
    st->received.fn = stream_on_received;
    st->sent.fn = stream_on_sent;
    st->ended.fn = stream_on_ended;
    st->closed.fn = stream_on_closed;
    st->receiver.go = stream_receive_late;
    st->last_bytes = PS_STREAM_OWN;
    st->gather_limit = PS_GATHER_BYTES;
    STAILQ_INIT(&st->inbox);
    TAILQ_INIT(&st->parsed);
    TAILQ_INIT(&st->outbox);
    TAILQ_INIT(&st->all);
    pthread_mutex_init(&st->lock, NULL);
    atomic_init(&st->refs, 2);  // ps__stream_begin's, and that of its operations until they end the stream
    return st;
}

void ps__stream_begin(struct ps_server *s, grpc_call *grpc, const struct ps_identity *from)
{
    char text[96];
    if (stream_is_one_too_many(s)) {
        snprintf(text, sizeof text, "%zu streams are open here, which is all", s->budget.bytes / PS_STREAM_OWN);
        ps__call_refuse(s, grpc, PS_RESOURCE_EXHAUSTED, text);
        return;
    }
    struct ps__stream *st = stream_new(s, grpc, from);
    if (!st) {
        ps__server_drop_call(grpc);
        return;
    }
    bool draining = ps__server_enter(s, st);

    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &st->cancelled},
    };
    bool open = ps_cq_batch(&s->cq, grpc, ops, 2, &st->closed);
    pthread_mutex_lock(&st->lock);
    if (!open)
        st->state = PS__CUT;
    stream_unlock_and_advance(st);
    if (!open)
        ps__stream_unref(st);
    if (draining)
        ps__stream_drain(st);
    ps__stream_unref(st);
}
