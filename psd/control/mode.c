// SPDX-License-Identifier: Apache-2.0
//
// The mode in which a job without rounds is trained, async or ssp. It changes where no worker has a lease: when the
// first of them takes one of the next epoch. Workers learn it with their leases, so one epoch has one mode.
#include <inttypes.h>

#include "common/base/error.h"
#include "common/base/sometimes.h"
#include "psd/control/state.h"

typedef Paramserver__V1__SetModeRequest set_mode_t;

static bool mode_is_ssp(const struct psd_mode *m)
{
    return m->update == PARAMSERVER__V1__UPDATE__SSP;
}

static bool mode_equals(const struct psd_mode *a, const struct psd_mode *b)
{
    return a->update == b->update && a->staleness == b->staleness;
}

static enum ps_code mode_check_request(const set_mode_t *r, struct ps_error *e)
{
    if (r->update != PARAMSERVER__V1__UPDATE__ASYNC && r->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "set mode: update is %d; expected async or ssp (1 or 3): a running job gets no rounds",
                       (int)r->update);
    if (r->staleness && r->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "set mode: a bound of the staleness, %" PRIu32 ", is for ssp alone",
                       r->staleness);
    return PS_OK;
}

static enum ps_code mode_check_job(const struct psd_job *job, struct ps_error *e)
{
    const struct psd_control *c = job->control;
    if (c->update == PARAMSERVER__V1__UPDATE__SYNC)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "set mode: job '%s' is sync, and stays so: async and ssp jobs alone change while they run",
                       job->name);
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
    return PS_OK;
}

enum ps_code psd_mode_set(struct psd_job *job, const set_mode_t *r, Paramserver__V1__SetModeReply *out,
                          struct ps_error *e)
{
    struct psd_control *c = job->control;
    const struct psd_mode wanted = {r->update, r->staleness};
    if (mode_check_request(r, e) || mode_check_job(job, e))
        return e->code;
    if (!mode_equals(&c->next, &c->mode) && !mode_equals(&c->next, &wanted)) {
        out->replaced = c->next.update;
        out->replaced_staleness = c->next.staleness;
    }
    c->next = wanted;
    out->update = c->mode.update;
    out->staleness = c->mode.staleness;
    out->data_epoch = mode_equals(&c->mode, &wanted) ? 0 : c->data.number + 1;
    return PS_OK;
}

// The clocks are level since the epoch ended, and have stood still where it was not ssp.
void psd_mode_begin(struct psd_control *c, struct psd_call **ready)
{
    const bool starts = !mode_is_ssp(&c->mode) && mode_is_ssp(&c->next);
    if (mode_equals(&c->mode, &c->next))
        return;
    c->mode = c->next;
    psd_clock_align(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        c->members[i].clock_starts |= starts;
        psd_member_recount(c, &c->members[i]);
    }
    psd_clock_advance(c, ready);
    ps_sometimes(PS_SOMETIMES_MODE_CHANGED);
}
