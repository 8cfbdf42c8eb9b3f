// SPDX-License-Identifier: Apache-2.0
#include "common/job/callbacks.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/file/output.h"
#include "common/file/yaml.h"
#include "common/job/path.h"

// ---- the table ----------------------------------------------------------------------------------------------------

enum callback_type {
    CALLBACK_END,
    CALLBACK_PATH,
    CALLBACK_STRING,  // of one character or more
    CALLBACK_WORD,    // one of words
    CALLBACK_COUNT,   // 0 or more
    CALLBACK_REAL,    // min .. max
    CALLBACK_FLAG
};

struct callback_key {
    const char *name;
    enum callback_type type;
    const char *fallback;  // as it would stand in a file; NULL: required, or of a REAL that may be left out
    const char *const *words;
    double min, max;
};

struct ps_callback_class {
    const char *name;
    const char *keras;                              // the class of Keras's, whose name is understood; NULL: none
    bool in_folder;                                 // its path is a folder, where its files have names of their own
    struct callback_key key[PS_CALLBACK_KEYS + 1];  // ends with CALLBACK_END
};

static const char *const callback_modes[] = {"auto", "min", "max", NULL};

#define MONITOR                                       \
    {"monitor", CALLBACK_STRING, "val_loss"},         \
    {                                                 \
        "mode", CALLBACK_WORD, "auto", callback_modes \
    }
#define ANY .min = -DBL_MAX, .max = DBL_MAX

static const struct ps_callback_class callback_classes[] = {
    {"csv_log", "CSVLogger", .key = {{"path", CALLBACK_PATH}, {"separator", CALLBACK_STRING, ","}}},
    {"json_lines", .key = {{"path", CALLBACK_PATH}}},
    {"tensorboard", "TensorBoard", .in_folder = true,
     .key = {{"path", CALLBACK_PATH},
             {"histogram_freq", CALLBACK_COUNT, "0"},
             {"write_images", CALLBACK_FLAG, "false"},
             {"update_steps", CALLBACK_COUNT, "0"}}},
    {"early_stopping", "EarlyStopping",
     .key = {MONITOR,
             {"min_delta", CALLBACK_REAL, "0", ANY},
             {"patience", CALLBACK_COUNT, "0"},
             {"baseline", CALLBACK_REAL, ANY},
             {"restore_best_weights", CALLBACK_FLAG, "false"},
             {"start_from_epoch", CALLBACK_COUNT, "0"}}},
    {"reduce_lr_on_plateau", "ReduceLROnPlateau",
     .key = {MONITOR,
             {"factor", CALLBACK_REAL, "0.1", .min = 0, .max = 1 - DBL_EPSILON / 2},
             {"patience", CALLBACK_COUNT, "10"},
             {"min_delta", CALLBACK_REAL, "0.0001", ANY},
             {"cooldown", CALLBACK_COUNT, "0"},
             {"min_lr", CALLBACK_REAL, "0", .min = 0, .max = DBL_MAX}}},
    {"terminate_on_nan", "TerminateOnNaN"},
    {"checkpoint", "ModelCheckpoint", .in_folder = true,
     .key = {{"path", CALLBACK_PATH},
             {"every_steps", CALLBACK_COUNT, "0"},
             {"every_seconds", CALLBACK_COUNT, "0"},
             {"keep", CALLBACK_COUNT, "1"},
             {"sharded", CALLBACK_FLAG, "false"},
             {"save_best_only", CALLBACK_FLAG, "false"},
             MONITOR}},
    {"backup", "BackupAndRestore", .in_folder = true,
     .key = {{"path", CALLBACK_PATH},
             {"every_steps", CALLBACK_COUNT, "0"},
             {"every_seconds", CALLBACK_COUNT, "0"},
             {"keep", CALLBACK_COUNT, "2"},
             {"sharded", CALLBACK_FLAG, "false"},
             {"delete_checkpoint", CALLBACK_FLAG, "true"}}},
};

enum { CALLBACK_CLASSES = sizeof callback_classes / sizeof *callback_classes };

// ---- reading ------------------------------------------------------------------------------------------------------

static enum ps_code callback_take_text(const struct callback_key *k, const struct ps_yaml *v, const char *what,
                                       char **to, struct ps_error *e)
{
    const char *text;
    if (ps_yaml_string(v, what, &text, e))
        return e->code;
    if (!*text)
        return ps_yaml_expected(v, what, e, "a %s", k->type == CALLBACK_PATH ? "path" : "string of some length");
    free(*to);
    *to = k->type == CALLBACK_PATH ? ps_job_resolve_path(v, text) : ps_strdup(text);
    return PS_OK;
}

static enum ps_code callback_take_real(const struct callback_key *k, const struct ps_yaml *v, const char *what,
                                       double *to, struct ps_error *e)
{
    double x;
    if (ps_yaml_real(v, what, &x, e))
        return e->code;
    if (x < k->min)
        return ps_yaml_expected(v, what, e, "%g or more", k->min);
    if (x > k->max)
        return ps_yaml_expected(v, what, e, "below %g", ceil(k->max));
    *to = x;
    return PS_OK;
}

static enum ps_code callback_take_value(const struct callback_key *k, const struct ps_yaml *v, const char *what,
                                        union ps_callback_value *to, struct ps_error *e)
{
    int choice;
    switch (k->type) {
    case CALLBACK_PATH:
    case CALLBACK_STRING:
        return callback_take_text(k, v, what, &to->text, e);
    case CALLBACK_WORD:
        if (ps_yaml_choice(v, what, k->words, &choice, e))
            return e->code;
        free(to->text);
        to->text = ps_strdup(k->words[choice]);
        return PS_OK;
    case CALLBACK_COUNT:
        return ps_yaml_uint(v, what, 0, 1 << 30, &to->count, e);
    case CALLBACK_REAL:
        return callback_take_real(k, v, what, &to->real, e);
    case CALLBACK_FLAG:
        return ps_yaml_bool(v, what, &to->flag, e);
    case CALLBACK_END:
        break;
    }
    return PS_OK;
}

// The index of a class's setting; that of the table's end where there is none of that name.
static size_t callback_key_index(const struct ps_callback_class *class, const char *name)
{
    size_t i = 0;
    while (class->key[i].type != CALLBACK_END && strcmp(class->key[i].name, name) != 0)
        i++;
    return i;
}

// What Keras's callbacks call the path.
static bool callback_is_path(const char *key)
{
    static const char *const words[] = {"filepath", "filename", "log_dir", "backup_dir"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(key, words[i]) == 0)
            return true;
    return false;
}

static enum ps_code callback_unknown_key(const struct ps_callback_class *class, const struct ps_yaml *v,
                                         struct ps_error *e)
{
    const char *known[PS_CALLBACK_KEYS];
    char list[192] = "";
    int n = 0;
    for (; class->key[n].type != CALLBACK_END; n++) {
        known[n] = class->key[n].name;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n ? ", " : "; it has ", known[n]);
    }
    const bool is_path = callback_is_path(v->key) && class->key[callback_key_index(class, "path")].name;
    const char *nearest = is_path ? "path" : ps_nearest(v->key, known, n);
    if (nearest)
        return ps_yaml_fail(v, e, "unknown key \"%.60s\" in callback %s; did you mean \"%s\"?", v->key, class->name,
                            nearest);
    return ps_yaml_fail(v, e, "unknown key \"%.60s\" in callback %s%s", v->key, class->name, list);
}

static void callback_set_defaults(struct ps_callback *c, const struct ps_yaml *item)
{
    struct ps_error never;
    for (size_t i = 0; c->class->key[i].type != CALLBACK_END; i++) {
        const struct callback_key *k = &c->class->key[i];
        const struct ps_yaml fallback = {
            .kind = PS_YAML_SCALAR, .source = item->source, .line = 1, .text = (char *)k->fallback};
        if (k->fallback)
            callback_take_value(k, &fallback, k->name, &c->value[i], &never);
        else if (k->type == CALLBACK_REAL)
            c->value[i].real = NAN;
    }
}

static enum ps_code callback_take_settings(struct ps_callback *c, const struct ps_yaml *item, struct ps_error *e)
{
    callback_set_defaults(c, item);
    for (const struct ps_yaml *v = item->first; v; v = v->next) {
        char what[64];
        size_t i = callback_key_index(c->class, v->key);
        if (strcmp(v->key, "name") == 0 || ps_yaml_is_null(v))
            continue;
        if (c->class->key[i].type == CALLBACK_END)
            return callback_unknown_key(c->class, v, e);
        snprintf(what, sizeof what, "%s.%s", c->class->name, c->class->key[i].name);
        if (callback_take_value(&c->class->key[i], v, what, &c->value[i], e))
            return e->code;
    }
    for (size_t i = 0; c->class->key[i].type != CALLBACK_END; i++) {
        const struct callback_key *k = &c->class->key[i];
        if (!k->fallback && k->type != CALLBACK_REAL && !c->value[i].text)
            return ps_yaml_fail(item, e, "callback %s: %s is missing", c->class->name, k->name);
    }
    return PS_OK;
}

// By the name that Keras's class has.
static bool callback_says(const struct ps_callback_class *class, const struct ps_yaml *name)
{
    return class->keras && name->kind == PS_YAML_SCALAR && strcmp(name->text, class->keras) == 0;
}

static enum ps_code callback_parse(const struct ps_yaml *item, struct ps_callback *c, struct ps_error *e)
{
    const char *names[CALLBACK_CLASSES + 1] = {NULL};
    const struct ps_yaml *name = item->kind == PS_YAML_MAP ? ps_yaml_find(item, "name") : item;
    int choice;
    if (!name || name->kind == PS_YAML_LIST || ps_yaml_is_null(name))
        return ps_yaml_fail(item, e, "callbacks: each must be a map with a name, such as {name: early_stopping}");
    for (int i = 0; i < CALLBACK_CLASSES; i++)
        names[i] = callback_says(&callback_classes[i], name) ? name->text : callback_classes[i].name;
    if (ps_yaml_choice(name, "a callback", names, &choice, e))
        return e->code;
    c->class = &callback_classes[choice];
    return callback_take_settings(c, item, e);
}

static bool callback_has_key(const struct ps_callback *c, const char *key)
{
    return c->class->key[callback_key_index(c->class, key)].type != CALLBACK_END;
}

static bool callback_is_sharded(const struct ps_callback *c)
{
    return callback_has_key(c, "sharded") && ps_callback_flag(c, "sharded");
}

const char *ps_callbacks_shards(const struct ps_callbacks *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (callback_is_sharded(&c->v[i]))
            return ps_callback_text(&c->v[i], "path");
    return NULL;
}

// Would they write the same files, or one a file where the other has its folder?
static bool callbacks_overlap(const struct ps_callback *a, const struct ps_callback *b)
{
    if (!callback_has_key(a, "path") || !callback_has_key(b, "path") ||
        !ps_output_same(ps_callback_text(a, "path"), ps_callback_text(b, "path")))
        return false;
    return a->class == b->class || !a->class->in_folder || !b->class->in_folder;
}

// c is the last one of all.
static enum ps_code callbacks_check_paths(const struct ps_callbacks *all, const struct ps_callback *c,
                                          const struct ps_yaml *item, struct ps_error *e)
{
    const char *shards = ps_callbacks_shards(all);
    for (const struct ps_callback *b = all->v; b < c; b++) {
        if (callback_is_sharded(c) && callback_is_sharded(b) && b->class == c->class)
            return ps_yaml_fail(item, e, "callbacks: a second %s that is sharded: expected one", c->class->name);
        if (callbacks_overlap(b, c))
            return ps_yaml_fail(item, e, "callbacks: %s writes to %.200s, as %s before it: expected another path",
                                c->class->name, ps_callback_text(c, "path"), b->class->name);
    }
    if (!callback_is_sharded(c) || strcmp(shards, ps_callback_text(c, "path")) == 0)
        return PS_OK;
    return ps_yaml_fail(
        item, e, "callbacks: those that are sharded have one path, that of the ps tasks: expected %.200s", shards);
}

enum ps_code ps_callbacks_parse(const struct ps_yaml *list, struct ps_callbacks *to, struct ps_error *e)
{
    if (list->kind != PS_YAML_LIST)
        return ps_yaml_expected(list, "callbacks", e, "a list such as [{name: early_stopping, patience: 3}]");
    for (const struct ps_yaml *item = list->first; item; item = item->next) {
        to->v = ps_realloc(to->v, (to->n + 1) * sizeof *to->v);
        struct ps_callback *c = &to->v[to->n];
        *c = (struct ps_callback){0};
        enum ps_code code = callback_parse(item, c, e);
        to->n += c->class != NULL;
        if (code == PS_OK)
            code = callbacks_check_paths(to, c, item, e);
        if (code)
            return code;
    }
    return PS_OK;
}

static bool callback_has_text(const struct callback_key *k)
{
    return k->type == CALLBACK_PATH || k->type == CALLBACK_STRING || k->type == CALLBACK_WORD;
}

void ps_callbacks_free(struct ps_callbacks *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; c->v[i].class->key[k].type != CALLBACK_END; k++)
            if (callback_has_text(&c->v[i].class->key[k]))
                free(c->v[i].value[k].text);
    free(c->v);
}

// A log that is there is added to.
static enum ps_code callback_check_log(const char *path, struct ps_error *e)
{
    return access(path, W_OK) == 0 ? PS_OK : ps_output_check(path, e);
}

enum ps_code ps_callbacks_check_files(const struct ps_callbacks *all, struct ps_error *e)
{
    for (const struct ps_callback *c = all->v; c < all->v + all->n; c++) {
        const char *path = callback_has_key(c, "path") ? ps_callback_text(c, "path") : NULL;
        if (path && (c->class->in_folder ? ps_folder_check : callback_check_log)(path, e))
            return ps_error_prefix(e, "callback %s", c->class->name);
    }
    return PS_OK;
}

const char *ps_callbacks_writer(const struct ps_callbacks *all, const char *path)
{
    for (const struct ps_callback *c = all->v; c < all->v + all->n; c++)
        if (callback_has_key(c, "path") && ps_output_same(ps_callback_text(c, "path"), path))
            return c->class->name;
    return NULL;
}

char **ps_callbacks_path(struct ps_callbacks *c, size_t i)
{
    for (size_t at = 0; at < c->n; at++)
        for (size_t k = 0; c->v[at].class->key[k].type != CALLBACK_END; k++)
            if (c->v[at].class->key[k].type == CALLBACK_PATH && i-- == 0)
                return &c->v[at].value[k].text;
    return NULL;
}

// ---- what was read ------------------------------------------------------------------------------------------------

static json_t *callback_value_json(const struct callback_key *k, const union ps_callback_value *v)
{
    switch (k->type) {
    case CALLBACK_COUNT:
        return json_integer((json_int_t)v->count);
    case CALLBACK_REAL:
        return isnan(v->real) ? NULL : json_real(v->real);
    case CALLBACK_FLAG:
        return json_boolean(v->flag);
    default:
        return json_string(v->text);
    }
}

json_t *ps_callbacks_json(const struct ps_callbacks *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n; i++) {
        json_t *one = json_pack("{s:s}", "name", c->v[i].class->name);
        for (size_t k = 0; c->v[i].class->key[k].type != CALLBACK_END; k++) {
            json_t *value = callback_value_json(&c->v[i].class->key[k], &c->v[i].value[k]);
            if (value)
                json_object_set_new(one, c->v[i].class->key[k].name, value);
        }
        json_array_append_new(list, one);
    }
    return list;
}

const char *ps_callback_known(size_t i)
{
    return i < sizeof callback_classes / sizeof *callback_classes ? callback_classes[i].name : NULL;
}

const char *ps_callback_name(const struct ps_callback *c)
{
    return c->class->name;
}

static const union ps_callback_value *callback_value(const struct ps_callback *c, const char *key)
{
    size_t i = callback_key_index(c->class, key);
    assert(c->class->key[i].type != CALLBACK_END);
    return &c->value[i];
}

const char *ps_callback_text(const struct ps_callback *c, const char *key)
{
    return callback_value(c, key)->text;
}

const char *ps_callback_subject(const struct ps_callback *c, const char **key)
{
    *key = callback_has_key(c, "path") ? "path" : "monitor";
    return callback_has_key(c, *key) ? ps_callback_text(c, *key) : NULL;
}

uint64_t ps_callback_count(const struct ps_callback *c, const char *key)
{
    return callback_value(c, key)->count;
}

double ps_callback_real(const struct ps_callback *c, const char *key)
{
    return callback_value(c, key)->real;
}

bool ps_callback_flag(const struct ps_callback *c, const char *key)
{
    return callback_value(c, key)->flag;
}
