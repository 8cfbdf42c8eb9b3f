// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/configuration.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"

// Of what the model is: white space, the order of keys and what Keras says beside it do not count.
static uint64_t configuration_hash_model(const struct nn_model *model)
{
    json_t *root = json_loads(nn_model_document(model), JSON_DECODE_ANY, NULL);
    char *text = json_dumps(json_object_get(root, "config"), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    json_decref(root);
    uint64_t hash = ps_hash(PS_HASH_SEED, text, strlen(text));
    free(text);
    return hash;
}

// Data that number nothing have no line, as checkpoints of earlier versions have none.
char *wk_configuration(const struct wk_env *env)
{
    const uint64_t model = configuration_hash_model(env->model);
    char *job = ps_job_configuration(env->job);
    char *words = env->numbering ? ps_printf("data.words=%016" PRIx64 "\n", env->numbering) : ps_strdup("");
    char *text = ps_printf("data.examples=%" PRIu64 "\n%smodel=%016" PRIx64 "\n%s", env->examples, words, model, job);
    free(words);
    free(job);
    return text;
}

char *wk_configuration_to_meet(const struct wk_env *env)
{
    char *configuration = wk_configuration(env);
    char *text = ps_printf("data.test_examples=%" PRIu64 "\n%s", env->test_examples, configuration);
    free(configuration);
    return text;
}

char *wk_configuration_to_begin(const struct wk_env *env)
{
    char *configuration = wk_configuration_to_meet(env);
    char *text = ps_printf("%scheckpoint=%s\n", configuration, env->checkpoint ? env->checkpoint : "none");
    free(configuration);
    return text;
}
