// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

static const char shm_folder[] = "/dev/shm", shm_prefix[] = "paramserver-";

// In the shared memory.
struct shm_member {
    atomic_uint come;  // to so many barriers
    // The array at hand, written before a barrier and read after it.
    uint64_t id;
    char what[WK_WHAT];
};
struct shm_head {
    atomic_uint waiting;   // at the barrier at hand,
    atomic_uint barriers;  // of which so many are over; a futex
    struct shm_member of[];
};

struct wk_shm {
    struct wk_shm_options is;
    long cores;
    struct shm_head *head;
    char *buffers;  // [2 sets][members][PIECE]
    size_t bytes;
    unsigned pieces;  // so far: the next one's set of buffers
    int locked;       // member 0, while the memory has a name: its descriptor; else -1
};

static size_t shm_head_bytes(uint32_t members)
{
    const size_t bytes = sizeof(struct shm_head) + members * sizeof(struct shm_member);
    return (bytes + 4095) & ~(size_t)4095;
}

static size_t shm_bytes(uint32_t members)
{
    return shm_head_bytes(members) + 2 * (size_t)members * PIECE;
}

// ---- the host -----------------------------------------------------------------------------------------------------

// Memory that has no name.
static int shm_make_nameless(void)
{
    return open(shm_folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static bool shm_can_make(void)
{
    const int fd = shm_make_nameless();
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void wk_shm_host(uint32_t workers, char host[WK_SHM_HOST])
{
    char boot[40] = "";
    struct stat st;
    struct statvfs fs;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || fscanf(file, "%39s", boot) != 1)
        boot[0] = '\0';
    if (file)
        fclose(file);
    host[0] = '\0';
    if (boot[0] && stat(shm_folder, &st) == 0 && statvfs(shm_folder, &fs) == 0 && shm_can_make() &&
        (uint64_t)fs.f_bavail * fs.f_frsize / 2 > shm_bytes(workers))
        snprintf(host, WK_SHM_HOST, "%s/%" PRIx64 "/%" PRIx64 "/%u", boot, (uint64_t)st.st_dev, (uint64_t)st.st_ino,
                 (unsigned)geteuid());
}

// ---- barriers -----------------------------------------------------------------------------------------------------

static void shm_futex(atomic_uint *word, int operation, unsigned value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

// One that has not come to the barrier after `before` others.
static uint32_t shm_missing(const struct wk_shm *s, unsigned before)
{
    uint32_t member = 0;
    while (member + 1 < s->is.members &&
           (member == s->is.member || atomic_load_explicit(&s->head->of[member].come, memory_order_relaxed) != before))
        member++;
    return member;
}

bool wk_shm_awaits(const struct wk_shm *s, uint32_t member)
{
    return member != s->is.member && atomic_load_explicit(&s->head->of[member].come, memory_order_relaxed) ==
                                         atomic_load_explicit(&s->head->barriers, memory_order_relaxed);
}

// Until the number of barriers is another one.
static enum ps_code shm_await(const struct wk_shm *s, unsigned before, struct ps_error *e)
{
    static const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    const int spins = s->is.members <= s->cores ? SPINS : 0;
    for (int i = 0; i < spins; i++)
        if (atomic_load_explicit(&s->head->barriers, memory_order_acquire) != before)
            return PS_OK;
    while (atomic_load_explicit(&s->head->barriers, memory_order_acquire) == before) {
        shm_futex(&s->head->barriers, FUTEX_WAIT, before, &look);
        // Who has gone after the barrier is no reason.
        if (s->is.look(s->is.arg, shm_missing(s, before), e) &&
            atomic_load_explicit(&s->head->barriers, memory_order_acquire) == before)
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
    atomic_store_explicit(&h->of[s->is.member].come, before + 1, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&h->waiting, 1, memory_order_acq_rel) + 1 < s->is.members)
        return shm_await(s, before, e);
    atomic_store_explicit(&h->waiting, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->barriers, 1, memory_order_release);
    shm_futex(&h->barriers, FUTEX_WAKE, INT32_MAX, NULL);
    return PS_OK;
}

// ---- open ---------------------------------------------------------------------------------------------------------

static enum ps_code shm_map(struct wk_shm *s, int fd, struct ps_error *e)
{
    struct stat st = {0};
    if (fstat(fd, &st) || (size_t)st.st_size != s->bytes)
        return ps_fail(e, PS_INTERNAL, "shared memory has %jd bytes: expected %zu", (intmax_t)st.st_size, s->bytes);
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot map %zu bytes of shared memory: %s", s->bytes,
                       strerror(errno));
    s->head = at;
    s->buffers = (char *)at + shm_head_bytes(s->is.members);
    return PS_OK;
}

// Those of workers that were killed while they had names: nobody has them locked.
static void shm_remove_abandoned(void)
{
    DIR *folder = opendir(shm_folder);
    for (struct dirent *file; folder && (file = readdir(folder));) {
        if (strncmp(file->d_name, shm_prefix, strlen(shm_prefix)) != 0)
            continue;
        const int fd = openat(dirfd(folder), file->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(folder), file->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (folder)
        closedir(folder);
}

static int shm_set_name(int fd, const char *name)
{
    char from[32], to[128];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    snprintf(to, sizeof to, "%s%s", shm_folder, name);
    return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

// Linux before 6.18 gives up where a signal is pending, whichever thread takes it later.
static int shm_reserve(const struct wk_shm *s)
{
    int error;
    do
        error = posix_fallocate(s->locked, 0, (off_t)s->bytes);
    while (error == EINTR);
    return error;
}

// It is whole and locked before others can find it.
static enum ps_code shm_make(struct wk_shm *s, struct ps_error *e)
{
    const char *name = s->is.name;
    s->locked = shm_make_nameless();
    int error = s->locked < 0 ? errno : shm_reserve(s);
    if (!error && (flock(s->locked, LOCK_EX | LOCK_NB) || shm_set_name(s->locked, name)))
        error = errno;
    if (error)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make %zu bytes of shared memory %s%s: %s", s->bytes,
                       shm_folder, name, strerror(error));
    return shm_map(s, s->locked, e);
}

// Once. PS_OK: it is *fd, or -1 where it is not there yet.
static enum ps_code shm_try(const struct wk_shm *s, int *fd, struct ps_error *e)
{
    *fd = shm_open(s->is.name, O_RDWR, 0);
    e->code = PS_OK;
    return *fd >= 0 || errno == ENOENT || errno == EINTR
               ? PS_OK
               : ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot open shared memory %s%s of %s: %s", shm_folder, s->is.name,
                         s->is.members_name[0], strerror(errno));
}

// Waits for member 0 to make it.
static enum ps_code shm_find(struct wk_shm *s, struct ps_error *e)
{
    int fd = -1;
    for (unsigned tries = 1; shm_try(s, &fd, e) == PS_OK && fd < 0; tries++) {
        if (tries % 32 == 0 && s->is.look(s->is.arg, 0, e))
            break;
        ps_sleep(2 * PS_MS);
    }
    if (e->code == PS_OK)
        shm_map(s, fd, e);
    if (fd >= 0)
        close(fd);
    return e->code;
}

enum ps_code wk_shm_open(const struct wk_shm_options *options, struct wk_shm **shm, struct ps_error *e)
{
    const bool makes = options->member == 0;
    struct wk_shm *s = ps_alloc(sizeof *s);
    *s = (struct wk_shm){.is = *options, .bytes = shm_bytes(options->members), .locked = -1};
    s->cores = sysconf(_SC_NPROCESSORS_ONLN);
    *shm = NULL;
    e->code = PS_OK;
    if (makes)
        shm_remove_abandoned();
    if ((makes ? shm_make(s, e) : shm_find(s, e)) == PS_OK)
        shm_barrier(s, e);
    if (makes || e->code)
        shm_unlink(options->name);  // all have it, or nobody will
    if (s->locked >= 0)
        close(s->locked);
    if (e->code) {
        wk_shm_close(s);
        return e->code;
    }
    s->is.name = NULL;
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

// That of a member, for the piece at hand.
static char *shm_buffer(const struct wk_shm *s, uint32_t member)
{
    return s->buffers + ((size_t)(s->pieces % 2) * s->is.members + member) * PIECE;
}

// What a member adds up: bytes [first, end) of a piece.
struct shm_part {
    size_t first, end;
};

static struct shm_part shm_part(const struct wk_shm *s, uint32_t member, size_t n, size_t size)
{
    return (struct shm_part){wk_part(n, s->is.members, member) * size, wk_part(n, s->is.members, member + 1) * size};
}

// Gives the others what they add up.
static void shm_share(const struct wk_shm *s, const char *values, size_t n, size_t size)
{
    const struct shm_part own = shm_part(s, s->is.member, n, size);
    char *to = shm_buffer(s, s->is.member);
    memcpy(to, values, own.first);
    memcpy(to + own.end, values + own.end, n * size - own.end);
}

// The sum takes the place in this member's buffer that shm_share has left free.
static void shm_add_part(const struct wk_shm *s, const char *values, size_t n, enum wk_number type)
{
    const size_t size = wk_number_size(type);
    const struct shm_part own = shm_part(s, s->is.member, n, size);
    char *sum = shm_buffer(s, s->is.member) + own.first;
    const char *first = s->is.member == 0 ? values : shm_buffer(s, 0);
    for (uint32_t k = 1; k < s->is.members; k++) {
        const char *v = s->is.member == k ? values : shm_buffer(s, k);
        wk_sum(type, sum, first + own.first, v + own.first, (own.end - own.first) / size);
        first = sum - own.first;
    }
}

static void shm_take(const struct wk_shm *s, char *values, size_t n, size_t size)
{
    for (uint32_t k = 0; k < s->is.members; k++) {
        const struct shm_part part = shm_part(s, k, n, size);
        memcpy(values + part.first, shm_buffer(s, k) + part.first, part.end - part.first);
    }
}

static void shm_say_what(const struct wk_shm *s, const struct wk_array *array)
{
    struct shm_member *own = &s->head->of[s->is.member];
    own->id = wk_array_id(array);
    snprintf(own->what, sizeof own->what, "%s", array->what);
}

// After a barrier to which all have come with an array: is it the same?
static enum ps_code shm_check(const struct wk_shm *s, struct ps_error *e)
{
    const struct shm_member *of = s->head->of, *own = &of[s->is.member];
    for (uint32_t k = 0; k < s->is.members; k++)
        if (of[k].id != own->id)
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s adds up %.99s: expected %.99s", s->is.members_name[k],
                           of[k].what, own->what);
    return PS_OK;
}

static enum ps_code shm_reduce_piece(struct wk_shm *s, const struct wk_array *array, size_t first, bool at_all,
                                     struct ps_error *e)
{
    const size_t size = wk_number_size(array->type), most = PIECE / size;
    const size_t n = array->n - first < most ? array->n - first : most;
    char *values = (char *)array->values + first * size;
    shm_share(s, values, n, size);
    if (shm_barrier(s, e) || (first == 0 && shm_check(s, e)))
        return e->code;
    shm_add_part(s, values, n, array->type);
    if (shm_barrier(s, e))
        return e->code;
    if (at_all || s->is.member == 0)
        shm_take(s, values, n, size);
    s->pieces++;
    return PS_OK;
}

enum ps_code wk_shm_reduce(struct wk_shm *s, const struct wk_array *array, bool at_all, struct ps_error *e)
{
    e->code = PS_OK;
    shm_say_what(s, array);
    for (size_t first = 0; first < array->n && e->code == PS_OK; first += PIECE / wk_number_size(array->type))
        shm_reduce_piece(s, array, first, at_all, e);
    return e->code;
}

enum ps_code wk_shm_broadcast(struct wk_shm *s, const struct wk_array *array, struct ps_error *e)
{
    const size_t bytes = array->n * wk_number_size(array->type);
    char *values = array->values;
    e->code = PS_OK;
    for (size_t at = 0; at < bytes && e->code == PS_OK; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (s->is.member == 0)
            memcpy(shm_buffer(s, 0), values + at, piece);
        if (shm_barrier(s, e))
            return e->code;
        if (s->is.member != 0)
            memcpy(values + at, shm_buffer(s, 0), piece);
        s->pieces++;
    }
    return e->code;
}
