// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/rounds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

// What a rank says of itself while they agree.
enum { SAYS_TAKEN, SAYS_NEW, SAYS_LAST, SAYS_N_SUM, SAYS_ARRIVAL, SAYS_WORKER, SAYS };

void wk_rounds_open(struct wk_rounds *r, const struct wk_env *env, struct wk_local_rule *rule)
{
    const bool comes_back = wk_collective_joined(env->collective);
    *r = (struct wk_rounds){.env = env, .rule = rule, .arrival = comes_back ? -1 : 0, .is_new = comes_back};
    r->table = ps_alloc(SAYS * (size_t)env->replicas * sizeof *r->table);
    r->arrivals = ps_alloc(env->workers * sizeof *r->arrivals);
    if (comes_back)
        r->arrivals[env->rank] = INFINITY;
}

void wk_rounds_close(struct wk_rounds *r)
{
    free(r->sum);
    free(r->table);
    free(r->arrivals);
    free(r->numbers);
    free(r->array);
}

uint32_t wk_rounds_rank(const struct wk_rounds *r)
{
    return wk_collective_rank(r->env->collective, r->env->device);
}

uint32_t wk_rounds_ranks(const struct wk_rounds *r)
{
    return wk_collective_ranks(r->env->collective);
}

bool wk_rounds_leads(const struct wk_rounds *r)
{
    return wk_rounds_rank(r) == r->chief;
}

static double rounds_said(const struct wk_rounds *r, uint32_t rank, int what)
{
    return r->table[SAYS * (size_t)rank + (size_t)what];
}

bool wk_rounds_leads_rest(const struct wk_rounds *r)
{
    return wk_collective_leads(r->env->collective, r->arrivals);
}

void wk_rounds_ask_leader(const struct wk_rounds *r)
{
    wk_collective_ask_leader(r->env->collective, r->arrivals);
}

enum ps_code wk_rounds_add_up(struct wk_rounds *r, void *values, size_t n, enum wk_number type, const char *what,
                              struct ps_error *e)
{
    struct wk_reduction sum = {.values = values, .n = n, .type = type, .what = what};
    return wk_collective_reduce(r->env->collective, r->env->device, &sum, e);
}

void wk_rounds_clear(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = -0.0F;
}

// In memory that stays where a worker is lost. values: the sums, where there are any.
static enum ps_code rounds_add_up_numbers(struct wk_rounds *r, double *values, size_t n, struct ps_error *e)
{
    if (n > r->numbers_size) {
        r->numbers_size = n;
        r->numbers = ps_realloc(r->numbers, n * sizeof *r->numbers);
    }
    if (n > 0)
        memcpy(r->numbers, values, n * sizeof *values);
    if (wk_rounds_add_up(r, r->numbers, n, WK_DOUBLE, NULL, e) == PS_OK && n > 0)
        memcpy(values, r->numbers, n * sizeof *values);
    return e->code;
}

// In memory besides: a further worker may be lost meanwhile, and then those who had something still have it.
enum ps_code wk_rounds_add_arrays(struct wk_rounds *r, const float *own, size_t n, const char *what, const float **sum,
                                  struct ps_error *e)
{
    if (n > r->array_size) {
        r->array_size = n;
        r->array = ps_realloc(r->array, n * sizeof *r->array);
    }
    *sum = r->array;
    if (own)
        memcpy(r->array, own, n * sizeof *r->array);
    else
        wk_rounds_clear(r->array, n);
    return wk_rounds_add_up(r, r->array, n, WK_FLOAT, what, e);
}

// ---- what one has that others have not ----------------------------------------------------------------------------

struct gift {
    struct wk_rounds *r;
    uint32_t giver;
    bool gets;  // this replica does
};

static enum ps_code rounds_give_array(void *arg, float *values, size_t n, struct ps_error *e)
{
    const struct gift *g = arg;
    const float *own = wk_rounds_rank(g->r) == g->giver ? values : NULL, *sum;
    if (wk_rounds_add_arrays(g->r, own, n, "variables for who comes back", &sum, e) == PS_OK && g->gets)
        memcpy(values, sum, n * sizeof *values);
    return e->code;
}

// The variables, and what the optimizer keeps of them.
static enum ps_code rounds_give_state(struct wk_rounds *r, uint32_t giver, bool gets, struct ps_error *e)
{
    struct gift g = {.r = r, .giver = giver, .gets = gets};
    wk_local_rule_each(r->rule, rounds_give_array, &g, e);
    return e->code;
}

// n numbers of the giver's; what others have there is lost.
static enum ps_code rounds_give_numbers(struct wk_rounds *r, uint32_t giver, double *values, size_t n,
                                        struct ps_error *e)
{
    for (size_t i = 0; i < n && wk_rounds_rank(r) != giver; i++)
        values[i] = -0.0;
    return rounds_add_up_numbers(r, values, n, e);
}

static enum ps_code rounds_give_sum(struct wk_rounds *r, uint32_t giver, size_t n, double *to, struct ps_error *e)
{
    double *values = ps_alloc((n + 1) * sizeof *values);
    if (wk_rounds_rank(r) == giver)
        memcpy(values, r->sum, n * sizeof *values);
    if (rounds_give_numbers(r, giver, values, n, e) == PS_OK && to)
        memcpy(to, values, n * sizeof *values);
    free(values);
    return e->code;
}

// To those who come back.
static enum ps_code rounds_give_all(struct wk_rounds *r, uint32_t giver, struct ps_error *e)
{
    double *rate = &r->rule->hyper[PS_HYPER_LEARNING_RATE];
    double place[] = {(double)r->taken,
                      (double)r->epoch,
                      (double)r->end,
                      (double)r->steps,
                      *rate,
                      r->rule->rate_is_set,
                      (double)(int64_t)r->rule->ahead};
    if (rounds_give_numbers(r, giver, place, sizeof place / sizeof *place, e) ||
        rounds_give_state(r, giver, r->is_new, e))
        return e->code;
    r->taken = (uint64_t)place[0];
    r->epoch = (uint64_t)place[1];
    r->end = (uint64_t)place[2];
    r->steps = (uint64_t)place[3];
    *rate = place[4];
    r->rule->rate_is_set = place[5] > 0;
    r->rule->ahead = (uint64_t)(int64_t)place[6];
    r->last = WK_ROUND_STEP;
    r->is_new = false;
    r->arrival = r->arrival < 0 ? (int64_t)r->taken + 1 : r->arrival;
    return PS_OK;
}

// ---- agree --------------------------------------------------------------------------------------------------------

// By worker: who meets later has other ranks. All replicas of one say the same.
static void rounds_keep_arrivals(struct wk_rounds *r)
{
    for (uint32_t worker = 0; worker < r->env->workers; worker++)
        r->arrivals[worker] = INFINITY;
    for (uint32_t rank = 0; rank < wk_rounds_ranks(r); rank++) {
        const double arrival = rounds_said(r, rank, SAYS_ARRIVAL);
        r->arrivals[(uint32_t)rounds_said(r, rank, SAYS_WORKER)] = arrival < 0 ? INFINITY : arrival;
    }
}

static enum ps_code rounds_ask_all(struct wk_rounds *r, struct ps_error *e)
{
    const size_t n = SAYS * (size_t)wk_rounds_ranks(r);
    double *own = &r->table[SAYS * (size_t)wk_rounds_rank(r)];
    memset(r->table, 0, n * sizeof *r->table);
    own[SAYS_TAKEN] = (double)r->taken;
    own[SAYS_NEW] = r->is_new;
    own[SAYS_LAST] = r->last;
    own[SAYS_N_SUM] = (double)r->n_sum;
    own[SAYS_ARRIVAL] = (double)r->arrival;
    own[SAYS_WORKER] = r->env->rank;
    if (wk_rounds_add_up(r, r->table, n, WK_DOUBLE, "steps", e) == PS_OK)
        rounds_keep_arrivals(r);
    return e->code;
}

// The lowest rank that has taken the most rounds; whether others are behind, or new.
struct standing {
    uint32_t giver, known, behind, new;
};

static struct standing rounds_compare(const struct wk_rounds *r)
{
    struct standing s = {0};
    const uint32_t n = wk_rounds_ranks(r);
    for (uint32_t rank = 0; rank < n; rank++) {
        const bool is_new = rounds_said(r, rank, SAYS_NEW) > 0;
        s.new += is_new;
        if (!is_new && (s.known++ == 0 || rounds_said(r, rank, SAYS_TAKEN) > rounds_said(r, s.giver, SAYS_TAKEN)))
            s.giver = rank;
    }
    for (uint32_t rank = 0; rank < n; rank++)
        s.behind += !(rounds_said(r, rank, SAYS_NEW) > 0) &&
                    rounds_said(r, rank, SAYS_TAKEN) < rounds_said(r, s.giver, SAYS_TAKEN);
    return s;
}

// Who is let in now has come later than all others. All replicas of a worker have the same arrival: the lowest of
// them is its first.
static uint32_t rounds_find_chief(const struct wk_rounds *r)
{
    uint32_t chief = 0;
    for (uint32_t rank = 1; rank < wk_rounds_ranks(r); rank++) {
        const double arrival = rounds_said(r, rank, SAYS_ARRIVAL), least = rounds_said(r, chief, SAYS_ARRIVAL);
        if (arrival >= 0 && (least < 0 || arrival < least))
            chief = rank;
    }
    return chief;
}

// The newcomers have what the others have, and all get to know.
static enum ps_code rounds_end_welcome(struct wk_rounds *r, struct ps_error *e)
{
    double one = 1;
    e->code = PS_OK;
    if (!wk_collective_has_newcomers(r->env->collective))
        return PS_OK;
    wk_collective_welcome(r->env->collective, false);
    if (rounds_add_up_numbers(r, &one, 1, e) == PS_OK)
        wk_collective_welcome(r->env->collective, true);
    return e->code;
}

// Nobody has anything: all begin together.
static enum ps_code rounds_find_nothing(struct wk_rounds *r, struct ps_error *e)
{
    if (rounds_end_welcome(r, e))
        return e->code;
    r->arrival = 0;
    r->chief = 0;
    return ps_fail(e, PS_NOT_FOUND, "nobody is left who has the variables");
}

// All get to the same round. sum: where the numbers go of the one in which this replica is; NULL: it is in a step.
static enum ps_code rounds_agree(struct wk_rounds *r, double *sum, bool *behind, struct ps_error *e)
{
    if (rounds_ask_all(r, e))
        return e->code;
    const struct standing s = rounds_compare(r);
    const bool was_step = rounds_said(r, s.giver, SAYS_LAST) == WK_ROUND_STEP;
    const bool is_behind = !r->is_new && (double)r->taken < rounds_said(r, s.giver, SAYS_TAKEN);
    if (s.known == 0)
        return rounds_find_nothing(r, e);
    r->is_torn = is_behind && was_step;
    if (s.behind && was_step && rounds_give_state(r, s.giver, is_behind, e))
        return e->code;
    if (s.behind && !was_step &&
        rounds_give_sum(r, s.giver, (size_t)rounds_said(r, s.giver, SAYS_N_SUM), is_behind ? sum : NULL, e))
        return e->code;
    *behind |= is_behind;
    return s.behind || !r->complete ? PS_OK : r->complete(r->arg, e);
}

// Where some are new, when all others are at the same round.
static enum ps_code rounds_welcome(struct wk_rounds *r, struct ps_error *e)
{
    const struct standing s = rounds_compare(r);
    r->chief = rounds_find_chief(r);
    if (s.new > 0 && rounds_give_all(r, s.giver, e))
        return e->code;
    return rounds_end_welcome(r, e);
}

// Those that are left, and those who come back where this worker hosts them and admits it, meet and agree. Where that
// fails, they do so again without others who come: one that fails whenever it is let in would hold them up for ever.
static enum ps_code rounds_meet(struct wk_rounds *r, bool admits, double *sum, bool *behind, struct ps_error *e)
{
    *behind = false;
    if (r->env->has)  // the other variables would be at another round
        return e->code;
    while (e->code == PS_ABORTED && wk_collective_reform(r->env->collective, admits, e) == PS_OK) {
        *behind = admits = false;
        r->is_new |= r->is_torn;
        r->is_torn = false;
        if (rounds_agree(r, sum, behind, e) == PS_OK && rounds_welcome(r, e) == PS_OK) {
            r->is_torn = false;
            r->met = true;
            return PS_OK;
        }
    }
    return e->code;
}

// ---- rounds -------------------------------------------------------------------------------------------------------

static void rounds_keep_sum(struct wk_rounds *r, const double *values, size_t n)
{
    free(r->sum);
    r->sum = ps_alloc((n + 1) * sizeof *r->sum);
    memcpy(r->sum, values, n * sizeof *r->sum);
    r->n_sum = n;
    r->last = WK_ROUND_SUM;
    r->taken++;
}

enum ps_code wk_rounds_sum(struct wk_rounds *r, double *values, size_t n, struct ps_error *e)
{
    double *own = ps_alloc((n + 1) * sizeof *own);
    bool behind = false;
    memcpy(own, values, n * sizeof *own);
    while (!behind && rounds_add_up_numbers(r, values, n, e)) {
        if (rounds_meet(r, false, values, &behind, e))
            break;
        if (!behind)
            memcpy(values, own, n * sizeof *own);
    }
    free(own);
    if (e->code == PS_OK)
        rounds_keep_sum(r, values, n);
    return e->code;
}

void wk_rounds_take_step(struct wk_rounds *r, uint64_t end, uint64_t steps)
{
    r->end = end;
    r->steps = steps;
    r->last = WK_ROUND_STEP;
    r->taken++;
}

enum ps_code wk_rounds_meet(struct wk_rounds *r, bool admits, bool *behind, struct ps_error *e)
{
    return rounds_meet(r, admits, NULL, behind, e);
}

enum ps_code wk_rounds_let_in(struct wk_rounds *r, struct ps_error *e)
{
    double guests = wk_collective_guests(r->env->collective);
    bool behind;
    if (rounds_add_up_numbers(r, &guests, 1, e) == PS_OK && guests == 0)
        return PS_OK;
    if (e->code == PS_OK)
        ps_fail(e, PS_ABORTED, "a worker comes back");
    return rounds_meet(r, true, NULL, &behind, e) ? e->code : ps_fail(e, PS_ABORTED, "the step is taken again");
}

enum ps_code wk_rounds_join(struct wk_rounds *r, struct ps_error *e)
{
    bool behind = false;
    if (rounds_agree(r, NULL, &behind, e) == PS_OK && rounds_welcome(r, e) == PS_OK)
        return PS_OK;
    return rounds_meet(r, true, NULL, &behind, e);
}

bool wk_rounds_met(struct wk_rounds *r)
{
    const bool met = r->met;
    r->met = false;
    return met;
}
