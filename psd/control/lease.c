// SPDX-License-Identifier: Apache-2.0
//
// Who trains which examples of an epoch.
//
// async, ssp: ranges, first come, first served. A worker has one, or while it asks ahead two, of which the first is
// trained when it asks again. Those of a worker that is gone come back.
//
// sync: shares. What is left of the epoch, at first all of it, is a list of strided sets of batches. When all who live
// wait for more, and every task has said which rounds counted, they divide the first set among them: the i-th of n
// takes every n-th batch from the i-th on, all the same number. Round after round they train them; who dies leaves the
// batches of its share whose rounds did not count as one more set. The epoch is over when the list is empty.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "psd/control/state.h"
#include "psd/sync/sync.h"

typedef Paramserver__V1__LeaseRequest lease_t;

void psd_epoch_free(struct psd_epoch *d)
{
    free(d->left);
    free(d->unfinished);
}

// All that is given out may come back: there is room for it before it is, so that no death loses an example. One more
// is for the whole epoch.
static enum ps_code lease_reserve(struct psd_control *c, struct ps_error *e)
{
    struct psd_epoch *d = &c->data;
    size_t most = d->n_left + 2 * (size_t)c->workers + 1;
    struct psd_assignment *left = ps_try_reserve(d->left, most, &d->cap_left, sizeof *left);
    struct psd_unfinished *unfinished =
        ps_try_reserve(d->unfinished, c->workers, &d->cap_unfinished, sizeof *unfinished);
    d->left = left ? left : d->left;
    d->unfinished = unfinished ? unfinished : d->unfinished;
    return left && unfinished ? PS_OK : ps_no_memory(e, "leases that come back");
}

static void lease_put_back(struct psd_epoch *d, struct psd_assignment rest)
{
    d->left[d->n_left++] = rest;
}

// The member that has waited longest goes on. A member whose calls have all been cancelled waits no more.
static void lease_wake_one(struct psd_control *c, struct psd_call **ready)
{
    while (c->in_lease.n && !psd_in_lease(&c->members[c->in_lease.first]))
        psd_member_recount(c, &c->members[c->in_lease.first]);
    if (!c->in_lease.n)
        return;
    struct psd_member *m = &c->members[c->in_lease.first];
    psd_ready_after(ready, &m->for_lease, c->mover);
    psd_member_goes_on(c, m);
    psd_clock_level(c, m);
}

void psd_lease_wake_all(struct psd_control *c, struct psd_call **ready)
{
    while (c->in_lease.n)
        lease_wake_one(c, ready);
}

// Does nobody know yet with which epoch, and after how many of its examples, the job begins? It may go on from a
// checkpoint: those who were there from the beginning know it. Where none of them lives, it begins as it is asked for.
static bool lease_start_is_unknown(const struct psd_control *c)
{
    const uint32_t chief = psd_chief(c);
    return !c->data.examples && chief != PS_NO_ITEM && c->members[chief].arrival == 0;
}

bool psd_lease_offer(struct psd_control *c, struct psd_call **ready)
{
    if (!c->data.examples && !lease_start_is_unknown(c) && c->in_lease.n) {
        psd_lease_wake_all(c, ready);  // they have waited for somebody who is gone
        return true;
    }
    bool offers = !psd_control_is_sync(c) && c->data.n_left && !c->data.over && c->in_lease.n;
    if (offers)
        lease_wake_one(c, ready);
    return offers;
}

void psd_lease_end_epoch(struct psd_control *c, struct psd_call **ready)
{
    c->data.over = true;
    psd_clock_align(c);
    psd_lease_wake_all(c, ready);
}

static void lease_forget(struct psd_member *m)
{
    m->before.count = m->lease.count = m->lease.steps = 0;
}

// begin: examples of it that have been trained before.
static void lease_begin_epoch(struct psd_control *c, uint64_t number, uint64_t examples, uint64_t begin)
{
    struct psd_epoch *d = &c->data;
    for (uint32_t i = 0; i < c->workers; i++)
        lease_forget(&c->members[i]);  // of an epoch that was given up
    d->number = number;
    d->examples = examples;
    d->over = false;
    d->next = d->done = begin;
    d->sharers = 0;
    d->n_left = d->n_unfinished = 0;
}

// ---- async --------------------------------------------------------------------------------------------------------

// The next range of at most want examples: what came back first. count 0: nothing is left to give out.
static struct psd_assignment lease_take_range(struct psd_epoch *d, uint64_t want)
{
    struct psd_assignment r = {0};
    if (d->n_left) {
        struct psd_assignment *last = &d->left[d->n_left - 1];
        r = (struct psd_assignment){.first = last->first, .count = last->count < want ? last->count : want, .steps = 1};
        last->first += r.count;
        last->count -= r.count;
        d->n_left -= last->count == 0;
    } else if (d->next < d->examples) {
        uint64_t rest = d->examples - d->next;
        r = (struct psd_assignment){.first = d->next, .count = rest < want ? rest : want, .steps = 1};
        d->next += r.count;
    }
    return r;
}

// The lease of the moment is being trained, and is not the epoch's last word: nobody waits here.
static void lease_take_ahead(struct psd_control *c, struct psd_member *m, const lease_t *r,
                             struct psd_assignment *given)
{
    struct psd_epoch *d = &c->data;
    d->done += m->before.count;
    m->before.count = 0;
    *given = lease_take_range(d, r->want);
    if (!given->count) {
        m->none_sequence = r->caller->sequence;
        return;
    }
    m->before = m->lease;
    m->lease = *given;
    m->lease_sequence = r->caller->sequence;
    c->begun = true;
}

void psd_lease_change_mode(struct psd_control *c, uint64_t closed)
{
    struct psd_epoch *d = &c->data;
    for (uint32_t i = 0; i < c->workers; i++)
        lease_forget(&c->members[i]);
    d->sharers = 0;
    d->n_left = d->n_unfinished = 0;
    memset(c->open, 0, c->tasks * sizeof *c->open);
    d->round = closed > d->round ? closed : d->round;
}

// *given: count 0 with PS_OK: the epoch is done.
static int lease_take_async(struct psd_control *c, struct psd_member *m, const lease_t *r, struct psd_assignment *given,
                            struct psd_call **ready)
{
    struct psd_epoch *d = &c->data;
    d->done += m->before.count + m->lease.count;
    lease_forget(m);
    if (r->epoch > d->number || d->examples == 0) {
        lease_begin_epoch(c, r->epoch, r->examples, r->begin);
        // Where rounds begin or end the tasks have agreed before.
        if (!psd_mode_equals(&c->mode, &c->next))
            psd_clock_change_mode(c, &c->next, ready);
    }
    m->lease = lease_take_range(d, r->want);
    m->lease_sequence = r->caller->sequence;
    *given = m->lease;
    if (given->count) {
        c->begun = true;
        return PS_OK;
    }
    if (d->done == d->examples)
        psd_lease_end_epoch(c, ready);
    if (d->over)
        return PS_OK;
    m->asks_epoch = r->epoch;
    return PSD_WAITS;
}

// ---- sync ---------------------------------------------------------------------------------------------------------

static uint64_t assignment_batches(const struct psd_assignment *s)
{
    return s->end > s->first ? (s->end - s->first - 1) / s->stride + 1 : 0;
}

// In the first `steps` batches of a share: none overlap, so that only the last may be cut off.
static uint64_t assignment_examples(const struct psd_assignment *s, uint64_t steps)
{
    uint64_t n = assignment_batches(s);
    n = n < steps ? n : steps;
    if (n == 0)
        return 0;
    uint64_t rest = s->end - s->first - (n - 1) * s->stride;
    return (n - 1) * s->count + (rest < s->count ? rest : s->count);
}

// What is known now of those who are gone: batches whose rounds counted are trained, the others are left.
static void lease_close_unfinished(struct psd_job *job)
{
    struct psd_control *c = job->control;
    struct psd_epoch *d = &c->data;
    while (d->n_unfinished) {
        const struct psd_unfinished *o = &d->unfinished[d->n_unfinished - 1];
        uint64_t counted = c->members[o->rank].counted, steps = counted > d->round ? counted - d->round : 0;
        struct psd_assignment rest = o->rest;
        uint64_t all = assignment_examples(&rest, rest.steps);
        steps = steps < rest.steps ? steps : rest.steps;
        rest.first += steps * rest.stride;
        rest.steps -= steps;
        uint64_t trained = all - assignment_examples(&rest, rest.steps);
        if (all > trained)
            lease_put_back(d, rest);
        d->n_unfinished--;
        d->done += trained;
        ps_info("job '%s': of the %" PRIu64 " examples that worker %" PRIu32 " had, %" PRIu64
                " count; the others train the rest",
                job->name, all, o->rank, trained);
    }
}

// What is left of the epoch goes on after this round.
static void lease_find_round(struct psd_control *c)
{
    struct psd_epoch *d = &c->data;
    for (uint32_t rank = 0; rank < c->workers; rank++)
        if (psd_is_live(&c->members[rank]) && c->members[rank].asks_round > d->round)
            d->round = c->members[rank].asks_round;
    // Of those who knew how far it is, none may have lived.
    if (psd_view_closed(c) > d->round)
        d->round = psd_view_closed(c);
}

// How many rounds from there on are closed in some partitions and open in others: with the last gradients of workers
// that are gone, and without.
static uint64_t lease_count_split_rounds(const struct psd_control *c)
{
    uint64_t last = c->data.round;
    for (uint32_t rank = 0; rank < c->workers; rank++)
        last = c->members[rank].counted > last ? c->members[rank].counted : last;
    return last - c->data.round;
}

static struct psd_assignment lease_take_set(struct psd_epoch *d)
{
    struct psd_assignment set = d->left[0];
    d->n_left--;
    memmove(d->left, d->left + 1, d->n_left * sizeof *d->left);
    return set;
}

// Of a set that n workers share: what is left of it when each has had so many batches stays first in the list.
static void lease_cut_set(struct psd_epoch *d, struct psd_assignment *set, uint64_t n, uint64_t rounds)
{
    struct psd_assignment rest = *set;
    rest.first += n * rounds * set->stride;
    set->end = rest.first - set->stride + set->count;
    memmove(d->left + 1, d->left, d->n_left * sizeof *d->left);
    d->left[0] = rest;
    d->n_left++;
}

// Everyone's share of the first set. Where it has a batch for some alone, nobody takes a second one: a stride past its
// end says so, and does not grow from one death to the next.
//
// Where a round is closed in some partitions and open in others, there is no batch for anyone until it is closed in
// all: a gradient would count in a part of the variables alone, and would be taken for that of the worker before.
static void lease_hand_out(struct psd_control *c, struct psd_call **ready)
{
    struct psd_epoch *d = &c->data;
    lease_find_round(c);
    uint64_t n = c->tally.live, i = 0, split = lease_count_split_rounds(c);
    struct psd_assignment set =
        split ? (struct psd_assignment){.first = d->examples, .count = d->batch, .end = d->examples}
              : lease_take_set(d);
    if (!split && d->rounds && assignment_batches(&set) > n * d->rounds)
        lease_cut_set(d, &set, n, d->rounds);
    d->shared = set;
    d->sharers = (uint32_t)n;
    uint64_t batches = assignment_batches(&set), steps = split ? split : (batches + n - 1) / n;
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        struct psd_member *m = &c->members[rank];
        if (!psd_is_live(m))
            continue;
        m->lease = (struct psd_assignment){i < batches ? set.first + i * set.stride : set.end, set.count,
                                           n < batches ? set.stride * n : set.end, set.end, steps};
        i++;
        m->lease_sequence = m->asks_sequence;
    }
    psd_lease_wake_all(c, ready);
}

// All who live have trained what they had, and it is known how much those had who are gone. Returns the epoch that is
// asked for.
static uint64_t lease_collect(struct psd_job *job)
{
    struct psd_control *c = job->control;
    struct psd_epoch *d = &c->data;
    uint64_t asked = 0;
    d->sharers = 0;
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        struct psd_member *m = &c->members[rank];
        if (!psd_is_live(m))
            continue;
        d->done += assignment_examples(&m->lease, m->lease.steps);
        m->lease.count = m->lease.steps = 0;
        asked = m->asks_epoch > asked ? m->asks_epoch : asked;
    }
    lease_close_unfinished(job);
    return asked;
}

bool psd_lease_mend(struct psd_job *job, struct psd_call **ready)
{
    lease_collect(job);
    lease_find_round(job->control);
    if (!lease_count_split_rounds(job->control))
        return false;
    lease_hand_out(job->control, ready);
    return true;
}

void psd_lease_assign(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct psd_epoch *d = &c->data;
    const uint64_t asked = lease_collect(job);
    if (d->over)
        d->n_left = 0;  // of an epoch that was given up
    if (d->n_left == 0 && !d->over && d->done) {
        psd_lease_end_epoch(c, ready);
        return;
    }
    if (d->n_left == 0) {
        uint64_t examples = d->examples, batch = d->batch, begin = d->begin;
        lease_begin_epoch(c, asked, examples, begin);
        lease_put_back(d, (struct psd_assignment){begin, batch, batch, examples, 0});
    }
    lease_hand_out(c, ready);
}

// Each closed round is a batch of every share, but of those whose workers are gone.
uint64_t psd_lease_done(const struct psd_control *c, uint64_t closed)
{
    const struct psd_epoch *d = &c->data;
    if (!d->sharers || closed <= d->round)
        return d->done;
    const uint64_t rounds = closed - d->round;
    uint64_t done =
        assignment_examples(&d->shared, rounds < UINT64_MAX / d->sharers ? rounds * d->sharers : UINT64_MAX);
    for (size_t i = 0; i < d->n_unfinished; i++) {
        const struct psd_unfinished *o = &d->unfinished[i];
        const uint64_t counted = c->members[o->rank].counted, steps = counted > d->round ? counted - d->round : 0;
        done -= assignment_examples(&o->rest, rounds) - assignment_examples(&o->rest, steps < rounds ? steps : rounds);
    }
    return d->done + done;
}

// Who has come late names none.
static void lease_note_begin(struct psd_epoch *d, const lease_t *r)
{
    if (r->epoch != d->begin_epoch)
        d->begin = 0;
    d->begin_epoch = r->epoch;
    d->begin = r->begin > d->begin ? r->begin : d->begin;
}

static void lease_note_asked(struct psd_member *m, const lease_t *r)
{
    m->asks_epoch = r->epoch;
    m->asks_sequence = r->caller->sequence;
    m->asks_round = r->round;
}

// Has this task rounds?
static bool lease_has_rounds(const struct psd_job *job)
{
    bool some = false;
    for (uint32_t i = 0; atomic_load(&job->declared) && i < job->n_partitions && !some; i++)
        some = job->partitions[i].made != NULL;
    return some;
}

// No more rounds are closed elsewhere since the last shares, and since this task's last one where it has any, than an
// epoch has batches, and a worker may have pushes under way.
static enum ps_code lease_check_round(const struct psd_job *job, const lease_t *r, struct ps_error *e)
{
    const struct psd_epoch *d = &job->control->data;
    const uint64_t more = (d->batch ? d->examples / d->batch : 0) + PS_WINDOW;
    if (r->round <= d->round + more)
        return PS_OK;
    const uint64_t closed = psd_sync_last_closed(job), known = closed > d->round ? closed : d->round;
    const uint64_t last = lease_has_rounds(job) ? known + more : INT64_MAX / 4;
    if (r->round <= last)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "lease: round %" PRIu64 " cannot be closed, at most %" PRIu64
                   " can: expected the last one that this worker knows to be closed",
                   r->round, last);
}

static int lease_take_sync(struct psd_job *job, struct psd_member *m, const lease_t *r, struct ps_error *e)
{
    struct psd_epoch *d = &job->control->data;
    if (lease_check_round(job, r, e))
        return (int)e->code;
    const uint64_t batch = r->batch ? r->batch : r->want;
    if (d->batch && batch != d->batch)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "lease: the others train batches of %" PRIu64 ", this worker of %" PRIu64, d->batch, batch);
    if (r->caller->sequence < m->asks_sequence)
        return psd_fail_superseded(r->caller, "lease", m->asks_sequence, e);
    d->batch = batch;
    d->rounds = r->rounds;
    d->examples = r->examples;
    lease_note_begin(d, r);
    lease_note_asked(m, r);
    return PSD_WAITS;
}

// ---- both ---------------------------------------------------------------------------------------------------------

void psd_lease_return(struct psd_control *c, uint32_t rank)
{
    struct psd_member *m = &c->members[rank];
    struct psd_epoch *d = &c->data;
    if (m->lease.count == 0 || d->over)
        return;
    if (m->before.count)
        lease_put_back(d, m->before);
    ps_sometimes(PS_SOMETIMES_LEASE_RETURNED);
    if (psd_control_is_sync(c)) {
        d->unfinished[d->n_unfinished++] = (struct psd_unfinished){rank, m->lease};
    } else {
        lease_put_back(d, m->lease);
    }
    lease_forget(m);
}

static enum ps_code lease_check(const struct psd_control *c, const lease_t *r, struct ps_error *e)
{
    const struct psd_epoch *d = &c->data;
    bool begun = d->examples != 0;
    if (r->ahead && psd_control_is_sync(c))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "lease: a sync job's workers ask for more when they have trained what they had, not ahead");
    if (r->examples == 0 || r->want == 0 || r->caller->sequence == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "lease: expected examples, want and sequence above 0");
    if (r->examples > INT64_MAX / 4 || r->want > INT64_MAX / PS_MAX_WORKERS || r->batch > r->want ||
        r->rounds > INT64_MAX / PS_MAX_WORKERS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "lease: %" PRIu64 " of %" PRIu64 " examples are too many", r->want,
                       r->examples);
    if (begun && r->examples != d->examples)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "lease: the epoch has %" PRIu64 " examples elsewhere, %" PRIu64
                       " here: the workers' data differ",
                       d->examples, r->examples);
    if (r->begin >= r->examples)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "lease: an epoch of %" PRIu64 " examples of which %" PRIu64
                       " are trained: expected some that are not",
                       r->examples, r->begin);
    if ((begun && r->epoch > d->number + 1) || (begun && !d->over && r->epoch == d->number + 1))
        return ps_fail(e, PS_FAILED_PRECONDITION, "lease: epoch %" PRIu64 " is not over, %" PRIu64 " was asked for",
                       d->number, r->epoch);
    return PS_OK;
}

int psd_lease_take(struct psd_job *job, struct psd_member *m, const lease_t *r, struct psd_assignment *given,
                   struct psd_call **ready, struct ps_error *e)
{
    struct psd_control *c = job->control;
    struct psd_epoch *d = &c->data;
    if (lease_check(c, r, e))
        return (int)e->code;
    if (r->steps_before) {
        c->steps_before = r->steps_before;
        c->iterations_before = r->iterations_before;
    }
    if (r->caller->sequence < m->lease_sequence)
        return psd_fail_superseded(r->caller, "lease", m->lease_sequence, e);
    if (r->caller->sequence == m->lease_sequence && m->lease.count) {
        *given = m->lease;
        return PS_OK;
    }
    if (r->epoch < d->number || (r->epoch == d->number && d->over) || r->caller->sequence == m->none_sequence)
        return PS_OK;
    if (lease_reserve(c, e))
        return (int)e->code;
    if (m->arrival && lease_start_is_unknown(c)) {
        lease_note_asked(m, r);
        return PSD_WAITS;
    }
    if (!d->examples) {
        d->number = r->epoch;
        psd_lease_wake_all(c, ready);
    }
    if (r->ahead && m->lease.count && r->epoch == d->number) {
        lease_take_ahead(c, m, r, given);
        return PS_OK;
    }
    c->mover = r->caller->worker;
    const bool together = psd_control_is_sync(c) || (d->over && psd_mode_switches(c));
    return together ? lease_take_sync(job, m, r, e) : lease_take_async(c, m, r, given, ready);
}
