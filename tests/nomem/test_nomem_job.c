// SPDX-License-Identifier: Apache-2.0
//
// The Nth allocation of a whole job fails, alone or with those that follow, for every N, in a client or in a psd: two
// ps tasks and two workers on simulated time and network. Every worker finishes, or has an error that says why; what
// was acknowledged took effect once, and nothing twice; nothing hangs and nothing leaks.
//
// How much of that is tried: see nomem_rows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "libclient/client.h"
#include "psd/service/service.h"
#include "tests/nomem/nomem.h"
#include "tests/sim/sim.h"

enum { PS = 2, WORKERS = 2, STEPS = 3, SLOTS = WORKERS * STEPS, BIG = 600 };
#define LIMIT (300 * PS_SECOND)

static const uint64_t slots_shape[] = {SLOTS}, big_shape[] = {BIG}, words_shape[] = {2};
static const psc_variable variables[] = {
    {.name = "slots", .dtype = PSC_FLOAT32, .shape = slots_shape, .rank = 1, .trainable = true},
    {.name = "big", .dtype = PSC_FLOAT32, .shape = big_shape, .rank = 1, .trainable = true},
    {.name = "words", .dtype = PSC_STRING, .shape = words_shape, .rank = 1},
};

enum phase { JOIN, DECLARE, PUT, START, LEASE, PULL, PUSH, CLOCK, REDUCE, GET, END, LEAVE, DONE };

struct worker {
    struct sim *sim;
    uint32_t rank;
    psc_update update;
    struct psc_client *client;  // NULL: there was no memory for it
    enum phase phase;
    uint64_t step, effective;  // steps; those that are known to have taken effect
    struct ps_error error;
    float slots[SLOTS], big[BIG];
    psc_string words[2];
    double sum;
    psc_share share;
};

// ---- a worker -----------------------------------------------------------------------------------------------------

static void go(struct worker *w);

static void on_left(void *arg, const struct ps_error *e)
{
    (void)e;
    ((struct worker *)arg)->phase = DONE;
}

static void give_up(struct worker *w, enum ps_code code, const char *text)
{
    w->error.code = code;
    snprintf(w->error.text, sizeof w->error.text, "phase %d: %.400s", (int)w->phase, text);
    w->phase = LEAVE;
    psc__leave(w->client, text, on_left, w);
}

static void on_done(void *arg, const struct ps_error *e)
{
    struct worker *w = arg;
    if (e->code) {
        give_up(w, e->code, e->text);
        return;
    }
    switch (w->phase) {
    case PULL:  // sync: its round has closed
        w->effective = w->step;
        w->phase = w->step < STEPS ? PUSH : REDUCE;
        break;
    case PUSH:
        w->effective += w->update != PSC_SYNC;
        w->phase = CLOCK;
        break;
    case CLOCK:
        w->step++;
        w->phase = PULL;
        break;
    default:
        w->phase++;
    }
    go(w);
}

static void on_result(void *arg, const psc_result *r)
{
    struct ps_error e = {.code = (enum ps_code)r->error.code};
    snprintf(e.text, sizeof e.text, "%s", r->error.text);
    on_done(arg, &e);
}

static void pass_by(struct worker *w)
{
    on_done(w, &(struct ps_error){.code = PS_OK});
}

// Step by step in each of the ways there are.
static void push(struct worker *w, const psc_tensor *tensors)
{
    const bool sync = w->update == PSC_SYNC, atomic = !sync && w->step == 2;
    const psc_push_options options = {.round = sync ? w->step + 1 : 0, .examples = 1, .atomic = atomic};
    for (uint64_t i = 0; i < SLOTS; i++)
        w->slots[i] = i == w->rank * STEPS + w->step ? -1 : 0;
    if (w->step == 1)
        psc_push_pull(w->client, tensors, tensors, 2, &options, on_result, w, NULL);
    else
        psc_push(w->client, tensors, 2, &options, on_result, w, NULL);
}

static void declare(struct worker *w)
{
    static const psc_hyper rate = {"learning_rate", 1};
    static const psc_declaration sgd = {.variables = variables,
                                        .n_variables = 3,
                                        .rule = "sgd",
                                        .hypers = &rate,
                                        .n_hypers = 1,
                                        .partitioner = "fixed:2"};
    if (w->rank == 0)
        psc__declare(w->client, &sgd, NULL, on_done, w);
    else
        psc__attach(w->client, on_done, w);
}

static void put(struct worker *w)
{
    static char text[] = "a word";
    psc_string words[] = {{text, 3}, {text, 6}};
    psc_tensor t = {.name = "words", .data = words, .count = 2, .dtype = PSC_STRING};
    psc_put(w->client, &t, 1, on_result, w, NULL);
}

static void go(struct worker *w)
{
    struct psc_client *c = w->client;
    psc_tensor t[] = {{.name = "slots", .data = w->slots, .count = SLOTS, .dtype = PSC_FLOAT32},
                      {.name = "big", .data = w->big, .count = BIG, .dtype = PSC_FLOAT32}};
    psc_tensor words = {.name = "words", .data = w->words, .count = 2, .dtype = PSC_STRING};
    if (w->phase == JOIN)
        psc__join(c, on_done, w);
    else if (w->phase == DECLARE)
        declare(w);
    else if (w->phase == PUT && w->rank == 0)
        put(w);
    else if (w->phase == START)
        psc__barrier(c, "start", on_done, w);
    else if (w->phase == LEASE)
        psc__lease(c, 0, 16, 8, 0, &w->share, on_done, w);
    else if (w->phase == PULL)
        psc_pull(c, t, 2, w->update == PSC_SYNC ? w->step : 0, on_result, w, NULL);
    else if (w->phase == PUSH)
        push(w, t);
    else if (w->phase == CLOCK && w->update == PSC_SSP)
        psc__clock(c, w->step + 1, true, NULL, NULL, on_done, w);
    else if (w->phase == REDUCE)
        psc__reduce(c, "loss", PSC_MEAN, PSC_FLOAT64, &w->sum, 1, NULL, on_done, w);
    else if (w->phase == GET)
        psc_get(c, &words, 1, on_result, w, NULL);
    else if (w->phase == END)
        psc__barrier(c, "end", on_done, w);
    else if (w->phase == LEAVE)
        psc__leave(c, NULL, on_left, w);
    else
        pass_by(w);
}

static void start(struct worker *w, struct sim *sim, uint32_t rank, psc_update update)
{
    static const char *const addresses[PS] = {"a:1", "b:2"};
    const psc_options options = {.job = "job",
                                 .rank = (int)rank,
                                 .workers = WORKERS,
                                 .min_workers = 1,
                                 .update = update,
                                 .staleness = update == PSC_SSP,
                                 .timeout_ms = 20000,
                                 .join_within_ms = 5000};
    struct psc_world world = sim_world(sim);
    psc_cluster *cluster = NULL;
    *w = (struct worker){.sim = sim, .rank = rank, .update = update, .phase = DONE};
    psc_error e;
    w->error.code = (enum ps_code)psc_cluster_create(addresses, PS, &cluster, &e);
    if (w->error.code)
        snprintf(w->error.text, sizeof w->error.text, "%s", e.text);
    else
        psc__client_create(cluster, &options, &world, &w->client, &w->error);
    psc_cluster_free(cluster);
    if (!w->client)
        return;
    w->phase = JOIN;
    go(w);
}

// ---- what has become of it ----------------------------------------------------------------------------------------

static bool all_done(void *arg)
{
    const struct worker *w = arg;
    return w[0].phase == DONE && w[1].phase == DONE;
}

// Slots as they are on the ps tasks, which have taken in what was to be added: 1, or where it was a mean, a half.
static void read_slots(const struct sim *sim, float *slots)
{
    memset(slots, 0, SLOTS * sizeof *slots);
    for (uint32_t task = 0; task < PS; task++) {
        const struct psd_job *job = sim_core((struct sim *)sim, task)->table.newest;
        const struct psd_variable *v = job ? psd_job_variable(job, "slots") : NULL;
        for (uint32_t i = 0; v && i < v->n_partitions; i++) {
            const struct psd_partition *p = &job->partitions[v->first_partition + i];
            if (p->blocks)
                psd_page_unref(psd_block_pin(&p->blocks[0]));  // which fills one that is blank
            if (p->blocks)
                memcpy(slots + p->first, p->blocks[0].page->data, p->count * sizeof *slots);
        }
    }
}

static void check_slots(const struct sim *sim, const struct worker *workers)
{
    float slots[SLOTS];
    read_slots(sim, slots);
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct worker *w = &workers[i / STEPS];
        bool whole = slots[i] == 1, half = w->update == PSC_SYNC && slots[i] == 0.5f;
        if (i % STEPS < w->effective ? !whole && !half : !whole && !half && slots[i] != 0)
            fail_msg("slot %" PRIu32 " is %g, and %" PRIu64 " steps of worker %" PRIu32 " were acknowledged", i,
                     (double)slots[i], w->effective, i / STEPS);
    }
}

// Who fails says why: no memory, or that another one failed for that.
static void check_errors(const struct worker *w, uint64_t nth)
{
    bool reported = false;
    for (uint32_t i = 0; i < WORKERS; i++)
        reported |= w[i].error.code == PS_RESOURCE_EXHAUSTED && strstr(w[i].error.text, "memory");
    for (uint32_t i = 0; i < WORKERS; i++) {
        enum ps_code code = w[i].error.code;
        // ALREADY_EXISTS: it came when the job had failed.
        bool follows = reported && (code == PS_ABORTED || code == PS_DEADLINE_EXCEEDED ||
                                    code == PS_RESOURCE_EXHAUSTED || code == PS_ALREADY_EXISTS);
        if (code != PS_OK && (!follows || nomem_failed() == 0))
            fail_msg("allocation %" PRIu64 ": worker %" PRIu32 ": %s: %s", nth, i, ps_code_name(code), w[i].error.text);
    }
}

// ---- sweeps -------------------------------------------------------------------------------------------------------

static const struct sim_faults calm = {.delay = 2 * PS_MS}, rough = {.cut = 0.05, .delay = 5 * PS_MS};

static uint64_t live(psc_update update, const struct sim_faults *faults, uint64_t nth, uint64_t k)
{
    struct worker workers[WORKERS];
    nomem_mark();
    struct sim *sim = sim_create(7, PS, faults, 64 << 20);
    nomem_fail(nth, k);
    nomem_window(true);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        start(&workers[rank], sim, rank, update);
    bool over = sim_run(sim, all_done, workers, sim_now(sim) + LIMIT);
    nomem_window(false);
    if (!over)
        fail_msg("allocation %" PRIu64 ", and %" PRIu64 " after it: phases %d and %d for ever", nth, k - 1,
                 (int)workers[0].phase, (int)workers[1].phase);
    check_errors(workers, nth);
    check_slots(sim, workers);
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        if (workers[rank].phase == DONE && workers[rank].error.code == PS_OK)
            assert_int_equal(workers[rank].effective, STEPS);
        if (workers[rank].client)
            psc__client_free(workers[rank].client);
        psc_strings_free(workers[rank].words, 2);
    }
    sim_destroy(sim);
    if (nomem_live(true))
        fail_msg("allocation %" PRIu64 ", and %" PRIu64 " after it: leaked", nth, k - 1);
    return nomem_count();
}

static void sweep(psc_update update, const struct sim_faults *faults)
{
    const uint64_t *rows;
    const size_t n_rows = nomem_rows(&rows);
    uint64_t n = live(update, faults, 0, 0);
    assert_true(n > 500);
    for (size_t row = 0; row < n_rows; row++)
        for (uint64_t i = 0; i < n; i += nomem_stride())
            live(update, faults, i, rows[row]);
}

#define SWEEP(name, update, faults)       \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        sweep(update, faults);            \
    }

SWEEP(async, PSC_ASYNC, &calm)
SWEEP(sync, PSC_SYNC, &calm)
SWEEP(ssp, PSC_SSP, &calm)
SWEEP(rough_async, PSC_ASYNC, &rough)
SWEEP(rough_sync, PSC_SYNC, &rough)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async),       cmocka_unit_test(test_sync),       cmocka_unit_test(test_ssp),
        cmocka_unit_test(test_rough_async), cmocka_unit_test(test_rough_sync),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
