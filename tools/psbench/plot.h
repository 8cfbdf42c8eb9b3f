// SPDX-License-Identifier: Apache-2.0
#ifndef PSBENCH_PLOT_H
#define PSBENCH_PLOT_H

#include <stdio.h>

#include "tools/psbench/case.h"

// GB/s over size (both on logarithmic axes) as SVG: a line through the medians of each configuration, from min to max
// the repetitions, plain sockets dashed.
void plot_write(const struct bench_cases *cases, FILE *to);

#endif
