// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/home.h"

static enum ps_code home_need(void *arg, size_t variable, struct ps_error *e)
{
    struct home *h = arg;
    float *value = nn_replica_param(h->replica, variable);
    if (h->refuse == variable + 1)
        return ps_fail(e, PS_UNAVAILABLE, "variable %zu does not come", variable);
    for (uint64_t i = 0; i < nn_model_param(h->model, variable)->count; i++)
        value[i] += 0;
    h->needed[h->n_needed++] = variable;
    return PS_OK;
}

static enum ps_code home_ready(void *arg, size_t variable, struct ps_error *e)
{
    struct home *h = arg;
    float *value = nn_replica_param(h->replica, variable), *gradient = nn_replica_grad(h->replica, variable);
    for (uint64_t i = 0; i < nn_model_param(h->model, variable)->count; i++) {
        if (h->gradient[variable])
            h->gradient[variable][i] = gradient[i];
        value[i] -= h->rate * gradient[i];
        gradient[i] = 0;
    }
    h->ready[h->n_ready++] = variable;
    return h->n_ready == h->most ? ps_fail(e, PS_ABORTED, "nobody wants more") : PS_OK;
}

struct nn_hooks home_hooks(struct home *home)
{
    return (struct nn_hooks){home_need, home_ready, NULL, home};
}
