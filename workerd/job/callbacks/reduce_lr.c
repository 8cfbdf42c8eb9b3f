// SPDX-License-Identifier: Apache-2.0
//
// Multiplies the learning rate by `factor` when a figure has not become better for `patience` epochs; for `cooldown`
// epochs after that it does not count.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/job/callbacks/monitor.h"

struct reduce_lr {
    struct wk_monitor monitor;
    double factor, min_rate;
    uint64_t patience, cooldown, wait, cooling;
};

static enum ps_code reduce_lr_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                   struct ps_error *e)
{
    struct wk_monitor monitor;
    if (wk_monitor_open(settings, ps_callback_real(settings, "min_delta"), run, &monitor, e))
        return e->code;
    struct reduce_lr *s = ps_alloc(sizeof *s);
    *s = (struct reduce_lr){.monitor = monitor,
                            .factor = ps_callback_real(settings, "factor"),
                            .min_rate = ps_callback_real(settings, "min_lr"),
                            .patience = ps_callback_count(settings, "patience"),
                            .cooldown = ps_callback_count(settings, "cooldown")};
    *state = s;
    return PS_OK;
}

// An epoch that warms up has the rate of the warm-up, whatever was set before it, as with Horovod's callback.
static void reduce_lr_reduce(struct reduce_lr *s, const struct wk_moment *m, double rate)
{
    if (rate <= (double)(float)s->min_rate)
        return;
    const double reduced = fmax(rate * s->factor, s->min_rate);
    const bool warms_up = (double)(m->epoch + 1) < m->run->env.job->warmup_epochs;
    if (!warms_up)
        m->run->strategy->home->set_rate(m->run->state, reduced);
    if (m->leads && warms_up)
        ps_info("epoch %" PRIu64 ": the learning rate is not reduced, as it still warms up", m->epoch + 1);
    else if (m->leads)
        ps_info("epoch %" PRIu64 ": the learning rate is reduced to %.6g", m->epoch + 1, reduced);
    s->cooling = s->cooldown;
    s->wait = 0;
}

// Keras's learning rate is a float32. Of two such callbacks the last one's figure counts, as there.
static enum ps_code reduce_lr_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct reduce_lr *s = state;
    const double *value = wk_monitor_value(&s->monitor, m->run);
    double rate = (double)(float)m->run->strategy->home->rate(m->run->state), now = value ? *value : 0;
    (void)e;
    wk_figures_set(&m->run->figures, "learning_rate", rate);
    if (!value)
        return PS_OK;
    if (s->cooling > 0) {
        s->cooling--;
        s->wait = 0;
    }
    if (wk_monitor_is_better(&s->monitor, now, s->monitor.best)) {
        s->monitor.best = now;
        s->wait = 0;
    } else if (s->cooling == 0 && ++s->wait >= s->patience) {
        reduce_lr_reduce(s, m, rate);
    }
    return PS_OK;
}

static bool reduce_lr_tell(const void *state, double *numbers)
{
    const struct reduce_lr *s = state;
    numbers[0] = s->monitor.best;
    numbers[1] = (double)s->wait;
    numbers[2] = (double)s->cooling;
    return true;
}

static void reduce_lr_take(void *state, const double *numbers)
{
    struct reduce_lr *s = state;
    s->monitor.best = numbers[0];
    s->wait = (uint64_t)numbers[1];
    s->cooling = (uint64_t)numbers[2];
}

static void reduce_lr_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct reduce_lr *s = state;
    (void)arrays;
    (void)prefix;
    wk_monitor_save(&s->monitor, to);
    json_object_set_new(to, "wait", json_integer((json_int_t)s->wait));
    json_object_set_new(to, "cooling", json_integer((json_int_t)s->cooling));
}

static enum ps_code reduce_lr_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                   const char *prefix, struct ps_error *e)
{
    struct reduce_lr *s = state;
    bool goes_on;
    if (wk_monitor_load(&s->monitor, from, arrays, prefix, &goes_on, e) ||
        (goes_on && wk_state_count(from, "wait", &s->wait, e)))
        return e->code;
    return wk_state_count(from, "cooling", &s->cooling, e);
}

const struct wk_callback_class wk_reduce_lr_on_plateau = {
    .name = "reduce_lr_on_plateau",
    .steers = true,
    .open = reduce_lr_open,
    .close = free,
    .epoch_end = reduce_lr_epoch_end,
    .tell = reduce_lr_tell,
    .take = reduce_lr_take,
    .save = reduce_lr_save,
    .load = reduce_lr_load,
};
