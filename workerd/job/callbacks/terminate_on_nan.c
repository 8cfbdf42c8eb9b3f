// SPDX-License-Identifier: Apache-2.0
//
// Ends the training after a step whose loss is a NaN or infinite; where others take the steps with this replica, which
// wait for it, with the epoch.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/job/callback.h"

struct terminate_on_nan {
    bool said;  // that the training ends
};

static enum ps_code terminate_on_nan_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                          struct ps_error *e)
{
    (void)settings;
    (void)run;
    (void)e;
    *state = ps_alloc(sizeof(struct terminate_on_nan));
    return PS_OK;
}

static enum ps_code terminate_on_nan_step(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct terminate_on_nan *s = state;
    const struct wk_group *group = m->run->strategy->group;
    const double loss = m->result.loss;
    (void)e;
    if (isfinite(loss))
        return PS_OK;
    if (!m->run->quiet && !s->said)
        ps_warn("step %" PRIu64 ": the loss is %s: the training ends%s", m->step, isnan(loss) ? "nan" : "infinite",
                group->in_rounds && group->in_rounds(m->run->state) ? " with the epoch" : "");
    s->said = true;
    m->stop = true;
    return PS_OK;
}

const struct wk_callback_class wk_terminate_on_nan = {
    .name = "terminate_on_nan",
    .steers = true,
    .open = terminate_on_nan_open,
    .close = free,
    .step = terminate_on_nan_step,
};
