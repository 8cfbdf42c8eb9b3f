// SPDX-License-Identifier: Apache-2.0
//
// A task's gathered stream. Calls wait in to_send while a message is being sent, or while the replies of a message are
// being told (each may be followed by another call), and go out together.
//
//     pending, to_send     -> packed into a message (client_stream_take)
//     pending              -> told: its reply, DEADLINE_EXCEEDED, or what ended the stream
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/method.h"

enum { BUCKETS = 1024 };  // ids are consecutive, so that calls spread evenly

LIST_HEAD(bucket, ps__pending);

struct ps__client_stream {
    struct ps__peer *peer;
    grpc_call *grpc;
    atomic_size_t refs;  // the peer's, and one per operation of the core
    struct ps_event opened, received, sent, closed;
    grpc_byte_buffer *incoming, *outgoing;
    struct ps__batch {  // the records of the message that is put together, by the thread that set `sending`
        struct ps_record_head head;
        struct ps_slices body;
    } batch[PS_GATHER_RECORDS];
    size_t n_batch;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    struct ps_munge_task munge;
    grpc_metadata shown;  // the credential, where there is munge

    // Under the client's lock:
    bool begun;  // it has a call of the core's, which can be cancelled
    bool ready;  // client_stream_go() has run: operations may be started
    bool sending;
    bool corked;  // replies are being told
    bool over;    // nothing can be sent any more
    bool cut;     // ps_client_cut()
    bool cancelled;
    uint64_t last_id;
    uint64_t openings;    // the peer's, as far as they have been sent; 0: none, or the last was answered with an error
    uint64_t opening_id;  // of the last
    uint64_t soonest;     // no deadline in `all` is earlier
    size_t batch_bytes;
    uint64_t batch_at;    // ns
    size_t gather_limit;  // as ps_gather_next() says
    struct ps__pendings all;
    TAILQ_HEAD(ps__to_send, ps__pending) to_send;
    struct bucket by_id[BUCKETS];
};

// ---- calls --------------------------------------------------------------------------------------------------------

// Behind those that it does not go before.
static void client_stream_insert(struct ps__client_stream *st, struct ps__pending *p)
{
    struct ps__pending *before = TAILQ_LAST(&st->to_send, ps__to_send);
    while (before && ps_goes_before(p->priority, before->priority))
        before = TAILQ_PREV(before, ps__to_send, to_send);
    if (before)
        TAILQ_INSERT_AFTER(&st->to_send, before, p, to_send);
    else
        TAILQ_INSERT_HEAD(&st->to_send, p, to_send);
}

static void client_stream_add(struct ps__client_stream *st, struct ps__pending *p)
{
    p->id = ++st->last_id;
    if (p->deadline < st->soonest)
        st->soonest = p->deadline;
    p->queued = true;
    TAILQ_INSERT_TAIL(&st->all, p, link);
    client_stream_insert(st, p);
    LIST_INSERT_HEAD(&st->by_id[p->id % BUCKETS], p, same_bucket);
}

static void client_stream_detach(struct ps__client_stream *st, struct ps__pending *p)
{
    TAILQ_REMOVE(&st->all, p, link);
    LIST_REMOVE(p, same_bucket);
    if (p->queued)
        TAILQ_REMOVE(&st->to_send, p, to_send);
    if (TAILQ_EMPTY(&st->all))
        st->soonest = UINT64_MAX;
}

static struct ps__pending *client_stream_find(struct ps__client_stream *st, uint64_t id)
{
    struct ps__pending *p;
    LIST_FOREACH(p, &st->by_id[id % BUCKETS], same_bucket)
    if (p->id == id)
        return p;
    return NULL;
}

static void pending_report(struct ps__pending *p, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    p->reply(p->arg, code, text, code == PS_OK ? body : &none);
    ps__pending_free(p);
}

static void pending_report_all(struct ps__pendings *list, enum ps_code code, const char *details)
{
    struct ps__pending *p;
    while ((p = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, p, link);
        char *text = ps__call_text(p, code, details);
        pending_report(p, code, text, NULL);
        free(text);
    }
}

// ---- sending ------------------------------------------------------------------------------------------------------

// Locked. Takes what the peer's streams begin with, if it has not been sent. Returns the number of records.
static size_t client_stream_take_opening(struct ps__client_stream *st)
{
    const struct ps__peer *peer = st->peer;
    if (st->openings == peer->openings)
        return 0;
    struct ps__batch *b = &st->batch[0];
    st->opening_id = ++st->last_id;
    b->head = (struct ps_record_head){.id = st->opening_id, .method = (uint32_t)peer->opening_method};
    b->body = PS_SLICES_EMPTY;
    ps_slices_add(&b->body, ps_slice_ref(peer->opening));
    st->openings = peer->openings;
    return 1;
}

// What is left of p's time, in ms; 0: it has no deadline.
static uint32_t client_stream_time_left(const struct ps__pending *p, uint64_t now)
{
    if (p->deadline == UINT64_MAX)
        return 0;
    uint64_t left = p->deadline > now ? (p->deadline - now) / PS_MS : 0;
    return left == 0 ? 1 : left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
}

// Locked. Takes the next message's records. True: there are some, and client_stream_send() has to follow.
static bool client_stream_take(struct ps__client_stream *st)
{
    struct ps__pending *p;
    size_t n, bytes = 0;
    if (!st->ready || st->sending || st->corked || st->over || TAILQ_EMPTY(&st->to_send))
        return false;
    const uint64_t now = ps_now();
    n = client_stream_take_opening(st);
    while ((p = TAILQ_FIRST(&st->to_send)) && n < PS_GATHER_RECORDS) {
        const size_t more = p->request.len + PS_RECORD_OVERHEAD;
        if (bytes && bytes + more > ps_gather_most(st->gather_limit, p->priority))
            break;
        bytes += more;
        struct ps__batch *b = &st->batch[n++];
        b->head = (struct ps_record_head){.id = p->id,
                                          .method = (uint32_t)p->method,
                                          .timeout_ms = client_stream_time_left(p, now),
                                          .priority = p->priority};
        b->body = p->request;
        p->request = PS_SLICES_EMPTY;
        p->queued = false;
        TAILQ_REMOVE(&st->to_send, p, to_send);
    }
    st->n_batch = n;
    st->batch_bytes = bytes;
    st->batch_at = now;
    st->sending = n > 0;
    return n > 0;
}

static void client_stream_unref(struct ps__client_stream *st)
{
    if (atomic_fetch_sub(&st->refs, 1) != 1)
        return;
    grpc_byte_buffer_destroy(st->incoming);
    grpc_byte_buffer_destroy(st->outgoing);
    grpc_metadata_array_destroy(&st->initial);
    grpc_metadata_array_destroy(&st->trailing);
    grpc_slice_unref(st->details);
    grpc_slice_unref(st->shown.value);
    free(st->munge.credential);
    grpc_call_unref(st->grpc);
    free(st);
}

static void client_stream_start(struct ps__client_stream *st, const grpc_op *ops, size_t n, struct ps_event *ev)
{
    atomic_fetch_add(&st->refs, 1);
    if (!ps_cq_batch(&st->peer->client->cq, st->grpc, ops, n, ev))
        client_stream_unref(st);  // the client is closed: everything has been told
}

static void client_stream_send(struct ps__client_stream *st)
{
    struct ps_packer message;
    ps_packer_init(&message, &st->peer->loans);
    for (size_t i = 0; i < st->n_batch; i++)
        ps_packer_add_record(&message, &st->batch[i].head, &st->batch[i].body);
    st->outgoing = ps_packer_end(&message);
    if (!st->outgoing) {  // what was to be sent is lost: the stream ends, and whoever may repeats it
        grpc_call_cancel_with_status(st->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, "no memory for a message", NULL);
        return;
    }
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = st->outgoing};
    client_stream_start(st, &op, 1, &st->sent);
}

static void client_stream_on_sent(struct ps_event *ev, bool ok)
{
    struct ps__client_stream *st = PS_CONTAINER(ev, struct ps__client_stream, sent);
    struct ps_client *c = st->peer->client;
    grpc_byte_buffer_destroy(st->outgoing);
    st->outgoing = NULL;
    pthread_mutex_lock(&c->lock);
    st->sending = false;
    st->over |= !ok;
    st->gather_limit = ps_gather_next(st->gather_limit, st->batch_bytes, ps_now() - st->batch_at);
    bool sends = client_stream_take(st);
    pthread_mutex_unlock(&c->lock);
    if (sends)
        client_stream_send(st);
    client_stream_unref(st);
}

// ---- receiving ----------------------------------------------------------------------------------------------------

static void client_stream_receive(struct ps__client_stream *st)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &st->incoming};
    client_stream_start(st, &op, 1, &st->received);
}

// So many replies told, the calls that followed them leave, so that the task does not stand idle while the rest is
// told.
enum { FLUSH_REPLIES = 32 };

static void client_stream_flush(struct ps__client_stream *st)
{
    struct ps_client *c = st->peer->client;
    pthread_mutex_lock(&c->lock);
    st->corked = false;
    bool sends = client_stream_take(st);
    st->corked = true;
    pthread_mutex_unlock(&c->lock);
    if (sends)
        client_stream_send(st);
}

static enum ps_code client_stream_report_replies(struct ps__client_stream *st, const struct ps_slices *message,
                                                 struct ps_error *e)
{
    struct ps_client *c = st->peer->client;
    size_t n = 0;
    for (size_t offset = 0; offset < message->len;) {
        struct ps_record r;
        enum ps_code code = ps_record_next(message, &offset, &r, e);
        if (code)
            return code;
        pthread_mutex_lock(&c->lock);
        struct ps__pending *p = client_stream_find(st, r.id);
        if (r.code && r.id == st->opening_id)
            st->openings = 0;
        if (p && !p->queued)
            client_stream_detach(st, p);
        else
            p = NULL;  // its deadline was sooner
        pthread_mutex_unlock(&c->lock);
        if (p)
            pending_report(p, (enum ps_code)r.code, r.error, &r.body);
        ps_slices_clear(&r.body);
        if (++n % FLUSH_REPLIES == 0)
            client_stream_flush(st);
    }
    return PS_OK;
}

static void client_stream_on_received(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps__client_stream *st = PS_CONTAINER(ev, struct ps__client_stream, received);
    struct ps_client *c = st->peer->client;
    struct ps_slices message = PS_SLICES_EMPTY;
    struct ps_error e;
    if (st->incoming) {
        ps_slices_from_buffer(&message, st->incoming, NULL, NULL);
        st->incoming = NULL;
        client_stream_receive(st);

        pthread_mutex_lock(&c->lock);
        st->corked = true;
        pthread_mutex_unlock(&c->lock);
        if (client_stream_report_replies(st, &message, &e))
            grpc_call_cancel_with_status(st->grpc, GRPC_STATUS_INTERNAL, e.text, NULL);
        ps_slices_clear(&message);
        pthread_mutex_lock(&c->lock);
        st->corked = false;
        bool sends = client_stream_take(st);
        pthread_mutex_unlock(&c->lock);
        if (sends)
            client_stream_send(st);
    }
    client_stream_unref(st);
}

// ---- deadlines ----------------------------------------------------------------------------------------------------

static void client_stream_collect_late(struct ps__client_stream *st, uint64_t now, struct ps__pendings *late)
{
    struct ps__pending *p, *next;
    uint64_t soonest = UINT64_MAX;
    for (p = TAILQ_FIRST(&st->all); p; p = next) {
        next = TAILQ_NEXT(p, link);
        if (p->deadline <= now) {
            client_stream_detach(st, p);
            TAILQ_INSERT_TAIL(late, p, link);
        } else if (p->deadline < soonest) {
            soonest = p->deadline;
        }
    }
    st->soonest = soonest;
}

void ps__streams_expire(struct ps_client *c, uint64_t now)
{
    for (size_t i = 0; i < c->n_peers; i++) {
        struct ps__pendings late = TAILQ_HEAD_INITIALIZER(late);
        const struct ps__pending *p;
        pthread_mutex_lock(&c->lock);
        struct ps__client_stream *st = c->peers[i].stream;
        if (st && st->soonest <= now)
            client_stream_collect_late(st, now, &late);
        pthread_mutex_unlock(&c->lock);
        TAILQ_FOREACH(p, &late, link)
        c->peers[i].gave_up |= p->lends;
        pending_report_all(&late, PS_DEADLINE_EXCEEDED, "");
    }
}

uint64_t ps__streams_soonest(const struct ps_client *c)
{
    uint64_t soonest = UINT64_MAX;
    for (size_t i = 0; i < c->n_peers; i++) {
        const struct ps__client_stream *st = c->peers[i].stream;
        if (st && st->soonest < soonest)
            soonest = st->soonest;
    }
    return soonest;
}

// ---- the stream itself --------------------------------------------------------------------------------------------

// What the calls that waited learn of a stream's end. Errors that would meet them again keep their code.
static enum ps_code client_stream_code(grpc_status_code status, bool stopping)
{
    switch (status) {
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_RESOURCE_EXHAUSTED:
    case GRPC_STATUS_UNIMPLEMENTED:
    case GRPC_STATUS_UNAUTHENTICATED:
    case GRPC_STATUS_PERMISSION_DENIED:
        return (enum ps_code)status;
    default:
        return stopping ? PS_CANCELLED : PS_UNAVAILABLE;
    }
}

static void client_stream_on_closed(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps__client_stream *st = PS_CONTAINER(ev, struct ps__client_stream, closed);
    struct ps_client *c = st->peer->client;
    struct ps__pendings lost = TAILQ_HEAD_INITIALIZER(lost);
    struct ps__pending *p;
    pthread_mutex_lock(&c->lock);
    bool stopping = c->stopping;
    ps__client_note_status(c, st->status);
    st->over = true;
    st->peer->stream = NULL;
    while ((p = TAILQ_FIRST(&st->all))) {
        client_stream_detach(st, p);
        TAILQ_INSERT_TAIL(&lost, p, link);
    }
    pthread_mutex_unlock(&c->lock);

    char *details = grpc_slice_to_c_string(st->details);
    pending_report_all(&lost, client_stream_code(st->status, stopping), details);
    gpr_free(details);
    client_stream_unref(st);
    client_stream_unref(st);  // the peer's
}

static void client_stream_on_opened(struct ps_event *ev, bool ok)
{
    (void)ok;  // if not, it is closed
    client_stream_unref(PS_CONTAINER(ev, struct ps__client_stream, opened));
}

static struct ps__client_stream *client_stream_new(struct ps__peer *peer)
{
    struct ps__client_stream *st = ps_alloc(sizeof *st);
    st->peer = peer;
    atomic_init(&st->refs, 1);
    st->opened.fn = client_stream_on_opened;
    st->received.fn = client_stream_on_received;
    st->sent.fn = client_stream_on_sent;
    st->closed.fn = client_stream_on_closed;
    st->soonest = UINT64_MAX;
    st->gather_limit = PS_GATHER_BYTES;
    TAILQ_INIT(&st->all);
    TAILQ_INIT(&st->to_send);
    grpc_metadata_array_init(&st->initial);
    grpc_metadata_array_init(&st->trailing);
    st->details = grpc_empty_slice();
    st->shown.value = grpc_empty_slice();
    return st;
}

// From now on it sends and receives. Takes over a reference.
static void client_stream_go(struct ps__client_stream *st, size_t n_metadata)
{
    struct ps_client *c = st->peer->client;
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .data.send_initial_metadata = {.count = n_metadata, .metadata = &st->shown}},
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &st->initial},
    };
    client_stream_start(st, ops, 2, &st->opened);
    client_stream_receive(st);

    pthread_mutex_lock(&c->lock);
    st->ready = true;
    bool sends = client_stream_take(st);
    pthread_mutex_unlock(&c->lock);
    if (sends)
        client_stream_send(st);
    client_stream_unref(st);
}

// Without a credential the stream ends.
static void client_stream_on_credential(struct ps_munge_task *task)
{
    struct ps__client_stream *st = PS_CONTAINER(task, struct ps__client_stream, munge);
    struct ps_cq *cq = &st->peer->client->cq;
    if (task->error.code)
        grpc_call_cancel_with_status(st->grpc, (grpc_status_code)task->error.code, task->error.text, NULL);
    else
        st->shown = ps__munge_metadata(task->credential);
    client_stream_go(st, task->error.code == PS_OK);
    ps_cq_end(cq);
}

// Goes once munge has made a credential. False: the client is closed.
static bool client_stream_show(struct ps__client_stream *st)
{
    if (!ps_cq_begin(&st->peer->client->cq))
        return false;
    st->munge.address = st->peer->address;
    st->munge.done = client_stream_on_credential;
    ps_munge_ask(st->peer->client->options.munge, &st->munge);
    return true;
}

// Locked. Why it has to be cancelled; NULL: it need not be.
static const char *client_stream_must_end(const struct ps__client_stream *st)
{
    return st->peer->client->stopping ? "the client is closed" : st->cut ? "nobody waits for its answers" : NULL;
}

// By the call that made the stream; others only add to it meanwhile.
static void client_stream_open(struct ps__client_stream *st)
{
    struct ps_client *c = st->peer->client;
    st->grpc = ps__peer_call(st->peer, &st->peer->channel, PS_STREAM_PATH, UINT64_MAX);
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                   .data.recv_status_on_client = {
                       .trailing_metadata = &st->trailing, .status = &st->status, .status_details = &st->details}};
    // This function's, since client_stream_on_closed may run before it returns; and client_stream_go's.
    atomic_fetch_add(&st->refs, 2);
    client_stream_start(st, &end, 1, &st->closed);
    if (!c->options.munge || !client_stream_show(st))
        client_stream_go(st, 0);

    pthread_mutex_lock(&c->lock);
    st->begun = true;
    const char *why = client_stream_must_end(st);
    pthread_mutex_unlock(&c->lock);
    if (why)
        grpc_call_cancel_with_status(st->grpc, GRPC_STATUS_CANCELLED, why, NULL);
    client_stream_unref(st);
}

void ps__stream_call(struct ps__peer *peer, struct ps__pending *p)
{
    struct ps_client *c = peer->client;
    pthread_mutex_lock(&c->lock);
    if (c->stopping) {
        pthread_mutex_unlock(&c->lock);
        ps__pending_end_later(c, p, PS_CANCELLED, ps_strdup("the client is closed"));
        return;
    }
    struct ps__client_stream *st = peer->stream;
    bool fresh = !st;
    if (fresh)
        st = peer->stream = client_stream_new(peer);
    pthread_cond_signal(&c->work);
    client_stream_add(st, p);
    uint64_t soonest = st->soonest;
    bool sends = client_stream_take(st), late = soonest < c->wake;
    if (sends)
        atomic_fetch_add(&st->refs, 1);
    pthread_mutex_unlock(&c->lock);

    if (fresh) {
        client_stream_open(st);
    } else if (sends) {
        client_stream_send(st);
        client_stream_unref(st);
    }
    if (late)
        ps__client_poke(c, soonest);
}

void ps__streams_cancel(struct ps_client *c)
{
    for (size_t i = 0; i < c->n_peers; i++) {
        pthread_mutex_lock(&c->lock);
        struct ps__client_stream *st = c->peers[i].stream;
        const char *why = st && st->begun && !st->cancelled ? client_stream_must_end(st) : NULL;
        if (why)
            st->cancelled = true;
        pthread_mutex_unlock(&c->lock);
        c->peers[i].gave_up |= why != NULL;
        if (why)
            grpc_call_cancel_with_status(st->grpc, GRPC_STATUS_CANCELLED, why, NULL);
    }
}

void ps_client_cut(struct ps_client *c)
{
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n_peers; i++)
        if (c->peers[i].stream)
            c->peers[i].stream->cut = true;
    c->cuts = true;
    pthread_mutex_unlock(&c->lock);
    ps__client_poke(c, 0);
}
