// SPDX-License-Identifier: Apache-2.0
//
// common/base/machine: the memory that cgroups and RLIMIT_AS leave, read from a machine made of files, and its name;
// common/base/utf8: what is shown steers no terminal; common/base/thread: what a thread asks of the scheduler; and
// common/base/self: how a program starts itself once more.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/machine.h"
#include "common/base/self.h"
#include "common/base/thread.h"
#include "common/base/utf8.h"

static char root[] = "/tmp/test_machine.XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void put(const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, file);
    for (char *slash = path + sizeof root; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(uint64_t bytes, const char *why)
{
    struct ps_machine_memory m = ps_machine_memory(root);
    assert_int_equal(m.bytes, bytes);
    assert_string_equal(m.why, why);
}

static void cgroups(void **state)
{
    const uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    (void)state;
    expect(all, "this machine's memory");
    put("proc/self/cgroup", "0::/a.slice/b.scope\n");
    expect(all, "this machine's memory");
    put("sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    expect(all, "this machine's memory");
    put("sys/fs/cgroup/a.slice/memory.max", "300000000\n");
    expect(300000000, "the cgroup's limit");
    put("sys/fs/cgroup/a.slice/b.scope/memory.max", "200000000\n");
    expect(200000000, "the cgroup's limit");
    put("proc/self/cgroup", "0::/not/seen/in/here\n");
    expect(all, "this machine's memory");
    put("sys/fs/cgroup/memory.max", "100000000\n");
    expect(100000000, "the cgroup's limit");
    put("proc/self/cgroup", "5:cpu,memory:/j\n4:pids:/\n");
    expect(all, "this machine's memory");
    put("sys/fs/cgroup/memory/j/memory.limit_in_bytes", "9223372036854771712\n");
    expect(all, "this machine's memory");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "50000000\n");
    expect(50000000, "the cgroup's limit");
}

static void address_space(void **state)
{
    struct rlimit before, now;
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    getrlimit(RLIMIT_AS, &before);
    now = (struct rlimit){256 << 20, before.rlim_max};
    if (setrlimit(RLIMIT_AS, &now) != 0)
        skip();
    struct ps_machine_memory m = ps_machine_memory(root);
    setrlimit(RLIMIT_AS, &before);
    assert_int_equal(m.bytes, 128 << 20);
    assert_non_null(strstr(m.why, "RLIMIT_AS"));
}

static void what_is_shown_is_plain(void **state)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"a caf\xc3\xa9, \xe6\x97\xa5\xe6\x9c\xac, \xf0\x9f\x98\x80",
         "a caf\xc3\xa9, \xe6\x97\xa5\xe6\x9c\xac, \xf0\x9f\x98\x80"},
        {"x\npsd[0] E lost", "x?psd[0] E lost"},
        {"\x1b[31mred\a\x7f\r", "?[31mred???"},
        {"a\tb", "a b"},
        {"\xc2\x9b"
         "31m\xc2\x80\xc2\x9f\xc2\xa0",
         "?31m??\xc2\xa0"},
        {"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf", "\xe2\x80\xa7?"
                                                                         "?"
                                                                         "?\xe2\x80\xaf"},
        {"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "\xe2\x81\xa5??\xe2\x81\xaa"},
        {"\x9b\xc3(", "?"
                      "?("},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        strcpy(text, cases[i].from);
        ps_utf8_plain(text);
        assert_string_equal(text, cases[i].to);
    }
}

struct asked {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

// Its niceness stays.
static void *ask_short_slices(void *arg)
{
    struct asked *got = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 7);
    ps_thread_ask_short_slices();
    syscall(SYS_sched_getattr, 0, got, sizeof *got, 0);
    return NULL;
}

static void a_thread_asks_for_short_slices(void **state)
{
    struct utsname kernel;
    struct asked other = {0}, own = {0};
    pthread_t thread;
    int major = 0, minor = 0;
    (void)state;
    pthread_create(&thread, NULL, ask_short_slices, &other);
    pthread_join(thread, NULL);
    if (other.size == 0)
        skip();  // a sandbox does not tell
    assert_int_equal(other.policy, SCHED_OTHER);
    assert_int_equal(other.nice, 7);
    if (uname(&kernel) != 0 || sscanf(kernel.release, "%d.%d", &major, &minor) != 2 || major * 100 + minor < 612)
        skip();  // the kernel has no slices of its own for a thread
    syscall(SYS_sched_getattr, 0, &own, sizeof own, 0);
    assert_int_equal(other.runtime, 100000);
    assert_true(own.runtime > other.runtime);
}

// That of a bundle, where a loader runs it, is seen by tests/it/packages.sh.
static void a_program_starts_itself_again(void **state)
{
    static const char *const more[] = {"--job", "a b", NULL}, *const none[] = {NULL};
    (void)state;
    char **words = ps_self_words(more);
    assert_non_null(strstr(words[0], "test_machine"));
    assert_string_equal(words[1], "--job");
    assert_string_equal(words[2], "a b");
    assert_null(words[3]);
    free(words);
    words = ps_self_words(none);
    assert_non_null(strstr(words[0], "test_machine"));
    assert_null(words[1]);
    free(words);
}

static void the_host_has_a_name(void **state)
{
    struct utsname machine;
    char host[PS_HOST_NAME];
    (void)state;
    assert_int_equal(uname(&machine), 0);
    assert_string_equal(ps_host_name(host), machine.nodename);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_starts_itself_again),
        cmocka_unit_test(a_thread_asks_for_short_slices),
        cmocka_unit_test(cgroups),
        cmocka_unit_test(address_space),
        cmocka_unit_test(what_is_shown_is_plain),
        cmocka_unit_test(the_host_has_a_name),
    };
    (void)argv;
    ps_self_begin(argc);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
