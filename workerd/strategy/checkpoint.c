// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

static const char checkpoint_key[] = "paramserver";

void wk_checkpoint_init(struct wk_checkpoint *c, const struct ps_shards_of *shards)
{
    *c = (struct wk_checkpoint){.json = json_object()};
    if (shards)
        c->shards = (struct ps_shards_of){.name = ps_strdup(shards->name), .id = shards->id};
}

void wk_checkpoint_free(struct wk_checkpoint *c)
{
    for (size_t i = 0; i < c->n; i++)
        free((char *)c->array[i].name);
    free(c->array);
    if (c->fetch)
        c->fetch->free(c->fetch);
    free((char *)c->shards.name);
    json_decref(c->json);
    ps_safetensors_free(c->file);
}

static char *checkpoint_name(const char *prefix, const char *name)
{
    return prefix ? ps_printf("%s/%s", prefix, name) : ps_strdup(name);
}

void wk_checkpoint_put(struct wk_checkpoint *c, const char *prefix, const char *name, const uint64_t *shape,
                       size_t rank, const float *data)
{
    c->array = ps_realloc(c->array, (c->n + 1) * sizeof *c->array);
    struct ps_safetensor *t = &c->array[c->n++];
    *t = (struct ps_safetensor){.name = checkpoint_name(prefix, name), .rank = rank, .count = 1, .data = data};
    for (size_t i = 0; i < rank; i++)
        t->count *= t->shape[i] = shape[i];
}

const float *wk_checkpoint_find(const struct wk_checkpoint *c, const char *prefix, const char *name, uint64_t count,
                                struct ps_error *e)
{
    char *full = checkpoint_name(prefix, name);
    const struct ps_safetensor *t = ps_safetensors_find(c->file, full);
    const float *data = t && t->count == count ? t->data : NULL;
    if (!data)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: has no array '%.100s' of %" PRIu64 " elements: it is another job's",
                c->path, full, count);
    free(full);
    return data;
}

bool wk_checkpoint_is_index(const struct wk_checkpoint *c)
{
    struct ps_shards_of of;
    return !c->whole && ps_shards_get(c->file, &of);
}

enum ps_code wk_checkpoint_get(const struct wk_checkpoint *c, const char *prefix, const char *name, uint64_t count,
                               float *to, struct ps_error *e)
{
    const float *data = wk_checkpoint_find(c, prefix, name, count, e);
    if (data)
        memcpy(to, data, count * sizeof *to);
    return data ? PS_OK : e->code;
}

void wk_checkpoint_put_rule(struct wk_checkpoint *c, double rate, bool is_set, uint64_t ahead)
{
    json_object_set_new(c->json, "learning_rate", json_real(rate));
    json_object_set_new(c->json, "learning_rate_is_set", json_boolean(is_set));
    json_object_set_new(c->json, "iterations_ahead", json_integer((json_int_t)ahead));
}

enum ps_code wk_checkpoint_get_rule(const struct wk_checkpoint *c, double *rate, bool *is_set, uint64_t *ahead,
                                    struct ps_error *e)
{
    const json_t *value = json_object_get(c->json, "learning_rate");
    if (!json_is_real(value) || !(json_real_value(value) >= 0))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: $.learning_rate: expected a number of 0 or more", c->path);
    *rate = json_real_value(value);
    *is_set = json_is_true(json_object_get(c->json, "learning_rate_is_set"));
    *ahead = (uint64_t)json_integer_value(json_object_get(c->json, "iterations_ahead"));
    return PS_OK;
}

// Puts the arrays that are in shards behind the others. Returns how many are before them.
static size_t checkpoint_split(struct wk_checkpoint *c)
{
    size_t own = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct ps_safetensor t = c->array[i];
        if (c->shards.name && !t.data)
            continue;
        c->array[i] = c->array[own];
        c->array[own++] = t;
    }
    return own;
}

enum ps_code wk_checkpoint_write(struct wk_checkpoint *c, const char *path, struct ps_error *e)
{
    char *text = json_dumps(c->json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!text)
        return ps_fail(e, PS_INTERNAL, "%s: the state is no JSON", path);
    const size_t own = checkpoint_split(c);
    char *index = c->shards.name ? ps_shards_index(&c->shards, c->array + own, c->n - own) : NULL;
    if (c->shards.name && !index) {
        free(text);
        return ps_fail(e, PS_INTERNAL, "%s: the index of its shards is no JSON", path);
    }
    const struct ps_safetensors_text texts[] = {{checkpoint_key, text}, {PS_SHARDS_KEY, index}};
    enum ps_code code = ps_safetensors_write_sealed(path, c->array, own, texts, index ? 2 : 1, NULL, e);
    free(index);
    free(text);
    return code;
}

bool wk_checkpoint_is_one(const struct ps_safetensors *file)
{
    return ps_safetensors_metadata(file, checkpoint_key) != NULL;
}

// NULL: it has none, or that is no JSON.
static json_t *checkpoint_parse(const struct ps_safetensors *file)
{
    const char *text = ps_safetensors_metadata(file, checkpoint_key);
    return text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

json_t *wk_checkpoint_peek(const char *path)
{
    struct ps_safetensors_stream *file;
    struct ps_error ignored;
    if (ps_safetensors_stream_open(path, &file, &ignored))
        return NULL;
    json_t *json = checkpoint_parse(ps_safetensors_stream_tensors(file));
    ps_safetensors_stream_close(file);
    return json;
}

enum ps_code wk_checkpoint_read(struct wk_checkpoint *c, const char *path, bool whole, struct ps_error *e)
{
    *c = (struct wk_checkpoint){.path = path, .whole = whole};
    if ((whole ? ps_safetensors_read_sealed : ps_safetensors_read_index)(path, &c->file, e))
        return e->code;
    c->json = checkpoint_parse(c->file);
    if (json_is_object(c->json))
        return PS_OK;
    wk_checkpoint_free(c);
    *c = (struct wk_checkpoint){.path = path};
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s: is no checkpoint: it says nothing of where a training was", path);
}
