// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// What is drawn depends on (seed, purpose, a, b) alone, never on the thread or the worker that drew first.
#ifndef PS_COMMON_PHILOX_H
#define PS_COMMON_PHILOX_H

#include <stdint.h>

#include "common/base/host_device.h"

enum ps_purpose {
    PS_RANDOM_INIT = 1,     // a: variable's index in the model, b: element / 4
    PS_RANDOM_SHUFFLE = 2,  // a: epoch, b: index
    PS_RANDOM_DROPOUT = 3,  // a: layer << 32 | step (low 32 bits), b: global example * elements + element, / 4
    PS_RANDOM_DIGITS = 4,   // a: example, b: draw
    PS_RANDOM_DELAY = 5,    // a: worker, b: step
    PS_RANDOM_RESUME = 6,   // a: how often the job was resumed
    PS_RANDOM_AUGMENT = 7,  // a: epoch, b: example << 28 | input << 24 | draw
};

// Constants and ten rounds: Salmon et al. 2011, table 2 and section 3.3. Inline, so that a loop over b becomes vector
// code.
static inline PS_HOST_DEVICE void ps_philox(uint64_t seed, uint32_t purpose, uint64_t a, uint64_t b, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32) ^ (purpose * 0x85EBCA6Bu);
    uint32_t c0 = (uint32_t)b, c1 = (uint32_t)(b >> 32), c2 = (uint32_t)a, c3 = (uint32_t)(a >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static inline PS_HOST_DEVICE float ps_uniform(uint32_t x)  // [0, 1), 24 bits
{
    return (float)(x >> 8) * 0x1p-24f;
}

#endif
