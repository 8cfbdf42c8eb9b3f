// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/variables.h"

#include "common/alloc.h"
#include "workerd/strategy/history.h"

static const uint64_t history_shape[] = {WK_HISTORY_ROWS, WK_HISTORY_COLUMNS};
const psc_variable wk_history_variable = {"workerd/history", PSC_FLOAT64, history_shape, 2, false};

psc_variable *wk_variables(const struct nn_model *model, size_t *n)
{
    size_t params = nn_model_params(model);
    psc_variable *v = ps_alloc((params + 1) * sizeof *v);
    for (size_t i = 0; i < params; i++) {
        const struct nn_param *p = nn_model_param(model, i);
        v[i] = (psc_variable){p->name, PSC_FLOAT32, p->shape, p->rank, p->trainable};
    }
    v[params] = wk_history_variable;
    *n = params + 1;
    return v;
}
