// SPDX-License-Identifier: Apache-2.0
//
// The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "tools/psctl/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/dtype.h"

enum {
    MAGIC = 10,  // "\x93NUMPY", two bytes of version, two of the header's length
    ALIGN = 64,  // of the data in the file
    HEADER_MAX = 512,
};

static const char *descr(int dtype)
{
    switch (dtype) {
    case PS_FLOAT32:
        return "<f4";
    case PS_FLOAT64:
        return "<f8";
    case PS_INT32:
        return "<i4";
    default:
        return "<i8";
    }
}

// The magic and the dictionary, padded with spaces so that the data starts aligned. Returns the length.
static size_t header(int dtype, const uint64_t *shape, size_t rank, char to[HEADER_MAX])
{
    size_t len = MAGIC;
    len += (size_t)snprintf(to + len, HEADER_MAX - len, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                            descr(dtype));
    for (size_t i = 0; i < rank; i++)
        len += (size_t)snprintf(to + len, HEADER_MAX - len, "%" PRIu64 ",%s", shape[i], i + 1 < rank ? " " : "");
    len += (size_t)snprintf(to + len, HEADER_MAX - len, "), }");
    while ((len + 1) % ALIGN)
        to[len++] = ' ';
    to[len++] = '\n';
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    to[8] = (char)((len - MAGIC) & 0xff);
    to[9] = (char)((len - MAGIC) >> 8);
    return len;
}

enum ps_code npy_write(const char *path, int dtype, const uint64_t *shape, size_t rank, const void *data,
                       uint64_t count, struct ps_error *e)
{
    char head[HEADER_MAX];
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *file = to_stdout ? stdout : fopen(path, "wb");
    if (!file)
        return ps_fail(e, PS_INVALID_ARGUMENT, "cannot write %s: %s", path, strerror(errno));
    fwrite(head, 1, header(dtype, shape, rank, head), file);
    fwrite(data, ps_dtype_size(dtype), count, file);
    bool failed = fflush(file) != 0 || ferror(file);
    int error = errno;
    struct stat st;
    bool removable = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode) && !to_stdout;
    if (!to_stdout)
        fclose(file);
    if (!failed)
        return PS_OK;
    if (removable)
        remove(path);
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot write %s: %s", to_stdout ? "standard output" : path,
                   strerror(error));
}
