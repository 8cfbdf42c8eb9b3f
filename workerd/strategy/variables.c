// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/variables.h"

#include "common/base/alloc.h"

bool wk_is_table(const struct nn_param *p)
{
    return p->trainable && p->table;
}

static void variables_add(psc_variable *v, psc_hyper *momentum, const struct nn_param *p, const double *state_momentum)
{
    *v = (psc_variable){p->name, PSC_FLOAT32, p->shape, p->rank, p->trainable, p->rule, NULL, 0};
    if (!p->rule)
        return;
    *momentum = (psc_hyper){"momentum", state_momentum ? *state_momentum : p->momentum};
    v->hypers = momentum;
    v->n_hypers = 1;
}

psc_variable *wk_variables(const struct nn_model *model, bool (*has)(const struct nn_param *p),
                           const double *state_momentum, size_t *n)
{
    const size_t all = nn_model_params(model);
    psc_variable *v = ps_alloc(all * (sizeof *v + sizeof(psc_hyper)));
    psc_hyper *momentum = (psc_hyper *)(v + all);
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        const struct nn_param *p = nn_model_param(model, i);
        if (has && !has(p))
            continue;
        variables_add(&v[*n], &momentum[*n], p, state_momentum);
        ++*n;
    }
    return v;
}
