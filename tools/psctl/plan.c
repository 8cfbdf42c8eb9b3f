// SPDX-License-Identifier: Apache-2.0
//
// psctl plan: what a job would put where, worked out with the same pure functions as the chief's declaration.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/job/job.h"
#include "common/math/rule.h"
#include "common/plan/cost.h"
#include "common/plan/placement.h"
#include "common/wire/dtype.h"
#include "tools/common/table.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"
#include "workerd/strategy/variables.h"

// Of a task to the mean, beyond which it is worth a word, and the bytes of the task below which it is not.
static const double IMBALANCE = 1.25;
enum { IMBALANCE_BYTES = 1 << 20 };

static const struct table_column variable_columns[] = {
    {"name", "variable", TABLE_TEXT},
    {"dtype", "dtype", TABLE_TEXT},
    {"shape", "shape", TABLE_SHAPE},
    {"trainable", "trainable", TABLE_FLAG},
    {"tasks", "ps", TABLE_LIST},
    {"partitions", "partitions", TABLE_COUNT},
    {"bytes", "values", TABLE_BYTES},
    {"slot_bytes", "slots", TABLE_BYTES},
    {"round_bytes", "rounds", TABLE_BYTES},
    {"kept_bytes", "kept", TABLE_BYTES},
    {"dedup_bytes", "dedup", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
};

static const struct table_column task_columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"variables", "variables", TABLE_COUNT},
    {"partitions", "partitions", TABLE_COUNT},
    {"blocks", "blocks", TABLE_COUNT},
    {"bytes", "values", TABLE_BYTES},
    {"slot_bytes", "slots", TABLE_BYTES},
    {"round_bytes", "rounds", TABLE_BYTES},
    {"kept_bytes", "kept", TABLE_BYTES},
    {"dedup_bytes", "dedup", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
    {"left_bytes", "left", TABLE_BYTES},
};

static const struct table_column total_columns[] = {
    {"needed_bytes", "each psd needs", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
    {"imbalance", "greatest task / mean", TABLE_REAL},
};

// Of a job without ps tasks: what each replica holds.
static const struct table_column held_columns[] = {
    {"name", "variable", TABLE_TEXT},
    {"dtype", "dtype", TABLE_TEXT},
    {"shape", "shape", TABLE_SHAPE},
    {"trainable", "trainable", TABLE_FLAG},
    {"bytes", "values", TABLE_BYTES},
    {"slot_bytes", "slots", TABLE_BYTES},
    {"gradient_bytes", "gradients", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
};

static const struct table_column worker_columns[] = {
    {"variables", "variables", TABLE_COUNT}, {"bytes", "values", TABLE_BYTES},
    {"slot_bytes", "slots", TABLE_BYTES},    {"gradient_bytes", "gradients", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
};

struct plan {
    struct nn_model *model;
    psc_variable *variables;
    struct ps_placement_var *vars;  // the same, as placement sees them
    size_t n_vars;
    struct ps_partition *partitions;
    size_t n_partitions;
    uint32_t tasks, workers;
    bool sync, needs_no_ps, writes_shards;
    uint64_t limit;  // of --memory, what a psd has for blocks; 0: not given
};

// What one task or one variable holds.
struct load {
    uint64_t variables, partitions;
    uint64_t shard;  // bytes of what changes, and of its slots
    struct ps_memory memory;
};

// What a partitioner can spread over the tasks: values, slots and rounds, in bytes. Not what a task keeps beside them.
struct cuttable {
    uint64_t most, sum;
    uint32_t task;  // which has the most
};

// ---- the plan -----------------------------------------------------------------------------------------------------

// The variable's own rule, else the job's where it is trainable.
static uint32_t slots_of(const psc_variable *v, uint32_t of_job)
{
    const struct ps_rule *own = v->rule ? ps_rule_find(v->rule) : NULL;
    return own ? (uint32_t)own->own_slots : v->trainable ? of_job : 0;
}

static enum ps_code plan_job_slots(const struct ps_job *job, uint32_t *slots, struct ps_error *e)
{
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    if (ps_job_server_rule(job, &rule, hyper, e))
        return e->code;
    *slots = (uint32_t)ps_rule_slots(rule, hyper);
    return PS_OK;
}

static void take_vars(struct plan *plan, bool (*has)(const struct nn_param *p), uint32_t slots)
{
    plan->variables = wk_variables(plan->model, has, NULL, &plan->n_vars);
    plan->vars = ps_alloc(plan->n_vars * sizeof *plan->vars);
    for (size_t i = 0; i < plan->n_vars; i++) {
        const psc_variable *v = &plan->variables[i];
        uint64_t rows = v->rank ? v->shape[0] : 1, row_count = 1;
        for (size_t k = 1; k < v->rank; k++)
            row_count *= v->shape[k];
        plan->vars[i] = (struct ps_placement_var){.name = v->name,
                                                  .rows = rows,
                                                  .row_count = row_count,
                                                  .elem_size = (uint32_t)ps_dtype_size((int)v->dtype),
                                                  .slots = slots_of(v, slots)};
    }
}

static enum ps_code make_plan(const struct ps_job *job, struct plan *plan, struct ps_error *e)
{
    struct ps_placement_spec spec;
    uint32_t slots = 0;
    plan->limit = plan->limit ? ps_memory_for_blocks(plan->limit) : 0;
    if (ps_placement_parse(job->placement, job->partitioner, &spec, e) || plan_job_slots(job, &slots, e) ||
        nn_model_load(job->model, &plan->model, e))
        return e->code;
    plan->sync = job->update == PS_SYNC;
    plan->writes_shards = ps_callbacks_shards(&job->callbacks) != NULL;
    plan->needs_no_ps = !ps_job_needs_ps(job);
    take_vars(plan, job->strategy == PS_STRATEGY_HYBRID ? wk_is_table : NULL, slots);
    return plan->needs_no_ps ? PS_OK
                             : ps_placement_plan(&spec, plan->vars, plan->n_vars, plan->tasks, &plan->partitions,
                                                 &plan->n_partitions, e);
}

static void plan_fini(struct plan *plan)
{
    free(plan->partitions);
    free(plan->vars);
    free(plan->variables);
    if (plan->model)
        nn_model_free(plan->model);
}

// ---- what it says -------------------------------------------------------------------------------------------------

// Placement has refused what 63 bits do not hold; with the gradients of all workers it may be more: then it is counted
// as the most there is.
static void load_add(struct load *load, const struct plan *plan, const struct ps_partition *p)
{
    const psc_variable *v = &plan->variables[p->var];
    const bool changes = v->trainable || v->rule, rounds = plan->sync && changes;
    const struct ps_memory_part part = {.count = p->count,
                                        .dtype = (int)v->dtype,
                                        .slots = plan->vars[p->var].slots,
                                        .round_workers = rounds ? plan->workers : 0};
    load->partitions++;
    load->shard += changes ? p->count * ps_dtype_size((int)v->dtype) * (1 + plan->vars[p->var].slots) : 0;
    if (!ps_memory_add(&load->memory, &part))
        load->memory.kept = INT64_MAX / 2;
}

static uint64_t dedup_of(const struct plan *plan, const struct load *load)
{
    return ps_memory_dedup(&load->memory, plan->workers);
}

static uint64_t total_of(const struct plan *plan, const struct load *load)
{
    return ps_memory_total(&load->memory) + dedup_of(plan, load);
}

static void memory_cells(struct table *t, const struct plan *plan, const struct load *load)
{
    table_cell(t, table_count(load->memory.values));
    table_cell(t, table_count(load->memory.slots));
    table_cell(t, table_count(load->memory.rounds));
    table_cell(t, table_count(load->memory.kept));
    table_cell(t, table_count(dedup_of(plan, load)));
    table_cell(t, table_count(total_of(plan, load)));
}

static void name_cells(struct table *t, const psc_variable *v)
{
    json_t *shape = json_array();
    for (size_t k = 0; k < v->rank; k++)
        json_array_append_new(shape, table_count(v->shape[k]));
    table_row(t);
    table_cell(t, table_text(v->name));
    table_cell(t, table_text(ps_dtype_name((int)v->dtype)));
    table_cell(t, shape);
    table_cell(t, json_boolean(v->trainable));
}

static void plan_variable_row(struct table *t, const struct plan *plan, size_t i)
{
    struct load load = {0};
    json_t *tasks = json_array();
    for (size_t p = 0; p < plan->n_partitions; p++)
        if (plan->partitions[p].var == i) {
            load_add(&load, plan, &plan->partitions[p]);
            json_array_append_new(tasks, table_count(plan->partitions[p].task));
        }
    name_cells(t, &plan->variables[i]);
    table_cell(t, tasks);
    table_cell(t, table_count(load.partitions));
    memory_cells(t, plan, &load);
}

static struct load load_of_task(const struct plan *plan, uint32_t task)
{
    const struct ps_memory_job job = {plan->n_vars, plan->n_partitions, plan->workers,
                                      plan->tasks,  .sync = plan->sync, .control = task == 0};
    struct load load = {.memory.kept = ps_memory_job(&job)};
    size_t last = plan->n_vars;
    for (size_t p = 0; p < plan->n_partitions; p++) {
        const struct ps_partition *partition = &plan->partitions[p];
        if (partition->task != task)
            continue;
        load_add(&load, plan, partition);
        load.variables += partition->var != last;  // partitions are in the order of their variables
        last = partition->var;
    }
    return load;
}

static void plan_task_row(struct table *t, const struct plan *plan, uint32_t task, const struct load *load)
{
    uint64_t needed = ps_memory_total(&load->memory);
    table_row(t);
    table_cell(t, table_count(task));
    table_cell(t, table_count(load->variables));
    table_cell(t, table_count(load->partitions));
    table_cell(t, table_count(load->memory.blocks));
    memory_cells(t, plan, load);
    table_cell(t, plan->limit >= needed && plan->limit ? table_count(plan->limit - needed) : NULL);
}

static void cuttable_add(struct cuttable *c, uint32_t task, const struct load *load)
{
    const uint64_t bytes = load->memory.values + load->memory.slots + load->memory.rounds;
    c->sum += bytes;
    if (bytes > c->most) {
        c->most = bytes;
        c->task = task;
    }
}

static void cuttable_warn(const struct cuttable *c, uint32_t tasks)
{
    const double imbalance = (double)c->most * tasks / (double)c->sum;
    if (c->most > IMBALANCE_BYTES && imbalance > IMBALANCE)
        fprintf(stderr, "psctl: ps:%" PRIu32 " has %.1f times the mean: strategy.partitioner cuts large variables\n",
                c->task, imbalance);
}

// What people have to know beside the numbers, on stderr. Returns the exit code.
static int plan_warn(const struct plan *plan, uint32_t greatest, const struct load *load)
{
    struct ps_error e;
    uint64_t needed = ps_memory_total(&load->memory);
    if (plan->limit == 0)
        return 0;
    if (plan->writes_shards && needed <= plan->limit && plan->limit - needed < load->shard)
        fprintf(stderr,
                "psctl: ps:%" PRIu32 " has %" PRIu64 " bytes left of --memory, and a sharded checkpoint needs %" PRIu64
                " while it is written beside the training\n",
                greatest, plan->limit - needed, load->shard);
    if (needed <= plan->limit)
        return 0;
    ps_fail(&e, PS_RESOURCE_EXHAUSTED,
            "ps:%" PRIu32 " needs %" PRIu64 " bytes, of --memory it has %" PRIu64 ": %" PRIu64 " are missing", greatest,
            needed, plan->limit, needed - plan->limit);
    return call_report(&e);
}

static int plan_show(const struct plan *plan, bool with_variables, bool json)
{
    struct table variables, tasks, total;
    struct load greatest = {0};
    struct cuttable cuttable = {0};
    uint32_t where = 0;
    uint64_t sum = 0;
    table_init(&variables, variable_columns, sizeof variable_columns / sizeof variable_columns[0]);
    table_init(&tasks, task_columns, sizeof task_columns / sizeof task_columns[0]);
    table_init(&total, total_columns, sizeof total_columns / sizeof total_columns[0]);
    for (size_t i = 0; i < plan->n_vars && (with_variables || json); i++)
        plan_variable_row(&variables, plan, i);
    for (uint32_t task = 0; task < plan->tasks; task++) {
        struct load load = load_of_task(plan, task);
        plan_task_row(&tasks, plan, task, &load);
        sum += total_of(plan, &load);
        cuttable_add(&cuttable, task, &load);
        if (ps_memory_total(&load.memory) > ps_memory_total(&greatest.memory)) {
            greatest = load;
            where = task;
        }
    }
    double imbalance = (double)total_of(plan, &greatest) * plan->tasks / (double)sum;
    table_row(&total);
    table_cell(&total, table_count(ps_memory_total(&greatest.memory)));
    table_cell(&total, table_count(sum));
    table_cell(&total, json_real(imbalance));
    const struct table_part parts[] = {
        {"variables", &variables, false}, {"tasks", &tasks, false}, {"total", &total, true}};
    table_show(parts, 3, json, stdout);
    table_fini(&total);
    table_fini(&tasks);
    table_fini(&variables);
    fflush(stdout);
    cuttable_warn(&cuttable, plan->tasks);
    return plan_warn(plan, where, &greatest);
}

// ---- without ps tasks ---------------------------------------------------------------------------------------------

// values and slots: bytes. Every variable has a gradient, trainable or not.
static void held_cells(struct table *t, uint64_t values, uint64_t slots)
{
    table_cell(t, table_count(values));
    table_cell(t, table_count(slots));
    table_cell(t, table_count(values));
    table_cell(t, table_count(2 * values + slots));
}

static int show_replica(const struct plan *plan, bool with_variables, bool json)
{
    struct table variables, worker;
    uint64_t values = 0, slots = 0;
    table_init(&variables, held_columns, sizeof held_columns / sizeof held_columns[0]);
    table_init(&worker, worker_columns, sizeof worker_columns / sizeof worker_columns[0]);
    for (size_t i = 0; i < plan->n_vars; i++) {
        const struct ps_placement_var *v = &plan->vars[i];
        uint64_t bytes = v->rows * v->row_count * v->elem_size;
        values += bytes;
        slots += bytes * v->slots;
        if (!with_variables && !json)
            continue;
        name_cells(&variables, &plan->variables[i]);
        held_cells(&variables, bytes, bytes * v->slots);
    }
    table_row(&worker);
    table_cell(&worker, table_count(plan->n_vars));
    held_cells(&worker, values, slots);
    if (!json)
        printf("The job needs no ps task. Beside its data and the outputs of a batch each replica holds:\n\n");
    const struct table_part parts[] = {{"variables", &variables, false}, {"worker", &worker, true}};
    table_show(parts, 2, json, stdout);
    table_fini(&worker);
    table_fini(&variables);
    return 0;
}

// ---- the command --------------------------------------------------------------------------------------------------

int command_plan(struct call *call)
{
    long tasks = 2, workers = 2;
    const char *memory = NULL;
    bool variables = false;
    struct cli_list sets = {0};
    const struct cli_option options[] = {{.name = "ps", .number = &tasks, .min = 1, .max = PS_MAX_TASKS},
                                         {.name = "workers", .number = &workers, .min = 1, .max = PS_MAX_WORKERS},
                                         {.name = "memory", .text = &memory},
                                         {.name = "vars", .flag = &variables},
                                         {.name = "set", .list = &sets},
                                         {.name = "json", .flag = &call->target.json}};
    struct plan plan = {0};
    struct ps_job *job = NULL;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    plan.tasks = (uint32_t)tasks;
    plan.workers = (uint32_t)workers;
    if (memory && operand_bytes(memory, &plan.limit, &e))
        exit_code = call_wrong(call, "--memory: %s", e.text);
    else if (memory && plan.limit < PS_MEMORY_LEAST)
        exit_code = call_wrong(call, "--memory %s: expected at least 4M, as psd does", memory);
    else if (ps_job_load(call->argv[0], sets.items, (size_t)sets.n, &job, &e) || make_plan(job, &plan, &e))
        exit_code = call_report(&e);
    else if (plan.needs_no_ps && memory)
        exit_code = call_wrong(call, "--memory is a psd's, and this job has none");
    else
        exit_code = (plan.needs_no_ps ? show_replica : plan_show)(&plan, variables, call->target.json);
    plan_fini(&plan);
    if (job)
        ps_job_free(job);
    free(sets.items);
    return exit_code;
}
