// SPDX-License-Identifier: Apache-2.0
#include "workerd/nn/setting.h"

#include <string.h>

#include "workerd/nn/graph.h"

enum { MAX_NAME = 128 };

enum ps_code nn_setting_bool(const struct nn_json *config, const char *key, bool *v, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    return at.value ? nn_json_bool(&at, v, e) : PS_OK;
}

static bool is_keras_module(const char *module)
{
    static const char *const own[] = {"keras", "tf_keras", "tensorflow.keras"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        size_t n = strlen(own[i]);
        if (strncmp(module, own[i], n) == 0 && (module[n] == '\0' || module[n] == '.'))
            return true;
    }
    return false;
}

// Of a class of the program's own Keras writes a null module and a registered_name: "Dense", or "package>Dense".
enum ps_code nn_setting_class(const struct nn_json *object, struct ps_error *e)
{
    struct nn_json module = nn_json_member(object, "module");
    struct nn_json name = nn_json_member(object, "class_name"), registered = nn_json_member(object, "registered_name");
    bool in_keras = json_is_string(module.value) && is_keras_module(json_string_value(module.value));
    if (nn_json_given(&module) && !in_keras)
        return nn_json_expected(&module, e, "a class of Keras itself");
    if (nn_json_given(&registered) && !(in_keras && json_equal(registered.value, name.value)))
        return nn_json_expected(&registered, e, "a class of Keras itself");
    return PS_OK;
}

// A setting that must be the one word we have.
enum ps_code nn_setting_only_word(const struct nn_json *config, const char *key, const char *word, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    if (nn_json_given(&at) && (!json_is_string(at.value) || strcmp(json_string_value(at.value), word) != 0))
        return nn_json_expected(&at, e, "\"%s\"", word);
    return PS_OK;
}

// A setting that must be the one number we have.
enum ps_code nn_setting_only_number(const struct nn_json *config, const char *key, double number, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    if (nn_json_given(&at) && (!json_is_number(at.value) || json_number_value(at.value) != number))
        return nn_json_expected(&at, e, "%g", number);
    return PS_OK;
}

static enum ps_code setting_count(const struct nn_json *at, int min, int *v, struct ps_error *e)
{
    int64_t i;
    enum ps_code code = nn_json_int(at, min, NN_MAX_ELEMENTS, &i, e);
    if (code == PS_OK)
        *v = (int)i;
    return code;
}

enum ps_code nn_setting_size(const struct nn_json *at, int *v, struct ps_error *e)
{
    return setting_count(at, 1, v, e);
}

enum ps_code nn_setting_sizes(const struct nn_json *at, int n, int min, int *v, struct ps_error *e)
{
    const bool one = json_is_integer(at->value);
    if (!one && json_array_size(at->value) != (size_t)n)
        return nn_json_expected(at, e, n == 2 ? "a whole number or two of them: [height, width]" : "a whole number");
    for (int i = 0; i < n; i++) {
        struct nn_json element = nn_json_element(at, (size_t)i);
        if (setting_count(one ? at : &element, min, &v[i], e))
            return e->code;
    }
    return PS_OK;
}

enum ps_code nn_setting_margins(const struct nn_json *at, int n, int (*v)[2], struct ps_error *e)
{
    const bool one = json_is_integer(at->value);
    if (n == 1)
        return one || json_array_size(at->value) == 2 ? nn_setting_sizes(at, 2, 0, v[0], e)
                                                      : nn_json_expected(at, e, "a whole number, or [begin, end]");
    if (!one && json_array_size(at->value) != 2)
        return nn_json_expected(at, e, "a whole number, [height, width], or [[top, bottom], [left, right]]");
    for (int i = 0; i < n; i++) {
        struct nn_json element = nn_json_element(at, (size_t)i);
        if (nn_setting_margins(one ? at : &element, 1, &v[i], e))
            return e->code;
    }
    return PS_OK;
}

enum ps_code nn_setting_padding(const struct nn_json *config, bool causal, enum nn_padding *v, struct ps_error *e)
{
    static const char *const words[] = {[NN_VALID] = "valid", [NN_SAME] = "same", [NN_CAUSAL] = "causal"};
    struct nn_json at = nn_json_member(config, "padding");
    const char *word = words[NN_VALID];
    enum ps_code code = at.value ? nn_json_string(&at, &word, e) : PS_OK;
    if (code != PS_OK)
        return code;
    for (int i = 0; i < 2 + causal; i++) {
        if (strcmp(word, words[i]) == 0) {
            *v = (enum nn_padding)i;
            return PS_OK;
        }
    }
    return nn_json_expected(&at, e, causal ? "\"valid\", \"same\" or \"causal\"" : "\"valid\" or \"same\"");
}

// model.to_json() of Keras 2 says so; Keras 3 says nothing.
bool nn_setting_is_keras2(const struct nn_json *at)
{
    while (at->up)
        at = at->up;
    const char *version = json_string_value(json_object_get(at->value, "keras_version"));
    return version && strncmp(version, "2.", 2) == 0;
}

bool nn_setting_is_operation(const struct nn_json *at)
{
    const char *module = json_string_value(json_object_get(at->value, "module"));
    return module && strncmp(module, "keras.src.ops.", strlen("keras.src.ops.")) == 0;
}

// mixed_bfloat16 has variables of float32, and rounds what lies between: not to round is within its tolerance.
static enum ps_code setting_policy(const struct nn_json *at, struct ps_error *e)
{
    const char *word = json_string_value(at->value);
    if (!nn_json_given(at) || (word && (strcmp(word, "float32") == 0 || strcmp(word, "mixed_bfloat16") == 0)))
        return PS_OK;
    return nn_json_expected(at, e, "\"float32\" or \"mixed_bfloat16\"");
}

// A word, or Keras 3's DTypePolicy object (Policy in Keras 2) with the word in config.name.
enum ps_code nn_setting_dtype(const struct nn_json *config, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, "dtype");
    if (!json_is_object(at.value))
        return setting_policy(&at, e);
    struct nn_json policy = nn_json_member(&at, "config"), name = nn_json_member(&policy, "name");
    if (nn_setting_class(&at, e) != PS_OK)
        return e->code;
    if (!nn_json_given(&name))
        return nn_json_expected(&name, e, "the name of a dtype policy");
    return setting_policy(&name, e);
}

enum ps_code nn_setting_input_dtype(const struct nn_json *config, enum nn_dtype *dtype, bool *text, struct ps_error *e)
{
    static const char *const integers[] = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"};
    struct nn_json at = nn_json_member(config, "dtype");
    const char *word = json_is_string(at.value) ? json_string_value(at.value) : "";
    *text = strcmp(word, "string") == 0;
    *dtype = *text ? NN_INT32 : NN_FLOAT;
    if (strcmp(word, "bool") == 0)
        return PS_OK;
    for (size_t i = 0; json_is_string(at.value) && i < sizeof integers / sizeof *integers; i++)
        if (strcmp(json_string_value(at.value), integers[i]) == 0)
            *dtype = NN_INT32;
    if (*dtype != NN_FLOAT || !nn_json_given(&at) || json_is_object(at.value))
        return *dtype == NN_FLOAT ? nn_setting_dtype(config, e) : PS_OK;
    if (!json_is_string(at.value) || strcmp(json_string_value(at.value), "float32") != 0)
        return nn_json_expected(&at, e, "\"float32\", \"bool\", \"string\" or a type of whole numbers: \"int32\"");
    return PS_OK;
}

// Names become parts of variable names, paths and log lines.
enum ps_code nn_setting_name(const struct nn_json *at, const char **v, struct ps_error *e)
{
    const char *s;
    enum ps_code code = nn_json_string(at, &s, e);
    if (code != PS_OK)
        return code;
    size_t n = strlen(s);
    bool good = n > 0 && n <= MAX_NAME;
    for (size_t i = 0; good && i < n; i++)
        good = s[i] != '/' && (unsigned char)s[i] >= ' ' && s[i] != 0x7f;
    if (!good)
        return nn_json_expected(at, e, "a name of 1 to %d bytes without \"/\" and control characters", MAX_NAME);
    *v = s;
    return PS_OK;
}
