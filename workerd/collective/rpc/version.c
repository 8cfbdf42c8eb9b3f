// SPDX-License-Identifier: Apache-2.0
#include "workerd/collective/rpc/version.h"

#include <grpc/grpc.h>

const char *wk_rpc_version(void)
{
    return grpc_version_string();
}
