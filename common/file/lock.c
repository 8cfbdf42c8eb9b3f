// SPDX-License-Identifier: Apache-2.0
#include "common/file/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

// Is what is at the path the file that is open? Whoever held it before may have removed it.
static bool lock_is_at(const char *path, int fd)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && stat(path, &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
}

// "owner\nholder\n"; what is not there is empty. The holder may be about to write it.
static void lock_read(int fd, char *text, size_t size, const char **owner, const char **holder)
{
    const ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *end = strchr(text, '\n');
    *owner = end ? text : "";
    *holder = end ? end + 1 : "";
    if (end)
        *end = '\0';
    if ((end = strchr(*holder, '\n')))
        *end = '\0';
}

// Whoever has just locked it is about to write who it is.
static enum ps_code lock_refuse(int fd, const char *path, const char *owner, struct ps_error *e)
{
    const struct timespec moment = {.tv_nsec = 50 * PS_MS};
    const char *other = "", *holder = "";
    char text[1024];
    for (int i = 0; i < 20 && !*other; i++) {
        if (i)
            nanosleep(&moment, NULL);
        lock_read(fd, text, sizeof text, &other, &holder);
    }
    close(fd);
    if (strcmp(other, owner) == 0)
        return PS_OK;
    return ps_fail(e, PS_ALREADY_EXISTS, "%.256s is locked by %.128s", path, *holder ? holder : "another process");
}

// A disk that is full has no room for the names: it is locked all the same. Whoever may write to the folder may lock
// it, too, when this process is gone. Other hosts see the names at once.
static enum ps_code lock_hold(struct ps_lock *lock, int fd, const char *path, const char *owner, const char *holder,
                              struct ps_error *e)
{
    lock->path = ps_try_strdup(path);
    if (!lock->path) {
        close(fd);
        return ps_no_memory(e, "the path of a lock");
    }
    lock->fd = fd;
    (void)!fchmod(fd, 0666);
    if (ftruncate(fd, 0) == 0 && dprintf(fd, "%s\n%s\n", owner, holder) > 0)
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
    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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
