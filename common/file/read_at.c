// SPDX-License-Identifier: Apache-2.0
#include "common/file/read_at.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum ps_code ps_read_at(int fd, uint64_t size, uint64_t at, size_t n, void *to, struct ps_error *e)
{
    for (uint8_t *next = to; n > 0;) {
        const ssize_t got = pread(fd, next, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ps_fail(e, ps_code_of_file(errno), "byte %" PRIu64 ": %s", at, strerror(errno));
        if (got == 0)
            return ps_fail(e, PS_DATA_LOSS, "the file ends at byte %" PRIu64 "; it had %" PRIu64 " when it was opened",
                           at, size);
        at += (uint64_t)got;
        next += got;
        n -= (size_t)got;
    }
    return PS_OK;
}
