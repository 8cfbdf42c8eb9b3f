// SPDX-License-Identifier: Apache-2.0
#include <grpc/support/alloc.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/method.h"

// Two batches: what is sent may still be stuck in the socket when the outcome is known.
struct ps__unary {
    struct ps__peer *peer;
    struct ps__channel *channel;  // the peer's that it goes over
    struct ps__pending *pending;
    TAILQ_ENTRY(ps__unary) link;
    bool cancelled;
    grpc_call *grpc;
    atomic_uint batches;  // that are not done
    struct ps_munge_task munge;
    grpc_metadata shown;      // the credential, where munge has made one
    grpc_byte_buffer *spare;  // the request, for who does not know the connection; NULL: a credential is shown
    struct ps_event sent, done;
    grpc_byte_buffer *request, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
};

static void client_unary_free(struct ps__unary *u)
{
    grpc_byte_buffer_destroy(u->request);
    grpc_byte_buffer_destroy(u->spare);
    grpc_slice_unref(u->shown.value);
    free(u->munge.credential);
    grpc_byte_buffer_destroy(u->reply);
    grpc_metadata_array_destroy(&u->initial);
    grpc_metadata_array_destroy(&u->trailing);
    grpc_slice_unref(u->details);
    grpc_call_unref(u->grpc);
    free(u);
}

static void client_unary_unref(struct ps__unary *u)
{
    if (atomic_fetch_sub(&u->batches, 1) == 1)
        client_unary_free(u);
}

// A call that was cut comes as one of these; no server of ours sends them.
static enum ps_code client_unary_code(grpc_status_code status, bool stopping)
{
    bool cut = status == GRPC_STATUS_CANCELLED || status == GRPC_STATUS_UNKNOWN;
    if (cut || status == GRPC_STATUS_UNAVAILABLE)
        return stopping ? PS_CANCELLED : PS_UNAVAILABLE;
    return (enum ps_code)status;
}

static void client_unary_on_sent(struct ps_event *ev, bool ok)
{
    (void)ok;
    client_unary_unref(PS_CONTAINER(ev, struct ps__unary, sent));
}

static struct ps__unary *client_unary_new(struct ps__peer *peer, struct ps__pending *p, grpc_byte_buffer *request);
static void client_unary_start(struct ps__unary *u);

// The server did not know the connection, and has not read the request: the call is made again, with a credential.
// False: it was not that, or the client is being closed.
static bool client_unary_again(struct ps__unary *u)
{
    struct ps_client *c = u->peer->client;
    if (u->status != GRPC_STATUS_UNAUTHENTICATED || !u->spare)
        return false;
    atomic_store(&u->channel->known, false);
    struct ps__unary *next = client_unary_new(u->peer, u->pending, u->spare);
    u->spare = NULL;
    pthread_mutex_lock(&c->lock);
    const bool stopping = c->stopping;
    if (!stopping) {
        TAILQ_REMOVE(&c->unaries, u, link);
        TAILQ_INSERT_TAIL(&c->unaries, next, link);
    }
    pthread_mutex_unlock(&c->lock);
    if (stopping) {
        client_unary_free(next);
        return false;
    }
    client_unary_start(next);
    client_unary_unref(u);
    return true;
}

static void client_unary_on_done(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps__unary *u = PS_CONTAINER(ev, struct ps__unary, done);
    struct ps_client *c = u->peer->client;
    struct ps__pending *p = u->pending;
    struct ps_slices body = PS_SLICES_EMPTY;
    char *text = NULL;
    if (client_unary_again(u))
        return;
    u->peer->gave_up |= p->lends && (u->status == GRPC_STATUS_DEADLINE_EXCEEDED || u->status == GRPC_STATUS_CANCELLED);
    if (u->status == GRPC_STATUS_OK)
        atomic_store(&u->channel->known, true);
    pthread_mutex_lock(&c->lock);
    TAILQ_REMOVE(&c->unaries, u, link);
    bool stopping = c->stopping;
    ps__client_note_status(c, u->status);
    pthread_mutex_unlock(&c->lock);

    enum ps_code code = client_unary_code(u->status, stopping);
    if (code) {
        char *details = grpc_slice_to_c_string(u->details);
        text = ps__call_text(p, code, details);
        gpr_free(details);
    } else if (u->reply) {
        ps_slices_from_buffer(&body, u->reply, NULL, NULL);
        u->reply = NULL;
    }
    p->reply(p->arg, code, text ? text : "", &body);
    ps_slices_clear(&body);
    free(text);
    ps__pending_free(p);
    client_unary_unref(u);
}

static struct ps__channel *client_unary_channel(struct ps__peer *peer, int method)
{
    return peer->client->options.control_apart && ps_method_is_control(method) ? &peer->control : &peer->channel;
}

static struct ps__unary *client_unary_new(struct ps__peer *peer, struct ps__pending *p, grpc_byte_buffer *request)
{
    struct ps__unary *u = ps_alloc(sizeof *u);
    u->peer = peer;
    u->pending = p;
    atomic_init(&u->batches, 2);
    u->sent.fn = client_unary_on_sent;
    u->done.fn = client_unary_on_done;
    u->channel = client_unary_channel(peer, p->method);
    u->grpc = ps__peer_call(peer, u->channel, ps_method_path(p->method), p->deadline);
    u->request = request;
    u->shown.value = grpc_empty_slice();
    grpc_metadata_array_init(&u->initial);
    grpc_metadata_array_init(&u->trailing);
    u->details = grpc_empty_slice();
    return u;
}

static void client_unary_send(struct ps__unary *u, size_t n_metadata)
{
    grpc_op send[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .data.send_initial_metadata = {.count = n_metadata, .metadata = &u->shown}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = u->request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
    };
    ps_cq_batch(&u->peer->client->cq, u->grpc, send, sizeof send / sizeof *send, &u->sent);
}

static void client_unary_receive(struct ps__unary *u)
{
    grpc_op receive[] = {
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &u->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &u->trailing,
                                        .status = &u->status,
                                        .status_details = &u->details}},
    };
    ps_cq_batch(&u->peer->client->cq, u->grpc, receive, sizeof receive / sizeof *receive, &u->done);
}

// Without a credential the call ends, and what is sent then fails.
static void client_unary_on_credential(struct ps_munge_task *task)
{
    struct ps__unary *u = PS_CONTAINER(task, struct ps__unary, munge);
    struct ps_cq *cq = &u->peer->client->cq;
    if (task->error.code)
        grpc_call_cancel_with_status(u->grpc, (grpc_status_code)task->error.code, task->error.text, NULL);
    else
        u->shown = ps__munge_metadata(task->credential);
    client_unary_send(u, task->error.code == PS_OK);
    ps_cq_end(cq);
}

// While it is in the client's list the queue is open.
static void client_unary_show(struct ps__unary *u)
{
    u->munge.address = u->peer->address;
    u->munge.done = client_unary_on_credential;
    ps_cq_begin(&u->peer->client->cq);
    client_unary_receive(u);
    ps_munge_ask(u->peer->client->options.munge, &u->munge);
}

static void client_unary_start(struct ps__unary *u)
{
    const bool munge = u->peer->client->options.munge;
    if (munge && !atomic_load(&u->channel->known)) {
        client_unary_show(u);
        return;
    }
    u->spare = munge && u->request ? grpc_byte_buffer_copy(u->request) : NULL;
    client_unary_send(u, 0);
    client_unary_receive(u);
}

void ps__unary_call(struct ps__peer *peer, struct ps__pending *p)
{
    struct ps_client *c = peer->client;
    struct ps__unary *u = client_unary_new(peer, p, ps_slices_to_buffer(&p->request, &peer->loans));
    pthread_mutex_lock(&c->lock);
    bool stopping = c->stopping;
    if (!stopping) {
        TAILQ_INSERT_TAIL(&c->unaries, u, link);
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);

    if (!stopping) {  // while it is in the list the queue stays open
        client_unary_start(u);
        return;
    }
    client_unary_free(u);
    ps__pending_end_later(c, p, PS_CANCELLED, ps_strdup("the client is closed"));
}

static struct ps__unary *client_unary_next_to_cancel(struct ps_client *c)
{
    struct ps__unary *u;
    pthread_mutex_lock(&c->lock);
    TAILQ_FOREACH(u, &c->unaries, link)
    if (!u->cancelled)
        break;
    if (u)
        u->cancelled = true;
    pthread_mutex_unlock(&c->lock);
    return u;
}

void ps__unary_cancel_all(struct ps_client *c)
{
    struct ps__unary *u;
    while ((u = client_unary_next_to_cancel(c)))
        grpc_call_cancel_with_status(u->grpc, GRPC_STATUS_CANCELLED, "the client is closed", NULL);
}
