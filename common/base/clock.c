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

void ps_sleep(uint64_t ns)
{
    nanosleep(&(struct timespec){(time_t)(ns / PS_SECOND), (long)(ns % PS_SECOND)}, NULL);
}

void ps_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool ps_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until)
{
    const struct timespec t = {(time_t)(until / PS_SECOND), (long)(until % PS_SECOND)};
    return pthread_cond_timedwait(condition, lock, &t) == 0;
}

uint64_t ps_random(void)
{
    uint64_t x = 0;
    while (getrandom(&x, sizeof x, 0) != sizeof x)
        continue;
    return x;
}
