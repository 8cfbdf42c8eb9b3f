// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/device_sums.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/collective/collective.h"

// How far each replica is, for the others to see: so many sums begun, and one for joining; so many steps whose sums are
// all queued, and are all done.
struct progress {
    _Alignas(64) _Atomic uint64_t begun;
    _Atomic uint64_t queued;
    _Atomic uint64_t done;
};

struct wk_device_sums {
    const struct wk_env *env;
    struct wk_local_rule *rule;
    struct progress *own;       // replica 0's: of all of this process
    struct progress *progress;  // the same, at all of them
    uint64_t begun, steps;      // its own
    uint64_t epoch, rows;       // of the last step, of all replicas; rows 0: there was none
    uint64_t formation;         // from 1: in which the workers have agreed who adds up; 0: in none
    bool on;                    // the devices do,
    bool abroad;                // some of which are other processes'
    uint64_t deadline;          // ns, ps_now: until when a call of NCCL may wait for others
    // What the collective adds up, which stays where it is when a worker is lost: [numbers_size].
    double *numbers;
    size_t numbers_size;
    struct wk_reduction sum;
};

static bool sums_are_of_workers(const struct wk_env *env)
{
    return env->job->strategy == PS_STRATEGY_MULTI_WORKER_MIRRORED;
}

// ---- who can ------------------------------------------------------------------------------------------------------

static bool sums_are_wanted(const struct wk_env *env)
{
    const struct ps_job *job = env->job;
    if (sums_are_of_workers(env))
        return job->communication == PS_COMMUNICATION_NCCL ||
               (job->communication == PS_COMMUNICATION_AUTO && job->compression == PS_COMPRESSION_NONE &&
                env->replicas > 1);
    const bool several = env->replicas > 1 || job->cross_device != PS_CROSS_DEVICE_AUTO;
    return job->strategy == PS_STRATEGY_MIRRORED && job->cross_device != PS_CROSS_DEVICE_HIERARCHICAL_COPY && several;
}

// Not left to this program.
static bool sums_are_by_hand(const struct wk_env *env)
{
    return sums_are_of_workers(env) ? env->job->communication == PS_COMMUNICATION_NCCL
                                    : env->job->cross_device != PS_CROSS_DEVICE_AUTO;
}

static bool device_is_gpu(const char *name)
{
    return strncmp(name, "gpu", 3) == 0 || strncmp(name, "cuda", 4) == 0;
}

static enum nn_sums_way sums_way(const struct wk_env *env)
{
    return env->job->cross_device == PS_CROSS_DEVICE_REDUCTION_TO_ONE_DEVICE ? NN_SUMS_ON_FIRST : NN_SUMS_AMONG_ALL;
}

// Of all replicas of this process.
static enum ps_code sums_check_devices(const struct wk_env *env, struct ps_error *e)
{
    const struct ps_job_devices *d = &env->job->devices;
    for (size_t i = 0; i < d->n; i++)
        if (!device_is_gpu(d->device[i].kind))
            return ps_fail(e, PS_FAILED_PRECONDITION, "replica %zu is on %s:%d: expected GPUs alone", i,
                           d->device[i].kind, d->device[i].index);
    if (d->n == 0 && !device_is_gpu(env->job->device))
        return ps_fail(e, PS_FAILED_PRECONDITION, "the replica is on %s: expected a GPU", env->job->device);
    return nn_replica_check_sums(env->replica, sums_way(env), e);
}

static enum ps_code sums_check_self(const struct wk_device_sums *s, struct ps_error *e)
{
    if (sums_check_devices(s->env, e))
        return e->code;
    if (sums_are_of_workers(s->env) && (s->env->tls || s->env->munge) && !s->env->insecure)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "NCCL knows no %s, which the cluster has: --insecure lets gradients travel without",
                       s->env->tls ? "TLS" : "munge");
    if (wk_local_rule_can_keep(s->rule))
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "the host applies the optimizer %s of this job: expected one that GPUs apply, without clipnorm, "
                   "global_clipnorm, gradient_accumulation_steps, use_ema, constraints and refuse_nonfinite",
                   s->rule->rule->name);
}

// ---- agree --------------------------------------------------------------------------------------------------------

static uint32_t sums_rank(const struct wk_device_sums *s)
{
    return wk_collective_rank(s->env->collective, s->env->device);
}

// n numbers, all 0, to be added up.
static double *sums_numbers(struct wk_device_sums *s, size_t n)
{
    if (n > s->numbers_size) {
        s->numbers_size = n;
        s->numbers = ps_realloc(s->numbers, n * sizeof *s->numbers);
    }
    memset(s->numbers, 0, n * sizeof *s->numbers);
    return s->numbers;
}

static enum ps_code sums_add_up(struct wk_device_sums *s, size_t n, const char *what, struct ps_error *e)
{
    s->sum = (struct wk_reduction){.values = s->numbers, .n = n, .type = WK_DOUBLE, .what = what};
    return wk_collective_reduce(s->env->collective, s->env->device, &s->sum, e);
}

// bytes become at all ranks what they are at the rank that gives them, as sums to which the others add nothing.
static enum ps_code sums_share(struct wk_device_sums *s, bool gives, void *bytes, size_t n, struct ps_error *e)
{
    double *byte = sums_numbers(s, n);
    unsigned char *b = bytes;
    for (size_t i = 0; i < n && gives; i++)
        byte[i] = b[i];
    if (sums_add_up(s, n, "who adds up", e))
        return e->code;
    for (size_t i = 0; i < n; i++)
        b[i] = (unsigned char)byte[i];
    return PS_OK;
}

// The sentence of a rank that cannot, for all.
static enum ps_code sums_say_why(struct wk_device_sums *s, uint32_t rank, const struct ps_error *own,
                                 struct ps_error *e)
{
    const struct wk_env *env = s->env;
    char why[256] = "";
    if (sums_are_of_workers(env))
        snprintf(why, sizeof why, "worker %" PRIu32 " cannot: %.220s", env->rank, own->text);
    else
        snprintf(why, sizeof why, "%.250s", own->text);
    if (sums_share(s, sums_rank(s) == rank, why, sizeof why, e))
        return e->code;
    if (sums_are_by_hand(env))
        return ps_fail(e, PS_FAILED_PRECONDITION, "strategy.%s is %s, and %s",
                       sums_are_of_workers(env) ? "communication" : "cross_device_ops",
                       sums_way(env) == NN_SUMS_AMONG_ALL ? "nccl" : "reduction_to_one_device", why);
    if (env->device == 0 && sums_are_of_workers(env))
        ps_info("gradients are added up in the hosts' memory and not by NCCL: %s", why);
    return PS_OK;
}

// What a rank says of itself, as numbers to which the others add nothing: can it not; its device's identity, rounded so
// that a double has it whole; its worker.
enum { RANK_CANNOT, RANK_DEVICE, RANK_WORKER, RANK_SAYS };

static void sums_say_self(const struct wk_device_sums *s, double says[RANK_SAYS], struct ps_error *why)
{
    says[RANK_WORKER] = s->env->rank;
    if (sums_check_self(s, why))
        says[RANK_CANNOT] = 1;
    else
        says[RANK_DEVICE] = (double)(nn_replica_identity_in_sums(s->env->replica) >> 11);
}

// A GPU is one rank's: NCCL adds up nothing where two share one. The first of them can.
static void sums_find_shared(const struct wk_device_sums *s, double (*says)[RANK_SAYS], uint32_t rank,
                             struct ps_error *why)
{
    uint32_t first = 0;
    while (says[first][RANK_DEVICE] != says[rank][RANK_DEVICE])
        first++;
    if (first == rank || says[rank][RANK_DEVICE] == 0)
        return;
    says[rank][RANK_CANNOT] = 1;
    if (rank == sums_rank(s))
        ps_fail(why, PS_FAILED_PRECONDITION,
                "replica %" PRIu32 " is on a GPU that worker %.0f is on: expected one of its own", s->env->device,
                says[first][RANK_WORKER]);
}

// *can: the devices of all ranks do. Where those of none do, and the job leaves it to this program, nobody is told.
static enum ps_code sums_agree(struct wk_device_sums *s, bool *can, struct ps_error *e)
{
    const uint32_t ranks = wk_collective_ranks(s->env->collective);
    struct ps_error why = {PS_OK, ""};
    double(*says)[RANK_SAYS] = (double(*)[RANK_SAYS])sums_numbers(s, (size_t)ranks * RANK_SAYS);
    uint32_t first = ranks, n = 0;
    sums_say_self(s, says[sums_rank(s)], &why);
    if (sums_add_up(s, (size_t)ranks * RANK_SAYS, "who adds up", e))
        return e->code;
    for (uint32_t rank = ranks; rank-- > 0;) {
        sums_find_shared(s, says, rank, &why);
        if (says[rank][RANK_CANNOT] > 0) {
            first = rank;
            n++;
        }
    }
    *can = n == 0;
    if (n == 0 || (n == ranks && !sums_are_by_hand(s->env)))
        return PS_OK;
    return sums_say_why(s, first, &why, e);
}

// ---- join ---------------------------------------------------------------------------------------------------------

// The name is rank 0's, the progress that of each process.
static enum ps_code sums_take_gifts(struct wk_device_sums *s, struct nn_sums_ranks *r, struct ps_error *e)
{
    const uint32_t here = s->env->replicas / s->env->workers, self = (uint32_t)r->rank / here;
    const size_t processes = (size_t)r->ranks / here;
    struct progress **all = ps_alloc(processes * sizeof(struct progress *));
    s->abroad = processes > 1;
    for (size_t k = 0; k < processes && e->code == PS_OK; k++) {
        all[k] = s->own;
        sums_share(s, k == self && s->env->device == 0, &all[k], sizeof(struct progress *), e);
    }
    s->progress = all[self];
    free(all);
    return e->code ? e->code : sums_share(s, r->rank == 0, r->name, sizeof r->name, e);
}

static uint64_t sums_deadline(const struct wk_device_sums *s)
{
    return ps_now() + (uint64_t)s->env->job->timeout * PS_SECOND;
}

static void sums_count_begun(struct wk_device_sums *s)
{
    atomic_store_explicit(&s->progress[s->env->device].begun, ++s->begun, memory_order_release);
    s->deadline = sums_deadline(s);
}

// Have all replicas of this process begun what this one has?
static bool sums_all_have_begun(const struct wk_device_sums *s)
{
    for (uint32_t i = 0; i < s->env->replicas / s->env->workers; i++)
        if (atomic_load_explicit(&s->progress[i].begun, memory_order_acquire) < s->begun)
            return false;
    return true;
}

// A slow replica of this process, which will come or fail, is awaited for as long as it takes.
static bool sums_give_up(void *arg)
{
    struct wk_device_sums *s = arg;
    struct ps_error e;
    if (wk_collective_look(s->env->collective, &e))
        return true;
    if (!s->abroad && !sums_all_have_begun(s))
        s->deadline = sums_deadline(s);
    return ps_now() > s->deadline;
}

// What NCCL says may be the consequence of a worker's loss, which the collective names within seconds; that a replica
// has given up is one of another's failure, or NCCL does not end what all have begun.
static enum ps_code sums_find_cause(const struct wk_device_sums *s, struct ps_error *e)
{
    static const uint64_t enough = 10 * PS_SECOND;
    const uint64_t since = ps_now();
    struct ps_error why = {PS_OK, ""};
    if (e->code != PS_UNAVAILABLE && e->code != PS_ABORTED)
        return e->code;
    while (wk_collective_look(s->env->collective, &why) == PS_OK && ps_now() - since < enough)
        ps_sleep(10 * PS_MS);
    if (why.code == PS_OK)
        ps_fail(&why, PS_INTERNAL, "worker %" PRIu32 ": replica %" PRIu32 ": %.400s", s->env->rank, s->env->device,
                e->text);
    *e = why;
    return e->code;
}

static enum ps_code sums_join(struct wk_device_sums *s, const struct nn_sums_ranks *r, struct ps_error *e)
{
    sums_count_begun(s);
    if (nn_replica_join_sums(s->env->replica, r, e) == PS_OK)
        return PS_OK;
    if (e->code == PS_ABORTED && wk_collective_look(s->env->collective, e) == PS_OK)
        return ps_fail(e, PS_INTERNAL, "worker %" PRIu32 ": replica %" PRIu32 " waits for %d s to meet the other GPUs",
                       s->env->rank, s->env->device, s->env->job->timeout);
    return sums_find_cause(s, e);
}

static enum ps_code sums_begin(struct wk_device_sums *s, struct ps_error *e)
{
    const struct wk_env *env = s->env;
    struct nn_sums_ranks r = {.rank = (int)sums_rank(s),
                              .ranks = (int)wk_collective_ranks(env->collective),
                              .gives_up = sums_give_up,
                              .arg = s};
    s->begun = s->steps = s->rows = 0;
    if (s->progress)
        s->progress[env->device] = (struct progress){0};
    e->code = PS_OK;
    if (wk_local_rule_keep(s->rule, e) || (r.rank == 0 && nn_replica_name_sums(env->replica, r.name, e)) ||
        sums_take_gifts(s, &r, e))
        return e->code;
    r.abroad = s->abroad;
    if (env->device == 0)
        ps_info("%d replicas add up gradients %s", r.ranks,
                sums_way(env) == NN_SUMS_AMONG_ALL ? "by NCCL" : "on the first GPU");
    s->on = true;
    return sums_join(s, &r, e);
}

// ---- open and close -----------------------------------------------------------------------------------------------

void wk_device_sums_open(struct wk_device_sums **sums, const struct wk_env *env, struct wk_local_rule *rule)
{
    if (!sums_are_wanted(env))
        return;
    struct wk_device_sums *s = *sums = ps_alloc(sizeof *s);
    s->env = env;
    s->rule = rule;
    if (env->device != 0)
        return;
    const size_t bytes = env->replicas / env->workers * sizeof *s->own;
    s->own = ps_alloc_aligned(bytes);
    memset(s->own, 0, bytes);
}

enum ps_code wk_device_sums_meet(struct wk_device_sums *s, struct ps_error *e)
{
    const uint64_t formation = s ? 1 + wk_collective_reforms(s->env->collective) : 0;
    bool can;
    e->code = PS_OK;
    if (!s || s->formation == formation)
        return PS_OK;
    wk_device_sums_stop(s);
    if (sums_agree(s, &can, e) || (can && sums_begin(s, e)))
        return e->code;
    if (!can)
        wk_local_rule_keep_no_more(s->rule);
    s->formation = formation;
    return nn_replica_fetch(s->env->replica, e);
}

bool wk_device_sums_are_on(const struct wk_device_sums *s)
{
    return s && s->on;
}

enum ps_code wk_device_sums_prepare(struct wk_device_sums *s, const struct wk_work *work, struct ps_error *e)
{
    e->code = PS_OK;
    if (!wk_device_sums_are_on(s) || (work->rows_of_all == s->rows && work->epoch == s->epoch))
        return PS_OK;
    s->rows = work->rows_of_all;
    s->epoch = work->epoch;
    sums_numbers(s, 1);
    return sums_add_up(s, 1, "who has made its program", e);
}

void wk_device_sums_stop(struct wk_device_sums *s)
{
    if (s && s->on)
        nn_replica_abort_sums(s->env->replica);
    if (s)
        s->on = false;
}

// Other processes may be gone by now: they are left, not waited for.
void wk_device_sums_close(struct wk_device_sums *s, bool failed)
{
    if (!s)
        return;
    if (failed || s->abroad)
        wk_device_sums_stop(s);
    free(s->own);
    free(s->numbers);
    free(s);
}

// ---- a step -------------------------------------------------------------------------------------------------------

void wk_device_sums_add(struct wk_device_sums *s, size_t variable, size_t n, float weight)
{
    sums_count_begun(s);
    nn_replica_add_gradients(s->env->replica, variable, n, weight);
}

// "replica 1 (gpu:1)"
static void sums_name_replica(const struct wk_env *env, uint32_t i, char *text, size_t size)
{
    const struct ps_job_devices *d = &env->job->devices;
    if (i < d->n)
        snprintf(text, size, "replica %" PRIu32 " (%s:%d)", i, d->device[i].kind, d->device[i].index);
    else
        snprintf(text, size, "replica %" PRIu32 " (%s)", i, env->job->device);
}

static bool sums_all_have_come(const struct wk_device_sums *s)
{
    for (uint32_t i = 0; i < s->env->replicas / s->env->workers; i++)
        if (atomic_load_explicit(&s->progress[i].queued, memory_order_acquire) < s->steps)
            return false;
    return true;
}

// Those whose sums are done: without the others they cannot be, so they have taken no part.
static enum ps_code sums_are_late(const struct wk_device_sums *s, struct ps_error *e)
{
    char own[48], other[48], others[256] = "";
    sums_name_replica(s->env, s->env->device, own, sizeof own);
    for (uint32_t i = 0; i < s->env->replicas / s->env->workers; i++) {
        const size_t at = strlen(others);
        sums_name_replica(s->env, i, other, sizeof other);
        if (atomic_load_explicit(&s->progress[i].done, memory_order_acquire) >= s->steps &&
            at + sizeof other < sizeof others)
            snprintf(others + at, sizeof others - at, "%s%s", at ? ", " : "", other);
    }
    if (s->abroad)
        return ps_fail(e, PS_INTERNAL,
                       "worker %" PRIu32
                       ": %s waits for %d s in an all-reduce to which all have come: expected NCCL to "
                       "end it",
                       s->env->rank, own, s->env->job->timeout);
    return ps_fail(e, PS_INTERNAL,
                   "%s waits for %d s in an all-reduce that has ended on %s: expected all replicas to take part in it",
                   own, s->env->job->timeout, others[0] ? others : "none");
}

// One look. since: when all replicas had come, 0: not yet.
static enum ps_code sums_look(const struct wk_device_sums *s, uint64_t *since, bool *done, struct ps_error *e)
{
    *done = false;
    if (wk_collective_look(s->env->collective, e))
        return e->code;
    if (*since == 0 && !sums_all_have_come(s))
        return PS_OK;
    *since = *since ? *since : ps_now();
    if (nn_replica_look_at_sums(s->env->replica, done, e))
        return s->abroad || e->code == PS_ABORTED ? sums_find_cause(s, e)
                                                  : ps_error_prefix(e, "replica %" PRIu32, s->env->device);
    const uint64_t limit = (uint64_t)s->env->job->timeout * PS_SECOND;
    return !*done && ps_now() - *since > limit ? sums_are_late(s, e) : PS_OK;
}

// Waits until all ranks of all workers have queued those of this step: who does not is named, and who is lost. The
// devices add up meanwhile.
static enum ps_code sums_await_workers(struct wk_device_sums *s, uint64_t step, struct ps_error *e)
{
    char what[64];
    e->code = PS_OK;
    if (!s->abroad)
        return PS_OK;
    snprintf(what, sizeof what, "gradients in step %" PRIu64, step);
    sums_numbers(s, 1);
    return sums_add_up(s, 1, what, e);
}

enum ps_code wk_device_sums_wait(struct wk_device_sums *s, uint64_t step, struct ps_error *e)
{
    enum { SPINS = 1000 };  // looks before it sleeps between them
    struct progress *own = &s->progress[s->env->device];
    uint64_t since = 0;
    bool done = false;
    s->steps++;
    atomic_store_explicit(&own->queued, s->steps, memory_order_release);
    if (sums_await_workers(s, step, e))
        return e->code;
    for (int i = 0; !done; i++) {
        if (sums_look(s, &since, &done, e))
            return e->code;
        if (!done && i >= SPINS)
            ps_sleep(20000);
    }
    atomic_store_explicit(&own->done, s->steps, memory_order_release);
    return PS_OK;
}
