// SPDX-License-Identifier: Apache-2.0
#ifndef WK_RPC_VERSION_H
#define WK_RPC_VERSION_H

// That of the gRPC core, "29.0.0"; static.
const char *wk_rpc_version(void);

#endif
