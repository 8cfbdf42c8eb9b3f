// SPDX-License-Identifier: Apache-2.0
#include "common/base/clock.h"

#include <sys/random.h>
#include <time.h>

uint64_t ps_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * PS_SECOND + (uint64_t)t.tv_nsec;
}

uint64_t ps_random(void)
{
    uint64_t x = 0;
    while (getrandom(&x, sizeof x, 0) != sizeof x)
        continue;
    return x;
}
