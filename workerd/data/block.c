// SPDX-License-Identifier: Apache-2.0
//
// Bytes in memory or in a file. A large file is read where an example lies instead of mapped: what is resident is the
// kernel's to decide, a file that somebody truncates is an error instead of a signal, and a limit on the address space
// is kept.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/file/read_at.h"
#include "workerd/data/source.h"

struct wk_block *wk_block_of(const char *path, void *bytes, uint64_t size)
{
    struct wk_block *b = ps_alloc(sizeof *b);
    *b = (struct wk_block){.path = ps_strdup(path), .bytes = bytes, .size = size, .fd = -1};
    return b;
}

void wk_block_free(struct wk_block *block)
{
    if (!block)
        return;
    if (block->fd >= 0)
        close(block->fd);
    free(block->bytes);
    free(block->path);
    free(block);
}

static bool block_is_gzip(int fd)
{
    uint8_t magic[2];
    return pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

enum ps_code wk_block_open(const char *path, struct wk_block **block, struct ps_error *e)
{
    struct stat status;
    uint8_t *bytes;
    size_t size;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ps_fail(e, ps_code_of_file(errno), "%s: %m", path);
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > WK_IN_MEMORY && !block_is_gzip(fd)) {
        *block = wk_block_of(path, NULL, (uint64_t)status.st_size);
        (*block)->fd = fd;
        return PS_OK;
    }
    if (wk_file_read_open(fd, SIZE_MAX, &bytes, &size, e))
        return ps_error_prefix(e, "%.200s", path);
    *block = wk_block_of(path, bytes, size);
    return PS_OK;
}

enum ps_code wk_block_read(const struct wk_block *b, uint64_t at, size_t n, void *to, struct ps_error *e)
{
    if (at > b->size || n > b->size - at)
        return ps_fail(e, PS_DATA_LOSS, "%zu bytes from byte %" PRIu64 " on are not in the file, which has %" PRIu64, n,
                       at, b->size);
    if (!b->bytes)
        return ps_read_at(b->fd, b->size, at, n, to, e);
    if (n)
        memcpy(to, b->bytes + at, n);
    return PS_OK;
}

enum ps_code wk_block_head(const struct wk_block *b, size_t most, const uint8_t **bytes, size_t *n, uint8_t **own,
                           struct ps_error *e)
{
    *own = NULL;
    *n = b->bytes || b->size < most ? (size_t)b->size : most;
    *bytes = b->bytes;
    if (b->bytes || b->size == 0)
        return PS_OK;
    *bytes = *own = wk_array(*n, 1, 1, e);
    if (!*own)
        return PS_RESOURCE_EXHAUSTED;
    return wk_block_read(b, 0, *n, *own, e);
}
