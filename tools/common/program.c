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

bool program_on_path(const char *name, char *to, size_t size)
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
    if (find_near(name, to, size) || program_on_path(name, to, size))
        return PS_OK;
    return ps_fail(e, PS_NOT_FOUND, "%s is neither beside %s nor on PATH; $%s may name it", name,
                   program_invocation_short_name, variable);
}

enum ps_code program_find_data(const char *name, char *to, size_t size, struct ps_error *e)
{
    // The second is a bundle's: what runs there is its loader, which lies deeper.
    static const char *const near[] = {"../share/paramserver", "../../share/paramserver"};
    char dir[PATH_MAX], path[2 * PATH_MAX], real[PATH_MAX];
    own_directory(dir, sizeof dir);
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", dir, near[i], name);
        if (realpath(path, real) && snprintf(to, size, "%s", real) < (int)size)
            return PS_OK;
    }
    snprintf(to, size, "%s/%s", PKGDATADIR, name);
    return access(to, R_OK) == 0 ? PS_OK : ps_fail(e, PS_NOT_FOUND, "there is no %s", to);
}
