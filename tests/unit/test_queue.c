// SPDX-License-Identifier: Apache-2.0
//
// psd/queue: whose turn it is, what becomes of a job, and what of it is there after a start.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "psd/limits.h"
#include "psd/queue/files.h"
#include "psd/queue/queue.h"

static char folder[64];
static struct psd_queue *q;
static uint64_t now, wall;  // ns, ms

static const char *in_folder(const char *name)
{
    static char paths[2][sizeof folder + 256];
    static int i;
    char *path = paths[i++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool exists(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

static void start(void)
{
    struct ps_error e;
    assert_int_equal(PS_OK, psd_queue_open(folder, now, &q, &e));
}

static void restart(void)
{
    psd_queue_close(q);
    start();
}

// ---- the log ------------------------------------------------------------------------------------------------------

static int saved_stderr, log_pipe[2];

static void begin_capture(void)
{
    assert_int_equal(0, pipe2(log_pipe, O_NONBLOCK));
    saved_stderr = dup(STDERR_FILENO);
    dup2(log_pipe[1], STDERR_FILENO);
}

// What was logged since begin_capture.
static const char *end_capture(void)
{
    static char text[16384];
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(log_pipe[1]);
    const ssize_t n = read(log_pipe[0], text, sizeof text - 1);
    close(log_pipe[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

// ---- one queue for each test --------------------------------------------------------------------------------------

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_queue.XXXXXX");
    now = 1000 * PS_SECOND;
    wall = UINT64_C(1700000000000);
    if (!mkdtemp(folder))
        return -1;
    start();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    psd_queue_close(q);
    DIR *d = opendir(folder);
    for (struct dirent *entry; (entry = readdir(d));)
        if (entry->d_name[0] != '.')
            unlink(in_folder(entry->d_name));
    closedir(d);
    return rmdir(folder);
}

static void jump(uint64_t ms)
{
    now += ms * PS_MS;
    wall += ms;
    psd_queue_tick(q, now, wall);
}

// As it does where psd ticks.
static void pass(uint64_t ms)
{
    for (; ms > 1000; ms -= 1000)
        jump(1000);
    jump(ms);
}

static uint64_t submit(const char *name, int32_t priority, uint32_t workers)
{
    const struct psd_queue_submission s = {name, "alice", "the job", priority, workers};
    struct ps_error e;
    uint64_t number = 0;
    assert_int_equal(PS_OK, psd_queue_submit(q, &s, wall, &number, &e));
    return number;
}

static void refuses(const struct psd_queue_submission *s, enum ps_code code, const char *text)
{
    struct ps_error e;
    uint64_t number;
    assert_int_equal(code, psd_queue_submit(q, s, wall, &number, &e));
    assert_non_null(strstr(e.text, text));
}

static struct psd_queue_client client(uint32_t rank, uint8_t process)
{
    return (struct psd_queue_client){.rank = rank, .id = {process}, .user = ""};
}

// The job that the process gets: its number, or 0.
static uint64_t next_of(uint32_t rank, uint8_t process)
{
    const struct psd_queue_client from = client(rank, process);
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    return job ? job->number : 0;
}

static void waits_for(uint32_t rank, const char *text)
{
    const struct psd_queue_client from = client(rank, 1);
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_null(job);
    assert_string_equal(text, why);
}

static bool send_report(uint32_t rank, uint8_t process, const struct psd_queue_report *r)
{
    const struct psd_queue_client from = client(rank, process);
    struct ps_error e;
    bool stop;
    assert_int_equal(PS_OK, psd_queue_report(q, &from, r, now, wall, &stop, &e));
    return stop;
}

static bool report(uint64_t number, uint32_t rank, uint8_t process, const char *output, uint64_t offset, int code)
{
    const struct psd_queue_report r = {number,         offset,    output,
                                       strlen(output), code >= 0, code >= 0 ? (uint32_t)code : 0};
    return send_report(rank, process, &r);
}

// waits: it has not been in the job yet.
static bool report_as(uint64_t number, uint32_t rank, uint8_t process, bool waits, int code)
{
    const struct psd_queue_report r = {
        .number = number, .ended = code >= 0, .code = code >= 0 ? (uint32_t)code : 0, .waits = waits};
    return send_report(rank, process, &r);
}

static bool report_of(uint64_t number, uint32_t rank, bool waits, int code)
{
    return report_as(number, rank, 1, waits, code);
}

static void ends(uint64_t number, uint32_t rank, int code)
{
    report(number, rank, 1, "", 0, code);
}

static struct psd_queue_job *find(const char *what)
{
    struct psd_queue_job *job;
    struct ps_error e;
    return psd_queue_find(q, what, &job, &e) == PS_OK ? job : NULL;
}

static enum psd_queue_state state_of(const char *what)
{
    const struct psd_queue_job *job = find(what);
    assert_non_null(job);
    return job->state;
}

static enum ps_code cancel(const char *what, const char *text)
{
    struct psd_queue_job *job;
    struct ps_error e = {PS_OK, ""};
    const enum ps_code code = psd_queue_cancel(q, what, wall, &job, &e);
    assert_non_null(strstr(e.text, text));
    return code;
}

static enum ps_code forget(const char *what, uint32_t expected)
{
    uint32_t forgotten;
    struct ps_error e;
    const enum ps_code code = psd_queue_forget(q, what, &forgotten, &e);
    assert_int_equal(forgotten, expected);
    return code;
}

static void expect_output(const char *what, uint64_t offset, uint64_t from, const char *text)
{
    char have[64] = "";
    struct ps_error e;
    size_t len;
    assert_int_equal(PS_OK, psd_queue_read(q, find(what), &offset, have, sizeof have - 1, &len, &e));
    assert_int_equal(from, offset);
    assert_string_equal(text, have);
}

// One worker trains a job to its end.
static void train(const char *name, int code)
{
    const uint64_t number = submit(name, 0, 1);
    assert_int_equal(number, next_of(0, 1));
    ends(number, 0, code);
}

// What has ended is not kept any more; the others stay.
static void ended_jobs_are_forgotten(void **state)
{
    char number[24];
    (void)state;
    train("twice", 1);
    train("twice", 0);
    train("other", 1);
    snprintf(number, sizeof number, "%" PRIu64, find("other")->number);
    submit("twice", 0, 1);
    assert_int_equal(PS_OK, forget("twice", 2));
    assert_int_equal(PSD_QUEUED, state_of("twice"));
    assert_int_equal(PS_FAILED_PRECONDITION, forget("twice", 0));
    assert_int_equal(PS_NOT_FOUND, forget("none", 0));
    assert_int_equal(PS_OK, forget(number, 1));
    assert_null(find("other"));
    ends(next_of(0, 1), 0, 0);
}

// ---- turns --------------------------------------------------------------------------------------------------------

static void priorities_go_first_then_numbers(void **state)
{
    static const char *const order[] = {"urgent", "first", "second", "late"};
    (void)state;
    submit("first", 0, 1);
    submit("late", -1, 1);
    submit("second", 0, 1);
    submit("urgent", 7, 1);
    size_t n;
    struct psd_queue_job **list = psd_queue_list(q, &n);
    assert_int_equal(4, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(order[i], list[i]->name);
    for (size_t i = 0; i < n; i++) {
        const uint64_t number = next_of(0, 1);
        assert_int_equal(number, list[i]->number);
        ends(number, 0, 0);
        assert_int_equal(PSD_DONE, state_of(order[i]));
    }
    free(list);
    waits_for(0, "no job is queued");
}

// While a ps task drains none begins, which would be refused there; who has a part in the one that runs gets it again.
static void none_begins_while_held(void **state)
{
    (void)state;
    const uint64_t first = submit("first", 0, 1), second = submit("second", 0, 1);
    assert_int_equal(first, next_of(0, 1));
    psd_queue_hold(q, "ps task 1 is being drained");
    assert_int_equal(first, next_of(0, 1));
    ends(first, 0, 0);
    waits_for(0, "ps task 1 is being drained");
    assert_int_equal(0, next_of(0, 1));
    assert_int_equal(PSD_QUEUED, state_of("second"));
    psd_queue_hold(q, "");
    assert_int_equal(second, next_of(0, 1));
}

static void expect_figures(uint32_t queued, uint32_t running, uint64_t oldest_ms)
{
    const struct psd_queue_figures f = psd_queue_count(q, 0);
    assert_int_equal(f.queued, queued);
    assert_int_equal(f.running, running);
    assert_true(f.oldest_ms == oldest_ms);
}

static void jobs_that_have_not_ended_are_counted(void **state)
{
    (void)state;
    expect_figures(0, 0, 0);
    const uint64_t first = submit("first", 0, 1), began = wall;
    pass(3000);
    submit("second", 9, 1);
    expect_figures(2, 0, began);
    const uint64_t second = next_of(0, 1);
    expect_figures(1, 1, began);
    ends(second, 0, 0);
    assert_int_equal(next_of(0, 1), first);
    expect_figures(0, 1, 0);
    pass(1000);
    submit("third", 0, 1);
    expect_figures(1, 1, wall);
    assert_int_equal(cancel("third", ""), PS_OK);
    ends(first, 0, 3);
    expect_figures(0, 0, 0);
}

static void a_job_needs_all_its_workers_at_once(void **state)
{
    (void)state;
    const uint64_t number = submit("wide", 0, 3);
    waits_for(2, "job 1 'wide' needs 3 workers: worker 0 is not there");
    waits_for(0, "job 1 'wide' needs 3 workers: worker 1 is not there");
    pass(PSD_QUEUE_HEARD_MS + 1);
    waits_for(1, "job 1 'wide' needs 3 workers: worker 0 is not there");
    assert_int_equal(1, psd_queue_present(q, find("wide"), now));
    assert_int_equal(0, next_of(0, 1));
    assert_int_equal(number, next_of(2, 1));
    assert_int_equal(number, next_of(0, 1));
    assert_int_equal(number, next_of(1, 1));
    assert_int_equal(PSD_RUNNING, state_of("wide"));
    assert_int_equal(3, psd_queue_present(q, find("wide"), now));
}

// Others that would fit do not overtake it.
static void no_job_overtakes_the_next_one(void **state)
{
    (void)state;
    submit("wide", 0, 2);
    submit("narrow", 0, 1);
    waits_for(0, "job 1 'wide' needs 2 workers: worker 1 is not there");
    assert_int_equal(1, next_of(1, 1));
    assert_int_equal(1, next_of(0, 1));
    waits_for(2, "job 1 'wide' runs");
    ends(1, 0, 0);
    assert_int_equal(PSD_RUNNING, state_of("wide"));
    waits_for(0, "job 1 'wide' runs");
    ends(1, 1, 0);
    assert_int_equal(PSD_DONE, state_of("wide"));
    assert_int_equal(2, next_of(0, 1));
}

static void what_cannot_be_is_refused(void **state)
{
    char name[130];
    (void)state;
    memset(name, 'n', sizeof name);
    name[129] = '\0';
    refuses(&(struct psd_queue_submission){"", "", "text", 0, 1}, PS_INVALID_ARGUMENT, "0 bytes: expected 1 to 128");
    refuses(&(struct psd_queue_submission){name, "", "text", 0, 1}, PS_INVALID_ARGUMENT, "129 bytes");
    refuses(&(struct psd_queue_submission){"a\033[2J", "", "text", 0, 1}, PS_INVALID_ARGUMENT, "control characters");
    refuses(&(struct psd_queue_submission){"a", "", "", 0, 1}, PS_INVALID_ARGUMENT, "expected 1 to 1048576");
    refuses(&(struct psd_queue_submission){"a", "", "text", 1001, 1}, PS_INVALID_ARGUMENT, "from -1000 to 1000");
    refuses(&(struct psd_queue_submission){"a", "", "text", 0, 0}, PS_INVALID_ARGUMENT, "expected 1 to 65536");
    refuses(&(struct psd_queue_submission){"a", "", "text", 0, PS_MAX_WORKERS + 1}, PS_INVALID_ARGUMENT, "65537");
    refuses(&(struct psd_queue_submission){"17", "", "text", 0, 1}, PS_INVALID_ARGUMENT,
            "the job's name '17' is a number: expected a letter in it, for psctl cancel 17 means job 17");
    refuses(&(struct psd_queue_submission){"-x", "", "text", 0, 1}, PS_INVALID_ARGUMENT,
            "the job's name '-x' begins as an option: expected another first character than '-'");
    assert_false(exists("1.job"));
    assert_int_equal(1, submit("1a", 0, 1));
}

// What was meant by a number is logged with its name, and the other way.
static void what_is_cancelled_is_logged(void **state)
{
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    begin_capture();
    cancel("1", "");
    cancel("1", "");
    assert_int_equal(1, count_of(end_capture(), "job 1 'job' is cancelled: its workers are told to end"));
    ends(1, 0, 143);
    begin_capture();
    forget("1", 1);
    assert_non_null(strstr(end_capture(), "job 1 'job' is forgotten"));
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    char *text = malloc(PSD_QUEUE_TEXT_MAX + 1);
    memset(text, 't', PSD_QUEUE_TEXT_MAX);
    text[PSD_QUEUE_TEXT_MAX] = '\0';
    const struct psd_queue_submission large = {"large", "", text, 0, 1};
    struct ps_error e;
    uint64_t number;
    for (int i = 0; i < PSD_QUEUE_BYTES / PSD_QUEUE_TEXT_MAX; i++)
        assert_int_equal(PS_OK, psd_queue_submit(q, &large, wall, &number, &e));
    refuses(&large, PS_RESOURCE_EXHAUSTED, "bytes: expected at most 67108864");
    free(text);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

static void the_first_worker_that_failed_says_the_code(void **state)
{
    (void)state;
    submit("job", 0, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        next_of(rank, 1);
    ends(1, 2, 70);
    ends(1, 0, 0);
    ends(1, 1, 65);
    assert_int_equal(PSD_FAILED, state_of("job"));
    assert_int_equal(65, find("job")->code);
    assert_int_equal(1, psd_queue_count(q, 0).failed);
    const uint64_t ended = find("job")->ended_ms, day = UINT64_C(24) * 3600 * 1000;
    assert_int_equal(1, psd_queue_count(q, ended + day - 1).failed_lately);
    assert_int_equal(0, psd_queue_count(q, ended + day).failed_lately);
    assert_true(report(1, 1, 1, "", 0, -1));  // it has ended
    train("stopped", 79);
    assert_int_equal(PSD_CANCELLED, state_of("stopped"));
    assert_int_equal(1, psd_queue_count(q, 0).failed);
}

// As psctl doctor has it: what has failed is over once one of its name is done.
static void a_failure_is_mended_by_a_later_job_of_its_name(void **state)
{
    (void)state;
    train("job", 65);
    train("other", 65);
    assert_int_equal(2, psd_queue_count(q, wall).failed_lately);
    jump(1000);
    train("job", 65);
    assert_int_equal(2, psd_queue_count(q, wall).failed_lately);
    submit("job", 0, 1);
    assert_int_equal(PS_OK, cancel("job", ""));
    assert_int_equal(2, psd_queue_count(q, wall).failed_lately);  // that one mends nothing
    jump(1000);
    train("job", 0);
    assert_int_equal(1, psd_queue_count(q, wall).failed_lately);
    assert_int_equal(3, psd_queue_count(q, wall).failed);
    jump(1000);
    train("job", 65);
    assert_int_equal(2, psd_queue_count(q, wall).failed_lately);
}

static void a_worker_that_comes_back_gets_its_job_again(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    assert_int_equal(1, next_of(0, 1));
    assert_int_equal(1, next_of(1, 1));
    pass(10 * PSD_QUEUE_LOST_MS);
    assert_int_equal(PSD_RUNNING, state_of("job"));
    assert_int_equal(0, psd_queue_present(q, find("job"), now));
    assert_int_equal(1, next_of(1, 2));
    assert_int_equal(1, next_of(0, 2));
    assert_false(report(1, 0, 2, "", 0, -1));
}

static void one_that_is_gone_is_not_waited_for_when_another_has_ended(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    ends(1, 0, 0);
    pass(PSD_QUEUE_LOST_MS);
    assert_int_equal(PSD_RUNNING, state_of("job"));
    pass(1);
    assert_int_equal(PSD_DONE, state_of("job"));
}

// It would begin the training anew.
static void nor_does_it_get_the_job_again(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    ends(1, 0, 0);
    assert_int_equal(1, next_of(1, 1));  // the same process: an answer was lost
    pass(PSD_QUEUE_HEARD_MS + 1);
    assert_int_equal(0, next_of(1, 2));
    assert_int_equal(PSD_DONE, state_of("job"));
}

// Worker 1 came, and has not taken the job before worker 0 has ended.
static void who_asks_too_late_is_not_called_silent(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    ends(1, 0, 3);
    now += 50 * PS_MS;
    begin_capture();
    assert_int_equal(0, next_of(1, 1));
    const char *log = end_capture();
    assert_non_null(strstr(log, "job 1 'job' ends without worker 1, which asks for it too late: another worker has "
                                "ended"));
    assert_null(strstr(log, "silent"));
    submit("other", 0, 1);
    next_of(0, 1);
    cancel("other", "");
    begin_capture();
    pass(PSD_QUEUE_LOST_MS + 1);
    assert_non_null(strstr(end_capture(), "job 2 'other' ends without worker 0, which is silent"));
}

// The other one had been asked to leave: this one trains on, and keeps its place.
static void one_that_trains_on_gets_it_again(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    ends(1, 1, 0);
    for (int i = 0; i < PSD_QUEUE_LOST_MS / 1000 + 5; i++, pass(1000))
        assert_false(report(1, 0, 1, "", 0, -1));
    pass(10 * PSD_QUEUE_LOST_MS);
    assert_int_equal(PSD_RUNNING, state_of("job"));
    assert_int_equal(1, next_of(0, 2));
    ends(1, 0, 0);  // by the process that was before it: not heard
    assert_int_equal(PSD_RUNNING, state_of("job"));
    report(1, 0, 2, "", 0, 0);
    assert_int_equal(PSD_DONE, state_of("job"));
}

static void two_processes_of_a_rank_do_not_both_train(void **state)
{
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(1, next_of(0, 1));
    assert_int_equal(0, next_of(0, 2));
    assert_true(report(1, 0, 2, "", 0, 70));
    assert_int_equal(PSD_RUNNING, state_of("job"));
    pass(PSD_QUEUE_HEARD_MS + 1);
    assert_int_equal(1, next_of(0, 2));
    assert_false(report(1, 0, 2, "", 0, -1));
    assert_true(report(1, 0, 1, "", 0, -1));
    assert_false(report(1, 0, 2, "", 0, -1));
}

// Its agent was silent and is heard again, while the second process is refused or has not come yet.
static void the_process_that_trains_gets_its_place_back(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    report_of(1, 0, false, -1);
    report_of(1, 1, false, -1);
    pass(PSD_QUEUE_HEARD_MS + 1);
    assert_int_equal(1, next_of(0, 2));
    assert_false(report_as(1, 0, 2, true, -1));
    assert_true(report_as(1, 0, 2, true, 73));
    assert_false(report_of(1, 1, false, -1));
    assert_int_equal(1, next_of(0, 2));  // the first one is silent still
    assert_false(report_of(1, 0, false, -1));
    assert_true(report_as(1, 0, 2, true, -1));
    assert_true(report_as(1, 0, 2, true, 143));
    assert_int_equal(PSD_RUNNING, state_of("job"));
    ends(1, 0, 0);
    ends(1, 1, 0);
    assert_int_equal(PSD_DONE, state_of("job"));
}

// Of a psd that was started again: it does not know which process has the place.
static void also_from_a_psd_that_was_started_again(void **state)
{
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    report_of(1, 0, false, -1);
    restart();
    assert_int_equal(1, next_of(0, 2));
    assert_false(report_of(1, 0, false, -1));
    assert_true(report_as(1, 0, 2, true, 73));
    ends(1, 0, 0);
    assert_int_equal(PSD_DONE, state_of("job"));
}

// A second process that came, or failed by itself, or after the first was silent for long, is the worker.
static void a_process_that_is_gone_does_not_get_it(void **state)
{
    static const struct {
        uint64_t silent_ms;
        bool second_waits;
        int code;
    } rows[] = {
        {PSD_QUEUE_HEARD_MS + 1, false, 73}, {PSD_QUEUE_HEARD_MS + 1, true, 66}, {PSD_QUEUE_LOST_MS + 1, true, 73}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint64_t number = submit("job", 0, 1);
        assert_int_equal(number, next_of(0, 1));
        report_of(number, 0, false, -1);
        pass(rows[i].silent_ms);
        assert_int_equal(number, next_of(0, 2));
        assert_false(report_as(number, 0, 2, rows[i].second_waits, -1));
        if (!rows[i].second_waits)
            assert_true(report_of(number, 0, false, -1));
        report_as(number, 0, 2, rows[i].second_waits, rows[i].code);
        assert_int_equal(PSD_FAILED, state_of("job"));
        assert_int_equal(rows[i].code, find("job")->code);
    }
    const uint64_t number = submit("first", 0, 1);
    assert_int_equal(number, next_of(0, 1));
    report_of(number, 0, true, 73);  // no other process had it
    assert_int_equal(PSD_FAILED, state_of("first"));
}

// Worker 0 was stopped, which has ended its run; the job has no backup, and psd refuses it to the process that is
// started again: another try would be refused likewise.
static void a_process_whose_run_has_failed_is_no_second(void **state)
{
    const struct psd_queue_report refused = {.number = 1, .ended = true, .code = 73, .waits = true, .refused = true};
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    report_of(1, 0, false, -1);
    pass(PSD_QUEUE_HEARD_MS + 1);
    assert_int_equal(1, next_of(0, 2));
    send_report(0, 2, &refused);
    assert_int_equal(PSD_FAILED, state_of("job"));
    assert_int_equal(73, find("job")->code);
}

// Nobody could be heard meanwhile.
static void a_psd_that_stood_still_loses_nobody(void **state)
{
    (void)state;
    submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    pass(1000);
    ends(1, 1, 0);
    jump(2 * PSD_QUEUE_LOST_MS);
    assert_int_equal(PSD_RUNNING, state_of("job"));
    assert_false(report(1, 0, 1, "", 0, -1));
    ends(1, 0, 0);
    assert_int_equal(PSD_DONE, state_of("job"));
}

// Of two workers; which of them have been in the job when worker 0 ends, and with which code.
static void the_job_that_worker_0_did_not_open_ends(void **state)
{
    static const struct {
        bool first_waits, other_waits, stops;
        int code;
    } rows[] = {{true, true, true, 73}, {true, true, false, 0}, {false, true, false, 1}, {true, false, false, 1}};
    (void)state;
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint64_t number = submit("job", 0, 2);
        next_of(1, 1);
        assert_int_equal(number, next_of(0, 1));
        assert_int_equal(number, next_of(1, 1));
        assert_false(report_of(number, 1, rows[i].other_waits, -1));
        assert_false(report_of(number, 0, rows[i].first_waits, -1));
        report_of(number, 0, rows[i].first_waits, rows[i].code);
        assert_int_equal(report_of(number, 1, rows[i].other_waits, -1), rows[i].stops);
        assert_int_equal(PSD_RUNNING, state_of("job"));
        report_of(number, 1, rows[i].other_waits, rows[i].stops ? 143 : rows[i].code);
        assert_int_equal(rows[i].code ? PSD_FAILED : PSD_DONE, state_of("job"));
        assert_int_equal(rows[i].code, find("job")->code);
    }
    // Of a psd that was started again: it does not know whether worker 0 had opened the job.
    const uint64_t number = submit("job", 0, 2);
    next_of(1, 1);
    next_of(0, 1);
    next_of(1, 1);
    report_of(number, 0, true, 73);
    restart();
    assert_false(report_of(number, 1, true, -1));
}

static void cancel_ends_what_waits_and_what_runs(void **state)
{
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(PS_OK, cancel("1", ""));
    assert_int_equal(PSD_CANCELLED, state_of("1"));
    assert_int_equal(PS_FAILED_PRECONDITION, cancel("job", "has ended: there is nothing to cancel"));
    assert_int_equal(PS_NOT_FOUND, cancel("none", "has no job 'none'"));
    submit("job", 0, 1);
    submit("job", 0, 1);
    assert_int_equal(PS_FAILED_PRECONDITION, cancel("job", "jobs 2 and 3 are both 'job': expected a number"));
    assert_int_equal(2, next_of(0, 1));
    assert_false(report(2, 0, 1, "", 0, -1));
    assert_int_equal(PS_OK, cancel("2", ""));
    assert_int_equal(PSD_RUNNING, state_of("2"));
    assert_true(report(2, 0, 1, "", 0, -1));
    ends(2, 0, 143);
    assert_int_equal(PSD_CANCELLED, state_of("2"));
    assert_int_equal(3, next_of(0, 1));
    assert_int_equal(PS_OK, cancel("job", ""));  // the one that has not ended
    pass(PSD_QUEUE_LOST_MS + 1);
    assert_int_equal(PSD_CANCELLED, state_of("3"));
}

// It keeps the weights, which a job that has lost another worker may not have any more.
static void worker_0_ends_first(void **state)
{
    (void)state;
    submit("ends", 0, 2);
    submit("silent", 0, 2);
    next_of(1, 1);
    assert_int_equal(1, next_of(0, 1));
    assert_int_equal(1, next_of(1, 1));
    assert_false(report(1, 0, 1, "", 0, -1));
    cancel("1", "");
    assert_false(report(1, 1, 1, "", 0, -1));
    assert_true(report(1, 0, 1, "", 0, -1));
    assert_false(report(1, 1, 1, "", 0, -1));
    ends(1, 0, 143);
    assert_true(report(1, 1, 1, "", 0, -1));
    ends(1, 1, 143);
    next_of(1, 1);
    assert_int_equal(2, next_of(0, 1));
    assert_int_equal(2, next_of(1, 1));
    assert_false(report(2, 0, 1, "", 0, -1));
    cancel("2", "");
    pass(PSD_QUEUE_HEARD_MS + 1);
    assert_true(report(2, 1, 1, "", 0, -1));
}

static struct psd_queue_job *ask_as(uint32_t rank, const char *user, const char *expected)
{
    const struct psd_queue_client from = {.rank = rank, .id = {1}, .user = user};
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX] = "";
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_string_equal(expected, why);
    return job;
}

static void a_job_begins_through_its_own_workers_alone(void **state)
{
    (void)state;
    assert_null(ask_as(0, "alice", "no job is queued"));
    submit("job", 0, 1);
    assert_null(ask_as(7, "bob", "job 1 'job' begins as soon as its workers ask again"));
    assert_int_equal(PSD_QUEUED, state_of("job"));
    const struct psd_queue_job *job = ask_as(0, "alice", "");
    assert_non_null(job);
    assert_string_equal("alice", job->taker);
    assert_null(ask_as(7, "bob", "no job is queued"));
}

static void workers_of_one_user_train_a_job(void **state)
{
    struct psd_queue_client from = {.rank = 0, .id = {1}, .user = "alice"};
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    bool stop;
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_non_null(job);
    from.user = "bob";
    assert_int_equal(PS_PERMISSION_DENIED, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_string_equal("job 1 'job' is trained by workers of alice, not of bob", e.text);
    const struct psd_queue_report r = {.number = 1, .ended = true};
    assert_int_equal(PS_PERMISSION_DENIED, psd_queue_report(q, &from, &r, now, wall, &stop, &e));
    assert_int_equal(PSD_RUNNING, state_of("job"));
}

// Which psd has written the job's file down.
static void a_job_of_an_earlier_psd_keeps_its_workers(void **state)
{
    struct psd_queue_client from = {.rank = 0, .id = {1}, .user = "alice"};
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_string_equal("alice", job->taker);
    from.account = "uid7";
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    from.user = "bob";
    assert_int_equal(PS_PERMISSION_DENIED, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
}

// Its name is what the name service had for it at that moment.
static void workers_are_of_one_account(void **state)
{
    struct psd_queue_client from = {.rank = 0, .id = {1}, .user = "alice", .account = "uid7"};
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    (void)state;
    submit("job", 0, 2);
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    from.rank = 1;
    from.user = "uid7";
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_non_null(job);
    from.rank = 0;
    from.user = "alice";
    assert_int_equal(PS_OK, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    from.account = "uid8";
    assert_int_equal(PS_PERMISSION_DENIED, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_string_equal("job 1 'job' is trained by workers of uid7, not of alice", e.text);
    from.user = "bob";
    assert_int_equal(PS_PERMISSION_DENIED, psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e));
    assert_string_equal("job 1 'job' is trained by workers of alice, not of bob", e.text);
}

// ---- output -------------------------------------------------------------------------------------------------------

static void output_is_taken_once(void **state)
{
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    report(1, 0, 1, "one\n", 0, -1);
    report(1, 0, 1, "one\ntwo\n", 0, -1);  // the answer was lost
    report(1, 0, 1, "two\n", 4, -1);
    expect_output("job", 0, 0, "one\ntwo\n");
    expect_output("job", 4, 4, "two\n");
    expect_output("job", 8, 8, "");
    expect_output("job", 99, 99, "");
    pass(PSD_QUEUE_HEARD_MS + 1);
    next_of(0, 2);
    report(1, 0, 2, "three\n", 0, 0);  // of another process
    expect_output("job", 8, 8, "three\n");
}

static void the_latest_output_is_kept(void **state)
{
    static char block[PSD_QUEUE_REPORT_BYTES + 2];
    struct stat is;
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    memset(block, 'x', PSD_QUEUE_REPORT_BYTES);
    uint64_t offset = 0;
    for (int i = 0; i < 40; i++, offset += PSD_QUEUE_REPORT_BYTES)
        report(1, 0, 1, block, offset, -1);
    report(1, 0, 1, "the end", offset, -1);
    expect_output("job", offset, offset, "the end");
    assert_int_equal(0, stat(in_folder("1.log"), &is));
    assert_true(is.st_size >= PSD_QUEUE_LOG_BYTES && is.st_size <= 2 * PSD_QUEUE_LOG_BYTES + 64);
    char have[4];
    size_t len;
    uint64_t at = 0;
    struct ps_error e;
    assert_int_equal(PS_OK, psd_queue_read(q, find("job"), &at, have, sizeof have, &len, &e));
    assert_true(at > 0 && at + (uint64_t)is.st_size == offset + strlen("the end") + 21);
    assert_int_equal(sizeof have, len);
    memset(block, 'x', PSD_QUEUE_REPORT_BYTES + 1);
    const struct psd_queue_client from = client(0, 1);
    const struct psd_queue_report r = {.number = 1, .output = block, .len = PSD_QUEUE_REPORT_BYTES + 1};
    bool stop;
    assert_int_equal(PS_INVALID_ARGUMENT, psd_queue_report(q, &from, &r, now, wall, &stop, &e));
}

static struct rlimit any_size;

// Files grow to so many bytes; 0: to any.
static void limit_files(uint64_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    if (bytes)
        getrlimit(RLIMIT_FSIZE, &any_size);
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, bytes ? &(struct rlimit){bytes, any_size.rlim_max} : &any_size));
}

// Of a write that ends before its time nothing stays, and the text says why.
static void output_is_written_whole_or_not_at_all(void **state)
{
    struct ps_error e;
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(PS_OK, psd_queue_write_log(folder, 1, "one\n", 4, &e));
    limit_files(30);
    errno = 0;
    const enum ps_code code = psd_queue_write_log(folder, 1, "two three four\n", 15, &e);
    limit_files(0);
    assert_int_equal(PS_CANNOT_WRITE, code);
    assert_non_null(strstr(e.text, strerror(EFBIG)));
    expect_output("job", 0, 0, "one\n");
}

#define MISSING "\npsd: output is missing here\n"

static void lost_output_is_said_once_and_marked(void **state)
{
    (void)state;
    submit("job", 0, 1);
    next_of(0, 1);
    report(1, 0, 1, "one\n", 0, -1);
    begin_capture();
    limit_files(26);
    for (uint64_t offset = 4; offset < 24; offset += 4)
        report(1, 0, 1, "two\n", offset, -1);
    limit_files(0);
    const char *log = end_capture();
    assert_int_equal(1, count_of(log, "job 1 'job': its output is lost"));
    begin_capture();
    report(1, 0, 1, "three\n", 24, -1);
    report(1, 0, 1, "four\n", 30, -1);
    log = end_capture();
    assert_int_equal(1, count_of(log, "job 1 'job': its output is kept again"));
    expect_output("job", 0, 0, "one\n" MISSING "three\nfour\n");
    report(1, 0, 1, "six\n", 40, -1);  // the worker has dropped some
    expect_output("job", 44, 44, MISSING "six\n");
    limit_files(26);
    report(1, 0, 1, "seven\n", 44, -1);
    limit_files(0);
    ends(1, 0, 0);
    expect_output("job", 77, 77, MISSING);  // to its end
}

// ---- a start ------------------------------------------------------------------------------------------------------

static void jobs_survive_a_start(void **state)
{
    (void)state;
    train("ended", 7);
    submit("runs", 0, 2);
    next_of(0, 1);
    next_of(1, 1);
    assert_int_equal(2, next_of(0, 1));
    submit("waits", 3, 4);
    report(2, 0, 1, "before\n", 0, -1);
    ends(2, 1, 0);
    wall += 5000;
    restart();
    assert_int_equal(PSD_FAILED, state_of("ended"));
    assert_int_equal(7, find("ended")->code);
    const struct psd_queue_job *waits = find("waits");
    assert_int_equal(PSD_QUEUED, waits->state);
    assert_int_equal(3, waits->priority);
    assert_int_equal(4, waits->workers);
    assert_string_equal("the job", waits->text);
    assert_string_equal("alice", waits->user);
    assert_int_equal(PSD_RUNNING, state_of("runs"));
    assert_false(report(2, 0, 1, "after\n", 7, -1));
    expect_output("runs", 0, 0, "before\nafter\n");
    ends(2, 0, 0);  // the other one's end is known
    assert_int_equal(PSD_DONE, state_of("runs"));
    assert_int_equal(4, submit("another", 0, 1));
}

static void one_psd_has_a_folder(void **state)
{
    struct psd_queue *other;
    struct ps_error e;
    (void)state;
    assert_int_equal(PS_ALREADY_EXISTS, psd_queue_open(folder, now, &other, &e));
    assert_non_null(strstr(e.text, "is another psd's queue"));
    assert_int_equal(PS_CANNOT_CREATE, psd_queue_open("/dev/null/queue", now, &other, &e));
}

static int flock_errno;  // 0: the system decides

int flock(int fd, int operation)
{
    if (flock_errno) {
        errno = flock_errno;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void a_folder_that_cannot_be_locked_is_refused(void **state)
{
    struct ps_error e;
    int fd = -7;
    (void)state;
    assert_int_equal(PS_ALREADY_EXISTS, psd_queue_lock(folder, &fd, &e));
    assert_int_equal(-1, fd);  // closed once
    flock_errno = ENOLCK;
    const enum ps_code code = psd_queue_lock(folder, &fd, &e);
    flock_errno = 0;
    assert_int_equal(PS_CANNOT_CREATE, code);
    assert_int_equal(-1, fd);
    assert_non_null(strstr(e.text, "/lock: "));
    assert_non_null(strstr(e.text, strerror(ENOLCK)));
}

// What cannot be read is passed over, and stays.
static void an_unreadable_entry_costs_its_job_alone(void **state)
{
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(0, mkdir(in_folder("99.job"), 0700));
    begin_capture();
    restart();
    const char *log = end_capture();
    const bool stayed = exists("99.job");
    rmdir(in_folder("99.job"));
    assert_true(stayed);
    assert_non_null(strstr(log, "99.job: Is a directory; the job is passed over"));
    assert_int_equal(PSD_QUEUED, state_of("job"));
    assert_int_equal(100, submit("new", 0, 1));
}

static void damage(const char *name, long at)
{
    FILE *f = fopen(in_folder(name), "r+");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(byte ^ 1, f);
    fclose(f);
}

static void a_damaged_file_costs_its_job_alone(void **state)
{
    (void)state;
    submit("first", 0, 1);
    submit("second", 0, 1);
    submit("third", 0, 1);
    submit("fourth", 0, 1);
    damage("1.job", 30);
    damage("2.job", 18);  // the checksum
    assert_int_equal(0, truncate(in_folder("3.job"), 10));
    assert_int_equal(0, rename(in_folder("4.job"), in_folder("5.job")));
    restart();
    for (int i = 1; i <= 5; i++) {
        char name[24], aside[40];
        snprintf(name, sizeof name, "%d", i);
        snprintf(aside, sizeof aside, "%d.job.damaged", i);
        assert_null(find(name));
        assert_int_equal(i != 4, exists(aside));
    }
    submit("new", 0, 1);
    assert_int_equal(PSD_QUEUED, state_of("new"));
}

static void put_empty(const char *name)
{
    FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    fclose(f);
}

// Numbers begin again at 0 behind the last one that there can be, which is no job's.
static void numbers_do_not_end(void **state)
{
    static const char *const last[] = {"18446744073709551614.job", "18446744073709551614.job.damaged"};
    (void)state;
    submit("first", 0, 1);
    for (size_t i = 0; i < 2; i++)
        put_empty(last[i]);
    restart();
    submit("second", 0, 1);
    submit("third", 0, 1);
    assert_true(exists("2.job") && exists("3.job"));
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(0, unlink(in_folder(last[i])));
    restart();
    assert_int_equal(PSD_QUEUED, state_of("second"));
}

// What a psd that was killed has left of a job's file goes when the next one begins, and nothing else does.
static void a_half_written_job_is_removed(void **state)
{
    static const char *const half[] = {"1.job.0123456789abcdef.tmp", "17.job.fedcba9876543210.tmp"};
    static const char *const others[] = {"17.job.0123456789abcde.tmp", "a.job.0123456789abcdef.tmp",
                                         "17.log.0123456789abcdef.tmp"};
    (void)state;
    submit("job", 0, 1);
    for (int i = 0; i < 2; i++)
        put_empty(half[i]);
    for (int i = 0; i < 3; i++)
        put_empty(others[i]);
    restart();
    for (int i = 0; i < 2; i++)
        assert_false(exists(half[i]));
    for (int i = 0; i < 3; i++)
        assert_int_equal(0, unlink(in_folder(others[i])));
    assert_int_equal(PSD_QUEUED, state_of("job"));
}

// ---- expiry -------------------------------------------------------------------------------------------------------

static void ended_jobs_expire(void **state)
{
    (void)state;
    train("old", 0);
    submit("waits", 0, 2);
    pass(PSD_QUEUE_KEEP_S * UINT64_C(1000));
    assert_non_null(find("old"));
    assert_true(exists("1.job"));
    pass(1);
    assert_null(find("old"));
    assert_false(exists("1.job"));
    assert_int_equal(PSD_QUEUED, state_of("waits"));
}

enum { DAY_MS = 24 * 3600 * 1000 };

// NTP sets the wall clock, which was years behind, or a bad server of it does; what counts is the time that passes.
static void a_clock_that_is_set_forgets_nothing(void **state)
{
    (void)state;
    train("done", 0);
    jump(1000);
    wall += UINT64_C(3000) * DAY_MS;
    jump(1000);
    assert_non_null(find("done"));
    wall -= UINT64_C(2000) * DAY_MS;
    train("again", 0);
    for (int day = 0; day < 6; day++)
        jump(DAY_MS);
    assert_non_null(find("done"));
    assert_non_null(find("again"));
    jump(DAY_MS);
    assert_null(find("done"));
    assert_non_null(find("again"));
    jump(1);
    assert_null(find("again"));
}

// How long it was off the wall clock alone says.
static void a_psd_that_was_off_counts_that_but_for_a_day(void **state)
{
    (void)state;
    train("old", 0);
    wall += UINT64_C(10) * DAY_MS;
    train("new", 0);
    wall += UINT64_C(3) * DAY_MS;
    restart();
    jump(0);
    jump(DAY_MS);
    assert_non_null(find("old"));
    jump(1);
    assert_null(find("old"));
    for (int day = 1; day < 4; day++) {
        assert_non_null(find("new"));
        jump(DAY_MS);
    }
    assert_null(find("new"));
}

static void the_last_ended_jobs_are_kept(void **state)
{
    (void)state;
    submit("waits", -1, 1);
    for (int i = 0; i < PSD_QUEUE_KEEP + 2; i++)
        train("job", 0);
    pass(0);
    size_t n;
    free(psd_queue_list(q, &n));
    assert_int_equal(PSD_QUEUE_KEEP + 1, n);
    assert_null(find("2"));
    assert_null(find("3"));
    assert_non_null(find("4"));
    assert_non_null(find("waits"));
    assert_false(exists("3.job"));
    jump(1000);
    assert_int_equal(1, next_of(0, 1));  // the first of all to be submitted, the last to end
    ends(1, 0, 0);
    pass(0);
    assert_int_equal(PSD_DONE, state_of("waits"));
    assert_true(exists("1.job"));
    assert_null(find("4"));
    struct psd_queue_job **list = psd_queue_list(q, &n);
    assert_int_equal(PSD_QUEUE_KEEP, n);
    assert_int_equal(1, list[0]->number);  // the latest of those that have ended
    free(list);
}

// ---- a disk that fails ----------------------------------------------------------------------------------------------

static void make_folder_fail(bool fail)
{
    char away[80];
    snprintf(away, sizeof away, "%s.away", folder);
    assert_int_equal(0, fail ? rename(folder, away) : rename(away, folder));
}

static void what_cannot_be_written_is_tried_again(void **state)
{
    (void)state;
    submit("job", 0, 1);
    make_folder_fail(true);
    refuses(&(struct psd_queue_submission){"other", "", "text", 0, 1}, PS_CANNOT_CREATE, "2.job");
    assert_int_equal(0, next_of(0, 1));  // it does not begin without being on disk
    make_folder_fail(false);
    assert_int_equal(1, next_of(0, 1));
    make_folder_fail(true);
    const struct psd_queue_client from = client(0, 1);
    const struct psd_queue_report r = {.number = 1, .output = "", .ended = true, .code = 3};
    struct ps_error e;
    bool stop;
    assert_int_equal(PS_UNAVAILABLE, psd_queue_report(q, &from, &r, now, wall, &stop, &e));
    assert_non_null(strstr(e.text, "the end of worker 0 cannot be kept: "));
    assert_int_equal(PSD_RUNNING, state_of("job"));
    assert_int_equal(PS_CANNOT_CREATE, cancel("job", "1.job"));
    make_folder_fail(false);
    ends(1, 0, 3);
    restart();
    assert_int_equal(PSD_FAILED, state_of("job"));
}

static void an_end_that_cannot_be_written_is_what_the_next_job_waits_for(void **state)
{
    (void)state;
    submit("ends", 0, 1);
    submit("next", 0, 1);
    assert_int_equal(1, next_of(0, 1));
    assert_int_equal(PS_OK, cancel("ends", ""));
    make_folder_fail(true);
    pass(PSD_QUEUE_LOST_MS + 1000);  // its worker is silent
    assert_int_equal(PSD_CANCELLED, state_of("ends"));
    waits_for(0, "job 2 'next' cannot begin: the end of job 1 cannot be written in --queue: psd's log says why");
    make_folder_fail(false);
    waits_for(0, "job 2 'next' cannot begin: the end of job 1 cannot be written in --queue: psd's log says why");
    pass(1000);
    assert_int_equal(2, next_of(0, 1));
}

static enum ps_code next_of_user(const char *user)
{
    const struct psd_queue_client from = {.rank = 0, .id = {1}, .user = user};
    struct psd_queue_job *job;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    return psd_queue_next(q, &from, now, wall, &job, why, sizeof why, &e);
}

// Whose workers train it is on disk, too, as soon as that can be.
static void the_user_of_its_workers_survives_a_start(void **state)
{
    (void)state;
    submit("job", 0, 1);
    assert_int_equal(1, next_of(0, 1));
    make_folder_fail(true);
    assert_int_equal(PS_OK, next_of_user("alice"));
    make_folder_fail(false);
    pass(1000);
    restart();
    assert_int_equal(PS_PERMISSION_DENIED, next_of_user("bob"));
    assert_int_equal(PS_OK, next_of_user("alice"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(ended_jobs_are_forgotten),
        TEST(priorities_go_first_then_numbers),
        TEST(none_begins_while_held),
        TEST(jobs_that_have_not_ended_are_counted),
        TEST(a_job_needs_all_its_workers_at_once),
        TEST(no_job_overtakes_the_next_one),
        TEST(what_cannot_be_is_refused),
        TEST(what_is_cancelled_is_logged),
        TEST(the_queue_is_bounded),
        TEST(the_first_worker_that_failed_says_the_code),
        TEST(a_failure_is_mended_by_a_later_job_of_its_name),
        TEST(a_worker_that_comes_back_gets_its_job_again),
        TEST(one_that_is_gone_is_not_waited_for_when_another_has_ended),
        TEST(nor_does_it_get_the_job_again),
        TEST(who_asks_too_late_is_not_called_silent),
        TEST(one_that_trains_on_gets_it_again),
        TEST(two_processes_of_a_rank_do_not_both_train),
        TEST(the_process_that_trains_gets_its_place_back),
        TEST(also_from_a_psd_that_was_started_again),
        TEST(a_process_that_is_gone_does_not_get_it),
        TEST(a_process_whose_run_has_failed_is_no_second),
        TEST(a_psd_that_stood_still_loses_nobody),
        TEST(the_job_that_worker_0_did_not_open_ends),
        TEST(cancel_ends_what_waits_and_what_runs),
        TEST(worker_0_ends_first),
        TEST(a_job_begins_through_its_own_workers_alone),
        TEST(workers_of_one_user_train_a_job),
        TEST(workers_are_of_one_account),
        TEST(a_job_of_an_earlier_psd_keeps_its_workers),
        TEST(output_is_taken_once),
        TEST(the_latest_output_is_kept),
        TEST(output_is_written_whole_or_not_at_all),
        TEST(lost_output_is_said_once_and_marked),
        TEST(jobs_survive_a_start),
        TEST(one_psd_has_a_folder),
        TEST(a_folder_that_cannot_be_locked_is_refused),
        TEST(a_damaged_file_costs_its_job_alone),
        TEST(numbers_do_not_end),
        TEST(a_half_written_job_is_removed),
        TEST(an_unreadable_entry_costs_its_job_alone),
        TEST(ended_jobs_expire),
        TEST(a_clock_that_is_set_forgets_nothing),
        TEST(a_psd_that_was_off_counts_that_but_for_a_day),
        TEST(the_last_ended_jobs_are_kept),
        TEST(what_cannot_be_written_is_tried_again),
        TEST(an_end_that_cannot_be_written_is_what_the_next_job_waits_for),
        TEST(the_user_of_its_workers_survives_a_start),
#undef TEST
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
