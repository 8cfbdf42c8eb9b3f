// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "common/file/safetensors.h"
#include "workerd/strategy/strategy.h"

static enum ps_code take_weight(const struct nn_param *p, const struct ps_safetensors *file, float *to,
                                const char *path, struct ps_error *e)
{
    char want[128], have[128];
    const struct ps_safetensor *t = ps_safetensors_find(file, p->name);
    if (!t)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: has no tensor '%s', which the model needs", path, p->name);
    if (t->rank != p->rank || memcmp(t->shape, p->shape, p->rank * sizeof *p->shape) != 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: tensor '%s' has shape %s, the model needs %s", path, p->name,
                       ps_shape_text(t->shape, t->rank, have, sizeof have),
                       ps_shape_text(p->shape, p->rank, want, sizeof want));
    memcpy(to, t->data, p->count * sizeof *to);
    return PS_OK;
}

enum ps_code wk_load_weights(const struct wk_env *env, const char *path, struct ps_error *e)
{
    struct ps_safetensors *file;
    enum ps_code code = ps_safetensors_read(path, &file, e);
    if (code != PS_OK)
        return code;
    for (size_t i = 0; code == PS_OK && i < nn_model_params(env->model); i++)
        code = take_weight(nn_model_param(env->model, i), file, nn_replica_param(env->replica, i), path, e);
    ps_safetensors_free(file);
    return code;
}

enum ps_code wk_init_weights(const struct wk_env *env, struct ps_error *e)
{
    for (size_t i = 0; i < nn_model_params(env->model); i++)
        nn_model_init_param(env->model, i, env->job->seed, nn_replica_param(env->replica, i));
    return env->job->weights ? wk_load_weights(env, env->job->weights, e) : PS_OK;
}
