// SPDX-License-Identifier: Apache-2.0
//
// The mode in which a job is trained: async, ssp or sync. It changes where no worker has a lease, from one epoch to the
// next. Workers learn it with their leases, so one epoch has one mode.
//
// async and ssp need the same of the ps tasks: the first worker that takes a lease of the next epoch changes the mode.
// Rounds are something that all tasks have, or none. They agree on it (rounds.c):
//
//     SetMode(sync) --KEEP: room on every task, or refused--> next = sync --all wait for the next epoch--> BEGIN at the
//     round after the last that there ever was --> mode = sync, shares
//     SetMode(async, ssp) of a sync job --> next --all wait for the next epoch, no round is under way--> END --> mode,
//     ranges
//
// Room that was kept for an epoch which then is not sync is given up.
#include <inttypes.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/sometimes.h"
#include "psd/control/state.h"

typedef Paramserver__V1__SetModeRequest set_mode_t;

// ---- a proposal's value -------------------------------------------------------------------------------------------

// What becomes of the rounds, the mode that is asked for (a byte each), and 4 bytes of its staleness in this machine's
// order, which is the wire's.
enum { CHANGE_AT, UPDATE_AT, STALENESS_AT, VALUE_BYTES = STALENESS_AT + sizeof(uint32_t) };

static void mode_write(struct psd_proposal *p, enum psd_rounds_change change, const struct psd_mode *mode)
{
    *p = (struct psd_proposal){.kind = PARAMSERVER__V1__AGREE_KIND__ROUNDS, .bytes = VALUE_BYTES};
    p->value[CHANGE_AT] = (uint8_t)change;
    p->value[UPDATE_AT] = (uint8_t)mode->update;
    memcpy(p->value + STALENESS_AT, &mode->staleness, sizeof mode->staleness);
}

bool psd_mode_read(const struct psd_proposal *p, enum psd_rounds_change *change, struct psd_mode *mode)
{
    if (p->bytes != VALUE_BYTES)
        return false;
    *change = (enum psd_rounds_change)p->value[CHANGE_AT];
    mode->update = (Paramserver__V1__Update)p->value[UPDATE_AT];
    memcpy(&mode->staleness, p->value + STALENESS_AT, sizeof mode->staleness);
    return *change >= PSD_ROUNDS_KEEP && *change <= PSD_ROUNDS_GIVE_UP;
}

// ---- SetMode ------------------------------------------------------------------------------------------------------

static enum ps_code mode_check_request(const set_mode_t *r, struct ps_error *e)
{
    if (r->update != PARAMSERVER__V1__UPDATE__ASYNC && r->update != PARAMSERVER__V1__UPDATE__SSP &&
        r->update != PARAMSERVER__V1__UPDATE__SYNC)
        return ps_fail(e, PS_INVALID_ARGUMENT, "set mode: update is %d; expected async, sync or ssp (1 to 3)",
                       (int)r->update);
    if (r->staleness && r->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "set mode: a bound of the staleness, %" PRIu32 ", is for ssp alone",
                       r->staleness);
    return PS_OK;
}

// Will there be none after the epoch of the moment? A job may end sooner than its chief says, not later.
static bool mode_epoch_is_last(const struct psd_control *c)
{
    return c->progress.epochs && c->data.number + 1 >= c->progress.epochs;
}

static enum ps_code mode_check_job(const struct psd_job *job, const struct psd_mode *wanted, struct ps_error *e)
{
    const struct psd_control *c = job->control;
    if (!c->follows_mode)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "set mode: the workers of job '%s' keep the mode that they began in, %s: expected strategy "
                       "parameter_server without n_push and n_fetch, or a program that follows changes",
                       job->name, psd_update_name(c->update));
    if (!c->tally.live && !c->tally.expected)
        return ps_fail(e, PS_FAILED_PRECONDITION, "set mode: job '%s' is done", job->name);
    if (!c->data.examples)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "set mode: job '%s' has not begun its first epoch: the mode changes from one epoch to the next",
                       job->name);
    if (!psd_mode_equals(wanted, &c->mode) && mode_epoch_is_last(c))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "set mode: job '%s' trains its last epoch, %" PRIu64 " of %" PRIu64
                       ": the mode changes from one epoch to the next",
                       job->name, c->data.number + 1, c->progress.epochs);
    return PS_OK;
}

// Asks the tasks for a change of their rounds, unless they are busy with another one.
static int mode_ask_tasks(struct psd_job *job, enum psd_rounds_change change, const struct psd_mode *mode,
                          uint64_t round, bool was_parked, struct ps_error *e)
{
    struct psd_control *c = job->control;
    struct psd_proposal p;
    uint64_t ignored;
    mode_write(&p, change, mode);
    int code = psd_agree_propose(job, &p, round, 0, was_parked, &ignored, e);
    if (code == PSD_WAITS)
        c->rounds.asked = (int)change;
    return code;
}

static void mode_set_next(struct psd_control *c, const struct psd_mode *wanted)
{
    const bool replaces = !psd_mode_equals(&c->next, &c->mode) && !psd_mode_equals(&c->next, wanted);
    c->replaced = replaces ? c->next : (struct psd_mode){PARAMSERVER__V1__UPDATE__UPDATE_NONE, 0};
    c->next = *wanted;
}

static void mode_reply(const struct psd_control *c, Paramserver__V1__SetModeReply *out)
{
    out->replaced = c->replaced.update;
    out->replaced_staleness = c->replaced.staleness;
    out->update = c->mode.update;
    out->staleness = c->mode.staleness;
    out->data_epoch = psd_mode_equals(&c->mode, &c->next) ? 0 : c->data.number + 1;
}

// Rounds that were to begin with the next epoch do not: nobody waits for the others any more.
static void mode_wake_waiting(struct psd_control *c, struct psd_call **ready)
{
    if (c->data.over && !psd_mode_is_sync(&c->mode) && !psd_mode_switches(c))
        psd_lease_wake_all(c, ready);
}

int psd_mode_set(struct psd_job *job, const set_mode_t *r, bool was_parked, Paramserver__V1__SetModeReply *out,
                 struct psd_call **ready, struct ps_error *e)
{
    struct psd_control *c = job->control;
    const struct psd_mode wanted = {r->update, r->staleness};
    if (mode_check_request(r, e) || mode_check_job(job, &wanted, e))
        return (int)e->code;
    const bool granted = was_parked && psd_mode_equals(&c->next, &wanted);  // psd_mode_decided has made it the next
    const bool busy = psd_agree_is_busy(job) && job->agree->lead.p.kind == PARAMSERVER__V1__AGREE_KIND__ROUNDS;
    if (!granted && (was_parked || busy || (psd_mode_is_sync(&wanted) && !c->rounds.kept))) {
        int code = mode_ask_tasks(job, PSD_ROUNDS_KEEP, &wanted, 0, was_parked, e);
        if (code != PS_OK)
            return code;
    }
    if (!granted)
        mode_set_next(c, &wanted);
    mode_wake_waiting(c, ready);
    mode_reply(c, out);
    return PS_OK;
}

// ---- the end of an epoch ------------------------------------------------------------------------------------------

// Tasks that are busy with another change are asked when that is over, at the next tick. So are those that have not
// agreed: every step of a change may be asked for again.
void psd_mode_switch(struct psd_job *job, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    struct ps_error ignored;
    if (!psd_view_is_known(c) || psd_agree_is_busy(job))
        return;
    if (!psd_control_is_sync(c))
        mode_ask_tasks(job, PSD_ROUNDS_BEGIN, &c->next, c->data.round + 1, false, &ignored);
    else if (!psd_lease_mend(job, ready))
        mode_ask_tasks(job, PSD_ROUNDS_END, &c->next, c->data.round + 1, false, &ignored);
}

void psd_mode_tidy(struct psd_job *job)
{
    struct psd_control *c = job->control;
    struct ps_error ignored;
    const bool needed =
        psd_mode_is_sync(&c->mode) || psd_mode_is_sync(&c->next) || c->update == PARAMSERVER__V1__UPDATE__SYNC;
    if (c->rounds.kept && !needed && !psd_agree_is_busy(job))
        mode_ask_tasks(job, PSD_ROUNDS_GIVE_UP, &c->next, 0, false, &ignored);
}

// ---- what was agreed on -------------------------------------------------------------------------------------------

// Who has come since all waited for the next epoch came to rounds that there are no more.
static void mode_admit_newcomers(struct psd_control *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (psd_is_live(m) && m->excluded)
            psd_view_changed(c, m);
        m->excluded = m->newcomer = false;
        psd_member_recount(c, m);
    }
}

// The next epoch has that mode. It has not begun: all wait for it.
static void mode_switched(struct psd_job *job, const struct psd_mode *mode, uint64_t closed, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    psd_lease_change_mode(c, closed);
    psd_clock_change_mode(c, mode, ready);
    if (!psd_mode_is_sync(mode))
        mode_admit_newcomers(c);
    ps_sometimes(psd_mode_is_sync(mode) ? PS_SOMETIMES_ROUNDS_BEGUN : PS_SOMETIMES_ROUNDS_ENDED);
}

bool psd_mode_decided(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    struct psd_control *c = job->control;
    enum psd_rounds_change change;
    struct psd_mode mode;
    if (!psd_mode_read(p, &change, &mode) || (int)change != c->rounds.asked)
        return false;
    c->rounds.asked = 0;
    if (change == PSD_ROUNDS_KEEP)
        mode_set_next(c, &mode);
    c->rounds.kept =
        change != PSD_ROUNDS_GIVE_UP && (change != PSD_ROUNDS_END || c->update == PARAMSERVER__V1__UPDATE__SYNC);
    if (change == PSD_ROUNDS_BEGIN || change == PSD_ROUNDS_END)
        mode_switched(job, &mode, p->round - 1, ready);
    return true;
}
