// SPDX-License-Identifier: Apache-2.0
//
// psctl vars: a job's variables, where they lie and how far they are.
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/wire/dtype.h"
#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/jobs.h"
#include "tools/psctl/psctl.h"

typedef Paramserver__V1__DescribeReply Description;

static const struct table_column columns[] = {
    {"name", "variable", TABLE_TEXT},
    {"dtype", "dtype", TABLE_TEXT, .detail = true},
    {"shape", "shape", TABLE_SHAPE},
    {"trainable", "trainable", TABLE_FLAG, .detail = true},
    {"rule", "rule", TABLE_TEXT, .detail = true},
    {"tasks", "ps", TABLE_LIST},
    {"partitions", "partitions", TABLE_COUNT, .detail = true},
    {"bytes", "bytes", TABLE_BYTES},
    {"version", "version", TABLE_COUNT},
    {"round", "round", TABLE_COUNT},
};

// One variable, summed over its partitions. `complete`: all their owners answered.
struct whole {
    json_t *tasks;
    uint64_t partitions, bytes, version, round;  // the least of both
    bool complete;
};

static const Description *vars_description(const struct answer *answer)
{
    return (const Description *)answer->reply;
}

// What the owner of partition i says about it, NULL where it said nothing.
static const Paramserver__V1__PartitionState *vars_state_of(const struct answer *answers, size_t tasks, uint32_t task,
                                                            size_t i)
{
    const Description *owner = task < tasks ? vars_description(&answers[task]) : NULL;
    return owner && i < owner->n_states ? owner->states[i] : NULL;
}

// Of every variable, in one walk over the partitions.
static struct whole *vars_sum_all(const Description *d, const struct answer *answers, size_t tasks)
{
    struct whole *all = ps_alloc(d->n_variables * sizeof *all);
    for (size_t i = 0; i < d->n_variables; i++)
        all[i] = (struct whole){.tasks = json_array(), .version = UINT64_MAX, .round = UINT64_MAX, .complete = true};
    for (size_t i = 0; i < d->n_partitions; i++) {
        const Paramserver__V1__Partition *p = d->partitions[i];
        const Paramserver__V1__PartitionState *state = vars_state_of(answers, tasks, p->task, i);
        if (p->variable >= d->n_variables)
            continue;
        struct whole *w = &all[p->variable];
        json_array_append_new(w->tasks, json_integer(p->task));
        w->partitions++;
        w->complete = w->complete && state;
        w->bytes += state ? state->bytes : 0;
        if (state && state->version < w->version)
            w->version = state->version;
        if (state && state->round < w->round)
            w->round = state->round;
    }
    return all;
}

// Takes over w.tasks.
static void vars_variable_row(struct table *t, const Description *d, const Paramserver__V1__Variable *v, struct whole w)
{
    json_t *shape = json_array();
    for (size_t k = 0; k < v->n_shape; k++)
        json_array_append_new(shape, table_count(v->shape[k]));
    table_row(t);
    table_cell(t, table_text(v->name));
    table_cell(t, table_text(ps_dtype_name((int)v->dtype)));
    table_cell(t, shape);
    table_cell(t, json_boolean(v->trainable));
    table_cell(t, table_text(v->rule[0] ? v->rule : v->trainable ? d->rule : "assign_add"));
    table_cell(t, w.tasks);
    table_cell(t, table_count(w.partitions));
    table_cell(t, w.complete ? table_count(w.bytes) : NULL);
    table_cell(t, w.complete && w.partitions ? table_count(w.version) : NULL);
    bool rounds = d->update == PARAMSERVER__V1__UPDATE__SYNC && (v->trainable || v->rule[0]);
    table_cell(t, rounds && w.complete && w.partitions ? table_count(w.round) : NULL);
}

static void vars_show(const struct answer *answers, size_t tasks, bool json)
{
    struct table t;
    table_init(&t, columns, sizeof columns / sizeof columns[0]);
    size_t first = 0;
    while (first < tasks && !answers[first].reply)
        first++;
    const Description *d = first < tasks ? vars_description(&answers[first]) : NULL;
    struct whole *all = d ? vars_sum_all(d, answers, tasks) : NULL;
    for (size_t i = 0; d && i < d->n_variables; i++)
        vars_variable_row(&t, d, d->variables[i], all[i]);
    free(all);
    table_show(&(struct table_part){"variables", &t, false}, 1, json, stdout);
    table_fini(&t);
}

static int vars_ask(struct cluster *c, struct call *call)
{
    struct answer *answers;
    cluster_describe(c, &answers);
    vars_show(answers, c->tasks, call->target.json);
    int exit_code = jobs_report_answers(c, answers, call->argv[0]);
    cluster_answers_free(answers, c->tasks);
    return exit_code;
}

int command_vars(struct call *call)
{
    return cluster_command(call, vars_ask);
}
