// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job add up what each has seen: through one more variable of the job, which takes part in no
// round. It has a fixed shape, so that a job can be resumed with other epochs; a longer history goes through it piece by
// piece.
#ifndef WK_HISTORY_H
#define WK_HISTORY_H

#include "libclient/psclient.h"
#include "workerd/strategy/strategy.h"

// wk_history_variable's shape. A row is (sum of losses, examples), of a step or of all.
enum { WK_HISTORY_ROWS = 4096, WK_HISTORY_COLUMNS = 2 };

// The chief's, before anyone trains: rows left behind by a run that was cut short.
enum ps_code wk_history_clear(psc_client *client, struct ps_error *e);
// All live workers call it after their last step. per_step: all have made the same steps, and their losses and examples
// are added up step by step; else the totals alone are. Afterwards the chief's *h has the sums.
enum ps_code wk_history_join(psc_client *client, bool per_step, struct wk_history *h, struct ps_error *e);

// A client's error as one of ours; returns its code.
enum ps_code wk_take_error(const psc_error *from, struct ps_error *e);

#endif
