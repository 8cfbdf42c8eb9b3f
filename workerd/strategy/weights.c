// SPDX-License-Identifier: Apache-2.0
//
// A weights file against the model's parameters. Each parameter takes the tensor whose name comes nearest to its own:
// "net/dense/kernel" itself; "layers/dense/vars/0", where Keras 3 saves it; "dense/kernel", as Keras calls it in a
// Functional model; that after another model's name, "sequential_1/dense/kernel"; what begins and ends like it and
// leaves out parts of it, "lstm/kernel" of "net/lstm/lstm_cell/kernel", as Keras names what it builds from a document,
// and in inner models' .h5 files. ":0" at the end is Keras 2's.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/safetensors.h"
#include "workerd/strategy/checkpoint.h"
#include "workerd/strategy/strategy.h"
#include "workerd/weights/weights.h"

enum match { MATCH_NONE, MATCH_PARTS, MATCH_OTHER_MODEL, MATCH_NO_MODEL, MATCH_SAVED, MATCH_EXACT };

static bool weights_is_same(const char *name, size_t length, const char *other)
{
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

// Does a tensor lie where Keras saves the parameter? Versions differ in a "_" before an attribute: "_query_dense".
static bool weights_is_saved(const char *tensor, const char *saved)
{
    bool begins = false;
    for (; *tensor && *saved; tensor++, saved++) {
        tensor += begins && *tensor == '_';
        saved += begins && *saved == '_';
        if (*tensor != *saved)
            return false;
        begins = *tensor == '/';
    }
    return *tensor == *saved;
}

static size_t weights_part(const char *name, size_t length)
{
    const char *slash = memchr(name, '/', length);
    return slash ? (size_t)(slash - name) : length;
}

// Are the parts of a name among those of another, in their order, the first and the last as its own? A part that
// stands twice in a row is one.
static bool weights_has_parts(const char *name, size_t length, const char *other)
{
    size_t n = weights_part(name, length), left = strlen(other), k = weights_part(other, left);
    bool first = true;
    for (; left > 0; first = false) {
        bool same = n == k && memcmp(name, other, n) == 0;
        if (first && !same)
            return false;
        size_t twice = n + 1 < length ? weights_part(name + n + 1, length - n - 1) : 0;
        if (same && first && twice == n && memcmp(name + n + 1, name, n) == 0) {
            name += n + 1;
            length -= n + 1;
        }
        if (same && length == n)
            return left == k;
        name += same ? n + 1 : 0;
        length -= same ? n + 1 : 0;
        n = weights_part(name, length);
        other += k < left ? k + 1 : k;
        left -= k < left ? k + 1 : k;
        k = weights_part(other, left);
    }
    return false;
}

static enum match weights_match(const char *tensor, const char *param, const char *saved)
{
    size_t n = strlen(tensor), suffix = strlen(":0");
    if (n > suffix && strcmp(tensor + n - suffix, ":0") == 0)
        n -= suffix;
    if (weights_is_same(tensor, n, param))
        return MATCH_EXACT;
    if (weights_is_saved(tensor, saved))
        return MATCH_SAVED;
    const char *in_model = strchr(param, '/') + 1;
    if (weights_is_same(tensor, n, in_model))
        return MATCH_NO_MODEL;
    const char *slash = memchr(tensor, '/', n);
    size_t prefix = slash ? (size_t)(slash + 1 - tensor) : 0;
    const bool in_group = strncmp(tensor, in_model, prefix) == 0;  // of the layer, as .h5 files have it
    if (prefix > 0 && (weights_is_same(tensor + prefix, n - prefix, in_model) ||
                       (in_group && weights_is_same(tensor + prefix, n - prefix, param))))
        return MATCH_OTHER_MODEL;
    return weights_has_parts(tensor, n, in_model) || weights_has_parts(tensor, n, param) ? MATCH_PARTS : MATCH_NONE;
}

// *found: the index of the parameter's tensor, n of the file where it has none.
static enum ps_code weights_find(const struct ps_safetensors *file, const struct nn_param *p, const char *saved,
                                 const char *path, size_t *found, struct ps_error *e)
{
    enum match best = MATCH_NONE;
    const char *rival = NULL;
    *found = file->n;
    for (size_t i = 0; i < file->n; i++) {
        enum match match = weights_match(file->tensor[i].name, p->name, saved);
        if (match > best) {
            best = match;
            rival = NULL;
            *found = i;
        } else if (match == best && match != MATCH_NONE) {
            rival = file->tensor[i].name;
        }
    }
    if (rival)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensors '%.100s' and '%.100s' could both be '%.100s'", path,
                       file->tensor[*found].name, rival, p->name);
    return PS_OK;
}

// A tensor that comes nearest to two parameters' names is that of neither.
static enum ps_code weights_check_once(const struct nn_model *model, const struct ps_safetensors *file,
                                       const size_t *found, const char *path, struct ps_error *e)
{
    size_t n = nn_model_params(model), *owner = ps_alloc((file->n + 1) * sizeof *owner);  // from 1
    enum ps_code code = PS_OK;
    for (size_t i = 0; i < n && code == PS_OK; i++) {
        if (found[i] < file->n && owner[found[i]])
            code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor '%.100s' could be both '%.100s' and '%.100s'", path,
                           file->tensor[found[i]].name, nn_model_param(model, owner[found[i]] - 1)->name,
                           nn_model_param(model, i)->name);
        owner[found[i]] = i + 1;
    }
    free(owner);
    return code;
}

// Things in one line, as many as fit; "..." for the others.
struct list {
    char text[160];
    size_t length;
};

static void __attribute__((format(printf, 2, 3))) list_add(struct list *list, const char *format, ...)
{
    enum { ROOM_FOR_MORE = 8 };
    char item[sizeof list->text - ROOM_FOR_MORE];
    va_list args;
    va_start(args, format);
    vsnprintf(item, sizeof item, format, args);
    va_end(args);
    const char *comma = list->length ? ", " : "";
    size_t n = strlen(comma) + strlen(item), room = sizeof list->text - list->length;
    if (n + ROOM_FOR_MORE < room || (list->length == 0 && n < room))
        list->length += (size_t)snprintf(list->text + list->length, room, "%s%s", comma, item);
    else if (strcmp(list->text + list->length - 3, "...") != 0)
        list->length += (size_t)snprintf(list->text + list->length, room, ", ...");
}

// What is wrong with a file, all of it.
struct mismatch {
    struct list missing, shape, kind, left_over;
};

static void mismatch_look(struct mismatch *m, const struct nn_param *p, const struct ps_safetensor *t)
{
    char want[128], have[128];
    if (t->rank != p->rank || memcmp(t->shape, p->shape, p->rank * sizeof *p->shape) != 0)
        list_add(&m->shape, "'%.100s' has %s, not %s", t->name, ps_shape_text(t->shape, t->rank, have, sizeof have),
                 ps_shape_text(p->shape, p->rank, want, sizeof want));
    else if (!t->data)
        list_add(&m->kind, "'%.100s' (%.16s)", t->name, t->dtype);
}

// The state of random numbers has no use here: they are drawn from the job's seed. Nor has Normalization's count of
// what it has seen, which is no float, nor what a layer's config has, too.
static bool weights_is_other_state(const struct ps_safetensor *t)
{
    const char *end = strrchr(t->name, '/');
    return !t->data || strstr(t->name, "seed_generator") || (end && strcmp(end, "/idf_weights") == 0);
}

// Every tensor that is not among the n of taken.
static void mismatch_left_over(struct mismatch *m, const struct ps_safetensors *file, const size_t *taken, size_t n)
{
    bool *used = ps_alloc((file->n + 1) * sizeof *used);  // the last one stands for none
    for (size_t i = 0; i < n; i++)
        used[taken[i]] = true;
    for (size_t i = 0; i < file->n; i++)
        if (!used[i] && !weights_is_other_state(&file->tensor[i]))
            list_add(&m->left_over, "'%.100s'", file->tensor[i].name);
    free(used);
}

static enum ps_code mismatch_fail(const struct mismatch *m, const char *path, struct ps_error *e)
{
    char text[sizeof e->text];
    const struct {
        const char *before, *list, *after;
    } part[] = {
        {"; it has no tensors ", m->missing.text, ", which the model needs"},
        {"; it has other shapes: ", m->shape.text, ""},
        {"; it has no floats in ", m->kind.text, ", where the model needs them"},
        {"; it has ", m->left_over.text, " besides"},
    };
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (*part[i].list && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s", part[i].before, part[i].list, part[i].after);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%.200s does not fit the model%s", path, text);
}

static enum ps_code weights_check(const struct nn_model *model, const struct ps_safetensors *file, const size_t *found,
                                  const char *path, struct ps_error *e)
{
    struct mismatch m = {0};
    size_t n = nn_model_params(model);
    for (size_t i = 0; i < n; i++) {
        const struct nn_param *p = nn_model_param(model, i);
        if (found[i] == file->n)
            list_add(&m.missing, "'%.100s'", p->name);
        else
            mismatch_look(&m, p, &file->tensor[found[i]]);
    }
    mismatch_left_over(&m, file, found, n);
    if (m.missing.length > 0 || m.shape.length > 0 || m.kind.length > 0)
        return mismatch_fail(&m, path, e);
    if (m.left_over.length > 0 && !wk_checkpoint_is_one(file))  // which has the optimizer's state, too
        ps_warn("%s: the model has no use for %s", path, m.left_over.text);
    return PS_OK;
}

static enum ps_code weights_take(const struct wk_env *env, const struct ps_safetensors *file, const char *path,
                                 struct ps_error *e)
{
    size_t n = nn_model_params(env->model), *found = ps_alloc(n * sizeof *found);
    struct nn_saved *saved = nn_model_saved(env->model);
    enum ps_code code = PS_OK;
    for (size_t i = 0; code == PS_OK && i < n; i++)
        code = weights_find(file, nn_model_param(env->model, i), saved[i].path, path, &found[i], e);
    if (code == PS_OK)
        code = weights_check_once(env->model, file, found, path, e);
    if (code == PS_OK)
        code = weights_check(env->model, file, found, path, e);
    for (size_t i = 0; code == PS_OK && i < n; i++)
        memcpy(nn_replica_param(env->replica, i), file->tensor[found[i]].data,
               nn_model_param(env->model, i)->count * sizeof(float));
    nn_model_free_saved(saved);
    free(found);
    return code;
}

enum ps_code wk_load_weights(const struct wk_env *env, const char *path, struct ps_error *e)
{
    struct ps_safetensors *file;
    enum ps_code code = wk_weights_read(path, &file, e);
    if (code != PS_OK)
        return code;
    code = weights_take(env, file, path, e);
    ps_safetensors_free(file);
    return code;
}

enum ps_code wk_init_weights(const struct wk_env *env, struct ps_error *e)
{
    const char *path = env->job->weights;
    if (env->checkpoint)
        return PS_OK;
    if (!path && nn_model_metadata(env->model))
        path = env->job->model;  // a .keras file has them, too
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        nn_model_init_param(env->model, i, env->job->seed, nn_replica_param(env->replica, i));
    return path ? wk_load_weights(env, path, e) : PS_OK;
}
