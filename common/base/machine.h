// SPDX-License-Identifier: Apache-2.0
// What this process may have of the machine. Linux.
#ifndef PS_COMMON_MACHINE_H
#define PS_COMMON_MACHINE_H

#include <stdint.h>

struct ps_machine_memory {
    uint64_t bytes;   // the least of the limits below
    const char *why;  // "this machine's memory", "the cgroup's limit", "half of RLIMIT_AS ...": which one that is
};

// The memory that there is, that a cgroup (v1, v2) of this process or one above it grants, and half of RLIMIT_AS:
// address space is used by stacks and arenas, too. root: "", or a folder with proc/ and sys/ of its own, for tests.
struct ps_machine_memory ps_machine_memory(const char *root);

// The host's name, "" where there is none: in text, which is returned.
enum { PS_HOST_NAME = 65 };  // Linux's longest and its end
const char *ps_host_name(char text[PS_HOST_NAME]);

#endif
