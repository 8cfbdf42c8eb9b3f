// SPDX-License-Identifier: Apache-2.0
// The Nth allocation of a client's life fails, alone or with all that follow, for every N: each operation ends once,
// what was acknowledged has happened, and a client that could be made works again as soon as there is memory.
//
// The linker puts the functions below in place of common/base/alloc.c's (see client.mk). That nothing leaks is for a
// build with the address sanitizer to see.
#include <stdio.h>

#include "common/base/alloc.h"
#include "tests/unit/client_bench.h"

static struct {
    uint64_t n;     // asked for so far
    uint64_t fail;  // the one that fails; UINT64_MAX: none
    bool forever;   // and all after it
    int aside;      // others' are not counted
} memory = {.fail = UINT64_MAX};

static void set_aside(bool on)
{
    memory.aside += on ? 1 : -1;
}

static bool fails(void)
{
    if (memory.aside)
        return false;
    uint64_t i = memory.n++;
    return memory.forever ? i >= memory.fail : i == memory.fail;
}

void *__real_ps_try_alloc(size_t size);
void *__real_ps_try_alloc_array(size_t n, size_t size);
void *__real_ps_try_realloc(void *p, size_t size);
char *__real_ps_try_strdup(const char *s);
void *__wrap_ps_try_alloc(size_t size);
void *__wrap_ps_try_alloc_array(size_t n, size_t size);
void *__wrap_ps_try_realloc(void *p, size_t size);
char *__wrap_ps_try_strdup(const char *s);

void *__wrap_ps_try_alloc(size_t size)
{
    return fails() ? NULL : __real_ps_try_alloc(size);
}

void *__wrap_ps_try_alloc_array(size_t n, size_t size)
{
    return fails() ? NULL : __real_ps_try_alloc_array(n, size);
}

void *__wrap_ps_try_realloc(void *p, size_t size)
{
    return fails() ? NULL : __real_ps_try_realloc(p, size);
}

char *__wrap_ps_try_strdup(const char *s)
{
    return fails() ? NULL : __real_ps_try_strdup(s);
}

// ---- a client's life ----------------------------------------------------------------------------------------------

enum { WORDS = 2000, PUSHES = 6 };

static const uint64_t words_shape[] = {WORDS}, kernel_shape[] = {400000};
static const psc_hyper rate = {"learning_rate", 0.5};
static const psc_variable few[] = {
    {.name = "step", .dtype = PSC_FLOAT32, .rule = "sgd", .hypers = &rate, .n_hypers = 1},
    {.name = "words", .dtype = PSC_STRING, .shape = words_shape, .rank = 1},
    {.name = "kernel", .dtype = PSC_FLOAT32, .shape = kernel_shape, .rank = 1, .trainable = true},
};

struct life {
    struct bench *b;
    int started, pushed;  // operations; of them those that add to step
    struct outcome o[64];
    struct ps_error error;  // of what came first
};

static bool reports(enum ps_code code, const char *text)
{
    if (code == PS_OK || code == PS_RESOURCE_EXHAUSTED || code == PS_FAILED_PRECONDITION)
        return true;
    print_message("# %d %s\n", (int)code, text);
    return false;
}

static struct outcome *next(struct life *l)
{
    return &l->o[l->started++];
}

static bool join_and_declare(struct life *l)
{
    static const char *const addresses[] = {"a:1", "b:2", "c:3"};
    static const psc_declaration declaration = {
        .variables = few, .n_variables = 3, .rule = "sgd", .hypers = &rate, .n_hypers = 1, .partitioner = "fixed:2"};
    struct bench *b = l->b;
    psc_cluster *cluster;
    struct psc_world world = fake_world(&b->fake);
    psc_options options = worker_options(b);
    options.job = "test";
    set_aside(true);
    assert_int_equal(psc_cluster_create(addresses, FAKE_TASKS, &cluster, NULL), PSC_OK);
    set_aside(false);
    memory.n = 0;
    enum ps_code code = psc__client_create(cluster, &options, &world, &b->client, &l->error);
    psc_cluster_free(cluster);
    if (code == PS_OK)
        code = (l->error = bench_join(b)).code;
    if (code == PS_OK)
        code = (l->error = bench_declare_as(b, &declaration)).code;
    return code == PS_OK;
}

static void start_operations(struct life *l, psc_seen *seen, float *kernel, psc_string *words, psc_string *read)
{
    psc_client *c = l->b->client;
    static float one = 1, got, newer;
    static double sum = 1;
    static psc_share share;
    psc_tensor step = {.name = "step", .data = &one, .count = 1, .dtype = PSC_FLOAT32}, into = step;
    psc_tensor put = {.name = "words", .data = words, .count = WORDS, .dtype = PSC_STRING}, get = put;
    psc_tensor part = {
        .name = "kernel", .data = kernel, .count = 300000, .dtype = PSC_FLOAT32, .part = true, .first = 9};
    static float lost;
    float *const residual[] = {&lost};
    psc_push_options encoded = {.examples = 1, .encoding = PSC_BFLOAT16, .residual = residual};
    psc_push_options options = {.examples = 1}, atomic = {.examples = 1, .atomic = true};
    psc_tensor changed = step;
    into.data = &got;
    changed.data = &newer;
    get.data = read;
    psc_put(c, &put, 1, on_result, next(l), NULL);
    for (l->pushed = 0; l->pushed < PUSHES - 1; l->pushed++)
        psc_push(c, &step, 1, !l->pushed ? &atomic : l->pushed == 2 ? &encoded : &options, on_result, next(l), NULL);
    psc_push_pull(c, &step, &into, 1, &options, on_result, next(l), NULL);
    l->pushed++;
    psc_push(c, &part, 1, &atomic, on_result, next(l), NULL);
    psc_pull(c, &part, 1, 0, on_result, next(l), NULL);
    psc_get(c, &get, 1, on_result, next(l), NULL);
    if (seen)
        psc_get_newer(c, seen, &changed, 1, on_result, next(l), NULL);
    psc__barrier(c, "b", on_done, next(l));
    psc__lease(c, 1, 100, 10, 0, &share, on_done, next(l));
    psc__clock(c, 1, true, NULL, NULL, on_done, next(l));
    psc__reduce(c, "r", PSC_SUM, PSC_FLOAT64, &sum, 1, NULL, on_done, next(l));
}

static void wait_for_all(struct life *l)
{
    for (int i = 0; i < l->started; i++) {
        assert_true(fake_run(&l->b->fake, &l->o[i].done, 100));
        assert_int_equal(atomic_load(&l->o[i].done), 1);
        assert_true(reports(l->o[i].error.code, l->o[i].error.text));
        assert_true(reports((enum ps_code)l->o[i].result.error.code, l->o[i].result.error.text));
    }
}

// Between the pushes that were acknowledged and those that were made.
static void check_step(struct life *l)
{
    int acknowledged = 0;
    for (int i = 1; i <= PUSHES; i++)
        acknowledged += l->o[i].result.error.code == PSC_OK;
    float value = fake_value(&l->b->fake, "step", 0);
    assert_true(value >= (float)acknowledged && value <= PUSHES);
}

static void check_handles(struct life *l)
{
    float got;
    psc_tensor step = {.name = "step", .data = &got, .count = 1, .dtype = PSC_FLOAT32};
    psc_op *ops[40];
    psc_error e;
    for (int i = 0; i < 40; i++)
        psc_get(l->b->client, &step, 1, NULL, NULL, &ops[i]);
    fake_idle(&l->b->fake, 1);
    for (int i = 0; i < 40; i++) {
        assert_true(psc_done(ops[i], 0));
        assert_true(reports((enum ps_code)psc_wait(ops[i], NULL, &e), e.text));
    }
}

static void check_recovery(struct life *l)
{
    float before = fake_value(&l->b->fake, "step", 0), one = 1;
    psc_tensor step = {.name = "step", .data = &one, .count = 1, .dtype = PSC_FLOAT32};
    struct outcome o = {0};
    memory.fail = UINT64_MAX;
    psc_push(l->b->client, &step, 1, &(psc_push_options){.examples = 1}, on_result, &o, NULL);
    assert_int_equal(finish(l->b, &o).error.code, PSC_OK);
    assert_true(fake_value(&l->b->fake, "step", 0) == before + 1);
    int heartbeats = l->b->fake.heartbeats;
    fake_idle(&l->b->fake, 10);
    assert_true(l->b->fake.heartbeats > heartbeats + 10);
    assert_int_equal(psc_health(l->b->client, NULL), PSC_OK);
}

// Returns how many allocations there were.
static uint64_t live(uint64_t fail, bool forever)
{
    struct life l = {.b = bench_new(PSC_STREAM)};
    psc_seen *seen = NULL;
    float *kernel = calloc(400000, sizeof *kernel);
    psc_string *words = calloc(WORDS, sizeof *words), *read = calloc(WORDS, sizeof *read);
    char text[] = "some text";
    l.b->fake.aside = set_aside;
    l.b->fake.barrier_open = true;
    l.b->fake.collective_size = 1;
    l.b->fake.slowest = 1;
    for (int i = 0; i < WORDS; i++)
        words[i] = (psc_string){text, (size_t)i % 9};
    memory.fail = fail;
    memory.forever = forever;
    if (join_and_declare(&l)) {
        psc_error e;
        assert_true(reports((enum ps_code)psc_seen_create(l.b->client, &seen, &e), e.text));
        start_operations(&l, seen, kernel, words, read);
        wait_for_all(&l);
        check_step(&l);
        check_handles(&l);
        check_recovery(&l);
    } else {
        assert_int_equal(l.error.code, PS_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(l.error.text, "no memory"));
    }
    uint64_t n = memory.n;
    struct outcome left = {0};
    memory.fail = 0;  // an end without any
    memory.forever = forever;
    memory.n = 0;
    if (l.b->client) {
        psc__leave(l.b->client, "no memory", on_done, &left);
        fake_run(&l.b->fake, &left.done, 10);
        assert_int_equal(atomic_load(&left.done), 1);
    }
    memory.fail = UINT64_MAX;
    psc_strings_free(read, WORDS);
    psc_seen_free(seen);
    bench_free(l.b);
    free(words);
    free(read);
    free(kernel);
    return n;
}

static void sweep(bool forever)
{
    uint64_t n = live(UINT64_MAX - 1, forever);
    assert_true(n > 100);
    // Two thousand strings that were read are alike.
    for (uint64_t i = 0; i<n; i += i> 400 && i + 400 < n ? 37 : 1)
        live(i, forever);
}

static void test_one_fails(void **state)
{
    (void)state;
    sweep(false);
}

static void test_all_fail_from_then_on(void **state)
{
    (void)state;
    sweep(true);
}

// There is no memory to tell it later: the callback runs at once, the handle is NULL, and that may be waited for.
static void test_nothing_is_left(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.aside = set_aside;
    struct outcome o[64] = {{0}};
    memory.n = 0;
    memory.fail = 0;
    memory.forever = true;
    for (int i = 0; i < 64; i++) {
        psc_op *op = (psc_op *)b;
        psc_error e;
        psc_push(b->client, &b->tensors[3], 1, &(psc_push_options){.examples = 1}, on_result, &o[i], &op);
        assert_int_equal(atomic_load(&o[i].done), 1);
        assert_int_equal(o[i].result.error.code, PSC_RESOURCE_EXHAUSTED);
        assert_null(op);
        assert_true(psc_done(op, 0));
        assert_int_equal(psc_wait(op, NULL, &e), PSC_RESOURCE_EXHAUSTED);
        assert_string_equal(e.text, "no memory for an operation");
    }
    memory.fail = UINT64_MAX;
    assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    bench_free(b);
}

// A request of more ranges than any before it finds no memory for their headers: those of others do not suffer.
static void test_headers_find_none(void **state)
{
    (void)state;
    enum { RANGES = 300 };
    static float ones[RANGES];
    psc_tensor parts[RANGES];
    bool failed = true;
    for (int i = 0; i < RANGES; i++)
        parts[i] = (psc_tensor){"dense/kernel", &ones[i], 1, PSC_FLOAT32, true, 2 * (uint64_t)i};
    for (uint64_t fail = 0; failed; fail++) {
        struct bench *b = bench_ready(PSC_STREAM);
        struct outcome one = {0}, all = {0};
        b->fake.aside = set_aside;
        assert_int_equal(push(b, 0, N_VARIABLES).error.code, PSC_OK);
        memory.n = 0;
        memory.fail = fail;
        memory.forever = false;
        psc_push(b->client, parts, RANGES, &(psc_push_options){.examples = 1}, on_result, &all, NULL);
        failed = finish(b, &all).error.code == PSC_RESOURCE_EXHAUSTED;
        memory.fail = UINT64_MAX;
        psc_push(b->client, parts, 1, &(psc_push_options){.examples = 1}, on_result, &one, NULL);
        psc_result r = finish(b, &one);
        assert_int_equal(r.error.code, PSC_OK);
        assert_int_equal(r.applied, 1);
        assert_true(failed || all.result.error.code == PSC_OK);
        bench_free(b);
    }
}

static enum fake_fate all_down(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method, (void)n;
    return f->param ? FAKE_CUT_BEFORE : FAKE_DELIVER;
}

// What waits behind updates that cannot be sent finds no memory when its turn comes: each fails, and none from inside
// the one before it.
static void long_queue(int updates)
{
    enum { BEHIND = 30000 };
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome *o = calloc((size_t)updates + BEHIND, sizeof *o);
    b->fake.aside = set_aside;
    b->fake.fate = all_down;
    b->fake.param = 1;
    for (int i = 0; i < updates; i++)
        psc_push(b->client, &b->tensors[3], 1, &(psc_push_options){.examples = 1}, on_result, &o[i], NULL);
    fake_idle(&b->fake, 0.01);
    for (int i = updates; i < updates + BEHIND; i++)
        psc_get(b->client, &b->tensors[3], 1, on_result, &o[i], NULL);
    b->fake.param = 0;
    memory.n = 0;
    memory.fail = 0;
    memory.forever = true;
    for (int i = 0; i < updates + BEHIND; i++)
        assert_true(fake_run(&b->fake, &o[i].done, 100));
    memory.fail = UINT64_MAX;
    assert_int_equal(pull(b, 3, 1).error.code, PSC_OK);
    free(o);
    bench_free(b);
}

static void test_a_long_queue_fails(void **state)
{
    (void)state;
    long_queue(2);              // it waits at the task
    long_queue(PS_WINDOW + 8);  // behind updates that wait for a sequence
}

// Once there is a kept operation and request for it, a small push allocates the header that it sends and the list of
// the slices of its message, whatever its variable.
static void test_a_steady_push_allocates_little(void **state)
{
    (void)state;
    enum { STEPS = 200 };
    struct bench *b = bench_ready(PSC_STREAM);
    b->fake.aside = set_aside;
    for (int i = 0; i < 20; i++)
        assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    memory.n = 0;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(push(b, 3, 1).error.code, PSC_OK);
    print_message("# %.2f allocations a push\n", (double)memory.n / STEPS);
    assert_in_range(memory.n, STEPS, 2 * STEPS);
    memory.n = 0;
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(pull(b, 3, 1).error.code, PSC_OK);
    print_message("# %.2f allocations a pull\n", (double)memory.n / STEPS);
    assert_in_range(memory.n, STEPS, 3 * STEPS);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_fails),          cmocka_unit_test(test_all_fail_from_then_on),
        cmocka_unit_test(test_nothing_is_left),    cmocka_unit_test(test_headers_find_none),
        cmocka_unit_test(test_a_long_queue_fails), cmocka_unit_test(test_a_steady_push_allocates_little),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
