// SPDX-License-Identifier: Apache-2.0
//
// The methods of the contract as gRPC names them: one table for server and client.
#ifndef PS_COMMON_RPC_METHOD_H
#define PS_COMMON_RPC_METHOD_H

#include <stdbool.h>

#include "common/tls/identity.h"

enum { PS_METHODS = 41 };  // values of Method in proto/paramserver.proto; 0 is none

#define PS_STREAM_PATH "/paramserver.v1.ParameterServer/Stream"

const char *ps_method_path(int method);  // "/paramserver.v1.ParameterServer/Push"; NULL: no such method
const char *ps_method_name(int method);  // "Push"; "?": no such method
bool ps_method_streams(int method);      // may be a record of the stream
// Who may call it, of enum ps_role. What moves data is a worker's, of jobs of its user; administration looks at values
// and changes them, too. Of Admin a worker may call Status and SetHyper, which know the jobs of its user alone then.
unsigned ps_method_roles(int method);
enum { PS_STREAM_ROLES = PS_ROLE_WORKER | PS_ROLE_ADMIN };  // of all methods that may be records
// Membership and administration: small, answered at once, and not to wait behind data. Such calls are unary by choice
// of our client, and have a room of their own at the server.
bool ps_method_is_control(int method);
// The room of its own that a unary call of this method has at the server. That of calls for norms, which ps tasks make
// of each other and which wait, is another than that of control.
enum ps_lane { PS_LANE_NONE, PS_LANE_CONTROL, PS_LANE_NORMS, PS_LANES };
enum ps_lane ps_method_lane(int method);

#endif
