// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS: what a process shows to others and whom it trusts, read from files in PEM. Files that are written anew
// are taken up without a restart, for connections made from then on, once they belong together; until then those of
// before stay.
//
// Receives from: files. Hands to: common/rpc (credentials of gRPC) and the ring's sockets (OpenSSL). Threads: any.
#ifndef PS_COMMON_TLS_TLS_H
#define PS_COMMON_TLS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cluster/tls_files.h"
#include "common/tls/identity.h"

struct ps_tls;
struct ssl_st;

// Reads and checks what this process is to show as `role`.
// NOT_FOUND, PERMISSION_DENIED: a file cannot be read, or can by everybody. FAILED_PRECONDITION: what is in it does not
// do: it is no certificate, has expired, is not signed by the authority, names another role; the key is another's.
// RESOURCE_EXHAUSTED: no memory.
enum ps_code ps_tls_open(const struct ps_tls_files *files, enum ps_role role, struct ps_tls **tls, struct ps_error *e);
void ps_tls_ref(struct ps_tls *tls);    // for who keeps it: the core keeps credentials for as long as it likes
void ps_tls_close(struct ps_tls *tls);  // drops a reference; may be NULL

// Looks at the files, once per second at most, and takes up what is new. Returns a number that grows where it did. *e
// says, once, what is wrong with new ones, which are not taken up then, but tried again; its code is PS_OK otherwise. A
// process stays its user's: certificates of another one do not do.
uint64_t ps_tls_look(struct ps_tls *tls, struct ps_error *e);
uint64_t ps_tls_version(struct ps_tls *tls);  // that number, without a look

// As they were taken up last, PEM. Overwrites *pem without freeing it.
struct ps_tls_pem {
    char *ca, *certificate, *key;
};
enum ps_code ps_tls_pem(struct ps_tls *tls, struct ps_tls_pem *pem, struct ps_error *e);
void ps_tls_pem_free(struct ps_tls_pem *pem);

// A connection of OpenSSL's, TLS 1.3, on a socket that is connected: by who has connected, or who listens. Either
// verifies that the other one is of role `to`. The handshake goes with what is sent or received first. SSL_free it;
// NULL: no memory.
struct ssl_st *ps_tls_connection(struct ps_tls *tls, int fd, bool listens, enum ps_role to);
// What a certificate in PEM, whose chain has been verified, says of its owner. resumed: that was in an earlier session,
// which this one goes on with, so that it may have expired since. UNAUTHENTICATED: it is none, or has expired.
// PERMISSION_DENIED: it names no role, or no user.
enum ps_code ps_tls_identify(const char *pem, size_t len, bool resumed, struct ps_identity *who, struct ps_error *e);
// May this process call who shows such a certificate, as `to`? Workers are called by workers of the same user.
bool ps_tls_accepts(const struct ps_tls *tls, const char *pem, enum ps_role to);

// After the handshake: is the other end this process's user?
bool ps_tls_is_own_user(const struct ps_tls *tls, const struct ssl_st *connection);
const char *ps_tls_user(const struct ps_tls *tls);  // of the first that was read; stays
int64_t ps_tls_until(struct ps_tls *tls);           // when its certificate ends: s since 1970
// "2027-11-25 12:00:00 UTC", until when its certificate holds; and whether that is within two weeks.
enum { PS_TLS_TIME = 32, PS_TLS_SOON_DAYS = 14 };
bool ps_tls_ends_soon(struct ps_tls *tls, char until[PS_TLS_TIME]);

#endif
