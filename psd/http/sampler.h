// SPDX-License-Identifier: Apache-2.0
//
// Looks every PSD_HISTORY_SECONDS and adds what it saw to the history.
//
// Receives from: the core, by looks. Hands to: history. Threads: its own, with all signals blocked.
#ifndef PSD_HTTP_SAMPLER_H
#define PSD_HTTP_SAMPLER_H

#include "psd/http/history.h"

struct psd_sampler;

// Core and history outlive it. RESOURCE_EXHAUSTED: no memory, or no thread.
enum ps_code psd_sampler_start(struct psd_core *core, struct psd_history *history, struct psd_sampler **sampler,
                               struct ps_error *e);
void psd_sampler_stop(struct psd_sampler *s);  // may be NULL

#endif
