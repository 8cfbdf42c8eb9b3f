// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy/buckets.c on replica 1 of 2, with four buckets of one variable each. The test plays the collective,
// and what the other replica adds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "workerd/strategy/buckets.h"

enum { N = 4, COUNT = 16384, RANKS = 2, FULL = 8 };  // buckets, which are of the least size; numbers in each; rows

static float gradient[N][COUNT];
static uint64_t reforms;
static const size_t order[N] = {0, 1, 2, 3};  // in which they become ready
static struct nn_param param[N];

static struct {
    size_t left[N], n_left;           // buckets, in the order in which they left
    bool awaited[N];                  // each of these, after a signal
    size_t come;                      // so many of them are there when a worker is lost
    double takes[N], other_takes[N];  // ns, a bucket's sum, as this replica and the other one have measured
    double other_ready[N];            // when it was ready at the other one,
    double other_computes;            // and how long that one computed
    int rows_of_all;                  // of a step; 0: FULL
    uint64_t epoch;                   // of a step
    double other_has[N + 1];          // and of a step that is open
    float other[N];                   // it adds to all numbers of a bucket that is completed
    bool lost;                        // a worker is: sums do not come
    size_t lost_after;                // a further one, after so many completed buckets; 0: none
    size_t completed;                 // buckets
    float gave[N];                    // this replica, to them
    size_t applied[2 * N], n_applied;
    float with[N];  // the gradient that the rule was applied with
    bool by_norm;   // the rule clips by a norm
    int agreements;
    const char *synchronized;  // a layer that adds up in the forward pass
} play;

static size_t bucket_of(const void *values)
{
    return (size_t)((const float *)values - gradient[0]) / COUNT;
}

// ---- what buckets.c and rounds.c call -----------------------------------------------------------------------------

uint32_t wk_collective_rank(const struct wk_collective *c, uint32_t replica)
{
    (void)c;
    return replica;
}

uint32_t wk_collective_ranks(const struct wk_collective *c)
{
    (void)c;
    return RANKS;
}

uint32_t wk_collective_guests(const struct wk_collective *c)
{
    (void)c;
    return 0;
}

bool wk_collective_has_newcomers(const struct wk_collective *c)
{
    (void)c;
    return false;
}

void wk_collective_welcome(struct wk_collective *c, bool all_know)
{
    (void)c;
    (void)all_know;
}

bool wk_collective_joined(const struct wk_collective *c)
{
    (void)c;
    return false;
}

bool wk_collective_leads(const struct wk_collective *c, const double *arrival)
{
    (void)c;
    (void)arrival;
    return false;
}

void wk_collective_ask_leader(const struct wk_collective *c, const double *arrival)
{
    (void)c;
    (void)arrival;
}

uint64_t wk_collective_reforms(struct wk_collective *c)
{
    (void)c;
    return reforms;
}

enum ps_code wk_collective_reform(struct wk_collective *c, bool admits, struct ps_error *e)
{
    (void)c;
    (void)admits;
    return e->code = PS_OK;
}

void wk_collective_begin(struct wk_collective *c, uint32_t replica, struct wk_reduction *r)
{
    (void)c;
    (void)replica;
    play.agreements += r->type == WK_DOUBLE;
    if (r->type == WK_DOUBLE)
        return;
    play.awaited[play.n_left] = r->grace > 0;
    play.left[play.n_left++] = bucket_of(r->values);
    r->began = 7;
    r->ended = 7 + (uint64_t)play.takes[bucket_of(r->values)];
}

bool wk_collective_is_done(struct wk_collective *c, const struct wk_reduction *r)
{
    (void)c;
    for (size_t k = 0; k < play.come; k++)
        if (play.left[k] == bucket_of(r->values))
            return true;
    return false;
}

// Replica 0's row, in which this one has nothing.
static void add_the_others_times(double *times, size_t n)
{
    const double *own = times + 2 * N + 1;
    assert_int_equal(n, RANKS * (2 * N + 1));
    for (size_t k = 0; k < N; k++) {
        assert_true(times[k] == 0 && times[N + k] == 0 && own[k] >= 0 && own[N + k] == play.takes[k]);
        times[k] = play.other_ready[k];
        times[N + k] = play.other_takes[k];
    }
    assert_true(times[2 * N] == 0 && own[2 * N] >= own[N - 1]);
    times[2 * N] = play.other_computes;
}

enum ps_code wk_collective_wait(struct wk_collective *c, struct wk_reduction *r, struct ps_error *e)
{
    (void)c;
    if (play.lost)
        return ps_fail(e, PS_ABORTED, "a worker is lost");
    if (r->type == WK_DOUBLE)
        add_the_others_times(r->values, r->n);
    else
        ((float *)r->values)[COUNT - 1] += 10;  // the other one's
    return e->code = PS_OK;
}

enum ps_code wk_collective_reduce(struct wk_collective *c, uint32_t replica, struct wk_reduction *r, struct ps_error *e)
{
    double *numbers = r->values;
    float *array = r->values;
    (void)c;
    (void)replica;
    e->code = PS_OK;
    if (r->type == WK_DOUBLE)
        for (size_t k = 0; k <= N; k++)
            numbers[k] = play.other_has[k];
    else if (play.lost_after && play.completed == play.lost_after)
        ps_fail(e, PS_ABORTED, "a further one is lost");
    else {
        play.gave[N - 1 - play.completed] = array[COUNT - 1];
        for (size_t i = 0; i < r->n; i++)
            array[i] += play.other[N - 1 - play.completed];
        play.completed++;
    }
    return e->code;
}

bool wk_local_rule_is_by_variable(const struct wk_local_rule *r)
{
    (void)r;
    return !play.by_norm;
}

void wk_local_rule_apply_to(struct wk_local_rule *r, const size_t *variables, size_t n, uint64_t step)
{
    (void)r;
    (void)step;
    for (size_t k = 0; k < n; k++) {
        play.applied[play.n_applied++] = variables[k];
        play.with[variables[k]] = gradient[variables[k]][COUNT - 1];
    }
}

enum ps_code wk_local_rule_each(const struct wk_local_rule *r, wk_array_fn fn, void *arg, struct ps_error *e)
{
    (void)r;
    (void)fn;
    (void)arg;
    return e->code = PS_OK;
}

size_t nn_model_params(const struct nn_model *m)
{
    (void)m;
    return N;
}

const struct nn_param *nn_model_param(const struct nn_model *m, size_t i)
{
    (void)m;
    return &param[i];
}

const char *nn_model_synchronized(const struct nn_model *m)
{
    (void)m;
    return play.synchronized;
}

size_t nn_replica_order(const struct nn_replica *r, const size_t **variable)
{
    (void)r;
    *variable = order;
    return N;
}

float *nn_replica_grad(struct nn_replica *r, size_t i)
{
    (void)r;
    return gradient[i];
}

bool wk_device_sums_are_on(const struct wk_device_sums *s)
{
    (void)s;
    return false;
}

void wk_device_sums_add(struct wk_device_sums *s, size_t variable, size_t n, float weight)
{
    (void)s;
    (void)variable;
    (void)n;
    (void)weight;
}

enum ps_code wk_device_sums_wait(struct wk_device_sums *s, uint64_t step, struct ps_error *e)
{
    (void)s;
    (void)step;
    return e->code = PS_OK;
}

// ---- the tests ----------------------------------------------------------------------------------------------------

static struct ps_job job;
static struct wk_env env = {.job = &job, .replicas = RANKS, .workers = RANKS, .device = 1};
static struct wk_rounds rounds;
static struct wk_buckets buckets;
static struct ps_error e;

static int open_buckets(void **ctx)
{
    (void)ctx;
    memset(&play, 0, sizeof play);
    job.strategy = PS_STRATEGY_MULTI_WORKER_MIRRORED;
    job.batch_size = FULL / RANKS;
    for (size_t i = 0; i < N; i++)
        param[i] = (struct nn_param){.name = "v", .count = COUNT, .trainable = true};
    wk_rounds_open(&rounds, &env, NULL);
    wk_buckets_open(&buckets, &env, NULL, &rounds, NULL);
    assert_int_equal(buckets.n, N);
    return 0;
}

static int close_buckets(void **ctx)
{
    (void)ctx;
    wk_buckets_close(&buckets);
    wk_rounds_close(&rounds);
    return 0;
}

// The backward pass of a step, of so many rows of all: bucket i has gradients of i + 1.
static enum ps_code pass(uint64_t step, int rows)
{
    const struct wk_work work = {.epoch = play.epoch,
                                 .step = step,
                                 .rows = rows,
                                 .rows_of_all = play.rows_of_all ? (uint64_t)play.rows_of_all : FULL};
    play.n_left = play.n_applied = 0;
    wk_buckets_begin(&buckets, &work);
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < COUNT; k++)
            gradient[i][k] = (float)i + 1;
        wk_buckets_ready(&buckets, i);
    }
    return wk_buckets_end(&buckets, &e);
}

static void assert_left(size_t a, size_t b, size_t c, size_t d)
{
    const size_t expected[N] = {a, b, c, d};
    assert_int_equal(play.n_left, N);
    assert_memory_equal(play.left, expected, sizeof expected);
}

// What is measured from now on: at the other one a bucket is ready every thousand seconds, later than here whatever
// else this machine does; and here each takes so many seconds.
static void set_times(double takes)
{
    for (size_t k = 0; k < N; k++) {
        play.other_ready[k] = (double)(k + 1) * 1e12;
        play.takes[k] = takes * 1e9;
        play.other_takes[k] = 1e18;
    }
    play.other_computes = 6e12;
}

// The steps up to WK_BUCKETS_AGREE_FIRST, in which they agree on the order 0 3 2 1.
static void agree_to_overlap(void)
{
    set_times(10000);
    for (uint64_t step = 0; step <= WK_BUCKETS_AGREE_FIRST; step++) {
        assert_int_equal(pass(step, FULL), PS_OK);
        assert_left(0, 1, 2, 3);
        assert_false(buckets.open);
    }
}

enum { FIRST = WK_BUCKETS_AGREE_FIRST + 1 };  // the step that overlaps with the next one

static void open_a_step(int rows)
{
    agree_to_overlap();
    assert_int_equal(pass(FIRST, rows), PS_OK);
    assert_left(0, 3, 2, 1);
    assert_true(buckets.open);
}

static void where_the_network_keeps_up_a_step_waits_for_all(void **ctx)
{
    (void)ctx;
    set_times(900);
    for (uint64_t step = 0; step < 2 * WK_BUCKETS_AGREE_EVERY; step++) {
        assert_int_equal(pass(step, FULL), PS_OK);
        assert_left(0, 1, 2, 3);
        assert_false(buckets.open);
        assert_int_equal(play.n_applied, 0);
    }
}

// What was known before weighs as much as what is new.
static void the_order_is_learned_anew_in_every_eighth_step(void **ctx)
{
    (void)ctx;
    open_a_step(FULL);
    set_times(500);
    for (uint64_t step = FIRST + 1; step <= WK_BUCKETS_AGREE_FIRST + 6 * WK_BUCKETS_AGREE_EVERY; step++) {
        assert_int_equal(wk_buckets_apply_all(&buckets, &e), PS_OK);
        assert_int_equal(pass(step, FULL), PS_OK);
        if (step <= WK_BUCKETS_AGREE_FIRST + WK_BUCKETS_AGREE_EVERY)
            assert_left(0, 3, 2, 1);
    }
    assert_left(0, 1, 2, 3);
    assert_false(buckets.open);
}

// They agree one step later.
static void a_batch_that_is_not_full_is_not_learned_from(void **ctx)
{
    (void)ctx;
    set_times(10000);
    for (uint64_t step = 0; step <= FIRST; step++) {
        play.rows_of_all = step == WK_BUCKETS_AGREE_FIRST - 1 ? FULL / 2 : FULL;
        assert_int_equal(pass(step, FULL / 2), PS_OK);
        assert_true(buckets.agrees == false && play.agreements == (step == FIRST));
    }
}

// Between the two steps lies what is between two epochs.
static void the_last_step_of_an_epoch_is_not_learned_from(void **ctx)
{
    (void)ctx;
    set_times(10000);
    for (uint64_t step = 0; step <= FIRST; step++) {
        play.epoch = step >= WK_BUCKETS_AGREE_FIRST ? 1 : 0;
        assert_int_equal(pass(step, FULL), PS_OK);
        assert_true(buckets.agrees == false && play.agreements == (step == FIRST));
    }
}

static void who_adds_up_in_the_forward_pass_waits_for_all(void **ctx)
{
    (void)ctx;
    play.synchronized = "normalization";
    wk_buckets_close(&buckets);
    wk_buckets_open(&buckets, &env, NULL, &rounds, NULL);
    agree_to_overlap();
    assert_int_equal(play.agreements, 0);
    assert_int_equal(pass(FIRST, FULL), PS_OK);
    assert_false(buckets.open);
}

static bool has_some(const struct nn_param *p)
{
    return p != NULL;
}

// By a worker that is told to end: in a step that counts already, or that another home may have taken.
static void after_a_signal_others_are_awaited(void **ctx)
{
    (void)ctx;
    const bool none[N] = {false}, open[N] = {false, true, true, true}, whole[N] = {true, true, true, true};
    agree_to_overlap();
    assert_memory_equal(play.awaited, none, sizeof none);
    assert_int_equal(pass(FIRST, FULL), PS_OK);
    assert_memory_equal(play.awaited, open, sizeof open);
    assert_int_equal(wk_buckets_apply_all(&buckets, &e), PS_OK);
    wk_buckets_close(&buckets);
    env.has = has_some;
    wk_buckets_open(&buckets, &env, NULL, &rounds, NULL);
    assert_int_equal(pass(0, FULL), PS_OK);
    env.has = NULL;
    assert_memory_equal(play.awaited, whole, sizeof whole);
}

static void the_rule_is_applied_when_a_variable_is_needed(void **ctx)
{
    (void)ctx;
    open_a_step(FULL);
    assert_int_equal(play.n_applied, 1);
    assert_int_equal(play.applied[0], 3);
    for (size_t i = 0; i < N; i++) {
        assert_true(buckets.open == (i < N - 1));
        assert_int_equal(wk_buckets_apply(&buckets, buckets.of[i], &e), PS_OK);
    }
    assert_false(buckets.open);
    assert_int_equal(play.n_applied, N);
    assert_int_equal(wk_buckets_apply_all(&buckets, &e), PS_OK);
    assert_int_equal(play.n_applied, N);
}

static void a_rule_that_needs_all_gradients_waits_for_all(void **ctx)
{
    (void)ctx;
    play.by_norm = true;
    wk_buckets_close(&buckets);
    wk_buckets_open(&buckets, &env, NULL, &rounds, NULL);
    agree_to_overlap();
    assert_int_equal(pass(FIRST, FULL), PS_OK);
    assert_left(0, 1, 2, 3);
    assert_false(buckets.open);
}

// The other one has the sums of buckets 0 and 3; this one, which had an eighth of the rows, of none. Each of the two
// that are left had as many.
static void who_is_left_completes_an_open_step(void **ctx)
{
    bool completed;
    (void)ctx;
    agree_to_overlap();
    play.lost = true;
    assert_int_equal(pass(FIRST, FULL / 8), PS_ABORTED);
    const double has[N + 1] = {1, 0, 0, 1, 0.125};
    const float other[N] = {100, 2, 3, 103};
    memcpy(play.other_has, has, sizeof has);
    memcpy(play.other, other, sizeof other);
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_OK);
    assert_true(completed);
    assert_false(buckets.open);
    assert_int_equal(play.n_applied, N);
    // 2 / 8 * 4, and what the other one adds; 3 / 8 * 4 likewise.
    const float with[N] = {100, 1 + 2, 1.5F + 3, 103};
    assert_memory_equal(play.with, with, sizeof with);
}

// This one has the first layers' sum, whose memory the next step has begun to use. A further worker is lost when two
// are completed.
static void what_is_completed_stays_where_a_further_one_is_lost(void **ctx)
{
    bool completed;
    (void)ctx;
    open_a_step(FULL);
    gradient[3][COUNT - 1] = -1;
    play.lost_after = 2;
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_ABORTED);
    assert_false(completed);
    assert_true(wk_buckets_counts(&buckets));
    assert_int_equal(play.n_applied, 2);
    assert_int_equal(play.applied[1], 2);
    assert_true(play.gave[3] == 14);
    play.lost_after = 0;
    play.completed = 0;
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_OK);
    assert_true(completed);
    assert_int_equal(play.n_applied, N);
    const float with[N] = {1, 2, 3, 14};
    assert_memory_equal(play.with, with, sizeof with);
}

// All of them had it: the sum of the lost one's gradients, too.
static void what_had_come_before_a_worker_was_lost_stays(void **ctx)
{
    bool completed;
    (void)ctx;
    open_a_step(FULL);
    play.come = 3;  // buckets 0, 3 and 2
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_OK);
    assert_true(completed);
    const size_t applied[N] = {3, 0, 2, 1};
    assert_memory_equal(play.applied, applied, sizeof applied);
}

// It has got a later step's variables in part: what it had open is of no step that others are in.
static void who_is_new_has_no_open_step(void **ctx)
{
    bool completed;
    (void)ctx;
    open_a_step(FULL);
    rounds.is_new = true;
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_OK);
    assert_false(completed || buckets.open);
    assert_int_equal(play.n_applied, 1);
}

// Who comes back knows no other order than that.
static void all_leave_in_order_where_the_workers_have_met_anew(void **ctx)
{
    (void)ctx;
    open_a_step(FULL);
    assert_int_equal(wk_buckets_apply_all(&buckets, &e), PS_OK);
    reforms++;
    assert_int_equal(pass(WK_BUCKETS_AGREE_EVERY + WK_BUCKETS_AGREE_FIRST, FULL), PS_OK);
    assert_false(buckets.agrees);
    assert_left(0, 1, 2, 3);
    assert_false(buckets.open);
}

static void a_step_that_nobody_has_is_taken_again(void **ctx)
{
    bool completed;
    (void)ctx;
    agree_to_overlap();
    play.lost = true;
    assert_int_equal(pass(FIRST, FULL), PS_ABORTED);
    play.other_has[0] = 1;
    assert_int_equal(wk_buckets_complete(&buckets, &completed, &e), PS_OK);
    assert_false(completed);
    assert_int_equal(play.n_applied, 0);
    assert_false(wk_buckets_counts(&buckets));
    wk_buckets_complete_alone(&buckets);
    assert_false(buckets.open);
    assert_int_equal(play.n_applied, 0);
}

static void alone_it_has_the_step_with_its_own_gradients(void **ctx)
{
    (void)ctx;
    open_a_step(FULL / 2);
    wk_buckets_complete_alone(&buckets);
    assert_false(buckets.open);
    const float with[N] = {1, 2, 3, 12};  // the sum of the last one was there: 4 / 2, and the other one's
    assert_memory_equal(play.with, with, sizeof with);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_buckets, close_buckets)
    const struct CMUnitTest tests[] = {
        TEST(where_the_network_keeps_up_a_step_waits_for_all),
        TEST(the_order_is_learned_anew_in_every_eighth_step),
        TEST(a_batch_that_is_not_full_is_not_learned_from),
        TEST(the_last_step_of_an_epoch_is_not_learned_from),
        TEST(who_adds_up_in_the_forward_pass_waits_for_all),
        TEST(after_a_signal_others_are_awaited),
        TEST(the_rule_is_applied_when_a_variable_is_needed),
        TEST(a_rule_that_needs_all_gradients_waits_for_all),
        TEST(who_is_left_completes_an_open_step),
        TEST(what_is_completed_stays_where_a_further_one_is_lost),
        TEST(what_had_come_before_a_worker_was_lost_stays),
        TEST(who_is_new_has_no_open_step),
        TEST(all_leave_in_order_where_the_workers_have_met_anew),
        TEST(a_step_that_nobody_has_is_taken_again),
        TEST(alone_it_has_the_step_with_its_own_gradients),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
