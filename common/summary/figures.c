// SPDX-License-Identifier: Apache-2.0
#include "common/summary/figures.h"

#include <math.h>

bool ps_member_has_joined(const Paramserver__V1__Member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE || m->incarnation || m->address[0];
}

const char *ps_member_state(const Paramserver__V1__Member *m)
{
    switch (m->state) {
    case PARAMSERVER__V1__MEMBER_STATE__EXPECTED:
        return "expected";
    case PARAMSERVER__V1__MEMBER_STATE__LIVE:
        return "live";
    case PARAMSERVER__V1__MEMBER_STATE__LEFT:
        return "left";
    case PARAMSERVER__V1__MEMBER_STATE__DEAD:
        return m->interrupted ? "left" : "dead";
    default:
        return "";
    }
}

const char *ps_mode_name(Paramserver__V1__Update update)
{
    switch (update) {
    case PARAMSERVER__V1__UPDATE__ASYNC:
        return "async";
    case PARAMSERVER__V1__UPDATE__SYNC:
        return "sync";
    case PARAMSERVER__V1__UPDATE__SSP:
        return "ssp";
    default:
        return "";
    }
}

// Where examples are leased out that says it; else the chief does.
bool ps_job_epoch(const Paramserver__V1__JobStatus *job, uint64_t *epoch)
{
    *epoch = job->examples ? job->data_epoch : job->progress ? job->progress->epochs_ended : 0;
    return job->examples || job->progress;
}

static void figures_count(struct ps_figures *f, const Paramserver__V1__Member *m)
{
    f->expected += m->state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    f->live += m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE;
    const bool dead = m->state == PARAMSERVER__V1__MEMBER_STATE__DEAD;
    f->left += m->state == PARAMSERVER__V1__MEMBER_STATE__LEFT || (dead && m->interrupted);
    f->dead += dead && !m->interrupted;
    if (dead && !m->interrupted && !f->any_dead)
        f->any_dead = m;
}

static bool figures_is_slower(const Paramserver__V1__Member *m, const Paramserver__V1__Member *than)
{
    return !than || m->step < than->step ||
           (m->step == than->step && m->examples_per_second < than->examples_per_second);
}

struct ps_figures ps_figures_of(const Paramserver__V1__WorkersReply *workers)
{
    struct ps_figures f = {0};
    uint32_t reported = 0, trying = 0;
    for (size_t i = 0; workers && i < workers->n_members; i++) {
        const Paramserver__V1__Member *m = workers->members[i];
        figures_count(&f, m);
        if (m->state != PARAMSERVER__V1__MEMBER_STATE__LIVE || m->step == 0)
            continue;
        reported++;
        f.examples_per_second += m->examples_per_second > 0 ? m->examples_per_second : 0;
        f.loss += m->loss;
        trying += !m->excluded;
        if (!m->excluded && figures_is_slower(m, f.slowest))
            f.slowest = m;
    }
    f.trains = reported > 0;
    f.loss = reported ? f.loss / reported : 0;
    f.slowest = trying > 1 ? f.slowest : NULL;
    return f;
}

bool ps_figures_has_diverged(const struct ps_figures *f)
{
    return f->trains && !isfinite(f->loss);
}
