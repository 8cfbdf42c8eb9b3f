// SPDX-License-Identifier: Apache-2.0
//
// workerd/collective/hosts.c: who is on which host, written out by hand. shm.c: what is left of the memory of the dead.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "workerd/collective/formation.h"

static void expect(const char *const *name, uint32_t workers, uint32_t self, struct wk_hosts want)
{
    const struct wk_hosts got = wk_hosts_find(name, workers, self);
    assert_int_equal(want.hosts, got.hosts);
    assert_int_equal(want.host, got.host);
    assert_int_equal(want.members, got.members);
    assert_int_equal(want.member, got.member);
    assert_int_equal(want.first, got.first);
}

// a: 0, 2, 5; b: 1, 4; worker 3 alone. The hosts' first workers are 0, 1 and 3.
static void workers_of_a_host_have_its_first_one(void **ctx)
{
    static const char *const name[] = {"a", "b", "a", "", "b", "a"};
    (void)ctx;
    expect(name, 6, 0, (struct wk_hosts){3, 0, 3, 0, 0});
    expect(name, 6, 1, (struct wk_hosts){3, 1, 2, 0, 1});
    expect(name, 6, 2, (struct wk_hosts){3, 0, 3, 1, 0});
    expect(name, 6, 3, (struct wk_hosts){3, 2, 1, 0, 3});
    expect(name, 6, 4, (struct wk_hosts){3, 1, 2, 1, 1});
    expect(name, 6, 5, (struct wk_hosts){3, 0, 3, 2, 0});
    for (uint32_t self = 0; self < 6; self += self ? 3 : 2) {
        assert_int_equal(0, wk_hosts_member(name, self, 0));
        assert_int_equal(2, wk_hosts_member(name, self, 1));
        assert_int_equal(5, wk_hosts_member(name, self, 2));
    }
    assert_int_equal(4, wk_hosts_member(name, 1, 1));
    assert_int_equal(0, wk_hosts_first(name, 0));
    assert_int_equal(1, wk_hosts_first(name, 1));
    assert_int_equal(3, wk_hosts_first(name, 2));
}

// No name is no host that is shared.
static void workers_without_a_name_are_alone(void **ctx)
{
    static const char *const name[] = {"", "", ""};
    (void)ctx;
    expect(name, 3, 0, (struct wk_hosts){3, 0, 1, 0, 0});
    expect(name, 3, 2, (struct wk_hosts){3, 2, 1, 0, 2});
    assert_int_equal(2, wk_hosts_member(name, 2, 0));
}

static void one_host_is_alone(void **ctx)
{
    static const char *const name[] = {"a", "a"};
    (void)ctx;
    expect(name, 2, 1, (struct wk_hosts){1, 0, 2, 1, 0});
    expect(name, 1, 0, (struct wk_hosts){1, 0, 1, 0, 0});
}

static enum ps_code nobody_is_lost(void *arg, uint32_t member, struct ps_error *e)
{
    (void)arg, (void)member;
    e->code = PS_OK;
    return PS_OK;
}

static enum ps_code somebody_is_lost(void *arg, uint32_t member, struct ps_error *e)
{
    (void)arg;
    return ps_fail(e, PS_ABORTED, "member %u is lost", member);
}

static void name_memory(char name[64], int number)
{
    snprintf(name, 64, "/paramserver-test-%d-%d", (int)getpid(), number);
}

static bool has_memory(const char *name)
{
    const int fd = shm_open(name, O_RDWR, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static enum ps_code open_shm(const char *name, uint32_t member, uint32_t n, wk_shm_look_fn look, struct wk_shm **shm,
                             struct ps_error *e)
{
    static const char *const names[] = {"worker 4", "worker 5", "worker 6"};
    return wk_shm_open(&(struct wk_shm_options){name, member, n, names, look, NULL}, shm, e);
}

// A process that has made memory, and waits for a member that does not come.
static pid_t start_maker(const char *name)
{
    struct wk_shm *shm;
    struct ps_error e;
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_shm(name, 0, 3, nobody_is_lost, &shm, &e);
        _exit(1);
    }
    while (pid > 0 && !has_memory(name) && waitpid(pid, NULL, WNOHANG) == 0)
        usleep(1000);
    return pid;
}

static void stop_maker(pid_t pid)
{
    assert_int_equal(0, kill(pid, SIGKILL));
    assert_int_equal(pid, waitpid(pid, NULL, 0));
}

// Another process of this host, which opens memory too, may have it locked, and removes it before it lets go.
static bool is_removed(const char *name)
{
    const int fd = shm_open(name, O_RDWR, 0);
    if (fd >= 0) {
        flock(fd, LOCK_EX);
        close(fd);
    }
    return !has_memory(name);
}

static void memory_of_the_dead_goes(void **ctx)
{
    char dead[64], live[64], own[64];
    struct wk_shm *shm;
    struct ps_error e;
    (void)ctx;
    name_memory(dead, 0);
    name_memory(live, 1);
    name_memory(own, 2);
    const pid_t maker = start_maker(live);
    stop_maker(start_maker(dead));
    assert_int_equal(PS_OK, open_shm(own, 0, 1, nobody_is_lost, &shm, &e));
    wk_shm_close(shm);
    assert_true(is_removed(dead));
    assert_false(has_memory(own));
    assert_true(has_memory(live));
    // Who knows that not all will come takes the name away.
    assert_int_equal(PS_ABORTED, open_shm(live, 1, 3, somebody_is_lost, &shm, &e));
    assert_false(has_memory(live));
    stop_maker(maker);
}

// Locked before it has its name: nobody takes it for abandoned.
static int make_page(const char *name)
{
    char from[32], to[96];
    const int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    snprintf(to, sizeof to, "/dev/shm%s", name);
    assert_int_equal(0, ftruncate(fd, 4096));
    assert_int_equal(0, flock(fd, LOCK_EX | LOCK_NB));
    assert_int_equal(0, linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW));
    return fd;
}

static int interrupted;  // so many times, as by Linux before 6.18 where a signal is pending

int posix_fallocate(int fd, off_t at, off_t n)
{
    if (interrupted > 0) {
        interrupted--;
        return EINTR;
    }
    return fallocate(fd, 0, at, n) == 0 ? 0 : errno;
}

static void a_signal_does_not_keep_memory_from_being_made(void **ctx)
{
    char own[64];
    struct wk_shm *shm;
    struct ps_error e;
    (void)ctx;
    name_memory(own, 3);
    interrupted = 2;
    const enum ps_code code = open_shm(own, 0, 1, nobody_is_lost, &shm, &e);
    if (code)
        fail_msg("%s", e.text);
    assert_int_equal(interrupted, 0);
    wk_shm_close(shm);
}

static void memory_of_another_size_is_refused(void **ctx)
{
    char name[64];
    struct wk_shm *shm;
    struct ps_error e;
    (void)ctx;
    name_memory(name, 3);
    const int fd = make_page(name);
    assert_int_equal(PS_INTERNAL, open_shm(name, 1, 2, nobody_is_lost, &shm, &e));
    assert_false(has_memory(name));
    close(fd);
}

// Nobody can make it: who looks for it is not to wait.
static void memory_that_cannot_be_opened_is_refused(void **ctx)
{
    char name[NAME_MAX + 16];
    struct wk_shm *shm;
    struct ps_error e;
    (void)ctx;
    memset(name, 'x', sizeof name - 1);
    name[0] = '/';
    name[sizeof name - 1] = '\0';
    assert_int_equal(PS_RESOURCE_EXHAUSTED, open_shm(name, 1, 2, somebody_is_lost, &shm, &e));
    assert_non_null(strstr(e.text, " of worker 4: "));
}

// What names a host names the folder where its memory lies.
static void hosts_with_folders_of_their_own_share_none(void **ctx)
{
    char host[WK_SHM_HOST], folder[48];
    struct stat st;
    (void)ctx;
    wk_shm_host(2, host);
    if (!host[0])
        skip();
    assert_int_equal(0, stat("/dev/shm", &st));
    snprintf(folder, sizeof folder, "/%jx/%jx/", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    assert_non_null(strstr(host, folder));
}

// Of two workers of one host. f: zeroed.
static void open_formation(struct wk_formation *f, uint32_t self)
{
    static const char *const host[] = {"one", "one"}, *const addresses[] = {"a:1", "a:2"};
    static const volatile sig_atomic_t no_signal;
    static const uint32_t rank[] = {0, 1};
    f->session = (uint64_t)getpid();
    f->addresses = addresses;
    f->stop = &no_signal;
    f->patience = 60 * PS_SECOND;
    wk_formation_open(f, rank, host, 2, self);
}

// Worker 0 is said to be of this host, and makes no memory.
static void memory_is_awaited_for_a_while(void **ctx)
{
    struct wk_formation f = {.session = 0};
    struct ps_error e = {.code = PS_OK};
    (void)ctx;
    open_formation(&f, 1);
    const uint64_t began = ps_now();
    assert_int_equal(PS_DEADLINE_EXCEEDED, wk_formation_share_memory(&f, PS_SECOND / 10, &e));
    assert_true(ps_now() - began < 20 * PS_SECOND);
    assert_non_null(strstr(e.text, "worker 0 (a:1) and this worker have not come to share memory in time"));
    wk_formation_close(&f);
}

struct summand {
    struct wk_formation f;
    float value;
    struct summand *other;  // hears it where this one ends with an error
    pthread_t thread;
    struct ps_error e;
};

static void *add_up(void *arg)
{
    struct summand *s = arg;
    const struct wk_array array = {&s->value, 1, WK_FLOAT, "a bias"};
    if (wk_formation_share_memory(&s->f, 20 * PS_SECOND, &s->e) == PS_OK)
        wk_formation_reduce(&s->f, &array, 0, &s->e);
    if (s->e.code)
        wk_ring_fail(s->other->f.ring, s->e.code, s->e.text);
    return NULL;
}

// One that has ended may have sent to member 0 all that is needed of it, and member 1 waits for that one.
static void numbers_of_one_that_has_ended_may_come_through_another(void **ctx)
{
    (void)ctx;
    for (int come = 0; come < 2; come++) {
        struct summand s[2] = {{.value = 1}, {.value = 1, .other = &s[0]}};
        const struct wk_array array = {&s[0].value, 1, WK_FLOAT, "a bias"};
        for (uint32_t k = 0; k < 2; k++)
            open_formation(&s[k].f, k);
        pthread_create(&s[1].thread, NULL, add_up, &s[1]);
        assert_int_equal(PS_OK, wk_formation_share_memory(&s[0].f, 20 * PS_SECOND, &s[0].e));
        wk_ring_end_of_numbers(s[1].f.ring, PS_ABORTED, "worker 2 is gone", come ? 100 * PS_SECOND : 0);
        if (come) {
            usleep(300 * 1000);  // it looks meanwhile
            wk_formation_reduce(&s[0].f, &array, 0, &s[0].e);
        }
        pthread_join(s[1].thread, NULL);
        for (uint32_t k = 0; k < 2; k++)
            wk_formation_close(&s[k].f);
        assert_int_equal(PS_OK, s[0].e.code);
        assert_int_equal(come ? PS_OK : PS_ABORTED, s[1].e.code);
        assert_true(s[1].value == (come ? 2 : 1));
    }
}

struct sharer {
    const char *name, *what;
    uint32_t member;
    float value;
    enum ps_code code;
    struct ps_error e;
};

static void *share(void *arg)
{
    struct sharer *s = arg;
    struct wk_shm *shm;
    const struct wk_array array = {&s->value, 1, WK_FLOAT, s->what};
    s->code = open_shm(s->name, s->member, 2, nobody_is_lost, &shm, &s->e);
    if (s->code == PS_OK)
        s->code = wk_shm_reduce(shm, &array, true, &s->e);
    wk_shm_close(shm);
    return NULL;
}

// As many numbers, of something else.
static void other_arrays_are_refused(void **ctx)
{
    (void)ctx;
    for (int other = 0; other <= 1; other++) {
        char name[64];
        pthread_t thread;
        name_memory(name, 4 + other);
        struct sharer a = {.name = name, .what = "a kernel", .member = 0, .value = 1},
                      b = {.name = name, .what = other ? "a bias" : "a kernel", .member = 1, .value = 2};
        assert_int_equal(0, pthread_create(&thread, NULL, share, &b));
        share(&a);
        pthread_join(thread, NULL);
        assert_int_equal(a.code, other ? PS_INVALID_ARGUMENT : PS_OK);
        assert_int_equal(b.code, other ? PS_INVALID_ARGUMENT : PS_OK);
        assert_true(a.value == (other ? 1 : 3) && b.value == (other ? 2 : 3));
        if (other)
            assert_string_equal(a.e.text, "worker 5 adds up a bias: expected a kernel");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_of_a_host_have_its_first_one),
        cmocka_unit_test(workers_without_a_name_are_alone),
        cmocka_unit_test(one_host_is_alone),
        cmocka_unit_test(memory_of_the_dead_goes),
        cmocka_unit_test(a_signal_does_not_keep_memory_from_being_made),
        cmocka_unit_test(memory_of_another_size_is_refused),
        cmocka_unit_test(memory_that_cannot_be_opened_is_refused),
        cmocka_unit_test(hosts_with_folders_of_their_own_share_none),
        cmocka_unit_test(memory_is_awaited_for_a_while),
        cmocka_unit_test(numbers_of_one_that_has_ended_may_come_through_another),
        cmocka_unit_test(other_arrays_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
