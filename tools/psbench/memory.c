// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/memory.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

// What one call lasts for at least, in bytes: looking at the clock costs as much as copying a page.
enum { LEAST_BYTES = 256 * 1024 };

void memory_variable_init(struct memory_variable *v, enum bench_rule rule, uint64_t n)
{
    *v = (struct memory_variable){.rule = ps_rule_find(bench_rule_name(rule)), .step = 1};
    ps_rule_defaults(v->rule, v->hyper);
    v->w = ps_alloc_aligned(n * sizeof *v->w);
    memset(v->w, 0, n * sizeof *v->w);
    for (int k = 0; k < ps_rule_slots(v->rule, v->hyper); k++) {
        v->slot[k] = ps_alloc_aligned(n * sizeof *v->w);
        for (uint64_t i = 0; i < n; i++)
            v->slot[k][i] = ps_rule_slot_init(v->rule, v->hyper, k);
    }
}

void memory_variable_apply(struct memory_variable *v, uint64_t first, const float *g, size_t n)
{
    struct ps_rule_args args = {.n = n,
                                .step = v->step,
                                .trainable = true,
                                .clip_factor = 1,
                                .g = g,
                                .w_in = v->w + first,
                                .w_out = v->w + first};
    for (int k = 0; k < ps_rule_slots(v->rule, v->hyper); k++)
        args.slot_in[k] = args.slot_out[k] = v->slot[k] + first;
    ps_rule_apply(v->rule, v->hyper, &args);
}

// The compiler cannot know that nobody reads the copy.
static void memory_copy(float *to, const float *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
}

enum ps_code memory_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e)
{
    const struct bench_case *c = arg;
    uint64_t n = c->size / sizeof(float), at_once = c->size < LEAST_BYTES ? LEAST_BYTES / c->size : 1;
    struct memory_variable v;
    float *g = ps_alloc_aligned(c->size);
    (void)rank;
    (void)e;
    for (uint64_t i = 0; i < n; i++)
        g[i] = 1e-6f;
    memory_variable_init(&v, c->rule, n);
    load_ready(m);
    uint64_t started = ps_now();
    do {
        for (uint64_t i = 0; i < at_once; i++)
            if (c->command == BENCH_MEMCPY)
                memory_copy(v.w, g, c->size);
            else
                memory_variable_apply(&v, 0, g, n);
    } while (load_count(m, &started, at_once));
    load_done(m);
    return PS_OK;
}
