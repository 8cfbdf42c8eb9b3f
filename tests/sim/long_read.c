// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/long_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "psd/service/service.h"

enum { READS = 3 };
#define SHORT_OF_MEMORY (100 * PS_MS)

// The job is over, is being replaced, or is not the one that it was attached to.
static bool long_read_is_over(const struct long_read *r)
{
    const struct trial *t = r->trial;
    return r->stop || t->calm || t->ended || t->replacing || t->replaces || trial_is_over(t);
}

static void long_read_begin(void *arg);

// The read, or what was added beside it, is over. False: it has failed.
static bool long_read_ended(struct long_read *r, const psc_result *result)
{
    r->under_way--;
    if (result->error.code != PSC_OK)
        CHECK(r->trial, long_read_is_over(r), "the long read: %s", result->error.text);
    else if (r->under_way == 0 && ++r->reads < READS)
        sim_after(r->trial->sim, 300 * PS_MS, long_read_begin, r);
    return result->error.code == PSC_OK;
}

// The ends have what was added before, and perhaps what is added now.
static void on_long_read(void *arg, const psc_result *result)
{
    struct long_read *r = arg;
    if (!long_read_ended(r, result))
        return;
    for (size_t i = 0; i < LONG_COUNT; i++) {
        bool end = i == 0 || i == LONG_COUNT - 1;
        float least = end ? r->begun - 1 : 0, most = end ? r->begun : 0;
        CHECK(r->trial, r->values[i] == least || r->values[i] == most, "element %zu is %g, not %g or %g", i,
              (double)r->values[i], (double)least, (double)most);
    }
}

static void on_added(void *arg, const psc_result *result)
{
    long_read_ended(arg, result);
}

// What is added comes right behind the read, and meets what that has pinned, while there is no room for a copy.
static void long_read_begin(void *arg)
{
    struct long_read *r = arg;
    struct trial *t = r->trial;
    static float one = 1;
    psc_tensor all = {"long", r->values, LONG_COUNT, PSC_FLOAT32, .part = true};
    psc_tensor ends[] = {{"long", &one, 1, PSC_FLOAT32, .part = true},
                         {"long", &one, 1, PSC_FLOAT32, .part = true, .first = LONG_COUNT - 1}};
    if (long_read_is_over(r))
        return;
    const struct psd_job *job = psd_job_lookup(&sim_core(t->sim, 0)->table, "job");
    sim_squeeze_psd(t->sim, job->partitions[2 * t->partitions].task, SHORT_OF_MEMORY);
    r->under_way = 2;
    r->begun++;
    psc_get(r->client, &all, 1, on_long_read, r, NULL);
    psc_assign_add(r->client, ends, 2, on_added, r, NULL);
}

static void on_long_attached(void *arg, const struct ps_error *e)
{
    ((struct long_read *)arg)->under_way--;
    if (e->code == PS_OK)
        long_read_begin(arg);
}

void long_read_start(struct long_read *r, struct trial *t)
{
    const char *addresses[] = {"a:1", "b:1", "c:1"};
    struct psc_world world = sim_world(t->sim);
    psc_options options = {.job = "job", .rank = -1, .timeout_ms = 60000};
    psc_cluster *cluster;
    *r = (struct long_read){.trial = t, .under_way = 1};
    r->values = ps_alloc(LONG_COUNT * sizeof *r->values);
    psc_cluster_create(addresses, t->ps, &cluster, NULL);
    if (psc__client_create(cluster, &options, &world, &r->client, NULL))
        fail_msg("no long reader");
    psc_cluster_free(cluster);
    psc__attach(r->client, on_long_attached, r);
}

bool long_read_is_idle(void *arg)
{
    return ((const struct long_read *)arg)->under_way == 0;
}

void long_read_free(struct long_read *r)
{
    if (!r->trial)
        return;
    psc__client_free(r->client);
    free(r->values);
}
