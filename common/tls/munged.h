// SPDX-License-Identifier: Apache-2.0
//
// What libmunge does: it asks munged, the daemon of this host, to make a credential or to take one apart. munged.c has
// it; munged_none.c stands in its place where configure found no libmunge.
//
// Receives from: munge.c. Hands to: munged, over its socket. Threads: any; each call waits for munged, which may take
// seconds where it was stopped, since libmunge asks again.
#ifndef PS_COMMON_TLS_MUNGED_H
#define PS_COMMON_TLS_MUNGED_H

#include <sys/types.h>

#include "common/base/error.h"

enum {
    PS_MUNGED_TEXT = 512,   // bytes of what a credential says, with its NUL
    PS_MUNGED_SECONDS = 60  // that a credential holds, which is how far apart the hosts' clocks may be
};

enum ps_code ps_munged_check(struct ps_error *e);  // FAILED_PRECONDITION: this build has no libmunge

// With this begins what is said of a munged that does not answer, or makes no credential.
#define PS_MUNGED "munged of the host"

// socket: munged's; NULL: libmunge's default. *credential is malloc'd. UNAVAILABLE: munged does not answer;
// UNAUTHENTICATED: it makes none, and why.
enum ps_code ps_munged_encode(const char *socket, const char *text, char **credential, struct ps_error *e);
// Who has made the credential, and what it says. UNAVAILABLE: munged does not answer; UNAUTHENTICATED: why the
// credential does not do.
enum ps_code ps_munged_decode(const char *socket, const char *credential, char text[PS_MUNGED_TEXT], uid_t *uid,
                              struct ps_error *e);

#endif
