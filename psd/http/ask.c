// SPDX-License-Identifier: Apache-2.0
#include "psd/http/ask.h"

#include <pthread.h>

#include "common/base/alloc.h"
#include "common/wire/wire.h"

// It lies on the stack of who waits. The methods asked for are never parked, but may be answered by another thread.
struct ask {
    struct psd_call call;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered;  // guarded by lock, as the next
    struct ps_slices body;
    struct ps_error error;
};

static void ask_on_reply(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct ask *a = (struct ask *)call;
    pthread_mutex_lock(&a->lock);
    a->error.code = code;
    if (code)
        ps_fail(&a->error, code, "%s", text ? text : ps_code_name(code));
    if (body && code == PS_OK)
        ps_slices_move(&a->body, body);
    else if (body)
        ps_slices_clear(body);
    a->is_answered = true;
    pthread_cond_signal(&a->answered);
    pthread_mutex_unlock(&a->lock);
}

static void ask_wait(struct ask *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->is_answered)
        pthread_cond_wait(&a->answered, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static enum ps_code ask_unpack(struct ask *a, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply,
                               struct ps_error *e)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    *e = a->error;
    if (e->code)
        return e->code;
    enum ps_code code = ps_msg_unpack(type, &a->body, reply, &none, e);
    ps_slices_clear(&none);
    return code;
}

enum ps_code psd_http_ask(struct psd_core *core, int method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct ps_error *e)
{
    struct ask a = {.call = {.method = method, .deadline = UINT64_MAX, .reply = ask_on_reply}};
    ps_msg_pack(request, NULL, &a.call.request);
    if (a.call.request.broken) {
        ps_slices_clear(&a.call.request);
        return ps_no_memory(e, "a request");
    }
    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.answered, NULL);
    psd_core_call(core, &a.call);
    ask_wait(&a);
    enum ps_code code = ask_unpack(&a, type, reply, e);
    ps_slices_clear(&a.body);
    pthread_cond_destroy(&a.answered);
    pthread_mutex_destroy(&a.lock);
    return code;
}
