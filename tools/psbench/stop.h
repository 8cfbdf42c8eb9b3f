// SPDX-License-Identifier: Apache-2.0
#ifndef PSBENCH_STOP_H
#define PSBENCH_STOP_H

#include <stdbool.h>

#include "common/base/error.h"

// From now on SIGINT, SIGTERM and SIGHUP do not end psbench but ask it to end, so that it takes its servers along.
void stop_watch(void);
// Has one of them come? Then *e says so, CANCELLED.
bool stop_asked(struct ps_error *e);
// Its number; 0: none has come.
int stop_signal(void);

#endif
