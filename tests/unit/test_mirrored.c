// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy/mirrored.c: what two replicas, which are threads, make of gradients that are put into them by hand;
// whom workers let in, and which of them keeps the weights.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/signals.h"
#include "workerd/collective/collective.h"
#include "workerd/strategy/strategy.h"

enum { REPLICAS = 2, STEPS = 3, MANY = 4 };

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 1, \"use_bias\": false}}]}}";

// Of one replica: what is put in, and what comes out.
struct step {
    int rows;
    uint64_t rows_of_all;
    float gradient;
    float damage;  // added to the weight before the step
    float expected;
    double sum, expected_sum;  // of a sum behind the gradient; 0: there is none
};

struct replica {
    struct wk_env env;
    void *state;
    pthread_t thread;
    struct step step[STEPS];
    float begins_with;
    int taken;    // steps
    bool leaves;  // after the last one, and compares nothing
    struct ps_error error;
};

static bool (*under_test_has)(const struct nn_param *p);  // wk_env.has
static struct nn_model *model;
static struct ps_job *job;

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static enum ps_code add_up(struct replica *r, const struct step *s)
{
    double sum[2] = {s->sum, 1};
    if (wk_mirrored.home->sum(r->state, sum, 2, &r->error))
        return r->error.code;
    return sum[0] == s->expected_sum && sum[1] == REPLICAS
               ? PS_OK
               : ps_fail(&r->error, PS_INTERNAL, "the sum is %f of %f", sum[0], sum[1]);
}

static void *run_replica(void *arg)
{
    struct replica *r = arg;
    const struct wk_home *home = wk_mirrored.home;
    float *w = nn_replica_param(r->env.replica, 0);
    if (wk_mirrored.open(&r->env, &r->state, &r->error) == PS_OK)
        r->begins_with = *w;
    for (uint64_t k = 0; k < STEPS && r->error.code == PS_OK && r->step[k].rows_of_all; k++) {
        const struct step *s = &r->step[k];
        const struct wk_work work = {.step = k, .rows = s->rows, .rows_of_all = s->rows_of_all};
        *w = k == 0 ? 8 : *w + s->damage;
        if (home->begin(r->state, &work, &r->error))
            break;
        nn_replica_grad(r->env.replica, 0)[0] = s->gradient;
        if (wk_env_has(&r->env, 0) && home->ready(r->state, 0, &r->error))
            break;
        if (s->expected_sum > 0 && add_up(r, s))
            break;
        if (home->end(r->state, &work, &r->error) == PS_OK && *w != s->expected)
            ps_fail(&r->error, PS_INTERNAL, "step %d: the weight is %f, not %f", (int)k, (double)*w,
                    (double)s->expected);
        r->taken += r->error.code == PS_OK;
    }
    if (r->leaves)
        ps_fail(&r->error, PS_ABORTED, "replica 1 has left");
    if (r->error.code)
        wk_collective_fail(r->env.collective, r->env.device, &r->error);
    return NULL;
}

// Runs both with the strategy of this name and its settings.
static void run(struct replica r[REPLICAS], const char *strategy, const char *settings)
{
    static const volatile sig_atomic_t no_signal;
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    const struct wk_peers_options options = {.workers = 1, .stop = &no_signal};
    struct wk_collective *collective;
    struct ps_error e = {.code = PS_OK};
    char text[512];
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer: {name: sgd, learning_rate: 1}\n"
             "strategy: {name: %s, %s}\n",
             strategy, settings);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &job, &e), &e);
    must(nn_model_parse(model_text, "test", &model, &e), &e);
    must(wk_collective_open(&options, REPLICAS, &collective, &e), &e);
    struct ps_job quiet = *job;
    quiet.compare_every = 0;
    for (uint32_t i = 0; i < REPLICAS; i++) {
        r[i].env = (struct wk_env){.has = under_test_has,
                                   .job = r[i].leaves ? &quiet : job,
                                   .model = model,
                                   .workers = 1,
                                   .replica_rank = i,
                                   .replicas = REPLICAS,
                                   .device = i,
                                   .collective = collective};
        must(nn_replica_create(model, "ref", 1, 1, i, &mse, &r[i].env.replica, &e), &e);
        pthread_create(&r[i].thread, NULL, run_replica, &r[i]);
    }
    for (uint32_t i = 0; i < REPLICAS; i++)
        pthread_join(r[i].thread, NULL);
    wk_collective_close(collective, NULL);
    for (uint32_t i = 0; i < REPLICAS; i++) {
        wk_mirrored.close(r[i].state, NULL);
        nn_replica_free(r[i].env.replica);
    }
    nn_model_free(model);
    ps_job_free(job);
}

// The mean over all rows of a step, of which one replica may have fewer than the other, or none.
static void gradients_are_weighted_by_rows(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{4, 8, 1, 0, 6}, {4, 5, 1, 0, 5.2F}, {4, 4, 1, 0, 4.2F}}},
                                  {.step = {{4, 8, 3, 0, 6}, {1, 5, 0, 0, 5.2F}, {0, 4, 0, 0, 4.2F}}}};
    (void)ctx;
    run(r, "mirrored", "compare_every: 1");
    for (int i = 0; i < REPLICAS; i++)
        must(r[i].error.code, &r[i].error);
    assert_true(r[0].begins_with == r[1].begins_with && r[0].begins_with != 0);
}

static bool has_none(const struct nn_param *p)
{
    (void)p;
    return false;
}

// Each replica's variable stays what somebody else makes of it, and they may differ.
static void a_variable_of_another_home_is_left_alone(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{4, 8, 1, 0, 8}, {4, 8, 1, 0, 8}, {4, 8, 1, 2, 10}}},
                                  {.step = {{4, 8, 3, 0, 8}, {4, 8, 3, 1, 9}, {4, 8, 3, 0, 9}}}};
    (void)ctx;
    under_test_has = has_none;
    run(r, "mirrored", "compare_every: 1");
    under_test_has = NULL;
    for (int i = 0; i < REPLICAS; i++)
        must(r[i].error.code, &r[i].error);
    assert_true(r[0].begins_with != r[1].begins_with);
}

// Between the gradients of a step, which travel meanwhile.
static void replicas_add_up_in_the_midst_of_a_step(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{4, 8, 1, 0, 6, 2, 5}, {4, 5, 1, 0, 5.2F, 4, 3}}},
                                  {.step = {{4, 8, 3, 0, 6, 3, 5}, {1, 5, 0, 0, 5.2F, -1, 3}}}};
    (void)ctx;
    run(r, "mirrored", "compare_every: 1");
    for (int i = 0; i < REPLICAS; i++)
        must(r[i].error.code, &r[i].error);
}

// Its gradient has not left: it takes part in no sum behind that.
static void no_sum_behind_a_gradient_that_is_none(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{1, 2, 1, 0, 7, 1, 2}}}, {.step = {{1, 2, NAN, 0, 0, 1, 2}}}};
    (void)ctx;
    run(r, "mirrored", "refuse_nonfinite: true");
    assert_string_equal("variable 'net/dense/kernel': the gradient's element 0 is not finite", r[1].error.text);
    assert_string_equal(r[1].error.text, r[0].error.text);
}

static void replicas_that_differ_are_found(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{1, 2, 1, 0, 7}, {1, 2, 1, 0, 6}, {1, 2, 1, 0, 5}}},
                                  {.step = {{1, 2, 1, 0, 7}, {1, 2, 1, 1e-6F, 6}, {1, 2, 1, 0, 5}}}};
    (void)ctx;
    run(r, "mirrored", "compare_every: 2");
    assert_int_equal(PS_INTERNAL, r[0].error.code);
    assert_string_equal("before step 2 replica 1 has other variables, or is at another step, than replica 0",
                        r[0].error.text);
}

// The other one is lost while the replicas are compared: the step counts, and the next one does not begin.
static void a_step_counts_after_which_one_is_lost(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{1, 2, 1, 0, 7}, {1, 2, 1, 0, 6}}},
                                  {.step = {{1, 2, 1, 0, 7}}, .leaves = true}};
    (void)ctx;
    run(r, "mirrored", "compare_every: 1");
    assert_int_equal(1, r[0].taken);
    assert_int_equal(PS_ABORTED, r[0].error.code);
    assert_string_equal("replica 1 has left", r[0].error.text);
}

static void a_gradient_that_is_none_is_named(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{1, 2, 1, 0, 7}, {1, 2, 1, 0, 6}}},
                                  {.step = {{1, 2, 1, 0, 7}, {1, 2, INFINITY, 0, 0}}}};
    (void)ctx;
    run(r, "mirrored", "refuse_nonfinite: true");
    assert_string_equal("variable 'net/dense/kernel': the gradient's element 0 is not finite", r[1].error.text);
    assert_int_equal(PS_INVALID_ARGUMENT, r[1].error.code);
    assert_int_equal(PS_ABORTED, r[0].error.code);
    assert_string_equal(r[1].error.text, r[0].error.text);
}

// What replica 1 had of its own before a step is gone after it.
static void one_replica_updates_the_variables_of_all(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{4, 8, 1, 0, 6}, {4, 5, 1, 0, 5.2F}, {4, 4, 1, 0, 4.2F}}},
                                  {.step = {{4, 8, 3, 0, 6}, {1, 5, 0, 1, 5.2F}, {0, 4, 0, 0, 4.2F}}}};
    (void)ctx;
    run(r, "central_storage", "compare_every: 1");
    for (int i = 0; i < REPLICAS; i++)
        must(r[i].error.code, &r[i].error);
}

// What is wrong with one replica's gradient is told to the one that would update.
static void a_gradient_that_is_none_updates_nothing(void **ctx)
{
    struct replica r[REPLICAS] = {{.step = {{1, 2, 1, 0, 7}, {1, 2, 1, 0, 0}}},
                                  {.step = {{1, 2, 1, 0, 7}, {1, 2, INFINITY, 0, 0}}}};
    (void)ctx;
    run(r, "central_storage", "refuse_nonfinite: true");
    assert_int_equal(PS_INVALID_ARGUMENT, r[1].error.code);
    assert_int_equal(PS_ABORTED, r[0].error.code);
    assert_string_equal(r[1].error.text, r[0].error.text);
}

// ---- who comes back ------------------------------------------------------------------------------------------------

// A worker of several, of one replica.
struct worker {
    struct wk_peers_options options;
    struct wk_env env;
    void *state;
    pthread_t thread;
    struct ps_error error;
};

static volatile sig_atomic_t signal_came;

static struct worker worker_of(uint32_t rank, uint32_t workers, const char *const *addresses)
{
    return (struct worker){.options = {.job = "job",
                                       .patience = 10 * PS_SECOND,
                                       .rank = rank,
                                       .addresses = addresses,
                                       .workers = workers,
                                       .min_workers = 1,
                                       .configuration = "seed=1\n",
                                       .timeout = 20 * PS_SECOND,
                                       .stop = &signal_came}};
}

static void *open_worker(void *arg)
{
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    struct worker *w = arg;
    const uint32_t rank = w->options.rank, n = w->options.workers;
    w->env = (struct wk_env){.job = job, .model = model, .examples = 2, .workers = n, .rank = rank};
    w->env.stop = &signal_came;
    w->env.replica_rank = rank;
    w->env.replicas = n;
    if (wk_collective_open(&w->options, 1, &w->env.collective, &w->error) ||
        nn_replica_create(model, "ref", 1, 1, rank, &mse, &w->env.replica, &w->error))
        return NULL;
    wk_mirrored.open(&w->env, &w->state, &w->error);
    return NULL;
}

static void close_worker(struct worker *w)
{
    if (w->state)
        wk_mirrored.close(w->state, NULL);
    if (w->env.collective)
        wk_collective_close(w->env.collective, NULL);
    nn_replica_free(w->env.replica);
}

static void *come_and_go(void *arg)
{
    open_worker(arg);
    close_worker(arg);
    return NULL;
}

static void make_job(int epochs)
{
    char text[256];
    struct ps_error e = {.code = PS_OK};
    ps_signal_set(&signal_came, 0);
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer: {name: sgd, learning_rate: 1}\n"
             "batch_size: 1\nepochs: %d\nstrategy: {name: multi_worker_mirrored}\n",
             epochs);
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &job, &e), &e);
    must(nn_model_parse(model_text, "test", &model, &e), &e);
}

static void free_job(void)
{
    nn_model_free(model);
    ps_job_free(job);
}

// Worker 1 is lost in the one step of an epoch. It waits to come back while worker 0 meets whoever is left.
static bool is_let_in_in_the_last_step_of(int epochs, const char *const *addresses)
{
    struct worker first = worker_of(0, REPLICAS, addresses), second = worker_of(1, REPLICAS, addresses);
    struct worker guest = worker_of(1, REPLICAS, addresses);
    struct wk_work work = {0};
    struct ps_error e = {.code = PS_OK};
    make_job(epochs);
    pthread_create(&second.thread, NULL, come_and_go, &second);
    open_worker(&first);
    pthread_join(second.thread, NULL);
    must(first.error.code, &first.error);
    pthread_create(&guest.thread, NULL, come_and_go, &guest);
    for (int i = 0; i < 10000 && wk_collective_guests(first.env.collective) == 0; i++)
        usleep(1000);
    assert_int_equal(WK_BATCH, wk_mirrored.sharder->next(first.state, 0, false, &work, &e));
    assert_int_equal(PS_ABORTED, wk_mirrored.home->begin(first.state, &work, &e));
    ps_signal_set(&signal_came, SIGTERM);
    pthread_join(guest.thread, NULL);
    const bool is_let_in = guest.state != NULL;
    close_worker(&first);
    free_job();
    return is_let_in;
}

// Where workers listen.
struct places {
    char directory[32], text[MANY][64];
    const char *address[MANY];
};

static void make_places(struct places *p)
{
    strcpy(p->directory, "/tmp/test_mirrored-XXXXXX");
    assert_non_null(mkdtemp(p->directory));
    for (int i = 0; i < MANY; i++) {
        snprintf(p->text[i], sizeof p->text[i], "unix:%s/%d", p->directory, i);
        p->address[i] = p->text[i];
    }
}

// Who is killed leaves its sockets there.
static void remove_places(const struct places *p)
{
    char ring[72];
    for (int i = 0; i < MANY; i++) {
        snprintf(ring, sizeof ring, "%s.ring", p->text[i] + strlen("unix:"));
        unlink(ring);
        unlink(p->text[i] + strlen("unix:"));
    }
    assert_int_equal(rmdir(p->directory), 0);
}

static void nobody_is_let_in_after_the_last_step(void **ctx)
{
    struct places p;
    (void)ctx;
    make_places(&p);
    assert_true(is_let_in_in_the_last_step_of(2, p.address));
    assert_false(is_let_in_in_the_last_step_of(1, p.address));
    remove_places(&p);
}

// ---- who keeps the weights ----------------------------------------------------------------------------------------

// Four workers: 0, which is to keep the weights, and 3, which watches it, are processes of their own, which can die
// without a word.
struct crew {
    struct places places;
    pid_t leader, watcher;
    struct worker next, last;
};

// As replica 0 says it after a signal.
static void end_by_signal(struct worker *w)
{
    struct ps_error e;
    ps_fail(&e, PS_CANCELLED, "stopped by SIGTERM");
    wk_collective_fail(w->env.collective, 0, &e);
}

// ends: it has said so.
static pid_t fork_worker(uint32_t rank, const char *const *addresses, bool ends)
{
    const pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct worker w = worker_of(rank, MANY, addresses);
    open_worker(&w);
    if (ends)
        end_by_signal(&w);
    while (w.error.code == PS_OK)
        pause();
    _exit(1);
}

// Before this process has threads.
static void fork_crew(struct crew *c, bool ends)
{
    make_places(&c->places);
    c->leader = fork_worker(0, c->places.address, ends);
    c->watcher = fork_worker(3, c->places.address, false);
}

static void meet_crew(struct crew *c)
{
    c->next = worker_of(1, MANY, c->places.address);
    c->last = worker_of(2, MANY, c->places.address);
    pthread_create(&c->last.thread, NULL, open_worker, &c->last);
    open_worker(&c->next);
    pthread_join(c->last.thread, NULL);
    must(c->next.error.code, &c->next.error);
    must(c->last.error.code, &c->last.error);
}

static enum ps_code salvage(const struct worker *w)
{
    struct ps_error e = {.code = PS_OK};
    bool undone = false;
    return wk_mirrored.home->salvage(w->state, &undone, &e);
}

static void hears_of_an_end(const struct worker *w)
{
    struct ps_error e = {.code = PS_OK};
    for (int i = 0; i < 20000 && (e.code == PS_OK || strstr(e.text, "its connection has ended")); i++) {
        wk_collective_look(w->env.collective, &e);
        usleep(1000);
    }
    assert_int_equal(e.code, PS_ABORTED);
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

// Worker 1 has kept the weights, and has ended before worker 2 looks: it is not lost.
static void end_crew(struct crew *c)
{
    end_by_signal(&c->next);
    close_worker(&c->next);
    assert_int_equal(salvage(&c->last), PS_NOT_FOUND);
    close_worker(&c->last);
    remove_places(&c->places);
}

// After a signal to all. Worker 0 is lost, and worker 3 says nothing: the next one finds that out. When that one ends,
// worker 2 knows of a loss.
static void lead_where_nobody_tells(struct crew *c)
{
    int status;
    ps_signal_set(&signal_came, SIGTERM);
    assert_int_equal(salvage(&c->next), PS_NOT_FOUND);
    kill(c->watcher, SIGSTOP);
    assert_int_equal(waitpid(c->watcher, &status, WUNTRACED), c->watcher);
    end_process(c->leader);
    assert_int_equal(salvage(&c->next), PS_OK);
    ps_signal_set(&signal_came, 0);
    end_process(c->watcher);
    hears_of_an_end(&c->next);
    ps_signal_set(&signal_came, SIGTERM);
    end_crew(c);
}

// Worker 0 has said that it ends, and is lost before it has kept the weights.
static void lead_where_one_ends_and_is_lost(struct crew *c)
{
    enum ps_code code = PS_NOT_FOUND;
    ps_signal_set(&signal_came, 0);
    hears_of_an_end(&c->next);
    ps_signal_set(&signal_came, SIGTERM);
    assert_int_equal(salvage(&c->next), PS_NOT_FOUND);
    end_process(c->leader);
    for (int i = 0; i < 20 && code == PS_NOT_FOUND; i++)
        code = salvage(&c->next);
    assert_int_equal(code, PS_OK);
    end_crew(c);
    end_process(c->watcher);
}

static void who_was_to_keep_the_weights_is_lost(void **ctx)
{
    struct crew silent, ends;
    (void)ctx;
    make_job(1);
    fork_crew(&silent, false);
    fork_crew(&ends, true);
    meet_crew(&silent);
    meet_crew(&ends);
    lead_where_nobody_tells(&silent);
    lead_where_one_ends_and_is_lost(&ends);
    free_job();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_to_keep_the_weights_is_lost),
        cmocka_unit_test(gradients_are_weighted_by_rows),
        cmocka_unit_test(a_variable_of_another_home_is_left_alone),
        cmocka_unit_test(replicas_add_up_in_the_midst_of_a_step),
        cmocka_unit_test(no_sum_behind_a_gradient_that_is_none),
        cmocka_unit_test(replicas_that_differ_are_found),
        cmocka_unit_test(a_step_counts_after_which_one_is_lost),
        cmocka_unit_test(a_gradient_that_is_none_is_named),
        cmocka_unit_test(one_replica_updates_the_variables_of_all),
        cmocka_unit_test(a_gradient_that_is_none_updates_nothing),
        cmocka_unit_test(nobody_is_let_in_after_the_last_step),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
