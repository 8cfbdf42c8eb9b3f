// SPDX-License-Identifier: Apache-2.0
#include "psd/job/runs.h"

#include <string.h>

#include "common/base/hash.h"

#define HUNDRED_YEARS (UINT64_C(1) << 52)  // microseconds, and more

void psd_runs_init(struct psd_runs *runs, uint64_t wall_us)
{
    atomic_init(&runs->last, wall_us);
    runs->farthest = wall_us + HUNDRED_YEARS;
}

uint64_t psd_runs_next(struct psd_runs *runs)
{
    return atomic_fetch_add(&runs->last, 1) + 1;
}

uint64_t psd_runs_newest(const struct psd_runs *runs)
{
    return atomic_load(&runs->last);
}

void psd_runs_hear(struct psd_runs *runs, uint64_t number)
{
    unsigned long long last = atomic_load(&runs->last);
    while (number > last && number <= runs->farthest && !atomic_compare_exchange_weak(&runs->last, &last, number))
        continue;
}

static uint64_t runs_hash(const char *name)
{
    return ps_hash(PS_HASH_SEED, name, strlen(name));
}

void psd_runs_remember(struct psd_runs *runs, const char *name, uint64_t run)
{
    uint64_t hash = runs_hash(name);
    struct psd_past_run *to = &runs->past[0];  // its own entry, else the one with the lowest run
    for (size_t i = 0; i < PSD_PAST_RUNS && (to->name != hash || !to->run); i++)
        if ((runs->past[i].name == hash && runs->past[i].run) || runs->past[i].run < to->run)
            to = &runs->past[i];
    if (to->run && to->name != hash && to->run > runs->forgotten)
        runs->forgotten = to->run;
    if (to->name != hash || to->run < run)
        *to = (struct psd_past_run){hash, run};
}

uint64_t psd_runs_past(const struct psd_runs *runs, const char *name)
{
    uint64_t hash = runs_hash(name);
    for (size_t i = 0; i < PSD_PAST_RUNS; i++)
        if (runs->past[i].run && runs->past[i].name == hash)
            return runs->past[i].run;
    return runs->forgotten;
}
