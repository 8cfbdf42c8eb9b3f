// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/variables.h"

#include "common/base/alloc.h"

psc_variable *wk_variables(const struct nn_model *model, const double *state_momentum, size_t *n)
{
    *n = nn_model_params(model);
    psc_variable *v = ps_alloc(*n * (sizeof *v + sizeof(psc_hyper)));
    psc_hyper *momentum = (psc_hyper *)(v + *n);
    for (size_t i = 0; i < *n; i++) {
        const struct nn_param *p = nn_model_param(model, i);
        v[i] = (psc_variable){p->name, PSC_FLOAT32, p->shape, p->rank, p->trainable, p->rule, NULL, 0};
        if (!p->rule)
            continue;
        momentum[i] = (psc_hyper){"momentum", state_momentum ? *state_momentum : p->momentum};
        v[i].hypers = &momentum[i];
        v[i].n_hypers = 1;
    }
    return v;
}
