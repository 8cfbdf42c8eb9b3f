// SPDX-License-Identifier: Apache-2.0
//
// psctl waits: the calls that are parked, on every ps task: who waits, for what, for whom, since when.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/caller.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/psctl.h"

static const struct table_column columns[] = {
    {"task", "ps", TABLE_COUNT},     {"job", "job", TABLE_TEXT},        {"who", "who", TABLE_TEXT},
    {"method", "call", TABLE_TEXT},  {"what", "waits for", TABLE_TEXT}, {"whom", "of whom", TABLE_TEXT},
    {"since_ms", "since", TABLE_MS}, {"left_ms", "still", TABLE_MS},
};

static void wait_row(struct table *t, size_t task, const Paramserver__V1__Wait *w)
{
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_text(w->job));
    table_cell(t, caller_name(w->worker, &w->client));
    table_cell(t, table_text(caller_method((int)w->method)));
    table_cell(t, table_text(w->what));
    table_cell(t, table_text(w->whom));
    table_cell(t, table_count(w->since_ms));
    table_cell(t, w->left_ms ? table_count(w->left_ms) : NULL);
}

static Paramserver__V1__WaitsRequest waits_request(const char *job, size_t skip)
{
    Paramserver__V1__WaitsRequest request = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    if (job)
        request.job = (char *)job;
    request.skip = (uint32_t)skip;
    return request;
}

// The rest of a list that was more than one answer holds. What is let go meanwhile shifts it: some may be missed.
static enum ps_code ask_rest(struct cluster *c, uint32_t task, const char *job, struct table *t,
                             const Paramserver__V1__WaitsReply *first, struct ps_error *e)
{
    size_t seen = first->n_waits, total = first->total;
    while (seen < total) {
        Paramserver__V1__WaitsRequest request = waits_request(job, seen);
        ProtobufCMessage *reply;
        if (cluster_ask_one(c, task, PARAMSERVER__V1__METHOD__WAITS, &request.base,
                            &paramserver__v1__waits_reply__descriptor, &reply, e))
            return e->code;
        const Paramserver__V1__WaitsReply *more = (const Paramserver__V1__WaitsReply *)reply;
        for (size_t i = 0; i < more->n_waits; i++)
            wait_row(t, task, more->waits[i]);
        seen += more->n_waits;
        total = more->n_waits ? total : 0;
        ps_msg_free(reply);
    }
    return PS_OK;
}

static int waits_fill(struct cluster *c, const char *job, const struct answer *answers, struct table *t)
{
    struct ps_error e;
    int exit_code = 0;
    for (size_t task = 0; task < c->tasks; task++) {
        const Paramserver__V1__WaitsReply *reply = (const Paramserver__V1__WaitsReply *)answers[task].reply;
        for (size_t i = 0; reply && i < reply->n_waits; i++)
            wait_row(t, task, reply->waits[i]);
        if (reply && ask_rest(c, (uint32_t)task, job, t, reply, &e))
            exit_code = call_report(&e);
    }
    return exit_code;
}

static int waits_ask(struct cluster *c, struct call *call)
{
    const char *job = call->argc ? call->argv[0] : NULL;
    Paramserver__V1__WaitsRequest request = waits_request(job, 0);
    struct answer *answers;
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    cluster_ask(c, PARAMSERVER__V1__METHOD__WAITS, &request.base, &paramserver__v1__waits_reply__descriptor, &answers);
    int exit_code = waits_fill(c, job, answers, &t);
    table_show(&(struct table_part){"waits", &t, false}, 1, call->target.json, stdout);
    int missing = cluster_report(answers, c->tasks);
    exit_code = exit_code ? exit_code : missing;
    if (exit_code == 0 && json_array_size(t.rows) == 0 && !call->target.json)
        fprintf(stderr, "psctl: nobody waits\n");
    cluster_answers_free(answers, c->tasks);
    table_fini(&t);
    return exit_code;
}

int command_waits(struct call *call)
{
    return cluster_command(call, waits_ask);
}
