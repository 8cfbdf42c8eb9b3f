// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy/rounds.c on replica 1 of the two that are left, workers 0 and 2, where workers are lost in the midst
// of what it adds up. The test plays the collective: what the other replica adds, when one is lost, and the chunk that
// comes late.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "workerd/strategy/rounds.h"

enum { SAYS = 6, PLACE = 7, WORKERS = 3 };  // numbers of a rank in the table; of the place where training goes on

// What comes of one operation.
struct act {
    bool lost;                 // a worker is
    double add[PLACE + SAYS];  // what the other replica has in it
};

static struct {
    const struct act *act;
    struct wk_reduction late;  // that has failed: a chunk of it comes before the workers have met anew
    uint32_t reforms;
    double said_new;          // by this replica, the last time that it was asked
    bool joined;              // a job that had begun
    bool stops;               // where a worker is lost, a signal comes
    bool newcomers;           // some of those who have met are,
    uint32_t welcomed;        // so often they have been welcomed,
    bool all_know;            // and this was said the last time
    bool admits;              // said when the workers met last
    double arrival[WORKERS];  // as it says who is asked which of those that are left leads
} play;

static float variable[1], slot[1];

uint32_t wk_collective_rank(const struct wk_collective *c, uint32_t replica)
{
    (void)c;
    return replica;
}

uint32_t wk_collective_ranks(const struct wk_collective *c)
{
    (void)c;
    return 2;
}

uint32_t wk_collective_guests(const struct wk_collective *c)
{
    (void)c;
    return 0;
}

bool wk_collective_joined(const struct wk_collective *c)
{
    (void)c;
    return play.joined;
}

bool wk_collective_has_newcomers(const struct wk_collective *c)
{
    (void)c;
    return play.newcomers;
}

void wk_collective_welcome(struct wk_collective *c, bool all_know)
{
    (void)c;
    play.welcomed++;
    play.all_know = all_know;
}

bool wk_collective_leads(const struct wk_collective *c, const double *arrival)
{
    (void)c;
    memcpy(play.arrival, arrival, sizeof play.arrival);
    return false;
}

void wk_collective_ask_leader(const struct wk_collective *c, const double *arrival)
{
    (void)c;
    (void)arrival;
}

enum ps_code wk_collective_reduce(struct wk_collective *c, uint32_t replica, struct wk_reduction *r, struct ps_error *e)
{
    const struct act *act = play.act++;
    double *numbers = r->values;
    float *array = r->values;
    (void)c;
    (void)replica;
    if (r->type == WK_DOUBLE && r->n == 2 * SAYS)
        play.said_new = numbers[SAYS + 1];
    if (act->lost && play.stops)
        return ps_fail(e, PS_CANCELLED, "a signal has come");
    if (act->lost) {
        play.late = *r;
        return ps_fail(e, PS_ABORTED, "a worker is lost");
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->type == WK_DOUBLE)
            numbers[i] += act->add[i];
        else
            array[i] += (float)act->add[i];
    e->code = PS_OK;
    return PS_OK;
}

enum ps_code wk_collective_reform(struct wk_collective *c, bool admits, struct ps_error *e)
{
    (void)c;
    play.admits = admits;
    if (play.late.values && play.late.type == WK_DOUBLE)
        ((double *)play.late.values)[0] += 1000;
    else if (play.late.values)
        ((float *)play.late.values)[0] += 1000;
    play.late.values = NULL;
    play.reforms++;
    e->code = PS_OK;
    return PS_OK;
}

enum ps_code wk_local_rule_each(const struct wk_local_rule *r, wk_array_fn fn, void *arg, struct ps_error *e)
{
    (void)r;
    return fn(arg, variable, 1, e) ? e->code : fn(arg, slot, 1, e);
}

static const struct wk_env env = {.replicas = WORKERS, .workers = WORKERS, .rank = 2, .device = 1};
static struct wk_local_rule rule;

// This replica has taken 4 rounds, its variable is 4 and its slot 40.
static void begin(struct wk_rounds *r, const struct act *acts)
{
    play.act = acts;
    play.reforms = 0;
    play.late.values = NULL;
    wk_rounds_open(r, &env, &rule);
    r->taken = 4;
    variable[0] = 4;
    slot[0] = 40;
}

static enum ps_code meet(struct wk_rounds *r, bool *behind, struct ps_error *e)
{
    ps_fail(e, PS_ABORTED, "a worker is lost");
    return wk_rounds_meet(r, true, behind, e);
}

static void who_is_behind_gets_the_step(void **ctx)
{
    const struct act acts[] = {{.add = {5}}, {.add = {5}}, {.add = {50}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    begin(&r, acts);
    assert_int_equal(meet(&r, &behind, &e), PS_OK);
    assert_true(behind && variable[0] == 5 && slot[0] == 50);
    wk_rounds_close(&r);
}

// It has got the variable, and not the slot: nobody may go on from that.
static void nobody_goes_on_from_half_of_a_step(void **ctx)
{
    const struct act acts[] = {{.add = {5}}, {.add = {5}}, {.lost = true}, {.add = {4, 1}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    begin(&r, acts);
    assert_int_equal(meet(&r, &behind, &e), PS_NOT_FOUND);
    assert_true(play.said_new == 1);
    wk_rounds_close(&r);
}

// The same, but that the replica is left which has taken it: this one is given everything, as one that comes back.
static void who_has_half_of_a_step_gets_everything(void **ctx)
{
    const struct act acts[] = {
        {.add = {5}}, {.add = {5}}, {.lost = true}, {.add = {5}}, {.add = {5, 2, 64, 9, 0.5, 1, -3}},
        {.add = {5}}, {.add = {50}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    begin(&r, acts);
    assert_int_equal(meet(&r, &behind, &e), PS_OK);
    assert_false(behind);
    assert_true(variable[0] == 5 && slot[0] == 50);
    assert_true(r.taken == 5 && r.epoch == 2 && r.end == 64 && r.steps == 9);
    assert_true(rule.hyper[PS_HYPER_LEARNING_RATE] == 0.5 && rule.rate_is_set && (int64_t)rule.ahead == -3);
    assert_false(r.is_new);
    assert_int_equal(r.arrival, 0);
    assert_int_equal(play.reforms, 2);
    wk_rounds_close(&r);
}

// Replica 0 is let in: this one leads on, which has what callbacks remember.
static void who_comes_back_does_not_lead(void **ctx)
{
    const struct act acts[] = {{.add = {0, 1, 0, 0, -1}}, {.add = {0}}, {.add = {0}}, {.add = {0}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    begin(&r, acts);
    assert_false(wk_rounds_leads(&r));
    assert_int_equal(meet(&r, &behind, &e), PS_OK);
    assert_true(wk_rounds_leads(&r));
    assert_int_equal(r.arrival, 0);
    wk_rounds_leads_rest(&r);
    assert_true(play.arrival[0] > 1e300 && play.arrival[1] > 1e300 && play.arrival[2] == 0);
    wk_rounds_close(&r);
}

// This one is let in after round 5; then replica 0 comes back too, later.
static void who_comes_back_first_leads(void **ctx)
{
    const struct act first[] = {{.add = {5}}, {.add = {5}}, {.add = {5}}, {.add = {50}}};
    const struct act then[] = {{.add = {0, 1, 0, 0, -1}}, {.add = {0}}, {.add = {0}}, {.add = {0}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    play.joined = true;
    begin(&r, first);
    play.joined = false;
    r.taken = 0;
    assert_int_equal(wk_rounds_join(&r, &e), PS_OK);
    assert_false(wk_rounds_leads(&r));
    assert_int_equal(r.arrival, 6);
    play.act = then;
    assert_int_equal(meet(&r, &behind, &e), PS_OK);
    assert_true(wk_rounds_leads(&r));
    assert_int_equal(r.arrival, 6);
    wk_rounds_leads_rest(&r);
    assert_true(play.arrival[0] > 1e300 && play.arrival[1] > 1e300 && play.arrival[2] == 6);
    // What they say when they agree next is not known of all: what they have said before holds.
    const struct act lost[] = {{.lost = true}};
    play.act = lost;
    play.stops = true;
    assert_int_equal(meet(&r, &behind, &e), PS_CANCELLED);
    wk_rounds_leads_rest(&r);
    assert_true(play.arrival[0] > 1e300 && play.arrival[1] > 1e300 && play.arrival[2] == 6);
    play.stops = false;
    wk_rounds_close(&r);
}

// That all know it is said after one more sum. Before that another one is lost: nobody else is let in then.
static void who_comes_back_is_welcomed_when_all_know(void **ctx)
{
    const struct act acts[] = {{.add = {0, 1, 0, 0, -1}}, {.add = {0}}, {.add = {0}}, {.add = {0}}, {.lost = true},
                               {.add = {4, 0, 0, 0, 5}},  {.add = {1}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    play.newcomers = true;
    play.welcomed = 0;
    begin(&r, acts);
    assert_int_equal(meet(&r, &behind, &e), PS_OK);
    assert_int_equal(play.reforms, 2);
    assert_false(play.admits);
    assert_int_equal(play.welcomed, 3);
    assert_true(play.all_know);
    assert_ptr_equal(play.act, acts + 7);
    play.newcomers = false;
    wk_rounds_close(&r);
}

// Those who have nothing begin together, and are all the same from then on.
static void all_who_have_nothing_are_welcome(void **ctx)
{
    const struct act acts[] = {{.add = {0, 1, 0, 0, -1}}, {.lost = true}, {.add = {0, 1, 0, 0, -1}}, {.add = {1}}};
    struct wk_rounds r;
    struct ps_error e;
    bool behind;
    (void)ctx;
    play.newcomers = true;
    play.welcomed = 0;
    begin(&r, acts);
    r.is_new = true;
    assert_int_equal(meet(&r, &behind, &e), PS_NOT_FOUND);
    assert_int_equal(play.reforms, 2);
    assert_int_equal(play.welcomed, 3);
    assert_true(play.all_know);
    play.newcomers = false;
    wk_rounds_close(&r);
}

// It was under way when a worker was lost, and comes before those that are left have met anew.
static void a_late_chunk_changes_no_sum(void **ctx)
{
    const struct act acts[] = {{.lost = true}, {.add = {4}}, {.add = {10}}};
    double values[1] = {1};
    struct wk_rounds r;
    struct ps_error e = {.code = PS_OK};
    (void)ctx;
    begin(&r, acts);
    assert_int_equal(wk_rounds_sum(&r, values, 1, &e), PS_OK);
    assert_true(values[0] == 11);
    assert_int_equal(r.taken, 5);
    wk_rounds_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_behind_gets_the_step),
        cmocka_unit_test(nobody_goes_on_from_half_of_a_step),
        cmocka_unit_test(who_has_half_of_a_step_gets_everything),
        cmocka_unit_test(who_comes_back_does_not_lead),
        cmocka_unit_test(who_comes_back_first_leads),
        cmocka_unit_test(who_comes_back_is_welcomed_when_all_know),
        cmocka_unit_test(all_who_have_nothing_are_welcome),
        cmocka_unit_test(a_late_chunk_changes_no_sum),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
