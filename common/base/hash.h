// SPDX-License-Identifier: Apache-2.0
//
// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): for tables and for telling two of our own things apart, not
// against an adversary.
#ifndef PS_COMMON_HASH_H
#define PS_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

#define PS_HASH_SEED UINT64_C(0xcbf29ce484222325)

// The hash of what h is the hash of, followed by size bytes.
static inline uint64_t ps_hash(uint64_t h, const void *data, size_t size)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
