// SPDX-License-Identifier: Apache-2.0
// libclient over a world in memory: what is sent, in which order, how often, and what becomes of it when the network
// does what networks do.
#include <stdio.h>

#include "common/base/signals.h"
#include "tests/unit/client_bench.h"

// ---- joining, declaring, attaching --------------------------------------------------------------------------------

static void test_join_and_declare(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    assert_true(psc_is_chief(b->client));
    assert_int_equal(psc_live_workers(b->client), 1);
    assert_int_equal(psc_run(b->client), 7);
    assert_int_equal(psc_variables(b->client), N_VARIABLES);
    assert_string_equal(psc_variable_at(b->client, 1)->name, "dense/bias");
    assert_null(psc_variable_at(b->client, N_VARIABLES));
    assert_int_equal(psc_variable_find(b->client, "dense/kernel")->shape[0], BIG);
    assert_null(psc_variable_find(b->client, "dense/kernels"));
    assert_int_equal(bench_declare(b).code, PS_FAILED_PRECONDITION);
    bench_free(b);
}

static enum fake_fate two_are_down(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)method, (void)n;
    return task == 2 ? FAKE_LOSE : task ? FAKE_CUT_BEFORE : FAKE_DELIVER;
}

static void test_join_names_all_that_are_down(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    b->fake.fate = two_are_down;
    bench_create(b, worker_options(b));
    struct ps_error e = bench_join(b);
    assert_int_equal(e.code, PS_UNAVAILABLE);
    assert_string_equal(e.text, "no answer within 20.0 s from ps:1 (b:2): connection lost; ps:2 (c:3): it is silent");
    bench_free(b);
}

static enum fake_fate one_is_refused(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)method, (void)n;
    return task == 1 ? FAKE_GONE : FAKE_DELIVER;
}

// refused_ms is an observer's: a worker may come before the ps tasks do.
static void test_join_waits_for_those_that_are_not_there_yet(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.refused_ms = 1000;
    b->fake.fate = one_is_refused;
    bench_create(b, options);
    const uint64_t start = b->fake.now;
    struct ps_error e = bench_join(b);
    assert_int_equal(e.code, PS_UNAVAILABLE);
    assert_string_equal(e.text, "no answer within 20.0 s from ps:1 (b:2): failed to connect: Connection refused");
    assert_in_range((b->fake.now - start) / PS_MS, 20000, 20005);
    bench_free(b);
}

static void test_join_knows_its_tasks(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    b->fake.answers_to_wrong_task = true;
    bench_create(b, worker_options(b));
    struct ps_error e = bench_join(b);
    assert_int_equal(e.code, PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "ps:1 (b:2) says that it is ps:0"));
    bench_free(b);
}

// The numbers that the control task gives out are greater than those that the others know, whatever its clock says.
static void test_join_says_what_the_tasks_know(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    b->fake.newest[0] = 4;
    b->fake.newest[1] = 6;
    b->fake.newest[2] = 5;
    bench_create(b, worker_options(b));
    assert_int_equal(bench_join(b).code, PS_OK);
    assert_int_equal(b->fake.joined_after, 6);
    assert_int_equal(psc_run(b->client), 7);
    bench_free(b);
}

static void test_attach(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct outcome o = {0}, got = {0};
    b->fake.resumptions = 3;
    bench_create(b, worker_options(b));
    assert_int_equal(bench_join(b).code, PS_OK);
    psc_client *observer = second_client(b, (psc_options){.rank = -1});
    psc__attach(observer, on_done, &o);  // waits for the declaration
    fake_idle(&b->fake, 3);
    assert_int_equal(atomic_load(&o.done), 0);
    assert_int_equal(psc_resumptions(b->client), 0);
    assert_int_equal(bench_declare(b).code, PS_OK);
    assert_int_equal(psc_resumptions(b->client), 3);
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &o.done, 100));
    assert_int_equal(o.error.code, PS_OK);
    assert_int_equal(psc_variables(observer), N_VARIABLES);
    assert_int_equal(psc_resumptions(observer), 3);

    fill(b->big, BIG, 1);
    assert_int_equal(push(b, 0, 1).error.code, PSC_OK);
    memset(b->big, 0, BIG * sizeof *b->big);
    psc_get(observer, b->tensors, 1, on_result, &got, NULL);
    assert_int_equal(finish(b, &got).error.code, PSC_OK);
    for (uint64_t i = 0; i < BIG; i += 997)
        assert_true(b->big[i] == (float)(i % 1000));
    psc__client_free(b->client);
    b->client = observer;  // the fake's shutdown is for all of its clients
    bench_free(b);
}

// The first answer to the observer's update is lost, and its task is away for `away` minutes then.
static enum fake_fate lose_an_answer(struct fake *f, uint32_t task, int method, uint64_t n)
{
    static uint64_t since;
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__ASSIGN_ADD)
        return FAKE_DELIVER;
    if (f->param > 0 && since == 0) {
        since = f->now;
        return FAKE_CUT_AFTER;
    }
    if (f->now - since < f->param * 60 * PS_SECOND)
        return FAKE_CUT_BEFORE;
    since = 0;
    f->param = 0;
    return FAKE_DELIVER;
}

static struct outcome add_while_away(struct bench *b, uint64_t minutes)
{
    struct outcome o = {0};
    b->fake.param = minutes;
    psc_assign_add(b->client, &b->tensors[1], 1, on_result, &o, NULL);
    assert_true(fake_run(&b->fake, &o.done, 3600));
    return o;
}

// psd forgets an observer, and what it has sent, after ten minutes: so it sends nothing again that is so old.
static void test_update_of_unknown_outcome(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.timeout_ms = 30 * 60 * 1000;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    struct outcome o = {0};
    psc_client *worker = b->client,
               *observer = second_client(b, (psc_options){.rank = -1, .timeout_ms = 30 * 60 * 1000});
    psc__attach(observer, on_done, &o);
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &o.done, 100));
    b->fake.fate = lose_an_answer;
    b->small[0][0] = 1;
    b->client = observer;
    assert_int_equal(add_while_away(b, 7).result.error.code, PSC_OK);
    assert_true(fake_value(&b->fake, "dense/bias", 0) == 1);
    struct outcome late = add_while_away(b, 11);
    assert_int_equal(late.result.error.code, PSC_UNAVAILABLE);
    assert_non_null(strstr(late.result.error.text, "whether it took effect is not known"));
    fake_idle(&b->fake, 300);
    assert_true(fake_value(&b->fake, "dense/bias", 0) == 2);
    b->client = worker;
    b->fake.fate = NULL;
    assert_int_equal(pull(b, 1, 1).error.code, PSC_OK);
    psc__client_free(worker);
    b->client = observer;
    bench_free(b);
}

// Of two that are under way at once one knows the variables then.
static void test_declared_twice_at_once(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    bench_begin(b, worker_options(b));
    struct outcome o[2] = {0};
    const psc_declaration declaration = {
        .variables = variables, .n_variables = N_VARIABLES, .rule = "sgd", .placement = "round_robin"};
    for (int i = 0; i < 2; i++)
        psc__declare(b->client, &declaration, NULL, on_done, &o[i]);
    for (int i = 0; i < 2; i++)
        assert_true(fake_run(&b->fake, &o[i].done, 100));
    const bool first = o[0].error.code == PS_OK;
    assert_int_equal(o[first ? 0 : 1].error.code, PS_OK);
    assert_int_equal(o[first ? 1 : 0].error.code, PS_FAILED_PRECONDITION);
    assert_int_equal(psc_variables(b->client), N_VARIABLES);
    bench_free(b);
}

static void test_attach_gives_up(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct outcome o = {0};
    bench_create(b, worker_options(b));
    assert_int_equal(bench_join(b).code, PS_OK);
    psc__attach(b->client, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 100));
    assert_int_equal(o.error.code, PS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(o.error.text, "for the chief to declare the variables"));
    bench_free(b);
}

static void test_declaration_is_checked(void **state)
{
    (void)state;
    struct {
        psc_declaration declaration;
        const char *text;
    } bad[] = {
        {{.rule = "sgd"}, "declare: there are no variables"},
        {{.variables = variables, .n_variables = 1, .rule = "adan"}, "did you mean 'adam'?"},
        {{.variables = variables, .n_variables = 1, .rule = "sgd", .placement = "greed"}, "greed"},
        {{.variables = (psc_variable[]){variables[1], variables[1]}, .n_variables = 2, .rule = "sgd"}, "twice"},
        {{.variables = &(psc_variable){.name = "x", .dtype = 9}, .n_variables = 1, .rule = "sgd"}, "dtype 9"},
    };
    struct bench *b = bench_new(PSC_STREAM);
    bench_create(b, worker_options(b));
    assert_int_equal(bench_join(b).code, PS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct outcome o = {0};
        psc__declare(b->client, &bad[i].declaration, NULL, on_done, &o);
        assert_true(fake_run(&b->fake, &o.done, 10));
        assert_int_equal(o.error.code, PS_INVALID_ARGUMENT);
        assert_non_null(strstr(o.error.text, bad[i].text));
    }
    bench_free(b);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    const psc_options bad[] = {
        {.rank = 0, .workers = 1, .update = PSC_ASYNC},
        {.job = "j", .rank = -2},
        {.job = "j", .rank = 2, .workers = 2, .update = PSC_ASYNC},
        {.job = "j", .rank = 0, .workers = 2},
        {.job = "j", .rank = 0, .workers = 2, .min_workers = 3, .update = PSC_SYNC},
        {.job = "j", .rank = -1, .timeout_ms = -1},
        {.job = "j", .rank = -1, .chunk_bytes = PS_CHUNK_MAX + 1},
    };
    const char *address = "a:1";
    psc_cluster *cluster;
    assert_int_equal(psc_cluster_create(&address, 1, &cluster, NULL), PSC_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fake f = {0};
        struct psc_world world = fake_world(&f);
        psc_client *client = NULL;
        struct ps_error e;
        assert_int_equal(psc__client_create(cluster, &bad[i], &world, &client, &e), PS_INVALID_ARGUMENT);
        assert_null(client);
        fake_free(&f);
    }
    psc_cluster_free(cluster);
}

// ---- values -------------------------------------------------------------------------------------------------------

static void round_trip(psc_transport transport)
{
    struct bench *b = bench_ready(transport);
    struct outcome o = {0};
    b->fake.shuffle = true;
    fill(b->big, BIG, 2);
    fill(b->small[0], SMALL, 3);
    fill(b->small[1], SMALL, 4);
    b->scalar = 5;
    psc_put(b->client, b->tensors, N_VARIABLES, on_result, &o, NULL);
    psc_result r = finish(b, &o);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.applied, 4 * FAKE_TASKS + 3);
    assert_int_equal(r.version, 1);
    assert_int_equal(r.duplicates, 0);
    for (uint64_t i = 0; i < BIG; i += 101)
        assert_true(fake_value(&b->fake, "dense/kernel", i) == 2 * (float)(i % 1000));

    memset(b->big, 0, BIG * sizeof *b->big);
    b->small[1][3] = b->scalar = 0;
    r = pull(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.version, 1);
    for (uint64_t i = 0; i < BIG; i++)
        assert_true(b->big[i] == 2 * (float)(i % 1000));
    assert_true(b->small[1][3] == 12 && b->scalar == 5);
    bench_free(b);
}

static void test_round_trip_stream(void **state)
{
    (void)state;
    round_trip(PSC_STREAM);
}

static void test_round_trip_unary(void **state)
{
    (void)state;
    round_trip(PSC_UNARY);
}

static void test_requests_are_cut_to_chunks(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_OK);
    size_t bytes = 0, tensors = 0;
    for (size_t i = 0; i < b->fake.n_arrivals; i++) {
        const struct fake_arrival *a = &b->fake.arrivals[i];
        assert_true(a->bytes <= PS_BLOCK_BYTES);
        assert_int_equal(a->sequence, b->fake.arrivals[0].sequence);
        bytes += a->bytes;
        tensors += a->tensors;
    }
    assert_int_equal(bytes, (BIG + 2 * SMALL + 1) * sizeof(float));
    assert_int_equal(tensors, 4 * FAKE_TASKS + 3);
    // Round robin after three partitions: a small variable for each task, beside its last block where that has room.
    assert_true(b->fake.n_arrivals <= 4 * FAKE_TASKS + 2);
    bench_free(b);
}

static void test_larger_chunks_carry_whole_blocks(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.chunk_bytes = 3 * PS_BLOCK_BYTES + 100;
    bench_create(b, options);
    assert_int_equal(bench_join(b).code, PS_OK);
    assert_int_equal(bench_declare(b).code, PS_OK);
    b->fake.n_arrivals = 0;
    assert_int_equal(push(b, 0, 1).error.code, PSC_OK);
    assert_int_equal(b->fake.n_arrivals, 2 * FAKE_TASKS);  // 3 + 1 blocks each
    size_t full = 0;
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        full += b->fake.arrivals[i].bytes == 3 * PS_BLOCK_BYTES;
    assert_int_equal(full, FAKE_TASKS);
    bench_free(b);
}

static void test_versions_come_from_the_last_pull(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    push(b, 1, 1);
    push(b, 1, 1);
    assert_int_equal(pull(b, 1, 1).version, 2);
    b->fake.n_arrivals = 0;
    assert_int_equal(push(b, 1, 1).staleness, 0);
    assert_int_equal(push(b, 1, 1).staleness, 1);
    assert_int_equal(b->fake.arrivals[0].version, 2);
    assert_int_equal(b->fake.arrivals[1].version, 2);
    bench_free(b);
}

// ---- exactly once -------------------------------------------------------------------------------------------------

static enum fake_fate cut_one(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method;
    if (n != f->param / 2)
        return FAKE_DELIVER;
    return f->param % 2 ? FAKE_CUT_AFTER : FAKE_CUT_BEFORE;
}

// Updates that had not been seen arrive at each task in the order of their sequences.
static void assert_in_order(const struct fake *f)
{
    uint64_t last[FAKE_TASKS] = {0};
    for (size_t i = 0; i < f->n_arrivals; i++) {
        const struct fake_arrival *a = &f->arrivals[i];
        if (!a->sequence || a->duplicate)
            continue;
        assert_true(a->sequence >= last[a->task]);
        last[a->task] = a->sequence;
    }
}

// Three pushes at once, and the param-th request is cut. Returns how many requests arrived.
static uint64_t push_through_cut(psc_transport transport, uint64_t param)
{
    struct bench *b = bench_ready(transport);
    struct outcome o[3] = {0};
    b->fake.shuffle = true;
    b->fake.fate = cut_one;
    b->fake.param = param;
    fill(b->big, BIG, 1);
    b->scalar = 1;
    for (int i = 0; i < 3; i++)
        psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 200));
        assert_int_equal(o[i].result.error.code, PSC_OK);
        assert_int_equal(o[i].result.applied + o[i].result.duplicates, 4 * FAKE_TASKS + 3);
    }
    for (uint64_t i = 0; i < BIG; i += 1009)
        assert_true(fake_value(&b->fake, "dense/kernel", i) == 3 * (float)(i % 1000));
    assert_in_order(&b->fake);
    uint64_t arrived = b->fake.arrived;
    bench_free(b);
    return arrived;
}

static void sweep(psc_transport transport)
{
    uint64_t requests = push_through_cut(transport, UINT64_MAX);
    for (uint64_t param = 0; param < 2 * requests; param += 1 + param / 8)
        push_through_cut(transport, param);
}

static void test_cuts_are_swept_stream(void **state)
{
    (void)state;
    sweep(PSC_STREAM);
}

static void test_cuts_are_swept_unary(void **state)
{
    (void)state;
    sweep(PSC_UNARY);
}

// Updates and reads of one variable, taking turns; which request is cut, and who is how late, follows from the seed.
static void no_overtaking(psc_transport transport, uint64_t seed)
{
    struct bench *b = bench_ready(transport);
    const int pairs = 1 + (int)seed % 8;
    b->fake.shuffle = true;
    b->fake.fate = cut_one;
    b->fake.param = seed % (uint64_t)(4 * pairs);
    b->fake.seed = seed;
    b->scalar = 1;
    float seen[8];
    struct outcome o[8] = {0}, pushed = {0};
    for (int i = 0; i < pairs; i++) {
        psc_tensor to = {"step", &seen[i], 1, PSC_FLOAT32};
        psc_assign_add(b->client, &b->tensors[3], 1, on_result, &pushed, NULL);
        psc_pull(b->client, &to, 1, 0, on_result, &o[i], NULL);
    }
    for (int i = 0; i < pairs; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 200));
        assert_int_equal(o[i].result.error.code, PSC_OK);
        assert_true(seen[i] >= (float)(i + 1));
    }
    assert_in_order(&b->fake);
    bench_free(b);
}

static void test_no_read_overtakes_an_update_stream(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++)
        no_overtaking(PSC_STREAM, seed);
}

static void test_no_read_overtakes_an_update_unary(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++)
        no_overtaking(PSC_UNARY, seed);
}

static enum fake_fate task_is_down(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)method, (void)n;
    return task == 1 && f->param ? FAKE_CUT_BEFORE : FAKE_DELIVER;
}

static void test_window(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome first = {0}, *rest = calloc(600, sizeof *rest);
    b->fake.fate = task_is_down;
    b->fake.param = 1;
    psc_push(b->client, b->tensors, 1, &(psc_push_options){.examples = 1}, on_result, &first,
             NULL);  // needs all tasks, of which one is down
    for (int i = 0; i < 600; i++)
        psc_push(b->client, b->tensors + 3, 1, &(psc_push_options){.examples = 1}, on_result, &rest[i], NULL);
    fake_idle(&b->fake, 2);
    uint64_t highest = 0, lowest = UINT64_MAX;
    for (size_t i = 0; i < b->fake.n_arrivals; i++) {
        uint64_t s = b->fake.arrivals[i].sequence;
        highest = s > highest ? s : highest;
        lowest = s < lowest ? s : lowest;
    }
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        assert_int_equal(b->fake.arrivals[i].oldest, lowest);
    assert_int_equal(highest, lowest + PS_WINDOW - 1);
    b->fake.param = 0;
    assert_true(fake_run(&b->fake, &rest[599].done, 100));
    assert_int_equal(atomic_load(&first.done), 1);
    for (int i = 0; i < 600; i++)
        assert_int_equal(rest[i].result.error.code, PSC_OK);
    assert_in_order(&b->fake);
    free(rest);
    bench_free(b);
}

// The updates that a task has had, in the order of their first requests, each as what its sequence is more than the
// first's; a pull as "r".
static void orders_at(const struct fake *f, uint32_t task, uint64_t first, char orders[32])
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_arrivals; i++) {
        const struct fake_arrival *a = &f->arrivals[i];
        const char is = a->method == PARAMSERVER__V1__METHOD__PULL ? 'r' : (char)('0' + a->sequence - first);
        orders[n] = 0;
        if (a->task == task && !strchr(orders, is))
            orders[n++] = is;
    }
    orders[n] = 0;
}

// psd keeps what has come of one atomic push until the rest is there: none goes between its requests.
static void check_atomic(void)
{
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    const psc_push_options options = {.examples = 1, .priority = 2, .atomic = true};
    psc_push(b->client, b->tensors, 1, &options, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_OK);
    assert_true(b->fake.n_arrivals > 0);
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        assert_int_equal(b->fake.arrivals[i].priority, 0);
    bench_free(b);
}

// Of those that wait for their task one of a higher priority goes first; but what a read came after stays before it.
static void test_a_higher_priority_goes_first(void **state)
{
    (void)state;
    static const uint32_t priority[] = {0, 1, 3, 2, 4, 0, 1};
    for (int unary = 0; unary < 2; unary++) {
        struct bench *b = bench_ready(unary ? PSC_UNARY : PSC_STREAM);
        struct outcome o[7] = {0}, pulled = {0};
        char orders[32];
        b->fake.fate = task_is_down;
        b->fake.param = 1;
        for (int i = 0; i < 7; i++) {
            psc_push_options options = {.examples = 1, .priority = priority[i]};
            psc_push(b->client, b->tensors, 1, &options, on_result, &o[i], NULL);
            if (i == 0)
                fake_idle(&b->fake, 0.01);  // it has flown, and the queue rests
            if (i == 1)
                psc_pull(b->client, b->tensors, 1, 0, on_result, &pulled, NULL);
        }
        const uint64_t first = b->fake.arrivals[0].sequence;
        bench_forget(b);
        b->fake.param = 0;
        assert_true(fake_run(&b->fake, &o[6].done, 30) && fake_run(&b->fake, &pulled.done, 30));
        for (size_t i = 0; i < b->fake.n_arrivals; i++) {
            const struct fake_arrival *a = &b->fake.arrivals[i];
            assert_int_equal(a->priority,
                             a->method == PARAMSERVER__V1__METHOD__PUSH ? priority[a->sequence - first] : 0);
        }
        orders_at(&b->fake, 1, first, orders);
        assert_string_equal(orders, unary ? "01r42356" : "0142r356");  // four fly at a time
        bench_free(b);
    }
    check_atomic();
}

static void test_waiting_for_the_window_has_a_deadline(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome waits = {0}, *o = calloc(PS_WINDOW, sizeof *o);
    psc_push_pull(b->client, b->tensors + 2, b->tensors + 2, 1, &(psc_push_options){.examples = 1, .round = 1},
                  on_result, &waits, NULL);  // holds its sequence until the round closes
    for (int i = 0; i < PS_WINDOW; i++)
        psc_push(b->client, b->tensors + 3, 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    assert_true(fake_run(&b->fake, &o[PS_WINDOW - 1].done, 30));
    assert_int_equal(o[PS_WINDOW - 1].result.error.code, PSC_DEADLINE_EXCEEDED);
    assert_non_null(strstr(o[PS_WINDOW - 1].result.error.text, "256 earlier operations are still open"));
    assert_int_equal(o[PS_WINDOW - 2].result.error.code, PSC_OK);
    free(o);
    bench_free(b);
}

// A read is of all updates before it, those that wait for a sequence included.
static void test_no_read_overtakes_the_window(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome waits = {0}, pulled = {0}, *o = calloc(PS_WINDOW, sizeof *o);
    float seen = 0;
    psc_tensor to = {"step", &seen, 1, PSC_FLOAT32};
    b->scalar = 1;
    psc_push_pull(b->client, b->tensors + 2, b->tensors + 2, 1, &(psc_push_options){.examples = 1, .round = 1},
                  on_result, &waits, NULL);  // holds its sequence until the round closes
    for (int i = 0; i < PS_WINDOW; i++)
        psc_push(b->client, b->tensors + 3, 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    psc_pull(b->client, &to, 1, 0, on_result, &pulled, NULL);
    fake_idle(&b->fake, 1);
    assert_int_equal(pulled.done, 0);
    b->fake.round = 1;
    fake_wake(&b->fake);
    assert_int_equal(finish(b, &pulled).error.code, PSC_OK);
    assert_true(seen == PS_WINDOW);
    free(o);
    bench_free(b);
}

static void test_who_waits_for_others_holds_up_no_update(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome barrier = {0}, reduced = {0}, *o = calloc(2 * PS_WINDOW, sizeof *o);
    int32_t one = 1;
    psc__barrier(b->client, "b", on_done, &barrier);
    b->fake.collective_size = 2;
    psc__reduce(b->client, "r", PSC_SUM, PSC_INT32, &one, 1, NULL, on_done, &reduced);
    for (int i = 0; i < 2 * PS_WINDOW; i++)
        psc_push(b->client, b->tensors + 3, 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    assert_true(fake_run(&b->fake, &o[2 * PS_WINDOW - 1].done, 30));
    for (int i = 0; i < 2 * PS_WINDOW; i++)
        assert_int_equal(o[i].result.error.code, PSC_OK);
    assert_int_equal(atomic_load(&barrier.done) + atomic_load(&reduced.done), 0);
    free(o);
    bench_free(b);
}

// ---- trouble ------------------------------------------------------------------------------------------------------

static void test_unreachable_until_the_deadline(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    b->fake.fate = task_is_down;
    b->fake.param = 1;
    uint64_t start = b->fake.now;
    psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    psc_result r = finish(b, &o);
    assert_int_equal(r.error.code, PSC_UNAVAILABLE);
    assert_non_null(strstr(r.error.text, "push: ps:1 (b:2) cannot be reached, tried for 2"));
    assert_in_range((b->fake.now - start) / PS_MS, 20000, 22000);
    b->fake.param = 0;
    b->fake.n_arrivals = 0;
    assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_OK);  // and it goes on
    bench_free(b);
}

// Nobody listens at the control task, until `quiet_from` (ns), when it takes what comes and does not answer.
static uint64_t quiet_from;

static enum fake_fate refused_then_quiet(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method, (void)n;
    return f->now < quiet_from ? FAKE_GONE : FAKE_LOSE;
}

// Asks the control task for 6 s, by a call that is no operation's.
static void ask_in_vain(uint64_t seed, double refused_s, enum ps_code code, const char *text)
{
    struct bench *b = bench_new(PSC_STREAM);
    struct outcome o = {0};
    b->fake.seed = seed;
    b->fake.fate = refused_then_quiet;
    bench_create(b, (psc_options){.rank = -1, .timeout_ms = 6000});
    const uint64_t start = b->fake.now;
    quiet_from = start + (uint64_t)(refused_s * 1e9);
    psc__attach(b->client, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 20));
    if (o.error.code != code || !strstr(o.error.text, text))
        fail_msg("seed %d: %s: %s", (int)seed, ps_code_name(o.error.code), o.error.text);
    assert_in_range((b->fake.now - start) / PS_MS, 6000, 6005);
    bench_free(b);
}

// Where nobody listens that is what is said at the end, in time, whatever the last attempt had time for.
static void test_a_refused_call_says_so_in_time(void **state)
{
    (void)state;
    static const char refused[] =
        "ps:0 (a:1) cannot be reached, tried for 6.0 s: failed to connect: Connection refused";
    for (uint64_t seed = 0; seed < 40; seed++) {
        ask_in_vain(seed, 100, PS_UNAVAILABLE, refused);
        ask_in_vain(seed, 5.95, PS_UNAVAILABLE, refused);
        ask_in_vain(seed, 1, PS_DEADLINE_EXCEEDED, "ps:0 (a:1): waited 6.0 s for ");
    }
}

// What is said to have been tried was: no longer than it was there, and than its task was away.
static void test_tried_for_as_long_as_it_was(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome pulled = {0}, o[2] = {{0}};
    b->fake.fate = task_is_down;
    psc_pull(b->client, b->tensors, 1, 1, on_result, &pulled, NULL);  // waits for a round
    fake_idle(&b->fake, 30);
    b->fake.param = 1;
    for (int i = 0; i < 2; i++) {
        psc_push(b->client, b->tensors, 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
        fake_idle(&b->fake, 10);
    }
    const psc_result r[] = {finish(b, &pulled), finish(b, &o[0]), finish(b, &o[1])};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r[i].error.code, PSC_UNAVAILABLE);
        assert_non_null(strstr(r[i].error.text, "ps:1 (b:2) cannot be reached, tried for 2"));  // 20 s, and a little
    }
    bench_free(b);
}

// How long a task was away, and what came of it.
struct absence {
    uint64_t since, until;
    int attempts;  // of one push
};

static struct absence absence;

static enum fake_fate task_is_away(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)method, (void)n;
    if (task != 1 || f->now >= absence.until)
        return FAKE_DELIVER;
    absence.attempts += f->now >= absence.since;
    return FAKE_CUT_BEFORE;
}

// An attempt is made after a part of what has passed, so a task that is back is found soon, however long it
// was away; and it is not asked all the time.
static void test_a_task_that_is_back_is_found_soon(void **state)
{
    (void)state;
    const double away_s[] = {0.2, 1, 3, 10};
    for (int i = 0; i < 4 * 2 * 30; i++) {
        double away = away_s[i % 4];
        struct bench *b = bench_ready(i / 4 % 2 ? PSC_UNARY : PSC_STREAM);
        b->fake.seed = (uint64_t)i;
        absence = (struct absence){.since = b->fake.now, .until = b->fake.now + (uint64_t)(away * 1e9)};
        b->fake.fate = task_is_away;
        assert_int_equal(push(b, 0, 1).error.code, PSC_OK);
        double late = (double)(b->fake.now - absence.until) / 1e9;
        assert_true(late < away / 2 + 0.1 && late < 1.5);
        assert_true(absence.attempts < 20 + 2 * (int)away);
        bench_free(b);
    }
}

static enum fake_fate task_is_gone(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)method, (void)n;
    return task == 1 && f->param ? (enum fake_fate)f->param : FAKE_DELIVER;
}

static psc_result push_to_one_that_is_gone(psc_transport transport, double *seconds, bool comes_back)
{
    struct bench *b = bench_ready(transport);
    struct outcome o = {0};
    b->fake.fate = task_is_gone;
    b->fake.param = FAKE_GONE;
    uint64_t start = b->fake.now;
    psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    if (comes_back) {
        fake_idle(&b->fake, 2);
        b->fake.generation[1]++;
        b->fake.param = 0;
    }
    psc_result r = finish(b, &o);
    *seconds = (double)(b->fake.now - start) / 1e9;
    if (!comes_back) {  // the control task hears of it
        struct outcome left = {0};
        psc__leave(b->client, r.error.text, on_done, &left);
        assert_true(fake_run(&b->fake, &left.done, 5));
        assert_int_equal(b->fake.leaves, 1);
    }
    bench_free(b);
    return r;
}

// An observer waits as long as it says.
static void observe_one_that_is_gone(void)
{
    struct bench *b = bench_ready(PSC_STREAM);
    psc_client *observer = second_client(b, (psc_options){.rank = -1, .refused_ms = 1000});
    struct outcome attached = {0}, got = {0};
    psc__attach(observer, on_done, &attached);
    assert_true(fake_run(&b->fake, &attached.done, 10));
    b->fake.fate = task_is_gone;
    b->fake.param = FAKE_GONE;
    const uint64_t start = b->fake.now;
    psc_get(observer, b->tensors, N_VARIABLES, on_result, &got, NULL);
    const psc_result r = finish(b, &got);
    assert_int_equal(r.error.code, PSC_UNAVAILABLE);
    assert_non_null(strstr(r.error.text, "ps:1 (b:2) cannot be reached, tried for 1."));
    assert_in_range((b->fake.now - start) / PS_MS, 1000, 2500);
    psc__client_free(b->client);
    b->client = observer;
    bench_free(b);
}

// A task at whose address nobody listens for as long as a worker may be silent (3 s) is dead.
static void test_a_task_that_is_gone_ends_the_client(void **state)
{
    (void)state;
    for (int unary = 0; unary < 2; unary++) {
        double seconds;
        psc_result r = push_to_one_that_is_gone(unary ? PSC_UNARY : PSC_STREAM, &seconds, false);
        assert_int_equal(r.error.code, PSC_UNAVAILABLE);
        assert_non_null(strstr(r.error.text, "ps:1 (b:2) cannot be reached, tried for "));
        assert_non_null(strstr(r.error.text, "Connection refused"));
        assert_true(seconds >= 3 && seconds < 5);
        r = push_to_one_that_is_gone(unary ? PSC_UNARY : PSC_STREAM, &seconds, true);
        assert_int_equal(r.error.code, PSC_ABORTED);
        assert_non_null(strstr(r.error.text, "ps:1 (b:2) has restarted and lost what it had of the job"));
    }
    observe_one_that_is_gone();
}

struct said {
    int n;
    char last[256];
};

static void note_wait(void *arg, const char *what)
{
    struct said *said = arg;
    said->n++;
    snprintf(said->last, sizeof said->last, "%s", what);
}

// What a client waits for is told after 2 s, and again only when it is something else.
static void test_who_waits_can_say_for_what(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct said said = {0};
    psc_options options = worker_options(b);
    struct outcome joined = {0}, o = {0}, met = {0};
    options.waits = note_wait;
    options.waits_arg = &said;
    options.timeout_ms = 60000;
    bench_create(b, options);
    b->fake.fate = task_is_gone;
    b->fake.param = FAKE_GONE;
    psc__join(b->client, on_done, &joined);
    fake_idle(&b->fake, 1.5);
    assert_int_equal(said.n, 0);
    fake_idle(&b->fake, 8);
    assert_int_equal(said.n, 1);
    assert_string_equal(said.last, "ps:1 (b:2): failed to connect: Connection refused");
    b->fake.param = 0;
    assert_true(fake_run(&b->fake, &joined.done, 10));
    assert_int_equal(bench_declare(b).code, PS_OK);
    b->fake.param = FAKE_CUT_BEFORE;
    psc_push(b->client, b->tensors, N_VARIABLES, NULL, on_result, &o, NULL);
    fake_idle(&b->fake, 1.5);
    assert_int_equal(said.n, 1);
    fake_idle(&b->fake, 4.5);
    assert_int_equal(said.n, 2);
    assert_string_equal(said.last, "ps:1 (b:2): connection lost");
    b->fake.param = 0;
    finish(b, &o);
    psc__barrier(b->client, "end", on_done, &met);
    fake_idle(&b->fake, 40);
    assert_int_equal(said.n, 3);
    assert_string_equal(said.last, "the other workers to come to a barrier");
    bench_free(b);
}

// A pull of the round after the last one, which closes after so long.
static void wait_for_round(struct bench *b, double seconds)
{
    struct outcome o = {0};
    psc_pull(b->client, b->tensors, 1, b->fake.round + 1, on_result, &o, NULL);
    fake_idle(&b->fake, seconds);
    b->fake.round++;
    fake_wake(&b->fake);
    assert_int_equal(finish(b, &o).error.code, PSC_OK);
    fake_idle(&b->fake, 1);
}

// That a round takes long is told, but not in each step again where they are all as long.
static void test_who_waits_for_a_round_says_so(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct said said = {0};
    psc_options options = worker_options(b);
    options.update = PSC_SYNC;
    options.waits = note_wait;
    options.waits_arg = &said;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    wait_for_round(b, 0.5);
    wait_for_round(b, 1.8);
    assert_int_equal(said.n, 0);
    wait_for_round(b, 6);
    assert_int_equal(said.n, 1);
    assert_string_equal(said.last, "the other workers' gradients of round 3");
    for (int i = 0; i < 5; i++)
        wait_for_round(b, 4 + i);
    assert_int_equal(said.n, 1);
    wait_for_round(b, 20);
    assert_int_equal(said.n, 2);
    assert_string_equal(said.last, "the other workers' gradients of round 9");
    wait_for_round(b, 1);
    wait_for_round(b, 1);
    wait_for_round(b, 6);
    assert_int_equal(said.n, 3);
    bench_free(b);
}

// Whatever call it is that a ps task does not answer, it is named.
static void test_every_call_has_a_name(void **state)
{
    (void)state;
    const int last = PARAMSERVER__V1__METHOD__LOAD_SHARD;
    for (int m = PARAMSERVER__V1__METHOD__JOIN; m <= last; m++)
        if (m < PARAMSERVER__V1__METHOD__RENDEZVOUS || m > PARAMSERVER__V1__METHOD__WATCH)  // those are no ps task's
            assert_string_not_equal(psc__method_name(m), "call");
    assert_string_equal(psc__method_name(last + 1), "call");
    assert_string_equal(psc__method_name(-1), "call");
    assert_string_equal(psc__method_name(PARAMSERVER__V1__METHOD__OPEN), "open");
    assert_string_equal(psc__method_name(last), "load shard");
}

// Where more is to be sent than flies at once, and no answer comes, no task is said to be away.
static void test_who_waits_for_answers_says_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct said said = {0};
    struct outcome o[6] = {{0}};
    psc_options options = worker_options(b);
    options.waits = note_wait;
    options.waits_arg = &said;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    b->fake.fate = task_is_gone;
    b->fake.param = FAKE_LOSE;
    for (int i = 0; i < 6; i++)
        psc_push(b->client, b->tensors, 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    fake_idle(&b->fake, 8);
    assert_int_equal(said.n, 0);
    bench_free(b);
}

// Silence, or a connection that breaks, is not death.
static void test_a_task_that_is_slow_does_not(void **state)
{
    (void)state;
    const enum fake_fate fates[] = {FAKE_LOSE, FAKE_CUT_BEFORE};
    for (size_t i = 0; i < 2; i++) {
        struct bench *b = bench_new(PSC_STREAM);
        psc_options options = worker_options(b);
        struct outcome o = {0};
        options.timeout_ms = 60000;
        bench_begin(b, options);
        assert_int_equal(bench_declare(b).code, PS_OK);
        b->fake.fate = task_is_gone;
        b->fake.param = fates[i];
        if (fates[i] == FAKE_CUT_BEFORE)
            psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
        fake_idle(&b->fake, 30);
        b->fake.param = 0;
        if (fates[i] == FAKE_LOSE)
            psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
        assert_int_equal(finish(b, &o).error.code, PSC_OK);
        bench_free(b);
    }
}

// param: until then (ns).
static enum fake_fate has_no_room(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    return method == PARAMSERVER__V1__METHOD__DECLARE && f->now < f->param ? FAKE_REFUSE : FAKE_DELIVER;
}

static void test_who_is_refused_says_why(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    struct said said = {0};
    psc_options options = worker_options(b);
    options.waits = note_wait;
    options.waits_arg = &said;
    options.timeout_ms = 60000;
    bench_begin(b, options);
    b->fake.fate = has_no_room;
    b->fake.param = b->fake.now + 10 * PS_SECOND;
    assert_int_equal(bench_declare(b).code, PS_OK);
    assert_in_range(said.n, 1, 2);  // of one task, then of another
    assert_non_null(strstr(said.last, "): no memory"));
    bench_free(b);
}

// Nor does a worker that only waits for others miss it.
static void test_who_waits_for_others_notices_too(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    psc__barrier(b->client, "end", on_done, &o);
    fake_idle(&b->fake, 5);
    b->fake.fate = task_is_gone;
    b->fake.param = FAKE_GONE;
    uint64_t start = b->fake.now;
    assert_true(fake_run(&b->fake, &o.done, 20));
    assert_int_equal(o.error.code, PS_UNAVAILABLE);
    assert_non_null(strstr(o.error.text, "ps:1 (b:2) cannot be reached, tried for "));
    assert_true(b->fake.now - start < 6 * PS_SECOND);
    bench_free(b);
}

static enum fake_fate cut_once(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)method, (void)n;
    if (task != f->param - 1)
        return FAKE_DELIVER;
    f->param = 0;
    return FAKE_CUT_BEFORE;
}

// A connection that breaks twice, longer apart than a call may be tried for, while that waits for other workers: the
// task was there in between.
static void test_cut_twice_while_it_waits(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    b->fake.fate = cut_once;
    psc__barrier(b->client, "end", on_done, &o);
    for (int i = 0; i < 3; i++) {
        fake_idle(&b->fake, 3);
        b->fake.param = 1;
        fake_idle(&b->fake, 22);
        assert_int_equal(o.done, 0);
    }
    b->fake.barrier_open = true;
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_int_equal(o.error.code, PS_OK);
    bench_free(b);
}

// Likewise for a pull that waits for a round. That the task was there is known by heartbeats, or by another operation.
static void test_cut_twice_while_a_round_is_open(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct bench *b = bench_ready(PSC_STREAM);
        struct outcome o = {0};
        psc_tensor *t = b->tensors + 1;
        while ((fake_owner(&b->fake, t->name, 0) > 0) != other)
            t++;
        b->fake.fate = cut_once;
        psc_pull(b->client, t, 1, 1, on_result, &o, NULL);
        for (int i = 0; i < 3; i++) {
            fake_idle(&b->fake, 3);
            b->fake.param = fake_owner(&b->fake, t->name, 0) + 1;
            struct outcome got = {0};
            if (other) {
                psc_get(b->client, t, 1, on_result, &got, NULL);
                assert_int_equal(finish(b, &got).error.code, PSC_OK);
            }
            fake_idle(&b->fake, 22);
            assert_int_equal(b->fake.param, 0);
            assert_int_equal(o.done, 0);
        }
        b->fake.round = 1;
        fake_wake(&b->fake);
        assert_int_equal(finish(b, &o).error.code, PSC_OK);
        bench_free(b);
    }
}

static enum fake_fate lose_pushes(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)n;
    return task == 2 && method == PARAMSERVER__V1__METHOD__PUSH ? FAKE_LOSE : FAKE_DELIVER;
}

static void test_no_answer_until_the_deadline(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.fate = lose_pushes;
    psc_result r = push(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r.error.text, "ps:2 (c:3): not done within "));
    bench_free(b);
}

static enum fake_fate refuse_some(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task;
    return method == PARAMSERVER__V1__METHOD__PUSH && n < f->param ? FAKE_REFUSE : FAKE_DELIVER;
}

static void test_refused_is_tried_again(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.fate = refuse_some;
    b->fake.param = 40;
    b->scalar = 1;
    assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_OK);
    b->fake.param = UINT64_MAX;
    psc_result r = push(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "no memory"));
    bench_free(b);
}

// param: requests that come to a task, of any kind, before one is known there.
static enum fake_fate is_unknown(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method, (void)n;
    return f->param && f->param-- ? FAKE_UNKNOWN : FAKE_DELIVER;
}

// A credential does not do for a while, as where a host's clock is set: who has joined waits until it does, as long as
// for a task that cannot be reached.
static void test_who_has_joined_is_known_again(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome met = {0};
    b->fake.fate = is_unknown;
    b->fake.param = 12;
    b->scalar = 1;
    psc__barrier(b->client, "end", on_done, &met);
    assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_OK);
    assert_int_equal(b->fake.param, 0);
    b->fake.barrier_open = true;
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &met.done, 30));
    assert_int_equal(met.error.code, PS_OK);
    b->fake.param = UINT64_MAX;
    psc_result r = push(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_UNAVAILABLE);
    assert_non_null(strstr(r.error.text, "the munge credential has expired"));
    bench_free(b);
}

static enum fake_fate garble(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    return (uint64_t)method == f->param ? FAKE_GARBAGE : FAKE_DELIVER;
}

static void test_answers_that_are_none(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.fate = garble;
    b->fake.param = PARAMSERVER__V1__METHOD__PUSH;
    assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_INTERNAL);
    b->fake.param = PARAMSERVER__V1__METHOD__PULL;
    psc_result r = pull(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_INTERNAL);
    assert_non_null(strstr(r.error.text, "pull: ps:"));
    bench_free(b);
}

static void test_lost_state_ends_the_client(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    psc_error e;
    b->fake.generation[1] = 7;
    psc_result r = push(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_ABORTED);
    assert_string_equal(r.error.text, "ps:1 (b:2) has restarted and lost what it had of the job");
    assert_int_equal(psc_health(b->client, &e), PSC_ABORTED);
    assert_string_equal(e.text, r.error.text);
    assert_int_equal(b->fake.cuts, 1);                            // what is under way to the other task need not arrive
    assert_string_equal(push(b, 3, 1).error.text, r.error.text);  // whichever task it is for
    struct outcome o = {0};
    psc__barrier(b->client, "b", on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 1));
    assert_int_equal(o.error.code, PS_ABORTED);
    bench_free(b);
}

// The control task is started again while a Join waits there.
static enum fake_fate restart_with_the_join(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__JOIN || f->param == 0)
        return FAKE_DELIVER;
    f->param--;
    f->generation[0]++;
    return FAKE_CUT_BEFORE;
}

static enum fake_fate task_1_has_no_job(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)n;
    return task == 1 && method == PARAMSERVER__V1__METHOD__PULL ? FAKE_NO_JOB : FAKE_DELIVER;
}

// A worker that has joined, and one that has attached and heard nothing but that from the tasks, of a job that was
// declared once task 1 had restarted.
static struct bench *bench_with_attached(psc_client **attached)
{
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    struct outcome joined = {0}, o = {0};
    bench_begin(b, options);
    options.rank = 1;
    *attached = second_client(b, options);
    psc__join(*attached, on_done, &joined);
    assert_true(fake_run(&b->fake, &joined.done, 5));
    b->fake.generation[1]++;
    assert_int_equal(bench_declare(b).code, PS_OK);
    psc__attach(*attached, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 5));
    assert_int_equal(o.error.code, PS_OK);
    return b;
}

static psc_result pull_as(struct bench *b, psc_client *client)
{
    struct outcome o = {0};
    psc_pull(client, b->tensors, N_VARIABLES, 0, on_result, &o, NULL);
    return finish(b, &o);
}

// What a task is that had nothing of the job when it was started again is the one that has it now.
static void test_a_task_may_restart_before_the_job_begins(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    bench_create(b, worker_options(b));
    b->fake.fate = restart_with_the_join;
    b->fake.param = 2;
    assert_string_equal(bench_join(b).text, "");
    bench_free(b);
    psc_client *attached;
    b = bench_with_attached(&attached);
    for (int i = 0; i < 2; i++)
        assert_string_equal(pull_as(b, attached).error.text, "");
    b->fake.generation[1]++;
    assert_string_equal(pull_as(b, attached).error.text, "ps:1 (b:2) has restarted and lost what it had of the job");
    psc__client_free(attached);
    bench_free(b);
}

// Who has not heard from a task since the job was declared knows by what it lacks that it has restarted, or that the
// job was stopped; who has knows that it was stopped.
static void test_a_task_that_lacks_the_job_has_restarted_or_stopped_it(void **state)
{
    (void)state;
    psc_client *attached;
    struct bench *b = bench_with_attached(&attached);
    b->fake.fate = task_1_has_no_job;
    psc_result r = pull_as(b, attached);
    assert_int_equal(r.error.code, PSC_ABORTED);
    assert_string_equal(r.error.text,
                        "ps:1 (b:2): ps task has no job 'test': it has restarted, or the job was stopped");
    r = pull(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_CANCELLED);
    assert_string_equal(r.error.text, "ps:1 (b:2): ps task has no job 'test': it was stopped");
    psc__client_free(attached);
    bench_free(b);
}

static enum fake_fate abort_one(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method;
    return n == f->param ? FAKE_ABORT : FAKE_DELIVER;
}

static void test_aborted_ends_the_client(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.fate = abort_one;
    b->fake.param = 3;
    psc_result r = push(b, 0, N_VARIABLES);
    assert_int_equal(r.error.code, PSC_ABORTED);
    assert_non_null(strstr(r.error.text, "the job has ended"));
    assert_int_equal(psc_health(b->client, NULL), PSC_ABORTED);
    bench_free(b);
}

static void test_tensors_are_checked(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    float x[SMALL];
    struct {
        psc_tensor tensors[2];
        psc_code code;
        const char *text;
    } bad[] = {
        {{{"dense/bias", x, SMALL, PSC_FLOAT32}, {"dense/biass", x, SMALL, PSC_FLOAT32}},
         PSC_NOT_FOUND,
         "did you mean 'dense/bias'?"},
        {{{"dense/bias", x, SMALL, PSC_FLOAT32}, {"output/bias", x, SMALL, PSC_INT32}},
         PSC_INVALID_ARGUMENT,
         "is float32, the tensor is int32"},
        {{{"dense/bias", x, SMALL, PSC_FLOAT32}, {"output/bias", x, SMALL - 1, PSC_FLOAT32}},
         PSC_INVALID_ARGUMENT,
         "has 10 elements, the tensor has 9"},
        {{{"dense/bias", x, SMALL, PSC_FLOAT32}, {"output/bias", NULL, SMALL, PSC_FLOAT32}},
         PSC_INVALID_ARGUMENT,
         "no data"},
        {{{"dense/bias", x, SMALL, PSC_FLOAT32}, {"dense/bias", x, SMALL, PSC_FLOAT32}}, PSC_INVALID_ARGUMENT, "twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct outcome o = {0};
        psc_push(b->client, bad[i].tensors, 2, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
        assert_int_equal(atomic_load(&o.done), 0);  // never from inside
        assert_int_equal(finish(b, &o).error.code, bad[i].code);
        assert_non_null(strstr(o.result.error.text, bad[i].text));
    }
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        assert_int_equal(b->fake.arrivals[i].sequence, 0);
    struct outcome o = {0};
    psc_push(b->client, NULL, 0, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_OK);
    bench_free(b);
}

static void test_bad_encodings(void **state)
{
    float x[SMALL] = {0}, *residual[] = {x};
    const psc_tensor bias = {"dense/bias", x, SMALL, PSC_FLOAT32};
    const struct {
        psc_push_options options;
        const char *text;
    } bad[] = {
        {{.encoding = PSC_INT32, .residual = residual}, "encoding 3: expected 0, PSC_BFLOAT16 or PSC_SCALED_INT8"},
        {{.encoding = PSC_BFLOAT16}, "an encoding without residual"},
        {{.encoding = PSC_BFLOAT16, .residual = residual, .atomic = true}, "atomic does not go with an encoding"},
    };
    struct bench *b = bench_ready(PSC_STREAM);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct outcome o = {0};
        psc_push(b->client, &bias, 1, &bad[i].options, on_result, &o, NULL);
        assert_int_equal(finish(b, &o).error.code, PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(o.result.error.text, bad[i].text));
    }
    bench_free(b);
}

// Options may be left out; tensors may not.
static void test_what_is_null(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o[4] = {0};
    psc_push(b->client, b->tensors, 1, NULL, on_result, &o[0], NULL);
    assert_int_equal(finish(b, &o[0]).error.code, PSC_OK);
    psc_push_pull(b->client, b->tensors, b->tensors, 1, NULL, on_result, &o[1], NULL);
    assert_int_equal(finish(b, &o[1]).error.code, PSC_OK);
    psc_push_pull(b->client, b->tensors, NULL, 1, NULL, on_result, &o[2], NULL);
    assert_int_equal(finish(b, &o[2]).error.code, PSC_INVALID_ARGUMENT);
    psc_push(b->client, NULL, 1, NULL, on_result, &o[3], NULL);
    assert_int_equal(finish(b, &o[3]).error.code, PSC_INVALID_ARGUMENT);
    bench_free(b);
}

static void test_operations_need_a_declaration(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    bench_create(b, worker_options(b));
    assert_int_equal(push(b, 3, 1).error.code, PSC_FAILED_PRECONDITION);
    bench_free(b);
}

// ---- waiting ------------------------------------------------------------------------------------------------------

static void test_a_waiting_pull_blocks_nobody(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    psc_pull(b->client, b->tensors, N_VARIABLES, 1, on_result, &o, NULL);
    fake_idle(&b->fake, 1);
    b->scalar = 1;
    assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    fake_idle(&b->fake, 100);  // longer than any deadline of its own
    assert_int_equal(atomic_load(&o.done), 0);
    b->fake.round = 1;
    fake_wake(&b->fake);
    psc_result r = finish(b, &o);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.round, 1);
    bench_free(b);
}

static void test_barrier_and_lease(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0}, leased = {0};
    psc__barrier(b->client, "start", on_done, &o);
    fake_idle(&b->fake, 100);
    assert_int_equal(atomic_load(&o.done), 0);
    b->fake.barrier_open = true;
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_int_equal(o.error.code, PS_OK);
    psc_share share;
    psc__lease(b->client, 2, 5000, 64, 0, &share, on_done, &leased);
    assert_true(fake_run(&b->fake, &leased.done, 10));
    assert_int_equal(share.first, 2000);
    assert_int_equal(share.count, 64);
    bench_free(b);
}

// What a Lease is answered with may not take a trainer past its data.
static void test_a_share_that_is_none(void **state)
{
    (void)state;
    static const struct {
        psc_update update;
        bool fits;
        uint64_t share[5];  // of 100 examples, 10 at once: first, count, stride, end, steps
    } shares[] = {
        {PSC_ASYNC, true, {90, 10, 0, 0, 1}},
        {PSC_ASYNC, true, {0, 0, 0, 0, 0}},
        {PSC_ASYNC, false, {91, 10, 0, 0, 1}},
        {PSC_ASYNC, false, {100, 1, 0, 0, 1}},
        {PSC_ASYNC, false, {0, 11, 0, 0, 1}},
        {PSC_ASYNC, false, {UINT64_MAX, 2, 0, 0, 1}},
        {PSC_SYNC, true, {10, 10, 20, 100, 5}},
        {PSC_SYNC, true, {100, 10, 95, 100, 1}},  // nothing, in a round of others
        {PSC_SYNC, true, {100, 10, 100, 100, 3}},
        {PSC_SYNC, false, {10, 10, 20, 101, 5}},
        {PSC_SYNC, false, {101, 10, 20, 100, 1}},
        {PSC_SYNC, false, {10, 10, 0, 100, 5}},
        {PSC_SYNC, false, {10, 10, 20, 100, 0}},
        {PSC_SYNC, false, {10, 11, 20, 100, 5}},
        {PSC_SYNC, false, {10, 10, UINT64_MAX, 100, UINT64_MAX}},
    };
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct bench *b = bench_new(PSC_STREAM);
        psc_options options = worker_options(b);
        struct outcome o = {0};
        psc_share share = {.first = 7};
        options.update = shares[i].update;
        bench_begin(b, options);
        b->fake.share = shares[i].share;
        psc__lease(b->client, 0, 100, 10, 0, &share, on_done, &o);
        assert_true(fake_run(&b->fake, &o.done, 10));
        if (o.error.code != (shares[i].fits ? PS_OK : PS_INTERNAL))
            fail_msg("share %zu: %d %s", i, (int)o.error.code, o.error.text);
        assert_true(shares[i].fits ? share.first == shares[i].share[0] : share.first == 7);
        assert_true(shares[i].fits || strstr(o.error.text, "is none of 100 examples"));
        bench_free(b);
    }
}

static void test_the_job_ends_while_waiting(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0}, pulled = {0};
    psc__barrier(b->client, "end", on_done, &o);
    psc_pull(b->client, b->tensors, 1, 1, on_result, &pulled, NULL);
    fake_idle(&b->fake, 2);
    b->fake.end_job = true;
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_true(fake_run(&b->fake, &pulled.done, 10));
    assert_int_equal(o.error.code, PS_ABORTED);
    assert_non_null(strstr(o.error.text, "worker 1 is dead"));
    assert_int_equal(pulled.result.error.code, PSC_ABORTED);
    bench_free(b);
}

// A signal ends what waits for others at once; a step in whose middle it comes may end, within two seconds.
static void test_a_signal_lets_a_step_end(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    volatile sig_atomic_t stop = 0;
    psc_options options = worker_options(b);
    struct outcome met = {0}, pulled = {0}, later = {0};
    options.stop = &stop;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    psc__barrier(b->client, "end", on_done, &met);
    psc_pull(b->client, b->tensors, 1, 1, on_result, &pulled, NULL);
    fake_idle(&b->fake, 1);
    ps_signal_set(&stop, SIGTERM);
    fake_idle(&b->fake, 0.3);
    assert_int_equal(met.error.code, PS_CANCELLED);
    assert_string_equal(met.error.text, "barrier: stopped by SIGTERM");
    assert_int_equal(atomic_load(&pulled.done), 0);
    psc__barrier(b->client, "end", on_done, &later);
    assert_true(fake_run(&b->fake, &later.done, 0.1));
    assert_int_equal(later.error.code, PS_CANCELLED);
    b->scalar = 1;
    assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    fake_idle(&b->fake, 7);
    assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    assert_int_equal(atomic_load(&pulled.done), 0);
    fake_idle(&b->fake, 1);
    assert_int_equal(pulled.result.error.code, PSC_CANCELLED);
    assert_int_equal(push(b, 3, 1).error.code, PSC_CANCELLED);
    bench_free(b);
}

// A program's handler may leave a 1 there, which is SIGHUP's number.
static void test_a_stop_is_called_by_its_name(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *text;
    } stops[] = {{1, "barrier: stopped by a signal"}, {SIGINT, "barrier: stopped by SIGINT"}};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct bench *b = bench_new(PSC_STREAM);
        volatile sig_atomic_t stop = 0;
        psc_options options = worker_options(b);
        struct outcome met = {0};
        options.stop = &stop;
        bench_begin(b, options);
        psc__barrier(b->client, "end", on_done, &met);
        fake_idle(&b->fake, 1);
        ps_signal_set(&stop, stops[i].number);
        assert_true(fake_run(&b->fake, &met.done, 1));
        assert_int_equal(met.error.code, PS_CANCELLED);
        assert_string_equal(met.error.text, stops[i].text);
        bench_free(b);
    }
}

static void test_silence_ends_the_job(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    psc_error e;
    b->fake.silent = true;
    uint64_t start = b->fake.now;
    psc_pull(b->client, b->tensors, 1, 1, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_UNAVAILABLE);
    assert_in_range((b->fake.now - start) / PS_MS, 4000, 8000);
    assert_int_equal(psc_health(b->client, &e), PSC_UNAVAILABLE);
    assert_non_null(strstr(e.text, "ps:0 (a:1), the control task, has been silent"));
    bench_free(b);
}

// The whole machine has stood still for longer than a control task may be silent, with a heartbeat on its way.
static void test_standing_still_is_no_silence(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    psc_error e;
    b->fake.silent = true;  // some are lost, which are forgotten when one is answered
    fake_idle(&b->fake, 3);
    b->fake.silent = false;
    fake_idle(&b->fake, 10);
    b->fake.silent = true;
    fake_idle(&b->fake, 0.8);
    b->fake.now += 20 * PS_SECOND;
    b->fake.silent = false;
    fake_idle(&b->fake, 10);
    if (psc_health(b->client, &e))
        fail_msg("%s", e.text);
    bench_free(b);
}

static void test_heartbeats_go_on(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    psc_error e;
    int before = b->fake.heartbeats;
    fake_idle(&b->fake, 60);
    assert_in_range(b->fake.heartbeats - before, 110, 121);
    assert_int_equal(psc_health(b->client, &e), PSC_OK);
    assert_string_equal(e.text, "");
    bench_free(b);
}

// ---- reads that go on ---------------------------------------------------------------------------------------------

static enum fake_fate abort_continuation(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__GET || !f->param || --f->param)
        return FAKE_DELIVER;
    return FAKE_ABORT;
}

static void test_get_goes_on(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0}, again = {0};
    fill(b->big, BIG, 1);
    push(b, 0, N_VARIABLES);
    b->fake.n_arrivals = 0;
    b->fake.reply_bytes = PS_BLOCK_BYTES;
    memset(b->big, 0, BIG * sizeof *b->big);
    psc_get(b->client, b->tensors, N_VARIABLES, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_OK);
    for (uint64_t i = 0; i < BIG; i++)
        assert_true(b->big[i] == (float)(i % 1000));
    size_t from_snapshot = 0;
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        from_snapshot += b->fake.arrivals[i].snapshot == 99;
    assert_true(from_snapshot >= 3 * FAKE_TASKS);

    b->fake.fate = abort_continuation;  // psd takes the snapshot back
    b->fake.param = 7;
    memset(b->big, 0, BIG * sizeof *b->big);
    psc_get(b->client, b->tensors, N_VARIABLES, on_result, &again, NULL);
    assert_int_equal(finish(b, &again).error.code, PSC_OK);
    assert_int_equal(b->fake.param, 0);
    for (uint64_t i = 0; i < BIG; i++)
        assert_true(b->big[i] == (float)(i % 1000));
    bench_free(b);
}

// ---- memory, the end ----------------------------------------------------------------------------------------------

static void test_memory_is_kept_until_the_transport_lets_go(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    b->fake.hold_memory = true;
    psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    fake_idle(&b->fake, 5);
    assert_int_equal(atomic_load(&o.done), 0);
    fake_release_memory(&b->fake);
    assert_int_equal(atomic_load(&o.done), 1);
    assert_int_equal(o.result.error.code, PSC_OK);
    bench_free(b);
}

// A transport that has shut down and does not give memory back keeps nobody from closing the client.
static void test_a_client_closes_whatever_becomes_of_memory(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome all = {0};
    psc_result one;
    psc_op *op;
    b->fake.hold_memory = b->fake.keeps_memory = true;
    psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &all, NULL);
    psc_push(b->client, b->tensors + 3, 1, &(psc_push_options){.examples = 1}, NULL, NULL, &op);
    fake_idle(&b->fake, 5);
    assert_int_equal(atomic_load(&all.done), 0);
    psc__client_free(b->client);
    b->client = NULL;
    assert_int_equal(atomic_load(&all.done), 1);
    assert_int_equal(all.result.error.code, PSC_CANCELLED);
    assert_non_null(strstr(all.result.error.text, "push: the client was closed, and ps:"));
    assert_non_null(strstr(all.result.error.text, ", or another ps task, has not taken what was sent"));
    assert_int_equal(psc_wait(op, &one, NULL), PSC_CANCELLED);
    assert_non_null(strstr(one.error.text, ") has not taken what was sent: the tensors' memory is in use"));
    fake_release_memory(&b->fake);  // at last
    bench_free(b);
}

static void test_leaving_ends_what_is_under_way(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome pushed = {0}, pulled = {0}, barrier = {0}, late = {0}, left = {0};
    psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &pushed, NULL);
    psc_pull(b->client, b->tensors, 1, 1, on_result, &pulled, NULL);
    psc__barrier(b->client, "end", on_done, &barrier);
    psc__leave(b->client, NULL, on_done, &left);
    assert_int_equal(pushed.result.error.code, PSC_CANCELLED);
    assert_int_equal(pulled.result.error.code, PSC_CANCELLED);
    assert_int_equal(barrier.error.code, PS_CANCELLED);
    assert_true(fake_run(&b->fake, &left.done, 10));
    assert_int_equal(left.error.code, PS_OK);
    assert_int_equal(b->fake.leaves, 1);
    psc_push(b->client, b->tensors, 1, &(psc_push_options){.examples = 1}, on_result, &late, NULL);
    psc__client_free(b->client);
    b->client = NULL;
    assert_int_equal(late.result.error.code, PSC_CANCELLED);
    bench_free(b);
}

struct farewell {
    enum fake_fate fate;  // of what is sent for 3 s
    const char *reason;
    int leaves;
    uint64_t least_ms, most_ms;  // that it takes
};

static enum fake_fate away_for_a_while(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)method, (void)n;
    return task == 0 && f->now < absence.until ? (enum fake_fate)f->param : FAKE_DELIVER;
}

// A worker that is done says so for as long as it may be silent; not where nobody listens, or where it has failed.
static void test_the_control_task_is_away_at_the_end(void **state)
{
    static const struct farewell farewells[] = {
        {FAKE_CUT_BEFORE, NULL, 1, 3000, 5000},
        {FAKE_GONE, NULL, 0, 1000, 3000},
        {FAKE_CUT_BEFORE, "enough", 0, 1000, 3000},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof farewells / sizeof *farewells; i++) {
        const struct farewell *x = &farewells[i / 2];
        struct bench *b = bench_new(i % 2 ? PSC_UNARY : PSC_STREAM);
        struct outcome left = {0};
        b->fake.dead_after_ms = 10000;
        bench_begin(b, worker_options(b));
        assert_int_equal(bench_declare(b).code, PS_OK);
        const uint64_t start = b->fake.now;
        absence.until = start + 3 * PS_SECOND;
        b->fake.param = x->fate;
        b->fake.fate = away_for_a_while;
        psc__leave(b->client, x->reason, on_done, &left);
        assert_true(fake_run(&b->fake, &left.done, 20));
        assert_int_equal(b->fake.leaves, x->leaves);
        assert_in_range((b->fake.now - start) / PS_MS, x->least_ms, x->most_ms);
        bench_free(b);
    }
}

static uint64_t step_after_leaving(psc_transport transport, double seconds, bool silent)
{
    struct bench *b = bench_ready(transport);
    struct outcome left = {0};
    psc_report(b->client, 1, 10, 0.5);
    fake_idle(&b->fake, seconds);
    psc_report(b->client, 2, 20, 0.25);
    b->fake.silent = silent;
    psc__leave(b->client, "enough", on_done, &left);
    assert_true(fake_run(&b->fake, &left.done, 10));
    assert_int_equal(left.error.code, PS_OK);
    assert_int_equal(b->fake.leaves, 1);
    uint64_t step = b->fake.step;
    bench_free(b);
    return step;
}

static void test_the_last_report_is_sent_before_leaving(void **state)
{
    (void)state;
    assert_int_equal(step_after_leaving(PSC_STREAM, 0, false), 2);
    assert_int_equal(step_after_leaving(PSC_STREAM, 0.9, false), 2);
    assert_int_equal(step_after_leaving(PSC_UNARY, 0.9, false), 2);
    assert_int_equal(step_after_leaving(PSC_STREAM, 0.9, true), 1);
}

// psd refuses a message with text that is not UTF-8.
static void test_a_reason_is_sent_as_text(void **state)
{
    (void)state;
    char is_long[2000];
    memset(is_long, 'x', sizeof is_long - 1);
    is_long[sizeof is_long - 1] = 0;
    for (int reports = 0; reports < 2; reports++) {  // with a last heartbeat before it, and without
        const char *const reasons[][2] = {{"Gr\xf6\xdf"
                                           "e",
                                           "Gr??e"},
                                          {"Gr\u00f6\u00dfe", "Gr\u00f6\u00dfe"},
                                          {is_long, NULL}};
        for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
            struct bench *b = bench_ready(PSC_STREAM);
            struct outcome left = {0};
            if (reports)
                psc_report(b->client, 1, 10, 0.5);
            psc__leave(b->client, reasons[i][0], on_done, &left);
            assert_true(fake_run(&b->fake, &left.done, 10));
            assert_int_equal(b->fake.leaves, 1);
            if (reasons[i][1])
                assert_string_equal(b->fake.reason, reasons[i][1]);
            else
                assert_in_range(strlen(b->fake.reason), 300, 336);
            bench_free(b);
        }
    }
}

static void test_progress_is_sent_with_heartbeats(void **state)
{
    psc_metric metrics[PS_MAX_PROGRESS + 1] = {{"dropped", 0}, {"loss", 0.5}};
    char names[PS_MAX_PROGRESS + 1][8];
    struct bench *b = bench_ready(PSC_STREAM);
    const struct ps_progress *p = &b->fake.progress;
    (void)state;
    for (size_t i = 2; i <= PS_MAX_PROGRESS; i++) {
        snprintf(names[i], sizeof names[i], "m%zu", i);
        metrics[i] = (psc_metric){names[i], 2};
    }
    fake_idle(&b->fake, 2);
    assert_int_equal(p->epochs, 0);
    psc_report_epoch(b->client, 20, 0, NULL, 0);
    fake_idle(&b->fake, 2);
    assert_true(p->epochs == 20 && p->ended == 0 && p->n == 0 && p->checkpoints == PS_CHECKPOINTS_UNKNOWN);
    psc_report_saved(b->client, true, 300, 1234);
    psc_report_epoch(b->client, 20, 7, metrics, PS_MAX_PROGRESS + 1);
    psc_report_epoch(b->client, 20, 7, NULL, 0);
    fake_idle(&b->fake, 2);
    assert_true(p->epochs == 20 && p->ended == 7 && p->n == PS_MAX_PROGRESS);
    assert_string_equal(p->metric[0].name, "loss");
    assert_true(p->metric[0].value == 0.5 && p->metric[PS_MAX_PROGRESS - 1].value == 2);
    assert_true(p->checkpoints == PS_CHECKPOINTS_SOME && p->checkpoint == 300 && p->checkpoint_ms == 1234);
    bench_free(b);
}

// By the chief alone: what others have been told may be older.
static void test_progress_is_the_chiefs(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.rank = 1;
    bench_begin(b, options);
    psc_report_epoch(b->client, 20, 0, NULL, 0);
    fake_idle(&b->fake, 2);
    assert_int_equal(b->fake.progress.epochs, 0);
    b->fake.left = true;
    fake_idle(&b->fake, 2);
    assert_int_equal(b->fake.progress.epochs, 20);
    bench_free(b);
}

// What has become of the checkpoints that were asked for: the last one counts, but one that is there stays there.
static void test_checkpoints_are_reported(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        bool failed;
        const char *text;
        bool taken;
    } reports[] = {{2, true, "no space", true},   {2, true, "still no space", true}, {2, false, "/m/2", true},
                   {2, true, "no space", false},  {3, true, "no space", true},       {3, false, "/m/3", true},
                   {3, false, "/m/3 again", true}};
    struct bench *b = bench_ready(PSC_STREAM);
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        psc_report_checkpoint(b->client, reports[i].number, reports[i].failed, reports[i].text);
        fake_idle(&b->fake, 2);
        const size_t last = reports[i].taken ? i : i - 1;
        assert_int_equal(b->fake.checkpoint, reports[last].number);
        assert_int_equal(b->fake.checkpoint_failed, reports[last].failed);
        assert_string_equal(b->fake.checkpoint_text, reports[last].text);
    }
    bench_free(b);
}

static void test_dying_with_everything_under_way(void **state)
{
    (void)state;
    for (double seconds = 0; seconds < 0.03; seconds += 0.0007) {
        struct bench *b = bench_ready(PSC_STREAM);
        struct outcome o = {0};
        b->fake.shuffle = true;
        for (int i = 0; i < 5; i++) {
            psc_push(b->client, b->tensors, N_VARIABLES, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
            psc_pull(b->client, b->tensors, N_VARIABLES, 0, on_result, &o, NULL);
        }
        psc__barrier(b->client, "end", on_done, &o);
        fake_idle(&b->fake, seconds);
        psc__client_free(b->client);
        b->client = NULL;
        assert_int_equal(atomic_load(&o.done), 11);
        bench_free(b);
    }
}

struct again {
    psc_client *client;
    psc_tensor *tensor;
    int left, reported;
    psc_code code;  // the last
};

static void start_again(void *arg, const psc_result *r)
{
    struct again *a = arg;
    a->reported++;
    a->code = r->error.code;
    if (a->left-- > 0)
        psc_get(a->client, a->tensor, 1, start_again, a, NULL);
}

static void test_callbacks_start_operations_until_the_end(void **state)
{
    (void)state;
    for (int timers = 0; timers < 2; timers++) {
        struct bench *b = bench_ready(PSC_STREAM);
        struct again a = {.client = b->client, .tensor = b->tensors, .left = 5};
        struct outcome left = {0};
        psc_get(b->client, b->tensors, 1, start_again, &a, NULL);
        psc__leave(b->client, NULL, on_done, &left);
        assert_int_equal(a.reported, 1);
        if (timers)
            fake_idle(&b->fake, 1);
        psc__client_free(b->client);
        b->client = NULL;
        assert_int_equal(a.reported, 6);
        assert_int_equal(a.code, PSC_CANCELLED);
        assert_int_equal(b->fake.worlds, 0);
        bench_free(b);
    }
}

// What waits for others is cancelled: nothing comes into its memory any more, and what else is under way goes on.
static void test_cancelled(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    float got = 77, other = 77;
    psc_tensor t = {"step", &got, 1, PSC_FLOAT32}, u = {"step", &other, 1, PSC_FLOAT32};
    psc_op *first, *second;
    options.update = PSC_SYNC;
    bench_begin(b, options);
    assert_int_equal(bench_declare(b).code, PS_OK);
    psc_pull(b->client, &t, 1, 1, NULL, NULL, &first);
    psc_pull(b->client, &u, 1, 1, NULL, NULL, &second);
    fake_idle(&b->fake, 1);
    assert_false(psc_done(first, 0));
    psc_cancel(first);
    psc_cancel(NULL);
    fake_idle(&b->fake, 0.1);
    assert_false(psc_done(second, 0));
    b->fake.round = 1;
    fake_wake(&b->fake);
    fake_idle(&b->fake, 1);
    assert_true(psc_done(first, 0) && psc_done(second, 0));
    psc_cancel(second);  // too late
    psc_error e;
    assert_int_equal(psc_wait(first, NULL, &e), PSC_CANCELLED);
    assert_string_equal(e.text, "pull: it was cancelled");
    assert_int_equal(psc_wait(second, NULL, &e), PSC_OK);
    assert_true(got == 77 && other == 0);
    bench_free(b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_join_and_declare),
    cmocka_unit_test(test_join_names_all_that_are_down),
    cmocka_unit_test(test_join_waits_for_those_that_are_not_there_yet),
    cmocka_unit_test(test_join_knows_its_tasks),
    cmocka_unit_test(test_join_says_what_the_tasks_know),
    cmocka_unit_test(test_attach),
    cmocka_unit_test(test_update_of_unknown_outcome),
    cmocka_unit_test(test_declared_twice_at_once),
    cmocka_unit_test(test_attach_gives_up),
    cmocka_unit_test(test_declaration_is_checked),
    cmocka_unit_test(test_options_are_checked),
    cmocka_unit_test(test_round_trip_stream),
    cmocka_unit_test(test_round_trip_unary),
    cmocka_unit_test(test_requests_are_cut_to_chunks),
    cmocka_unit_test(test_larger_chunks_carry_whole_blocks),
    cmocka_unit_test(test_versions_come_from_the_last_pull),
    cmocka_unit_test(test_cuts_are_swept_stream),
    cmocka_unit_test(test_cuts_are_swept_unary),
    cmocka_unit_test(test_no_read_overtakes_an_update_stream),
    cmocka_unit_test(test_no_read_overtakes_an_update_unary),
    cmocka_unit_test(test_window),
    cmocka_unit_test(test_a_higher_priority_goes_first),
    cmocka_unit_test(test_waiting_for_the_window_has_a_deadline),
    cmocka_unit_test(test_no_read_overtakes_the_window),
    cmocka_unit_test(test_who_waits_for_others_holds_up_no_update),
    cmocka_unit_test(test_unreachable_until_the_deadline),
    cmocka_unit_test(test_a_refused_call_says_so_in_time),
    cmocka_unit_test(test_tried_for_as_long_as_it_was),
    cmocka_unit_test(test_a_task_that_is_back_is_found_soon),
    cmocka_unit_test(test_a_task_that_is_gone_ends_the_client),
    cmocka_unit_test(test_who_waits_for_a_round_says_so),
    cmocka_unit_test(test_every_call_has_a_name),
    cmocka_unit_test(test_a_task_that_is_slow_does_not),
    cmocka_unit_test(test_who_waits_can_say_for_what),
    cmocka_unit_test(test_who_waits_for_answers_says_nothing),
    cmocka_unit_test(test_who_is_refused_says_why),
    cmocka_unit_test(test_who_waits_for_others_notices_too),
    cmocka_unit_test(test_cut_twice_while_it_waits),
    cmocka_unit_test(test_cut_twice_while_a_round_is_open),
    cmocka_unit_test(test_no_answer_until_the_deadline),
    cmocka_unit_test(test_refused_is_tried_again),
    cmocka_unit_test(test_who_has_joined_is_known_again),
    cmocka_unit_test(test_answers_that_are_none),
    cmocka_unit_test(test_lost_state_ends_the_client),
    cmocka_unit_test(test_a_task_may_restart_before_the_job_begins),
    cmocka_unit_test(test_a_task_that_lacks_the_job_has_restarted_or_stopped_it),
    cmocka_unit_test(test_aborted_ends_the_client),
    cmocka_unit_test(test_tensors_are_checked),
    cmocka_unit_test(test_bad_encodings),
    cmocka_unit_test(test_what_is_null),
    cmocka_unit_test(test_operations_need_a_declaration),
    cmocka_unit_test(test_a_waiting_pull_blocks_nobody),
    cmocka_unit_test(test_barrier_and_lease),
    cmocka_unit_test(test_a_share_that_is_none),
    cmocka_unit_test(test_the_job_ends_while_waiting),
    cmocka_unit_test(test_a_signal_lets_a_step_end),
    cmocka_unit_test(test_a_stop_is_called_by_its_name),
    cmocka_unit_test(test_silence_ends_the_job),
    cmocka_unit_test(test_standing_still_is_no_silence),
    cmocka_unit_test(test_heartbeats_go_on),
    cmocka_unit_test(test_get_goes_on),
    cmocka_unit_test(test_memory_is_kept_until_the_transport_lets_go),
    cmocka_unit_test(test_a_client_closes_whatever_becomes_of_memory),
    cmocka_unit_test(test_leaving_ends_what_is_under_way),
    cmocka_unit_test(test_the_control_task_is_away_at_the_end),
    cmocka_unit_test(test_the_last_report_is_sent_before_leaving),
    cmocka_unit_test(test_a_reason_is_sent_as_text),
    cmocka_unit_test(test_progress_is_sent_with_heartbeats),
    cmocka_unit_test(test_progress_is_the_chiefs),
    cmocka_unit_test(test_checkpoints_are_reported),
    cmocka_unit_test(test_dying_with_everything_under_way),
    cmocka_unit_test(test_callbacks_start_operations_until_the_end),
    cmocka_unit_test(test_cancelled),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
