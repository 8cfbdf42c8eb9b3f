// SPDX-License-Identifier: Apache-2.0
// The insides of the fake: fake_ps.c is its network and membership, fake_data.c what it stores.
#ifndef TESTS_FAKE_INSIDE_H
#define TESTS_FAKE_INSIDE_H

#include <pthread.h>
#include <sys/queue.h>

#include "common/wire/wire.h"
#include "libclient/psclient.h"
#include "proto/paramserver.pb-c.h"
#include "tests/unit/fake_ps.h"

enum { FAKE_RANGES = 8192, FAKE_BLOCKS = 64, FAKE_SEQUENCES = 2048, FAKE_STAGED = 64, FAKE_MET = 256 };

struct call {
    TAILQ_ENTRY(call) link;  // while parked
    struct fake *f;
    uint32_t task;
    int method;
    uint32_t priority;
    uint64_t serial, deadline;  // of the connection; on the fake's clock
    bool cut;                   // its answer is lost
    bool counted;               // it was parked for a round, which has its gradient
    struct ps_slices request, body;
    enum ps_code code;
    const char *text;
    psc_reply_fn reply;
    void *arg;
};

struct variable {
    char *name;
    int dtype;
    uint64_t count;
    uint32_t elem_size, block_elems;
    uint8_t *values;      // [count]
    psc_string *strings;  // [count] instead of values
    struct part {
        uint64_t first, count;
        uint32_t task, block;  // its first
    } parts[FAKE_BLOCKS];
    size_t n_parts;
    uint64_t version[FAKE_BLOCKS];
    bool seen[FAKE_BLOCKS][FAKE_SEQUENCES];
    uint64_t touched[FAKE_BLOCKS];  // by request: serial number + 1 of the last that came for the block under `by`
    uint64_t by[FAKE_BLOCKS];       // sequence
};

// A request of an atomic update, until all of them have come.
struct staged {
    uint64_t sequence;
    struct ps_slices request;
};

struct task {
    struct variable variables[FAKE_VARIABLES];
    size_t n;
    uint64_t serial;  // of the connection
    uint64_t oldest;  // sequences below it are forgotten, and counted as seen
    struct staged staged[FAKE_STAGED];
    size_t n_staged;
};

// What a Reduce was answered with, for when it is asked again.
struct met {
    uint32_t worker;
    uint64_t sequence;
    struct ps_slices reply;
};

struct fake_inside {
    pthread_mutex_t lock;       // of the events: calls come from any thread
    pthread_mutex_t happening;  // held while an event happens
    struct event *events;
    size_t n, cap;
    uint64_t orders, draws;
    TAILQ_HEAD(, call) parked;
    struct ps_slices held;
    struct task tasks[FAKE_TASKS];
    Paramserver__V1__DeclareRequest *declared;
    struct met met[FAKE_MET];
    size_t n_met;
};

// fake_ps.c
void fake_answer(struct call *c, enum ps_code code, const char *text);
void fake_answer_with(struct call *c, const ProtobufCMessage *m, struct ps_slices *payload);
void fake_park(struct call *c);
void fake_note(struct call *c, const Paramserver__V1__Caller *caller, Paramserver__V1__Tensor **tensors, size_t n,
               struct fake_arrival a);

// fake_data.c
void fake_make_variables(struct fake *f, uint32_t task, const Paramserver__V1__DeclareRequest *r);
void fake_update(struct call *c, const Paramserver__V1__UpdateRequest *r, const struct ps_slices *payload);
void fake_read(struct call *c, const Paramserver__V1__ReadRequest *r);
void fake_free_variables(struct fake *f);

#endif
