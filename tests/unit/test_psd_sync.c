// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of rounds: who does it, what waits for it, what memory it holds, and that the bits are the same
// whatever the order, the threads and the tasks. And the threads themselves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <semaphore.h>

#include "tests/unit/psd_cluster.h"

enum { BLOCK = PS_BLOCK_BYTES / sizeof(float), LARGE = 5 * BLOCK - 77, MEMORY = 128 << 20 };

#define STALE PARAMSERVER__V1__OUTCOME__STALE
#define QUEUED PARAMSERVER__V1__OUTCOME__QUEUED
#define STAGED PARAMSERVER__V1__OUTCOME__STAGED

// ---- threads ------------------------------------------------------------------------------------------------------

enum { CALLS = 1000 };

struct calls {
    atomic_int of[CALLS];
};

static void count_call(void *arg, uint32_t i)
{
    atomic_fetch_add(&((struct calls *)arg)->of[i], 1);
}

static void assert_each_once(struct ps_workers *workers)
{
    static struct calls calls;
    memset(&calls, 0, sizeof calls);
    ps_workers_for(workers, CALLS, count_call, &calls);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(calls.of[i], 1);
}

static void test_loop(void **state)
{
    struct ps_workers *workers = ps_workers_create(3);
    (void)state;
    assert_non_null(workers);
    assert_each_once(NULL);
    for (int k = 0; k < 50; k++)
        assert_each_once(workers);
    ps_workers_stop(workers);
    assert_each_once(workers);
    ps_workers_free(workers);
}

struct job {
    struct ps_work work;
    atomic_int *at;
    int was;
};

static void do_job(struct ps_work *work)
{
    struct job *t = (struct job *)work;
    t->was = atomic_fetch_add(t->at, 1);
}

// Work is done in its order, and all of it before stop returns; from then on by who brings it.
static void test_work(void **state)
{
    static struct job jobs[100];
    atomic_int at = 0;
    struct ps_workers *workers = ps_workers_create(1);
    (void)state;
    for (int i = 0; i < 100; i++) {
        jobs[i] = (struct job){{do_job, NULL}, &at, -1};
        if (i == 98)
            ps_workers_stop(workers);
        ps_workers_run(i == 99 ? NULL : workers, &jobs[i].work);
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(jobs[i].was, i);
    ps_workers_free(workers);
}

// One thread, which does nothing until it is let go.
struct gate {
    struct ps_work work;
    sem_t open, passed;
    struct ps_workers *workers;
};

static void wait_at_gate(struct ps_work *work)
{
    struct gate *g = (struct gate *)work;
    sem_wait(&g->open);
    sem_post(&g->passed);
}

static void gate_close(struct gate *g)
{
    sem_init(&g->open, 0, 0);
    sem_init(&g->passed, 0, 0);
    g->workers = cluster_threads = ps_workers_create(1);
    g->work = (struct ps_work){wait_at_gate, NULL};
    ps_workers_run(g->workers, &g->work);
}

// All work that has been brought is done when it returns.
static void gate_open(struct gate *g)
{
    sem_post(&g->open);
    sem_wait(&g->passed);
    ps_workers_stop(g->workers);
}

static void gate_free(struct gate *g)
{
    ps_workers_free(g->workers);
    cluster_threads = NULL;
    sem_destroy(&g->open);
    sem_destroy(&g->passed);
}

// ---- memory -------------------------------------------------------------------------------------------------------

static size_t held(struct cluster *c)
{
    return c->task[0].core->pool.reserved;
}

// A round holds one sum, and the gradients that came before it was their turn; nothing once it is closed.
static void test_out_of_order_is_held(void **state)
{
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}};
    static const size_t gradients[][4] = {{1, 1, 1, 0}, {1, 2, 3, 0}, {1, 1, 2, 0}};
    const struct variable w = {"w", 3 * BLOCK, 1};
    const size_t gradient = (size_t)3 * PS_BLOCK_BYTES;
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct cluster c;
        cluster_open(&c, 1, 4, MEMORY, &w, 1);
        job_hyper(&c, "learning_rate", 1);
        cluster_start(&c);
        size_t used = psd_pool_used(&c.task[0].core->pool);
        assert_true(used > 5 * gradient);  // the values, and the worst of the round
        for (int i = 0; i < 4; i++) {
            assert_int_equal(push(&c, orders[k][i], 0, 1, (float)(1 << orders[k][i])).result.outcome, QUEUED);
            assert_int_equal(held(&c), gradients[k][i] * gradient);
        }
        assert_true(read_first(&c, 0) == -15.0f / 4);
        cluster_close(&c);
    }
}

// One that has left, and will not contribute, is waited for no longer; one that is not whole is held until it is.
static void test_departed_is_skipped(void **state)
{
    const struct variable w = {"w", 2 * BLOCK, 1};
    struct cluster c;
    float *g = ps_alloc(BLOCK * sizeof *g);
    (void)state;
    cluster_open(&c, 1, 3, MEMORY, &w, 1);
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    assert_int_equal(push_some(&c, 0, 0, 0, BLOCK, 1, 1, g).result.outcome, STAGED);
    assert_int_equal(push(&c, 1, 0, 1, 3).result.outcome, QUEUED);
    assert_int_equal(held(&c), 3 * PS_BLOCK_BYTES);
    leave(&c, 0);
    assert_int_equal(push(&c, 2, 0, 1, 5).result.outcome, QUEUED);
    assert_true(read_first(&c, 0) == -4);
    assert_int_equal(held(&c), 0);
    free(g);
    cluster_close(&c);
}

// Blocks of two operations are no gradient: of the second nothing counts, not even where it raced past the check.
static void test_two_operations(void **state)
{
    const struct variable w = {"w", 2 * BLOCK, 1};
    struct cluster c;
    float *g = ps_alloc(BLOCK * sizeof *g);
    struct ps_slices payload = PS_SLICES_EMPTY;
    (void)state;
    cluster_open(&c, 1, 2, MEMORY, &w, 1);
    cluster_start(&c);
    struct psd_round *round = c.task[0].core->table.newest->partitions[0].round;
    assert_int_equal(push_some(&c, 0, 0, 0, BLOCK, 1, 1, g).result.outcome, STAGED);
    c.part_of[0] = 0;
    assert_int_equal(push_some(&c, 0, 0, BLOCK, BLOCK, 1, 1, g).code, PS_ALREADY_EXISTS);
    assert_int_equal(round->contributions[0].blocks, 1);
    ps_slices_add(&payload, ps_slice_copy(g, BLOCK * sizeof *g));
    struct psd_page *page = psd_round_copy(round, 1, &payload, 0);
    const struct psd_request_id another[] = {{round->contributions[0].client, c.sequence[0], 1},
                                             {round->contributions[0].client + 1, c.sequence[0] - 1, 1}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            psd_round_add(round, *round->job_run,
                          &(struct psd_gradient){.rank = 0, .block = 1, .number = 1, .examples = 1, .id = another[i]},
                          &page),
            PARAMSERVER__V1__OUTCOME__DUPLICATE);
    assert_int_equal(round->contributions[0].blocks, 1);
    psd_page_unref(page);
    ps_slices_clear(&payload);
    free(g);
    cluster_close(&c);
}

// Two lists of members reach a round out of order: the newer one stays.
static void test_late_view(void **state)
{
    const struct variable w = {"w", 8, 1};
    struct cluster c;
    struct psd_call *ready = NULL;
    bool all[] = {true, true, true}, some[] = {true, false, true};
    (void)state;
    cluster_open(&c, 1, 3, MEMORY, &w, 1);
    cluster_start(&c);
    struct psd_round *round = c.task[0].core->table.newest->partitions[0].round;
    const uint64_t epoch = round->epoch + 10;
    struct psd_view late = {.run = *round->job_run, .epoch = epoch, .n = 3, .takes_part = all};
    struct psd_view newer = {.run = late.run, .epoch = epoch + 1, .n = 3, .takes_part = some};
    psd_round_set_members(round, &newer, &ready);
    psd_round_set_members(round, &late, &ready);
    assert_int_equal(round->members, 2);
    assert_false(round->member[1]);
    late.run--;  // of a run that is over, whatever its epoch
    late.epoch = epoch + 2;
    psd_round_set_members(round, &late, &ready);
    assert_int_equal(round->members, 2);
    assert_int_equal(round->epoch, epoch + 1);
    assert_null(ready);
    cluster_close(&c);
}

// ---- the same bits ------------------------------------------------------------------------------------------------

static void fill_gradient(float *g, uint32_t rank, uint32_t partition, uint64_t round)
{
    uint64_t seed = rank * 1000 + partition * 100 + round;
    for (uint64_t i = 0; i < LARGE; i++)
        g[i] = i % TEST_PART ? g[i - 1] : ((float)(draw(&seed) >> 40) / (1 << 20) - 8) * (float)(1 << draw(&seed) % 12);
}

static bool is_closed(struct cluster *c, uint64_t number)
{
    bool closed = true;
    for (uint32_t i = 0; i < c->n_partitions; i++) {
        struct psd_round *round = c->task[c->p[i].task].core->table.newest->partitions[i].round;
        pthread_mutex_lock(&round->lock);
        closed &= round->closed >= number;
        pthread_mutex_unlock(&round->lock);
    }
    return closed;
}

enum { PARTITIONS = 3, BITS_WORKERS = 4 };

static void run_rounds(uint32_t tasks, uint32_t threads, const uint32_t *order, const char *rule, bool clipped,
                       float *values)
{
    const struct variable w = {"w", (uint64_t)PARTITIONS * LARGE, PARTITIONS};
    struct cluster c;
    float *g = ps_alloc(LARGE * sizeof *g);
    cluster_threads = threads ? ps_workers_create(threads) : NULL;
    cluster_open(&c, tasks, BITS_WORKERS, MEMORY, &w, 1);
    c.declare.rule = (char *)rule;
    if (clipped)
        job_hyper(&c, "global_clipnorm", 0.5);
    cluster_start(&c);
    for (uint64_t round = 1; round <= 2; round++) {
        for (uint32_t k = 0; k < BITS_WORKERS * PARTITIONS; k++) {
            uint32_t rank = order[k / PARTITIONS], partition = (k + rank) % PARTITIONS;
            fill_gradient(g, rank, partition, round);
            struct pushed p = push_values(&c, rank, partition, round, 3 + 2 * rank, g);
            if (p.code)
                fail_msg("push: %s", p.text);
        }
        while (!is_closed(&c, round)) {
            deliver_all(&c);
            tick(&c);
            sched_yield();
        }
    }
    for (uint32_t i = 0; i < PARTITIONS; i++)
        read_values(&c, i, LARGE, values + (size_t)i * LARGE);
    free(g);
    ps_workers_stop(cluster_threads);
    cluster_close(&c);
    ps_workers_free(cluster_threads);
    cluster_threads = NULL;
}

// Whatever the order of arrival, and the number of tasks and of threads.
static void test_same_bits(void **state)
{
    enum { STEP = TEST_PART == 1 ? 1 : 4 };
    static const uint32_t orders[][BITS_WORKERS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    static const uint32_t threads[] = {0, 1, 3};
    const size_t bytes = (size_t)PARTITIONS * LARGE * sizeof(float);
    float *first = ps_alloc(bytes), *values = ps_alloc(bytes);
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++)
        for (uint32_t k = 0; k < 9; k += STEP) {
            run_rounds(1 + k / 3, threads[k % 3], orders[(k + k / 3) % 3], clipped ? "sgd" : "adam", clipped,
                       k ? values : first);
            if (k && memcmp(first, values, bytes) != 0)
                fail_msg("other bits with %u tasks and %u threads", 1 + k / 3, threads[k % 3]);
        }
    free(first);
    free(values);
}

// ---- nobody waits for the arithmetic ------------------------------------------------------------------------------

static void pull_later(struct cluster *c, struct answer *a, uint32_t partition, uint64_t round)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = c->callers[0];
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = round;
    t.variable = c->v[c->p[partition].variable].name;
    t.first = c->p[partition].first;
    t.count = 1;
    ask_later(c->task[c->p[partition].task].core, a, M(PULL), &r.base, NULL, UINT64_MAX);
}

static void open_two(struct cluster *c)
{
    static const struct variable v[] = {{"large", LARGE, 1}, {"small", 8, 1}};
    cluster_open(c, 1, 2, MEMORY, v, 2);
    job_hyper(c, "learning_rate", 1);
    cluster_start(c);
}

// The thread that would compute a large round is busy elsewhere. Pushes to that round and to others, pulls, and rounds
// of little all go on; who waits for the round is answered when it is computed.
static void test_nobody_waits(void **state)
{
    struct cluster c;
    struct gate gate;
    struct answer large, small;
    (void)state;
    gate_close(&gate);
    open_two(&c);
    assert_int_equal(push(&c, 1, 0, 1, 4).result.outcome, QUEUED);
    assert_int_equal(push(&c, 0, 0, 1, 2).result.outcome, QUEUED);
    pull_later(&c, &large, 0, 1);
    assert_false(large.answered);
    assert_true(read_first(&c, 0) == 0);
    assert_int_equal(push(&c, 0, 0, 1, 2).result.outcome, STALE);  // it is complete
    assert_int_equal(push(&c, 0, 0, 2, 2).code, PS_UNAVAILABLE);   // and not applied
    assert_int_equal(push(&c, 0, 0, 3, 2).code, PS_FAILED_PRECONDITION);
    tick(&c);
    for (uint64_t round = 1; round <= 3; round++)
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(push(&c, rank, 1, round, 1).result.outcome, QUEUED);
    pull_later(&c, &small, 1, 3);
    assert_true(small.answered && small.code == PS_OK);
    assert_true(read_first(&c, 1) == -3);
    assert_false(large.answered);
    gate_open(&gate);
    assert_true(large.answered && large.code == PS_OK);
    assert_true(read_first(&c, 0) == -3);
    ps_slices_clear(&large.body);
    ps_slices_clear(&small.body);
    cluster_close(&c);
    gate_free(&gate);
}

// ---- a new run ----------------------------------------------------------------------------------------------------

// A round that is to be computed when its run ends changes nothing, and nothing of it is in the next run's first round.
// Until it has been forgotten pushes are told to come again.
static void test_reset_while_computing(void **state)
{
    struct cluster c;
    struct gate gate;
    struct answer waiting;
    struct psd_call *ready = NULL;
    (void)state;
    gate_close(&gate);
    open_two(&c);
    struct psd_job *job = c.task[0].core->table.newest;
    assert_int_equal(push(&c, 1, 0, 1, 4).code, PS_OK);
    assert_int_equal(push(&c, 0, 0, 1, 2).code, PS_OK);
    pull_later(&c, &waiting, 0, 1);
    psd_sync_component.begin_run(job, &ready);
    assert_ptr_equal(ready, &waiting.call);
    assert_null(ready->next);
    assert_int_equal(push(&c, 1, 0, 1, 4).code, PS_UNAVAILABLE);
    gate_open(&gate);
    assert_int_equal(held(&c), 0);
    assert_true(read_first(&c, 0) == 0);
    assert_int_equal(push(&c, 1, 0, 1, 8).result.outcome, QUEUED);
    assert_true(read_first(&c, 0) == 0);
    assert_int_equal(push(&c, 0, 0, 1, 6).result.outcome, QUEUED);
    assert_true(read_first(&c, 0) == -7);
    psd_run_ready(c.task[0].core, ready);
    assert_true(waiting.answered);
    ps_slices_clear(&waiting.body);
    cluster_close(&c);
    gate_free(&gate);
}

static enum psd_round_state state_of(struct psd_round *round)
{
    pthread_mutex_lock(&round->lock);
    enum psd_round_state state = round->state;
    pthread_mutex_unlock(&round->lock);
    return state;
}

static void *begin_next_run(void *arg)
{
    struct psd_call *ready = NULL;
    psd_sync_component.begin_run(arg, &ready);
    return ready;
}

// The thread that applies a round waits for a block when the run ends: the round changes nothing, and is not closed in
// the next run.
static void test_reset_while_applying(void **state)
{
    struct cluster c;
    struct gate gate;
    pthread_t thread;
    void *ready;
    (void)state;
    gate_close(&gate);
    open_two(&c);
    struct psd_round *round = c.task[0].core->table.newest->partitions[0].round;
    struct psd_block *b = &round->partition->blocks[0];
    const uint64_t run = atomic_load(&round->run);
    assert_int_equal(push(&c, 1, 0, 1, 4).code, PS_OK);
    assert_int_equal(push(&c, 0, 0, 1, 2).code, PS_OK);
    pthread_mutex_lock(&b->lock);
    sem_post(&gate.open);
    while (state_of(round) != PSD_ROUND_APPLYING)
        sched_yield();
    assert_int_equal(pthread_create(&thread, NULL, begin_next_run, c.task[0].core->table.newest), 0);
    while (atomic_load(&round->run) == run)
        sched_yield();
    pthread_mutex_unlock(&b->lock);
    pthread_join(thread, &ready);
    assert_null(ready);
    gate_open(&gate);
    assert_int_equal(held(&c), 0);
    assert_int_equal(psd_round_open(round), 1);
    assert_true(read_first(&c, 0) == 0);
    assert_int_equal(push(&c, 1, 0, 1, 8).result.outcome, QUEUED);
    assert_int_equal(push(&c, 0, 0, 1, 6).result.outcome, QUEUED);
    assert_true(read_first(&c, 0) == -7);
    cluster_close(&c);
    gate_free(&gate);
}

// A round that has lacked memory is applied again: blocks that it has changed are not changed twice.
static void test_applied_where_it_was_not(void **state)
{
    const struct variable w = {"w", 8, 1};
    struct cluster c;
    (void)state;
    cluster_open(&c, 1, 2, MEMORY, &w, 1);
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    struct psd_job *job = c.task[0].core->table.newest;
    struct psd_round *round = job->partitions[0].round;
    assert_int_equal(push(&c, 0, 0, 1, 2).result.outcome, QUEUED);
    round->factor = 1;
    for (int i = 0; i < 2; i++) {
        assert_true(psd_round_apply(job, round, atomic_load(&round->run), NULL));
        assert_true(read_first(&c, 0) == -2);
    }
    cluster_close(&c);
}

// Whoever waits for a round is made ready when its run is over.
static void test_waiters_of_an_old_run(void **state)
{
    struct cluster c;
    struct answer waiting;
    struct psd_call *ready = NULL;
    (void)state;
    open_two(&c);
    pull_later(&c, &waiting, 1, 1);
    assert_false(waiting.answered);
    psd_sync_component.begin_run(c.task[0].core->table.newest, &ready);
    assert_ptr_equal(ready, &waiting.call);
    psd_run_ready(c.task[0].core, ready);
    cluster_close(&c);
    assert_true(waiting.answered);
    ps_slices_clear(&waiting.body);
}

// ---- one word for a gradient --------------------------------------------------------------------------------------

// With a backup worker: the round completes between two blocks of a gradient. No part of it was said to count.
static void test_cut_off_by_completion(void **state)
{
    const struct variable w = {"w", 2 * BLOCK, 1};
    struct cluster c;
    float *g = ps_alloc(BLOCK * sizeof *g);
    (void)state;
    cluster_open(&c, 1, 3, MEMORY, &w, 1);
    c.declare.replicas_to_aggregate = 2;
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    assert_int_equal(push_some(&c, 1, 0, 0, BLOCK, 1, 1, g).result.outcome, STAGED);
    assert_int_equal(push(&c, 0, 0, 1, 1).result.outcome, QUEUED);
    assert_int_equal(push(&c, 2, 0, 1, 3).result.outcome, QUEUED);
    assert_int_equal(push_some(&c, 1, 0, BLOCK, BLOCK, 1, 1, g).result.outcome, STALE);
    assert_true(read_first(&c, 0) == -2);
    assert_int_equal(push_some(&c, 1, 0, BLOCK, BLOCK, 2, 1, g).result.outcome, STAGED);
    assert_int_equal(push_some(&c, 1, 0, 0, BLOCK, 2, 1, g).result.outcome, QUEUED);
    free(g);
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_out_of_order_is_held),
        cmocka_unit_test(test_departed_is_skipped),
        cmocka_unit_test(test_two_operations),
        cmocka_unit_test(test_late_view),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_nobody_waits),
        cmocka_unit_test(test_reset_while_computing),
        cmocka_unit_test(test_reset_while_applying),
        cmocka_unit_test(test_applied_where_it_was_not),
        cmocka_unit_test(test_waiters_of_an_old_run),
        cmocka_unit_test(test_cut_off_by_completion),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
