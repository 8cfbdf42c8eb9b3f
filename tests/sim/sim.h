// SPDX-License-Identifier: Apache-2.0
//
// A cluster in one process, one thread, on simulated time: the real psd cores and the real libclient, joined by a
// simulated network that delays, cuts and repeats. Everything follows from the seed.
//
// Time moves from event to event. A connection (one per client and ps task) keeps order, as a gRPC stream does. It is
// cut at random: calls under way end with UNAVAILABLE, while of their requests the first few have still arrived, and
// some of them once more.
#ifndef SIM_H
#define SIM_H

#include "libclient/transport.h"
#include "psd/core.h"

struct sim;

struct sim_faults {
    double cut;      // probability that a message finds its connection cut
    double repeat;   // that a request of a cut connection arrives a second time, later
    uint64_t delay;  // ns, at most, each way
};

struct sim *sim_create(uint64_t seed, uint32_t ps, const struct sim_faults *faults, uint64_t memory);
void sim_destroy(struct sim *sim);

// A client's world. shutdown and destroy of the world leave the simulation as it is.
struct psc_world sim_world(struct sim *sim);
// The process behind a world dies: none of its callbacks runs again, its connections are cut.
void sim_kill(struct sim *sim, const struct psc_world *world);

uint64_t sim_now(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
void sim_after(struct sim *sim, uint64_t delay, void (*fn)(void *arg), void *arg);
// Runs events until done() or the time has come. False: time ran out (or there is nothing left to happen).
bool sim_run(struct sim *sim, bool (*done)(void *arg), void *arg, uint64_t until);
// A digest of every message that was delivered, in order: equal for equal seeds.
uint64_t sim_digest(const struct sim *sim);
struct psd_core *sim_core(struct sim *sim, uint32_t task);
uint32_t sim_tasks(const struct sim *sim);

#endif
