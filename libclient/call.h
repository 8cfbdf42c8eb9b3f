// SPDX-License-Identifier: Apache-2.0
// One request to one task that is no part of the tensors' queues: membership, declaration, barriers, administration.
// It is sent again until it is answered, given up or the client ends. All of these are safe to repeat: those that
// change something carry a sequence.
#ifndef PSC_CALL_H
#define PSC_CALL_H

#include <protobuf-c/protobuf-c.h>

#include "libclient/client.h"

enum { PSC__NO_LIMIT = -1, PSC__TRY_MS = 30000 };

// Runs once, without the lock. reply is cleared by the caller.
typedef void (*psc__call_fn)(void *arg, const struct ps_error *e, struct ps_slices *reply);

struct psc__call_spec {
    uint32_t task;
    int method;
    const ProtobufCMessage *message;  // without its Caller, which is added each time it is sent; only read
    int timeout_ms;                   // PSC__NO_LIMIT: waits for other workers, as long as the job is healthy
    bool once;                        // is not repeated
    bool last;                        // goes out though the client has ended
    bool mutates;                     // takes the next sequence of visits, by which psd knows a repetition
    const char *awaits;               // what is waited for, "for worker 0 to open the job"; NULL: the answer
    psc__call_fn done;
    void *arg;
    bool owns_arg;  // free() it where done never runs: the client is freed before the call has ended
};

// RESOURCE_EXHAUSTED: there is no memory to start it, and done will not run.
enum ps_code psc__call(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e);
enum ps_code psc__call_locked(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e);
void psc__calls_fail(struct psc_client *c, const struct ps_error *e);  // locked: all of them
void psc__calls_free(struct psc_client *c);  // after the world's shutdown: those whose timer will not run

// Decodes a reply to be freed with ps_msg_free(); INTERNAL, which names the task, or RESOURCE_EXHAUSTED.
enum ps_code psc__call_unpack(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                              const struct ps_slices *reply, ProtobufCMessage **m, struct ps_slices *payload,
                              struct ps_error *e);
enum ps_code psc__call_decode(const struct psc__task *t, const ProtobufCMessageDescriptor *type,
                              const struct ps_slices *reply, ProtobufCMessage **m, struct ps_error *e);
// Locked. ABORTED: the task has another generation than it had, which has ended the client.
enum ps_code psc__call_check(struct psc__task *t, uint64_t generation, struct ps_error *e);

// Locked. One more heartbeat, which done learns the end of; RESOURCE_EXHAUSTED: as psc__call.
enum ps_code psc__beat(struct psc_client *c, psc__call_fn done, void *arg, bool owns_arg, struct ps_error *e);
// Locked. Takes what a heartbeat was answered with, unless what is known of the members is newer.
enum ps_code psc__beat_heard(struct psc_client *c, const struct ps_slices *reply, struct ps_error *e);

// 50 ms, doubling with each attempt to 1 s, give or take half of it.
uint64_t psc__backoff(struct psc_client *c, uint32_t attempt);
// What is left until the deadline in ms, at least 1; with no deadline (UINT64_MAX) PSC__TRY_MS.
uint32_t psc__timeout_ms(struct psc_client *c, uint64_t deadline);

#endif
