// SPDX-License-Identifier: Apache-2.0
//
// The state of a cluster in a few sentences for people: is it well, what can be lost, which worker is worst, what to
// type next.
//
// Receives from: the status page. No state; any thread.
#ifndef PSD_HTTP_SUMMARY_H
#define PSD_HTTP_SUMMARY_H

#include "psd/http/overview.h"

enum psd_level { PSD_LEVEL_OK, PSD_LEVEL_WARNING, PSD_LEVEL_BAD };

struct psd_summary {
    enum psd_level level;
    char state[640], risk[640], worst[640];  // a sentence each
    char command[256];                       // of psctl
};

void psd_summarize(const struct psd_overview *overview, struct psd_summary *summary);
const char *psd_level_name(enum psd_level level);  // "ok", "warning", "bad"

#endif
