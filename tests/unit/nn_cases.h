// SPDX-License-Identifier: Apache-2.0
//
// One operator at one shape as a program of its own: its inputs, its outputs, and the gradients that its class says.
#ifndef TEST_NN_CASES_H
#define TEST_NN_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "common/base/alloc.h"
#include "common/math/philox.h"
#include "workerd/nn/program.h"

struct op_case {
    const char *name;
    const struct nn_op_class *class;
    const void *attr;
    size_t attr_bytes;
    int n_in, n_out;
    struct nn_type in[NN_OP_IN];
    bool learns[NN_OP_IN];  // inputs whose gradient is wanted
    int mask;               // 1 + the first of those at the end that are masks, of zeros and ones; 0: none is
    int y;                  // the output whose gradient is given
};

#define ATTR(...) &(__VA_ARGS__), sizeof(__VA_ARGS__)
#define FLOATS(rank, ...) \
    {                     \
        NN_FLOAT, rank,   \
        {                 \
            __VA_ARGS__   \
        }                 \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))

// From op_open to op_close. Whoever runs it fills in[] and dy first.
struct op_run {
    const struct op_case *c;
    const struct nn_device *device;
    struct nn_context *context;
    struct nn_program *program;
    struct nn_step step;
    void *in[NN_OP_IN];
    nn_real *grad[NN_OP_IN];  // NULL: not wanted
    nn_real *dy;              // the gradient by out[c->y]; NULL: nothing learns
    struct nn_type type[NN_OP_OUT];
    int out[NN_OP_OUT];
    void *arena, *staging, *there;  // there: a device's own memory for all of in[] and grad[]; NULL: it has none
};

// Where a device with memory of its own has in[] and grad[].
static inline size_t op_padded(const struct nn_type *t)
{
    return (nn_type_bytes(t) + 255) & ~(size_t)255;
}

static inline void op_bind(struct op_run *r)
{
    const struct op_case *c = r->c;
    nn_real *value[NN_OP_IN] = {NULL}, *value_there[NN_OP_IN] = {NULL}, *grad_there[NN_OP_IN] = {NULL};
    char *at = r->there;
    for (int i = 0; i < c->n_in; i++) {
        value[i] = c->learns[i] ? r->in[i] : NULL;
        if (!r->device->memory || !c->learns[i])
            continue;
        value_there[i] = (nn_real *)(void *)at;
        grad_there[i] = (nn_real *)(void *)(at + op_padded(&c->in[i]));
        at += 2 * op_padded(&c->in[i]);
    }
    const struct nn_bound host = {.arena = r->arena, .value = value, .gradient = r->grad};
    const struct nn_bound there = {r->arena, value_there, grad_there, r->staging, value, r->grad};
    nn_program_bind(r->program, r->device->memory ? &there : &host);
}

static inline enum ps_code op_get_memory(struct op_run *r, struct ps_error *e)
{
    const struct op_case *c = r->c;
    size_t bytes = 64;
    for (int i = 0; i < c->n_in; i++)
        bytes += c->learns[i] ? 2 * op_padded(&c->in[i]) : 0;
    if (nn_memory_get(r->device, r->context, nn_program_arena(r->program) + 64, &r->arena, e))
        return e->code;
    if (!r->device->memory) {
        memset(r->arena, 0xff, nn_program_arena(r->program));  // NaNs
        return PS_OK;
    }
    if (nn_memory_get(r->device, r->context, bytes, &r->there, e))
        return e->code;
    return nn_memory_get_host(r->device, r->context, nn_program_staging(r->program) + 64, &r->staging, e);
}

// Puts the case on a tape; the forward outputs' tensors are kept.
static inline void op_record(struct op_run *r, struct nn_tape *t)
{
    const struct op_case *c = r->c;
    int in[NN_OP_IN];
    bool any = false;
    nn_tape_init(t);
    t->layer = c->name;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->learns[i] ? nn_tape_weight(t, i, &c->in[i], true) : nn_tape_input(t, i, &c->in[i]);
        any |= c->learns[i];
    }
    nn_tape_put(t, c->class, c->attr, c->attr_bytes, in, c->n_in, r->out, c->n_out);
    if (t->error.code)
        return;
    for (int k = 0; k < c->n_out; k++) {
        r->type[k] = t->tensor[r->out[k]].type;
        t->tensor[r->out[k]].kept = true;
    }
    if (!any)
        return;
    int dy = nn_tape_input(t, NN_OP_IN, &r->type[c->y]);
    r->dy = ps_alloc_aligned(nn_type_bytes(&r->type[c->y]));
    nn_tape_differentiate(t, &r->out[c->y], &dy, 1);
}

static inline void op_close(struct op_run *r)
{
    nn_program_free(r->program);
    nn_memory_free(r->device, r->context, r->arena);
    nn_memory_free(r->device, r->context, r->there);
    nn_memory_free_host(r->device, r->context, r->staging);
    r->device->close(r->context);
    for (int i = 0; i < r->c->n_in; i++) {
        free(r->in[i]);
        free(r->grad[i]);
    }
    free(r->dy);
}

static inline enum ps_code op_try_open(struct op_run *r, const struct op_case *c, const struct nn_device *device,
                                       int threads, struct ps_error *e)
{
    struct nn_tape tape;
    *r = (struct op_run){.c = c, .device = device, .step = {99, 11}};
    if (device->open(0, threads, &r->context, e))
        return e->code;
    op_record(r, &tape);
    if (nn_program_create(&tape, device, r->context, &r->program, e)) {
        device->close(r->context);
        return e->code;
    }
    for (int i = 0; i < c->n_in; i++) {
        r->in[i] = ps_alloc_aligned(nn_type_bytes(&c->in[i]));
        r->grad[i] = c->learns[i] ? ps_alloc_aligned(nn_type_bytes(&c->in[i])) : NULL;
    }
    if (op_get_memory(r, e)) {
        op_close(r);
        return e->code;
    }
    op_bind(r);
    return PS_OK;
}

static inline void op_open(struct op_run *r, const struct op_case *c, const struct nn_device *device, int threads)
{
    struct ps_error e = {0};
    if (op_try_open(r, c, device, threads, &e))
        fail_msg("%s: %s", c->name, e.text);
}

static inline void op_go(struct op_run *r)
{
    const void *column[NN_OP_IN + 1] = {NULL};
    for (int i = 0; i < r->c->n_in; i++)
        column[i] = r->in[i];
    column[NN_OP_IN] = r->dy;
    struct ps_error e = {0};
    if (nn_program_run(r->program, column, &r->step, NULL, &e))
        fail_msg("%s: %s", r->c->name, e.text);
}

static inline const nn_real *op_out(const struct op_run *r, int k)
{
    return nn_program_tensor(r->program, r->out[k]);
}

// Numbers in [-1, 1), others for every id; coarse: multiples of 1/16, whose sums of products are exact in a float, so
// that two devices see the same sign of everything, and some are equal.
static inline void fill_numbers(nn_real *v, size_t n, uint64_t id, bool coarse)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t draw[4];
        ps_philox(7, PS_RANDOM_INIT, id, i, draw);
        nn_real x = (nn_real)(2 * ps_uniform(draw[0]) - 1);
        v[i] = coarse ? (nn_real)floor(16 * (double)x) / 16 : x;
    }
}

// Labels: as many as the classes of the first input; examples: far and near ones; bytes: positions in windows.
static inline void op_fill(struct op_run *r, bool coarse)
{
    const struct op_case *c = r->c;
    for (int i = 0; i < c->n_in; i++) {
        size_t n = nn_type_count(&c->in[i]);
        for (size_t k = 0; k < n; k++) {
            if (c->in[i].dtype == NN_INT32)
                ((int32_t *)r->in[i])[k] = (int32_t)(k * 7 % (size_t)c->in[0].dim[c->in[0].rank - 1]);
            else if (c->in[i].dtype == NN_UINT64)
                ((uint64_t *)r->in[i])[k] = k % 2 ? k * 3 : (UINT64_C(1) << 40) + k;
        }
        if (c->in[i].dtype == NN_FLOAT)
            fill_numbers(r->in[i], n, (uint64_t)i, coarse);
        for (size_t k = 0; c->mask && i >= c->mask - 1 && k < n; k++)
            ((nn_real *)r->in[i])[k] = (k * 5 + (size_t)i) % 3 != 0;
    }
    if (r->dy)
        fill_numbers(r->dy, nn_type_count(&r->type[c->y]), 9, coarse);
}

// Of a device without memory of its own. w is read three times, once through a view: y = relu(w + w) + w. Its gradient
// is the sum of what each gives back; all of it lies in three pieces of memory, as many as are alive at once.
static inline void check_fan_out(const struct nn_device *device)
{
    const struct nn_type flat = FLOATS(1, 4), square = FLOATS(2, 2, 2);
    nn_real w[4] = {1, -2, 3, -4}, g[4], dy[4] = {1, 1, 10, 10};
    nn_real *weight[] = {w}, *gradient[] = {g};
    struct nn_tape t;
    struct nn_program *p;
    struct nn_context *context;
    struct ps_error e = {0};
    assert_int_equal(device->open(0, 1, &context, &e), PS_OK);
    int sum, y, again;
    nn_tape_init(&t);
    int v = nn_tape_weight(&t, 0, &flat, true), d = nn_tape_input(&t, 0, &flat);
    int seen = nn_tape_view(&t, v, &square);
    nn_tape_put(&t, &nn_op_add, NULL, 0, (int[]){seen, seen}, 2, &sum, 1);
    nn_tape_put(&t, &nn_op_relu, NULL, 0, &sum, 1, &y, 1);
    y = nn_tape_view(&t, y, &flat);
    nn_tape_put(&t, &nn_op_add, NULL, 0, (int[]){y, v}, 2, &again, 1);
    t.tensor[again].kept = true;
    nn_tape_differentiate(&t, &again, &d, 1);
    assert_int_equal(nn_program_create(&t, device, context, &p, &e), PS_OK);
    char *arena = ps_alloc_aligned(nn_program_arena(p) + 64);
    nn_program_bind(p, &(struct nn_bound){.arena = arena, .value = weight, .gradient = gradient});
    assert_int_equal(nn_program_run(p, (const void *const[]){dy}, &(struct nn_step){0}, NULL, &e), PS_OK);
    assert_memory_equal(((nn_real[]){3, -2, 9, -4}), nn_program_tensor(p, again), 4 * sizeof(nn_real));
    assert_memory_equal(((nn_real[]){3, 1, 30, 10}), g, sizeof g);
    assert_true(nn_program_arena(p) <= 3 * 64);
    nn_program_free(p);
    device->close(context);
    free(arena);
}

#endif
