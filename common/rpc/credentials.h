// SPDX-License-Identifier: Apache-2.0
//
// The credentials of gRPC, made of what the process shows and trusts (common/tls/tls.h); and who calls. With munge
// (common/tls/munge.h) a call brings a credential among its metadata, and the connection keeps who has shown it: calls
// without one are those of whoever that was. So connections are to be of one user, with no proxy between that joins
// several.
#ifndef PS_COMMON_RPC_CREDENTIALS_H
#define PS_COMMON_RPC_CREDENTIALS_H

#include <grpc/grpc_security.h>
#include <stdbool.h>

#include "common/base/error.h"
#include "common/tls/munge.h"
#include "common/tls/tls.h"

// To those of that role. tls NULL: none. What is not at hand (no memory) ends each attempt to connect.
grpc_channel_credentials *ps__channel_credentials(struct ps_tls *tls, enum ps_role to);

// Asks each client for a certificate, before it reads anything of it; takes up new files with the next connection. Of
// one port: the core asks each for what is new since it asked that one.
struct ps__port_tls {
    struct ps_tls *tls;  // referenced
    uint64_t version;    // that has been handed over; the core's lock guards it
};
grpc_server_credentials *ps__server_credentials(struct ps__port_tls *port);  // NULL: none; *port outlives the server

// Of the client; all roles where there is no TLS. Errors as ps_tls_identify.
enum ps_code ps__call_identity(grpc_call *call, bool has_tls, struct ps_identity *who, struct ps_error *e);

#define PS__MUNGE_KEY "paramserver-munge"  // of the metadata

// The credential that the call has brought, malloc'd; NULL: none, or no memory.
char *ps__call_credential(const grpc_metadata_array *metadata);
// Notes, and says, who has shown a credential on the call's connection. Never two of them at once for one server.
// UNAUTHENTICATED: nobody has.
void ps__connection_remember(grpc_call *call, const struct ps_identity *who);
enum ps_code ps__connection_identity(grpc_call *call, struct ps_identity *who, struct ps_error *e);

#endif
