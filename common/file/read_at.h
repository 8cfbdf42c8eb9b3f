// SPDX-License-Identifier: Apache-2.0
//
// A part of a file that is open, read when it is needed: the file may be cut short meanwhile.
//
// Receives from: zip.c, workerd/data/block.c. Threads: any, of one file at once.
#ifndef PS_READ_AT_H
#define PS_READ_AT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// n bytes from byte `at` on; size: how many the file had when it was opened. DATA_LOSS: it has fewer now. As
// ps_code_of_file: it cannot be read. The error names the byte, not the file.
enum ps_code ps_read_at(int fd, uint64_t size, uint64_t at, size_t n, void *to, struct ps_error *e);

#endif
