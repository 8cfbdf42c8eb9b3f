// SPDX-License-Identifier: Apache-2.0
//
// psctl checkpoint: a running job's chief writes a checkpoint after its step, and the training goes on. It is asked at
// the control task, and again until it says what has become of it.
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

typedef Paramserver__V1__CheckpointRequest Request;
typedef Paramserver__V1__CheckpointReply Reply;

static const struct table_column columns[] = {{"job", "job", TABLE_TEXT}, {"path", "checkpoint", TABLE_TEXT}};

static enum ps_code checkpoint_ask(struct cluster *c, const Request *request, Reply **reply, struct ps_error *e)
{
    ProtobufCMessage *m = NULL;
    const enum ps_code code = cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__CHECKPOINT, &request->base,
                                              &paramserver__v1__checkpoint_reply__descriptor, &m, e);
    *reply = (Reply *)m;
    return code;
}

// On PS_OK *reply says that it is over.
static enum ps_code checkpoint_await(struct cluster *c, Request *request, long wait_max, Reply **reply,
                                     struct ps_error *e)
{
    const uint64_t end = ps_now() + (uint64_t)wait_max * PS_SECOND, say = ps_now() + PS_SECOND;
    bool said = false;
    while (checkpoint_ask(c, request, reply, e) == PS_OK && !(*reply)->over) {
        request->number = (*reply)->number;
        ps_msg_free(&(*reply)->base);
        if (ps_now() > end)
            return ps_fail(e, PS_DEADLINE_EXCEEDED,
                           "job '%s' has not written a checkpoint within %ld s: its chief has not ended a step, or "
                           "still writes",
                           request->job, wait_max);
        if (ps_now() > say && !said)
            fprintf(stderr, "psctl: waiting for the chief of job '%s' to write a checkpoint\n", request->job);
        said |= ps_now() > say;
        ps_sleep(100 * PS_MS);
    }
    return *reply ? PS_OK : e->code;
}

static void checkpoint_show(const Request *asked, const Reply *reply, bool json)
{
    struct table t;
    if (!json) {
        printf("%s\n", reply->text);
        return;
    }
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    table_row(&t);
    table_cell(&t, table_text(asked->job));
    table_cell(&t, table_text(reply->text));
    table_show(&(struct table_part){"checkpoints", &t, false}, 1, true, stdout);
    table_fini(&t);
}

static int checkpoint_run(struct cluster *c, Request *request, long wait_max, bool json)
{
    Reply *reply = NULL;
    struct ps_error e;
    if (cluster_check(c, &e))
        return call_report(&e);
    if (checkpoint_await(c, request, wait_max, &reply, &e))
        return jobs_report_error(c, request->job, &e);
    if (reply->failed)
        ps_fail(&e, PS_CANNOT_WRITE, "job '%s': %s", request->job, reply->text);
    else
        checkpoint_show(request, reply, json);
    const int exit_code = reply->failed ? call_report(&e) : 0;
    ps_msg_free(&reply->base);
    return exit_code;
}

int command_checkpoint(struct call *call)
{
    Request request = PARAMSERVER__V1__CHECKPOINT_REQUEST__INIT;
    long wait_max = 600;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "wait-max", .number = &wait_max, .min = 1, .max = 24 * 3600}};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    request.job = call->argv[0];
    if (cluster_open(&c, &call->target, call->argv[0], &e))
        return call_report(&e);
    exit_code = checkpoint_run(&c, &request, wait_max, call->target.json);
    cluster_close(&c);
    return exit_code;
}
