// SPDX-License-Identifier: Apache-2.0
//
// A weights file against the model's parameters. Each parameter takes the tensor whose name comes nearest to its own:
// "net/dense/kernel" itself; "dense/kernel", as Keras calls it in a Functional model; that after another model's name,
// "sequential_1/dense/kernel". ":0" at the end is Keras 2's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/file/safetensors.h"
#include "workerd/strategy/strategy.h"

enum match { MATCH_NONE, MATCH_OTHER_MODEL, MATCH_NO_MODEL, MATCH_EXACT };

static bool weights_is_same(const char *name, size_t length, const char *other)
{
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

static enum match weights_match(const char *tensor, const char *param)
{
    size_t n = strlen(tensor), suffix = strlen(":0");
    if (n > suffix && strcmp(tensor + n - suffix, ":0") == 0)
        n -= suffix;
    if (weights_is_same(tensor, n, param))
        return MATCH_EXACT;
    const char *in_model = strchr(param, '/') + 1;
    if (weights_is_same(tensor, n, in_model))
        return MATCH_NO_MODEL;
    const char *slash = memchr(tensor, '/', n);
    size_t prefix = slash ? (size_t)(slash + 1 - tensor) : 0;
    return prefix > 0 && weights_is_same(tensor + prefix, n - prefix, in_model) ? MATCH_OTHER_MODEL : MATCH_NONE;
}

// *found: the index of the parameter's tensor, n of the file where it has none.
static enum ps_code weights_find(const struct ps_safetensors *file, const struct nn_param *p, const char *path,
                                 size_t *found, struct ps_error *e)
{
    enum match best = MATCH_NONE;
    const char *rival = NULL;
    *found = file->n;
    for (size_t i = 0; i < file->n; i++) {
        enum match match = weights_match(file->tensor[i].name, p->name);
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

static enum ps_code weights_check(const struct nn_param *p, const struct ps_safetensor *t, const char *path,
                                  struct ps_error *e)
{
    char want[128], have[128];
    if (t->rank != p->rank || memcmp(t->shape, p->shape, p->rank * sizeof *p->shape) != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor '%.100s' has shape %s, the model needs %s for '%.100s'",
                       path, t->name, ps_shape_text(t->shape, t->rank, have, sizeof have),
                       ps_shape_text(p->shape, p->rank, want, sizeof want), p->name);
    if (!t->data)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor '%.100s' is of %s, the model needs floats for '%.100s'",
                       path, t->name, t->dtype, p->name);
    return PS_OK;
}

// Names in one line; "..." for those that it has no room for.
struct list {
    char text[400];
    size_t length;
};

static void list_add(struct list *list, const char *name)
{
    enum { ROOM_FOR_MORE = 8 };
    char item[112];
    size_t n = (size_t)snprintf(item, sizeof item, "%s'%.100s'", list->length ? ", " : "", name);
    if (list->length + n + ROOM_FOR_MORE < sizeof list->text)
        list->length += (size_t)snprintf(list->text + list->length, sizeof list->text - list->length, "%s", item);
    else if (strcmp(list->text + list->length - 3, "...") != 0)
        list->length += (size_t)snprintf(list->text + list->length, sizeof list->text - list->length, ", ...");
}

// What the model has no use for: every tensor that is not among the n of taken.
static void list_left_over(struct list *list, const struct ps_safetensors *file, const size_t *taken, size_t n)
{
    bool *used = ps_alloc((file->n + 1) * sizeof *used);  // the last one stands for none
    for (size_t i = 0; i < n; i++)
        used[taken[i]] = true;
    for (size_t i = 0; i < file->n; i++)
        if (!used[i])
            list_add(list, file->tensor[i].name);
    free(used);
}

static enum ps_code weights_check_names(const struct nn_model *model, const struct ps_safetensors *file,
                                        const size_t *found, const char *path, struct ps_error *e)
{
    struct list missing = {0}, left = {0};
    size_t n = nn_model_params(model);
    for (size_t i = 0; i < n; i++)
        if (found[i] == file->n)
            list_add(&missing, nn_model_param(model, i)->name);
    list_left_over(&left, file, found, n);
    if (missing.length > 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: has no tensors %s, which the model needs%s%s%s", path, missing.text,
                       left.length ? "; it has " : "", left.text, left.length ? " besides" : "");
    if (left.length > 0)
        ps_warn("%s: the model has no use for %s", path, left.text);
    return PS_OK;
}

static enum ps_code weights_take(const struct wk_env *env, const struct ps_safetensors *file, const char *path,
                                 struct ps_error *e)
{
    size_t n = nn_model_params(env->model), *found = ps_alloc(n * sizeof *found);
    enum ps_code code = PS_OK;
    for (size_t i = 0; code == PS_OK && i < n; i++)
        code = weights_find(file, nn_model_param(env->model, i), path, &found[i], e);
    if (code == PS_OK)
        code = weights_check_names(env->model, file, found, path, e);
    for (size_t i = 0; code == PS_OK && i < n; i++)
        code = weights_check(nn_model_param(env->model, i), &file->tensor[found[i]], path, e);
    for (size_t i = 0; code == PS_OK && i < n; i++)
        memcpy(nn_replica_param(env->replica, i), file->tensor[found[i]].data,
               nn_model_param(env->model, i)->count * sizeof(float));
    free(found);
    return code;
}

enum ps_code wk_load_weights(const struct wk_env *env, const char *path, struct ps_error *e)
{
    struct ps_safetensors *file;
    enum ps_code code = ps_safetensors_read(path, &file, e);
    if (code != PS_OK)
        return code;
    code = weights_take(env, file, path, e);
    ps_safetensors_free(file);
    return code;
}

enum ps_code wk_init_weights(const struct wk_env *env, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        nn_model_init_param(env->model, i, env->job->seed, nn_replica_param(env->replica, i));
    return env->job->weights ? wk_load_weights(env, env->job->weights, e) : PS_OK;
}
