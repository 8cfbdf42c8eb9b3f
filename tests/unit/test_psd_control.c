// SPDX-License-Identifier: Apache-2.0
//
// The control task and the rounds that follow its membership: who is waited for, what comes back, what a late message
// may not undo.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "common/base/clock.h"
#include "common/wire/members.h"
#include "psd/job/job.h"
#include "psd/service/service.h"
#include "tests/unit/psd_job.h"

// ---- who is waited for --------------------------------------------------------------------------------------------

static void test_silence_is_death(void **state)
{
    struct job j;
    struct update u;
    struct answer barrier;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.name = (char *)"here";
    test_time += 2 * PS_SECOND;
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, UINT64_MAX);
    update_init(&u, 0, 2, "a", 0, 15);
    u.r.round = 1;
    assert_int_equal(send_update(j.core, &u, M(PUSH), 15, 100, NULL).code, PS_OK);
    psd_core_tick(j.core);
    assert_false(barrier.answered);
    assert_true(read_one(j.core, "a") == 0);
    core_run(j.core, 2 * PS_SECOND);
    assert_true(barrier.answered && barrier.code == PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    ps_slices_clear(&barrier.body);
    psd_core_destroy(j.core);
}

// A call that waits past its deadline says for whom.
static void test_waits_for_whom(void **state)
{
    struct job j;
    struct answer barrier;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    r.name = (char *)"here";
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, test_time + PS_SECOND);
    core_run(j.core, 2 * PS_SECOND);
    assert_true(barrier.answered);
    assert_int_equal(barrier.code, PS_DEADLINE_EXCEEDED);
    assert_non_null(strstr(barrier.text, "waited 1.0 s for barrier 'here', for worker 1 (live, step 0, silent 1.0 s)"));
    psd_core_destroy(j.core);
}

// A push of 100 to every element of "a", which sgd turns into -1.
static struct answer push_a(struct psd_core *core, uint32_t rank, bool again)
{
    struct update u;
    update_init(&u, rank, 1, "a", 0, 15);
    u.r.round = 1;
    if (again)
        another_process(&u.caller);
    return send_update(core, &u, M(PUSH), 15, 100, NULL);
}

// Who has left before there were rounds is not waited for in them.
static void test_left_before_declare(void **state)
{
    struct job j;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new(1 << 20);
    assert_int_equal(join(j.core, 0, SYNC).code, PS_OK);
    assert_int_equal(join(j.core, 1, SYNC).code, PS_OK);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_int_equal(declare(&j, SYNC, "sgd").code, PS_OK);
    assert_int_equal(push_a(j.core, 0, false).code, PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// Where nobody lives who could declare, that is what a Declare hears, and where the job has failed, why.
static void test_declared_by_nobody(void **state)
{
    struct job j;
    (void)state;
    for (int failed = 0; failed < 2; failed++) {
        fill_job(&j, 20);
        j.core = core_new(1 << 20);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(join(j.core, rank, SYNC).code, PS_OK);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(leave(j.core, rank, failed ? "its disk is full" : NULL).code, PS_OK);
        struct answer a = declare(&j, SYNC, "sgd");
        assert_int_equal(a.code, failed ? PS_ABORTED : PS_FAILED_PRECONDITION);
        if (!strstr(a.text, failed ? "its disk is full" : "no worker of it is alive"))
            fail_msg("%s", a.text);
        psd_core_destroy(j.core);
    }
}

static struct answer declare_again(struct job *j, Paramserver__V1__OnExisting on_existing, double learning_rate)
{
    struct declaring x;
    Paramserver__V1__Hyper hyper = PARAMSERVER__V1__HYPER__INIT, *hypers[] = {&hyper};
    declare_init(&x, j, SYNC, "sgd");
    another_process(&x.caller);
    x.r.on_existing = on_existing;
    hyper.name = (char *)"learning_rate";
    hyper.value = learning_rate;
    x.r.hypers = hypers;
    x.r.n_hypers = learning_rate != 0;
    return ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
}

// The run whose workers have all left has no use for its name: the next one takes it, and all its workers learn that
// they replace a job. Until then its values are there.
static void test_the_name_of_a_job_that_is_done(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    const struct psd_job *before = j.core->table.newest;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    assert_true(read_one(j.core, "a") == 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct joining x;
        ProtobufCMessage *m;
        join_init(&x, rank, SYNC);
        another_process(&x.caller);
        assert_int_equal(x.r.on_existing, PARAMSERVER__V1__ON_EXISTING__REFUSE);
        struct answer a = ask(j.core, M(JOIN), &x.r.base, NULL, &paramserver__v1__join_reply__descriptor, &m, NULL);
        assert_int_equal(a.code, PS_OK);
        assert_int_equal(((Paramserver__V1__JoinReply *)m)->on_existing, PARAMSERVER__V1__ON_EXISTING__REPLACE);
        ps_msg_free(m);
    }
    assert_ptr_not_equal(j.core->table.newest, before);
    assert_false(j.core->table.newest->declared);
    psd_core_destroy(j.core);
}

// A copy of the Join that opened a job comes when the job is done: its values stay.
static void test_a_join_that_comes_when_its_job_is_done(void **state)
{
    struct job j;
    struct joining x;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    const struct psd_job *before = j.core->table.newest;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    for (int what = PARAMSERVER__V1__ON_EXISTING__REFUSE; what <= PARAMSERVER__V1__ON_EXISTING__REPLACE; what++) {
        join_init(&x, 0, ASYNC);
        x.r.on_existing = (Paramserver__V1__OnExisting)what;
        struct answer a = ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
        assert_int_equal(a.code, PS_ABORTED);
        assert_non_null(strstr(a.text, "this process was its worker 0"));
    }
    assert_ptr_equal(j.core->table.newest, before);
    assert_true(j.core->table.newest->declared);
    psd_core_destroy(j.core);
}

static void test_the_name_of_a_job_that_has_failed(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, "of old age").code, PS_OK);
    struct answer a = join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__REFUSE);
    assert_int_equal(a.code, PS_ALREADY_EXISTS);
    assert_non_null(strstr(a.text, "resume it or replace it (on_existing: resume, replace)"));
    a = join_again(j.core, 1, ASYNC, PARAMSERVER__V1__ON_EXISTING__REFUSE);  // which does not wait for worker 0
    assert_int_equal(a.code, PS_ALREADY_EXISTS);
    psd_core_destroy(j.core);
}

// A sync job whose two workers have left, and that two others resume.
static void job_resume(struct job *j)
{
    job_open(j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j->core, rank, NULL).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join_again(j->core, rank, SYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
}

static struct answer leave_again(struct psd_core *core, uint32_t rank, bool failed)
{
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    another_process(&caller);
    r.caller = &caller;
    r.failed = failed;
    return ask(core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL);
}

// A resumed job begins when its chief has declared it again: who left before that is not waited for, whose death came
// before that ends it.
static void test_departure_before_resume(void **state)
{
    struct job j;
    (void)state;
    job_resume(&j);
    assert_int_equal(leave_again(j.core, 1, false).code, PS_OK);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
    assert_int_equal(push_a(j.core, 0, true).code, PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);

    job_resume(&j);
    assert_int_equal(leave_again(j.core, 1, true).code, PS_OK);
    struct answer a = declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "before the job was declared"));
    psd_core_destroy(j.core);
}

// A declaration has the workers, the update and the staleness that the job was opened with.
static void test_declared_as_opened(void **state)
{
    struct job j;
    struct joining x;
    struct declaring d;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new(1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++) {
        join_init(&x, rank, PARAMSERVER__V1__UPDATE__SSP);
        x.r.staleness = 3;
        assert_int_equal(ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    }
    for (int i = 0; i < 4; i++) {
        declare_init(&d, &j, i == 0 ? ASYNC : PARAMSERVER__V1__UPDATE__SSP, "sgd");
        d.r.workers = i == 1 ? 1 : 2;
        d.r.staleness = i == 0 ? 0 : i == 2 ? 1 : 3;
        struct answer a = ask(j.core, M(DECLARE), &d.r.base, NULL, NULL, NULL, NULL);
        if (a.code != (i < 3 ? PS_FAILED_PRECONDITION : PS_OK) || (i < 3 && !strstr(a.text, "not as it was opened")))
            fail_msg("declaration %d: %s: %s", i, ps_code_name(a.code), a.text);
    }
    psd_core_destroy(j.core);
}

// What is resumed is what was there, its hyperparameters included; and what a run has declared stays.
static void test_declared_once(void **state)
{
    struct job j;
    (void)state;
    job_resume(&j);
    struct answer a = declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0.5);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    assert_non_null(strstr(a.text, "only be resumed as it was"));
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__REPLACE, 0).code, PS_FAILED_PRECONDITION);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0.5).code, PS_ALREADY_EXISTS);
    psd_core_destroy(j.core);
}

// A job is resumed with the workers it was declared for, and in the way they keep in step.
static void test_resumed_as_it_was(void **state)
{
    struct job j;
    struct joining x;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    for (int i = 0; i < 3; i++) {
        join_init(&x, 0, i == 1 ? ASYNC : SYNC);
        another_process(&x.caller);
        x.r.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
        x.r.workers = i == 0 ? 1 : 2;
        struct answer a = ask(j.core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
        assert_int_equal(a.code, i < 2 ? PS_FAILED_PRECONDITION : PS_OK);
        if (i < 2)
            assert_non_null(strstr(a.text, "it can only be resumed as it was"));
    }
    psd_core_destroy(j.core);
}

// The next chief cannot throw away what the first one has declared.
static void test_next_chief(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    assert_int_equal(leave(j.core, 0, "of old age").code, PS_OK);
    for (int what = PARAMSERVER__V1__ON_EXISTING__REFUSE; what <= PARAMSERVER__V1__ON_EXISTING__REPLACE; what++) {
        struct declaring x;
        declare_init(&x, &j, SYNC, "sgd");
        x.caller = caller_of(1, 0);
        x.r.on_existing = (Paramserver__V1__OnExisting)what;
        struct answer a = ask(j.core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
        assert_int_equal(a.code, PS_ALREADY_EXISTS);
    }
    assert_int_equal(push_a(j.core, 1, false).code, PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// A reader's snapshot does not keep a job's memory once the job is replaced.
static void test_replace_frees(void **state)
{
    enum { N = 2 << 20 };
    struct job j;
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    (void)state;
    job_open(&j, ASYNC, "sgd", N, 12 << 20);
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)"big";
    assert_int_equal(ask(j.core, M(GET), &r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    assert_int_equal(join_again(j.core, 0, SYNC, PARAMSERVER__V1__ON_EXISTING__REPLACE).code, PS_OK);
    assert_int_equal(pages_used(j.core), 0);
    psd_core_destroy(j.core);
}

static void replace_job(struct psd_core *core)
{
    assert_int_equal(join_again(core, 0, SYNC, PARAMSERVER__V1__ON_EXISTING__REPLACE).code, PS_OK);
}

static void remove_newest(struct psd_core *core)
{
    struct psd_job *job = core->table.newest;
    struct psd_call *ready = NULL;
    pthread_mutex_lock(&core->table.lock);
    psd_job_ref(job);
    psd_job_remove(&core->table, job, "it was replaced", &ready);
    pthread_mutex_unlock(&core->table.lock);
    psd_host_run_ready(job->host, ready);
    psd_job_unref(job);
}

// That a job is replaced which is done is no news; of one that trains it is.
static void test_replace_warns(void **state)
{
    char first[1024];
    (void)state;
    for (int done = 0; done < 2; done++) {
        struct job j;
        job_open(&j, ASYNC, "sgd", 20, 1 << 20);
        for (uint32_t rank = 0; rank < 2 && done; rank++)
            assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
        ps_log_init("psd", PS_LOG_WARNING);
        assert_int_equal(lines_logged_by(done ? replace_job : remove_newest, j.core, first, sizeof first), !done);
        ps_log_init("psd", PS_LOG_INFO);
        assert_true(done || strstr(first, "job 'job' has ended: it was replaced"));
        psd_core_destroy(j.core);
    }
}

// ---- very many workers --------------------------------------------------------------------------------------------

static struct joining *joining_of_many(struct joining *x, uint32_t rank, uint32_t workers)
{
    static char address[80];
    static uint8_t id[16];
    memset(address, 'a', sizeof address - 1);
    memset(id, 1, sizeof id);
    memcpy(id, &rank, sizeof rank);
    join_init(x, 0, SYNC);
    x->caller.worker = rank + 1;
    x->caller.run = x->caller.incarnation = 0;
    x->caller.client.data = id;
    x->r.workers = workers;
    x->r.address = address;
    return x;
}

static enum ps_code ask_page(void *core, const Paramserver__V1__WorkersRequest *request,
                             Paramserver__V1__WorkersReply **reply, struct ps_error *e)
{
    (void)e;
    return ask(core, M(WORKERS), &request->base, NULL, &paramserver__v1__workers_reply__descriptor,
               (ProtobufCMessage **)reply, NULL)
        .code;
}

static void declare_many(struct job *j, uint32_t workers)
{
    struct declaring x;
    struct joining first;
    fill_job(j, 4);
    declare_init(&x, j, SYNC, "sgd");
    x.caller.client = joining_of_many(&first, 0, workers)->caller.client;
    x.caller.run = x.caller.incarnation = atomic_load(&j->core->table.newest->run);
    x.r.workers = workers;
    assert_int_equal(ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

// Other tasks are told of all members in one message, which they take; people, page by page.
static void test_very_many_workers(void **state)
{
    const uint32_t workers = PS_MAX_WORKERS;
    struct job j = {.core = core_new_task(0, 2, UINT64_C(4) << 30)};
    ProtobufCMessage *m;
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps_error e;
    Paramserver__V1__WorkersReply *all;
    (void)state;
    psd_runs_hear(&j.core->table.runs, UINT64_C(1764452000000000));
    for (uint32_t rank = 0; rank < workers; rank++) {
        struct joining x;
        assert_int_equal(ask(j.core, M(JOIN), &joining_of_many(&x, rank, workers)->r.base, NULL, NULL, NULL, NULL).code,
                         PS_OK);
    }
    declare_many(&j, workers);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__set_members_request__descriptor, &test_sent.last, &m, &none, &e),
                     PS_OK);
    assert_int_equal(((Paramserver__V1__SetMembersRequest *)m)->n_members, workers);
    ps_msg_free(m);
    assert_int_equal(ps_members_ask("job", ask_page, j.core, &all, &e), PS_OK);
    assert_int_equal(all->n_members, workers);
    for (uint32_t rank = 0; rank < workers; rank++)
        assert_true(all->members[rank]->rank == rank && strlen(all->members[rank]->address) == 79);
    ps_msg_free(&all->base);
    psd_core_destroy(j.core);
}

// Worker 0 of a job of this name opens it.
static struct answer open_job(struct psd_core *core, const char *name, uint32_t workers)
{
    struct joining x;
    join_init(&x, 0, ASYNC);
    x.caller.job = (char *)name;
    x.r.workers = workers;
    return ask(core, M(JOIN), &x.r.base, NULL, NULL, NULL, NULL);
}

static struct answer stop_job(struct psd_core *core, const char *name)
{
    Paramserver__V1__StopJobRequest r = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    r.job = (char *)name;
    return ask(core, M(STOP_JOB), &r.base, NULL, NULL, NULL, NULL);
}

// What is kept of workers counts. Jobs that ended before they were declared give way to others.
static void test_room_for_workers(void **state)
{
    const size_t room = 3 * 4096 * (sizeof(struct psd_member) + 160);
    struct psd_core *core = core_new(room);
    char name[] = "job-?";
    (void)state;
    for (char i = 0; i < 3; i++) {
        name[4] = (char)('a' + i);
        assert_int_equal(open_job(core, name, 4096).code, PS_OK);
    }
    size_t used = psd_pool_used(&core->pool);
    assert_in_range(used, 3 * 4096 * sizeof(struct psd_member), room);
    struct answer a = open_job(core, "one too many", 4096);
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(a.text, "no room for the 4096 workers of a job"));
    assert_int_equal(psd_pool_used(&core->pool), used);
    core_run(core, 4 * PS_SECOND);  // all of them are dead
    assert_int_equal(open_job(core, "another", 4096).code, PS_OK);
    assert_null(psd_job_lookup(&core->table, "job-a"));
    assert_non_null(psd_job_lookup(&core->table, "job-b"));
    assert_int_equal(psd_pool_used(&core->pool), used);
    assert_int_equal(stop_job(core, "another").code, PS_OK);
    assert_int_equal(stop_job(core, "job-b").code, PS_OK);
    assert_int_equal(stop_job(core, "job-c").code, PS_OK);
    assert_int_equal(psd_pool_used(&core->pool), 0);
    psd_core_destroy(core);
}

// The next run of a job needs no room beside that of the one before.
static void test_room_for_the_next_run(void **state)
{
    (void)state;
    for (int what = PARAMSERVER__V1__ON_EXISTING__RESUME; what <= PARAMSERVER__V1__ON_EXISTING__REPLACE; what++) {
        struct job j;
        job_open(&j, SYNC, "sgd", 20, 1 << 20);
        j.core->pool.limit = psd_pool_used(&j.core->pool);
        for (uint32_t rank = 0; rank < 2; rank++)
            assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
        assert_int_equal(join_again(j.core, 0, SYNC, (Paramserver__V1__OnExisting)what).code, PS_OK);
        assert_in_range(psd_pool_used(&j.core->pool), j.core->table.newest->control->room, j.core->pool.limit);
        psd_core_destroy(j.core);
    }
}

// A task knows so many jobs and no more; those that ended before they were declared are no loss.
static void test_many_jobs(void **state)
{
    struct job j;
    char name[16];
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 8 << 20);
    for (int i = 1; i < PSD_MAX_JOBS; i++) {
        snprintf(name, sizeof name, "job %d", i);
        assert_int_equal(open_job(j.core, name, 1).code, PS_OK);
    }
    struct answer a = open_job(j.core, "one too many", 1);
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(a.text, "has 1024 jobs and takes no more"));
    assert_int_equal(open_job(j.core, name, 1).code, PS_OK);  // who has joined may ask again
    core_run(j.core, 4 * PS_SECOND);
    assert_int_equal(open_job(j.core, "another", 1).code, PS_OK);
    assert_null(psd_job_lookup(&j.core->table, "job 1"));
    assert_non_null(psd_job_lookup(&j.core->table, "job 2"));
    assert_non_null(psd_job_lookup(&j.core->table, "job"));  // it had been declared
    psd_core_destroy(j.core);
}

// A job that has ended by whatever means keeps nobody waiting, and is taken out of the table once.
static void test_ended_by_any_means(void **state)
{
    struct job j;
    struct answer waits;
    struct psd_call *ready = NULL;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    ask_later(j.core, &waits, M(BARRIER), &r.base, NULL, UINT64_MAX);
    struct psd_job *job = psd_job_find(&j.core->table, "job");
    psd_job_fail(job, atomic_load(&job->run), "its time had come");
    psd_core_tick(j.core);
    assert_true(waits.answered);
    assert_int_equal(waits.code, PS_ABORTED);
    assert_non_null(strstr(waits.text, "its time had come"));
    pthread_mutex_lock(&j.core->table.lock);
    psd_job_remove(&j.core->table, job, "it was replaced", &ready);
    psd_job_remove(&j.core->table, job, "it was replaced", &ready);
    pthread_mutex_unlock(&j.core->table.lock);
    assert_int_equal(job->refs, 1);
    psd_job_unref(job);
    psd_core_destroy(j.core);
}

static uint64_t resumptions_of(struct psd_core *core)
{
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    ProtobufCMessage *reply;
    caller.worker = caller.run = 0;
    r.caller = &caller;
    assert_int_equal(
        ask(core, M(DESCRIBE), &r.base, NULL, &paramserver__v1__describe_reply__descriptor, &reply, NULL).code, PS_OK);
    uint64_t resumptions = ((Paramserver__V1__DescribeReply *)reply)->resumptions;
    ps_msg_free(reply);
    return resumptions;
}

// A resumed job begins with round 1 again, on the old values.
static void test_resumed_rounds(void **state)
{
    struct job j;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push_a(j.core, rank, false).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(leave(j.core, rank, NULL).code, PS_OK);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join_again(j.core, rank, SYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
    assert_int_equal(resumptions_of(j.core), 0);
    for (int copy = 0; copy < 2; copy++) {
        assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
        assert_int_equal(resumptions_of(j.core), 1);
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push_a(j.core, rank, true).code, PS_OK);
    assert_true(read_one(j.core, "a") == -2);
    psd_core_destroy(j.core);
}

// Reads "a" once that round of it is closed.
static void pull_a(struct psd_core *core, struct answer *a, uint64_t round)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    caller.worker = 0;
    caller.run = core->table.newest->run;
    caller.client.data = (uint8_t *)"one who looks on";
    t.variable = (char *)"a";
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = round;
    ask_later(core, a, M(PULL), &r.base, NULL, UINT64_MAX);
}

static void assert_done(const struct answer *a)
{
    assert_true(a->answered);
    assert_int_equal(a->code, PS_ABORTED);
    assert_non_null(strstr(a->text, "job 'job' is done: its workers have gone, and round 2 is not closed any more"));
}

// Nobody waits for a round that no worker is left for; what was closed is still read, and so are the rounds of whoever
// resumes the job.
static void test_rounds_of_a_job_that_is_done(void **state)
{
    struct job j;
    struct answer a, early, late;
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push_a(j.core, rank, false).code, PS_OK);
    pull_a(j.core, &early, 2);
    assert_int_equal(leave(j.core, 0, NULL).code, PS_OK);
    assert_false(early.answered);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_done(&early);
    pull_a(j.core, &late, 2);
    assert_done(&late);
    pull_a(j.core, &a, 1);
    assert_true(a.answered);
    assert_int_equal(a.code, PS_OK);
    ps_slices_clear(&a.body);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join_again(j.core, rank, SYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
    pull_a(j.core, &a, 1);
    assert_false(a.answered);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(push_a(j.core, rank, true).code, PS_OK);
    assert_true(a.answered);
    assert_int_equal(a.code, PS_OK);
    ps_slices_clear(&a.body);
    psd_core_destroy(j.core);
}

// By worker 1 of the run that was resumed, or by one who looks on.
static void describe(struct psd_core *core, struct answer *a, bool worker, bool wait)
{
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(1, 0);
    another_process(&caller);
    if (!worker)
        caller.worker = caller.run = 0;
    r.caller = &caller;
    r.wait = wait;
    ask_later(core, a, M(DESCRIBE), &r.base, NULL, UINT64_MAX);
}

// Who waits for a job to be declared waits for the chief of its own run: what is known of the one before, others may
// ask.
static void test_described_in_this_run(void **state)
{
    struct job j;
    struct answer a, waits;
    (void)state;
    job_resume(&j);
    describe(j.core, &a, false, false);
    assert_true(a.answered && a.code == PS_OK);
    ps_slices_clear(&a.body);
    describe(j.core, &waits, true, true);
    assert_false(waits.answered);
    assert_int_equal(declare_again(&j, PARAMSERVER__V1__ON_EXISTING__RESUME, 0).code, PS_OK);
    assert_true(waits.answered && waits.code == PS_OK);
    ps_slices_clear(&waits.body);
    psd_core_destroy(j.core);
}

// What still waits in a run that has ended is answered when the next one begins.
static void test_waits_of_an_earlier_run(void **state)
{
    struct job j;
    struct answer barrier;
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(1, 1);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    r.caller = &caller;
    ask_later(j.core, &barrier, M(BARRIER), &r.base, NULL, UINT64_MAX);
    psd_job_fail(j.core->table.newest, atomic_load(&j.core->table.newest->run), "its time had come");
    assert_int_equal(join_again(j.core, 0, ASYNC, PARAMSERVER__V1__ON_EXISTING__RESUME).code, PS_OK);
    assert_true(barrier.answered);
    assert_int_equal(barrier.code, PS_ABORTED);
    psd_core_destroy(j.core);
}

// Another job on the same psd, newer, with the variables of the first. Its run.
static uint64_t open_another(struct job *j, char *name)
{
    struct declaring d;
    uint64_t run = 0;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct joining x;
        ProtobufCMessage *m = NULL;
        join_init(&x, rank, SYNC);
        x.caller.job = name;
        assert_int_equal(
            ask(j->core, M(JOIN), &x.r.base, NULL, &paramserver__v1__join_reply__descriptor, &m, NULL).code, PS_OK);
        run = ((Paramserver__V1__JoinReply *)m)->run;
        ps_msg_free(m);
    }
    declare_init(&d, j, SYNC, "sgd");
    d.caller.job = name;
    d.caller.run = d.caller.incarnation = run;
    assert_int_equal(ask(j->core, M(DECLARE), &d.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
    return run;
}

// A call that has waited goes on with the job that it waited in, whatever jobs there are beside it.
static void test_goes_on_with_its_job(void **state)
{
    struct job j;
    struct answer a[2];
    struct update u;
    Paramserver__V1__Caller callers[2] = {caller_of(0, 0), caller_of(0, 0)};
    (void)state;
    job_open(&j, SYNC, "sgd", 20, 1 << 20);
    callers[1].job = (char *)"another";
    callers[1].run = callers[1].incarnation = open_another(&j, callers[1].job);
    assert_string_equal(j.core->table.newest->name, "another");
    for (int i = 0; i < 2; i++) {
        Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
        Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
        r.caller = &callers[i];
        r.tensors = tensors;
        r.n_tensors = r.round = 1;
        t.variable = (char *)"a";
        ask_later(j.core, &a[i], M(PULL), &r.base, NULL, UINT64_MAX);
        assert_false(a[i].answered);
    }
    for (int i = 0; i < 2; i++) {
        Paramserver__V1__ReadReply *reply = NULL;
        struct ps_slices bytes = PS_SLICES_EMPTY;
        float value = 0;
        for (uint32_t rank = 0; rank < 2; rank++) {
            update_init(&u, rank, 1, "a", 0, 15);
            u.caller.job = callers[i].job;
            u.caller.run = u.caller.incarnation = callers[i].run;
            u.r.round = 1;
            update_ok(j.core, &u, M(PUSH), 15, i ? 300 : 100);
        }
        assert_true(a[i].answered && (i || !a[1].answered));
        assert_int_equal(a[i].code, PS_OK);
        assert_int_equal(ps_msg_unpack(&paramserver__v1__read_reply__descriptor, &a[i].body,
                                       (ProtobufCMessage **)&reply, &bytes, NULL),
                         PS_OK);
        ps_slices_copy_out(&bytes, 0, sizeof value, &value);
        assert_true(value == (i ? -3 : -1));
        ps_slices_clear(&bytes);
        ps_slices_clear(&a[i].body);
        ps_msg_free(&reply->base);
    }
    psd_core_destroy(j.core);
}

// ---- who is who ---------------------------------------------------------------------------------------------------

static struct answer heartbeat(struct psd_core *core, uint32_t rank, bool again, uint64_t incarnation)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    if (again)
        another_process(&caller);
    caller.incarnation = incarnation;
    r.caller = &caller;
    return ask(core, M(HEARTBEAT), &r.base, NULL, NULL, NULL, NULL);
}

// A dead worker comes back as a later process; a copy of its old Join does not revive it.
static void test_coming_back(void **state)
{
    const Paramserver__V1__Update updates[] = {ASYNC, SYNC};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job j;
        job_open(&j, updates[i], "sgd", 20, 1 << 20);
        assert_int_equal(heartbeat(j.core, 1, false, 1).code, PS_OK);
        assert_int_equal(heartbeat(j.core, 1, true, 1).code, PS_ABORTED);
        assert_int_equal(heartbeat(j.core, 1, false, 2).code, PS_ABORTED);
        assert_int_equal(leave(j.core, 1, "of old age").code, PS_OK);
        assert_int_equal(heartbeat(j.core, 1, false, 1).code, PS_ABORTED);
        assert_int_equal(join(j.core, 1, updates[i]).code, PS_FAILED_PRECONDITION);
        assert_int_equal(join_again(j.core, 1, updates[i], PARAMSERVER__V1__ON_EXISTING__REFUSE).code, PS_OK);
        assert_int_equal(heartbeat(j.core, 1, true, 2).code, PS_OK);
        psd_core_destroy(j.core);
    }
}

// ---- what the other tasks hear ------------------------------------------------------------------------------------

// Task 1 of 2, which holds all of a sync job in run 1.
static void job_open_at_1(struct job *j)
{
    struct declaring x;
    fill_job(j, 20);
    j->pa.task = j->pbig.task = 1;
    j->core = core_new_task(1, 2, 1 << 20);
    declare_init(&x, j, SYNC, "sgd");
    assert_int_equal(ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL).code, PS_OK);
}

struct resuming {
    struct job j;
    atomic_bool done;
};

static void *resumes(void *arg)
{
    struct resuming *x = arg;
    for (uint32_t i = 0; i < 500; i++) {
        struct declaring d;
        uint8_t id[16] = {0};
        memcpy(id, &i, sizeof i);
        declare_init(&d, &x->j, SYNC, "sgd");
        d.caller.client.data = id;
        d.r.on_existing = PARAMSERVER__V1__ON_EXISTING__RESUME;
        d.caller.run = 2 + i;
        if (ask(x->j.core, M(DECLARE), &d.r.base, NULL, NULL, NULL, NULL).code)
            abort();
    }
    atomic_store(&x->done, true);
    return NULL;
}

// The run that Status names grows, while one begins after the other.
static void test_status_of_the_next_run(void **state)
{
    struct resuming x = {.done = false};
    uint64_t last = 1;
    pthread_t thread;
    (void)state;
    job_open_at_1(&x.j);
    assert_int_equal(pthread_create(&thread, NULL, resumes, &x), 0);
    while (!atomic_load(&x.done)) {
        Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
        ProtobufCMessage *m = NULL;
        ask(x.j.core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL);
        assert_non_null(m);
        uint64_t run = ((Paramserver__V1__StatusReply *)m)->jobs[0]->run;
        assert_true(run >= last);
        last = run;
        ps_msg_free(m);
    }
    pthread_join(thread, NULL);
    psd_core_destroy(x.j.core);
}

struct view {
    Paramserver__V1__SetMembersRequest r;
    Paramserver__V1__Member members[3], *pointers[3];
};

// Worker 0 lives, worker 1 as said.
static void view_init(struct view *x, uint64_t epoch, Paramserver__V1__MemberState state)
{
    paramserver__v1__set_members_request__init(&x->r);
    for (uint32_t i = 0; i < 3; i++) {
        paramserver__v1__member__init(x->pointers[i] = &x->members[i]);
        x->members[i].rank = i;
        x->members[i].state = i == 1 ? state : PARAMSERVER__V1__MEMBER_STATE__LIVE;
    }
    x->r.job = (char *)"job";
    x->r.run = 1;
    x->r.epoch = epoch;
    x->r.members = x->pointers;
    x->r.n_members = 2;
}

static struct answer send_view(struct psd_core *core, struct view *x)
{
    return ask(core, M(SET_MEMBERS), &x->r.base, NULL, NULL, NULL, NULL);
}

// A message about the membership that a later one has overtaken does not bring a dead worker back.
static void test_overtaken_members(void **state)
{
    struct job j;
    struct view x;
    (void)state;
    job_open_at_1(&j);
    view_init(&x, 2, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    view_init(&x, 1, PARAMSERVER__V1__MEMBER_STATE__LIVE);
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    assert_int_equal(push_a(j.core, 0, false).code, PS_OK);
    assert_true(read_one(j.core, "a") == -1);
    struct answer a = push_a(j.core, 1, false);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "not a member"));
    psd_core_destroy(j.core);
}

// The other tasks are told of a departure until they have understood, and then no more.
static void test_sent_until_heard(void **state)
{
    struct job j;
    ProtobufCMessage *m;
    struct ps_slices none = PS_SLICES_EMPTY;
    (void)state;
    fill_job(&j, 20);
    j.core = core_new_task(0, 2, 1 << 20);
    test_sent.n = 0;
    test_sent.code = PS_UNAVAILABLE;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(join(j.core, rank, SYNC).code, PS_OK);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    psd_core_tick(j.core);
    assert_int_equal(test_sent.n, 0);  // nobody knows the job yet
    assert_int_equal(declare(&j, SYNC, "sgd").code, PS_OK);
    for (int k = 1; k <= 3; k++) {
        assert_int_equal(test_sent.n, k);
        psd_core_tick(j.core);
    }
    test_sent.code = PS_OK;
    for (int k = 0; k < 3; k++)
        psd_core_tick(j.core);
    assert_int_equal(test_sent.n, 5);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__set_members_request__descriptor, &test_sent.last, &m, &none, NULL),
                     PS_OK);
    const Paramserver__V1__SetMembersRequest *r = (Paramserver__V1__SetMembersRequest *)m;
    assert_int_equal(r->run, j.core->table.newest->run);
    assert_int_equal(r->n_members, 2);
    assert_int_equal(r->members[0]->state, PARAMSERVER__V1__MEMBER_STATE__LIVE);
    assert_int_equal(r->members[1]->state, PARAMSERVER__V1__MEMBER_STATE__LEFT);
    ps_msg_free(m);
    ps_slices_clear(&test_sent.last);
    psd_core_destroy(j.core);
}

// What ended one run does not end the next.
static void test_members_of_another_run(void **state)
{
    struct job j;
    struct view x;
    (void)state;
    job_open_at_1(&j);
    view_init(&x, 9, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    x.r.run = 2;
    x.r.failure = (char *)"everyone was dead";
    assert_int_equal(send_view(j.core, &x).code, PS_FAILED_PRECONDITION);
    assert_int_equal(push_a(j.core, 0, false).code, PS_OK);
    x.r.run = 1;
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    struct answer a = push_a(j.core, 1, false);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "everyone was dead"));
    psd_core_destroy(j.core);
}

// A task that hears that all have gone keeps nobody waiting for a round.
static void test_all_members_gone(void **state)
{
    struct job j;
    struct view x;
    struct answer a;
    (void)state;
    job_open_at_1(&j);
    pull_a(j.core, &a, 2);
    view_init(&x, 2, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    assert_false(a.answered);
    view_init(&x, 3, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    x.members[0].state = PARAMSERVER__V1__MEMBER_STATE__LEFT;
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    assert_done(&a);
    psd_core_destroy(j.core);
}

// A membership view names every rank once.
static void test_bad_views(void **state)
{
    struct job j;
    struct view x;
    (void)state;
    job_open_at_1(&j);
    for (int i = 0; i < 4; i++) {
        view_init(&x, 1, PARAMSERVER__V1__MEMBER_STATE__DEAD);
        x.members[1].rank = i == 0 ? 0 : i == 1 ? 2 : 1;
        x.r.n_members = i == 2 ? 3 : i == 3 ? 1 : 2;
        assert_int_equal(send_view(j.core, &x).code, PS_INVALID_ARGUMENT);
    }
    assert_int_equal(push_a(j.core, 0, false).code, PS_OK);
    assert_true(read_one(j.core, "a") == 0);
    psd_core_destroy(j.core);
}

// A delta names those that have changed since an epoch: a task that has not heard of that is told of all first.
static void test_deltas(void **state)
{
    struct job j;
    struct view x;
    (void)state;
    job_open_at_1(&j);
    view_init(&x, 3, PARAMSERVER__V1__MEMBER_STATE__DEAD);
    x.r.since = 2;
    x.r.members = &x.pointers[1];
    x.r.n_members = 1;
    struct answer a = send_view(j.core, &x);
    assert_int_equal(a.code, PS_ABORTED);
    assert_non_null(strstr(a.text, "it must be told of all"));
    assert_int_equal(push_a(j.core, 1, false).code, PS_OK);
    view_init(&x, 2, PARAMSERVER__V1__MEMBER_STATE__LIVE);
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    view_init(&x, 3, PARAMSERVER__V1__MEMBER_STATE__LEFT);
    x.r.since = 2;
    x.r.members = &x.pointers[1];
    x.r.n_members = 1;
    assert_int_equal(send_view(j.core, &x).code, PS_OK);
    assert_int_equal(push_a(j.core, 0, false).code, PS_OK);  // worker 0 is as it was; worker 1's counted before it left
    assert_true(read_one(j.core, "a") == -1);
    psd_core_destroy(j.core);
}

// ---- barriers -----------------------------------------------------------------------------------------------------

static void barrier(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, const char *name,
                    uint64_t deadline)
{
    Paramserver__V1__BarrierRequest r = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.name = (char *)name;
    ask_later(core, a, M(BARRIER), &r.base, NULL, deadline);
}

static void assert_passed(struct answer *a)
{
    assert_true(a->answered);
    assert_int_equal(a->code, PS_OK);
    ps_slices_clear(&a->body);
}

// A copy of a barrier's message that arrives when its caller is in a later barrier does not take it out of that.
static void test_late_barrier(void **state)
{
    struct job j;
    struct answer first, copy, second, other;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    barrier(j.core, &first, 0, 5, "one", test_time + PS_SECOND);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_int_equal(first.code, PS_DEADLINE_EXCEEDED);
    barrier(j.core, &second, 0, 6, "two", UINT64_MAX);
    assert_false(second.answered);
    barrier(j.core, &copy, 0, 5, "one", UINT64_MAX);
    assert_int_equal(copy.code, PS_ABORTED);
    barrier(j.core, &other, 1, 1, "two", UINT64_MAX);
    assert_passed(&second);
    assert_passed(&other);
    psd_core_destroy(j.core);
}

// A member that leaves does not hold up those who wait.
static void test_leave_opens_barrier(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    barrier(j.core, &a, 0, 1, "here", UINT64_MAX);
    assert_false(a.answered);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    assert_passed(&a);
    psd_core_destroy(j.core);
}

// ---- leases -------------------------------------------------------------------------------------------------------

static void lease(struct psd_core *core, struct answer *a, uint32_t rank, uint64_t sequence, uint64_t epoch)
{
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, sequence);
    r.caller = &caller;
    r.epoch = epoch;
    r.examples = 100;
    r.want = 30;
    ask_later(core, a, M(LEASE), &r.base, NULL, UINT64_MAX);
}

static void assert_lease(struct answer *a, uint64_t first, uint64_t count)
{
    ProtobufCMessage *m = NULL;
    struct ps_slices none = PS_SLICES_EMPTY;
    assert_true(a->answered);
    assert_int_equal(a->code, PS_OK);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, &a->body, &m, &none, NULL), PS_OK);
    assert_int_equal(((Paramserver__V1__LeaseReply *)m)->first, first);
    assert_int_equal(((Paramserver__V1__LeaseReply *)m)->count, count);
    ps_msg_free(m);
    ps_slices_clear(&a->body);
}

// A job that goes on from a checkpoint: any epoch is the first, and what has been trained of it is not given out.
static void test_lease_goes_on(void **state)
{
    struct job j;
    struct answer a;
    Paramserver__V1__LeaseRequest r = PARAMSERVER__V1__LEASE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 1);
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    assert_int_equal(leave(j.core, 1, NULL).code, PS_OK);
    r.caller = &caller;
    r.epoch = 5;
    r.examples = r.begin = 100;
    r.want = 30;
    ask_later(j.core, &a, M(LEASE), &r.base, NULL, UINT64_MAX);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    r.begin = 60;
    ask_later(j.core, &a, M(LEASE), &r.base, NULL, UINT64_MAX);
    assert_lease(&a, 60, 30);
    lease(j.core, &a, 0, 2, 5);
    assert_lease(&a, 90, 10);
    lease(j.core, &a, 0, 3, 7);
    assert_int_equal(a.code, PS_FAILED_PRECONDITION);
    lease(j.core, &a, 0, 4, 5);
    assert_lease(&a, 0, 0);
    lease(j.core, &a, 0, 5, 6);
    assert_lease(&a, 0, 30);
    psd_core_destroy(j.core);
}

// An epoch is one joint pass: retries get the same range, a dead worker's comes back, who is first waits for the rest.
static void test_leases(void **state)
{
    struct job j;
    struct answer a, b;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &b, 1, 1, 0);
    assert_lease(&b, 30, 30);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 60, 30);
    lease(j.core, &a, 0, 3, 0);
    assert_lease(&a, 90, 10);
    test_time += 2 * PS_SECOND;
    lease(j.core, &a, 0, 4, 0);
    assert_false(a.answered);
    test_time += 2 * PS_SECOND;
    psd_core_tick(j.core);
    assert_lease(&a, 30, 30);
    lease(j.core, &a, 0, 5, 0);
    assert_lease(&a, 0, 0);
    lease(j.core, &a, 0, 6, 1);
    assert_lease(&a, 0, 30);
    psd_core_destroy(j.core);
}

// A copy of a lease's message that arrives after the next lease takes nothing and reports nothing as done.
static void test_late_lease(void **state)
{
    struct job j;
    struct answer a;
    (void)state;
    job_open(&j, ASYNC, "sgd", 20, 1 << 20);
    lease(j.core, &a, 0, 1, 0);
    assert_lease(&a, 0, 30);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 30, 30);
    lease(j.core, &a, 0, 1, 0);
    assert_int_equal(a.code, PS_ABORTED);
    lease(j.core, &a, 0, 2, 0);
    assert_lease(&a, 30, 30);
    psd_core_destroy(j.core);
}

static void *leaves(void *core)
{
    leave(core, 1, "of haste");
    return NULL;
}

// A worker that comes back at the very moment at which it goes: its range still comes back too.
static void test_lease_of_one_who_returns(void **state)
{
    (void)state;
    for (int k = 0; k < 300; k++) {
        struct job j;
        struct answer a, b, back;
        struct joining x;
        pthread_t thread;
        job_open(&j, ASYNC, "sgd", 20, 1 << 20);
        lease(j.core, &b, 1, 1, 0);
        assert_lease(&b, 0, 30);
        assert_int_equal(pthread_create(&thread, NULL, leaves, j.core), 0);
        join_init(&x, 1, ASYNC);
        another_process(&x.caller);
        ask_later(j.core, &back, M(JOIN), &x.r.base, NULL, UINT64_MAX);
        pthread_join(thread, NULL);
        assert_true(back.answered && back.code == PS_OK);
        ps_slices_clear(&back.body);
        for (uint64_t s = 1; s <= 4; s++) {
            lease(j.core, &a, 0, s, 0);
            assert_true(a.answered);
            ps_slices_clear(&a.body);
        }
        lease(j.core, &a, 0, 5, 0);
        assert_lease(&a, 0, 0);
        psd_core_destroy(j.core);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence_is_death),
        cmocka_unit_test(test_waits_for_whom),
        cmocka_unit_test(test_left_before_declare),
        cmocka_unit_test(test_declared_by_nobody),
        cmocka_unit_test(test_the_name_of_a_job_that_is_done),
        cmocka_unit_test(test_a_join_that_comes_when_its_job_is_done),
        cmocka_unit_test(test_the_name_of_a_job_that_has_failed),
        cmocka_unit_test(test_departure_before_resume),
        cmocka_unit_test(test_declared_as_opened),
        cmocka_unit_test(test_declared_once),
        cmocka_unit_test(test_resumed_as_it_was),
        cmocka_unit_test(test_next_chief),
        cmocka_unit_test(test_replace_frees),
        cmocka_unit_test(test_replace_warns),
        cmocka_unit_test(test_very_many_workers),
        cmocka_unit_test(test_room_for_workers),
        cmocka_unit_test(test_room_for_the_next_run),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_ended_by_any_means),
        cmocka_unit_test(test_resumed_rounds),
        cmocka_unit_test(test_rounds_of_a_job_that_is_done),
        cmocka_unit_test(test_waits_of_an_earlier_run),
        cmocka_unit_test(test_described_in_this_run),
        cmocka_unit_test(test_goes_on_with_its_job),
        cmocka_unit_test(test_status_of_the_next_run),
        cmocka_unit_test(test_coming_back),
        cmocka_unit_test(test_overtaken_members),
        cmocka_unit_test(test_sent_until_heard),
        cmocka_unit_test(test_members_of_another_run),
        cmocka_unit_test(test_all_members_gone),
        cmocka_unit_test(test_bad_views),
        cmocka_unit_test(test_deltas),
        cmocka_unit_test(test_late_barrier),
        cmocka_unit_test(test_leave_opens_barrier),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_late_lease),
        cmocka_unit_test(test_lease_goes_on),
        cmocka_unit_test(test_lease_of_one_who_returns),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
