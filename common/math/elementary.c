// SPDX-License-Identifier: Apache-2.0
//
// Series short enough that they are exact to the last bits of a double on the intervals they are used on. Only
// operations that every machine rounds alike: compiled without contraction into fused multiply-adds.
#include "common/math/elementary.h"

#include <math.h>

// ln 2 in two parts: the first has 32 bits, so that its product with an exponent of 2 is exact.
static const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;

// x = m * 2^k with m between sqrt(1/2) and sqrt(2); log m = 2 artanh t, t = (m - 1) / (m + 1), |t| < 0.172.
static double elementary_logarithm(double x)
{
    int k;
    double m = frexp(x, &k);
    if (m < 0.70710678118654752440) {
        m *= 2;
        k--;
    }
    double t = (m - 1) / (m + 1), t2 = t * t, sum = 0;
    for (int i = 23; i >= 3; i -= 2)  // t2^11 / 23 < 2^-53
        sum = (sum + 1.0 / i) * t2;
    return k * ln2_high + (k * ln2_low + 2 * (t + t * sum));
}

// y = k ln 2 + r with |r| <= ln 2 / 2.
static double elementary_exponential(double y)
{
    if (y > 710)
        return INFINITY;
    if (y < -746)
        return 0;
    int k = (int)floor(y / (ln2_high + ln2_low) + 0.5);
    double r = (y - k * ln2_high) - k * ln2_low, sum = 1;
    for (int i = 14; i >= 1; i--)
        sum = 1 + sum * r / i;
    return ldexp(sum, k);
}

double ps_power(double base, double exponent)
{
    if (exponent == 0 || base == 1)
        return 1;
    if (isnan(base) || isnan(exponent) || base < 0)
        return NAN;
    if (base == 0 || isinf(base))
        return (base == 0) == (exponent > 0) ? 0 : INFINITY;
    return elementary_exponential(exponent * elementary_logarithm(base));
}

double ps_power_int(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

// 1 - z^2/2! + z^4/4! - ... or, from first = 1, the same over z of z - z^3/3! + z^5/5! - ..., |z| <= pi / 4.
static double elementary_alternating(double z, int first)
{
    double z2 = z * z, sum = 1;
    for (int i = first + 18; i > first; i -= 2)
        sum = 1 - sum * z2 / ((double)i * (i - 1));
    return sum;
}

double ps_cos_pi(double x)
{
    const double pi = 3.14159265358979323846;
    double from_half = pi * (0.5 - x);
    if (x < 0.25)
        return elementary_alternating(pi * x, 0);
    if (x > 0.75)
        return -elementary_alternating(pi * (1 - x), 0);
    return from_half * elementary_alternating(from_half, 1);
}
