// SPDX-License-Identifier: Apache-2.0
//
// What is made of many measurements: the median with its range, and a histogram of latencies.
#ifndef PSBENCH_STATS_H
#define PSBENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

struct spread {
    double median, min, max;  // NaN: of no values
};

// Of v[n], which it sorts. The median of an even number of values is the mean of the two in the middle. NaNs are left
// out.
struct spread spread_of(double *v, size_t n);

// Counts of values from 0 to 2^42 (larger ones count as that), each known to within 0.8 %: HISTOGRAM_STEPS buckets per
// power of two.
enum {
    HISTOGRAM_STEPS = 64,
    HISTOGRAM_POWERS = 42 - 6,
    HISTOGRAM_BUCKETS = (HISTOGRAM_POWERS + 1) * HISTOGRAM_STEPS,
};

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
// The least value that a fraction q of all values do not exceed, rounded to the middle of its bucket. NaN: there are no
// values.
double histogram_quantile(const struct histogram *h, double q);

#endif
