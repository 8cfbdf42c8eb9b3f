// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/cores.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "config.h"
#ifdef HAVE_HWLOC
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#endif

struct wk_cores {
    cpu_set_t all;  // that this process may use
    uint32_t replicas;
    cpu_set_t *set;  // [replicas]
};

// ---- auto ---------------------------------------------------------------------------------------------------------

#ifdef HAVE_HWLOC
// Equal parts in the order of the machine's tree: of one NUMA node, as far as that goes.
static enum ps_code cores_share_out(struct wk_cores *c, hwloc_topology_t topology)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    hwloc_cpuset_t *part = ps_alloc(c->replicas * sizeof *part);
    const bool failed = hwloc_distrib(topology, &root, 1, part, c->replicas, INT_MAX, 0) != 0;
    for (uint32_t i = 0; i < c->replicas && !failed; i++) {
        hwloc_cpuset_to_glibc_sched_affinity(topology, part[i], &c->set[i], sizeof c->set[i]);
        hwloc_bitmap_free(part[i]);
    }
    free(part);
    return failed ? PS_INTERNAL : PS_OK;
}

static enum ps_code cores_plan_auto(struct wk_cores *c, struct ps_error *e)
{
    hwloc_topology_t topology;
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    enum ps_code code = PS_INTERNAL;
    hwloc_topology_init(&topology);
    if (hwloc_topology_load(topology) == 0 &&
        hwloc_cpuset_from_glibc_sched_affinity(topology, allowed, &c->all, sizeof c->all) == 0 &&
        hwloc_topology_restrict(topology, allowed, 0) == 0)
        code = cores_share_out(c, topology);
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return code ? ps_fail(e, code, "bind: auto: hwloc does not know this machine's cores: expected bind: none") : PS_OK;
}
#else
static enum ps_code cores_plan_auto(struct wk_cores *c, struct ps_error *e)
{
    (void)c;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "bind: auto needs hwloc, which this workerd was built without (Debian: libhwloc-dev, then configure "
                   "again)");
}
#endif

// ---- masks --------------------------------------------------------------------------------------------------------

// The hexadecimal digits from the last, which is cores 0 to 3.
static bool cores_take_digits(const char *digits, size_t n, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (size_t k = 0; k < n; k++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, digits[n - 1 - k] | 0x20);
        if (!at || 4 * k + 3 >= CPU_SETSIZE)
            return false;
        for (int bit = 0; bit < 4; bit++)
            if ((at - hex) >> bit & 1)
                CPU_SET(4 * k + (size_t)bit, set);
    }
    return CPU_COUNT(set) > 0;
}

static enum ps_code cores_plan_masks(struct wk_cores *c, const char *masks, struct ps_error *e)
{
    const char *at = masks;
    cpu_set_t common;
    for (uint32_t i = 0; i < c->replicas; i++) {
        const size_t n = strcspn(at, ",");
        if (n < 3 || strncmp(at, "0x", 2) != 0 || !cores_take_digits(at + 2, n - 2, &c->set[i]) ||
            (at[n] == ',') != (i + 1 < c->replicas))
            return ps_fail(
                e, PS_INVALID_ARGUMENT,
                "bind: \"%.100s\": expected none, auto, or a mask of cores for each of %u replicas, as 0x3,0xc", masks,
                c->replicas);
        CPU_AND(&common, &c->set[i], &c->all);
        if (!CPU_EQUAL(&common, &c->set[i]))
            return ps_fail(e, PS_INVALID_ARGUMENT, "bind: %.*s has cores that this process may not use", (int)n, at);
        at += n + (at[n] == ',');
    }
    return PS_OK;
}

// ---- all ----------------------------------------------------------------------------------------------------------

enum ps_code wk_cores_plan(const char *bind, uint32_t replicas, struct wk_cores **cores, struct ps_error *e)
{
    *cores = NULL;
    if (strcmp(bind, "none") == 0)
        return PS_OK;
    struct wk_cores *c = ps_alloc(sizeof *c);
    c->replicas = replicas;
    c->set = ps_alloc(replicas * sizeof *c->set);
    pthread_getaffinity_np(pthread_self(), sizeof c->all, &c->all);
    enum ps_code code = strcmp(bind, "auto") == 0 ? cores_plan_auto(c, e) : cores_plan_masks(c, bind, e);
    if (code)
        wk_cores_free(c);
    else
        *cores = c;
    return code;
}

void wk_cores_free(struct wk_cores *c)
{
    if (!c)
        return;
    free(c->set);
    free(c);
}

// "0-3,8"; returns how long it is.
static size_t cores_put_set(const cpu_set_t *set, char *to, size_t size)
{
    size_t n = 0;
    for (size_t first = 0; first < CPU_SETSIZE && n < size; first++) {
        size_t last = first;
        if (!CPU_ISSET(first, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        n += (size_t)snprintf(to + n, size - n, last > first ? "%s%zu-%zu" : "%s%zu", n ? "," : "", first, last);
        first = last;
    }
    return n;
}

void wk_cores_text(const struct wk_cores *c, char *to, size_t size)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->replicas && n < size; i++) {
        n += (size_t)snprintf(to + n, size - n, "%sreplica %u on ", i ? ", " : "", i);
        if (n < size)
            n += cores_put_set(&c->set[i], to + n, size - n);
    }
}

void wk_cores_bind(const struct wk_cores *c, uint32_t replica)
{
    if (c)
        pthread_setaffinity_np(pthread_self(), sizeof c->set[replica], &c->set[replica]);
}

void wk_cores_release(const struct wk_cores *c)
{
    if (c)
        pthread_setaffinity_np(pthread_self(), sizeof c->all, &c->all);
}
