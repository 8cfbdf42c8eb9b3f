// SPDX-License-Identifier: Apache-2.0
#include "common/file/tfrecord.h"

// The polynomial 0x1EDC6F41 with its bits reversed, as the bytes' are.
#define CRC32C_POLYNOMIAL UINT32_C(0x82F63B78)

uint32_t ps_crc32c(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
    }
    return ~crc;
}

uint32_t ps_masked_crc32c(const void *data, size_t size)
{
    uint32_t crc = ps_crc32c(data, size);
    return (crc >> 15 | crc << 17) + UINT32_C(0xA282EAD8);
}

static void tfrecord_put(uint8_t *to, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(x >> 8 * i);
}

void ps_tfrecord_frame(const void *data, size_t size, uint8_t head[PS_TFRECORD_HEAD], uint8_t tail[PS_TFRECORD_TAIL])
{
    tfrecord_put(head, size, 8);
    tfrecord_put(head + 8, ps_masked_crc32c(head, 8), 4);
    tfrecord_put(tail, ps_masked_crc32c(data, size), 4);
}
