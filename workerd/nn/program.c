// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/nn/program_inside.h"

// ---- lives --------------------------------------------------------------------------------------------------------

int nn_program_root(const struct nn_program *p, int tensor)
{
    while (p->tape.tensor[tensor].view_of >= 0)
        tensor = p->tape.tensor[tensor].view_of;
    return tensor;
}

static void program_find_lives(struct nn_program *p)
{
    const struct nn_tape *t = &p->tape;
    for (int i = 0; i < t->n_tensors; i++)
        p->life[i] =
            (struct nn_life){.first = -1, .last = -1, .bytes = (nn_type_bytes(&t->tensor[i].type) + 63) & ~(size_t)63};
    for (int k = 0; k < t->n_ops; k++) {
        for (int i = 0; i < t->op[k].n_in; i++)
            p->life[nn_program_root(p, t->op[k].in[i])].last = k;
        for (int i = 0; i < t->op[k].n_out; i++)
            p->life[t->op[k].out[i]].first = p->life[t->op[k].out[i]].last = k;
    }
    for (int i = 0; i < t->n_tensors; i++) {
        int root = nn_program_root(p, i);
        if (t->tensor[i].kept)
            p->life[root].last = t->n_ops;
    }
    for (int i = 0; i < t->n_tensors; i++) {
        const bool input = p->device->memory && t->tensor[i].place == NN_PLACE_INPUT;
        p->life[i].in_arena = (input || t->tensor[i].place == NN_PLACE_TEMPORARY) && t->tensor[i].view_of < 0;
        if (input && p->life[i].last >= 0)
            p->life[i].first = 0;
    }
}

// Where an operator may write over an input that nobody reads after it, both are one: the output becomes a view of it.
static void program_join_in_place(struct nn_program *p)
{
    for (int k = 0; k < p->tape.n_ops; k++) {
        const struct nn_op *op = &p->tape.op[k];
        if (!op->class->in_place)
            continue;
        int from = nn_program_root(p, op->in[op->class->in_place - 1]), to = op->out[0];
        bool read_twice = false;
        for (int i = 0; i < op->n_in; i++)
            read_twice |= i != op->class->in_place - 1 && nn_program_root(p, op->in[i]) == from;
        struct nn_life *a = &p->life[from], *b = &p->life[to];
        if (read_twice || !a->in_arena || !b->in_arena || a->last != k || a->bytes != b->bytes)
            continue;
        p->tape.tensor[to].view_of = from;
        a->last = b->last;
        b->in_arena = false;
    }
}

// ---- the arena ----------------------------------------------------------------------------------------------------

static bool life_meets(const struct nn_life *a, const struct nn_life *b)
{
    return a->first <= b->last && b->first <= a->last;
}

// The largest first, each at the lowest place where nothing lies at its time ("greedy by size": Pisarchyk and Lee,
// Efficient Memory Management for Deep Neural Net Inference, 2020).
struct arena {
    struct nn_life **placed;  // by place
    size_t n, bytes;
};

static void arena_place(struct arena *a, struct nn_life *l)
{
    size_t at = 0, i = 0;
    for (; i < a->n; i++) {
        const struct nn_life *other = a->placed[i];
        if (!life_meets(other, l))
            continue;
        if (other->at >= at + l->bytes)
            break;
        at = other->at + other->bytes > at ? other->at + other->bytes : at;
    }
    l->at = at;
    for (i = a->n++; i > 0 && a->placed[i - 1]->at > at; i--)
        a->placed[i] = a->placed[i - 1];
    a->placed[i] = l;
    a->bytes = at + l->bytes > a->bytes ? at + l->bytes : a->bytes;
}

static int life_larger(const void *a, const void *b)
{
    const struct nn_life *x = *(struct nn_life *const *)a, *y = *(struct nn_life *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

// What a step is given has places of its own (program_device.c).
static bool program_places(const struct nn_program *p, size_t i)
{
    return p->life[i].in_arena && p->life[i].first >= 0 && p->tape.tensor[i].place != NN_PLACE_INPUT;
}

static void program_place(struct nn_program *p)
{
    size_t n = 0, tensors = (size_t)p->tape.n_tensors;
    struct nn_life **sorted = ps_alloc((tensors + 1) * sizeof(struct nn_life *));
    struct arena a = {.placed = ps_alloc((tensors + 1) * sizeof(struct nn_life *))};
    for (size_t i = 0; i < tensors; i++)
        if (program_places(p, i))
            sorted[n++] = &p->life[i];
    qsort(sorted, n, sizeof *sorted, life_larger);
    for (size_t i = 0; i < n; i++)
        arena_place(&a, sorted[i]);
    p->arena = a.bytes;
    free(sorted);
    free(a.placed);
}

// ---- kernels ------------------------------------------------------------------------------------------------------

static enum ps_code program_pick_kernels(struct nn_program *p, struct ps_error *e)
{
    for (int k = 0; k < p->tape.n_ops; k++) {
        struct nn_op *op = &p->tape.op[k];
        struct nn_instruction *i = &p->instruction[k];
        i->kernel = p->device->pick(op);
        i->frame = (struct nn_frame){.op = op, .context = p->context, .in = i->in, .out = i->out};
        if (i->kernel->plan && i->kernel->plan(p->context, op, &i->frame.plan, e))
            return ps_error_prefix(e, "layer \"%s\"", op->layer);
    }
    if (p->device->memory)
        nn_program_plan_copies(p);
    return PS_OK;
}

// ---- when variables are needed, and when they are ready ------------------------------------------------------------

// Of a variable: the first and the last operator that works with it.
struct use {
    int first, last;
    bool used, has_gradient;
};

static void program_note_use(const struct nn_program *p, struct use *use, int tensor, int op)
{
    const struct nn_tensor *root = &p->tape.tensor[nn_program_root(p, tensor)];
    if (root->place != NN_PLACE_WEIGHT && root->place != NN_PLACE_GRADIENT)
        return;
    struct use *u = &use[root->index];
    if (!u->used)
        u->first = op;
    u->used = true;
    u->last = op;
    u->has_gradient |= root->place == NN_PLACE_GRADIENT;
}

static int program_variables(const struct nn_program *p)
{
    int n = 0;
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *t = &p->tape.tensor[i];
        if ((t->place == NN_PLACE_WEIGHT || t->place == NN_PLACE_GRADIENT) && t->index >= n)
            n = t->index + 1;
    }
    return n;
}

static void program_mark_variables(struct nn_program *p)
{
    const struct nn_tape *t = &p->tape;
    int n = program_variables(p), needed = 0;
    struct use *use = ps_alloc((size_t)(n + 1) * sizeof *use);
    p->need = ps_alloc((size_t)(n + 1) * sizeof *p->need);
    p->ready = ps_alloc((size_t)(n + 1) * sizeof *p->ready);
    for (int k = 0; k < t->n_ops; k++) {
        for (int i = 0; i < t->op[k].n_in; i++)
            program_note_use(p, use, t->op[k].in[i], k);
        for (int i = 0; i < t->op[k].n_out; i++)
            program_note_use(p, use, t->op[k].out[i], k);
    }
    // A layer's variables lie side by side, the last first: as the backward pass goes.
    for (int k = 0; k < t->n_ops; k++)
        for (int v = n; v--;) {
            if (use[v].used && use[v].first == k) {
                p->need[needed++] = v;
                p->instruction[k].need++;
            }
            if (use[v].has_gradient && use[v].last == k) {
                p->ready[p->n_ready++] = v;
                p->instruction[k].ready++;
            }
        }
    free(use);
}

size_t nn_program_order(const struct nn_program *p, const int **variable)
{
    *variable = p->ready;
    return p->n_ready;
}

// ---- create and free ----------------------------------------------------------------------------------------------

static double *program_get_sums(const struct nn_program *p)
{
    size_t most = 0;
    for (int k = 0; k < p->tape.n_ops; k++) {
        const struct nn_op *op = &p->tape.op[k];
        const size_t n = op->class->sums ? op->class->sums(op) : 0;
        most = n > most ? n : most;
    }
    return ps_alloc((most + 1) * sizeof(double));
}

enum ps_code nn_program_create(struct nn_tape *t, const struct nn_device *device, struct nn_context *context,
                               struct nn_program **program, struct ps_error *e)
{
    if (t->error.code) {
        *e = t->error;
        nn_tape_fini(t);
        return e->code;
    }
    struct nn_program *p = ps_alloc(sizeof *p);
    size_t tensors = (size_t)t->n_tensors;
    p->tape = *t;
    p->device = device;
    p->context = context;
    p->instruction = ps_alloc((size_t)(t->n_ops + 1) * sizeof *p->instruction);
    p->life = ps_alloc((tensors + 1) * sizeof *p->life);
    p->memory = ps_alloc((tensors + 1) * sizeof *p->memory);
    program_find_lives(p);
    program_join_in_place(p);
    program_place(p);
    program_mark_variables(p);
    p->sums = program_get_sums(p);
    enum ps_code code = program_pick_kernels(p, e);
    if (code == PS_OK)
        *program = p;
    else
        nn_program_free(p);
    return code;
}

void nn_program_free(struct nn_program *p)
{
    if (!p)
        return;
    for (int k = 0; k < p->tape.n_ops; k++) {
        struct nn_instruction *i = &p->instruction[k];
        if (i->frame.plan)
            i->kernel->free(i->frame.plan);
    }
    nn_tape_fini(&p->tape);
    free(p->instruction);
    free(p->life);
    free(p->memory);
    free(p->need);
    free(p->ready);
    free(p->sums);
    nn_program_free_copies(p);
    free(p);
}

size_t nn_program_arena(const struct nn_program *p)
{
    return p->arena;
}

size_t nn_program_staging(const struct nn_program *p)
{
    return p->staging;
}

// ---- run ----------------------------------------------------------------------------------------------------------

static void program_point(struct nn_program *p)
{
    for (int k = 0; k < p->tape.n_ops; k++) {
        const struct nn_op *op = &p->tape.op[k];
        for (int i = 0; i < op->n_in; i++)
            p->instruction[k].in[i] = p->memory[nn_program_root(p, op->in[i])];
        for (int i = 0; i < op->n_out; i++)
            p->instruction[k].out[i] = p->memory[nn_program_root(p, op->out[i])];
    }
}

void nn_program_bind(struct nn_program *p, const struct nn_bound *b)
{
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *tensor = &p->tape.tensor[i];
        if (tensor->place == NN_PLACE_WEIGHT)
            p->memory[i] = b->value[tensor->index];
        else if (tensor->place == NN_PLACE_GRADIENT)
            p->memory[i] = b->gradient[tensor->index];
        else
            p->memory[i] = p->life[i].in_arena ? b->arena + p->life[i].at : NULL;
    }
    program_point(p);
    if (p->device->memory)
        nn_program_bind_copies(p, b);
}

// Inputs lie elsewhere in each batch.
static void program_take_columns(struct nn_program *p, const void *const *column)
{
    bool moved = false;
    for (int i = 0; i < p->tape.n_tensors; i++) {
        const struct nn_tensor *tensor = &p->tape.tensor[i];
        if (tensor->place != NN_PLACE_INPUT || p->memory[i] == column[tensor->index])
            continue;
        p->memory[i] = (void *)column[tensor->index];
        moved = true;
    }
    if (moved)
        program_point(p);
}

void nn_times_add_span(const struct nn_times *times, const struct nn_op *op, uint64_t start, uint64_t end)
{
    ps_track_add(times->track,
                 &(struct ps_span){.kind = op->backward ? PS_SPAN_BACKWARD : PS_SPAN_FORWARD,
                                   .name = op->layer,
                                   .part = op->class->name,
                                   .start = start},
                 end);
}

enum ps_code nn_hooks_need(const struct nn_hooks *hooks, const int *variable, int n, struct ps_error *e)
{
    for (int i = 0; i < n; i++)
        if (hooks->need(hooks->arg, (size_t)variable[i], e))
            return e->code;
    return PS_OK;
}

static enum ps_code hooks_ready(const struct nn_hooks *hooks, const int *variable, int n, struct ps_error *e)
{
    for (int i = 0; i < n; i++)
        if (hooks->ready(hooks->arg, (size_t)variable[i], e))
            return e->code;
    return PS_OK;
}

enum ps_code nn_program_sum(const struct nn_program *p, const struct nn_frame *f, const struct nn_hooks *hooks,
                            struct ps_error *e)
{
    const struct nn_op_class *class = f->op->class;
    class->give(f, p->sums);
    if (hooks->sum(hooks->arg, p->sums, class->sums(f->op), e))
        return e->code;
    class->take(f, p->sums);
    return PS_OK;
}

static enum ps_code program_run_op(const struct nn_program *p, const struct nn_instruction *i,
                                   const struct nn_hooks *hooks, struct ps_error *e)
{
    if (nn_hooks_sum(hooks, i->frame.op))
        return nn_program_sum(p, &i->frame, hooks, e);
    i->kernel->run(&i->frame);
    return PS_OK;
}

// times is NULL in all but the one call that measures: nothing is left of it in the other.
static inline __attribute__((always_inline)) enum ps_code
program_run_ops(struct nn_program *p, const void *const *column, const struct nn_step *step,
                const struct nn_hooks *hooks, struct nn_times *times, struct ps_error *e)
{
    const int *need = p->need, *ready = p->ready;
    enum ps_code code = PS_OK;
    program_take_columns(p, column);
    p->device->enter(p->context);
    uint64_t at = nn_times_start(times);
    for (int k = 0; k < p->tape.n_ops; k++) {
        struct nn_instruction *i = &p->instruction[k];
        if (hooks)
            code = nn_hooks_need(hooks, need, i->need, e);
        need += i->need;
        if (code)
            break;
        nn_times_lap(times, i->frame.op, NN_LAP_NEED, &at);
        i->frame.step = step;
        code = program_run_op(p, i, hooks, e);
        if (code)
            break;
        nn_times_lap(times, i->frame.op, k, &at);
        if (hooks)
            code = hooks_ready(hooks, ready, i->ready, e);
        ready += i->ready;
        if (code)
            break;
        nn_times_lap(times, i->frame.op, NN_LAP_READY, &at);
    }
    p->device->leave(p->context);
    return code;
}

enum ps_code nn_program_run(struct nn_program *p, const void *const *column, const struct nn_step *step,
                            const struct nn_hooks *hooks, struct ps_error *e)
{
    return p->device->memory ? nn_program_run_device(p, column, step, hooks, NULL, e)
                             : program_run_ops(p, column, step, hooks, NULL, e);
}

enum ps_code nn_program_time(struct nn_program *p, const void *const *column, const struct nn_step *step,
                             const struct nn_hooks *hooks, struct nn_times *times, struct ps_error *e)
{
    return p->device->memory ? nn_program_run_device(p, column, step, hooks, times, e)
                             : program_run_ops(p, column, step, hooks, times, e);
}

enum ps_code nn_program_idle(struct nn_program *p, const struct nn_hooks *hooks, struct ps_error *e)
{
    const int *need = p->need, *ready = p->ready;
    for (int k = 0; k < p->tape.n_ops; k++) {
        const struct nn_instruction *i = &p->instruction[k];
        const struct nn_op *op = i->frame.op;
        if (nn_hooks_need(hooks, need, i->need, e))
            return e->code;
        need += i->need;
        const size_t sums = nn_hooks_sum(hooks, op) ? op->class->sums(op) : 0;
        memset(p->sums, 0, sums * sizeof *p->sums);
        if (sums && hooks->sum(hooks->arg, p->sums, sums, e))
            return e->code;
        if (hooks_ready(hooks, ready, i->ready, e))
            return e->code;
        ready += i->ready;
    }
    return PS_OK;
}

// ---- what it is made of -------------------------------------------------------------------------------------------

const void *nn_program_tensor(const struct nn_program *p, int tensor)
{
    const int root = nn_program_root(p, tensor);
    return p->host ? p->host[root] : p->memory[root];
}

int nn_program_ops(const struct nn_program *p)
{
    return p->tape.n_ops;
}

const struct nn_op *nn_program_op(const struct nn_program *p, int k)
{
    return &p->tape.op[k];
}

const char *nn_program_kernel(const struct nn_program *p, int k)
{
    const struct nn_instruction *i = &p->instruction[k];
    if (i->kernel->info)
        return i->kernel->info(i->frame.plan);
    if (i->kernel != &nn_kernel_ref)
        return "own";
    return p->device->memory ? "reference, on the host" : "reference";
}

char *nn_program_info(const struct nn_program *p)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (int k = 0; k < p->tape.n_ops; k++)
        fprintf(f, "%s %s %s\n", p->tape.op[k].layer, p->tape.op[k].class->name, nn_program_kernel(p, k));
    fclose(f);
    return text;
}
