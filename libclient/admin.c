// SPDX-License-Identifier: Apache-2.0
#include "libclient/admin.h"

#include "libclient/call.h"
#include "libclient/wait.h"

struct visitor {
    struct psc__waiter waiter;
    struct ps_rope reply;
};

static void replied(void *arg, const struct ps_error *e, struct ps_rope *reply)
{
    struct visitor *v = arg;
    ps_rope_move(&v->reply, reply);
    psc__waiter_wake(&v->waiter, e);
}

enum ps_code psc__admin_call(struct psc_client *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply, int timeout_ms,
                             struct ps_error *e)
{
    struct visitor v = {.reply = PS_ROPE_EMPTY};
    if (task >= c->n_tasks)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there is no ps:%u among %u ps tasks", task, c->n_tasks);
    psc__waiter_init(&v.waiter);
    psc__call(c, &(struct psc__call_spec){.task = task,
                                          .method = method,
                                          .message = request,
                                          .timeout_ms = timeout_ms,
                                          .once = true,
                                          .done = replied,
                                          .arg = &v});
    enum ps_code code = psc__waiter_wait(&v.waiter);
    if (code == PS_OK)
        code = psc__call_decode(&c->tasks[task], reply_type, &v.reply, reply, e);
    else if (e)
        *e = v.waiter.error;
    ps_rope_clear(&v.reply);
    return code;
}
