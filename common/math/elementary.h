// SPDX-License-Identifier: Apache-2.0
// Elementary functions that have the same bits on every machine. Those of the C library come in variants by CPU, which
// may differ in the last bit.
#ifndef PS_COMMON_ELEMENTARY_H
#define PS_COMMON_ELEMENTARY_H

#include <stdint.h>

// base to the exponent, base >= 0. Relative error below 1e-15 * (1 + |log of the result|).
double ps_power(double base, double exponent);
double ps_power_int(double base, uint64_t exponent);

// cos(pi * x), 0 <= x <= 1. Absolute error below 1e-15; exactly 1 at 0, 0 at 1/2 and -1 at 1.
double ps_cos_pi(double x);

#endif
