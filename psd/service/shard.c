// SPDX-License-Identifier: Apache-2.0
//
// Shards of checkpoints: what this task keeps of a job, written to a file in the task's folder of checkpoints while the
// training goes on. A Get that names a shard takes a snapshot, as any Get; then its call waits for the thread for
// shards, which writes the pinned pages and answers. All of it runs there; only the snapshot was taken when the call
// came. A training that goes on has the shard loaded again (LoadShard), and those that are not needed any more removed.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/shards.h"
#include "psd/service/file_thread.h"
#include "psd/service/service.h"

// ---- may it be written --------------------------------------------------------------------------------------------

static enum ps_code shard_check_folder(struct psd_request *t)
{
    if (!t->core->config.checkpoints)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "ps task %" PRIu32
                       " has no folder for checkpoints: expected it to be started with --checkpoints FOLDER",
                       t->core->config.task);
    if (!ps_shards_is_name(t->job->name))
        return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                       "job '%s' cannot have a folder for its shards: expected a name of letters, digits, '.', '_' and "
                       "'-'",
                       t->job->name);
    return PS_OK;
}

static enum ps_code shard_check_name(struct psd_request *t, const char *name)
{
    if (ps_shards_is_name(name))
        return PS_OK;
    return ps_fail(&t->error, PS_INVALID_ARGUMENT,
                   "a shard '%.40s': expected a name of letters, digits, '.', '_' and '-'", name);
}

// Who loads or removes shards is fenced as who changes values: before it waits, and when the thread takes it up.
static enum ps_code shard_check_worker(struct psd_request *t)
{
    return psd_request_check_rank(t) ? t->error.code : psd_job_check_incarnation(t->job, t->caller, &t->error);
}

// While a shard is written each of its blocks may be changed once and needs another page then; those of other shards
// that wait, too. alone: they are not, or whoever changes them waits for a page.
static enum ps_code shard_check_snapshot(struct psd_request *t, const struct psd_snapshot *s, bool alone)
{
    for (size_t i = 0; i < s->extents.n; i++)
        if (s->extents.v[i].variable->dtype != PS_FLOAT32)
            return ps_fail(&t->error, PS_INVALID_ARGUMENT, "variable '%s' is %s: a shard has float32 alone",
                           s->extents.v[i].variable->name, ps_dtype_name(s->extents.v[i].variable->dtype));
    if (alone || psd_pool_has_room(&t->core->pool, atomic_load(&t->core->shard_bytes) + s->extents.bytes))
        return PS_OK;
    return ps_fail(&t->error, PS_OUT_OF_RANGE,
                   "ps task %" PRIu32 " has no room for a copy of the %" PRIu64
                   " bytes of a shard, as training changes them meanwhile: expected more --memory",
                   t->core->config.task, s->extents.bytes);
}

// Malloc'd; NULL: no memory.
static char *shard_path(const struct psd_request *t, const Paramserver__V1__Shard *shard)
{
    const struct ps_shards_of of = {t->job->name, shard->name, shard->checkpoint, t->core->config.tasks};
    char *below = ps_shards_path(&of, t->core->config.task);
    char *path = below ? ps_try_printf("%s/%s", t->core->config.checkpoints, below) : NULL;
    free(below);
    return path;
}

static char *shard_folder(const struct psd_request *t)
{
    return ps_try_printf("%s/%s", t->core->config.checkpoints, t->job->name);
}

static enum ps_code shard_no_memory(struct psd_request *t)
{
    return ps_fail(&t->error, PS_FAILED_PRECONDITION, "ps task %" PRIu32 " has no memory for a shard",
                   t->core->config.task);
}

// ---- writing ------------------------------------------------------------------------------------------------------

// A shard that is being written: what a parked call goes on with.
struct shard {
    struct psd_core *core;
    struct psd_snapshot *snapshot;
    size_t bytes;  // of it that count in core->shard_bytes
    char *path;    // of its file
    struct ps_safetensor *tensor;
    size_t n;
    struct iovec *parts;  // [extents.n]
};

static void shard_free(void *state)
{
    struct shard *d = state;
    for (size_t i = 0; i < d->n; i++)
        free((char *)d->tensor[i].name);
    free(d->tensor);
    free(d->parts);
    free(d->path);
    atomic_fetch_sub(&d->core->shard_bytes, d->bytes);
    psd_snapshot_unref(&d->core->snapshots, d->snapshot);
    free(d);
}

// Malloc'd; NULL: no memory. [first, end) of the variable's elements; all of it has the variable's name, or its slot's.
static char *shard_tensor_name(const struct psd_extent *p, uint64_t end)
{
    const struct psd_variable *v = p->variable;
    const char *slot = p->slot ? ps_rule_slot_name(v->rule, v->hyper, (int)p->slot - 1) : "";
    char *name = ps_try_printf("%s%s%s", slot, p->slot ? "/" : "", v->name);
    if (!name || (p->first == 0 && end == v->count))
        return name;
    char *slice = ps_shards_slice(name, p->first, end);
    free(name);
    return slice;
}

// Extents [i, end) are a tensor's.
static void shard_add_tensor(struct shard *d, size_t i, size_t end)
{
    const struct psd_extent *v = d->snapshot->extents.v;
    const struct psd_variable *variable = v[i].variable;
    struct ps_safetensor *t = &d->tensor[d->n++];
    uint64_t count = 0;
    for (size_t k = i; k < end; k++) {
        const struct psd_pinned *at = &d->snapshot->pinned[k];
        psd_block_fill_held(psd_extent_block(&v[k]), at->page);
        d->parts[k] = (struct iovec){at->page->data + at->from + v[k].offset * sizeof(float), v[k].bytes};
        count += v[k].count;
    }
    const bool whole = count == variable->count;
    *t = (struct ps_safetensor){.name = shard_tensor_name(&v[i], v[i].first + count),
                                .rank = whole ? variable->rank : 1,
                                .shape = {count},
                                .parts = &d->parts[i],
                                .n_parts = end - i};
    if (whole)
        memcpy(t->shape, variable->shape, variable->rank * sizeof *t->shape);
}

static enum ps_code shard_add_tensors(struct psd_request *t, struct shard *d)
{
    const struct psd_extents *extents = &d->snapshot->extents;
    d->tensor = ps_try_alloc_array(extents->n + 1, sizeof *d->tensor);
    d->parts = ps_try_alloc_array(extents->n + 1, sizeof *d->parts);
    if (!d->tensor || !d->parts)
        return shard_no_memory(t);
    for (size_t i = 0, end; i < extents->n; i = end) {
        for (end = i + 1; end < extents->n && extents->v[end].tensor == extents->v[i].tensor;)
            end++;
        shard_add_tensor(d, i, end);
        if (!d->tensor[d->n - 1].name)
            return shard_no_memory(t);
    }
    return PS_OK;
}

// The job's, which is on disk when the folder that it is in is.
static enum ps_code shard_make_folder(struct psd_request *t)
{
    char *folder = shard_folder(t);
    if (!folder)
        return shard_no_memory(t);
    const bool made = mkdir(folder, 0777) == 0, there = made || errno == EEXIST;
    if (!there)
        ps_fail(&t->error, PS_CANNOT_CREATE, "%s: %s", folder, strerror(errno));
    free(folder);
    const int parent = made ? open(t->core->config.checkpoints, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (parent >= 0) {
        fsync(parent);
        close(parent);
    }
    return there ? PS_OK : t->error.code;
}

// Of this machine's disk: asking again would change nothing. A task that shuts down is asked again, as another process.
static int shard_fail_file(struct psd_request *t)
{
    if (atomic_load(&t->core->draining))
        return (int)ps_fail(&t->error, PS_UNAVAILABLE, "ps task %" PRIu32 " is shutting down", t->core->config.task);
    if (t->error.code != PS_ABORTED)
        t->error.code = PS_FAILED_PRECONDITION;
    return (int)ps_error_prefix(&t->error, "ps task %" PRIu32, t->core->config.task);
}

static enum ps_code shard_write_file(struct psd_request *t, const struct shard *d, uint64_t checkpoint)
{
    char *id = ps_shards_id(checkpoint);
    const struct ps_safetensors_text text = {PS_SHARD_KEY, id};
    enum ps_code code = id ? shard_make_folder(t) : shard_no_memory(t);
    if (code == PS_OK)
        code = ps_safetensors_write_sealed(d->path, d->tensor, d->n, &text, 1, &t->core->draining, &t->error);
    free(id);
    return code;
}

static uint64_t shard_version(const struct psd_snapshot *s)
{
    uint64_t least = s->extents.n ? UINT64_MAX : 0;
    for (size_t i = 0; i < s->extents.n; i++)
        least = s->pinned[i].version < least ? s->pinned[i].version : least;
    return least;
}

static int shard_resume(struct psd_request *t)
{
    const Paramserver__V1__ReadRequest *r = (const Paramserver__V1__ReadRequest *)t->request;
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct shard *d = t->call->state;
    if (shard_add_tensors(t, d))
        return (int)t->error.code;
    if (atomic_load(&t->core->draining) || shard_write_file(t, d, r->shard->checkpoint))
        return shard_fail_file(t);
    ps_debug("job '%s': %s is written", t->job->name, d->path);
    out.generation = t->core->generation;
    out.round = d->snapshot->round;
    out.last_round = d->snapshot->last_round;
    out.version = shard_version(d->snapshot);
    return psd_request_reply(t, &out.base, NULL);
}

int psd_write_shard(struct psd_request *t, const Paramserver__V1__ReadRequest *r, struct psd_snapshot *s)
{
    struct shard *d = ps_try_alloc(sizeof *d);
    if (!d) {
        psd_snapshot_unref(&t->core->snapshots, s);
        return (int)shard_no_memory(t);
    }
    *d = (struct shard){.core = t->core, .snapshot = s};
    if (shard_check_folder(t) || shard_check_name(t, r->shard->name) || shard_check_snapshot(t, s, r->shard->alone)) {
        shard_free(d);
        return (int)t->error.code;
    }
    d->path = shard_path(t, r->shard);
    if (!d->path) {
        shard_free(d);
        return (int)shard_no_memory(t);
    }
    d->bytes = r->shard->alone ? 0 : s->extents.bytes;
    atomic_fetch_add(&t->core->shard_bytes, d->bytes);
    psd_request_wait_with(t, shard_resume, d, shard_free);
    return psd_file_thread_park(t, t->core->shard_thread);
}

// ---- loading ------------------------------------------------------------------------------------------------------

// Where a tensor of the shard goes to.
struct place {
    struct psd_partition *partition;  // NULL: nowhere, as yet
    uint32_t slot;
};

struct load {
    struct psd_request *t;
    struct ps_safetensors_stream *stream;
    const struct ps_safetensors *file;
    struct place *place;  // [file->n]
    uint64_t steps;
    float *values;  // of one block
    uint64_t elements;
};

// A partition's values, or a slot of them, where the shard has them.
static enum ps_code load_place(struct load *l, struct psd_variable *v, struct psd_partition *p, uint32_t slot)
{
    const struct psd_extent all = {.variable = v, .partition = p, .first = p->first, .slot = slot};
    char *name = shard_tensor_name(&all, p->first + p->count);
    const struct ps_safetensor *t = name ? ps_safetensors_find(l->file, name) : NULL;
    const bool fits = !t || (t->count == p->count && v->dtype == PS_FLOAT32);
    if (!name)
        return shard_no_memory(l->t);
    if (t && fits)
        l->place[t - l->file->tensor] = (struct place){p, slot};
    if (!fits)
        ps_fail(&l->t->error, PS_FAILED_PRECONDITION,
                "%.100s: the shard has %" PRIu64 " float32, the variable has %" PRIu64 " %s", name, t->count, p->count,
                ps_dtype_name(v->dtype));
    free(name);
    return fits ? PS_OK : l->t->error.code;
}

// All of the shard has a place here, or nothing is put.
static enum ps_code load_place_all(struct load *l)
{
    struct psd_job *job = l->t->job;
    for (uint32_t i = 0; i < job->n_variables; i++) {
        struct psd_variable *v = &job->variables[i];
        struct psd_partition *p = &job->partitions[v->first_partition];
        for (uint32_t k = 0; k < v->n_partitions; k++)
            for (int slot = 0; p[k].task == l->t->core->config.task && slot <= v->blank.slots; slot++)
                if (load_place(l, v, &p[k], (uint32_t)slot))
                    return l->t->error.code;
    }
    for (size_t i = 0; i < l->file->n; i++)
        if (!l->place[i].partition)
            return ps_fail(&l->t->error, PS_FAILED_PRECONDITION,
                           "the shard has %.100s, which ps task %" PRIu32
                           " of this job has not: its variables lie otherwise",
                           l->file->tensor[i].name, l->t->core->config.task);
    return PS_OK;
}

// As a Put of the block.
static enum ps_code load_block(struct load *l, const struct place *at, uint32_t block, uint64_t first)
{
    struct psd_job *job = l->t->job;
    struct psd_partition *p = at->partition;
    struct psd_extent extent = {.variable = &job->variables[p->variable],
                                .partition = p,
                                .first = first,
                                .block = block,
                                .count = p->blocks[block].count,
                                .bytes = (uint32_t)(p->blocks[block].count * sizeof(float)),
                                .slot = at->slot};
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct psd_feed feed = {.payload = &payload};
    const struct psd_update u = {
        .job = job, .how = PSD_PUT, .extents = &extent, .n = 1, .feed = &feed, .slot = at->slot, .steps = l->steps};
    struct psd_page *none = NULL;
    uint64_t found, version;
    enum psd_written written;
    if (ps_safetensors_stream_read(l->stream, l->values, extent.count, &l->t->error))
        return l->t->error.code;
    ps_slices_add(&payload, (struct ps_slice){(uint8_t *)l->values, extent.bytes, NULL});
    do {
        pthread_rwlock_rdlock(&job->snapshot_lock);
        written = psd_update_block(&u, &none, &found, &version);
        pthread_rwlock_unlock(&job->snapshot_lock);
    } while (written == PSD_NO_ROOM && psd_snapshots_drop_oldest(&l->t->core->snapshots));
    ps_slices_clear(&payload);
    return written == PSD_WRITTEN ? PS_OK : ps_no_memory(&l->t->error, "a block of the shard");
}

// Whoever has asked is gone, and may have put other values meanwhile; or all ends here.
static enum ps_code load_check_wanted(struct load *l)
{
    struct psd_request *t = l->t;
    if (atomic_load(&t->core->draining) || atomic_load(&t->call->cancelled) ||
        atomic_load(&t->job->run) != t->caller->run || psd_job_has_failed(t->job))
        return ps_fail(&t->error, PS_ABORTED, "nobody waits for the rest of the shard");
    return psd_job_check_incarnation(t->job, t->caller, &t->error);
}

static enum ps_code load_all(struct load *l)
{
    for (size_t i = 0; i < l->file->n; i++) {
        const struct psd_partition *p = l->place[i].partition;
        uint64_t first = p->first;
        for (uint32_t k = 0; k < p->n_blocks; first += p->blocks[k++].count)
            if (load_check_wanted(l) || load_block(l, &l->place[i], k, first))
                return l->t->error.code;
        l->elements += p->count;
    }
    return PS_OK;
}

static enum ps_code load_check_id(struct load *l, uint64_t checkpoint)
{
    if (ps_shards_has_id(l->file, checkpoint))
        return PS_OK;
    return ps_fail(&l->t->error, PS_FAILED_PRECONDITION, "it is a shard of another checkpoint");
}

// *elements: how many it has; none where there is no such file, as of a task that keeps nothing.
static enum ps_code load_shard(struct psd_request *t, const char *path, const Paramserver__V1__LoadShardRequest *r,
                               uint64_t *elements)
{
    struct load l = {.t = t, .steps = r->steps};
    *elements = 0;
    if (ps_safetensors_stream_open(path, &l.stream, &t->error))
        return t->error.code == PS_NOT_FOUND ? PS_OK : t->error.code;
    l.file = ps_safetensors_stream_tensors(l.stream);
    l.place = ps_try_alloc_array(l.file->n + 1, sizeof *l.place);
    l.values = ps_try_alloc(PS_BLOCK_BYTES);
    enum ps_code code = l.place && l.values ? load_check_id(&l, r->shard->checkpoint) : shard_no_memory(t);
    if (code == PS_OK)
        code = load_place_all(&l);
    if (code)
        ps_error_prefix(&t->error, "%.200s", path);
    if (code == PS_OK)
        code = load_all(&l);
    *elements = l.elements;
    ps_safetensors_stream_close(l.stream);
    free(l.place);
    free(l.values);
    return code;
}

// The sequence of the call by which this client has loaded a shard here last, where no other client has since; or 0.
static uint64_t load_last_sequence(const struct psd_request *t)
{
    const struct psd_loaded *last = &t->job->loaded;
    const bool same = last->run == t->caller->run && memcmp(last->by, t->caller->client.data, sizeof last->by) == 0;
    return same ? last->sequence : 0;
}

// The answer to the call that has loaded a shard here last may have been lost. Whoever loads the same one in another
// call means it: other values may have been put meanwhile.
static bool load_is_repetition(const struct psd_request *t, uint64_t checkpoint)
{
    const struct psd_loaded *last = &t->job->loaded;
    return load_last_sequence(t) == t->caller->sequence && last->checkpoint == checkpoint && last->elements;
}

static void load_note(const struct psd_request *t, uint64_t checkpoint, uint64_t elements)
{
    struct psd_loaded *last = &t->job->loaded;
    *last = (struct psd_loaded){t->caller->run, checkpoint, elements, .sequence = t->caller->sequence};
    memcpy(last->by, t->caller->client.data, sizeof last->by);
}

// A copy that comes late would put old values over those of the load after it.
static enum ps_code load_check_sequence(struct psd_request *t)
{
    const uint64_t last = load_last_sequence(t), sequence = t->caller->sequence;
    if (sequence == 0)
        return ps_fail(&t->error, PS_INVALID_ARGUMENT, "load shard: sequence 0: expected one from 1");
    if (sequence < last)
        return ps_fail(&t->error, PS_ABORTED,
                       "load shard: the client has asked for another since (sequence %" PRIu64 ", this is %" PRIu64 ")",
                       last, sequence);
    return PS_OK;
}

static enum ps_code load_once(struct psd_request *t, const Paramserver__V1__LoadShardRequest *r, uint64_t *elements)
{
    *elements = t->job->loaded.elements;
    if (load_is_repetition(t, r->shard->checkpoint))
        return PS_OK;
    char *path = shard_path(t, r->shard);
    load_note(t, r->shard->checkpoint, 0);
    const enum ps_code code = path ? load_shard(t, path, r, elements) : shard_no_memory(t);
    free(path);
    if (code)
        return code;
    if (*elements)
        ps_info("job '%s': goes on from %s", t->job->name, r->shard->name);
    load_note(t, r->shard->checkpoint, *elements);
    return PS_OK;
}

int psd_load_shard(struct psd_request *t)
{
    const Paramserver__V1__LoadShardRequest *r = (const Paramserver__V1__LoadShardRequest *)t->request;
    Paramserver__V1__LoadShardReply out = PARAMSERVER__V1__LOAD_SHARD_REPLY__INIT;
    if (!r->shard)
        return (int)ps_fail(&t->error, PS_INVALID_ARGUMENT, "the request names no shard");
    if (shard_check_folder(t) || shard_check_name(t, r->shard->name) || shard_check_worker(t))
        return (int)t->error.code;
    if (!t->call->parked_since)
        return psd_file_thread_park(t, t->core->shard_thread);
    if (load_check_sequence(t))
        return (int)t->error.code;
    if (load_once(t, r, &out.elements))
        return shard_fail_file(t);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}

// ---- removing -----------------------------------------------------------------------------------------------------

static bool shard_is_kept(const Paramserver__V1__PruneShardsRequest *r, uint64_t id)
{
    bool is = ps_shards_series(id) != r->series;
    for (size_t i = 0; i < r->n_keep; i++)
        is |= r->keep[i] == id;
    return is;
}

int psd_prune_shards(struct psd_request *t)
{
    const Paramserver__V1__PruneShardsRequest *r = (const Paramserver__V1__PruneShardsRequest *)t->request;
    Paramserver__V1__PruneShardsReply out = PARAMSERVER__V1__PRUNE_SHARDS_REPLY__INIT;
    uint64_t id;
    if (shard_check_folder(t) || shard_check_name(t, r->name) || shard_check_worker(t))
        return (int)t->error.code;
    if (!t->call->parked_since)
        return psd_file_thread_park(t, t->core->shard_thread);
    char *folder = shard_folder(t);
    if (!folder)
        return (int)shard_no_memory(t);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (ps_shards_is_of(d->d_name, r->name, &id) && !shard_is_kept(r, id))
            out.removed += unlinkat(dirfd(dir), d->d_name, 0) == 0;
    if (dir)
        closedir(dir);
    free(folder);
    out.generation = t->core->generation;
    return psd_request_reply(t, &out.base, NULL);
}
