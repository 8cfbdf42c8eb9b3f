// SPDX-License-Identifier: Apache-2.0
//
// Questions to a running cluster's ps tasks.
#ifndef PSCTL_CLUSTER_H
#define PSCTL_CLUSTER_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "libclient/psclient.h"
#include "proto/paramserver.pb-c.h"
#include "tools/psctl/call.h"

struct cluster {
    psc_cluster *spec;
    struct ps_tls *tls;  // what psctl shows; NULL: nothing
    psc_client *client;  // an observer
    size_t tasks;
    int timeout_ms;      // of every question
    const bool *silent;  // [tasks], the caller's; NULL: none is known to be
};

// What one task answered. reply is NULL where it did not: error says why.
struct answer {
    ProtobufCMessage *reply;
    struct ps_error error;
    int64_t asked_ms, answered_ms;  // of this machine's wall, since 1970
};

// Contacts nobody yet. job may be NULL.
enum ps_code cluster_open(struct cluster *c, const struct target *target, const char *job, struct ps_error *e);
void cluster_close(struct cluster *c);

// Asks every ps task the same at the same time. *answers is [c->tasks]. Where c->silent says that a task does not
// answer, it is not asked again: its answer has no reply, and the error UNAVAILABLE.
void cluster_ask(struct cluster *c, int method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *reply_type, struct answer **answers);
enum ps_code cluster_ask_one(struct cluster *c, uint32_t task, int method, const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **reply,
                             struct ps_error *e);
void cluster_answers_free(struct answer *answers, size_t n);

// Names on stderr every task that did not answer; that a job is not there is said once. Returns the exit code of the
// first error, 0 where there is none.
int cluster_report(const struct answer *answers, size_t n);

// Is list what --ps takes? INVALID_ARGUMENT says why it is not.
enum ps_code cluster_check_addresses(const char *list, struct ps_error *e);

// FAILED_PRECONDITION: by its own account the task is another one than it is listed as here, or one of more or of
// fewer.
enum ps_code cluster_check_task(const struct cluster *c, size_t task, const Paramserver__V1__StatusReply *status,
                                struct ps_error *e);
// The same of every task that answers, before something is changed: on the wrong task, or on some of them alone, it
// would do harm. Of those that do not answer the command itself will hear.
enum ps_code cluster_check(struct cluster *c, struct ps_error *e);

// With that error nobody has answered.
bool cluster_is_silent(enum ps_code code);
// "up", "draining", "unreachable" or "error"; answers to Status tell the second.
const char *cluster_task_state(const struct answer *answer);

// The options of struct target, for a table of options.
#define TARGET_OPTIONS(t)                                                                                        \
    {.name = "cluster", .text = &(t)->file}, {.name = "ps", .text = &(t)->ps, .check = cluster_check_addresses}, \
        {.name = "tls", .text = &(t)->tls}, {.name = "timeout", .number = &(t)->timeout, .min = 1, .max = 3600}, \
        {.name = "munge", .flag = &(t)->munge},                                                                  \
    {                                                                                                            \
        .name = "json", .flag = &(t)->json                                                                       \
    }

// Runs body, between opening and closing, on the cluster that the command line names; the job is its first argument,
// where it has one. Returns the exit code.
int cluster_command(struct call *call, int (*body)(struct cluster *c, struct call *call));

// DESCRIBE of the job that the cluster was opened for.
void cluster_describe(struct cluster *c, struct answer **answers);

#endif
