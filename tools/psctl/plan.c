// SPDX-License-Identifier: Apache-2.0
//
// psctl plan: what a job would put where, worked out with the same pure functions as the chief's declaration.
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/dtype.h"
#include "common/job.h"
#include "common/placement.h"
#include "common/rule.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/table.h"
#include "workerd/strategy/variables.h"

static const struct table_column variable_columns[] = {
    {"name", "variable", TABLE_TEXT}, {"dtype", "dtype", TABLE_TEXT},
    {"shape", "shape", TABLE_SHAPE},  {"trainable", "trainable", TABLE_TEXT},
    {"tasks", "ps", TABLE_LIST},      {"partitions", "partitions", TABLE_COUNT},
    {"bytes", "values", TABLE_BYTES}, {"slot_bytes", "slots", TABLE_BYTES},
};

static const struct table_column task_columns[] = {
    {"task", "ps", TABLE_COUNT},
    {"variables", "variables", TABLE_COUNT},
    {"partitions", "partitions", TABLE_COUNT},
    {"bytes", "values", TABLE_BYTES},
    {"slot_bytes", "slots", TABLE_BYTES},
    {"total_bytes", "total", TABLE_BYTES},
};

static const struct table_column total_columns[] = {
    {"total_bytes", "total", TABLE_BYTES},
    {"imbalance", "greatest task / mean", TABLE_REAL},
};

struct plan {
    struct nn_model *model;
    psc_variable *variables;
    struct ps_placement_var *vars;  // the same, as placement sees them
    size_t n_vars;
    struct ps_partition *partitions;
    size_t n_partitions;
    uint32_t tasks;
};

// What one task, one variable, or all of them hold.
struct load {
    uint64_t variables, partitions, bytes, slot_bytes;
};

// ---- the plan -----------------------------------------------------------------------------------------------------

static void take_vars(struct plan *plan, int slots)
{
    plan->variables = wk_variables(plan->model, &plan->n_vars);
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
                                                  .slots = v->trainable ? (uint32_t)slots : 0};
    }
}

static enum ps_code make_plan(const struct ps_job *job, struct plan *plan, struct ps_error *e)
{
    struct ps_placement_spec spec;
    if (ps_placement_parse(job->placement, job->partitioner, &spec, e) || nn_model_load(job->model, &plan->model, e))
        return e->code;
    take_vars(plan, ps_rule_find(job->rule)->slots);
    return ps_placement_plan(&spec, plan->vars, plan->n_vars, plan->tasks, &plan->partitions, &plan->n_partitions, e);
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

static void load_add(struct load *load, const struct ps_placement_var *var, uint64_t count)
{
    load->partitions++;
    load->bytes += count * var->elem_size;
    load->slot_bytes += count * var->elem_size * var->slots;
}

static void variable_row(struct table *t, const struct plan *plan, size_t i)
{
    const psc_variable *v = &plan->variables[i];
    struct load load = {0};
    json_t *shape = json_array(), *tasks = json_array();
    for (size_t k = 0; k < v->rank; k++)
        json_array_append_new(shape, json_integer((json_int_t)v->shape[k]));
    for (size_t p = 0; p < plan->n_partitions; p++)
        if (plan->partitions[p].var == i) {
            load_add(&load, &plan->vars[i], plan->partitions[p].count);
            json_array_append_new(tasks, json_integer(plan->partitions[p].task));
        }
    table_row(t);
    table_cell(t, table_text(v->name));
    table_cell(t, table_text(ps_dtype_name((int)v->dtype)));
    table_cell(t, shape);
    table_cell(t, table_text(v->trainable ? "yes" : "no"));
    table_cell(t, tasks);
    table_cell(t, json_integer((json_int_t)load.partitions));
    table_cell(t, json_integer((json_int_t)load.bytes));
    table_cell(t, json_integer((json_int_t)load.slot_bytes));
}

static struct load load_of_task(const struct plan *plan, uint32_t task)
{
    struct load load = {0};
    size_t last = plan->n_vars;
    for (size_t p = 0; p < plan->n_partitions; p++) {
        const struct ps_partition *partition = &plan->partitions[p];
        if (partition->task != task)
            continue;
        load_add(&load, &plan->vars[partition->var], partition->count);
        load.variables += partition->var != last;  // partitions are in the order of their variables
        last = partition->var;
    }
    return load;
}

static uint64_t task_row(struct table *t, const struct plan *plan, uint32_t task)
{
    struct load load = load_of_task(plan, task);
    uint64_t total = load.bytes + load.slot_bytes;
    table_row(t);
    table_cell(t, json_integer(task));
    table_cell(t, json_integer((json_int_t)load.variables));
    table_cell(t, json_integer((json_int_t)load.partitions));
    table_cell(t, json_integer((json_int_t)load.bytes));
    table_cell(t, json_integer((json_int_t)load.slot_bytes));
    table_cell(t, json_integer((json_int_t)total));
    return total;
}

static void show(const struct plan *plan, bool json)
{
    struct table variables, tasks, total;
    uint64_t sum = 0, greatest = 0;
    table_init(&variables, variable_columns, sizeof variable_columns / sizeof variable_columns[0]);
    table_init(&tasks, task_columns, sizeof task_columns / sizeof task_columns[0]);
    table_init(&total, total_columns, sizeof total_columns / sizeof total_columns[0]);
    for (size_t i = 0; i < plan->n_vars; i++)
        variable_row(&variables, plan, i);
    for (uint32_t task = 0; task < plan->tasks; task++) {
        uint64_t bytes = task_row(&tasks, plan, task);
        greatest = bytes > greatest ? bytes : greatest;
        sum += bytes;
    }
    table_row(&total);
    table_cell(&total, json_integer((json_int_t)sum));
    table_cell(&total, json_real((double)greatest * plan->tasks / (double)sum));
    const struct table_part parts[] = {
        {"variables", &variables, false}, {"tasks", &tasks, false}, {"total", &total, true}};
    table_show(parts, 3, json, stdout);
    table_fini(&total);
    table_fini(&tasks);
    table_fini(&variables);
}

int command_plan(struct call *call)
{
    long tasks = 2;
    struct cli_list sets = {0};
    const struct cli_option options[] = {{.name = "ps", .number = &tasks, .min = 1, .max = 4096},
                                         {.name = "set", .list = &sets},
                                         {.name = "json", .flag = &call->target.json}};
    struct plan plan = {0};
    struct ps_job *job = NULL;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, 3, &exit_code))
        return exit_code;
    plan.tasks = (uint32_t)tasks;
    if (ps_job_load(call->argv[0], sets.items, (size_t)sets.n, &job, &e) || make_plan(job, &plan, &e))
        exit_code = report(&e);
    else
        show(&plan, call->target.json), exit_code = 0;
    plan_fini(&plan);
    if (job)
        ps_job_free(job);
    free(sets.items);
    return exit_code;
}
