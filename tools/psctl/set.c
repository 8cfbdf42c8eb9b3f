// SPDX-License-Identifier: Apache-2.0
//
// psctl set-lr and set: a hyperparameter of a running job, changed at the control task, which has all ps tasks change
// in the same round; then every task is asked from which round on it uses it.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"

typedef Paramserver__V1__DescribeReply Description;

static const struct table_column columns[] = {
    {"task", "ps", TABLE_COUNT},    {"address", "address", TABLE_TEXT},   {"name", "name", TABLE_TEXT},
    {"value", "value", TABLE_REAL}, {"round", "from round", TABLE_COUNT}, {"state", "state", TABLE_TEXT},
};

struct change {
    char name[OPERAND_NAME_MAX];
    double value;
    uint64_t round;
};

// Without rounds the workers clip by a norm, and take a new one at the end of their epoch.
static bool set_is_for_workers(const struct change *c)
{
    return c->round == 0 && (strcmp(c->name, "clipnorm") == 0 || strcmp(c->name, "global_clipnorm") == 0);
}

// The last change of this name that the task knows of.
static const Paramserver__V1__HyperChange *last_change(const Description *d, const char *name)
{
    for (size_t i = d ? d->n_changes : 0; i > 0; i--)
        if (strcmp(d->changes[i - 1]->name, name) == 0)
            return d->changes[i - 1];
    return NULL;
}

static bool has_it(const struct answer *answer, const struct change *wanted)
{
    const Paramserver__V1__HyperChange *c = last_change((const Description *)answer->reply, wanted->name);
    return c && c->value == wanted->value && c->round == wanted->round;
}

static void set_task_row(struct table *t, const struct cluster *c, size_t task, const struct answer *answer,
                         const struct change *wanted)
{
    const Paramserver__V1__HyperChange *change = last_change((const Description *)answer->reply, wanted->name);
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_text(psc_cluster_address(c->spec, task)));
    table_cell(t, table_text(wanted->name));
    table_cell(t, change ? json_real(change->value) : NULL);
    table_cell(t, change && change->round ? table_count(change->round) : NULL);
    table_cell(t, table_text(!answer->reply ? cluster_task_state(answer) : has_it(answer, wanted) ? "set" : "not set"));
}

// What became of it on every task. Returns the exit code.
static int set_show(struct cluster *c, const struct change *change, bool json)
{
    struct answer *answers;
    struct table t;
    struct ps_error e;
    size_t missing = 0;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    cluster_describe(c, &answers);
    for (size_t i = 0; i < c->tasks; i++) {
        set_task_row(&t, c, i, &answers[i], change);
        missing += answers[i].reply && !has_it(&answers[i], change);
    }
    table_show(&(struct table_part){"tasks", &t, false}, 1, json, stdout);
    int exit_code = cluster_report(answers, c->tasks);
    if (exit_code == 0 && missing) {
        ps_fail(&e, PS_INTERNAL, "%zu of %zu ps tasks do not have %s = %g from round %" PRIu64 " on", missing, c->tasks,
                change->name, change->value, change->round);
        exit_code = call_report(&e);
    }
    cluster_answers_free(answers, c->tasks);
    table_fini(&t);
    return exit_code;
}

static int set_change(struct cluster *c, const char *job, struct change *change, bool json)
{
    Paramserver__V1__SetHyperRequest request = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct ps_error e;
    char state[32] = "";
    request.job = (char *)job;
    request.name = change->name;
    request.value = change->value;
    request.round = change->round;
    if (cluster_check(c, &e))
        return call_report(&e);
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__SET_HYPER, &request.base,
                        &paramserver__v1__set_hyper_reply__descriptor, &reply, &e))
        return jobs_report_error(c, job, &e);
    change->round = ((const Paramserver__V1__SetHyperReply *)reply)->round;
    ps_msg_free(reply);
    if (!json)
        jobs_state(c, job, state, sizeof state);
    if (!json && strcmp(state, "done") == 0)
        printf("job %s is done: %s is %g if it is resumed\n\n", job, change->name, change->value);
    else if (!json && change->round)
        printf("%s of job %s is %g from round %" PRIu64 " on\n\n", change->name, job, change->value, change->round);
    else if (!json && set_is_for_workers(change))
        printf("%s of job %s is %g from each worker's next epoch on: without rounds the workers clip\n\n", change->name,
               job, change->value);
    else if (!json)
        printf("%s of job %s is %g from now on\n\n", change->name, job, change->value);
    return set_show(c, change, json);
}

// lr: the operand is the learning rate's value, else NAME=VALUE.
static int set_run(struct call *call, bool lr)
{
    long round = 0;
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "round", .number = &round, .min = 1, .max = INT64_MAX}};
    struct change change = {.name = "learning_rate"};
    struct cluster c;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    enum ps_code code = lr ? operand_number(call->argv[1], &change.value, &e)
                           : operand_assignment(call->argv[1], change.name, &change.value, &e);
    if (code)
        return call_wrong(call, "%s", e.text);
    change.round = (uint64_t)round;
    if (cluster_open(&c, &call->target, call->argv[0], &e))
        return call_report(&e);
    exit_code = set_change(&c, call->argv[0], &change, call->target.json);
    cluster_close(&c);
    return exit_code;
}

int command_set_lr(struct call *call)
{
    return set_run(call, true);
}

int command_set(struct call *call)
{
    return set_run(call, false);
}
