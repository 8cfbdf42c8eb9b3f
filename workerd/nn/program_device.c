// SPDX-License-Identifier: Apache-2.0
//
// A program on a device with memory of its own. A step copies the batch there, with the step's number where operators
// draw by it, and each variable's value before the first operator that reads it; queues the operators without waiting
// for any; takes each gradient back when its last operator is done, beside those that are still to run; and waits for
// the gradients in that order, so that they leave while the backward pass goes on. Only an operator that the device has
// no kernel for is waited for: its arguments come to the host, its reference computes it there, and what it gives goes
// back.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/program_inside.h"

// ---- places -------------------------------------------------------------------------------------------------------

static const struct nn_tensor *copies_tensor(const struct nn_program *p, int i)
{
    return &p->tape.tensor[i];
}

static size_t copies_bytes(const struct nn_type *type)
{
    return (nn_type_bytes(type) + 63) & ~(size_t)63;
}

static bool instruction_on_host(const struct nn_instruction *i)
{
    return i->kernel == &nn_kernel_ref;
}

// Of the arguments of one operator, side by side.
static size_t copies_arguments(const struct nn_op *op)
{
    size_t bytes = 0;
    for (int i = 0; i < op->n_in; i++)
        bytes += copies_bytes(&op->in_type[i]);
    for (int i = 0; i < op->n_out; i++)
        bytes += copies_bytes(&op->out_type[i]);
    return bytes;
}

static size_t copies_most_arguments(const struct nn_program *p)
{
    size_t most = 0;
    for (int k = 0; k < p->tape.n_ops; k++) {
        const size_t bytes = instruction_on_host(&p->instruction[k]) ? copies_arguments(&p->tape.op[k]) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

// Which tensors are a variable's value and gradient.
static void copies_find_variables(struct nn_program *p)
{
    size_t n = 0;
    for (int i = 0; i < p->tape.n_tensors; i++)
        if (copies_tensor(p, i)->index >= (int)n)
            n = (size_t)copies_tensor(p, i)->index + 1;
    p->value = ps_alloc((n + 1) * sizeof *p->value);
    p->slope = ps_alloc((n + 1) * sizeof *p->slope);
    for (size_t v = 0; v < n; v++)
        p->value[v] = p->slope[v] = -1;
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *t = copies_tensor(p, i);
        if (t->view_of < 0 && t->place == NN_PLACE_WEIGHT)
            p->value[t->index] = i;
        else if (t->view_of < 0 && t->place == NN_PLACE_GRADIENT)
            p->slope[t->index] = i;
    }
}

static bool copies_is_kept(const struct nn_program *p, int root)
{
    return p->life[root].last == p->tape.n_ops;
}

// Does every step queue the same?
static bool copies_is_steady(const struct nn_program *p)
{
    bool steady = true;
    for (int k = 0; k < p->tape.n_ops; k++)
        steady &= !instruction_on_host(&p->instruction[k]);
    return steady;
}

// Do kernels of the device draw? They read the step from its memory, so that what every step queues is the same.
static bool copies_draw(const struct nn_program *p)
{
    bool draw = false;
    for (int k = 0; k < p->tape.n_ops; k++)
        draw |= !instruction_on_host(&p->instruction[k]) && p->tape.op[k].class->draws;
    return draw;
}

static bool copies_is_column(const struct nn_program *p, int tensor)
{
    return copies_tensor(p, tensor)->place == NN_PLACE_INPUT && p->life[tensor].first >= 0;
}

// Side by side in both memories, so that one copy brings it.
static void copies_place_given(struct nn_program *p)
{
    enum { STEP = 64 };
    _Static_assert(sizeof(struct nn_step) <= STEP, "a place for the step");
    p->draws = copies_draw(p);
    p->given = p->draws ? STEP : 0;
    p->given_at = p->arena;
    p->host_given_at = p->staging;
    for (int i = 0; i < p->tape.n_tensors; i++)
        if (copies_is_column(p, i)) {
            p->life[i].at = p->given_at + p->given;
            p->host_at[i] = p->host_given_at + p->given;
            p->given += copies_bytes(&copies_tensor(p, i)->type);
        }
    p->arena += p->given;
    p->staging += p->given;
}

void nn_program_plan_copies(struct nn_program *p)
{
    const size_t tensors = (size_t)p->tape.n_tensors;
    p->host = ps_alloc((tensors + 1) * sizeof *p->host);
    p->host_at = ps_alloc((tensors + 1) * sizeof *p->host_at);
    p->ticket = ps_alloc((p->n_ready + 1) * sizeof *p->ticket);
    p->staging = copies_most_arguments(p);
    p->steady = copies_is_steady(p);
    copies_place_given(p);
    copies_find_variables(p);
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *t = copies_tensor(p, i);
        if (!p->life[i].in_arena || t->place == NN_PLACE_INPUT || !copies_is_kept(p, i))
            continue;
        p->host_at[i] = p->staging;
        p->staging += copies_bytes(&t->type);
    }
}

static void program_drop_graph(struct nn_program *p)
{
    if (p->graph)
        p->device->memory->free_graph(p->context, p->graph);
    p->graph = NULL;
}

void nn_program_free_copies(struct nn_program *p)
{
    program_drop_graph(p);
    free(p->host);
    free(p->host_at);
    free(p->ticket);
    free(p->value);
    free(p->slope);
}

void nn_program_bind_copies(struct nn_program *p, const struct nn_bound *b)
{
    p->staged = b->staging;
    p->given_there = b->arena + p->given_at;
    p->given_here = b->staging + p->host_given_at;
    program_drop_graph(p);
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *t = copies_tensor(p, i);
        if (t->place == NN_PLACE_WEIGHT)
            p->host[i] = b->host_value[t->index];
        else if (t->place == NN_PLACE_GRADIENT)
            p->host[i] = b->host_gradient[t->index];
        else
            p->host[i] = b->staging + p->host_at[i];
    }
}

void nn_program_keep(struct nn_program *p, bool keeps)
{
    p->keeps = keeps;
}

// ---- copies -------------------------------------------------------------------------------------------------------

static void program_put(struct nn_program *p, int tensor)
{
    p->device->memory->put(p->context, p->memory[tensor], p->host[tensor],
                           nn_type_bytes(&copies_tensor(p, tensor)->type));
}

static uint64_t program_take(struct nn_program *p, int tensor)
{
    return p->device->memory->take(p->context, p->host[tensor], p->memory[tensor],
                                   nn_type_bytes(&copies_tensor(p, tensor)->type));
}

static void program_stage(struct nn_program *p, const void *const *column, const struct nn_step *step)
{
    if (p->draws)
        *(struct nn_step *)(void *)p->given_here = *step;
    for (int i = 0; i < p->tape.n_tensors; i++)
        if (copies_is_column(p, i))
            memcpy(p->host[i], column[copies_tensor(p, i)->index], nn_type_bytes(&copies_tensor(p, i)->type));
}

static void program_put_given(struct nn_program *p)
{
    if (p->given)
        p->device->memory->put(p->context, p->given_there, p->given_here, p->given);
}

// Columns that no operator writes over are here.
static bool program_has_written(const struct nn_program *p, int root)
{
    bool written = copies_tensor(p, root)->place != NN_PLACE_INPUT;
    for (int k = 0; k < p->tape.n_ops; k++)
        for (int i = 0; i < p->tape.op[k].n_out; i++)
            written |= nn_program_root(p, p->tape.op[k].out[i]) == root;
    return written;
}

static void program_take_kept(struct nn_program *p)
{
    for (int i = 0; i < p->tape.n_tensors; i++)
        if (copies_is_kept(p, i) && p->life[i].in_arena && program_has_written(p, i))
            program_take(p, i);
}

// ---- an operator on the host --------------------------------------------------------------------------------------

// The host has the values of variables, and nobody changes them while they are needed.
static bool detour_is_there(const struct nn_program *p, int root)
{
    return copies_tensor(p, root)->place == NN_PLACE_WEIGHT && !p->keeps;
}

static enum ps_code detour_compute(const struct nn_program *p, const struct nn_frame *f, const struct nn_hooks *hooks,
                                   struct ps_error *e)
{
    if (nn_hooks_sum(hooks, f->op))
        return nn_program_sum(p, f, hooks, e);
    f->op->class->reference(f);
    return PS_OK;
}

static enum ps_code program_detour(struct nn_program *p, const struct nn_instruction *i, const struct nn_hooks *hooks,
                                   struct ps_error *e)
{
    const struct nn_device_memory *m = p->device->memory;
    const struct nn_op *op = i->frame.op;
    struct nn_frame f = i->frame;
    void *in[NN_OP_IN], *out[NN_OP_OUT];
    char *at = p->staged;
    for (int k = 0; k < op->n_in; at += copies_bytes(&op->in_type[k++])) {
        const int root = nn_program_root(p, op->in[k]);
        in[k] = detour_is_there(p, root) ? p->host[root] : at;
        if (in[k] == at)
            m->take(p->context, at, i->in[k], nn_type_bytes(&op->in_type[k]));
    }
    if (m->finish(p->context, e))
        return e->code;
    for (int k = 0; k < op->n_out; at += copies_bytes(&op->out_type[k++]))
        out[k] = at;
    f.in = in;
    f.out = out;
    if (detour_compute(p, &f, hooks, e))
        return e->code;
    for (int k = 0; k < op->n_out; k++)
        m->put(p->context, i->out[k], out[k], nn_type_bytes(&op->out_type[k]));
    return PS_OK;
}

// ---- a step -------------------------------------------------------------------------------------------------------

static enum ps_code program_bring_values(struct nn_program *p, const int *variable, int n, const struct nn_hooks *hooks,
                                         struct ps_error *e)
{
    if (hooks && nn_hooks_need(hooks, variable, n, e))
        return e->code;
    for (int i = 0; i < n && !p->keeps; i++)
        if (p->value[variable[i]] >= 0)
            program_put(p, p->value[variable[i]]);
    return PS_OK;
}

// A gradient is queued: it comes to the host, or what stays there is the home's to queue work on.
static enum ps_code program_hand_over(struct nn_program *p, size_t ready, const struct nn_hooks *hooks,
                                      struct ps_error *e)
{
    if (p->keeps)
        return hooks ? hooks->ready(hooks->arg, (size_t)p->ready[ready], e) : PS_OK;
    p->ticket[ready] = program_take(p, p->slope[p->ready[ready]]);
    return PS_OK;
}

// Hands over the gradients that come to the host, up to this one of those that are queued.
static enum ps_code program_deliver(struct nn_program *p, size_t end, const struct nn_hooks *hooks, struct ps_error *e)
{
    for (; hooks && !p->keeps && p->delivered < end; p->delivered++) {
        if (p->device->memory->wait(p->context, p->ticket[p->delivered], e) ||
            hooks->ready(hooks->arg, (size_t)p->ready[p->delivered], e))
            return e->code;
    }
    return PS_OK;
}

static enum ps_code program_queue(struct nn_program *p, const struct nn_step *step, const struct nn_hooks *hooks,
                                  struct nn_times *times, struct ps_error *e)
{
    const int *need = p->need;
    size_t ready = 0;
    uint64_t at = nn_times_start(times);
    for (int k = 0; k < p->tape.n_ops; k++) {
        struct nn_instruction *i = &p->instruction[k];
        if (program_bring_values(p, need, i->need, hooks, e))
            return e->code;
        need += i->need;
        nn_times_lap(times, i->frame.op, NN_LAP_NEED, &at);
        i->frame.step = p->draws && !instruction_on_host(i) ? (void *)p->given_there : step;
        // Before a sum over the replicas, as on any other device.
        if (nn_hooks_sum(hooks, i->frame.op) && program_deliver(p, ready, hooks, e))
            return e->code;
        if (!instruction_on_host(i))
            i->kernel->run(&i->frame);
        else if (program_detour(p, i, hooks, e))
            return e->code;
        if (times && p->device->memory->finish(p->context, e))
            return e->code;
        nn_times_lap(times, i->frame.op, k, &at);
        for (int r = 0; r < i->ready; r++, ready++)
            if (program_hand_over(p, ready, hooks, e))
                return e->code;
    }
    return PS_OK;
}

static enum ps_code program_deliver_all(struct nn_program *p, const struct nn_hooks *hooks, struct nn_times *times,
                                        struct ps_error *e)
{
    uint64_t at = nn_times_start(times);
    if (program_deliver(p, p->n_ready, hooks, e))
        return e->code;
    nn_times_lap(times, NULL, NN_LAP_READY, &at);
    return PS_OK;
}

// Whatever happens, nothing is queued any more when it returns: the memory is the caller's again.
static enum ps_code program_end(struct nn_program *p, enum ps_code code, struct ps_error *e)
{
    struct ps_error late = {0};
    if (p->device->memory->finish(p->context, &late) && code == PS_OK)
        ps_fail(e, code = late.code, "%s", late.text);
    return code;
}

static enum ps_code program_step(struct nn_program *p, const struct nn_step *step, const struct nn_hooks *hooks,
                                 struct nn_times *times, struct ps_error *e)
{
    p->delivered = 0;
    program_put_given(p);
    if (program_queue(p, step, hooks, times, e))
        return e->code;
    program_take_kept(p);
    return program_deliver_all(p, hooks, times, e);
}

static void program_record(struct nn_program *p, const struct nn_step *step)
{
    struct ps_error e = {PS_OK, ""};
    if (!p->device->memory->record(p->context))
        return;
    program_step(p, step, NULL, NULL, &e);
    p->graph = p->device->memory->recorded(p->context);
    p->steady = p->graph != NULL;
}

// The first run is as any other: kernels are loaded when they are first used.
static bool program_replay(struct nn_program *p, const struct nn_step *step)
{
    if (!p->steady || p->kept_runs++ == 0)
        return false;
    if (p->graph && p->device->memory->replay(p->context, p->graph))
        return true;
    program_drop_graph(p);
    program_record(p, step);
    return p->graph && p->device->memory->replay(p->context, p->graph);
}

enum ps_code nn_program_run_device(struct nn_program *p, const void *const *column, const struct nn_step *step,
                                   const struct nn_hooks *hooks, struct nn_times *times, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    p->device->enter(p->context);
    program_stage(p, column, step);
    if (!p->keeps || hooks || times || !program_replay(p, step))
        code = program_step(p, step, hooks, times, e);
    code = program_end(p, code, e);
    p->device->leave(p->context);
    return code;
}
