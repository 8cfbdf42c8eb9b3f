// SPDX-License-Identifier: Apache-2.0
//
// What all of libclient stands on: the client's state, its lock, the world's time, the names of tasks and methods, the
// Caller of requests, the generations that tasks answer with, and the client's end.
//
// Knows neither operations, nor queues, nor calls: those that must hear of the end put themselves on a list.
//
// The lock. One mutex per client guards all that is not constant. world.call and world.after are called with it held
// (so that what is decided first is sent first); they never call back from inside. What has to run without it (the
// callbacks) is put on `later` and run by psc__unlock. Functions say "locked" where they expect it held.
#ifndef PSC_BASE_H
#define PSC_BASE_H

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <signal.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/wire/progress.h"
#include "libclient/psclient.h"
#include "libclient/transport.h"
#include "libclient/window.h"
#include "proto/paramserver.pb-c.h"

enum { PSC__SHARDS_MS = 600000 };  // in which ps tasks write their shards, or read them
enum { PSC__TRY_MS = 30000 };      // the deadline of a single attempt where what is asked for has none

// Runs once, without the lock; where there is no memory to begin, before the function that starts it returns. e->code
// PS_OK: done, and what out pointers were given is set.
typedef void (*psc__done_fn)(void *arg, const struct ps_error *e);

// What psc__unlock runs once the lock is free. Embed it.
struct psc__later {
    TAILQ_ENTRY(psc__later) link;
    void (*run)(struct psc__later *);
};

// Told when the client ends: locked, in the order in which they were added.
struct psc__ender {
    TAILQ_ENTRY(psc__ender) link;
    void (*end)(struct psc_client *c, const struct ps_error *why);
};

struct psc__task {
    struct psc_client *client;
    uint32_t index;
    char *address;
    uint64_t generation;     // 0: it has answered nothing yet that is of the job
    bool opened;             // its connections begin with an Open,
    uint64_t opened_as;      // which names this generation
    uint64_t heard;          // when it answered anything but a request for data last; 0: never
    uint64_t refused_since;  // nobody has listened at its address since; 0: somebody may
    bool given_up;           // nobody has listened there for too long, or the control task has been silent
    char why[128];           // the last attempt to reach it failed; "": it has answered since, or nothing was tried
};

// What the control task said of the job, and what it is told with the next heartbeat.
struct psc__membership {
    bool joined, late, draining;
    uint64_t run;          // constant once joined or attached; 0: not known
    uint64_t incarnation;  // likewise
    uint64_t newest;       // the greatest of these numbers that a ps task knew before it joined
    uint64_t data_epoch;   // likewise
    uint64_t epoch;
    uint64_t heartbeat_ns, dead_after_ns;
    uint64_t heard;        // when the last heartbeat was answered
    uint32_t unanswered;   // heartbeats, since
    uint32_t live;         // workers
    uint32_t chief;        // rank
    uint64_t chief_heard;  // at the control task, as far as is known here
    bool heir;             // psc_is_heir
    uint64_t arrival;      // psc_arrival
    uint64_t furthest;     // psc_furthest
    uint64_t step;
    double examples_per_second, loss;
    uint64_t checkpoints;  // that the job was asked for
    uint64_t checkpoint;   // the last one of them that is over
    bool checkpoint_failed;
    bool interrupted;  // a signal has asked for its end
    char checkpoint_text[320];
    struct ps_progress progress;
    bool looking;        // a call that asks whether a task is there is under way
    uint32_t looked_at;  // the task that was asked last
    bool unsent;         // these have changed since the last heartbeat, or that one was lost
};

struct psc_client {
    // Constant.
    struct psc_world world;
    char *job;
    char *configuration;
    int rank;  // -1: an observer
    uint32_t workers, min_workers;
    uint32_t staleness, share_rounds, join_within_ms;
    bool follows_mode;
    uint64_t share_batch;
    psc_on_existing on_existing;
    uint64_t resumed_round;  // Join's, for Declare
    bool unary;
    uint64_t timeout_ns, refused_ns;
    size_t chunk_bytes;
    const volatile sig_atomic_t *stop;           // may be NULL
    void (*waits)(void *arg, const char *what);  // likewise
    void *waits_arg;
    uint8_t id[16];
    pid_t pid;  // whose threads it has: not those of a child
    uint32_t n_tasks;
    struct psc__task *tasks;

    char waits_for[256];  // what was told last; that timer's alone

    pthread_mutex_t lock;
    TAILQ_HEAD(, psc__later) later;
    struct ps_error ended;    // OK: the job goes on; else why it does not
    struct ps_error stopped;  // likewise: a signal came, and only what moves values may still end
    TAILQ_HEAD(, psc__ender) enders;
    psc_update update;
    uint64_t resumptions;                      // as psc_resumptions
    uint64_t skip_epoch, skip;                 // psc_skip_examples
    uint64_t steps_before, iterations_before;  // psc_count_from
    struct psc__window window;
    struct psc__membership member;
    struct psc__layout *layout;    // NULL: neither declared nor attached; else constant but for the versions
    struct psc__queue *queues;     // queue.c, per task
    struct psc__ops *ops;          // op.c
    struct psc__cutting *cutting;  // op_cut.c
    struct psc__calls *calls;      // call.c
};

void psc__lock(struct psc_client *c);
void psc__unlock(struct psc_client *c);  // and runs what is on `later`
void psc__run_later(struct psc_client *c, struct psc__later *l, void (*run)(struct psc__later *));  // locked

uint64_t psc__now(struct psc_client *c);
void psc__after(struct psc_client *c, uint64_t delay_ns, void (*fn)(void *), void *arg);
// 50 ms, doubling with every fourth attempt to 1 s, give or take half of it.
uint64_t psc__backoff(struct psc_client *c, uint32_t attempt);
// Until the deadline, at least 1.
int psc__ms_left(struct psc_client *c, uint64_t deadline);
// Of one attempt at what has this deadline (ns). Without one (UINT64_MAX), in PSC__TRY_MS.
uint64_t psc__attempt_deadline(struct psc_client *c, uint64_t deadline);

// Locked. The job is over for this client: ends everything with this error. The first reason stays.
void psc__end(struct psc_client *c, enum ps_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Locked. The task does not know the job of which this client is a worker: that ends the client. It was stopped; or,
// where this client has not heard from the task since it joined, the task has restarted, or the job was stopped since.
void psc__lost_job(struct psc__task *t, const char *text);
// Locked. Notes the generation that a task answered with; false: it has changed, and that ended the client.
bool psc__saw_generation(struct psc__task *t, uint64_t generation);
// Locked. Likewise; ABORTED: it has changed.
enum ps_code psc__check_generation(struct psc__task *t, uint64_t generation, struct ps_error *e);

// Does the transport's text of an attempt say that the connection was refused (transport.h)?
bool psc__says_nobody_listens(const char *text);
// Locked. An attempt to reach t has failed. Silence may pass; but where nobody has listened at its address for as long
// as a worker may be silent, the process is gone, and the job's state with it: that ends a client that has joined, and
// an observer after options.refused_ms.
void psc__task_unreachable(struct psc__task *t, const char *text);
void psc__task_heard(struct psc__task *t);  // locked: it has answered
// Locked. What a reply's code means. Who has joined was known: where the connection broke, and munged of either host is
// being started anew, it is a moment later again. That is as if the task could not be reached.
enum ps_code psc__reply_code(const struct psc_client *c, enum ps_code code);
// Locked. Has the task answered others while a call waited there that was sent at `sent`? Then the failure that ended
// this attempt is the first one.
bool psc__task_was_there(const struct psc__task *t, uint64_t sent);

// Locked. The Caller of a request to t; its strings stay the client's.
void psc__caller_init(Paramserver__V1__Caller *caller, const struct psc__task *t, uint64_t sequence);

// Does a request over a stream leave its caller to the stream's session?
bool psc__has_sessions(const struct psc_client *c);
// Locked, once the run is known. Has connections to t begin with what opens a session. False: no memory.
bool psc__open_session(struct psc__task *t);

// Decodes a reply to be freed with ps_msg_free(); INTERNAL, which names the task, or RESOURCE_EXHAUSTED.
enum ps_code psc__unpack(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                         const struct ps_slices *reply, ProtobufCMessage **m, struct ps_slices *payload,
                         struct ps_error *e);
enum ps_code psc__decode(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                         const struct ps_slices *reply, ProtobufCMessage **m, struct ps_error *e);

// "ps:1 (host:7071)", the way every error names a task.
#define PSC__TASK "ps:%u (%s)"
#define PSC__TASK_ARGS(t) (t)->index, (t)->address

// "push", the way every error names a call.
const char *psc__method_name(int method);

#endif
