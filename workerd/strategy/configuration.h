// SPDX-License-Identifier: Apache-2.0
//
// What all workers of a job must have alike: psc_options.configuration.
#ifndef WK_CONFIGURATION_H
#define WK_CONFIGURATION_H

#include "workerd/strategy/strategy.h"

// Of the job file, and what the model and the data are; malloc'd. NULL: the model's file cannot be read any more.
char *wk_configuration(const struct wk_env *env, struct ps_error *e);

#endif
