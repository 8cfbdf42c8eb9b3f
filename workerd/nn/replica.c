// SPDX-License-Identifier: Apache-2.0
//
// A replica: a model's variables in the memory of a device, and the programs that compute steps with them: one for each
// number of rows that a batch has had, to train and to evaluate. They share one arena.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/nn/emit.h"
#include "workerd/nn/measure.h"
#include "workerd/nn/program.h"

// Batches have few sizes: the planned one and what is left at the end of a range. The program that has not been used
// for longest makes room.
enum { PROGRAMS = 8 };

struct compiled {
    struct nn_program *program;
    struct nn_emitted tensors;
    int rows;
    bool training;
    uint64_t used;  // when, in runs
};

struct nn_replica {
    const struct nn_model *model;
    const struct nn_device *device;
    int index;  // of the device, of those of its kind
    struct nn_context *context;
    struct ps_loss loss[NN_MAX_PORTS];  // of each output
    int rows;
    uint64_t seed;

    float *variables;       // values, then gradients: what param and grad point to, of the host
    float **param, **grad;  // [the model's variables]
    float *twins;           // the same on a device with memory of its own; NULL: it has none
    float **param_twin, **grad_twin;
    float *slots;  // of a rule that the device applies, on the device
    // Values and gradients stay on the device; who has the newer ones.
    struct ps_error lost;  // the device has failed when values came from it
    bool keeps, values_here, values_there, gradients_there;
    const struct nn_device_sums *device_sums;
    size_t *order;           // variables, as they become ready; then those that a step does not change
    size_t n_used, n_ready;  // of these, that programs work with; that a step changes
    size_t gradient_bytes;
    char *arena;
    char *staging;  // the host's, of copies
    size_t arena_bytes, staging_bytes;
    struct compiled compiled[PROGRAMS];
    uint64_t runs;

    float *weight;      // (rows) of the examples in the mean
    uint64_t *example;  // (rows) zeros, where a batch does not number its examples
    const float *output[NN_MAX_PORTS], *counts[NN_MAX_PORTS];
    struct nn_measures *measures;
    double *sums;
    struct nn_times *times;   // where those of full batches go; NULL: nowhere
    struct nn_times tracked;  // its track: where the operators of all batches go
};

// ---- memory -------------------------------------------------------------------------------------------------------

static size_t replica_padded(uint64_t count)
{
    return (count + 15) & ~(size_t)15;  // 64 bytes
}

// The order in which this program makes variables ready; what a step changes and no program works with, such as the
// weights of a layer that no output needs, comes after that.
static void replica_find_order(struct nn_replica *r, const struct nn_program *p)
{
    const struct nn_model *m = r->model;
    const int *ready;
    bool *listed = ps_alloc((m->variables + 1) * sizeof *listed);
    size_t n = 0;
    r->order = ps_alloc((m->variables + 1) * sizeof *r->order);
    r->n_used = nn_program_order(p, &ready);
    for (size_t k = 0; k < r->n_used; k++) {
        r->order[n++] = (size_t)ready[k];
        listed[ready[k]] = true;
    }
    for (int changes = 1; changes >= 0; changes--) {
        for (size_t i = 0; i < m->variables; i++)
            if (!listed[i] && nn_param_changes(&m->variable[i].param) == changes)
                r->order[n++] = i;
        if (changes)
            r->n_ready = n;
    }
    free(listed);
}

static void replica_point(const struct nn_replica *r, float *base, float **param, float **grad)
{
    const struct nn_model *m = r->model;
    for (size_t k = 0, at = 0; k < m->variables; k++) {
        const size_t i = r->order[k];
        param[i] = base + at;
        grad[i] = base + r->gradient_bytes / sizeof(float) + at;
        at += replica_padded(m->variable[i].param.count);
    }
}

static enum ps_code replica_get_variables(struct nn_replica *r, struct ps_error *e)
{
    const size_t bytes = 2 * r->gradient_bytes + 64;
    void *host, *twins;
    if (nn_memory_get_host(r->device, r->context, bytes, &host, e))
        return ps_error_prefix(e, "a replica's variables");
    memset(r->variables = host, 0, 2 * r->gradient_bytes);
    replica_point(r, r->variables, r->param, r->grad);
    if (!r->device->memory)
        return PS_OK;
    if (r->device->memory->get(r->context, bytes, &twins, e))
        return ps_error_prefix(e, "a replica's variables");
    replica_point(r, r->twins = twins, r->param_twin, r->grad_twin);
    r->device->memory->put(r->context, r->twins, r->variables, 2 * r->gradient_bytes);
    return r->device->memory->finish(r->context, e);
}

static enum ps_code replica_get_memory(struct nn_replica *r, struct ps_error *e)
{
    const struct nn_model *m = r->model;
    for (size_t i = 0; i < m->variables; i++)
        r->gradient_bytes += replica_padded(m->variable[i].param.count) * sizeof(float);
    r->param = ps_alloc((m->variables + 1) * sizeof *r->param);
    r->grad = ps_alloc((m->variables + 1) * sizeof *r->grad);
    r->param_twin = ps_alloc((m->variables + 1) * sizeof *r->param_twin);
    r->grad_twin = ps_alloc((m->variables + 1) * sizeof *r->grad_twin);
    r->weight = ps_alloc((size_t)r->rows * sizeof *r->weight);
    r->example = ps_alloc((size_t)r->rows * sizeof *r->example);
    return replica_get_variables(r, e);
}

static void replica_bind(const struct nn_replica *r, struct nn_program *p)
{
    const struct nn_bound host = {.arena = r->arena, .value = r->param, .gradient = r->grad};
    const struct nn_bound there = {.arena = r->arena,
                                   .value = r->param_twin,
                                   .gradient = r->grad_twin,
                                   .staging = r->staging,
                                   .host_value = r->param,
                                   .host_gradient = r->grad};
    nn_program_bind(p, r->device->memory ? &there : &host);
}

static void replica_bind_all(const struct nn_replica *r)
{
    for (size_t i = 0; i < PROGRAMS; i++)
        if (r->compiled[i].program)
            replica_bind(r, r->compiled[i].program);
}

// How many rows would fit, where it is known: what lies between the operators grows with them, about. Not all of the
// memory can be given away in one piece.
static const double SHARE = 0.9;

static enum ps_code replica_no_arena(const struct nn_replica *r, int rows, size_t bytes, struct ps_error *e)
{
    const double there = r->device->memory ? (double)r->device->memory->available(r->context) : 0;
    const int fit = (int)((double)rows * SHARE * there / (double)bytes);
    char batch[64] = "a smaller batch";
    if (fit > 0 && fit < rows)
        snprintf(batch, sizeof batch, "a batch of at most %d", fit);
    const struct ps_error cause = *e;
    return ps_fail(e, cause.code,
                   "no memory for a replica with batches of %d rows: it takes %zu bytes, expected %s (%s)", rows, bytes,
                   batch, cause.text);
}

// Of a program's size at least; what is there already is enough for the others.
static enum ps_code replica_fit_staging(struct nn_replica *r, const struct nn_program *p, struct ps_error *e)
{
    const size_t bytes = nn_program_staging(p);
    void *staging;
    if (bytes <= r->staging_bytes)
        return PS_OK;
    if (nn_memory_get_host(r->device, r->context, bytes, &staging, e))
        return ps_error_prefix(e, "what is copied in a step");
    nn_memory_free_host(r->device, r->context, r->staging);
    memset(r->staging = staging, 0, bytes);
    r->staging_bytes = bytes;
    return PS_OK;
}

static enum ps_code replica_fit_arena(struct nn_replica *r, const struct nn_program *p, int rows, struct ps_error *e)
{
    const size_t bytes = nn_program_arena(p);
    void *arena;
    if (bytes <= r->arena_bytes)
        return PS_OK;
    if (nn_memory_get(r->device, r->context, bytes, &arena, e))
        return replica_no_arena(r, rows, bytes, e);
    nn_memory_free(r->device, r->context, r->arena);
    r->arena = arena;
    r->arena_bytes = bytes;
    if (!r->device->memory)
        memset(r->arena, 0, bytes);
    return PS_OK;
}

// ---- programs -----------------------------------------------------------------------------------------------------

static enum ps_code replica_compile(struct nn_replica *r, int rows, bool training, struct compiled *c,
                                    struct ps_error *e)
{
    struct nn_tape tape;
    *c = (struct compiled){.rows = rows, .training = training};
    nn_tape_init(&tape);
    nn_emit(r->model, r->device, r->loss, rows, training, &tape, &c->tensors);
    if (nn_program_create(&tape, r->device, r->context, &c->program, e))
        return e->code;
    if (!r->variables) {
        replica_find_order(r, c->program);
        if (replica_get_memory(r, e))
            return e->code;
    }
    const bool fits =
        replica_fit_arena(r, c->program, rows, e) == PS_OK && replica_fit_staging(r, c->program, e) == PS_OK;
    if (fits || (r->arena && r->staging))
        replica_bind_all(r);
    return fits ? PS_OK : e->code;
}

static struct compiled *replica_find(struct nn_replica *r, int rows, bool training)
{
    struct compiled *oldest = &r->compiled[0];
    for (struct compiled *c = r->compiled; c < r->compiled + PROGRAMS; c++) {
        if (c->program && c->rows == rows && c->training == training)
            return c;
        if (!c->program || (oldest->program && c->used < oldest->used))
            oldest = c;
    }
    nn_program_free(oldest->program);
    *oldest = (struct compiled){0};
    return oldest;
}

static enum ps_code replica_program(struct nn_replica *r, int rows, bool training, struct compiled **found,
                                    struct ps_error *e)
{
    struct compiled *c = replica_find(r, rows, training);
    if (!c->program && replica_compile(r, rows, training, c, e)) {
        nn_program_free(c->program);
        *c = (struct compiled){0};
        return e->code;
    }
    c->used = ++r->runs;
    *found = c;
    return PS_OK;
}

// ---- create and free ----------------------------------------------------------------------------------------------

static enum ps_code check_rows(const struct nn_model *m, int rows, struct ps_error *e)
{
    if (rows < 1)
        return ps_fail(e, PS_INVALID_ARGUMENT, "expected a batch of 1 or more rows, not %d", rows);
    for (size_t i = 0; i < m->values; i++)
        if (nn_type_count(&m->value[i].type) > (size_t)(NN_MAX_ELEMENTS / rows))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "layer \"%s\" gives more than %d elements in a batch of %d rows: expected a smaller batch",
                           m->layer[m->call[m->value[i].call].layer].name, NN_MAX_ELEMENTS, rows);
    return PS_OK;
}

enum ps_code nn_replica_measure(struct nn_replica *r, const struct nn_metric *metrics, size_t n, struct ps_error *e)
{
    struct nn_measures *measures;
    if (nn_measures_create(r->model, r->loss, metrics, n, &measures, e))
        return e->code;
    nn_measures_free(r->measures);
    free(r->sums);
    r->measures = measures;
    r->sums = ps_alloc(nn_measures_sums(measures) * sizeof *r->sums);
    return PS_OK;
}

const struct nn_measures *nn_replica_measures(const struct nn_replica *r)
{
    return r->measures;
}

static enum ps_code replica_prepare(struct nn_replica *r, int threads, struct ps_error *e)
{
    struct compiled *c;
    if (nn_replica_measure(r, NULL, 0, e) || r->device->open(r->index, threads, &r->context, e))
        return e->code;
    return replica_program(r, r->rows, true, &c, e);
}

enum ps_code nn_replica_create(const struct nn_model *model, const char *device, int rows, int threads, uint64_t seed,
                               const struct ps_loss *loss, struct nn_replica **replica, struct ps_error *e)
{
    const struct nn_device *found = NULL;
    int index;
    if (nn_device_find(device, &found, &index, e) || nn_model_check_loss(model, loss, e) || check_rows(model, rows, e))
        return e->code;
    struct nn_replica *r = ps_alloc(sizeof *r);
    *r = (struct nn_replica){.model = model, .device = found, .index = index, .rows = rows, .seed = seed};
    for (size_t k = 0; k < nn_model_outputs(model); k++)
        r->loss[k] = loss[k];
    enum ps_code code = replica_prepare(r, threads, e);
    if (code == PS_OK)
        *replica = r;
    else
        nn_replica_free(r);
    return code;
}

// Waits for all that is queued. An error of it stays the device's.
static void replica_finish(struct nn_replica *r)
{
    struct ps_error kept = {PS_OK, ""};
    if (r->context && r->device->memory)
        r->device->memory->finish(r->context, &kept);
}

void nn_replica_free(struct nn_replica *r)
{
    if (!r)
        return;
    replica_finish(r);
    for (size_t i = 0; i < PROGRAMS; i++)
        nn_program_free(r->compiled[i].program);
    nn_memory_free(r->device, r->context, r->arena);
    nn_memory_free(r->device, r->context, r->twins);
    nn_memory_free(r->device, r->context, r->slots);
    nn_memory_free_host(r->device, r->context, r->staging);
    nn_memory_free_host(r->device, r->context, r->variables);
    if (r->context)
        r->device->close(r->context);
    free(r->param_twin);
    free(r->grad_twin);
    free(r->param);
    free(r->grad);
    free(r->order);
    free(r->weight);
    free(r->example);
    nn_measures_free(r->measures);
    free(r->sums);
    free(r);
}

void nn_replica_set_precision(struct nn_replica *r, enum nn_precision precision)
{
    if (r->device->set_precision)
        r->device->set_precision(r->context, precision);
}

enum ps_code nn_replica_set_convolutions(struct nn_replica *r, enum nn_convolutions which, struct ps_error *e)
{
    struct compiled *c;
    if (!r->device->set_convolutions)
        return ps_fail(e, PS_FAILED_PRECONDITION, "a %s has no convolutions to choose from", r->device->name);
    if (r->device->set_convolutions(r->context, which, e))
        return e->code;
    for (size_t i = 0; i < PROGRAMS; i++) {
        nn_program_free(r->compiled[i].program);
        r->compiled[i] = (struct compiled){0};
    }
    return replica_program(r, r->rows, true, &c, e);
}

void nn_replica_reseed(struct nn_replica *r, uint64_t seed)
{
    r->seed = seed;
}

// ---- values that stay on the device ---------------------------------------------------------------------------------

// What fails, now or in what was queued before, is the device, and goes on failing.
static void replica_fetch(struct nn_replica *r, float *to, const float *from, size_t bytes)
{
    r->device->memory->take(r->context, to, from, bytes);
    if (r->device->memory->finish(r->context, &r->lost))
        ps_error_prefix(&r->lost, "the values of a replica are lost");
}

// Whoever asks for them may change them.
static void replica_fetch_values(struct nn_replica *r)
{
    if (r->values_there)
        replica_fetch(r, r->variables, r->twins, r->gradient_bytes);
    r->values_there = false;
    r->values_here = true;
}

enum ps_code nn_replica_fetch(struct nn_replica *r, struct ps_error *e)
{
    if (r->keeps)
        replica_fetch_values(r);
    *e = r->lost;
    return e->code;
}

static void replica_fetch_gradients(struct nn_replica *r)
{
    const size_t n = r->gradient_bytes / sizeof(float);
    if (r->gradients_there)
        replica_fetch(r, r->variables + n, r->twins + n, r->gradient_bytes);
    r->gradients_there = false;
}

static void replica_send_values(struct nn_replica *r)
{
    if (r->values_here)
        r->device->memory->put(r->context, r->twins, r->variables, r->gradient_bytes);
    r->values_here = false;
}

// Those of a batch of no rows are 0.
static enum ps_code replica_send_gradients(struct nn_replica *r, struct ps_error *e)
{
    const size_t n = r->gradient_bytes / sizeof(float);
    r->device->memory->put(r->context, r->twins + n, r->variables + n, r->gradient_bytes);
    r->gradients_there = false;
    return r->device->memory->finish(r->context, e);
}

bool nn_replica_can_keep(const struct nn_replica *r, const struct ps_rule *rule, const double *hyper)
{
    return r->device->memory && r->device->applies && r->device->applies(rule, hyper);
}

bool nn_replica_keep(struct nn_replica *r, const struct ps_rule *rule, const double *hyper)
{
    r->keeps = nn_replica_can_keep(r, rule, hyper);
    r->values_here = true;
    return r->keeps;
}

void nn_replica_keep_no_more(struct nn_replica *r)
{
    if (r->keeps)
        replica_fetch_values(r);
    r->values_here = false;
    r->keeps = r->gradients_there = false;
}

enum ps_code nn_replica_get_slots(struct nn_replica *r, size_t n, float **slots, struct ps_error *e)
{
    void *memory;
    if (r->device->memory->get(r->context, n * sizeof **slots, &memory, e))
        return ps_error_prefix(e, "the slots of a rule");
    *slots = r->slots = memory;
    return PS_OK;
}

enum ps_code nn_replica_put_slots(struct nn_replica *r, float *to, const float *from, size_t n, struct ps_error *e)
{
    r->device->memory->put(r->context, to, from, n * sizeof *to);
    return r->device->memory->finish(r->context, e);
}

void nn_replica_take_slots(struct nn_replica *r, float *to, const float *from, size_t n)
{
    replica_fetch(r, to, from, n * sizeof *to);
}

void nn_replica_apply(struct nn_replica *r, struct nn_update *update, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        update[k].args.g = r->grad_twin[update[k].variable];
        update[k].args.w_in = update[k].args.w_out = r->param_twin[update[k].variable];
    }
    r->device->enter(r->context);
    replica_send_values(r);
    r->device->apply(r->context, update, n);
    if (r->times || r->tracked.track)
        replica_finish(r);  // the times of the next step's operators are without it
    r->device->leave(r->context);
    r->values_there = true;
}

enum ps_code nn_replica_check_sums(struct nn_replica *r, enum nn_sums_way way, struct ps_error *e)
{
    r->device_sums = r->device->sums[way];
    if (!r->device_sums)
        return ps_fail(e, PS_FAILED_PRECONDITION, "device %s:%d adds up nothing with others", r->device->name,
                       r->index);
    return r->device_sums->check(e);
}

uint64_t nn_replica_identity_in_sums(const struct nn_replica *r)
{
    return r->device_sums->identity ? r->device_sums->identity(r->context) : 0;
}

enum ps_code nn_replica_name_sums(const struct nn_replica *r, char name[NN_SUMS_NAME], struct ps_error *e)
{
    return r->device_sums->name(name, e);
}

enum ps_code nn_replica_join_sums(struct nn_replica *r, const struct nn_sums_ranks *ranks, struct ps_error *e)
{
    return r->device_sums->join(r->context, ranks, e);
}

void nn_replica_add_gradients(struct nn_replica *r, size_t i, size_t n, float scale)
{
    r->device->enter(r->context);
    r->device_sums->add(r->context, r->grad_twin[i], n, scale);
    r->device->leave(r->context);
    r->gradients_there = true;
}

enum ps_code nn_replica_look_at_sums(struct nn_replica *r, bool *done, struct ps_error *e)
{
    return r->device_sums->look(r->context, done, e);
}

void nn_replica_abort_sums(struct nn_replica *r)
{
    r->device_sums->abort(r->context);
}

float *nn_replica_param(struct nn_replica *r, size_t i)
{
    if (r->keeps)
        replica_fetch_values(r);
    return r->param[i];
}

float *nn_replica_grad(struct nn_replica *r, size_t i)
{
    if (r->keeps)
        replica_fetch_gradients(r);
    return r->grad[i];
}

size_t nn_replica_order(const struct nn_replica *r, const size_t **variable)
{
    *variable = r->order;
    return r->n_ready;
}

size_t nn_replica_arena(const struct nn_replica *r)
{
    return r->arena_bytes;
}

const float *nn_replica_output(struct nn_replica *r, size_t k)
{
    return r->output[k];
}

const float *nn_replica_counts(struct nn_replica *r, size_t k)
{
    return r->counts[k];
}

void nn_replica_time(struct nn_replica *r, struct nn_times *times)
{
    r->times = times;
}

void nn_replica_track(struct nn_replica *r, struct ps_track *track)
{
    r->tracked.track = track;
}

double nn_replica_peak(struct nn_replica *r)
{
    return r->device->peak ? r->device->peak(r->context) : 0;
}

enum ps_code nn_replica_program(struct nn_replica *r, const struct nn_program **program, struct ps_error *e)
{
    struct compiled *c;
    if (replica_program(r, r->rows, true, &c, e))
        return e->code;
    *program = c->program;
    return PS_OK;
}

// ---- a step -------------------------------------------------------------------------------------------------------

static void replica_put_columns(const struct nn_replica *r, const struct nn_batch *b, const void **column)
{
    column[NN_COLUMN_EXAMPLE] = b->example ? b->example : r->example;
    column[NN_COLUMN_WEIGHT] = r->weight;
    for (size_t k = 0; k < nn_model_inputs(r->model); k++)
        column[NN_COLUMN_INPUT + k] = b->input[k];
    for (size_t k = 0; k < nn_model_outputs(r->model); k++)
        column[NN_COLUMN_TARGET + k] = b->target[k];
}

// A weight is a part of 1: the sum of those of a batch is 1 where no example weighs more than another.
static double replica_output_loss(const struct compiled *c, size_t k, const float *weight, size_t rows)
{
    const float *loss = nn_program_tensor(c->program, c->tensors.loss[k]);
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        sum += (double)weight[i] * (double)loss[i];
    return sum * c->rows;
}

static void replica_clear_result(struct nn_replica *r, struct nn_result *result)
{
    *result = (struct nn_result){.of = r->measures, .sums = r->sums};
    memset(r->sums, 0, nn_measures_sums(r->measures) * sizeof *r->sums);
}

static void replica_take_result(struct nn_replica *r, const struct compiled *c, const struct nn_batch *b,
                                struct nn_result *result)
{
    if (c->tensors.penalty >= 0)
        result->loss += b->rows * (double)*(const float *)nn_program_tensor(c->program, c->tensors.penalty);
    for (size_t k = 0; k < nn_model_outputs(r->model); k++) {
        const struct nn_type *type = nn_model_output(r->model, k).type;
        const size_t width = type->rank ? (size_t)type->dim[type->rank - 1] : 1;
        const size_t rows = (size_t)c->rows * nn_type_count(type) / width;
        r->output[k] = nn_program_tensor(c->program, c->tensors.output[k]);
        r->counts[k] = c->tensors.counts[k] < 0 ? NULL : nn_program_tensor(c->program, c->tensors.counts[k]);
        result->output[k] = replica_output_loss(c, k, nn_program_tensor(c->program, c->tensors.weight[k]), rows);
        result->loss += r->loss[k].weight * result->output[k];
    }
    nn_measures_add(r->measures, r, b, result, r->sums);
}

static int replica_compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static double replica_id(const struct nn_port *port, const void *input, size_t i)
{
    return port->type->dtype == NN_FLOAT ? trunc((double)((const float *)input)[i]) : ((const int32_t *)input)[i];
}

// Of an input that may have some numbers only.
static enum ps_code replica_check_only(const struct nn_port *port, const struct nn_batch *b, size_t k,
                                       struct ps_error *e)
{
    const size_t n = port->only ? nn_type_count(port->type) : 0;
    for (size_t i = 0; i < n * (size_t)b->rows; i++) {
        const double number = replica_id(port, b->input[k], i);
        const int32_t id = number >= INT32_MIN && number <= INT32_MAX ? (int32_t)number : 0;
        if (id != number || !bsearch(&id, port->only, (size_t)port->n_only, sizeof id, replica_compare_ids))
            return ps_fail(e, PS_INVALID_ARGUMENT,
                           "input \"%s\": example %" PRIu64 " has the number %g, which is not in the vocabulary",
                           port->name, b->example ? b->example[i / n] : i / n, number);
    }
    return PS_OK;
}

// Is each number that an Embedding reads one of its table?
static enum ps_code replica_check_ids(const struct nn_replica *r, const struct nn_batch *b, struct ps_error *e)
{
    for (size_t k = 0; k < nn_model_inputs(r->model); k++) {
        const struct nn_port port = nn_model_input(r->model, k);
        const size_t n = port.ids ? nn_type_count(port.type) : 0;
        if (replica_check_only(&port, b, k, e))
            return e->code;
        for (size_t i = 0; i < n * (size_t)b->rows; i++) {
            const double id = replica_id(&port, b->input[k], i);
            if (!(id >= 0 && id < (double)port.ids))
                return ps_fail(e, PS_INVALID_ARGUMENT,
                               "input \"%s\" of example %" PRIu64 " has %g, which the model looks up: expected a "
                               "whole number from 0 to %" PRId64,
                               port.name, b->example ? b->example[i / n] : i / n, id, port.ids - 1);
        }
    }
    return PS_OK;
}

// Gradients that are 0: of variables from place `from` of the order on.
static enum ps_code replica_clear_gradients(struct nn_replica *r, size_t from, const struct nn_hooks *hooks,
                                            struct ps_error *e)
{
    for (size_t k = from; k < r->n_ready; k++) {
        const size_t i = r->order[k];
        if (hooks && hooks->need(hooks->arg, i, e))
            return e->code;
        memset(r->grad[i], 0, r->model->variable[i].param.count * sizeof(float));
        if (hooks && hooks->ready(hooks->arg, i, e))
            return e->code;
    }
    return PS_OK;
}

// Where the times of a run go; NULL: nobody wants them.
static struct nn_times *replica_times(struct nn_replica *r, int rows, bool training)
{
    if (r->times && training && rows == r->rows)
        return r->times;
    return r->tracked.track ? &r->tracked : NULL;
}

static enum ps_code replica_run(struct nn_replica *r, const struct nn_batch *b, bool training, uint64_t step,
                                const struct nn_hooks *hooks, struct nn_result *result, struct ps_error *e)
{
    const struct nn_step now = {.seed = r->seed, .number = (uint32_t)step};
    const void *column[NN_COLUMNS];
    struct compiled *c;
    replica_clear_result(r, result);
    if (replica_check_ids(r, b, e) || replica_program(r, b->rows, training, &c, e))
        return e->code;
    for (int i = 0; i < b->rows; i++)
        r->weight[i] = (b->weight ? b->weight[i] : 1) / (float)b->rows;
    replica_put_columns(r, b, column);
    if (r->keeps)
        replica_send_values(r);
    nn_program_keep(c->program, r->keeps);
    struct nn_times *times = replica_times(r, b->rows, training);
    if (times ? nn_program_time(c->program, column, &now, hooks, times, e)
              : nn_program_run(c->program, column, &now, hooks, e))
        return e->code;
    replica_take_result(r, c, b, result);
    r->gradients_there |= training && r->keeps;
    return training ? replica_clear_gradients(r, r->n_used, hooks, e) : PS_OK;
}

// A step of no rows, whose sums the others wait for.
struct idle {
    const struct nn_replica *r;
    const struct nn_hooks *hooks;
};

static enum ps_code idle_need(void *arg, size_t variable, struct ps_error *e)
{
    const struct idle *i = arg;
    if (i->hooks->need(i->hooks->arg, variable, e))
        return e->code;
    memset(i->r->grad[variable], 0, i->r->model->variable[variable].param.count * sizeof(float));
    return PS_OK;
}

static enum ps_code idle_ready(void *arg, size_t variable, struct ps_error *e)
{
    const struct idle *i = arg;
    return i->hooks->ready(i->hooks->arg, variable, e);
}

static enum ps_code idle_sum(void *arg, double *values, size_t n, struct ps_error *e)
{
    const struct idle *i = arg;
    return i->hooks->sum(i->hooks->arg, values, n, e);
}

static enum ps_code replica_idle(struct nn_replica *r, const struct nn_hooks *hooks, struct ps_error *e)
{
    struct idle i = {r, hooks};
    const struct nn_hooks own = {idle_need, idle_ready, idle_sum, &i};
    struct compiled *c;
    if (replica_program(r, r->rows, true, &c, e) || nn_program_idle(c->program, &own, e))
        return e->code;
    return replica_clear_gradients(r, r->n_used, hooks, e);
}

enum ps_code nn_replica_train(struct nn_replica *r, const struct nn_batch *b, uint64_t step,
                              const struct nn_hooks *hooks, struct nn_result *result, struct ps_error *e)
{
    if (b->rows > 0)
        return replica_run(r, b, true, step, hooks, result, e);
    replica_clear_result(r, result);
    // They are there before the home queues work on them.
    if (r->keeps && (replica_clear_gradients(r, 0, NULL, e) || replica_send_gradients(r, e)))
        return e->code;
    return hooks && hooks->sum ? replica_idle(r, hooks, e) : replica_clear_gradients(r, 0, hooks, e);
}

enum ps_code nn_replica_evaluate(struct nn_replica *r, const struct nn_batch *b, struct nn_result *result,
                                 struct ps_error *e)
{
    return replica_run(r, b, false, 0, NULL, result, e);
}
