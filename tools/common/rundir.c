// SPDX-License-Identifier: Apache-2.0
#include "tools/common/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

char *rundir_address(const struct rundir *dir, int task, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "unix:%s/ps%d", dir->path, task);
    return to;
}

char *rundir_worker_address(const struct rundir *dir, int rank, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "unix:%s/worker%d", dir->path, rank);
    return to;
}

char *rundir_cluster_file(const struct rundir *dir, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "%s/cluster.yaml", dir->path);
    return to;
}

// ---- what killed runs have left -----------------------------------------------------------------------------------

// "ps0", "worker12", and "worker12.ring", on which that one hears its neighbor.
static bool rundir_is_socket(const char *name, const char *kind, const char *beside)
{
    const size_t n = strlen(kind), digits = strncmp(name, kind, n) == 0 ? strspn(name + n, "0123456789") : 0;
    return digits && (!name[n + digits] || strcmp(name + n + digits, beside) == 0);
}

// What rundir_create, the ps tasks and the workers make there. Whatever else lies in the directory keeps it.
static bool rundir_is_ours(const char *name)
{
    return strcmp(name, "cluster.yaml") == 0 || rundir_is_socket(name, "ps", "") ||
           rundir_is_socket(name, "worker", ".ring");
}

// Removes what is ours. Is nothing left but the lock?
static bool rundir_empty(int dir)
{
    DIR *list = fdopendir(dup(dir));
    bool empty = list != NULL;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const char *name = entry->d_name;
        if (rundir_is_ours(name))
            empty &= unlinkat(dir, name, 0) == 0;
        else
            empty &= strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0;
    }
    if (list)
        closedir(list);
    return empty;
}

// A directory of this user, private as mkdtemp makes it, whose run has ended. Links are not followed. The lock goes
// last: without it no later run may remove the rest.
static void rundir_sweep_one(int parent, const char *name)
{
    struct stat st;
    int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    bool own = fstat(dir, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 077) == 0;
    int lock = own ? openat(dir, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && rundir_empty(dir)) {
        unlinkat(dir, "lock", 0);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
    if (lock >= 0)
        close(lock);
    close(dir);
}

static void rundir_sweep(const char *parent)
{
    DIR *list = parent && *parent == '/' ? opendir(parent) : NULL;
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, "psctl-", 6) == 0 && strlen(entry->d_name) == 12)
            rundir_sweep_one(dirfd(list), entry->d_name);
    if (list)
        closedir(list);
}

// ---- one's own ----------------------------------------------------------------------------------------------------

static bool make_under(const char *parent, char path[RUNDIR_MAX])
{
    if (!parent || *parent != '/' || snprintf(path, RUNDIR_MAX, "%s/psctl-XXXXXX", parent) >= RUNDIR_MAX)
        return false;
    return mkdtemp(path) != NULL;
}

static char *rundir_lock_file(const struct rundir *dir, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "%s/lock", dir->path);
    return to;
}

// The lock is held before it has its name: nobody finds one that is not.
static enum ps_code rundir_take(struct rundir *dir, struct ps_error *e)
{
    char path[RUNDIR_PATH_MAX], first[RUNDIR_PATH_MAX + 8];
    snprintf(first, sizeof first, "%s.new", rundir_lock_file(dir, path));
    dir->lock = open(first, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (dir->lock < 0 || flock(dir->lock, LOCK_EX | LOCK_NB) != 0 || rename(first, path) != 0)
        return ps_fail(e, PS_CANNOT_CREATE, "cannot lock %s: %s", path, strerror(errno));
    return PS_OK;
}

static enum ps_code write_cluster_file(const struct rundir *dir, struct ps_error *e)
{
    char path[RUNDIR_PATH_MAX], address[RUNDIR_PATH_MAX];
    FILE *file = fopen(rundir_cluster_file(dir, path), "w");
    if (!file)
        return ps_fail(e, PS_CANNOT_CREATE, "cannot write %s: %s", path, strerror(errno));
    fputs(dir->n_ps ? "ps:\n" : "", file);
    for (int i = 0; i < dir->n_ps; i++)
        fprintf(file, "  - \"%s\"\n", rundir_address(dir, i, address));
    fputs(dir->n_workers ? "worker:\n" : "", file);
    for (int i = 0; i < dir->n_workers; i++)
        fprintf(file, "  - \"%s\"\n", rundir_worker_address(dir, i, address));
    bool failed = ferror(file);
    if (fclose(file) || failed)
        return ps_fail(e, PS_CANNOT_WRITE, "cannot write %s: %s", path, strerror(errno));
    return PS_OK;
}

enum ps_code rundir_create(struct rundir *dir, int n_ps, int n_workers, struct ps_error *e)
{
    *dir = (struct rundir){.n_ps = n_ps, .n_workers = n_workers, .lock = -1};
    rundir_sweep(getenv("XDG_RUNTIME_DIR"));
    rundir_sweep("/tmp");
    if (!make_under(getenv("XDG_RUNTIME_DIR"), dir->path) && !make_under("/tmp", dir->path))
        return ps_fail(e, PS_CANNOT_CREATE, "cannot make a directory in /tmp: %s", strerror(errno));
    if (rundir_take(dir, e) == PS_OK && write_cluster_file(dir, e) == PS_OK)
        return PS_OK;
    rundir_remove(dir);
    return e->code;
}

void rundir_keep(struct rundir *dir)
{
    char path[RUNDIR_PATH_MAX];
    unlink(rundir_lock_file(dir, path));
    if (dir->lock >= 0)
        close(dir->lock);
    dir->lock = -1;
}

void rundir_remove(struct rundir *dir)
{
    const int own = open(dir->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own >= 0) {
        rundir_empty(own);
        close(own);
    }
    rundir_keep(dir);
    rmdir(dir->path);
}
