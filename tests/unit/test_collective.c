// SPDX-License-Identifier: Apache-2.0
//
// workerd/collective: workers that are threads here and meet over sockets, each with one or more replicas.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "workerd/collective/collective.h"
#include "workerd/collective/rpc/rendezvous.h"

enum { WORKERS = 4, DEVICES = 3, COUNT = 100003, CALL_MS = 60000 };

static char directory[] = "/tmp/test_collective-XXXXXX";
static char address_text[WORKERS][64];
static const char *address[WORKERS];
static const volatile sig_atomic_t no_signal;

static int make_directory(void **ctx)
{
    (void)ctx;
    ps_log_init("test_collective", PS_LOG_ERROR);
    if (!mkdtemp(directory))
        return -1;
    for (int i = 0; i < WORKERS; i++) {
        snprintf(address_text[i], sizeof address_text[i], "unix:%s/%d", directory, i);
        address[i] = address_text[i];
    }
    return 0;
}

static int remove_directory(void **ctx)
{
    (void)ctx;
    for (int i = 0; i < WORKERS; i++)
        unlink(address_text[i] + strlen("unix:"));
    return rmdir(directory);
}

// One worker, on a thread of its own, and its replicas on theirs.
struct worker {
    struct wk_peers_options options;
    uint32_t devices;
    int rounds;               // of sums,
    int leaves_after;         // of which it takes part in so many; 0: all
    bool vanishes;            // with leaves_after: it says nothing
    int late;                 // it comes half a second late to this round, and a signal comes meanwhile; 0: to none
    struct worker *outlives;  // with late: it comes when this one has done its rounds; NULL: it does not wait for that
    atomic_bool done;         // its replicas have done theirs
    unsigned busy;            // for so many seconds before the fourth round
    uint64_t grace;           // of its sums
    bool looks;               // after these rounds, as who waits elsewhere
    pthread_barrier_t *hold;  // before the rounds, twice; NULL: it does not wait
    struct wk_collective *collective;
    struct replica {
        struct worker *worker;
        uint32_t device;
        pthread_t thread;
        float *values;
        double sum;
        uint32_t met;  // how often the workers have met anew
        struct wk_reduction many, one;
        struct ps_error error;
    } replica[DEVICES];
    pthread_t thread;
    struct ps_error error;
};

static struct worker worker_of(uint32_t rank, uint32_t workers, uint32_t devices, int rounds)
{
    return (struct worker){.options = {.job = "job",
                                       .patience = 10 * PS_SECOND,
                                       .rank = rank,
                                       .addresses = address,
                                       .workers = workers,
                                       .configuration = "seed=1\n",
                                       .timeout = 20 * PS_SECOND,
                                       .stop = &no_signal},
                           .devices = devices,
                           .rounds = rounds};
}

static float value_of(uint32_t rank, int round, size_t i)
{
    return (float)((i + (size_t)round) % 100 + rank * 100);
}

static void check_sum(const struct replica *r, int round)
{
    const uint32_t ranks = wk_collective_ranks(r->worker->collective);
    for (size_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (uint32_t k = 0; k < ranks; k++)
            sum += value_of(k, round, i);
        if (r->values[i] != sum)
            fail_msg("element %zu is %f, not %f", i, (double)r->values[i], (double)sum);
    }
    assert_true(r->sum == (double)ranks);
}

// What one round adds up: many numbers and one, every other rank both at once. So those that are left when one is lost
// have not the same under way.
static enum ps_code run_round(struct replica *r, int round)
{
    struct wk_collective *c = r->worker->collective;
    const uint32_t rank = wk_collective_rank(c, r->device);
    for (size_t i = 0; i < COUNT; i++)
        r->values[i] = value_of(rank, round, i);
    r->sum = 1;
    r->many = (struct wk_reduction){.values = r->values, .n = COUNT, .type = WK_FLOAT, .what = "many"};
    r->one = (struct wk_reduction){.values = &r->sum, .n = 1, .type = WK_DOUBLE, .what = "one"};
    r->many.grace = r->one.grace = r->worker->grace;
    wk_collective_begin(c, r->device, &r->many);
    if (rank % 2)
        wk_collective_begin(c, r->device, &r->one);
    if (wk_collective_wait(c, &r->many, &r->error))
        return r->error.code;
    if (rank % 2 == 0)
        wk_collective_begin(c, r->device, &r->one);
    if (wk_collective_wait(c, &r->one, &r->error) == PS_OK)
        check_sum(r, round);
    return r->error.code;
}

// Those that are left say how many rounds each has taken, and go on with the one that somebody lacks.
static enum ps_code meet(struct replica *r, int *round)
{
    struct wk_collective *c = r->worker->collective;
    double taken[WORKERS * DEVICES] = {0};
    while (r->error.code == PS_ABORTED && wk_collective_reform(c, true, &r->error) == PS_OK) {
        const uint32_t ranks = wk_collective_ranks(c);
        taken[wk_collective_rank(c, r->device)] = *round;
        struct wk_reduction sum = {.values = taken, .n = ranks, .type = WK_DOUBLE};
        if (wk_collective_reduce(c, r->device, &sum, &r->error))
            continue;
        for (uint32_t k = 0; k < ranks; k++)
            *round = taken[k] < *round ? (int)taken[k] : *round;
        r->met++;
    }
    return r->error.code;
}

static void look_for_end(struct replica *r)
{
    const uint64_t until = ps_now() + 20 * PS_SECOND;
    while (wk_collective_look(r->worker->collective, &r->error) == PS_OK && ps_now() < until)
        usleep(1000);
}

static void be_late(const struct worker *w)
{
    const uint64_t until = ps_now() + (w->outlives ? 20 * PS_SECOND : PS_SECOND / 2);
    raise(SIGALRM);
    while (ps_now() < until && !(w->outlives && atomic_load(&w->outlives->done)))
        usleep(1000);
}

static void *run_replica(void *arg)
{
    struct replica *r = arg;
    struct worker *w = r->worker;
    unsigned busy = w->busy;
    r->values = malloc(COUNT * sizeof *r->values);
    for (int round = 0; round < w->rounds && r->error.code == PS_OK; round++) {
        if (w->leaves_after && round == w->leaves_after) {
            if (!w->vanishes) {
                ps_fail(&r->error, PS_INTERNAL, "something broke");
                wk_collective_fail(w->collective, r->device, &r->error);
            }
            break;
        }
        if (w->late && round == w->late)
            be_late(w);
        if (busy && round == 3) {
            sleep(busy);
            busy = 0;
        }
        if (w->looks && round == 2) {
            look_for_end(r);
            break;
        }
        if (run_round(r, round) == PS_ABORTED && w->options.min_workers && meet(r, &round) == PS_OK)
            round--;
    }
    return NULL;
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    if (wk_collective_open(&w->options, w->devices, &w->collective, &w->error))
        return NULL;
    for (int i = 0; i < 2 && w->hold; i++)
        pthread_barrier_wait(w->hold);
    for (uint32_t d = 0; d < w->devices; d++) {
        w->replica[d].worker = w;
        w->replica[d].device = d;
        pthread_create(&w->replica[d].thread, NULL, run_replica, &w->replica[d]);
    }
    for (uint32_t d = 0; d < w->devices; d++) {
        pthread_join(w->replica[d].thread, NULL);
        if (!w->error.code)
            w->error = w->replica[d].error;
    }
    atomic_store(&w->done, true);
    if (w->error.code)
        wk_collective_fail(w->collective, 0, &w->error);
    wk_collective_close(w->collective, w->error.code ? w->error.text : NULL);
    for (uint32_t d = 0; d < w->devices; d++)
        free(w->replica[d].values);
    return NULL;
}

static void run_all(struct worker *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pthread_create(&w[i].thread, NULL, run_worker, &w[i]);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
}

// hosts: how many of them; 0: the workers share no memory.
static void adds_up_over(uint32_t workers, uint32_t devices, uint32_t hosts)
{
    static const char *const host[] = {"one", "two", "three"};
    struct worker w[WORKERS];
    for (uint32_t i = 0; i < workers; i++)
        w[i] = worker_of(i, workers, devices, 5);
    for (uint32_t i = 0; i < workers && hosts; i++) {
        w[i].options.shares_memory = true;
        w[i].options.host = host[i % hosts];
    }
    run_all(w, workers);
    for (uint32_t i = 0; i < workers; i++)
        if (w[i].error.code)
            fail_msg("worker %u: %s", i, w[i].error.text);
}

static void replicas_of_a_process(void **ctx)
{
    (void)ctx;
    adds_up_over(1, 1, 0);
    adds_up_over(1, 2, 0);
    adds_up_over(1, DEVICES, 0);
}

static void workers(void **ctx)
{
    (void)ctx;
    adds_up_over(2, 1, 0);
    adds_up_over(3, 1, 0);
    adds_up_over(WORKERS, 1, 0);
}

static void workers_of_several_replicas(void **ctx)
{
    (void)ctx;
    adds_up_over(2, 2, 0);
    adds_up_over(3, DEVICES, 0);
}

static void workers_that_share_memory(void **ctx)
{
    (void)ctx;
    adds_up_over(2, 1, 1);
    adds_up_over(WORKERS, 1, 1);
    adds_up_over(3, 2, 1);
}

static void workers_of_several_hosts(void **ctx)
{
    (void)ctx;
    adds_up_over(3, 1, 2);
    adds_up_over(WORKERS, 1, 2);
    adds_up_over(WORKERS, 2, 3);
}

// Everybody ends, with the reason of the one that was first.
static void one_ends_and_all_hear_why(void **ctx)
{
    (void)ctx;
    for (uint32_t how = 0; how < 8; how++) {
        const uint32_t devices = 1 + how % 2;
        struct worker w[3];
        for (uint32_t i = 0; i < 3; i++) {
            w[i] = worker_of(i, 3, devices, 50);
            w[i].options.shares_memory = how / 2 % 2;
            w[i].options.min_workers = how < 4 ? 0 : 2;  // who fails is not lost: nobody goes on
        }
        w[1].leaves_after = 2;
        run_all(w, 3);
        for (uint32_t i = 0; i < 3; i++)
            if (!strstr(w[i].error.text, "something broke"))
                fail_msg("%u replicas, worker %u: %s", devices, i, w[i].error.text);
        assert_int_equal(PS_ABORTED, w[0].error.code);
        assert_non_null(strstr(w[0].error.text, "worker 1 has ended"));
    }
}

// What replica 1 says of a signal, or of another's end, stays in the process: the others end once replica 0 has kept
// the weights.
static void replica_0_tells_when_the_weights_are_kept(void **ctx)
{
    (void)ctx;
    static const enum ps_code code[] = {PS_CANCELLED, PS_ABORTED};
    for (size_t k = 0; k < sizeof code / sizeof *code; k++) {
        struct worker w[2] = {worker_of(0, 2, 2, 5), worker_of(1, 2, 2, 0)};
        struct ps_error first, last;
        pthread_barrier_t hold;
        pthread_barrier_init(&hold, NULL, 2);
        w[1].hold = &hold;
        for (int i = 0; i < 2; i++)
            pthread_create(&w[i].thread, NULL, run_worker, &w[i]);
        pthread_barrier_wait(&hold);
        ps_fail(&first, code[k], "stopped");
        wk_collective_fail(w[1].collective, 1, &first);
        assert_int_equal(PS_ABORTED, wk_collective_look(w[1].collective, &last));
        ps_fail(&last, PS_CANCELLED, "the weights are kept");
        wk_collective_fail(w[1].collective, 0, &last);
        pthread_barrier_wait(&hold);
        for (int i = 0; i < 2; i++)
            pthread_join(w[i].thread, NULL);
        pthread_barrier_destroy(&hold);
        assert_string_equal("worker 1 has ended: the weights are kept", w[0].error.text);
    }
}

// Who waits elsewhere learns of it, too: of one that says why it ends, and of one that does not.
static void who_looks_hears_of_an_end(void **ctx)
{
    (void)ctx;
    for (int vanishes = 0; vanishes < 2; vanishes++) {
        struct worker w[3];
        for (uint32_t i = 0; i < 3; i++) {
            w[i] = worker_of(i, 3, 2, 5);
            w[i].looks = i != 1;
        }
        w[1].leaves_after = 2;
        w[1].vanishes = vanishes;
        run_all(w, 3);
        for (uint32_t i = 0; i < 3; i += 2) {
            assert_int_equal(PS_ABORTED, w[i].replica[0].error.code);
            assert_int_equal(PS_ABORTED, w[i].replica[1].error.code);
            assert_non_null(strstr(w[i].replica[0].error.text, "worker 1 "));
        }
    }
}

// One of four is lost, without a word; then another one, of the three that are left.
static void those_that_are_left_go_on(void **ctx)
{
    (void)ctx;
    for (uint32_t how = 0; how < 4; how++) {
        struct worker w[WORKERS];
        for (uint32_t i = 0; i < WORKERS; i++) {
            w[i] = worker_of(i, WORKERS, 1 + how % 2, 30);
            w[i].options.shares_memory = how / 2;
            w[i].options.host = i % 2 ? "one" : "two";
            w[i].options.min_workers = 2;
        }
        w[0].leaves_after = 3;
        w[2].leaves_after = 9;
        w[0].vanishes = w[2].vanishes = true;
        run_all(w, WORKERS);
        for (uint32_t i = 0; i < WORKERS; i++)
            if (w[i].error.code)
                fail_msg("%u, worker %u: %s", how, i, w[i].error.text);
        assert_int_equal(1, w[2].replica[0].met);
        assert_int_equal(2, w[1].replica[0].met);
        assert_int_equal(2, w[3].replica[0].met);
    }
}

// Worker 0 has looked for the others before they were there. One of them is lost at once: the other one is not.
static void who_came_later_is_not_lost(void **ctx)
{
    const struct timespec head_start = {.tv_nsec = 50 * 1000000L};
    struct worker w[3];
    (void)ctx;
    for (uint32_t i = 0; i < 3; i++) {
        w[i] = worker_of(i, 3, 1, 20);
        w[i].options.min_workers = 2;
    }
    w[1].leaves_after = 1;
    w[1].vanishes = true;
    pthread_create(&w[0].thread, NULL, run_worker, &w[0]);
    nanosleep(&head_start, NULL);
    for (uint32_t i = 1; i < 3; i++)
        pthread_create(&w[i].thread, NULL, run_worker, &w[i]);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(w[i].thread, NULL);
    for (uint32_t i = 0; i < 3; i += 2)
        if (w[i].error.code)
            fail_msg("worker %u: %s", i, w[i].error.text);
}

// Who evaluates for longer than the others wait for anybody is not lost when another one is: neither where it is to
// be the host, nor where it is to come.
static void who_is_busy_is_waited_for(void **ctx)
{
    struct worker w[WORKERS];
    (void)ctx;
    for (uint32_t i = 0; i < WORKERS; i++) {
        w[i] = worker_of(i, WORKERS, 1, 20);
        w[i].options.min_workers = 3;
        w[i].options.timeout = 5 * PS_SECOND;  // which their first meeting has, too
    }
    w[0].busy = 8;  // longer than that and the margin that guests add to it
    w[1].leaves_after = 3;
    w[1].vanishes = true;
    w[3].busy = 14;
    run_all(w, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (w[i].error.code)
            fail_msg("worker %u: %s", i, w[i].error.text);
    assert_int_equal(1, w[0].replica[0].met);
    assert_int_equal(1, w[2].replica[0].met);
    assert_int_equal(1, w[3].replica[0].met);
}

static void too_few_that_are_left_end(void **ctx)
{
    struct worker w[3];
    (void)ctx;
    for (uint32_t i = 0; i < 3; i++) {
        w[i] = worker_of(i, 3, 1, 30);
        w[i].options.min_workers = 3;
    }
    w[1].leaves_after = 2;
    w[1].vanishes = true;
    run_all(w, 3);
    for (uint32_t i = 0; i < 3; i += 2) {
        assert_int_equal(PS_ABORTED, w[i].error.code);
        if (!strstr(w[i].error.text, "left, of at least 3"))
            fail_msg("worker %u: %s", i, w[i].error.text);
    }
}

// One of two is lost: the other one goes on if it is the lower one, which nobody else can be.
static void half_goes_on_with_the_lowest_alone(void **ctx)
{
    (void)ctx;
    for (uint32_t lost = 0; lost < 2; lost++) {
        struct worker w[2];
        for (uint32_t i = 0; i < 2; i++) {
            w[i] = worker_of(i, 2, 1, 20);
            w[i].options.min_workers = 1;
        }
        w[lost].leaves_after = 2;
        w[lost].vanishes = true;
        run_all(w, 2);
        const struct worker *left = &w[1 - lost];
        assert_int_equal(lost ? PS_OK : PS_ABORTED, left->error.code);
        if (lost == 0 && !strstr(left->error.text, "1 of 2 workers are left, and the others may go on"))
            fail_msg("%s", left->error.text);
        assert_int_equal(lost, left->replica[0].met);
    }
}

static void who_is_missing_is_named(void **ctx)
{
    struct worker w[2] = {worker_of(0, 4, 1, 1), worker_of(2, 4, 1, 1)};
    (void)ctx;
    w[0].options.timeout = w[1].options.timeout = 8 * PS_SECOND;
    run_all(w, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(i ? PS_ABORTED : PS_DEADLINE_EXCEEDED, w[i].error.code);
        assert_string_equal("workers 1 and 3 of 4 did not come within 8 s", w[i].error.text);
    }
    w[1] = worker_of(1, 2, 1, 1);
    w[1].options.timeout = PS_SECOND / 2;
    run_worker(&w[1]);
    assert_non_null(strstr(w[1].error.text, "where the workers meet, did not answer within"));
}

// Each is refused with its reason, while the right one is still waited for.
static void strangers_are_refused(void **ctx)
{
    static const struct {
        const char *job, *configuration, *says;
        uint32_t rank, workers;
    } strange[] = {
        {"other", "seed=1\n", "worker 0 trains job 'job', not 'other'", 1, 2},
        {"job", "seed=2\n", "worker 1's seed is 2, worker 0 opened job 'job' with 1", 1, 2},
        {"job", "seed=1\n", "worker 1 expects 3 workers, worker 0 2", 1, 3},
    };
    struct worker host = worker_of(0, 2, 1, 2), guest = worker_of(1, 2, 1, 2);
    (void)ctx;
    pthread_create(&host.thread, NULL, run_worker, &host);
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        struct worker w = worker_of(strange[i].rank, strange[i].workers, 1, 1);
        w.options.job = strange[i].job;
        w.options.configuration = strange[i].configuration;
        run_worker(&w);
        assert_int_equal(PS_FAILED_PRECONDITION, w.error.code);
        if (!strstr(w.error.text, strange[i].says))
            fail_msg("%s, expected %s", w.error.text, strange[i].says);
    }
    run_worker(&guest);
    pthread_join(host.thread, NULL);
    assert_int_equal(PS_OK, host.error.code);
    assert_int_equal(PS_OK, guest.error.code);
}

static volatile sig_atomic_t signal_came;

static void on_alarm(int number)
{
    ps_signal_set(&signal_came, number);
}

struct answer {
    pthread_mutex_t lock;
    pthread_cond_t came;
    bool here;
    enum ps_code code;
    uint64_t session;  // in the reply to a rendezvous
};

static void on_answer(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct answer *a = arg;
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps_error e = {.code = PS_OK};
    ProtobufCMessage *m = NULL;
    (void)text;
    if (code == PS_OK)
        ps_msg_unpack(&paramserver__v1__rendezvous_reply__descriptor, reply, &m, &none, &e);
    pthread_mutex_lock(&a->lock);
    a->here = true;
    a->code = code;
    a->session = m ? ((Paramserver__V1__RendezvousReply *)m)->session : 0;
    pthread_cond_signal(&a->came);
    pthread_mutex_unlock(&a->lock);
    if (m)
        ps_msg_free(m);
}

// A client of the first workers. A call, and an attempt to connect, has as long as this machine needs.
static struct ps_client *connect_to(size_t workers)
{
    return ps_client_create(address, workers, &(struct ps_client_options){.attempt_ms = CALL_MS});
}

static void close_client(struct ps_client *client)
{
    ps_client_stop(client);
    ps_client_destroy(client);
}

static void close_server(struct ps_server *server)
{
    ps_server_stop(server, PS_SECOND);
    ps_server_destroy(server);
}

static enum ps_code await_answer(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->here)
        pthread_cond_wait(&a->came, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return a->code;
}

static enum ps_code ask_with(struct ps_client *client, uint32_t rank, int method, struct ps_slices *request,
                             struct answer *a)
{
    ps_client_call(client, rank, method, &(struct ps_call_options){.deadline = ps_now() + CALL_MS * PS_MS}, request,
                   on_answer, a);
    return await_answer(a);
}

// What a worker answers to a message of no session.
static enum ps_code ask(struct ps_client *client, uint32_t rank, int method)
{
    struct answer a = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    struct ps_slices empty = PS_SLICES_EMPTY;
    return ask_with(client, rank, method, &empty, &a);
}

// What a worker on a host says that meets others; where it takes their numbers nobody listens.
static Paramserver__V1__RendezvousRequest request_to_meet(uint32_t rank, uint32_t workers, char *host)
{
    Paramserver__V1__RendezvousRequest r = PARAMSERVER__V1__RENDEZVOUS_REQUEST__INIT;
    r.protocol = PS_PROTOCOL;
    r.job = "job";
    r.rank = rank;
    r.workers = workers;
    r.configuration = "seed=1\n";
    r.host = host;
    r.ring_at = "[::1]:1";
    return r;
}

// At worker 0.
static void begin_to_meet(struct ps_client *client, const Paramserver__V1__RendezvousRequest *r, struct answer *a)
{
    struct ps_slices request = PS_SLICES_EMPTY;
    ps_msg_pack(&r->base, NULL, &request);
    ps_client_call(client, 0, PARAMSERVER__V1__METHOD__RENDEZVOUS,
                   &(struct ps_call_options){.deadline = ps_now() + 20 * PS_SECOND}, &request, on_answer, a);
}

static void await_worker_0(struct ps_client *client)
{
    while (ask(client, 0, PARAMSERVER__V1__METHOD__ABORT) != PS_FAILED_PRECONDITION)
        usleep(1000);  // it does not listen yet
}

// A member that meets the others and is gone before they share memory.
static void who_is_lost_before_memory_is_shared_ends_nobody(void **ctx)
{
    struct worker w[2] = {worker_of(0, 3, 1, 3), worker_of(2, 3, 1, 3)};
    struct ps_client *client = connect_to(1);
    struct answer a = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    const Paramserver__V1__RendezvousRequest r = request_to_meet(1, 3, "one");
    (void)ctx;
    for (int i = 0; i < 2; i++) {
        w[i].options.shares_memory = true;
        w[i].options.host = "one";
        w[i].options.min_workers = 2;
        pthread_create(&w[i].thread, NULL, run_worker, &w[i]);
    }
    await_worker_0(client);
    begin_to_meet(client, &r, &a);
    for (int i = 0; i < 2; i++)
        pthread_join(w[i].thread, NULL);
    close_client(client);
    for (int i = 0; i < 2; i++) {
        if (w[i].error.code)
            fail_msg("%s", w[i].error.text);
        assert_int_equal(1, w[i].replica[0].met);
    }
}

// A member that adds up nothing: it takes what is sent, and says so to who watches it, or waits.
struct idle {
    enum ps_code watch;               // the answer to who watches it; PS_OK: none yet
    struct ps_call *_Atomic watcher;  // who waits for one
    atomic_int ends, losses;          // that it was told of
};

static void note_end(struct idle *idle, const struct ps_call *call)
{
    struct ps_slices none = PS_SLICES_EMPTY;
    struct ps_error e;
    ProtobufCMessage *m = NULL;
    assert_int_equal(PS_OK, ps_msg_unpack(&paramserver__v1__abort_request__descriptor, &call->request, &m, &none, &e));
    atomic_fetch_add(((Paramserver__V1__AbortRequest *)m)->lost ? &idle->losses : &idle->ends, 1);
    ps_msg_free(m);
}

static void on_idle_call(void *ctx, struct ps_call *call)
{
    struct idle *idle = ctx;
    struct ps_slices none = PS_SLICES_EMPTY;
    if (call->method == PARAMSERVER__V1__METHOD__ABORT)
        note_end(idle, call);
    if (call->method != PARAMSERVER__V1__METHOD__WATCH)
        ps_call_reply(call, PS_OK, NULL, &none);
    else if (idle->watch)
        ps_call_reply(call, idle->watch, "no such call", NULL);
    else
        atomic_store(&idle->watcher, call);
}

static void on_idle_cancel(void *ctx, struct ps_call *call)
{
    (void)ctx;
    if (call->method == PARAMSERVER__V1__METHOD__WATCH)
        ps_call_reply(call, PS_CANCELLED, NULL, NULL);
}

// Meets worker 0 as worker 1 of 2 on a host, which listens there for a ring; after: the session before. The session.
static uint64_t meet_as_worker_1(struct ps_client *client, char *host, char *ring_at, uint64_t after)
{
    struct answer a = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    Paramserver__V1__RendezvousRequest r = request_to_meet(1, 2, host);
    r.ring_at = ring_at;
    r.after = after;
    await_worker_0(client);
    begin_to_meet(client, &r, &a);
    assert_int_equal(PS_OK, await_answer(&a));
    return a.session;
}

static uint64_t join_as_worker_1(struct ps_client *client, char *ring_at)
{
    return meet_as_worker_1(client, "", ring_at, 0);
}

// What who connects to a ring says first (mesh.c).
struct hello {
    char what[8];
    uint64_t session;
    uint32_t rank, zero;
};

static struct sockaddr_un ring_address(const char *worker)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%.96s.ring", worker + strlen("unix:"));
    return at;
}

// Connects to worker 0's ring once it listens, and says so many bytes of that.
static int connect_to_ring(const struct hello *hello, size_t bytes)
{
    const struct sockaddr_un at = ring_address(address[0]);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    while (connect(fd, (struct sockaddr *)&at, sizeof at))
        usleep(1000);
    assert_int_equal(bytes, write(fd, hello, bytes));
    return fd;
}

// lost: as in AbortRequest.
static struct ps_slices pack_end(uint64_t session, uint32_t rank, uint32_t lost, const char *text)
{
    Paramserver__V1__AbortRequest r = PARAMSERVER__V1__ABORT_REQUEST__INIT;
    struct ps_slices request = PS_SLICES_EMPTY;
    r.session = session;
    r.rank = rank;
    r.lost = lost;
    r.text = (char *)text;
    ps_msg_pack(&r.base, NULL, &request);
    return request;
}

static enum ps_code say_end_with(struct ps_client *client, uint64_t session, uint32_t rank, uint32_t lost,
                                 const char *text)
{
    struct answer a = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    struct ps_slices request = pack_end(session, rank, lost, text);
    return ask_with(client, 0, PARAMSERVER__V1__METHOD__ABORT, &request, &a);
}

static enum ps_code say_end(struct ps_client *client, uint64_t session, uint32_t rank, const char *text)
{
    return say_end_with(client, session, rank, 0, text);
}

// The host has begun a session while a member that comes to it asked anew: that gets the answer which it has missed.
static void an_answer_that_was_missed_is_given_again(void **ctx)
{
    struct idle idle = {.watch = PS_OK};
    const struct ps_server_options options = {
        .threads = 1, .call = on_idle_call, .cancel = on_idle_cancel, .ctx = &idle};
    struct worker w = worker_of(0, 2, 1, 3);
    struct ps_client *client = connect_to(1);
    struct ps_server *server;
    struct ps_error e;
    (void)ctx;
    w.options.shares_memory = true;
    w.options.host = "one";
    w.options.min_workers = 1;
    assert_int_equal(PS_OK, ps_server_start(&address[1], 1, &options, &server, &e));
    pthread_create(&w.thread, NULL, run_worker, &w);
    const uint64_t first = meet_as_worker_1(client, "one", "[::1]:1", 0);
    say_end_with(client, first, 1, 2, "worker 1 meets the others anew");
    const uint64_t second = meet_as_worker_1(client, "one", "[::1]:1", first);
    assert_true(second && second != first);
    assert_true(meet_as_worker_1(client, "one", "[::1]:1", first) == second);
    close_server(server);
    close_client(client);
    pthread_join(w.thread, NULL);
    if (w.error.code)
        fail_msg("%s", w.error.text);
}

// Worker 1 has begun the session before its host has, and lacks worker 2, which is gone: what it says is heard. So is
// that it ends, in the next one, whatever is said then of the one before.
static void who_is_faster_than_the_host_is_heard(void **ctx)
{
    struct idle idle = {.watch = PS_OK};
    const struct ps_server_options options = {
        .threads = 1, .call = on_idle_call, .cancel = on_idle_cancel, .ctx = &idle};
    struct worker w = worker_of(0, 3, 1, 3);
    struct ps_client *client = connect_to(1);
    struct ps_server *server;
    struct ps_error e;
    struct answer a[3];
    (void)ctx;
    for (int i = 0; i < 3; i++)
        a[i] = (struct answer){.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    w.options.min_workers = 2;
    assert_int_equal(PS_OK, ps_server_start(&address[1], 1, &options, &server, &e));
    pthread_create(&w.thread, NULL, run_worker, &w);
    await_worker_0(client);
    Paramserver__V1__RendezvousRequest r = request_to_meet(2, 3, "");
    begin_to_meet(client, &r, &a[0]);
    r.rank = 1;
    begin_to_meet(client, &r, &a[1]);
    assert_int_equal(PS_OK, await_answer(&a[1]));
    r.after = a[1].session;
    r.why = "worker 2 is gone";
    begin_to_meet(client, &r, &a[2]);
    assert_int_equal(PS_OK, await_answer(&a[2]));
    say_end(client, a[2].session, 1, "worker 1 has had enough");
    say_end(client, a[1].session, 1, "this is late");
    ask(client, 0, PARAMSERVER__V1__METHOD__ABORT);
    pthread_join(w.thread, NULL);
    close_client(client);
    close_server(server);
    assert_int_equal(PS_ABORTED, w.error.code);
    if (!strstr(w.error.text, "worker 1 has had enough"))
        fail_msg("%s", w.error.text);
}

// Answers a rendezvous: two workers are session 1.
static void reply_with_session(struct ps_call *call, uint32_t rank[2], char *ring_at)
{
    char *host[] = {"", ""}, *places[] = {ring_at, ring_at};
    struct ps_slices body = PS_SLICES_EMPTY;
    Paramserver__V1__RendezvousReply r = PARAMSERVER__V1__RENDEZVOUS_REPLY__INIT;
    r.session = 1;
    r.rank = rank;
    r.host = host;
    r.ring_at = places;
    r.n_rank = r.n_host = r.n_ring_at = 2;
    ps_msg_pack(&r.base, NULL, &body);
    ps_call_reply(call, PS_OK, NULL, &body);
}

// A host that ends at once: it says so before it answers.
struct hasty {
    struct idle idle;
    struct ps_client *client;
    struct ps_call *guest;
};

static void on_hasty_end(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    const struct hasty *hasty = arg;
    (void)code, (void)text, (void)reply;
    reply_with_session(hasty->guest, (uint32_t[]){0, 1}, "[::1]:1");
}

static void on_hasty_call(void *ctx, struct ps_call *call)
{
    struct hasty *hasty = ctx;
    struct ps_slices request;
    if (call->method != PARAMSERVER__V1__METHOD__RENDEZVOUS) {
        on_idle_call(&hasty->idle, call);
        return;
    }
    hasty->guest = call;
    request = pack_end(1, 0, 0, "worker 0 has had enough");
    ps_client_call(hasty->client, 1, PARAMSERVER__V1__METHOD__ABORT,
                   &(struct ps_call_options){.deadline = ps_now() + CALL_MS * PS_MS}, &request, on_hasty_end, hasty);
}

static void who_ends_before_others_have_begun_is_heard(void **ctx)
{
    struct hasty hasty = {.client = connect_to(2)};
    const struct ps_server_options options = {
        .threads = 1, .call = on_hasty_call, .cancel = on_idle_cancel, .ctx = &hasty};
    struct worker w = worker_of(1, 2, 1, 3);
    struct ps_server *server;
    struct ps_error e;
    (void)ctx;
    assert_int_equal(PS_OK, ps_server_start(address, 1, &options, &server, &e));
    run_worker(&w);
    close_client(hasty.client);
    close_server(server);
    assert_int_equal(PS_ABORTED, w.error.code);
    if (!strstr(w.error.text, "worker 0 has had enough"))
        fail_msg("%s", w.error.text);
}

// Ranks 0 and 7 end nothing; rank 1 does, and that it is gone thereafter changes nothing. Where another program answers
// at rank 1's address, that is said. That worker 0 ends it says once.
static void others_than_members_end_nothing(void **ctx)
{
    (void)ctx;
    for (int i = 0; i < 2; i++) {
        struct idle idle = {.watch = i ? PS_UNIMPLEMENTED : PS_OK};
        const struct ps_server_options options = {
            .threads = 1, .call = on_idle_call, .cancel = on_idle_cancel, .ctx = &idle};
        struct worker w = worker_of(0, 2, 1, 1);
        struct ps_client *client = connect_to(1);
        struct ps_server *server;
        struct ps_error e;
        const struct sockaddr_un at = ring_address(address[1]);
        const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
        char ring_at[sizeof at.sun_path + 8];
        pthread_barrier_t hold;
        snprintf(ring_at, sizeof ring_at, "unix:%s", at.sun_path);
        assert_int_equal(0, bind(listener, (const struct sockaddr *)&at, sizeof at));
        assert_int_equal(0, listen(listener, 1));
        pthread_barrier_init(&hold, NULL, 2);
        w.hold = i == 0 ? &hold : NULL;
        signal_came = 0;
        w.options.stop = &signal_came;
        signal(SIGALRM, on_alarm);
        alarm(60);
        assert_int_equal(PS_OK, ps_server_start(&address[1], 1, &options, &server, &e));
        pthread_create(&w.thread, NULL, run_worker, &w);
        const uint64_t session = join_as_worker_1(client, ring_at);
        if (i == 0) {
            const int fd = connect_to_ring(&(struct hello){"ps-ring1", session, 1, 0}, sizeof(struct hello));
            struct hello hello;
            const int come = accept(listener, NULL, NULL);
            assert_int_equal(sizeof hello, read(come, &hello, sizeof hello));
            assert_true(hello.session == session && hello.rank == 0);
            assert_int_equal(1, write(come, "1", 1));
            pthread_barrier_wait(&hold);
            for (uint32_t rank = 0; rank < 8; rank += 7)
                assert_int_equal(PS_FAILED_PRECONDITION, say_end(client, session, rank, "nobody"));
            while (!atomic_load(&idle.watcher))
                usleep(1000);
            assert_int_equal(PS_OK, say_end(client, session, 1, "worker 1 has had enough"));
            ps_call_reply(idle.watcher, PS_UNAVAILABLE, "the connection has ended", NULL);
            pthread_barrier_wait(&hold);
            pthread_join(w.thread, NULL);
            close(fd);
            close(come);
        } else {
            pthread_join(w.thread, NULL);
        }
        alarm(0);
        close_client(client);
        close_server(server);
        pthread_barrier_destroy(&hold);
        close(listener);
        unlink(at.sun_path);
        assert_int_equal(1, idle.ends);
        assert_true(idle.losses <= 1);
        assert_int_equal(i ? PS_UNIMPLEMENTED : PS_ABORTED, w.error.code);
        if (!strstr(w.error.text, i ? "answers: no such call" : "worker 1 has had enough"))
            fail_msg("%s", w.error.text);
    }
}

// A member that others cannot connect to, and that does not connect.
static void who_does_not_connect_is_named(void **ctx)
{
    struct idle idle = {.watch = PS_OK};
    const struct ps_server_options options = {
        .threads = 1, .call = on_idle_call, .cancel = on_idle_cancel, .ctx = &idle};
    struct worker w = worker_of(0, 2, 1, 1);
    struct ps_client *client = connect_to(1);
    struct ps_server *server;
    struct ps_error e;
    (void)ctx;
    w.options.timeout = 10 * PS_SECOND;  // for them to meet, too
    assert_int_equal(PS_OK, ps_server_start(&address[1], 1, &options, &server, &e));
    pthread_create(&w.thread, NULL, run_worker, &w);
    join_as_worker_1(client, "[::1]:1");
    pthread_join(w.thread, NULL);
    close_client(client);
    close_server(server);
    assert_int_equal(PS_DEADLINE_EXCEEDED, w.error.code);
    if (strncmp(w.error.text, "worker 1 (unix:", 15) != 0 || !strstr(w.error.text, "at [::1]:1, this worker at unix:"))
        fail_msg("%s", w.error.text);
}

// Who connects to a ring and is none of its ranks changes nothing, and is sent away.
static void strangers_on_a_ring_are_sent_away(void **ctx)
{
    const struct hello strange[] = {{"GET / HT", 1, 1, 0}, {"ps-ring1", 1, 1, 0}, {"ps-ring1", 0, 7, 0}};
    struct worker w[2] = {worker_of(0, 2, 1, 3), worker_of(1, 2, 1, 3)};
    int fd[4];
    char byte;
    (void)ctx;
    pthread_create(&w[0].thread, NULL, run_worker, &w[0]);
    for (size_t i = 0; i < 3; i++)
        fd[i] = connect_to_ring(&strange[i], sizeof *strange);
    fd[3] = connect_to_ring(strange, 5);
    pthread_create(&w[1].thread, NULL, run_worker, &w[1]);
    for (int i = 0; i < 2; i++) {
        pthread_join(w[i].thread, NULL);
        if (w[i].error.code)
            fail_msg("%s", w[i].error.text);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_true(read(fd[i], &byte, 1) <= 0);
        close(fd[i]);
    }
}

// Answers with a session of workers that do not exist.
static void on_strange_rendezvous(void *ctx, struct ps_call *call)
{
    reply_with_session(call, ctx, "");
}

static void a_session_of_strange_workers_is_refused(void **ctx)
{
    static uint32_t ranks[][2] = {{1, 1U << 24}, {1, 1}, {1, 0}};
    (void)ctx;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const struct ps_server_options options = {.threads = 1, .call = on_strange_rendezvous, .ctx = ranks[i]};
        struct worker guest = worker_of(1, 2, 1, 1);
        struct ps_server *server;
        struct ps_error e;
        assert_int_equal(PS_OK, ps_server_start(address, 1, &options, &server, &e));
        run_worker(&guest);
        close_server(server);
        assert_int_equal(PS_INVALID_ARGUMENT, guest.error.code);
        if (!strstr(guest.error.text, "which is not this one's"))
            fail_msg("%s", guest.error.text);
    }
}

static void on_other_program(void *ctx, struct ps_call *call)
{
    (void)ctx;
    ps_call_reply(call, PS_UNIMPLEMENTED, "no such call", NULL);
}

static void another_program_where_the_workers_meet_is_named(void **ctx)
{
    const struct ps_server_options options = {.threads = 1, .call = on_other_program};
    struct worker guest = worker_of(1, 2, 1, 1);
    struct ps_server *server;
    struct ps_error e;
    (void)ctx;
    assert_int_equal(PS_OK, ps_server_start(address, 1, &options, &server, &e));
    run_worker(&guest);
    close_server(server);
    assert_int_equal(PS_UNIMPLEMENTED, guest.error.code);
    if (strncmp(guest.error.text, "worker 0 (unix:", 15) != 0 || !strstr(guest.error.text, "answers: no such call"))
        fail_msg("%s", guest.error.text);
}

// While a job goes on, and before all have come, nobody else can end it or come in.
static void who_does_not_belong_changes_nothing(void **ctx)
{
    struct worker w[2] = {worker_of(0, 2, 1, 3), worker_of(1, 2, 1, 3)}, late = worker_of(1, 2, 1, 1);
    const char *others[WORKERS] = {address_text[0], address_text[3], NULL, NULL};
    struct ps_client *client = connect_to(2);
    pthread_barrier_t hold;
    (void)ctx;
    pthread_barrier_init(&hold, NULL, 3);
    w[0].hold = w[1].hold = &hold;
    pthread_create(&w[0].thread, NULL, run_worker, &w[0]);
    await_worker_0(client);
    pthread_create(&w[1].thread, NULL, run_worker, &w[1]);
    pthread_barrier_wait(&hold);
    assert_int_equal(PS_FAILED_PRECONDITION, ask(client, 1, PARAMSERVER__V1__METHOD__ABORT));
    assert_int_equal(PS_FAILED_PRECONDITION, ask(client, 1, PARAMSERVER__V1__METHOD__WATCH));
    assert_int_equal(PS_UNIMPLEMENTED, ask(client, 1, PARAMSERVER__V1__METHOD__STATUS));
    late.options.addresses = others;
    run_worker(&late);
    assert_int_equal(PS_FAILED_PRECONDITION, late.error.code);
    assert_string_equal("job 'job' has begun with the workers that had come", late.error.text);
    close_client(client);
    pthread_barrier_wait(&hold);
    for (int i = 0; i < 2; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(PS_OK, w[i].error.code);
    }
    pthread_barrier_destroy(&hold);
}

static void *open_worker(void *arg)
{
    struct worker *w = arg;
    wk_collective_open(&w->options, w->devices, &w->collective, &w->error);
    return NULL;
}

// Both workers of w meet, then worker 1 ends, and begins anew as guest.
static void comes_back(struct worker w[2], struct worker *guest)
{
    pthread_create(&w[1].thread, NULL, open_worker, &w[1]);
    open_worker(&w[0]);
    pthread_join(w[1].thread, NULL);
    assert_int_equal(PS_OK, w[0].error.code + w[1].error.code);
    wk_collective_close(w[1].collective, NULL);
    pthread_create(&guest->thread, NULL, open_worker, guest);
}

// Worker 0 is busy for longer than worker 1, which comes back, waits at a time.
static void who_comes_back_waits_while_the_others_go_on(void **ctx)
{
    struct worker w[2] = {worker_of(0, 2, 1, 0), worker_of(1, 2, 1, 0)}, guest = worker_of(1, 2, 1, 0);
    struct ps_error e = {.code = PS_OK};
    (void)ctx;
    w[0].options.min_workers = w[1].options.min_workers = guest.options.min_workers = 1;
    guest.options.timeout = PS_SECOND / 10;
    comes_back(w, &guest);
    sleep(3);
    for (int i = 0; i < 10000 && wk_collective_guests(w[0].collective) == 0; i++)
        usleep(1000);
    ps_fail(&e, PS_ABORTED, "a worker comes back");
    assert_int_equal(PS_OK, wk_collective_reform(w[0].collective, true, &e));
    pthread_join(guest.thread, NULL);
    if (guest.error.code)
        fail_msg("%s", guest.error.text);
    assert_true(wk_collective_joined(guest.collective));
    wk_collective_close(guest.collective, NULL);
    wk_collective_close(w[0].collective, NULL);
}

// Worker 1 comes back and cannot be connected to, which it sees first, or worker 0 does: worker 0 goes on without it.
static void who_comes_back_and_does_not_connect_ends_nobody(void **ctx)
{
    (void)ctx;
    for (int host_is_first = 0; host_is_first < 2; host_is_first++) {
        struct worker w[2] = {worker_of(0, 2, 1, 0), worker_of(1, 2, 1, 0)}, guest = worker_of(1, 2, 1, 0);
        struct ps_error e = {.code = PS_OK};
        const struct sockaddr_un at = ring_address(address[1]);
        double one = 1;
        struct wk_reduction sum = {.values = &one, .n = 1, .type = WK_DOUBLE, .what = "one"};
        w[0].options.min_workers = w[1].options.min_workers = guest.options.min_workers = 1;
        guest.options.timeout = host_is_first ? 100 * PS_SECOND : 3 * PS_SECOND;
        w[0].options.timeout = host_is_first ? 3 * PS_SECOND : 100 * PS_SECOND;
        comes_back(w, &guest);
        while (wk_collective_guests(w[0].collective) == 0)
            usleep(1000);
        assert_int_equal(0, unlink(at.sun_path));
        ps_fail(&e, PS_ABORTED, "a worker comes back");
        if (wk_collective_reform(w[0].collective, true, &e))
            fail_msg("%s", e.text);
        assert_int_equal(PS_ABORTED, wk_collective_reduce(w[0].collective, 0, &sum, &e));
        if (wk_collective_reform(w[0].collective, true, &e))
            fail_msg("%s", e.text);
        assert_int_equal(PS_OK, wk_collective_reduce(w[0].collective, 0, &sum, &e));
        assert_int_equal(1, wk_collective_ranks(w[0].collective));
        pthread_join(guest.thread, NULL);
        assert_int_equal(host_is_first ? PS_ABORTED : PS_DEADLINE_EXCEEDED, guest.error.code);
        if (!strstr(guest.error.text, "they have not connected to each other"))
            fail_msg("%s", guest.error.text);
        wk_collective_close(w[0].collective, NULL);
    }
}

// One that has met the others and fails before it has what they have ends alone; later it ends all.
static void a_newcomer_that_fails_ends_alone(void **ctx)
{
    (void)ctx;
    for (int welcomed = 0; welcomed < 2; welcomed++) {
        struct worker w[2] = {worker_of(0, 2, 1, 0), worker_of(1, 2, 1, 0)}, guest = worker_of(1, 2, 1, 0);
        struct ps_error e = {.code = PS_OK};
        double one = 1;
        struct wk_reduction sum = {.values = &one, .n = 1, .type = WK_DOUBLE, .what = "one"};
        w[0].options.min_workers = w[1].options.min_workers = guest.options.min_workers = 1;
        comes_back(w, &guest);
        while (wk_collective_guests(w[0].collective) == 0)
            usleep(1000);
        ps_fail(&e, PS_ABORTED, "a worker comes back");
        if (wk_collective_reform(w[0].collective, true, &e))
            fail_msg("%s", e.text);
        pthread_join(guest.thread, NULL);
        assert_int_equal(PS_OK, guest.error.code);
        assert_true(wk_collective_has_newcomers(w[0].collective) && wk_collective_has_newcomers(guest.collective));
        if (welcomed)
            wk_collective_welcome(guest.collective, false);
        wk_collective_close(guest.collective, "something broke");
        assert_int_equal(PS_ABORTED, wk_collective_reduce(w[0].collective, 0, &sum, &e));
        if (!strstr(e.text, "worker 1 has ended: something broke"))
            fail_msg("%s", e.text);
        if (wk_collective_reform(w[0].collective, true, &e) != (welcomed ? PS_ABORTED : PS_OK))
            fail_msg("%s", e.text);
        if (!welcomed)
            assert_int_equal(PS_OK, wk_collective_reduce(w[0].collective, 0, &sum, &e));
        wk_collective_close(w[0].collective, NULL);
    }
}

static void *meet_again(void *arg)
{
    struct worker *w = arg;
    ps_fail(&w->error, PS_ABORTED, "others come or go");
    wk_collective_reform(w->collective, true, &w->error);
    return NULL;
}

static void do_at_once(void *(*what)(void *), struct worker *w, int n)
{
    for (int i = 0; i < n; i++)
        pthread_create(&w[i].thread, NULL, what, &w[i]);
    for (int i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
}

// Workers 0 and 3 come back to 1 and 2, and are lost at once. Those go on where nobody can have counted them yet: else
// they are half of all without the lowest, and where one of them may have counted the newcomers, that holds, too.
static void newcomers_that_die_take_no_majority(void **ctx)
{
    (void)ctx;
    for (int welcome = 0; welcome < 3; welcome++) {
        struct worker w[WORKERS];
        for (uint32_t i = 0; i < WORKERS; i++) {
            w[i] = worker_of(i, WORKERS, 1, 0);
            w[i].options.min_workers = 1;
        }
        do_at_once(open_worker, w, WORKERS);
        for (int lost = 0; lost < WORKERS; lost += 3) {
            wk_collective_close(w[lost].collective, NULL);
            do_at_once(meet_again, &w[1], lost ? 2 : 3);
        }
        assert_int_equal(PS_OK, w[1].error.code + w[2].error.code);
        // Worker 3 looks for the others at worker 0 first.
        for (uint32_t i = 3, guests = 1; guests < 3; i -= 3, guests++) {
            pthread_create(&w[i].thread, NULL, open_worker, &w[i]);
            while (wk_collective_guests(w[1].collective) < guests)
                usleep(1000);
        }
        do_at_once(meet_again, &w[1], 2);
        pthread_join(w[0].thread, NULL);
        pthread_join(w[3].thread, NULL);
        for (uint32_t i = 0; i < WORKERS; i++) {
            assert_int_equal(PS_OK, w[i].error.code);
            assert_int_equal(WORKERS, wk_collective_ranks(w[i].collective));
            for (int k = 0; k < welcome; k++)
                wk_collective_welcome(w[i].collective, k > 0);
        }
        wk_collective_close(w[0].collective, NULL);
        wk_collective_close(w[3].collective, NULL);
        do_at_once(meet_again, &w[1], 2);
        for (int i = 1; i < 3; i++) {
            if (w[i].error.code != (welcome ? PS_ABORTED : PS_OK))
                fail_msg("%d, worker %d: %s", welcome, i, w[i].error.text);
            if (welcome && !strstr(w[i].error.text, "2 of 4 workers are left, and the others may go on"))
                fail_msg("%d, worker %d: %s", welcome, i, w[i].error.text);
            wk_collective_close(w[i].collective, NULL);
        }
    }
}

static void a_rank_is_there_once(void **ctx)
{
    struct worker w[3] = {worker_of(1, 3, 1, 1), worker_of(0, 3, 1, 1), worker_of(1, 3, 1, 1)};
    (void)ctx;
    address[1] = address_text[3];  // the second of rank 1 listens elsewhere
    char other[64];
    snprintf(other, sizeof other, "unix:%s/1", directory);
    const char *others[WORKERS] = {address_text[0], other, address_text[2], NULL};
    w[2].options.addresses = others;
    w[0].options.timeout = w[1].options.timeout = w[2].options.timeout = 8 * PS_SECOND;
    run_all(w, 3);
    address[1] = address_text[1];
    const bool first = w[0].error.code == PS_ALREADY_EXISTS;
    assert_int_equal(PS_ALREADY_EXISTS, w[first ? 0 : 2].error.code);
    assert_string_equal("a worker 1 has come already: each needs a rank of its own", w[first ? 0 : 2].error.text);
    assert_string_equal("worker 2 of 3 did not come within 8 s", w[1].error.text);
}

// It still awaits what the other one brings, where the sum is of a step that is to end whole.
static void a_signal_lets_a_sum_end(void **ctx)
{
    (void)ctx;
    signal(SIGALRM, on_alarm);
    for (uint64_t grace = 0; grace <= 10 * PS_SECOND; grace += 10 * PS_SECOND) {
        struct worker w[2] = {worker_of(0, 2, 1, 2), worker_of(1, 2, 1, 2)};
        signal_came = 0;
        for (int i = 0; i < 2; i++) {
            w[i].options.stop = &signal_came;
            w[i].grace = grace;
        }
        w[1].late = 1;
        w[1].outlives = grace ? NULL : &w[0];
        run_all(w, 2);
        assert_int_equal(grace ? PS_OK : PS_CANCELLED, w[0].error.code);
    }
}

// Who waits for the first of two adds it up itself, where it is before the thread, which then has the second to do.
static void what_nobody_waits_for_goes_on(void **ctx)
{
    enum { MANY = 1 << 18 };
    static float one[2][MANY], two[2];
    const struct wk_peers_options options = {.workers = 1, .stop = &no_signal};
    struct wk_collective *c;
    struct ps_error e;
    (void)ctx;
    assert_int_equal(PS_OK, wk_collective_open(&options, 2, &c, &e));
    for (int round = 0; round < 50; round++) {
        struct wk_reduction first[2], second[2];
        for (uint32_t k = 0; k < 2; k++) {
            first[k] = (struct wk_reduction){.values = one[k], .n = MANY, .type = WK_FLOAT};
            second[k] = (struct wk_reduction){.values = &two[k], .n = 1, .type = WK_FLOAT};
            wk_collective_begin(c, k, &first[k]);
            wk_collective_begin(c, k, &second[k]);
        }
        assert_int_equal(PS_OK, wk_collective_wait(c, &first[1], &e));
        while (!wk_collective_is_done(c, &second[0]))
            usleep(100);
        assert_true(first[0].began <= first[0].ended && first[0].ended <= second[0].began);
    }
    wk_collective_close(c, NULL);
}

// As many numbers each.
static void replicas_that_add_up_different_things_end(void **ctx)
{
    static float values[2];
    const struct wk_peers_options options = {.workers = 1, .stop = &no_signal};
    struct wk_collective *c;
    struct wk_reduction r[2];
    struct ps_error e;
    (void)ctx;
    assert_int_equal(PS_OK, wk_collective_open(&options, 2, &c, &e));
    for (uint32_t k = 0; k < 2; k++) {
        r[k] = (struct wk_reduction){.values = &values[k], .n = 1, .type = WK_FLOAT, .what = k ? "a bias" : "a kernel"};
        wk_collective_begin(c, k, &r[k]);
    }
    assert_int_equal(PS_INVALID_ARGUMENT, wk_collective_wait(c, &r[0], &e));
    assert_string_equal(e.text, "replica 1 adds up 1 numbers of a bias where replica 0 adds up 1 of a kernel: expected "
                                "the same");
    wk_collective_close(c, NULL);
}

static void a_signal_ends_the_waiting(void **ctx)
{
    struct worker w[2] = {worker_of(0, 2, 1, 1), worker_of(1, 2, 1, 1)};
    (void)ctx;
    signal(SIGALRM, on_alarm);
    for (int i = 0; i < 2; i++) {
        signal_came = 0;
        w[i].options.stop = &signal_came;
        alarm(1);
        run_worker(&w[i]);
        assert_int_equal(PS_CANCELLED, w[i].error.code);
    }
}

// Members of a session are told apart by their workers' numbers: those of 0 and 2, of which 0 has come later.
static void who_has_been_there_for_longest_leads(void **state)
{
    static const double arrival[] = {5, 7, 3};
    const struct wk_peers_options options = {.workers = 3, .rank = 2};
    struct wk_rendezvous v;
    (void)state;
    wk_rendezvous_init(&v, &options);
    v.n = 2;
    v.rank[1] = 2;
    assert_true(wk_rendezvous_leads(&v, arrival));
    assert_false(wk_rendezvous_leads(&v, NULL));
    wk_rendezvous_lose(&v, 0);
    assert_true(wk_rendezvous_leads(&v, NULL));
    wk_rendezvous_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_of_a_process),
        cmocka_unit_test(workers),
        cmocka_unit_test(workers_of_several_replicas),
        cmocka_unit_test(workers_that_share_memory),
        cmocka_unit_test(workers_of_several_hosts),
        cmocka_unit_test(one_ends_and_all_hear_why),
        cmocka_unit_test(replica_0_tells_when_the_weights_are_kept),
        cmocka_unit_test(who_looks_hears_of_an_end),
        cmocka_unit_test(those_that_are_left_go_on),
        cmocka_unit_test(who_came_later_is_not_lost),
        cmocka_unit_test(an_answer_that_was_missed_is_given_again),
        cmocka_unit_test(who_is_faster_than_the_host_is_heard),
        cmocka_unit_test(who_ends_before_others_have_begun_is_heard),
        cmocka_unit_test(who_is_busy_is_waited_for),
        cmocka_unit_test(too_few_that_are_left_end),
        cmocka_unit_test(who_has_been_there_for_longest_leads),
        cmocka_unit_test(half_goes_on_with_the_lowest_alone),
        cmocka_unit_test(who_is_missing_is_named),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(who_is_lost_before_memory_is_shared_ends_nobody),
        cmocka_unit_test(others_than_members_end_nothing),
        cmocka_unit_test(who_does_not_connect_is_named),
        cmocka_unit_test(strangers_on_a_ring_are_sent_away),
        cmocka_unit_test(a_session_of_strange_workers_is_refused),
        cmocka_unit_test(another_program_where_the_workers_meet_is_named),
        cmocka_unit_test(who_does_not_belong_changes_nothing),
        cmocka_unit_test(who_comes_back_waits_while_the_others_go_on),
        cmocka_unit_test(who_comes_back_and_does_not_connect_ends_nobody),
        cmocka_unit_test(a_newcomer_that_fails_ends_alone),
        cmocka_unit_test(newcomers_that_die_take_no_majority),
        cmocka_unit_test(a_rank_is_there_once),
        cmocka_unit_test(a_signal_ends_the_waiting),
        cmocka_unit_test(a_signal_lets_a_sum_end),
        cmocka_unit_test(what_nobody_waits_for_goes_on),
        cmocka_unit_test(replicas_that_add_up_different_things_end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
