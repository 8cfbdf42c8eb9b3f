// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/tls/tls.h"
#include "common/wire/wire.h"
#include "libclient/admin.h"
#include "libclient/cluster.h"
#include "proto/paramserver.pb-c.h"

enum { TIMEOUT_MS = 5000 };

static const char default_address[] = "127.0.0.1:7070";
// Of this host's services: where this build has its settings, and where a bundle's units and packages have them.
static const char *const host_files[] = {SYSCONFDIR "/paramserver/cluster.yaml", "/etc/paramserver/cluster.yaml"};

static enum ps_code cluster_from_psc(const psc_error *from, struct ps_error *e)
{
    return ps_fail(e, (enum ps_code)from->code, "%s", from->text);
}

// "A,B,C"
static psc_code cluster_split_addresses(const char *list, psc_cluster **spec, psc_error *error)
{
    char *copy = ps_strdup(list), *rest = copy;
    const char **address = ps_alloc((strlen(list) + 1) * sizeof *address);
    size_t n = 0;
    for (char *one; (one = strsep(&rest, ","));)
        address[n++] = one;
    psc_code code = psc_cluster_create(address, n, spec, error);
    free(address);
    free(copy);
    return code;
}

enum ps_code cluster_check_addresses(const char *list, struct ps_error *e)
{
    psc_cluster *spec = NULL;
    psc_error error;
    psc_code code = cluster_split_addresses(list, &spec, &error);
    psc_cluster_free(spec);
    return code ? cluster_from_psc(&error, e) : PS_OK;
}

// NULL: there is none. What cannot be looked at may be there.
static const char *cluster_host_file(void)
{
    for (size_t i = 0; i < sizeof host_files / sizeof *host_files; i++)
        if (access(host_files[i], F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
            return host_files[i];
    return NULL;
}

// The option; else the variable. NULL: neither is set; an empty variable is not.
static const char *cluster_setting(const char *option, const char *variable)
{
    const char *value = getenv(variable);
    return option ? option : value && *value ? value : NULL;
}

// Prefixes an error of a setting that is the variable's with its name.
static enum ps_code cluster_blame(const char *option, const char *variable, struct ps_error *e)
{
    return option || !cluster_setting(NULL, variable) ? e->code : ps_error_prefix(e, "$%s", variable);
}

// --ps, or --cluster, or PSCTL_CLUSTER, or TF_CONFIG, or what this host's services are in, or the psd that is started
// without being told anything.
static psc_code find_tasks(const struct target *target, psc_cluster **spec, psc_error *error)
{
    if (target->ps)
        return cluster_split_addresses(target->ps, spec, error);
    const char *file = cluster_setting(target->file, "PSCTL_CLUSTER");
    psc_code code = psc_cluster_find(file, spec, error);
    if (code != PSC_NOT_FOUND || file)
        return code;
    file = cluster_host_file();
    return file ? psc_cluster_find(file, spec, error) : cluster_split_addresses(default_address, spec, error);
}

// --munge, --tls, or PSCTL_TLS, or what the cluster's file says.
static enum ps_code find_spec(const struct target *target, psc_cluster **spec, struct ps_error *e)
{
    const psc_tls tls = {.folder = cluster_setting(target->tls, "PSCTL_TLS")};
    psc_error error = {0};
    psc_code code = find_tasks(target, spec, &error);
    if (code) {
        cluster_from_psc(&error, e);
        return cluster_blame(target->ps ? target->ps : target->file, "PSCTL_CLUSTER", e);
    }
    if (target->munge)
        code = psc_cluster_set_munge(*spec, NULL, &error);
    if (code == PSC_OK && tls.folder)
        code = psc_cluster_set_tls(*spec, &tls, &error);
    if (code == PSC_OK)
        return PS_OK;
    psc_cluster_free(*spec);
    return cluster_from_psc(&error, e);
}

// Its certificates, where it has any; else NULL.
static enum ps_code cluster_open_tls(const psc_cluster *spec, const struct target *target, struct ps_tls **tls,
                                     struct ps_error *e)
{
    *tls = NULL;
    if (!ps_cluster_has_tls(&spec->is) || ps_tls_open(&spec->is.tls, PS_ROLE_ADMIN, tls, e) == PS_OK)
        return PS_OK;
    return cluster_blame(target->tls, "PSCTL_TLS", e);
}

enum ps_code cluster_open(struct cluster *c, const struct target *target, const char *job, struct ps_error *e)
{
    psc_error error = {0};
    struct cluster opened = {0};
    // A client belongs to a job; where none is asked for, any name does.
    // Unary: each call stands for itself, whatever becomes of another one.
    psc_options options = {.job = job ? job : "psctl",
                           .rank = -1,
                           .transport = PSC_UNARY,
                           .timeout_ms = target->timeout ? (int)target->timeout * 1000 : TIMEOUT_MS};
    if (find_spec(target, &opened.spec, e))
        return e->code;
    opened.timeout_ms = options.timeout_ms;
    if (cluster_open_tls(opened.spec, target, &opened.tls, e)) {
        psc_cluster_free(opened.spec);
        return e->code;
    }
    if (psc__admin_connect(opened.spec, &options, &opened.client, &error)) {
        ps_tls_close(opened.tls);
        psc_cluster_free(opened.spec);
        return cluster_from_psc(&error, e);
    }
    opened.tasks = psc_cluster_tasks(opened.spec);
    *c = opened;
    return PS_OK;
}

void cluster_close(struct cluster *c)
{
    psc_close(c->client, NULL);
    ps_tls_close(c->tls);
    psc_cluster_free(c->spec);
}

enum ps_code cluster_ask_one(struct cluster *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply, struct ps_error *e)
{
    return psc__admin_call(c->client, task, method, request, reply_type, reply, c->timeout_ms, e);
}

// One thread per task, so that a task that does not answer delays no other's answer.
struct question {
    struct cluster *cluster;
    uint32_t task;
    int method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *reply_type;
    struct answer *answer;
    pthread_t thread;
    bool threaded;
};

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void *question_run(void *arg)
{
    struct question *q = arg;
    q->answer->asked_ms = wall_ms();
    cluster_ask_one(q->cluster, q->task, q->method, q->request, q->reply_type, &q->answer->reply, &q->answer->error);
    q->answer->answered_ms = wall_ms();
    return NULL;
}

void cluster_ask(struct cluster *c, int method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *reply_type, struct answer **answers)
{
    struct question *q = ps_alloc(c->tasks * sizeof *q);
    *answers = ps_alloc(c->tasks * sizeof **answers);
    // The last one is asked by this thread, and whichever no thread could be had for.
    for (size_t i = 0; i < c->tasks; i++) {
        q[i] = (struct question){c, (uint32_t)i, method, request, reply_type, &(*answers)[i], .threaded = false};
        if (c->silent && c->silent[i]) {
            ps_fail(&(*answers)[i].error, PS_UNAVAILABLE, "ps:%zu does not answer", i);
            continue;
        }
        q[i].threaded = i + 1 < c->tasks && pthread_create(&q[i].thread, NULL, question_run, &q[i]) == 0;
        if (!q[i].threaded)
            question_run(&q[i]);
    }
    for (size_t i = 0; i < c->tasks; i++)
        if (q[i].threaded)
            pthread_join(q[i].thread, NULL);
    free(q);
}

void cluster_answers_free(struct answer *answers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (answers[i].reply)
            ps_msg_free(answers[i].reply);
    free(answers);
}

int cluster_report(const struct answer *answers, size_t n)
{
    int exit_code = 0;
    bool missing = false;
    for (size_t i = 0; i < n; i++) {
        const struct ps_error *e = &answers[i].error;
        if (answers[i].reply || (missing && e->code == PS_NOT_FOUND))
            continue;
        int code = call_report(e);
        exit_code = exit_code ? exit_code : code;
        missing = missing || e->code == PS_NOT_FOUND;
    }
    return exit_code;
}

enum ps_code cluster_check_task(const struct cluster *c, size_t task, const Paramserver__V1__StatusReply *s,
                                struct ps_error *e)
{
    if (s->task == task && s->tasks == c->tasks)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "says that it is ps:%" PRIu32 " of %" PRIu32 ", it is listed as ps:%zu of %zu", s->task, s->tasks,
                   task, c->tasks);
}

enum ps_code cluster_check(struct cluster *c, struct ps_error *e)
{
    Paramserver__V1__StatusRequest request = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    struct answer *answers;
    struct ps_error found;
    enum ps_code code = PS_OK;
    cluster_ask(c, PARAMSERVER__V1__METHOD__STATUS, &request.base, &paramserver__v1__status_reply__descriptor,
                &answers);
    for (size_t i = 0; i < c->tasks && code == PS_OK; i++) {
        const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)answers[i].reply;
        if (status && cluster_check_task(c, i, status, &found))
            code = ps_fail(e, found.code,
                           "ps:%zu (%s) %s: the cluster is described differently there, nothing was changed", i,
                           psc_cluster_address(c->spec, i), found.text);
    }
    cluster_answers_free(answers, c->tasks);
    return code;
}

bool cluster_is_silent(enum ps_code code)
{
    return code == PS_UNAVAILABLE || code == PS_DEADLINE_EXCEEDED;
}

const char *cluster_task_state(const struct answer *answer)
{
    const ProtobufCMessage *reply = answer->reply;
    if (reply && reply->descriptor == &paramserver__v1__status_reply__descriptor &&
        ((const Paramserver__V1__StatusReply *)reply)->draining)
        return "draining";
    if (reply)
        return "up";
    return cluster_is_silent(answer->error.code) ? "unreachable" : "error";
}

void cluster_describe(struct cluster *c, struct answer **answers)
{
    Paramserver__V1__DescribeRequest request = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    cluster_ask(c, PARAMSERVER__V1__METHOD__DESCRIBE, &request.base, &paramserver__v1__describe_reply__descriptor,
                answers);
}

int cluster_command(struct call *call, int (*body)(struct cluster *c, struct call *call))
{
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target)};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    if (cluster_open(&c, &call->target, call->argc ? call->argv[0] : NULL, &e))
        return call_report(&e);
    exit_code = body(&c, call);
    cluster_close(&c);
    return exit_code;
}
