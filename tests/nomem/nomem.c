// SPDX-License-Identifier: Apache-2.0
#include "tests/nomem/nomem.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    atomic_uint_fast64_t nth, k, count, failed;
} nomem;

static _Thread_local struct {
    bool open;
    int spared;  // depth of calls that must not fail
} window;

// ---- sweeps -------------------------------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 7 };
#else
enum { STRIDE = 1 };
#endif

size_t nomem_rows(const uint64_t **lengths)
{
    static const uint64_t rows[] = {1, 20, 2, 3, 5, 9, 50};
    *lengths = rows;
    return getenv("NOMEM_FULL") ? sizeof rows / sizeof *rows : 2;
}

uint64_t nomem_stride(void)
{
    return getenv("NOMEM_FULL") ? 1 : STRIDE;
}

// ---- what lives: a hash table of pointers, open addressing --------------------------------------------------------

enum { CAP = 1 << 17, SHOWN = 5 };

struct block {
    void *p;
    size_t size;
    uint64_t serial;
    void *by;
};

static struct block blocks[CAP];
static size_t live;
static uint64_t serials, mark;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of these

static size_t home(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % CAP;
}

static void *born(void *p, size_t size, void *by)
{
    size_t i = home(p);
    if (!p)
        return NULL;
    pthread_mutex_lock(&lock);
    if (++live > CAP / 2) {
        fprintf(stderr, "nomem: more than %d blocks\n", CAP / 2);
        abort();
    }
    while (blocks[i].p)
        i = (i + 1) % CAP;
    blocks[i] = (struct block){p, size, serials++, by};
    pthread_mutex_unlock(&lock);
    return p;
}

// Blocks that were not seen to be allocated are nobody's here.
static void forget(size_t i)
{
    live--;
    for (size_t next = (i + 1) % CAP; blocks[next].p; next = (next + 1) % CAP)
        if ((next - home(blocks[next].p)) % CAP >= (next - i) % CAP) {
            blocks[i] = blocks[next];
            i = next;
        }
    blocks[i].p = NULL;
}

static void dies(const void *p)
{
    size_t i = home(p);
    pthread_mutex_lock(&lock);
    while (blocks[i].p && blocks[i].p != p)
        i = (i + 1) % CAP;
    if (p && blocks[i].p)
        forget(i);
    pthread_mutex_unlock(&lock);
}

void nomem_mark(void)
{
    pthread_mutex_lock(&lock);
    mark = serials;
    pthread_mutex_unlock(&lock);
}

size_t nomem_live(bool print)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CAP; i++)
        if (blocks[i].p && blocks[i].serial >= mark && n++ < SHOWN && print)
            printf("# leaked: %zu bytes, allocation %llu, made at %p\n", blocks[i].size,
                   (unsigned long long)(blocks[i].serial - mark), blocks[i].by);
    pthread_mutex_unlock(&lock);
    return n;
}

// ---- what fails ---------------------------------------------------------------------------------------------------

void nomem_fail(uint64_t nth, uint64_t k)
{
    nomem.k = 0;  // whoever allocates meanwhile is not taken for one that was chosen
    nomem.nth = nth;
    nomem.count = 0;
    nomem.failed = 0;
    nomem.k = k;
}

void nomem_window(bool open)
{
    window.open = open;
}

uint64_t nomem_count(void)
{
    return nomem.count;
}

uint64_t nomem_failed(void)
{
    return nomem.failed;
}

static bool fails(void)
{
    if (!window.open || window.spared)
        return false;
    uint64_t i = nomem.count++;
    bool chosen = i >= nomem.nth && i - nomem.nth < nomem.k;
    nomem.failed += chosen;
    return chosen;
}

#define BY __builtin_return_address(0)

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **p, size_t alignment, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void __wrap_free(void *p);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *p, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : born(__real_malloc(size), size, BY);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : born(__real_calloc(n, size), n * size, BY);
}

void *__wrap_realloc(void *p, size_t size)
{
    if (fails())
        return NULL;
    dies(p);
    return born(__real_realloc(p, size), size, BY);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : born(__real_aligned_alloc(alignment, size), size, BY);
}

int __wrap_posix_memalign(void **p, size_t alignment, size_t size)
{
    void *block = fails() ? NULL : born(__real_aligned_alloc(alignment, size), size, BY);
    if (!block)
        return 12;  // ENOMEM
    *p = block;
    return 0;
}

char *__wrap_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = fails() ? NULL : born(__real_malloc(len + 1), len + 1, BY);
    if (copy) {
        memcpy(copy, s, len);
        copy[len] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *s)
{
    size_t size = strlen(s) + 1;
    char *copy = fails() ? NULL : born(__real_malloc(size), size, BY);
    return copy ? memcpy(copy, s, size) : NULL;
}

void __wrap_free(void *p)
{
    dies(p);
    __real_free(p);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *p = fails() ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
    return p == MAP_FAILED ? p : born(p, size, BY);
}

int __wrap_munmap(void *p, size_t size)
{
    dies(p);
    return __real_munmap(p, size);
}

// ---- what is spared -----------------------------------------------------------------------------------------------

void *__real_ps_alloc(size_t size);
void *__real_ps_realloc(void *p, size_t size);
char *__real_ps_strdup(const char *s);
void *__wrap_ps_alloc(size_t size);
void *__wrap_ps_realloc(void *p, size_t size);
char *__wrap_ps_strdup(const char *s);

void *__wrap_ps_alloc(size_t size)
{
    window.spared++;
    void *p = __real_ps_alloc(size);
    window.spared--;
    return p;
}

void *__wrap_ps_realloc(void *p, size_t size)
{
    window.spared++;
    p = __real_ps_realloc(p, size);
    window.spared--;
    return p;
}

char *__wrap_ps_strdup(const char *s)
{
    window.spared++;
    char *copy = __real_ps_strdup(s);
    window.spared--;
    return copy;
}
