// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PROGRAM_H
#define TOOLS_PROGRAM_H

#include <stddef.h>

#include "common/base/error.h"

// Where the daemon `name` is: what the environment variable says; else near this program, as installed or in
// a build tree; else on PATH. NOT_FOUND says where it was looked for.
enum ps_code program_find(const char *name, const char *variable, char *to, size_t size, struct ps_error *e);

#endif
