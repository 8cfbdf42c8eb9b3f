// SPDX-License-Identifier: Apache-2.0
#ifndef PSBENCH_OPTIONS_H
#define PSBENCH_OPTIONS_H

#include <stdbool.h>

#include "tools/psbench/case.h"

struct options {
    struct bench_plan plan;
    bool json;
    const char *plot;  // file; NULL: none
};

// Returns true if there is something to measure. Else the program is over with *exit_code: help or version was asked
// for, or the command line is wrong, which was said on standard error.
bool options_parse(struct options *o, int argc, char **argv, int *exit_code);
void options_free(struct options *o);

// Bytes from a text such as 4, 64K, 1M, 1MiB: K, M and G are powers of 1024. False: it is none, or no multiple of 4, or
// not between 4 bytes and 4 GiB.
bool options_size(const char *text, uint64_t *bytes);

#endif
