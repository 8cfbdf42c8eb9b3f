// SPDX-License-Identifier: Apache-2.0
//
// psctl stop: every ps task forgets a job. Its workers learn of it with their next call.
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

static const struct table_column columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"address", "address", TABLE_TEXT},
    {"result", "result", TABLE_TEXT},
};

static const char *stop_result(const struct answer *answer)
{
    if (answer->reply)
        return "stopped";
    return answer->error.code == PS_NOT_FOUND ? "no such job" : cluster_task_state(answer);
}

static void stop_show(struct cluster *c, const struct answer *answers, bool json)
{
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < c->tasks; i++) {
        table_row(&t);
        table_cell(&t, table_count(i));
        table_cell(&t, table_text(psc_cluster_address(c->spec, i)));
        table_cell(&t, table_text(stop_result(&answers[i])));
    }
    table_show(&(struct table_part){"tasks", &t, false}, 1, json, stdout);
    table_fini(&t);
}

// A job that only some tasks know is stopped all the same: it may have been half stopped before.
static int stop_judge(struct cluster *c, const struct answer *answers, const char *job)
{
    const size_t n = c->tasks;
    size_t stopped = 0, unknown = 0;
    for (size_t i = 0; i < n; i++) {
        stopped += answers[i].reply != NULL;
        unknown += !answers[i].reply && answers[i].error.code == PS_NOT_FOUND;
    }
    return stopped && stopped + unknown == n ? 0 : jobs_report_answers(c, answers, job);
}

static int stop_ask(struct cluster *c, struct call *call)
{
    Paramserver__V1__StopJobRequest request = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    const ProtobufCMessageDescriptor *type = &paramserver__v1__stop_job_reply__descriptor;
    ProtobufCMessage *first = NULL;
    struct answer *answers;
    struct ps_error e;
    if (cluster_check(c, &e))
        return call_report(&e);
    request.job = call->argv[0];
    // Task 0 before the others: a worker that heard of the end from another one would tell it there as its own failure.
    cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__STOP_JOB, &request.base, type, &first, &e);
    cluster_ask(c, PARAMSERVER__V1__METHOD__STOP_JOB, &request.base, type, &answers);
    if (first && answers[0].reply)
        ps_msg_free(answers[0].reply);
    answers[0].reply = first ? first : answers[0].reply;
    stop_show(c, answers, call->target.json);
    int exit_code = stop_judge(c, answers, call->argv[0]);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int command_stop(struct call *call)
{
    return cluster_command(call, stop_ask);
}
