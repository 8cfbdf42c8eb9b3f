// SPDX-License-Identifier: Apache-2.0
//
// The variables of a job, in the order in which the chief declares them; psctl plan shows the same.
#ifndef WK_VARIABLES_H
#define WK_VARIABLES_H

#include "libclient/psclient.h"
#include "workerd/nn/model.h"

// The variable is a table that an Embedding trains: what hybrid has on the ps tasks, and nothing else.
bool wk_is_table(const struct nn_param *p);

// Those of which `has` says so (NULL: all), malloc'd in one piece; names and shapes live as long as the model. state_momentum: with which states
// follow what is pushed; NULL: with that of their layer.
psc_variable *wk_variables(const struct nn_model *model, bool (*has)(const struct nn_param *p),
                           const double *state_momentum, size_t *n);

#endif
