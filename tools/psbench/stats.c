// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/stats.h"

#include <math.h>
#include <stdlib.h>

static int stats_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(double *v, size_t n)
{
    size_t known = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(v[i]))
            v[known++] = v[i];
    if (known == 0)
        return (struct spread){NAN, NAN, NAN};
    qsort(v, known, sizeof *v, stats_compare);
    return (struct spread){(v[(known - 1) / 2] + v[known / 2]) / 2, v[0], v[known - 1]};
}

// Values below HISTOGRAM_STEPS have a bucket each; from there on every power of two is cut into HISTOGRAM_STEPS.
static size_t histogram_bucket(uint64_t value)
{
    if (value < HISTOGRAM_STEPS)
        return value;
    int shift = 63 - __builtin_clzll(value) - 6;
    size_t bucket = (size_t)(shift + 1) * HISTOGRAM_STEPS + (value >> shift) - HISTOGRAM_STEPS;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static double histogram_middle(size_t bucket)
{
    if (bucket < HISTOGRAM_STEPS)
        return (double)bucket;
    int shift = (int)(bucket / HISTOGRAM_STEPS) - 1;
    return ldexp((double)(bucket % HISTOGRAM_STEPS + HISTOGRAM_STEPS) + 0.5, shift) - 0.5;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    h->counts[histogram_bucket(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->counts[i] += from->counts[i];
}

double histogram_quantile(const struct histogram *h, double q)
{
    uint64_t all = 0, seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        all += h->counts[i];
    double wanted = q * (double)all;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > 0 && (double)seen >= wanted)
            return histogram_middle(i);
    }
    return NAN;
}
