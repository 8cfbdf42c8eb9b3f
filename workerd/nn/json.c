// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_SHOWN = 120, VALUE_SHOWN = 48 };

struct nn_json nn_json_root(const char *file, json_t *value)
{
    return (struct nn_json){.value = value, .file = file};
}

struct nn_json nn_json_member(const struct nn_json *object, const char *key)
{
    return (struct nn_json){
        .up = object, .key = key, .value = json_object_get(object->value, key), .file = object->file};
}

struct nn_json nn_json_element(const struct nn_json *array, size_t index)
{
    return (struct nn_json){
        .up = array, .index = index, .value = json_array_get(array->value, index), .file = array->file};
}

bool nn_json_given(const struct nn_json *at)
{
    return at->value && !json_is_null(at->value);
}

// "$.config.layers[3]"; returns the length, which is at most size - 1.
static size_t path_text(const struct nn_json *at, char *to, size_t size)
{
    if (!at->up)
        return (size_t)snprintf(to, size, "$");
    size_t n = path_text(at->up, to, size);
    n +=
        (size_t)(at->key ? snprintf(to + n, size - n, ".%s", at->key) : snprintf(to + n, size - n, "[%zu]", at->index));
    return n < size ? n : size - 1;
}

// What stands there, in few words and without control characters.
static void value_text(const json_t *value, char *to, size_t size)
{
    if (json_is_object(value)) {
        snprintf(to, size, "an object");
    } else if (json_is_array(value)) {
        snprintf(to, size, "an array of %zu", json_array_size(value));
    } else {
        char *s = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(15));
        snprintf(to, size, "%.*s%s", VALUE_SHOWN, s ? s : "", s && strlen(s) > VALUE_SHOWN ? "..." : "");
        free(s);
    }
}

// "layer "conv2d": ", of the layer of a model, or inside of another one, that the place belongs to; "": of none.
static void layer_text(const struct nn_json *at, char *to, size_t size)
{
    char name[VALUE_SHOWN + 8];
    to[0] = '\0';
    for (; at->up; at = at->up) {
        const json_t *own = json_object_get(json_object_get(at->value, "config"), "name");
        bool is_layer = at->key ? strcmp(at->key, "layer") == 0 : at->up->key && strcmp(at->up->key, "layers") == 0;
        if (is_layer && json_is_string(own)) {
            value_text(own, name, sizeof name);
            snprintf(to, size, "layer %s: ", name);
            return;
        }
    }
}

static enum ps_code fail_at(const struct nn_json *at, const char *text, struct ps_error *e)
{
    char path[192], layer[VALUE_SHOWN + 24];
    size_t length = strlen(at->file);
    const char *file = length > FILE_SHOWN ? at->file + length - FILE_SHOWN : at->file;
    path_text(at, path, sizeof path);
    layer_text(at, layer, sizeof layer);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s%s: %s%s: %s", file == at->file ? "" : "...", file, layer, path, text);
}

enum ps_code nn_json_fail(const struct nn_json *at, struct ps_error *e, const char *format, ...)
{
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail_at(at, text, e);
}

enum ps_code nn_json_expected(const struct nn_json *at, struct ps_error *e, const char *format, ...)
{
    char what[256], found[VALUE_SHOWN + 8], text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (at->value) {
        value_text(at->value, found, sizeof found);
        snprintf(text, sizeof text, "expected %s, not %s", what, found);
    } else {
        snprintf(text, sizeof text, "expected %s, which is missing", what);
    }
    return fail_at(at, text, e);
}

enum ps_code nn_json_object(const struct nn_json *at, struct ps_error *e)
{
    return json_is_object(at->value) ? PS_OK : nn_json_expected(at, e, "an object");
}

enum ps_code nn_json_array(const struct nn_json *at, size_t *n, struct ps_error *e)
{
    if (!json_is_array(at->value))
        return nn_json_expected(at, e, "an array");
    *n = json_array_size(at->value);
    return PS_OK;
}

enum ps_code nn_json_string(const struct nn_json *at, const char **s, struct ps_error *e)
{
    if (!json_is_string(at->value))
        return nn_json_expected(at, e, "a string");
    *s = json_string_value(at->value);
    return PS_OK;
}

enum ps_code nn_json_int(const struct nn_json *at, int64_t min, int64_t max, int64_t *v, struct ps_error *e)
{
    json_int_t i = json_integer_value(at->value);
    if (!json_is_integer(at->value) || i < min || i > max)
        return nn_json_expected(at, e, "a whole number from %" PRId64 " to %" PRId64, min, max);
    *v = i;
    return PS_OK;
}

enum ps_code nn_json_real(const struct nn_json *at, double min, double max, double *v, struct ps_error *e)
{
    double d = json_number_value(at->value);
    if (!json_is_number(at->value) || d < min || d > max)
        return nn_json_expected(at, e, "a number from %g to %g", min, max);
    *v = d;
    return PS_OK;
}

enum ps_code nn_json_bool(const struct nn_json *at, bool *v, struct ps_error *e)
{
    if (!json_is_boolean(at->value))
        return nn_json_expected(at, e, "true or false");
    *v = json_is_true(at->value);
    return PS_OK;
}

static int json_count(const char *const *words)
{
    int n = 0;
    while (words[n])
        n++;
    return n;
}

static bool json_contains(const char *const *words, const char *word)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

static enum ps_code unknown_member(const struct nn_json *object, const char *key, const char *const *known,
                                   struct ps_error *e)
{
    char text[VALUE_SHOWN + 8], list[224];
    json_t *name = json_string(key);
    value_text(name, text, sizeof text);
    json_decref(name);
    const char *near = ps_nearest(key, known, json_count(known));
    if (near)
        return nn_json_fail(object, e, "%s is not known; did you mean \"%s\"?", text, near);
    return nn_json_fail(object, e, "%s is not supported; expected only %s", text,
                        nn_json_list(known, list, sizeof list));
}

enum ps_code nn_json_only(const struct nn_json *object, const char *const *known, struct ps_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(object->value, key, value)
    {
        if (!json_is_null(value) && !json_contains(known, key))
            return unknown_member(object, key, known, e);
    }
    return PS_OK;
}

char *nn_json_list(const char *const *words, char *to, size_t size)
{
    size_t n = 0;
    to[0] = '\0';
    for (; *words && n < size; words++)
        n += (size_t)snprintf(to + n, size - n, n ? ", %s" : "%s", *words);
    return to;
}
