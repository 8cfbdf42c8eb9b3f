// SPDX-License-Identifier: Apache-2.0
//
// common/file/output: a file appears whole or not at all; what is no regular file is written to and never replaced.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/file/output.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int i;
    char *to = path[i++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_output.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int entries(bool remove)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(d));)
        if (entry->d_name[0] != '.') {
            n++;
            if (remove && unlink(in_folder(entry->d_name)) != 0)
                rmdir(in_folder(entry->d_name));
        }
    closedir(d);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    entries(true);
    return rmdir(folder);
}

static enum ps_code put(const char *path, const char *text, struct ps_error *e)
{
    struct ps_output o;
    if (ps_output_check(path, e) || ps_output_open(&o, path, e))
        return e->code;
    fputs(text, o.file);
    return ps_output_commit(&o, e);
}

static void expect_content(const char *path, const char *text)
{
    char have[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    have[fread(have, 1, sizeof have - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(have, text);
}

static mode_t mode_of(const char *path)
{
    struct stat s;
    assert_int_equal(lstat(path, &s), 0);
    return s.st_mode;
}

static void replaces_a_file(void **state)
{
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(put(in_folder("a"), "one", &e), PS_OK);
    assert_int_equal(chmod(in_folder("a"), 0640), 0);
    assert_int_equal(put(in_folder("a"), "two", &e), PS_OK);
    expect_content(in_folder("a"), "two");
    assert_int_equal(mode_of(in_folder("a")) & 0777, 0640);
    assert_int_equal(entries(false), 1);
}

// Links of every kind: relative, absolute, in a row, to a file that is not there yet.
static void folders_are_made(void **state)
{
    struct ps_error e;
    char deep[128], file[128];
    (void)state;
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    assert_int_equal(ps_make_folder(deep, &e), PS_OK);
    assert_int_equal(ps_make_folder(deep, &e), PS_OK);
    assert_int_equal(rmdir(deep), 0);
    assert_int_equal(put(file, "one", &e), PS_OK);
    assert_int_equal(ps_make_folder(file, &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, "Not a directory"));
    strcat(file, "/below");
    assert_int_equal(ps_make_folder(file, &e), PS_CANNOT_CREATE);
    assert_int_equal(ps_make_folder("", &e), PS_CANNOT_CREATE);
}

static void writes_through_links(void **state)
{
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(symlink("target", in_folder("near")), 0);
    assert_int_equal(symlink(in_folder("near"), in_folder("far")), 0);
    assert_int_equal(put(in_folder("far"), "new", &e), PS_OK);
    assert_true(S_ISLNK(mode_of(in_folder("far"))) && S_ISLNK(mode_of(in_folder("near"))));
    expect_content(in_folder("target"), "new");
    assert_int_equal(put(in_folder("near"), "newer", &e), PS_OK);
    expect_content(in_folder("target"), "newer");
    assert_int_equal(entries(false), 3);
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_int_equal(put(in_folder("loop"), "x", &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, strerror(ELOOP)));
}

static void writes_into_a_fifo(void **state)
{
    struct ps_error e = {0};
    char got[8] = "";
    (void)state;
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    int fd = open(in_folder("fifo"), O_RDWR | O_NONBLOCK);
    assert_int_equal(put(in_folder("fifo"), "abc", &e), PS_OK);
    assert_int_equal(read(fd, got, sizeof got), 3);
    assert_string_equal(got, "abc");
    close(fd);
    assert_true(S_ISFIFO(mode_of(in_folder("fifo"))));
    assert_int_equal(entries(false), 1);
}

// A device of this test's own, because root could replace /dev's; who is not root cannot make one, nor harm those.
static const char *device(const char *name, unsigned minor)
{
    const char *own = in_folder(name);
    if (geteuid() != 0)
        return minor == 3 ? "/dev/null" : "/dev/full";
    return mknod(own, S_IFCHR | 0666, makedev(1, minor)) == 0 && access(own, W_OK) == 0 ? own : NULL;
}

static void writes_into_devices(void **state)
{
    struct ps_error e = {0};
    const char *null = device("null", 3), *full = device("full", 7);
    (void)state;
    if (!null || !full)
        skip();
    assert_int_equal(put(null, "abc", &e), PS_OK);
    assert_true(S_ISCHR(mode_of(null)));
    assert_int_equal(put(full, "abc", &e), PS_CANNOT_WRITE);
    assert_non_null(strstr(e.text, "full: No space left on device"));
    assert_true(S_ISCHR(mode_of(full)));
}

// /dev/stdout and its kind: what is open, and not what its name was.
static void writes_into_what_is_open(void **state)
{
    struct ps_error e = {0};
    char path[64];
    (void)state;
    int fd = open(in_folder("a"), O_RDWR | O_CREAT, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(put(path, "abc", &e), PS_OK);
    assert_int_equal(lseek(fd, 0, SEEK_END), 3);
    close(fd);
    assert_int_equal(put(path, "x", &e), PS_CANNOT_CREATE);  // now it names nothing
    assert_non_null(strstr(e.text, strerror(EBADF)));
    fd = open(in_folder("a"), O_RDONLY);
    assert_int_equal(put(path, "x", &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, strerror(EBADF)));
    close(fd);
}

// From where it is, however it is named, as whatever else is written there; one with O_APPEND, at the end.
static void goes_on_in_what_is_open(void **state)
{
    struct ps_error e = {0};
    char path[64];
    (void)state;
    const char *const named[] = {"/proc/self/fd/%d", "/dev/fd/%d"};
    for (size_t i = 0; i < 2; i++) {
        const int fd = open(in_folder("a"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(write(fd, "head\n", 5), 5);
        snprintf(path, sizeof path, i ? named[1] : named[0], fd);
        assert_int_equal(put(path, "abc\n", &e), PS_OK);
        assert_int_equal(write(fd, "tail\n", 5), 5);
        expect_content(in_folder("a"), "head\nabc\ntail\n");
        close(fd);
        const int end = open(in_folder("a"), O_WRONLY | O_APPEND);
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), end);
        assert_int_equal(put(path, "end", &e), PS_OK);
        expect_content(in_folder("a"), "head\nabc\ntail\nend");
        close(end);
    }
    assert_int_equal(entries(false), 1);
}

// What a program has printed before stands before.
static void comes_after_what_was_printed(void **state)
{
    struct ps_error e = {0};
    (void)state;
    const int fd = open(in_folder("a"), O_RDWR | O_CREAT, 0600), kept = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(fd, STDOUT_FILENO);
    printf("printed\n");
    const enum ps_code code = put("/dev/stdout", "abc", &e);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(fd);
    assert_int_equal(code, PS_OK);
    expect_content(in_folder("a"), "printed\nabc");
}

// A pipe that does not wait for its reader, as some programs leave it behind.
static void waits_for_the_reader_of_a_pipe(void **state)
{
    enum { BYTES = 1 << 20 };
    struct ps_error e = {0};
    struct ps_output o;
    char path[64];
    int ends[2], status;
    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    const pid_t reader = fork();
    if (reader == 0) {
        static char got[4096];
        size_t n = 0;
        close(ends[1]);
        for (ssize_t more = 1; more != 0; n += more > 0 ? (size_t)more : 0)
            if ((more = read(ends[0], got, sizeof got)) < 0)
                poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, -1);
        _exit(n == BYTES ? 0 : 1);
    }
    close(ends[0]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    assert_int_equal(ps_output_open(&o, path, &e), PS_OK);
    for (size_t i = 0; i < BYTES; i++)
        putc('x', o.file);
    assert_int_equal(ps_output_commit(&o, &e), PS_OK);
    close(ends[1]);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
}

// The temporary file's name is no longer than a name may be; the check refuses what is too long already.
static void takes_a_name_as_long_as_may_be(void **state)
{
    struct ps_error e = {0};
    char name[NAME_MAX + 2], path[512];
    (void)state;
    for (size_t length = 230; length <= NAME_MAX + 1; length++) {
        memset(name, 'n', length);
        memcpy(name + 225, "\u00e9\u00e9\u00e9", 6);
        name[length] = '\0';
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (length > NAME_MAX)
            break;
        assert_int_equal(put(path, "abc", &e), PS_OK);
        expect_content(path, "abc");
        assert_int_equal(entries(true), 1);
    }
    assert_int_equal(ps_output_check(path, &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, strerror(ENAMETOOLONG)));
    assert_int_equal(entries(false), 0);
}

static void left(const char *name, double hours)
{
    const time_t then = time(NULL) - (time_t)(hours * 3600);
    const char *path = in_folder(name);
    struct ps_error e = {0};
    assert_int_equal(put(path, "half", &e), PS_OK);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){{.tv_sec = then}, {.tv_sec = then}}, 0), 0);
}

// What processes that were killed left of a file, but no other file, and none that one may be writing.
static void cleans_what_is_left(void **state)
{
    char name[NAME_MAX + 1], more[NAME_MAX + 1];
    (void)state;
    left("w.0123456789abcdef.tmp", 25);
    left("w.fedcba9876543210.tmp", 1e5);
    left("w.fedcba9876543211.tmp", 23);
    left("w.fedcba987654321.tmp", 25);
    left("w2.0123456789abcdef.tmp", 25);
    left("w", 25);
    assert_int_equal(symlink("w", in_folder("w.0123456789abcde0.tmp")), 0);
    assert_int_equal(mkdir(in_folder("w.0123456789abcde1.tmp"), 0700), 0);
    ps_output_clean(in_folder("w"));
    assert_int_equal(access(in_folder("w.0123456789abcdef.tmp"), F_OK), -1);
    assert_int_equal(access(in_folder("w.fedcba9876543210.tmp"), F_OK), -1);
    assert_int_equal(entries(true), 6);
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = '\0';
    snprintf(more, sizeof more, "%.*s.0123456789abcdef.tmp", NAME_MAX - 21, name);
    left(more, 25);
    assert_int_equal(symlink(name, in_folder("link")), 0);
    ps_output_clean(in_folder("link"));
    assert_int_equal(entries(true), 1);
    ps_output_clean("/dev/null");
    ps_output_clean(in_folder("none/w"));
}

// A folder in which files may be made but not listed cannot be flushed; the file is there all the same.
static void writes_where_nothing_is_listed(void **state)
{
    enum { NOBODY = 65534 };
    struct ps_error e = {0};
    (void)state;
    const bool root = geteuid() == 0;
    assert_int_equal(chmod(folder, 0333), 0);
    if (root && seteuid(NOBODY) != 0)
        skip();
    const enum ps_code code = put(in_folder("a"), "abc", &e);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(folder, 0700), 0);
    if (code)
        fail_msg("%s", e.text);
    expect_content(in_folder("a"), "abc");
}

static enum ps_code put_secret(const char *path, const char *text, struct ps_error *e)
{
    struct ps_output o;
    if (ps_output_open_mode(&o, path, 0600, e))
        return e->code;
    fputs(text, o.file);
    return ps_output_commit(&o, e);
}

static void expect_mode(const char *path, mode_t mode)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, mode);
}

// A key that its owner alone can read stays so, whatever was there before; a protected one is replaced, too.
static void gives_a_mode(void **state)
{
    struct ps_error e = {0};
    (void)state;
    assert_int_equal(put(in_folder("a"), "for all", &e), PS_OK);
    for (mode_t before = 0444; before <= 0666; before += 0222) {
        assert_int_equal(chmod(in_folder("a"), before), 0);
        assert_int_equal(put_secret(in_folder("a"), "secret", &e), PS_OK);
        expect_content(in_folder("a"), "secret");
        expect_mode(in_folder("a"), 0600);
    }
}

static bool is_same(const char *a, const char *b)
{
    const bool same = ps_output_same(in_folder(a), in_folder(b));
    assert_int_equal(ps_output_same(in_folder(b), in_folder(a)), same);
    return same;
}

static void knows_the_same_file(void **state)
{
    struct ps_error e = {0};
    (void)state;
    static const char *const spelled[] = {"a", "./a", "b/../a", "b/.././/a", "link", "b/up/a", "to_b/../a"};
    static const char *const others[] = {"b/a", "to_b/a", "aa", "b", "none/a", "null", "./null"};
    assert_int_equal(mkdir(in_folder("b"), 0700), 0);
    assert_int_equal(symlink("./a", in_folder("link")), 0);
    assert_int_equal(symlink("..", in_folder("b/up")), 0);
    assert_int_equal(symlink("b", in_folder("to_b")), 0);
    assert_int_equal(symlink("/dev/null", in_folder("null")), 0);
    for (int made = 0; made < 2; made++) {
        for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
            if (!is_same("a", spelled[i]))
                fail_msg("%s is another file", spelled[i]);
            assert_true(is_same(spelled[i], "b/up/./a"));
        }
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            assert_false(is_same("a", others[i]));
        assert_int_equal(put(in_folder("a"), "x", &e), PS_OK);
    }
    assert_true(is_same("b", "to_b"));  // as folders, also those that are not there yet
    assert_true(is_same("none/more/", "./none/.//more"));
    assert_false(is_same("none/more", "none"));
    assert_false(is_same("null", "null"));
    assert_true(ps_output_same("test_output.none", "./test_output.none"));
    assert_true(ps_output_same(".test_output.none", "./.test_output.none"));
    assert_false(ps_output_same("/dev/stdout", "/dev/stdout"));
    assert_false(ps_output_same("/dev/null", "/dev/null"));
    unlink(in_folder("b/up"));
}

static void refuses(void **state)
{
    struct ps_error e = {0};
    char want[256];
    (void)state;
    assert_int_equal(put(folder, "x", &e), PS_CANNOT_CREATE);
    snprintf(want, sizeof want, "cannot create %s: it is a folder", folder);
    assert_string_equal(e.text, want);
    assert_int_equal(put(in_folder("no/file"), "x", &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, "no/file: No such file or directory"));
    if (geteuid() != 0) {
        assert_int_equal(put(in_folder("a"), "x", &e), PS_OK);
        assert_int_equal(chmod(in_folder("a"), 0400), 0);
        assert_int_equal(put(in_folder("a"), "y", &e), PS_CANNOT_CREATE);
        expect_content(in_folder("a"), "x");
    }
    assert_int_equal(ps_code_exit(PS_CANNOT_CREATE), 73);
    assert_int_equal(ps_code_exit(PS_CANNOT_WRITE), 74);
}

// A disk that is full while the file is written, and an output that is given up: the earlier file stays.
static void keeps_the_earlier_file(void **state)
{
    struct ps_error e = {0};
    struct ps_output o;
    struct rlimit limit, small;
    (void)state;
    assert_int_equal(put(in_folder("a"), "good", &e), PS_OK);
    assert_int_equal(ps_output_open(&o, in_folder("a"), &e), PS_OK);
    fputs("bad", o.file);
    ps_output_abort(&o);
    expect_content(in_folder("a"), "good");
    assert_int_equal(entries(false), 1);

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = (struct rlimit){2, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    enum ps_code code = put(in_folder("a"), "much more than that", &e);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(code, PS_CANNOT_WRITE);
    assert_non_null(strstr(e.text, strerror(EFBIG)));
    expect_content(in_folder("a"), "good");
    assert_int_equal(entries(false), 1);
}

static int interrupted;  // so many times, as FUSE may where a signal comes

int fsync(int fd)
{
    if (interrupted > 0) {
        interrupted--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static void a_signal_fails_no_file(void **state)
{
    struct ps_error e;
    (void)state;
    interrupted = 2;
    const enum ps_code code = put(in_folder("a"), "good", &e);
    if (code)
        fail_msg("%s", e.text);
    assert_int_equal(interrupted, 0);
    expect_content(in_folder("a"), "good");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaces_a_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(folders_are_made, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(writes_through_links, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(writes_into_a_fifo, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(writes_into_devices, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(writes_into_what_is_open, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(goes_on_in_what_is_open, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(comes_after_what_was_printed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(waits_for_the_reader_of_a_pipe, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(takes_a_name_as_long_as_may_be, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(cleans_what_is_left, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(writes_where_nothing_is_listed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(gives_a_mode, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(knows_the_same_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refuses, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(keeps_the_earlier_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_signal_fails_no_file, make_folder, remove_folder),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
