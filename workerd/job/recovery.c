// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/recovery.h"

#include <inttypes.h>

#include "common/base/clock.h"

// Others are lost, or this worker came while the run was at its end. Before the first step workers may have met with
// different checkpoints, of which one was written or removed meanwhile; and once the training has stood still, before
// the run that has ended was given up.
static bool recovery_is_of_others(const struct wk_recovery *r, const struct wk_ended *ended, enum ps_code code)
{
    const bool stood_still = r->since != 0;
    if (code == PS_ABORTED || ended->lost)
        return true;
    if (code == PS_UNAVAILABLE)
        return ended->opened || stood_still;
    if (ended->trained)
        return false;
    return code == PS_FAILED_PRECONDITION || code == PS_NOT_FOUND ? ended->outdated || stood_still
                                                                  : code == PS_ALREADY_EXISTS && stood_still;
}

static bool recovery_gives_up(struct wk_recovery *r, const struct wk_ended *ended, uint64_t now, struct ps_error *e)
{
    const struct ps_error why = *e;
    if (r->ends > WK_RECOVERY_ENDS) {
        ps_fail(e, PS_INTERNAL, "the training has ended early %u times on its way from step %" PRIu64 ": %s", r->ends,
                r->checkpoint, why.text);
        return true;
    }
    if (now - r->since > ended->patience) {
        ps_error_prefix(e, "the training has not gone on for %.0f s", (double)(now - r->since) / (double)PS_SECOND);
        return true;
    }
    return false;
}

bool wk_recovery_begins(struct wk_recovery *r, const struct wk_ended *ended, uint64_t now, struct ps_error *e)
{
    if (!ended->recovers || ended->data_lost || !recovery_is_of_others(r, ended, e->code))
        return false;
    if (!r->since || ended->trained)
        r->since = now;
    if (ended->trained) {
        r->ends = ended->checkpoint > r->checkpoint ? 1 : r->ends + 1;
        r->checkpoint = ended->checkpoint;
    }
    return !recovery_gives_up(r, ended, now, e);
}
