// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// What is drawn depends on (seed, purpose, a, b) alone, never on the thread or the worker that drew first.
#ifndef PS_COMMON_PHILOX_H
#define PS_COMMON_PHILOX_H

#include <stdint.h>

enum ps_purpose {
    PS_RANDOM_INIT = 1,     // a: variable's index in the model, b: element / 4
    PS_RANDOM_SHUFFLE = 2,  // a: epoch, b: index
    PS_RANDOM_DROPOUT = 3,  // a: layer << 32 | step (low 32 bits), b: global example * elements + element, / 4
    PS_RANDOM_DIGITS = 4,   // a: example, b: draw
    PS_RANDOM_DELAY = 5,    // a: worker, b: step
};

void ps_philox(uint64_t seed, uint32_t purpose, uint64_t a, uint64_t b, uint32_t out[4]);

static inline float ps_uniform(uint32_t x)  // [0, 1), 24 bits
{
    return (float)(x >> 8) * 0x1p-24f;
}

#endif
