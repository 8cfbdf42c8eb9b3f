// SPDX-License-Identifier: Apache-2.0
//
// What a person sees while a job trains: Keras's progress bar on a terminal, one line per epoch elsewhere and where
// TERM is dumb. No colour where NO_COLOR is set, ASCII where the locale is not UTF-8.
#ifndef WK_PROGRESS_H
#define WK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "workerd/job/figures.h"

struct wk_progress {
    bool quiet;  // may change between any two calls: only the chief shows its progress
    bool terminal, colour, utf8;
    uint64_t epochs, steps;      // in all; per epoch
    uint64_t epoch, step, from;  // from: with which the epoch, of which some was trained before, goes on
    uint64_t began, drawn;       // ns
    bool open, headed;           // an epoch has begun and not ended; its title is shown
};

void wk_progress_init(struct wk_progress *p, bool quiet, uint64_t epochs, uint64_t steps);
void wk_progress_epoch_begin(struct wk_progress *p, uint64_t epoch, uint64_t step);
// Counts a step. True: it is time to draw.
bool wk_progress_step(struct wk_progress *p);
// The figures of the epoch so far.
void wk_progress_show(struct wk_progress *p, const struct wk_figures *figures);
void wk_progress_epoch_end(struct wk_progress *p, const struct wk_figures *figures);
void wk_progress_fini(struct wk_progress *p);  // ends the line of an epoch that did not end

#endif
