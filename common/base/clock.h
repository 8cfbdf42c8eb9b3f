// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_CLOCK_H
#define PS_COMMON_CLOCK_H

#include <stdint.h>

#define PS_MS UINT64_C(1000000)
#define PS_SECOND UINT64_C(1000000000)

uint64_t ps_now(void);     // ns, monotonic
uint64_t ps_random(void);  // from the kernel: for identities, never for training

#endif
