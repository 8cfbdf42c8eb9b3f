// SPDX-License-Identifier: Apache-2.0
#include "common/base/alloc.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/log.h"

static void *alloc_checked(void *p, size_t size)
{
    if (!p) {
        ps_error_log("out of memory: %zu bytes for a control structure", size);
        abort();
    }
    return p;
}

// glibc's calloc passes by the cache of each thread, which makes it three times as slow as malloc for what is small.
enum { SMALL_ALLOC = 1024 };

static void *alloc_zeroed(size_t size)
{
    if (size > SMALL_ALLOC)
        return calloc(1, size);
    void *p = malloc(size ? size : 1);
    return p ? memset(p, 0, size) : NULL;
}

// Linux gives huge pages on request, to memory that nobody has touched yet. Malloc touches the page that it writes a
// block's header into, so a large block begins with the next huge page.
enum { HUGE_PAGE = 2 << 20, LARGE_ALLOC = 2 * HUGE_PAGE };

void *ps_try_alloc_aligned(size_t size)
{
    const size_t alignment = size < LARGE_ALLOC ? 64 : HUGE_PAGE;
    if (size > SIZE_MAX - alignment)
        return NULL;
    const size_t whole = (size + alignment) & ~(alignment - 1);
    void *p = aligned_alloc(alignment, whole);
    if (p && size >= LARGE_ALLOC)
        madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

// Those that lie side by side are one mapping to Linux, as none has been touched when it is told what they are for.
void *ps_try_map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, size, MADV_HUGEPAGE);
    return p;
}

// Where Linux has no place for another mapping (vm.max_map_count), what lies in the middle of one cannot leave it: its
// memory is given back all the same.
void ps_unmap(void *p, size_t size)
{
    if (p && munmap(p, size))
        madvise(p, size, MADV_DONTNEED);
}

void *ps_try_alloc(size_t size)
{
    return alloc_zeroed(size);
}

void *ps_try_alloc_array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1);
}

void *ps_try_realloc(void *p, size_t size)
{
    return realloc(p, size ? size : 1);
}

char *ps_try_strdup(const char *s)
{
    return strdup(s);
}

static char *alloc_print(const char *format, va_list args)
{
    char *s = NULL;
    return vasprintf(&s, format, args) < 0 ? NULL : s;
}

char *ps_try_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *s = alloc_print(format, args);
    va_end(args);
    return s;
}

void *ps_try_reserve(void *array, size_t n, size_t *cap, size_t size)
{
    if (n <= *cap)
        return array;
    size_t room = 2 * *cap > 8 ? 2 * *cap : 8;
    room = n > room ? n : room;
    void *more = ps_try_realloc(array, room * size);
    if (more)
        *cap = room;
    return more;
}

enum ps_code ps_no_memory(struct ps_error *e, const char *what)
{
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory for %s", what);
}

void *ps_alloc(size_t size)
{
    return alloc_checked(alloc_zeroed(size), size);
}

void *ps_alloc_aligned(size_t size)
{
    return alloc_checked(ps_try_alloc_aligned(size), size);
}

void *ps_realloc(void *p, size_t size)
{
    return alloc_checked(realloc(p, size ? size : 1), size);
}

char *ps_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(ps_alloc(n), s, n);
}

char *ps_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *s = alloc_print(format, args);
    va_end(args);
    return alloc_checked(s, 0);
}

FILE *ps_open_memory(char **text, size_t *size)
{
    return alloc_checked(open_memstream(text, size), 0);
}

void ps_alloc_tune(void)
{
    // Older glibc refuses a threshold above 32 MiB: take that then.
    if (!mallopt(M_MMAP_THRESHOLD, 1 << 30))
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 2000000000);
    mallopt(M_TOP_PAD, 64 << 20);
}
