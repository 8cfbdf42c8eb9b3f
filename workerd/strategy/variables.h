// SPDX-License-Identifier: Apache-2.0
//
// The variables of a job, in the order in which the chief declares them; psctl plan shows the same.
#ifndef WK_VARIABLES_H
#define WK_VARIABLES_H

#include "libclient/psclient.h"
#include "workerd/nn/model.h"

// All of them, malloc'd in one piece; names and shapes live as long as the model. state_momentum: with which states
// follow what is pushed; NULL: with that of their layer.
psc_variable *wk_variables(const struct nn_model *model, const double *state_momentum, size_t *n);

#endif
