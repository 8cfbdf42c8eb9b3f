// SPDX-License-Identifier: Apache-2.0
//
// A job's figures, of what its workers reported last.
//
// Receives from: psd's HTTP pages, and the summary beside it. No state; any thread.
#ifndef PS_COMMON_FIGURES_H
#define PS_COMMON_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/paramserver.pb-c.h"

struct ps_figures {
    uint32_t expected, live, left, dead;      // workers in each state
    bool trains;                              // a live worker has reported a step: else the next two mean nothing
    double examples_per_second;               // the sum over live workers
    double loss;                              // the mean over live workers
    const Paramserver__V1__Member *slowest;   // live and not excluded, of least step, then speed; NULL: fewer than two
    const Paramserver__V1__Member *any_dead;  // NULL: there is none
};

// Of a job: the epoch that it is in, counted from 0. False: nobody has said.
bool ps_job_epoch(const Paramserver__V1__JobStatus *job, uint64_t *epoch);

// workers: NULL: they are not known, and all is 0.
struct ps_figures ps_figures_of(const Paramserver__V1__WorkersReply *workers);
bool ps_figures_has_diverged(const struct ps_figures *f);  // it trains, and its loss is not finite
// Else nothing of what it would report is known: it is awaited, or was given up.
bool ps_member_has_joined(const Paramserver__V1__Member *m);
// "expected", "live", "left" (also by a signal), "dead".
const char *ps_member_state(const Paramserver__V1__Member *m);
const char *ps_mode_name(Paramserver__V1__Update update);  // "async", "sync", "ssp"; "": not declared yet

#endif
