// SPDX-License-Identifier: Apache-2.0
#include "common/job/named.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"

enum { MAX_KNOWN = 256 };

// ---- names --------------------------------------------------------------------------------------------------------

static bool named_is_spelled(const struct ps_named *named, const char *word)
{
    size_t len = strlen(word);
    if (strcmp(named->name, word) == 0)
        return true;
    for (const char *at = named->spellings; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == len && memcmp(at, word, n) == 0)
            return true;
        at += n;
    }
    return false;
}

static void named_all(const struct ps_names *names, char *to, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < names->n && at < size; i++)
        at += (size_t)snprintf(to + at, size - at, "%s%s",
                               i == 0             ? ""
                               : i + 1 < names->n ? ", "
                                                  : " or ",
                               names->named[i].name);
}

// The nearest of all spellings, in to.
static bool named_nearest(const struct ps_names *names, const char *word, char *to, size_t size)
{
    const char *known[MAX_KNOWN] = {NULL}, *found;
    char *copy[64];
    int n = 0, copies = 0;
    for (int i = 0; i < names->n; i++) {
        char *left = copy[copies++] = ps_strdup(names->named[i].spellings), *one;
        known[n++] = names->named[i].name;
        while ((one = strtok_r(left, " ", &left)) && n < MAX_KNOWN - 1)
            known[n++] = one;
    }
    found = ps_nearest(word, known, n);
    if (found)
        snprintf(to, size, "%s", found);
    while (copies--)
        free(copy[copies]);
    return found != NULL;
}

static enum ps_code named_find(const struct ps_names *names, const char *path, const char *word, int *kind,
                               struct ps_error *e)
{
    char text[640];
    for (int i = 0; i < names->n; i++)
        if (named_is_spelled(&names->named[i], word)) {
            *kind = i;
            return PS_OK;
        }
    if (named_nearest(names, word, text, sizeof text))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s \"%.60s\" is not known; did you mean \"%s\"?", path, word, text);
    named_all(names, text, sizeof text);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s must be %s, not \"%.60s\"", path, text, word);
}

// ---- settings -----------------------------------------------------------------------------------------------------

static bool setting_is_of(const struct ps_setting *s, int kind)
{
    return !s->of || (s->of >> kind & 1);
}

static void *setting_place(const struct ps_setting *s, const void *of)
{
    return (char *)of + s->offset;
}

static void setting_put(const struct ps_setting *s, void *to, double value)
{
    if (s->kind == PS_SETTING_FLAG)
        *(bool *)setting_place(s, to) = value != 0;
    else if (s->kind == PS_SETTING_REAL)
        *(double *)setting_place(s, to) = value;
    else if (s->kind != PS_SETTING_FIXED)
        *(int *)setting_place(s, to) = (int)value;
}

static enum ps_code setting_expected(const struct ps_setting *s, const char *path, const json_t *v, const char *what,
                                     struct ps_error *e)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    ps_fail(e, PS_INVALID_ARGUMENT, "%s.%s must be %s, not %.60s", path, s->name, what, text ? text : "that");
    free(text);
    return e->code;
}

static enum ps_code setting_read_word(const struct ps_setting *s, const char *path, const json_t *v, void *to,
                                      struct ps_error *e)
{
    char text[160] = "";
    size_t at = 0;
    for (int i = 0; s->words[i]; i++) {
        if (json_is_string(v) && strcasecmp(json_string_value(v), s->words[i]) == 0) {
            setting_put(s, to, i);
            return PS_OK;
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " or " : "", s->words[i]);
    }
    return setting_expected(s, path, v, text, e);
}

static enum ps_code setting_read_fixed(const struct ps_setting *s, const char *path, const json_t *v,
                                       struct ps_error *e)
{
    char text[64];
    if (s->words ? json_is_string(v) && strcmp(json_string_value(v), s->words[0]) == 0
                 : json_is_number(v) && json_number_value(v) == s->fallback)
        return PS_OK;
    snprintf(text, sizeof text, "%s", s->words ? s->words[0] : "");
    if (!s->words)
        snprintf(text, sizeof text, "%g", s->fallback);
    return setting_expected(s, path, v, text, e);
}

static enum ps_code setting_read_number(const struct ps_setting *s, const char *path, const json_t *v, void *to,
                                        struct ps_error *e)
{
    char text[96];
    bool whole = s->kind == PS_SETTING_COUNT;
    double x = json_number_value(v);
    if ((whole ? json_is_integer(v) : json_is_number(v)) && x >= s->min && x <= s->max) {
        setting_put(s, to, x);
        return PS_OK;
    }
    snprintf(text, sizeof text, "a %s from %g to %g", whole ? "whole number" : "number", s->min, s->max);
    return setting_expected(s, path, v, text, e);
}

static enum ps_code setting_read(const struct ps_setting *s, const char *path, const json_t *v, void *to,
                                 struct ps_error *e)
{
    if (json_is_null(v))
        return PS_OK;
    switch (s->kind) {
    case PS_SETTING_FLAG:
        if (!json_is_boolean(v))
            return setting_expected(s, path, v, "true or false", e);
        setting_put(s, to, json_is_true(v));
        return PS_OK;
    case PS_SETTING_WORD:
        return setting_read_word(s, path, v, to, e);
    case PS_SETTING_FIXED:
        return setting_read_fixed(s, path, v, e);
    case PS_SETTING_REAL:
    case PS_SETTING_COUNT:
        return setting_read_number(s, path, v, to, e);
    }
    return PS_OK;
}

// "loss huber has no "dleta"; did you mean "delta"?"
static enum ps_code setting_unknown(const struct ps_names *names, const char *path, int kind, const char *key,
                                    struct ps_error *e)
{
    const char *known[MAX_KNOWN];
    int n = 0;
    for (size_t i = 0; i < names->n_settings; i++)
        if (setting_is_of(&names->setting[i], kind) && names->setting[i].kind != PS_SETTING_FIXED)
            known[n++] = names->setting[i].name;
    const char *near = ps_nearest(key, known, n);
    return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s %s has no \"%.60s\"%s%s%s", path, names->what,
                   names->named[kind].name, key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static const struct ps_setting *setting_find(const struct ps_names *names, int kind, const char *name)
{
    for (size_t i = 0; i < names->n_settings; i++)
        if (strcmp(names->setting[i].name, name) == 0 && setting_is_of(&names->setting[i], kind))
            return &names->setting[i];
    return NULL;
}

// ---- one of them --------------------------------------------------------------------------------------------------

// The name, and the object that has the settings, which may be NULL.
static const char *named_split(const json_t *from, const json_t **settings)
{
    const json_t *class = json_object_get(from, "class_name");
    *settings = class ? json_object_get(from, "config") : from;
    if (json_is_string(from)) {
        *settings = NULL;
        return json_string_value(from);
    }
    return json_string_value(class ? class : json_object_get(from, "name"));
}

enum ps_code ps_named_read(const struct ps_names *names, const char *path, const json_t *from, int *kind, void *to,
                           const char **label, const char **key, struct ps_error *e)
{
    const json_t *settings, *v;
    const char *name = named_split(from, &settings), *at;
    *key = NULL;
    if (!name)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s must be the name of a %s, or a map with its name and settings", path,
                       names->what);
    if (named_find(names, path, name, kind, e))
        return e->code;
    for (size_t i = 0; i < names->n_settings; i++)
        if (setting_is_of(&names->setting[i], *kind))
            setting_put(&names->setting[i], to, names->setting[i].fallback);
    json_object_foreach((json_t *)settings, at, v)
    {
        const struct ps_setting *s = setting_find(names, *kind, at);
        *key = at;
        if (strcmp(at, "name") == 0)
            continue;
        if (!s)
            return setting_unknown(names, path, *kind, at, e);
        if (setting_read(s, path, v, to, e))
            return e->code;
    }
    if (label)
        *label = name;
    *key = NULL;
    return PS_OK;
}

static json_t *setting_json(const struct ps_setting *s, const void *of)
{
    const void *at = setting_place(s, of);
    switch (s->kind) {
    case PS_SETTING_FLAG:
        return json_boolean(*(const bool *)at);
    case PS_SETTING_REAL:
        return *(const double *)at < s->min ? json_null() : json_real(*(const double *)at);
    case PS_SETTING_COUNT:
        return *(const int *)at < s->min ? json_null() : json_integer(*(const int *)at);
    case PS_SETTING_WORD:
        return json_string(s->words[*(const int *)at]);
    case PS_SETTING_FIXED:
        break;
    }
    return NULL;
}

json_t *ps_named_json(const struct ps_names *names, int kind, const void *of)
{
    json_t *object = json_pack("{s:s}", "name", names->named[kind].name);
    for (size_t i = 0; i < names->n_settings; i++) {
        const struct ps_setting *s = &names->setting[i];
        if (setting_is_of(s, kind) && s->kind != PS_SETTING_FIXED)
            json_object_set_new(object, s->name, setting_json(s, of));
    }
    return object;
}

void ps_named_list(const struct ps_names *names, FILE *to)
{
    for (int kind = 0; kind < names->n; kind++) {
        fprintf(to, "%s", names->named[kind].name);
        const char *before = " {";
        for (size_t i = 0; i < names->n_settings; i++) {
            const struct ps_setting *s = &names->setting[i];
            if (!s->of || !setting_is_of(s, kind) || s->kind == PS_SETTING_FIXED)
                continue;
            fprintf(to, "%s%s", before, s->name);
            before = ", ";
        }
        fprintf(to, "%s: %s\n", *before == ',' ? "}" : "", names->named[kind].text);
    }
}
