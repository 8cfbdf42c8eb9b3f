// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "workerd/collective/add.h"

enum {
    PIECE = 256 << 10,  // bytes
    SPINS = 50000,      // looks at a barrier before the kernel is asked to wait: tens of microseconds
    LOOK_MS = 100
};

// In the shared memory.
struct shm_head {
    atomic_uint here;      // members that have it
    atomic_uint waiting;   // at the barrier at hand,
    atomic_uint barriers;  // of which so many are over; a futex
};

struct wk_shm {
    uint32_t member, members;
    long cores;
    wk_shm_look_fn look;
    void *arg;
    struct shm_head *head;
    char *buffers;  // [2 sets][members, and one of the sum][PIECE]
    size_t bytes;
    unsigned pieces;  // so far: the next one's set of buffers
};

static size_t shm_head_bytes(void)
{
    return 4096;
}

static size_t shm_bytes(uint32_t members)
{
    return shm_head_bytes() + 2 * ((size_t)members + 1) * PIECE;
}

// ---- the host -----------------------------------------------------------------------------------------------------

void wk_shm_host(uint32_t workers, char host[WK_SHM_HOST])
{
    static const char folder[] = "/dev/shm";
    char boot[40] = "";
    struct stat st;
    struct statvfs fs;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || fscanf(file, "%39s", boot) != 1)
        boot[0] = '\0';
    if (file)
        fclose(file);
    host[0] = '\0';
    if (boot[0] && stat(folder, &st) == 0 && statvfs(folder, &fs) == 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize / 2 > shm_bytes(workers))
        snprintf(host, WK_SHM_HOST, "%s/%" PRIx64 "/%u", boot, (uint64_t)st.st_dev, (unsigned)geteuid());
}

// ---- barriers -----------------------------------------------------------------------------------------------------

static void shm_futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

// Until the number of barriers is another one.
static enum ps_code shm_await(const struct wk_shm *s, unsigned before, struct ps_error *e)
{
    static const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    const int spins = s->members <= s->cores ? SPINS : 0;
    for (int i = 0; i < spins; i++)
        if (atomic_load_explicit(&s->head->barriers, memory_order_acquire) != before)
            return PS_OK;
    while (atomic_load_explicit(&s->head->barriers, memory_order_acquire) == before) {
        shm_futex(&s->head->barriers, FUTEX_WAIT, before, &look);
        // Who has gone after the barrier is no reason.
        if (s->look(s->arg, e) && atomic_load_explicit(&s->head->barriers, memory_order_acquire) == before)
            return e->code;
    }
    e->code = PS_OK;
    return PS_OK;
}

// All members come: what each wrote before, all read after.
static enum ps_code shm_barrier(const struct wk_shm *s, struct ps_error *e)
{
    struct shm_head *h = s->head;
    const unsigned before = atomic_load_explicit(&h->barriers, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&h->waiting, 1, memory_order_acq_rel) + 1 < s->members)
        return shm_await(s, before, e);
    atomic_store_explicit(&h->waiting, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->barriers, 1, memory_order_release);
    shm_futex(&h->barriers, FUTEX_WAKE, INT32_MAX, NULL);
    return PS_OK;
}

// ---- open ---------------------------------------------------------------------------------------------------------

static enum ps_code shm_map(struct wk_shm *s, int fd, struct ps_error *e)
{
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot map %zu bytes of shared memory: %s", s->bytes,
                       strerror(errno));
    s->head = at;
    s->buffers = (char *)at + shm_head_bytes();
    return PS_OK;
}

static enum ps_code shm_make(struct wk_shm *s, const char *name, struct ps_error *e)
{
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    const int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)s->bytes);
    if (error)
        ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make %zu bytes of shared memory %s: %s", s->bytes, name,
                strerror(error));
    else
        shm_map(s, fd, e);
    if (fd >= 0)
        close(fd);
    return e->code;
}

static bool shm_is_whole(int fd, size_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (size_t)st.st_size == bytes;
}

// Waits for member 0 to make it.
static enum ps_code shm_find(struct wk_shm *s, const char *name, struct ps_error *e)
{
    const struct timespec pause = {.tv_nsec = 2 * 1000000L};
    int fd = -1;
    for (unsigned tries = 1; fd < 0 || !shm_is_whole(fd, s->bytes); tries++) {
        if (tries % 32 == 0 && s->look(s->arg, e))
            break;
        nanosleep(&pause, NULL);
        fd = fd < 0 ? shm_open(name, O_RDWR, 0) : fd;
    }
    if (e->code == PS_OK)
        shm_map(s, fd, e);
    if (fd >= 0)
        close(fd);
    return e->code;
}

enum ps_code wk_shm_open(uint64_t session, uint32_t first_rank, uint32_t member, uint32_t n, wk_shm_look_fn look,
                         void *arg, struct wk_shm **shm, struct ps_error *e)
{
    struct wk_shm *s = ps_alloc(sizeof *s);
    char name[64];
    *s = (struct wk_shm){.member = member, .members = n, .look = look, .arg = arg, .bytes = shm_bytes(n)};
    s->cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(name, sizeof name, "/paramserver-%016" PRIx64 "-%" PRIu32, session, first_rank);
    e->code = PS_OK;
    if ((member == 0 ? shm_make(s, name, e) : shm_find(s, name, e)) == PS_OK)
        shm_barrier(s, e);
    if (member == 0)
        shm_unlink(name);  // all have it, or nobody will
    if (e->code) {
        wk_shm_close(s);
        return e->code;
    }
    *shm = s;
    return PS_OK;
}

void wk_shm_close(struct wk_shm *s)
{
    if (!s)
        return;
    if (s->head)
        munmap(s->head, s->bytes);
    free(s);
}

// ---- reduce -------------------------------------------------------------------------------------------------------

// That of a member, or (member == members) that of the sum, for the piece at hand.
static char *shm_buffer(const struct wk_shm *s, uint32_t member)
{
    return s->buffers + ((size_t)(s->pieces % 2) * (s->members + 1) + member) * PIECE;
}

// Where a member's part of n numbers begins: on whole cache lines.
static size_t shm_part(const struct wk_shm *s, size_t n, uint32_t member)
{
    return member == s->members ? n : (n * member / s->members) & ~(size_t)15;
}

static void shm_add_part(const struct wk_shm *s, size_t n, enum wk_ring_type type, size_t size)
{
    const size_t first = shm_part(s, n, s->member), end = shm_part(s, n, s->member + 1);
    char *sum = shm_buffer(s, s->members) + first * size;
    memcpy(sum, shm_buffer(s, 0) + first * size, (end - first) * size);
    for (uint32_t k = 1; k < s->members; k++) {
        const char *v = shm_buffer(s, k) + first * size;
        if (type == WK_RING_FLOAT)
            wk_add_to_floats((float *)sum, (const float *)v, end - first);
        else
            wk_add_to_doubles((double *)sum, (const double *)v, end - first);
    }
}

static size_t shm_size_of(enum wk_ring_type type)
{
    return type == WK_RING_FLOAT ? sizeof(float) : sizeof(double);
}

static enum ps_code shm_reduce_piece(struct wk_shm *s, char *values, size_t n, enum wk_ring_type type, bool at_all,
                                     struct ps_error *e)
{
    const size_t size = shm_size_of(type);
    memcpy(shm_buffer(s, s->member), values, n * size);
    if (shm_barrier(s, e))
        return e->code;
    shm_add_part(s, n, type, size);
    if (shm_barrier(s, e))
        return e->code;
    if (at_all || s->member == 0)
        memcpy(values, shm_buffer(s, s->members), n * size);
    s->pieces++;
    return PS_OK;
}

enum ps_code wk_shm_reduce(struct wk_shm *s, void *values, size_t n, enum wk_ring_type type, bool at_all,
                           struct ps_error *e)
{
    const size_t size = shm_size_of(type), most = PIECE / size;
    e->code = PS_OK;
    for (size_t at = 0; at < n && e->code == PS_OK; at += most)
        shm_reduce_piece(s, (char *)values + at * size, n - at < most ? n - at : most, type, at_all, e);
    return e->code;
}

enum ps_code wk_shm_broadcast(struct wk_shm *s, void *values, size_t n, enum wk_ring_type type, struct ps_error *e)
{
    const size_t bytes = n * shm_size_of(type);
    e->code = PS_OK;
    for (size_t at = 0; at < bytes && e->code == PS_OK; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (s->member == 0)
            memcpy(shm_buffer(s, 0), (char *)values + at, piece);
        if (shm_barrier(s, e))
            return e->code;
        if (s->member != 0)
            memcpy((char *)values + at, shm_buffer(s, 0), piece);
        s->pieces++;
    }
    return e->code;
}
