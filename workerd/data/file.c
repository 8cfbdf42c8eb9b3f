// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/alloc.h"
#include "workerd/data/data_internal.h"

enum { FIRST_BUFFER = 1 << 20, MOST_PER_READ = 1 << 30, GZIP_BUFFER = 1 << 17 };

static uint64_t data_file_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Where a read has ended: 0 the file, or less than 0 with an error. zlib's text has "<fd:N>: " before it.
static enum ps_code data_file_end(gzFile file, int got, size_t size, struct ps_error *e)
{
    const int error = errno;
    int problem;
    const char *text = gzerror(file, &problem), *said = strstr(text, ": ");
    if (got < 0 && problem == Z_ERRNO)
        return ps_fail(e, ps_code_of_file(error), "%s", strerror(error));
    if (got < 0)
        return ps_fail(e, problem == Z_MEM_ERROR ? PS_RESOURCE_EXHAUSTED : PS_DATA_LOSS, "%s", said ? said + 2 : text);
    if (problem == Z_BUF_ERROR)
        return ps_fail(e, PS_DATA_LOSS, "the gzip stream breaks off after %zu bytes of data", size);
    return PS_OK;
}

// Doubles the buffer as bytes arrive, so that what a header claims costs no memory until it is there.
static enum ps_code data_file_read_all(gzFile file, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    size_t capacity = 0;
    int got = 1;
    while (*size < limit && got > 0) {
        if (*size == capacity) {
            capacity = data_file_least(limit, capacity ? 2 * capacity : FIRST_BUFFER);
            uint8_t *more = realloc(*bytes, capacity);
            if (!more)
                return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for %zu bytes", capacity);
            *bytes = more;
        }
        got = gzread(file, *bytes + *size, (unsigned)data_file_least(capacity - *size, MOST_PER_READ));
        *size += got > 0 ? (size_t)got : 0;
    }
    return got > 0 ? PS_OK : data_file_end(file, got, *size, e);
}

enum ps_code wk_file_read_open(int fd, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    gzFile file = gzdopen(fd, "rb");
    uint8_t *read = NULL;
    size_t n = 0;
    if (!file) {
        close(fd);
        return ps_no_memory(e, "reading a file");
    }
    gzbuffer(file, GZIP_BUFFER);
    enum ps_code code = data_file_read_all(file, limit, &read, &n, e);
    gzclose_r(file);
    if (code != PS_OK) {
        free(read);
        return code;
    }
    *bytes = read;
    *size = n;
    return PS_OK;
}

enum ps_code wk_file_read_bytes(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? ps_fail(e, ps_code_of_file(errno), "%m") : wk_file_read_open(fd, limit, bytes, size, e);
}

enum ps_code wk_file_read(const char *path, uint64_t limit, uint8_t **bytes, size_t *size, struct ps_error *e)
{
    return wk_file_read_bytes(path, limit, bytes, size, e) ? ps_error_prefix(e, "%.200s", path) : PS_OK;
}
