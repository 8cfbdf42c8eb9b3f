// SPDX-License-Identifier: Apache-2.0
// bin/NAME of a bundle. It runs libexec/NAME with the loader, the libc and the libraries that the bundle carries, so
// the host's libc does not matter. It is linked statically, and finds the bundle by its own place: the bundle may lie
// anywhere, and a symbolic link to bin/NAME works as well.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

struct launcher_place {
    char root[PATH_MAX];  // the bundle's folder
    char name[NAME_MAX + 1];
};

static void launcher_fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(EX_OSFILE);
}

// Cuts the last component off path, and returns it.
static char *launcher_cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) {
        errno = ENOENT;
        launcher_fail("/proc/self/exe");
    }
    *slash = '\0';
    return slash + 1;
}

static void launcher_find(struct launcher_place *place)
{
    ssize_t len = readlink("/proc/self/exe", place->root, sizeof place->root - 1);
    if (len < 0)
        launcher_fail("/proc/self/exe");
    place->root[len] = '\0';
    snprintf(place->name, sizeof place->name, "%s", launcher_cut(place->root));
    launcher_cut(place->root);  // bin
}

static char *launcher_join(const char *format, const char *root, const char *name)
{
    char *to = NULL;
    if (asprintf(&to, format, root, name) < 0)
        launcher_fail("memory");
    return to;
}

// What the programs look for beside themselves, or where they were configured to be installed. To the kernel all of
// them are the loader in lib/glibc, so these variables say where it is. A variable that the user has set stays.
static void launcher_set_environment(const char *root)
{
    static const char *const places[][2] = {
        {"PSD", "%s/bin/psd"},
        {"WORKERD", "%s/bin/workerd"},
        {"PARAMSERVER_CUDA_MODULE", "%s/lib/paramserver/cuda.so"},
        {"HWLOC_PLUGINS_PATH", "%s/lib/hwloc"},  // the host's plugins are made for its own hwloc
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (setenv(places[i][0], launcher_join(places[i][1], root, ""), 0) != 0)
            launcher_fail(places[i][0]);
}

int main(int argc, char **argv)
{
    static struct launcher_place place;
    launcher_find(&place);
    launcher_set_environment(place.root);

    // A symbolic link to the loader that has the program's name: ps, top and pgrep show a process by it.
    char *loader = launcher_join("%s/lib/loader/%s", place.root, place.name);
    char *libraries = launcher_join("%s/lib/glibc:%s/lib", place.root, place.root);
    char *program = launcher_join("%s/libexec/%s", place.root, place.name);
    char *head[] = {loader, "--library-path", libraries, "--argv0", argc ? argv[0] : place.name, program};
    size_t n_head = sizeof head / sizeof *head, n_rest = argc > 1 ? (size_t)argc - 1 : 0;
    char **full = calloc(n_head + n_rest + 1, sizeof *full);
    if (!full)
        launcher_fail("memory");
    memcpy(full, head, sizeof head);
    if (n_rest)
        memcpy(full + n_head, argv + 1, n_rest * sizeof *full);
    execv(loader, full);
    launcher_fail(loader);
}
