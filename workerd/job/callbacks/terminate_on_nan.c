// SPDX-License-Identifier: Apache-2.0
//
// Ends the training after a step whose loss is a NaN or infinite.
#include <inttypes.h>
#include <math.h>

#include "common/base/log.h"
#include "workerd/job/callback.h"

static enum ps_code terminate_on_nan_step(void *state, struct wk_moment *m, struct ps_error *e)
{
    (void)state;
    (void)e;
    if (isfinite(m->result.loss))
        return PS_OK;
    if (!m->run->quiet)
        ps_warn("step %" PRIu64 ": the loss is %g: the training ends", m->run->position.step - 1, m->result.loss);
    m->stop = true;
    return PS_OK;
}

const struct wk_callback_class wk_terminate_on_nan = {
    .name = "terminate_on_nan",
    .steers = true,
    .step = terminate_on_nan_step,
};
