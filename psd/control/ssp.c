// SPDX-License-Identifier: Apache-2.0
//
// ssp's clock (Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS 2013):
// a worker may be at most `staleness` steps ahead of the slowest. It is counted here alone, whatever ps tasks the steps
// have touched. Counted are those who train, or may begin to at any time: a worker that waits for something else cannot
// step.
#include "common/base/sometimes.h"
#include "psd/control/state.h"

static bool clock_is_ssp(const struct psd_mode *m)
{
    return m->update == PARAMSERVER__V1__UPDATE__SSP;
}

void psd_clock_advance(struct psd_control *c, struct psd_call **ready)
{
    c->slowest = ps_heap_least(&c->clocks);
    while (c->gates.n && ps_heap_least(&c->gates) <= c->slowest) {
        struct psd_member *m = &c->members[ps_heap_first(&c->gates)];
        psd_ready_after(ready, &m->for_clock, c->mover);
        psd_member_recount(c, m);
    }
}

void psd_clock_level(struct psd_control *c, struct psd_member *m)
{
    uint64_t others = ps_heap_least_but(&c->clocks, psd_rank_of(c, m));
    if (others == UINT64_MAX || m->clock >= others)
        return;
    m->clock = others;
    psd_member_recount(c, m);
}

void psd_clock_align(struct psd_control *c)
{
    uint64_t greatest = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        if (psd_is_live(&c->members[i]) && c->members[i].clock > greatest)
            greatest = c->members[i].clock;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct psd_member *m = &c->members[i];
        if (!psd_is_live(m) || m->clock == greatest)
            continue;
        m->clock = greatest;
        psd_member_recount(c, m);
    }
}

// Clocks are level since the epoch ended, and have stood still where it was not ssp. Where they begin to count, what
// was trained before is not in it.
void psd_clock_change_mode(struct psd_control *c, const struct psd_mode *mode, struct psd_call **ready)
{
    const bool starts = !clock_is_ssp(&c->mode) && clock_is_ssp(mode);
    c->mode = *mode;
    psd_clock_align(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        c->members[i].clock_starts |= starts;
        psd_member_recount(c, &c->members[i]);
    }
    psd_clock_advance(c, ready);
    ps_sometimes(PS_SOMETIMES_MODE_CHANGED);
}

// Counted is what was trained under ssp. A step that was counted in an earlier epoch may come once more, and begins
// nothing.
static void clock_count(struct psd_control *c, struct psd_member *m, uint64_t step)
{
    if (step <= m->clock_step)
        return;
    c->mover = psd_rank_of(c, m) + 1;
    m->clock += m->clock_starts ? 0 : step - m->clock_step;
    m->clock_step = step;
    m->clock_starts = false;
    psd_member_recount(c, m);
}

int psd_clock_step(struct psd_job *job, struct psd_member *m, const Paramserver__V1__ClockRequest *r,
                   Paramserver__V1__ClockReply *out, struct psd_call **ready, struct ps_error *e)
{
    struct psd_control *c = job->control;
    const bool is_ssp = clock_is_ssp(&c->mode);
    if (!is_ssp && !c->follows_mode)
        return ps_fail(e, PS_FAILED_PRECONDITION, "clock: job '%s' is not ssp", job->name);
    if (is_ssp)
        clock_count(c, m, r->step);
    psd_clock_advance(c, ready);
    if (is_ssp && r->wait && psd_clock_gate(c, m) > c->slowest)
        return PSD_WAITS;
    out->clock = m->clock;
    out->slowest = c->slowest == UINT64_MAX ? m->clock : c->slowest;
    if (is_ssp && r->wait && m->clock > out->slowest && m->clock - out->slowest > c->farthest)
        c->farthest = m->clock - out->slowest;
    return PS_OK;
}
