// SPDX-License-Identifier: Apache-2.0
#include "common/file/tfrecord.h"

#include "common/base/crc32c.h"

uint32_t ps_masked_crc32c(const void *data, size_t size)
{
    uint32_t crc = ps_crc32c(0, data, size);
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
