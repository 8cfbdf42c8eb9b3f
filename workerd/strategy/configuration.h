// SPDX-License-Identifier: Apache-2.0
//
// What all workers of a job must have alike: wk_peers_options.configuration, psc_options.configuration.
#ifndef WK_CONFIGURATION_H
#define WK_CONFIGURATION_H

#include "workerd/strategy/strategy.h"

// Of the job file, what the model is, how many training examples there are and what numbers their words and classes
// have; malloc'd. A training that goes on has it alike, too.
char *wk_configuration(const struct wk_env *env);
// And how many test examples there are, which workers evaluate together.
char *wk_configuration_to_meet(const struct wk_env *env);
// And the checkpoint with which all begin, where they have nothing else to compare.
char *wk_configuration_to_begin(const struct wk_env *env);

#endif
