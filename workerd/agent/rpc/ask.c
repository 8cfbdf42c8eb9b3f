// SPDX-License-Identifier: Apache-2.0
#include "workerd/agent/rpc/ask.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/client.h"
#include "common/wire/wire.h"

static const uint64_t ask_timeout = 3 * PS_SECOND;

struct wk_ask {
    struct ps_client *client;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool answered;
    struct ps_error error;
    struct ps_slices reply;
};

struct wk_ask *wk_ask_open(const char *const *addresses, size_t n, struct ps_tls *tls, struct ps_munge *munge,
                           struct ps_error *e)
{
    const struct ps_client_options options = {.tls = tls, .munge = munge, .to = PS_ROLE_PSD};
    struct ps_client *client = ps_client_create(addresses, n, &options);
    if (!client) {
        ps_no_thread(e, "connections", errno);
        return NULL;
    }
    struct wk_ask *a = ps_alloc(sizeof *a);
    a->client = client;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

void wk_ask_close(struct wk_ask *a)
{
    ps_client_stop(a->client);
    ps_client_destroy(a->client);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void ask_on_answer(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct wk_ask *a = arg;
    pthread_mutex_lock(&a->lock);
    a->error.code = PS_OK;
    if (code)
        ps_fail(&a->error, code, "%s", text);
    ps_slices_move(&a->reply, reply);
    a->answered = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

// The client answers each call, at its deadline at the latest.
static void ask_wait_for_answer(struct wk_ask *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->answered)
        pthread_cond_wait(&a->changed, &a->lock);
    a->answered = false;
    pthread_mutex_unlock(&a->lock);
}

enum ps_code wk_ask(struct wk_ask *a, int method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct ps_error *e)
{
    struct ps_slices message = PS_SLICES_EMPTY, payload = PS_SLICES_EMPTY;
    ps_msg_pack(request, NULL, &message);
    ps_client_call(a->client, 0, method, &(struct ps_call_options){.deadline = ps_now() + ask_timeout}, &message,
                   ask_on_answer, a);
    ask_wait_for_answer(a);
    if (a->error.code)
        return ps_fail(e, a->error.code, "ps:0: %s", a->error.text);
    e->code = PS_OK;
    ps_msg_unpack(type, &a->reply, reply, &payload, e);
    ps_slices_clear(&a->reply);
    ps_slices_clear(&payload);
    return e->code;
}
