// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job add up what each has seen.
#ifndef WK_HISTORY_H
#define WK_HISTORY_H

#include "libclient/psclient.h"
#include "workerd/strategy/strategy.h"

// All live workers call it after their last step. per_step: step k is the same for all, and losses and examples are
// added up step by step; else the totals alone are. Afterwards everyone's *h has the sums.
enum ps_code wk_history_join(psc_client *client, bool per_step, struct wk_history *h, struct ps_error *e);

// Sums of all live workers' values, in a reduction of this name.
enum ps_code wk_history_add_up(psc_client *client, const char *name, double *values, uint64_t n, struct ps_error *e);

// A client's error as one of ours; returns its code.
enum ps_code wk_take_error(const psc_error *from, struct ps_error *e);

#endif
