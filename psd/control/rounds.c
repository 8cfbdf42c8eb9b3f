// SPDX-License-Identifier: Apache-2.0
//
// A job comes into its rounds, or leaves them, as a kind of agreement. Room is kept when a change to sync is asked for,
// so that the end of the epoch, when the rounds begin, has no reason to fail.
#include <inttypes.h>
#include <stdio.h>

#include "common/base/error.h"
#include "psd/control/agree.h"
#include "psd/control/state.h"
#include "psd/job/hyper.h"
#include "psd/sync/sync.h"

static enum psd_rounds_change rounds_change_of(const struct psd_proposal *p)
{
    enum psd_rounds_change change;
    struct psd_mode mode;
    return psd_mode_read(p, &change, &mode) ? change : 0;
}

static enum ps_code rounds_check(const struct psd_job *job, const struct psd_proposal *p, struct ps_error *e)
{
    const enum psd_rounds_change change = rounds_change_of(p);
    const bool numbered = change == PSD_ROUNDS_BEGIN || change == PSD_ROUNDS_END;
    if (!change)
        return ps_fail(e, PS_INVALID_ARGUMENT, "the rounds of job '%s': a value of %zu bytes says nothing of them",
                       job->name, p->bytes);
    if (numbered != (p->round != 0))
        return ps_fail(e, PS_INVALID_ARGUMENT, "the rounds of job '%s' begin or end at round %" PRIu64, job->name,
                       p->round);
    return PS_OK;
}

static enum ps_code rounds_reserve(struct psd_job *job, const struct psd_proposal *p, uint64_t least, uint64_t *missing)
{
    (void)least;
    switch (rounds_change_of(p)) {
    case PSD_ROUNDS_KEEP:
    case PSD_ROUNDS_BEGIN:
        return psd_sync_keep(job, missing) ? PS_OK : PS_RESOURCE_EXHAUSTED;
    case PSD_ROUNDS_END:
        return psd_sync_settle(job) ? PS_OK : PS_UNAVAILABLE;
    case PSD_ROUNDS_GIVE_UP:
        break;
    }
    return PS_OK;
}

static void rounds_take(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    switch (rounds_change_of(p)) {
    case PSD_ROUNDS_KEEP:
        break;
    case PSD_ROUNDS_BEGIN:
        psd_sync_begin(job, p->round);
        psd_view_begin_rounds(job, ready);
        break;
    case PSD_ROUNDS_END:
        psd_sync_end(job, ready);
        psd_hyper_leave_rounds(job, p->round - 1);
        break;
    case PSD_ROUNDS_GIVE_UP:
        psd_sync_give_up(job);
        break;
    }
}

static void rounds_forget(struct psd_job *job, const struct psd_proposal *p)
{
    if (rounds_change_of(p) == PSD_ROUNDS_KEEP)
        psd_sync_give_up(job);
}

static void rounds_describe(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size)
{
    static const char *const what[] = {[0] = "its rounds change",
                                       [PSD_ROUNDS_KEEP] = "memory for the gradients of its rounds is kept",
                                       [PSD_ROUNDS_BEGIN] = "the job comes into its rounds",
                                       [PSD_ROUNDS_END] = "the job leaves its rounds",
                                       [PSD_ROUNDS_GIVE_UP] = "memory for its rounds is given up"};
    (void)job;
    snprintf(text, size, "%s", what[rounds_change_of(p)]);
}

static void rounds_done(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready)
{
    if (psd_mode_decided(job, p, ready))
        psd_control_advance(job, ready);
}

const struct psd_agree_kind psd_agree_rounds = {.name = "set mode",
                                                .room_for = "the gradients of rounds",
                                                .between_rounds = true,
                                                .check = rounds_check,
                                                .reserve = rounds_reserve,
                                                .take = rounds_take,
                                                .forget = rounds_forget,
                                                .done = rounds_done,
                                                .describe = rounds_describe};
