// SPDX-License-Identifier: Apache-2.0
#include "common/file/shards.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"

enum { SHARDS_NAME_MAX = 160 };

// ---- names --------------------------------------------------------------------------------------------------------

bool ps_shards_is_name(const char *text)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(text);
    return n > 0 && n <= SHARDS_NAME_MAX && text[0] != '.' && strspn(text, known) == n;
}

char *ps_shards_id(uint64_t id)
{
    return ps_try_printf("%016" PRIx64, id);
}

char *ps_shards_path(const struct ps_shards_of *of, uint32_t task)
{
    return ps_try_printf("%s/%s-%016" PRIx64 "-ps-%" PRIu32 "-of-%" PRIu32 ".safetensors", of->job, of->name, of->id,
                         task, of->tasks);
}

char *ps_shards_slice(const char *name, uint64_t first, uint64_t end)
{
    return ps_try_printf("%s[%" PRIu64 ":%" PRIu64 "]", name, first, end);
}

static bool shards_skip(const char **at, const char *text)
{
    const size_t n = strlen(text);
    const bool is = strncmp(*at, text, n) == 0;
    *at += is ? n : 0;
    return is;
}

static bool shards_skip_number(const char **at, uint64_t *number)
{
    const size_t n = strspn(*at, "0123456789");
    *number = strtoull(*at, NULL, 10);
    *at += n;
    return n > 0;
}

static bool shards_skip_id(const char **at, uint64_t *id)
{
    const size_t n = strspn(*at, "0123456789abcdef");
    char text[17] = "";
    if (n != 16)
        return false;
    memcpy(text, *at, n);
    *id = strtoull(text, NULL, 16);
    *at += n;
    return true;
}

bool ps_shards_is_of(const char *file, const char *name, uint64_t *id)
{
    uint64_t step, task, tasks;
    return shards_skip(&file, name) && shards_skip(&file, "-") && shards_skip_number(&file, &step) &&
           shards_skip(&file, "-") && shards_skip_id(&file, id) && shards_skip(&file, "-ps-") &&
           shards_skip_number(&file, &task) && shards_skip(&file, "-of-") && shards_skip_number(&file, &tasks) &&
           shards_skip(&file, ".safetensors") && (!*file || *file == '.');
}

bool ps_shards_has_id(const struct ps_safetensors *file, uint64_t id)
{
    const char *text = ps_safetensors_metadata(file, PS_SHARD_KEY);
    uint64_t found;
    return text && shards_skip_id(&text, &found) && !*text && found == id;
}

char *ps_shards_index(const struct ps_shards_of *of, const struct ps_safetensor *tensors, size_t n)
{
    json_t *files = json_array(), *shapes = json_object();
    bool good = true;
    for (uint32_t i = 0; i < of->tasks; i++) {
        char *path = ps_shards_path(of, i);
        good &= json_array_append_new(files, json_string(path)) == 0;
        free(path);
    }
    for (size_t i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (size_t k = 0; k < tensors[i].rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)tensors[i].shape[k]));
        good &= json_object_set_new(shapes, tensors[i].name, shape) == 0;
    }
    char *id = ps_shards_id(of->id);
    json_t *index =
        json_pack("{s:s, s:s, s:o, s:o}", "name", of->name, "checkpoint", id, "files", files, "tensors", shapes);
    good &= index != NULL;
    char *text = good ? json_dumps(index, JSON_COMPACT) : NULL;
    json_decref(index);
    free(id);
    return text;
}

// ---- reading: the index, and the files that it names --------------------------------------------------------------

// A tensor NAME[FIRST:END] of a file.
struct slice {
    const struct ps_safetensor *tensor;
    size_t name;  // bytes of NAME
    uint64_t first;
    size_t order;  // of the files' tensors
};

// Slices are by their names and where they begin.
struct ps_shards {
    json_t *index;  // whose names the tensors have
    struct ps_shards_of of;
    uint64_t elements;  // of all tensors
    struct ps_safetensors **file;
    size_t n;
    const char *absent;  // the first that is not there, perhaps as its ps task keeps nothing; NULL: all are
    float **joined;      // the data of tensors that came in slices
    size_t n_joined;
    struct slice *slice;  // NULL: not looked for yet
    size_t n_slices;
};

void ps_shards_free(struct ps_shards *shards)
{
    if (!shards)
        return;
    for (size_t i = 0; i < shards->n; i++)
        ps_safetensors_free(shards->file[i]);
    for (size_t i = 0; i < shards->n_joined; i++)
        free(shards->joined[i]);
    free(shards->file);
    free(shards->joined);
    free(shards->slice);
    json_decref(shards->index);
    free(shards);
}

// Are the files those of an index of this name, id and number of ps tasks, in whatever folder?
static bool shards_has_files(const json_t *files, struct ps_shards_of *of)
{
    char folder[SHARDS_NAME_MAX + 1] = "";
    const char *first = json_string_value(json_array_get(files, 0));
    const size_t n = first ? strcspn(first, "/") : 0;
    bool good = n > 0 && n <= SHARDS_NAME_MAX;
    if (good)
        memcpy(folder, first, n);
    good = good && ps_shards_is_name(folder);
    of->job = folder;
    of->tasks = (uint32_t)json_array_size(files);
    for (uint32_t i = 0; good && i < of->tasks; i++) {
        char *path = ps_shards_path(of, i);
        const char *file = json_string_value(json_array_get(files, i));
        good = path && file && strcmp(path, file) == 0;
        free(path);
    }
    of->job = NULL;
    return good;
}

static enum ps_code shards_parse(struct ps_shards *shards, const char *text, const char *path, struct ps_error *e)
{
    json_t *index = shards->index = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *id = json_string_value(json_object_get(index, "checkpoint")), *end = id;
    struct ps_shards_of *of = &shards->of;
    of->name = json_string_value(json_object_get(index, "name"));
    bool good = of->name && ps_shards_is_name(of->name) && id && shards_skip_id(&end, &of->id) && !*end;
    good = good && shards_has_files(json_object_get(index, "files"), of) &&
           json_is_object(json_object_get(index, "tensors"));
    return good ? PS_OK : ps_fail(e, PS_INVALID_ARGUMENT, "%s: its index of shards is none", path);
}

static enum ps_code shards_check_id(const struct ps_shards *shards, const struct ps_safetensors *file, const char *path,
                                    struct ps_error *e)
{
    if (ps_shards_has_id(file, shards->of.id))
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s: is a shard of another checkpoint", path);
}

// Where the i-th of an index's files is, beside the file at path. Malloc'd; NULL: no memory.
static char *shards_beside(const char *path, const json_t *files, size_t i)
{
    const char *slash = strrchr(path, '/');
    return ps_try_printf("%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                         json_string_value(json_array_get(files, i)));
}

// One that is not there may be of a ps task that keeps nothing.
static enum ps_code shards_open(struct ps_shards *shards, const char *index, const json_t *files, size_t i,
                                struct ps_error *e)
{
    char *path = shards_beside(index, files, i);
    struct ps_safetensors *file = NULL;
    enum ps_code code = path ? ps_safetensors_read_shard(path, &file, e) : ps_no_memory(e, "the path of a shard");
    if (code == PS_OK) {
        shards->file[shards->n++] = file;
        code = shards_check_id(shards, file, path, e);
    } else if (code == PS_NOT_FOUND) {
        shards->absent = shards->absent ? shards->absent : json_string_value(json_array_get(files, i));
        code = PS_OK;
    }
    free(path);
    return code;
}

static enum ps_code shards_open_all(struct ps_shards *shards, const char *path, struct ps_error *e)
{
    const json_t *files = json_object_get(shards->index, "files");
    shards->file = ps_try_alloc_array(json_array_size(files) + 1, sizeof(void *));
    if (!shards->file)
        return ps_no_memory(e, "shards");
    for (size_t i = 0; i < json_array_size(files); i++)
        if (shards_open(shards, path, files, i, e))
            return e->code;
    return PS_OK;
}

// ---- reading: the tensors -----------------------------------------------------------------------------------------

// Is the tensor a slice of another one? Then of which, and from which element on.
static bool slice_read(const struct ps_safetensor *t, size_t order, struct slice *slice)
{
    const char *bracket = strrchr(t->name, '[');
    char *end;
    if (!bracket || !t->data)
        return false;
    *slice = (struct slice){t, (size_t)(bracket - t->name), strtoull(bracket + 1, &end, 10), order};
    return *end == ':' && strtoull(end + 1, &end, 10) == slice->first + t->count && strcmp(end, "]") == 0;
}

static int slice_compare_name(const struct slice *slice, const char *name, size_t n)
{
    const int order = strncmp(slice->tensor->name, name, slice->name < n ? slice->name : n);
    return order ? order : (slice->name > n) - (slice->name < n);
}

static int slice_compare(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    const int order = slice_compare_name(x, y->tensor->name, y->name);
    return order                  ? order
           : x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                  : (x->order > y->order) - (x->order < y->order);
}

// Once for all tensors that came in slices, which may be many.
static bool slices_find_all(struct ps_shards *shards)
{
    size_t tensors = 0, order = 0;
    for (size_t i = 0; i < shards->n; i++)
        tensors += shards->file[i]->n;
    shards->slice = ps_try_alloc_array(tensors + 1, sizeof *shards->slice);
    if (!shards->slice)
        return false;
    for (size_t i = 0; i < shards->n; i++)
        for (size_t k = 0; k < shards->file[i]->n; k++)
            if (slice_read(&shards->file[i]->tensor[k], order++, &shards->slice[shards->n_slices]))
                shards->n_slices++;
    qsort(shards->slice, shards->n_slices, sizeof *shards->slice, slice_compare);
    return true;
}

// The first slice of the tensor called name, or the end of all.
static const struct slice *slices_of(const struct ps_shards *shards, const char *name)
{
    size_t from = 0, to = shards->n_slices;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (slice_compare_name(&shards->slice[middle], name, strlen(name)) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return shards->slice + from;
}

// The slice of the tensor that begins at an element; *from moves on to it. NULL: there is none.
static const struct ps_safetensor *slice_next(const struct ps_shards *shards, const char *name, uint64_t at,
                                              const struct slice **from)
{
    const struct slice *end = shards->slice + shards->n_slices;
    while (*from < end && (*from)->first < at && slice_compare_name(*from, name, strlen(name)) == 0)
        ++*from;
    const bool is = *from < end && (*from)->first == at && slice_compare_name(*from, name, strlen(name)) == 0;
    return is ? (*from)->tensor : NULL;
}

static enum ps_code shards_fail_missing(const struct ps_shards *shards, const char *path, const char *name,
                                        struct ps_error *e)
{
    if (shards->absent)
        return ps_fail(e, PS_NOT_FOUND, "%s: its shard %.200s is not beside it, and nowhere else is \"%.100s\"", path,
                       shards->absent, name);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor \"%.100s\" is in none of its shards, or not all of it", path,
                   name);
}

// The slices follow each other from the first element to the last: only then is there memory for all of them.
static enum ps_code shards_join_slices(struct ps_shards *shards, const char *path, struct ps_safetensor *t,
                                       struct ps_error *e)
{
    const struct ps_safetensor *slice;
    uint64_t at = 0;
    if (!shards->slice && !slices_find_all(shards))
        return ps_no_memory(e, "the slices of shards");
    const struct slice *first = slices_of(shards, t->name), *next = first;
    while (at < t->count && (slice = slice_next(shards, t->name, at, &next)) && slice->count &&
           slice->count <= t->count - at)
        at += slice->count;
    if (at != t->count)
        return shards_fail_missing(shards, path, t->name, e);
    float *data = ps_try_alloc_array(t->count + 1, sizeof *data);
    if (!data)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "%s: no memory for tensor \"%.100s\"", path, t->name);
    shards->joined[shards->n_joined++] = data;
    t->data = data;
    next = first;
    for (at = 0; at < t->count; at += slice->count) {
        slice = slice_next(shards, t->name, at, &next);
        memcpy(data + at, slice->data, slice->count * sizeof *data);
    }
    return PS_OK;
}

static enum ps_code shards_find(struct ps_shards *shards, const char *path, struct ps_safetensor *t, struct ps_error *e)
{
    for (size_t i = 0; i < shards->n; i++) {
        const struct ps_safetensor *found = ps_safetensors_find(shards->file[i], t->name);
        if (!found || found->count != t->count || !found->data)
            continue;
        t->data = found->data;
        return PS_OK;
    }
    return shards_join_slices(shards, path, t, e);
}

static enum ps_code shards_read_shape(const json_t *shape, const char *path, struct ps_safetensor *t,
                                      struct ps_error *e)
{
    bool good = json_is_array(shape) && json_array_size(shape) <= PS_MAX_RANK;
    t->rank = good ? json_array_size(shape) : 0;
    for (size_t i = 0; good && i < t->rank; i++) {
        const json_t *n = json_array_get(shape, i);
        good = json_is_integer(n) && json_integer_value(n) >= 0;
        t->shape[i] = (uint64_t)json_integer_value(n);
    }
    if (!good)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor \"%.100s\" of its shards: expected a shape", path, t->name);
    if (ps_shape_count(t->shape, t->rank, PS_FLOAT32, &t->count, e))
        return ps_error_prefix(e, "%.200s: tensor \"%.100s\" of its shards", path, t->name);
    return PS_OK;
}

static enum ps_code shards_add_tensors(struct ps_safetensors *s, const char *path, bool reads, struct ps_error *e)
{
    json_t *tensors = json_object_get(s->shards->index, "tensors"), *shape;
    const size_t own = s->n;
    const char *name;
    struct ps_safetensor *more = ps_try_realloc(s->tensor, (s->n + json_object_size(tensors) + 1) * sizeof *more);
    s->tensor = more ? more : s->tensor;
    s->shards->joined = ps_try_alloc_array(json_object_size(tensors) + 1, sizeof(void *));
    if (!more || !s->shards->joined)
        return ps_no_memory(e, "the tensors of shards");
    json_object_foreach(tensors, name, shape)
    {
        struct ps_safetensor *t = &s->tensor[s->n];
        *t = (struct ps_safetensor){.name = name, .dtype = "F32"};
        if (ps_safetensors_find(&(struct ps_safetensors){.tensor = s->tensor, .n = own}, name))
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor \"%.100s\" is there, and in its shards", path, name);
        if (shards_read_shape(shape, path, t, e))
            return e->code;
        s->shards->elements += t->count;
        if (reads && shards_find(s->shards, path, t, e))
            return e->code;
        s->n++;
    }
    return PS_OK;
}

enum ps_code ps_shards_join(struct ps_safetensors *s, const char *path, bool reads, struct ps_error *e)
{
    const char *text = ps_safetensors_metadata(s, PS_SHARDS_KEY);
    if (!text)
        return PS_OK;
    s->shards = ps_try_alloc(sizeof *s->shards);
    if (!s->shards)
        return ps_no_memory(e, "shards");
    if (shards_parse(s->shards, text, path, e) || (reads && shards_open_all(s->shards, path, e)))
        return e->code;
    return shards_add_tensors(s, path, reads, e);
}

bool ps_shards_get(const struct ps_safetensors *s, struct ps_shards_of *of)
{
    if (s && s->shards)
        *of = s->shards->of;
    return s && s->shards;
}

uint64_t ps_shards_elements(const struct ps_safetensors *s)
{
    return s->shards ? s->shards->elements : 0;
}

// By its header alone. Names none: shards->index stays NULL.
static enum ps_code shards_peek(struct ps_shards *shards, const char *path, struct ps_error *e)
{
    struct ps_safetensors_stream *file;
    if (ps_safetensors_stream_open(path, &file, e))
        return e->code;
    const char *text = ps_safetensors_metadata(ps_safetensors_stream_tensors(file), PS_SHARDS_KEY);
    const enum ps_code code = text ? shards_parse(shards, text, path, e) : PS_OK;
    ps_safetensors_stream_close(file);
    return code;
}

enum ps_code ps_shards_peek(const char *path, uint64_t *id, struct ps_error *e)
{
    struct ps_shards shards = {0};
    const enum ps_code code = shards_peek(&shards, path, e);
    *id = shards.of.id;
    json_decref(shards.index);
    return code;
}

struct ps_shards *ps_shards_named(const char *path)
{
    struct ps_shards *shards = ps_try_alloc(sizeof *shards);
    struct ps_error ignored;
    if (shards && shards_peek(shards, path, &ignored) == PS_OK && shards->index)
        return shards;
    ps_shards_free(shards);
    return NULL;
}

void ps_shards_unlink(const struct ps_shards *shards, const char *path)
{
    const json_t *files = shards ? json_object_get(shards->index, "files") : NULL;
    for (size_t i = 0; i < json_array_size(files); i++) {
        char *shard = shards_beside(path, files, i);
        if (shard)
            unlink(shard);
        free(shard);
    }
}

bool ps_shards_remove(const char *path)
{
    struct ps_shards *shards = ps_shards_named(path);
    const bool has = shards != NULL;
    if (unlink(path) == 0 || errno == ENOENT)
        ps_shards_unlink(shards, path);
    ps_shards_free(shards);
    return has;
}
