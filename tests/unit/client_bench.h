// SPDX-License-Identifier: Apache-2.0
//
// A worker over a fake cluster, and the memory of its tensors: what the tests of libclient have in common.
#ifndef TESTS_CLIENT_BENCH_H
#define TESTS_CLIENT_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/wire.h"
#include "libclient/client.h"
#include "tests/unit/fake_ps.h"

enum {
    BLOCK = PS_BLOCK_BYTES / sizeof(float),
    BIG = 4 * FAKE_TASKS * BLOCK - 7,  // of the variable that is cut over all tasks: four blocks each, the last shorter
    SMALL = 10,
};

static const uint64_t big_shape[] = {BIG}, small_shape[] = {SMALL};
static const psc_variable variables[] = {
    {.name = "dense/kernel", .dtype = PSC_FLOAT32, .shape = big_shape, .rank = 1, .trainable = true},
    {.name = "dense/bias", .dtype = PSC_FLOAT32, .shape = small_shape, .rank = 1, .trainable = true},
    {.name = "output/bias", .dtype = PSC_FLOAT32, .shape = small_shape, .rank = 1, .trainable = true},
    {.name = "step", .dtype = PSC_FLOAT32, .rank = 0, .rule = "assign_add"},
};
enum { N_VARIABLES = sizeof variables / sizeof *variables };

// One worker over one fake, and the memory of its tensors.
struct bench {
    struct fake fake;
    psc_client *client;
    float *big, small[2][SMALL], scalar;
    psc_tensor tensors[N_VARIABLES];
};

struct outcome {
    atomic_int done;
    struct ps_error error;
    psc_result result;
};

static inline void on_done(void *arg, const struct ps_error *e)
{
    struct outcome *o = arg;
    o->error = *e;
    atomic_fetch_add(&o->done, 1);
}

static inline void on_result(void *arg, const psc_result *r)
{
    struct outcome *o = arg;
    o->result = *r;
    atomic_fetch_add(&o->done, 1);
}

// ---- the bench ----------------------------------------------------------------------------------------------------

static inline struct bench *bench_new(psc_transport transport)
{
    struct bench *b = calloc(1, sizeof *b);
    b->fake.unary = transport == PSC_UNARY;
    b->big = calloc(BIG, sizeof *b->big);
    float *data[] = {b->big, b->small[0], b->small[1], &b->scalar};
    uint64_t count[] = {BIG, SMALL, SMALL, 1};
    for (size_t i = 0; i < N_VARIABLES; i++)
        b->tensors[i] = (psc_tensor){variables[i].name, data[i], count[i], PSC_FLOAT32};
    return b;
}

static inline void bench_create(struct bench *b, psc_options options)
{
    static const char *const addresses[] = {"a:1", "b:2", "c:3"};
    psc_cluster *cluster;
    struct psc_world world = fake_world(&b->fake);
    assert_int_equal(psc_cluster_create(addresses, FAKE_TASKS, &cluster, NULL), PSC_OK);
    options.job = "test";
    assert_int_equal(psc__client_create(cluster, &options, &world, &b->client, NULL), PS_OK);
    psc_cluster_free(cluster);
}

static inline psc_options worker_options(const struct bench *b)
{
    return (psc_options){
        .workers = 2, .update = PSC_ASYNC, .transport = b->fake.unary ? PSC_UNARY : PSC_STREAM, .timeout_ms = 20000};
}

static inline struct ps_error bench_join(struct bench *b)
{
    struct outcome o = {0};
    psc__join(b->client, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 100));
    return o.error;
}

static inline struct ps_error bench_declare_as(struct bench *b, const psc_declaration *declaration)
{
    struct outcome o = {0};
    psc__declare(b->client, declaration, NULL, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 100));
    return o.error;
}

static inline struct ps_error bench_declare(struct bench *b)
{
    static const psc_declaration declaration = {.variables = variables,
                                                .n_variables = N_VARIABLES,
                                                .rule = "sgd",
                                                .placement = "round_robin",
                                                .partitioner = "max_bytes:2MiB"};
    return bench_declare_as(b, &declaration);
}

// Connected and joined.
static inline void bench_begin(struct bench *b, psc_options options)
{
    bench_create(b, options);
    assert_int_equal(bench_join(b).code, PS_OK);
}

static inline void bench_forget(struct bench *b)
{
    b->fake.n_arrivals = 0;
    b->fake.arrived = 0;
}

// Connected, joined, declared, and nothing of it in the list of arrivals.
static inline struct bench *bench_ready(psc_transport transport)
{
    struct bench *b = bench_new(transport);
    bench_begin(b, worker_options(b));
    assert_int_equal(bench_declare(b).code, PS_OK);
    bench_forget(b);
    return b;
}

static inline void bench_free(struct bench *b)
{
    if (b->client)
        psc__client_free(b->client);
    fake_free(&b->fake);
    free(b->big);
    free(b);
}

static inline psc_result finish(struct bench *b, struct outcome *o)
{
    assert_true(fake_run(&b->fake, &o->done, 200));
    assert_int_equal(atomic_load(&o->done), 1);
    return o->result;
}

static inline psc_result push(struct bench *b, size_t first, size_t n)
{
    struct outcome o = {0};
    psc_push(b->client, b->tensors + first, n, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    return finish(b, &o);
}

static inline psc_result pull(struct bench *b, size_t first, size_t n)
{
    struct outcome o = {0};
    psc_pull(b->client, b->tensors + first, n, 0, on_result, &o, NULL);
    return finish(b, &o);
}

static inline void fill(float *to, uint64_t n, float scale)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = scale * (float)(i % 1000);
}

// Another client in the world of b.
static inline psc_client *second_client(struct bench *b, psc_options options)
{
    psc_client *first = b->client;
    bench_create(b, options);
    psc_client *second = b->client;
    b->client = first;
    return second;
}

#endif
