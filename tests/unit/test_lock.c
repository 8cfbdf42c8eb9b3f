// SPDX-License-Identifier: Apache-2.0
//
// common/file/lock: one owner at a time, for as long as its process lives.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/file/lock.h"

static char folder[64], path[128];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_lock.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/lock", folder);
    return 0;
}

// Nothing stays.
static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static enum ps_code take(struct ps_lock *lock, const char *owner, struct ps_error *e)
{
    return ps_lock_take(lock, path, owner, "worker 0 at here (pid 1)", e);
}

static void test_another_owner_is_refused(void **state)
{
    struct ps_lock a, b;
    struct ps_error e;
    char said[256];
    (void)state;
    assert_int_equal(take(&a, "one", &e), PS_OK);
    assert_int_equal(take(&b, "two", &e), PS_ALREADY_EXISTS);
    snprintf(said, sizeof said, "%s is locked by worker 0 at here (pid 1)", path);
    assert_string_equal(e.text, said);
    ps_lock_release(&b);
    assert_int_equal(access(path, F_OK), 0);
    ps_lock_release(&a);
    assert_int_equal(take(&b, "two", &e), PS_OK);
    ps_lock_release(&b);
}

// Who takes another's place in the same training is let in, and holds nothing.
static void test_the_same_owner_is_let_in(void **state)
{
    struct ps_lock a, b, c;
    struct ps_error e;
    (void)state;
    assert_int_equal(take(&a, "one", &e), PS_OK);
    assert_int_equal(take(&b, "one", &e), PS_OK);
    ps_lock_release(&b);
    assert_int_equal(take(&c, "two", &e), PS_ALREADY_EXISTS);
    ps_lock_release(&a);
}

// The file of one that was killed stays, and holds nobody up.
static void test_a_process_that_is_killed_lets_go(void **state)
{
    struct ps_lock a;
    struct ps_error e;
    int status, ready[2];
    char byte;
    (void)state;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool ok = take(&a, "one", &e) == PS_OK;
        (void)!write(ready[1], ok ? "y" : "n", 1);
        pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(take(&a, "two", &e), PS_ALREADY_EXISTS);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(take(&a, "two", &e), PS_OK);
    ps_lock_release(&a);
    close(ready[0]);
}

// Whoever waits at a file that was removed meanwhile holds nothing: the name is another file's.
static void test_a_file_that_was_replaced(void **state)
{
    struct ps_lock a, b;
    struct ps_error e;
    (void)state;
    assert_int_equal(take(&a, "one", &e), PS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(take(&b, "two", &e), PS_OK);
    ps_lock_release(&a);  // its own file, which is not there any more
    assert_int_equal(access(path, F_OK), 0);
    ps_lock_release(&b);
}

// Of a disk that was full, or before the names are there: it is locked all the same.
static void test_nobody_is_named(void **state)
{
    struct ps_lock a, b;
    struct ps_error e;
    (void)state;
    assert_int_equal(take(&a, "one", &e), PS_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(take(&b, "one", &e), PS_ALREADY_EXISTS);
    assert_non_null(strstr(e.text, "/lock is locked by another process"));
    ps_lock_release(&a);
}

// A file of the user's own, or a link to one, stays as it is.
static void test_what_is_something_elses(void **state)
{
    struct ps_lock a;
    struct ps_error e;
    char text[16] = "", other[160];
    (void)state;
    snprintf(other, sizeof other, "%s.other", path);
    for (int is_link = 0; is_link < 2; is_link++) {
        FILE *file = fopen(is_link ? other : path, "w");
        fputs("mine", file);
        fclose(file);
        if (is_link)
            assert_int_equal(symlink(other, path), 0);
        assert_int_equal(take(&a, "one", &e), PS_CANNOT_CREATE);
        ps_lock_release(&a);
        file = fopen(path, "r");
        assert_string_equal(fgets(text, sizeof text, file), "mine");
        fclose(file);
        unlink(path);
    }
    unlink(other);
}

static void test_what_cannot_be_made(void **state)
{
    struct ps_lock a;
    struct ps_error e;
    (void)state;
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(take(&a, "one", &e), PS_CANNOT_CREATE);
    assert_non_null(strstr(e.text, "/lock: Is a directory"));
    ps_lock_release(&a);
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_owner_is_refused),
        cmocka_unit_test(test_the_same_owner_is_let_in),
        cmocka_unit_test(test_a_process_that_is_killed_lets_go),
        cmocka_unit_test(test_a_file_that_was_replaced),
        cmocka_unit_test(test_nobody_is_named),
        cmocka_unit_test(test_what_cannot_be_made),
        cmocka_unit_test(test_what_is_something_elses),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
