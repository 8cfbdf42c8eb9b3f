// SPDX-License-Identifier: Apache-2.0
//
// Clusters of 3 psd and 4 workers on simulated time and network: nothing is lost, nothing applied twice, rounds close
// by their members alone, and a seed replays bit for bit.
//
// SIM_SEEDS (default 200) says how many seeds: of these large variables every tenth is run; test_chaos runs them all.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/math/philox.h"
#include "tests/sim/worker.h"

enum { PS = 3, WORKERS = 4, STEPS = 6 };
#define LIMIT (600 * PS_SECOND)

// "big" has two blocks and, with fixed:2, two partitions of unequal size.
#define BIG 140001
static const uint64_t big_shape[] = {BIG}, small_shape[] = {5, 7}, slots_shape[] = {WORKERS * STEPS};
static const psc_variable variables[] = {
    {"big", PSC_FLOAT32, big_shape, 1, true},
    {"small", PSC_FLOAT32, small_shape, 2, true},
    {"slots", PSC_FLOAT32, slots_shape, 1, true},
};
static const psc_hyper learning_rate[] = {{"learning_rate", 0.1}};

static const struct sim_faults calm = {.delay = 2 * PS_MS};
static const struct sim_faults rough = {.cut = 0.15, .repeat = 0.5, .delay = 5 * PS_MS};

struct cluster {
    struct sim *sim;
    struct sim_job job;
    struct sim_worker workers[WORKERS];
};

static bool all_done(void *arg)
{
    struct cluster *c = arg;
    for (uint32_t i = 0; i < c->job.workers; i++)
        if (!c->workers[i].done)
            return false;
    return true;
}

static void cluster_start(struct cluster *c, uint64_t seed, uint32_t ps, const struct sim_faults *faults)
{
    c->sim = sim_create(seed, ps, faults, 64 << 20);
    for (uint32_t i = 0; i < c->job.workers; i++)
        sim_worker_start(&c->workers[i], c->sim, &c->job, i);
}

static void cluster_run(struct cluster *c)
{
    assert_true(sim_run(c->sim, all_done, c, sim_now(c->sim) + LIMIT));
}

static void cluster_end(struct cluster *c)
{
    for (uint32_t i = 0; i < c->job.workers; i++)
        sim_worker_free(&c->workers[i]);
    sim_destroy(c->sim);
}

static void assert_all_well(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->job.workers; i++)
        if (c->workers[i].error.code != PS_OK)
            fail_msg("worker %" PRIu32 ": %s", i, c->workers[i].error.text);
}

static uint64_t seeds(void)
{
    const char *n = getenv("SIM_SEEDS");
    return n ? strtoull(n, NULL, 10) : 200;
}

// ---- gradients ----------------------------------------------------------------------------------------------------

// Every push adds 1 to every element of big and small, and to a slot of its own: the sums say what was applied.
static void ones(uint32_t rank, uint64_t step, size_t v, float *g, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        g[i] = v < 2 || i == rank * STEPS + step ? 1.0f : 0.0f;
}

// Numbers whose sum depends on the order of summation.
static void noise(uint32_t rank, uint64_t step, size_t v, float *g, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t w[4];
        if (i % 4 == 0)
            ps_philox(rank, PS_RANDOM_DELAY, step << 8 | v, i / 4, w);
        g[i] = ps_uniform(w[i % 4]) - 0.5f;
    }
}

static struct sim_job job_of(psc_update update, const char *rule, const char *partitioner,
                             void (*gradient)(uint32_t, uint64_t, size_t, float *, uint64_t))
{
    return (struct sim_job){
        .name = "job",
        .update = update,
        .workers = WORKERS,
        .min_workers = 1,
        .steps = STEPS,
        .gradient = gradient,
        .declaration = {.variables = variables,
                        .n_variables = 3,
                        .rule = rule,
                        .hypers = learning_rate,
                        .n_hypers = strcmp(rule, "sgd") == 0,
                        .placement = "greedy",
                        .partitioner = partitioner},
    };
}

static void assert_every_element(const psc_tensor *t, float value)
{
    const float *w = t->data;
    for (uint64_t i = 0; i < t->count; i++)
        if (w[i] != value)
            fail_msg("%s[%" PRIu64 "] is %g, expected %g", t->name, i, (double)w[i], (double)value);
}

// What the chief reads after everyone has finished. Its last pull ran before others' last pushes (async), so it asks
// again, as an observer of its own.
struct reader {
    bool done;
    psc_result result;
};

static void on_read(void *arg, const psc_result *r)
{
    struct reader *reader = arg;
    reader->result = *r;
    reader->done = true;
}

static void on_attached(void *arg, const struct ps_error *e)
{
    struct reader *reader = arg;
    reader->result.error.code = (psc_code)e->code;
    reader->done = true;
}

static bool is_read(void *arg)
{
    return ((struct reader *)arg)->done;
}

static void read_back(struct cluster *c, psc_tensor *tensors, size_t n)
{
    const char *addresses[PS] = {"a:1", "b:1", "c:1"};
    struct psc_world world = sim_world(c->sim);
    struct psc_client *observer;
    struct reader reader = {0};
    psc_options options = {.job = "job", .rank = -1, .timeout_ms = 300000};
    psc_cluster *cluster;
    assert_int_equal(psc_cluster_create(addresses, sim_tasks(c->sim), &cluster, NULL), PSC_OK);
    assert_int_equal(psc__client_create(cluster, &options, &world, &observer, NULL), PS_OK);
    psc_cluster_free(cluster);
    psc__attach(observer, on_attached, &reader);
    assert_true(sim_run(c->sim, is_read, &reader, sim_now(c->sim) + LIMIT));
    assert_int_equal(reader.result.error.code, PSC_OK);
    reader.done = false;
    psc_get(observer, tensors, n, on_read, &reader, NULL);
    assert_true(sim_run(c->sim, is_read, &reader, sim_now(c->sim) + LIMIT));
    if (reader.result.error.code != PSC_OK)
        fail_msg("get: %s", reader.result.error.text);
    psc__client_free(observer);
}

// ---- tests --------------------------------------------------------------------------------------------------------

static void run_oracle(uint64_t seed, const char *partitioner)
{
    struct cluster c = {.job = job_of(PSC_ASYNC, "assign_add", partitioner, ones)};
    cluster_start(&c, seed, PS, &rough);
    cluster_run(&c);
    assert_all_well(&c);
    read_back(&c, c.workers[0].weights, 3);
    assert_every_element(&c.workers[0].weights[0], WORKERS * STEPS);
    assert_every_element(&c.workers[0].weights[1], WORKERS * STEPS);
    assert_every_element(&c.workers[0].weights[2], 1);
    cluster_end(&c);
}

// No push is lost and none applied twice, whatever is cut, repeated and late.
static void test_exactly_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < seeds() / 10; seed++)
        run_oracle(seed, seed % 2 ? "none" : "fixed:2");
}

static void run_sync(uint64_t seed, uint32_t ps, const struct sim_faults *faults, float *out)
{
    struct cluster c = {.job = job_of(PSC_SYNC, "sgd", "fixed:2", noise)};
    cluster_start(&c, seed, ps, faults);
    cluster_run(&c);
    assert_all_well(&c);
    for (uint32_t i = 1; i < WORKERS; i++)
        for (size_t v = 0; v < 3; v++)
            assert_memory_equal(c.workers[0].weights[v].data, c.workers[i].weights[v].data,
                                c.workers[0].weights[v].count * sizeof(float));
    memcpy(out, c.workers[0].weights[0].data, BIG * sizeof(float));
    memcpy(out + BIG, c.workers[0].weights[1].data, 35 * sizeof(float));
    cluster_end(&c);
}

// The same bits whatever the timing, the faults and the number of ps tasks; and they are the rule's.
static void test_sync_bits(void **state)
{
    static float first[BIG + 35], other[BIG + 35], expected[35];
    (void)state;
    run_sync(1, PS, &calm, first);
    for (uint64_t seed = 2; seed < 2 + seeds() / 10; seed++) {
        run_sync(seed, 1 + seed % PS, &rough, other);
        assert_memory_equal(first, other, sizeof first);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        float sum[35] = {0};
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            float g[35];
            noise(rank, step, 1, g, 35);
            for (int i = 0; i < 35; i++)
                sum[i] += g[i];
        }
        for (int i = 0; i < 35; i++)
            expected[i] -= 0.1f * (sum[i] / WORKERS);
    }
    assert_memory_equal(first + BIG, expected, sizeof expected);
}

static uint64_t run_digest(uint64_t seed)
{
    struct cluster c = {.job = job_of(PSC_ASYNC, "assign_add", "fixed:2", ones)};
    cluster_start(&c, seed, PS, &rough);
    cluster_run(&c);
    uint64_t digest = sim_digest(c.sim);
    cluster_end(&c);
    return digest;
}

static void test_replay(void **state)
{
    (void)state;
    assert_true(run_digest(7) == run_digest(7));
    assert_true(run_digest(7) != run_digest(8));
}

static bool die_at_step_3(struct sim_worker *w)
{
    return w->step < 3;
}

// A dead worker is left out within seconds, and the others finish.
static void test_death(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < seeds() / 10; seed++) {
        struct cluster c = {.job = job_of(PSC_SYNC, "sgd", "fixed:2", noise)};
        c.workers[2].before_push = die_at_step_3;
        cluster_start(&c, seed, PS, &calm);
        uint64_t began = sim_now(c.sim);
        cluster_run(&c);
        assert_string_equal(c.workers[2].error.text, "killed");
        for (uint32_t i = 0; i < WORKERS; i++)
            if (i != 2 && c.workers[i].error.code != PS_OK)
                fail_msg("worker %" PRIu32 ": %s", i, c.workers[i].error.text);
        assert_true(sim_now(c.sim) - began < 5 * PS_SECOND);
        cluster_end(&c);
    }
}

// With fewer than min_workers the job ends, and everyone is told why.
static void test_too_few(void **state)
{
    struct cluster c = {.job = job_of(PSC_SYNC, "sgd", "none", noise)};
    (void)state;
    c.job.min_workers = WORKERS;
    c.workers[1].before_push = die_at_step_3;
    cluster_start(&c, 3, PS, &calm);
    cluster_run(&c);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (i != 1) {
            assert_int_equal(c.workers[i].error.code, PS_ABORTED);
            assert_non_null(strstr(c.workers[i].error.text, "worker 1"));
        }
    cluster_end(&c);
}

static bool push_twice(struct sim_worker *w)
{
    static float g[35];
    psc_tensor t = {"small", g, 35, PSC_FLOAT32};
    for (int i = 0; i < 35; i++)
        g[i] = 1000;
    // A second gradient for the round, ahead of the real one, which is then refused: whichever is first counts, once.
    psc_push(w->client, &t, 1, &(psc_push_options){.round = w->step + 1, .examples = 1}, NULL, NULL, NULL);
    return true;
}

// One worker that sends two gradients for a round does not close it: the first counts, the second is refused, and the
// others' are waited for.
static void test_two_gradients(void **state)
{
    struct cluster c = {.job = job_of(PSC_SYNC, "sgd", "none", noise)};
    float sum[35] = {0}, g[35];
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        noise(rank, 0, 1, g, 35);
        for (int k = 0; k < 35; k++)
            sum[k] += g[k];
    }
    for (int k = 0; k < 35; k++)
        sum[k] += 1000;
    c.job.min_workers = WORKERS;
    c.workers[3].before_push = push_twice;
    cluster_start(&c, 14, PS, &calm);  // all are in round 1 before they hear that the job has ended
    cluster_run(&c);
    assert_int_equal(c.workers[3].error.code, PS_ALREADY_EXISTS);
    assert_non_null(strstr(c.workers[3].error.text, "is there, some of it or all"));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(c.workers[i].step, 2);  // in round 2, which the third worker's failure ends
        for (int k = 0; k < 35; k++)
            assert_true(((float *)c.workers[i].weights[1].data)[k] == -0.1f * (sum[k] / WORKERS));
    }
    cluster_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactly_once), cmocka_unit_test(test_sync_bits), cmocka_unit_test(test_replay),
        cmocka_unit_test(test_death),        cmocka_unit_test(test_too_few),   cmocka_unit_test(test_two_gradients),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
