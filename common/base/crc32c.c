// SPDX-License-Identifier: Apache-2.0
//
// In software eight bytes at a time (Kounavis and Berry, A systematic approach to building high performance
// software-based CRC generators, ISCC 2005): table k has the CRC of each byte with k zero bytes behind it. SSE 4.2 has
// an instruction for eight bytes, of which three can be under way (Gopal et al., Fast CRC Computation for iSCSI
// Polynomial Using CRC32 Instruction, Intel 2011): three lanes beside each other, whose CRCs tables join. Memory is
// slower than that: the next three lanes are fetched meanwhile, as the processor does not guess them.
#include "common/base/crc32c.h"

#include <pthread.h>
#include <string.h>

// The polynomial 0x1EDC6F41 with its bits reversed, as the bytes' are.
#define CRC32C_POLYNOMIAL UINT32_C(0x82F63B78)

enum { LANE = 4096, LINE = 64 };  // bytes: of a lane, of the cache

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_moved[4][256];  // the CRC of each byte of a CRC with LANE zero bytes behind it
static pthread_once_t crc32c_once = PTHREAD_ONCE_INIT;

static uint32_t crc32c_move(uint32_t crc)
{
    return crc32c_moved[0][crc & 255] ^ crc32c_moved[1][crc >> 8 & 255] ^ crc32c_moved[2][crc >> 16 & 255] ^
           crc32c_moved[3][crc >> 24];
}

// A CRC is linear: that of a sum of bits is the sum of theirs.
static void crc32c_make_moved(void)
{
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = UINT32_C(1) << bit, *moved = crc32c_moved[bit / 8];
        for (int i = 0; i < LANE; i++)
            crc = crc >> 8 ^ crc32c_table[0][crc & 255];
        for (int low = 0, here = 1 << bit % 8; low < here; low++)
            moved[here + low] = moved[low] ^ crc;
    }
}

static void crc32c_make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            const uint32_t crc = crc32c_table[k - 1][byte];
            crc32c_table[k][byte] = crc >> 8 ^ crc32c_table[0][crc & 255];
        }
    crc32c_make_moved();
}

// Of eight bytes and the CRC before them.
static uint32_t crc32c_step(uint32_t crc, const uint8_t *p)
{
    const uint32_t(*const t)[256] = crc32c_table;
    uint32_t low, high;
    memcpy(&low, p, 4);
    memcpy(&high, p + 4, 4);
    low ^= crc;
    return t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
           t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
}

uint32_t ps_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    pthread_once(&crc32c_once, crc32c_make_tables);
    crc = ~crc;
    for (; size >= 8; size -= 8, p += 8)
        crc = crc32c_step(crc, p);
    for (; size; size--)
        crc = crc >> 8 ^ crc32c_table[0][(crc ^ *p++) & 255];
    return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_lane(uint64_t crc, const uint8_t *p, size_t size)
{
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size; size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *p++);
    return (uint32_t)crc;
}

// A line of each lane. There may be nothing there, and then nothing happens.
static inline void crc32c_fetch(uintptr_t at)
{
    for (size_t lane = 0; lane < 3; lane++)
        __builtin_prefetch((const void *)(at + lane * LANE));
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_three_lanes(uint64_t crc, const uint8_t *p)
{
    uint64_t second = 0, third = 0, word[3];
    for (size_t i = 0; i < LANE; i += 8) {
        if (i % LINE == 0)
            crc32c_fetch((uintptr_t)p + 3 * LANE + i);
        memcpy(&word[0], p + i, 8);
        memcpy(&word[1], p + LANE + i, 8);
        memcpy(&word[2], p + 2 * LANE + i, 8);
        crc = __builtin_ia32_crc32di(crc, word[0]);
        second = __builtin_ia32_crc32di(second, word[1]);
        third = __builtin_ia32_crc32di(third, word[2]);
    }
    return crc32c_move(crc32c_move((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
}

uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    if (!__builtin_cpu_supports("sse4.2"))
        return ps_crc32c_portable(crc, data, size);
    pthread_once(&crc32c_once, crc32c_make_tables);
    crc = ~crc;
    for (; size >= 3 * LANE; size -= 3 * LANE, p += 3 * LANE)
        crc = crc32c_three_lanes(crc, p);
    return ~crc32c_lane(crc, p, size);
}
#else
uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size)
{
    return ps_crc32c_portable(crc, data, size);
}
#endif
