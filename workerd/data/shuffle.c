// SPDX-License-Identifier: Apache-2.0
//
// A permutation that needs no memory: worker and position alone say which example comes next.
#include "common/math/philox.h"
#include "workerd/data/data_internal.h"

enum { ROUNDS = 8 };

// The finalizer of MurmurHash3 (Appleby): every bit of x changes about half of the result's.
static uint32_t shuffle_mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

// A balanced Feistel network on 2 * half bits: a bijection whatever mix does.
static uint64_t shuffle_feistel(const uint32_t key[ROUNDS], int half, uint64_t x)
{
    uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
    uint32_t left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t next = left ^ (shuffle_mix(right ^ key[round]) & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

uint64_t wk_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    uint32_t key[ROUNDS];
    int half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    for (uint64_t k = 0; k < ROUNDS / 4; k++)
        ps_philox(seed, PS_RANDOM_SHUFFLE, epoch, k, key + 4 * k);
    // Cycle walking: the way from i < n along its cycle comes back below n, on average within four steps.
    do
        i = shuffle_feistel(key, half, i);
    while (i >= n);
    return i;
}
