// SPDX-License-Identifier: Apache-2.0
//
// Munge, in place of certificates where all hosts share one key: who calls shows a credential that the munged of its
// host has made, which says its user and for which address it is meant. The one at that address has it checked by the
// munged of its own host. A credential is good for a minute, once, and at one address: whoever hears it there cannot
// show it elsewhere. Nothing is encrypted, and who answers does not show who it is.
//
// Receives from: common/rpc. Hands to: munged. Threads: any may ask; one thread of its own waits for munged.
#ifndef PS_COMMON_TLS_MUNGE_H
#define PS_COMMON_TLS_MUNGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/base/error.h"
#include "common/tls/identity.h"

struct ps_munge;

// socket: munged's, copied; NULL: libmunge's default. users: everybody whom munged knows may call, as a worker; else
// root and the user of this process alone, who may do all. FAILED_PRECONDITION: this build has no munge.
// RESOURCE_EXHAUSTED: no thread, or no memory.
enum ps_code ps_munge_open(const char *socket, bool users, struct ps_munge **munge, struct ps_error *e);
void ps_munge_ref(struct ps_munge *munge);  // for who keeps it
void ps_munge_close(
    struct ps_munge *munge);  // drops a reference; may be NULL. The thread ends when munged has answered.

enum { PS_MUNGE_WAITING = 1024 };  // tasks at a time

// What munged is asked. The caller's memory, from ps_munge_ask until done.
struct ps_munge_task {
    const char *address;      // where the credential is shown, as the cluster's description has it
    char *credential;         // malloc'd, the caller's to free; NULL: one is to be made
    struct ps_identity from;  // who has made the one that was there
    struct ps_error error;    // errors of the two functions below; UNAVAILABLE: munged has not answered in time
    // Once: on munge's thread, or in ps_munge_ask where too many wait. May free the task.
    void (*done)(struct ps_munge_task *task);
    // munge's own:
    STAILQ_ENTRY(ps_munge_task) link;
    uint64_t until;  // ns, ps_now: when to give up
    bool decodes;
};
void ps_munge_ask(struct ps_munge *munge, struct ps_munge_task *task);

// The same for who can wait: seconds, where munged does not answer. *credential is malloc'd. UNAVAILABLE: munged of
// this host does not answer. UNAUTHENTICATED: the credential is no good, and why. PERMISSION_DENIED: its user may not
// call.
enum ps_code ps_munge_make(struct ps_munge *munge, const char *address, char **credential, struct ps_error *e);
enum ps_code ps_munge_identify(struct ps_munge *munge, const char *credential, const char *address,
                               struct ps_identity *who, struct ps_error *e);

#endif
