// SPDX-License-Identifier: Apache-2.0
//
// A cluster in one process, one thread, on simulated time: the real psd cores and the real libclient, joined by a
// simulated network that delays, cuts and repeats. Everything follows from the seed.
//
// Time moves from event to event. A connection (one per client and ps task) keeps order, as a gRPC stream does. It is
// cut at random: calls under way end with UNAVAILABLE, while of their requests the first few have still arrived, and
// some of them once more.
//
// Calls of a loosened client, and what the psds send each other, are unary: each on its own, overtaking each other; a
// request or its answer is lost, a request comes twice, or seconds late, when its caller has given it up or is dead.
#ifndef SIM_H
#define SIM_H

#include "libclient/transport.h"
#include "psd/service/core.h"

enum { SIM_PRIORITIES = 4 };  // of calls: each below it

struct sim;

struct sim_faults {
    double cut;      // probability that a message finds its connection cut
    double repeat;   // that a request of a cut connection, or a unary one, arrives a second time, later
    double lose;     // that a unary request is lost, and likewise its answer
    uint64_t delay;  // ns, at most, each way
    uint64_t late;   // ns, at most: how late a unary message or a copy may be
};

struct sim *sim_create(uint64_t seed, uint32_t ps, const struct sim_faults *faults, uint64_t memory);
void sim_destroy(struct sim *sim);

// A client's world. shutdown and destroy of the world leave the simulation as it is.
struct psc_world sim_world(struct sim *sim);
void sim_world_loosen(const struct psc_world *world);  // before its first call
// The process behind a world, or a psd, stops and goes on after that time.
void sim_stall(const struct psc_world *world, uint64_t delay);
void sim_stall_psd(struct sim *sim, uint32_t task, uint64_t delay);
// The psd has all the memory that it may take, for that time; in the calm it has more.
void sim_squeeze_psd(struct sim *sim, uint32_t task, uint64_t delay);
// The process behind a world dies: none of its callbacks runs again, its connections are cut.
void sim_kill(struct sim *sim, const struct psc_world *world);

uint64_t sim_now(const struct sim *sim);
uint64_t sim_random(struct sim *sim);
void sim_after(struct sim *sim, uint64_t delay, void (*fn)(void *arg), void *arg);
// From now on nothing is cut, lost, late or repeated any more; messages still take their time.
void sim_calm(struct sim *sim);
// Runs events until done() or the time has come. False: time ran out (or there is nothing left to happen).
bool sim_run(struct sim *sim, bool (*done)(void *arg), void *arg, uint64_t until);
// Sees every request of a client as a psd takes it up, and its answer as the psd gives it, at that time.
struct sim_seen {
    uint32_t task;
    int method;
    const struct ps_slices *message;  // the request, or the answer where code is PS_OK
    bool answer;
    bool unary;  // by a client of unary calls
    enum ps_code code;
    uint64_t *note;  // the watcher's own, of this request's delivery; 0 at first
};
typedef void (*sim_watch_fn)(void *arg, const struct sim_seen *seen);
void sim_watch(struct sim *sim, sim_watch_fn fn, void *arg);

uint64_t sim_events(const struct sim *sim);  // that have happened
// A digest of every message that was delivered, in order: equal for equal seeds.
uint64_t sim_digest(const struct sim *sim);
uint32_t sim_parked(const struct sim *sim, uint32_t task);  // calls in this psd's hands, from clients and from psds
struct psd_core *sim_core(struct sim *sim, uint32_t task);
uint32_t sim_tasks(const struct sim *sim);

#endif
