// SPDX-License-Identifier: Apache-2.0
#include "libclient/admin.h"

#include "common/base/clock.h"
#include "libclient/call.h"
#include "libclient/convert.h"
#include "libclient/wait.h"

struct admin_call {
    struct psc__waiter waiter;
    struct ps_slices reply;
};

static void admin_replied(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    struct admin_call *v = arg;
    ps_slices_move(&v->reply, reply);
    psc__waiter_wake(&v->waiter, e);
}

// spec: but for done and arg.
static enum ps_code admin_ask(struct psc_client *c, struct psc__call_spec *spec,
                              const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply,
                              struct ps_error *e)
{
    struct admin_call v = {.reply = PS_SLICES_EMPTY};
    struct ps_error failed;
    spec->done = admin_replied;
    spec->arg = &v;
    psc__waiter_init(&v.waiter);
    if (psc__call(c, spec, &failed) != PS_OK)
        psc__waiter_wake(&v.waiter, &failed);
    enum ps_code code = psc__waiter_wait(&v.waiter);
    if (code == PS_OK)
        code = psc__decode(&c->tasks[spec->task], reply_type, &v.reply, reply, e);
    else if (e)
        *e = v.waiter.error;
    ps_slices_clear(&v.reply);
    return code;
}

enum ps_code psc__admin_call(struct psc_client *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply, int timeout_ms,
                             struct ps_error *e)
{
    struct psc__call_spec spec = {
        .task = task, .method = method, .message = request, .timeout_ms = timeout_ms, .once = true};
    if (task >= c->n_tasks)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there is no ps:%u among %u ps tasks", task, c->n_tasks);
    return admin_ask(c, &spec, reply_type, reply, e);
}

psc_code psc_set_hyper(psc_client *client, const char *name, double value, uint64_t *round, psc_error *error)
{
    Paramserver__V1__SetHyperRequest request = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    ProtobufCMessage *m = NULL;
    request.job = client->job;
    request.name = (char *)name;
    request.value = value;
    request.round = round ? *round : 0;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__SET_HYPER,
                                  .message = &request.base,
                                  .timeout_ms = (int)(client->timeout_ns / PS_MS)};
    if (admin_ask(client, &spec, &paramserver__v1__set_hyper_reply__descriptor, &m, &e) == PS_OK) {
        const Paramserver__V1__SetHyperReply *r = (Paramserver__V1__SetHyperReply *)m;
        psc__lock(client);
        psc__check_generation(&client->tasks[0], r->generation, &e);
        psc__unlock(client);
        if (e.code == PS_OK && round)
            *round = r->round;
        ps_msg_free(m);
    }
    if (e.code != PS_OK)
        ps_error_prefix(&e, "set %s", name);
    return psc__error_out(&e, error);
}

psc_code psc_split_gradients(psc_client *client, psc_splits *splits, psc_error *error)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    ProtobufCMessage *m = NULL;
    request.job = client->job;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__STATUS,
                                  .message = &request.base,
                                  .timeout_ms = (int)(client->timeout_ns / PS_MS)};
    if (admin_ask(client, &spec, &paramserver__v1__status_reply__descriptor, &m, &e) == PS_OK) {
        const Paramserver__V1__StatusReply *r = (Paramserver__V1__StatusReply *)m;
        const Paramserver__V1__JobStatus *job = r->n_jobs ? r->jobs[0] : NULL;
        if (job)
            *splits = (psc_splits){job->splits, job->split_round, job->split_worker};
        else
            ps_fail(&e, PS_NOT_FOUND, "ps task 0 has no job '%s'", client->job);
        ps_msg_free(m);
    }
    if (e.code != PS_OK)
        ps_error_prefix(&e, "split gradients");
    return psc__error_out(&e, error);
}
