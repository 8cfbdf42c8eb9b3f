// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/configuration.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"

// Of what the model is: white space, the order of keys and what Keras says beside it do not count.
static enum ps_code configuration_hash_model(const char *path, uint64_t *hash, struct ps_error *e)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    char *text = json_dumps(json_object_get(root, "config"), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    json_decref(root);
    if (!text)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s has changed since it was read", path);
    *hash = ps_hash(PS_HASH_SEED, text, strlen(text));
    free(text);
    return PS_OK;
}

char *wk_configuration(const struct wk_env *env, struct ps_error *e)
{
    uint64_t model;
    if (configuration_hash_model(env->job->model, &model, e))
        return NULL;
    char *job = ps_job_configuration(env->job);
    char *text = ps_printf("data.examples=%" PRIu64 "\nmodel=%016" PRIx64 "\n%s", env->examples, model, job);
    free(job);
    return text;
}
