// SPDX-License-Identifier: Apache-2.0
//
// The parked calls of members: what each waits for, for whom, and what it means that its time is over.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "psd/control/state.h"

// Calls of m that waited have ended otherwise, as by their deadline: where none is left it has entered nothing, and
// asked for nothing. A client that waits on asks again at once. Until it is certain that this one does not, it stays
// excluded: where others train, whoever is included closes their open rounds with the gradients that are in.
static void waiting_withdraw(struct psd_control *c, struct psd_member *m, uint64_t now)
{
    if (!psd_in_collective(m) && !psd_in_lease(m) && m->waits_since) {
        m->waits_since = 0;
        m->withdrawn_at = m->excluded && !m->newcomer ? psd_control_awake(c, now) : 0;
    }
    psd_member_recount(c, m);
}

void psd_member_waits_on(struct psd_control *c, struct psd_member *m, uint64_t now)
{
    const uint32_t rank = psd_rank_of(c, m);
    if (!ps_queue_has(&c->withdrawn, rank))
        return;
    m->withdrawn_at = psd_control_awake(c, now);
    ps_queue_push(&c->withdrawn, rank);
}

void psd_members_include_withdrawn(struct psd_control *c, uint64_t now)
{
    const uint64_t awake = psd_control_awake(c, now);
    while (c->withdrawn.n) {
        struct psd_member *m = &c->members[c->withdrawn.first];
        c->visited++;
        if (awake < m->withdrawn_at + PSD_ASK_AGAIN_MS * PS_MS)
            return;
        if (m->last_seen <= m->withdrawn_at) {
            psd_member_waits_on(c, m, now);  // it may be cut off
            continue;
        }
        m->withdrawn_at = 0;
        m->excluded = false;
        psd_view_changed(c, m);
        psd_member_recount(c, m);
    }
}

void psd_control_forget_call(const struct psd_call *call, const pthread_mutex_t *lock)
{
    struct psd_control *c = call->job && lock == &call->job->lock ? call->job->control : NULL;
    if (c && call->worker && call->worker <= c->workers)
        waiting_withdraw(c, &c->members[call->worker - 1], psd_host_now(call->job->host));
}

// ---- for whom -----------------------------------------------------------------------------------------------------

void psd_member_name(const struct psd_control *c, uint32_t rank, uint64_t now, char *text, size_t size)
{
    size_t at = strlen(text);
    const char *comma = at ? ", " : "";
    if (at + 8 >= size)
        return;
    if (!c) {
        snprintf(text + at, size - at, "%sworker %" PRIu32, comma, rank);
        return;
    }
    const struct psd_member *m = &c->members[rank];
    const uint64_t awake = psd_control_awake(c, now);
    if (psd_is_live(m))
        snprintf(text + at, size - at, "%sworker %" PRIu32 " (live, step %" PRIu64 ", silent %.1f s)", comma, rank,
                 m->step, awake > m->last_seen ? (double)(awake - m->last_seen) / 1e9 : 0.0);
    else
        snprintf(text + at, size - at, "%sworker %" PRIu32 " (%s)", comma, rank, psd_state_name(m->state));
}

typedef bool (*wanted_fn)(const struct psd_control *c, const struct psd_member *m);

static bool misses_collective(const struct psd_control *c, const struct psd_member *m)
{
    (void)c;
    return psd_is_expected(m) || (psd_is_awaited(m) && !psd_in_collective(m));
}

static bool still_trains(const struct psd_control *c, const struct psd_member *m)
{
    (void)c;
    return psd_is_expected(m) || (psd_is_live(m) && !psd_in_lease(m));
}

static bool is_slowest(const struct psd_control *c, const struct psd_member *m)
{
    return (psd_is_live(m) || psd_is_expected(m)) && m->clock == c->slowest && !psd_in_collective(m) &&
           !psd_in_lease(m);
}

enum { TEXT_MAX = PSD_WAIT_TEXT_MAX };

// Job locked. All but `but`, as many as the text has room for.
static void name_members(struct psd_control *c, wanted_fn wanted, uint32_t but, uint64_t now, char *text)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < c->workers && strlen(text) + 8 < TEXT_MAX; i++) {
        c->visited++;
        if (i != but && wanted(c, &c->members[i]))
            psd_member_name(c, i, now, text, TEXT_MAX);
    }
    for (uint32_t task = 0; !text[0] && task < c->tasks; task++)
        if (c->acked[task] < c->changed)
            snprintf(text, TEXT_MAX, "ps task %" PRIu32 " to learn who takes part", task);
}

// What a member may wait for.
enum wait { COLLECTIVE, LEASE, CLOCK, SUCCESSION, WAITS };

// Job locked.
static void name_wait(const struct psd_control *c, const struct psd_member *m, enum wait wait, char *what)
{
    if (wait == COLLECTIVE)
        snprintf(what, TEXT_MAX, "%s '%s'", m->participation.op ? "reduction" : "barrier", m->participation.name);
    else if (wait == LEASE)
        snprintf(what, TEXT_MAX, "the rest of epoch %" PRIu64, m->asks_epoch + 1);
    else if (wait == SUCCESSION)
        snprintf(what, TEXT_MAX, "its rank");
    else
        snprintf(what, TEXT_MAX, "clock %" PRIu64 ": it is at %" PRIu64 ", staleness is %" PRIu32, psd_clock_gate(c, m),
                 m->clock, c->mode.staleness);
}

// Job locked. Who has to be gone before another can have its rank.
static void name_predecessor(const struct psd_control *c, const struct psd_member *m, char *whom)
{
    if (psd_member_is_through(m)) {
        snprintf(whom, TEXT_MAX, "the end of the run that is under way, in which worker %" PRIu32 " is done",
                 psd_rank_of(c, m));
        return;
    }
    snprintf(whom, TEXT_MAX, "worker %" PRIu32 "%s%s, whose death is not certain yet", psd_rank_of(c, m),
             m->address[0] ? ", " : "", m->address);
}

// ---- the walk -----------------------------------------------------------------------------------------------------

static struct psd_waiters *list_of(struct psd_member *m, enum wait wait)
{
    return wait == COLLECTIVE ? &m->participation.waiting
           : wait == LEASE    ? &m->for_lease
           : wait == CLOCK    ? &m->for_clock
                              : &m->successors;
}

void psd_member_release(struct psd_member *m, struct psd_call **ready)
{
    for (enum wait wait = COLLECTIVE; wait < WAITS; wait++)
        psd_ready_all(ready, list_of(m, wait));
}

// One walk. Whom those wait for who are in a kind of wait is looked up once, at the first list that is wanted: none of
// them is among the wanted.
struct walk {
    const struct psd_look *look;
    bool named[SUCCESSION];
    char whom[SUCCESSION][TEXT_MAX];
};

// Job locked. What this member waits for, and for whom.
static const char *walk_name(struct walk *w, struct psd_job *job, struct psd_member *m, enum wait wait, char *what,
                             char *predecessor)
{
    static const wanted_fn who[] = {[COLLECTIVE] = misses_collective, [LEASE] = still_trains, [CLOCK] = is_slowest};
    struct psd_control *c = job->control;
    name_wait(c, m, wait, what);
    if (wait == SUCCESSION) {
        name_predecessor(c, m, predecessor);
        return predecessor;
    }
    if (!w->named[wait])
        name_members(c, who[wait], psd_rank_of(c, m), psd_host_now(job->host), w->whom[wait]);
    w->named[wait] = true;
    return w->whom[wait];
}

// Locked when it is called and when it returns, not while something is told.
static void walk_list(struct walk *w, struct psd_job *job, uint32_t rank, enum wait wait)
{
    const struct psd_look *look = w->look;
    char what[TEXT_MAX], predecessor[TEXT_MAX];
    const char *whom = NULL;
    struct psd_control *c = job->control;
    struct psd_member *m = &c->members[rank];
    struct psd_waiters *list = list_of(m, wait);
    const uint32_t n = list->n;
    bool report = n && look->look(list, look->arg) && look->report;
    if (report)
        whom = walk_name(w, job, m, wait, what, predecessor);
    if (list->n < n)
        waiting_withdraw(c, m, psd_host_now(job->host));
    if (!report)
        return;
    pthread_mutex_unlock(&job->lock);
    look->report(job, what, whom, look->arg);
    pthread_mutex_lock(&job->lock);
}

static void walk_member(struct walk *w, struct psd_job *job, struct psd_control *c, uint32_t rank)
{
    c->visited++;
    for (enum wait wait = COLLECTIVE; wait < WAITS && job->control == c; wait++)
        walk_list(w, job, rank, wait);
}

void psd_members_walk(struct psd_job *job, const struct psd_look *look)
{
    struct walk w = {.look = look};
    pthread_mutex_lock(&job->lock);
    struct psd_control *const c = job->control;
    while (look->before && job->control == c && c && ps_heap_least(&c->deadlines) <= look->before) {
        const uint32_t rank = ps_heap_first(&c->deadlines);
        walk_member(&w, job, c, rank);
        if (job->control == c)
            psd_member_recount(c, &c->members[rank]);
    }
    for (uint32_t i = 0; !look->before && job->control == c && c && c->deadlines.n && i < c->workers; i++)
        walk_member(&w, job, c, i);
    pthread_mutex_unlock(&job->lock);
}
