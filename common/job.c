// SPDX-License-Identifier: Apache-2.0
//
// A job file becomes a job in four steps: the tree is read and assignments laid over it; keys that no field
// has are refused; every field takes its value or default; what no single field can know is checked.
#include "common/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/placement.h"
#include "common/yaml.h"

// ---- the fields ---------------------------------------------------------------------------------------------------

enum type {
    CHOICE,   // int: index in words, plus first
    WORD,     // char *: one of words
    STRING,   // char *
    PATH,     // char *: a file or folder
    COUNT,    // uint64_t, min .. max
    SMALL,    // int, min .. max
    FLAG,     // bool
    METRICS,  // bool: a list of words, which for now is one
};

static const char *const data_kinds[] = {"idx", "csv", "npy", "synthetic-digits", NULL};
static const char *const losses[] = {"sparse_categorical_crossentropy", "mse", NULL};
static const char *const metrics[] = {"accuracy", NULL};
static const char *const optimizers[] = {"sgd", "adam", NULL};
static const char *const strategies[] = {"parameter_server", "one_device", NULL};
static const char *const strategies_elsewhere[] = {"mirrored", "multi_worker_mirrored", "central_storage", NULL};
static const char *const updates[] = {"async", "sync", NULL};
static const char *const updates_elsewhere[] = {"ssp", NULL};
static const char *const placements[] = {"greedy", "round_robin", NULL};
static const char *const devices[] = {"cpu", "ref", NULL};
static const char *const devices_elsewhere[] = {"cuda", "gpu", NULL};
static const char *const on_existing[] = {"refuse", "resume", "replace", NULL};

// Sets of data kinds.
enum { IDX = 1 << PS_DATA_IDX, CSV = 1 << PS_DATA_CSV, NPY = 1 << PS_DATA_NPY, DIGITS = 1 << PS_DATA_DIGITS };
enum { ALL = IDX | CSV | NPY | DIGITS };

struct field {
    const char *path;
    enum type type;
    size_t offset;
    const char *fallback;  // as it would stand in a file; NULL: none
    const char *const *words;
    const char *const *elsewhere;  // words known from TensorFlow, which get a better sentence
    int first;                     // CHOICE: value of words[0]
    uint64_t min, max;
    unsigned kinds;     // kinds of data that have it; 0: all
    unsigned required;  // kinds of data that must have it
};

#define AT(member) .offset = offsetof(struct ps_job, member)

static const struct field fields[] = {
    {"name", STRING, AT(name)},
    {"model", PATH, AT(model), .required = ALL},
    {"weights", PATH, AT(weights)},
    {"data.kind", CHOICE, AT(data.kind), .words = data_kinds, .required = ALL},
    {"data.path", PATH, AT(data.path), .kinds = IDX | CSV, .required = IDX | CSV},
    {"data.test_path", PATH, AT(data.test_path), .kinds = CSV},
    {"data.x", PATH, AT(data.x), .kinds = NPY, .required = NPY},
    {"data.y", PATH, AT(data.y), .kinds = NPY, .required = NPY},
    {"data.x_test", PATH, AT(data.x_test), .kinds = NPY},
    {"data.y_test", PATH, AT(data.y_test), .kinds = NPY},
    {"data.train_examples", COUNT, AT(data.train_examples), "20000", .min = 1, .max = 1 << 30, .kinds = DIGITS},
    {"data.test_examples", COUNT, AT(data.test_examples), "2000", .min = 1, .max = 1 << 30, .kinds = DIGITS},
    {"data.shuffle", FLAG, AT(shuffle), "true"},
    {"loss.name", CHOICE, AT(loss), .words = losses, .required = ALL},
    {"loss.from_logits", FLAG, AT(from_logits), "false"},
    {"metrics", METRICS, AT(accuracy), .words = metrics},
    {"optimizer.name", CHOICE, AT(optimizer), .words = optimizers, .required = ALL},
    {"strategy.name", CHOICE, AT(strategy), "parameter_server", strategies, strategies_elsewhere},
    {"strategy.update", CHOICE, AT(update), "async", updates, updates_elsewhere, PS_ASYNC},
    {"strategy.placement", WORD, AT(placement), "greedy", placements},
    {"strategy.partitioner", STRING, AT(partitioner), "none"},
    {"strategy.min_workers", SMALL, AT(min_workers), "1", .min = 1, .max = 1 << 16},
    {"batch_size", SMALL, AT(batch_size), "64", .min = 1, .max = 1 << 20},
    {"epochs", COUNT, AT(epochs), "1", .min = 1, .max = 1 << 30},
    {"steps", COUNT, AT(steps), "0", .min = 0, .max = INT64_MAX},
    {"seed", COUNT, AT(seed), "0", .min = 0, .max = INT64_MAX},
    {"threads", SMALL, AT(threads), "1", .min = 1, .max = 1024},
    {"device", WORD, AT(device), "cpu", devices, devices_elsewhere},
    {"on_existing", CHOICE, AT(on_existing), "refuse", on_existing},
    {"timeout", SMALL, AT(timeout), "60", .min = 1, .max = 86400},
    {"delay_ms", SMALL, AT(delay_ms), "0", .min = 0, .max = 60000},
    {"output", PATH, AT(output)},
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

#define EACH_FIELD(f)               \
    const struct field *f = fields; \
    f < fields + N_FIELDS;          \
    f++

static void *member(const struct ps_job *job, const struct field *f)
{
    return (char *)job + f->offset;
}

static bool has_kind(unsigned kinds, const struct ps_job *job)
{
    return kinds >> job->data.kind & 1;
}

// ---- unknown keys -------------------------------------------------------------------------------------------------

// optimizer holds what its rule takes besides its fields; take_hypers looks at those.
static bool is_open(const char *path)
{
    return strcmp(path, "optimizer") == 0;
}

// If path is word (len bytes) or begins with it and a dot: what follows the dot, or "". Else NULL.
static const char *below(const char *path, const char *word, size_t len)
{
    if (strncmp(path, word, len) != 0)
        return NULL;
    return path[len] == '.' ? path + len + 1 : path[len] == '\0' ? path + len : NULL;
}

static enum ps_code unknown_key(const struct ps_yaml *v, const char *parent, struct ps_error *e)
{
    char word[N_FIELDS][32];
    const char *known[N_FIELDS];
    int n = 0;
    for (EACH_FIELD(f)) {
        const char *rest = *parent ? below(f->path, parent, strlen(parent)) : f->path;
        if (rest && *rest) {
            snprintf(word[n], sizeof *word, "%.*s", (int)strcspn(rest, "."), rest);
            known[n] = word[n];
            n++;
        }
    }
    const char *nearest = ps_nearest(v->key, known, n), *in = *parent ? " in " : "";
    if (nearest)
        return ps_yaml_fail(v, e, "unknown key \"%.60s\"%s%s; did you mean \"%s\"?", v->key, in, parent, nearest);
    return ps_yaml_fail(v, e, "unknown key \"%.60s\"%s%s", v->key, in, parent);
}

// Every key below map (whose path is parent, "" for the root) is a field or leads to one.
static enum ps_code check_keys(const struct ps_yaml *map, const char *parent, struct ps_error *e)
{
    for (const struct ps_yaml *v = map->first; v; v = v->next) {
        char path[128];
        const char *rest = NULL;
        if (snprintf(path, sizeof path, "%s%s%s", parent, *parent ? "." : "", v->key) >= (int)sizeof path)
            return unknown_key(v, parent, e);
        for (EACH_FIELD(f)) {
            rest = strchr(v->key, '.') ? NULL : below(f->path, path, strlen(path));
            if (rest)
                break;
        }
        if (!rest && !is_open(parent))
            return unknown_key(v, parent, e);
        if (!rest || !*rest || ps_yaml_is_null(v))
            continue;
        if (v->kind != PS_YAML_MAP)
            return ps_yaml_expected(v, path, e, "a map");
        if (check_keys(v, path, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
    }
    return PS_OK;
}

// ---- values -------------------------------------------------------------------------------------------------------

// path as it is, or where it is relative and stands in a file, beside that file.
static char *resolve(const struct ps_yaml *v, const char *path)
{
    const char *slash = v->line ? strrchr(v->source, '/') : NULL;
    if (!slash || path[0] == '/')
        return ps_strdup(path);
    return ps_printf("%.*s/%s", (int)(slash - v->source), v->source, path);
}

static enum ps_code take_choice(const struct field *f, const struct ps_yaml *v, int *to, struct ps_error *e)
{
    for (int i = 0; f->elsewhere && v->kind == PS_YAML_SCALAR && f->elsewhere[i]; i++)
        if (strcmp(v->text, f->elsewhere[i]) == 0)
            return ps_yaml_fail(v, e, "%s %s is not supported; there are %s and %s", f->path, v->text, f->words[0],
                                f->words[1]);
    return ps_yaml_choice(v, f->path, f->words, to, e);
}

static enum ps_code take_metrics(const struct field *f, const struct ps_yaml *v, bool *accuracy, struct ps_error *e)
{
    int i;
    if (v->kind != PS_YAML_LIST)
        return ps_yaml_expected(v, f->path, e, "a list such as [accuracy]");
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        if (ps_yaml_choice(item, f->path, f->words, &i, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
        *accuracy = true;
    }
    return PS_OK;
}

static enum ps_code take_value(const struct field *f, const struct ps_yaml *v, struct ps_job *job, struct ps_error *e)
{
    void *to = member(job, f);
    const char *text = NULL;
    enum ps_code code = PS_OK;
    uint64_t small = 0;
    int choice = 0;
    switch (f->type) {
    case COUNT:
        return ps_yaml_uint(v, f->path, f->min, f->max, to, e);
    case SMALL:
        code = ps_yaml_uint(v, f->path, f->min, f->max, &small, e);
        if (code == PS_OK)
            *(int *)to = (int)small;
        return code;
    case FLAG:
        return ps_yaml_bool(v, f->path, to, e);
    case METRICS:
        return take_metrics(f, v, to, e);
    case CHOICE:
    case WORD:
        code = take_choice(f, v, &choice, e);
        if (code == PS_OK && f->type == CHOICE)
            *(int *)to = f->first + choice;
        else if (code == PS_OK)
            *(char **)to = ps_strdup(f->words[choice]);
        return code;
    case STRING:
    case PATH:
        code = ps_yaml_string(v, f->path, &text, e);
        if (code == PS_OK && !*text)
            return ps_yaml_expected(v, f->path, e, "a %s", f->type == PATH ? "path" : "string of some length");
        if (code == PS_OK)
            *(char **)to = f->type == PATH ? resolve(v, text) : ps_strdup(text);
        return code;
    }
    return code;
}

// A field with a value takes it, one without its default.
static enum ps_code take_field(const struct field *f, const struct ps_yaml *root, struct ps_job *job,
                               struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, f->path);
    const struct ps_yaml fallback = {
        .kind = PS_YAML_SCALAR, .source = root->source, .line = 1, .text = (char *)f->fallback};
    bool given = v && !ps_yaml_is_null(v), fits = !f->kinds || has_kind(f->kinds, job);
    if (given && !fits)
        return ps_yaml_fail(v, e, "%s does not go with data.kind %s", f->path, data_kinds[job->data.kind]);
    if (given)
        return take_value(f, v, job, e);
    if (f->required == ALL)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s is missing", root->source, f->path);
    if (has_kind(f->required, job))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s is missing, which data.kind %s needs", root->source, f->path,
                       data_kinds[job->data.kind]);
    return f->fallback && fits ? take_value(f, &fallback, job, e) : PS_OK;
}

// ---- the optimizer ------------------------------------------------------------------------------------------------

// A hyperparameter is a number, or true or false.
static enum ps_code hyper_value(const struct ps_yaml *v, const char *path, double *value, struct ps_error *e)
{
    bool flag;
    if (v->kind == PS_YAML_SCALAR && ps_yaml_bool(v, path, &flag, NULL) == PS_OK) {
        *value = flag;
        return PS_OK;
    }
    return ps_yaml_real(v, path, value, e);
}

// Sets in hyper what the file says, by the names of rule.
static enum ps_code read_hypers(const struct ps_yaml *optimizer, const char *name, const struct ps_rule *rule,
                                double *hyper, struct ps_error *e)
{
    ps_rule_defaults(rule, hyper);
    for (const struct ps_yaml *v = optimizer->first; v; v = v->next) {
        char path[128];
        struct ps_error why = {.code = PS_OK};
        double value;
        if (strcmp(v->key, "name") == 0 || ps_yaml_is_null(v))
            continue;
        snprintf(path, sizeof path, "optimizer.%s", v->key);
        if (hyper_value(v, path, &value, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
        if (ps_rule_set(rule, hyper, v->key, value, &why) != PS_OK)
            return ps_yaml_fail(v, e, "optimizer %s: %s", name, why.text);
    }
    return PS_OK;
}

// The value that hyper has for a name of rule; 0 where rule has no such name.
static double value_of(const struct ps_rule *rule, const double *hyper, const char *name)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        if (strcmp(rule->hyper[i].name, name) == 0)
            return hyper[i];
    return 0;
}

// Keras's sgd is read as the rule momentum, which has all its hyperparameters; with a momentum of 0 it is the
// rule sgd, which keeps no slot.
static enum ps_code take_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e)
{
    const char *name = optimizers[job->optimizer];
    const struct ps_rule *widest = ps_rule_for_optimizer(name, 1), *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    if (read_hypers(ps_yaml_find(root, "optimizer"), name, widest, hyper, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    rule = ps_rule_for_optimizer(name, value_of(widest, hyper, "momentum"));
    job->rule = rule->name;
    for (size_t i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++) {
        job->hypers[i] = (struct ps_hyper){rule->hyper[i].name, value_of(widest, hyper, rule->hyper[i].name)};
        job->n_hypers = i + 1;
    }
    return PS_OK;
}

// ---- what no field knows alone ------------------------------------------------------------------------------------

// The name goes into file names and onto the wire.
static enum ps_code take_name(const struct ps_yaml *root, const char *path, struct ps_job *job, struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, "name");
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    if (!job->name)
        job->name = ps_printf("%.*s", dot && dot > base ? (int)(dot - base) : (int)strlen(base), base);
    size_t len = strlen(job->name);
    bool fits = len > 0 && len <= 128 && job->name[0] != '.' &&
                strspn(job->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
    if (fits)
        return PS_OK;
    if (v && !ps_yaml_is_null(v))
        return ps_yaml_expected(v, "name", e, "at most 128 letters, digits, '.', '_' and '-', not '.' first");
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "%s: the job has no name, and \"%.60s\", from the file's, cannot be one: set name", path, job->name);
}

static enum ps_code check_partitioner(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    struct ps_placement_spec spec;
    struct ps_error why = {.code = PS_OK};
    if (ps_placement_parse(job->placement, job->partitioner, &spec, &why) == PS_OK)
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "strategy.partitioner"), e, "strategy.%s", why.text);
}

static enum ps_code check_together(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    bool labels = job->loss == PS_LOSS_SPARSE_XENT;
    if (job->accuracy && !labels)
        return ps_yaml_fail(ps_yaml_find(root, "metrics"), e, "accuracy needs class labels; loss mse has none");
    if (job->from_logits && !labels)
        return ps_yaml_fail(ps_yaml_find(root, "loss.from_logits"), e, "loss mse has no from_logits");
    if (!job->data.x_test != !job->data.y_test)
        return ps_yaml_fail(ps_yaml_find(root, job->data.x_test ? "data.x_test" : "data.y_test"), e,
                            "data.x_test and data.y_test go together");
    return check_partitioner(root, job, e);
}

// ---- in and out ---------------------------------------------------------------------------------------------------

static enum ps_code take_all(const struct ps_yaml *root, const char *path, struct ps_job *job, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    for (EACH_FIELD(f)) {
        code = take_field(f, root, job, e);
        if (code != PS_OK)
            return code;
    }
    code = take_optimizer(root, job, e);
    if (code == PS_OK)
        code = take_name(root, path, job, e);
    if (code == PS_OK)
        code = check_together(root, job, e);
    if (code == PS_OK && !job->output)
        job->output = ps_printf("%s.safetensors", job->name);
    return code;
}

enum ps_code ps_job_parse(const char *text, size_t len, const char *path, const char *const *sets, size_t n_sets,
                          struct ps_job **job, struct ps_error *e)
{
    struct ps_yaml *root = NULL;
    struct ps_job *j = ps_alloc(sizeof *j);
    enum ps_code code = ps_yaml_parse(text, len, path, &root, e);
    if (code == PS_OK && root->kind != PS_YAML_MAP)
        code = ps_yaml_expected(root, "a job file", e, "a map of keys such as model, data and optimizer");
    for (size_t i = 0; i < n_sets && code == PS_OK; i++)
        code = ps_yaml_set(root, sets[i], e);
    if (code == PS_OK)
        code = check_keys(root, "", e);
    if (code == PS_OK)
        code = take_all(root, path, j, e);
    ps_yaml_free(root);
    if (code != PS_OK) {
        ps_job_free(j);
        return code;
    }
    *job = j;
    return PS_OK;
}

enum ps_code ps_job_load(const char *path, const char *const *sets, size_t n_sets, struct ps_job **job,
                         struct ps_error *e)
{
    char *text;
    size_t len;
    enum ps_code code = ps_yaml_read_file(path, &text, &len, e);
    if (code != PS_OK)
        return code;
    code = ps_job_parse(text, len, path, sets, n_sets, job, e);
    free(text);
    return code;
}

void ps_job_free(struct ps_job *job)
{
    if (!job)
        return;
    for (EACH_FIELD(f))
        if (f->type == STRING || f->type == PATH || f->type == WORD)
            free(*(char **)member(job, f));
    free(job);
}

// The value of a field, or NULL where the job has none.
static json_t *field_json(const struct field *f, const struct ps_job *job)
{
    const void *at = member(job, f);
    if (f->kinds && !has_kind(f->kinds, job))
        return NULL;
    switch (f->type) {
    case COUNT:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case SMALL:
        return json_integer(*(const int *)at);
    case FLAG:
        return json_boolean(*(const bool *)at);
    case METRICS:
        return *(const bool *)at ? json_pack("[s]", f->words[0]) : json_array();
    case CHOICE:
        return json_string(f->words[*(const int *)at - f->first]);
    case WORD:
    case STRING:
    case PATH:
        return json_string(*(char *const *)at);
    }
    return NULL;
}

// Takes the reference to value.
static void put_json(json_t *object, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    if (!dot) {
        json_object_set_new(object, path, value);
        return;
    }
    char *key = ps_printf("%.*s", (int)(dot - path), path);
    if (!json_object_get(object, key))
        json_object_set_new(object, key, json_object());
    put_json(json_object_get(object, key), dot + 1, value);
    free(key);
}

json_t *ps_job_json(const struct ps_job *job)
{
    json_t *root = json_object();
    for (EACH_FIELD(f)) {
        json_t *value = field_json(f, job);
        if (value)
            put_json(root, f->path, value);
    }
    json_t *optimizer = json_object_get(root, "optimizer");
    const struct ps_rule *rule = ps_rule_find(job->rule);
    for (size_t i = 0; i < job->n_hypers; i++) {
        const struct ps_hyper *h = &job->hypers[i];
        json_t *value = rule->hyper[i].flag ? json_boolean(h->value != 0) : json_real(h->value);
        json_object_set_new(optimizer, h->name, value);
    }
    return root;
}
