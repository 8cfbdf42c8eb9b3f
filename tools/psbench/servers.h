// SPDX-License-Identifier: Apache-2.0
//
// The servers of one measurement: psd's ps tasks on sockets of their own, empty.
#ifndef PSBENCH_SERVERS_H
#define PSBENCH_SERVERS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "tools/common/rundir.h"
#include "tools/psbench/case.h"

enum { SERVERS_MAX = 64, SERVERS_ADDRESS_MAX = RUNDIR_PATH_MAX };

struct servers {
    const char *host;   // that they listen on, where it is TCP
    const char *netns;  // that they run in; NULL: ours
    const char *tls;    // folder of certificates, for BENCH_TLS
    const char *shown;  // that, where they run with it; NULL: they do not
    char program[PATH_MAX];
    struct rundir dir;  // of unix sockets
    int n;
    pid_t pids[SERVERS_MAX];
    char addresses[SERVERS_MAX][SERVERS_ADDRESS_MAX];
};

// Where psd is. NOT_FOUND says where it was looked for.
enum ps_code servers_find(struct servers *s, struct ps_error *e);

// Starts n ps tasks and waits until they serve. On failure none is left.
enum ps_code servers_start(struct servers *s, int n, enum bench_transport transport, struct ps_error *e);
void servers_end(struct servers *s);

#endif
