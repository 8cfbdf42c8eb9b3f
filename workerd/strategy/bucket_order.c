// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/bucket_order.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"

// Where what leaves behind the last bucket takes less than this part of a step's computing, it is not worth the copies
// that are made of an open step's gradients.
static const double order_worth = 1.0 / 32;

void wk_bucket_order_open(struct wk_bucket_order *o, size_t n)
{
    *o = (struct wk_bucket_order){.n = n};
    o->at = ps_alloc((n + 1) * sizeof *o->at);
    o->ready = ps_alloc((n + 1) * sizeof *o->ready);
    o->takes = ps_alloc((n + 1) * sizeof *o->takes);
    wk_bucket_order_reset(o);
}

void wk_bucket_order_close(struct wk_bucket_order *o)
{
    free(o->at);
    free(o->ready);
    free(o->takes);
}

static void order_as_ready(struct wk_bucket_order *o)
{
    for (size_t k = 0; k < o->n; k++)
        o->at[k] = k;
    o->last = o->n ? o->n - 1 : 0;
}

void wk_bucket_order_reset(struct wk_bucket_order *o)
{
    o->knows = false;
    order_as_ready(o);
}

static double order_mean(const struct wk_bucket_order *o, double before, double now)
{
    return o->knows ? (before + now) / 2 : now;
}

static void order_take_times(struct wk_bucket_order *o, const double *times, size_t ranks)
{
    const size_t n = o->n, row = 2 * n + 1;
    double computes = 0;
    for (size_t k = 0; k < n; k++) {
        double ready = 0, takes = INFINITY;
        for (size_t rank = 0; rank < ranks; rank++) {
            ready = fmax(ready, times[rank * row + k]);
            takes = fmin(takes, times[rank * row + n + k]);
        }
        o->ready[k] = order_mean(o, o->ready[k], ready);
        o->takes[k] = order_mean(o, o->takes[k], takes);
    }
    for (size_t rank = 0; rank < ranks; rank++)
        computes = fmax(computes, times[rank * row + 2 * n]);
    o->computes = order_mean(o, o->computes, computes);
    o->knows = true;
}

// ---- what would leave when ----------------------------------------------------------------------------------------

struct plan {
    const struct wk_bucket_order *o;
    bool *has_left;
    size_t last, lowest;  // buckets: n - 1, and the first that has not left
    double now;           // ns: when the network is free
    bool network_bound;   // it takes longer than a step computes
};

static bool plan_is_network_bound(const struct wk_bucket_order *o)
{
    double travel = 0;
    for (size_t k = 0; k < o->n; k++)
        travel += o->takes[k];
    return travel > o->computes;
}

// What the step waits for is never idle: where that is the network, something always leaves; where that is computing,
// the last bucket waits for no other one.
static size_t plan_next(struct plan *p)
{
    const double *ready = p->o->ready;
    size_t k = p->last;
    while (p->has_left[p->lowest])
        p->lowest++;
    p->now = fmax(p->now, ready[p->lowest]);
    while (p->has_left[k] || ready[k] > p->now)
        k--;
    if (!p->network_bound && p->now < ready[p->last] && p->now + p->o->takes[k] > ready[p->last]) {
        p->now = ready[p->last];
        k = p->last;
    }
    p->has_left[k] = true;
    p->now += p->o->takes[k];
    return k;
}

void wk_bucket_order_learn(struct wk_bucket_order *o, const double *times, size_t ranks)
{
    order_take_times(o, times, ranks);
    struct plan p = {.o = o,
                     .has_left = ps_alloc(o->n * sizeof *p.has_left),
                     .last = o->n - 1,
                     .network_bound = plan_is_network_bound(o)};
    double behind = 0;  // ns, of those behind the last bucket
    for (size_t place = 0; place < o->n; place++) {
        const size_t k = o->at[place] = plan_next(&p);
        o->last = k == p.last ? place : o->last;
        behind = k == p.last ? 0 : behind + o->takes[k];
    }
    free(p.has_left);
    if (behind < order_worth * o->computes)
        order_as_ready(o);
}
