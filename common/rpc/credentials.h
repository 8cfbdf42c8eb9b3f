// SPDX-License-Identifier: Apache-2.0
//
// The credentials of gRPC, made of what the process shows and trusts (common/tls/tls.h); and who calls.
#ifndef PS_COMMON_RPC_CREDENTIALS_H
#define PS_COMMON_RPC_CREDENTIALS_H

#include <grpc/grpc_security.h>

#include "common/base/error.h"
#include "common/tls/tls.h"

// tls NULL: none. What is not at hand (no memory) ends each attempt to connect.
grpc_channel_credentials *ps__channel_credentials(struct ps_tls *tls);

// Asks each client for a certificate, before it reads anything of it; takes up new files with the next connection.
struct ps__server_tls {
    struct ps_tls *tls;  // NULL: none
    uint64_t version;    // that has been handed over; the core's lock guards it
};
grpc_server_credentials *ps__server_credentials(struct ps__server_tls *tls);  // *tls outlives the server

// Of the client. PERMISSION_DENIED: its certificate names no role, or no user.
enum ps_code ps__call_identity(grpc_call *call, const struct ps__server_tls *tls, struct ps_identity *who,
                               struct ps_error *e);

#endif
