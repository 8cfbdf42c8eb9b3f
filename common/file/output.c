// SPDX-License-Identifier: Apache-2.0
#include "common/file/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

// Links: as many as the kernel follows. More: bytes of ".0123456789abcdef.tmp".
enum { LINKS_MAX = 40, TEMPORARY_MORE = 21, OLD_SECONDS = 24 * 60 * 60 };

// ---- where to -----------------------------------------------------------------------------------------------------

static enum ps_code output_cannot(const char *do_what, const char *path, int error, struct ps_error *e)
{
    bool create = strcmp(do_what, "create") == 0;
    return ps_fail(e, create ? PS_CANNOT_CREATE : PS_CANNOT_WRITE, "cannot %s %.256s: %s", do_what, path,
                   strerror(error));
}

static void output_folder(const char *path, char folder[PATH_MAX])
{
    char copy[PATH_MAX];
    strcpy(copy, path);
    strcpy(folder, dirname(copy));
}

// The descriptor of this process that a path such as /dev/fd/1 names; -1: it names none.
static int output_descriptor(const char *path)
{
    char own[32], *end;
    snprintf(own, sizeof own, "/proc/%d/fd/", (int)getpid());
    const char *const folders[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/", own};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *digits = path + strlen(folders[i]);
        if (strncmp(path, folders[i], strlen(folders[i])) != 0 || *digits < '0' || *digits > '9')
            continue;
        const long fd = strtol(digits, &end, 10);
        return *end || fd > INT_MAX ? -1 : (int)fd;
    }
    return -1;
}

// Links of these lead to what is open, not to a name.
static bool output_is_open_already(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0;
}

// Follows links one by one, because the last may lead to a file that is not there yet. False: errno says why.
static bool output_follow(const char *path, char target[PATH_MAX])
{
    char link[PATH_MAX], folder[PATH_MAX], next[2 * PATH_MAX];
    strcpy(next, path);
    for (int i = 0; i < LINKS_MAX; i++) {
        if (strlen(next) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return false;
        }
        strcpy(target, next);
        ssize_t n = output_is_open_already(target) ? -1 : readlink(target, link, sizeof link - 1);
        if (n < 0)
            return true;  // no link; what else is wrong, opening it will say
        link[n] = '\0';
        output_folder(target, folder);
        snprintf(next, sizeof next, "%s%s%s", *link == '/' ? "" : folder, *link == '/' ? "" : "/", link);
    }
    errno = ELOOP;
    return false;
}

// May what is there be written to? Sets errno. What is open was permitted to whoever opened it.
static bool output_may_write(const char *target)
{
    const int fd = output_descriptor(target);
    if (fd < 0)  // renaming would get past the write protection of a file that exists
        return access(target, W_OK) == 0;
    const int flags = fcntl(fd, F_GETFL);
    errno = EBADF;
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Sets target and in_place.
static enum ps_code output_place(struct ps_output *o, const char *path, mode_t mode, struct ps_error *e)
{
    struct stat s;
    *o = (struct ps_output){.path = path, .fd = -1, .mode = mode};
    if (strlen(path) >= PATH_MAX)
        return output_cannot("create", path, ENAMETOOLONG, e);
    if (!output_follow(path, o->target))
        return output_cannot("create", path, errno, e);
    const bool exists = stat(o->target, &s) == 0;
    if (exists && S_ISDIR(s.st_mode))
        return ps_fail(e, PS_CANNOT_CREATE, "cannot create %.256s: it is a folder", path);
    const bool is_named = exists || output_descriptor(o->target) >= 0;
    o->in_place = exists && (!S_ISREG(s.st_mode) || output_is_open_already(o->target));
    const bool replaces_any = mode && exists && !o->in_place;
    if (is_named ? !replaces_any && !output_may_write(o->target) : errno == ENAMETOOLONG)
        return output_cannot("create", path, errno, e);
    if (!o->in_place && strlen(o->target) + TEMPORARY_MORE >= PATH_MAX)
        return output_cannot("create", path, ENAMETOOLONG, e);
    return PS_OK;
}

enum ps_code ps_output_check(const char *path, struct ps_error *e)
{
    struct ps_output o;
    char folder[PATH_MAX];
    enum ps_code code = output_place(&o, path, 0, e);
    if (code)
        return code;
    if (o.in_place)
        return PS_OK;
    output_folder(o.target, folder);
    struct stat s;
    if (stat(folder, &s) == 0 && !S_ISDIR(s.st_mode))
        return output_cannot("create", path, ENOTDIR, e);
    return access(folder, W_OK) == 0 ? PS_OK : output_cannot("create", path, errno, e);
}

// What of a path follows its folder `above`, as output_folder has it.
static const char *output_rest(const char *path, const char *above)
{
    const size_t n = strlen(above);
    return strncmp(path, above, n) == 0 && path[n] == '/' ? path + n : path;
}

// The nearest folder above that is there, by its name without links, and what follows.
static bool output_resolve(const char *target, char resolved[PATH_MAX])
{
    char at[PATH_MAX], above[PATH_MAX];
    const char *rest = "";
    strcpy(at, target);
    while (!realpath(at, resolved)) {
        if (errno != ENOENT || strcmp(at, "/") == 0 || strcmp(at, ".") == 0)
            return false;
        output_folder(at, above);
        strcpy(at, above);
        rest = output_rest(target, at);
    }
    for (size_t n = strlen(resolved); *(rest += strspn(rest, "/")); n = strlen(resolved)) {
        const size_t size = strcspn(rest, "/");
        if (n + size + 2 > PATH_MAX)
            return false;
        if (size != 1 || *rest != '.')
            snprintf(resolved + n, PATH_MAX - n, "/%.*s", (int)size, rest);
        rest += size;
    }
    return true;
}

static bool output_is_shared(const char *target)
{
    struct stat s;
    return output_is_open_already(target) || (stat(target, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode));
}

bool ps_output_same(const char *a, const char *b)
{
    char at[2][PATH_MAX], resolved[2][PATH_MAX];
    const char *const path[] = {a, b};
    for (int i = 0; i < 2; i++)
        if (strlen(path[i]) >= PATH_MAX || !output_follow(path[i], at[i]) || output_is_shared(at[i]) ||
            !output_resolve(at[i], resolved[i]))
            return false;
    return strcmp(resolved[0], resolved[1]) == 0;
}

// ---- writing ------------------------------------------------------------------------------------------------------

// Keeps the reason, which a FILE forgets.
static ssize_t output_write(void *cookie, const char *from, size_t n)
{
    struct ps_output *o = cookie;
    for (size_t at = 0; at < n;) {
        ssize_t put = write(o->fd, from + at, n - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN && poll(&(struct pollfd){.fd = o->fd, .events = POLLOUT}, 1, -1) >= 0)
            continue;  // what somebody else has opened, and without waiting
        if (put < 0) {
            o->error = o->error ? o->error : errno;
            return (ssize_t)at;
        }
        at += (size_t)put;
    }
    return (ssize_t)n;
}

static bool output_is_printed(const struct stat *to)
{
    struct stat printed;
    return fstat(STDOUT_FILENO, &printed) == 0 && to->st_dev == printed.st_dev && to->st_ino == printed.st_ino;
}

bool ps_output_is_stdout(const char *path)
{
    struct stat to;
    return stat(path, &to) == 0 && output_is_printed(&to);
}

// What is printed before comes before, where both go to the same place.
static void output_flush_printed(int fd)
{
    struct stat to;
    if (fstat(fd, &to) == 0 && output_is_printed(&to))
        fflush(stdout);
}

// Opened anew, a file that is open would be written from its beginning, and not from where its descriptor is.
static int output_open_in_place(const char *target)
{
    const int fd = output_descriptor(target);
    if (fd < 0)
        return open(target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    output_flush_printed(fd);
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

const char *ps_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool ps_output_is_ending(const char *ending)
{
    return *ending == '.' && strspn(ending + 1, "0123456789abcdef") == 16 && strcmp(ending + 17, ".tmp") == 0;
}

// So many bytes of a file's name a temporary one beside it begins with: as many characters are left out as make it too
// long.
static size_t output_keep(const char *name)
{
    size_t keep = strlen(name);
    if (keep > NAME_MAX - TEMPORARY_MORE)
        keep = NAME_MAX - TEMPORARY_MORE;
    while (keep > 0 && ((unsigned char)name[keep] & 0xc0) == 0x80)  // in UTF-8, within a character
        keep--;
    return keep;
}

static void output_name_temporary(struct ps_output *o)
{
    const char *name = ps_file_name(o->target);
    snprintf(o->temporary, sizeof o->temporary, "%.*s.%016" PRIx64 ".tmp",
             (int)(name - o->target + (ptrdiff_t)output_keep(name)), o->target, ps_random());
}

// Nobody has written to this one for so long that nobody will.
static bool output_is_old(int folder, const char *name)
{
    struct stat s;
    return fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
           difftime(time(NULL), s.st_mtime) > OLD_SECONDS;
}

void ps_output_clean(const char *path)
{
    struct ps_output o;
    struct ps_error ignored;
    char folder[PATH_MAX];
    if (output_place(&o, path, 0, &ignored) || o.in_place)
        return;
    output_folder(o.target, folder);
    const char *name = ps_file_name(o.target);
    const size_t keep = output_keep(name);
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strncmp(entry->d_name, name, keep) == 0 && ps_output_is_ending(entry->d_name + keep) &&
            output_is_old(dirfd(list), entry->d_name))
            unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
}

static int output_open_target(struct ps_output *o)
{
    struct stat s;
    if (o->in_place)
        return output_open_in_place(o->target);
    output_name_temporary(o);
    int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, o->mode ? o->mode : 0666);
    if (fd >= 0 && !o->mode && stat(o->target, &s) == 0)
        (void)!fchmod(fd, s.st_mode & 0777);  // who could read it before can read it then
    return fd;
}

enum ps_code ps_output_open(struct ps_output *o, const char *path, struct ps_error *e)
{
    return ps_output_open_mode(o, path, 0, e);
}

enum ps_code ps_output_open_mode(struct ps_output *o, const char *path, mode_t mode, struct ps_error *e)
{
    enum ps_code code = output_place(o, path, mode, e);
    if (code)
        return code;
    o->fd = output_open_target(o);
    if (o->fd < 0)
        return output_cannot("create", path, errno, e);
    o->file = fopencookie(o, "w", (cookie_io_functions_t){.write = output_write});
    if (!o->file) {
        code = output_cannot("create", path, errno, e);
        ps_output_abort(o);
        return code;
    }
    return PS_OK;
}

// What is no file on a disk has nothing to flush. A signal may interrupt a file system of FUSE.
static bool output_sync(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP;
}

// A rename is on disk when its folder is. One that may be written to but not read cannot be flushed: as with what has
// nothing to flush, the file is there.
static int output_sync_folder(const char *target)
{
    char folder[PATH_MAX];
    output_folder(target, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = (fd >= 0 && output_sync(fd)) || (fd < 0 && errno == EACCES) ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return error;
}

static void output_end(struct ps_output *o)
{
    if (o->file)
        fclose(o->file);
    if (o->fd >= 0)
        close(o->fd);
    o->file = NULL;
    o->fd = -1;
}

enum ps_code ps_output_commit(struct ps_output *o, struct ps_error *e)
{
    errno = 0;
    bool failed = fflush(o->file) != 0 || ferror(o->file);
    int error = o->error ? o->error : failed ? EIO : 0;
    if (!error && !output_sync(o->fd))
        error = errno;
    output_end(o);
    if (!error && !o->in_place)
        error = rename(o->temporary, o->target) == 0 ? output_sync_folder(o->target) : errno;
    if (!error)
        return PS_OK;
    if (!o->in_place)
        unlink(o->temporary);
    return output_cannot("write", o->path, error, e);
}

void ps_output_abort(struct ps_output *o)
{
    output_end(o);
    if (!o->in_place)
        unlink(o->temporary);
}

static int folder_make(const char *path)
{
    return mkdir(path, 0777) && errno != EEXIST ? errno : 0;
}

enum ps_code ps_make_folder(const char *folder, struct ps_error *e)
{
    char *path = ps_try_strdup(folder);
    int error = path ? 0 : ENOMEM;
    for (char *at = path; !error && *at; at++) {
        if (*at != '/' || at == path)
            continue;
        *at = '\0';
        error = folder_make(path);
        *at = '/';
    }
    if (!error)
        error = folder_make(path);
    free(path);
    struct stat st;
    if (!error && (stat(folder, &st) || !S_ISDIR(st.st_mode)))
        error = ENOTDIR;
    return error ? ps_fail(e, PS_CANNOT_CREATE, "%s: %s", folder, strerror(error)) : PS_OK;
}

enum ps_code ps_folder_check(const char *folder, struct ps_error *e)
{
    char at[PATH_MAX], above[PATH_MAX];
    struct stat s;
    int error = strlen(folder) >= PATH_MAX ? ENAMETOOLONG : 0;
    if (!error)
        strcpy(at, folder);
    while (!error && stat(at, &s)) {  // the nearest one above that is there; a link to nothing is in the way
        error = errno == ENOENT && lstat(at, &s) ? 0 : errno;
        output_folder(at, above);
        strcpy(at, above);
    }
    if (!error)
        error = !S_ISDIR(s.st_mode) ? ENOTDIR : access(at, W_OK | X_OK) ? errno : 0;
    return error ? ps_fail(e, PS_CANNOT_CREATE, "cannot create files in %.256s: %s", folder, strerror(error)) : PS_OK;
}

int ps_output_end_stdout(const char *program, int exit_code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    // A flush before this one may have met the error, and its reason is gone.
    fprintf(stderr, "%s: cannot write standard output%s%s\n", program, errno ? ": " : "", errno ? strerror(errno) : "");
    return exit_code ? exit_code : ps_code_exit(PS_CANNOT_WRITE);
}
