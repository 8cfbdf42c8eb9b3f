// SPDX-License-Identifier: Apache-2.0
//
// The Nth allocation of a job's life in the queue fails, alone or with those that follow, for every N. What is refused
// says that there was no memory, and succeeds when it is tried again; the job runs once and ends as its workers say;
// what is on disk afterwards says the same; nothing leaks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "psd/limits.h"
#include "psd/queue/queue.h"
#include "tests/nomem/nomem.h"

enum { WORKERS = 2, TRIES = 200 };

static char folder[64];
static struct psd_queue *q;

static void empty_folder(void)
{
    DIR *d = opendir(folder);
    for (struct dirent *entry; (entry = readdir(d));)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
}

// One try of a step: true once it has succeeded.
static bool passed(enum ps_code code)
{
    if (code != PS_OK && code != PS_RESOURCE_EXHAUSTED)
        fail_msg("%s", ps_code_name(code));
    return code == PS_OK;
}

#define UNTIL_PASSED(step)                                   \
    do {                                                     \
        int tries = 0;                                       \
        while (!passed(step))                                \
            if (++tries == TRIES)                            \
                fail_msg("%s does not come to pass", #step); \
    } while (0)

static enum ps_code open_queue(struct ps_error *e)
{
    return psd_queue_open(folder, PS_SECOND, &q, e);
}

// Until the worker has its job; others that it waits for are asked for in between.
static void take_job(void)
{
    struct psd_queue_client from = {.user = "alice"};
    struct psd_queue_job *job = NULL;
    struct ps_error e;
    char why[PSD_QUEUE_WAITS_MAX];
    bool has[WORKERS] = {false};
    for (int tries = 0; !(has[0] && has[1]); tries++) {
        assert_true(tries < TRIES);
        for (from.rank = 0; from.rank < WORKERS; from.rank++) {
            from.id[0] = (uint8_t)from.rank;
            if (passed(psd_queue_next(q, &from, PS_SECOND, 1, &job, why, sizeof why, &e)) && job)
                has[from.rank] = true;
        }
    }
}

static void report(uint32_t rank)
{
    const struct psd_queue_client from = {.rank = rank, .id = {(uint8_t)rank}, .user = "alice"};
    const struct psd_queue_report r = {.number = 1, .output = "said\n", .len = 5, .ended = true, .code = 7 * rank};
    struct ps_error e;
    bool stop;
    UNTIL_PASSED(psd_queue_report(q, &from, &r, PS_SECOND, 1, &stop, &e));
}

static void check(void)
{
    struct psd_queue_job *job;
    struct ps_error e;
    assert_int_equal(PS_OK, psd_queue_find(q, "job", &job, &e));
    assert_int_equal(PSD_FAILED, job->state);
    assert_int_equal(7, job->code);
    assert_int_equal(1, job->number);
}

static void one_life(void)
{
    const struct psd_queue_submission s = {"job", "alice", "text", 3, WORKERS};
    struct ps_error e;
    uint64_t number;
    size_t n;
    UNTIL_PASSED(open_queue(&e));
    UNTIL_PASSED(psd_queue_submit(q, &s, 1, &number, &e));
    psd_queue_close(q);
    UNTIL_PASSED(open_queue(&e));
    take_job();
    free(psd_queue_list(q, &n));
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        report(rank);
    check();
}

// Returns how many allocations there were.
static uint64_t live(uint64_t nth, uint64_t k)
{
    struct ps_error e;
    nomem_mark();
    nomem_fail(nth, k);
    nomem_window(true);
    one_life();
    nomem_window(false);
    psd_queue_tick(q, PS_SECOND, 1);
    psd_queue_close(q);
    assert_int_equal(PS_OK, open_queue(&e));
    check();
    psd_queue_close(q);
    empty_folder();
    if (nomem_live(true))
        fail_msg("allocation %" PRIu64 ", and %" PRIu64 " after it: leaked", nth, k - 1);
    return nomem_count();
}

static void a_life_without_memory(void **state)
{
    const uint64_t *rows;
    const size_t n_rows = nomem_rows(&rows);
    (void)state;
    strcpy(folder, "/tmp/test_nomem_queue.XXXXXX");
    assert_non_null(mkdtemp(folder));
    const uint64_t n = live(0, 0);
    assert_true(n > 30);
    for (size_t row = 0; row < n_rows; row++)
        for (uint64_t i = 0; i < n; i += nomem_stride())
            live(i, rows[row]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_life_without_memory)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
