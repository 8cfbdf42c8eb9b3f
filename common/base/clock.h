// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_CLOCK_H
#define PS_COMMON_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PS_MS UINT64_C(1000000)
#define PS_SECOND UINT64_C(1000000000)

uint64_t ps_now(void);     // ns, monotonic
uint64_t ps_random(void);  // from the kernel: for identities, never for training

void ps_sleep(uint64_t ns);  // a signal ends it

// A condition that is waited for by ps_now(), which nobody sets. False: that time has come.
void ps_cond_init(pthread_cond_t *condition);
bool ps_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until);

#endif
