// SPDX-License-Identifier: Apache-2.0
#include "common/file/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

static const char lock_mark[] = "lock of paramserver\n";  // then the owner, and the holder, a line each

enum { LOCK_TEXT = 1024, LOCK_TRIES = 20, LOCK_LOOK_MS = 50 };

// Is what is at the path the file that is open? Whoever held it before may have removed it.
static bool lock_is_at(const char *path, int fd)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && lstat(path, &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
}

// Of a file that is empty, or no lock, all is empty.
struct lock_text {
    char text[LOCK_TEXT];
    const char *owner, *holder;
    bool empty, other;  // other: it is a file of something else
};

static void lock_read(int fd, struct lock_text *t)
{
    const size_t mark = sizeof lock_mark - 1;
    const ssize_t n = pread(fd, t->text, sizeof t->text - 1, 0);
    t->text[n > 0 ? n : 0] = '\0';
    t->empty = n <= 0;
    t->other = !t->empty && strncmp(t->text, lock_mark, mark) != 0;
    t->owner = t->holder = "";
    char *owner = t->text + mark, *end = t->empty || t->other ? NULL : strchr(owner, '\n');
    if (!end)
        return;
    *end = '\0';
    t->owner = owner;
    t->holder = end + 1;
    end[1 + strcspn(end + 1, "\n")] = '\0';
}

// Whoever has just locked it is about to write who it is, in place of the one before.
static enum ps_code lock_refuse(int fd, const char *path, const char *owner, struct ps_error *e)
{
    struct lock_text t = {.empty = true};
    ps_sleep(LOCK_LOOK_MS * PS_MS);
    for (int i = 0; i < LOCK_TRIES && t.empty; i++) {
        if (i)
            ps_sleep(LOCK_LOOK_MS * PS_MS);
        lock_read(fd, &t);
    }
    close(fd);
    if (strcmp(t.owner, owner) == 0)
        return PS_OK;
    return ps_fail(e, PS_ALREADY_EXISTS, "%.256s is locked by %.128s", path, *t.holder ? t.holder : "another process");
}

// A disk that is full has no room for the names: it is locked all the same. Other hosts see them at once. Whoever may
// write to the folder may lock it, too, when this process is gone.
static enum ps_code lock_hold(struct ps_lock *lock, int fd, const char *path, const char *owner, const char *holder,
                              struct ps_error *e)
{
    struct lock_text before;
    lock_read(fd, &before);
    if (before.other) {
        close(fd);
        return ps_fail(e, PS_CANNOT_CREATE, "cannot lock %.256s: it is a file of something else", path);
    }
    lock->path = ps_try_strdup(path);
    if (!lock->path) {
        close(fd);
        return ps_no_memory(e, "the path of a lock");
    }
    lock->fd = fd;
    if (before.empty)
        (void)!fchmod(fd, 0666);
    if (ftruncate(fd, 0) == 0 && dprintf(fd, "%s%s\n%s\n", lock_mark, owner, holder) > 0)
        fsync(fd);
    return PS_OK;
}

// 0, or why not.
static int lock_try(int fd)
{
    int error;
    do
        error = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
    while (error == EINTR);
    return error;
}

enum ps_code ps_lock_take(struct ps_lock *lock, const char *path, const char *owner, const char *holder,
                          struct ps_error *e)
{
    *lock = (struct ps_lock){.fd = -1};
    for (int i = 0; i < LOCK_TRIES; i++) {  // each time it was removed meanwhile
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0 && (errno == ENOSPC || errno == EDQUOT))
            return PS_OK;  // what is to be written may find room later
        if (fd < 0)
            return ps_fail(e, PS_CANNOT_CREATE, "cannot lock %.256s: %s", path, strerror(errno));
        const int error = lock_try(fd);
        if (error == EWOULDBLOCK)
            return lock_refuse(fd, path, owner, e);
        if (!error && lock_is_at(path, fd))
            return lock_hold(lock, fd, path, owner, holder, e);
        close(fd);
        if (error == ENOSYS || error == EOPNOTSUPP)
            unlink(path);  // nobody holds one there
        if (error)
            return PS_OK;
    }
    return PS_OK;
}

void ps_lock_release(struct ps_lock *lock)
{
    if (!lock->path)
        return;
    if (lock_is_at(lock->path, lock->fd))
        unlink(lock->path);
    close(lock->fd);
    free(lock->path);
    lock->path = NULL;
}
