// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/history.h"

#include <stdio.h>

#include "workerd/strategy/losses.h"

enum ps_code wk_take_error(const psc_error *from, struct ps_error *e)
{
    e->code = (enum ps_code)from->code;
    snprintf(e->text, sizeof e->text, "%s", from->text);
    return e->code;
}

enum ps_code wk_history_add_up(psc_client *client, const char *name, double *values, uint64_t n, struct ps_error *e)
{
    psc_error error;
    if (psc_reduce(client, name, PSC_SUM, PSC_FLOAT64, values, n, NULL, &error))
        return wk_take_error(&error, e);
    return PS_OK;
}

// Who came late or left early has seen fewer steps: everyone's history is made as long as the longest.
static enum ps_code agree_on_steps(psc_client *client, struct wk_history *h, struct ps_error *e)
{
    int64_t steps = (int64_t)h->steps;
    psc_error error;
    if (psc_reduce(client, "steps", PSC_MAX, PSC_INT64, &steps, 1, NULL, &error))
        return wk_take_error(&error, e);
    wk_losses_extend(h, (uint64_t)steps);
    return PS_OK;
}

enum ps_code wk_history_join(psc_client *client, bool per_step, struct wk_history *h, struct ps_error *e)
{
    double examples[] = {h->total_examples, h->examples_before};
    if (wk_history_add_up(client, "examples of all", examples, 2, e))
        return e->code;
    h->total_examples = examples[0];
    if (!per_step)
        return PS_OK;
    h->examples_before = examples[1];
    if (agree_on_steps(client, h, e) || wk_history_add_up(client, "losses", h->loss, wk_losses_kept(h), e))
        return e->code;
    return wk_history_add_up(client, "examples", h->examples, wk_losses_kept(h), e);
}
