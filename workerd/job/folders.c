// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/folders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/machine.h"
#include "common/file/output.h"
#include "workerd/job/checkpoints.h"

static enum ps_code folders_lock(const struct wk_folders *f, const struct wk_checkpoints *c, struct ps_lock *lock,
                                 struct ps_error *e)
{
    char host[PS_HOST_NAME];
    char *path = ps_printf("%s/%s%s.lock", c->folder, c->job, *c->kind ? c->kind : "-checkpoint"),
         *holder = ps_printf("worker %" PRIu32 " at %s (pid %ld)", f->rank, ps_host_name(host), (long)getpid());
    const enum ps_code code = ps_lock_take(lock, path, f->training ? f->training : holder, holder, e);
    free(holder);
    free(path);
    if (code == PS_ALREADY_EXISTS)
        ps_error_prefix(e, "another training of job '%.64s' writes to that folder; expected another folder or name",
                        c->job);
    return code;
}

enum ps_code wk_folders_take(struct wk_folders *f, const struct ps_job *job, struct ps_error *e)
{
    if (!f->lock) {
        f->n = job->callbacks.n;
        f->lock = ps_alloc((f->n + 1) * sizeof *f->lock);
        if (ps_callbacks_check_files(&job->callbacks, e))
            return e->code;
    }
    for (size_t i = 0; i < f->n; i++) {
        const struct ps_callback *callback = &job->callbacks.v[i];
        struct wk_checkpoints c;
        if (f->lock[i].path || !wk_checkpoints_of(job, callback, &c))
            continue;
        if (ps_make_folder(c.folder, e) || folders_lock(f, &c, &f->lock[i], e))
            return ps_error_prefix(e, "callback %s", ps_callback_name(callback));
    }
    return PS_OK;
}

void wk_folders_release(struct wk_folders *f)
{
    for (size_t i = 0; i < f->n; i++)
        ps_lock_release(&f->lock[i]);
    free(f->lock);
    f->lock = NULL;
    f->n = 0;
}
