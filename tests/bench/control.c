// SPDX-License-Identifier: Apache-2.0
//
// What one worker's step costs the control task: nanoseconds for a step of ssp's clock and a heartbeat, and for a tick,
// by the number of workers and of jobs; and how many jobs a tick looks at, of which one is used. Prints a table; no
// network, one thread.
//
//     make tests/bench/control && tests/bench/control
#include <stdio.h>

#include "psd/control/state.h"
#include "tests/unit/psd_core.h"

enum { STEPS = 20 };

struct who {
    Paramserver__V1__Caller caller;
    uint8_t id[16];
};

static void who_init(struct who *x, char *job, uint64_t run, uint32_t rank)
{
    paramserver__v1__caller__init(&x->caller);
    memset(x->id, 1, sizeof x->id);
    memcpy(x->id, &rank, sizeof rank);
    x->caller.protocol = PS_PROTOCOL;
    x->caller.job = job;
    x->caller.client = (ProtobufCBinaryData){sizeof x->id, x->id};
    x->caller.worker = rank + 1;
    x->caller.run = x->caller.incarnation = run;
}

static void must(struct answer a)
{
    if (a.code == PS_OK)
        return;
    fprintf(stderr, "control: %s\n", a.text);
    exit(1);
}

static void join(struct psd_core *core, char *job, uint32_t workers, uint32_t rank)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    struct who x;
    who_init(&x, job, 0, rank);
    r.caller = &x.caller;
    r.workers = workers;
    r.update = PARAMSERVER__V1__UPDATE__SSP;
    r.staleness = 4;
    must(ask(core, PARAMSERVER__V1__METHOD__JOIN, &r.base, NULL, NULL, NULL, NULL));
}

static void step(struct psd_core *core, char *job, uint64_t run, uint32_t rank, uint64_t step)
{
    Paramserver__V1__ClockRequest r = PARAMSERVER__V1__CLOCK_REQUEST__INIT;
    Paramserver__V1__HeartbeatRequest h = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    struct who x;
    who_init(&x, job, run, rank);
    r.caller = h.caller = &x.caller;
    r.step = h.step = step;
    h.epoch = psd_job_lookup(&core->table, job)->control->epoch;
    must(ask(core, PARAMSERVER__V1__METHOD__CLOCK, &r.base, NULL, NULL, NULL, NULL));
    must(ask(core, PARAMSERVER__V1__METHOD__HEARTBEAT, &h.base, NULL, NULL, NULL, NULL));
}

static void measure(uint32_t workers, int jobs)
{
    struct psd_core *core = core_new((size_t)8 << 30);
    char name[16];
    uint64_t begun = ps_now();
    for (int i = 0; i < jobs; i++) {
        snprintf(name, sizeof name, "job-%d", i);
        for (uint32_t rank = 0; rank < workers; rank++)
            join(core, name, workers, rank);
    }
    double joins = (double)(ps_now() - begun) / ((double)workers * jobs);
    const uint64_t run = atomic_load(&psd_job_lookup(&core->table, name)->run);
    begun = ps_now();
    for (uint64_t k = 1; k <= STEPS; k++)
        for (uint32_t rank = 0; rank < workers; rank++)
            step(core, name, run, rank, k);
    double steps = (double)(ps_now() - begun) / ((double)workers * STEPS);
    psd_core_tick(core);
    const uint64_t visited = core->table.visited;
    begun = ps_now();
    for (int k = 0; k < 100; k++) {
        step(core, name, run, 0, STEPS);
        psd_core_tick(core);
    }
    double ticks = (double)(ps_now() - begun) / 100;
    printf("%8u %6d %10.0f %16.0f %13.0f %11.2f\n", workers, jobs, joins, steps, ticks,
           (double)(core->table.visited - visited) / 100);
    psd_core_destroy(core);
}

int main(void)
{
    printf(" workers   jobs    ns/join  ns/step+heartbeat  ns/step+tick  jobs/tick\n");
    for (uint32_t workers = 10; workers <= 10000; workers *= 10)
        measure(workers, 1);
    measure(10, 100);
    measure(10, 1000);
    return 0;
}
