// SPDX-License-Identifier: Apache-2.0
#include "tools/common/program.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

// The directory this program lies in. In a build tree libtool keeps the program in .libs, beside a wrapper of its
// name.
static void own_directory(char *to, size_t size)
{
    if (uv_exepath(to, &size))
        strcpy(to, ".");
    char *slash = strrchr(to, '/');
    if (slash)
        *slash = '\0';
    slash = strrchr(to, '/');
    if (slash && strcmp(slash, "/.libs") == 0)
        *slash = '\0';
}

static bool find_near(const char *name, char *to, size_t size)
{
    char dir[PATH_MAX];
    own_directory(dir, sizeof dir);
    snprintf(to, size, "%s/%s", dir, name);
    if (is_program(to))
        return true;
    snprintf(to, size, "%s/../../%s/%s", dir, name, name);  // a build tree
    return is_program(to);
}

static bool find_on_path(const char *name, char *to, size_t size)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t len = strcspn(path, ":");
        snprintf(to, size, "%.*s/%s", (int)len, path, name);
        if (is_program(to))
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

enum ps_code program_find(const char *name, const char *variable, char *to, size_t size, struct ps_error *e)
{
    const char *given = getenv(variable);
    if (given && *given) {
        snprintf(to, size, "%s", given);
        return is_program(to) ? PS_OK : ps_fail(e, PS_NOT_FOUND, "$%s is %s, which is no program", variable, given);
    }
    if (find_near(name, to, size) || find_on_path(name, to, size))
        return PS_OK;
    return ps_fail(e, PS_NOT_FOUND, "%s is neither beside %s nor on PATH; $%s may name it", name,
                   program_invocation_short_name, variable);
}
