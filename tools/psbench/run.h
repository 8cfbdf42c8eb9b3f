// SPDX-License-Identifier: Apache-2.0
#ifndef PSBENCH_RUN_H
#define PSBENCH_RUN_H

#include "common/base/error.h"
#include "tools/psbench/case.h"

// Measures every case plan->repeat times in turn, each time with servers of its own. Says on standard error how far it
// is where that is a terminal.
enum ps_code run_all(const struct bench_plan *plan, struct bench_cases *cases, struct ps_error *e);

#endif
