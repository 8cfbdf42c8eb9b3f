// SPDX-License-Identifier: Apache-2.0
//
// The credentials of gRPC, made of what the process shows and trusts (common/tls/tls.h); and who calls.
#ifndef PS_COMMON_RPC_CREDENTIALS_H
#define PS_COMMON_RPC_CREDENTIALS_H

#include <grpc/grpc_security.h>
#include <stdbool.h>

#include "common/base/error.h"
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

#endif
