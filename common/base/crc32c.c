// SPDX-License-Identifier: Apache-2.0
//
// Eight bytes at a time (Kounavis and Berry, A systematic approach to building high performance software-based CRC
// generators, ISCC 2005): table k has the CRC of each byte with k zero bytes behind it.
#include "common/base/crc32c.h"

#include <pthread.h>
#include <string.h>

// The polynomial 0x1EDC6F41 with its bits reversed, as the bytes' are.
#define CRC32C_POLYNOMIAL UINT32_C(0x82F63B78)

static uint32_t crc32c_table[8][256];
static pthread_once_t crc32c_once = PTHREAD_ONCE_INIT;

static void crc32c_make_table(void)
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
}

uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size)
{
    const uint32_t(*const t)[256] = crc32c_table;
    const uint8_t *p = data;
    pthread_once(&crc32c_once, crc32c_make_table);
    crc = ~crc;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= crc;
        crc = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
              t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
    }
    for (; size; size--)
        crc = crc >> 8 ^ t[0][(crc ^ *p++) & 255];
    return ~crc;
}
