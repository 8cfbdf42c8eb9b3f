// SPDX-License-Identifier: Apache-2.0
#include "common/base/machine.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void machine_lower(struct ps_machine_memory *m, uint64_t bytes, const char *why)
{
    if (bytes < m->bytes)
        *m = (struct ps_machine_memory){bytes, why};
}

// A file with one number. "max" and what is not there limit nothing.
static uint64_t machine_read_limit(const char *path)
{
    char text[32] = "";
    FILE *f = fopen(path, "re");
    if (f && !fgets(text, sizeof text, f))
        text[0] = '\0';
    if (f)
        fclose(f);
    return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : UINT64_MAX;
}

// Of the group and of each above it. A container may see its group as "/", or under a name of the host that is not
// there.
static void machine_walk(struct ps_machine_memory *m, const char *mount, const char *group, const char *file)
{
    char path[2 * PATH_MAX + 64];
    char at[PATH_MAX];
    snprintf(at, sizeof at, "%s", group);
    for (;;) {
        snprintf(path, sizeof path, "%s%s/%s", mount, at, file);
        machine_lower(m, machine_read_limit(path), "the cgroup's limit");
        char *slash = strrchr(at, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

static bool machine_has_memory(const char *controllers)
{
    const char *word = strstr(controllers, "memory");
    return word && (word == controllers || word[-1] == ',') && (word[6] == '\0' || word[6] == ',');
}

// /proc/self/cgroup: "0::/group" is v2's, "4:cpu,memory:/group" v1's.
static void machine_take_cgroups(struct ps_machine_memory *m, const char *root)
{
    char path[PATH_MAX], line[PATH_MAX + 64], mount[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        bool v2 = controllers[1] == '\0';
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, v2 ? "" : "/memory");
        if (v2 || machine_has_memory(controllers + 1))
            machine_walk(m, mount, group, v2 ? "memory.max" : "memory.limit_in_bytes");
    }
    if (f)
        fclose(f);
}

struct ps_machine_memory ps_machine_memory(const char *root)
{
    struct ps_machine_memory m = {(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
                                  "this machine's memory"};
    struct rlimit space;
    machine_take_cgroups(&m, root);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        machine_lower(&m, space.rlim_cur / 2, "half of RLIMIT_AS (ulimit -v)");
    return m;
}

const char *ps_host_name(char text[PS_HOST_NAME])
{
    if (gethostname(text, PS_HOST_NAME) != 0)
        *text = '\0';
    return text;
}
