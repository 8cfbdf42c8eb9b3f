// SPDX-License-Identifier: Apache-2.0
#include "tools/common/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *rundir_address(const struct rundir *dir, int task, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "unix:%s/ps%d", dir->path, task);
    return to;
}

char *rundir_cluster_file(const struct rundir *dir, char *to)
{
    snprintf(to, RUNDIR_PATH_MAX, "%s/cluster.yaml", dir->path);
    return to;
}

static bool make_under(const char *parent, char path[RUNDIR_MAX])
{
    if (!parent || *parent != '/' || snprintf(path, RUNDIR_MAX, "%s/psctl-XXXXXX", parent) >= RUNDIR_MAX)
        return false;
    return mkdtemp(path) != NULL;
}

static enum ps_code write_cluster_file(const struct rundir *dir, struct ps_error *e)
{
    char path[RUNDIR_PATH_MAX], address[RUNDIR_PATH_MAX];
    FILE *file = fopen(rundir_cluster_file(dir, path), "w");
    if (!file)
        return ps_fail(e, PS_INTERNAL, "cannot write %s: %s", path, strerror(errno));
    fputs("ps:\n", file);
    for (int i = 0; i < dir->n_ps; i++)
        fprintf(file, "  - \"%s\"\n", rundir_address(dir, i, address));
    bool failed = ferror(file);
    if (fclose(file) || failed)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot write %s: %s", path, strerror(errno));
    return PS_OK;
}

enum ps_code rundir_create(struct rundir *dir, int n_ps, struct ps_error *e)
{
    dir->n_ps = n_ps;
    if (!make_under(getenv("XDG_RUNTIME_DIR"), dir->path) && !make_under("/tmp", dir->path))
        return ps_fail(e, PS_INTERNAL, "cannot make a directory in /tmp: %s", strerror(errno));
    if (write_cluster_file(dir, e) == PS_OK)
        return PS_OK;
    rundir_remove(dir);
    return e->code;
}

void rundir_remove(const struct rundir *dir)
{
    char path[RUNDIR_PATH_MAX];
    for (int i = 0; i < dir->n_ps; i++)
        unlink(rundir_address(dir, i, path) + strlen("unix:"));
    unlink(rundir_cluster_file(dir, path));
    rmdir(dir->path);
}
