// SPDX-License-Identifier: Apache-2.0
//
// ssp's clock (Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS 2013):
// a worker may be at most `staleness` steps ahead of the slowest. It is counted here alone, whatever ps tasks the steps
// have touched.
#include "psd/control/state.h"

// Those who train, or may begin to at any time. Who waits for something else cannot tick.
static bool is_counted(const struct psd_member *m)
{
    return psd_is_expected(m) || (psd_is_live(m) && !psd_in_collective(m) && !psd_in_lease(m));
}

// The least clock of all who are counted but this one; UINT64_MAX: there is nobody else.
static uint64_t slowest_but(const struct psd_control *c, const struct psd_member *but)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < c->workers; i++)
        if (&c->members[i] != but && is_counted(&c->members[i]) && c->members[i].clock < least)
            least = c->members[i].clock;
    return least;
}

void psd_clock_advance(struct psd_control *c, struct psd_call **ready)
{
    uint64_t slowest = slowest_but(c, NULL);
    if (slowest == c->slowest)
        return;
    c->slowest = slowest;
    for (uint32_t i = 0; i < c->workers; i++)
        psd_ready_all(ready, &c->members[i].for_clock);
}

void psd_clock_level(struct psd_control *c, struct psd_member *m)
{
    uint64_t others = slowest_but(c, m);
    if (others != UINT64_MAX && m->clock < others)
        m->clock = others;
}

void psd_clock_align(struct psd_control *c)
{
    uint64_t greatest = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        if (psd_is_live(&c->members[i]) && c->members[i].clock > greatest)
            greatest = c->members[i].clock;
    for (uint32_t i = 0; i < c->workers; i++)
        if (psd_is_live(&c->members[i]))
            c->members[i].clock = greatest;
}

int psd_clock_step(struct psd_job *job, struct psd_member *m, const Paramserver__V1__ClockRequest *r,
                   Paramserver__V1__ClockReply *out, struct psd_call **ready, struct ps_error *e)
{
    struct psd_control *c = job->control;
    if (c->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_FAILED_PRECONDITION, "clock: job '%s' is not ssp", job->name);
    if (r->step > m->clock_step) {
        m->clock += r->step - m->clock_step;
        m->clock_step = r->step;
    }
    psd_clock_advance(c, ready);
    if (r->wait && c->slowest != UINT64_MAX && m->clock > c->slowest + c->staleness)
        return PSD_WAITS;
    out->clock = m->clock;
    out->slowest = c->slowest == UINT64_MAX ? m->clock : c->slowest;
    if (r->wait && m->clock > out->slowest && m->clock - out->slowest > c->farthest)
        c->farthest = m->clock - out->slowest;
    return PS_OK;
}
