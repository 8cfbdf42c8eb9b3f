// SPDX-License-Identifier: Apache-2.0
//
// Sync rounds and hyperparameters on one task and on several: which gradients close a round, with which hyperparameters
// it is applied, and that what is changed by hand changes everywhere at once, whatever becomes of the messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>

#include "psd/job/declaration.h"
#include "psd/service/waits.h"
#include "tests/unit/psd_cluster.h"

enum { MEMORY = 64 << 20, BLOCK = PS_BLOCK_BYTES / sizeof(float) };

#define STALE PARAMSERVER__V1__OUTCOME__STALE
#define QUEUED PARAMSERVER__V1__OUTCOME__QUEUED

static void open_sync(struct cluster *c, uint32_t tasks, uint32_t workers, const struct variable *v, uint32_t n)
{
    cluster_open(c, tasks, workers, MEMORY, v, n);
    cluster_start(c);
}

// ---- who closes a round -------------------------------------------------------------------------------------------

static void assert_queued(struct pushed p, uint64_t round)
{
    if (p.code)
        fail_msg("push: %s", p.text);
    assert_int_equal(p.result.outcome, QUEUED);
    assert_int_equal(p.result.round, round);
}

// A part of a gradient is in; what becomes of it is not known yet.
static void assert_partial(struct pushed p)
{
    if (p.code)
        fail_msg("push: %s", p.text);
    assert_int_equal(p.result.outcome, PARAMSERVER__V1__OUTCOME__STAGED);
}

static void assert_stale(struct pushed p, uint64_t open)
{
    if (p.code)
        fail_msg("push: %s", p.text);
    assert_int_equal(p.result.outcome, STALE);
    assert_int_equal(p.result.round, open);
}

static void assert_counted(struct cluster *c, uint32_t task, const uint64_t *some, const uint64_t *all)
{
    uint64_t counted[8], counted_in_all[8];
    struct psd_job *job = psd_job_find(&c->task[task].core->table, "job");
    psd_rounds_counted(job, counted, counted_in_all);
    psd_job_unref(job);
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        assert_int_equal(counted[rank], some[rank]);
        assert_int_equal(counted_in_all[rank], all[rank]);
    }
}

static void open_backup(struct cluster *c, uint64_t count, uint32_t partitions)
{
    const struct variable w = {"w", count, partitions};
    cluster_open(c, 1, 3, MEMORY, &w, 1);
    c->declare.replicas_to_aggregate = 2;
    job_hyper(c, "learning_rate", 1);
    cluster_start(c);
}

// The first two of three different workers close a round; the third is late.
static void test_first_of_several(void **state)
{
    struct cluster c;
    (void)state;
    open_backup(&c, 20, 2);
    assert_queued(push(&c, 2, 0, 1, 8), 1);
    assert_true(read_first(&c, 0) == 0);
    assert_int_equal(push(&c, 2, 0, 1, 8).code, PS_ALREADY_EXISTS);  // twice the same is no second worker
    assert_true(read_first(&c, 0) == 0);
    assert_queued(push(&c, 0, 0, 1, 2), 1);
    assert_true(read_first(&c, 0) == -5);
    assert_stale(push(&c, 1, 0, 1, 100), 2);
    assert_true(read_first(&c, 0) == -5);
    assert_counted(&c, 0, (uint64_t[]){1, 0, 1}, (uint64_t[]){0, 0, 0});
    assert_queued(push(&c, 1, 1, 1, 4), 1);
    assert_queued(push(&c, 0, 1, 1, 4), 1);
    assert_counted(&c, 0, (uint64_t[]){1, 1, 1}, (uint64_t[]){1, 0, 0});
    assert_queued(push(&c, 1, 0, 2, 1), 2);
    assert_queued(push(&c, 2, 0, 2, 3), 2);
    assert_true(read_first(&c, 0) == -7);
    assert_counted(&c, 0, (uint64_t[]){1, 2, 2}, (uint64_t[]){1, 1, 0});
    cluster_close(&c);
}

// One of the two that were enough leaves, and with it the time of the others; its gradient counts all the same.
static void grace_of_too_few(void)
{
    struct cluster c;
    const struct variable w = {"w", 20, 1};
    cluster_open(&c, 1, 4, MEMORY, &w, 1);
    c.declare.replicas_to_aggregate = 2;
    c.declare.grace_ms = 500;
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    assert_queued(push(&c, 0, 0, 1, 3), 1);
    assert_queued(push(&c, 1, 0, 1, 3), 1);
    settle(&c, 200);
    leave(&c, 0);
    settle(&c, 1000);
    assert_true(read_first(&c, 0) == 0);
    assert_queued(push(&c, 2, 0, 1, 6), 1);
    settle(&c, 400);
    assert_true(read_first(&c, 0) == 0);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == -4);
    cluster_close(&c);
}

// A round that has enough waits for the third so long and no longer; all there are close it at once.
static void test_grace(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 20, 1};
    (void)state;
    cluster_open(&c, 1, 3, MEMORY, &w, 1);
    c.declare.replicas_to_aggregate = 2;
    c.declare.grace_ms = 300;
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    assert_queued(push(&c, 2, 0, 1, 8), 1);
    settle(&c, 1000);
    assert_queued(push(&c, 0, 0, 1, 2), 1);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == 0);
    assert_queued(push(&c, 1, 0, 1, 5), 1);
    assert_true(read_first(&c, 0) == -5);
    assert_queued(push(&c, 0, 0, 2, 1), 2);
    assert_queued(push(&c, 1, 0, 2, 3), 2);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == -5);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == -7);
    assert_stale(push(&c, 2, 0, 2, 100), 3);
    assert_queued(push(&c, 2, 0, 3, 4), 3);
    settle(&c, 1000);
    assert_true(read_first(&c, 0) == -7);
    assert_queued(push(&c, 1, 0, 3, 4), 3);
    assert_true(read_first(&c, 0) == -7);
    leave(&c, 0);  // whom nobody waits for then
    settle(&c, 100);
    assert_true(read_first(&c, 0) == -11);
    cluster_close(&c);
    grace_of_too_few();
}

static struct pushed push_examples(struct cluster *c, uint32_t rank, uint64_t first, uint64_t count, uint64_t examples,
                                   float value)
{
    float *g = ps_alloc(count * sizeof *g);
    for (uint64_t i = 0; i < count; i++)
        g[i] = value;
    struct pushed p = push_some(c, rank, 0, first, count, 1, examples, g);
    free(g);
    return p;
}

// However many examples a worker claims, the sum over all workers does not wrap: a count that might is refused.
static void test_examples_do_not_wrap(void **state)
{
    static const uint64_t half = UINT64_C(1) << 63, most = UINT64_C(1) << 40;
    static const uint64_t claims[][3] = {{UINT64_MAX, 1, 1}, {half, half, 1}, {half, half, 0}, {most + 1, 1, 1}};
    (void)state;
    for (size_t k = 0; k < sizeof claims / sizeof claims[0]; k++) {
        struct cluster c;
        const struct variable w = {"w", 4, 1};
        cluster_open(&c, 1, 3, MEMORY, &w, 1);
        job_hyper(&c, "learning_rate", 1);
        cluster_start(&c);
        for (uint32_t rank = 0; rank < 3; rank++) {
            bool bounded = claims[k][rank] <= most;
            struct pushed p = push_examples(&c, rank, 0, 4, claims[k][rank], (float)(1 + rank));
            assert_int_equal(p.code, bounded ? PS_OK : PS_INVALID_ARGUMENT);
            if (!bounded)
                assert_queued(push_examples(&c, rank, 0, 4, most, (float)(1 + rank)), 1);
        }
        float w0 = read_first(&c, 0);
        assert_true(w0 <= -1 && w0 >= -3);
        cluster_close(&c);
    }
}

// All blocks of a gradient stand for the same examples.
static void test_examples_of_a_gradient(void **state)
{
    struct cluster c;
    (void)state;
    open_backup(&c, 2 * BLOCK, 1);
    assert_int_equal(push_examples(&c, 1, 0, BLOCK, 3, 1).code, PS_OK);
    assert_int_equal(push_examples(&c, 1, BLOCK, BLOCK, 4, 1).code, PS_INVALID_ARGUMENT);
    assert_queued(push_examples(&c, 1, BLOCK, BLOCK, 3, 1), 1);
    cluster_close(&c);
}

// Whatever the order in which the three come, the sum is in rank order: the same bits.
static void test_rank_order(void **state)
{
    static const uint32_t orders[][2] = {{0, 1}, {1, 0}};
    const float g[2] = {0.1f, 0.7f};
    float first = 0;
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct cluster c;
        float mean = 0;
        open_backup(&c, 1, 1);
        for (int i = 0; i < 2; i++)
            assert_int_equal(push_values(&c, orders[k][i], 0, 1, 3 + 4 * orders[k][i], &g[orders[k][i]]).code, PS_OK);
        mean = (mean + 3.0f * g[0] + 7.0f * g[1]) / 10.0f;
        first = k == 0 ? read_first(&c, 0) : first;
        assert_true(read_first(&c, 0) == -mean);
        assert_true(read_first(&c, 0) == first);
        cluster_close(&c);
    }
}

// Half a gradient does not count, and nothing is left of it in the next round.
static void test_half_a_gradient(void **state)
{
    struct cluster c;
    float *g = ps_alloc(2 * BLOCK * sizeof *g), end;
    (void)state;
    open_backup(&c, 2 * BLOCK, 1);
    for (int i = 0; i < 2 * BLOCK; i++)
        g[i] = 50;
    assert_partial(push_some(&c, 1, 0, 0, BLOCK, 1, 1, g));
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    assert_true(read_first(&c, 0) == 0);
    assert_queued(push(&c, 2, 0, 1, 3), 1);
    assert_true(read_first(&c, 0) == -2);
    assert_stale(push_some(&c, 1, 0, BLOCK, BLOCK, 1, 1, g), 2);
    assert_partial(push_some(&c, 1, 0, BLOCK, BLOCK, 2, 1, g));
    assert_queued(push(&c, 0, 0, 2, 1), 2);
    assert_true(read_first(&c, 0) == -2);
    assert_queued(push_some(&c, 1, 0, 0, BLOCK, 2, 1, g), 2);
    assert_true(read_first(&c, 0) == -27.5);
    float *all = g;
    read_values(&c, 0, 2 * BLOCK, all);
    end = all[2 * BLOCK - 1];
    assert_true(end == -27.5);
    free(g);
    cluster_close(&c);
}

// A read that waits for a round of n partitions of a variable, which lie side by side on one task.
static void pull_later(struct cluster *c, struct answer *a, uint32_t partition, uint32_t n, uint64_t round,
                       uint64_t deadline)
{
    const Paramserver__V1__Partition *p = &c->p[partition];
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    r.caller = &c->callers[0];
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = round;
    t.variable = c->v[p->variable].name;
    t.first = p->first;
    for (uint32_t i = 0; i < n; i++)
        t.count += p[i].count;
    ask_later(c->task[p->task].core, a, M(PULL), &r.base, NULL, deadline);
}

// A worker pushes a gradient of all of "w", and reads what comes of it.
static void push_pull_later(struct cluster *c, struct answer *a, uint64_t count, uint64_t round, float value)
{
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = c->callers[0];
    struct ps_slices payload = floats(count, value);
    caller.sequence = caller.oldest = ++c->sequence[0];
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = round;
    r.examples = 1;
    t.variable = (char *)"w";
    t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    t.count = count;
    ask_later(c->task[0].core, a, M(PUSH_PULL), &r.base, &payload, UINT64_MAX);
}

static void assert_pulled(struct answer *a, const ProtobufCMessageDescriptor *type, size_t count, float value)
{
    ProtobufCMessage *reply = NULL;
    struct ps_slices values = PS_SLICES_EMPTY;
    struct ps_error e;
    float w[16];
    assert_int_equal(a->code, PS_OK);
    assert_int_equal(ps_msg_unpack(type, &a->body, &reply, &values, &e), PS_OK);
    assert_int_equal(values.len, count * sizeof *w);
    ps_slices_copy_out(&values, 0, values.len, w);
    for (size_t i = 0; i < count; i++)
        assert_true(w[i] == value);
    ps_msg_free(reply);
    ps_slices_clear(&values);
    ps_slices_clear(&a->body);
}

// Whoever waits for a round of several partitions is woken by the end of any round of the one that it waits at, and
// goes on once all have closed the round that it wants, in whatever order. The task's open round is the least.
static void test_waits_for_every_partition(void **state)
{
    enum { COUNT = 12, PARTITIONS = 3 };
    static const uint32_t orders[][PARTITIONS] = {{1, 0, 2}, {2, 1, 0}};
    const struct variable w = {"w", COUNT, PARTITIONS};
    struct cluster c;
    struct answer pull, both[2];
    (void)state;
    cluster_open(&c, 1, 2, MEMORY, &w, 1);
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    pull_later(&c, &pull, 0, PARTITIONS, 2, UINT64_MAX);
    for (uint64_t round = 1; round <= 2; round++) {
        push_pull_later(&c, &both[round - 1], COUNT, round, 3);
        for (int i = 0; i < PARTITIONS; i++) {
            assert_true(!pull.answered && !both[round - 1].answered);
            assert_queued(push(&c, 1, orders[round - 1][i], round, 5), round);
            assert_int_equal(psd_rounds_open(c.task[0].core->table.newest), i < PARTITIONS - 1 ? round : round + 1);
        }
        assert_true(both[round - 1].answered);
    }
    assert_true(pull.answered);
    assert_pulled(&both[0], &paramserver__v1__push_pull_reply__descriptor, COUNT, -4);
    assert_pulled(&both[1], &paramserver__v1__push_pull_reply__descriptor, COUNT, -8);
    assert_pulled(&pull, &paramserver__v1__read_reply__descriptor, COUNT, -8);
    cluster_close(&c);
}

static void barrier_for(struct cluster *c, struct answer *a, uint32_t rank, uint64_t ms)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = c->callers[rank];
    caller.sequence = 1000;
    r.caller = &caller;
    r.name = (char *)"end";
    ask_later(c->task[0].core, a, M(BARRIER), &r.base, NULL, test_time + ms * PS_MS);
}

// A worker that waits in a barrier, and asks again when a call of its has ended, by its time or as it was cut off,
// takes no part meanwhile: the others' rounds wait for each other.
static void test_who_waits_on_closes_no_round(void **state)
{
    struct cluster c;
    struct answer a[3];
    const struct variable v[] = {{"v", 8, 2}};
    (void)state;
    open_sync(&c, 2, 3, v, 1);
    for (uint64_t round = 1; round <= 6; round++) {
        barrier_for(&c, &a[0], 0, 400);
        settle(&c, round == 1 ? 300 : 50);
        assert_queued(push(&c, 1, round % 2, round, 3), round);
        if (round % 2)
            psd_core_cancel(c.task[0].core, &a[0].call);
        settle(&c, round % 2 ? 1500 : 500);
        assert_true(a[0].answered && a[0].code == (round % 2 ? PS_CANCELLED : PS_DEADLINE_EXCEEDED));
        assert_queued(push(&c, 1, 1 - round % 2, round, 3), round);
        for (uint32_t i = 0; i < 2; i++)
            assert_queued(push(&c, 2, i, round, 5), round);
    }
    for (uint32_t rank = 0; rank < 3; rank++)
        barrier_for(&c, &a[rank], rank, 10000);
    settle(&c, 50);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_true(a[rank].answered && a[rank].code == PS_OK);
        ps_slices_clear(&a[rank].body);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 0, i, 7, 1), 7);
    cluster_close(&c);
}

static void beat(struct cluster *c, uint32_t rank, bool waits)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    r.caller = &c->callers[rank];
    r.waits = waits;
    assert_int_equal(ask(c->task[0].core, M(HEARTBEAT), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// A worker's connection was away, and its barrier comes again later than its heartbeats, which say that it waits on: no
// round is closed for it meanwhile. Once they say so no more, it trains.
static void test_heartbeats_say_who_waits_on(void **state)
{
    struct cluster c;
    struct answer a;
    const struct variable v[] = {{"v", 8, 2}};
    (void)state;
    open_sync(&c, 2, 3, v, 1);
    barrier_for(&c, &a, 0, 60000);
    settle(&c, 300);
    assert_queued(push(&c, 1, 0, 1, 3), 1);
    psd_core_cancel(c.task[0].core, &a.call);
    settle(&c, 1900);
    for (int i = 0; i < 10; i++, settle(&c, 500))
        beat(&c, 0, true);
    assert_queued(push(&c, 1, 1, 1, 3), 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 2, i, 1, 5), 1);
    for (int i = 0; i < 5; i++, settle(&c, 500))
        beat(&c, 0, false);
    const float before = read_first(&c, 0);
    for (uint32_t rank = 1; rank < 3; rank++)
        assert_queued(push(&c, rank, 0, 2, 3), 2);
    assert_true(read_first(&c, 0) == before);
    assert_queued(push(&c, 0, 0, 2, 1), 2);
    assert_true(read_first(&c, 0) != before);
    cluster_close(&c);
}

// A member whose end is the job's: no task closes a round without it, so that what is left is of one instant.
static void test_the_end_of_a_job_closes_no_round(void **state)
{
    static const struct variable v[] = {{"w", 8, 2}};
    struct cluster c;
    (void)state;
    cluster_open(&c, 2, 2, MEMORY, v, 1);
    c.min_workers = 2;
    cluster_start(&c);
    for (uint32_t partition = 0; partition < 2; partition++)
        assert_queued(push(&c, 0, partition, 1, 1), 1);
    depart(&c, 1, true);
    deliver_all(&c);
    assert_true(read_first(&c, 0) == 0 && read_first(&c, 1) == 0);
    assert_int_equal(push(&c, 0, 0, 2, 1).code, PS_ABORTED);
    cluster_close(&c);
}

// A task that has lost the job ends it for all, as soon as it is told of a member: who comes back would wait for it.
static void test_a_task_that_restarts_ends_the_job(void **state)
{
    static const struct variable v[] = {{"w", 8, 2}};
    struct cluster c;
    (void)state;
    cluster_open(&c, 2, 2, MEMORY, v, 1);
    cluster_start(&c);
    cluster_restart(&c, 1);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    depart(&c, 1, true);
    deliver_all(&c);
    const struct pushed p = push(&c, 0, 0, 2, 1);
    assert_int_equal(p.code, PS_ABORTED);
    assert_string_equal(p.text, "job 'job' has ended: ps task 1 has restarted and lost what it had");
    depart(&c, 0, true);
    settle(&c, 200);
    tick(&c);
    assert_int_equal(c.n_mail, 0);  // nothing there could hear of the end
    cluster_close(&c);
}

// Members that leave: as many as are there close it. What a departed one has brought whole counts besides.
static void test_departures(void **state)
{
    struct cluster c;
    (void)state;
    open_backup(&c, 10, 1);
    assert_queued(push(&c, 0, 0, 1, 9), 1);
    leave(&c, 0);
    assert_true(read_first(&c, 0) == 0);
    assert_counted(&c, 0, (uint64_t[]){1, 0, 0}, (uint64_t[]){1, 0, 0});
    assert_queued(push(&c, 1, 0, 1, 3), 1);
    assert_true(read_first(&c, 0) == 0);
    assert_queued(push(&c, 2, 0, 1, 6), 1);
    assert_true(read_first(&c, 0) == -6);
    assert_counted(&c, 0, (uint64_t[]){1, 1, 1}, (uint64_t[]){1, 1, 1});
    assert_queued(push(&c, 1, 0, 2, 4), 2);
    leave(&c, 2);
    assert_true(read_first(&c, 0) == -10);
    assert_queued(push(&c, 1, 0, 3, 1), 3);
    assert_true(read_first(&c, 0) == -11);
    assert_counted(&c, 0, (uint64_t[]){1, 3, 1}, (uint64_t[]){1, 3, 1});
    cluster_close(&c);
}

// A task that owns nothing has counted nothing.
static void test_counted_nothing(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 10, 1};
    (void)state;
    open_sync(&c, 2, 2, &w, 1);
    assert_int_equal(push(&c, 0, 0, 1, 1).code, PS_OK);
    assert_int_equal(push(&c, 1, 0, 1, 1).code, PS_OK);
    assert_counted(&c, 0, (uint64_t[]){1, 1}, (uint64_t[]){1, 1});
    assert_counted(&c, 1, (uint64_t[]){0, 0}, (uint64_t[]){0, 0});
    cluster_close(&c);
}

// ---- rules of variables, and schedules ----------------------------------------------------------------------------

static void open_rules(struct cluster *c, Paramserver__V1__Update update)
{
    static const struct variable v[] = {
        {"kernel", 8, 1},
        {"moving_mean", 8, 1, true, "ema", {{"momentum", 0.75}}},
        {"plain", 8, 1, true},
        {"bias", 8, 1, false, NULL, {{"weight_decay", 0}, {"learning_rate", 0.25}}},
        {"frozen", 8, 1, true, "sgd", {{"learning_rate", 1}, {"clipnorm", 0.5}}},
        {"old", 8, 1, true, "sgd", {{"weight_decay", 0.5}, {"learning_rate", 1}}},
    };
    cluster_open(c, 2, 2, MEMORY, v, 6);
    for (uint32_t i = 0; i < 6; i++)
        c->p[i].task = 1;
    c->declare.update = update;
    c->declare.staleness = update == SSP ? 3 : 0;
    job_hyper(c, "learning_rate", 0.5);
    job_hyper(c, "weight_decay", 0.5);
    if (update != SSP)
        cluster_start(c);
    else
        assert_int_equal(declare_at(c, 1).code, PS_OK);
}

// What names a rule takes part in rounds; what neither names one nor is trainable is added to as it comes. Decay is for
// what is trainable, and bias has none; so is clipping, whatever a rule says.
static void test_own_rules(void **state)
{
    struct cluster c;
    (void)state;
    open_rules(&c, SYNC);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(push(&c, 0, i, 1, 4).code, PS_OK);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(read_first(&c, i) == (i == 2 ? 4 : 0));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(push(&c, 1, i, 1, 8).code, PS_OK);
    assert_true(read_first(&c, 0) == -3);
    assert_true(read_first(&c, 1) == 1.5);
    assert_true(read_first(&c, 2) == 12);
    assert_true(read_first(&c, 3) == -1.5);
    assert_true(read_first(&c, 4) == -6 && read_first(&c, 5) == -6);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(push(&c, rank, i, 2, 0).code, PS_OK);
    assert_true(read_first(&c, 0) == -2.25);  // -3 - -3 * 0.5 * 0.5
    assert_true(read_first(&c, 1) == 1.125);
    assert_true(read_first(&c, 2) == 12);
    assert_true(read_first(&c, 3) == -1.5);
    assert_true(read_first(&c, 4) == -6 && read_first(&c, 5) == -6);
    cluster_close(&c);
}

static void test_own_rules_async(void **state)
{
    struct cluster c;
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_rules(&c, k ? SSP : ASYNC);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(push(&c, 0, i, 0, 4).code, PS_OK);
        assert_true(read_first(&c, 0) == -2);
        assert_true(read_first(&c, 1) == 1);
        assert_true(read_first(&c, 2) == 4);
        assert_true(read_first(&c, 3) == -1);
        cluster_close(&c);
    }
}

// Slots follow the variable's own rule, which may begin at something.
static void test_slots(void **state)
{
    struct cluster c;
    const struct variable v[] = {{"kernel", 4, 1, false, "adagrad", {{"learning_rate", 1}}}, {"bias", 4, 1}};
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 2);
    c.declare.update = ASYNC;
    cluster_start(&c);
    assert_int_equal(push(&c, 0, 0, 0, 2).code, PS_OK);
    float expected = -2 / sqrtf(0.1f + 4), got = read_first(&c, 0);
    assert_true(fabsf(got - expected) < 1e-5f);
    cluster_close(&c);
}

static Paramserver__V1__Schedule piecewise(uint64_t *boundaries, double *values)
{
    Paramserver__V1__Schedule s = PARAMSERVER__V1__SCHEDULE__INIT;
    s.kind = (char *)"piecewise";
    s.boundaries = boundaries;
    s.n_boundaries = 2;
    s.values = values;
    s.n_values = 3;
    return s;
}

// The rate at round r is that of step r - 1. One that is set by hand stays from then on; a variable's own does anyway.
static void test_schedule_in_rounds(void **state)
{
    struct cluster c;
    const struct variable v[] = {{"w", 4, 1}, {"own", 4, 1, false, NULL, {{"learning_rate", 8}}}};
    static const float rates[] = {1, 1, 0.5f, 0.5f, 0.25f, 0.25f, 2, 2};
    Paramserver__V1__Schedule s = piecewise((uint64_t[]){1, 3}, (double[]){1, 0.5, 0.25});
    float w = 0;
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 2);
    c.declare.schedule = &s;
    cluster_start(&c);
    for (uint64_t round = 1; round <= 8; round++) {
        if (round == 3)
            assert_int_equal(set_hyper(&c, "learning_rate", 2, 7), 7);
        assert_queued(push(&c, 0, 0, round, 1), round);
        assert_queued(push(&c, 0, 1, round, 1), round);
        w -= rates[round - 1];
        assert_true(read_first(&c, 0) == w);
        assert_true(read_first(&c, 1) == -8 * (float)round);
    }
    cluster_close(&c);
}

static void test_schedule_async(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 1};
    Paramserver__V1__Schedule s = piecewise((uint64_t[]){0, 1}, (double[]){1, 0.5, 0.25});
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, &w, 1);
    c.declare.update = ASYNC;
    c.declare.schedule = &s;
    cluster_start(&c);
    for (int k = 0; k < 4; k++)
        assert_int_equal(push(&c, 0, 0, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -2);
    set_hyper(&c, "learning_rate", 4, 0);
    assert_int_equal(push(&c, 0, 0, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -6);
    cluster_close(&c);
}

// ---- clipping by norm ---------------------------------------------------------------------------------------------

enum { CLIP_ROUNDS = 4, CLIP_FLOATS = 4 * 30 + 30 + 2 * BLOCK };

// "w" in four parts, "b" in one, "big" of two blocks, and "mean", which is not clipped.
static const struct variable clipped[] = {
    {"w", 4 * 30, 4}, {"b", 30, 1}, {"big", 2 * BLOCK, 1}, {"mean", 30, 1, true, "ema", {{"momentum", 0}}}};

static float *make_gradients(void)
{
    static const float scales[CLIP_ROUNDS] = {0.0001f, 1, 30, 0.01f};
    float *g = ps_alloc((size_t)CLIP_ROUNDS * CLIP_FLOATS * sizeof *g);
    uint64_t seed = 7;
    for (size_t i = 0; i < (size_t)CLIP_ROUNDS * CLIP_FLOATS; i++)
        g[i] = scales[i / CLIP_FLOATS] * ((float)(draw(&seed) >> 40) * 0x1p-23f - 1);
    return g;
}

// Two workers' gradients of all partitions for a round, in an order that the seed says; worker 1's is three times the
// other's, and stands for three times the examples. Mail goes lost and comes twice meanwhile.
static void clipped_round(struct cluster *c, uint64_t round, const float *g, uint64_t *seed)
{
    uint64_t left = 0x3fff;  // bit 2 * partition + rank; partitions 0 .. 6
    float *of_1 = ps_alloc(CLIP_FLOATS * sizeof *of_1);
    for (size_t i = 0; i < CLIP_FLOATS; i++)
        of_1[i] = 3 * g[i];
    while (left) {
        uint64_t bit = draw(seed) % 14, at = bit / 2 < 5 ? bit / 2 * 30 : bit / 2 == 5 ? 150 : 120;
        if (left >> bit & 1)
            assert_queued(
                push_values(c, bit % 2, (uint32_t)(bit / 2), round, bit % 2 ? 3 : 1, (bit % 2 ? of_1 : g) + at), round);
        left &= ~(UINT64_C(1) << bit);
        if (draw(seed) % 2)
            deliver(c);
    }
    free(of_1);
    settle(c, 2000);
}

static void clip_on(uint32_t tasks, const char *hyper, double limit, const float *g, float *w)
{
    struct cluster c;
    uint64_t seed = tasks;
    cluster_open(&c, tasks, 2, MEMORY, clipped, 4);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, hyper, limit);
    cluster_start(&c);
    c.lost = 0.3;
    c.repeated = 0.3;
    for (uint64_t round = 1; round <= CLIP_ROUNDS; round++)
        clipped_round(&c, round, g + (round - 1) * CLIP_FLOATS, &seed);
    for (uint32_t i = 0; i < 4; i++)
        read_values(&c, i, 30, w + i * 30);
    read_values(&c, 4, 30, w + 120);
    read_values(&c, 5, 2 * BLOCK, w + 150);
    assert_true(fabsf(read_first(&c, 6) - 2.5f * g[3 * CLIP_FLOATS + 120]) < 1e-7f);
    cluster_close(&c);
}

// The same, written down: a variable is a run of elements, and of each round's mean gradient (2.5 g) the part of the
// group's norm that is allowed is subtracted.
static void clip_plainly(const size_t (*groups)[2], int n, double limit, const float *g, double *w)
{
    for (int round = 0; round < CLIP_ROUNDS; round++)
        for (int k = 0; k < n; k++) {
            const float *of = g + (size_t)round * CLIP_FLOATS;
            double sum = 0;
            for (size_t i = groups[k][0]; i < groups[k][1]; i++)
                sum += 6.25 * of[i] * of[i];
            for (size_t i = groups[k][0]; i < groups[k][1]; i++)
                w[i] -= 2.5 * of[i] * (sqrt(sum) > limit ? limit / sqrt(sum) : 1);
        }
}

static void check_clipping(const char *hyper, double limit, const size_t (*groups)[2], int n)
{
    float *g = make_gradients(), *w[3];
    double *expected = ps_alloc(CLIP_FLOATS * sizeof *expected);
    clip_plainly(groups, n, limit, g, expected);
    for (uint32_t tasks = 1; tasks <= 3; tasks++) {
        w[tasks - 1] = ps_alloc(CLIP_FLOATS * sizeof(float));
        clip_on(tasks, hyper, limit, g, w[tasks - 1]);
        assert_memory_equal(w[0], w[tasks - 1], CLIP_FLOATS * sizeof(float));
    }
    for (size_t i = 0; i < CLIP_FLOATS; i++)
        if (fabs(expected[i] - (double)w[0][i]) > 1e-6 + 1e-5 * fabs(expected[i]))
            fail_msg("element %zu: %.9g, expected %.9g", i, (double)w[0][i], expected[i]);
    for (int k = 0; k < 3; k++)
        free(w[k]);
    free(expected);
    free(g);
}

static void test_clipnorm(void **state)
{
    static const size_t variables[][2] = {{0, 120}, {120, 150}, {150, CLIP_FLOATS}};
    (void)state;
    check_clipping("clipnorm", 3, variables, 3);
}

static void test_global_clipnorm(void **state)
{
    static const size_t model[][2] = {{0, CLIP_FLOATS}};
    (void)state;
    check_clipping("global_clipnorm", 40, model, 1);
}

static void test_clipvalue(void **state)
{
    struct cluster c;
    const struct variable v[] = {{"w", 4, 1}, {"mean", 4, 1, true, "ema", {{"momentum", 0}}}};
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 2);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "clipvalue", 2);
    cluster_start(&c);
    assert_queued(push_values(&c, 0, 0, 1, 1, (float[]){1, 5, -7, -2}), 1);
    assert_queued(push(&c, 0, 1, 1, 5), 1);
    float w[4];
    read_values(&c, 0, 4, w);
    assert_true(w[0] == -1 && w[1] == -2 && w[2] == 2 && w[3] == 2);
    assert_true(read_first(&c, 1) == 5);
    cluster_close(&c);
}

// Without rounds clipping by norm is the worker's.
static void test_no_norm_async(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 1};
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, &w, 1);
    c.declare.update = ASYNC;
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "clipnorm", 1);
    cluster_start(&c);
    assert_int_equal(push(&c, 0, 0, 0, 10).code, PS_OK);
    assert_true(read_first(&c, 0) == -10);
    cluster_close(&c);
}

// A gradient over no example at all counts for nothing, and its norm does not keep the others waiting.
static void test_norm_of_nothing(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 2};
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, &w, 1);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "global_clipnorm", 5);
    cluster_start(&c);
    assert_queued(push_values(&c, 0, 0, 1, 0, (float[]){NAN, 1}), 1);
    assert_queued(push_values(&c, 0, 1, 1, 1, (float[]){6, 8}), 1);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == 0);
    assert_true(read_first(&c, 1) == -3);
    cluster_close(&c);
}

// While a round waits for its norm its contributors are settled: who leaves has contributed, who comes is late, and the
// next round is not open yet.
static void test_while_awaiting(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 2};
    (void)state;
    cluster_open(&c, 2, 3, MEMORY, &w, 1);
    c.declare.replicas_to_aggregate = 2;
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "clipnorm", 1e6);
    cluster_start(&c);
    c.cut_off = 0;
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < 2; i++)
            assert_queued(push(&c, rank, i, 1, 4), 1);
    assert_stale(push(&c, 2, 1, 1, 100), 2);
    assert_int_equal(push(&c, 0, 1, 2, 100).code, PS_UNAVAILABLE);
    leave(&c, 1);
    settle(&c, 500);
    assert_stale(push(&c, 2, 1, 1, 100), 2);
    assert_true(read_first(&c, 0) == 0 && read_first(&c, 1) == 0);
    assert_counted(&c, 1, (uint64_t[]){1, 1, 0}, (uint64_t[]){1, 1, 0});
    c.cut_off = NO_TASK;
    settle(&c, 500);
    assert_true(read_first(&c, 0) == -4 && read_first(&c, 1) == -4);
    assert_queued(push(&c, 2, 0, 2, 1), 2);
    assert_queued(push(&c, 2, 1, 2, 1), 2);
    assert_queued(push(&c, 0, 0, 2, 1), 2);
    assert_queued(push(&c, 0, 1, 2, 1), 2);
    settle(&c, 500);
    assert_true(read_first(&c, 0) == -5 && read_first(&c, 1) == -5);
    cluster_close(&c);
}

// A norm takes as long as its messages do, and no tick. A run that is resumed knows nothing of earlier norms, and an
// old message changes nothing.
static void test_norms_of_runs(void **state)
{
    struct cluster c;
    static uint8_t other[16] = "another process";
    const struct variable w = {"w", 2, 2};
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, &w, 1);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "clipnorm", 5);
    cluster_start(&c);
    for (uint64_t round = 1; round <= 2; round++) {
        assert_queued(push(&c, 0, 0, round, 6), round);
        assert_queued(push(&c, 0, 1, round, 8), round);
        deliver_all(&c);
        assert_true(read_first(&c, 0) == -3 * (float)round && read_first(&c, 1) == -4 * (float)round);
    }
    assert_queued(push(&c, 0, 1, 3, 100), 3);
    leave(&c, 0);
    c.callers[0].client.data = other;
    c.declare.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
    cluster_start(&c);
    assert_queued(push(&c, 0, 0, 1, 3), 1);
    deliver_all(&c);
    assert_true(read_first(&c, 0) == -6);
    assert_queued(push(&c, 0, 1, 1, 0), 1);
    deliver_all(&c);
    assert_true(read_first(&c, 0) == -9 && read_first(&c, 1) == -8);
    cluster_close(&c);
}

static uint32_t waits_at(struct cluster *c, uint32_t task)
{
    struct psd_job *job = psd_job_find(&c->task[task].core->table, "job");
    const uint32_t n = psd_waits_count(c->task[task].core, job);
    psd_job_unref(job);
    return n;
}

// Of a task whose rounds wait for a norm few calls wait at the control task, which has no more room for them than a
// connection: what is due beyond them gets there all the same, and its norm back. The model's does so without a tick;
// that of a variable which is known before those that calls wait for takes one.
static void few_wait_for_norms(const char *hyper, uint64_t ms)
{
    static const struct variable v[MAX_VARIABLES] = {{"a", 4, 2}, {"b", 4, 2}, {"c", 4, 2},
                                                     {"d", 4, 2}, {"e", 4, 2}, {"f", 4, 2}};
    struct cluster c;
    cluster_open(&c, 2, 1, MEMORY, v, MAX_VARIABLES);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, hyper, 1e6);
    cluster_start(&c);
    for (uint64_t round = 1; round <= 2; round++) {
        for (uint32_t i = 1; i < c.n_partitions; i += 2) {
            assert_queued(push(&c, 0, i, round, 1), round);
            deliver_all(&c);
        }
        assert_int_equal(waits_at(&c, 0), 2);
        for (uint32_t i = c.n_partitions; i; i -= 2) {
            assert_queued(push(&c, 0, i - 2, round, 1), round);
            settle(&c, ms);
            assert_true(!ms || read_first(&c, i - 1) == -(float)round);
        }
        for (uint32_t i = 0; i < c.n_partitions; i++)
            assert_true(read_first(&c, i) == -(float)round);
        assert_int_equal(waits_at(&c, 0), 0);
    }
    cluster_close(&c);
}

static void test_few_wait_for_norms(void **state)
{
    (void)state;
    few_wait_for_norms("global_clipnorm", 0);
    few_wait_for_norms("clipnorm", 50);
}

// Clipping is switched on, changed to the other kind and off again while rounds go on.
static void test_clipping_by_hand(void **state)
{
    struct cluster c;
    const struct variable v[] = {{"a", 4, 2}, {"b", 2, 1}};
    static const float steps[][2] = {
        {4, 4}, {4, 4}, {1, 1.4142136f}, {1, 1.4142136f}, {0.8164966f, 0.8164966f}, {0.8164966f, 0.8164966f}, {4, 4}};
    float a = 0, b = 0;
    (void)state;
    cluster_open(&c, 3, 1, MEMORY, v, 2);
    job_hyper(&c, "learning_rate", 1);
    cluster_start(&c);
    assert_int_equal(set_hyper(&c, "clipnorm", 2, 3), 3);
    assert_int_equal(set_hyper(&c, "clipnorm", 0, 5), 5);
    assert_int_equal(set_hyper(&c, "global_clipnorm", 2, 5), 5);
    assert_int_equal(set_hyper(&c, "global_clipnorm", 0, 7), 7);
    for (uint64_t round = 1; round <= 7; round++) {
        for (uint32_t i = 0; i < 3; i++)
            assert_queued(push(&c, 0, i, round, 4), round);
        settle(&c, 200);
        a -= steps[round - 1][0];
        b -= steps[round - 1][1];
        assert_true(fabsf(read_first(&c, 0) - a) < 1e-5f);
        assert_true(fabsf(read_first(&c, 1) - a) < 1e-5f);
        assert_true(fabsf(read_first(&c, 2) - b) < 1e-5f);
    }
    cluster_close(&c);
}

// ---- changes by hand ----------------------------------------------------------------------------------------------

enum { RUN_ROUNDS = 60, RUN_PARTITIONS = 6 };

// What a run has seen: the rate that each partition used in each round, as its values tell.
struct watch {
    struct cluster c;
    uint64_t seed;
    uint64_t pushed[2][RUN_PARTITIONS];  // by worker
    float last[RUN_PARTITIONS];
    uint32_t rounds[RUN_PARTITIONS];
    float rate[RUN_PARTITIONS][RUN_ROUNDS + 1];
};

// Everyone pushes ones, so that a round subtracts the rate.
static void look(struct watch *x)
{
    for (uint32_t i = 0; i < RUN_PARTITIONS; i++) {
        float now = read_first(&x->c, i);
        if (now == x->last[i])
            continue;
        assert_true(x->rounds[i] < RUN_ROUNDS);
        x->rate[i][++x->rounds[i]] = x->last[i] - now;
        x->last[i] = now;
    }
}

static void push_something(struct watch *x)
{
    uint32_t rank = draw(&x->seed) % 2, i = draw(&x->seed) % RUN_PARTITIONS;
    if (x->pushed[rank][i] == RUN_ROUNDS)
        return;
    struct pushed p = push(&x->c, rank, i, x->pushed[rank][i] + 1, 1);
    if (p.code == PS_OK)
        x->pushed[rank][i]++;
    else
        assert_true(p.code == PS_FAILED_PRECONDITION || p.code == PS_UNAVAILABLE);
}

static void do_something(struct watch *x)
{
    switch (draw(&x->seed) % 8) {
    case 0:
    case 1:
        deliver(&x->c);
        break;
    case 2:
        test_time += 50 * PS_MS;
        tick(&x->c);
        break;
    default:
        push_something(x);
    }
    look(x);
}

static bool is_over(const struct watch *x)
{
    for (uint32_t i = 0; i < RUN_PARTITIONS; i++)
        if (x->rounds[i] < RUN_ROUNDS)
            return false;
    return true;
}

static void check_run(const struct watch *x, const float *rate, const uint64_t *from, int n)
{
    for (uint32_t i = 0; i < RUN_PARTITIONS; i++)
        for (uint64_t round = 1; round <= RUN_ROUNDS; round++) {
            float expected = 1;
            for (int k = 0; k < n; k++)
                expected = from[k] && round >= from[k] ? rate[k] : expected;
            if (x->rate[i][round] != expected)
                fail_msg("partition %u, round %" PRIu64 ": rate %g, expected %g", i, round, (double)x->rate[i][round],
                         (double)expected);
        }
}

// While two workers push, each partition at its own pace, and messages are lost, repeated and reordered, every
// partition of three tasks changes in the round that is answered.
static void run_with_changes(uint64_t seed, double lost)
{
    static const float rates[] = {0.5f, 0.25f, 2};
    const struct variable w = {"w", 2 * RUN_PARTITIONS, RUN_PARTITIONS};
    struct watch x = {.seed = seed};
    struct answer a = {.answered = true};
    uint64_t from[3] = {0};
    int asked = 0, answered = 0;
    cluster_open(&x.c, 3, 2, MEMORY, &w, 1);
    job_hyper(&x.c, "learning_rate", 1);
    cluster_start(&x.c);
    x.c.seed = seed;
    x.c.lost = lost;
    x.c.repeated = 0.3;
    for (int steps = 0; !is_over(&x); steps++) {
        assert_true(steps < 100000);
        do_something(&x);
        if (asked == answered && asked < 3 && draw(&x.seed) % 64 == 0)
            set_hyper_later(&x.c, &a, "learning_rate", (double)rates[asked++], 0, UINT64_MAX);
        if (asked > answered && a.answered)
            from[answered++] = round_of(&a);
    }
    while (asked > answered) {
        settle(&x.c, 50);
        if (a.answered)
            from[answered++] = round_of(&a);
    }
    assert_true(asked > 0);
    check_run(&x, rates, from, asked);
    cluster_close(&x.c);
}

static void test_all_in_one_round(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60 / TEST_PART; seed++)
        run_with_changes(seed, seed % 3 * 0.2);
}

static struct answer set_hyper_now(struct cluster *c, const char *name, double value, uint64_t round)
{
    struct answer a;
    set_hyper_later(c, &a, name, value, round, UINT64_MAX);
    for (int i = 0; i < 200 && !a.answered; i++)
        settle(c, 50);
    assert_true(a.answered);
    ps_slices_clear(&a.body);
    return a;
}

static void open_two(struct cluster *c, Paramserver__V1__Update update)
{
    const struct variable w = {"w", 4, 2};
    cluster_open(c, 2, 1, MEMORY, &w, 1);
    c->declare.update = update;
    job_hyper(c, "learning_rate", 1);
    cluster_start(c);
}

// A round that is asked for is the one, or there is no change: not either where another task has closed it.
static void test_asked_round(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 3), 3);
    for (uint64_t round = 1; round <= 4; round++)
        assert_queued(push(&c, 0, 1, round, 1), round);
    assert_true(read_first(&c, 1) == -6);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    struct answer a = set_hyper_now(&c, "learning_rate", 9, 1);
    assert_int_equal(a.code, PS_OUT_OF_RANGE);
    assert_non_null(strstr(a.text, "round 1 is closed already, the last one is 1"));
    a = set_hyper_now(&c, "learning_rate", 9, 4);
    assert_int_equal(a.code, PS_OUT_OF_RANGE);
    assert_non_null(strstr(a.text, "round 4 is closed on ps task 1, which has closed 4"));
    assert_int_equal(set_hyper(&c, "learning_rate", 4, 5), 5);
    for (uint64_t round = 2; round <= 5; round++)
        assert_queued(push(&c, 0, 0, round, 1), round);
    assert_true(read_first(&c, 0) == -10);
    assert_queued(push(&c, 0, 1, 5, 1), 5);
    assert_true(read_first(&c, 1) == -10);
    cluster_close(&c);
}

// ---- what any rule may keep besides -------------------------------------------------------------------------------

// Every other gradient moves the weights, by the mean of the two; what makes slots is not changed any more.
static void test_accumulation(void **state)
{
    static const float after[] = {0, -3, -3, 0};
    static const float gradients[] = {4, 8, -10, -2};
    const struct variable v[] = {{"w", 4, 1}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct cluster c;
        cluster_open(&c, 1, 1, MEMORY, v, 1);
        c.declare.update = k ? ASYNC : SYNC;
        job_hyper(&c, "learning_rate", 0.5);
        job_hyper(&c, "gradient_accumulation_steps", 2);
        cluster_start(&c);
        for (uint64_t round = 1; round <= 4; round++) {
            assert_int_equal(push(&c, 0, 0, k ? 0 : round, gradients[round - 1]).code, PS_OK);
            assert_true(read_first(&c, 0) == after[round - 1]);
        }
        struct answer a = set_hyper_now(&c, "gradient_accumulation_steps", 4, 0);
        assert_int_equal(a.code, PS_INVALID_ARGUMENT);
        assert_non_null(strstr(a.text,
                               "gradient_accumulation_steps of rule sgd cannot be changed: the variables' slots "
                               "are made by it"));
        a = set_hyper_now(&c, "clipnorm", 1, 0);
        assert_int_equal(a.code, PS_INVALID_ARGUMENT);
        assert_non_null(strstr(a.text, "does not go with clipnorm and global_clipnorm where ps tasks apply it"));
        cluster_close(&c);
    }
}

// Every other step the weights become their average.
static void test_average(void **state)
{
    static const float after[] = {-1, -1.5F, -2.5F, -2.75F};
    const struct variable v[] = {{"w", 4, 1}};
    struct cluster c;
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 1);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "use_ema", 1);
    job_hyper(&c, "ema_momentum", 0.5);
    job_hyper(&c, "ema_overwrite_frequency", 2);
    cluster_start(&c);
    for (uint64_t round = 1; round <= 4; round++) {
        assert_int_equal(push(&c, 0, 0, round, 1).code, PS_OK);
        assert_true(read_first(&c, 0) == after[round - 1]);
    }
    cluster_close(&c);
}

// What a training ends with: the averages, of the value where there was no gradient yet, or none is kept.
static void test_averages_are_read(void **state)
{
    static const float after[] = {0, -1, -1.5F, -2.25F};
    const struct variable v[] = {{"kept", 4, 1}, {"plain", 4, 1, true, "sgd", {{"learning_rate", 1}}}};
    struct cluster c;
    float found[3];
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 2);
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "use_ema", 1);
    job_hyper(&c, "ema_momentum", 0.5);
    cluster_start(&c);
    for (uint64_t round = 0; round <= 3; round++) {
        for (uint32_t k = 0; round && k < 2; k++)
            assert_int_equal(push(&c, 0, k, round, 1).code, PS_OK);
        read_by(&c, 0, 3, true, found);
        assert_true(found[0] == after[round] && found[2] == after[round]);
        assert_true(read_first(&c, 0) == -(float)round);
        read_by(&c, 1, 3, true, found);
        assert_true(found[0] == -(float)round);
    }
    cluster_close(&c);
}

// The same number into elements [first, first + count) of a partition, or of a slot, from 1.
static struct answer put_part(struct cluster *c, uint32_t partition, uint64_t first, uint64_t count, uint32_t slot,
                              uint64_t steps, float value)
{
    const float v[] = {value, value, value, value};
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = c->callers[0];
    struct ps_slices payload = PS_SLICES_EMPTY;
    caller.sequence = caller.oldest = ++c->sequence[0];
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.slot = slot;
    r.steps = steps;
    t.variable = c->v[c->p[partition].variable].name;
    t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    t.first = c->p[partition].first + first;
    t.count = count;
    ps_slices_add(&payload, ps_slice_copy(v, count * sizeof *v));
    return ask(c->task[c->p[partition].task].core, M(PUT), &r.base, &payload,
               &paramserver__v1__update_reply__descriptor, NULL, NULL);
}

static void open_adam(struct cluster *c)
{
    static const struct variable v[] = {{"w", 4, 1, true, "adam", {{"beta_1", 0.5}, {"beta_2", 0.5}}}};
    cluster_open(c, 1, 1, MEMORY, v, 1);
    cluster_start(c);
}

static void assert_slot(struct cluster *c, uint32_t slot, float first, float second)
{
    float found[4];
    assert_int_equal(read_part(c, 0, 4, false, slot, found).code, PS_OK);
    assert_true(found[0] == first && found[1] == second && found[2] == second && found[3] == second);
}

// What a training that goes on from a checkpoint puts: slots, and how often the rule has been applied, from which
// Adam's step follows, of a rate of 0.001: (0.5 / 0.75) / sqrt(0.5 / 0.75) the second time, 1 the first time.
static void test_slots_are_put_and_read(void **state)
{
    struct cluster c;
    float w[4];
    (void)state;
    open_adam(&c);
    assert_int_equal(put_part(&c, 0, 1, 3, 1, 1, 1).code, PS_OK);
    assert_int_equal(put_part(&c, 0, 1, 3, 2, 0, 1).code, PS_OK);
    assert_slot(&c, 1, 0, 1);
    assert_slot(&c, 2, 0, 1);
    read_values(&c, 0, 4, w);
    assert_true(w[0] == 0 && w[1] == 0 && w[3] == 0);
    assert_int_equal(push(&c, 0, 0, 1, 0).code, PS_OK);
    assert_slot(&c, 1, 0, 0.5F);
    assert_slot(&c, 2, 0, 0.5F);
    read_values(&c, 0, 4, w);
    assert_true(w[0] == 0 && fabsf(1000 * w[1] + 0.816497F) < 1e-5F && w[3] == w[1]);
    cluster_close(&c);
}

// Reads slots of the first variable, in one request; the reply, if there is one, and its payload are the caller's.
static struct answer read_slots(struct cluster *c, int method, bool averages, const uint32_t *slots, size_t n,
                                Paramserver__V1__ReadReply **reply, struct ps_slices *payload)
{
    enum { MOST = 4 };
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t[MOST], *tensors[MOST];
    ProtobufCMessage *m = NULL;
    r.caller = &c->callers[0];
    r.tensors = tensors;
    r.n_tensors = n;
    r.averages = averages;
    for (size_t i = 0; i < n; i++) {
        tensors[i] = &t[i];
        paramserver__v1__tensor__init(&t[i]);
        t[i].variable = c->v[0].name;
        t[i].slot = slots[i];
    }
    if (*reply) {
        r.offset = (*reply)->next_offset;
        r.snapshot = (*reply)->snapshot;
        ps_msg_free(&(*reply)->base);
    }
    const struct answer a =
        ask(c->task[0].core, method, &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, payload);
    *reply = (Paramserver__V1__ReadReply *)m;
    return a;
}

static void assert_read_refused(struct cluster *c, int method, bool averages, uint32_t first, uint32_t second,
                                const char *why)
{
    const uint32_t slots[] = {first, second};
    struct ps_slices payload = PS_SLICES_EMPTY;
    Paramserver__V1__ReadReply *reply = NULL;
    const struct answer a = read_slots(c, method, averages, slots, 2, &reply, &payload);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_string_equal(a.text, why);
    ps_slices_clear(&payload);
}

// A checkpoint: values and slots of one instant, although they come in several messages, between which a gradient is
// applied; also after the job has failed.
static void test_slots_are_of_one_instant(void **state)
{
    enum { COUNT = 1100 << 10, SLOTS = 3 };
    static const struct variable v[] = {{"w", COUNT, 1, true, "adam", {{"beta_1", 0.5}, {"beta_2", 0.5}}}};
    static const uint32_t slots[SLOTS] = {0, 1, 2};
    struct ps_slices payload = PS_SLICES_EMPTY;
    Paramserver__V1__ReadReply *reply = NULL;
    struct cluster c;
    float *found = malloc(SLOTS * COUNT * sizeof *found);
    size_t bytes = 0, messages = 0;
    (void)state;
    cluster_open(&c, 1, 1, 64 << 20, v, 1);
    cluster_start(&c);
    assert_int_equal(push(&c, 0, 0, 1, 1).code, PS_OK);
    do {
        assert_int_equal(read_slots(&c, M(GET), false, slots, SLOTS, &reply, &payload).code, PS_OK);
        for (size_t i = 0; i < reply->n_tensors; i++)
            assert_int_equal(reply->tensors[i]->slot, bytes / (COUNT * sizeof *found) + i);
        ps_slices_copy_out(&payload, 0, payload.len, (uint8_t *)found + bytes);
        bytes += payload.len;
        ps_slices_clear(&payload);
        if (messages++ == 0)
            assert_int_equal(push(&c, 0, 0, 2, 3).code, PS_OK);
        if (messages == 1)
            psd_job_fail(psd_job_find(&c.task[0].core->table, "job"), 0, "for the test");
    } while (reply->next_offset);
    ps_msg_free(&reply->base);
    assert_true(messages > 1 && bytes == SLOTS * COUNT * sizeof *found);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(1000 * found[i] + 1) < 1e-4F && found[COUNT + i] == 0.5F && found[2 * COUNT + i] == 0.5F);
    free(found);
    cluster_close(&c);
}

static void test_slots_that_there_are_not(void **state)
{
    struct cluster c;
    float none[4];
    (void)state;
    open_adam(&c);
    struct answer a = put_part(&c, 0, 0, 4, 3, 0, 1);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_string_equal(a.text, "variable 'w' has 2 slots, the request is for number 3");
    assert_int_equal(read_part(&c, 0, 4, false, UINT32_MAX, none).code, PS_FAILED_PRECONDITION);
    assert_read_refused(&c, M(PULL), false, 0, 2, "variable 'w', a slot: it is read by Get, not Pull");
    assert_read_refused(&c, M(GET), true, 0, 1, "Get of averages: expected a Pull");
    assert_read_refused(&c, M(GET), false, 2, 1, "variable 'w': slot 1 comes after slot 2; expected slots in order");
    assert_read_refused(
        &c, M(GET), false, 1, 1,
        "variable 'w': the range at 0 comes after one that ends at 4; expected ranges in order, without "
        "overlap");
    assert_slot(&c, 2, 0, 0);
    cluster_close(&c);
}

// The last word counts, also for rounds for which something else was said before.
static void test_last_word(void **state)
{
    static const float after[] = {0, -1, -3, -8, -13};
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    assert_int_equal(set_hyper(&c, "learning_rate", 8, 4), 4);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 2), 2);
    assert_int_equal(set_hyper(&c, "learning_rate", 4, 3), 3);
    assert_int_equal(set_hyper(&c, "learning_rate", 5, 3), 3);
    for (uint64_t round = 1; round <= 4; round++) {
        assert_queued(push(&c, 0, 1, round, 1), round);
        assert_true(read_first(&c, 1) == after[round]);
    }
    cluster_close(&c);
}

// Without rounds it is used as it comes, and the caller is answered when all tasks have it.
static void test_async(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, ASYNC);
    deliver_all(&c);
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    assert_false(a.answered);
    assert_int_equal(push(&c, 0, 0, 0, 1).code, PS_OK);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -2 && read_first(&c, 1) == -1);
    deliver(&c);
    assert_false(a.answered);
    deliver(&c);
    assert_true(a.answered);
    assert_int_equal(round_of(&a), 0);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 1) == -3);
    for (int k = 0; k < 3 * PSD_MAX_CHANGES; k++)  // those that are over make room
        set_hyper(&c, k % 2 ? "learning_rate" : "weight_decay", k / 1024.0, 0);
    cluster_close(&c);
}

// Rounds that close while messages travel: the control task tries ever further ahead.
static void test_fast_rounds(void **state)
{
    struct cluster c;
    struct answer a;
    uint64_t round = 0;
    (void)state;
    open_two(&c, SYNC);
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    for (int letters = 0; letters < 60 && !a.answered; letters++) {
        for (int k = 0; k < 6; k++)
            round += push(&c, 0, 1, round + 1, 1).code == PS_OK;
        deliver(&c);
    }
    assert_true(round_of(&a) > 24);
    cluster_close(&c);
}

static void assert_one_at_a_time(struct answer *a)
{
    assert_true(a->answered);
    assert_int_equal(a->code, PS_ABORTED);
    assert_non_null(strstr(a->text, "one change at a time"));
}

// Several callers at once: another change is refused while one is under way, the same one waits for the same outcome.
static void test_one_at_a_time(void **state)
{
    struct cluster c;
    struct answer a[4];
    (void)state;
    open_two(&c, SYNC);
    c.lost = 0.3;
    for (int k = 0; k < 4; k++)
        set_hyper_later(&c, &a[k], "learning_rate", k == 1 ? 3 : 2, k == 2 ? 3 : 0, UINT64_MAX);
    assert_one_at_a_time(&a[1]);
    assert_one_at_a_time(&a[2]);
    assert_false(a[0].answered || a[3].answered);
    for (int i = 0; i < 100 && !(a[0].answered && a[3].answered); i++)
        settle(&c, 50);
    assert_int_equal(round_of(&a[0]), 4);
    assert_int_equal(round_of(&a[3]), 4);
    assert_int_equal(set_hyper(&c, "learning_rate", 3, 0), 4);
    cluster_close(&c);
}

// A task that cannot be reached: nothing changes, nothing is held, and the next change works when it is back.
static void test_silent_task(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, SYNC);
    c.cut_off = 1;
    set_hyper_later(&c, &a, "learning_rate", 2, 2, UINT64_MAX);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    assert_queued(push(&c, 0, 0, 2, 1), 2);
    assert_true(read_first(&c, 0) == -1);  // held
    settle(&c, 1900);
    assert_false(a.answered);
    assert_true(read_first(&c, 0) == -1);
    settle(&c, 200);
    assert_true(a.answered);
    assert_int_equal(a.code, PS_UNAVAILABLE);
    assert_non_null(strstr(a.text, "ps task 1 has not answered for 2."));
    assert_true(read_first(&c, 0) == -2);
    c.cut_off = NO_TASK;
    settle(&c, 100);
    assert_int_equal(set_hyper(&c, "learning_rate", 4, 3), 3);
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t round = i ? 1 : 3; round <= 3; round++)
            assert_queued(push(&c, 0, i, round, 1), round);
    assert_true(read_first(&c, 0) == -6 && read_first(&c, 1) == -6);
    cluster_close(&c);
}

static void assert_unavailable(const struct answer *a, const char *text)
{
    assert_true(a->answered);
    assert_int_equal(a->code, PS_UNAVAILABLE);
    if (!strstr(a->text, text))
        fail_msg("%s; expected %s", a->text, text);
}

// Until a silent task has heard that a change was given up, another is refused at once.
static void test_behind_a_silent_task(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, SYNC);
    c.cut_off = 1;
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    settle(&c, 2100);
    assert_unavailable(&a, "nothing has changed");
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    assert_one_at_a_time(&a);
    assert_non_null(strstr(a.text, "ps task 1 must hear first that it is given up that learning_rate becomes 2"));
    c.cut_off = NO_TASK;
    settle(&c, 200);
    assert_int_equal(set_hyper(&c, "learning_rate", 4, 0), 4);
    cluster_close(&c);
}

// A change that is being made goes on, whoever has not heard of it; who asked for it, or for another one, is told.
// Who asks again for the same waits for the outcome.
static void test_silent_while_changing(void **state)
{
    struct cluster c;
    struct answer a, b;
    (void)state;
    open_two(&c, ASYNC);
    c.cut_off = 1;
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    set_hyper_later(&c, &b, "learning_rate", 4, 0, UINT64_MAX);
    assert_one_at_a_time(&b);
    settle(&c, 1950);
    assert_false(a.answered);
    settle(&c, 150);
    assert_unavailable(&a, "learning_rate becomes 2, and ps task 1 has not heard of it for 2.");
    set_hyper_later(&c, &b, "learning_rate", 4, 0, UINT64_MAX);
    assert_one_at_a_time(&b);
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);  // as clients do that hear UNAVAILABLE
    settle(&c, 1950);
    assert_false(a.answered);
    settle(&c, 150);
    assert_unavailable(&a, "learning_rate becomes 2, and ps task 1 has not heard of it for 4.");
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    assert_false(a.answered);
    c.cut_off = NO_TASK;
    settle(&c, 100);
    assert_int_equal(round_of(&a), 0);
    assert_int_equal(push(&c, 0, 0, 0, 1).code, PS_OK);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -2 && read_first(&c, 1) == -2);
    set_hyper(&c, "learning_rate", 4, 0);
    cluster_close(&c);
}

// Who does not wait until the end is told so; the change goes on without.
static void test_impatient(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, ASYNC);
    c.cut_off = 1;
    set_hyper_later(&c, &a, "learning_rate", 2, 0, test_time + PS_SECOND);
    settle(&c, 1200);
    assert_true(a.answered);
    assert_int_equal(a.code, PS_DEADLINE_EXCEEDED);
    c.cut_off = NO_TASK;
    settle(&c, 100);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 1) == -2);
    set_hyper(&c, "learning_rate", 4, 0);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 1) == -6);
    cluster_close(&c);
}

// The end of the job, and of the task, ends the wait.
static void test_end_of_wait(void **state)
{
    struct cluster c;
    struct answer a;
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_two(&c, SYNC);
        set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
        stop.job = (char *)"job";
        if (k)
            psd_core_drain(c.task[0].core);
        else
            assert_int_equal(ask(c.task[0].core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
        assert_true(a.answered);
        assert_int_equal(a.code, k ? PS_UNAVAILABLE : PS_ABORTED);
        cluster_close(&c);
    }
}

// More changes to come than fit: refused everywhere or nowhere.
static void test_too_many_changes(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    for (uint64_t k = 0; k < PSD_MAX_CHANGES; k++)
        assert_int_equal(set_hyper(&c, "learning_rate", 2, 1000 + k), 1000 + k);
    struct answer a = set_hyper_now(&c, "learning_rate", 3, 0);
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t round = 1; round <= 10; round++)
            assert_queued(push(&c, 0, i, round, 1), round);
    assert_true(read_first(&c, 0) == -10 && read_first(&c, 1) == -10);
    cluster_close(&c);
}

// The next run of a job, by another process, which declares it at the control task last.
static void begin_again(struct cluster *c, struct answer *declared)
{
    static uint8_t other[16] = "another process";
    other[15]++;
    c->callers[0].client.data = other;
    c->declare.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
    c->sequence[0] = 0;
    assert_int_equal(cluster_join(c, 0).code, PS_OK);
    assert_int_equal(declare_at(c, 1).code, PS_OK);
    c->declare.task = 0;
    ask_later(c->task[0].core, declared, M(DECLARE), &c->declare.base, NULL, UINT64_MAX);
}

static void run_again(struct cluster *c)
{
    struct answer declared;
    begin_again(c, &declared);
    for (int i = 0; i < 60 && !declared.answered; i++)
        settle(c, 50);
    assert_true(declared.answered && declared.code == PS_OK);
    ps_slices_clear(&declared.body);
}

// A resumed job goes on with what was changed.
static void test_resume(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 2), 2);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    leave(&c, 0);
    run_again(&c);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    assert_true(read_first(&c, 0) == -3 && read_first(&c, 1) == -2);
    assert_int_equal(set_hyper(&c, "learning_rate", 4, 2), 2);
    assert_queued(push(&c, 0, 1, 2, 1), 2);
    assert_true(read_first(&c, 1) == -6);
    cluster_close(&c);
}

// What was meant for a round that was not reached waits for the one of that number, on tasks that have closed different
// rounds alike.
static void test_resume_before_its_round(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 1), 1);
    assert_int_equal(set_hyper(&c, "learning_rate", 8, 3), 3);
    assert_int_equal(set_hyper(&c, "weight_decay", 0.5, 1000), 1000);
    assert_queued(push(&c, 0, 0, 1, 1), 1);
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    assert_queued(push(&c, 0, 1, 2, 1), 2);
    leave(&c, 0);
    run_again(&c);
    for (uint32_t i = 0; i < 2; i++) {
        const float before = i ? -4 : -2;
        assert_true(read_first(&c, i) == before);
        assert_queued(push(&c, 0, i, 1, 1), 1);
        assert_true(read_first(&c, i) == before - 2);
        assert_queued(push(&c, 0, i, 2, 1), 2);
        assert_true(read_first(&c, i) == before - 4);
        assert_queued(push(&c, 0, i, 3, 1), 3);
        assert_true(read_first(&c, i) == before - 12);
    }
    cluster_close(&c);
}

// A change that is under way when a job is resumed keeps nobody waiting, and none from being made after it.
static void test_resume_while_changing(void **state)
{
    struct cluster c;
    struct answer a, b;
    (void)state;
    open_two(&c, ASYNC);
    c.cut_off = 1;
    set_hyper_later(&c, &a, "learning_rate", 2, 0, UINT64_MAX);
    set_hyper_later(&c, &b, "learning_rate", 2, 0, UINT64_MAX);
    settle(&c, 500);
    leave(&c, 0);
    run_again(&c);
    c.cut_off = NO_TASK;
    settle(&c, 200);
    assert_true(a.answered && a.code == PS_FAILED_PRECONDITION);
    assert_true(b.answered && b.code == PS_FAILED_PRECONDITION);
    set_hyper(&c, "learning_rate", 4, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(push(&c, 0, i, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -4 && read_first(&c, 1) == -4);
    cluster_close(&c);
}

// psctl doctor compares them.
static void assert_same_changes(struct cluster *c)
{
    struct psd_job *job[2];
    for (uint32_t i = 0; i < 2; i++)
        job[i] = psd_job_find(&c->task[i].core->table, "job");
    assert_int_equal(job[0]->n_changes, job[1]->n_changes);
    for (uint32_t k = 0; k < job[0]->n_changes; k++) {
        const struct psd_change *a = &job[0]->changes[k], *b = &job[1]->changes[k];
        assert_true(a->hyper == b->hyper && a->value == b->value && a->round == b->round);
    }
    for (uint32_t i = 0; i < 2; i++)
        psd_job_unref(job[i]);
}

// A change in round `asked` (0: any) that comes to be made, and of which task 1, which is cut off, hears nothing before
// the job's end.
static void open_half_changed(struct cluster *c, Paramserver__V1__Update update, uint64_t asked)
{
    struct answer a;
    open_two(c, update);
    deliver_all(c);
    set_hyper_later(c, &a, "learning_rate", 2, asked, UINT64_MAX);
    if (update == SYNC) {
        assert_true(deliver(c));  // PREPARE
        assert_true(deliver(c));
    }
    c->cut_off = 1;
    settle(c, 2200);
    assert_unavailable(&a, "learning_rate becomes 2, and ps task 1 has not heard of it for 2.");
    leave(c, 0);
}

// Likewise; it is silent in the next run, too, and for some time in the one after that.
static void open_long_half_changed(struct cluster *c, Paramserver__V1__Update update, uint64_t asked)
{
    open_half_changed(c, update, asked);
    run_again(c);
    settle(c, 3000);
    leave(c, 0);
    run_again(c);
    settle(c, 3000);
    c->cut_off = NO_TASK;
    settle(c, 200);
    assert_same_changes(c);
}

static void describe_later(struct cluster *c, struct answer *a)
{
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    r.caller = &c->callers[0];
    r.wait = true;
    ask_later(c->task[0].core, a, M(DESCRIBE), &r.base, NULL, UINT64_MAX);
}

// Nobody trains in the next run before all tasks have that change, or one of them has been silent for two seconds:
// neither the chief, nor who waits for the declaration.
static void test_resume_waits_for_who_was_silent(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct cluster c;
        struct answer a[2];
        const bool silent = k % 2;
        open_half_changed(&c, k / 2 ? SYNC : ASYNC, 0);
        begin_again(&c, &a[0]);
        describe_later(&c, &a[1]);
        settle(&c, 1500);
        assert_false(a[0].answered || a[1].answered);
        if (!silent)
            c.cut_off = NO_TASK;
        settle(&c, silent ? 700 : 100);
        for (int i = 0; i < 2; i++) {
            assert_true(a[i].answered && a[i].code == PS_OK);
            ps_slices_clear(&a[i].body);
        }
        for (uint32_t i = 0; i < 2 && !silent; i++) {
            assert_int_equal(push(&c, 0, i, k / 2, 1).code, PS_OK);
            assert_true(read_first(&c, i) == -2);
        }
        cluster_close(&c);
    }
}

// A task that was silent when a change was made, until the job ended, hears of it in the next run, or the one after it.
static void test_resume_tells_who_was_silent(void **state)
{
    struct cluster c;
    (void)state;
    open_long_half_changed(&c, ASYNC, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(push(&c, 0, i, 0, 1).code, PS_OK);
        assert_true(read_first(&c, i) == -2);
    }
    set_hyper(&c, "learning_rate", 4, 0);
    cluster_close(&c);
    for (uint64_t asked = 0; asked <= 2; asked++) {
        open_long_half_changed(&c, SYNC, asked);
        for (uint32_t i = 0; i < 2; i++) {
            assert_queued(push(&c, 0, i, 1, 1), 1);
            assert_true(read_first(&c, i) == (asked == 2 ? -1 : -2));
            assert_queued(push(&c, 0, i, 2, 1), 2);
            assert_true(read_first(&c, i) == (asked == 2 ? -3 : -4));
        }
        set_hyper(&c, "learning_rate", 4, 3);
        cluster_close(&c);
    }
}

// A control task that has lost its state counts changes from 1 again: the others take them all the same.
static void test_resume_after_a_restart(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, ASYNC);
    for (int k = 0; k < 3; k++)
        set_hyper(&c, "learning_rate", 8, 0);
    cluster_restart(&c, 0);
    run_again(&c);
    set_hyper(&c, "learning_rate", 2, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(push(&c, 0, i, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 0) == -2 && read_first(&c, 1) == -2);
    cluster_close(&c);
}

// ---- one task's part of a change ----------------------------------------------------------------------------------

typedef Paramserver__V1__AgreeRequest__Phase phase_t;
#define PREPARE PARAMSERVER__V1__AGREE_REQUEST__PHASE__PREPARE
#define COMMIT PARAMSERVER__V1__AGREE_REQUEST__PHASE__COMMIT
#define FORGET PARAMSERVER__V1__AGREE_REQUEST__PHASE__FORGET

struct prepared {
    enum ps_code code;
    char text[512];
    bool prepared;
    uint64_t round;
};

// The value of a proposal of kind HYPER.
static ProtobufCBinaryData hyper_value(uint8_t *space, const char *name, double value)
{
    memcpy(space, &value, sizeof value);
    memcpy(space + sizeof value, name, strlen(name));
    return (ProtobufCBinaryData){sizeof value + strlen(name), space};
}

static struct prepared prepare(struct cluster *c, phase_t phase, uint64_t change, uint64_t round, double value)
{
    Paramserver__V1__AgreeRequest r = PARAMSERVER__V1__AGREE_REQUEST__INIT;
    uint8_t space[64];
    ProtobufCMessage *reply = NULL;
    struct prepared out = {PS_OK};
    r.job = (char *)"job";
    r.run = c->run;
    r.phase = phase;
    r.number = change;
    r.round = round;
    r.kind = PARAMSERVER__V1__AGREE_KIND__HYPER;
    r.value = hyper_value(space, "learning_rate", value);
    struct answer a =
        ask(c->task[1].core, M(AGREE), &r.base, NULL, &paramserver__v1__agree_reply__descriptor, &reply, NULL);
    out.code = a.code;
    memcpy(out.text, a.text, sizeof out.text);
    if (reply) {
        out.prepared = ((Paramserver__V1__AgreeReply *)reply)->prepared;
        out.round = ((Paramserver__V1__AgreeReply *)reply)->round;
    }
    ps_msg_free(reply);
    return out;
}

static void assert_prepared(struct prepared p, bool yes, uint64_t round)
{
    if (p.code)
        fail_msg("agree: %s", p.text);
    assert_int_equal(p.prepared, yes);
    assert_int_equal(p.round, round);
}

// Messages come twice, late, and after what should follow them.
static void test_prepare(void **state)
{
    struct cluster c;
    (void)state;
    open_two(&c, SYNC);
    assert_prepared(prepare(&c, PREPARE, 1, 2, 4), true, 0);
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    assert_queued(push(&c, 0, 1, 2, 1), 2);
    assert_true(read_first(&c, 1) == -1);
    assert_prepared(prepare(&c, PREPARE, 1, 2, 4), true, 1);
    assert_int_equal(prepare(&c, COMMIT, 2, 2, 4).code, PS_FAILED_PRECONDITION);
    assert_true(read_first(&c, 1) == -1);
    assert_int_equal(prepare(&c, COMMIT, 1, 2, 4).code, PS_OK);
    assert_true(read_first(&c, 1) == -5);
    assert_int_equal(prepare(&c, COMMIT, 1, 2, 4).code, PS_OK);
    assert_prepared(prepare(&c, PREPARE, 1, 9, 4), false, 2);
    assert_prepared(prepare(&c, PREPARE, 2, 2, 7), false, 2);  // closed
    assert_int_equal(prepare(&c, FORGET, 4, 5, 7).code, PS_OK);
    assert_prepared(prepare(&c, PREPARE, 4, 5, 7), false, 2);  // its end came first
    assert_prepared(prepare(&c, PREPARE, 5, 3, 7), true, 2);
    assert_queued(push(&c, 0, 1, 3, 1), 3);
    assert_true(read_first(&c, 1) == -5);
    assert_int_equal(prepare(&c, FORGET, 4, 5, 7).code, PS_OK);  // of an earlier one: this is held still
    assert_true(read_first(&c, 1) == -5);
    assert_int_equal(prepare(&c, FORGET, 5, 3, 7).code, PS_OK);
    assert_true(read_first(&c, 1) == -9);
    cluster_close(&c);
}

// A round that waits for its norm is too late to change.
static void test_prepare_while_awaiting(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 2};
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, &w, 1);
    job_hyper(&c, "clipnorm", 1);
    cluster_start(&c);
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    assert_prepared(prepare(&c, PREPARE, 1, 1, 4), false, 1);
    assert_prepared(prepare(&c, PREPARE, 2, 2, 4), true, 1);
    cluster_close(&c);
}

// A PREPARE that the control task knows nothing of holds rounds for seconds, not for ever; who waits is told for what.
static void test_prepared_by_nobody(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, SYNC);
    assert_prepared(prepare(&c, PREPARE, 1000, 1, 4), true, 0);
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    pull_later(&c, &a, 1, 1, 1, test_time + PS_SECOND);
    settle(&c, 1100);
    assert_true(a.answered && a.code == PS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(a.text, "for ps task 0, to say whether learning_rate becomes 4"));
    settle(&c, 2000);
    assert_true(read_first(&c, 1) == -1);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 2), 2);  // the number of nobody is not counted
    assert_queued(push(&c, 0, 1, 2, 1), 2);
    assert_true(read_first(&c, 1) == -3);
    cluster_close(&c);
}

// A task whose COMMIT was lost asks, and hears that the change is made.
static void test_inquiry_hears_commit(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, SYNC);
    set_hyper_later(&c, &a, "learning_rate", 2, 1, UINT64_MAX);
    while (c.task[0].core->table.newest->agree->lead.phase == PREPARE)
        assert_true(deliver(&c));
    c.cut_off = 1;  // no COMMIT reaches it, what it sends itself does
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    settle(&c, 2400);
    assert_true(read_first(&c, 1) == 0);  // held
    settle(&c, 300);
    assert_true(read_first(&c, 1) == -2);
    ps_slices_clear(&a.body);
    cluster_close(&c);
}

// The control task has stopped over a change that not all have prepared: who asks goes on holding its rounds.
static void test_inquiry_before_the_decision(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_two(&c, SYNC);
    set_hyper_later(&c, &a, "learning_rate", 2, 1, UINT64_MAX);
    while (!c.task[1].core->table.newest->agree->prepared.number)
        assert_true(deliver(&c));
    c.cut_off = 1;
    assert_queued(push(&c, 0, 1, 1, 1), 1);
    test_time += PSD_INQUIRE_AFTER_MS * PS_MS;
    psd_core_tick(c.task[1].core);
    deliver_all(&c);
    assert_int_equal(c.task[0].core->table.newest->agree->lead.phase, PREPARE);
    assert_int_equal(c.task[1].core->table.newest->agree->prepared.number, 1);
    assert_true(read_first(&c, 1) == 0);
    c.cut_off = NO_TASK;
    settle(&c, 2000);
    assert_true(a.answered);
    assert_true(read_first(&c, 1) == (a.code == PS_OK ? -2 : -1));
    ps_slices_clear(&a.body);
    cluster_close(&c);
}

// What becomes of one change says nothing about another.
static void test_inquiry_about_another(void **state)
{
    struct cluster c;
    struct answer a;
    uint64_t round, newest;
    (void)state;
    open_two(&c, SYNC);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 1), 1);
    const struct psd_job *job = c.task[0].core->table.newest;
    const uint64_t number = job->agree->lead.p.number;
    set_hyper_later(&c, &a, "learning_rate", 4, 2, UINT64_MAX);
    assert_int_equal(psd_agree_decision(job, number + 1, &round, &newest), PREPARE);
    assert_true(newest == number + 1 && round == 2);
    assert_int_equal(psd_agree_decision(job, number, &round, &newest), FORGET);
    assert_int_equal(psd_agree_decision(job, number + 2, &round, &newest), FORGET);
    settle(&c, 200);
    assert_true(a.answered);
    ps_slices_clear(&a.body);
    cluster_close(&c);
}

// ---- rounds that begin and end ------------------------------------------------------------------------------------

static enum ps_code set_mode(struct cluster *c, Paramserver__V1__Update update, const char *text)
{
    Paramserver__V1__SetModeRequest r = PARAMSERVER__V1__SET_MODE_REQUEST__INIT;
    struct answer a;
    r.job = (char *)"job";
    r.update = update;
    ask_later(c->task[0].core, &a, M(SET_MODE), &r.base, NULL, UINT64_MAX);
    settle(c, 200);
    assert_true(a.answered);
    ps_slices_clear(&a.body);
    assert_true(!text || strstr(a.text, text));
    return a.code;
}

// The only worker asks for what it trains next: of an epoch of 10 examples, all at once.
static void ask_share(struct cluster *c, struct answer *a, uint64_t sequence, uint64_t epoch)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = c->callers[0];
    caller.sequence = sequence;
    r.caller = &caller;
    r.epoch = epoch;
    r.examples = r.want = 10;
    ask_later(c->task[0].core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
    settle(c, 200);
}

static Paramserver__V1__LeaseReply share_in(struct answer *a)
{
    ProtobufCMessage *m = NULL;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    if (!a->answered || a->code)
        fail_msg("lease: %s", a->answered ? a->text : "not answered");
    assert_int_equal(ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, &a->body, &m, &nothing, NULL), PS_OK);
    const Paramserver__V1__LeaseReply share = *(Paramserver__V1__LeaseReply *)m;
    ps_slices_clear(&a->body);
    ps_msg_free(m);
    return share;
}

static void open_following(struct cluster *c, Paramserver__V1__Update update)
{
    struct answer a;
    open_two(c, update);
    c->task[0].core->table.newest->control->follows_mode = true;
    ask_share(c, &a, 1000, 0);
    assert_int_equal(share_in(&a).count, 10);
}

static bool all_in_rounds(const struct cluster *c, bool rounds)
{
    for (uint32_t i = 0; i < c->tasks; i++)
        if (psd_job_is_sync(c->task[i].core->table.newest) != rounds)
            return false;
    return true;
}

// All tasks have room, or none keeps any; then all are in the same round before anybody trains in it. Where they are
// refused, a mode without rounds waits for no other change.
static void test_rounds_begin_on_all_tasks(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_following(&c, ASYNC);
    struct psd_pool *pool = &c.task[1].core->pool;
    const struct psd_job *other = c.task[0].core->table.newest;
    const size_t limit = pool->limit;
    pool->limit = psd_pool_used(pool);
    assert_int_equal(set_mode(&c, SYNC, "set mode: ps task 1 lacks "), PS_RESOURCE_EXHAUSTED);
    assert_true(!other->keeps_rounds && other->rounds_room == 0);
    pool->limit = limit;
    struct answer changed;
    c.cut_off = 1;
    set_hyper_later(&c, &changed, "learning_rate", 1, 0, UINT64_MAX);
    assert_int_equal(set_mode(&c, SSP, NULL), PS_OK);
    assert_false(changed.answered);
    c.cut_off = NO_TASK;
    settle(&c, 3000);
    assert_int_equal(round_of(&changed), 0);
    assert_int_equal(set_mode(&c, SYNC, NULL), PS_OK);
    assert_true(other->keeps_rounds && other->rounds_room > 0);
    assert_true(all_in_rounds(&c, false));
    ask_share(&c, &a, 1001, 0);
    assert_int_equal(share_in(&a).count, 0);
    c.cut_off = 1;
    ask_share(&c, &a, 1002, 1);
    assert_false(a.answered);
    c.cut_off = NO_TASK;
    settle(&c, 5000);
    assert_int_equal(share_in(&a).update, SYNC);
    assert_true(all_in_rounds(&c, true));
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 0, i, 1, 1), 1);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == -1 && read_first(&c, 1) == -1);
    cluster_close(&c);
}

// A round whose norm is not known yet is not given up.
static void test_rounds_end_when_all_are_closed(void **state)
{
    struct cluster c;
    struct answer a;
    const struct variable w = {"w", 4, 2};
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, &w, 1);
    c.declare.update = SYNC;
    job_hyper(&c, "learning_rate", 1);
    job_hyper(&c, "clipnorm", 1e6);
    cluster_start(&c);
    c.task[0].core->table.newest->control->follows_mode = true;
    ask_share(&c, &a, 1000, 0);
    assert_int_equal(share_in(&a).count, 10);
    assert_int_equal(set_mode(&c, ASYNC, NULL), PS_OK);
    c.cut_off = 0;
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 0, i, 1, 1), 1);
    ask_share(&c, &a, 1001, 0);
    assert_int_equal(share_in(&a).count, 0);
    ask_share(&c, &a, 1002, 1);
    assert_false(a.answered);
    assert_true(all_in_rounds(&c, true));
    c.cut_off = NO_TASK;
    settle(&c, 3000);
    assert_int_equal(share_in(&a).update, ASYNC);
    assert_true(all_in_rounds(&c, false));
    assert_true(read_first(&c, 0) == -1 && read_first(&c, 1) == -1);
    cluster_close(&c);
}

// A job that was declared async trains an epoch and is then set to sync.
static void come_to_rounds(struct cluster *c)
{
    struct answer a;
    c->task[0].core->table.newest->control->follows_mode = true;
    for (uint64_t sequence = 1000; sequence < 1003; sequence++) {
        ask_share(c, &a, sequence, sequence == 1002);
        assert_int_equal(share_in(&a).count, sequence == 1001 ? 0 : 10);
        if (sequence == 1000)
            assert_int_equal(set_mode(c, SYNC, NULL), PS_OK);
    }
    assert_true(all_in_rounds(c, true));
}

// Two rounds, clipped to -3 and -4; `due`: and one whose norm is not known when the run ends.
static void clipped_run(struct cluster *c, bool due)
{
    const float before[] = {read_first(c, 0), read_first(c, 1)};
    come_to_rounds(c);
    for (uint64_t round = 1; round <= 2; round++) {
        assert_queued(push(c, 0, 0, round, 6), round);
        assert_queued(push(c, 0, 1, round, 8), round);
        deliver_all(c);
    }
    assert_true(read_first(c, 0) == before[0] - 6 && read_first(c, 1) == before[1] - 8);
    if (!due)
        return;
    c->cut_off = 0;
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(c, 0, i, 3, 100), 3);
    deliver_all(c);
    c->cut_off = NO_TASK;
}

// The norms of a run are its own, also where the job was declared async and each run is set to sync.
static void test_norms_of_set_mode(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 2, 2};
    (void)state;
    for (int due = 0; due < 2; due++) {
        cluster_open(&c, 2, 1, MEMORY, &w, 1);
        c.declare.update = ASYNC;
        job_hyper(&c, "learning_rate", 1);
        job_hyper(&c, "clipnorm", 5);
        cluster_start(&c);
        clipped_run(&c, due);
        leave(&c, 0);
        run_again(&c);
        assert_true(all_in_rounds(&c, false));
        clipped_run(&c, false);
        cluster_close(&c);
    }
}

// Whose COMMIT is lost asks, and leaves its rounds, too; nobody trains before. What was changed in a round holds on.
static void test_rounds_end_where_commit_is_lost(void **state)
{
    struct cluster c;
    struct answer a;
    (void)state;
    open_following(&c, SYNC);
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 0, i, 1, 1), 1);
    settle(&c, 200);
    set_hyper(&c, "learning_rate", 4, 2);
    set_hyper(&c, "learning_rate", 8, 100);
    for (uint32_t i = 0; i < 2; i++)
        assert_queued(push(&c, 0, i, 2, 1), 2);
    settle(&c, 200);
    assert_true(read_first(&c, 0) == -5 && read_first(&c, 1) == -5);
    assert_int_equal(set_mode(&c, ASYNC, NULL), PS_OK);
    ask_share(&c, &a, 1001, 0);
    assert_int_equal(share_in(&a).count, 0);
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = c.callers[0];
    caller.sequence = 1002;
    r.caller = &caller;
    r.epoch = 1;
    r.examples = r.want = 10;
    r.round = 2;
    ask_later(c.task[0].core, &a, M(LEASE), &r.base, NULL, UINT64_MAX);
    while (c.task[0].core->table.newest->agree->lead.phase == PREPARE)
        assert_true(deliver(&c));
    c.cut_off = 1;  // no COMMIT reaches it, what it sends itself does
    settle(&c, 2400);
    assert_true(psd_job_is_sync(c.task[1].core->table.newest));
    assert_false(a.answered);
    settle(&c, 300);
    assert_true(all_in_rounds(&c, false));
    assert_false(a.answered);  // the control task has not heard that
    c.cut_off = NO_TASK;
    settle(&c, 2000);
    assert_int_equal(share_in(&a).update, ASYNC);
    for (uint32_t i = 0; i < 2; i++)
        push(&c, 0, i, 0, 1);
    assert_true(read_first(&c, 0) == -9 && read_first(&c, 1) == -9);
    assert_int_equal(c.task[1].core->table.newest->n_changes, 2);  // one of them is for round 100
    cluster_close(&c);
}

// At the end of the last epoch in rounds a rate is changed: it holds, whether it is for the round that would have been
// the next or for any. What is meant for a later round waits for it.
static void test_changes_outlive_rounds(void **state)
{
    static const struct {
        double rate;
        uint64_t asked;
        float first;
    } cases[] = {{2, 3, -4}, {4, 0, -6}, {8, 4, -3}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct cluster c;
        struct answer a;
        open_following(&c, SYNC);
        for (uint64_t round = 1; round <= 2; round++) {
            for (uint32_t i = 0; i < 2; i++)
                assert_queued(push(&c, 0, i, round, 1), round);
            settle(&c, 200);
        }
        assert_int_equal(set_mode(&c, ASYNC, NULL), PS_OK);
        ask_share(&c, &a, 1001, 0);
        assert_int_equal(share_in(&a).count, 0);
        assert_true(set_hyper(&c, "learning_rate", cases[k].rate, cases[k].asked) > 2);
        ask_share(&c, &a, 1002, 1);
        settle(&c, 2000);
        assert_int_equal(share_in(&a).update, ASYNC);
        for (uint32_t i = 0; i < 2; i++)
            push(&c, 0, i, 0, 1);
        assert_true(read_first(&c, 0) == cases[k].first && read_first(&c, 1) == cases[k].first);
        cluster_close(&c);
    }
}

// ---- another kind of change ---------------------------------------------------------------------------------------

// It counts on how many tasks it was taken for which round. Its value: the round after which it is refused.
enum { DUMMY = 2 };
static uint64_t dummy_taken[4];
static bool dummy_has_room = true;

static enum ps_code dummy_check(const struct psd_job *job, const struct psd_proposal *p, struct ps_error *e)
{
    (void)job;
    return p->bytes == 1 ? PS_OK : ps_fail(e, PS_INVALID_ARGUMENT, "expected one byte");
}

static enum ps_code dummy_reserve(struct psd_job *job, const struct psd_proposal *p, uint64_t least, uint64_t *missing)
{
    (void)job, (void)p, (void)least, (void)missing;
    return dummy_has_room ? PS_OK : PS_RESOURCE_EXHAUSTED;
}

static void dummy_take(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    (void)job, (void)ready;
    dummy_taken[p->value[0]] += p->round;
}

static void dummy_describe(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size)
{
    (void)job;
    snprintf(text, size, "dummy %d is", p->value[0]);
}

static const struct psd_agree_kind dummy = {
    .name = "dummy", .check = dummy_check, .reserve = dummy_reserve, .take = dummy_take, .describe = dummy_describe};
static const struct psd_agree_kind *const two_kinds[] = {NULL, &psd_agree_hyper, &dummy};

static int propose(struct cluster *c, uint8_t value, uint64_t asked, bool was_parked, struct ps_error *e)
{
    struct psd_core *core = c->task[0].core;
    struct psd_proposal p = {.kind = DUMMY, .bytes = 1, .value = {value}};
    struct psd_call *ready = NULL;
    uint64_t round = 0;
    pthread_mutex_lock(&core->table.newest->lock);
    int code = psd_agree_propose(core->table.newest, &p, asked, 0, was_parked, &round, e);
    pthread_mutex_unlock(&core->table.newest->lock);
    psd_agree_go_on(core->table.newest, &ready);
    assert_null(ready);
    return code == PS_OK ? (int)round : -code;
}

// Agreement does not look at what it is about: a second kind goes through the same phases, and is taken by all or none.
static void test_another_kind(void **state)
{
    struct cluster c;
    struct ps_error e = {0};
    (void)state;
    open_two(&c, SYNC);
    memset(dummy_taken, 0, sizeof dummy_taken);
    for (uint32_t i = 0; i < 2; i++)
        c.task[i].core->table.newest->agree->kinds = (struct psd_agree_kinds){two_kinds, 3};
    assert_int_equal(propose(&c, 1, 3, false, &e), -PSD_WAITS);
    assert_int_equal(propose(&c, 2, 3, false, &e), -PS_ABORTED);
    settle(&c, 200);
    assert_int_equal(propose(&c, 1, 3, true, &e), 3);
    assert_true(dummy_taken[1] == 6 && dummy_taken[2] == 0);
    dummy_has_room = false;
    assert_int_equal(propose(&c, 3, 4, false, &e), -PSD_WAITS);
    settle(&c, 200);
    assert_int_equal(propose(&c, 3, 4, true, &e), -PS_RESOURCE_EXHAUSTED);
    dummy_has_room = true;
    assert_true(dummy_taken[3] == 0);
    for (uint32_t i = 0; i < 2; i++)
        for (uint64_t round = 1; round <= 5; round++)  // nothing is held
            assert_queued(push(&c, 0, i, round, 1), round);
    assert_true(read_first(&c, 0) == -5 && read_first(&c, 1) == -5);
    cluster_close(&c);
}

// ---- what is refused ----------------------------------------------------------------------------------------------

struct bad_declaration {
    const char *what;
    void (*spoil)(struct cluster *c);
    enum ps_code code;
    const char *text;
};

static Paramserver__V1__Schedule schedule;

static void bad_update(struct cluster *c)
{
    c->declare.update = (Paramserver__V1__Update)4;
}
static void stale_sync(struct cluster *c)
{
    c->declare.staleness = 3;
}
static void backup_async(struct cluster *c)
{
    c->declare.update = ASYNC;
    c->declare.replicas_to_aggregate = 1;
}
static void grace_for_nobody(struct cluster *c)
{
    c->declare.update = PARAMSERVER__V1__UPDATE__SYNC;
    c->declare.grace_ms = 300;
}

static void endless_grace(struct cluster *c)
{
    c->declare.update = PARAMSERVER__V1__UPDATE__SYNC;
    c->declare.replicas_to_aggregate = 1;
    c->declare.grace_ms = PSD_GRACE_MS_MAX + 1;
}

static void many_replicas(struct cluster *c)
{
    c->declare.replicas_to_aggregate = 3;
}
static void no_rule(struct cluster *c)
{
    c->v[1].rule = (char *)"sdg";
}
static void rule_of_ints(struct cluster *c)
{
    c->v[1].rule = (char *)"ema";
    c->v[1].dtype = PARAMSERVER__V1__DTYPE__INT64;
}
static void hyper(struct cluster *c, uint32_t i, const char *name, double value)
{
    paramserver__v1__hyper__init(c->hs[i][0] = &c->h[i][0]);
    c->h[i][0].name = (char *)name;
    c->h[i][0].value = value;
    c->v[i].n_hypers = 1;
}
static void hypers_without_rule(struct cluster *c)
{
    hyper(c, 1, "learning_rate", 1);
}
static void unknown_hyper(struct cluster *c)
{
    hyper(c, 0, "learnig_rate", 1);
}
static void hyper_out_of_range(struct cluster *c)
{
    hyper(c, 0, "learning_rate", -1);
}
static void model_of_variable(struct cluster *c)
{
    hyper(c, 0, "global_clipnorm", 1);
}
static void clipped_twice(struct cluster *c)
{
    job_hyper(c, "global_clipnorm", 1);
    hyper(c, 0, "clipnorm", 1);
}
static void job_clipped_twice(struct cluster *c)
{
    job_hyper(c, "global_clipnorm", 1);
    job_hyper(c, "clipvalue", 1);
}
static void with_schedule(struct cluster *c, const char *kind)
{
    paramserver__v1__schedule__init(&schedule);
    schedule.kind = (char *)kind;
    schedule.initial = 1;
    c->declare.schedule = &schedule;
}
static void unknown_schedule(struct cluster *c)
{
    with_schedule(c, "cosin");
}
static void no_steps(struct cluster *c)
{
    with_schedule(c, "cosine");
}
static void values_of_constant(struct cluster *c)
{
    static double value = 1;
    with_schedule(c, "constant");
    schedule.values = &value;
    schedule.n_values = 1;
}
static void few_values(struct cluster *c)
{
    static uint64_t boundaries[] = {1, 2};
    static double values[] = {1, 2};
    with_schedule(c, "piecewise");
    schedule.boundaries = boundaries;
    schedule.values = values;
    schedule.n_boundaries = schedule.n_values = 2;
}
static void many_boundaries(struct cluster *c)
{
    static uint64_t boundaries[PS_SCHEDULE_MAX_BOUNDARIES + 1];
    static double values[PS_SCHEDULE_MAX_BOUNDARIES + 2];
    with_schedule(c, "piecewise");
    schedule.boundaries = boundaries;
    schedule.values = values;
    schedule.n_boundaries = PS_SCHEDULE_MAX_BOUNDARIES + 1;
    schedule.n_values = PS_SCHEDULE_MAX_BOUNDARIES + 2;
}
static void schedule_of_nothing(struct cluster *c)
{
    with_schedule(c, "constant");
    c->declare.rule = (char *)"assign_add";
}

static const struct bad_declaration bad_declarations[] = {
    {"update 4", bad_update, PS_INVALID_ARGUMENT, "update is 4; expected async, sync or ssp"},
    {"staleness in sync", stale_sync, PS_INVALID_ARGUMENT, "for ssp jobs alone"},
    {"replicas in async", backup_async, PS_INVALID_ARGUMENT, "for sync jobs alone"},
    {"grace for nobody", grace_for_nobody, PS_INVALID_ARGUMENT, "300 ms of grace without replicas to aggregate"},
    {"endless grace", endless_grace, PS_INVALID_ARGUMENT, "86400001 ms of grace; expected at most 86400000"},
    {"more replicas than workers", many_replicas, PS_INVALID_ARGUMENT, "3 replicas to aggregate of 2 workers"},
    {"a rule that is none", no_rule, PS_INVALID_ARGUMENT, "variable 'mean': no update rule is named 'sdg'"},
    {"a rule of integers", rule_of_ints, PS_INVALID_ARGUMENT, "one with a rule must be float32"},
    {"hypers without a rule", hypers_without_rule, PS_INVALID_ARGUMENT, "no rule that they are for"},
    {"unknown hyper", unknown_hyper, PS_INVALID_ARGUMENT, "did you mean \"learning_rate\"?"},
    {"hyper out of range", hyper_out_of_range, PS_INVALID_ARGUMENT, "must lie between"},
    {"global_clipnorm of a variable", model_of_variable, PS_INVALID_ARGUMENT, "of the whole job"},
    {"a variable clipped twice", clipped_twice, PS_INVALID_ARGUMENT, "clip"},
    {"clipped twice", job_clipped_twice, PS_INVALID_ARGUMENT, "clip"},
    {"unknown schedule", unknown_schedule, PS_INVALID_ARGUMENT, "no schedule is named 'cosin'"},
    {"schedule without steps", no_steps, PS_INVALID_ARGUMENT, "decay_steps"},
    {"values of a constant", values_of_constant, PS_INVALID_ARGUMENT, "expected neither"},
    {"too few values", few_values, PS_INVALID_ARGUMENT, "2 boundaries and 2 values"},
    {"too many boundaries", many_boundaries, PS_INVALID_ARGUMENT, "at most 32 boundaries"},
    {"schedule of no learning rate", schedule_of_nothing, PS_INVALID_ARGUMENT, "has no learning rate"},
};

static void test_bad_declarations(void **state)
{
    static const struct variable v[] = {{"w", 4, 1}, {"mean", 4, 1, true}};
    (void)state;
    for (size_t i = 0; i < sizeof bad_declarations / sizeof bad_declarations[0]; i++) {
        const struct bad_declaration *bad = &bad_declarations[i];
        struct cluster c;
        cluster_open(&c, 1, 2, MEMORY, v, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(cluster_join(&c, rank).code, PS_OK);
        bad->spoil(&c);
        struct answer a = declare_at(&c, 0);
        if (a.code != bad->code || !strstr(a.text, bad->text))
            fail_msg("%s: %s \"%s\"", bad->what, ps_code_name(a.code), a.text);
        cluster_close(&c);
    }
}

// What differs makes another declaration.
static void test_digest(void **state)
{
    static const struct variable v[] = {{"w", 4, 1}, {"mean", 4, 1, true, "ema", {{"momentum", 0.5}}}};
    static Paramserver__V1__Schedule constant = PARAMSERVER__V1__SCHEDULE__INIT,
                                     other = PARAMSERVER__V1__SCHEDULE__INIT;
    struct cluster c;
    uint64_t digest[6];
    (void)state;
    cluster_open(&c, 1, 2, MEMORY, v, 2);
    digest[0] = psd_declaration_digest(&c.declare);
    c.h[1][0].value = 0.25;
    digest[1] = psd_declaration_digest(&c.declare);
    c.v[1].rule = (char *)"sgd";
    digest[2] = psd_declaration_digest(&c.declare);
    c.declare.replicas_to_aggregate = 1;
    digest[3] = psd_declaration_digest(&c.declare);
    constant.kind = other.kind = (char *)"constant";
    constant.initial = 1;
    c.declare.schedule = &constant;
    digest[4] = psd_declaration_digest(&c.declare);
    c.declare.schedule = &other;
    digest[5] = psd_declaration_digest(&c.declare);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < i; k++)
            assert_true(digest[i] != digest[k]);
    cluster_close(&c);
}

// A schedule with each field of the message set, each number to a value of its own.
static Paramserver__V1__Schedule schedule_of_all_fields(void)
{
    static uint64_t boundary = 3;
    static double values[] = {1, 2};
    const ProtobufCMessageDescriptor *d = &paramserver__v1__schedule__descriptor;
    Paramserver__V1__Schedule s = PARAMSERVER__V1__SCHEDULE__INIT;
    for (unsigned i = 0; i < d->n_fields; i++) {
        char *at = (char *)&s + d->fields[i].offset;
        if (d->fields[i].label == PROTOBUF_C_LABEL_REPEATED)
            continue;
        if (d->fields[i].type == PROTOBUF_C_TYPE_DOUBLE)
            *(double *)at = 1 + i / 16.0;
        else if (d->fields[i].type == PROTOBUF_C_TYPE_UINT64)
            *(uint64_t *)at = 100 + i;
        else if (d->fields[i].type == PROTOBUF_C_TYPE_BOOL)
            *(protobuf_c_boolean *)at = 1;
    }
    s.kind = (char *)"polynomial";
    s.boundaries = &boundary;
    s.n_boundaries = 1;
    s.values = values;
    s.n_values = 2;
    return s;
}

// Each field of a schedule, set to 0, makes another declaration.
static void test_digest_of_schedule(void **state)
{
    const ProtobufCMessageDescriptor *d = &paramserver__v1__schedule__descriptor;
    Paramserver__V1__DeclareRequest r = PARAMSERVER__V1__DECLARE_REQUEST__INIT;
    Paramserver__V1__Schedule s = schedule_of_all_fields();
    (void)state;
    r.schedule = &s;
    uint64_t whole = psd_declaration_digest(&r);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        s = schedule_of_all_fields();
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            *(size_t *)((char *)&s + f->quantifier_offset) = 0;
        else if (f->type == PROTOBUF_C_TYPE_STRING)
            s.kind = (char *)"cosine";
        else
            memset((char *)&s + f->offset, 0, f->type == PROTOBUF_C_TYPE_BOOL ? sizeof(protobuf_c_boolean) : 8);
        if (psd_declaration_digest(&r) == whole)
            fail_msg("%s of a schedule is not in the digest", f->name);
    }
}

static const struct {
    const char *what, *name;
    double value;
    uint64_t round;
    uint32_t task;
    enum ps_code code;
    const char *text;
} bad_hypers[] = {
    {"unknown", "learnig_rate", 1, 0, 0, PS_INVALID_ARGUMENT, "did you mean \"learning_rate\"?"},
    {"out of range", "learning_rate", -1, 0, 0, PS_INVALID_ARGUMENT, "must lie between"},
    {"no number", "learning_rate", NAN, 0, 0, PS_INVALID_ARGUMENT, "must lie between"},
    {"clipped twice", "clipvalue", 1, 0, 0, PS_INVALID_ARGUMENT, "clip"},
    {"elsewhere", "learning_rate", 1, 0, 1, PS_FAILED_PRECONDITION, "changed at task 0"},
};

static void test_bad_set_hyper(void **state)
{
    struct cluster c;
    const struct variable w = {"w", 4, 2};
    Paramserver__V1__SetHyperRequest r = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, &w, 1);
    job_hyper(&c, "clipnorm", 1);
    assert_int_equal(cluster_join(&c, 0).code, PS_OK);
    r.job = (char *)"job";
    r.name = (char *)"learning_rate";
    r.value = 1;
    assert_int_equal(ask(c.task[0].core, M(SET_HYPER), &r.base, NULL, NULL, NULL, NULL).code, PS_FAILED_PRECONDITION);
    for (uint32_t i = 2; i--;)
        assert_int_equal(declare_at(&c, i).code, PS_OK);
    deliver_all(&c);
    for (size_t i = 0; i < sizeof bad_hypers / sizeof bad_hypers[0]; i++) {
        r.name = (char *)bad_hypers[i].name;
        r.value = bad_hypers[i].value;
        r.round = bad_hypers[i].round;
        struct answer a = ask(c.task[bad_hypers[i].task].core, M(SET_HYPER), &r.base, NULL, NULL, NULL, NULL);
        if (a.code != bad_hypers[i].code || !strstr(a.text, bad_hypers[i].text))
            fail_msg("%s: %s \"%s\"", bad_hypers[i].what, ps_code_name(a.code), a.text);
    }
    r.job = (char *)"another";
    assert_int_equal(ask(c.task[0].core, M(SET_HYPER), &r.base, NULL, NULL, NULL, NULL).code, PS_NOT_FOUND);
    assert_int_equal(c.n_mail, 0);
    cluster_close(&c);
    open_two(&c, ASYNC);
    struct answer a = set_hyper_now(&c, "learning_rate", 1, 3);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_non_null(strstr(a.text, "it has no rounds"));
    cluster_close(&c);
}

static const struct {
    const char *what, *job;
    uint64_t other_run;  // added to that of the job
    const char *name;
    uint64_t change, round;
    int phase;
    uint32_t task;
    enum ps_code code;
} bad_prepares[] = {
    {"another job", "another", 0, "learning_rate", 1, 5, PREPARE, 1, PS_NOT_FOUND},
    {"another run", "job", 1, "learning_rate", 1, 5, PREPARE, 1, PS_FAILED_PRECONDITION},
    {"at the control task", "job", 0, "learning_rate", 1, 5, PREPARE, 0, PS_FAILED_PRECONDITION},
    {"no phase", "job", 0, "learning_rate", 1, 5, 0, 1, PS_INVALID_ARGUMENT},
    {"phase 5", "job", 0, "learning_rate", 1, 5, 5, 1, PS_INVALID_ARGUMENT},
    {"an inquiry elsewhere", "job", 0, "learning_rate", 1, 5, 4, 1, PS_FAILED_PRECONDITION},
    {"change 0", "job", 0, "learning_rate", 0, 5, PREPARE, 1, PS_INVALID_ARGUMENT},
    {"no round", "job", 0, "learning_rate", 1, 0, PREPARE, 1, PS_INVALID_ARGUMENT},
    {"no hyperparameter", "job", 0, "rate", 1, 5, PREPARE, 1, PS_INVALID_ARGUMENT},
};

static void test_bad_proposals(void **state)
{
    struct cluster c;
    Paramserver__V1__AgreeRequest r = PARAMSERVER__V1__AGREE_REQUEST__INIT;
    uint8_t space[64];
    (void)state;
    open_two(&c, SYNC);
    for (size_t i = 0; i < sizeof bad_prepares / sizeof bad_prepares[0]; i++) {
        r.job = (char *)bad_prepares[i].job;
        r.run = c.run + bad_prepares[i].other_run;
        r.kind = PARAMSERVER__V1__AGREE_KIND__HYPER;
        r.value = hyper_value(space, bad_prepares[i].name, 1);
        r.number = bad_prepares[i].change;
        r.round = bad_prepares[i].round;
        r.phase = (phase_t)bad_prepares[i].phase;
        struct answer a = ask(c.task[bad_prepares[i].task].core, M(AGREE), &r.base, NULL, NULL, NULL, NULL);
        if (a.code != bad_prepares[i].code)
            fail_msg("%s: %s \"%s\"", bad_prepares[i].what, ps_code_name(a.code), a.text);
    }
    for (uint64_t round = 1; round <= 6; round++)  // nothing is held
        assert_queued(push(&c, 0, 1, round, 1), round);
    assert_true(read_first(&c, 1) == -6);
    cluster_close(&c);
    open_two(&c, ASYNC);
    assert_int_equal(prepare(&c, PREPARE, 1, 1, 1).code, PS_INVALID_ARGUMENT);
    assert_int_equal(prepare(&c, COMMIT, 1, 1, 1).code, PS_INVALID_ARGUMENT);
    cluster_close(&c);
}

static const struct {
    const char *what, *job;
    uint64_t other_run;  // added to that of the job
    uint64_t round;
    uint32_t partition;
    double sum;
    size_t n_partitions, n_sums;
    uint32_t task;
    enum ps_code code;
} bad_sums[] = {
    {"another job", "another", 0, 1, 1, 1, 1, 1, 0, PS_NOT_FOUND},
    {"another run", "job", 1, 1, 1, 1, 1, 1, 0, PS_FAILED_PRECONDITION},
    {"not at the control task", "job", 0, 1, 1, 1, 1, 1, 1, PS_FAILED_PRECONDITION},
    {"round 0", "job", 0, 0, 1, 1, 1, 1, 0, PS_INVALID_ARGUMENT},
    {"no partitions", "job", 0, 1, 1, 1, 0, 0, 0, PS_INVALID_ARGUMENT},
    {"no sums", "job", 0, 1, 1, 1, 1, 0, 0, PS_INVALID_ARGUMENT},
    {"partition 9", "job", 0, 1, 9, 1, 1, 1, 0, PS_INVALID_ARGUMENT},
    {"the control task's own", "job", 0, 1, 0, 1, 1, 1, 0, PS_INVALID_ARGUMENT},
    {"a negative sum", "job", 0, 1, 1, -1, 1, 1, 0, PS_INVALID_ARGUMENT},
    {"not clipped", "job", 0, 1, 3, 1, 1, 1, 0, PS_FAILED_PRECONDITION},
    {"long over", "job", 0, 2, 1, 1, 1, 1, 0, PS_OUT_OF_RANGE},
};

static void test_bad_sum_squares(void **state)
{
    static const struct variable v[] = {{"w", 4, 3}, {"mean", 4, 1, true}};
    struct cluster c;
    Paramserver__V1__SumSquaresRequest r = PARAMSERVER__V1__SUM_SQUARES_REQUEST__INIT;
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, v, 2);
    for (uint32_t i = 0; i < 3; i++) {  // 1, 1 and 2 elements
        c.p[i].first = i;
        c.p[i].count = i == 2 ? 2 : 1;
    }
    job_hyper(&c, "clipnorm", 1);
    cluster_start(&c);
    for (uint64_t round = 1; round <= 4; round++) {
        for (uint32_t i = 0; i < 3; i++)
            assert_queued(push(&c, 0, i, round, 1), round);
        settle(&c, 100);
    }
    assert_true(fabsf(read_first(&c, 1) + 0.02f) < 1e-6f);
    for (size_t i = 0; i < sizeof bad_sums / sizeof bad_sums[0]; i++) {
        uint32_t partition = bad_sums[i].partition;
        double sum = bad_sums[i].sum;
        r.job = (char *)bad_sums[i].job;
        r.run = c.run + bad_sums[i].other_run;
        r.round = bad_sums[i].round;
        r.partitions = &partition;
        r.n_partitions = bad_sums[i].n_partitions;
        r.sums = &sum;
        r.n_sums = bad_sums[i].n_sums;
        struct answer a = ask(c.task[bad_sums[i].task].core, M(SUM_SQUARES), &r.base, NULL, NULL, NULL, NULL);
        if (a.code != bad_sums[i].code)
            fail_msg("%s: %s \"%s\"", bad_sums[i].what, ps_code_name(a.code), a.text);
    }
    cluster_close(&c);
}

// ---- describe -----------------------------------------------------------------------------------------------------

static void test_describe(void **state)
{
    static const struct variable v[] = {{"w", 4, 1, false, NULL, {{"weight_decay", 0}}},
                                        {"mean", 4, 1, true, "ema", {{"momentum", 0.5}}},
                                        {"plain", 4, 1, true}};
    struct cluster c;
    Paramserver__V1__Schedule s = piecewise((uint64_t[]){1, 3}, (double[]){1, 0.5, 0.25});
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    (void)state;
    cluster_open(&c, 1, 2, MEMORY, v, 3);
    c.declare.schedule = &s;
    c.declare.replicas_to_aggregate = 1;
    cluster_start(&c);
    assert_int_equal(set_hyper(&c, "learning_rate", 2, 9), 9);
    assert_int_equal(set_hyper(&c, "clipvalue", 3, 5), 5);
    r.caller = &c.callers[0];
    assert_int_equal(
        ask(c.task[0].core, M(DESCRIBE), &r.base, NULL, &paramserver__v1__describe_reply__descriptor, &reply, NULL)
            .code,
        PS_OK);
    const Paramserver__V1__DescribeReply *d = (Paramserver__V1__DescribeReply *)reply;
    assert_int_equal(d->replicas_to_aggregate, 1);
    assert_string_equal(d->rule, "sgd");
    assert_string_equal(d->hypers[0]->name, "learning_rate");
    assert_true(d->n_hypers == 9 && d->hypers[0]->value == 0.01);
    assert_string_equal(d->schedule->kind, "piecewise");
    assert_true(d->schedule->n_boundaries == 2 && d->schedule->boundaries[1] == 3);
    assert_true(d->schedule->n_values == 3 && d->schedule->values[2] == 0.25);
    assert_int_equal(d->n_changes, 2);
    assert_string_equal(d->changes[1]->name, "clipvalue");
    assert_true(d->changes[1]->value == 3 && d->changes[1]->round == 5);
    assert_true(d->changes[0]->value == 2 && d->changes[0]->round == 9);
    assert_string_equal(d->variables[0]->rule, "");
    assert_int_equal(d->variables[0]->n_hypers, 1);
    assert_string_equal(d->variables[0]->hypers[0]->name, "weight_decay");
    assert_string_equal(d->variables[1]->rule, "ema");
    assert_true(d->variables[1]->n_hypers == 1 && d->variables[1]->hypers[0]->value == 0.5);
    assert_true(d->variables[2]->rule[0] == '\0' && d->variables[2]->n_hypers == 0);
    ps_msg_free(reply);
    cluster_close(&c);
}

// A schedule comes back as it was declared, with each field of the message.
static void test_describe_schedule(void **state)
{
    static const struct variable v[] = {{"w", 4, 1}};
    struct cluster c;
    Paramserver__V1__Schedule s = schedule_of_all_fields();
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    uint8_t said[512], heard[512];
    (void)state;
    cluster_open(&c, 1, 1, MEMORY, v, 1);
    s.n_boundaries = s.n_values = 0;  // which are for piecewise alone
    c.declare.schedule = &s;
    cluster_start(&c);
    r.caller = &c.callers[0];
    assert_int_equal(
        ask(c.task[0].core, M(DESCRIBE), &r.base, NULL, &paramserver__v1__describe_reply__descriptor, &reply, NULL)
            .code,
        PS_OK);
    const Paramserver__V1__Schedule *back = ((Paramserver__V1__DescribeReply *)reply)->schedule;
    size_t n = paramserver__v1__schedule__get_packed_size(&s);
    assert_true(n <= sizeof said);
    assert_int_equal(paramserver__v1__schedule__get_packed_size(back), n);
    paramserver__v1__schedule__pack(&s, said);
    paramserver__v1__schedule__pack(back, heard);
    assert_memory_equal(heard, said, n);
    ps_msg_free(reply);
    cluster_close(&c);
}

// ---- threads ------------------------------------------------------------------------------------------------------

enum { THREAD_ROUNDS = 40 };

struct crowd {
    struct cluster c;
    atomic_int working;
};

struct pusher {
    struct crowd *crowd;
    uint32_t rank;
};

static void *push_rounds(void *arg)
{
    struct pusher *p = arg;
    for (uint64_t round = 1; round <= THREAD_ROUNDS; round++)
        for (uint32_t i = 0; i < 6; i++)
            while (push(&p->crowd->c, p->rank, i, round, 1).code != PS_OK)
                sched_yield();
    atomic_fetch_sub(&p->crowd->working, 1);
    return NULL;
}

static void *carry_mail(void *arg)
{
    struct crowd *x = arg;
    while (atomic_load(&x->working)) {
        if (!deliver(&x->c)) {
            tick(&x->c);
            sched_yield();
        }
    }
    return NULL;
}

// Two workers push, three tasks add up their norms, the rate is changed, all at once.
static void test_threads(void **state)
{
    const struct variable w = {"w", 24, 6};
    struct crowd x = {.working = 2};
    struct answer a;
    pthread_t threads[4];
    struct pusher pushers[2] = {{&x, 0}, {&x, 1}};
    (void)state;
    cluster_open(&x.c, 3, 2, MEMORY, &w, 1);
    job_hyper(&x.c, "learning_rate", 1);
    job_hyper(&x.c, "global_clipnorm", 1000);
    cluster_start(&x.c);
    x.c.lost = 0.1;
    x.c.repeated = 0.1;
    for (int k = 0; k < 4; k++)
        assert_int_equal(
            pthread_create(&threads[k], NULL, k < 2 ? push_rounds : carry_mail, k < 2 ? (void *)&pushers[k] : &x), 0);
    set_hyper_later(&x.c, &a, "learning_rate", 2, 0, UINT64_MAX);
    for (int k = 0; k < 4; k++)
        pthread_join(threads[k], NULL);
    settle(&x.c, 3000);
    uint64_t from = round_of(&a);
    float expected = -(float)THREAD_ROUNDS - (from <= THREAD_ROUNDS ? (float)(THREAD_ROUNDS + 1 - from) : 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(read_first(&x.c, i) == expected);
    cluster_close(&x.c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_first_of_several),
    cmocka_unit_test(test_grace),
    cmocka_unit_test(test_examples_do_not_wrap),
    cmocka_unit_test(test_examples_of_a_gradient),
    cmocka_unit_test(test_rank_order),
    cmocka_unit_test(test_half_a_gradient),
    cmocka_unit_test(test_waits_for_every_partition),
    cmocka_unit_test(test_departures),
    cmocka_unit_test(test_who_waits_on_closes_no_round),
    cmocka_unit_test(test_heartbeats_say_who_waits_on),
    cmocka_unit_test(test_the_end_of_a_job_closes_no_round),
    cmocka_unit_test(test_a_task_that_restarts_ends_the_job),
    cmocka_unit_test(test_counted_nothing),
    cmocka_unit_test(test_own_rules),
    cmocka_unit_test(test_own_rules_async),
    cmocka_unit_test(test_slots),
    cmocka_unit_test(test_schedule_in_rounds),
    cmocka_unit_test(test_schedule_async),
    cmocka_unit_test(test_accumulation),
    cmocka_unit_test(test_average),
    cmocka_unit_test(test_averages_are_read),
    cmocka_unit_test(test_slots_are_put_and_read),
    cmocka_unit_test(test_slots_that_there_are_not),
    cmocka_unit_test(test_slots_are_of_one_instant),
    cmocka_unit_test(test_clipnorm),
    cmocka_unit_test(test_global_clipnorm),
    cmocka_unit_test(test_clipvalue),
    cmocka_unit_test(test_no_norm_async),
    cmocka_unit_test(test_norm_of_nothing),
    cmocka_unit_test(test_while_awaiting),
    cmocka_unit_test(test_norms_of_runs),
    cmocka_unit_test(test_few_wait_for_norms),
    cmocka_unit_test(test_clipping_by_hand),
    cmocka_unit_test(test_all_in_one_round),
    cmocka_unit_test(test_asked_round),
    cmocka_unit_test(test_last_word),
    cmocka_unit_test(test_async),
    cmocka_unit_test(test_fast_rounds),
    cmocka_unit_test(test_one_at_a_time),
    cmocka_unit_test(test_silent_task),
    cmocka_unit_test(test_behind_a_silent_task),
    cmocka_unit_test(test_silent_while_changing),
    cmocka_unit_test(test_impatient),
    cmocka_unit_test(test_end_of_wait),
    cmocka_unit_test(test_too_many_changes),
    cmocka_unit_test(test_resume),
    cmocka_unit_test(test_resume_before_its_round),
    cmocka_unit_test(test_resume_while_changing),
    cmocka_unit_test(test_resume_waits_for_who_was_silent),
    cmocka_unit_test(test_resume_tells_who_was_silent),
    cmocka_unit_test(test_resume_after_a_restart),
    cmocka_unit_test(test_prepare),
    cmocka_unit_test(test_prepare_while_awaiting),
    cmocka_unit_test(test_bad_declarations),
    cmocka_unit_test(test_digest),
    cmocka_unit_test(test_digest_of_schedule),
    cmocka_unit_test(test_bad_set_hyper),
    cmocka_unit_test(test_prepared_by_nobody),
    cmocka_unit_test(test_inquiry_hears_commit),
    cmocka_unit_test(test_inquiry_before_the_decision),
    cmocka_unit_test(test_inquiry_about_another),
    cmocka_unit_test(test_rounds_begin_on_all_tasks),
    cmocka_unit_test(test_norms_of_set_mode),
    cmocka_unit_test(test_rounds_end_where_commit_is_lost),
    cmocka_unit_test(test_changes_outlive_rounds),
    cmocka_unit_test(test_rounds_end_when_all_are_closed),
    cmocka_unit_test(test_another_kind),
    cmocka_unit_test(test_bad_proposals),
    cmocka_unit_test(test_bad_sum_squares),
    cmocka_unit_test(test_describe),
    cmocka_unit_test(test_describe_schedule),
    cmocka_unit_test(test_threads),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
