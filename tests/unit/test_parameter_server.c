// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy: what parameter_server and local_steps ask of libclient, and when. libclient is the test's: it
// writes down what it is asked, and answers at once.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/psclient.h"
#include "tests/unit/hearing.h"
#include "workerd/collective/collective.h"
#include "workerd/strategy/checkpoint.h"
#include "workerd/strategy/configuration.h"
#include "workerd/strategy/parameter_server.h"
#include "workerd/strategy/waits.h"

void *__real_ps_try_alloc_array(size_t n, size_t size);
void *__wrap_ps_try_alloc_array(size_t n, size_t size);

// ---- libclient ------------------------------------------------------------------------------------------------------

struct psc_op {
    uint64_t examples;  // of a push
    psc_result result;
};

enum { WAIT_MS = 5000 };

struct psc_client {
    bool ended;             // the job has
    char log[4096];         // what was asked for: see say
    psc_schedule schedule;  // that was declared, but for its arrays
    uint64_t version, resumptions;
    psc_share shares[8];  // one after the other
    size_t shared;
    uint64_t given, given_before;  // examples: in all; before the last share
    uint64_t pushed;               // examples whose push was waited for
    uint32_t share_rounds;         // as psc_connect was told, as are
    psc_update update;             // that of a share which names none, and
    uint64_t share_batch;          // this
    uint64_t round;                // of the last push
    float value;                   // the first of the last push
    char pulled[64];               // the first variable of the last pull
    uint64_t found;                // a get's round,
    int closing;                   // so many gets find a round more of some variables
    int64_t ahead;                 // as the last checkpoint says
    bool no_memory;                // for a get
    bool no_shards;                // that the ps tasks could load
    uint64_t rounds[8];            // that pushes were for
    size_t n_rounds;
    bool behind;                   // a round more is closed of the first bucket of two, and none of the second
    bool waits_for_others;         // all operations, until they are cancelled, or for WAIT_MS
    int cancelled;                 // operations
    bool others_end;               // operations end with ABORTED
    int late_ms;                   // an operation's end, once it is waited for
    int waited_ms;                 // for others
    bool no_room;                  // for what changes while a shard is written
    int64_t said;                  // by worker 0, of a checkpoint
    bool late, draining, follows;  // not the chief
    uint64_t arrival;
    uint64_t steps_before, iterations_before;
    uint64_t clock;
    int chief_after;         // asked so often it is the chief
    bool heir;               // in the place of one that was lost
    uint64_t chief_silence;  // ms
    uint64_t furthest;       // step of any worker
    int64_t least;           // of others, who would write the results
    int changes_refused;
    size_t n_changes;
    psc_hyper_change changed[3];
};

static struct psc_client client;
static volatile sig_atomic_t stop;  // a signal that has come
static size_t allocations_left;     // of a worker; the job file has what it needs
static bool reads_job;

void *__wrap_ps_try_alloc_array(size_t n, size_t size)
{
    return reads_job || (allocations_left && allocations_left--) ? __real_ps_try_alloc_array(n, size) : NULL;
}

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    size_t len = strlen(client.log);
    va_list args;
    va_start(args, format);
    vsnprintf(client.log + len, sizeof client.log - len, format, args);
    va_end(args);
}

char *wk_configuration_to_begin(const struct wk_env *env)
{
    (void)env;
    return calloc(1, 1);
}

psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error)
{
    (void)ps, (void)n, (void)error;
    *cluster = NULL;
    return PSC_OK;
}

psc_code psc_cluster_set_tls(psc_cluster *cluster, const psc_tls *tls, psc_error *error)
{
    (void)cluster, (void)tls, (void)error;
    return PSC_OK;
}

psc_code psc_cluster_set_munge(psc_cluster *cluster, const char *socket, psc_error *error)
{
    (void)cluster, (void)socket, (void)error;
    return PSC_OK;
}

void psc_cluster_free(psc_cluster *cluster)
{
    (void)cluster;
}

psc_code psc_connect(const psc_cluster *cluster, const psc_options *options, psc_client **to, psc_error *error)
{
    (void)cluster, (void)error;
    client.share_rounds = options->share_rounds;
    client.share_batch = options->share_batch;
    client.update = options->update;
    *to = &client;
    return PSC_OK;
}

void psc_close(psc_client *c, const char *reason)
{
    (void)c, (void)reason;
}

psc_code psc_declare(psc_client *c, const psc_declaration *declaration, bool *resumed, psc_error *error)
{
    (void)error;
    c->schedule = declaration->schedule ? *declaration->schedule : (psc_schedule){.kind = NULL};
    *resumed = false;
    return PSC_OK;
}

psc_code psc_attach(psc_client *c, psc_error *error)
{
    (void)c, (void)error;
    return PSC_OK;
}

uint64_t psc_resumptions(psc_client *c)
{
    return c->resumptions;
}

psc_code psc_barrier(psc_client *c, const char *name, psc_error *error)
{
    (void)c, (void)name, (void)error;
    return PSC_OK;
}

bool psc_is_late(psc_client *c)
{
    return c->late;
}

uint64_t psc_arrival(psc_client *c)
{
    return c->arrival;
}

uint64_t psc_data_epoch(psc_client *c)
{
    (void)c;
    return 0;
}

bool psc_is_draining(psc_client *c)
{
    return c->draining;
}

bool psc_is_chief(psc_client *c)
{
    c->follows = c->follows && !(c->chief_after && --c->chief_after == 0);
    return !c->follows;
}

bool psc_is_heir(psc_client *c)
{
    return psc_is_chief(c) && c->heir;
}

uint64_t psc_furthest(psc_client *c)
{
    return c->furthest;
}

uint64_t psc_chief_silence(psc_client *c)
{
    return c->follows ? c->chief_silence : 0;
}

void psc_report(psc_client *c, uint64_t step, double examples_per_second, double loss)
{
    (void)c, (void)step, (void)examples_per_second, (void)loss;
}

void psc_report_epoch(psc_client *c, uint64_t epochs, uint64_t ended, const psc_metric *metrics, size_t n)
{
    (void)c, (void)epochs, (void)ended, (void)metrics, (void)n;
}

void psc_report_saved(psc_client *c, bool some, uint64_t step, uint64_t written_ms)
{
    (void)c, (void)some, (void)step, (void)written_ms;
}

void psc_report_interrupted(psc_client *c)
{
    (void)c;
    say("interrupted ");
}

uint64_t psc_checkpoints(psc_client *c)
{
    (void)c;
    return 0;
}

void psc_report_checkpoint(psc_client *c, uint64_t number, bool failed, const char *text)
{
    (void)c, (void)number, (void)failed, (void)text;
}

static void begin_op(uint64_t examples, psc_result result, psc_op **op)
{
    *op = ps_alloc(sizeof **op);
    **op = (psc_op){examples, result};
}

void psc_put(psc_client *c, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    (void)c, (void)tensors, (void)callback, (void)arg;
    say("put %zu ", n);
    begin_op(0, (psc_result){.version = 1}, op);
}

void psc_pull(psc_client *c, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op)
{
    (void)callback, (void)arg, (void)round;
    say("pull %zu ", n);
    snprintf(c->pulled, sizeof c->pulled, "%s", tensors->name);
    begin_op(0, (psc_result){.version = c->version, .round = round}, op);
}

void psc_get(psc_client *c, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op)
{
    (void)callback, (void)arg;
    say("get %zu ", n);
    for (size_t i = 0; i < n; i++)
        *(float *)tensors[i].data = 10 * (float)tensors[i].slot + (float)c->found;
    const uint64_t last = c->found + (c->closing > 0);
    c->closing -= c->closing > 0;
    begin_op(0, (psc_result){.version = c->version, .round = c->found, .last_round = last}, op);
    if (c->no_memory) {
        free(*op);
        *op = NULL;
    }
}

void psc_write_shards(psc_client *c, const psc_tensor *tensors, size_t n, const psc_shards *shards,
                      psc_callback callback, void *arg, psc_op **op)
{
    (void)callback, (void)arg;
    say("shards %s of %zu, slot %u%s ", shards->name, n, (unsigned)tensors[n - 1].slot, shards->alone ? ", alone" : "");
    const psc_error refused = {PSC_OUT_OF_RANGE, "ps task 1 has no room"};
    begin_op(0,
             (psc_result){.version = c->version,
                          .round = c->found,
                          .last_round = c->found,
                          .error = c->no_room && !shards->alone ? refused : (psc_error){0}},
             op);
}

psc_code psc_load_shards(psc_client *c, const psc_shards *shards, uint64_t elements, uint64_t steps, psc_error *error)
{
    say("load %s %llx of %u at %u ", shards->name, (unsigned long long)shards->checkpoint, (unsigned)elements,
        (unsigned)steps);
    c->version += !c->no_shards;
    *error = (psc_error){.code = c->no_shards ? PSC_FAILED_PRECONDITION : PSC_OK, .text = "ps:0 has no such shard"};
    return error->code;
}

psc_code psc_prune_shards(psc_client *c, const char *name, uint32_t series, const uint64_t *keep, size_t n,
                          psc_error *error)
{
    (void)c, (void)error;
    say("prune %s of %u but %u of %zu ", name, (unsigned)series, n ? (unsigned)keep[0] : 0, n);
    return PSC_OK;
}

void psc_pull_averages(psc_client *c, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback,
                       void *arg, psc_op **op)
{
    say("average ");
    psc_pull(c, tensors, n, round, callback, arg, op);
}

void psc_put_state(psc_client *c, const psc_tensor *tensors, size_t n, uint64_t steps, psc_callback callback, void *arg,
                   psc_op **op)
{
    (void)callback, (void)arg;
    say("state %u of %zu at %u ", n ? (unsigned)tensors->slot : 0, n, (unsigned)steps);
    begin_op(0, (psc_result){.version = ++c->version}, op);
}

void psc_skip_examples(psc_client *c, uint64_t epoch, uint64_t examples)
{
    (void)c;
    say("skip %u of %u ", (unsigned)examples, (unsigned)epoch);
}

void psc_count_from(psc_client *c, uint64_t steps, uint64_t iterations)
{
    c->steps_before = steps;
    c->iterations_before = iterations;
}

void psc_push(psc_client *c, const psc_tensor *tensors, size_t n, const psc_push_options *options,
              psc_callback callback, void *arg, psc_op **op)
{
    (void)c, (void)callback, (void)arg;
    say("push");
    for (size_t i = 0; i < n; i++)
        say(" %s", strrchr(tensors[i].name, '/') + 1);
    say(" of %u ", (unsigned)options->examples);
    c->value = *(const float *)tensors[0].data;
    begin_op(options->examples, (psc_result){.version = c->version}, op);
}

void psc_push_pull(psc_client *c, const psc_tensor *tensors, const psc_tensor *into, size_t n,
                   const psc_push_options *options, psc_callback callback, void *arg, psc_op **op)
{
    (void)callback, (void)arg;
    say("both");
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(tensors[i].name, into[i].name);
        say(" %s", strrchr(tensors[i].name, '/') + 1);
    }
    say(" of %u ", (unsigned)options->examples);
    c->value = *(const float *)tensors[0].data;
    c->round = options->round;
    c->rounds[c->n_rounds++ % 8] = options->round;
    const bool behind = c->behind && c->n_rounds % 2 == 0;
    begin_op(options->examples,
             (psc_result){.version = c->version,
                          .open_round = options->round + !behind,
                          .last_round = options->round + (c->behind && !behind)},
             op);
}

bool psc_done(psc_op *op, int timeout_ms)
{
    const bool waits = client.waits_for_others && !client.cancelled && client.waited_ms < WAIT_MS;
    const struct timespec time = {.tv_nsec = (waits ? timeout_ms : client.late_ms) * 1000 * 1000};
    if (op && timeout_ms > 0) {
        nanosleep(&time, NULL);
        client.waited_ms += waits ? timeout_ms : 0;
    }
    return !op || !waits;
}

void psc_cancel(psc_op *op)
{
    client.cancelled += op != NULL;
}

psc_code psc_wait(psc_op *op, psc_result *result, psc_error *error)
{
    say("wait ");
    if (!op) {
        *result = (psc_result){.error = {PSC_RESOURCE_EXHAUSTED, "no memory for an operation"}};
        return PSC_RESOURCE_EXHAUSTED;
    }
    client.pushed += op->examples;
    if (client.others_end)
        op->result.error = (psc_error){PSC_ABORTED, "worker 1 has ended"};
    const psc_code code = op->result.error.code;
    if (error && code)
        *error = op->result.error;
    if (result)
        *result = op->result;
    free(op);
    return code;
}

// Nobody may say that something is done which has not been pushed.
static void give(psc_client *c, uint64_t done, psc_share *share)
{
    assert_true(c->pushed >= done);
    *share = c->shares[c->shared++];
    share->update = share->update ? share->update : c->update;
    if (share->count) {
        c->given_before = c->given;
        c->given += share->count;
    }
}

psc_code psc_lease(psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round, psc_share *share,
                   psc_error *error)
{
    (void)epoch, (void)examples, (void)want, (void)round, (void)error;
    say("lease ");
    give(c, c->given, share);
    return PSC_OK;
}

psc_code psc_lease_ahead(psc_client *c, uint64_t epoch, uint64_t examples, uint64_t want, psc_share *share,
                         psc_error *error)
{
    (void)epoch, (void)examples, (void)want, (void)error;
    say("ahead ");
    give(c, c->given_before, share);
    return PSC_OK;
}

psc_code psc_clock(psc_client *c, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc_error *error)
{
    c->clock = step;
    (void)wait, (void)clock, (void)slowest, (void)error;
    return PSC_OK;
}

psc_code psc_reduce(psc_client *c, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                    uint32_t *workers, psc_error *error)
{
    int64_t *value = data;
    (void)workers, (void)error;
    if (strcmp(name, "checkpoint") == 0) {
        assert_true(op == PSC_MAX && dtype == PSC_INT64 && count == 1);
        c->said = *value > c->said ? *value : c->said;  // worker 0 has come before the others
        *value = c->said;
    } else if (strcmp(name, "writer") == 0 && c->least < *value) {
        *value = c->least;
    }
    return PSC_OK;
}

psc_code psc_hyper_changes(psc_client *c, psc_hyper_change **changes, size_t *n, psc_error *error)
{
    (void)c, (void)error;
    *changes = ps_alloc((client.n_changes + 1) * sizeof **changes);
    for (*n = 0; *n < client.n_changes; ++*n)
        (*changes)[*n] = client.changed[*n];
    return PSC_OK;
}

psc_code psc_set_hyper(psc_client *c, const char *name, double value, uint64_t *round, psc_error *error)
{
    (void)error;
    say("%s=%g@%u ", name, value, (unsigned)*round);
    if (c->changes_refused == 0)
        return PSC_OK;
    c->changes_refused--;
    return *round ? PSC_OUT_OF_RANGE : PSC_ABORTED;
}

psc_code psc_health(psc_client *c, psc_error *error)
{
    (void)c;
    if (!client.ended)
        return PSC_OK;
    snprintf(error->text, sizeof error->text, "ps task 0 has restarted");
    return error->code = PSC_ABORTED;
}

psc_code psc_split_gradients(psc_client *c, psc_splits *splits, psc_error *error)
{
    (void)c, (void)error;
    *splits = (psc_splits){0};
    return PSC_OK;
}

// ---- a worker -------------------------------------------------------------------------------------------------------

// One input, one output: a frozen layer, and one that is trained.
static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"dense\", \"units\": 1}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"frozen\", \"units\": 1, \"trainable\": false}}]}}";

static const char constrained_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"a\", \"units\": 1}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"b\", \"units\": 1, \"bias_constraint\": \"non_neg\"}}]}}";

// Two layers, each of them large enough for a bucket.
static const char large_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 1]}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"a\", \"units\": 8000}},"
    "{\"class_name\": \"Dense\", \"config\": {\"name\": \"b\", \"units\": 3}}]}}";

// Four variables, each of them large enough for a bucket: two learn, two are statistics.
static const char normalized_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 20000]}},"
    "{\"class_name\": \"BatchNormalization\", \"config\": {\"name\": \"bn\"}}]}}";

static const char *document = model_text;
static const struct wk_strategy *strategy = &wk_parameter_server;

enum { N_PARAMS = 4, N_TRAINED = 2, BATCH = 4, EXAMPLES = 100, AHEAD = 4 };

struct worker {
    struct nn_model *model;
    struct ps_job *job;
    struct wk_env env;
    void *state;
    struct wk_work ahead[AHEAD];
    int n_ahead;
};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

static enum ps_code open_worker(struct worker *w, const char *optimizer, const char *settings, struct ps_error *e)
{
    static const struct ps_loss mse = PS_LOSS(.kind = PS_LOSS_MSE);
    char text[512];
    memset(w, 0, sizeof *w);
    snprintf(text, sizeof text,
             "model: m\ndata: {kind: synthetic-digits}\nloss: {name: mse}\noptimizer: {name: %s}\n"
             "strategy: {%s}\nbatch_size: %d\nseed: 5\n",
             optimizer, settings, BATCH);
    reads_job = true;
    must(ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &w->job, e), e);
    reads_job = false;
    must(nn_model_parse(document, "test", &w->model, e), e);
    must(nn_replica_create(w->model, "ref", BATCH, 1, 1, &mse, &w->env.replica, e), e);
    w->env.job = w->job;
    w->env.model = w->model;
    w->env.examples = EXAMPLES;
    w->env.workers = w->env.min_workers = 1;
    w->env.stop = &stop;
    assert_int_equal(N_PARAMS, nn_model_params(w->model));
    return strategy->open(&w->env, &w->state, e);
}

static void begin(struct worker *w, const char *optimizer, const char *settings)
{
    struct ps_error e = {.code = PS_OK};
    must(open_worker(w, optimizer, settings, &e), &e);
    client.log[0] = '\0';
}

static void end(struct worker *w)
{
    if (w->state)
        strategy->close(w->state, NULL);
    nn_replica_free(w->env.replica);
    nn_model_free(w->model);
    ps_job_free(w->job);
}

// One step; every gradient is 1. It goes through the variables as a chain of layers does.
static void train_work(struct worker *w, const struct wk_work *work)
{
    const struct wk_home *home = strategy->home;
    struct ps_error e = {.code = PS_OK};
    const size_t *order, n = nn_replica_order(w->env.replica, &order);
    must(home->begin(w->state, work, &e), &e);
    for (size_t k = n; home->need && k--;) {
        say("need ");
        must(home->need(w->state, order[k], &e), &e);
    }
    for (size_t k = 0; k < n; k++) {
        const struct nn_param *p = nn_model_param(w->model, order[k]);
        for (uint64_t i = 0; i < p->count; i++)
            nn_replica_grad(w->env.replica, order[k])[i] = 1;
        if (!home->ready)
            continue;
        say("ready ");
        must(home->ready(w->state, order[k], &e), &e);
    }
    assert_int_equal(home->end(w->state, work, &e), client.others_end && work->ends_period ? PS_ABORTED : PS_OK);
    say("end ");
}

static void train(struct worker *w, uint64_t step, int rows)
{
    train_work(w, &(struct wk_work){.step = step, .rows = rows});
}

// Fills the ring of batches that are ahead, as the step loop does; what next said last.
static enum wk_next fill(struct worker *w, uint64_t epoch)
{
    struct ps_error e = {.code = PS_OK};
    enum wk_next got = WK_BATCH;
    while (got == WK_BATCH && w->n_ahead < AHEAD) {
        got = strategy->sharder->next(w->state, epoch, w->n_ahead == 0, &w->ahead[w->n_ahead], &e);
        assert_true(got != WK_FAILED);
        w->n_ahead += got == WK_BATCH;
    }
    return got;
}

// Trains an epoch; how often there was nothing ahead but the step at hand.
static int train_epoch(struct worker *w, uint64_t epoch)
{
    int dry = 0;
    while (fill(w, epoch) != WK_EPOCH_END || w->n_ahead) {
        train_work(w, &w->ahead[0]);
        memmove(w->ahead, w->ahead + 1, (size_t)--w->n_ahead * sizeof *w->ahead);
        dry += w->n_ahead == 0;
    }
    return dry;
}

static int begin_world(void **state)
{
    (void)state;
    client = (struct psc_client){.version = 1};
    stop = 0;
    allocations_left = 1000;
    strategy = &wk_parameter_server;
    return 0;
}

static int begin_local_steps(void **state)
{
    begin_world(state);
    strategy = &wk_local_steps;
    return 0;
}

static psc_share range(uint64_t first, uint64_t count)
{
    return (psc_share){.first = first, .count = count};
}

// ---- tests ----------------------------------------------------------------------------------------------------------

// What is trained is pushed, and pulled for each step; the rest is pulled at first, and for evaluations.
static void frozen_layers_stay(void **state)
{
    static const char *const updates[] = {"update: async", "update: ssp, staleness: 1", "update: sync"};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        begin_world(state);
        assert_int_equal(open_worker(&w, "sgd, learning_rate: 1", updates[k], &e), PS_OK);
        train(&w, 0, BATCH);
        train(&w, 1, BATCH);
        must(strategy->home->refresh(w.state, &e), &e);
        assert_string_equal(client.log, k == 1
                                            ? "put 4 wait pull 4 wait need need ready ready push bias kernel of 4 end "
                                              "wait pull 2 need wait need ready ready push bias kernel of 4 end "
                                              "wait pull 4 wait "
                                            : "put 4 wait pull 4 wait need need ready ready both bias kernel of 4 end "
                                              "need wait need ready ready both bias kernel of 4 end wait pull 4 wait ");
        end(&w);
    }
}

// A bucket leaves with its last gradient, and is waited for where its first value is needed. Where all gradients have
// to be known first they leave at the end.
static void buckets_leave_as_they_become_ready(void **state)
{
    static const struct {
        const char *optimizer, *update, *log;
    } cases[] = {
        {"sgd, learning_rate: 1", "update: async",
         "pull 4 wait need need need need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "
         "need wait need need wait need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "},
        {"sgd, learning_rate: 1, clipnorm: 1", "update: async",
         "pull 4 wait need need need need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "
         "need wait need need wait need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "},
        {"sgd, learning_rate: 1, global_clipnorm: 1", "update: async",
         "pull 4 wait need need need need ready ready ready ready both bias kernel of 4 both bias kernel of 4 end "
         "need wait need need wait need ready ready ready ready both bias kernel of 4 both bias kernel of 4 end "},
        {"sgd, learning_rate: 1, global_clipnorm: 1", "update: sync",
         "pull 4 wait need need need need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "
         "need wait need need wait need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "},
        {"sgd, learning_rate: 1", "update: ssp, staleness: 1",
         "pull 4 wait need need need need ready ready push bias kernel of 4 ready ready push bias kernel of 4 end "
         "wait wait pull 2 pull 2 need wait need need wait need "
         "ready ready push bias kernel of 4 ready ready push bias kernel of 4 end "},
        {"sgd, learning_rate: 1", "update: sync, replicas_to_aggregate: 1",
         "pull 4 wait need need need need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "
         "wait wait need need need need ready ready both bias kernel of 4 ready ready both bias kernel of 4 end "},
    };
    document = large_text;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct worker w;
        begin_world(state);
        begin(&w, cases[k].optimizer, cases[k].update);
        train(&w, 0, BATCH);
        train(&w, 1, BATCH);
        assert_string_equal(client.log, cases[k].log);
        end(&w);
    }
    document = model_text;
}

// Where others close rounds, no push is for one that some of its variables have not come to.
static void rounds_that_run_apart(void **state)
{
    static const uint64_t steps[] = {1, 1, 1, 1, 1, 1, 2, 2}, periods[] = {1, 2, 2, 3};
    for (int local = 0; local < 2; local++) {
        struct worker w;
        begin_world(state);
        strategy = local ? &wk_local_steps : &wk_parameter_server;
        document = local ? model_text : large_text;
        begin(&w, "sgd, learning_rate: 1",
              local ? "name: local_steps, local_steps: 1, replicas_to_aggregate: 1"
                    : "update: sync, replicas_to_aggregate: 1");
        for (uint64_t step = 0; step < 4; step++) {
            client.behind = step < 2;
            train_work(&w, &(struct wk_work){.step = step, .rows = BATCH, .ends_period = true, .last_period = true});
        }
        assert_int_equal(client.n_rounds, local ? 4 : 8);
        assert_memory_equal(client.rounds, local ? periods : steps, local ? sizeof periods : sizeof steps);
        end(&w);
    }
    document = model_text;
}

// Who comes late knows of the checkpoint from its share. Its steps go on from the furthest of all, those of rounds from
// their round.
static void the_late_count_on(void **state)
{
    static const struct {
        const char *update;
        psc_share share;
        uint64_t want;
    } of[] = {
        {"update: async", {.count = 1, .steps_before = 7000, .iterations_before = 7500, .furthest = 7300}, 7300},
        {"update: async", {.count = 1, .furthest = 40}, 40},
        {"update: sync",
         {.count = 1, .stride = 1, .end = 1, .steps = 1, .round = 9, .steps_before = 7000, .furthest = 7300},
         7009},
        {"update: ssp, staleness: 1", {.count = 1, .steps_before = 7000, .furthest = 7300}, 7300},
        {"update: async",  // psctl set-mode
         {.count = 1,
          .stride = 1,
          .end = 1,
          .steps = 1,
          .round = 9,
          .steps_before = 7000,
          .furthest = 7300,
          .update = PSC_SYNC},
         7300},
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct worker w;
        begin_world(state);
        client.late = client.follows = true;
        begin(&w, k ? "sgd, learning_rate: 1" : "sgd, learning_rate: 1, momentum: 0.9", of[k].update);
        client.shares[0] = client.shares[1] = of[k].share;
        fill(&w, 0);
        assert_int_equal(w.ahead[0].step, of[k].want);
        const struct wk_parameter_server_state *s = w.state;
        assert_true(s->base == of[k].share.steps_before);
        assert_true(s->base + s->ahead == of[k].share.iterations_before);
        assert_int_equal(s->loaded_version, k ? 1 : 2);  // the slot of momentum was put, too
        train_work(&w, &w.ahead[0]);
        assert_int_equal(client.clock, 0);  // it counts its own steps, and has begun none before
        assert_int_equal(s->base + s->trained_to, of[k].want + 1);
        end(&w);
    }
}

// Also where the next share is asked for while the last one is trained.
static void the_next_chief_counts_on_ahead(void **state)
{
    static const uint64_t want[] = {0, 1, 2, 3, 500};
    struct worker w;
    (void)state;
    client.follows = true;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    client.shares[0] = (psc_share){.count = 2 * BATCH};
    client.shares[1] = (psc_share){.first = 2 * BATCH, .count = 2 * BATCH};
    client.shares[2] = (psc_share){.first = 4 * BATCH, .count = BATCH, .furthest = 500};
    for (int k = 0; k < 5; k++) {
        fill(&w, 0);
        assert_int_equal(w.ahead[0].step, want[k]);
        train_work(&w, &w.ahead[0]);
        memmove(w.ahead, w.ahead + 1, (size_t)--w.n_ahead * sizeof *w.ahead);
        const struct wk_parameter_server_state *s = w.state;
        assert_int_equal(s->trained_to, want[k] + 1);
        client.follows = false;
    }
    assert_non_null(strstr(strstr(client.log, "ahead ") + 1, "ahead "));
    end(&w);
}

// The steps of a worker that becomes the chief go on from the furthest of all: once.
static void the_next_chief_counts_on(void **state)
{
    static const uint64_t want[] = {0, 500, 501};
    struct worker w;
    (void)state;
    client.follows = true;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    for (uint64_t k = 0; k < 3; k++) {
        client.shared = 0;
        client.shares[0] = (psc_share){.first = k, .count = 1, .furthest = 500 * k};
        client.shares[1] = (psc_share){0};
        fill(&w, 0);
        assert_int_equal(w.n_ahead, 1);
        assert_int_equal(w.ahead[0].step, want[k]);
        train_work(&w, &w.ahead[0]);
        w.n_ahead = 0;
        client.follows = false;
    }
    end(&w);
}

// A signal may come before the new chief has asked for another share. What it writes is newer than what the chief
// before has written, which may be of more steps.
static void the_next_chief_writes_beyond_the_furthest(void **state)
{
    static const struct {
        const char *update;
        bool follows;
        uint64_t furthest, step;
    } of[] = {{"update: async", true, 500, 501},
              {"update: ssp, staleness: 1", true, 500, 501},
              {"update: async", true, 2, 0},
              {"update: async", false, 500, 0},
              {"update: sync", true, 500, 0}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        bool undone = false;
        begin_world(state);
        client.follows = of[k].follows;
        begin(&w, "sgd, learning_rate: 1", of[k].update);
        train(&w, 0, BATCH);
        train(&w, 1, BATCH);
        client.follows = false;
        client.furthest = of[k].furthest;
        client.found = 2;
        must(strategy->home->salvage(w.state, &undone, &e), &e);
        assert_int_equal(strategy->sharder->count_on(w.state), of[k].step);
        const struct wk_parameter_server_state *s = w.state;
        assert_int_equal(s->trained_to, of[k].step ? of[k].step : 2);
        end(&w);
    }
}

// Of those who can write the results who has been there for longest does.
static void the_longest_there_writes_the_results(void **state)
{
    static const struct {
        uint64_t arrival;
        int64_t others;
        enum wk_writer want;
    } of[] = {{0, 1, WK_SELF}, {3, 1, WK_ANOTHER}, {3, 5 * 2 + 1, WK_SELF}, {0, -1, WK_NOBODY}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        enum wk_writer writer = WK_NOBODY;
        begin_world(state);
        begin(&w, "sgd, learning_rate: 1", "update: async");
        w.env.workers = 2;
        client.arrival = of[k].arrival;
        client.least = of[k].others;
        must(strategy->group->elect(w.state, false, &writer, &e), &e);
        assert_int_equal(writer, of[k].want);
        end(&w);
    }
}

// The next range is asked for while batches of the last one are ahead, and what is said to be done has been pushed.
static void ranges_follow_each_other(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    for (size_t i = 0; i < 4; i++)
        client.shares[i] = range(16 * i, i == 3 ? 8 : 16);
    assert_int_equal(train_epoch(&w, 0), 1);  // with the epoch's last step
    assert_int_equal(client.pushed, 56);
    int asked[2] = {0};
    for (const char *at = client.log; (at = strstr(at, "lease ")); at++)
        asked[0]++;
    for (const char *at = client.log; (at = strstr(at, "ahead ")); at++)
        asked[1]++;
    assert_int_equal(asked[0], 2);  // the first, and who gets none ahead: is the epoch over?
    assert_int_equal(asked[1], 4);
    end(&w);
}

// An epoch of another mode: weights are pulled anew, pushes name the share's rounds or none, and steps are counted on.
static void the_mode_changes(void **state)
{
    static const uint64_t rounds[] = {0, 0, 11, 12, 0};
    struct worker w;
    uint64_t step = 0;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    assert_int_equal(client.share_batch, BATCH);
    const psc_share shares[] = {{.count = 8},  // none is ahead, and the epoch is over
                                [3] = {.count = 4, .stride = 4, .end = 8, .steps = 2, .round = 10, .update = PSC_SYNC},
                                [4] = {.update = PSC_SYNC},
                                [5] = {.count = 4, .update = PSC_ASYNC},
                                [7] = {.update = PSC_ASYNC}};
    memcpy(client.shares, shares, sizeof shares);
    for (uint64_t epoch = 0; epoch < 3; epoch++)
        while (fill(&w, epoch) != WK_EPOCH_END || w.n_ahead) {
            assert_int_equal(w.ahead[0].step, step);
            client.log[0] = '\0';
            train_work(&w, &w.ahead[0]);
            assert_int_equal(client.round, rounds[step]);
            assert_true((strstr(client.log, "pull 4") != NULL) == (step == 0 || step == 2 || step == 4));
            memmove(w.ahead, w.ahead + 1, (size_t)--w.n_ahead * sizeof *w.ahead);
            step++;
        }
    assert_int_equal(step, 5);
    client.shared = 3;
    assert_int_equal(fill(&w, 3), WK_LATER);
    train_work(&w, &w.ahead[0]);
    assert_true(w.ahead[0].step == 5 && client.round == 11);
    end(&w);
}

// Who was asked to leave trains what it has, and asks for nothing ahead.
static void a_draining_worker_takes_no_more(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    client.shares[0] = range(0, 16);
    client.shares[1] = range(16, 16);
    assert_int_equal(fill(&w, 0), WK_BATCH);
    client.draining = true;
    for (int i = 0; i < 4; i++) {
        train(&w, w.ahead[0].step, w.ahead[0].rows);
        memmove(w.ahead, w.ahead + 1, (size_t)--w.n_ahead * sizeof *w.ahead);
        assert_int_equal(fill(&w, 0), i < 3 ? WK_LATER : WK_DRAINED);
    }
    assert_null(strstr(client.log, "ahead"));
    assert_int_equal(client.pushed, 16);
    end(&w);
}

// Groups of n_push gradients go on from one range to the next, however short. What is left of one at the end of an
// epoch is pushed alone, and the next epoch's begin anew.
static void groups_have_their_size(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: async, n_push: 3, n_fetch: 100");
    client.shares[0] = range(0, 8);
    client.shares[1] = range(8, 4);
    client.shares[2] = range(12, 8);
    client.shares[5] = range(0, 20);
    train_epoch(&w, 0);
    train_epoch(&w, 1);
    char pushes[256] = "";
    for (const char *at = client.log; (at = strstr(at, " of ")); at++)
        sprintf(pushes + strlen(pushes), "%d ", atoi(at + 4));
    assert_string_equal(pushes, "12 8 12 8 ");
    end(&w);
}

// The ps tasks hear of each number of a schedule.
static void a_schedule_is_declared(void **state)
{
    static const struct {
        const char *text;
        psc_schedule all;
    } schedules[] = {
        {"polynomial, initial: 2, decay_steps: 3, end_learning_rate: 0.25, power: 4, cycle: true, warmup_steps: 5, "
         "warmup_initial: 0.5",
         {.initial = 2,
          .decay_steps = 3,
          .end_learning_rate = 0.25,
          .power = 4,
          .cycle = true,
          .warmup_steps = 5,
          .warmup_initial = 0.5}},
        {"exponential, initial: 2, decay_steps: 3, decay_rate: 0.25, staircase: true",
         {.initial = 2, .decay_steps = 3, .decay_rate = 0.25, .staircase = true}},
        {"cosine_restarts, initial: 2, decay_steps: 3, t_mul: 4, m_mul: 0.5, alpha: 0.25",
         {.initial = 2, .decay_steps = 3, .t_mul = 4, .m_mul = 0.5, .alpha = 0.25}},
        {"piecewise, boundaries: [9, 10], values: [1, 0.25, 0.5]", {.n_boundaries = 2}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        const psc_schedule *all = &schedules[i].all, *s = &client.schedule;
        char optimizer[256];
        struct worker w;
        snprintf(optimizer, sizeof optimizer, "sgd, learning_rate: {schedule: %s}", schedules[i].text);
        begin(&w, optimizer, "update: async");
        assert_memory_equal(s->kind, schedules[i].text, strlen(s->kind));
        assert_true(s->initial == all->initial && s->decay_steps == all->decay_steps);
        assert_true(s->decay_rate == all->decay_rate && s->staircase == all->staircase && s->alpha == all->alpha);
        assert_true(s->t_mul == all->t_mul && s->m_mul == all->m_mul && s->n_boundaries == all->n_boundaries);
        assert_true(s->end_learning_rate == all->end_learning_rate && s->power == all->power);
        assert_true(s->cycle == all->cycle && s->warmup_steps == all->warmup_steps);
        assert_true(s->warmup_initial == all->warmup_initial);
        assert_true(!s->boundaries == !all->n_boundaries && !s->values == !all->n_boundaries);
        end(&w);
    }
}

// Between two pulls a worker steps with the rate that the schedule has by now: the version of a variable counts what
// was done to it, its initial value included.
static void local_steps_follow_the_schedule(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: {schedule: piecewise, boundaries: [9], values: [1, 0.25]}",
          "update: async, n_fetch: 2");
    client.version = 10;  // nine gradients: this would be the tenth's, step 9
    nn_replica_param(w.env.replica, 0)[0] = 8;
    train(&w, 0, BATCH);
    assert_true(nn_replica_param(w.env.replica, 0)[0] == 7);
    client.version = 11;
    train(&w, 1, BATCH);  // pulls
    train(&w, 2, BATCH);
    assert_true(nn_replica_param(w.env.replica, 0)[0] == 6.75F);
    end(&w);
}

// Without rounds a worker clips each gradient by its norm before it pushes it, or adds it up; and by value, which ps
// tasks do to what is pushed, where it moves its own weights.
static void a_worker_clips_its_gradients(void **state)
{
    static const char *const limits[] = {"clipnorm: 0.5", "global_clipnorm: 0.707106781", "clipvalue: 0.5"};
    static const struct {
        const char *update;
        int gradients;  // in a push
        bool alone;     // its weights have moved twice
    } cases[] = {{"update: async, n_push: 2", 2, false},
                 {"update: async, n_push: 2, n_fetch: 3", 2, true},
                 {"update: async, n_fetch: 3", 1, true}};
    for (size_t k = 0; k < 9; k++) {
        const double pushed = cases[k % 3].gradients * (k / 3 == 2 ? 1 : 0.5);
        char optimizer[64];
        struct worker w;
        begin_world(state);
        snprintf(optimizer, sizeof optimizer, "sgd, learning_rate: 1, %s", limits[k / 3]);
        begin(&w, optimizer, cases[k % 3].update);
        nn_replica_param(w.env.replica, 0)[0] = 3;
        train(&w, 0, BATCH);
        train(&w, 1, BATCH);
        assert_true(fabs(client.value - pushed) < 1e-6);
        assert_true(fabs(nn_replica_param(w.env.replica, 0)[0] - (cases[k % 3].alone ? 2 : 3)) < 1e-6);
        end(&w);
    }
}

// A run that goes on with old values draws other numbers than those before it did; the same ones whoever asks.
static void resumed_runs_draw_anew(void **state)
{
    uint64_t seed[3], again;
    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        struct worker w;
        client.resumptions = i % 3;
        begin(&w, "sgd, learning_rate: 1", "update: async");
        *(i < 3 ? &seed[i] : &again) = strategy->sharder->seed(w.state);
        end(&w);
    }
    assert_int_equal(seed[0], 5);
    assert_true(seed[1] != 5 && seed[2] != 5 && seed[1] != seed[2]);
    assert_true(again == seed[0]);
}

// What finds no memory is said in a sentence.
static void no_memory_for_sums(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    allocations_left = 0;
    assert_int_equal(open_worker(&w, "sgd, learning_rate: 1", "update: async, n_push: 3", &e), PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.text, "no memory for"));
    assert_string_equal(client.log, "");
    end(&w);
}

// Where the averages of the weights are kept a training ends with them; while it lasts weights are themselves.
static void ends_with_averages(void **state)
{
    static const char *const optimizers[] = {"sgd, use_ema: true", "sgd, learning_rate: 1"};
    static const char *const expected[] = {"pull 4 wait average pull 4 wait ", "pull 4 wait pull 4 wait "};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        struct wk_history history = {0};
        begin(&w, optimizers[k], "update: async");
        must(strategy->home->refresh(w.state, &e), &e);
        must(strategy->group->finish(w.state, &history, &e), &e);
        assert_int_equal(history.averaged, k == 0);
        must(strategy->home->refresh(w.state, &e), &e);
        assert_string_equal(client.log, expected[k]);
        free(history.loss);
        free(history.examples);
        end(&w);
    }
}

// The replica's parameters, and what the home puts besides.
static void save(struct worker *w, const struct ps_shards_of *of, struct wk_checkpoint *c)
{
    struct ps_error e = {.code = PS_OK};
    wk_checkpoint_init(c, of);
    for (size_t i = 0; i < N_PARAMS; i++) {
        const struct nn_param *p = nn_model_param(w->model, i);
        wk_checkpoint_put(c, NULL, p->name, p->shape, p->rank, nn_replica_param(w->env.replica, i));
    }
    must(strategy->home->save(w->state, c, &e), &e);
}

static const struct ps_shards_of shards = {.name = "job-0000000001", .id = 7};

// A checkpoint after the first step, which found what the ps tasks have after round `found`.
static enum ps_code fetch(struct worker *w, uint64_t found, const char *begins, struct ps_error *e)
{
    enum { SLOTS = 2, ARRAYS = N_PARAMS + SLOTS * N_TRAINED };
    struct wk_checkpoint c;
    float memory[ARRAYS] = {0};
    size_t fetched = 0;
    save(w, NULL, &c);
    assert_int_equal(c.n, ARRAYS);
    for (size_t i = 0; i < c.n; i++) {
        fetched += c.array[i].data == NULL;
        c.array[i].data = &memory[i];
    }
    assert_int_equal(fetched, (1 + SLOTS) * N_TRAINED);
    client.log[0] = '\0';
    client.found = found;
    c.fetch->begin(c.fetch, &c);
    assert_string_equal(client.log, begins);
    const enum ps_code code = c.fetch->wait(c.fetch, e);
    for (size_t i = 0; i < c.n && code == PS_OK; i++) {
        const char *name = c.array[i].name;
        const float slot = strncmp(name, "momentum/", 9) == 0 ? 10 : strncmp(name, "velocity/", 9) == 0 ? 20 : 0;
        assert_true(memory[i] == (strstr(name, "/frozen/") ? 0 : (float)found + slot));
    }
    client.ahead = json_integer_value(json_object_get(c.json, "iterations_ahead"));
    wk_checkpoint_free(&c);
    return code;
}

// Values and slots come while the training goes on, of the round that it is at. Where the ps tasks have no memory for
// that, the next checkpoint comes while the training waits.
static void a_checkpoint_is_fetched(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "adam", "update: sync");
    train(&w, 0, BATCH);
    assert_int_equal(fetch(&w, 1, "get 6 ", &e), PS_OK);
    assert_int_equal(fetch(&w, 2, "get 6 ", &e), PS_UNAVAILABLE);
    assert_non_null(strstr(e.text, "did not keep what they had after round 1 beside the training"));
    assert_int_equal(fetch(&w, 1, "get 6 wait ", &e), PS_OK);
    assert_int_equal(client.ahead, 0);
    assert_int_equal(fetch(&w, 1, "get 6 ", &e), PS_OK);
    client.no_memory = true;
    assert_int_equal(fetch(&w, 1, "get 6 ", &e), PS_RESOURCE_EXHAUSTED);
    client.no_memory = false;
    end(&w);
}

// The values that change, and slots, stay with the ps tasks; those that do not change are in the file.
static void a_sharded_checkpoint_leaves_them_where_they_are(void **state)
{
    struct worker w;
    struct wk_checkpoint c;
    struct ps_error e = {.code = PS_OK};
    size_t here = 0;
    (void)state;
    begin(&w, "adam", "update: sync");
    w.env.n_ps = 3;
    train(&w, 0, BATCH);
    for (uint64_t found = 1; found <= 2; found++) {
        save(&w, &shards, &c);
        assert_int_equal(c.n, N_PARAMS + 2 * N_TRAINED);
        for (size_t i = here = 0; i < c.n; i++)
            here += c.array[i].data != NULL;
        assert_int_equal(here, N_PARAMS - N_TRAINED);
        assert_string_equal(c.shards.job, w.job->name);
        assert_int_equal(c.shards.tasks, 3);
        client.log[0] = '\0';
        client.found = found;
        c.fetch->begin(c.fetch, &c);
        assert_string_equal(client.log, "shards job-0000000001 of 6, slot 2 ");
        // Others have closed a round meanwhile: it is not the state after this worker's step.
        assert_int_equal(c.fetch->wait(c.fetch, &e), found == 1 ? PS_OK : PS_UNAVAILABLE);
        wk_checkpoint_free(&c);
    }
    client.log[0] = '\0';
    must(strategy->home->prune_shards(w.state, "job", 20, (uint64_t[]){10}, 1, &e), &e);
    assert_string_equal(client.log, "prune job of 20 but 10 of 1 ");
    end(&w);
}

// From then on the training waits while shards are written.
static void shards_without_room_are_written_alone(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    train(&w, 0, BATCH);
    client.found = 1;
    client.no_room = true;
    for (int k = 0; k < 3; k++) {
        struct wk_checkpoint c;
        save(&w, &shards, &c);
        client.log[0] = '\0';
        c.fetch->begin(c.fetch, &c);
        assert_string_equal(client.log, k ? "shards job-0000000001 of 2, slot 0, alone wait "
                                          : "shards job-0000000001 of 2, slot 0 ");
        assert_int_equal(c.fetch->wait(c.fetch, &e), k ? PS_OK : PS_FAILED_PRECONDITION);
        if (!k)
            assert_string_equal(e.text, "ps task 1 has no room; the next ones are written while the training waits");
        wk_checkpoint_free(&c);
    }
    end(&w);
}

// A checkpoint at path whose shards of three ps tasks are not beside it.
static void write_sharded(const char *path)
{
    static const float two[] = {3, 4};
    const struct ps_shards_of of = {"job", "job-0000000002", 0xab, 3};
    const struct ps_safetensor sharded[] = {{.name = "net/dense/kernel", .rank = 2, .shape = {1, 1}},
                                            {.name = "net/dense/bias", .rank = 1, .shape = {1}}};
    const struct ps_safetensor own[] = {{.name = "net/frozen/kernel", .rank = 2, .shape = {1, 1}, .data = &two[0]},
                                        {.name = "net/frozen/bias", .rank = 1, .shape = {1}, .data = &two[1]}};
    char *index = ps_shards_index(&of, sharded, 2);
    const struct ps_safetensors_text texts[] = {{"paramserver", "{\"learning_rate\": 1.0, \"iterations_ahead\": 0}"},
                                                {PS_SHARDS_KEY, index}};
    struct ps_error e;
    must(ps_safetensors_write_sealed(path, own, 2, texts, 2, NULL, &e), &e);
    free(index);
}

// Each ps task loads its own; worker 0 puts what does not change, and pulls the others, as all do.
static void shards_are_loaded_by_those_who_have_written_them(void **state)
{
    char path[] = "/tmp/test_parameter_server.XXXXXX";
    struct worker w;
    struct wk_checkpoint c;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_sharded(path);
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    must(wk_checkpoint_read(&c, path, false, &e), &e);
    w.env.n_ps = 3;
    must(strategy->home->load(w.state, &c, 0, 8, 2, &e), &e);
    assert_string_equal(client.log, "skip 8 of 0 load job-0000000002 ab of 2 at 2 state 0 of 2 at 2 wait pull 2 wait ");
    client.log[0] = '\0';
    client.no_shards = true;
    assert_int_equal(strategy->home->load(w.state, &c, 0, 8, 2, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, "ps:0 has no such shard"));
    assert_true(client.steps_before == 2 && client.iterations_before == 2);
    assert_int_equal(client.said, 2);
    e.code = PS_OK;
    w.env.rank = 1;
    assert_int_equal(strategy->home->load(w.state, &c, 0, 8, 2, &e), PS_DATA_LOSS);
    assert_non_null(strstr(e.text, "worker 0 says that its shards cannot be loaded"));
    e.code = PS_OK;
    w.env.rank = 0;
    client.log[0] = '\0';
    w.env.n_ps = 2;
    assert_int_equal(strategy->home->load(w.state, &c, 0, 8, 2, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "3 ps tasks have written its shards, and now there are 2"));
    assert_string_equal(client.log, "skip 8 of 0 ");
    wk_checkpoint_free(&c);
    end(&w);
    unlink(path);
}

// Worker 0 puts what a checkpoint has, and asks for its version; the others pull it once, and train their first step
// with it.
static void what_is_loaded_is_pulled_once(void **state)
{
    static const char *const updates[] = {"update: async", "update: sync", "update: async", "update: sync"};
    for (int k = 0; k < 4; k++) {
        const bool first = k < 2;
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        struct wk_checkpoint c;
        begin_world(state);
        begin(&w, "sgd, learning_rate: 1", updates[k]);
        wk_checkpoint_init(&c, NULL);
        wk_checkpoint_put_rule(&c, 1, false, 0);
        w.env.rank = first ? 0 : 1;
        client.said = !first;
        must(strategy->home->load(w.state, &c, 0, 8, 2, &e), &e);
        train(&w, 2, BATCH);
        assert_string_equal(client.log, first ? "skip 8 of 0 state 0 of 4 at 2 wait pull 2 wait "
                                                "need need ready ready both bias kernel of 4 end "
                                              : "skip 8 of 0 pull 2 wait "
                                                "need need ready ready both bias kernel of 4 end ");
        wk_checkpoint_free(&c);
        end(&w);
    }
}

// Where slots were put after the values these count, and only what learns has them: the version is asked of that, and
// of the smallest bucket.
static void worker_0_asks_for_the_last_version(void **state)
{
    static const struct {
        const char *document, *pulled, *log;
    } cases[] = {{normalized_text, "bn/beta", "skip 8 of 0 state 0 of 4 at 2 wait state 1 of 2 at 2 wait pull 1 wait "},
                 {large_text, "a/bias", "skip 8 of 0 state 0 of 4 at 2 wait state 1 of 4 at 2 wait pull 2 wait "}};
    for (size_t k = 0; k < 2; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        struct wk_checkpoint c;
        begin_world(state);
        document = cases[k].document;
        begin(&w, "sgd, learning_rate: 1, momentum: 0.5", "update: sync");
        wk_checkpoint_init(&c, NULL);
        wk_checkpoint_put_rule(&c, 1, false, 0);
        for (size_t i = 0; i < N_PARAMS; i++) {
            const struct nn_param *p = nn_model_param(w.model, i);
            wk_checkpoint_put(&c, "momentum", p->name, p->shape, p->rank, nn_replica_param(w.env.replica, i));
        }
        struct ps_safetensors file = {.tensor = c.array, .n = c.n};  // as it is read
        c.file = &file;
        must(strategy->home->load(w.state, &c, 0, 8, 2, &e), &e);
        assert_string_equal(client.log, cases[k].log);
        assert_non_null(strstr(client.pulled, cases[k].pulled));
        c.file = NULL;
        wk_checkpoint_free(&c);
        end(&w);
    }
    document = model_text;
}

// The rule has been applied as often as what was found says: where others close rounds, or push, without this worker.
static void a_checkpoint_counts_what_it_finds(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "adam", "update: sync, replicas_to_aggregate: 1");
    train(&w, 0, BATCH);
    assert_int_equal(fetch(&w, 8, "get 6 ", &e), PS_OK);
    assert_int_equal(client.ahead, 7);
    end(&w);
    begin(&w, "adam", "update: async");
    train(&w, 0, BATCH);
    must(strategy->home->refresh(w.state, &e), &e);
    client.version += 5;
    assert_int_equal(fetch(&w, 0, "get 6 ", &e), PS_OK);
    const int64_t before = client.ahead;
    client.version += 5;
    assert_int_equal(fetch(&w, 0, "get 6 ", &e), PS_OK);
    assert_int_equal(client.ahead, before + 5);
    end(&w);
}

// After a signal the last step may be in no round: where all are in each, it is to be taken again; else others count
// the rounds. No step that is further behind is taken back.
static void a_checkpoint_after_a_signal_is_of_what_there_is(void **state)
{
    static const struct {
        const char *update;
        uint64_t found;
        bool undone;
        int ahead;
    } of[] = {{"update: sync", 2, false, 0},
              {"update: sync", 1, true, 0},
              {"update: sync", 0, false, -2},
              {"update: sync, replicas_to_aggregate: 1", 1, false, -1},
              {"update: sync, replicas_to_aggregate: 1", 4, false, 2}};
    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        bool undone = false;
        begin_world(state);
        begin(&w, "adam", of[k].update);
        train(&w, 0, BATCH);
        train(&w, 1, BATCH);
        client.found = of[k].found;
        must(strategy->home->salvage(w.state, &undone, &e), &e);
        assert_int_equal(undone, of[k].undone);
        assert_int_equal(fetch(&w, of[k].found, "get 6 ", &e), PS_OK);
        assert_int_equal(client.ahead, of[k].ahead);
        end(&w);
    }
}

// What this worker has given up of its last step is with the ps tasks: where others close its round after the weights
// were read, a checkpoint would have a step more than its position. They are read again, and that step counts.
static void a_round_that_closes_late_counts_once(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "adam", "update: sync");
    train(&w, 0, BATCH);
    train(&w, 1, BATCH);
    for (uint64_t found = 1; found <= 2; found++) {
        bool undone = false;
        client.found = found;
        must(strategy->home->salvage(w.state, &undone, &e), &e);
        assert_int_equal(undone, found == 1);
        assert_int_equal(fetch(&w, 2, "get 6 ", &e), found == 1 ? PS_ABORTED : PS_OK);
        if (found == 1)
            assert_string_equal(e.text, "others have closed round 2 since the weights were read");
    }
    assert_int_equal(client.ahead, 0);
    end(&w);
}

// After a signal, which finds what there is after round `found`. Returns whether the last step is taken back.
static bool salvage(struct worker *w, uint64_t found)
{
    struct ps_error e = {.code = PS_OK};
    bool undone = false;
    client.found = found;
    must(strategy->home->salvage(w->state, &undone, &e), &e);
    return undone;
}

// Salvages, and what is said of it on standard error.
static void salvage_and_hear(struct worker *w, char *said, size_t size)
{
    struct hearing heard = hearing_begin();
    salvage(w, client.found);
    hearing_end(&heard, said, size);
}

// A step that was cut may be in some of the weights: the warning names its round and the one before it. Where the round
// is just being closed they are read once more; where rounds close without all workers, nothing is wrong.
static void weights_of_two_rounds_are_named(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct worker w;
        char said[1024];
        begin_world(state);
        begin(&w, "sgd, learning_rate: 1", k < 2 ? "update: sync" : "update: sync, replicas_to_aggregate: 1");
        train(&w, 0, BATCH);
        client.found = 0;
        client.closing = k == 0 ? 1 : 2;
        salvage_and_hear(&w, said, sizeof said);
        const char *warning = strstr(said, "a step was cut: some of the weights are of round 0 and some of round 1");
        assert_int_equal(warning != NULL, k == 1);
        end(&w);
    }
}

// What a step waits for counts as that.
static void waits_for_weights_are_measured(void **state)
{
    struct wk_waits waits = {0};
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    w.env.waits = &waits;
    train(&w, 0, BATCH);
    client.late_ms = 20;
    train(&w, 1, BATCH);
    assert_true(atomic_load(&waits.ns[WK_WAIT_WEIGHTS]) >= 20 * PS_MS);
    assert_int_equal(waits.depth, 0);
    end(&w);
}

// Who waits, when a signal comes, for a round to which others have not pushed does not wait for long, and has its last
// step before it.
static void a_signal_ends_the_wait_for_others(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    bool undone = false;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    train(&w, 0, BATCH);
    train(&w, 1, BATCH);
    client.waits_for_others = true;
    stop = SIGTERM;
    const struct wk_work work = {.step = 2, .rows = BATCH};
    must(strategy->home->begin(w.state, &work, &e), &e);
    assert_int_equal(strategy->home->need(w.state, 0, &e), PS_CANCELLED);
    assert_string_equal(e.text, "stopped by SIGTERM while it waited for the others");
    client.found = 1;
    e = (struct ps_error){.code = PS_OK};
    must(strategy->home->salvage(w.state, &undone, &e), &e);
    assert_true(undone);
    const uint64_t step_ms = wk_psd_step_ns(w.state) / PS_MS;  // that it has measured, and waits for as well
    assert_in_range(client.waited_ms, 1, 750 + step_ms);       // less than others wait for it
    assert_true(client.cancelled > 0);
    end(&w);
}

// The other workers as their collective knows them, as in hybrid, at each look: the one that is gone, if any.
static struct {
    int looks, alive;  // looks, and how many of them find nothing
} others;

enum ps_code wk_collective_look(struct wk_collective *c, struct ps_error *e)
{
    assert_ptr_equal(c, &others);
    e->code = PS_OK;
    return others.looks++ < others.alive ? PS_OK : ps_fail(e, PS_ABORTED, "worker 1 (unix:w1) is gone: Socket closed");
}

// Nothing is heard of that from the ps tasks before they miss its heartbeats.
static void a_worker_that_is_gone_ends_the_wait(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    train(&w, 0, BATCH);
    w.env.collective = (struct wk_collective *)&others;
    others.looks = 0;
    others.alive = 2;
    client.waits_for_others = true;
    const struct wk_work work = {.step = 1, .rows = BATCH};
    must(strategy->home->begin(w.state, &work, &e), &e);
    assert_int_equal(strategy->home->need(w.state, 0, &e), PS_ABORTED);
    assert_string_equal(e.text, "worker 1 (unix:w1) is gone: Socket closed");
    assert_int_equal(others.looks, others.alive + 1);
    end(&w);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

// Before a worker leaves it waits for the step that the chief may be in. Signals that come meanwhile change nothing.
static void other_signals_do_not_end_the_wait(void **state)
{
    const struct sigaction heard = {.sa_handler = on_alarm};
    const struct itimerval soon = {.it_value = {.tv_usec = 50000}, .it_interval = {.tv_usec = 50000}}, never = {0};
    const struct ps_error why = {PS_CANCELLED, "stopped by SIGTERM"};
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    client.follows = true;
    stop = SIGTERM;
    alarms = 0;
    sigaction(SIGALRM, &heard, NULL);
    const uint64_t began = ps_now();
    setitimer(ITIMER_REAL, &soon, NULL);
    strategy->close(w.state, &why);
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_DFL);
    assert_true(ps_now() - began >= WK_SIGNAL_SECONDS * PS_SECOND);
    assert_true(alarms > 0);
    w.state = NULL;
    end(&w);
}

// Where the job has ended, the rest of a step is not computed, nor pushed.
static void a_step_ends_with_the_job(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    const size_t *order;
    const struct wk_work work = {.step = 0, .rows = BATCH};
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "update: sync");
    must(strategy->home->begin(w.state, &work, &e), &e);
    nn_replica_order(w.env.replica, &order);
    must(strategy->home->ready(w.state, order[0], &e), &e);
    client.log[0] = '\0';
    client.ended = true;
    assert_int_equal(strategy->home->ready(w.state, order[1], &e), PS_ABORTED);
    assert_string_equal(e.text, "ps task 0 has restarted");
    assert_string_equal(client.log, "");
    client.ended = false;
    end(&w);
}

static void a_period_ends_with_the_job(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5");
    train(&w, 0, BATCH);
    client.ended = true;
    assert_int_equal(strategy->home->begin(w.state, &(struct wk_work){.step = 1, .rows = BATCH}, &e), PS_ABORTED);
    assert_string_equal(e.text, "ps task 0 has restarted");
    client.ended = false;
    end(&w);
}

// The next round has the rate, or where it is closed the next that is possible; another change is waited for.
static void the_next_round_has_the_rate(void **state)
{
    static const struct {
        const char *update;
        int refused;
        const char *want;
    } of[] = {{"update: sync", 0, "learning_rate=0.5@2 "},
              {"update: sync", 2, "learning_rate=0.5@2 learning_rate=0.5@0 learning_rate=0.5@0 "},
              {"update: async", 1, "learning_rate=0.5@0 learning_rate=0.5@0 "}};
    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        const struct wk_home *home = strategy->home;
        begin(&w, "sgd, learning_rate: 1", of[k].update);
        train(&w, 0, BATCH);
        must(home->refresh(w.state, &e), &e);
        client.log[0] = 0;
        client.changes_refused = of[k].refused;
        must(home->tell_rate(w.state, &e), &e);  // none is set
        home->set_rate(w.state, 0.5);
        must(home->tell_rate(w.state, &e), &e);
        must(home->tell_rate(w.state, &e), &e);  // once is enough
        home->set_rate(w.state, 0.25);
        home->take_rate(w.state, true, 0.75);  // another one has told it
        must(home->tell_rate(w.state, &e), &e);
        assert_true(home->rate(w.state) == 0.75);
        assert_string_equal(client.log, of[k].want);
        end(&w);
    }
}

// What psctl has set, in sync up to the next round; but a rate that was reduced at the end of this epoch, and is not
// told yet, is newer. What has been loaded is set again.
static void what_was_set_by_hand_is_saved(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    struct wk_checkpoint c;
    const struct wk_home *home = strategy->home;
    (void)state;
    begin(&w, "sgd, learning_rate: 1, momentum: 0.5", "update: sync");
    train(&w, 0, BATCH);
    must(home->refresh(w.state, &e), &e);
    client.n_changes = 3;
    client.changed[0] = (psc_hyper_change){"learning_rate", 0.25, 2};
    client.changed[1] = (psc_hyper_change){"momentum", 0.75, 2};
    client.changed[2] = (psc_hyper_change){"momentum", 0.875, 9};
    save(&w, NULL, &c);
    assert_true(json_number_value(json_object_get(c.json, "learning_rate")) == 0.25);
    const json_t *changed = json_object_get(c.json, "changed");
    assert_int_equal(json_object_size(changed), 1);
    assert_true(json_number_value(json_object_get(changed, "momentum")) == 0.75);
    client.log[0] = 0;
    must(wk_psd_load_changes(w.state, &c, &e), &e);
    assert_string_equal(client.log, "momentum=0.75@0 ");
    wk_checkpoint_free(&c);
    home->set_rate(w.state, 0.125);
    save(&w, NULL, &c);
    assert_true(json_number_value(json_object_get(c.json, "learning_rate")) == 0.125);
    wk_checkpoint_free(&c);
    w.job->strategy = PS_STRATEGY_HYBRID;
    must(home->tell_rate(w.state, &e), &e);
    for (int by_hand = 0; by_hand < 2; by_hand++) {  // the tables' rate is that which a callback has told, or psctl's
        client.changed[0].value = by_hand ? 0.25 : 0.125;
        save(&w, NULL, &c);
        assert_int_equal(json_object_get(json_object_get(c.json, "changed"), "learning_rate") != NULL, by_hand);
        wk_checkpoint_free(&c);
    }
    end(&w);
}

// With an epoch's end, or as it comes, a worker takes the rate that psctl has set for its next step: callbacks multiply
// it. One that a callback has found since is newer.
static void a_rate_set_by_hand_is_heard(void **state)
{
    static const char *const rates[] = {"1", "{schedule: constant, initial: 1}"};
    for (size_t k = 0; k < 2; k++) {
        char optimizer[64];
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        const struct wk_home *home = strategy->home;
        begin_world(state);
        snprintf(optimizer, sizeof optimizer, "sgd, learning_rate: %s", rates[k]);
        client.n_changes = 2;
        client.changed[0] = (psc_hyper_change){"learning_rate", 0.25, 1};
        client.changed[1] = (psc_hyper_change){"learning_rate", 0.5, 3};
        begin(&w, optimizer, "update: sync");
        train(&w, 0, BATCH);
        assert_true(home->rate(w.state) == 0.25 && !home->follows_schedule(w.state));
        must(home->refresh(w.state, &e), &e);
        assert_true(home->rate(w.state) == 0.25);
        train(&w, 1, BATCH);
        must(home->refresh(w.state, &e), &e);
        assert_true(home->rate(w.state) == 0.5);
        home->set_rate(w.state, 0.125);
        must(home->refresh(w.state, &e), &e);
        assert_true(home->rate(w.state) == 0.125);
        end(&w);
    }
}

// Likewise the limit by which it clips; one that was named for a round waits for it.
static void a_limit_set_by_hand_is_heard(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    const struct wk_home *home = strategy->home;
    begin(&w, "sgd, learning_rate: 1", "update: async");
    train(&w, 0, BATCH);
    client.n_changes = 1;
    client.changed[0] = (psc_hyper_change){"clipnorm", 0.5, 1};
    must(home->refresh(w.state, &e), &e);
    train(&w, 1, BATCH);
    assert_true(client.value == 1);
    client.changed[0].round = 0;
    train(&w, 2, BATCH);
    assert_true(client.value == 1);
    must(home->refresh(w.state, &e), &e);
    train(&w, 3, BATCH);
    assert_true(client.value == 0.5F);
    client.n_changes = 2;
    client.changed[0].value = 0;
    client.changed[1] = (psc_hyper_change){"global_clipnorm", 0.3535533906, 0};
    must(home->refresh(w.state, &e), &e);
    train(&w, 4, BATCH);
    assert_true(fabs(client.value - 0.25) < 1e-6);
    end(&w);
    begin_world(state);
    client.n_changes = 1;
    client.changed[0] = (psc_hyper_change){"clipnorm", 0.5, 0};
    begin(&w, "sgd, learning_rate: 1", "update: ssp, staleness: 1");
    train(&w, 0, BATCH);
    assert_true(client.value == 0.5F);
    end(&w);
    begin_local_steps(state);
    begin(&w, "sgd, learning_rate: 1",
          "name: local_steps, update: async, local_steps: 1, outer_optimizer: {name: sgd, learning_rate: 1}");
    for (uint64_t k = 0; k < 2; k++) {
        train_work(&w, &(struct wk_work){.step = k, .rows = BATCH, .ends_period = true});
        assert_true(client.value == (k == 0 ? 1 : 0.5F));
        client.n_changes = 2;
        client.changed[0] = (psc_hyper_change){"clipnorm", 0.5, 0};
        client.changed[1] = (psc_hyper_change){"learning_rate", 0.25, 0};  // of the outer optimizer
        must(strategy->home->refresh(w.state, &e), &e);
        assert_true(strategy->home->rate(w.state) == 1);
    }
    end(&w);
}

// The rate that is set rules from the next round on, also of a training that goes on; until then the warm-up does.
static void a_set_rate_ends_the_warm_up(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    struct wk_checkpoint c;
    const struct wk_home *home = strategy->home;
    (void)state;
    begin(&w, "sgd, learning_rate: {schedule: constant, initial: 1, warmup_steps: 2, warmup_initial: 0.5}",
          "update: sync");
    client.version = 2;
    train(&w, 0, BATCH);
    must(home->refresh(w.state, &e), &e);
    assert_true(home->rate(w.state) == 0.75);
    home->set_rate(w.state, 0.75);
    client.log[0] = 0;
    must(home->tell_rate(w.state, &e), &e);  // it is what the schedule says
    save(&w, NULL, &c);
    assert_false(json_is_true(json_object_get(c.json, "learning_rate_is_set")));
    wk_checkpoint_free(&c);
    client.version = 3;
    train(&w, 1, BATCH);
    must(home->refresh(w.state, &e), &e);
    assert_true(home->rate(w.state) == 1);
    home->set_rate(w.state, 0.25);
    client.log[0] = 0;
    must(home->tell_rate(w.state, &e), &e);
    assert_string_equal(client.log, "learning_rate=0.25@3 ");
    assert_true(home->rate(w.state) == 0.25);
    save(&w, NULL, &c);
    assert_true(json_number_value(json_object_get(c.json, "learning_rate")) == 0.25);
    assert_true(json_is_true(json_object_get(c.json, "learning_rate_is_set")));
    wk_checkpoint_free(&c);
    home->set_rate(w.state, 0.125);
    home->take_rate(w.state, false, 0);  // the leader has set none
    client.log[0] = 0;
    must(home->tell_rate(w.state, &e), &e);
    assert_string_equal(client.log, "");
    assert_true(home->follows_schedule(w.state) && home->rate(w.state) == 1);
    end(&w);
}

// After a signal the chief reads all weights, once nothing is under way that would write to them.
// What all have pushed ends first.
// Where the chief was killed just before, who comes in its place; not where it has left, as then it has done that.
static void the_chief_salvages(void **state)
{
    static const struct {
        bool follows;
        int after;  // it is asked so often
        bool heir;
        uint64_t silence_ms;
        bool writes;
    } chiefs[] = {
        {false, 0, false, 0, true},
        {true, 0, false, 0, false},
        {true, 5, true, 1000000, true},
        {true, 5, false, 1000000, false},
    };
    (void)state;
    for (size_t k = 0; k < sizeof chiefs / sizeof *chiefs; k++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        begin(&w, "sgd, learning_rate: 1", "update: async");
        train(&w, 0, BATCH);
        client.log[0] = 0;
        client.follows = chiefs[k].follows;
        client.chief_after = chiefs[k].after;
        client.heir = chiefs[k].heir;
        client.chief_silence = chiefs[k].silence_ms;
        bool undone = false;
        const bool writes = strategy->home->salvage(w.state, &undone, &e) == PS_OK;
        if (!writes)
            assert_int_equal(e.code, PS_NOT_FOUND);
        assert_int_equal(writes, chiefs[k].writes);
        assert_string_equal(client.log, writes ? "wait get 4 wait " : "wait ");
        end(&w);
    }
}

// psd applies no constraints: no job begins.
static void constraints_are_refused(void **state)
{
    struct worker w;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    document = constrained_text;
    assert_int_equal(open_worker(&w, "sgd, learning_rate: 1", "update: async", &e), PS_FAILED_PRECONDITION);
    assert_string_equal(e.text, "variable 'net/b/bias' has the constraint NonNeg, which parameter_server does not "
                                "apply: expected strategy one_device, mirrored, central_storage or "
                                "multi_worker_mirrored");
    assert_string_equal(client.log, "");
    document = model_text;
    end(&w);
}

// ---- local_steps ----------------------------------------------------------------------------------------------------

// An epoch of 25 batches, three at a time, is 8 periods of 4.
static void periods_are_exchanged(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 3");
    client.shares[0] = (psc_share){.count = 16, .stride = 16, .end = 16, .steps = 1};
    client.shares[1] = (psc_share){.first = 16, .count = 16, .stride = 16, .end = 32, .steps = 1, .round = 1};
    train_epoch(&w, 0);
    assert_string_equal(client.log, "lease pull 4 wait end end end both bias kernel of 16 wait end "
                                    "lease end end end both bias kernel of 16 wait end lease ");
    end(&w);
}

// A range in async is a period; one that came back may be shorter.
static void ranges_are_periods(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, update: async, local_steps: 5");
    client.shares[0] = range(0, 20);
    client.shares[1] = range(20, 6);
    train_epoch(&w, 0);
    assert_string_equal(client.log, "lease pull 4 wait end end ahead end end both bias kernel of 20 wait end "
                                    "ahead end both bias kernel of 6 wait end lease ");
    end(&w);
}

// The steps of a period, but for the last ones of the job.
static void train_period(struct worker *w, uint64_t first, uint64_t n, bool waits)
{
    enum { PERIOD = 5 };
    for (uint64_t i = 0; i < n; i++)
        train_work(w, &(struct wk_work){
                          .step = first + i, .rows = BATCH, .ends_period = i + 1 == PERIOD, .last_period = waits});
}

// Who waits for the others at the end of a period when a signal comes gives that up before they leave. Where they close
// the round after all, the period counts; until then nothing is kept that has it.
static void a_signal_ends_the_wait_of_a_period(void **state)
{
    struct worker w;
    struct wk_checkpoint c;
    struct ps_error e = {.code = PS_OK};
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5");
    train_period(&w, 0, 5, true);
    client.waits_for_others = true;
    stop = SIGTERM;
    alarm(60);  // it would wait for ever
    train_period(&w, 5, 5, true);
    alarm(0);
    assert_int_equal(strategy->home->refresh(w.state, &e), PS_CANCELLED);
    wk_checkpoint_init(&c, NULL);
    assert_int_equal(strategy->home->save(w.state, &c, &e), PS_CANCELLED);
    wk_checkpoint_free(&c);
    assert_true(salvage(&w, 1));
    assert_true(client.cancelled > 0);
    assert_false(salvage(&w, 2));
    end(&w);
}

static int64_t iterations_ahead(struct worker *w)
{
    struct wk_checkpoint c;
    save(w, NULL, &c);
    const int64_t ahead = json_integer_value(json_object_get(c.json, "iterations_ahead"));
    wk_checkpoint_free(&c);
    return ahead;
}

// Its gradients are in the slots that are kept: three and three, where the position is after five numbers and two.
static void a_period_that_is_taken_back_keeps_its_count(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5");
    for (uint64_t k = 0; k < 2; k++) {
        client.waits_for_others = k == 1;
        stop = k == 1 ? SIGTERM : 0;
        for (uint64_t i = 0; i < 3; i++)
            train_work(&w, &(struct wk_work){.step = 5 * k + i,
                                             .rows = BATCH,
                                             .ends_period = i == 2,
                                             .skipped = i == 2 ? 2 : 0,
                                             .last_period = k == 1});
    }
    assert_true(salvage(&w, 1));
    assert_int_equal(7 + iterations_ahead(&w), 6);
    end(&w);
}

// Where the others end the job, the period does not count here, and nothing is to be taken back.
static void a_period_that_others_end_does_not_count(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5");
    train_period(&w, 0, 5, true);
    client.others_end = true;
    stop = SIGTERM;
    train_period(&w, 5, 5, true);
    client.others_end = false;
    assert_false(salvage(&w, 1));
    end(&w);
}

// With a delay a period is under way when the next one begins: it is taken back where the others have not closed it.
static void a_period_under_way_is_taken_back(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5, fragment_sync_delay: 3");
    train_period(&w, 0, 5, false);
    client.waits_for_others = true;
    train_period(&w, 5, 2, false);
    stop = SIGTERM;
    alarm(60);
    assert_true(salvage(&w, 0));
    alarm(0);
    assert_false(salvage(&w, 1));
    end(&w);
}

// The outer optimizer's slots are of the round of the weights, or there is no checkpoint.
static void outer_slots_are_of_the_weights_round(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5");
    train_period(&w, 0, 5, true);
    stop = SIGTERM;
    assert_false(salvage(&w, 1));
    for (uint64_t found = 1; found <= 2; found++) {
        enum { MOST = 2 * N_PARAMS };
        struct wk_checkpoint c;
        struct ps_error e = {.code = PS_OK};
        float memory[MOST];
        save(&w, NULL, &c);
        assert_true(c.n > N_PARAMS && c.n <= MOST);
        for (size_t i = 0; i < c.n; i++)
            c.array[i].data = &memory[i];
        client.found = found;
        c.fetch->begin(c.fetch, &c);
        assert_int_equal(c.fetch->wait(c.fetch, &e), found == 1 ? PS_OK : PS_ABORTED);
        wk_checkpoint_free(&c);
    }
    end(&w);
}

// In fragments: each leaves in its time, but in the last period of a share all at the end.
static void fragments_leave_one_by_one(void **state)
{
    struct worker w;
    (void)state;
    begin(&w, "sgd, learning_rate: 1", "name: local_steps, local_steps: 5, fragments: 2, fragment_sync_delay: 1");
    client.shares[0] = (psc_share){.count = 20, .stride = 20, .end = 40, .steps = 2};
    train_epoch(&w, 0);
    assert_string_equal(client.log, "lease pull 4 wait end end both bias of 12 end wait end both kernel of 20 end "
                                    "wait end end end end both bias of 28 both kernel of 20 wait wait end lease ");
    end(&w);
}

// All wait for each other between two shares.
static void shares_are_of_periods(void **state)
{
    static const struct {
        const char *settings;
        uint32_t rounds;
    } of[] = {{"name: local_steps", 1},
              {"name: local_steps, fragments: 2", 8},
              {"name: local_steps, fragment_sync_delay: 2", 8},
              {"name: local_steps, replicas_to_aggregate: 1", 0},
              {"name: local_steps, update: async", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct worker w;
        begin(&w, "sgd", of[i].settings);
        assert_int_equal(client.share_rounds, of[i].rounds);
        end(&w);
    }
}

// A worker that comes late has new slots: its first step of adam is as long as anyone's first.
static void late_slots_are_new(void **state)
{
    for (uint64_t ahead = 0; ahead <= 5000; ahead += 5000) {  // of a checkpoint that the others have gone on from
        struct worker w;
        begin_local_steps(state);
        client.late = true;
        begin(&w, "adam, learning_rate: 0.01", "name: local_steps, local_steps: 5");
        ((struct wk_parameter_server_state *)w.state)->ahead = ahead;
        const float *weight = nn_replica_param(w.env.replica, 0), before = *weight;
        train(&w, 4000, BATCH);
        assert_true(before - *weight > 0.0099f && before - *weight < 0.0101f);
        end(&w);
    }
}

static void no_memory_for_local_steps(void **state)
{
    enum { ARRAYS = 2 * 2 + 3 * 2 };  // slots of adam, and what is begun, pushed and left, of two variables
    (void)state;
    for (size_t n = 0; n <= ARRAYS; n++) {
        struct worker w;
        struct ps_error e = {.code = PS_OK};
        allocations_left = n;
        const enum ps_code code =
            open_worker(&w, "adam", "name: local_steps, local_steps: 5, fragment_sync_delay: 1", &e);
        assert_int_equal(code, n < ARRAYS ? PS_RESOURCE_EXHAUSTED : PS_OK);
        assert_true(code == PS_OK || strstr(e.text, "no memory for"));
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(frozen_layers_stay, begin_world),
        cmocka_unit_test_setup(buckets_leave_as_they_become_ready, begin_world),
        cmocka_unit_test_setup(rounds_that_run_apart, begin_world),
        cmocka_unit_test_setup(the_late_count_on, begin_world),
        cmocka_unit_test_setup(the_next_chief_counts_on, begin_world),
        cmocka_unit_test_setup(the_next_chief_counts_on_ahead, begin_world),
        cmocka_unit_test_setup(the_next_chief_writes_beyond_the_furthest, begin_world),
        cmocka_unit_test_setup(the_longest_there_writes_the_results, begin_world),
        cmocka_unit_test_setup(ranges_follow_each_other, begin_world),
        cmocka_unit_test_setup(the_mode_changes, begin_world),
        cmocka_unit_test_setup(a_draining_worker_takes_no_more, begin_world),
        cmocka_unit_test_setup(groups_have_their_size, begin_world),
        cmocka_unit_test_setup(a_schedule_is_declared, begin_world),
        cmocka_unit_test_setup(local_steps_follow_the_schedule, begin_world),
        cmocka_unit_test_setup(a_worker_clips_its_gradients, begin_world),
        cmocka_unit_test_setup(resumed_runs_draw_anew, begin_world),
        cmocka_unit_test_setup(what_is_loaded_is_pulled_once, begin_world),
        cmocka_unit_test_setup(what_was_set_by_hand_is_saved, begin_world),
        cmocka_unit_test_setup(a_rate_set_by_hand_is_heard, begin_world),
        cmocka_unit_test_setup(a_limit_set_by_hand_is_heard, begin_world),
        cmocka_unit_test_setup(a_set_rate_ends_the_warm_up, begin_world),
        cmocka_unit_test_setup(worker_0_asks_for_the_last_version, begin_world),
        cmocka_unit_test_setup(no_memory_for_sums, begin_world),
        cmocka_unit_test_setup(the_next_round_has_the_rate, begin_world),
        cmocka_unit_test_setup(the_chief_salvages, begin_world),
        cmocka_unit_test_setup(waits_for_weights_are_measured, begin_world),
        cmocka_unit_test_setup(a_signal_ends_the_wait_for_others, begin_world),
        cmocka_unit_test_setup(a_worker_that_is_gone_ends_the_wait, begin_world),
        cmocka_unit_test_setup(other_signals_do_not_end_the_wait, begin_world),
        cmocka_unit_test_setup(a_step_ends_with_the_job, begin_world),
        cmocka_unit_test_setup(constraints_are_refused, begin_world),
        cmocka_unit_test_setup(ends_with_averages, begin_world),
        cmocka_unit_test_setup(a_checkpoint_is_fetched, begin_world),
        cmocka_unit_test_setup(a_sharded_checkpoint_leaves_them_where_they_are, begin_world),
        cmocka_unit_test_setup(shards_without_room_are_written_alone, begin_world),
        cmocka_unit_test_setup(shards_are_loaded_by_those_who_have_written_them, begin_world),
        cmocka_unit_test_setup(a_checkpoint_counts_what_it_finds, begin_world),
        cmocka_unit_test_setup(a_checkpoint_after_a_signal_is_of_what_there_is, begin_world),
        cmocka_unit_test_setup(a_round_that_closes_late_counts_once, begin_world),
        cmocka_unit_test_setup(weights_of_two_rounds_are_named, begin_world),
        cmocka_unit_test_setup(periods_are_exchanged, begin_local_steps),
        cmocka_unit_test_setup(ranges_are_periods, begin_local_steps),
        cmocka_unit_test_setup(fragments_leave_one_by_one, begin_local_steps),
        cmocka_unit_test_setup(a_signal_ends_the_wait_of_a_period, begin_local_steps),
        cmocka_unit_test_setup(a_period_that_is_taken_back_keeps_its_count, begin_local_steps),
        cmocka_unit_test_setup(a_period_that_others_end_does_not_count, begin_local_steps),
        cmocka_unit_test_setup(a_period_under_way_is_taken_back, begin_local_steps),
        cmocka_unit_test_setup(outer_slots_are_of_the_weights_round, begin_local_steps),
        cmocka_unit_test_setup(shares_are_of_periods, begin_local_steps),
        cmocka_unit_test_setup(a_period_ends_with_the_job, begin_local_steps),
        cmocka_unit_test_setup(late_slots_are_new, begin_local_steps),
        cmocka_unit_test_setup(no_memory_for_local_steps, begin_local_steps),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
