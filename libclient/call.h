// SPDX-License-Identifier: Apache-2.0
// One request to one task that is no part of the tensors' queues: membership, declaration, barriers, administration.
// It is sent again until it is answered, given up or the client ends. All of these are safe to repeat: those that
// change something carry a sequence.
#ifndef PSC_CALL_H
#define PSC_CALL_H

#include "libclient/base.h"

enum { PSC__NO_LIMIT = -1 };

// Runs once, without the lock. reply is cleared by the caller.
typedef void (*psc__call_fn)(void *arg, const struct ps_error *e, struct ps_slices *reply);

struct psc__call_spec {
    uint32_t task;
    int method;
    const ProtobufCMessage *message;  // without its Caller, which is added each time it is sent; only read
    int timeout_ms;                   // PSC__NO_LIMIT: waits for other workers, as long as the job is healthy
    int refused_ms;                   // where nobody listens it is tried for so long only; 0: as otherwise
    bool once;                        // is not repeated
    bool last;                        // goes out though the client has ended
    bool mutates;                     // takes the next sequence of such calls, by which psd knows a repetition
    const char *awaits;               // what is waited for, "worker 0 to open the job"; NULL: the answer
    psc__call_fn done;
    void *arg;
    bool owns_arg;  // free() it where done never runs: the client is freed before the call has ended
};

// RESOURCE_EXHAUSTED: there is no memory to start it, and done will not run.
enum ps_code psc__call(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e);
enum ps_code psc__call_locked(struct psc_client *c, const struct psc__call_spec *spec, struct ps_error *e);

// Locked. Has some call waited for other workers since before `since`?
bool psc__calls_wait_for_others(const struct psc_client *c, uint64_t since);

// Locked. What the first call waits for that was started before `since` and is no heartbeat; *what stays as it is:
// none.
void psc__calls_name_wait(const struct psc_client *c, uint64_t since, char *what, size_t size);

// Locked. All end with c->stopped but those that are not repeated, and the last; of new ones, too, none else begins.
void psc__calls_stop(struct psc_client *c);

bool psc__calls_create(struct psc_client *c);  // false: no memory
void psc__calls_free(struct psc_client *c);    // after the world's shutdown: those whose timer will not run, too

#endif
