// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/checkpoint_writer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/output.h"
#include "common/file/shards.h"
#include "common/math/finite.h"
#include "common/wire/dtype.h"

void wk_checkpoint_writer_prune_shards(const struct wk_checkpoint_writer *w)
{
    struct ps_error why;
    if (w->prune_shards && wk_checkpoints_prune_shards(&w->to, w->prune_shards, w->arg, &why))
        ps_warn("shards that are not needed any more stay: %s", why.text);
}

// What another training of this job has written under the same name gives way, and its shards go with it; where this
// one has shards, too, the ps tasks remove them. Had that one any?
static bool checkpoint_writer_replace(struct wk_checkpoint_writer *w, const char *path, bool sharded)
{
    if (wk_checkpoints_check_owner(&w->to, path, &w->error))
        return false;
    struct ps_shards *before = ps_shards_named(path);
    const bool had = before != NULL;
    struct ps_error ignored;                 // what cannot be made cannot be written to
    ps_make_folder(w->to.folder, &ignored);  // somebody may have removed it
    if (wk_checkpoint_write(&w->checkpoint, path, &w->error) == PS_OK && !sharded)
        ps_shards_unlink(before, path);
    ps_shards_free(before);
    return had;
}

// From weights of NaN no training comes back: the finite ones before them stay. What is in shards is not looked at.
static enum ps_code checkpoint_writer_look(const struct wk_checkpoint *c, struct ps_error *e)
{
    for (const struct ps_safetensor *t = c->array; t < c->array + c->weights; t++)
        if (t->data && ps_nonfinite(PS_FLOAT32, t->data, t->count))
            return ps_fail(e, PS_INVALID_ARGUMENT, "the weights hold a NaN or an infinity, first in %.200s", t->name);
    return PS_OK;
}

// What is kept becomes less only when the new one is there. Those before it may be sharded where it is not.
static void *checkpoint_writer_run(void *arg)
{
    struct wk_checkpoint_writer *w = arg;
    struct wk_checkpoint_fetch *fetch = w->checkpoint.fetch;
    char *path = wk_checkpoints_path(&w->to, w->step);
    const bool sharded = w->checkpoint.shards.name != NULL;
    bool gone = false;  // sharded ones are, whose shards may be with the ps tasks
    if ((!fetch || fetch->wait(fetch, &w->error) == PS_OK) &&
        checkpoint_writer_look(&w->checkpoint, &w->error) == PS_OK)
        gone = checkpoint_writer_replace(w, path, sharded);
    if (w->error.code == PS_OK && w->keep)
        gone |= wk_checkpoints_prune(&w->to, w->step, w->keep);
    if (gone || (sharded && (w->keep || w->error.code)))
        wk_checkpoint_writer_prune_shards(w);
    free(path);
    atomic_store(&w->done, true);
    return NULL;
}

// Goes the array into the file? The others go into shards.
static bool checkpoint_writer_holds(const struct wk_checkpoint *c, size_t i)
{
    return c->array[i].data || !c->shards.name;
}

static void checkpoint_writer_copy(struct wk_checkpoint_writer *w)
{
    struct wk_checkpoint *c = &w->checkpoint;
    size_t count = 0, at = 0;
    for (size_t i = 0; i < c->n; i++)
        count += checkpoint_writer_holds(c, i) ? c->array[i].count : 0;
    if (count > w->room) {
        free(w->copy);
        w->copy = ps_alloc(count * sizeof *w->copy);
        w->room = count;
    }
    for (size_t i = 0; i < c->n; i++) {
        const size_t n = c->array[i].count;
        if (!checkpoint_writer_holds(c, i))
            continue;
        if (c->array[i].data)
            memcpy(w->copy + at, c->array[i].data, n * sizeof *w->copy);
        c->array[i].data = w->copy + at;
        at += n;
    }
}

void wk_checkpoint_writer_begin(struct wk_checkpoint_writer *w, struct wk_checkpoint *c, uint64_t step)
{
    w->checkpoint = *c;
    wk_checkpoints_sign(&w->to, &w->checkpoint);
    w->step = step;
    w->error.code = PS_OK;
    atomic_store(&w->done, false);
    checkpoint_writer_copy(w);
    if (w->checkpoint.fetch)
        w->checkpoint.fetch->begin(w->checkpoint.fetch, &w->checkpoint);
    w->writes = pthread_create(&w->thread, NULL, checkpoint_writer_run, w) == 0;
    if (!w->writes)
        checkpoint_writer_run(w);
}

bool wk_checkpoint_writer_is_done(const struct wk_checkpoint_writer *w)
{
    return !w->writes || atomic_load(&w->done);
}

enum ps_code wk_checkpoint_writer_wait(struct wk_checkpoint_writer *w, struct ps_error *e)
{
    if (w->writes)
        pthread_join(w->thread, NULL);
    w->writes = false;
    wk_checkpoint_free(&w->checkpoint);
    w->checkpoint = (struct wk_checkpoint){0};
    const enum ps_code code = w->error.code;
    if (code)
        *e = w->error;
    w->error.code = PS_OK;
    return code;
}

void wk_checkpoint_writer_free(struct wk_checkpoint_writer *w)
{
    free(w->copy);
}
