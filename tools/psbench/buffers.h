// SPDX-License-Identifier: Apache-2.0
//
// A worker's memory: a gradient and a place for values per call that can be under way, all touched before the first
// call. psd's clients and the socket's have the same, so that neither is helped by a smaller cache footprint.
#ifndef PSBENCH_BUFFERS_H
#define PSBENCH_BUFFERS_H

#include "tools/psbench/case.h"

struct buffers {
    char **sent, **got;  // [n]; NULL where the command does not send, or get
    long n;
};

void buffers_init(struct buffers *b, const struct bench_case *c);
void buffers_fini(struct buffers *b);

bool buffers_sends(enum bench_command command);
bool buffers_gets(enum bench_command command);

#endif
