// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_CRC32C_H
#define PS_COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of what crc is the CRC of, followed by size bytes. Of nothing it is 0.
// Any thread.
uint32_t ps_crc32c(uint32_t crc, const void *data, size_t size);

// The same without the instruction that most processors have for it.
uint32_t ps_crc32c_portable(uint32_t crc, const void *data, size_t size);

#endif
