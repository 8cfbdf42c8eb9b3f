// SPDX-License-Identifier: Apache-2.0
// The job's variables: planned by the chief and told to every ps task, the control task last; learned from the control
// task by everyone else.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/math/rule.h"
#include "common/math/schedule.h"
#include "common/plan/placement.h"
#include "common/wire/dtype.h"
#include "common/wire/wire.h"
#include "libclient/client.h"
#include "libclient/layout.h"

// ---- planning -----------------------------------------------------------------------------------------------------

static enum ps_code declare_find_rule(const char *name, const struct ps_rule **rule, struct ps_error *e)
{
    const char *names[32];
    int n = 0;
    for (const struct ps_rule *r; n < 32 && (r = ps_rule_at(n)); n++)
        names[n] = r->name;
    *rule = name ? ps_rule_find(name) : NULL;
    if (*rule)
        return PS_OK;
    const char *near = name ? ps_nearest(name, names, n) : NULL;
    return ps_fail(e, PS_INVALID_ARGUMENT, "no update rule '%s'%s%s%s", name ? name : "",
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

// What is wrong with them the ps tasks say.
static void declare_set_hypers(const struct ps_rule *rule, const psc_hyper *from, size_t n, double *hyper)
{
    struct ps_error why;
    for (size_t i = 0; i < n; i++)
        if (from[i].name)
            ps_rule_set(rule, hyper, from[i].name, from[i].value, &why);
}

// Copies of the value that its rule keeps; e is filled where that is none.
static uint32_t declare_slots_of(const psc_declaration *d, const psc_variable *v, const struct ps_rule *job_rule,
                                 struct ps_error *e)
{
    const struct ps_rule *rule = v->trainable ? job_rule : NULL;
    double hyper[PS_RULE_MAX_HYPERS];
    if (v->rule && declare_find_rule(v->rule, &rule, e) != PS_OK)
        ps_error_prefix(e, "variable '%s'", v->name);
    if (!rule)
        return 0;
    ps_rule_defaults(rule, hyper);
    if (!v->rule)
        declare_set_hypers(rule, d->hypers, d->n_hypers, hyper);
    declare_set_hypers(rule, v->hypers, v->n_hypers, hyper);
    return (uint32_t)ps_rule_slots(rule, hyper);
}

enum { STRING_BYTES = 16 };  // for placement, which must assume something

// As placement sees them. NULL: e says why.
static struct ps_placement_var *declare_placement_vars(const psc_declaration *d, const struct ps_rule *rule,
                                                       struct ps_error *e)
{
    struct ps_placement_var *vars = ps_try_alloc_array(d->n_variables, sizeof *vars);
    if (!vars)
        ps_no_memory(e, "the variables");
    for (size_t i = 0; vars && i < d->n_variables; i++) {
        const psc_variable *v = &d->variables[i];
        vars[i] = (struct ps_placement_var){.name = v->name, .rows = v->rank ? v->shape[0] : 1, .row_count = 1};
        for (size_t k = 1; k < v->rank; k++)
            vars[i].row_count *= v->shape[k];
        vars[i].elem_size = v->dtype == PSC_STRING ? STRING_BYTES : (uint32_t)ps_dtype_size((int)v->dtype);
        vars[i].slots = declare_slots_of(d, v, rule, e);
    }
    if (e->code == PS_OK)
        return vars;
    free(vars);
    return NULL;
}

static enum ps_code declare_check_variables(const psc_declaration *d, struct ps_error *e)
{
    if (d->n_variables == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "there are no variables");
    for (size_t i = 0; i < d->n_variables; i++) {
        const psc_variable *v = &d->variables[i];
        uint64_t count;
        if (!v->name)
            return ps_fail(e, PS_INVALID_ARGUMENT, "variable %zu has no name", i);
        if (ps_shape_count(v->shape, v->rank, (int)v->dtype, &count, e) != PS_OK)
            return ps_error_prefix(e, "variable '%s'", v->name);
        for (size_t k = 0; k < v->n_hypers; k++)
            if (!v->hypers[k].name)
                return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s': hyperparameter %zu has no name", v->name, k);
    }
    return PS_OK;
}

static enum ps_code declare_check_schedule(const psc_schedule *s, struct ps_error *e)
{
    if (s && !s->kind)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the schedule has no kind");
    if (s && s->n_boundaries && (!s->boundaries || !s->values))
        return ps_fail(e, PS_INVALID_ARGUMENT, "the schedule has %zu boundaries, and no %s", s->n_boundaries,
                       s->boundaries ? "values" : "boundaries");
    return PS_OK;
}

// *partitions is malloc'd.
static enum ps_code declare_plan(const struct psc_client *c, const psc_declaration *d, struct ps_partition **partitions,
                                 size_t *n, struct ps_error *e)
{
    struct ps_placement_spec spec;
    const struct ps_rule *rule;
    if (declare_check_variables(d, e) != PS_OK || declare_check_schedule(d->schedule, e) != PS_OK ||
        declare_find_rule(d->rule, &rule, e) != PS_OK ||
        ps_placement_parse(d->placement ? d->placement : "greedy", d->partitioner ? d->partitioner : "none", &spec,
                           e) != PS_OK)
        return e->code;
    struct ps_placement_var *vars = declare_placement_vars(d, rule, e);
    if (!vars)
        return e->code;
    enum ps_code code = ps_placement_plan(&spec, vars, d->n_variables, c->n_tasks, partitions, n, e);
    free(vars);
    return code;
}

// ---- the request --------------------------------------------------------------------------------------------------

// A request that is being put together: its strings and numbers stay where they are, its messages are in these arrays,
// each with an array of pointers to them, as protobuf-c wants it.
struct builder {
    Paramserver__V1__DeclareRequest request;
    Paramserver__V1__Schedule schedule;
    Paramserver__V1__Variable *variables, **variable_pointers;
    Paramserver__V1__Partition *partitions, **partition_pointers;
    Paramserver__V1__Hyper *hypers, **hyper_pointers;  // the job's, then the variables'
    size_t n_hypers;
};

static size_t declare_count_hypers(const psc_declaration *d)
{
    size_t n = d->n_hypers;
    for (size_t i = 0; i < d->n_variables; i++)
        n += d->variables[i].n_hypers;
    return n;
}

static bool builder_alloc(struct builder *to, const psc_declaration *d, size_t n_partitions)
{
    size_t n_hypers = declare_count_hypers(d);
    to->variables = ps_try_alloc_array(d->n_variables, sizeof *to->variables);
    to->variable_pointers = ps_try_alloc_array(d->n_variables, sizeof *to->variable_pointers);
    to->partitions = ps_try_alloc_array(n_partitions, sizeof *to->partitions);
    to->partition_pointers = ps_try_alloc_array(n_partitions, sizeof *to->partition_pointers);
    to->hypers = ps_try_alloc_array(n_hypers, sizeof *to->hypers);
    to->hyper_pointers = ps_try_alloc_array(n_hypers, sizeof *to->hyper_pointers);
    return to->variables && to->variable_pointers && to->partitions && to->partition_pointers && to->hypers &&
           to->hyper_pointers;
}

static void builder_free(struct builder *to)
{
    free(to->variables);
    free(to->variable_pointers);
    free(to->partitions);
    free(to->partition_pointers);
    free(to->hypers);
    free(to->hyper_pointers);
}

static Paramserver__V1__Hyper **builder_hypers(struct builder *to, const psc_hyper *hypers, size_t n)
{
    Paramserver__V1__Hyper **first = to->hyper_pointers + to->n_hypers;
    for (size_t i = 0; i < n; i++, to->n_hypers++) {
        Paramserver__V1__Hyper *h = to->hyper_pointers[to->n_hypers] = &to->hypers[to->n_hypers];
        paramserver__v1__hyper__init(h);
        h->name = (char *)hypers[i].name;
        h->value = hypers[i].value;
    }
    return first;
}

static void builder_variables(struct builder *to, const psc_declaration *d)
{
    to->request.variables = to->variable_pointers;
    to->request.n_variables = d->n_variables;
    for (size_t i = 0; i < d->n_variables; i++) {
        const psc_variable *from = &d->variables[i];
        Paramserver__V1__Variable *v = to->variable_pointers[i] = &to->variables[i];
        paramserver__v1__variable__init(v);
        v->name = (char *)from->name;
        v->dtype = (Paramserver__V1__DType)from->dtype;
        v->n_shape = from->rank;
        v->shape = (uint64_t *)from->shape;
        v->trainable = from->trainable;
        if (from->rule)
            v->rule = (char *)from->rule;
        v->n_hypers = from->n_hypers;
        v->hypers = builder_hypers(to, from->hypers, from->n_hypers);
    }
}

static void builder_partitions(struct builder *to, const struct ps_partition *partitions, size_t n)
{
    to->request.partitions = to->partition_pointers;
    to->request.n_partitions = n;
    for (size_t i = 0; i < n; i++) {
        Paramserver__V1__Partition *p = to->partition_pointers[i] = &to->partitions[i];
        paramserver__v1__partition__init(p);
        p->variable = partitions[i].var;
        p->first = partitions[i].first;
        p->count = partitions[i].count;
        p->task = partitions[i].task;
    }
}

static void builder_schedule(struct builder *to, const psc_schedule *from)
{
    Paramserver__V1__Schedule *s = to->request.schedule = &to->schedule;
    paramserver__v1__schedule__init(s);
    s->kind = (char *)from->kind;
    s->boundaries = (uint64_t *)from->boundaries;
    s->n_values = from->values ? from->n_boundaries + 1 : 0;
    s->values = (double *)from->values;
#define COPY(name) s->name = from->name;
    PS_SCHEDULE_NUMBERS(COPY)
#undef COPY
}

// A request that stands on its own memory: through the wire's form and back. NULL: no memory.
static Paramserver__V1__DeclareRequest *declare_deep_copy(const Paramserver__V1__DeclareRequest *request)
{
    size_t len = paramserver__v1__declare_request__get_packed_size(request);
    uint8_t *data = ps_try_alloc(len);
    if (!data)
        return NULL;
    paramserver__v1__declare_request__pack(request, data);
    Paramserver__V1__DeclareRequest *copy = paramserver__v1__declare_request__unpack(NULL, len, data);
    free(data);
    return copy;
}

// NULL: no memory.
static Paramserver__V1__DeclareRequest *declare_make_request(const struct psc_client *c, const psc_declaration *d,
                                                             const struct ps_partition *partitions, size_t n_partitions)
{
    struct builder builder = {.request = PARAMSERVER__V1__DECLARE_REQUEST__INIT};
    Paramserver__V1__DeclareRequest *request = NULL, *to = &builder.request;
    to->update = (Paramserver__V1__Update)c->update;
    to->on_existing = (Paramserver__V1__OnExisting)c->on_existing;
    to->resumed_round = c->resumed_round;
    to->workers = c->workers;
    to->tasks = c->n_tasks;
    to->rule = (char *)d->rule;
    to->replicas_to_aggregate = d->replicas_to_aggregate;
    to->grace_ms = d->grace_ms;
    to->staleness = c->staleness;
    if (d->schedule)
        builder_schedule(&builder, d->schedule);
    if (builder_alloc(&builder, d, n_partitions)) {
        to->n_hypers = d->n_hypers;
        to->hypers = builder_hypers(&builder, d->hypers, d->n_hypers);
        builder_variables(&builder, d);
        builder_partitions(&builder, partitions, n_partitions);
        request = declare_deep_copy(to);
    }
    builder_free(&builder);
    return request;
}

// ---- declaring ----------------------------------------------------------------------------------------------------

struct declaring {
    struct psc_client *client;
    struct psc__layout *layout;
    Paramserver__V1__DeclareRequest *request;
    uint64_t deadline;
    uint32_t left;  // tasks other than 0 that have not answered
    struct ps_error error;
    struct part {
        struct declaring *of;
        uint32_t task;
        bool resumed;
        uint64_t resumptions;
    } * parts;
    bool *resumed;
    psc__done_fn done;
    void *arg;
};

static enum ps_code declaring_is_known(struct declaring *d)
{
    return ps_fail(&d->error, PS_FAILED_PRECONDITION, "this client knows the job's variables already");
}

// Another thread may have declared, or attached, meanwhile.
static enum ps_code declaring_take(struct declaring *d)
{
    psc__lock(d->client);
    if (d->client->layout) {
        declaring_is_known(d);
    } else {
        d->client->layout = d->layout;
        d->client->resumptions = d->parts[0].resumptions;
    }
    psc__unlock(d->client);
    return d->error.code;
}

static void declaring_end(struct declaring *d)
{
    if (d->error.code == PS_OK && declaring_take(d) == PS_OK) {
        if (d->resumed)
            *d->resumed = d->parts[0].resumed;
    } else {
        ps_error_prefix(&d->error, "declare");
        psc__layout_free(d->layout);
    }
    d->done(d->arg, &d->error);
    if (d->request)
        paramserver__v1__declare_request__free_unpacked(d->request, NULL);
    free(d->parts);
    free(d);
}

// Values that were kept on one task and not on another are a model that never was.
static void declare_check_resumed(struct declaring *d)
{
    for (uint32_t t = 1; t < d->client->n_tasks; t++)
        if (d->parts[t].resumed != d->parts[0].resumed) {
            const struct psc__task *kept = &d->client->tasks[d->parts[t].resumed ? t : 0];
            const struct psc__task *lost = &d->client->tasks[d->parts[t].resumed ? 0 : t];
            ps_fail(&d->error, PS_FAILED_PRECONDITION,
                    "job '%s': " PSC__TASK " has kept its values, " PSC__TASK " has not: replace it", d->client->job,
                    PSC__TASK_ARGS(kept), PSC__TASK_ARGS(lost));
            return;
        }
}

static void declare_at(struct part *p);

static enum ps_code read_part(struct part *p, const struct ps_slices *reply, struct ps_error *e)
{
    struct psc__task *t = &p->of->client->tasks[p->task];
    ProtobufCMessage *m;
    if (psc__decode(t, &paramserver__v1__declare_reply__descriptor, reply, &m, e) != PS_OK)
        return e->code;
    const Paramserver__V1__DeclareReply *r = (Paramserver__V1__DeclareReply *)m;
    p->resumed = r->resumed;
    p->resumptions = r->resumptions;
    psc__lock(t->client);
    psc__check_generation(t, r->generation, e);
    psc__unlock(t->client);
    ps_msg_free(m);
    return e->code;
}

// A part is over. The control task comes last, and alone: what others have refused is not declared there.
static void part_ended(struct part *p, const struct ps_error *e)
{
    struct declaring *d = p->of;
    psc__lock(d->client);
    if (d->error.code == PS_OK)
        d->error = *e;
    bool last = p->task == 0 || --d->left == 0;
    psc__unlock(d->client);
    if (!last)
        return;
    if (p->task == 0 && d->error.code == PS_OK)
        declare_check_resumed(d);
    if (p->task == 0 || d->error.code != PS_OK)
        declaring_end(d);
    else
        declare_at(&d->parts[0]);
}

static void part_answered(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct part *p = arg;
    struct ps_error e = *error;
    if (e.code == PS_OK)
        read_part(p, reply, &e);
    part_ended(p, &e);
}

static void declare_at(struct part *p)
{
    struct declaring *d = p->of;
    struct ps_error e;
    psc__lock(d->client);
    d->request->task = p->task;
    struct psc__call_spec spec = {.task = p->task,
                                  .method = PARAMSERVER__V1__METHOD__DECLARE,
                                  .message = &d->request->base,
                                  .timeout_ms = psc__ms_left(d->client, d->deadline),
                                  .mutates = true,
                                  .done = part_answered,
                                  .arg = p};
    enum ps_code code = psc__call_locked(d->client, &spec, &e);
    psc__unlock(d->client);
    if (code != PS_OK)
        part_ended(p, &e);
}

static const struct psc__layout *declare_layout_of(psc_client *client)
{
    psc__lock(client);
    const struct psc__layout *l = client->layout;
    psc__unlock(client);
    return l;
}

static enum ps_code declare_prepare(struct declaring *d, const psc_declaration *from)
{
    struct psc_client *c = d->client;
    struct ps_partition *partitions;
    size_t n;
    if (declare_layout_of(c))
        return declaring_is_known(d);
    if (declare_plan(c, from, &partitions, &n, &d->error) != PS_OK)
        return d->error.code;
    enum ps_code code = psc__layout_create(from->variables, from->n_variables, partitions, n, c->n_tasks,
                                           PS_BLOCK_BYTES, &d->layout, &d->error);
    if (code == PS_OK && !(d->request = declare_make_request(c, from, partitions, n)))
        code = ps_no_memory(&d->error, "the declaration");
    free(partitions);
    return code;
}

static struct declaring *declaring_new(struct psc_client *c)
{
    struct declaring *d = ps_try_alloc(sizeof *d);
    struct part *parts = ps_try_alloc_array(c->n_tasks, sizeof *parts);
    if (!d || !parts) {
        free(d);
        free(parts);
        return NULL;
    }
    *d = (struct declaring){.client = c, .left = c->n_tasks - 1, .parts = parts};
    d->deadline = psc__now(c) + c->timeout_ns;
    for (uint32_t t = 0; t < c->n_tasks; t++)
        parts[t] = (struct part){.of = d, .task = t};
    return d;
}

void psc__declare(struct psc_client *c, const psc_declaration *declaration, bool *resumed, psc__done_fn done, void *arg)
{
    struct ps_error e;
    struct declaring *d = declaring_new(c);
    if (!d) {
        ps_no_memory(&e, "the declaration");
        done(arg, &e);
        return;
    }
    d->resumed = resumed;
    d->done = done;
    d->arg = arg;
    if (declare_prepare(d, declaration) != PS_OK) {
        declaring_end(d);
        return;
    }
    if (c->n_tasks == 1) {
        declare_at(&d->parts[0]);
        return;
    }
    for (uint32_t t = 1, n = c->n_tasks; t < n; t++)
        declare_at(&d->parts[t]);
}

// ---- attaching ----------------------------------------------------------------------------------------------------

struct attaching {
    struct psc_client *client;
    psc__done_fn done;
    void *arg;
};

// The variables of a description, its own strings and numbers; their hypers in `hypers`, which has room for all.
static void declare_list_variables(const Paramserver__V1__DescribeReply *r, psc_variable *variables, psc_hyper *hypers)
{
    for (size_t i = 0; i < r->n_variables; i++) {
        const Paramserver__V1__Variable *v = r->variables[i];
        variables[i] = (psc_variable){.name = v->name,
                                      .dtype = (psc_dtype)v->dtype,
                                      .shape = v->shape,
                                      .rank = v->n_shape,
                                      .trainable = v->trainable,
                                      .rule = v->rule[0] ? v->rule : NULL,
                                      .hypers = hypers,
                                      .n_hypers = v->n_hypers};
        for (size_t k = 0; k < v->n_hypers; k++)
            *hypers++ = (psc_hyper){v->hypers[k]->name, v->hypers[k]->value};
    }
}

static enum ps_code declare_read_layout(const struct psc_client *c, const Paramserver__V1__DescribeReply *r,
                                        struct psc__layout **layout, struct ps_error *e)
{
    if (r->tasks != c->n_tasks)
        return ps_fail(e, PS_FAILED_PRECONDITION, "job '%s' was declared on %u ps tasks, the cluster here has %u",
                       c->job, r->tasks, c->n_tasks);
    size_t n_hypers = 0;
    for (size_t i = 0; i < r->n_variables; i++)
        n_hypers += r->variables[i]->n_hypers;
    psc_variable *variables = ps_try_alloc_array(r->n_variables, sizeof *variables);
    psc_hyper *hypers = ps_try_alloc_array(n_hypers, sizeof *hypers);
    struct ps_partition *partitions = ps_try_alloc_array(r->n_partitions, sizeof *partitions);
    if (!variables || !hypers || !partitions) {
        ps_no_memory(e, "the declaration");
    } else {
        declare_list_variables(r, variables, hypers);
        for (size_t i = 0; i < r->n_partitions; i++) {
            const Paramserver__V1__Partition *p = r->partitions[i];
            partitions[i] = (struct ps_partition){p->variable, p->first, p->count, p->task};
        }
        psc__layout_create(variables, r->n_variables, partitions, r->n_partitions, r->tasks, r->block_bytes, layout, e);
    }
    free(variables);
    free(hypers);
    free(partitions);
    return e->code;
}

static enum ps_code declare_read_description(struct psc_client *c, const struct ps_slices *reply, struct ps_error *e)
{
    ProtobufCMessage *m;
    struct psc__layout *layout = NULL;
    if (psc__decode(&c->tasks[0], &paramserver__v1__describe_reply__descriptor, reply, &m, e) != PS_OK)
        return e->code;
    const Paramserver__V1__DescribeReply *r = (Paramserver__V1__DescribeReply *)m;
    declare_read_layout(c, r, &layout, e);
    psc__lock(c);
    psc__check_generation(&c->tasks[0], r->generation, e);
    if (e->code == PS_OK && !c->layout) {
        c->layout = layout;
        c->update = (psc_update)r->update;
        c->member.run = r->run;
        c->resumptions = r->resumptions;
        layout = NULL;
    }
    psc__unlock(c);
    psc__layout_free(layout);
    ps_msg_free(m);
    return e->code;
}

static void declare_described(void *arg, const struct ps_error *error, struct ps_slices *reply)
{
    struct attaching *a = arg;
    struct ps_error e = *error;
    if (e.code == PS_OK)
        declare_read_description(a->client, reply, &e);
    if (e.code != PS_OK)
        ps_error_prefix(&e, "attach");
    a->done(a->arg, &e);
    free(a);
}

void psc__attach(struct psc_client *c, psc__done_fn done, void *arg)
{
    struct attaching *a = ps_try_alloc(sizeof *a);
    Paramserver__V1__DescribeRequest request = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    struct psc__call_spec spec = {.method = PARAMSERVER__V1__METHOD__DESCRIBE,
                                  .message = &request.base,
                                  .timeout_ms = (int)(c->timeout_ns / PS_MS),
                                  .awaits = "the chief to declare the variables",
                                  .done = declare_described,
                                  .arg = a};
    struct ps_error e;
    request.wait = true;
    if (a)
        *a = (struct attaching){c, done, arg};
    if (a && psc__call(c, &spec, &e) == PS_OK)
        return;
    ps_no_memory(&e, "attaching");
    done(arg, &e);
    free(a);
}

// ---- what is declared ---------------------------------------------------------------------------------------------

size_t psc_variables(psc_client *client)
{
    const struct psc__layout *l = declare_layout_of(client);
    return l ? l->n_variables : 0;
}

const psc_variable *psc_variable_at(psc_client *client, size_t i)
{
    const struct psc__layout *l = declare_layout_of(client);
    return l && i < l->n_variables ? &l->variables[i].is : NULL;
}

const psc_variable *psc_variable_find(psc_client *client, const char *name)
{
    const struct psc__layout *l = declare_layout_of(client);
    const struct psc__variable *v = l && name ? psc__layout_find(l, name) : NULL;
    return v ? &v->is : NULL;
}
