// SPDX-License-Identifier: Apache-2.0
//
// What psctl doctor has found: one line each, a verdict, what it is about, what was seen, what to do.
#ifndef PSCTL_FINDINGS_H
#define PSCTL_FINDINGS_H

#include <stdbool.h>

#include "common/base/error.h"
#include "tools/common/table.h"

enum verdict {
    VERDICT_OK,
    VERDICT_WARNING,      // works, but look at it
    VERDICT_FAILED,       // a job has ended badly
    VERDICT_WRONG,        // set up wrong
    VERDICT_UNREACHABLE,  // not there, or does not answer
};

struct findings {
    struct table table;
    enum verdict worst;
};

void findings_init(struct findings *f);
void findings_fini(struct findings *f);

// advice: NULL where there is nothing to do. What the two are made of is cut at 400 bytes.
void findings_add(struct findings *f, enum verdict verdict, const char *subject, const char *advice, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));
// For people a line each: verdict, what, finding; what to do.
void findings_show(const struct findings *f, bool json, FILE *to);
// 0: nothing but OK and warnings; 75 a job has failed; 78 set up wrong; 69 something cannot be reached.
int findings_exit(const struct findings *f);

// For Nagios, Icinga and their like (Monitoring Plugins, Development Guidelines): a line with OK, WARNING or CRITICAL,
// the worst finding, and the counts as performance data; then a line for each other finding that is not well. Returns
// the exit code, 0 to 2. error: why nothing was found: UNKNOWN, 3.
int findings_plugin(const struct findings *f, FILE *to);
int findings_plugin_unknown(const struct ps_error *error, FILE *to);

#endif
