// SPDX-License-Identifier: Apache-2.0
//
// The queue at the psd core: what becomes of the variables that its jobs leave.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>
#include <unistd.h>

#include "tests/unit/psd_job.h"

static char folder[64];
static _Atomic uint64_t clock_ms;  // since 1970

static uint64_t wall_clock(void *ctx)
{
    (void)ctx;
    return clock_ms;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_psd_queue.XXXXXX");
    test_queue = folder;
    test_wall = wall_clock;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *entry; (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    return rmdir(folder);
}

// The numbers of its runs begin with its clock: callers of psd_job.h expect 1.
static struct psd_core *queue_core(void)
{
    clock_ms = 0;
    struct psd_core *core = core_new(1 << 20);
    clock_ms = UINT64_C(1700000000000);
    return core;
}

// ---- calls that wait for the thread -------------------------------------------------------------------------------

struct waited {
    struct answer a;  // first
    sem_t answered;
};

static void on_waited(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    on_reply(call, code, text, body);
    sem_post(&((struct waited *)call)->answered);
}

static void ask_queue(struct psd_core *core, int method, const ProtobufCMessage *m,
                      const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
    struct waited w = {.a.call = {.method = method, .deadline = UINT64_MAX, .reply = on_waited}};
    struct ps_slices nothing = PS_SLICES_EMPTY;
    sem_init(&w.answered, 0, 0);
    ps_msg_pack(m, NULL, &w.a.call.request);
    psd_core_call(core, &w.a.call);
    sem_wait(&w.answered);
    sem_destroy(&w.answered);
    if (w.a.code)
        fail_msg("%s", w.a.text);
    if (reply)
        assert_int_equal(ps_msg_unpack(type, &w.a.body, reply, &nothing, NULL), PS_OK);
    ps_slices_clear(&nothing);
    ps_slices_clear(&w.a.body);
}

// A job of one worker is submitted, and its worker takes it. Returns its number.
static uint64_t begin(struct psd_core *core, const char *name)
{
    Paramserver__V1__SubmitRequest submit = PARAMSERVER__V1__SUBMIT_REQUEST__INIT;
    Paramserver__V1__NextRequest next = PARAMSERVER__V1__NEXT_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    uint8_t id[16] = "a worker of it.";
    submit.job = (char *)name;
    submit.text = (char *)"model: m.json";
    submit.workers = 1;
    ask_queue(core, M(SUBMIT), &submit.base, NULL, NULL);
    next.client = (ProtobufCBinaryData){sizeof id, id};
    ask_queue(core, M(NEXT), &next.base, &paramserver__v1__next_reply__descriptor, &m);
    const uint64_t number = ((Paramserver__V1__NextReply *)m)->number;
    ps_msg_free(m);
    assert_int_not_equal(number, 0);
    return number;
}

// The worker is in the job, or (ended) has ended with this exit code.
static void report(struct psd_core *core, uint64_t number, bool ended, uint32_t code)
{
    Paramserver__V1__ReportRequest r = PARAMSERVER__V1__REPORT_REQUEST__INIT;
    uint8_t id[16] = "a worker of it.";
    r.number = number;
    r.client = (ProtobufCBinaryData){sizeof id, id};
    r.ended = ended;
    r.code = code;
    ask_queue(core, M(REPORT), &r.base, NULL, NULL);
}

// ---- what jobs leave ----------------------------------------------------------------------------------------------

static void train(struct job *j)
{
    fill_job(j, 20);
    forget_again();
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join(j->core, rank, ASYNC).code, PS_OK);
    assert_int_equal(declare(j, ASYNC, "sgd").code, PS_OK);
}

static bool is_here(struct psd_core *core, const char *name)
{
    struct psd_job *job = psd_job_find(&core->table, name);
    psd_job_unref(job);
    return job != NULL;
}

static void begin_next(struct psd_core *core)
{
    begin(core, "next");
}

// Whatever its end, what a job has left is there until the next one begins, and the log says that it goes.
static void test_room_for_the_next_one(void **state)
{
    char first[1024];
    int lines[2];
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        struct job j = {.core = queue_core()};
        const uint64_t number = begin(j.core, "job");
        train(&j);
        report(j.core, number, false, 0);
        for (uint32_t rank = 0; rank < 2; rank++)
            leave(j.core, rank, failed ? "an exception" : NULL);
        report(j.core, number, true, failed ? 70 : 0);
        assert_true(is_here(j.core, "job"));
        lines[failed] = lines_logged_by(begin_next, j.core, first, sizeof first);
        assert_false(is_here(j.core, "job"));
        psd_core_destroy(j.core);
        tear_down(NULL);
        set_up(NULL);
    }
    assert_int_not_equal(lines[0], 0);
    assert_int_equal(lines[1], lines[0]);
}

// A job under the name of one of the queue, opened before that began, is a person's, and stays.
static void test_what_people_run_stays(void **state)
{
    (void)state;
    struct job j = {.core = queue_core()};
    train(&j);
    for (uint32_t rank = 0; rank < 2; rank++)
        leave(j.core, rank, "an exception");
    core_run(j.core, PS_SECOND);
    const uint64_t number = begin(j.core, "job");
    report(j.core, number, false, 0);
    report(j.core, number, true, 73);
    begin(j.core, "next");
    assert_true(is_here(j.core, "job"));
    psd_core_destroy(j.core);
}

// Nobody's clock decides whose a job is.
static void test_clock_is_set_back(void **state)
{
    (void)state;
    struct job j = {.core = queue_core()};
    const uint64_t number = begin(j.core, "job");
    core_run(j.core, PS_SECOND);
    train(&j);
    core_run(j.core, PS_SECOND);
    clock_ms -= 10000;
    report(j.core, number, false, 0);
    for (uint32_t rank = 0; rank < 2; rank++)
        leave(j.core, rank, NULL);
    report(j.core, number, true, 0);
    begin(j.core, "next");
    assert_false(is_here(j.core, "job"));
    psd_core_destroy(j.core);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_room_for_the_next_one, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_what_people_run_stays, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_clock_is_set_back, set_up, tear_down),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
