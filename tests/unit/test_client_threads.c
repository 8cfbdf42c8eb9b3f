// SPDX-License-Identifier: Apache-2.0
// libclient's calls that wait, from threads of their own, while another thread is the world.
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/admin.h"
#include "tests/unit/client_bench.h"

struct clockwork {
    struct fake *fake;
    atomic_int stop;
};

static void *run_world(void *arg)
{
    struct clockwork *w = arg;
    while (!atomic_load(&w->stop)) {
        fake_run(w->fake, &w->stop, 0.01);
        w->fake->now += PS_MS;
        usleep(50);
    }
    return NULL;
}

static void *push_many(void *arg)
{
    psc_client *client = arg;
    float one = 1;
    psc_tensor t = {"step", &one, 1, PSC_FLOAT32};
    for (int i = 0; i < 200; i++) {
        psc_op *op;
        psc_assign_add(client, &t, 1, NULL, NULL, &op);
        if (psc_wait(op, NULL, NULL) != PSC_OK)
            return arg;
    }
    return NULL;
}

static void test_threads_wait(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct clockwork w = {.fake = &b->fake};
    pthread_t clock, pushers[4];
    psc_result r;
    psc_error e;
    psc_op *op;
    pthread_create(&clock, NULL, run_world, &w);
    for (int i = 0; i < 4; i++)
        pthread_create(&pushers[i], NULL, push_many, b->client);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(pushers[i], &failed);
        assert_null(failed);
    }
    psc_get(b->client, b->tensors + 3, 1, NULL, NULL, &op);
    assert_int_equal(psc_wait(op, &r, &e), PSC_OK);
    assert_true(b->scalar == 800);
    psc_pull(b->client, b->tensors + 3, 1, 1, NULL, NULL, &op);  // of a round that does not close
    assert_false(psc_done(op, 0));
    assert_false(psc_done(op, 20));
    psc_share share;
    assert_int_equal(psc_lease(b->client, 1, 100, 10, 0, &share, &e), PSC_OK);
    uint64_t steps, all_bytes, round = 0;
    uint32_t workers;
    int32_t most = 7;
    void *all;
    b->fake.collective_size = 1;
    assert_int_equal(psc_clock(b->client, 3, false, &steps, NULL, &e), PSC_OK);
    assert_int_equal(psc_reduce(b->client, "r", PSC_MAX, PSC_INT32, &most, 1, &workers, &e), PSC_OK);
    assert_int_equal(psc_broadcast(b->client, "b", 0, &most, sizeof most, &e), PSC_OK);
    assert_int_equal(psc_broadcast(b->client, "b", 5, &most, sizeof most, &e), PSC_INVALID_ARGUMENT);
    assert_int_equal(psc_all_gather(b->client, "g", &most, sizeof most, &all, &all_bytes, NULL, &e), PSC_OK);
    assert_true(steps == 3 && workers == 1 && most == 7 && all_bytes == sizeof most && *(int32_t *)all == 7);
    free(all);
    assert_int_equal(psc_set_hyper(b->client, "learning_rate", 0.5, &round, &e), PSC_OK);
    assert_int_equal(round, 7);
    assert_int_equal(psc_set_hyper(b->client, "learning_rats", 0.5, NULL, &e), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(e.text, "set learning_rats: ps:0 (a:1): "));
    Paramserver__V1__StatusRequest status = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct ps_error why;
    assert_int_equal(psc__admin_call(b->client, 2, PARAMSERVER__V1__METHOD__STATUS, &status.base,
                                     &paramserver__v1__status_reply__descriptor, &reply, 1000, &why),
                     PS_OK);
    assert_int_equal(((Paramserver__V1__StatusReply *)reply)->task, 2);
    ps_msg_free(reply);
    psc_close(b->client, NULL);
    b->client = NULL;
    assert_int_equal(psc_wait(op, &r, &e), PSC_CANCELLED);
    assert_int_equal(b->fake.leaves, 1);
    atomic_store(&w.stop, 1);
    pthread_join(clock, NULL);
    bench_free(b);
}

static enum fake_fate cut_set_hyper(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__SET_HYPER || f->param == 0)
        return FAKE_DELIVER;
    f->param--;
    return f->param % 2 ? FAKE_CUT_BEFORE : FAKE_CUT_AFTER;
}

static void test_a_hyperparameter_is_set_again(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct clockwork w = {.fake = &b->fake};
    psc_options options = worker_options(b);
    pthread_t clock;
    psc_error e;
    uint64_t round = 0;
    options.timeout_ms = 3000;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    b->fake.fate = cut_set_hyper;
    b->fake.param = 3;
    pthread_create(&clock, NULL, run_world, &w);
    assert_int_equal(psc_set_hyper(b->client, "learning_rate", 0.5, &round, &e), PSC_OK);
    assert_int_equal(b->fake.param, 0);
    assert_int_equal(round, 7);
    b->fake.param = UINT64_MAX;
    assert_int_equal(psc_set_hyper(b->client, "learning_rate", 0.5, NULL, &e), PSC_UNAVAILABLE);
    assert_non_null(strstr(e.text, "set learning_rate: ps:0 (a:1) cannot be reached, tried for "));
    atomic_store(&w.stop, 1);
    pthread_join(clock, NULL);
    bench_free(b);
}

static enum fake_fate spoil_load_shard(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)task, (void)n;
    return method == PARAMSERVER__V1__METHOD__LOAD_SHARD ? FAKE_GARBAGE : FAKE_DELIVER;
}

// A time limit of more ms than an int has room for is one all the same.
static void test_a_long_time_for_shards(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct clockwork w = {.fake = &b->fake};
    const psc_shards shards = {.name = "m", .checkpoint = 1, .timeout_ms = UINT32_C(3) << 30};
    pthread_t clock;
    psc_error e;
    b->fake.fate = spoil_load_shard;
    b->fake.watched = PARAMSERVER__V1__METHOD__LOAD_SHARD;
    const uint64_t least = b->fake.now + (uint64_t)INT_MAX * PS_MS;
    pthread_create(&clock, NULL, run_world, &w);
    assert_int_equal(psc_load_shards(b->client, &shards, 1, 1, &e), PSC_INTERNAL);
    atomic_store(&w.stop, 1);
    pthread_join(clock, NULL);
    assert_true(b->fake.deadline >= least && b->fake.deadline < 2 * least);
    bench_free(b);
}

static enum fake_fate cut_load_shard(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)n;
    if (method != PARAMSERVER__V1__METHOD__LOAD_SHARD || task != 1 || f->param == 0)
        return FAKE_DELIVER;
    f->param--;
    return FAKE_CUT_AFTER;
}

// Each call has a sequence of its own for each task, by which psd tells an attempt that is repeated from another call.
static void test_shards_are_loaded_as_often_as_asked(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct clockwork w = {.fake = &b->fake};
    const psc_shards shards = {.name = "m", .checkpoint = 1};
    uint64_t of[2][FAKE_TASKS][2] = {0};
    size_t n[2][FAKE_TASKS] = {0};
    pthread_t clock;
    psc_error e;
    b->fake.fate = cut_load_shard;
    pthread_create(&clock, NULL, run_world, &w);
    for (int k = 0; k < 2; k++) {
        b->fake.n_arrivals = 0;
        b->fake.param = 1 - (uint64_t)k;
        if (psc_load_shards(b->client, &shards, FAKE_TASKS, 1, &e))
            fail_msg("%s", e.text);
        for (size_t i = 0; i < b->fake.n_arrivals; i++) {
            const struct fake_arrival *a = &b->fake.arrivals[i];
            assert_true(n[k][a->task] < 2);
            of[k][a->task][n[k][a->task]++] = a->sequence;
        }
    }
    atomic_store(&w.stop, 1);
    pthread_join(clock, NULL);
    for (uint32_t t = 0; t < FAKE_TASKS; t++) {
        assert_true(of[0][t][0] > 0 && of[1][t][0] > of[0][t][0]);
        assert_int_equal(n[0][t], t == 1 ? 2 : 1);
        assert_int_equal(n[1][t], 1);
    }
    assert_int_equal(of[0][1][1], of[0][1][0]);
    bench_free(b);
}

// A child has the client's memory, and none of its threads.
static void test_close_in_a_child(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    int status;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        psc_close(b->client, "a child's destructor");
        _exit(b->fake.leaves == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    bench_free(b);
}

struct on_thread {
    pthread_t thread;
    atomic_int code;  // -1: not ended yet
};

static void note_thread(void *arg, const psc_result *result)
{
    struct on_thread *t = arg;
    t->thread = pthread_self();
    atomic_store(&t->code, (int)result->error.code);
}

// Whoever ends an operation, its callback runs on the library's thread: that of the world, here.
static void test_callbacks_have_a_thread(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct bench *b = bench_new(PSC_STREAM);
        struct clockwork w = {.fake = &b->fake};
        struct on_thread t = {.code = -1};
        psc_options options = worker_options(b);
        float got;
        psc_tensor step = {"step", &got, 1, PSC_FLOAT32};
        pthread_t clock;
        psc_error e;
        psc_op *op;
        options.update = PSC_SYNC;
        bench_begin(b, options);
        assert_int_equal(bench_declare(b).code, PS_OK);
        psc_pull(b->client, &step, 1, 1, note_thread, &t, &op);
        fake_idle(&b->fake, 0.1);
        b->fake.generation[0] += how;
        pthread_create(&clock, NULL, run_world, &w);
        if (how == 0)
            psc_cancel(op);
        else
            assert_int_equal(psc_set_hyper(b->client, "learning_rate", 0.5, NULL, &e), PSC_ABORTED);
        assert_int_equal(psc_wait(op, NULL, &e), how ? PSC_ABORTED : PSC_CANCELLED);
        assert_int_equal(atomic_load(&t.code), e.code);
        assert_true(pthread_equal(t.thread, clock));
        atomic_store(&w.stop, 1);
        pthread_join(clock, NULL);
        bench_free(b);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_threads_wait),           cmocka_unit_test(test_a_hyperparameter_is_set_again),
    cmocka_unit_test(test_a_long_time_for_shards), cmocka_unit_test(test_shards_are_loaded_as_often_as_asked),
    cmocka_unit_test(test_close_in_a_child),       cmocka_unit_test(test_callbacks_have_a_thread),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
