// SPDX-License-Identifier: Apache-2.0
#include "psd/job/declaration.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/utf8.h"
#include "psd/job/component.h"
#include "psd/job/host.h"
#include "psd/job/hyper.h"
#include "psd/job/users.h"

void psd_job_undeclare(struct psd_job *job)
{
    psd_components_destroy(job);
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        struct psd_partition *p = &job->partitions[i];
        for (uint32_t k = 0; k < p->n_blocks; k++)
            psd_block_fini(&p->blocks[k]);
        free(p->blocks);
    }
    for (uint32_t i = 0; i < job->n_variables; i++)
        free(job->variables[i].name);
    free(job->partitions);
    free(job->variables);
    ps_name_table_free(&job->names);
    free(job->heard);
    free(job->incarnations);
    job->partitions = NULL;
    job->variables = NULL;
    job->heard = NULL;
    job->incarnations = NULL;
    job->n_partitions = job->n_variables = 0;
    psd_pool_give(job->pool, job->room);
    job->room = 0;
    psd_users_give(job->host->users, job->user, job->users_bytes);
    job->users_bytes = 0;
}

// ---- declaration --------------------------------------------------------------------------------------------------

static uint64_t hash_rule(uint64_t h, const char *rule, Paramserver__V1__Hyper *const *hypers, size_t n)
{
    h = ps_hash(h, rule, strlen(rule) + 1);
    h = ps_hash(h, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        h = ps_hash(h, hypers[i]->name, strlen(hypers[i]->name) + 1);
        h = ps_hash(h, &hypers[i]->value, sizeof hypers[i]->value);
    }
    return h;
}

static uint64_t hash_schedule(uint64_t h, const Paramserver__V1__Schedule *s)
{
    const uint64_t counts[] = {s->decay_steps, s->staircase, s->cycle, s->warmup_steps, s->n_boundaries, s->n_values};
    const double reals[] = {s->initial, s->decay_rate, s->alpha, s->warmup_initial,
                            s->t_mul,   s->m_mul,      s->power, s->end_learning_rate};
    h = ps_hash(h, s->kind, strlen(s->kind) + 1);
    h = ps_hash(h, counts, sizeof counts);
    h = ps_hash(h, reals, sizeof reals);
    h = ps_hash(h, s->boundaries, s->n_boundaries * sizeof *s->boundaries);
    return ps_hash(h, s->values, s->n_values * sizeof *s->values);
}

uint64_t psd_declaration_digest(const Paramserver__V1__DeclareRequest *r)
{
    uint64_t h = PS_HASH_SEED;
    uint32_t numbers[] = {(uint32_t)r->update,      r->workers,   r->tasks,
                          r->replicas_to_aggregate, r->staleness, r->grace_ms};
    h = ps_hash(h, numbers, sizeof numbers);
    h = hash_rule(h, r->rule, r->hypers, r->n_hypers);
    if (r->schedule && r->schedule->kind[0])
        h = hash_schedule(h, r->schedule);
    for (size_t i = 0; i < r->n_variables; i++) {
        const Paramserver__V1__Variable *v = r->variables[i];
        uint32_t what[] = {(uint32_t)v->dtype, (uint32_t)v->trainable, (uint32_t)v->n_shape};
        h = ps_hash(h, v->name, strlen(v->name) + 1);
        h = ps_hash(h, what, sizeof what);
        h = ps_hash(h, v->shape, v->n_shape * sizeof *v->shape);
        h = hash_rule(h, v->rule, v->hypers, v->n_hypers);
    }
    for (size_t i = 0; i < r->n_partitions; i++) {
        const Paramserver__V1__Partition *p = r->partitions[i];
        uint64_t what[] = {p->variable, p->first, p->count, p->task};
        h = ps_hash(h, what, sizeof what);
    }
    return h;
}

static enum ps_code declaration_no_schedule(const char *name, struct ps_error *e)
{
    char names[160];
    ps_schedule_names(names, sizeof names);
    return ps_fail(e, PS_INVALID_ARGUMENT, "declare: no schedule is named '%.64s'; expected %s", name, names);
}

static enum ps_code take_schedule(struct psd_job *job, const Paramserver__V1__Schedule *from, struct ps_error *e)
{
    struct ps_schedule *to = &job->schedule;
    *to = (struct ps_schedule){.kind = PS_SCHEDULE_NONE};
    if (!from || from->kind[0] == '\0')
        return PS_OK;
    to->kind = ps_schedule_find(from->kind);
    if (to->kind == PS_SCHEDULE_NONE)
        return declaration_no_schedule(from->kind, e);
    if (!job->rule->learns)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: rule %s has no learning rate that could follow a schedule",
                       job->rule->name);
    if (to->kind != PS_PIECEWISE && (from->n_boundaries || from->n_values))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "declare: schedule %s with %zu boundaries and %zu values; expected neither", from->kind,
                       from->n_boundaries, from->n_values);
    if (to->kind == PS_PIECEWISE &&
        (from->n_boundaries > PS_SCHEDULE_MAX_BOUNDARIES || from->n_values != from->n_boundaries + 1))
        return ps_fail(
            e, PS_INVALID_ARGUMENT,
            "declare: schedule %s with %zu boundaries and %zu values; expected at most %d boundaries, and one "
            "value more than these",
            from->kind, from->n_boundaries, from->n_values, PS_SCHEDULE_MAX_BOUNDARIES);
#define COPY(name) to->name = from->name;
    PS_SCHEDULE_NUMBERS(COPY)
#undef COPY
    for (size_t i = 0; i < from->n_boundaries; i++)
        to->boundary[i] = from->boundaries[i];
    for (size_t i = 0; i < from->n_values; i++)
        to->value[i] = from->values[i];
    return ps_schedule_check(to, e) ? ps_error_prefix(e, "declare") : PS_OK;
}

static enum ps_code declaration_no_rule(const char *prefix, const char *name, struct ps_error *e)
{
    char names[256];
    ps_rule_names(names, sizeof names);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%sno update rule is named '%.64s'; there are %s", prefix, name, names);
}

static enum ps_code take_rule(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e)
{
    job->rule = ps_rule_find(r->rule);
    if (!job->rule)
        return declaration_no_rule("declare: ", r->rule, e);
    ps_rule_defaults(job->rule, job->hyper);
    for (size_t i = 0; i < r->n_hypers; i++)
        if (ps_rule_set(job->rule, job->hyper, r->hypers[i]->name, r->hypers[i]->value, e))
            return ps_error_prefix(e, "declare");
    if (ps_rule_check_parts(job->rule, job->hyper, e))
        return ps_error_prefix(e, "declare");
    return take_schedule(job, r->schedule, e);
}

// The variable's rule and what it has of its own: name, dtype and trainable are known.
static enum ps_code take_own_rule(const struct psd_job *job, struct psd_variable *v,
                                  const Paramserver__V1__Variable *from, struct ps_error *e)
{
    v->own_rule = from->rule[0] != '\0';
    v->rule = v->own_rule ? ps_rule_find(from->rule) : v->trainable ? job->rule : NULL;
    if (v->own_rule && !v->rule)
        return declaration_no_rule("", from->rule, e);
    if (!v->rule && from->n_hypers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "it has hyperparameters and no rule that they are for");
    if (!v->rule)
        return PS_OK;
    if (v->dtype != PS_FLOAT32)
        return ps_fail(e, PS_INVALID_ARGUMENT, "it is %s; one %s must be float32", ps_dtype_name(v->dtype),
                       v->trainable ? "that is trainable" : "with a rule");
    v->own = v->own_rule ? UINT32_MAX : 0;
    if (v->own_rule)
        ps_rule_defaults(v->rule, v->hyper);
    else
        memcpy(v->hyper, job->hyper, sizeof v->hyper);
    for (size_t i = 0; i < from->n_hypers; i++) {
        if (v->rule->learns && strcmp(from->hypers[i]->name, v->rule->hyper[PS_HYPER_GLOBAL_CLIPNORM].name) == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s is of the whole job, not of one variable",
                           from->hypers[i]->name);
        int at = psd_hyper_find(v->rule, from->hypers[i]->name);
        if (ps_rule_set(v->rule, v->hyper, from->hypers[i]->name, from->hypers[i]->value, e))
            return e->code;
        v->own |= UINT32_C(1) << at;
    }
    v->blank.slots = ps_rule_slots(v->rule, v->hyper);
    for (int k = 0; k < v->blank.slots; k++)
        v->blank.start[k] = ps_rule_slot_init(v->rule, v->hyper, k);
    return ps_rule_check_parts(v->rule, v->hyper, e);
}

static enum ps_code take_variable(struct psd_job *job, const Paramserver__V1__Variable *from, struct ps_error *e)
{
    struct psd_variable *v = &job->variables[job->n_variables];
    if (from->name[0] == '\0' || strlen(from->name) > 255)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: variable %" PRIu32 " needs a name of 1 to 255 bytes",
                       job->n_variables);
    if (!ps_utf8_is_plain(from->name))
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: the name of variable %" PRIu32 " has control characters",
                       job->n_variables);
    if (psd_job_variable(job, from->name))
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: variable '%s' is declared twice", from->name);
    if (ps_shape_count(from->shape, from->n_shape, (int)from->dtype, &v->count, e))
        return ps_error_prefix(e, "declare: variable '%s'", from->name);
    v->dtype = (int)from->dtype;
    v->trainable = from->trainable;
    if (take_own_rule(job, v, from, e))
        return ps_error_prefix(e, "declare: variable '%s'", from->name);
    v->name = ps_try_strdup(from->name);
    if (!v->name)
        return ps_no_memory(e, "the variables' names");
    v->rank = from->n_shape;
    if (v->rank)
        memcpy(v->shape, from->shape, v->rank * sizeof *v->shape);
    job->n_variables++;
    return ps_name_table_put(&job->names, v->name, v) ? PS_OK : ps_no_memory(e, "the variables' names");
}

static enum ps_code take_variables(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e)
{
    job->variables = ps_try_alloc_array(r->n_variables, sizeof *job->variables);
    if (!job->variables)
        return ps_no_memory(e, "the variables");
    for (size_t i = 0; i < r->n_variables; i++)
        if (take_variable(job, r->variables[i], e))
            return e->code;
    return PS_OK;
}

// Partitions come in order of (variable, first) and cover every variable.
static enum ps_code take_partitions(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e)
{
    size_t at = 0;
    job->partitions = ps_try_alloc_array(r->n_partitions, sizeof *job->partitions);
    if (!job->partitions)
        return ps_no_memory(e, "the partitions");
    for (uint32_t i = 0; i < job->n_variables; i++) {
        struct psd_variable *v = &job->variables[i];
        uint64_t covered = 0;
        v->first_partition = (uint32_t)at;
        while (at < r->n_partitions && r->partitions[at]->variable == i) {
            const Paramserver__V1__Partition *p = r->partitions[at];
            if (p->first != covered || p->count == 0 || p->count > v->count - covered || p->task >= r->tasks)
                return ps_fail(e, PS_INVALID_ARGUMENT,
                               "declare: partition %zu of variable '%s' is [%" PRIu64 ", +%" PRIu64 ") on task %" PRIu32
                               "; expected one that begins at %" PRIu64 " on one of %" PRIu32 " tasks",
                               at - v->first_partition, v->name, p->first, p->count, p->task, covered, r->tasks);
            job->partitions[at] =
                (struct psd_partition){.variable = i, .task = p->task, .first = p->first, .count = p->count};
            covered += p->count;
            at++;
        }
        if (covered != v->count)
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "declare: partitions of variable '%s' cover %" PRIu64 " of its %" PRIu64 " elements",
                           v->name, covered, v->count);
        v->n_partitions = (uint32_t)(at - v->first_partition);
        job->n_partitions = (uint32_t)at;
    }
    if (at != r->n_partitions)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: partition %zu is out of order or of an unknown variable", at);
    return PS_OK;
}

static uint32_t elements_per_block(const struct psd_variable *v)
{
    return v->dtype == PS_STRING ? PS_STRING_BLOCK : (uint32_t)(PS_BLOCK_BYTES / ps_dtype_size(v->dtype));
}

static uint64_t count_blocks(const struct psd_partition *p, uint32_t per_block)
{
    return p->count / per_block + (p->count % per_block != 0);
}

uint64_t psd_partition_blocks(const struct psd_job *job, const struct psd_partition *p)
{
    return count_blocks(p, elements_per_block(&job->variables[p->variable]));
}

// Bytes that the blocks of a partition take, with all that is kept about them. False: more than can be counted.
static bool partition_bytes(const struct psd_job *job, const struct psd_partition *p, size_t *bytes)
{
    const struct psd_variable *v = &job->variables[p->variable];
    uint32_t per_block = elements_per_block(v), tail = (uint32_t)(p->count % per_block);
    size_t size = psd_element_bytes(v), slots = (size_t)v->blank.slots, pages, kept;
    size_t last = tail ? psd_page_bytes(tail * size, (int)slots) : 0;
    return !__builtin_mul_overflow(p->count / per_block, psd_page_bytes(per_block * size, (int)slots), &pages) &&
           !__builtin_mul_overflow(count_blocks(p, per_block), sizeof(struct psd_block) + PSD_PAGE_OVERHEAD, &kept) &&
           !__builtin_add_overflow(pages, kept, bytes) && !__builtin_add_overflow(*bytes, last, bytes);
}

// What is known of the declaration itself, on each task alike.
static size_t tables_bytes(const struct psd_job *job)
{
    size_t bytes = job->n_variables * sizeof *job->variables + job->names.room * sizeof *job->names.at +
                   job->n_partitions * sizeof *job->partitions +
                   job->workers * (sizeof *job->incarnations + sizeof *job->heard);
    for (uint32_t i = 0; i < job->n_variables; i++)
        bytes += strlen(job->variables[i].name) + 1;
    return bytes;
}

// For that and all of this task's partitions; SIZE_MAX: more than can be counted.
static size_t bytes_needed(const struct psd_job *job, uint32_t task)
{
    size_t total = tables_bytes(job), bytes;
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (job->partitions[i].task == task &&
            (!partition_bytes(job, &job->partitions[i], &bytes) || __builtin_add_overflow(total, bytes, &total)))
            return SIZE_MAX;
    return psd_components_bytes(job, task, &total) ? total : SIZE_MAX;
}

// Pages that have been made count themselves: their part of the room goes back.
static void spend_room(struct psd_job *job, size_t bytes)
{
    psd_pool_give(job->pool, bytes);
    job->room -= bytes;
}

static enum ps_code make_blocks(struct psd_job *job, struct psd_partition *p, struct ps_error *e)
{
    const struct psd_variable *v = &job->variables[p->variable];
    size_t size = psd_element_bytes(v);
    p->block_count = elements_per_block(v);
    uint64_t n = count_blocks(p, p->block_count);
    p->blocks = ps_try_alloc_array(n, sizeof *p->blocks);
    if (!p->blocks)
        return ps_no_memory(e, "the blocks");
    for (uint64_t k = 0; k < n; k++) {
        uint64_t left = p->count - k * p->block_count;
        uint32_t count = left < p->block_count ? (uint32_t)left : p->block_count;
        if (psd_block_init(&p->blocks[k], &job->store, count, size, &v->blank, e))
            return e->code;
        spend_room(job, p->blocks[k].page->bytes);
        p->n_blocks++;
    }
    return PS_OK;
}

// All of the room is taken at once, so that two jobs which are declared at the same time do not both count on it.
static enum ps_code make_shard(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    size_t bytes = bytes_needed(job, task);
    if (psd_users_take(job->host->users, job->user, bytes, e))
        return ps_error_prefix(e, "declare: ps task %" PRIu32, task);
    job->users_bytes = bytes;
    if (bytes > job->pool->limit)  // waiting for the end of other jobs is of no use
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "declare: ps task %" PRIu32 " would need %zu bytes for job '%s', and has room for %zu: expected "
                       "more --memory, or more ps tasks",
                       task, bytes, job->name, job->pool->limit);
    if (!psd_pool_take(job->pool, bytes))
        return ps_fail(e, PS_RESOURCE_EXHAUSTED,
                       "declare: ps task %" PRIu32 " would need %zu bytes for job '%s' and has %zu of %zu left", task,
                       bytes, job->name, job->pool->limit - psd_pool_used(job->pool), job->pool->limit);
    job->room = bytes;
    for (uint32_t i = 0; i < job->n_partitions; i++)
        if (job->partitions[i].task == task && make_blocks(job, &job->partitions[i], e))
            return ps_error_prefix(e, "declare");
    if (psd_components_create(job, task, e))
        return ps_error_prefix(e, "declare");
    return PS_OK;
}

static enum ps_code make_incarnations(struct psd_job *job, struct ps_error *e)
{
    job->incarnations = ps_try_alloc_array(job->workers, sizeof *job->incarnations);
    job->heard = ps_try_alloc_array(job->workers, sizeof *job->heard);
    if (!job->incarnations || !job->heard)
        return ps_no_memory(e, "the workers");
    psd_job_reset_incarnations(job);
    return PS_OK;
}

void psd_job_reset_incarnations(struct psd_job *job)
{
    for (uint32_t i = 0; i < job->workers; i++)
        job->incarnations[i] = atomic_load(&job->run);
}

enum ps_code psd_job_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, uint32_t task,
                             struct ps_error *e)
{
    job->update = r->update;
    atomic_store(&job->in_rounds, r->update == PARAMSERVER__V1__UPDATE__SYNC);
    job->keeps_rounds = psd_job_is_sync(job);
    job->workers = r->workers;
    job->tasks = r->tasks;
    job->replicas_to_aggregate = r->replicas_to_aggregate;
    job->grace_ms = r->grace_ms;
    job->staleness = r->staleness;
    if (take_rule(job, r, e) || take_variables(job, r, e) || take_partitions(job, r, e) || make_incarnations(job, e) ||
        make_shard(job, task, e)) {
        psd_job_undeclare(job);
        return e->code;
    }
    job->digest = psd_declaration_digest(r);
    atomic_store(&job->declared, true);
    return PS_OK;
}
