// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/output.h"

// A device has no others beside it.
static bool timeline_is_device(const char *file)
{
    struct stat is;
    return stat(file, &is) == 0 && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode);
}

char *wk_timeline_path(const char *file, uint32_t rank)
{
    if (timeline_is_device(file))
        return ps_strdup(file);
    const char *name = ps_file_name(file), *dot = strrchr(name, '.');
    const size_t stem = dot && dot > name ? (size_t)(dot - file) : strlen(file);
    return rank ? ps_printf("%.*s-%" PRIu32 "%s", (int)stem, file, rank, file + stem) : ps_strdup(file);
}

enum ps_code wk_timeline_open(struct wk_run *run, struct ps_error *e)
{
    struct wk_timeline *t = run->timeline;
    if (t->path && !t->file && ps_timeline_open(t->path, &t->file, e))
        return e->code;
    run->env.timeline = t->file;
    return PS_OK;
}

void wk_timeline_add(struct wk_run *run)
{
    struct wk_env *env = &run->env;
    if (!env->timeline)
        return;
    env->compute = ps_timeline_track(env->timeline, env->replica_rank, PS_STREAM_COMPUTE);
    env->communication = ps_timeline_track(env->timeline, env->replica_rank, PS_STREAM_COMMUNICATION);
    nn_replica_track(env->replica, env->compute);
    if (env->device == 0)
        wk_data_track(run->data, ps_timeline_track(env->timeline, env->replica_rank, PS_STREAM_DATA));
}

enum ps_code wk_timeline_close(struct wk_timeline *timeline, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    if (ps_timeline_close(timeline->file, &why) && e->code)
        ps_warn("%s", why.text);
    else if (why.code)
        *e = why;
    free(timeline->path);
    *timeline = (struct wk_timeline){0};
    return e->code;
}
