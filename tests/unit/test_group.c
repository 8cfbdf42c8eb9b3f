// SPDX-License-Identifier: Apache-2.0
//
// psctl run's keeping of processes, with small shell programs in the roles of psd and workerd: which end of
// which child leads to which exit code, and that nobody is left running.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/starts.h"
#include "tools/psctl/group.h"

enum { MOST = 4, SLEEP = 300 };  // s: what a child that is not ended would wait for

// Nobody here is late: who is, is kept from running. psctl's patience is that much longer.
int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    int (*next)(uv_timer_t *, uv_timer_cb, uint64_t, uint64_t);
    *(void **)&next = dlsym(RTLD_NEXT, "uv_timer_start");
    return next(timer, cb, 40 * timeout, repeat);
}

// A waiting shell takes its trap at once. The sleep is a process that only signals to the whole group reach.
#define GOOD_PS "trap 'exit 0' TERM; echo READY 0 >&3; sleep 300 & wait"
// Worker 0 opens the job; the others have no descriptor to say so.
#define OPENS "{ echo READY >&3; } 2>/dev/null; "
#define WAITING_WORKER OPENS "trap 'exit 0' TERM; sleep 300 & wait"

// Ends once psctl has said what the test's cue is, or after minutes, in vain. A worker: of the other one's end.
#define AWAITS_CUE "for i in $(seq 600); do test -e \"$TMPDIR/cue\" && exit 0; sleep 0.2; done"
#define LAST_WORKER OPENS AWAITS_CUE
#define GOES_ON "psctl: the job goes on with 1 of 2 workers\n"

struct outcome {
    int code;
    double seconds;
    char output[8192];  // of psctl: what it says on stderr, and what it relays
};

static void make(char *argv[MOST][4], char **list[MOST], char *const scripts[], int n)
{
    for (int i = 0; i < n; i++) {
        char *one[4] = {"/bin/sh", "-c", scripts[i], NULL};
        memcpy(argv[i], one, sizeof one);
        list[i] = argv[i];
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool await_file(const char *path)
{
    for (int i = 0; i < 12000 && access(path, F_OK) != 0; i++)
        usleep(10 * 1000);
    return access(path, F_OK) == 0;
}

static char dir[64];  // of one test, which its children know as TMPDIR

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static bool guard_waits;  // the guard's patience with who does not end begins once a child has made the file `marker`

// In the processes that run() makes the guard alone calls it.
int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    const double until = now() + SLEEP / 4;
    while (guard_waits && access(in_dir("marker"), F_OK) != 0 && now() < until)
        poll(NULL, 0, 10);
    poll(NULL, 0, (int)(time->tv_nsec / 1000000));
    return 0;
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test_group-XXXXXX");
    return mkdtemp(dir) ? setenv("TMPDIR", dir, 1) : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

// What is done once psctl's output has a text; then the next one's text is awaited.
struct cue {
    const char *text;
    int signum;  // is sent to it; 0: the file `cue` is made
    const struct cue *next;
};

static void follow_cue(const struct cue *cue, pid_t pid)
{
    if (cue->signum)
        kill(pid, cue->signum);
    else
        close(open(in_dir("cue"), O_WRONLY | O_CREAT, 0600));
}

static bool goes_on;  // the groups that are run

// Runs a group in a process of its own, so that its output can be read; cue may be NULL.
static struct outcome run(char *const ps[], int n_ps, char *const workers[], int n_workers, int min_workers,
                          const struct cue *cue)
{
    char *ps_argv[MOST][4], *worker_argv[MOST][4], **ps_list[MOST], **worker_list[MOST];
    make(ps_argv, ps_list, ps, n_ps);
    make(worker_argv, worker_list, workers, n_workers);
    const struct group_spec spec = {.ps = ps_list,
                                    .workers = worker_list,
                                    .n_ps = n_ps,
                                    .n_workers = n_workers,
                                    .min_workers = min_workers,
                                    .goes_on = goes_on};
    struct outcome o = {0};
    int out[2], status;
    double start = now();
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        _exit(group_run(&spec));
    }
    close(out[1]);
    // The pipe ends when the last process that inherited it has: a child left behind would be waited for
    // here.
    size_t len = 0;
    for (ssize_t n; (n = read(out[0], o.output + len, sizeof o.output - 1 - len)) > 0;) {
        len += (size_t)n;
        for (; cue && strstr(o.output, cue->text); cue = cue->next)
            follow_cue(cue, pid);
    }
    close(out[0]);
    waitpid(pid, &status, 0);
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o.seconds = now() - start;
    return o;
}

static void expect_says(const struct outcome *o, const char *part)
{
    if (!strstr(o->output, part))
        print_error("expected \"%s\" in:\n%s", part, o->output);
    assert_non_null(strstr(o->output, part));
}

static void a_job_that_finishes_is_0(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS, GOOD_PS}, *workers[] = {"echo chief", "echo second; echo reason >&2"};
    struct outcome o = run(ps, 2, workers, 2, 1, NULL);
    assert_int_equal(o.code, 0);
    expect_says(&o, "chief\n");
    expect_says(&o, "worker 1: second\n");
    expect_says(&o, "worker 1: reason\n");
    assert_null(strstr(o.output, "psctl:"));
    assert_true(o.seconds < SLEEP / 2);
}

static void one_worker_without_ps_tasks(void **state)
{
    (void)state;
    char *workers[] = {"exit 65"};
    struct outcome o = run(NULL, 0, workers, 1, 1, NULL);
    assert_int_equal(o.code, 65);
    expect_says(&o, "psctl: worker 0 (pid ");
    expect_says(&o, ") exited with code 65\n");
}

static void workers_wait_for_every_ps_task(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS, "sleep 0.3; touch \"$TMPDIR/late\"; " GOOD_PS};
    char *workers[] = {"test -e \"$TMPDIR/late\""};
    struct outcome o = run(ps, 2, workers, 1, 1, NULL);
    unlink(in_dir("late"));
    assert_int_equal(o.code, 0);
}

static void a_ps_task_that_dies_ends_the_job(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS, "echo READY 0 >&3; sleep 0.2; kill -9 $$"}, *workers[] = {WAITING_WORKER, WAITING_WORKER};
    struct outcome o = run(ps, 2, workers, 2, 1, NULL);
    assert_int_equal(o.code, 69);
    expect_says(&o, "psctl: ps 1 (pid ");
    expect_says(&o, "was killed by signal 9 (Killed)");
    assert_true(o.seconds < SLEEP / 2);
}

static void a_ps_task_that_cannot_start_says_why(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS, "echo 'address in use' >&2; exit 71"}, *workers[] = {WAITING_WORKER};
    struct outcome o = run(ps, 2, workers, 1, 1, NULL);
    assert_int_equal(o.code, 71);
    expect_says(&o, "ps 1: address in use\n");
    expect_says(&o, ") exited with code 71; ");
}

static void the_job_goes_on_without_a_worker(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS}, *workers[] = {LAST_WORKER, "kill -9 $$"};
    struct outcome o = run(ps, 1, workers, 2, 1, &(struct cue){GOES_ON, 0, NULL});
    unlink(in_dir("cue"));
    assert_int_equal(o.code, 0);
    expect_says(&o, "psctl: worker 1 (pid ");
    expect_says(&o, "was killed by signal 9 (Killed)\n");
    expect_says(&o, GOES_ON);
}

static void what_a_worker_leaves_behind_ends_too(void **state)
{
    (void)state;
    char *workers[] = {"true", "sleep 300 & exit 0"};
    struct outcome o = run(NULL, 0, workers, 2, 1, NULL);
    assert_int_equal(o.code, 0);
    assert_true(o.seconds < SLEEP / 2);
}

static void too_few_workers_end_it(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS}, *killed[] = {WAITING_WORKER, "kill -9 $$"}, *crashed[] = {WAITING_WORKER, "kill -SEGV $$"};
    char *wrong[] = {WAITING_WORKER, "exit 66"};
    struct outcome o = run(ps, 1, killed, 2, 2, NULL);
    assert_int_equal(o.code, 75);
    expect_says(&o, "psctl: the job needs 2 of its 2 workers: stopping\n");
    assert_true(o.seconds < SLEEP / 2);
    assert_int_equal(run(ps, 1, crashed, 2, 2, NULL).code, 70);
    assert_int_equal(run(ps, 1, wrong, 2, 2, NULL).code, 66);
}

static void the_others_do_not_wait_for_a_chief_that_opened_nothing(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS}, *failed[] = {"exit 65", WAITING_WORKER}, *died[] = {"kill -9 $$", WAITING_WORKER};
    char *opened[] = {"echo READY >&3; exit 65", LAST_WORKER};
    struct outcome o = run(ps, 1, failed, 2, 1, NULL);
    assert_int_equal(o.code, 65);
    expect_says(&o, "psctl: worker 0 did not open the job, for which the others wait: stopping\n");
    assert_true(o.seconds < SLEEP / 2);
    assert_int_equal(run(ps, 1, died, 2, 1, NULL).code, 75);
    o = run(ps, 1, opened, 2, 1, &(struct cue){GOES_ON, 0, NULL});
    unlink(in_dir("cue"));
    assert_int_equal(o.code, 0);
    expect_says(&o, GOES_ON);
}

// Each worker finds what is wrong in a job's file: worker 0 says it for all, whoever is the first to end: here workers
// 1 and 3, and worker 2 is the last. Who ends with another error has something else to say.
static void one_mistake_is_said_once(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS};
    char *workers[] = {"cd \"$TMPDIR\"; for i in 1 2 3; do until test -s $i; do sleep 0.1; done; done; "
                       "while kill -0 $(cat 1) || kill -0 $(cat 3); do sleep 0.1; done 2>/dev/null; "
                       "echo wrong >&2; exit 65",
                       "echo $$ >\"$TMPDIR/1\"; echo wrong >&2; exit 65",
                       "trap 'echo wrong >&2; exit 65' TERM; echo >\"$TMPDIR/2\"; sleep 300 & wait",
                       "echo $$ >\"$TMPDIR/3\"; echo other >&2; exit 69"};
    struct outcome o = run(ps, 1, workers, 4, 1, NULL);
    unlink(in_dir("1"));
    unlink(in_dir("2"));
    unlink(in_dir("3"));
    assert_int_equal(o.code, 65);
    assert_non_null(strstr(o.output, "wrong\npsctl: worker 0 (pid "));
    assert_null(strstr(o.output, "worker 1"));
    assert_null(strstr(o.output, "worker 2"));
    expect_says(&o, "worker 3: other\n");
    assert_null(strstr(o.output, "goes on"));
}

// What the others say is shown once worker 0 has opened the job.
static void the_others_are_heard(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS}, *workers[] = {"sleep 0.3; " LAST_WORKER, "echo reason >&2; exit 66"};
    struct outcome o = run(ps, 1, workers, 2, 1, &(struct cue){GOES_ON, 0, NULL});
    unlink(in_dir("cue"));
    assert_int_equal(o.code, 0);
    expect_says(&o, "worker 1: reason\npsctl: worker 1 (pid ");
    expect_says(&o, "exited with code 66\n" GOES_ON);
}

// ---- of a job that goes on from a backup ----------------------------------------------------------------------------

static int make_dir_of_job_that_goes_on(void **state)
{
    goes_on = true;
    return make_dir(state);
}

static int remove_dir_of_job_that_goes_on(void **state)
{
    goes_on = false;
    unlink(in_dir("came"));
    unlink(in_dir("cue"));
    return remove_dir(state);
}

// Dies once, and is well when it is there again.
#define DIES_ONCE "test -e \"$TMPDIR/came\" || { touch \"$TMPDIR/came\"; kill -KILL $$; }; "

static void a_worker_that_is_killed_is_started_again(void **state)
{
    char *ps[] = {GOOD_PS}, *workers[] = {DIES_ONCE "exit 0", "exit 0"};
    (void)state;
    struct outcome o = run(ps, 1, workers, 1, 1, NULL);
    assert_int_equal(o.code, 0);
    expect_says(&o, "was killed by signal 9 (Killed): it was started again\n");
}

static void a_ps_task_that_is_killed_is_started_again(void **state)
{
    // The worker ends once psctl has said so.
    const struct cue cue = {"it was started again\n", 0, NULL};
    char *ps[] = {"test -e \"$TMPDIR/came\" || { touch \"$TMPDIR/came\"; echo READY 0 >&3; sleep 0.3; kill -KILL $$; "
                  "}; " GOOD_PS};
    char *workers[] = {LAST_WORKER};
    (void)state;
    struct outcome o = run(ps, 1, workers, 1, 1, &cue);
    assert_int_equal(o.code, 0);
}

static void what_dies_for_ever_ends_the_job(void **state)
{
    char *ps[] = {GOOD_PS}, *workers[] = {"kill -KILL $$"};
    (void)state;
    struct outcome o = run(ps, 1, workers, 1, 1, NULL);
    assert_int_equal(o.code, 75);
    int times = 0;
    for (const char *at = o.output; (at = strstr(at, "it was started again\n")); at++)
        times++;
    assert_int_equal(times, 5);
}

// One death a day is none that comes for ever.
static void who_has_lived_for_long_is_started_again(void **state)
{
    struct ps_starts s = {0};
    uint64_t now = PS_SECOND;
    int times = 0;
    (void)state;
    for (int day = 0; day < 20; day++) {
        ps_starts_note(&s, now);
        now += PS_LONG_LIFE_S * PS_SECOND;
        assert_true(ps_starts_again(&s, now));
    }
    do {
        ps_starts_note(&s, now);
        now += (PS_LONG_LIFE_S - 1) * PS_SECOND;
        times++;
    } while (ps_starts_again(&s, now));
    assert_int_equal(times, PS_MAX_STARTS - 1);
}

static void an_error_is_no_accident(void **state)
{
    char *ps[] = {GOOD_PS}, *workers[] = {"exit 65"};
    (void)state;
    struct outcome o = run(ps, 1, workers, 1, 1, NULL);
    assert_int_equal(o.code, 65);
    assert_null(strstr(o.output, "started again"));
}

// Worker 0 has ended well: the job is done.
static void nobody_begins_what_is_done(void **state)
{
    char *ps[] = {GOOD_PS}, *workers[] = {"exit 0", "sleep 1; kill -KILL $$"};
    (void)state;
    struct outcome o = run(ps, 1, workers, 2, 1, NULL);
    assert_null(strstr(o.output, "started again"));
    expect_says(&o, "worker 1 (pid ");
    assert_int_equal(o.code, 0);
}

// The job is done and its ps tasks are ending: a first signal leaves them to that, a second kills.
static void a_signal_at_the_end_kills_nobody(void **state)
{
    const struct cue said = {"SIGTERM: the job ends already", 0, NULL}, ending = {"ps 0: ending\n", SIGTERM, &said};
    char *ps[] = {"trap 'echo ending; " AWAITS_CUE "' TERM; echo READY 0 >&3; sleep 300 & wait"},
         *workers[] = {"exit 0"};
    (void)state;
    struct outcome o = run(ps, 1, workers, 1, 1, &ending);
    unlink(in_dir("cue"));
    assert_int_equal(o.code, 0);
    expect_says(&o, said.text);
    assert_null(strstr(o.output, "when it was told to end"));
}

static void a_signal_ends_workers_then_ps_tasks(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    (void)state;
    char *ps[] = {GOOD_PS}, *workers[] = {WAITING_WORKER, "trap 'exit 0' TERM; echo up; sleep 300 & wait"};
    for (int i = 0; i < 2; i++) {
        struct outcome o = run(ps, 1, workers, 2, 1, &(struct cue){"worker 1: up\n", signals[i], NULL});
        assert_int_equal(o.code, 128 + signals[i]);
        assert_true(o.seconds < SLEEP / 2);
        assert_null(strstr(o.output, "pid"));
    }
}

static void a_ps_task_that_ends_badly_is_named(void **state)
{
    (void)state;
    char *ps[] = {"trap 'exit 3' TERM; echo READY 0 >&3; sleep 300 & wait"}, *workers[] = {"true"};
    struct outcome o = run(ps, 1, workers, 1, 1, NULL);
    assert_int_equal(o.code, 69);
    expect_says(&o, "exited with code 3 when it was told to end\n");
}

// As one is that takes too long: the workers have ended, and what the job is to leave is there.
static void a_ps_task_that_is_killed_at_the_end_is_named(void **state)
{
    (void)state;
    char *ps[] = {GOOD_PS, "trap 'kill -KILL $$' TERM; echo READY 0 >&3; sleep 300 & wait"};
    char *well[] = {"true"}, *badly[] = {"exit 65"};
    struct outcome o = run(ps, 2, well, 1, 1, NULL);
    assert_int_equal(o.code, 0);
    expect_says(&o, "psctl: ps 1 (pid ");
    expect_says(&o, "was killed by signal 9 (Killed) when it was told to end; the job is done all the same\n");
    o = run(ps, 2, badly, 1, 1, NULL);
    assert_int_equal(o.code, 65);
    expect_says(&o, "was killed by signal 9 (Killed) when it was told to end\n");
}

static void long_lines_are_cut_and_the_last_one_needs_no_newline(void **state)
{
    (void)state;
    char *workers[] = {"true", "printf '%05000d\\nlast' 7"};
    struct outcome o = run(NULL, 0, workers, 2, 1, NULL);
    assert_int_equal(o.code, 0);
    expect_says(&o, "worker 1: last\n");
}

// Nothing that psctl could do itself: it is killed. The pipe that worker 0 writes to ends with the last of them, and so
// does that which worker 1 keeps open, who does not end when told to.
static void who_is_killed_leaves_nobody_behind(void **state)
{
    (void)state;
    char *ps[] = {"trap 'touch \"$TMPDIR/marker\"; exit 0' TERM; echo READY 0 >&3; sleep 300 & wait"};
    char *workers[] = {WAITING_WORKER, "trap '' TERM; exec 9>\"$TMPDIR/fifo\"; echo up; while sleep 0.1; do :; done"};
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    struct pollfd held = {.fd = open(in_dir("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    guard_waits = true;
    struct outcome o = run(ps, 1, workers, 2, 1, &(struct cue){"worker 1: up\n", SIGKILL, NULL});
    guard_waits = false;
    assert_int_equal(o.code, -1);
    assert_true(o.seconds < SLEEP / 2);
    assert_true(await_file(in_dir("marker")));              // in order, where it does as it is told
    assert_int_equal(poll(&held, 1, SLEEP / 2 * 1000), 1);  // and where it does not, soon
    assert_true(held.revents & POLLHUP);
    unlink(in_dir("marker"));
    close(held.fd);
    unlink(in_dir("fifo"));
}

#define OF_JOB_THAT_GOES_ON(test) \
    cmocka_unit_test_setup_teardown(test, make_dir_of_job_that_goes_on, remove_dir_of_job_that_goes_on)
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_finishes_is_0),
        cmocka_unit_test(one_worker_without_ps_tasks),
        WITH_DIR(workers_wait_for_every_ps_task),
        cmocka_unit_test(a_ps_task_that_dies_ends_the_job),
        cmocka_unit_test(a_ps_task_that_cannot_start_says_why),
        WITH_DIR(the_job_goes_on_without_a_worker),
        cmocka_unit_test(what_a_worker_leaves_behind_ends_too),
        cmocka_unit_test(too_few_workers_end_it),
        WITH_DIR(the_others_do_not_wait_for_a_chief_that_opened_nothing),
        WITH_DIR(one_mistake_is_said_once),
        WITH_DIR(the_others_are_heard),
        OF_JOB_THAT_GOES_ON(a_worker_that_is_killed_is_started_again),
        OF_JOB_THAT_GOES_ON(a_ps_task_that_is_killed_is_started_again),
        OF_JOB_THAT_GOES_ON(what_dies_for_ever_ends_the_job),
        cmocka_unit_test(who_has_lived_for_long_is_started_again),
        OF_JOB_THAT_GOES_ON(an_error_is_no_accident),
        OF_JOB_THAT_GOES_ON(nobody_begins_what_is_done),
        cmocka_unit_test(a_signal_ends_workers_then_ps_tasks),
        WITH_DIR(a_signal_at_the_end_kills_nobody),
        cmocka_unit_test(a_ps_task_that_ends_badly_is_named),
        cmocka_unit_test(a_ps_task_that_is_killed_at_the_end_is_named),
        cmocka_unit_test(long_lines_are_cut_and_the_last_one_needs_no_newline),
        WITH_DIR(who_is_killed_leaves_nobody_behind),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
