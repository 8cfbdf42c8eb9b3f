// SPDX-License-Identifier: Apache-2.0
//
// A worker that calls psd, as any program may: through psclient.h alone.
#ifndef PSBENCH_CLIENT_H
#define PSBENCH_CLIENT_H

#include "tools/psbench/load.h"
#include "tools/psbench/servers.h"

struct client_work {
    const struct bench_case *c;
    const struct servers *servers;
};

// A load_work_fn. arg: struct client_work.
enum ps_code client_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

#endif
