// SPDX-License-Identifier: Apache-2.0
//
// workerd/collective/ring.c: rings of two to five ranks, and of so many that nothing goes directly, each rank a thread.
// Their sockets take and give as few bytes at a time as a network may, drawn from a seed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/math/half.h"
#include "common/math/philox.h"
#include "workerd/collective/ring.h"

enum { HEADER = 128, FEW = 5, RANKS = WK_RING_DIRECT_RANKS + 2, REDUCTIONS = 3 };

// ---- a network that takes its time --------------------------------------------------------------------------------

static _Thread_local uint64_t drawn, seed_of_draws;
static atomic_size_t bytes_sent;
// Where a rank's bytes, of both directions, are those of a whole array, it stands still, and is stopped meanwhile.
static _Thread_local size_t bytes_moved, bytes_of_array;  // 0: it does not
static _Thread_local _Atomic bool *stopped_then;
static const struct timespec longer_than_a_look = {.tv_nsec = 150 * 1000 * 1000};

static void count_bytes(ssize_t n)
{
    const size_t before = bytes_moved;
    bytes_moved += n > 0 ? (size_t)n : 0;
    if (before == bytes_moved || bytes_moved != bytes_of_array)
        return;
    *stopped_then = true;
    nanosleep(&longer_than_a_look, NULL);
}

// How many of so many bytes pass now; 0: none.
static size_t draw_bytes(size_t of)
{
    uint32_t word[4];
    ps_philox(seed_of_draws, PS_RANDOM_DELAY, 0, drawn++, word);
    const size_t most = word[0] % 16 == 0 ? 9 : 200001, n = 1 + word[1] % most;
    return word[2] % 8 == 0 ? 0 : n < of ? n : of;
}

ssize_t send(int fd, const void *data, size_t n, int flags)
{
    n = draw_bytes(n);
    const ssize_t sent = n ? syscall(SYS_sendto, fd, data, n, flags, NULL, 0) : -1;
    errno = n ? errno : EAGAIN;
    bytes_sent += sent > 0 ? (size_t)sent : 0;
    count_bytes(sent);
    return sent;
}

ssize_t recv(int fd, void *data, size_t n, int flags)
{
    n = draw_bytes(n);
    const ssize_t come = n ? syscall(SYS_recvfrom, fd, data, n, flags, NULL, NULL) : -1;
    errno = n ? errno : EAGAIN;
    count_bytes(come);
    return come;
}

// ---- rings --------------------------------------------------------------------------------------------------------

struct rank {
    struct test *t;
    uint32_t rank;
    struct wk_ring *ring;
    pthread_t thread;
    void *values[REDUCTIONS];
    int reductions;
    size_t bytes;  // after which it is stopped; 0: it is not
    struct ps_error error;
    _Atomic uint32_t waits_for;
    _Atomic bool stop;
};

struct test {
    uint32_t ranks;
    uint64_t seed;
    size_t n;
    enum wk_number type;
    const char *what;
    int to[RANKS][RANKS], from[RANKS][RANKS];  // by rank, and the other one
    struct rank rank[RANKS];
};

static const char *names[RANKS];

static void name_ranks(void)
{
    static char text[RANKS][16];
    for (uint32_t r = 0; r < RANKS; r++) {
        snprintf(text[r], sizeof text[r], "worker %u", r);
        names[r] = text[r];
    }
}

static struct wk_socket *copy(const int *fd)
{
    struct wk_socket *sockets = calloc(RANKS, sizeof *sockets);
    for (int k = 0; k < RANKS; k++)
        sockets[k].fd = fd[k];
    return sockets;
}

static void open_rings(struct test *t, uint32_t ranks, uint64_t seed, size_t n, enum wk_number type)
{
    memset(t, 0, sizeof *t);
    t->ranks = ranks;
    t->seed = seed;
    t->n = n;
    t->type = type;
    t->what = "figures";
    memset(t->to, -1, sizeof t->to);
    memset(t->from, -1, sizeof t->from);
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t to = 0; to < ranks; to++) {
            int pair[2];
            if (!wk_ring_sends(r, to, ranks))
                continue;
            assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
            t->to[r][to] = pair[0];
            t->from[to][r] = pair[1];
        }
    for (uint32_t r = 0; r < ranks; r++) {
        t->rank[r].t = t;
        t->rank[r].rank = r;
        t->rank[r].waits_for = UINT32_MAX;
        t->rank[r].ring = wk_ring_create();
        wk_ring_join(t->rank[r].ring, r, ranks, (struct wk_ring_sockets){copy(t->to[r]), copy(t->from[r])}, names);
    }
}

static void close_rings(struct test *t)
{
    for (uint32_t r = 0; r < t->ranks; r++) {
        wk_ring_destroy(t->rank[r].ring);
        for (int k = 0; k < REDUCTIONS; k++)
            free(t->rank[r].values[k]);
    }
}

static enum ps_code look(void *arg, uint32_t rank, struct ps_error *e)
{
    struct rank *r = arg;
    r->waits_for = rank;
    return r->stop ? ps_fail(e, PS_CANCELLED, "stopped") : PS_OK;
}

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    seed_of_draws = r->t->seed * RANKS + r->rank;
    bytes_of_array = r->bytes;
    stopped_then = &r->stop;
    for (int k = 0; k < r->reductions && r->error.code == PS_OK; k++)
        wk_ring_reduce(r->ring, &(struct wk_array){r->values[k], r->t->n, r->t->type, r->t->what}, look, r, &r->error);
    return NULL;
}

static void start(struct test *t, uint32_t rank, int reductions)
{
    t->rank[rank].reductions = reductions;
    assert_int_equal(0, pthread_create(&t->rank[rank].thread, NULL, run_rank, &t->rank[rank]));
}

static enum ps_code join(struct test *t, uint32_t rank)
{
    pthread_join(t->rank[rank].thread, NULL);
    return t->rank[rank].error.code;
}

static void run_all(struct test *t, int reductions)
{
    for (uint32_t r = 0; r < t->ranks; r++)
        start(t, r, reductions);
    for (uint32_t r = 0; r < t->ranks; r++)
        if (join(t, r))
            fail_msg("seed %d, rank %u: %s", (int)t->seed, r, t->rank[r].error.text);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

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

static void check(const struct test *t, const void *values, int k)
{
    for (size_t i = 0; i < t->n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < t->ranks; r++)
            sum += value_of(r, k, i);
        double got = t->type == WK_FLOAT ? (double)((const float *)values)[i] : ((const double *)values)[i];
        if (got != sum)
            fail_msg("seed %d, %u ranks, reduction %d: element %zu is %f, not %f", (int)t->seed, t->ranks, k, i, got,
                     sum);
    }
}

static void reduce_three(struct test *t)
{
    for (uint32_t r = 0; r < t->ranks; r++)
        for (int k = 0; k < REDUCTIONS; k++)
            t->rank[r].values[k] = make(r, k, t->n, t->type);
    run_all(t, REDUCTIONS);
    for (uint32_t r = 0; r < t->ranks; r++)
        for (int k = 0; k < REDUCTIONS; k++)
            check(t, t->rank[r].values[k], k);
}

static void sums_however_bytes_come(void **ctx)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 17, 1000, 65536, 65537, 300001};
    (void)ctx;
    for (uint64_t seed = 0; seed < 24; seed++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct test t;
            if (sizes[i] > 1000 && seed > 6)
                continue;
            open_rings(&t, sizes[i] <= 1000 && seed % 8 == 7 ? RANKS : 2 + (uint32_t)(seed % (FEW - 1)), seed, sizes[i],
                       seed % 3 ? WK_FLOAT : WK_DOUBLE);
            reduce_three(&t);
            close_rings(&t);
        }
}

// Sums that depend on the order of the summands have the same bits at all ranks, and in every run.
static void bits_repeat(uint32_t ranks, enum wk_number type)
{
    enum { N = 1000 };
    float first[N];
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct test t;
        open_rings(&t, ranks, seed, N, type);
        for (uint32_t r = 0; r < ranks; r++) {
            float *v = t.rank[r].values[0] = malloc(N * sizeof *v);
            for (size_t i = 0; i < N; i++)
                v[i] = 1.0f / (float)(i * ranks + r + 1) * (r % 2 ? 1e6f : 1e-3f);
        }
        run_all(&t, 1);
        for (uint32_t r = 0; r < ranks; r++) {
            if (seed == 0 && r == 0)
                memcpy(first, t.rank[0].values[0], sizeof first);
            assert_memory_equal(first, t.rank[r].values[0], sizeof first);
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
    open_rings(&t, ranks, n, n, type);
    for (uint32_t r = 0; r < ranks; r++) {
        float *v = t.rank[r].values[0] = malloc(n * sizeof *v);
        for (size_t i = 0; i < n; i++)
            v[i] = (float)(i % 4 + r % 3);
    }
    bytes_sent = 0;
    run_all(&t, 1);
    assert_true(bytes_sent <= (size_t)ranks * (ranks - 1) * (2 * n + HEADER));
    assert_true(n < 100000 || bytes_sent == (size_t)2 * (ranks - 1) * 2 * n + (size_t)ranks * HEADER);
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++)
            assert_true(((float *)t.rank[r].values[0])[i] == (float)(i % 4 * ranks + ranks / 3 * 3 + (ranks % 3 == 2)));
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
    struct test t;
    (void)ctx;
    open_rings(&t, FEW, 3, 1, WK_FLOAT);
    for (uint32_t r = 0; r < FEW; r++) {
        t.rank[r].values[0] = malloc(sizeof(float));
        memcpy(t.rank[r].values[0], &summand[r], sizeof(float));
    }
    bytes_sent = 0;
    run_all(&t, 1);
    assert_int_equal(FEW * (FEW - 1) * (HEADER + sizeof(float)), bytes_sent);
    for (uint32_t r = 0; r < FEW; r++)
        assert_true(*(float *)t.rank[r].values[0] == 8);
    close_rings(&t);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

// Rings of zeros; large: the array goes round.
static void open_idle(struct test *t, uint32_t ranks, bool large)
{
    open_rings(t, ranks, 1, large ? WK_RING_DIRECT / sizeof(float) + 1 : 2, WK_FLOAT);
    for (uint32_t r = 0; r < ranks; r++)
        for (int k = 0; k < REDUCTIONS; k++)
            t->rank[r].values[k] = calloc(t->n, sizeof(float));
}

// Of three ranks, one does not come: the others wait for it, until they are told otherwise.
static void who_has_not_sent_is_known(void **ctx)
{
    struct test t;
    (void)ctx;
    open_idle(&t, 3, false);
    start(&t, 0, 1);
    start(&t, 2, 1);
    while (t.rank[0].waits_for != 1 || t.rank[2].waits_for != 1)
        usleep(1000);
    t.rank[0].stop = true;
    assert_int_equal(PS_CANCELLED, join(&t, 0));
    assert_string_equal("stopped", t.rank[0].error.text);
    wk_ring_fail(t.rank[2].ring, PS_ABORTED, "worker 1 is gone");
    wk_ring_fail(t.rank[2].ring, PS_ABORTED, "worker 0 has ended");
    assert_int_equal(PS_ABORTED, join(&t, 2));
    assert_string_equal("worker 1 is gone", t.rank[2].error.text);
    close_rings(&t);
}

static void what_has_failed_fails_again(void **ctx)
{
    struct test t;
    (void)ctx;
    open_idle(&t, 2, true);
    wk_ring_fail(t.rank[1].ring, PS_ABORTED, "worker 0 has ended");
    wk_ring_fail(t.rank[1].ring, PS_ABORTED, "worker 1 has ended");
    start(&t, 1, 1);
    assert_int_equal(PS_ABORTED, join(&t, 1));
    assert_string_equal("worker 0 has ended", t.rank[1].error.text);
    close_rings(&t);
}

// The rank before has ended: what it has sent still counts, and what it has not is missed.
static void who_ends_may_have_sent_all(void **ctx)
{
    (void)ctx;
    for (int large = 0; large <= 1; large++) {
        struct test t;
        open_idle(&t, 2, large);
        start(&t, 1, 1);
        start(&t, 0, 1);
        assert_int_equal(PS_OK, join(&t, 1));
        assert_int_equal(PS_OK, join(&t, 0));
        start(&t, 1, 1);  // what it sends lies there when the other one begins
        while (t.rank[1].waits_for != 0)
            usleep(1000);
        wk_ring_end_of_numbers(t.rank[0].ring, PS_ABORTED, "worker 1 is gone", 3 * PS_SECOND);
        start(&t, 0, 2);
        assert_int_equal(PS_OK, join(&t, 1));
        assert_int_equal(PS_ABORTED, join(&t, 0));
        assert_string_equal("worker 1 is gone", t.rank[0].error.text);
        close_rings(&t);
    }
}

// A signal comes when all has come, and left, directly or round: the others have the sum, and so has this rank.
static void a_whole_sum_is_not_stopped(void **ctx)
{
    (void)ctx;
    for (int large = 0; large <= 1; large++) {
        struct test t;
        open_idle(&t, 2, large);
        t.rank[0].bytes = 2 * (HEADER + t.n * sizeof(float));
        start(&t, 0, 1);
        start(&t, 1, 1);
        assert_int_equal(PS_OK, join(&t, 0));
        assert_int_equal(PS_OK, join(&t, 1));
        assert_true(t.rank[0].stop);
        close_rings(&t);
    }
}

// Nobody says why.
static void a_connection_that_ends_is_named(void **ctx)
{
    (void)ctx;
    for (int large = 0; large <= 1; large++) {
        struct test t;
        open_idle(&t, 3, large);
        start(&t, 0, 1);
        shutdown(t.to[2][0], SHUT_RDWR);
        assert_int_equal(PS_ABORTED, join(&t, 0));
        if (strncmp(t.rank[0].error.text, "worker 2 is gone: its connection has ended: ", 44) != 0)
            fail_msg("%s", t.rank[0].error.text);
        close_rings(&t);
    }
}

// Arrays that are not alike are not added up: of other numbers, or of as many that are something else.
static void other_arrays_are_refused(void **ctx)
{
    (void)ctx;
    for (int other_thing = 0; other_thing <= 1; other_thing++)
        for (int large = 0; large <= 1; large++) {
            struct test t, other;
            char wanted[200];
            open_idle(&t, 2, large);
            memset(&other, 0, sizeof other);
            other.n = other_thing ? t.n : 1;
            other.what = other_thing ? "a kernel in step 2" : t.what;
            snprintf(
                wanted, sizeof wanted,
                "worker 1 adds up %s (array 0, of %zu numbers of type 0): expected figures (array 0, of %zu of type 0)",
                other.what, other.n, t.n);
            t.rank[1].t = &other;
            start(&t, 0, 1);
            start(&t, 1, 1);
            assert_int_equal(PS_INVALID_ARGUMENT, join(&t, 0));
            assert_string_equal(t.rank[0].error.text, wanted);
            wk_ring_fail(t.rank[1].ring, PS_ABORTED, "worker 0 has ended");
            join(&t, 1);
            close_rings(&t);
        }
}

// Who ends waits until the others have what it has sent; not for ever.
static void what_was_sent_is_flushed(void **ctx)
{
    struct test t;
    (void)ctx;
    open_idle(&t, 2, false);
    start(&t, 0, 1);
    while (t.rank[0].waits_for != 1)
        usleep(1000);
    uint64_t began = ps_now();
    wk_ring_flush(t.rank[0].ring, began + 50 * PS_MS);
    assert_true(ps_now() >= began + 50 * PS_MS);
    start(&t, 1, 1);
    assert_int_equal(PS_OK, join(&t, 0));
    assert_int_equal(PS_OK, join(&t, 1));
    wk_ring_flush(t.rank[0].ring, UINT64_MAX);
    wk_ring_flush(t.rank[1].ring, UINT64_MAX);
    close_rings(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_however_bytes_come),
        cmocka_unit_test(the_bits_repeat),
        cmocka_unit_test(halves_travel),
        cmocka_unit_test(halves_are_the_nearest),
        cmocka_unit_test(small_arrays_are_added_in_rank_order),
        cmocka_unit_test(who_has_not_sent_is_known),
        cmocka_unit_test(what_has_failed_fails_again),
        cmocka_unit_test(who_ends_may_have_sent_all),
        cmocka_unit_test(a_whole_sum_is_not_stopped),
        cmocka_unit_test(a_connection_that_ends_is_named),
        cmocka_unit_test(other_arrays_are_refused),
        cmocka_unit_test(what_was_sent_is_flushed),
    };
    name_ranks();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
