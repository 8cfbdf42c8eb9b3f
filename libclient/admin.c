// SPDX-License-Identifier: Apache-2.0
#include "libclient/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/call.h"
#include "libclient/convert.h"
#include "libclient/op.h"
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

// spec: but for done and arg. *v is waited for.
static void admin_begin(struct psc_client *c, struct psc__call_spec *spec, struct admin_call *v)
{
    struct ps_error failed;
    *v = (struct admin_call){.waiter = PSC__WAITER, .reply = PS_SLICES_EMPTY};
    spec->done = admin_replied;
    spec->arg = v;
    if (psc__call(c, spec, &failed) != PS_OK)
        psc__waiter_wake(&v->waiter, &failed);
}

static enum ps_code admin_ask(struct psc_client *c, struct psc__call_spec *spec,
                              const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply,
                              struct ps_error *e)
{
    struct admin_call v;
    admin_begin(c, spec, &v);
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

struct admin_hyper {
    struct psc_client *client;
    struct psc__waiter waiter;
    uint64_t round;
};

// An answer of another generation ends all operations: that is found here, so that their callbacks run on a thread of
// the library.
static void admin_hyper_set(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct admin_hyper *h = arg;
    struct psc__task *control = &h->client->tasks[0];
    struct ps_error e = *error;
    ProtobufCMessage *m;
    if (e.code == PS_OK &&
        psc__decode(control, &paramserver__v1__set_hyper_reply__descriptor, reply, &m, &e) == PS_OK) {
        const Paramserver__V1__SetHyperReply *r = (Paramserver__V1__SetHyperReply *)m;
        h->round = r->round;
        psc__lock(h->client);
        psc__check_generation(control, r->generation, &e);
        psc__unlock(h->client);
        ps_msg_free(m);
    }
    psc__waiter_wake(&h->waiter, &e);
}

psc_code psc_set_hyper(psc_client *client, const char *name, double value, uint64_t *round, psc_error *error)
{
    Paramserver__V1__SetHyperRequest request = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    struct admin_hyper h = {.client = client, .waiter = PSC__WAITER};
    if (!name) {
        ps_fail(&e, PS_INVALID_ARGUMENT, "set hyper: expected the name of a hyperparameter");
        return psc__error_out(&e, error);
    }
    request.job = client->job;
    request.name = (char *)name;
    request.value = value;
    request.round = round ? *round : 0;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__SET_HYPER,
                                  .message = &request.base,
                                  .timeout_ms = (int)(client->timeout_ns / PS_MS),
                                  .done = admin_hyper_set,
                                  .arg = &h};
    if (psc__call(client, &spec, &e) != PS_OK)
        psc__waiter_wake(&h.waiter, &e);
    if (psc__waiter_wait(&h.waiter) != PS_OK) {
        e = h.waiter.error;
        ps_error_prefix(&e, "set %s", name);
    } else if (round) {
        *round = h.round;
    }
    return psc__error_out(&e, error);
}

static psc_hyper_change *admin_take_changes(const Paramserver__V1__DescribeReply *r)
{
    psc_hyper_change *all = ps_try_alloc_array(r->n_changes + 1, sizeof *all);
    for (size_t i = 0; all && i < r->n_changes; i++) {
        const Paramserver__V1__HyperChange *c = r->changes[i];
        all[i] = (psc_hyper_change){.value = c->value, .round = c->round};
        snprintf(all[i].name, sizeof all[i].name, "%s", c->name);
    }
    return all;
}

psc_code psc_hyper_changes(psc_client *client, psc_hyper_change **changes, size_t *n, psc_error *error)
{
    Paramserver__V1__DescribeRequest request = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    ProtobufCMessage *m = NULL;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__DESCRIBE,
                                  .message = &request.base,
                                  .timeout_ms = (int)(client->timeout_ns / PS_MS)};
    if (admin_ask(client, &spec, &paramserver__v1__describe_reply__descriptor, &m, &e) == PS_OK) {
        const Paramserver__V1__DescribeReply *r = (Paramserver__V1__DescribeReply *)m;
        psc_hyper_change *all = admin_take_changes(r);
        if (all) {
            *changes = all;
            *n = r->n_changes;
        } else {
            ps_no_memory(&e, "changes");
        }
        ps_msg_free(m);
    }
    if (e.code != PS_OK)
        ps_error_prefix(&e, "changes of hyperparameters");
    return psc__error_out(&e, error);
}

// Of all ps tasks at once; all have answered then, and *e is of the first that has failed. NULL: no memory.
static struct admin_call *admin_ask_all(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e)
{
    struct admin_call *calls = ps_try_alloc_array(c->n_tasks, sizeof *calls);
    if (!calls)
        ps_no_memory(e, "calls to all ps tasks");
    for (uint32_t i = 0; calls && i < c->n_tasks; i++) {
        struct psc__call_spec one = *spec;
        one.task = i;
        admin_begin(c, &one, &calls[i]);
    }
    for (uint32_t i = 0; calls && i < c->n_tasks; i++)
        if (psc__waiter_wait(&calls[i].waiter) && e->code == PS_OK)
            *e = calls[i].waiter.error;
    return calls;
}

static void admin_free_all(struct psc_client *c, struct admin_call *calls)
{
    for (uint32_t i = 0; calls && i < c->n_tasks; i++)
        ps_slices_clear(&calls[i].reply);
    free(calls);
}

// Adds up what all have loaded; *none: one that had nothing, or UINT32_MAX.
static uint64_t admin_count_loaded(struct psc_client *c, struct admin_call *calls, uint32_t *none, struct ps_error *e)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < c->n_tasks; i++) {
        ProtobufCMessage *m = NULL;
        if (psc__decode(&c->tasks[i], &paramserver__v1__load_shard_reply__descriptor, &calls[i].reply, &m, e))
            return 0;
        const uint64_t one = ((Paramserver__V1__LoadShardReply *)m)->elements;
        *none = one == 0 && *none == UINT32_MAX ? i : *none;
        elements += one;
        ps_msg_free(m);
    }
    return elements;
}

static void admin_check_loaded(struct psc_client *c, struct admin_call *calls, const char *name, uint64_t expected,
                               struct ps_error *e)
{
    uint32_t none = UINT32_MAX;
    const uint64_t loaded = admin_count_loaded(c, calls, &none, e);
    if (e->code || loaded == expected)
        return;
    if (none == UINT32_MAX)
        ps_fail(e, PS_FAILED_PRECONDITION, "the shards of %s have %" PRIu64 " elements, expected %" PRIu64, name,
                loaded, expected);
    else
        ps_fail(e, PS_FAILED_PRECONDITION,
                PSC__TASK " has no shard of %s, and the others have %" PRIu64 " of its %" PRIu64 " elements",
                PSC__TASK_ARGS(&c->tasks[none]), name, loaded, expected);
}

psc_code psc_load_shards(psc_client *client, const psc_shards *shards, uint64_t elements, uint64_t steps,
                         psc_error *error)
{
    Paramserver__V1__LoadShardRequest request = PARAMSERVER__V1__LOAD_SHARD_REQUEST__INIT;
    Paramserver__V1__Shard shard = PARAMSERVER__V1__SHARD__INIT;
    struct ps_error e = {.code = PS_OK};
    shard.name = (char *)shards->name;
    shard.checkpoint = shards->checkpoint;
    request.shard = &shard;
    request.steps = steps;
    const struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__LOAD_SHARD,
                                        .message = &request.base,
                                        .timeout_ms = (int)psc__shards_timeout(shards),
                                        .mutates = true};
    struct admin_call *calls = admin_ask_all(client, &spec, &e);
    if (e.code == PS_OK)
        admin_check_loaded(client, calls, shards->name, elements, &e);
    admin_free_all(client, calls);
    if (e.code != PS_OK)
        ps_error_prefix(&e, "load shards");
    return psc__error_out(&e, error);
}

psc_code psc_prune_shards(psc_client *client, const char *name, uint32_t series, const uint64_t *keep, size_t n,
                          psc_error *error)
{
    Paramserver__V1__PruneShardsRequest request = PARAMSERVER__V1__PRUNE_SHARDS_REQUEST__INIT;
    struct ps_error e = {.code = PS_OK};
    request.name = (char *)name;
    request.series = series;
    request.keep = (uint64_t *)keep;
    request.n_keep = n;
    const struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__PRUNE_SHARDS,
                                        .message = &request.base,
                                        .timeout_ms = (int)(client->timeout_ns / PS_MS)};
    admin_free_all(client, admin_ask_all(client, &spec, &e));
    if (e.code != PS_OK)
        ps_error_prefix(&e, "prune shards of %s", name);
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
