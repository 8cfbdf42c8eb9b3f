// SPDX-License-Identifier: Apache-2.0
//
// Clusters under every fault at once, on simulated time: messages lost, late, twice, overtaking each other, connections
// cut, workers killed, stopped and back as later incarnations, psds without a processor. At the end, for each seed:
//
//   - a push that was acknowledged is there once, in every partition; one that was not, once or not at all;
//   - an epoch has one mode for all; where the next one has another:
//   - sync: a round of a partition divides by the examples of those who are in it, and by nothing else; nobody who is a
//     member is left out; every batch of an epoch counts once;
//   - async, ssp: every range of an epoch is done once;
//   - ssp: nobody is let go more than `staleness` steps ahead of the slowest, as counted here;
//   - readers see whole atomic updates, values and versions that only grow; a read of several messages, which has to
//     begin again where memory is short, is of one instant;
//   - a hyperparameter changes in the same round in all partitions;
//   - of the run that a job replaces nothing is found in the next one;
//   - once the faults have stopped, every wait ends: the workers are through within a minute, and then no call is parked.
//
// Which faults and features a trial has follows from its seed: tests/sim/features.h. Which calls have been made with
// which options is printed at the end, and compared with a list: tests/sim/coverage.h.
//
// SIM_SEEDS (default 500) says how many seeds are run, SIM_SEED which one is the first, SIM_OFF what is left out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/sometimes.h"
#include "libclient/call.h"
#include "psd/control/state.h"
#include "psd/service/service.h"
#include "tests/sim/coverage.h"
#include "tests/sim/long_read.h"
#include "tests/sim/trainer.h"

#define LIMIT (300 * PS_SECOND)
#define CALM_LIMIT (60 * PS_SECOND)  // for what waits when the faults stop
#define M(name) PARAMSERVER__V1__METHOD__##name

static struct sim_faults faults_of(uint32_t features)
{
    struct sim_faults f = {.delay = 5 * PS_MS};
    f.cut = sim_feature_on(features, SIM_CUT) ? 0.05 : 0;
    f.repeat = sim_feature_on(features, SIM_REPEAT) ? 0.3 : 0;
    f.lose = sim_feature_on(features, SIM_LOSE) ? 0.05 : 0;
    // Later than a worker's death is noticed, so that messages of a run arrive in the next one.
    if (sim_feature_on(features, SIM_LATE))
        f.late = (sim_feature_on(features, SIM_REPLACE) ? 5 : 3) * PS_SECOND;
    return f;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *n = getenv(name);
    return n ? strtoull(n, NULL, 10) : otherwise;
}

// ---- ssp, counted by what the control task is asked and answers ---------------------------------------------------

// A worker's steps, and whether it waits for something else than the clock. A life that comes, or goes on after it
// waited, is level with the slowest.
struct tally {
    uint64_t incarnation;
    uint64_t clock, steps;
    bool starts;          // its steps so far were not ssp, and do not count
    uint32_t leases;      // under way
    uint64_t meets, met;  // sequences of the last collective entered, and passed
};

struct ssp {
    struct trial *trial;
    struct tally tallies[TRAINERS];
    bool second;       // what is here is of the second run
    uint64_t aligned;  // epochs whose end has made all level
    int mode;          // as is another mode, where it has been met here
    uint64_t grants, greatest;
};

// What is remembered of a request until its answer.
struct asked {
    struct tally *tally;
    uint64_t incarnation, sequence, epoch;
    uint64_t at;  // the event; answered in a later one, it has waited
    bool wait, ahead;
};

static const struct psd_control *control_of(const struct trial *t)
{
    const struct psd_job *job = psd_job_lookup(&sim_core(t->sim, 0)->table, "job");
    return job ? job->control : NULL;
}

static bool counts(const struct ssp *s, uint32_t rank)
{
    const struct psd_member *m = &control_of(s->trial)->members[rank];
    const struct tally *y = &s->tallies[rank];
    return psd_is_expected(m) || (psd_is_live(m) && !y->leases && y->meets <= y->met);
}

static uint64_t slowest_but(const struct ssp *s, const struct tally *but)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < TRAINERS; i++)
        if (&s->tallies[i] != but && counts(s, i) && s->tallies[i].clock < least)
            least = s->tallies[i].clock;
    return least;
}

static uint64_t greatest_live(const struct ssp *s)
{
    uint64_t greatest = 0;
    for (uint32_t i = 0; i < TRAINERS; i++)
        if (psd_is_live(&control_of(s->trial)->members[i]) && s->tallies[i].clock > greatest)
            greatest = s->tallies[i].clock;
    return greatest;
}

// A worker that comes, or goes on after it waited, is level with the slowest of those who count then. Who these are
// depends on the order in which psd wakes those who waited together, which is not seen from outside: so psd's clock is
// taken, but not one beyond everybody's.
static void level(const struct ssp *s, struct tally *y)
{
    uint64_t there = control_of(s->trial)->members[y - s->tallies].clock, greatest = greatest_live(s);
    if (y->clock < there)
        y->clock = there < greatest ? there : greatest;
}

static void align(struct ssp *s)
{
    const uint64_t greatest = greatest_live(s);
    for (uint32_t i = 0; i < TRAINERS; i++)
        if (psd_is_live(&control_of(s->trial)->members[i]))
            s->tallies[i].clock = greatest;
}

static const ProtobufCMessageDescriptor *type_of(int method)
{
    switch (method) {
    case M(JOIN):
        return &paramserver__v1__join_request__descriptor;
    case M(LEASE):
        return &paramserver__v1__lease_request__descriptor;
    case M(BARRIER):
        return &paramserver__v1__barrier_request__descriptor;
    case M(REDUCE):
        return &paramserver__v1__reduce_request__descriptor;
    case M(CLOCK):
        return &paramserver__v1__clock_request__descriptor;
    default:
        return NULL;
    }
}

static bool is_current(const struct ssp *s, const struct asked *a)
{
    const struct psd_control *c = control_of(s->trial);
    return c && psd_is_live(&c->members[a->tally - s->tallies]) &&
           c->members[a->tally - s->tallies].incarnation == a->incarnation && a->tally->incarnation == a->incarnation;
}

static void see_request(struct ssp *s, const struct sim_seen *seen)
{
    const ProtobufCMessageDescriptor *type = type_of(seen->method);
    struct ps_slices payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    if (!type || ps_msg_unpack(type, seen->message, &m, &payload, NULL))
        return;
    const Paramserver__V1__Caller *caller = *(Paramserver__V1__Caller *const *)((char *)m + type->fields[0].offset);
    struct asked *a = ps_alloc(sizeof *a);
    *a = (struct asked){&s->tallies[caller->worker - 1],
                        caller->incarnation,
                        caller->sequence,
                        0,
                        sim_events(s->trial->sim),
                        false,
                        false};
    if (is_current(s, a) && seen->method == M(CLOCK)) {
        const Paramserver__V1__ClockRequest *r = (const Paramserver__V1__ClockRequest *)m;
        a->wait = r->wait;
        a->tally->starts |= control_of(s->trial)->members[a->tally - s->tallies].clock_starts;
        if (r->step > a->tally->steps) {
            a->tally->clock += a->tally->starts ? 0 : r->step - a->tally->steps;
            a->tally->steps = r->step;
            a->tally->starts = false;
        }
    } else if (is_current(s, a) && seen->method == M(LEASE)) {
        a->epoch = ((const Paramserver__V1__LeaseRequest *)m)->epoch;
        a->ahead = ((const Paramserver__V1__LeaseRequest *)m)->ahead;
        a->tally->leases += !a->ahead;
    } else if (is_current(s, a) && seen->method != M(JOIN) && a->sequence > a->tally->meets) {
        a->tally->meets = a->sequence;
    }
    *seen->note = (uint64_t)(uintptr_t)a;
    ps_slices_clear(&payload);
    ps_msg_free(m);
}

static void see_grant(struct ssp *s, const struct asked *a)
{
    uint64_t slowest = slowest_but(s, NULL);
    uint64_t lead = slowest < a->tally->clock ? a->tally->clock - slowest : 0;
    if (lead > s->trial->staleness)
        for (uint32_t i = 0; i < TRAINERS; i++) {
            const struct psd_member *m = &control_of(s->trial)->members[i];
            const struct tally *y = &s->tallies[i];
            print_message("# worker %" PRIu32 ": state %d, clock %" PRIu64 " (there %" PRIu64 "), leases %" PRIu32
                          " (%d), collectives %" PRIu64 "/%" PRIu64 " (%d)\n",
                          i, (int)m->state, y->clock, m->clock, y->leases, psd_in_lease(m), y->meets, y->met,
                          psd_in_collective(m));
        }
    CHECK(s->trial, lead <= s->trial->staleness,
          "worker %zu is let go at clock %" PRIu64 ", the slowest is at %" PRIu64, (size_t)(a->tally - s->tallies),
          a->tally->clock, slowest);
    s->grants++;
    s->greatest = lead > s->greatest ? lead : s->greatest;
}

static void see_share(struct ssp *s, const struct asked *a, const struct ps_slices *message)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    if (ps_msg_unpack(&paramserver__v1__lease_reply__descriptor, message, &m, &payload, NULL))
        return;
    if (((const Paramserver__V1__LeaseReply *)m)->count == 0 && a->epoch == s->aligned) {
        align(s);
        s->aligned++;
    }
    ps_msg_free(m);
}

// The incarnation that a Join was answered with.
static uint64_t incarnation_in(const struct ps_slices *message)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    if (ps_msg_unpack(&paramserver__v1__join_reply__descriptor, message, &m, &payload, NULL))
        return 0;
    uint64_t incarnation = ((const Paramserver__V1__JoinReply *)m)->incarnation;
    ps_msg_free(m);
    return incarnation;
}

static bool is_ssp(const struct ssp *s)
{
    return control_of(s->trial)->mode.update == PARAMSERVER__V1__UPDATE__SSP;
}

static void see_answer(struct ssp *s, const struct sim_seen *seen)
{
    struct asked *a = (struct asked *)(uintptr_t)*seen->note;
    if (!a)
        return;
    bool ok = seen->code == PS_OK;
    if (seen->method == M(JOIN) && ok)
        a->incarnation = incarnation_in(seen->message);
    if (seen->method == M(JOIN) && ok && a->tally->incarnation != a->incarnation) {
        *a->tally = (struct tally){.incarnation = a->incarnation, .starts = !is_ssp(s)};
        level(s, a->tally);
    } else if (is_current(s, a)) {
        if (seen->method == M(LEASE)) {
            if (ok && !a->ahead)
                see_share(s, a, seen->message);
            if (ok && sim_events(s->trial->sim) > a->at)  // it waited
                level(s, a->tally);
            a->tally->leases -= !a->ahead;
        } else if (seen->method == M(CLOCK)) {
            if (ok && a->wait && is_ssp(s))  // else it is a late copy, which is told nothing
                see_grant(s, a);
        } else if (ok && a->sequence > a->tally->met) {
            if (a->tally->met < a->tally->meets)
                align(s);
            a->tally->met = a->sequence;
            level(s, a->tally);
        }
    }
    free(a);
}

// A change of the mode makes all level.
static void see_mode(struct ssp *s)
{
    const struct psd_control *c = control_of(s->trial);
    if (c && s->mode && s->mode != (int)c->mode.update)
        align(s);
    s->mode = c ? (int)c->mode.update : 0;
}

static void see(void *arg, const struct sim_seen *seen)
{
    struct ssp *s = arg;
    if (seen->task != 0)
        return;
    if (s->second != s->trial->replaces) {
        memset(s->tallies, 0, sizeof s->tallies);
        s->aligned = 0;
        s->mode = 0;
        s->second = true;
    }
    see_mode(s);
    if (seen->answer)
        see_answer(s, seen);
    else
        see_request(s, seen);
}

// ---- a reader beside the training ---------------------------------------------------------------------------------

struct reader {
    struct trial *trial;
    struct psc_client *client;
    float *last, *values;
    uint64_t version, reads;
    bool stop, busy;
    uint64_t set;  // times that the learning rate was asked to change
    double rate;   // the last one asked for
    bool setting;
    uint64_t sets;   // times that it did
    uint64_t modes;  // times that the next epoch's mode was set
};

static void read_again(void *arg);

// Where the network loses a worker before the job is declared, there is none.
static bool is_void(const struct trial *t)
{
    const struct psd_job *job = psd_job_lookup(&sim_core(t->sim, 0)->table, "job");
    return job && psd_job_has_failed(job) && strstr(job->failure, "before the job was declared");
}

// The Join of a process that was started as worker 0 just before the job was done comes when it is: the job begins
// anew, and what the trial has left is gone.
static bool is_reopened(const struct trial *t)
{
    return t->lost || (t->over_run && control_of(t) != t->over_run);
}

static const struct psd_partition *partition_of(const struct trial *t, uint32_t k)
{
    return &psd_job_lookup(&sim_core(t->sim, 0)->table, "job")->partitions[k];
}

// Atomic pushes are whole among the partitions of a task.
static void check_atomic(const struct reader *r)
{
    const struct trial *t = r->trial;
    for (uint32_t i = 0; i < t->n_pushes; i++)
        for (uint32_t k = 1; t->pushes[i].atomic && k < t->partitions; k++)
            for (uint32_t j = 0; j < k; j++)
                CHECK(t,
                      partition_of(t, k)->task != partition_of(t, j)->task ||
                          (r->values[k * SLOTS + i] != 0) == (r->values[j * SLOTS + i] != 0),
                      "push %" PRIu32 " is in partition %" PRIu32 " and %" PRIu32 " as %g, %g", i, j, k,
                      (double)r->values[j * SLOTS + i], (double)r->values[k * SLOTS + i]);
}

static void on_read(void *arg, const psc_result *result)
{
    struct reader *r = arg;
    struct trial *t = r->trial;
    r->busy = false;
    if (result->error.code != PSC_OK) {
        CHECK(t, r->stop || trial_is_over(t) || is_reopened(t), "reader: %s", result->error.text);
        return;
    }
    CHECK(t, result->version >= r->version, "version %" PRIu64 " after %" PRIu64, result->version, r->version);
    r->version = result->version;
    r->reads++;
    for (uint32_t i = 0; i < t->partitions * SLOTS; i++)
        CHECK(t, r->last[i] == 0 || r->values[i] == r->last[i], "slot %" PRIu32 " was %g and is %g", i,
              (double)r->last[i], (double)r->values[i]);
    memcpy(r->last, r->values, t->partitions * SLOTS * sizeof(float));
    check_atomic(r);
    if (!r->stop)
        sim_after(t->sim, 200 * PS_MS, read_again, r);
}

static void read_again(void *arg)
{
    struct reader *r = arg;
    psc_tensor slots = {"slots", r->values, (uint64_t)r->trial->partitions * SLOTS, PSC_FLOAT32};
    if (r->stop)
        return;
    r->busy = true;
    psc_get(r->client, &slots, 1, on_read, r, NULL);
}

static void on_set(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    struct reader *r = arg;
    (void)reply;
    r->sets += e->code == PS_OK;  // it may have come too late, or not at all
    r->setting = false;
}

// A round that is about to close, or 0: whichever is possible.
static uint64_t round_soon(const struct trial *t)
{
    uint64_t closed = 0;
    for (uint32_t i = 0; i < TRAINERS; i++)
        closed = t->current[i]->closed > closed ? t->current[i]->closed : closed;
    uint64_t ahead = sim_random(t->sim) % 3;
    return ahead ? closed + ahead : 0;
}

static void on_mode(void *arg, const struct ps_error *e, struct ps_slices *reply)
{
    struct reader *r = arg;
    (void)reply;
    r->modes += e->code == PS_OK;  // it may have come before the first epoch, or after the last
    r->setting = false;
}

// Now and then: its next epoch is to be async, sync or ssp.
static void set_mode(void *arg)
{
    static const Paramserver__V1__Update to[] = {PARAMSERVER__V1__UPDATE__ASYNC, PARAMSERVER__V1__UPDATE__SSP,
                                                 PARAMSERVER__V1__UPDATE__SYNC, PARAMSERVER__V1__UPDATE__SYNC};
    struct reader *r = arg;
    struct ps_error e;
    if (r->stop || !trial_has(r->trial, SIM_SET_MODE))
        return;
    if (!r->setting) {
        Paramserver__V1__SetModeRequest request = PARAMSERVER__V1__SET_MODE_REQUEST__INIT;
        request.job = (char *)"job";
        request.update = to[sim_random(r->trial->sim) % (sizeof to / sizeof to[0])];
        request.staleness = request.update == PARAMSERVER__V1__UPDATE__SSP ? r->trial->staleness : 0;
        struct psc__call_spec spec = {.method = M(SET_MODE),
                                      .message = &request.base,
                                      .timeout_ms = 20000,
                                      .once = true,
                                      .done = on_mode,
                                      .arg = r};
        r->setting = psc__call(r->client, &spec, &e) == PS_OK;
    }
    sim_after(r->trial->sim, 300 * PS_MS, set_mode, r);
}

// Of a job that began as sync, now and then: the learning rate doubles.
static void set_rate(void *arg)
{
    struct reader *r = arg;
    struct ps_error e;
    if (r->stop || r->trial->update != PSC_SYNC || r->set == 3 || !trial_has(r->trial, SIM_SET_RATE))
        return;
    if (!r->setting) {
        Paramserver__V1__SetHyperRequest request = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
        r->rate *= 2;
        request.job = (char *)"job";
        request.name = (char *)"learning_rate";
        request.value = r->rate;
        request.round = round_soon(r->trial);
        struct psc__call_spec spec = {.method = M(SET_HYPER),
                                      .message = &request.base,
                                      .timeout_ms = 20000,
                                      .once = true,
                                      .done = on_set,
                                      .arg = r};
        r->set++;
        r->setting = psc__call(r->client, &spec, &e) == PS_OK;
    }
    sim_after(r->trial->sim, 700 * PS_MS, set_rate, r);
}

static void on_attached(void *arg, const struct ps_error *e)
{
    struct reader *r = arg;
    r->busy = false;
    if (is_void(r->trial) || is_reopened(r->trial))
        return;
    CHECK(r->trial, e->code == PS_OK, "reader: %s", e->text);
    read_again(r);
    set_rate(r);
    set_mode(r);
}

static void reader_start(struct reader *r, struct trial *t)
{
    const char *addresses[] = {"a:1", "b:1", "c:1"};
    struct psc_world world = sim_world(t->sim);
    psc_options options = {.job = "job", .rank = -1, .timeout_ms = 60000};
    psc_cluster *cluster;
    *r = (struct reader){.trial = t, .busy = true, .rate = 1};
    r->last = ps_alloc(t->partitions * SLOTS * sizeof(float));
    r->values = ps_alloc(t->partitions * SLOTS * sizeof(float));
    psc_cluster_create(addresses, t->ps, &cluster, NULL);
    if (psc__client_create(cluster, &options, &world, &r->client, NULL))
        fail_msg("no reader");
    psc_cluster_free(cluster);
    psc__attach(r->client, on_attached, r);
}

static void reader_free(struct reader *r)
{
    if (!r->client)
        return;
    psc__client_free(r->client);
    free(r->last);
    free(r->values);
}

// ---- what goes wrong ----------------------------------------------------------------------------------------------

static uint32_t in_their_place(const struct trial *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TRAINERS; i++)
        n += !t->current[i]->over && t->current[i]->joined && t->current[i]->asleep_until < sim_now(t->sim) &&
             trainer_is_member(t->current[i]);
    return n;
}

static void take_over(void *arg)
{
    struct life *l = arg;
    if (l->trial->current[l->rank] == l && !l->over && !trial_is_over(l->trial))
        trainer_start(l->trial, l->rank);
}

// A worker is killed; or stops, for so long that it may be declared dead and even replaced before it goes on; or a psd
// stops. Most workers stay well, or the job would end.
static void fate(void *arg)
{
    struct trial *t = arg;
    struct life *l = t->current[sim_random(t->sim) % TRAINERS];
    uint64_t what = sim_random(t->sim) % 8, delay = sim_random(t->sim) % (6 * PS_SECOND);
    bool may = t->declared && !l->over && in_their_place(t) >= 3 && t->n_lives < 20;
    if (t->calm)
        return;
    if (what < 3 && may && trial_has(t, SIM_KILL)) {
        trainer_kill(l);
    } else if (what >= 3 && what < 5 && may && trial_has(t, SIM_STALL)) {
        sim_stall(&l->world, delay);
        l->asleep_until = sim_now(t->sim) + delay;
        if (sim_random(t->sim) % 2 && trial_has(t, SIM_TAKE_OVER))
            sim_after(t->sim, delay * 3 / 4, take_over, l);
    } else if (what == 5 && trial_has(t, SIM_STALL_PSD)) {
        sim_stall_psd(t->sim, (uint32_t)(sim_random(t->sim) % t->ps), delay / 3);
    }
    sim_after(t->sim, 100 * PS_MS + sim_random(t->sim) % (1500 * PS_MS), fate, t);
}

// The faults stop.
static void calm_down(void *arg)
{
    struct trial *t = arg;
    t->calm = true;
    sim_calm(t->sim);
}

// ---- the account --------------------------------------------------------------------------------------------------

static bool is_in(const struct reader *r, uint32_t partition, uint32_t push)
{
    return r->values[partition * SLOTS + push] != 0;
}

// Of a push that was applied on arrival, at the learning rate of the moment.
static bool is_rate(const struct trial *t, float found)
{
    return found == 1 || (t->update == PSC_SYNC && (found == 2 || found == 4 || found == 8));
}

static psc_update mode_of(const struct trial *t, uint64_t epoch)
{
    return t->modes[epoch] ? t->modes[epoch] : t->update;
}

static void check_pushes(const struct trial *t, const struct reader *r)
{
    for (uint32_t i = 0; i < t->n_pushes; i++) {
        const struct push *p = &t->pushes[i];
        uint32_t in = 0;
        for (uint32_t k = 0; k < t->partitions; k++) {
            in += is_in(r, k, i);
            CHECK(t, p->round || !is_in(r, k, i) || is_rate(t, r->values[k * SLOTS + i]),
                  "push %" PRIu32 " of worker %" PRIu32 " is in partition %" PRIu32 " as %g", i, p->rank, k,
                  (double)r->values[k * SLOTS + i]);
        }
        CHECK(t, !p->acknowledged || in + p->stale == t->partitions,
              "push %" PRIu32 " of worker %" PRIu32 " was acknowledged: it is in %" PRIu32 " partitions, %" PRIu32
              " dropped it",
              i, p->rank, in, p->stale);
    }
}

static void check_extra(const struct trial *t, const float *extra)
{
    for (uint32_t i = 0; i < t->n_pushes; i++)
        CHECK(t, extra[i] == 1 || (extra[i] == 0 && !t->pushes[i].added), "extra %" PRIu32 " is %g", i,
              (double)extra[i]);
}

// A partition's round: those in it have each their part of the mean, at the learning rate of the round, which is one of
// those that were set, and the same for all partitions.
static void check_round(const struct trial *t, const struct reader *r, uint64_t round)
{
    double rate = 0;
    for (uint32_t k = 0; k < t->partitions; k++) {
        uint32_t examples = 0;
        for (uint32_t i = 0; i < t->n_pushes; i++)
            examples += t->pushes[i].round == round && is_in(r, k, i) ? t->pushes[i].rows : 0;
        for (uint32_t i = 0; i < t->n_pushes; i++) {
            if (t->pushes[i].round != round || !is_in(r, k, i))
                continue;
            float mean = (float)t->pushes[i].rows / (float)examples, found = r->values[k * SLOTS + i];
            double used = (double)found / (double)mean;
            rate = rate > 0 ? rate : used;
            CHECK(t, used == rate && (rate == 1 || rate == 2 || rate == 4 || rate == 8),
                  "round %" PRIu64 " of partition %" PRIu32 ": worker %" PRIu32 " with %" PRIu32 " of %" PRIu32
                  " examples is in as %g, at the rate %g",
                  round, k, t->pushes[i].rank, t->pushes[i].rows, examples, (double)found, rate);
        }
    }
}

static void check_rounds(const struct trial *t, const struct reader *r)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < t->n_pushes; i++)
        last = t->pushes[i].round > last ? t->pushes[i].round : last;
    for (uint64_t round = 1; round <= last; round++) {
        check_round(t, r, round);
        for (uint32_t i = 0; i < t->n_pushes; i++)
            for (uint32_t k = i + 1; k < t->n_pushes; k++)
                for (uint32_t p = 0; p < t->partitions; p++)
                    CHECK(t,
                          t->pushes[i].round != round || t->pushes[k].round != round ||
                              t->pushes[i].rank != t->pushes[k].rank || !is_in(r, p, i) || !is_in(r, p, k),
                          "worker %" PRIu32 " is twice in round %" PRIu64, t->pushes[i].rank, round);
    }
}

// Every batch of an epoch counts in some partition, under one push alone.
static void check_batches(const struct trial *t, const struct reader *r)
{
    for (uint64_t epoch = 0; epoch < t->epochs; epoch++)
        for (uint64_t first = 0; first < EXAMPLES && mode_of(t, epoch) == PSC_SYNC; first += BATCH) {
            uint32_t counted = 0;
            for (uint32_t i = 0; i < t->n_pushes; i++) {
                bool in = false;
                for (uint32_t k = 0; k < t->partitions; k++)
                    in |= is_in(r, k, i);
                counted += t->pushes[i].epoch == epoch && t->pushes[i].first == first && in;
            }
            CHECK(t, counted == 1, "the examples of epoch %" PRIu64 " from %" PRIu64 " on count %" PRIu32 " times",
                  epoch, first, counted);
        }
}

static void check_leases(const struct trial *t)
{
    for (uint64_t epoch = 0; epoch < t->epochs; epoch++)
        for (uint64_t x = 0; x < EXAMPLES && mode_of(t, epoch) != PSC_SYNC; x++) {
            uint32_t done = 0, perhaps = 0;
            for (uint32_t i = 0; i < t->n_leases; i++) {
                const struct lease *l = &t->leases[i];
                if (l->epoch != epoch || x < l->first || x >= l->first + l->count)
                    continue;
                done += l->done;
                perhaps += l->asked;
            }
            CHECK(t, done <= 1 && perhaps >= 1, "example %" PRIu64 " of epoch %" PRIu64 " was done %" PRIu32 " times",
                  x, epoch, done);
        }
}

// ---- a trial ------------------------------------------------------------------------------------------------------

static bool all_done(void *arg)
{
    struct trial *t = arg;
    bool all = true;
    for (uint32_t i = 0; i < TRAINERS; i++)
        all &= t->finished[i];
    return !t->replacing && (all || trial_is_over(t));
}

static bool is_idle(void *arg)
{
    return !((struct reader *)arg)->busy;
}

static void on_last_read(void *arg, const psc_result *result)
{
    struct reader *r = arg;
    r->trial->lost |= r->trial->replaces && result->error.code == PSC_ABORTED;
    CHECK(r->trial, result->error.code == PSC_OK || is_reopened(r->trial), "reading back: %s", result->error.text);
    r->busy = false;
}

static void read_back(struct trial *t, struct reader *r, float *extra)
{
    psc_tensor all[] = {{"slots", r->values, (uint64_t)t->partitions * SLOTS, PSC_FLOAT32},
                        {"extra", extra, SLOTS, PSC_FLOAT32}};
    r->stop = true;
    CHECK(t, sim_run(t->sim, is_idle, r, sim_now(t->sim) + LIMIT), "the reader does not end");
    r->busy = true;
    psc_get(r->client, all, 2, on_last_read, r, NULL);
    CHECK(t, sim_run(t->sim, is_idle, r, sim_now(t->sim) + LIMIT), "the last read does not end");
}

static void check_all(const struct trial *t, const struct reader *r, const float *extra)
{
    // Who is left when the others are through, and dies, ends the job.
    bool ended = psd_job_has_failed(psd_job_lookup(&sim_core(t->sim, 0)->table, "job")), any = false;
    for (uint32_t i = 0; i < TRAINERS; i++)
        any |= t->finished[i];
    CHECK(t, !ended || any, "the job has failed: %s", psd_job_lookup(&sim_core(t->sim, 0)->table, "job")->failure);
    check_pushes(t, r);
    check_extra(t, extra);
    check_rounds(t, r);
    if (!t->enough && !ended)
        check_batches(t, r);
    if (!ended)
        check_leases(t);
}

struct totals {
    uint64_t lives, pushes, reads, long_reads, grants, greatest, digest, voids, sets, replaced, calmed;
};

static void see_all(void *arg, const struct sim_seen *seen)
{
    struct ssp *s = arg;
    if (!seen->answer)
        sim_coverage_note(seen, trial_name(s->trial));
    if (s->trial->update == PSC_SSP)
        see(s, seen);
}

// In the midst of it the job is begun anew, as an operator would who has stopped all workers.
struct second_run {
    struct trial *trial;
    struct reader *first, *second;
};

static void read_second(void *arg)
{
    struct second_run *s = arg;
    if (s->trial->ended || s->trial->calm)
        return;
    if (s->trial->declared && !s->trial->replacing)
        reader_start(s->second, s->trial);
    else
        sim_after(s->trial->sim, 100 * PS_MS, read_second, s);
}

static void begin_second(void *arg)
{
    struct second_run *s = arg;
    if (!s->trial->declared || trial_is_over(s->trial) || s->trial->calm)
        return;
    s->first->stop = true;
    trial_replace(s->trial);
    read_second(s);
}

static bool nobody_waits(void *arg)
{
    struct trial *t = arg;
    for (uint32_t task = 0; task < t->ps; task++)
        if (sim_parked(t->sim, task))
            return false;
    return true;
}

// Workers that are through have nothing parked; nor has anybody else, some time after.
static void check_nobody_waits(struct trial *t)
{
    CHECK(t, sim_run(t->sim, nobody_waits, t, sim_now(t->sim) + CALM_LIMIT), "calls are parked that nobody ends");
}

static struct trial *trial_new(uint64_t seed)
{
    static const psc_update updates[] = {PSC_ASYNC, PSC_SSP, PSC_SYNC, PSC_SYNC, PSC_SYNC};
    struct trial *t = ps_alloc(sizeof *t);
    *t = (struct trial){.seed = seed, .update = updates[seed % 5], .enough = seed % 5 == 4 ? 3 : 0, .ps = 3};
    t->features = sim_features_draw(seed);
    t->epochs = trial_has(t, SIM_SET_MODE) ? EPOCHS : EPOCHS - 1;
    t->follows = t->update != PSC_SYNC || trial_has(t, SIM_SET_MODE);
    t->staleness = 1 + seed / 5 % 3;
    t->share_rounds = seed / 5 % 3;
    t->partitions = t->update == PSC_SSP ? 2 : MAX_PARTITIONS;  // ssp: a psd owns nothing
    return t;
}

static void run(uint64_t seed, struct totals *totals)
{
    struct trial *t = trial_new(seed);
    struct reader readers[2] = {{.stop = true}, {.stop = true}};
    struct long_read long_read = {0};
    struct second_run second = {t, &readers[0], &readers[1]};
    struct ssp ssp = {.trial = t};
    const struct sim_faults faults = faults_of(t->features);
    float extra[SLOTS];
    t->sim = sim_create(seed, t->ps, &faults, 64 << 20);
    sim_watch(t->sim, see_all, &ssp);
    for (uint32_t rank = 0; rank < TRAINERS; rank++)
        trainer_start(t, rank);
    if (trial_has(t, SIM_READER))
        reader_start(&readers[0], t);
    if (trial_has(t, SIM_LONG_READ))
        long_read_start(&long_read, t);
    if (trial_has(t, SIM_REPLACE))
        sim_after(t->sim, sim_random(t->sim) % PS_SECOND, begin_second, &second);
    fate(t);
    sim_after(t->sim, (10 + sim_random(t->sim) % 40) * PS_SECOND, calm_down, t);
    if (!sim_run(t->sim, all_done, t, sim_now(t->sim) + 51 * PS_SECOND) && ++totals->calmed)
        CHECK(t, sim_run(t->sim, all_done, t, sim_now(t->sim) + CALM_LIMIT), "the workers do not end");
    t->over_run = control_of(t);
    struct reader *last = t->replaces || !trial_has(t, SIM_READER) ? &readers[1] : &readers[0];
    if (!is_void(t)) {
        if (!last->client)
            reader_start(last, t);
        read_back(t, last, extra);
        if (!is_reopened(t))
            check_all(t, last, extra);
    }
    totals->voids += is_void(t) || is_reopened(t);
    readers[0].stop = readers[1].stop = long_read.stop = true;
    CHECK(t, sim_run(t->sim, long_read_is_idle, &long_read, sim_now(t->sim) + LIMIT), "the long read does not end");
    totals->lives += t->n_lives;
    totals->pushes += t->n_pushes;
    totals->reads += readers[0].reads + readers[1].reads;
    totals->long_reads += long_read.reads;
    totals->sets += readers[0].sets + readers[1].sets;
    totals->replaced += t->replaces;
    totals->grants += ssp.grants;
    totals->greatest = ssp.greatest > totals->greatest ? ssp.greatest : totals->greatest;
    totals->digest ^= sim_digest(t->sim);
    t->calm = true;
    trainers_stop(t);
    reader_free(&readers[0]);
    reader_free(&readers[1]);
    long_read_free(&long_read);
    check_nobody_waits(t);
    sim_destroy(t->sim);
    trainers_free(t);
    free(t);
}

// The seed that is being run; a test that fails leaves it here.
static uint64_t running = UINT64_MAX;

static void run_seed(uint64_t seed, struct totals *totals)
{
    running = seed;
    run(seed, totals);
    running = UINT64_MAX;
}

static int shrink_what_failed(void **state)
{
    (void)state;
    if (running != UINT64_MAX)
        sim_shrink(running);
    running = UINT64_MAX;
    return 0;
}

static void test_chaos(void **state)
{
    struct totals n = {0};
    uint64_t first = number("SIM_SEED", 0), seeds = number("SIM_SEEDS", 500);
    (void)state;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        run_seed(seed, &n);
    print_message("# %" PRIu64 " seeds: %" PRIu64 " lives, %" PRIu64 " pushes, %" PRIu64 " reads, %" PRIu64
                  " grants at most %" PRIu64 " ahead, %" PRIu64 " changes of the rate, %" PRIu64
                  " second runs, %" PRIu64 " not through before the faults stopped\n",
                  seeds, n.lives, n.pushes, n.reads, n.grants, n.greatest, n.sets, n.replaced, n.calmed);
    assert_true(n.voids <= 2 + seeds / 25);  // they show little
    assert_true(seeds < 20 || (n.sets > seeds / 8 && n.grants > seeds && n.reads > seeds && n.replaced > seeds / 20));
}

static void test_replay(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        struct totals a = {0}, b = {0};
        run_seed(seed, &a);
        run_seed(seed, &b);
        assert_true(a.digest == b.digest);
    }
}

// What the seeds above have called, and how.
static void test_calls(void **state)
{
    (void)state;
    if (number("SIM_SEEDS", 500) < 200)
        print_message("# too few seeds to expect every call of the list\n");
    else
        assert_int_equal(sim_coverage_print(), 0);
}

// The rare states that the seeds above have led into: none may be missing.
static void test_sometimes(void **state)
{
    unsigned missing = 0;
    (void)state;
    for (int i = 0; i < PS_N_SOMETIMES; i++) {
        uint64_t n = atomic_load(&ps_sometimes_met[i]);
        print_message("# %8" PRIu64 "  %s\n", n, ps_sometimes_text((enum ps_sometimes)i));
        missing += n == 0;
    }
    if (number("SIM_SEEDS", 500) < 200)
        print_message("# too few seeds to expect all of them\n");
    else
        assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_chaos, shrink_what_failed),
                                       cmocka_unit_test_teardown(test_replay, shrink_what_failed),
                                       cmocka_unit_test(test_calls), cmocka_unit_test(test_sometimes)};
    if (!getenv("SIM_LOG"))
        ps_log_init("sim", PS_LOG_ERROR);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
