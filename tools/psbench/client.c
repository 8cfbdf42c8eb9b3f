// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/client.h"

#include <pthread.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/psclient.h"
#include "tools/psbench/buffers.h"

#define VARIABLE "w"

struct client {
    const struct bench_case *c;
    struct load_meter *m;
    psc_client *psc;
    struct buffers buffers;
    struct client_call *calls;  // [window]
    pthread_mutex_t lock;       // of what follows
    pthread_cond_t ended;
    long under_way;
    psc_error error;  // the first
};

// A call after the other, each begun in the callback of the one before.
struct client_call {
    struct client *client;
    psc_tensor sent, got;
    uint64_t started;  // ns
};

// ---- calls --------------------------------------------------------------------------------------------------------

static void client_on_end(void *arg, const psc_result *r);

static void client_begin(struct client_call *call)
{
    static const psc_push_options options = {.examples = 1};
    psc_client *psc = call->client->psc;
    switch (call->client->c->command) {
    case BENCH_PUSH:
        psc_push(psc, &call->sent, 1, &options, client_on_end, call, NULL);
        break;
    case BENCH_PULL:
        psc_pull(psc, &call->got, 1, 0, client_on_end, call, NULL);
        break;
    case BENCH_PUSHPULL:
        psc_push_pull(psc, &call->sent, &call->got, 1, &options, client_on_end, call, NULL);
        break;
    default:
        psc_assign_add(psc, &call->sent, 1, client_on_end, call, NULL);
    }
}

static void client_on_end(void *arg, const psc_result *r)
{
    struct client_call *call = arg;
    struct client *client = call->client;
    if (!r->error.code && load_count(client->m, &call->started, 1)) {
        client_begin(call);
        return;
    }
    pthread_mutex_lock(&client->lock);
    if (r->error.code && !client->error.code)
        client->error = r->error;
    client->under_way--;
    pthread_cond_signal(&client->ended);
    pthread_mutex_unlock(&client->lock);
}

// An error of one call ends all: psbench ends this process.
static enum ps_code client_call_all(struct client *client, struct ps_error *e)
{
    client->under_way = client->c->window;
    load_ready(client->m);
    for (long i = 0; i < client->c->window; i++) {
        client->calls[i].started = ps_now();
        client_begin(&client->calls[i]);
    }
    pthread_mutex_lock(&client->lock);
    while (client->under_way > 0 && !client->error.code)
        pthread_cond_wait(&client->ended, &client->lock);
    psc_error error = client->error;
    pthread_mutex_unlock(&client->lock);
    if (error.code)
        return ps_fail(e, (enum ps_code)error.code, "%s: %s", bench_commands[client->c->command], error.text);
    load_done(client->m);
    return PS_OK;
}

// ---- set up -------------------------------------------------------------------------------------------------------

static psc_code client_connect(struct client *client, const struct servers *servers, int rank, psc_error *error)
{
    const char *addresses[SERVERS_MAX];
    psc_cluster *cluster;
    for (int i = 0; i < servers->n; i++)
        addresses[i] = servers->addresses[i];
    const psc_options options = {
        .job = "psbench", .rank = rank, .workers = (uint32_t)client->c->workers, .update = PSC_ASYNC};
    if (psc_cluster_create(addresses, (size_t)servers->n, &cluster, error))
        return error->code;
    psc_code code = PSC_OK;
    if (servers->shown)
        code = psc_cluster_set_tls(cluster, &(psc_tls){.folder = servers->shown}, error);
    if (code == PSC_OK)
        code = psc_connect(cluster, &options, &client->psc, error);
    psc_cluster_free(cluster);
    return code;
}

// One variable, cut into as many parts as there are ps tasks and elements.
static psc_code client_declare(struct client *client, int rank, psc_error *error)
{
    const struct bench_case *c = client->c;
    const uint64_t shape[] = {c->size / sizeof(float)};
    char partitioner[32];
    snprintf(partitioner, sizeof partitioner, "fixed:%ld", c->ps);
    const psc_variable variable = {
        .name = VARIABLE, .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true};
    const psc_declaration declaration = {.variables = &variable,
                                         .n_variables = 1,
                                         .rule = bench_rule_name(c->rule),
                                         .placement = "round_robin",
                                         .partitioner = shape[0] < (uint64_t)c->ps ? "none" : partitioner};
    return rank == 0 ? psc_declare(client->psc, &declaration, NULL, error) : psc_attach(client->psc, error);
}

static void client_prepare(struct client *client)
{
    const struct bench_case *c = client->c;
    psc_tensor tensor = {.name = VARIABLE, .count = c->size / sizeof(float), .dtype = PSC_FLOAT32};
    buffers_init(&client->buffers, c);
    client->calls = ps_alloc((size_t)c->window * sizeof *client->calls);
    for (long i = 0; i < c->window; i++) {
        struct client_call *call = &client->calls[i];
        *call = (struct client_call){.client = client, .sent = tensor, .got = tensor};
        call->sent.data = client->buffers.sent ? client->buffers.sent[i] : NULL;
        call->got.data = client->buffers.got ? client->buffers.got[i] : NULL;
    }
}

// The memory ends with the process.
enum ps_code client_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e)
{
    const struct client_work *work = arg;
    struct client client = {.c = work->c, .m = m};
    psc_error error;
    pthread_mutex_init(&client.lock, NULL);
    pthread_cond_init(&client.ended, NULL);
    client_prepare(&client);
    if (client_connect(&client, work->servers, rank, &error) || client_declare(&client, rank, &error))
        return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
    enum ps_code code = client_call_all(&client, e);
    if (!code)
        psc_close(client.psc, NULL);
    return code;
}
