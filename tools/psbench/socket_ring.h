// SPDX-License-Identifier: Apache-2.0
//
// The limit of what an all-reduce over sockets can reach: a ring of processes with one thread and two plain connections
// each, that do nothing else. Every worker sends its values to the next one, adds what comes from the one before to its
// own, and passes that on as soon as it is there: 2 (p - 1) / p times the array in either direction.
#ifndef PSBENCH_SOCKET_RING_H
#define PSBENCH_SOCKET_RING_H

#include "tools/psbench/load.h"

// A load_work_fn. arg: struct allreduce_work.
enum ps_code socket_ring_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e);

#endif
