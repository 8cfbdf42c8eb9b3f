// SPDX-License-Identifier: Apache-2.0
//
// Runs of a job: what belongs to an earlier one, or comes from who never joined, changes nothing and is told nothing,
// at the control task and elsewhere.
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "psd/control/state.h"
#include "psd/service/waits.h"
#include "tests/unit/psd_cluster.h"

#define REPLACE PARAMSERVER__V1__ON_EXISTING__REPLACE
#define RESUME PARAMSERVER__V1__ON_EXISTING__RESUME

enum { MEMORY = 16 << 20 };

// "w": partition 0 at task 0, 1 at task 1; "n", which takes no part in rounds, alike: 2 and 3.
static const struct variable variables[] = {{"w", 8, 2}, {.name = "n", .count = 8, .n_partitions = 2, .passive = true}};

static void open_job(struct cluster *c, Paramserver__V1__Update update, uint32_t workers)
{
    cluster_open(c, 2, workers, MEMORY, variables, 2);
    c->declare.update = update;
    job_hyper(c, "learning_rate", 1);
    cluster_start(c);
    settle(c, 100);
}

// Other processes run the job again; the callers of the run before are copied to old.
static void run_again(struct cluster *c, Paramserver__V1__OnExisting on_existing, Paramserver__V1__Caller *old)
{
    static uint8_t ids[8][16];
    memcpy(old, c->callers, sizeof c->callers);
    for (uint32_t rank = 0; rank < c->workers; rank++) {
        memset(ids[rank], '1' + (int)rank, 16);
        c->callers[rank].client.data = ids[rank];
        c->sequence[rank] = 0;
    }
    c->declare.on_existing = on_existing;
    cluster_start(c);
    settle(c, 100);
}

static void all_leave(struct cluster *c)
{
    for (uint32_t rank = 0; rank < c->workers; rank++)
        leave(c, rank);
    settle(c, 100);
}

static struct psd_job *job_at(struct cluster *c, uint32_t task)
{
    return psd_job_lookup(&c->task[task].core->table, "job");
}

// A call on all of a partition.
struct asking {
    struct answer a;
    union {
        Paramserver__V1__UpdateRequest update;
        Paramserver__V1__ReadRequest read;
    };
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor t, *tensors[1];
};

static void ask_for(struct cluster *c, struct asking *x, int method, const Paramserver__V1__Caller *caller,
                    uint32_t partition, uint64_t round, float value)
{
    const Paramserver__V1__Partition *p = &c->p[partition];
    struct ps_slices payload = PS_SLICES_EMPTY;
    bool reads = method == M(GET) || method == M(PULL);
    x->caller = *caller;
    paramserver__v1__tensor__init(x->tensors[0] = &x->t);
    x->t.variable = c->v[p->variable].name;
    x->t.first = p->first;
    x->t.count = p->count;
    if (reads) {
        paramserver__v1__read_request__init(&x->read);
        x->read.caller = &x->caller;
        x->read.tensors = x->tensors;
        x->read.n_tensors = 1;
        x->read.round = round;
        x->t.changes = 1;
        x->read.if_newer = method == M(GET);
    } else {
        paramserver__v1__update_request__init(&x->update);
        x->caller.sequence = x->caller.oldest = 40;
        x->update.caller = &x->caller;
        x->update.tensors = x->tensors;
        x->update.n_tensors = 1;
        x->update.round = round;
        x->update.examples = 1;
        x->t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
        payload = floats(p->count, value);
    }
    ask_later(c->task[p->task].core, &x->a, method, reads ? &x->read.base : &x->update.base, &payload, UINT64_MAX);
}

static void assert_refused(struct asking *x, enum ps_code code, const char *text)
{
    if (!x->a.answered || x->a.code != code || !strstr(x->a.text, text))
        fail_msg("%s: %s; expected %s: ... %s ...", x->a.answered ? ps_code_name(x->a.code) : "not answered", x->a.text,
                 ps_code_name(code), text);
    ps_slices_clear(&x->a.body);
}

// Task 0 ends, and another takes its place a second later; task 1 hears nothing of it.
static void control_restarts(struct cluster *c)
{
    uint32_t before = c->cut_off;
    c->cut_off = 1;
    cluster_restart(c, 0);
    deliver_all(c);
    c->cut_off = before;
}

// ---- declarations -------------------------------------------------------------------------------------------------

static void assert_late_declare(struct cluster *c, const Paramserver__V1__Caller *old)
{
    Paramserver__V1__Caller now = c->callers[0];
    c->callers[0] = *old;
    for (int i = 0; i < 2; i++) {
        c->declare.on_existing = i ? RESUME : REPLACE;
        struct answer a = declare_at(c, 1);
        assert_int_equal(a.code, PS_ABORTED);
        assert_non_null(strstr(a.text, "has ended"));
    }
    c->callers[0] = now;
}

// A declaration of an earlier run comes late: while the next one trains, when that has ended, when it is forgotten.
static void test_late_declare(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, ASYNC, 1);
    all_leave(&c);
    run_again(&c, REPLACE, old);
    assert_int_equal(push(&c, 0, 1, 0, 3).code, PS_OK);
    assert_late_declare(&c, old);
    assert_true(read_first(&c, 1) == -3);
    all_leave(&c);
    assert_late_declare(&c, old);
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    stop.job = (char *)"job";
    assert_int_equal(ask(c.task[1].core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_late_declare(&c, old);
    assert_late_declare(&c, c.callers);  // a copy of the last one, too
    cluster_close(&c);
}

static const struct ps_identity alice = {PS_ROLE_WORKER, "alice"}, bob = {PS_ROLE_WORKER, "bob"};

static struct answer declare_by(struct cluster *c, const struct ps_identity *who, uint64_t run)
{
    const uint64_t before = c->callers[0].run;
    test_from = who;
    c->callers[0].run = run;
    struct answer a = declare_at(c, 1);
    c->callers[0].run = before;
    return a;
}

// A job that nobody has left is its user's at every task, and as it was declared: another user's Declare takes neither
// its values nor its name, and its own chief declares nothing else.
static void test_name_is_kept(void **state)
{
    struct cluster c;
    (void)state;
    test_from = &alice;
    open_job(&c, ASYNC, 1);
    assert_int_equal(push(&c, 0, 1, 0, 3).code, PS_OK);
    c.declare.on_existing = REPLACE;
    assert_int_equal(declare_by(&c, &bob, 1).code, PS_PERMISSION_DENIED);
    assert_int_equal(declare_by(&c, &bob, c.run).code, PS_PERMISSION_DENIED);
    assert_int_equal(declare_by(&c, &bob, c.run + 1).code, PS_UNAVAILABLE);  // ps task 0 is asked
    settle(&c, 100);
    struct answer a = declare_by(&c, &bob, c.run + 1);
    assert_int_equal(a.code, PS_PERMISSION_DENIED);
    assert_string_equal(a.text, "job 'job' is alice's, not bob's: choose another name");
    c.job_h[0].value = 2;
    c.callers[0].sequence += 10;
    assert_int_equal(declare_by(&c, &alice, c.run).code, PS_ALREADY_EXISTS);
    assert_true(read_first(&c, 1) == -3);
    test_from = NULL;
    cluster_close(&c);
}

// The control task has lost it: then another user has the name, at the other tasks as soon as they have asked.
static void test_name_is_given_on(void **state)
{
    static const bool over[] = {false, true};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cluster c;
        test_from = &alice;
        open_job(&c, ASYNC, 1);
        if (over[i])
            all_leave(&c);
        control_restarts(&c);
        test_from = &bob;
        c.callers[0].client.data = (uint8_t *)"bob's own client";
        assert_int_equal(cluster_join(&c, 0).code, PS_OK);
        assert_int_equal(declare_at(&c, 1).code, PS_UNAVAILABLE);
        settle(&c, 100);
        struct answer a = declare_at(&c, 1);
        if (a.code)
            fail_msg("%s", a.text);
        assert_int_equal(declare_at(&c, 0).code, PS_OK);
        assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
        test_from = NULL;
        cluster_close(&c);
    }
}

// A job that is stopped while all take part in it: a late copy of its declaration does not make it anew.
static void test_stopped_stays_stopped(void **state)
{
    struct cluster c;
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    (void)state;
    open_job(&c, ASYNC, 1);
    stop.job = (char *)"job";
    assert_int_equal(ask(c.task[1].core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    assert_late_declare(&c, c.callers);
    cluster_close(&c);
}

// A run that ends before the control task has it declared. Task 1 has declared it, or goes on with the values of the
// run before. Where it does not hear of that at once it does later.
static void end_undeclared(struct cluster *c, bool failed, bool cut_off)
{
    assert_int_equal(cluster_join(c, 0).code, PS_OK);
    assert_int_equal(declare_at(c, 1).code, PS_OK);
    settle(c, 100);
    assert_non_null(job_at(c, 1));
    c->cut_off = cut_off ? 1 : NO_TASK;
    depart(c, 0, failed);
    settle(c, 100);
    assert_true(!cut_off || !psd_job_has_failed(job_at(c, 1)));
    c->cut_off = NO_TASK;
    settle(c, 100);
}

static void test_ended_undeclared(void **state)
{
    static const struct {
        bool failed, cut_off;
    } ways[] = {{true, false}, {false, false}, {true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct cluster c;
        cluster_open(&c, 2, 1, MEMORY, variables, 2);
        c.declare.update = ASYNC;
        const size_t used = psd_pool_used(&c.task[1].core->pool);
        end_undeclared(&c, ways[i].failed, ways[i].cut_off);
        assert_null(job_at(&c, 1));
        assert_int_equal(psd_pool_used(&c.task[1].core->pool), used);
        assert_late_declare(&c, c.callers);
        cluster_close(&c);
    }
}

// What is being declared when that is heard goes as soon as it is.
static void test_ended_while_it_is_declared(void **state)
{
    struct cluster c;
    (void)state;
    cluster_open(&c, 2, 1, MEMORY, variables, 2);
    c.declare.update = ASYNC;
    assert_int_equal(cluster_join(&c, 0).code, PS_OK);
    assert_int_equal(declare_at(&c, 1).code, PS_OK);
    job_at(&c, 1)->declaring = true;
    depart(&c, 0, true);
    settle(&c, 100);
    assert_non_null(job_at(&c, 1));
    job_at(&c, 1)->declaring = false;
    settle(&c, 100);
    assert_null(job_at(&c, 1));
    cluster_close(&c);
}

// Values of the run before stay, and a next run goes on with them.
static void test_resumed_values_stay(void **state)
{
    static uint8_t another[16] = "another process";
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, ASYNC, 1);
    assert_int_equal(push(&c, 0, 1, 0, 3).code, PS_OK);
    all_leave(&c);
    c.callers[0].client.data = another;
    c.declare.on_existing = RESUME;
    end_undeclared(&c, true, false);
    assert_non_null(job_at(&c, 1));
    assert_true(psd_job_has_failed(job_at(&c, 1)));
    run_again(&c, RESUME, old);
    assert_true(read_first(&c, 1) == -3);
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    assert_true(read_first(&c, 1) == -4);
    cluster_close(&c);
}

// Values that a run was to replace go where its chief dies before it has declared it anywhere; those that it was to go
// on with stay.
static void test_replaced_values_go(void **state)
{
    static const Paramserver__V1__OnExisting ways[] = {PARAMSERVER__V1__ON_EXISTING__REPLACE,
                                                       PARAMSERVER__V1__ON_EXISTING__REFUSE, RESUME};
    static uint8_t another[16] = "another process";
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct cluster c;
        cluster_open(&c, 2, 1, MEMORY, variables, 2);
        const size_t used = psd_pool_used(&c.task[1].core->pool);
        c.declare.update = ASYNC;
        cluster_start(&c);
        settle(&c, 100);
        all_leave(&c);
        c.callers[0].client.data = another;
        c.declare.on_existing = ways[i];
        assert_int_equal(cluster_join(&c, 0).code, PS_OK);
        depart(&c, 0, true);
        settle(&c, 100);
        assert_true((job_at(&c, 1) == NULL) == (ways[i] != RESUME));
        assert_true((psd_pool_used(&c.task[1].core->pool) == used) == (ways[i] != RESUME));
        cluster_close(&c);
    }
}

// ---- data calls ---------------------------------------------------------------------------------------------------

static const int methods[] = {M(PUT), M(ASSIGN_ADD), M(ASSIGN_SUB), M(PUSH), M(PUSH_PULL), M(GET), M(PULL)};

// What belongs to an earlier run is refused, whatever became of that, from the next one's declaration on.
static void test_earlier_run(void **state)
{
    static const Paramserver__V1__OnExisting ways[] = {REPLACE, RESUME};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cluster c;
        struct asking x;
        Paramserver__V1__Caller old[8];
        open_job(&c, ASYNC, 2);
        for (uint32_t p = 0; p < 2; p++)
            assert_int_equal(push(&c, 0, p, 0, 1).code, PS_OK);
        all_leave(&c);
        run_again(&c, ways[i], old);
        for (uint32_t p = 0; p < 2; p++) {
            float before = read_first(&c, p);
            for (size_t k = 0; k < sizeof methods / sizeof methods[0]; k++) {
                ask_for(&c, &x, methods[k], &old[1], p, 0, 7);
                assert_refused(&x, PS_ABORTED, "has ended");
                Paramserver__V1__Caller early = c.callers[1];
                early.run++;
                ask_for(&c, &x, methods[k], &early, p, 0, 7);
                assert_refused(&x, PS_UNAVAILABLE, "has not heard of run");
                early.run = 0;
                ask_for(&c, &x, methods[k], &early, p, 0, 7);
                assert_refused(&x, PS_INVALID_ARGUMENT, "names no run");
            }
            assert_true(read_first(&c, p) == before);
        }
        cluster_close(&c);
    }
}

// A PushPull and a Pull of round 1 wait at task 1. The job is declared anew there: they are answered, and in round 1 of
// the next run nothing counts but what its own workers have pushed.
static void test_waits_while_declared_anew(void **state)
{
    static const Paramserver__V1__OnExisting ways[] = {REPLACE, RESUME};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cluster c;
        struct asking w, pull;
        Paramserver__V1__Caller old[8];
        open_job(&c, SYNC, 2);
        ask_for(&c, &w, M(PUSH_PULL), &c.callers[0], 1, 1, 100);
        ask_for(&c, &pull, M(PULL), &c.callers[0], 1, 1, 0);
        assert_true(!w.a.answered && !pull.a.answered);
        control_restarts(&c);
        run_again(&c, ways[i], old);
        assert_refused(&w, PS_ABORTED, "");
        assert_refused(&pull, PS_ABORTED, "");
        assert_int_equal(push(&c, 1, 1, 1, 3).result.outcome, PARAMSERVER__V1__OUTCOME__QUEUED);
        settle(&c, 100);
        assert_true(read_first(&c, 1) == 0);
        assert_int_equal(push(&c, 0, 1, 1, 5).result.outcome, PARAMSERVER__V1__OUTCOME__QUEUED);
        settle(&c, 100);
        assert_true(read_first(&c, 1) == -4);
        cluster_close(&c);
    }
}

// The same with tensors of a variable that takes no part in rounds beside one that does: what was pushed of it has been
// applied, and is not applied again.
static void test_passive_while_declared_anew(void **state)
{
    struct cluster c;
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t[2], *tensors[2];
    Paramserver__V1__Caller caller, old[8];
    struct answer a;
    (void)state;
    open_job(&c, SYNC, 2);
    for (int i = 0; i < 2; i++) {
        paramserver__v1__tensor__init(tensors[i] = &t[i]);
        t[i].variable = (char *)variables[i].name;
        t[i].dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
        t[i].first = t[i].count = 4;
    }
    caller = c.callers[0];
    caller.sequence = caller.oldest = 1;
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 2;
    r.round = r.examples = 1;
    struct ps_slices payload = floats(8, 2);
    ask_later(c.task[1].core, &a, M(PUSH_PULL), &r.base, &payload, UINT64_MAX);
    assert_false(a.answered);
    assert_true(read_first(&c, 3) == 2);
    control_restarts(&c);
    run_again(&c, REPLACE, old);
    assert_true(a.answered);
    assert_int_equal(a.code, PS_ABORTED);
    assert_true(read_first(&c, 3) == 0);
    cluster_close(&c);
}

// ---- the control task is gone ---------------------------------------------------------------------------------------

// The control task has lost the job: it ends at the other tasks, and its name is free there for whom the control task
// lets in. One that it knows stays, however long nothing moves.
static void test_control_has_lost_the_job(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    Paramserver__V1__StopJobRequest stop = PARAMSERVER__V1__STOP_JOB_REQUEST__INIT;
    (void)state;
    open_job(&c, ASYNC, 2);
    settle(&c, 3 * PSD_WATCH_SILENT_MS);
    assert_false(psd_job_has_failed(job_at(&c, 1)));
    stop.job = (char *)"job";
    assert_int_equal(ask(c.task[0].core, M(STOP_JOB), &stop.base, NULL, NULL, NULL, NULL).code, PS_OK);
    settle(&c, PSD_WATCH_IDLE_MS + PSD_WATCH_AGAIN_MS);
    assert_true(psd_job_has_failed(job_at(&c, 1)));
    assert_non_null(strstr(job_at(&c, 1)->failure, "does not know it any more"));
    run_again(&c, PARAMSERVER__V1__ON_EXISTING__REFUSE, old);
    assert_false(psd_job_has_failed(job_at(&c, 1)));
    assert_int_equal(push(&c, 0, 1, 0, 1).code, PS_OK);
    cluster_close(&c);
}

static void test_control_does_not_answer(void **state)
{
    struct cluster c;
    (void)state;
    open_job(&c, ASYNC, 2);
    c.cut_off = 0;
    settle(&c, PSD_WATCH_SILENT_MS - 1000);
    assert_false(psd_job_has_failed(job_at(&c, 1)));
    settle(&c, PSD_WATCH_AGAIN_MS + PSD_WATCH_IDLE_MS);
    assert_true(psd_job_has_failed(job_at(&c, 1)));
    assert_non_null(strstr(job_at(&c, 1)->failure, "has not answered"));
    cluster_close(&c);
}

static void assert_state_at(struct cluster *c, uint32_t task, const char *expected)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    r.job = (char *)"job";
    assert_int_equal(
        ask(c->task[task].core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL).code,
        PS_OK);
    const Paramserver__V1__StatusReply *status = (const Paramserver__V1__StatusReply *)m;
    assert_int_equal(status->n_jobs, 1);
    assert_string_equal(status->jobs[0]->state, expected);
    assert_string_equal(status->jobs[0]->reason, "");
    ps_msg_free(m);
}

// What is done stays done elsewhere: while the control task is away, and once another has taken its place that does not
// know the job.
static void test_done_stays_done(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, ASYNC, 2);
    assert_state_at(&c, 1, "running");
    leave(&c, 0);
    settle(&c, 100);
    assert_state_at(&c, 1, "running");
    leave(&c, 1);
    settle(&c, 100);
    assert_state_at(&c, 0, "done");
    assert_state_at(&c, 1, "done");
    c.cut_off = 0;
    settle(&c, 2 * PSD_WATCH_SILENT_MS);
    assert_state_at(&c, 1, "done");
    c.cut_off = NO_TASK;
    control_restarts(&c);
    settle(&c, 2 * (PSD_WATCH_IDLE_MS + PSD_WATCH_AGAIN_MS));
    assert_state_at(&c, 1, "done");
    run_again(&c, PARAMSERVER__V1__ON_EXISTING__REFUSE, old);
    assert_state_at(&c, 1, "running");
    cluster_close(&c);
}

// The job is done while the control task is being asked for it, and gone before that answers.
static void test_done_while_asked(void **state)
{
    struct cluster c;
    (void)state;
    open_job(&c, ASYNC, 1);
    test_time += (PSD_WATCH_IDLE_MS + PSD_WATCH_AGAIN_MS) * PS_MS;
    psd_core_tick(c.task[1].core);
    assert_int_equal(c.n_mail, 1);
    struct letter *question = c.mail;
    c.mail = NULL;
    c.n_mail = 0;
    leave(&c, 0);
    deliver_all(&c);
    control_restarts(&c);
    post(&c, question);
    settle(&c, 100);
    assert_state_at(&c, 1, "done");
    cluster_close(&c);
}

// ---- a call goes on -----------------------------------------------------------------------------------------------

// A PushPull that waits goes on: what it has pushed is not looked at again, counts once, and its answer says what it
// said when it came.
static void test_push_pull_goes_on(void **state)
{
    struct cluster c;
    struct asking x;
    ProtobufCMessage *m = NULL;
    struct ps_slices values = PS_SLICES_EMPTY;
    (void)state;
    open_job(&c, SYNC, 2);
    ask_for(&c, &x, M(PUSH_PULL), &c.callers[0], 1, 1, NAN);
    assert_false(x.a.answered);
    assert_int_equal(x.a.call.request.len, 0);
    assert_int_equal(push(&c, 1, 1, 1, 3).result.outcome, PARAMSERVER__V1__OUTCOME__QUEUED);
    settle(&c, 100);
    assert_true(x.a.answered && x.a.code == PS_OK);
    assert_int_equal(ps_msg_unpack(&paramserver__v1__push_pull_reply__descriptor, &x.a.body, &m, &values, NULL), PS_OK);
    const Paramserver__V1__PushPullReply *reply = (Paramserver__V1__PushPullReply *)m;
    assert_int_equal(reply->results[0]->outcome, PARAMSERVER__V1__OUTCOME__QUEUED);
    assert_int_equal(reply->results[0]->nonfinite, 4);
    assert_int_equal(reply->round, 1);
    assert_int_equal(values.len, 4 * sizeof(float));
    assert_int_equal(c.task[1].core->table.newest->updates, 2);
    assert_int_equal(c.task[1].core->table.newest->duplicates, 0);
    assert_int_equal(c.task[1].core->table.newest->nonfinite, 1);
    ps_msg_free(m);
    ps_slices_clear(&values);
    ps_slices_clear(&x.a.body);
    cluster_close(&c);
}

// Calls whose clients are gone are answered and wait no more, whatever they wait for; the others do.
static void test_cancel(void **state)
{
    struct cluster c;
    struct asking pull[3], pushed;
    struct answer barrier, describe;
    Paramserver__V1__BarrierRequest b = PARAMSERVER__V1__BARRIER_REQUEST__INIT;
    Paramserver__V1__DescribeRequest d = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller, elsewhere;
    (void)state;
    open_job(&c, SYNC, 2);
    for (int i = 0; i < 3; i++)
        ask_for(&c, &pull[i], M(PULL), &c.callers[0], 1, 1, 0);
    ask_for(&c, &pushed, M(PUSH_PULL), &c.callers[0], 1, 1, 5);
    caller = c.callers[0];
    caller.sequence = caller.oldest = 41;
    b.caller = &caller;
    b.name = (char *)"here";
    ask_later(c.task[0].core, &barrier, M(BARRIER), &b.base, NULL, UINT64_MAX);
    elsewhere = c.callers[0];
    elsewhere.job = (char *)"another job";
    d.caller = &elsewhere;
    d.wait = true;
    ask_later(c.task[0].core, &describe, M(DESCRIBE), &d.base, NULL, UINT64_MAX);
    assert_int_equal(c.task[0].core->table.joining.n, 1);
    struct answer *gone[] = {&pull[1].a, &pushed.a, &barrier, &describe};
    for (int i = 0; i < 4; i++) {
        assert_false(gone[i]->answered);
        psd_core_cancel(c.task[i < 2].core, &gone[i]->call);
        assert_true(gone[i]->answered);
        assert_int_equal(gone[i]->code, PS_CANCELLED);
        gone[i]->answered = false;
        psd_core_cancel(c.task[i < 2].core, &gone[i]->call);
        assert_false(gone[i]->answered);  // once
    }
    assert_int_equal(c.task[0].core->table.joining.n, 0);
    assert_int_equal(psd_waits_count(c.task[1].core, c.task[1].core->table.newest), 2);
    assert_int_equal(psd_waits_count(c.task[0].core, c.task[0].core->table.newest), 0);
    assert_int_equal(push(&c, 1, 1, 1, 3).result.outcome, PARAMSERVER__V1__OUTCOME__QUEUED);
    settle(&c, 100);
    assert_true(read_first(&c, 1) == -4);  // what has been pushed counts
    for (int i = 0; i < 3; i += 2) {
        assert_true(pull[i].a.answered && pull[i].a.code == PS_OK);
        ps_slices_clear(&pull[i].a.body);
    }
    cluster_close(&c);
}

// A call that is cancelled before it could be parked is not.
static void test_cancelled_before_it_parks(void **state)
{
    struct psd_waiters list = {0};
    struct psd_call call = {.deadline = UINT64_MAX};
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)state;
    atomic_init(&call.lock, NULL);
    atomic_init(&call.cancelled, true);
    pthread_mutex_lock(&lock);
    assert_false(psd_waiters_add(&list, &lock, &call));
    pthread_mutex_unlock(&lock);
    assert_null(list.first);
    assert_int_equal(list.n, 0);
    assert_null(atomic_load(&call.lock));
}

enum { RACES = 2000 };

struct race {
    struct cluster c;
    struct asking pull;
    atomic_int at;
};

static void *cancels(void *arg)
{
    struct race *r = arg;
    for (int i = 1; i <= RACES; i++) {
        while (atomic_load(&r->at) < 2 * i - 1)
            sched_yield();
        psd_core_cancel(r->c.task[1].core, &r->pull.a.call);
        atomic_store(&r->at, 2 * i);
    }
    return NULL;
}

// A call that is cancelled while its round closes is answered once.
static void test_cancel_races(void **state)
{
    static struct race r;
    pthread_t thread;
    (void)state;
    open_job(&r.c, SYNC, 1);
    assert_int_equal(pthread_create(&thread, NULL, cancels, &r), 0);
    for (int i = 1; i <= RACES; i++) {
        ask_for(&r.c, &r.pull, M(PULL), &r.c.callers[0], 1, (uint64_t)i, 0);
        assert_false(r.pull.a.answered);
        atomic_store(&r.at, 2 * i - 1);
        assert_int_equal(push(&r.c, 0, 1, (uint64_t)i, 1).code, PS_OK);
        while (atomic_load(&r.at) < 2 * i)
            sched_yield();
        assert_true(r.pull.a.answered && (r.pull.a.code == PS_OK || r.pull.a.code == PS_CANCELLED));
        ps_slices_clear(&r.pull.a.body);
    }
    pthread_join(thread, NULL);
    assert_int_equal(psd_waits_count(r.c.task[1].core, r.c.task[1].core->table.newest), 0);
    assert_int_equal(r.c.task[1].core->table.newest->refs, 1);
    cluster_close(&r.c);
}

// Who waits for a run that this task has not heard of waits through the end of the one before.
static void test_waits_for_the_next_run(void **state)
{
    struct cluster c;
    struct answer a;
    Paramserver__V1__DescribeRequest d = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller next, old[8];
    static const Paramserver__V1__OnExisting ways[] = {REPLACE, RESUME};
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_job(&c, ASYNC, 1);
        all_leave(&c);
        next = c.callers[0];
        next.run++;
        d.caller = &next;
        d.wait = true;
        ask_later(c.task[1].core, &a, M(DESCRIBE), &d.base, NULL, UINT64_MAX);
        assert_false(a.answered);
        run_again(&c, ways[i], old);
        assert_true(a.answered);
        assert_int_equal(a.code, PS_OK);
        ps_slices_clear(&a.body);
        cluster_close(&c);
    }
}

// ---- who is who ---------------------------------------------------------------------------------------------------

// A client that has a rank and a higher incarnation, and never joined, is not obeyed, and the worker goes on.
static void test_stranger(void **state)
{
    struct cluster c;
    struct asking x;
    (void)state;
    open_job(&c, ASYNC, 2);
    for (uint32_t p = 0; p < 2; p++) {
        Paramserver__V1__Caller stranger = c.callers[1];
        stranger.client.data = (uint8_t *)"one from outside";
        stranger.incarnation += 1000;
        ask_for(&c, &x, M(PUSH), &stranger, p, 0, 7);
        assert_refused(&x, PS_UNAVAILABLE, "as far as was heard here");
        assert_int_equal(push(&c, 1, p, 0, 1).code, PS_OK);
        assert_true(read_first(&c, p) == -1);
    }
    cluster_close(&c);
}

// A Join that waits for its rank in a run that is over when the next one begins is for that one.
static void test_parked_in_the_run_before(void **state)
{
    static uint8_t other[16] = "another process";
    struct cluster c;
    struct answer a;
    struct ps_error e;
    struct psd_call *ready = NULL;
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    (void)state;
    open_job(&c, ASYNC, 2);
    leave(&c, 1);
    c.callers[1].client.data = other;
    r.caller = &c.callers[1];
    r.workers = 2;
    r.update = ASYNC;
    ask_later(c.task[0].core, &a, M(JOIN), &r.base, NULL, UINT64_MAX);
    assert_false(a.answered);
    // As worker 0's Join begins a run, after it has made those ready who waited then.
    struct psd_job *job = c.task[0].core->table.newest;
    struct psd_control *control = psd_control_new(&c.task[0].core->host, job->control, &r, &e);
    assert_non_null(control);
    psd_control_open(job, control, RESUME, &ready);
    psd_run_ready(c.task[0].core, ready);
    assert_true(a.answered && a.code == PS_OK);
    ps_slices_clear(&a.body);
    cluster_close(&c);
}

// A worker that comes back is obeyed whatever it, or its clock, thinks of its incarnation; the one before is not. What
// it waits for first is that all tasks know that.
static void test_coming_back(void **state)
{
    struct cluster c;
    struct answer a;
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    (void)state;
    open_job(&c, ASYNC, 2);
    Paramserver__V1__Caller before = c.callers[1];
    c.task[0].core->table.newest->control->members[1].draining = true;  // else another process is for the next run
    leave(&c, 1);
    settle(&c, 100);
    c.callers[1].client.data = (uint8_t *)"its next process";
    c.callers[1].incarnation = 0;
    c.sequence[1] = 0;
    assert_int_equal(cluster_join(&c, 1).code, PS_OK);
    uint64_t incarnation = c.callers[1].incarnation;
    assert_true(incarnation > before.incarnation);
    assert_int_equal(cluster_join(&c, 1).code, PS_OK);
    assert_int_equal(c.callers[1].incarnation, incarnation);
    r.caller = &c.callers[1];
    r.wait = true;
    ask_later(c.task[0].core, &a, M(DESCRIBE), &r.base, NULL, UINT64_MAX);
    assert_false(a.answered);  // task 1 has not heard of it
    assert_int_equal(push(&c, 1, 1, 0, 1).code, PS_UNAVAILABLE);
    deliver_all(&c);
    assert_true(a.answered && a.code == PS_OK);
    ps_slices_clear(&a.body);
    for (uint32_t p = 0; p < 2; p++) {
        struct asking x;
        assert_int_equal(push(&c, 1, p, 0, 1).code, PS_OK);
        ask_for(&c, &x, M(PUSH), &before, p, 0, 7);
        assert_refused(&x, PS_ABORTED, "taken for dead");
        assert_true(read_first(&c, p) == -1);
    }
    cluster_close(&c);
}

// An answer to what an earlier run told a task is not taken for one to the run of now, wherever its memory lies.
static void test_answer_to_an_earlier_run(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, SYNC, 2);
    struct psd_job *job = c.task[0].core->table.newest;
    leave(&c, 1);
    while (c.n_mail && !c.mail->answered)
        deliver(&c);
    struct letter *answer = c.mail;  // of task 1, under way
    assert_non_null(answer);
    c.mail = NULL;
    c.n_mail = 0;
    leave(&c, 0);
    settle(&c, 100);
    run_again(&c, RESUME, old);
    assert_ptr_equal(c.task[0].core->table.newest, job);
    job->control->changed = ++job->control->epoch;
    job->control->acked[1] = 0;
    tell_sender(answer, answer->code);
    assert_int_equal(job->control->acked[1], 0);
    cluster_close(&c);
}

// A task has found the job in the run that SetMembers names, and goes on with it when the next run has begun there: its
// view is not the new run's.
static void test_view_of_an_earlier_run(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    struct psd_view_delta d;
    struct psd_call *ready = NULL;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    open_job(&c, SYNC, 2);
    struct psd_job *job = job_at(&c, 1);
    const uint64_t run = atomic_load(&job->run);
    assert_true(psd_view_delta_init(&d, 2));
    d.epoch = 1000;
    for (uint32_t rank = 0; rank < 2; rank++)
        d.v[rank] = (struct psd_view_entry){.rank = rank, .state = PARAMSERVER__V1__MEMBER_STATE__DEAD};
    all_leave(&c);
    run_again(&c, RESUME, old);
    assert_true(job_at(&c, 1) == job && atomic_load(&job->run) != run);
    assert_int_equal(psd_view_take(job, run, 2, &d, &ready, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "is in another run here"));
    for (uint32_t i = 0; i < job->n_partitions; i++)
        assert_true(!job->partitions[i].round || !job->partitions[i].round->over);
    psd_view_delta_free(&d);
    cluster_close(&c);
}

enum { VIEWS = 400 / TEST_PART, VIEWED = 1 << 16 };  // workers of a view: it takes a while

struct telling {
    struct psd_job *job;
    uint64_t run;
    atomic_bool done;
};

static void *tells_views(void *arg)
{
    struct telling *x = arg;
    for (uint64_t i = 0; i < VIEWS; i++) {
        struct psd_view_delta d;
        struct psd_call *ready = NULL;
        struct ps_error e;
        if (!psd_view_delta_init(&d, 2))
            abort();
        d.epoch = i + 1;
        for (uint32_t rank = 0; rank < 2; rank++)
            d.v[rank] = (struct psd_view_entry){.rank = rank, .state = PARAMSERVER__V1__MEMBER_STATE__LIVE};
        if (psd_view_take(x->job, x->run, VIEWED, &d, &ready, &e) || ready)
            abort();
        psd_view_delta_free(&d);
    }
    atomic_store(&x->done, true);
    return NULL;
}

// A run begins while a view is taken in: that is not freed under its feet. What tells is the address sanitizer, or that
// for threads.
static void test_views_while_a_run_begins(void **state)
{
    struct cluster c;
    struct psd_call *ready = NULL;
    pthread_t thread;
    (void)state;
    open_job(&c, ASYNC, 2);
    struct telling x = {.job = job_at(&c, 1), .run = atomic_load(&job_at(&c, 1)->run)};
    psd_control_component.begin_run(x.job, &ready);  // it forgets the view that it has, of two workers
    assert_int_equal(pthread_create(&thread, NULL, tells_views, &x), 0);
    while (!atomic_load(&x.done))
        psd_control_component.begin_run(x.job, &ready);
    pthread_join(thread, NULL);
    assert_null(ready);
    cluster_close(&c);
}

static struct {
    struct psd_table *table;
    int begun, unlocked;
} begins;

static void begins_run(struct psd_job *job, struct psd_call **ready)
{
    (void)job, (void)ready;
    begins.begun++;
    if (pthread_mutex_trylock(&begins.table->lock))
        return;
    begins.unlocked++;
    pthread_mutex_unlock(&begins.table->lock);
}

// What begins a run looks at every block of the job: calls of other jobs do not wait for that.
static void test_a_run_begins_beside_other_jobs(void **state)
{
    static const struct psd_component watches = {.name = "watches", .begin_run = begins_run};
    static const struct psd_component *components[16];
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, SYNC, 2);
    all_leave(&c);
    struct psd_host *host = &c.task[1].core->host;
    size_t n = 0;
    while (host->components[n]) {
        components[n] = host->components[n];
        n++;
    }
    components[n] = &watches;
    components[n + 1] = NULL;
    host->components = components;
    begins.table = &c.task[1].core->table;
    run_again(&c, RESUME, old);
    assert_int_equal(begins.begun, 1);
    assert_int_equal(begins.unlocked, 1);
    assert_int_equal(push(&c, 0, 1, 1, 1).code, PS_OK);
    cluster_close(&c);
}

// ---- numbers ------------------------------------------------------------------------------------------------------

// Numbers grow, over a restart and over what was heard; what lies a century ahead is not believed.
static void test_numbers(void **state)
{
    static struct psd_runs runs;
    (void)state;
    psd_runs_init(&runs, 1000);
    assert_int_equal(psd_runs_next(&runs), 1001);
    psd_runs_hear(&runs, 5000);
    psd_runs_hear(&runs, 4000);
    assert_int_equal(psd_runs_next(&runs), 5001);
    psd_runs_hear(&runs, PSD_RUN_LIMIT - 1);
    assert_int_equal(psd_runs_next(&runs), 5002);
}

static uint64_t newest_at(struct cluster *c, uint32_t task)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    ask(c->task[task].core, M(STATUS), &r.base, NULL, &paramserver__v1__status_reply__descriptor, &m, NULL);
    const uint64_t newest = ((Paramserver__V1__StatusReply *)m)->newest;
    ps_msg_free(m);
    return newest;
}

// The control task comes back with its clock an hour behind. What it gives out is greater than what the others know, as
// the caller has heard from them, so that the next run can be declared there.
static void test_clock_set_back(void **state)
{
    struct cluster c;
    Paramserver__V1__Caller old[8];
    (void)state;
    open_job(&c, SYNC, 2);
    c.wall = 3600 * 1000;
    control_restarts(&c);
    run_again(&c, REPLACE, old);
    const uint64_t before = c.run;
    c.wall = 0;
    control_restarts(&c);
    assert_true(newest_at(&c, 0) < before);
    c.newest = newest_at(&c, 1);
    run_again(&c, REPLACE, old);
    assert_true(c.run > before);
    assert_int_equal(push(&c, 1, 1, 1, 1).code, PS_OK);
    cluster_close(&c);
}

// The last run of a name is remembered; where there are too many names, those with the lowest runs give way, and what
// is not above them is refused under any name.
static void test_past_runs(void **state)
{
    static struct psd_runs runs;
    char name[16];
    (void)state;
    memset(&runs, 0, sizeof runs);
    psd_runs_init(&runs, 0);
    assert_int_equal(psd_runs_past(&runs, "job"), 0);
    psd_runs_remember(&runs, "job", 7);
    psd_runs_remember(&runs, "job", 5);
    assert_int_equal(psd_runs_past(&runs, "job"), 7);
    for (uint64_t i = 1; i < PSD_PAST_RUNS; i++) {
        snprintf(name, sizeof name, "job %" PRIu64, i);
        psd_runs_remember(&runs, name, 100 + i);
    }
    assert_int_equal(psd_runs_past(&runs, "job"), 7);
    assert_int_equal(psd_runs_past(&runs, "another"), 0);
    psd_runs_remember(&runs, "one more", 99);
    assert_int_equal(psd_runs_past(&runs, "one more"), 99);
    assert_int_equal(psd_runs_past(&runs, "job 1"), 101);
    assert_int_equal(psd_runs_past(&runs, "job"), 7);
    assert_int_equal(psd_runs_past(&runs, "another"), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_declare),
        cmocka_unit_test(test_name_is_kept),
        cmocka_unit_test(test_name_is_given_on),
        cmocka_unit_test(test_stopped_stays_stopped),
        cmocka_unit_test(test_ended_undeclared),
        cmocka_unit_test(test_ended_while_it_is_declared),
        cmocka_unit_test(test_resumed_values_stay),
        cmocka_unit_test(test_replaced_values_go),
        cmocka_unit_test(test_earlier_run),
        cmocka_unit_test(test_waits_while_declared_anew),
        cmocka_unit_test(test_passive_while_declared_anew),
        cmocka_unit_test(test_control_has_lost_the_job),
        cmocka_unit_test(test_control_does_not_answer),
        cmocka_unit_test(test_done_stays_done),
        cmocka_unit_test(test_done_while_asked),
        cmocka_unit_test(test_push_pull_goes_on),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancelled_before_it_parks),
        cmocka_unit_test(test_cancel_races),
        cmocka_unit_test(test_waits_for_the_next_run),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_parked_in_the_run_before),
        cmocka_unit_test(test_coming_back),
        cmocka_unit_test(test_answer_to_an_earlier_run),
        cmocka_unit_test(test_a_run_begins_beside_other_jobs),
        cmocka_unit_test(test_view_of_an_earlier_run),
        cmocka_unit_test(test_views_while_a_run_begins),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_clock_set_back),
        cmocka_unit_test(test_past_runs),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
