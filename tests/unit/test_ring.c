// SPDX-License-Identifier: Apache-2.0
//
// workerd/collective/ring.c: rings of two to five ranks, and of so many that nothing goes directly, in one thread.
// Their chunks come in any order that a network may bring them in, drawn from a seed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/math/half.h"
#include "common/math/philox.h"
#include "workerd/collective/ring.h"

enum { FEW = 5, RANKS = WK_RING_DIRECT_RANKS + 2, REDUCTIONS = 3, WIRE = 8192 };

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code)
        fail_msg("%s", e->text);
}

// A chunk on its way, or an acknowledgement.
struct letter {
    struct wk_ring_message message;
    uint32_t from, to;
    struct wk_ring_reduction *reduction;  // the sender's, which hears of the acknowledgement
    bool is_acknowledgement;
};

struct test {
    uint32_t ranks;
    struct wk_ring *ring[RANKS];
    struct node {
        struct test *t;
        uint32_t rank;
    } node[RANKS];
    struct wk_ring_reduction reduction[RANKS][REDUCTIONS];
    struct letter *wire[WIRE];
    size_t n_wire;
    uint64_t drawn, seed;
    size_t refused;
};

static void post(struct test *t, struct letter *l)
{
    assert_true(t->n_wire < WIRE);
    t->wire[t->n_wire++] = l;
}

// The chunk has been taken: its sender hears of it some time later.
static void taken(struct wk_ring_message *m, enum ps_code code, const char *text)
{
    struct letter *l = (struct letter *)m;
    struct test *t = *(struct test **)(l + 1);
    ps_slices_clear(&m->data);
    (void)text;
    t->refused += code != PS_OK;
    l->to = l->from;
    l->is_acknowledgement = true;
    post(t, l);
}

// Chunks are copied, so that one whose sender changes it too early is not the sum; cut at odd places into slices.
static void send_to(void *ctx, struct wk_ring_reduction *r, uint32_t to, struct wk_ring_chunk chunk,
                    struct ps_slice data)
{
    struct node *n = ctx;
    struct letter *l = calloc(1, sizeof *l + sizeof(struct test *));
    *(struct test **)(l + 1) = n->t;
    l->from = n->rank;
    l->to = to;
    l->reduction = r;
    l->message.chunk = chunk;
    l->message.done = taken;
    for (size_t at = 0, part; at < data.len; at += part) {
        part = data.len - at < 1001 ? data.len - at : 1001;
        ps_slices_add(&l->message.data, ps_slice_copy(data.data + at, part));
    }
    ps_slice_unref(data);
    post(n->t, l);
}

static uint32_t draw(struct test *t, size_t below)
{
    uint32_t word[4];
    ps_philox(t->seed, PS_RANDOM_DELAY, 0, t->drawn++, word);
    return (uint32_t)(word[0] % below);
}

// One letter, any of them, arrives.
static void deliver(struct test *t)
{
    const size_t k = draw(t, t->n_wire);
    struct letter *l = t->wire[k];
    t->wire[k] = t->wire[--t->n_wire];
    if (l->is_acknowledgement) {
        wk_ring_sent(t->ring[l->to], l->reduction);
        free(l);
    } else {
        wk_ring_receive(t->ring[l->to], &l->message);
    }
}

static void open_rings(struct test *t, uint32_t ranks, uint64_t seed)
{
    *t = (struct test){.ranks = ranks, .seed = seed};
    for (uint32_t r = 0; r < ranks; r++) {
        t->node[r] = (struct node){t, r};
        t->ring[r] = wk_ring_create((struct wk_ring_link){send_to, &t->node[r]});
        wk_ring_join(t->ring[r], r, ranks);
    }
}

static void close_rings(struct test *t)
{
    for (uint32_t r = 0; r < t->ranks; r++)
        wk_ring_destroy(t->ring[r]);
}

// What rank r has at i, in reduction k: sums are exact.
static double value_of(uint32_t r, int k, size_t i)
{
    return (double)((i * 7 + 1) % 1000) + (double)(r * 1000) + (double)(k * 10000);
}

static void *make(uint32_t r, int k, size_t n, enum wk_number type)
{
    char *v = malloc(n * sizeof(double) + 1);
    for (size_t i = 0; i < n; i++) {
        double value = value_of(r, k, i);
        float single = (float)value;
        memcpy(v + i * (type == WK_FLOAT ? 4 : 8), type == WK_FLOAT ? (void *)&single : (void *)&value,
               type == WK_FLOAT ? 4 : 8);
    }
    return v;
}

static void check(const struct test *t, const void *values, int k, size_t n, enum wk_number type)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < t->ranks; r++)
            sum += value_of(r, k, i);
        double got = type == WK_FLOAT ? (double)((const float *)values)[i] : ((const double *)values)[i];
        if (got != sum)
            fail_msg("seed %d, %u ranks, reduction %d: element %zu is %f, not %f", (int)t->seed, t->ranks, k, i, got,
                     sum);
    }
}

// Three reductions at once, which each rank begins at some time.
static void reduce_three(struct test *t, size_t n, enum wk_number type)
{
    void *values[RANKS][REDUCTIONS];
    int begun[RANKS] = {0};
    uint32_t left = t->ranks * REDUCTIONS;
    struct ps_error e;
    for (uint32_t r = 0; r < t->ranks; r++)
        for (int k = 0; k < REDUCTIONS; k++)
            values[r][k] = make(r, k, n, type);
    while (left > 0 || t->n_wire > 0) {
        uint32_t r = draw(t, t->ranks);
        if (begun[r] < REDUCTIONS && (t->n_wire == 0 || draw(t, 4) == 0)) {
            wk_ring_begin(t->ring[r], &t->reduction[r][begun[r]], values[r][begun[r]], n, type);
            begun[r]++;
            left--;
        } else if (t->n_wire > 0) {
            deliver(t);
        }
    }
    for (uint32_t r = 0; r < t->ranks; r++)
        for (int k = 0; k < REDUCTIONS; k++) {
            must(wk_ring_wait(t->ring[r], &t->reduction[r][k], ps_now(), &e), &e);
            check(t, values[r][k], k, n, type);
            free(values[r][k]);
        }
    assert_int_equal(0, t->refused);
}

static void sums_in_any_order(void **ctx)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 17, 1000, 65536, 65537, 300001};
    (void)ctx;
    for (uint64_t seed = 0; seed < 40; seed++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct test t;
            if (sizes[i] > 1000 && seed > 6)
                continue;
            open_rings(&t, sizes[i] <= 1000 && seed % 8 == 7 ? RANKS : 2 + (uint32_t)(seed % (FEW - 1)), seed);
            reduce_three(&t, sizes[i], seed % 3 ? WK_FLOAT : WK_DOUBLE);
            close_rings(&t);
        }
}

// Sums that depend on the order of the summands have the same bits at all ranks, and in every run.
static void bits_repeat(uint32_t ranks, enum wk_number type)
{
    enum { N = 1000 };
    float first[N];
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct test t;
        float values[RANKS][N];
        struct ps_error e;
        open_rings(&t, ranks, seed);
        for (uint32_t r = 0; r < ranks; r++) {
            for (size_t i = 0; i < N; i++)
                values[r][i] = 1.0f / (float)(i * ranks + r + 1) * (r % 2 ? 1e6f : 1e-3f);
            wk_ring_begin(t.ring[r], &t.reduction[r][0], values[r], N, type);
        }
        while (t.n_wire > 0)
            deliver(&t);
        for (uint32_t r = 0; r < ranks; r++) {
            must(wk_ring_wait(t.ring[r], &t.reduction[r][0], ps_now(), &e), &e);
            if (seed == 0 && r == 0)
                memcpy(first, values[0], sizeof first);
            assert_memory_equal(first, values[r], sizeof first);
        }
        close_rings(&t);
    }
}

static void the_bits_repeat(void **ctx)
{
    (void)ctx;
    for (enum wk_number type = WK_FLOAT; type <= WK_FLOAT_AS_FLOAT16; type++) {
        if (type == WK_DOUBLE)
            continue;
        bits_repeat(FEW, type);
        bits_repeat(RANKS, type);
    }
}

// Two bytes of each number travel; sums below 256 are exact in both.
static void sums_of_halves(uint32_t ranks, size_t n, enum wk_number type)
{
    struct test t;
    struct ps_error e;
    float *values[RANKS];
    open_rings(&t, ranks, n);
    for (uint32_t r = 0; r < ranks; r++) {
        values[r] = malloc(n * sizeof **values);
        for (size_t i = 0; i < n; i++)
            values[r][i] = (float)(i % 4 + r % 3);
        wk_ring_begin(t.ring[r], &t.reduction[r][0], values[r], n, type);
    }
    for (size_t k = 0; k < t.n_wire; k++)
        assert_true(t.wire[k]->message.data.len <= 2 * n);
    while (t.n_wire > 0)
        deliver(&t);
    for (uint32_t r = 0; r < ranks; r++) {
        must(wk_ring_wait(t.ring[r], &t.reduction[r][0], ps_now(), &e), &e);
        for (size_t i = 0; i < n; i++)
            assert_true(values[r][i] == (float)(i % 4 * ranks + ranks / 3 * 3 + (ranks % 3 == 2)));
        free(values[r]);
    }
    assert_int_equal(0, t.refused);
    close_rings(&t);
}

static void halves_travel(void **ctx)
{
    (void)ctx;
    for (enum wk_number type = WK_FLOAT_AS_BFLOAT16; type <= WK_FLOAT_AS_FLOAT16; type++) {
        sums_of_halves(2, 1001, type);
        sums_of_halves(2, 300001, type);
        sums_of_halves(3, 100001, type);
        sums_of_halves(FEW, 999, type);
        sums_of_halves(RANKS, 1001, type);
    }
}

// Every half is its own rounding; what lies between two goes to the nearest, in the middle to the even one.
static void rounds_to_halves(uint16_t (*to)(float), float (*of)(uint16_t), uint16_t infinity)
{
    for (uint16_t half = 0; half < infinity; half++) {
        const float x = of(half), next = of((uint16_t)(half + 1));
        const float middle = half + 1 == infinity ? x + (x - of((uint16_t)(half - 1))) / 2 : x + (next - x) / 2;
        assert_int_equal(half, to(x));
        assert_int_equal(half | 0x8000, to(-x));
        assert_int_equal(half + (half & 1), to(middle));
        assert_int_equal(half, to(nextafterf(middle, 0)));
        assert_int_equal(half + 1, to(nextafterf(middle, INFINITY)));
    }
    assert_int_equal(infinity, to(INFINITY));
    assert_int_equal(infinity | 0x8000, to(-INFINITY));
    assert_true(isinf(of(infinity)) && isnan(of(infinity + 1)) && isnan(of(to(NAN))));
}

static uint16_t to_bfloat16(float x)
{
    return ps_to_bfloat16(x);
}

static float of_bfloat16(uint16_t half)
{
    return ps_of_bfloat16(half);
}

static uint16_t to_float16(float x)
{
    return ps_to_float16(x);
}

static float of_float16(uint16_t half)
{
    return ps_of_float16(half);
}

static void halves_are_the_nearest(void **ctx)
{
    (void)ctx;
    rounds_to_halves(to_bfloat16, of_bfloat16, 0x7f80);
    rounds_to_halves(to_float16, of_float16, 0x7c00);
    assert_true(of_float16(0x3c00) == 1 && of_float16(1) == 0x1p-24f && of_float16(0x7bff) == 65504);
    assert_true(of_bfloat16(0x3f80) == 1 && of_bfloat16(0x3f81) == 1 + 0x1p-7f);
}

// A small array's sum has the order of the ranks, which no other one gives here.
static void small_arrays_are_added_in_rank_order(void **ctx)
{
    static const float summand[FEW] = {1e8f, 1, -1e8f, 3, 5};
    float values[FEW];
    struct test t;
    struct ps_error e;
    (void)ctx;
    open_rings(&t, FEW, 3);
    for (uint32_t r = 0; r < FEW; r++) {
        values[r] = summand[r];
        wk_ring_begin(t.ring[r], &t.reduction[r][0], &values[r], 1, WK_FLOAT);
    }
    assert_int_equal(FEW * (FEW - 1), t.n_wire);  // and no more come
    while (t.n_wire > 0)
        deliver(&t);
    for (uint32_t r = 0; r < FEW; r++) {
        must(wk_ring_wait(t.ring[r], &t.reduction[r][0], ps_now(), &e), &e);
        assert_true(values[r] == 8);
        wk_ring_flush(t.ring[r], UINT64_MAX);
    }
    close_rings(&t);
}

// Of three ranks, one has not sent its array: it is named, and what the other one has sent is refused with the failure.
static void who_has_not_sent_is_known(void **ctx)
{
    struct test t;
    struct ps_error e;
    float values[2] = {0};
    (void)ctx;
    open_rings(&t, 3, 1);
    wk_ring_begin(t.ring[0], &t.reduction[0][0], &values[0], 1, WK_FLOAT);
    assert_int_equal(2, wk_ring_missing(t.ring[0], &t.reduction[0][0]));
    wk_ring_begin(t.ring[2], &t.reduction[2][0], &values[1], 1, WK_FLOAT);
    while (t.n_wire > 0)
        deliver(&t);  // what goes to rank 1 waits there
    assert_int_equal(1, wk_ring_missing(t.ring[0], &t.reduction[0][0]));
    wk_ring_flush(t.ring[0], ps_now());  // returns
    for (uint32_t r = 0; r < 3; r++)
        wk_ring_fail(t.ring[r], PS_ABORTED, "worker 1 is gone");
    assert_int_equal(4, t.refused);
    assert_int_equal(PS_ABORTED, wk_ring_wait(t.ring[0], &t.reduction[0][0], UINT64_MAX, &e));
    while (t.n_wire > 0)
        free(t.wire[--t.n_wire]);
    close_rings(&t);
}

// A wait ends with why the ring has failed, or with the end of the rank before where chunks of it are missing.
static void failures_end_waits(void **ctx)
{
    struct test t;
    struct ps_error e;
    float values[2][8] = {{0}};
    (void)ctx;
    open_rings(&t, 2, 1);
    wk_ring_begin(t.ring[0], &t.reduction[0][0], values[0], 8, WK_FLOAT);
    assert_int_equal(PS_DEADLINE_EXCEEDED, wk_ring_wait(t.ring[0], &t.reduction[0][0], ps_now(), &e));
    wk_ring_end_of_chunks(t.ring[0], PS_ABORTED, "worker 1 is gone");
    assert_int_equal(PS_ABORTED, wk_ring_wait(t.ring[0], &t.reduction[0][0], UINT64_MAX, &e));
    assert_string_equal("worker 1 is gone", e.text);
    deliver(&t);  // waits at rank 1, which has not begun
    wk_ring_fail(t.ring[1], PS_ABORTED, "worker 0 has ended");
    assert_int_equal(1, t.refused);
    wk_ring_fail(t.ring[1], PS_ABORTED, "something else");
    wk_ring_begin(t.ring[1], &t.reduction[1][0], values[1], 8, WK_FLOAT);
    assert_int_equal(PS_ABORTED, wk_ring_wait(t.ring[1], &t.reduction[1][0], UINT64_MAX, &e));
    assert_string_equal("worker 0 has ended", e.text);
    while (t.n_wire > 0)
        free(t.wire[--t.n_wire]);
    close_rings(&t);
}

// Of three, one has sent and one is gone: who has sent hears of it, though the ring has not failed.
static void a_wait_that_ends_answers_who_has_sent(void **ctx)
{
    struct test t;
    struct ps_error e;
    float values[2] = {1, 2};
    (void)ctx;
    open_rings(&t, 3, 1);
    for (uint32_t r = 0; r < 2; r++)
        wk_ring_begin(t.ring[r], &t.reduction[r][0], &values[r], 1, WK_FLOAT);
    while (t.n_wire > 0)
        deliver(&t);
    wk_ring_end_of_chunks(t.ring[0], PS_ABORTED, "worker 2 is gone");
    assert_int_equal(PS_ABORTED, wk_ring_wait(t.ring[0], &t.reduction[0][0], UINT64_MAX, &e));
    assert_int_equal(1, t.refused);
    for (uint32_t r = 1; r < 3; r++)
        wk_ring_fail(t.ring[r], PS_ABORTED, "worker 2 is gone");
    assert_int_equal(PS_ABORTED, wk_ring_wait(t.ring[1], &t.reduction[1][0], UINT64_MAX, &e));
    while (t.n_wire > 0)
        free(t.wire[--t.n_wire]);
    close_rings(&t);
}

// What no worker of a ring of two sends: of an array of n numbers. It has come so often before.
static void refuses(size_t n, struct wk_ring_chunk chunk, size_t bytes, int times)
{
    struct test t;
    struct ps_error e;
    float *values = calloc(n, sizeof *values);
    open_rings(&t, 2, 1);
    wk_ring_begin(t.ring[0], &t.reduction[0][0], values, n, WK_FLOAT);
    for (int i = 0; i <= times; i++) {
        struct letter *l = calloc(1, sizeof *l + sizeof(struct test *));
        assert_int_equal(0, t.refused);
        *(struct test **)(l + 1) = &t;
        l->message.chunk = chunk;
        l->message.done = taken;
        ps_slices_add(&l->message.data, ps_slice_copy(values, bytes));
        wk_ring_receive(t.ring[0], &l->message);
    }
    assert_int_equal(1, t.refused);
    assert_int_equal(PS_INVALID_ARGUMENT, wk_ring_wait(t.ring[0], &t.reduction[0][0], UINT64_MAX, &e));
    assert_non_null(strstr(e.text, "does not belong to this ring of 2 workers"));
    while (t.n_wire > 0) {
        struct letter *one = t.wire[--t.n_wire];
        ps_slices_clear(&one->message.data);
        free(one);
    }
    close_rings(&t);
    free(values);
}

// Segment 1 of the array that goes round begins at 65540, and has a chunk of 65536 numbers and one of 4.
static void strange_chunks_are_refused(void **ctx)
{
    enum { ROUND = 2 * 65540 };
    (void)ctx;
    refuses(ROUND, (struct wk_ring_chunk){0, 0, 0}, WK_RING_CHUNK, 0);
    refuses(ROUND, (struct wk_ring_chunk){0, 65540, 0}, WK_RING_CHUNK - 4, 0);
    refuses(ROUND, (struct wk_ring_chunk){0, 65541, 0}, WK_RING_CHUNK, 0);
    refuses(ROUND, (struct wk_ring_chunk){0, 65540, 2}, WK_RING_CHUNK, 0);
    refuses(ROUND, (struct wk_ring_chunk){0, ROUND, 0}, 16, 0);
    refuses(ROUND, (struct wk_ring_chunk){0, 65540, 0}, WK_RING_CHUNK, 2);  // more numbers than the array has
    refuses(8, (struct wk_ring_chunk){0, 0, 0}, 28, 0);
    refuses(8, (struct wk_ring_chunk){0, 4, 0}, 16, 0);
    refuses(8, (struct wk_ring_chunk){0, 0, 1}, 32, 0);
}

// Of three, one sends its array twice.
static void arrays_come_once(void **ctx)
{
    struct test t;
    struct ps_error e;
    float values[2] = {0};
    (void)ctx;
    open_rings(&t, 3, 1);
    wk_ring_begin(t.ring[0], &t.reduction[0][0], &values[0], 1, WK_FLOAT);
    for (int i = 0; i < 2; i++)
        send_to(&t.node[2], NULL, 0, (struct wk_ring_chunk){0, 0, 0}, ps_slice_copy(&values[1], sizeof(float)));
    wk_ring_receive(t.ring[0], &t.wire[2]->message);
    wk_ring_receive(t.ring[0], &t.wire[3]->message);
    assert_int_equal(2, t.refused);  // the ring fails with it: the first one, too
    assert_int_equal(PS_INVALID_ARGUMENT, wk_ring_wait(t.ring[0], &t.reduction[0][0], UINT64_MAX, &e));
    for (int i = 0; i < 2; i++) {
        ps_slices_clear(&t.wire[i]->message.data);
        free(t.wire[i]);
        free(t.wire[2 + i]);
    }
    close_rings(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_any_order),
        cmocka_unit_test(the_bits_repeat),
        cmocka_unit_test(halves_travel),
        cmocka_unit_test(halves_are_the_nearest),
        cmocka_unit_test(small_arrays_are_added_in_rank_order),
        cmocka_unit_test(who_has_not_sent_is_known),
        cmocka_unit_test(failures_end_waits),
        cmocka_unit_test(a_wait_that_ends_answers_who_has_sent),
        cmocka_unit_test(strange_chunks_are_refused),
        cmocka_unit_test(arrays_come_once),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
