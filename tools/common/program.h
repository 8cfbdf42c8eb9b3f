// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PROGRAM_H
#define TOOLS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

// Where the daemon `name` is: what the environment variable says; else near this program, as installed or in
// a build tree; else on PATH. NOT_FOUND says where it was looked for.
enum ps_code program_find(const char *name, const char *variable, char *to, size_t size, struct ps_error *e);

// Is there a program `name` on PATH? Its path.
bool program_on_path(const char *name, char *to, size_t size);

// Where a file of $(pkgdatadir) is: beside this program's folder, as installed and wherever that was moved; else where
// it was configured to be. NOT_FOUND names that place.
enum ps_code program_find_data(const char *name, char *to, size_t size, struct ps_error *e);

#endif
