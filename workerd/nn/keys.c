// SPDX-License-Identifier: Apache-2.0
//
// A layer's settings, by the table of its class. A setting that would change the result and that we do not have is
// refused, never read over.
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layer.h"
#include "workerd/nn/setting.h"

static const char *const common_keys[] = {"name", "trainable", "dtype", "batch_input_shape"};
enum { COMMON = sizeof common_keys / sizeof *common_keys };

static enum ps_code keys_check_refused(const struct nn_json *config, const struct nn_key *keys, struct ps_error *e)
{
    for (const struct nn_key *k = keys; k->name; k++) {
        struct nn_json at = nn_json_member(config, k->name);
        if (k->kind == NN_KEY_REFUSED && nn_json_given(&at) && !json_is_false(at.value))
            return nn_json_fail(&at, e, "expected null: this setting is not supported");
    }
    return PS_OK;
}

// What Keras has in some layers and we in none: no other setting is what was meant.
static const struct nn_key refused_everywhere[] = {{"lora_rank", NN_KEY_REFUSED}, {NULL}};

static enum ps_code keys_check_known(const struct nn_json *config, const struct nn_key *keys, struct ps_error *e)
{
    size_t n = 0;
    while (keys[n].name)
        n++;
    const char **known = ps_alloc((n + COMMON + 1) * sizeof *known);
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if (keys[i].kind != NN_KEY_REFUSED || json_object_get(config->value, keys[i].name))
            known[at++] = keys[i].name;
    for (size_t i = 0; i < COMMON; i++)
        known[at++] = common_keys[i];
    enum ps_code code = nn_json_only(config, known, e);
    free(known);
    return code;
}

static enum ps_code keys_read_last_axis(const struct nn_json *at, const struct nn_building *b, struct ps_error *e)
{
    const int rank = b->n_in > 0 ? b->in[0]->type.rank : 0;
    bool last = json_is_integer(at->value) &&
                (json_integer_value(at->value) == -1 || json_integer_value(at->value) == (json_int_t)rank);
    return last || !nn_json_given(at) ? PS_OK : nn_json_expected(at, e, "the last axis: -1 or %d", rank);
}

enum ps_code nn_axis_read(const struct nn_json *at, const json_t *value, int rank, int *axis, struct ps_error *e)
{
    const json_int_t v = json_integer_value(value);
    if (!json_is_integer(value) || v == 0 || v < -rank || v > rank)
        return nn_json_expected(at, e, "an axis of the input but the batch: -%d to -1, or 1 to %d", rank, rank);
    *axis = (int)v;
    return PS_OK;
}

// Keras 2 writes one axis as a list of one.
static enum ps_code keys_read_axis(const struct nn_json *at, const struct nn_building *b, const struct nn_key *k,
                                   int *to, struct ps_error *e)
{
    const bool is_list = json_array_size(at->value) == 1;
    *to = (int)k->fallback;
    return nn_json_given(at) ? nn_axis_read(at, is_list ? json_array_get(at->value, 0) : at->value,
                                            b->n_in > 0 ? b->in[0]->type.rank : 0, to, e)
                             : PS_OK;
}

static enum ps_code keys_read_real(const struct nn_json *at, const struct nn_key *k, double *to, struct ps_error *e)
{
    if (nn_json_real(at, k->min, k->max, to, e))
        return e->code;
    return (float)*to < k->max ? PS_OK : nn_json_expected(at, e, "a number from %g to below %g", k->min, k->max);
}

static enum ps_code keys_read_choice(const struct nn_json *at, const struct nn_key *k, int *to, struct ps_error *e)
{
    const char *word = json_is_null(at->value) ? k->words[0] : json_string_value(at->value);
    char list[256];
    for (int i = 0; word && k->words[i]; i++) {
        if (strcmp(word, k->words[i]) == 0) {
            *to = i;
            return PS_OK;
        }
    }
    return nn_json_expected(at, e, "one of %s", nn_json_list(k->words, list, sizeof list));
}

static void keys_put_fallback(const struct nn_key *k, void *to)
{
    if (k->kind == NN_KEY_SIZE)
        *(int *)to = (int)k->fallback;
    else if (k->kind == NN_KEY_PAIR)
        memcpy(to, (int[]){k->sequence ? 1 : (int)k->fallback, (int)k->fallback}, 2 * sizeof(int));
    else if (k->kind == NN_KEY_COUNTS)
        memcpy(to, (int[]){-1, -1}, 2 * sizeof(int));
    else if (k->kind == NN_KEY_MARGINS)
        memcpy(to,
               (int[]){k->sequence ? 0 : (int)k->fallback, k->sequence ? 0 : (int)k->fallback, (int)k->fallback,
                       (int)k->fallback},
               4 * sizeof(int));
    else if (k->kind == NN_KEY_CHOICE)
        *(int *)to = (int)k->fallback;
    else if (k->kind == NN_KEY_BOOL)
        *(bool *)to = k->fallback != 0;
    else if (k->kind == NN_KEY_REAL)
        *(double *)to = k->fallback;
}

static enum ps_code keys_read_one(const struct nn_building *b, const struct nn_key *k, void *to, struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, k->name);
    const bool given = nn_json_given(&at) || k->required;
    if (k->kind == NN_KEY_FUNCTION && k->required && !at.value)
        return nn_json_expected(&at, e, "the name of an activation");
    switch (k->kind) {
    case NN_KEY_SIZE:
        return given ? nn_setting_size(&at, to, e) : PS_OK;
    case NN_KEY_PAIR:
        return given ? nn_setting_sizes(&at, 2 - k->sequence, 1, (int *)to + k->sequence, e) : PS_OK;
    case NN_KEY_COUNTS:
        if (given && k->sequence)
            *(int *)to = 0;
        return given ? nn_setting_sizes(&at, 2 - k->sequence, 0, (int *)to + k->sequence, e) : PS_OK;
    case NN_KEY_MARGINS:
        return given ? nn_setting_margins(&at, 2 - k->sequence, (int(*)[2])to + k->sequence, e) : PS_OK;
    case NN_KEY_BOOL:
        return nn_setting_bool(b->config, k->name, to, e);
    case NN_KEY_REAL:
        return given ? keys_read_real(&at, k, to, e) : PS_OK;
    case NN_KEY_PADDING:
        return nn_setting_padding(b->config, k->word && strcmp(k->word, "causal") == 0, to, e);
    case NN_KEY_FUNCTION:
        return nn_setting_function(&at, to, e);
    case NN_KEY_AXIS:
        return keys_read_axis(&at, b, k, to, e);
    case NN_KEY_CHOICE:
        return at.value ? keys_read_choice(&at, k, to, e) : PS_OK;
    case NN_KEY_LAST_AXIS:
        return keys_read_last_axis(&at, b, e);
    case NN_KEY_ONLY_WORD:
        return nn_setting_only_word(b->config, k->name, k->word, e);
    case NN_KEY_ONLY_NUMBER:
        return nn_setting_only_number(b->config, k->name, k->fallback, e);
    case NN_KEY_INITIALIZER:
    case NN_KEY_BY_BUILD:
    case NN_KEY_NONE:
    case NN_KEY_REFUSED:
        break;
    }
    return PS_OK;
}

enum ps_code nn_keys_check(const struct nn_json *config, const struct nn_layer_class *class, struct ps_error *e)
{
    if (keys_check_refused(config, refused_everywhere, e) || keys_check_refused(config, class->keys, e))
        return e->code;
    return keys_check_known(config, class->keys, e);
}

enum ps_code nn_keys_read(const struct nn_building *b, const struct nn_layer_class *class, void *config,
                          struct ps_error *e)
{
    for (const struct nn_key *k = class->keys; k->name; k++) {
        void *to = (char *)config + k->offset;
        if (!b->first && k->kind != NN_KEY_AXIS && k->kind != NN_KEY_LAST_AXIS)
            continue;
        if (class->config_bytes)
            keys_put_fallback(k, to);
        if (keys_read_one(b, k, to, e))
            return e->code;
    }
    return PS_OK;
}
