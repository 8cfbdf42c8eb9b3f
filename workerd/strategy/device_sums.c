// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/device_sums.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "workerd/collective/collective.h"

// How far each replica is, for the others to see: so many steps whose sums are all queued, and are all done.
struct progress {
    _Alignas(64) _Atomic uint64_t queued;
    _Atomic uint64_t done;
};

struct wk_device_sums {
    const struct wk_env *env;
    struct progress *progress;  // [replicas], replica 0's
    uint64_t steps;
};

// What replica 0 has for the others.
struct sums_gift {
    char name[NN_SUMS_NAME];
    struct progress *progress;
};

// ---- open ---------------------------------------------------------------------------------------------------------

static bool sums_are_wanted(const struct wk_env *env)
{
    const struct ps_job *job = env->job;
    const bool several = env->replicas > 1 || job->cross_device != PS_CROSS_DEVICE_AUTO;
    return job->strategy == PS_STRATEGY_MIRRORED && job->cross_device != PS_CROSS_DEVICE_HIERARCHICAL_COPY && several;
}

static bool device_is_gpu(const char *name)
{
    return strncmp(name, "gpu", 3) == 0 || strncmp(name, "cuda", 4) == 0;
}

static enum nn_sums_way sums_way(const struct wk_env *env)
{
    return env->job->cross_device == PS_CROSS_DEVICE_REDUCTION_TO_ONE_DEVICE ? NN_SUMS_ON_FIRST : NN_SUMS_AMONG_ALL;
}

// Of all replicas: each answers alike.
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

static enum ps_code sums_check_rule(const struct wk_local_rule *rule, struct ps_error *e)
{
    if (rule->kept)
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "the host applies the optimizer %s of this job: expected one that GPUs apply, without clipnorm, "
                   "global_clipnorm, gradient_accumulation_steps, use_ema, constraints and refuse_nonfinite",
                   rule->rule->name);
}

// *can: the devices add up. With auto the host does where they cannot.
static enum ps_code sums_choose(const struct wk_env *env, struct wk_local_rule *rule, bool *can, struct ps_error *e)
{
    struct ps_error why = {PS_OK, ""};
    *can = false;
    if (!sums_are_wanted(env))
        return PS_OK;
    if (sums_check_devices(env, &why) == PS_OK) {
        if (wk_local_rule_keep(rule, e))
            return e->code;
        *can = sums_check_rule(rule, &why) == PS_OK;
    }
    if (!*can && env->job->cross_device != PS_CROSS_DEVICE_AUTO)
        return ps_fail(e, why.code, "strategy.cross_device_ops is %s, and %s",
                       sums_way(env) == NN_SUMS_AMONG_ALL ? "nccl" : "reduction_to_one_device", why.text);
    return PS_OK;
}

// As sums of bytes, to which the others add nothing.
static enum ps_code sums_share(const struct wk_env *env, struct sums_gift *gift, struct ps_error *e)
{
    double byte[sizeof *gift] = {0};
    unsigned char *bytes = (unsigned char *)gift;
    for (size_t i = 0; i < sizeof *gift && env->device == 0; i++)
        byte[i] = bytes[i];
    struct wk_reduction sum = {.values = byte, .n = sizeof *gift, .type = WK_DOUBLE};
    if (wk_collective_reduce(env->collective, env->device, &sum, e))
        return e->code;
    for (size_t i = 0; i < sizeof *gift; i++)
        bytes[i] = (unsigned char)byte[i];
    return PS_OK;
}

static enum ps_code sums_join(struct wk_device_sums *s, struct ps_error *e)
{
    const struct wk_env *env = s->env;
    struct sums_gift gift = {.progress = s->progress};
    if ((env->device == 0 && nn_replica_name_sums(env->replica, gift.name, e)) || sums_share(env, &gift, e))
        return e->code;
    s->progress = gift.progress;
    return nn_replica_join_sums(env->replica, gift.name, (int)env->device, (int)env->replicas, e);
}

enum ps_code wk_device_sums_open(struct wk_device_sums **sums, const struct wk_env *env, struct wk_local_rule *rule,
                                 struct ps_error *e)
{
    bool can;
    if (sums_choose(env, rule, &can, e) || !can)
        return e->code;
    struct wk_device_sums *s = *sums = ps_alloc(sizeof *s);
    s->env = env;
    if (env->device == 0) {
        s->progress = ps_alloc_aligned(env->replicas * sizeof *s->progress);
        memset(s->progress, 0, env->replicas * sizeof *s->progress);
        ps_info("%" PRIu32 " replicas add up gradients %s", env->replicas,
                sums_way(env) == NN_SUMS_AMONG_ALL ? "by NCCL" : "on the first GPU");
    }
    return sums_join(s, e);
}

void wk_device_sums_close(struct wk_device_sums *s, bool failed)
{
    if (!s)
        return;
    if (failed)
        nn_replica_abort_sums(s->env->replica);
    if (s->env->device == 0)
        free(s->progress);
    free(s);
}

// ---- a step -------------------------------------------------------------------------------------------------------

void wk_device_sums_add(struct wk_device_sums *s, size_t variable, size_t n, float weight)
{
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
    for (uint32_t i = 0; i < s->env->replicas; i++)
        if (atomic_load_explicit(&s->progress[i].queued, memory_order_acquire) < s->steps)
            return false;
    return true;
}

// Those whose sums are done: without the others they cannot be, so they have taken no part.
static enum ps_code sums_are_late(const struct wk_device_sums *s, struct ps_error *e)
{
    char own[48], other[48], others[256] = "";
    sums_name_replica(s->env, s->env->device, own, sizeof own);
    for (uint32_t i = 0; i < s->env->replicas; i++) {
        const size_t at = strlen(others);
        sums_name_replica(s->env, i, other, sizeof other);
        if (atomic_load_explicit(&s->progress[i].done, memory_order_acquire) >= s->steps &&
            at + sizeof other < sizeof others)
            snprintf(others + at, sizeof others - at, "%s%s", at ? ", " : "", other);
    }
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
        return ps_error_prefix(e, "replica %" PRIu32, s->env->device);
    const uint64_t limit = (uint64_t)s->env->job->timeout * 1000000000;
    return !*done && ps_now() - *since > limit ? sums_are_late(s, e) : PS_OK;
}

enum ps_code wk_device_sums_wait(struct wk_device_sums *s, struct ps_error *e)
{
    enum { SPINS = 1000 };  // looks before it sleeps between them
    struct progress *own = &s->progress[s->env->device];
    uint64_t since = 0;
    bool done = false;
    s->steps++;
    atomic_store_explicit(&own->queued, s->steps, memory_order_release);
    for (int i = 0; !done; i++) {
        if (sums_look(s, &since, &done, e))
            return e->code;
        if (!done && i >= SPINS)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    atomic_store_explicit(&own->done, s->steps, memory_order_release);
    return PS_OK;
}
