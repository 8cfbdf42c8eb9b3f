// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/file/output.h"

// ---- names --------------------------------------------------------------------------------------------------------

static const char checkpoints_suffix[] = ".safetensors", checkpoints_backup[] = "-backup";

char *wk_checkpoints_path(const struct wk_checkpoints *c, uint64_t step)
{
    return ps_printf("%s/%s%s-%010" PRIu64 "%s", c->folder, c->job, c->kind, step, checkpoints_suffix);
}

uint64_t wk_checkpoints_written_ms(const char *path)
{
    struct stat s;
    return stat(path, &s) ? 0 : (uint64_t)s.st_mtim.tv_sec * 1000 + (uint64_t)s.st_mtim.tv_nsec / PS_MS;
}

// What stands behind what wk_checkpoints_path gives: nothing, what common/file/output adds, or what wk_lost_set_aside
// does.
enum ending { WHOLE, HALF, LOST };
static const char checkpoints_lost[] = ".lost";

static bool checkpoints_has(const struct wk_checkpoints *c, const char *name, enum ending ending, uint64_t *step)
{
    size_t n = strlen(c->job), k = strlen(c->kind), digits;
    if (strncmp(name, c->job, n) != 0 || strncmp(name + n, c->kind, k) != 0 || name[n + k] != '-')
        return false;
    name += n + k + 1;
    digits = strspn(name, "0123456789");
    *step = strtoull(name, NULL, 10);
    name += digits;
    if (digits < 10 || strncmp(name, checkpoints_suffix, sizeof checkpoints_suffix - 1) != 0)
        return false;
    name += sizeof checkpoints_suffix - 1;
    if (ending != HALF)
        return strcmp(name, ending == LOST ? checkpoints_lost : "") == 0;
    return ps_output_is_ending(name);
}

char *wk_checkpoints_lost_path(const char *path)
{
    return ps_printf("%s%s", path, checkpoints_lost);
}

// Malloc'd.
static char *checkpoints_path(const struct wk_checkpoints *c, enum ending ending, uint64_t step)
{
    char *path = wk_checkpoints_path(c, step);
    if (ending != LOST)
        return path;
    char *lost = wk_checkpoints_lost_path(path);
    free(path);
    return lost;
}

bool wk_checkpoints_of(const struct ps_job *job, const struct ps_callback *callback, struct wk_checkpoints *c)
{
    const bool backup = strcmp(ps_callback_name(callback), "backup") == 0;
    if (!backup && strcmp(ps_callback_name(callback), "checkpoint") != 0)
        return false;
    *c = (struct wk_checkpoints){ps_callback_text(callback, "path"), job->name, backup ? checkpoints_backup : ""};
    return true;
}

// ---- whose they are -----------------------------------------------------------------------------------------------

void wk_checkpoints_sign(const struct wk_checkpoints *c, struct wk_checkpoint *checkpoint)
{
    json_object_set_new(checkpoint->json, "job", json_string(c->job));
    json_object_set_new(checkpoint->json, "callback", json_string(*c->kind ? "backup" : "checkpoint"));
}

// May another job have files of the same names? Not of those of a checkpoint of most jobs.
static bool checkpoints_may_be_others(const struct wk_checkpoints *c)
{
    const size_t n = strlen(c->job), k = strlen(checkpoints_backup);
    return *c->kind || (n > k && strcmp(c->job + n - k, checkpoints_backup) == 0);
}

// Is it another job, whose callback gives its files the same names?
static bool checkpoints_is_other(const struct wk_checkpoints *c, const char *job, const char *callback)
{
    if (!job || !callback || strcmp(job, c->job) == 0)
        return false;
    char *own = ps_printf("%s%s", c->job, c->kind),
         *other = ps_printf("%s%s", job, strcmp(callback, "backup") == 0 ? checkpoints_backup : "");
    const bool same = strcmp(own, other) == 0;
    free(own);
    free(other);
    return same;
}

enum ps_code wk_checkpoints_check_owner(const struct wk_checkpoints *c, const char *path, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    if (!checkpoints_may_be_others(c))
        return PS_OK;
    json_t *json = wk_checkpoint_peek(path);
    const char *job = json_string_value(json_object_get(json, "job"));
    if (checkpoints_is_other(c, job, json_string_value(json_object_get(json, "callback"))))
        code = ps_fail(e, PS_ALREADY_EXISTS,
                       "%.200s: is a checkpoint of job '%.64s'; expected another folder for those of job '%.64s'", path,
                       job, c->job);
    json_decref(json);
    return code;
}

static bool checkpoints_is_own(const struct wk_checkpoints *c, enum ending ending, uint64_t step)
{
    struct ps_error ignored;
    char *path = checkpoints_path(c, ending, step);
    const bool own = wk_checkpoints_check_owner(c, path, &ignored) == PS_OK;
    free(path);
    return own;
}

// ---- the folder ---------------------------------------------------------------------------------------------------

static int checkpoints_by_step(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

// What is not permitted stays so; the rest may be a server of files that is back in a moment.
static enum ps_code checkpoints_cannot_read(const struct wk_checkpoints *c, int error, struct ps_error *e)
{
    const bool forbidden = error == EACCES || error == EPERM, none = error == ENOTDIR || error == ENAMETOOLONG;
    return ps_fail(e,
                   forbidden ? PS_PERMISSION_DENIED
                   : none    ? PS_CANNOT_CREATE
                             : PS_UNAVAILABLE,
                   "%s: %s", c->folder, strerror(error));
}

// The steps of those in the folder, newest first; malloc'd, also where it fails. NULL: there are none.
static enum ps_code checkpoints_list(const struct wk_checkpoints *c, enum ending ending, uint64_t **steps, size_t *n,
                                     struct ps_error *e)
{
    uint64_t step;
    DIR *dir = opendir(c->folder);
    *steps = NULL;
    *n = 0;
    if (!dir && errno != ENOENT)
        return checkpoints_cannot_read(c, errno, e);
    errno = 0;
    for (struct dirent *d; dir && (d = readdir(dir)); errno = 0) {
        if (!checkpoints_has(c, d->d_name, ending, &step) || !checkpoints_is_own(c, ending, step))
            continue;
        *steps = ps_realloc(*steps, (*n + 1) * sizeof **steps);
        (*steps)[(*n)++] = step;
    }
    const int error = errno;
    if (dir)
        closedir(dir);
    if (*n)
        qsort(*steps, *n, sizeof **steps, checkpoints_by_step);
    return dir && error ? checkpoints_cannot_read(c, error, e) : PS_OK;
}

enum ps_code wk_checkpoints_list(const struct wk_checkpoints *c, uint64_t **steps, size_t *n, struct ps_error *e)
{
    return checkpoints_list(c, WHOLE, steps, n, e);
}

void wk_checkpoints_clean(const struct wk_checkpoints *c)
{
    uint64_t step;
    DIR *dir = opendir(c->folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (checkpoints_has(c, d->d_name, HALF, &step))
            unlinkat(dirfd(dir), d->d_name, 0);
    if (dir)
        closedir(dir);
}

// The oldest first: whoever goes on when this was interrupted finds the newest.
static bool checkpoints_remove(const struct wk_checkpoints *c, enum ending ending, uint64_t newest, uint64_t keep)
{
    uint64_t *steps;
    size_t n, kept = 0;
    bool sharded = false;
    checkpoints_list(c, ending, &steps, &n, NULL);
    while (kept < n && steps[kept] > newest)
        kept++;
    for (kept += n - kept < keep ? n - kept : keep; n > kept; n--) {
        char *path = checkpoints_path(c, ending, steps[n - 1]);
        sharded |= ps_shards_remove(path);
        free(path);
    }
    free(steps);
    return sharded;
}

bool wk_checkpoints_prune(const struct wk_checkpoints *c, uint64_t newest, uint64_t keep)
{
    const bool whole = checkpoints_remove(c, WHOLE, newest, keep), lost = checkpoints_remove(c, LOST, newest, keep);
    return whole || lost;
}

// The same wherever it is asked from.
static uint32_t checkpoints_series(const struct wk_checkpoints *c)
{
    char *real = realpath(c->folder, NULL);
    const char *path = real ? real : c->folder;
    const uint64_t h = ps_hash(PS_HASH_SEED, path, strlen(path));
    free(real);
    return (uint32_t)(h ^ h >> 32);
}

struct ps_shards_of wk_checkpoints_shards(const struct wk_checkpoints *c, uint64_t step)
{
    return (struct ps_shards_of){.name = ps_printf("%s%s-%010" PRIu64, c->job, c->kind, step),
                                 .id = (uint64_t)checkpoints_series(c) << 32 | (uint32_t)ps_random()};
}

// Adds the ids of those that have shards; *ids is malloc'd.
static enum ps_code checkpoints_add_ids(const struct wk_checkpoints *c, enum ending ending, uint64_t **ids, size_t *n,
                                        struct ps_error *e)
{
    uint64_t *steps;
    size_t n_steps;
    enum ps_code code = checkpoints_list(c, ending, &steps, &n_steps, e);
    *ids = ps_realloc(*ids, (*n + n_steps + 1) * sizeof **ids);
    for (size_t i = 0; i < n_steps && code == PS_OK; i++) {
        char *path = checkpoints_path(c, ending, steps[i]);
        code = ps_shards_peek(path, &(*ids)[*n], e);
        *n += (*ids)[*n] != 0;
        free(path);
    }
    free(steps);
    return code;
}

enum ps_code wk_checkpoints_prune_shards(const struct wk_checkpoints *c, wk_prune_shards_fn *prune, void *arg,
                                         struct ps_error *e)
{
    char *name = ps_printf("%s%s", c->job, c->kind);
    uint64_t *ids = NULL;
    size_t n = 0;
    enum ps_code code = checkpoints_add_ids(c, WHOLE, &ids, &n, e);
    if (code == PS_OK)
        code = checkpoints_add_ids(c, LOST, &ids, &n, e);
    if (code == PS_OK)
        code = prune(arg, name, checkpoints_series(c), ids, n, e);
    free(ids);
    free(name);
    return code;
}
