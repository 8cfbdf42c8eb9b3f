// SPDX-License-Identifier: Apache-2.0
// libclient's operations beyond whole float32 tensors: slices, strings, atomic pushes, push_pull, what is newer; the
// calls among workers; and the order of updates that are refused.
#include <math.h>
#include <stdio.h>

#include "common/math/encoding.h"
#include "common/math/philox.h"
#include "tests/unit/client_bench.h"

enum {
    ROWS = 3000,
    WIDTH = 300,  // the table: three partitions of 1000 rows, of three blocks each, which begin within rows
    TABLE = ROWS * WIDTH,
    WORDS = 5000,  // three partitions of two blocks each
};

static const uint64_t table_shape[] = {ROWS, WIDTH}, words_shape[] = {WORDS}, ten[] = {10};
static const psc_hyper rate = {"learning_rate", 0.5};
static const psc_variable many[] = {
    {.name = "table", .dtype = PSC_FLOAT32, .shape = table_shape, .rank = 2, .trainable = true},
    {.name = "words", .dtype = PSC_STRING, .shape = words_shape, .rank = 1},
    {.name = "half", .dtype = PSC_FLOAT16, .shape = ten, .rank = 1},
    {.name = "long", .dtype = PSC_INT64, .shape = ten, .rank = 1},
    {.name = "bias", .dtype = PSC_FLOAT32, .shape = ten, .rank = 1, .trainable = true},
    {.name = "other", .dtype = PSC_FLOAT32, .shape = ten, .rank = 1, .rule = "sgd", .hypers = &rate, .n_hypers = 1},
};
enum { N_MANY = sizeof many / sizeof *many };

static struct bench *open_bench(psc_transport transport, psc_update update, size_t chunk_bytes)
{
    static const psc_declaration declaration = {
        .variables = many, .n_variables = N_MANY, .rule = "sgd", .placement = "round_robin", .partitioner = "fixed:3"};
    struct bench *b = bench_new(transport);
    psc_options options = worker_options(b);
    options.update = update;
    options.chunk_bytes = chunk_bytes;
    bench_begin(b, options);
    assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
    bench_forget(b);
    return b;
}

typedef void (*start_fn)(psc_client *, const psc_tensor *, size_t, psc_callback, void *, psc_op **);

static psc_result run(struct bench *b, start_fn start, const psc_tensor *tensors, size_t n)
{
    struct outcome o = {0};
    start(b->client, tensors, n, on_result, &o, NULL);
    return finish(b, &o);
}

static void start_push(psc_client *c, const psc_tensor *t, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    psc_push(c, t, n, &(psc_push_options){.examples = 1}, callback, arg, op);
}

static void start_pull(psc_client *c, const psc_tensor *t, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    psc_pull(c, t, n, 0, callback, arg, op);
}

static void start_atomic(psc_client *c, const psc_tensor *t, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    psc_push(c, t, n, &(psc_push_options){.examples = 1, .atomic = true}, callback, arg, op);
}

static psc_tensor whole(const char *name, void *data, uint64_t count, psc_dtype dtype)
{
    return (psc_tensor){.name = name, .data = data, .count = count, .dtype = dtype};
}

static psc_tensor rows(float *data, uint64_t first, uint64_t n)
{
    return (psc_tensor){
        .name = "table", .data = data, .count = n * WIDTH, .dtype = PSC_FLOAT32, .part = true, .first = first * WIDTH};
}

static uint32_t draw(uint64_t seed, uint32_t n)
{
    uint32_t w[4];
    ps_philox(seed, PS_RANDOM_DELAY, 7, n, w);
    return w[0];
}

// ---- slices -------------------------------------------------------------------------------------------------------

static enum fake_fate cut_one(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method;
    if (f->param == UINT64_MAX || n != f->param / 2)
        return FAKE_DELIVER;
    return f->param % 2 ? FAKE_CUT_AFTER : FAKE_CUT_BEFORE;
}

// The rows of an embedding that a batch needs: in any order, each once.
enum { SLICES = 200 };

static void pick_rows(uint64_t seed, uint64_t *row)
{
    for (uint32_t i = 0; i < SLICES; i++)
        row[i] = (draw(seed, i) % (ROWS / SLICES) + i * (ROWS / SLICES) + 7) % ROWS;
    for (uint32_t i = SLICES - 1; i > 0; i--) {
        uint32_t k = draw(seed, 1000 + i) % (i + 1);
        uint64_t other = row[k];
        row[k] = row[i];
        row[i] = other;
    }
}

static void slices(psc_transport transport, uint64_t seed)
{
    struct bench *b = open_bench(transport, PSC_ASYNC, draw(seed, 99) % 2 ? 20000 : 0);
    uint64_t row[SLICES];
    float *data = calloc(2 * SLICES * WIDTH, sizeof *data), *read = data + SLICES * WIDTH;
    float *all = calloc(TABLE, sizeof *all);
    psc_tensor to[SLICES], from[SLICES];
    b->fake.fate = cut_one;
    b->fake.shuffle = true;
    b->fake.seed = seed;
    b->fake.param = seed % 3 ? seed : UINT64_MAX;
    pick_rows(seed, row);
    for (int i = 0; i < SLICES; i++) {
        for (int k = 0; k < WIDTH; k++)
            data[i * WIDTH + k] = (float)(row[i] * WIDTH + (uint64_t)k + 1);
        to[i] = rows(data + i * WIDTH, row[i], 1);
        from[i] = rows(read + i * WIDTH, row[i], 1);
    }
    psc_result r = run(b, seed % 2 ? psc_assign_add : start_push, to, SLICES);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(b->fake.split_blocks, 0);
    assert_int_equal(run(b, start_pull, from, SLICES).error.code, PSC_OK);
    assert_memory_equal(data, read, SLICES * WIDTH * sizeof *data);
    psc_tensor table = whole("table", all, TABLE, PSC_FLOAT32);
    assert_int_equal(run(b, psc_get, &table, 1).error.code, PSC_OK);
    double sum = 0, expected = 0;
    for (int i = 0; i < TABLE; i++)
        sum += all[i];
    for (int i = 0; i < SLICES * WIDTH; i++)
        expected += data[i];
    assert_true(sum == expected);
    free(all);
    free(data);
    bench_free(b);
}

static void test_slices(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++)
        slices(seed % 4 < 2 ? PSC_STREAM : PSC_UNARY, seed);
}

// All rows of a block travel together, in order; blocks apart may part.
static void test_slices_of_a_block_share_a_request(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 5000);  // of four rows
    static float data[40][WIDTH];
    psc_tensor t[40];
    for (uint64_t i = 0; i < 40;
         i++)  // rows 0, 10, ... 290 lie in the first block, of 436, rows 440 ... 530 in the next
        t[i] = rows(data[i], (39 - i) * 10 + (i < 10 ? 140 : 0), 1);
    psc_result r = run(b, start_push, t, 40);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(b->fake.n_arrivals, 2);
    for (int i = 0; i < 2; i++) {
        const struct fake_arrival *a = &b->fake.arrivals[i];
        assert_int_equal(a->tensors, i ? 10 : 30);
        assert_int_equal(a->first, i ? 440 * WIDTH : 0);
        assert_int_equal(a->bytes, a->tensors * sizeof *data);
    }
    b->fake.n_arrivals = 0;
    assert_int_equal(run(b, start_push, t + 9, 2).error.code, PSC_OK);  // a row of each fits the 5000 bytes
    assert_int_equal(b->fake.n_arrivals, 1);
    assert_int_equal(run(b, start_push, t + 6, 5).error.code, PSC_OK);  // four of one and one of the other do not
    assert_int_equal(b->fake.n_arrivals, 3);
    bench_free(b);
}

// All that a get reads of a task is of one snapshot: so one request names it, or none is sent.
static void test_a_get_is_one_request(void **state)
{
    (void)state;
    enum { SOME = 5000, LOTS = 100000 };
    static const uint64_t shape[] = {8 * BLOCK};
    static const psc_variable one[] = {
        {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true}};
    static const psc_declaration declaration = {.variables = one, .n_variables = 1, .rule = "sgd"};
    struct bench *b = bench_new(PSC_STREAM);
    bench_begin(b, worker_options(b));
    assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
    bench_forget(b);
    float *got = calloc(LOTS, sizeof *got);
    psc_tensor *parts = calloc(LOTS, sizeof *parts);
    for (uint64_t i = 0; i < LOTS; i++)
        parts[i] = (psc_tensor){"w", &got[i], 1, PSC_FLOAT32, true, 50 * i};
    assert_int_equal(run(b, psc_get, parts, SOME).error.code, PSC_OK);
    assert_int_equal(b->fake.n_arrivals, 1);
    assert_int_equal(b->fake.arrivals[0].tensors, SOME);
    for (uint64_t i = 0; i < LOTS; i++)
        parts[i].first = 10 * i;
    psc_result r = run(b, psc_get, parts, LOTS);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "more than one request to ps:0 (a:1) can name; a get reads all of them"));
    assert_int_equal(b->fake.n_arrivals, 1);
    free(parts);
    free(got);
    bench_free(b);
}

// The rows of a narrow embedding: an update has all of a block in one request, a pull as many as a request names.
static void test_many_rows_of_a_block(void **state)
{
    (void)state;
    enum { SOME = 5000, LOTS = 30000 };
    static const uint64_t shape[] = {BLOCK};
    static const psc_variable one[] = {
        {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true}};
    static const psc_declaration declaration = {.variables = one, .n_variables = 1, .rule = "sgd"};
    static float data[LOTS];
    static psc_tensor parts[LOTS];
    struct bench *b = bench_new(PSC_STREAM);
    bench_begin(b, worker_options(b));
    assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
    bench_forget(b);
    for (uint64_t i = 0; i < LOTS; i++)
        parts[i] = (psc_tensor){"w", &data[i], 1, PSC_FLOAT32, true, 2 * i};
    assert_int_equal(run(b, start_push, parts, SOME).error.code, PSC_OK);
    assert_int_equal(b->fake.n_arrivals, 1);
    assert_int_equal(b->fake.arrivals[0].tensors, SOME);
    assert_int_equal(run(b, start_pull, parts, SOME).error.code, PSC_OK);
    assert_int_equal(b->fake.n_arrivals, 3);
    assert_int_equal(b->fake.arrivals[1].tensors + b->fake.arrivals[2].tensors, SOME);
    assert_int_equal(run(b, start_pull, parts, LOTS).error.code, PSC_OK);
    assert_int_equal(run(b, start_push, parts, LOTS).error.code, PSC_INVALID_ARGUMENT);
    bench_free(b);
}

static void test_slices_are_checked(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    static float data[3 * WIDTH];
    const struct {
        psc_tensor t[2];
        const char *text;
    } bad[] = {
        {{rows(data, 7, 2), rows(data, 8, 1)}, "element 2400 is there twice"},
        {{rows(data, 0, 1), rows(data, ROWS - 1, 2)}, "has 900000 elements, the tensor is 600 of them from 899700 on"},
        {{rows(data, 0, 1), rows(data, UINT64_MAX / WIDTH, 2)}, "the tensor is 600 of them"},
        {{rows(data, 0, 1), rows(data, 5, 0)}, "the tensor is 0 of them"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        psc_result r = run(b, start_push, bad[i].t, 2);
        assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(r.error.text, bad[i].text));
    }
    assert_int_equal(b->fake.n_arrivals, 0);
    bench_free(b);
}

// Values and slots of variables in one get, in whatever order they are named.
static void test_slots(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float row[WIDTH], got[4][WIDTH] = {{0}};
    psc_tensor put = rows(row, 3, 1), get[4];
    for (int i = 0; i < WIDTH; i++)
        row[i] = (float)i;
    assert_int_equal(run(b, psc_put, &put, 1).error.code, PSC_OK);
    for (uint32_t k = 0; k < 4; k++) {
        get[k] = rows(got[k], k == 3 ? 4 : 3, 1);
        get[k].slot = k == 3 ? 1 : 2 - k;
    }
    assert_int_equal(run(b, psc_get, get, 4).error.code, PSC_OK);
    assert_true(got[0][7] == 2007 && got[1][7] == 1007 && got[2][7] == 7 && got[3][7] == 1000);
    get[1].slot = 2;
    psc_result r = run(b, psc_get, get, 2);
    assert_string_equal(r.error.text, "get: variable 'table': element 900 is there twice in one operation");
    get[1].slot = 1;
    r = run(b, psc_put, get, 2);
    assert_string_equal(r.error.text, "put: variable 'table': slots 1 and 2 in one operation: expected one of them");
    r = run(b, start_push, get, 1);
    assert_string_equal(r.error.text, "push: variable 'table': a slot is for put and get alone");
    bench_free(b);
}

static void test_a_round_takes_whole_variables(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, 0);
    static float data[WIDTH];
    psc_tensor row = rows(data, 3, 1), other = {"other", data, 5, PSC_FLOAT32, true, 0};
    psc_result r = run(b, start_push, &row, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "of the whole variable"));
    assert_int_equal(run(b, start_push, &other, 1).error.code, PSC_INVALID_ARGUMENT);  // it has a rule of its own
    assert_int_equal(run(b, psc_assign_add, &row, 1).error.code, PSC_OK);
    bench_free(b);
}

static void test_assign_sub(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float x[10] = {3, 2, 1};
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    assert_int_equal(run(b, psc_assign_sub, &t, 1).applied, 3);  // partitions
    assert_true(fake_value(&b->fake, "bias", 0) == -3 && fake_value(&b->fake, "bias", 1) == -2);
    bench_free(b);
}

// ---- dtypes, strings ----------------------------------------------------------------------------------------------

static void test_dtypes(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    uint16_t half[10] = {1, 2, 0x3c00}, half_read[10] = {0};
    int64_t big[10] = {INT64_MIN, 5}, big_read[10] = {0};
    psc_tensor put[] = {whole("half", half, 10, PSC_FLOAT16), whole("long", big, 10, PSC_INT64)};
    psc_tensor get[] = {whole("half", half_read, 10, PSC_FLOAT16), whole("long", big_read, 10, PSC_INT64)};
    assert_int_equal(run(b, psc_put, put, 2).error.code, PSC_OK);
    assert_int_equal(run(b, psc_get, get, 2).error.code, PSC_OK);
    assert_memory_equal(half, half_read, sizeof half);
    assert_memory_equal(big, big_read, sizeof big);
    psc_result r = run(b, psc_assign_add, put, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "'half' is float16, which is for put and get alone"));
    bench_free(b);
}

// String i has i % 23 bytes that tell it apart.
static void make_words(psc_string *words, uint64_t first, uint64_t n, char mark)
{
    static char text[32] = "abcdefghijklmnopqrstuvwxyz";
    for (uint64_t i = 0; i < n; i++) {
        words[i].len = (first + i) % 23;
        words[i].data = malloc(words[i].len + 1);
        memcpy(words[i].data, text, words[i].len);
        if (words[i].len)
            ((char *)words[i].data)[0] = (char)(mark + (char)((first + i) % 50));
    }
}

static void assert_words(const psc_string *words, const psc_string *expected, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(words[i].len, expected[i].len);
        if (words[i].len)
            assert_memory_equal(words[i].data, expected[i].data, words[i].len);
    }
}

static enum fake_fate abort_continuation(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__GET || !f->param || --f->param)
        return FAKE_DELIVER;
    return FAKE_ABORT;
}

static void test_strings(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 20000);
    psc_string *words = calloc(WORDS, sizeof *words), *read = calloc(WORDS, sizeof *read), part[100] = {{0}};
    psc_tensor put = whole("words", words, WORDS, PSC_STRING), get = whole("words", read, WORDS, PSC_STRING);
    psc_tensor some = {"words", part, 100, PSC_STRING, true, 1640};  // across a partition's end
    make_words(words, 0, WORDS, 'A');
    psc_result r = run(b, psc_put, &put, 1);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.applied, 6);
    assert_true(b->fake.n_arrivals > 3);  // cut to chunks
    for (int i = 0; i < 3; i++) {
        b->fake.reply_bytes = i ? 10000 : 0;
        b->fake.fate = abort_continuation;
        b->fake.param = i == 2 ? 4 : 0;  // the first of each of three tasks has been answered
        assert_int_equal(run(b, psc_get, &get, 1).error.code, PSC_OK);
        assert_words(read, words, WORDS);
        psc_strings_free(read, WORDS);
        assert_null(read[10].data);
        fake_idle(&b->fake, 1);  // snapshots are released
    }
    assert_int_equal(b->fake.param, 0);
    assert_int_equal(run(b, start_pull, &some, 1).error.code, PSC_OK);
    assert_words(part, words + 1640, 100);
    psc_strings_free(part, 100);
    psc_strings_free(words, WORDS);
    free(words);
    free(read);
    bench_free(b);
}

static enum fake_fate garble_at(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)method;
    return n == f->param ? FAKE_GARBAGE : FAKE_DELIVER;
}

static void test_strings_that_fail(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    psc_string *words = calloc(WORDS, sizeof *words), untouched[WORDS];
    psc_tensor put = whole("words", words, WORDS, PSC_STRING), get = whole("words", untouched, WORDS, PSC_STRING);
    memset(untouched, 0x55, sizeof untouched);
    make_words(words, 0, WORDS, 'A');
    assert_int_equal(run(b, psc_put, &put, 1).error.code, PSC_OK);
    b->fake.fate = garble_at;
    b->fake.param = b->fake.arrived + 3;
    b->fake.reply_bytes = 10000;
    assert_int_equal(run(b, psc_get, &get, 1).error.code, PSC_INTERNAL);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(untouched[i].len, 0x5555555555555555);
    b->fake.fate = NULL;

    psc_tensor half = {"words", words, 500, PSC_STRING, true, 0};
    psc_result r = run(b, psc_put, &half, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(
        strstr(r.error.text, "500 of the elements [0, 1024) change; strings change in whole blocks of 1024"));
    half.count = 1024;
    assert_int_equal(run(b, psc_put, &half, 1).error.code, PSC_OK);
    assert_int_equal(run(b, start_push, &put, 1).error.code, PSC_INVALID_ARGUMENT);

    psc_string huge = {calloc(1, 4 << 20), 4 << 20}, was = words[1030];
    words[1030] = huge;
    r = run(b, psc_put, &put, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "the strings [1024, 1667) take 42"));
    assert_non_null(strstr(r.error.text, "at most 3932160 fit a message"));
    words[1030] = (psc_string){huge.data, 3 << 20};
    assert_int_equal(run(b, psc_put, &put, 1).error.code, PSC_OK);
    words[1030] = was;
    free(huge.data);
    psc_strings_free(words, WORDS);
    free(words);
    bench_free(b);
}

// ---- atomic -------------------------------------------------------------------------------------------------------

static enum fake_fate hold_last(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)n;
    return task == 1 && method == PARAMSERVER__V1__METHOD__PUSH && f->param && --f->param == 0 ? FAKE_CUT_BEFORE
                                                                                               : FAKE_DELIVER;
}

static void test_atomic(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float *data = calloc(TABLE, sizeof *data), x[10] = {1};
    psc_tensor t[] = {whole("table", data, TABLE, PSC_FLOAT32), whole("bias", x, 10, PSC_FLOAT32)};
    struct outcome o = {0};
    for (int i = 0; i < TABLE; i++)
        data[i] = 1;
    b->fake.fate = hold_last;
    b->fake.param = 3;  // the last of task 1 comes later
    start_atomic(b->client, t, 2, on_result, &o, NULL);
    fake_idle(&b->fake, 0.02);
    assert_true(fake_value(&b->fake, "table", 0) == 1);
    assert_true(fake_value(&b->fake, "table", 1000 * WIDTH) == 0);  // the first request of task 1 has arrived
    assert_int_equal(atomic_load(&o.done), 0);
    psc_result r = finish(b, &o);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.applied + r.duplicates, 9 + 3);
    assert_true(fake_value(&b->fake, "table", 1000 * WIDTH) == 1);
    uint64_t bytes[FAKE_TASKS] = {0};
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        bytes[b->fake.arrivals[i].task] += b->fake.arrivals[i].bytes;
    assert_int_equal(b->fake.arrivals[0].atomic_bytes, bytes[0]);
    free(data);
    bench_free(b);
}

static uint64_t atomic_through_cut(psc_transport transport, uint64_t param)
{
    struct bench *b = open_bench(transport, PSC_ASYNC, 0);
    float *data = calloc(TABLE, sizeof *data);
    psc_tensor t = whole("table", data, TABLE, PSC_FLOAT32);
    for (int i = 0; i < TABLE; i++)
        data[i] = 1;
    b->fake.fate = cut_one;
    b->fake.param = param;
    b->fake.shuffle = true;
    for (int i = 1; i <= 2; i++) {
        psc_result r = run(b, start_atomic, &t, 1);
        assert_int_equal(r.error.code, PSC_OK);
        assert_int_equal(r.applied + r.duplicates, 9);
        if (param == UINT64_MAX)
            assert_int_equal(r.applied, 9);
        for (int k = 0; k < TABLE; k += 997)
            assert_true(fake_value(&b->fake, "table", (uint64_t)k) == (float)i);
    }
    uint64_t arrived = b->fake.arrived;
    free(data);
    bench_free(b);
    return arrived;
}

static void test_atomic_through_cuts(void **state)
{
    (void)state;
    for (int transport = PSC_STREAM; transport <= PSC_UNARY; transport++) {
        uint64_t requests = atomic_through_cut((psc_transport)transport, UINT64_MAX);
        for (uint64_t param = 0; param < 2 * requests; param++)
            atomic_through_cut((psc_transport)transport, param);
    }
}

static void test_atomic_is_for_async(void **state)
{
    (void)state;
    float x[10] = {1};
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    struct outcome o = {0};
    struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, 0);
    psc_result r = run(b, start_atomic, &t, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "atomic is not for a sync job"));
    bench_free(b);
    b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    psc_push_pull(b->client, &t, &t, 1, &(psc_push_options){.atomic = true}, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_INVALID_ARGUMENT);
    b->fake.forgets_staged = true;
    r = run(b, start_atomic, &t, 1);
    assert_int_equal(r.error.code, PSC_INTERNAL);
    assert_non_null(strstr(r.error.text, "bytes of an atomic update, not applied"));
    bench_free(b);
}

// ---- numbers of a push --------------------------------------------------------------------------------------------

static void test_nonfinite(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float x[10] = {1, NAN, INFINITY}, y[10] = {-INFINITY};
    psc_tensor t[] = {whole("bias", x, 10, PSC_FLOAT32), whole("other", y, 10, PSC_FLOAT32)};
    struct outcome o = {0};
    assert_int_equal(run(b, start_push, t, 2).nonfinite, 3);
    psc_push(b->client, t, 2, &(psc_push_options){.examples = 1, .refuse_nonfinite = true}, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_INVALID_ARGUMENT);
    bench_free(b);
}

// Of an operation that is cut into many requests none is sent, though the last element alone is no number.
static void test_nonfinite_sends_nothing(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float x[10] = {1}, *all = calloc(TABLE, sizeof *all);
    psc_tensor t[] = {whole("bias", x, 10, PSC_FLOAT32), whole("table", all, TABLE, PSC_FLOAT32)};
    psc_tensor row = rows(all + TABLE - WIDTH, 7, 1);
    const psc_push_options options = {.examples = 1, .refuse_nonfinite = true};
    struct outcome o[3] = {0};
    const size_t before = b->fake.n_arrivals;
    all[TABLE - 1] = NAN;
    psc_push(b->client, t, 2, &options, on_result, &o[0], NULL);
    psc_result r = finish(b, &o[0]);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_string_equal(r.error.text, "variable 'table': the gradient's element 899999 is not finite");
    psc_push_pull(b->client, &row, &row, 1, &options, on_result, &o[1], NULL);
    r = finish(b, &o[1]);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_string_equal(r.error.text, "variable 'table': the gradient's element 2399 is not finite");
    assert_int_equal(b->fake.n_arrivals, before);
    all[TABLE - 1] = 1;
    psc_push(b->client, t, 2, &options, on_result, &o[2], NULL);
    assert_int_equal(finish(b, &o[2]).error.code, PSC_OK);
    free(all);
    bench_free(b);
}

// Nor where it is the residual, or the encoding, that makes an element infinite; no residual has changed.
static void test_nonfinite_by_encoding(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float *all = calloc(TABLE, sizeof *all), *kept = calloc(TABLE, sizeof *kept);
    psc_tensor t = whole("table", all, TABLE, PSC_FLOAT32);
    psc_push_options options = {.examples = 1, .refuse_nonfinite = true, .residual = &kept};
    const psc_dtype encodings[] = {PSC_SCALED_INT8, PSC_BFLOAT16};
    const size_t before = b->fake.n_arrivals;
    for (size_t i = 0; i < 2; i++) {
        struct outcome o = {0};
        options.encoding = encodings[i];
        all[0] = 1;
        kept[0] = 0.001f;
        all[TABLE - 1] = i ? 3.4e38f : 3e38f;
        kept[TABLE - 1] = i ? 0 : 3e38f;
        psc_push(b->client, &t, 1, &options, on_result, &o, NULL);
        psc_result r = finish(b, &o);
        assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
        assert_string_equal(r.error.text, "variable 'table': the gradient's element 899999 is not finite");
        assert_int_equal(b->fake.n_arrivals, before);
        assert_true(kept[0] == 0.001f);
    }
    struct outcome o = {0};
    options.residual = NULL;
    psc_push(b->client, &t, 1, &options, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_INVALID_ARGUMENT);
    free(all);
    free(kept);
    bench_free(b);
}

static psc_result push_round(struct bench *b, const psc_tensor *t, uint64_t round)
{
    struct outcome o = {0};
    psc_push(b->client, t, 1, &(psc_push_options){.examples = 1, .round = round}, on_result, &o, NULL);
    return finish(b, &o);
}

static enum fake_fate never_answer_pushes(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)task, (void)n;
    return method == PARAMSERVER__V1__METHOD__PUSH ? FAKE_LOSE : FAKE_DELIVER;
}

// A push to a round does not wait for the others, as a read of the round does: it has the time of any push.
static void test_push_to_a_round_has_a_deadline(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, 0);
    float x[10] = {1};
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    b->fake.fate = never_answer_pushes;
    assert_int_equal(push_round(b, &t, 1).error.code, PSC_DEADLINE_EXCEEDED);
    bench_free(b);
}

static void test_open_round(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, 0);
    float x[10] = {1};
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    psc_result r = push_round(b, &t, 1);
    assert_int_equal(r.queued, 3);  // partitions
    assert_int_equal(r.round, 1);
    assert_int_equal(r.open_round, 2);
    b->fake.round = 5;
    r = push_round(b, &t, 2);
    assert_int_equal(r.stale, 3);
    assert_int_equal(r.queued, 0);
    assert_int_equal(r.round, 0);
    assert_int_equal(r.open_round, 6);
    r = run(b, psc_get, &t, 1);
    assert_int_equal(r.round, 5);
    assert_int_equal(r.last_round, 7);  // the fake's task 2 is two ahead
    bench_free(b);
}

// All blocks of a partition's gradient count, or none, though the last request says which.
static void test_blocks_count_with_their_partition(void **state)
{
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, PS_BLOCK_BYTES);
        float *data = calloc(TABLE, sizeof *data);
        psc_tensor t = whole("table", data, TABLE, PSC_FLOAT32);
        b->fake.counts_whole = true;
        b->fake.round = 5;
        b->fake.runs_behind = behind;  // the partitions that are: of three blocks each, as is the one that is not
        psc_result r = push_round(b, &t, 5);
        assert_int_equal(r.error.code, PSC_OK);
        assert_true(b->fake.n_arrivals > 3);  // of more than one request each
        assert_int_equal(r.stale, behind ? 3 : 9);
        assert_int_equal(r.queued, behind ? 6 : 0);
        free(data);
        bench_free(b);
    }
}

static enum fake_fate lose_answers(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    return method == PARAMSERVER__V1__METHOD__PUSH && f->param && f->param-- ? FAKE_CUT_AFTER : FAKE_DELIVER;
}

// Where every answer to a push was lost, its round is known all the same.
static void test_round_after_a_retry(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_SYNC, 0);
    float x[10] = {1};
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    b->fake.fate = lose_answers;
    b->fake.param = 3;  // partitions
    psc_result r = push_round(b, &t, 1);
    assert_int_equal(r.duplicates, 3);
    assert_int_equal(r.round, 1);
    assert_int_equal(r.open_round, 2);
    bench_free(b);
}

// The task needs the memory of the snapshot that is gone on with; in the meantime everything has changed.
static enum fake_fate take_back(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)n;
    if (method != PARAMSERVER__V1__METHOD__GET || task || ++f->param != 2)
        return FAKE_DELIVER;
    f->round = 5;
    return FAKE_ABORT;
}

// What was read before a snapshot was revoked does not show in the result.
static void test_numbers_of_a_read_that_begins_again(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4 * BLOCK};
    static const psc_variable one[] = {
        {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true}};
    static const psc_declaration declaration = {.variables = one, .n_variables = 1, .rule = "sgd"};
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.update = PSC_SYNC;
    bench_begin(b, options);
    assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
    float *got = calloc(4 * BLOCK, sizeof *got);
    psc_tensor t = whole("w", got, 4 * BLOCK, PSC_FLOAT32);
    b->fake.round = 3;
    b->fake.reply_bytes = PS_BLOCK_BYTES;
    b->fake.fate = take_back;
    psc_result r = run(b, psc_get, &t, 1);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(b->fake.param, 6);
    assert_int_equal(r.round, 5);
    assert_int_equal(r.last_round, 5);
    free(got);
    bench_free(b);
}

static enum fake_fate take_back_each_time(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)n;
    return method == PARAMSERVER__V1__METHOD__GET && !task && ++f->param % 2 == 0 ? FAKE_ABORT : FAKE_DELIVER;
}

// A read may take as long as it likes, as long as it goes on; one that must begin again each time ends.
static void test_a_read_that_goes_on_has_its_time_anew(void **state)
{
    (void)state;
    for (int restarts = 0; restarts < 2; restarts++) {
        struct bench *b = bench_ready(PSC_STREAM);
        struct outcome o = {0};
        b->fake.reply_bytes = PS_BLOCK_BYTES;
        b->fake.read_ns = 8 * PS_SECOND;  // four answers of a task take longer than the 20 s of an operation
        b->fake.fate = restarts ? take_back_each_time : NULL;
        psc_get(b->client, b->tensors, 1, on_result, &o, NULL);
        assert_int_equal(finish(b, &o).error.code, restarts ? PSC_DEADLINE_EXCEEDED : PSC_OK);
        bench_free(b);
    }
}

static enum fake_fate fail_third_get(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    return method == PARAMSERVER__V1__METHOD__GET && ++f->param == 3 ? FAKE_GARBAGE : FAKE_DELIVER;
}

// The snapshot of a get that took several messages is let go of, whether it has succeeded or not.
static void test_snapshots_are_released(void **state)
{
    (void)state;
    static const uint64_t shape[] = {4 * BLOCK};
    static const psc_variable one[] = {
        {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true}};
    static const psc_declaration declaration = {.variables = one, .n_variables = 1, .rule = "sgd"};
    for (int fails = 0; fails < 2; fails++) {
        struct bench *b = bench_new(PSC_STREAM);
        bench_begin(b, worker_options(b));
        assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
        float *got = calloc(4 * BLOCK, sizeof *got);
        psc_tensor t = whole("w", got, 4 * BLOCK, PSC_FLOAT32);
        b->fake.reply_bytes = PS_BLOCK_BYTES;
        b->fake.fate = fails ? fail_third_get : NULL;
        assert_int_equal(run(b, psc_get, &t, 1).error.code, fails ? PSC_INTERNAL : PSC_OK);
        fake_idle(&b->fake, 1);
        assert_int_equal(b->fake.released, 1);
        b->fake.reply_bytes = 0;
        b->fake.fate = NULL;
        assert_int_equal(run(b, psc_get, &t, 1).error.code, PSC_OK);  // one message: there is nothing to let go of
        fake_idle(&b->fake, 1);
        assert_int_equal(b->fake.released, 1);
        free(got);
        bench_free(b);
    }
}

// ---- encoded gradients --------------------------------------------------------------------------------------------

// What an element becomes does not depend on the partitions and requests that the table is cut into, which begin within
// groups; rows are of the groups that they are of in the table.
static void push_encoded(psc_transport transport, psc_dtype encoding)
{
    struct bench *b = open_bench(transport, PSC_ASYNC, 300 << 10);
    float *x = calloc(6 * TABLE, sizeof *x), *residual = x + TABLE, *lost = x + 2 * TABLE, *got = x + 3 * TABLE;
    float *expected = x + 4 * TABLE, *once = x + 5 * TABLE;
    uint8_t *scales = calloc(TABLE, 4);
    const psc_tensor t[] = {whole("table", x, TABLE, PSC_FLOAT32), whole("bias", expected, 10, PSC_FLOAT32)};
    psc_tensor into = whole("table", got, TABLE, PSC_FLOAT32);
    for (int i = 0; i < TABLE; i++)
        x[i] = sinf((float)i) * (float)(1 << i / 1000 % 10);
    for (int k = 0; k < 2; k++) {
        float *residuals[] = {residual, NULL};
        struct outcome o = {0};
        ps_encoding_write((int)encoding, 0, TABLE, x, lost, scales, scales + 2 * TABLE);
        ps_encoding_read((int)encoding, 0, TABLE, scales, scales + 2 * TABLE, once);
        for (int i = 0; i < TABLE; i++)
            expected[i] += once[i];
        psc_push(b->client, t, 1 + (size_t)k, &(psc_push_options){.encoding = encoding, .residual = residuals},
                 on_result, &o, NULL);
        assert_int_equal(finish(b, &o).error.code, PSC_OK);
        assert_memory_equal(residual, lost, TABLE * sizeof *lost);
    }
    assert_int_equal(run(b, psc_get, &into, 1).error.code, PSC_OK);
    assert_memory_equal(got, expected, TABLE * sizeof *got);
    free(scales);
    free(x);
    bench_free(b);
}

static void test_push_encoded(void **state)
{
    (void)state;
    push_encoded(PSC_STREAM, PSC_SCALED_INT8);
    push_encoded(PSC_STREAM, PSC_BFLOAT16);
    push_encoded(PSC_UNARY, PSC_SCALED_INT8);
}

// ---- push_pull ----------------------------------------------------------------------------------------------------

static psc_result push_pull(struct bench *b, const psc_tensor *t, const psc_tensor *into, size_t n, uint64_t round)
{
    struct outcome o = {0};
    psc_push_pull(b->client, t, into, n, &(psc_push_options){.examples = 1, .round = round}, on_result, &o, NULL);
    return finish(b, &o);
}

static void test_push_pull(void **state)
{
    (void)state;
    for (int transport = PSC_STREAM; transport <= PSC_UNARY; transport++) {
        struct bench *b = open_bench((psc_transport)transport, PSC_ASYNC, 4 << 20);
        float *data = calloc(2 * TABLE, sizeof *data), *got = data + TABLE;
        psc_tensor t = whole("table", data, TABLE, PSC_FLOAT32), into = whole("table", got, TABLE, PSC_FLOAT32);
        b->fake.shuffle = true;
        for (int i = 0; i < TABLE; i++)
            data[i] = (float)(i % 1000);
        for (int i = 1; i <= 3; i++) {
            psc_result r = push_pull(b, &t, &into, 1, 0);
            assert_int_equal(r.error.code, PSC_OK);
            assert_int_equal(r.applied, 9);
            assert_int_equal(r.staleness, 0);  // the last one's values are known
            for (int k = 0; k < TABLE; k++)
                assert_true(got[k] == (float)(i * (k % 1000)));
        }
        float row[WIDTH], row_into[WIDTH];
        memset(row, 0, sizeof row);
        psc_tensor part = rows(row, 1000, 1), part_into = rows(row_into, 1000, 1), wrong = rows(row_into, 1001, 1);
        assert_int_equal(push_pull(b, &part, &part_into, 1, 0).error.code, PSC_OK);
        assert_true(row_into[5] == 3 * 5);
        psc_result r = push_pull(b, &part, &wrong, 1, 0);
        assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(r.error.text, "expected the range that is pushed, from 300000"));
        free(data);
        bench_free(b);
    }
}

static enum fake_fate refuse_and_cut(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task;
    if (method != PARAMSERVER__V1__METHOD__PUSH_PULL || n > 60)
        return FAKE_DELIVER;
    uint32_t chance = draw(f->param, (uint32_t)n) % 8;
    return chance == 0 ? FAKE_REFUSE : chance == 1 ? FAKE_CUT_BEFORE : chance == 2 ? FAKE_CUT_AFTER : FAKE_DELIVER;
}

// The round closes only when all of the gradient is there, which is more than otherwise flies at once; it waits longer
// than any deadline, and other operations go on.
static void push_pull_in_sync(psc_transport transport, uint64_t seed)
{
    enum { COUNT = (24 << 20) / sizeof(float) };  // BIG has 12 blocks; this is 48 of them on one task
    static const uint64_t shape[] = {COUNT};
    static const psc_variable one[] = {
        {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true},
        {.name = "step", .dtype = PSC_FLOAT32}};
    static const psc_declaration declaration = {.variables = one, .n_variables = 2, .rule = "sgd"};
    struct bench *b = bench_new(transport);
    psc_options options = worker_options(b);
    options.update = PSC_SYNC;
    options.chunk_bytes = 2 << 20;
    bench_begin(b, options);
    assert_int_equal(bench_declare_as(b, &declaration).code, PS_OK);
    bench_forget(b);
    float *data = calloc(COUNT, sizeof *data), *got = calloc(COUNT, sizeof *got), count = 1;
    psc_tensor t = whole("w", data, COUNT, PSC_FLOAT32), into = whole("w", got, COUNT, PSC_FLOAT32);
    psc_tensor step = whole("step", &count, 1, PSC_FLOAT32);
    struct outcome o = {0};
    b->fake.fate = seed ? refuse_and_cut : NULL;
    b->fake.param = seed;
    psc_push_pull(b->client, &t, &into, 1, &(psc_push_options){.examples = 1, .round = 1}, on_result, &o, NULL);
    assert_int_equal(run(b, psc_assign_add, &step, 1).error.code, PSC_OK);
    fake_idle(&b->fake, 100);
    assert_int_equal(atomic_load(&o.done), 0);
    bool arrived[12] = {0};
    for (size_t i = 0; i < b->fake.n_arrivals; i++)
        if (b->fake.arrivals[i].method == PARAMSERVER__V1__METHOD__PUSH_PULL)
            arrived[b->fake.arrivals[i].first * sizeof(float) / (2 << 20)] = true;
    for (int i = 0; i < 12; i++)
        assert_true(arrived[i]);
    b->fake.round = 4;  // backup workers: the others may be further than that, and some partitions behind
    b->fake.runs_behind = seed % 2;
    fake_wake(&b->fake);
    psc_result r = finish(b, &o);
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.queued + r.duplicates, 48);
    assert_int_equal(r.open_round, seed % 2 ? 4 : 5);
    assert_int_equal(r.last_round, 4);
    free(data);
    free(got);
    bench_free(b);
}

static void test_push_pull_in_sync(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        push_pull_in_sync(PSC_STREAM, seed);
        push_pull_in_sync(PSC_UNARY, seed);
    }
}

// ---- what is newer ------------------------------------------------------------------------------------------------

static psc_result get_newer(struct bench *b, psc_seen *seen, const psc_tensor *t, size_t n)
{
    struct outcome o = {0};
    psc_get_newer(b->client, seen, t, n, on_result, &o, NULL);
    return finish(b, &o);
}

static void newer(bool joins)
{
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float *data = calloc(TABLE, sizeof *data), x[10] = {7};
    psc_string *words = calloc(WORDS, sizeof *words), *read = calloc(WORDS, sizeof *read);
    psc_seen *seen;
    psc_tensor t[] = {whole("table", data, TABLE, PSC_FLOAT32), whole("bias", x, 10, PSC_FLOAT32),
                      whole("words", read, WORDS, PSC_STRING)};
    b->fake.joins = joins;
    b->fake.reply_bytes = 600 << 10;
    assert_int_equal(psc_seen_create(b->client, &seen, NULL), PSC_OK);
    psc_result r = get_newer(b, seen, t, 3);  // what has never changed has never been seen either
    assert_int_equal(r.error.code, PSC_OK);
    assert_int_equal(r.unchanged, 0);
    assert_true(x[0] == 0);
    x[0] = 5;
    r = get_newer(b, seen, t, 3);
    assert_int_equal(r.unchanged, 3);
    assert_true(x[0] == 5);  // left alone

    static float row[WIDTH];
    row[1] = 2;
    psc_tensor change = rows(row, 1100, 1), put = whole("words", words, WORDS, PSC_STRING);
    make_words(words, 0, WORDS, 'A');
    assert_int_equal(run(b, start_push, &change, 1).error.code, PSC_OK);
    assert_int_equal(run(b, psc_put, &put, 1).error.code, PSC_OK);
    data[0] = 9;  // in a partition that has not changed
    r = get_newer(b, seen, t, 3);
    assert_int_equal(r.unchanged, 1);
    assert_true(data[1100 * WIDTH + 1] == 2 && data[0] == 9);
    assert_words(read, words, WORDS);
    psc_strings_free(words, WORDS);
    make_words(words, 0, WORDS, 'a');
    assert_int_equal(run(b, psc_put, &put, 1).error.code, PSC_OK);
    assert_int_equal(get_newer(b, seen, t, 3).unchanged, 2);  // the strings before are freed
    assert_words(read, words, WORDS);
    assert_int_equal(get_newer(b, seen, t, 3).unchanged, 3);
    psc_strings_free(words, WORDS);
    psc_strings_free(read, WORDS);
    free(words);
    free(read);
    free(data);
    psc_seen_free(seen);
    bench_free(b);
}

static void test_newer(void **state)
{
    (void)state;
    newer(false);
    newer(true);
}

static void test_newer_fails(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float *data = calloc(TABLE, sizeof *data);
    psc_tensor t = whole("table", data, TABLE, PSC_FLOAT32), part = rows(data, 3, 1);
    psc_seen *seen;
    struct outcome o = {0};
    assert_int_equal(psc_seen_create(b->client, &seen, NULL), PSC_OK);
    b->fake.fate = garble_at;
    b->fake.param = 4;
    b->fake.reply_bytes = 600 << 10;
    assert_int_equal(get_newer(b, seen, &t, 1).error.code, PSC_INTERNAL);
    assert_int_equal(get_newer(b, seen, &t, 1).unchanged, 0);  // nothing counts as seen
    assert_int_equal(get_newer(b, seen, &t, 1).unchanged, 1);
    psc_get_newer(b->client, seen, &t, 1, on_result, &o, NULL);
    assert_int_equal(get_newer(b, seen, &t, 1).error.code, PSC_FAILED_PRECONDITION);
    assert_int_equal(finish(b, &o).error.code, PSC_OK);
    assert_int_equal(get_newer(b, seen, &part, 1).error.code, PSC_INVALID_ARGUMENT);
    assert_int_equal(get_newer(b, seen, &t, 1).unchanged, 1);
    psc_seen_free(seen);
    free(data);
    bench_free(b);
}

static enum fake_fate job_is_not_there(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)f, (void)task, (void)n;
    const bool data = method == PARAMSERVER__V1__METHOD__GET || method == PARAMSERVER__V1__METHOD__PULL ||
                      method == PARAMSERVER__V1__METHOD__PUT;
    return data ? FAKE_NO_JOB : FAKE_DELIVER;
}

// By the function that was called, whichever request it sends: where nothing is sent, and where a ps task refuses it.
static void test_errors_name_the_function(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    psc_client *observer = second_client(b, (psc_options){.rank = -1});
    struct outcome attached = {0};
    const psc_shards shards = {.name = "x", .checkpoint = 1};
    float x[10] = {0};
    psc_tensor wrong = whole("bia", x, 10, PSC_FLOAT32), right = whole("bias", x, 10, PSC_FLOAT32);
    psc_error e;
    psc__attach(observer, on_done, &attached);
    assert_true(fake_run(&b->fake, &attached.done, 10));
    b->fake.fate = job_is_not_there;
    for (int refused = 0; refused < 2; refused++) {
        const psc_tensor *t = refused ? &right : &wrong;
        struct outcome o[3] = {0};
        psc_put_state(observer, t, 1, 7, on_result, &o[0], NULL);
        psc_pull_averages(observer, t, 1, 0, on_result, &o[1], NULL);
        psc_write_shards(observer, t, 1, &shards, on_result, &o[2], NULL);
        static const char *const names[] = {"put state: ", "pull averages: ", "write shards: "};
        for (int i = 0; i < 3; i++) {
            const psc_result r = finish(b, &o[i]);
            if (r.error.code != PSC_NOT_FOUND || strncmp(r.error.text, names[i], strlen(names[i])) != 0)
                fail_msg("%d %s", r.error.code, r.error.text);
        }
    }
    assert_int_equal(psc_set_hyper(observer, NULL, 1, NULL, &e), PSC_INVALID_ARGUMENT);
    assert_string_equal(e.text, "set hyper: expected the name of a hyperparameter");
    psc__client_free(observer);
    bench_free(b);
}

// What one client has seen says nothing of what another has: the places in its layout may be others.
static psc_client *attached_observer(struct bench *b)
{
    psc_client *observer = second_client(b, (psc_options){.rank = -1});
    struct outcome attached = {0};
    psc__attach(observer, on_done, &attached);
    assert_true(fake_run(&b->fake, &attached.done, 10));
    return observer;
}

static void test_seen_by_another_client(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    psc_client *observer = attached_observer(b);
    struct outcome got = {0};
    float x[10];
    psc_tensor t = whole("bias", x, 10, PSC_FLOAT32);
    psc_seen *seen;
    assert_int_equal(psc_seen_create(observer, &seen, NULL), PSC_OK);
    psc_result r = get_newer(b, seen, &t, 1);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_string_equal(r.error.text, "get: what was seen is another client's");
    psc_get_newer(observer, seen, &t, 1, on_result, &got, NULL);
    assert_int_equal(finish(b, &got).error.code, PSC_OK);
    for (int i = 0; i < 20; i++) {  // the memory of one that is closed is the next one's
        struct outcome again = {0};
        psc__client_free(observer);
        observer = attached_observer(b);
        psc_get_newer(observer, seen, &t, 1, on_result, &again, NULL);
        assert_int_equal(finish(b, &again).error.code, PSC_INVALID_ARGUMENT);
    }
    psc_seen_free(seen);
    psc__client_free(observer);
    bench_free(b);
}

// What counts as seen is what the read found that it ended with.
static void test_newer_begins_again(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    float *data = calloc(TABLE, sizeof *data);
    psc_tensor t = whole("table", data, TABLE, PSC_FLOAT32);
    psc_seen *seen;
    assert_int_equal(psc_seen_create(b->client, &seen, NULL), PSC_OK);
    assert_int_equal(run(b, start_push, &t, 1).error.code, PSC_OK);
    b->fake.reply_bytes = PS_BLOCK_BYTES;
    b->fake.fate = abort_continuation;
    b->fake.param = 4;  // the first of each of three tasks has been answered
    assert_int_equal(get_newer(b, seen, &t, 1).unchanged, 0);
    assert_int_equal(b->fake.param, 0);
    assert_int_equal(get_newer(b, seen, &t, 1).unchanged, 1);
    psc_seen_free(seen);
    free(data);
    bench_free(b);
}

// ---- among workers ------------------------------------------------------------------------------------------------

enum { TRIO = 3, LONG = 1200000 };

static struct bench *trio_new(psc_client **clients)
{
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.workers = TRIO;
    bench_begin(b, options);
    clients[0] = b->client;
    for (int i = 1; i < TRIO; i++) {
        struct outcome o = {0};
        options.rank = i;
        clients[i] = second_client(b, options);
        psc__join(clients[i], on_done, &o);
        assert_true(fake_run(&b->fake, &o.done, 100));
        assert_int_equal(o.error.code, PS_OK);
    }
    b->fake.collective_size = TRIO;
    return b;
}

// The fake's shutdown is for all of its clients: the last one frees it.
static void trio_free(struct bench *b, psc_client **clients)
{
    for (int i = 1; i < TRIO; i++)
        psc__client_free(clients[i]);
    bench_free(b);
}

static enum fake_fate cut_reduce(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__REDUCE || f->param-- != 0)
        return FAKE_DELIVER;
    return f->seed % 2 ? FAKE_CUT_AFTER : FAKE_CUT_BEFORE;
}

static void test_reduce(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        psc_client *clients[TRIO];
        struct bench *b = trio_new(clients);
        double *data[TRIO];
        uint32_t workers[TRIO] = {0};
        struct outcome o[TRIO] = {{0}};
        b->fake.shuffle = true;
        b->fake.seed = seed;
        b->fake.fate = cut_reduce;
        b->fake.param = seed / 2;
        for (int i = 0; i < TRIO; i++) {
            data[i] = calloc(LONG, sizeof **data);
            for (int k = 0; k < LONG; k++)
                data[i][k] = i + k;
            psc__reduce(clients[i], "sum", PSC_SUM, PSC_FLOAT64, data[i], LONG, &workers[i], on_done, &o[i]);
        }
        for (int i = 0; i < TRIO; i++) {
            assert_true(fake_run(&b->fake, &o[i].done, 100));
            assert_int_equal(o[i].error.code, PS_OK);
            assert_int_equal(workers[i], TRIO);
            for (int k = 0; k < LONG; k += 511)
                assert_true(data[i][k] == 3 + 3.0 * k);
            free(data[i]);
        }
        assert_int_equal(b->fake.met, 3);  // pieces
        assert_string_equal(b->fake.last_name, "sum (3/3)");
        trio_free(b, clients);
    }
}

static void test_reduce_small(void **state)
{
    (void)state;
    psc_client *clients[TRIO];
    struct bench *b = trio_new(clients);
    int32_t data[TRIO][2] = {{1, 9}, {5, 2}, {3, 3}};
    struct outcome o[TRIO] = {{0}}, bad = {0};
    for (int i = 0; i < TRIO; i++)
        psc__reduce(clients[i], "most", PSC_MAX, PSC_INT32, data[i], 2, NULL, on_done, &o[i]);
    for (int i = 0; i < TRIO; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 100));
        assert_true(data[i][0] == 5 && data[i][1] == 9);
    }
    assert_string_equal(b->fake.last_name, "most");
    psc__reduce(clients[0], "x", PSC_SUM, PSC_STRING, data, 1, NULL, on_done, &bad);
    assert_int_equal(bad.error.code, PS_INVALID_ARGUMENT);
    assert_string_equal(bad.error.text, "reduce: string; expected float32, float64, int32 or int64");
    trio_free(b, clients);
}

static enum fake_fate one_leaves(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__REDUCE || ++f->param <= TRIO)
        return FAKE_DELIVER;
    f->collective_size = TRIO - 1;  // psd has noticed
    return f->param == 2 * TRIO ? FAKE_LOSE : FAKE_DELIVER;
}

static void test_who_leaves_in_the_middle(void **state)
{
    (void)state;
    psc_client *clients[TRIO];
    struct bench *b = trio_new(clients);
    double *data[TRIO];
    struct outcome o[TRIO] = {{0}};
    b->fake.fate = one_leaves;
    for (int i = 0; i < TRIO; i++) {
        data[i] = calloc(LONG / 2, sizeof **data);
        for (int k = 0; k < LONG / 2; k++)
            data[i][k] = i + 1;
        psc__reduce(clients[i], "sum", PSC_SUM, PSC_FLOAT64, data[i], LONG / 2, NULL, on_done, &o[i]);
    }
    int failed = 0;
    for (int i = 0; i < TRIO; i++) {
        if (!fake_run(&b->fake, &o[i].done, 20))
            continue;
        failed++;
        for (int k = 0; k < LONG / 2; k++)  // to be brought again
            assert_true(data[i][k] == i + 1);
        assert_int_equal(o[i].error.code, PS_ABORTED);
        assert_non_null(strstr(o[i].error.text, "reduce 'sum': worker 2 left in the middle"));
    }
    assert_int_equal(failed, TRIO - 1);
    trio_free(b, clients);
    for (int i = 0; i < TRIO; i++)
        free(data[i]);
}

static void gather(const uint64_t *sizes, uint64_t seed)
{
    psc_client *clients[TRIO];
    struct bench *b = trio_new(clients);
    uint8_t *data[TRIO];
    void *all[TRIO] = {0};
    uint64_t all_bytes[TRIO], sizes_out[TRIO][TRIO], total = sizes[0] + sizes[1] + sizes[2];
    struct outcome o[TRIO] = {{0}};
    b->fake.seed = seed;
    b->fake.fate = cut_reduce;
    b->fake.param = seed;
    for (int i = 0; i < TRIO; i++) {
        data[i] = malloc(sizes[i] + 1);
        for (uint64_t k = 0; k < sizes[i]; k++)
            data[i][k] = (uint8_t)(k * 7 + k / 251 + (uint64_t)i);
        psc__all_gather(clients[i], "all", data[i], sizes[i], &all[i], &all_bytes[i], i == 1 ? NULL : sizes_out[i],
                        on_done, &o[i]);
    }
    for (int i = 0; i < TRIO; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 100));
        assert_int_equal(o[i].error.code, PS_OK);
        assert_int_equal(all_bytes[i], total);
        uint8_t *at = all[i];
        for (int r = 0; r < TRIO; at += sizes[r++])
            assert_memory_equal(at, data[r], sizes[r]);
        if (i != 1)
            assert_memory_equal(sizes_out[i], sizes, sizeof sizes_out[i]);
    }
    for (int i = 0; i < TRIO; i++) {
        free(data[i]);
        free(all[i]);
    }
    trio_free(b, clients);
}

static void test_all_gather(void **state)
{
    (void)state;
    gather((const uint64_t[]){0, 0, 0}, 1000);
    gather((const uint64_t[]){3, 0, 5}, 1000);
    for (uint64_t seed = 0; seed < 12; seed++)
        gather((const uint64_t[]){100, 3 << 20, 1310720}, seed);  // the last is one piece exactly
}

static void test_broadcast(void **state)
{
    (void)state;
    enum { BYTES = 9 << 20 };
    psc_client *clients[TRIO];
    struct bench *b = trio_new(clients);
    uint8_t *data[TRIO];
    struct outcome o[TRIO] = {{0}}, short_of[TRIO] = {{0}};
    for (int i = 0; i < TRIO; i++) {
        data[i] = calloc(1, BYTES);
        for (int k = 0; i == 1 && k < BYTES; k++)
            data[i][k] = (uint8_t)(k * 3 + k / 256);
        psc__broadcast(clients[i], "from 1", 1, data[i], BYTES, on_done, &o[i]);
    }
    for (int i = 0; i < TRIO; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 100));
        assert_int_equal(o[i].error.code, PS_OK);
        assert_memory_equal(data[i], data[1], BYTES);
    }
    for (int i = 0; i < TRIO; i++)
        psc__broadcast(clients[i], "of two sizes", 1, data[i], i ? 1000 : 999, on_done, &short_of[i]);
    for (int i = 0; i < TRIO; i++)
        assert_true(fake_run(&b->fake, &short_of[i].done, 100));
    assert_int_equal(short_of[0].error.code, PS_INVALID_ARGUMENT);
    assert_non_null(strstr(short_of[0].error.text, "999 bytes were expected here, 1000 came"));
    for (int i = 0; i < TRIO; i++)
        free(data[i]);
    trio_free(b, clients);
}

// ---- membership ---------------------------------------------------------------------------------------------------

static void test_clock(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    options.update = PSC_SSP;
    options.staleness = 3;
    options.join_within_ms = 1234;
    options.configuration = "seed=7\n";
    bench_begin(b, options);
    assert_int_equal(b->fake.staleness, 3);
    assert_int_equal(b->fake.join_within_ms, 1234);
    assert_string_equal(b->fake.configuration, "seed=7\n");
    struct outcome o = {0}, waits = {0};
    uint64_t clock = 0, slowest = 9;
    psc__clock(b->client, 5, false, &clock, &slowest, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_int_equal(clock, 5);
    assert_int_equal(slowest, 0);
    psc__clock(b->client, 6, true, &clock, &slowest, on_done, &waits);
    fake_idle(&b->fake, 100);  // as long as the others live
    assert_int_equal(atomic_load(&waits.done), 0);
    b->fake.slowest = 3;
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &waits.done, 10));
    assert_int_equal(waits.error.code, PS_OK);
    assert_int_equal(slowest, 3);
    bench_free(b);
}

static void test_shares(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    psc_share s;
    psc__lease(b->client, 2, 5000, 64, 9, &s, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_true(s.first == 2000 && s.count == 64 && s.stride == 128 && s.end == 5000 && s.steps == 3 && s.round == 9);
    bench_free(b);
}

// The job goes on from a checkpoint: who has come late learns with its first lease that the others are in epoch 6.
static void test_late_in_a_later_epoch(void **state)
{
    (void)state;
    static const uint64_t none[5] = {0};
    struct bench *b = bench_new(PSC_STREAM);
    struct outcome o = {0};
    psc_share s;
    b->fake.late = true;
    b->fake.lease_epoch = 6;
    b->fake.share = none;
    bench_begin(b, worker_options(b));
    assert_int_equal(psc_data_epoch(b->client), 0);
    psc__lease(b->client, 0, 5000, 64, 0, &s, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 10));
    assert_int_equal(s.count, 0);
    assert_int_equal(psc_data_epoch(b->client), 6);
    bench_free(b);
}

static void test_late_and_draining(void **state)
{
    (void)state;
    struct bench *b = bench_new(PSC_STREAM);
    b->fake.late = true;
    b->fake.data_epoch = 4;
    bench_begin(b, worker_options(b));
    assert_true(psc_is_late(b->client));
    assert_int_equal(psc_data_epoch(b->client), 4);
    assert_int_equal(psc_arrival(b->client), 1);
    fake_idle(&b->fake, 1);
    assert_false(psc_is_draining(b->client));
    b->fake.drain = true;
    fake_idle(&b->fake, 1);
    assert_true(psc_is_draining(b->client));
    b->fake.drain = false;  // taken back
    fake_idle(&b->fake, 1);
    assert_false(psc_is_draining(b->client));
    bench_free(b);
}

// Who has passed a barrier knows who lives, though the last heartbeat was before that.
static void test_members_after_a_barrier(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct bench *b = bench_new(PSC_STREAM);
        psc_options options = worker_options(b);
        struct outcome o = {0};
        options.rank = 1;
        bench_begin(b, options);
        fake_idle(&b->fake, 5.01);
        assert_false(psc_is_chief(b->client));
        b->fake.barrier_open = b->fake.left = true;
        b->fake.silent = lost;
        psc__barrier(b->client, "b", on_done, &o);
        assert_true(fake_run(&b->fake, &o.done, lost ? 1 : 0.1));
        assert_int_equal(o.error.code, PS_OK);
        assert_int_equal(psc_is_chief(b->client), !lost);
        b->fake.silent = false;
        fake_idle(&b->fake, 2);
        assert_true(psc_is_chief(b->client));
        assert_int_equal(psc_live_workers(b->client), 1);
        b->fake.left = false;  // as in an answer that comes late
        fake_idle(&b->fake, 2);
        assert_true(psc_is_chief(b->client));
        bench_free(b);
    }
}

// Who waits for others says so with each heartbeat until that is over.
static void test_heartbeats_say_that_a_barrier_waits(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o = {0};
    fake_idle(&b->fake, 1);
    assert_false(b->fake.waits);
    psc__barrier(b->client, "b", on_done, &o);
    fake_idle(&b->fake, 1);
    assert_true(b->fake.waits);
    b->fake.barrier_open = true;
    fake_wake(&b->fake);
    assert_true(fake_run(&b->fake, &o.done, 1));
    fake_idle(&b->fake, 1);
    assert_false(b->fake.waits);
    bench_free(b);
}

// Who comes in the place of a chief that is dead is to do what that would have done. The control task says who does.
static void test_who_comes_after_a_lost_chief_is_its_heir(void **state)
{
    (void)state;
    for (int heir = 0; heir < 2; heir++) {
        struct bench *b = bench_new(PSC_STREAM);
        psc_options options = worker_options(b);
        options.rank = 1;
        b->fake.heir = heir;
        bench_begin(b, options);
        fake_idle(&b->fake, 5);
        assert_in_range(psc_chief_silence(b->client), 0, 600);
        b->fake.chief_silent_ms = 1400;
        fake_idle(&b->fake, 3);
        assert_in_range(psc_chief_silence(b->client), 1400, 2000);
        assert_false(psc_is_heir(b->client));
        b->fake.left = true;
        b->fake.furthest = 500;
        fake_idle(&b->fake, 1);
        assert_true(psc_is_chief(b->client));
        assert_int_equal(psc_is_heir(b->client), heir);
        assert_int_equal(psc_furthest(b->client), 500);
        bench_free(b);
    }
}

// Each number of a schedule, set to a value of its own: the ps tasks know which are for which kind.
static const uint64_t schedule_boundaries[] = {100, 200};
static const double schedule_values[] = {0.1, 0.01, 0.001};
static const psc_schedule full_schedule = {.kind = "piecewise",
                                           .initial = 0.75,
                                           .decay_steps = 7,
                                           .decay_rate = 0.25,
                                           .staircase = true,
                                           .alpha = 0.125,
                                           .boundaries = schedule_boundaries,
                                           .values = schedule_values,
                                           .n_boundaries = 2,
                                           .warmup_steps = 5,
                                           .warmup_initial = 0.5,
                                           .t_mul = 3,
                                           .m_mul = 4,
                                           .end_learning_rate = 6,
                                           .power = 8,
                                           .cycle = true};

static void assert_schedule(const Paramserver__V1__Schedule *s)
{
    assert_string_equal(s->kind, "piecewise");
    assert_int_equal(s->n_boundaries, 2);
    assert_int_equal(s->boundaries[1], 200);
    assert_int_equal(s->n_values, 3);
    assert_true(s->values[2] == 0.001 && s->warmup_steps == 5 && s->warmup_initial == 0.5);
    assert_true(s->initial == 0.75 && s->decay_steps == 7 && s->decay_rate == 0.25 && s->staircase);
    assert_true(s->alpha == 0.125 && s->t_mul == 3 && s->m_mul == 4);
    assert_true(s->end_learning_rate == 6 && s->power == 8 && s->cycle);
}

static void test_declaration_is_reported(void **state)
{
    (void)state;
    psc_declaration d = {.variables = many,
                         .n_variables = N_MANY,
                         .rule = "adam",
                         .hypers = &rate,
                         .n_hypers = 1,
                         .schedule = &full_schedule,
                         .replicas_to_aggregate = 2,
                         .grace_ms = 250};
    struct bench *b = bench_new(PSC_STREAM);
    psc_options options = worker_options(b);
    struct outcome o = {0};
    options.update = PSC_SSP;
    options.staleness = 3;
    bench_begin(b, options);
    psc_schedule nameless = full_schedule;
    nameless.kind = NULL;
    d.schedule = &nameless;
    assert_int_equal(bench_declare_as(b, &d).code, PS_INVALID_ARGUMENT);
    psc_variable odd = many[5];
    odd.rule = "sgf";
    d.schedule = &full_schedule;
    d.variables = &odd;
    d.n_variables = 1;
    struct ps_error e = bench_declare_as(b, &d);
    assert_int_equal(e.code, PS_INVALID_ARGUMENT);
    assert_string_equal(e.text, "declare: variable 'other': no update rule 'sgf'; did you mean 'sgd'?");
    d.variables = many;
    d.n_variables = N_MANY;
    assert_int_equal(bench_declare_as(b, &d).code, PS_OK);

    const Paramserver__V1__DeclareRequest *r = fake_declared(&b->fake);
    assert_schedule(r->schedule);
    assert_true(r->replicas_to_aggregate == 2 && r->grace_ms == 250 && r->staleness == 3);
    assert_int_equal(r->n_hypers, 1);
    assert_string_equal(r->variables[5]->rule, "sgd");
    assert_true(r->variables[5]->n_hypers == 1 && r->variables[5]->hypers[0]->value == 0.5);
    assert_string_equal(r->variables[0]->rule, "");

    psc_client *observer = second_client(b, (psc_options){.rank = -1});
    psc__attach(observer, on_done, &o);
    assert_true(fake_run(&b->fake, &o.done, 100));
    const psc_variable *v = psc_variable_find(observer, "other");
    assert_string_equal(v->rule, "sgd");
    assert_string_equal(v->hypers[0].name, "learning_rate");
    assert_null(psc_variable_find(observer, "table")->rule);
    psc__client_free(observer);
    bench_free(b);
}

// ---- order --------------------------------------------------------------------------------------------------------

// The first that comes after `param` was set is refused; those behind it are taken.
static enum fake_fate refuse_next(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task, (void)n;
    if (method != PARAMSERVER__V1__METHOD__ASSIGN_ADD || !f->param)
        return FAKE_DELIVER;
    f->param = 0;
    return FAKE_REFUSE;
}

// After an update was refused, none that is sent later arrives before it has passed: they go one by one.
static void test_a_refused_update_is_not_overtaken_again(void **state)
{
    (void)state;
    struct bench *b = bench_ready(PSC_STREAM);
    struct outcome o[40] = {{0}};
    b->fake.fate = refuse_next;
    b->fake.param = 1;
    b->scalar = 1;
    psc_assign_add(b->client, &b->tensors[3], 1, on_result, &o[0], NULL);
    fake_idle(&b->fake, 0.003);  // refused; the task rests
    b->fake.param = 1;           // and what comes first then is refused as well
    for (int i = 1; i < 40; i++)
        psc_assign_add(b->client, &b->tensors[3], 1, on_result, &o[i], NULL);
    for (int i = 0; i < 40; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 100));
        assert_int_equal(o[i].result.error.code, PSC_OK);
    }
    assert_int_equal(b->fake.param, 0);
    for (size_t i = 1; i < b->fake.n_arrivals; i++)
        assert_true(b->fake.arrivals[i].sequence > b->fake.arrivals[i - 1].sequence);
    assert_true(fake_value(&b->fake, "step", 0) == 40);
    bench_free(b);
}

static enum fake_fate refuse_puts(struct fake *f, uint32_t task, int method, uint64_t n)
{
    (void)task;
    return (method == PARAMSERVER__V1__METHOD__PUT || method == PARAMSERVER__V1__METHOD__ASSIGN_ADD) &&
                   draw(f->param, (uint32_t)n) % 3 == 0
               ? FAKE_REFUSE
               : FAKE_DELIVER;
}

// A put that is refused while what was started after it passes would undo that.
static void test_puts_keep_their_place(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
        float put[10], one[10], expected = 0;
        psc_tensor to = whole("bias", put, 10, PSC_FLOAT32), add = whole("bias", one, 10, PSC_FLOAT32);
        struct outcome o[10] = {{0}};
        b->fake.fate = refuse_puts;
        b->fake.param = seed;
        for (int k = 0; k < 10; k++) {
            put[k] = 100;
            one[k] = 1;
        }
        for (int i = 0; i < 10; i++) {
            bool is_put = draw(seed, 500 + (uint32_t)i) % 3 == 0;
            (is_put ? psc_put : psc_assign_add)(b->client, is_put ? &to : &add, 1, on_result, &o[i], NULL);
            expected = is_put ? 100 : expected + 1;
        }
        for (int i = 0; i < 10; i++)
            assert_int_equal(finish(b, &o[i]).error.code, PSC_OK);
        for (uint64_t k = 0; k < 10; k++)
            assert_true(fake_value(&b->fake, "bias", k) == expected);
        bench_free(b);
    }
}

// What is read is what was put before it, though the put was refused and the read was not; and what is on its way for
// long does not pass for an answer to the put's second attempt.
static void no_overtaking(psc_transport transport, uint64_t seed)
{
    enum { PAIRS = 6 };
    struct bench *b = open_bench(transport, PSC_ASYNC, 0);
    float put[PAIRS][10], got[PAIRS][10] = {{0}};
    struct outcome o[PAIRS] = {{0}}, ignored = {0};
    b->fake.seed = seed;
    b->fake.fate = refuse_puts;
    b->fake.param = seed;
    b->fake.read_ns = seed % 2 ? PS_SECOND : 0;
    for (int i = 0; i < PAIRS; i++) {
        psc_tensor t = whole("bias", put[i], 10, PSC_FLOAT32), into = whole("bias", got[i], 10, PSC_FLOAT32);
        for (int k = 0; k < 10; k++)
            put[i][k] = (float)(i + 1);
        psc_put(b->client, &t, 1, on_result, &ignored, NULL);
        psc_get(b->client, &into, 1, on_result, &o[i], NULL);
    }
    for (int i = 0; i < PAIRS; i++) {
        assert_true(fake_run(&b->fake, &o[i].done, 100));
        assert_int_equal(o[i].result.error.code, PSC_OK);
        assert_true(got[i][3] >= (float)(i + 1));
    }
    bench_free(b);
}

static void test_no_read_overtakes_a_refused_update(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        no_overtaking(PSC_STREAM, seed);
        no_overtaking(PSC_UNARY, seed);
    }
}

// What is not trained and has no rule has no gradient: nothing of such a push is sent. assign_add changes it.
static void test_no_gradient_without_a_rule(void **state)
{
    (void)state;
    struct bench *b = open_bench(PSC_STREAM, PSC_ASYNC, 0);
    int64_t add[10] = {1};
    float bias[10] = {1};
    const psc_tensor both[] = {whole("bias", bias, 10, PSC_FLOAT32), whole("long", add, 10, PSC_INT64)};
    psc_result r = run(b, start_push, both, 2);
    assert_int_equal(r.error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "'long' is not trainable and names no rule: it takes no gradient"));
    assert_int_equal(run(b, start_atomic, both, 2).error.code, PSC_INVALID_ARGUMENT);
    struct outcome o = {0};
    psc_push_pull(b->client, both + 1, both + 1, 1, NULL, on_result, &o, NULL);
    assert_int_equal(finish(b, &o).error.code, PSC_INVALID_ARGUMENT);
    assert_int_equal(b->fake.n_arrivals, 0);
    assert_int_equal(run(b, psc_assign_add, both + 1, 1).error.code, PSC_OK);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_gradient_without_a_rule),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_slices_of_a_block_share_a_request),
        cmocka_unit_test(test_a_get_is_one_request),
        cmocka_unit_test(test_many_rows_of_a_block),
        cmocka_unit_test(test_slices_are_checked),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_a_round_takes_whole_variables),
        cmocka_unit_test(test_assign_sub),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_strings_that_fail),
        cmocka_unit_test(test_atomic),
        cmocka_unit_test(test_atomic_through_cuts),
        cmocka_unit_test(test_atomic_is_for_async),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_nonfinite_sends_nothing),
        cmocka_unit_test(test_nonfinite_by_encoding),
        cmocka_unit_test(test_push_to_a_round_has_a_deadline),
        cmocka_unit_test(test_open_round),
        cmocka_unit_test(test_blocks_count_with_their_partition),
        cmocka_unit_test(test_round_after_a_retry),
        cmocka_unit_test(test_numbers_of_a_read_that_begins_again),
        cmocka_unit_test(test_a_read_that_goes_on_has_its_time_anew),
        cmocka_unit_test(test_snapshots_are_released),
        cmocka_unit_test(test_push_encoded),
        cmocka_unit_test(test_push_pull),
        cmocka_unit_test(test_push_pull_in_sync),
        cmocka_unit_test(test_newer),
        cmocka_unit_test(test_newer_fails),
        cmocka_unit_test(test_errors_name_the_function),
        cmocka_unit_test(test_seen_by_another_client),
        cmocka_unit_test(test_newer_begins_again),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_small),
        cmocka_unit_test(test_who_leaves_in_the_middle),
        cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_late_in_a_later_epoch),
        cmocka_unit_test(test_late_and_draining),
        cmocka_unit_test(test_members_after_a_barrier),
        cmocka_unit_test(test_heartbeats_say_that_a_barrier_waits),
        cmocka_unit_test(test_who_comes_after_a_lost_chief_is_its_heir),
        cmocka_unit_test(test_declaration_is_reported),
        cmocka_unit_test(test_a_refused_update_is_not_overtaken_again),
        cmocka_unit_test(test_puts_keep_their_place),
        cmocka_unit_test(test_no_read_overtakes_a_refused_update),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
