// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

#include "workerd/data/data_internal.h"

enum { FIRST_BUFFER = 1 << 20, MOST_PER_READ = 1 << 30, GZIP_BUFFER = 1 << 17 };

static uint64_t data_file_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Doubles the buffer as bytes arrive, so that what a header claims costs no memory until it is there.
static enum ps_code data_file_read_all(gzFile file, const char *path, uint64_t limit, uint8_t **bytes, size_t *size,
                                       struct ps_error *e)
{
    size_t capacity = 0;
    int got = 1, problem;
    while (*size < limit && got > 0) {
        if (*size == capacity) {
            capacity = data_file_least(limit, capacity ? 2 * capacity : FIRST_BUFFER);
            uint8_t *more = realloc(*bytes, capacity);
            if (!more)
                return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes", path, capacity);
            *bytes = more;
        }
        got = gzread(file, *bytes + *size, (unsigned)data_file_least(capacity - *size, MOST_PER_READ));
        *size += got > 0 ? (size_t)got : 0;
    }
    const char *text = gzerror(file, &problem);  // has the path before it
    if (got < 0)
        return ps_fail(e, problem == Z_ERRNO ? PS_FAILED_PRECONDITION : PS_DATA_LOSS, "%s", text);
    if (got == 0 && problem == Z_BUF_ERROR)
        return ps_fail(e, PS_DATA_LOSS, "%s: the gzip stream breaks off after %zu bytes of data", path, *size);
    return PS_OK;
}

enum ps_code wk_file_read(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    gzFile file = gzopen(path, "rbe");
    uint8_t *read = NULL;
    size_t n = 0;
    if (!file)
        return ps_fail(e, errno == ENOENT ? PS_NOT_FOUND : PS_FAILED_PRECONDITION, "%s: %m", path);
    gzbuffer(file, GZIP_BUFFER);
    enum ps_code code = data_file_read_all(file, path, limit, &read, &n, e);
    gzclose_r(file);
    if (code != PS_OK) {
        free(read);
        return code;
    }
    *bytes = read;
    *size = n;
    return PS_OK;
}
