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

static enum ps_code lock_refuse(int fd, const char *path, const char *owner, struct ps_error *e)
{
    char text[1024];
    const char *other, *holder;
    lock_read(fd, text, sizeof text, &other, &holder);
    close(fd);
    if (strcmp(other, owner) == 0)
        return PS_OK;
    return ps_fail(e, PS_ALREADY_EXISTS, "%.256s is locked by %.128s", path, *holder ? holder : "another process");
}

// A disk that is full has no room for the names: it is locked all the same.
static enum ps_code lock_hold(struct ps_lock *lock, int fd, const char *path, const char *owner, const char *holder,
                              struct ps_error *e)
{
    lock->path = ps_try_strdup(path);
    if (!lock->path) {
        close(fd);
        return ps_no_memory(e, "the path of a lock");
    }
    lock->fd = fd;
    if (ftruncate(fd, 0) == 0)
        dprintf(fd, "%s\n%s\n", owner, holder);
    return PS_OK;
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
            return ps_fail(e, PS_CANNOT_CREATE, "cannot create %.256s: %s", path, strerror(errno));
        const int error = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
        if (error == EWOULDBLOCK)
            return lock_refuse(fd, path, owner, e);
        if (!error && lock_is_at(path, fd))
            return lock_hold(lock, fd, path, owner, holder, e);
        close(fd);
        if (error) {
            unlink(path);  // nobody can hold one there
            return PS_OK;
        }
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
