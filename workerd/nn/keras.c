// SPDX-License-Identifier: Apache-2.0
//
// Keras's models from JSON, as model.to_json() of Keras 3 and of Keras 2 writes them, or as one writes them by hand:
// what is left out has Keras's default.
#include "workerd/nn/keras.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

// Takes over root.
static enum ps_code read_model(json_t *root, const json_error_t *error, const char *file, struct nn_model **model,
                               struct ps_error *e)
{
    if (!root)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: line %d, column %d: expected JSON: %s", file, error->line,
                       error->column, error->text);
    if (json_is_string(root)) {
        json_decref(root);
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s is a JSON string: write model.to_json() itself, not json.dump of it",
                       file);
    }
    struct keras_reader reader = {.model = ps_alloc(sizeof *reader.model)};
    struct nn_json at = nn_json_root(file, root);
    reader.model->keras2 = nn_setting_is_keras2(&at);
    enum ps_code code = keras_read_model(&reader, &at, e);
    reader.model->document = json_dumps(root, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(root);
    if (code == PS_OK)
        *model = reader.model;
    else
        nn_model_free(reader.model);
    return code;
}

// In a .keras file it is the metadata that says which Keras has written the model.
static void keras_take_version(json_t *root, const char *metadata)
{
    json_t *from = json_loads(metadata, 0, NULL), *version = json_object_get(from, "keras_version");
    if (json_is_string(version) && strncmp(json_string_value(version), "2.", 2) == 0 && json_is_object(root))
        json_object_set(root, "keras_version", version);
    json_decref(from);
}

enum ps_code nn_model_read(const char *text, size_t length, const char *metadata, const char *name,
                           struct nn_model **model, struct ps_error *e)
{
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (root && metadata)
        keras_take_version(root, metadata);
    enum ps_code code = read_model(root, &error, name, model, e);
    if (code == PS_OK && metadata)
        (*model)->metadata = ps_strdup(metadata);
    return code;
}

enum ps_code nn_model_parse(const char *json, const char *name, struct nn_model **model, struct ps_error *e)
{
    return nn_model_read(json, strlen(json), NULL, name, model, e);
}
