// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "workerd/job/checkpoints.h"
#include "workerd/job/resume.h"

// ---- what is lost -------------------------------------------------------------------------------------------------

void wk_lost_add(struct wk_lost *lost, const char *path, const char *words, const struct ps_error *why)
{
    lost->v = ps_realloc(lost->v, (lost->n + 1) * sizeof *lost->v);
    lost->v[lost->n++] = (struct wk_lost_one){.path = ps_strdup(path), .words = ps_strdup(words), .why = *why};
}

// Each once: what has its name later may be another one.
void wk_lost_set_aside(struct wk_lost *lost, const char *path)
{
    for (struct wk_lost_one *one = lost->v; one < lost->v + lost->n; one++) {
        if (one->tried || strcmp(one->path, path) == 0)
            continue;
        char *aside = wk_checkpoints_lost_path(one->path);
        one->tried = true;
        one->aside = rename(one->path, aside) == 0;
        if (one->aside)
            ps_warn("%s: is set aside as %s", one->path, aside);
        free(aside);
    }
}

bool wk_lost_put_back(struct wk_lost *lost)
{
    bool any = false;
    for (struct wk_lost_one *one = lost->v; one < lost->v + lost->n; one++) {
        char *aside = wk_checkpoints_lost_path(one->path);
        const bool back = one->aside && access(one->path, F_OK) && rename(aside, one->path) == 0;
        if (back) {
            ps_warn("%s: has its name again", one->path);
            one->aside = one->tried = false;
        }
        any |= back;
        free(aside);
    }
    return any;
}

void wk_lost_free(struct wk_lost *lost)
{
    for (size_t i = 0; i < lost->n; i++) {
        free(lost->v[i].path);
        free(lost->v[i].words);
    }
    free(lost->v);
    *lost = (struct wk_lost){0};
}

// ---- the newest ---------------------------------------------------------------------------------------------------

// backups: if it is a backup.
static bool search_wants(const struct ps_job *job, const struct ps_callback *callback, bool backups,
                         struct wk_checkpoints *c)
{
    return wk_checkpoints_of(job, callback, c) && (!backups || *c->kind);
}

const char *wk_search_folder(const struct ps_job *job, bool backups, size_t *n)
{
    struct wk_checkpoints c;
    const char *first = NULL;
    *n = 0;
    for (size_t i = 0; i < job->callbacks.n; i++)
        if (search_wants(job, &job->callbacks.v[i], backups, &c)) {
            first = first ? first : c.folder;
            ++*n;
        }
    return first;
}

// Where a search is: all of a later step have been seen, and of this one those of the callbacks up to `callback`.
struct search_place {
    uint64_t step;
    size_t callback;
};

static bool search_is_after(uint64_t step, size_t callback, const struct search_place *at)
{
    return step < at->step || (step == at->step && callback > at->callback);
}

// The newest behind *at, which goes there. NULL: there is none.
static enum ps_code search_next(const struct ps_job *job, bool backups, struct search_place *at, char **path,
                                struct ps_error *e)
{
    const struct search_place from = *at;
    enum ps_code code = PS_OK;
    *path = NULL;
    for (size_t i = 0; i < job->callbacks.n && code == PS_OK; i++) {
        struct wk_checkpoints c;
        uint64_t *steps;
        size_t n, first = 0;
        if (!search_wants(job, &job->callbacks.v[i], backups, &c))
            continue;
        code = wk_checkpoints_list(&c, &steps, &n, e);
        while (first < n && !search_is_after(steps[first], i, &from))
            first++;
        if (first < n && (!*path || steps[first] > at->step)) {
            free(*path);
            *path = wk_checkpoints_path(&c, steps[first]);
            *at = (struct search_place){steps[first], i};
        }
        free(steps);
    }
    return code;
}

bool wk_search_passes_over(enum ps_code code)
{
    return code == PS_DATA_LOSS || code == PS_INVALID_ARGUMENT || code == PS_NOT_FOUND;
}

// What is at found->path.
static enum ps_code search_read(struct wk_found *found, bool shards, const struct wk_lost *lost, struct ps_error *e)
{
    if (wk_checkpoint_read(&found->read, found->path, shards, e))
        return e->code;
    found->words = wk_resume_describe(&found->read);
    for (size_t i = 0; i < lost->n; i++)
        if (strcmp(lost->v[i].path, found->path) == 0 && strcmp(lost->v[i].words, found->words) == 0) {
            *e = lost->v[i].why;
            return e->code;
        }
    return PS_OK;
}

enum ps_code wk_search_newest(const struct ps_job *job, bool backups, const struct wk_lost *lost,
                              struct wk_found *found, struct ps_error *e)
{
    struct ps_error first = {.code = PS_OK}, why = {.code = PS_OK};
    struct search_place at = {UINT64_MAX, SIZE_MAX};
    enum ps_code code;
    *found = (struct wk_found){0};
    while ((code = search_next(job, backups, &at, &found->path, e)) == PS_OK && found->path &&
           search_read(found, wk_resume_reads_shards(job), lost, &why)) {
        first = first.code ? first : why;
        wk_found_free(found);
        if (!wk_search_passes_over(why.code))
            break;
        ps_warn("%s: it is passed over", why.text);
    }
    if (code) {
        wk_found_free(found);
    } else if (!found->path && first.code) {
        *e = first;
        code = first.code;
    }
    return code;
}

void wk_found_free(struct wk_found *found)
{
    wk_checkpoint_free(&found->read);
    free(found->words);
    free(found->path);
    *found = (struct wk_found){0};
}

void wk_search_warn(const struct ps_job *job, const struct wk_found *found)
{
    struct search_place at = {UINT64_MAX, SIZE_MAX};
    const uint64_t written = found ? wk_checkpoints_written_ms(found->path) : 0;
    uint64_t step = 0;  // of the one that was found, once the search has come to it
    struct ps_error ignored;
    char *path = NULL;
    bool warned = false;
    for (; !warned && search_next(job, false, &at, &path, &ignored) == PS_OK && path; free(path)) {
        if (found && strcmp(path, found->path) == 0)
            step = at.step;
        warned = !found || (at.step < step && wk_checkpoints_written_ms(path) > written);
        if (!found)
            ps_warn("%s is of a training before this one, which begins anew: while it is there, --resume goes on from "
                    "it, not from earlier steps of this one",
                    path);
        else if (warned)
            ps_warn("%s was written later than %s, so it may be of another training; the one of the later step is "
                    "taken",
                    path, found->path);
    }
}
