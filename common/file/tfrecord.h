// SPDX-License-Identifier: Apache-2.0
//
// TFRecord, a file of records: for each its length (uint64), the masked CRC of those eight bytes (uint32), its bytes,
// their masked CRC; numbers are little-endian. Any thread.
//     https://www.tensorflow.org/tutorials/load_data/tfrecord
#ifndef PS_COMMON_TFRECORD_H
#define PS_COMMON_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

enum { PS_TFRECORD_HEAD = 12, PS_TFRECORD_TAIL = 4 };

// CRC-32C (common/base/crc32c.h) as TFRecord has it: CRC(data containing CRCs) would be of little use otherwise.
uint32_t ps_masked_crc32c(const void *data, size_t size);
// What stands before and after a record of these bytes.
void ps_tfrecord_frame(const void *data, size_t size, uint8_t head[PS_TFRECORD_HEAD], uint8_t tail[PS_TFRECORD_TAIL]);

#endif
