// SPDX-License-Identifier: Apache-2.0
//
// A job file becomes a job in four steps: the tree is read and assignments laid over it; keys that no field
// has are refused; every field takes its value or default; what no single field can know is checked.
#include "common/job/job.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/file/output.h"
#include "common/file/yaml.h"
#include "common/job/optimizer.h"
#include "common/job/path.h"
#include "common/plan/placement.h"

// ---- the fields ---------------------------------------------------------------------------------------------------

enum type {
    CHOICE,    // int: index in words, plus first
    WORD,      // char *: one of words
    STRING,    // char *
    PATH,      // char *: a file or folder
    COUNT,     // uint64_t, min .. max
    SMALL,     // int, min .. max
    FLAG,      // bool
    REAL,      // double
    QUOTIENT,  // double: "1/255", or a number; not 0
    COLUMNS,   // struct ps_job_columns
    PORT,      // struct ps_job_port
    PORTS,     // struct ps_job_ports
    SIZES,     // uint64_t[2]
    DEVICES,   // struct ps_job_devices
    LOSSES,    // struct ps_job_losses
    METRICS,   // struct ps_job_metrics
    CLASSES,   // struct ps_class_weights
    // struct ps_schedule: lists of numbers
    BOUNDARIES,
    VALUES,
    CALLBACKS,  // struct ps_callbacks
};

static const char *const data_kinds[] = {
    "idx", "csv", "npy", "npz", "cifar", "images", "tfrecord", "text", "synthetic-digits", NULL};
_Static_assert(sizeof data_kinds / sizeof *data_kinds == PS_DATA_KINDS + 1, "a name for each");
static const char *const headers[] = {"auto", "true", "false", NULL};
static const char *const colors[] = {"rgb", "grayscale", NULL};
static const char *const flips[] = {"none", "horizontal", "vertical", "both", NULL};
static const char *const schedules[] = {"constant",        "piecewise",  "exponential",  "cosine",
                                        "cosine_restarts", "polynomial", "inverse_time", NULL};
const char *const ps_job_strategies[] = {"parameter_server", "one_device",      "mirrored", "multi_worker_mirrored",
                                         "local_steps",      "central_storage", "hybrid",   NULL};
static const char *const strategies_elsewhere[] = {"tpu", NULL};
static const char *const scales[] = {"none", "linear", "sqrt", NULL};
static const char *const cross_device_ops[] = {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device", NULL};
static const char *const communications[] = {"auto", "ring", "nccl", NULL};
static const char *const compressions[] = {"none", "bfloat16", "float16", "int8", NULL};
static const char *const precisions[] = {"float32", "tensorfloat32", "bfloat16", NULL};
static const char *const cudnns[] = {"deterministic", "fastest", "none", NULL};
static const char *const updates[] = {"async", "sync", "ssp", NULL};
static const char *const placements[] = {"greedy", "round_robin", NULL};
static const char *const devices[] = {"cpu", "gpu", "cuda", "ref", NULL};
static const char *const on_existing[] = {"refuse", "resume", "replace", NULL};

// Some fields are there only with some values of another one; sets of those values are bits.
enum by { BY_KIND, BY_OPTIMIZER, BY_OUTER, BY_SCHEDULE, BY_UPDATE };
enum {
    IDX = 1 << PS_DATA_IDX,
    CSV = 1 << PS_DATA_CSV,
    NPY = 1 << PS_DATA_NPY,
    NPZ = 1 << PS_DATA_NPZ,
    CIFAR = 1 << PS_DATA_CIFAR,
    IMAGES = 1 << PS_DATA_IMAGES,
    TFRECORD = 1 << PS_DATA_TFRECORD,
    TEXT = 1 << PS_DATA_TEXT,
    DIGITS = 1 << PS_DATA_DIGITS,
    TESTED = CSV | NPZ | IMAGES | TFRECORD | TEXT  // whose test data lie at a path of their own
};
enum { SGD = 1 << 0, ADAM = 1 << 1 | 1 << 2, RMSPROP = 1 << 3 };
enum {
    CONSTANT = 1 << PS_CONSTANT,
    PIECEWISE = 1 << PS_PIECEWISE,
    EXPONENTIAL = 1 << PS_EXPONENTIAL,
    COSINE = 1 << PS_COSINE,
    RESTARTS = 1 << PS_COSINE_RESTARTS,
    POLYNOMIAL = 1 << PS_POLYNOMIAL,
    INVERSE_TIME = 1 << PS_INVERSE_TIME,
    DECAYING = EXPONENTIAL | COSINE | RESTARTS | POLYNOMIAL | INVERSE_TIME,
    ANY = CONSTANT | PIECEWISE | DECAYING
};
enum { ASYNC = 1 << PS_ASYNC, SYNC = 1 << PS_SYNC, SSP = 1 << PS_SSP };

#define ALWAYS ~0U

struct field {
    const char *path;
    enum type type;
    size_t offset;
    const char *fallback;  // as it would stand in a file; NULL: none
    const char *const *words;
    const char *const *elsewhere;  // words known from TensorFlow, which get a better sentence
    int first;                     // CHOICE: value of words[0]
    uint64_t min, max;
    enum by by;                   // decides, of:
    unsigned kinds;               // those that have it; 0: all
    unsigned required;            // those that must have it
    unsigned strategies;          // those that have it; 0: all
    bool own;                     // workers of one job may differ in it
    const char *rounds_fallback;  // the fallback with strategies local_steps and hybrid; NULL: no other
    const char *async_fallback;   // the fallback with update async; NULL: no other
};

#define AT(member) .offset = offsetof(struct ps_job, member)
#define RATE "optimizer.learning_rate"
#define OUTER "strategy.outer_optimizer"
#define STEPS .strategies = 1 << PS_STRATEGY_PARAMETER_SERVER
#define LOCAL .strategies = 1 << PS_STRATEGY_LOCAL_STEPS
#define SERVERS .strategies = 1 << PS_STRATEGY_PARAMETER_SERVER | 1 << PS_STRATEGY_LOCAL_STEPS
#define SERVED SERVERS | 1 << PS_STRATEGY_HYBRID
#define PEERS .strategies = 1 << PS_STRATEGY_MULTI_WORKER_MIRRORED | 1 << PS_STRATEGY_HYBRID
#define WORKERS   \
    .strategies = \
        1 << PS_STRATEGY_PARAMETER_SERVER | 1 << PS_STRATEGY_LOCAL_STEPS | 1 << PS_STRATEGY_MULTI_WORKER_MIRRORED
#define REPLICAS \
    .strategies = 1 << PS_STRATEGY_MIRRORED | 1 << PS_STRATEGY_MULTI_WORKER_MIRRORED | 1 << PS_STRATEGY_CENTRAL_STORAGE
#define OWN .own = true
#define SCHEDULED(set) .by = BY_SCHEDULE, .kinds = (set), .required = (set)

static const struct field fields[] = {
    {"name", STRING, AT(name), OWN},
    {"model", PATH, AT(model), .required = ALWAYS, OWN},
    {"weights", PATH, AT(weights), OWN},
    {"data.kind", CHOICE, AT(data.kind), .words = data_kinds, .required = ALWAYS},
    {"data.path", PATH, AT(data.path), .kinds = IDX | CIFAR | TESTED, .required = IDX | CIFAR | TESTED, OWN},
    {"data.test_path", PATH, AT(data.test_path), .kinds = TESTED, OWN},
    {"data.x", PATH, AT(data.x), .kinds = NPY, .required = NPY, OWN},
    {"data.y", PATH, AT(data.y), .kinds = NPY, .required = NPY, OWN},
    {"data.x_test", PATH, AT(data.x_test), .kinds = NPY, OWN},
    {"data.y_test", PATH, AT(data.y_test), .kinds = NPY, OWN},
    {"data.train_examples", COUNT, AT(data.train_examples), "20000", .min = 1, .max = 1 << 30, .kinds = DIGITS},
    {"data.test_examples", COUNT, AT(data.test_examples), "2000", .min = 1, .max = 1 << 30, .kinds = DIGITS, OWN},
    {"data.scale", QUOTIENT, AT(data.scale), "1"},
    {"data.shuffle", FLAG, AT(shuffle), "true"},
    {"data.threads", SMALL, AT(data.threads), "1", .min = 1, .max = 64, OWN},
    {"data.validation_split", REAL, AT(data.validation_split), "0"},
    {"data.columns", COLUMNS, AT(data.columns), .kinds = CSV | TFRECORD},
    {"data.inputs", PORTS, AT(data.inputs)},
    {"data.outputs", PORTS, AT(data.outputs)},
    {"data.weight", STRING, AT(data.weight)},
    {"data.label", PORT, AT(data.label), .kinds = CSV | NPZ | TFRECORD},
    {"data.separator", STRING, AT(data.separator), ",", .kinds = CSV},
    {"data.header", CHOICE, AT(data.header), "auto", headers, .kinds = CSV},
    {"data.augment.flip", CHOICE, AT(data.flip), "none", flips},
    {"data.augment.crop", SMALL, AT(data.crop), "0", .max = 1 << 12},
    {"data.augment.noise", REAL, AT(data.noise), "0"},
    {"data.image_size", SIZES, AT(data.image_size), .min = 1, .max = 1 << 14, .kinds = IMAGES | TFRECORD},
    {"data.color", CHOICE, AT(data.color), "rgb", colors, .kinds = IMAGES | TFRECORD},
    {"data.classes", SMALL, AT(data.classes), "10", .min = 10, .max = 100, .kinds = CIFAR},
    {"data.window", SMALL, AT(data.window), "64", .min = 1, .max = 1 << 20, .kinds = TEXT},
    {"data.stride", SMALL, AT(data.stride), "0", .max = 1 << 20, .kinds = TEXT},
    {"data.vocabulary", PATH, AT(data.vocabulary), .kinds = TEXT, OWN},
    {"loss", LOSSES, AT(loss), .required = ALWAYS},
    {"metrics", METRICS, AT(metrics)},
    {"class_weight", CLASSES, AT(class_weight)},
    {"optimizer.name", CHOICE, AT(optimizer), .words = ps_job_optimizers, .required = ALWAYS},
    {"optimizer.nesterov", FLAG, AT(nesterov), "false", .by = BY_OPTIMIZER, .kinds = SGD},
    {"optimizer.centered", FLAG, AT(centered), "false", .by = BY_OPTIMIZER, .kinds = RMSPROP},
    {"optimizer.amsgrad", FLAG, AT(amsgrad), "false", .by = BY_OPTIMIZER, .kinds = ADAM},
    {"optimizer.scale_learning_rate", CHOICE, AT(scale_rate), "none", scales},
    {"optimizer.warmup_epochs", REAL, AT(warmup_epochs), "0"},
    {RATE ".schedule", CHOICE, AT(schedule.kind), .words = schedules, .first = PS_CONSTANT},
    {RATE ".initial", REAL, AT(schedule.initial), SCHEDULED(CONSTANT | DECAYING)},
    {RATE ".decay_steps", COUNT, AT(schedule.decay_steps), .min = 1, .max = INT64_MAX, SCHEDULED(DECAYING)},
    {RATE ".decay_rate", REAL, AT(schedule.decay_rate), SCHEDULED(EXPONENTIAL | INVERSE_TIME)},
    {RATE ".staircase", FLAG, AT(schedule.staircase), "false", .by = BY_SCHEDULE, .kinds = EXPONENTIAL | INVERSE_TIME},
    {RATE ".alpha", REAL, AT(schedule.alpha), "0", .by = BY_SCHEDULE, .kinds = COSINE | RESTARTS},
    {RATE ".t_mul", REAL, AT(schedule.t_mul), "2", .by = BY_SCHEDULE, .kinds = RESTARTS},
    {RATE ".m_mul", REAL, AT(schedule.m_mul), "1", .by = BY_SCHEDULE, .kinds = RESTARTS},
    {RATE ".end_learning_rate", REAL, AT(schedule.end_learning_rate), "0.0001", .by = BY_SCHEDULE, .kinds = POLYNOMIAL},
    {RATE ".power", REAL, AT(schedule.power), "1", .by = BY_SCHEDULE, .kinds = POLYNOMIAL},
    {RATE ".cycle", FLAG, AT(schedule.cycle), "false", .by = BY_SCHEDULE, .kinds = POLYNOMIAL},
    {RATE ".boundaries", BOUNDARIES, AT(schedule), .max = INT64_MAX, SCHEDULED(PIECEWISE)},
    {RATE ".values", VALUES, AT(schedule), SCHEDULED(PIECEWISE)},
    {RATE ".warmup_steps", COUNT, AT(schedule.warmup_steps), "0", .max = INT64_MAX, .by = BY_SCHEDULE, .kinds = ANY},
    {RATE ".warmup_initial", REAL, AT(schedule.warmup_initial), "0", .by = BY_SCHEDULE, .kinds = ANY},
    {"strategy.name", CHOICE, AT(strategy), "parameter_server", ps_job_strategies, strategies_elsewhere},
    {"strategy.update", CHOICE, AT(update), "async", updates, .first = PS_ASYNC, .rounds_fallback = "sync"},
    {"strategy.n_fetch", SMALL, AT(n_fetch), "1", .min = 1, .max = 1 << 20, .by = BY_UPDATE, .kinds = ASYNC, STEPS},
    {"strategy.n_push", SMALL, AT(n_push), "1", .min = 1, .max = 1 << 20, .by = BY_UPDATE, .kinds = ASYNC, STEPS},
    {"strategy.staleness", SMALL, AT(staleness), .max = 1 << 20, .by = BY_UPDATE, .kinds = SSP, .required = SSP, STEPS},
    {"strategy.replicas_to_aggregate", SMALL, AT(replicas_to_aggregate), "0", .max = PS_MAX_WORKERS, .by = BY_UPDATE,
     .kinds = SYNC, SERVERS},
    {"strategy.grace_seconds", REAL, AT(grace_seconds), "0", .by = BY_UPDATE, .kinds = SYNC, SERVERS},
    {"strategy.local_steps", SMALL, AT(local_steps), "50", .min = 1, .max = 1 << 20, LOCAL},
    {"strategy.fragments", SMALL, AT(fragments), "1", .min = 1, .max = 64, .by = BY_UPDATE, .kinds = SYNC, LOCAL},
    {"strategy.fragment_sync_delay", SMALL, AT(fragment_delay), "0", .max = 1 << 20, .by = BY_UPDATE, .kinds = SYNC,
     LOCAL},
    {OUTER ".name", CHOICE, AT(outer.optimizer), "sgd", .words = ps_job_outer_optimizers, LOCAL,
     .async_fallback = "delayed_nesterov"},
    {OUTER ".nesterov", FLAG, AT(outer.nesterov), "true", .by = BY_OUTER, .kinds = SGD, LOCAL},
    {"strategy.refuse_nonfinite", FLAG, AT(refuse_nonfinite), "false"},
    {"strategy.devices", DEVICES, AT(devices), REPLICAS},
    {"strategy.cross_device_ops", CHOICE, AT(cross_device), "auto", cross_device_ops,
     .strategies = 1 << PS_STRATEGY_MIRRORED},
    {"strategy.communication", CHOICE, AT(communication), "auto", communications, PEERS},
    {"strategy.gradient_compression", CHOICE, AT(compression), "none", compressions,
     PEERS | 1 << PS_STRATEGY_LOCAL_STEPS},
    {"strategy.stall_seconds", SMALL, AT(stall_seconds), "10", .min = 1, .max = 86400, PEERS, OWN},
    {"strategy.sync_batchnorm", FLAG, AT(sync_batchnorm), "false", REPLICAS | 1 << PS_STRATEGY_HYBRID},
    {"strategy.compare_every", COUNT, AT(compare_every), "0", .max = 1 << 30, REPLICAS | 1 << PS_STRATEGY_HYBRID},
    {"strategy.placement", WORD, AT(placement), "greedy", placements, SERVED},
    {"strategy.partitioner", STRING, AT(partitioner), "none", SERVED},
    {"strategy.min_workers", SMALL, AT(min_workers), "1", .min = 1, .max = PS_MAX_WORKERS, WORKERS, OWN},
    {"batch_size", SMALL, AT(batch_size), "64", .min = 1, .max = 1 << 20},
    {"epochs", COUNT, AT(epochs), "1", .min = 1, .max = 1 << 30},
    {"steps", COUNT, AT(steps), "0", .min = 0, .max = INT64_MAX},
    {"seed", COUNT, AT(seed), "0", .min = 0, .max = INT64_MAX},
    {"threads", SMALL, AT(threads), "1", .min = 1, .max = 1024, OWN},
    {"device", WORD, AT(device), "cpu", devices, OWN},
    {"matmul_precision", CHOICE, AT(matmul_precision), "float32", precisions},
    {"cudnn", CHOICE, AT(cudnn), "deterministic", cudnns, OWN},
    {"bind", STRING, AT(bind), "none", OWN},
    {"on_existing", CHOICE, AT(on_existing), "refuse", on_existing, SERVED, OWN},
    {"timeout", SMALL, AT(timeout), "60", .min = 1, .max = 86400, OWN},
    {"delay_ms", SMALL, AT(delay_ms), "0", .min = 0, .max = 60000, SERVED, OWN},
    {"output", PATH, AT(output), OWN},
    {"callbacks", CALLBACKS, AT(callbacks), OWN},
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

#define EACH_FIELD(f)               \
    const struct field *f = fields; \
    f < fields + N_FIELDS;          \
    f++

static void *job_member_of(const struct ps_job *job, const struct field *f)
{
    return (char *)job + f->offset;
}

// The fields that decide.
static const struct {
    const char *path;
    const char *const *words;
    size_t offset;
    int first;
} deciders[] = {
    [BY_KIND] = {"data.kind", data_kinds, AT(data.kind)},
    [BY_OPTIMIZER] = {"optimizer.name", ps_job_optimizers, AT(optimizer)},
    [BY_OUTER] = {OUTER ".name", ps_job_outer_optimizers, AT(outer.optimizer)},
    [BY_SCHEDULE] = {RATE ".schedule", schedules, AT(schedule.kind), PS_CONSTANT},
    [BY_UPDATE] = {"strategy.update", updates, AT(update), PS_ASYNC},
};

static int job_is_decided(const struct field *f, const struct ps_job *job)
{
    return *(const int *)((const char *)job + deciders[f->by].offset);
}

static bool is_among(unsigned kinds, const struct field *f, const struct ps_job *job)
{
    return kinds >> job_is_decided(f, job) & 1;
}

static const char *decided_word(const struct field *f, const struct ps_job *job)
{
    return deciders[f->by].words[job_is_decided(f, job) - deciders[f->by].first];
}

// ---- unknown keys -------------------------------------------------------------------------------------------------

// An optimizer holds what its rule takes besides its fields; read_hypers looks at those.
static bool is_open(const char *path)
{
    return strcmp(path, "optimizer") == 0 || strcmp(path, OUTER) == 0;
}

// A map of the user's own names, which its field reads.
static bool is_map_field(const struct field *f)
{
    return f->type == COLUMNS || f->type == PORTS;
}

// If path is word (len bytes) or begins with it and a dot: what follows the dot, or "". Else NULL.
static const char *job_path_below(const char *path, const char *word, size_t len)
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
        const char *rest = *parent ? job_path_below(f->path, parent, strlen(parent)) : f->path;
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
        bool own_names = false;
        if (snprintf(path, sizeof path, "%s%s%s", parent, *parent ? "." : "", v->key) >= (int)sizeof path)
            return unknown_key(v, parent, e);
        for (EACH_FIELD(f)) {
            rest = strchr(v->key, '.') ? NULL : job_path_below(f->path, path, strlen(path));
            own_names = rest && !*rest && is_map_field(f);
            if (rest)
                break;
        }
        if (!rest && !is_open(parent))
            return unknown_key(v, parent, e);
        if (own_names || !rest || !*rest || ps_yaml_is_null(v) || (v->kind != PS_YAML_MAP && strcmp(path, RATE) == 0))
            continue;
        if (v->kind != PS_YAML_MAP)
            return ps_yaml_expected(v, path, e, "a map");
        if (check_keys(v, path, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
    }
    return PS_OK;
}

// ---- values -------------------------------------------------------------------------------------------------------

char *ps_job_resolve_path(const struct ps_yaml *v, const char *path)
{
    return ps_printf("%.*s%s", (int)ps_yaml_folder(v, path), v->source, path);
}

// A word that users of TensorFlow know, and that is not here.
static enum ps_code choice_unsupported(const struct field *f, const struct ps_yaml *v, struct ps_error *e)
{
    char known[128] = "";
    for (size_t i = 0; f->words[i] && strlen(known) + strlen(f->words[i]) + 6 < sizeof known; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 i == 0            ? ""
                 : f->words[i + 1] ? ", "
                                   : " and ",
                 f->words[i]);
    return ps_yaml_fail(v, e, "%s %s is not supported; there are %s", f->path, v->text, known);
}

static enum ps_code take_choice(const struct field *f, const struct ps_yaml *v, int *to, struct ps_error *e)
{
    for (int i = 0; f->elsewhere && v->kind == PS_YAML_SCALAR && f->elsewhere[i]; i++)
        if (strcmp(v->text, f->elsewhere[i]) == 0)
            return choice_unsupported(f, v, e);
    return ps_yaml_choice(v, f->path, f->words, to, e);
}

// A list of least .. most numbers.
static enum ps_code check_list(const struct field *f, const struct ps_yaml *v, size_t least, size_t most,
                               struct ps_error *e)
{
    size_t n = 0;
    if (v->kind != PS_YAML_LIST)
        return ps_yaml_expected(v, f->path, e, "a list of numbers");
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        n++;
    if (n >= least && n <= most)
        return PS_OK;
    if (least == most)
        return ps_yaml_fail(v, e, "%s has %zu numbers; it must have %zu, one more than boundaries", f->path, n, most);
    return ps_yaml_fail(v, e, "%s has %zu numbers; it must have %zu to %zu", f->path, n, least, most);
}

static enum ps_code take_boundaries(const struct field *f, const struct ps_yaml *v, struct ps_schedule *to,
                                    struct ps_error *e)
{
    if (check_list(f, v, 1, PS_SCHEDULE_MAX_BOUNDARIES, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (ps_yaml_uint(item, f->path, f->min, f->max, &to->boundary[to->n_boundaries++], e) != PS_OK)
            return PS_INVALID_ARGUMENT;
    return PS_OK;
}

// After the boundaries, of which there is one less.
static enum ps_code take_values(const struct field *f, const struct ps_yaml *v, struct ps_schedule *to,
                                struct ps_error *e)
{
    double *value = to->value;
    if (check_list(f, v, to->n_boundaries + 1, to->n_boundaries + 1, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (ps_yaml_real(item, f->path, value++, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
    return PS_OK;
}

static enum ps_code take_quotient(const struct field *f, const struct ps_yaml *v, double *to, struct ps_error *e)
{
    char *slash = v->kind == PS_YAML_SCALAR && !v->quoted ? strchr(v->text, '/') : NULL;
    struct ps_yaml above = *v, below = *v;
    below.text = slash ? slash + 1 : "1";
    struct ps_error why;
    double numerator = 0, denominator = 0;
    if (slash)
        above.text = ps_printf("%.*s", (int)(slash - v->text), v->text);
    bool numbers = ps_yaml_real(&above, f->path, &numerator, &why) == PS_OK &&
                   ps_yaml_real(&below, f->path, &denominator, &why) == PS_OK;
    if (slash)
        free(above.text);
    double quotient = numbers ? numerator / denominator : 0;
    if (!isnormal(quotient))
        return ps_yaml_expected(v, f->path, e, "a number other than 0, or a quotient such as 1/255");
    *to = quotient;
    return PS_OK;
}

static enum ps_code take_sizes(const struct field *f, const struct ps_yaml *v, uint64_t to[2], struct ps_error *e)
{
    if (v->kind != PS_YAML_LIST || !v->first || !v->first->next || v->first->next->next)
        return ps_yaml_expected(v, f->path, e, "a list of two numbers: height and width");
    if (ps_yaml_uint(v->first, f->path, f->min, f->max, &to[0], e))
        return e->code;
    return ps_yaml_uint(v->first->next, f->path, f->min, f->max, &to[1], e);
}

static enum ps_code take_value(const struct field *f, const struct ps_yaml *v, struct ps_job *job, struct ps_error *e)
{
    void *to = job_member_of(job, f);
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
    case REAL:
        return ps_yaml_real(v, f->path, to, e);
    case QUOTIENT:
        return take_quotient(f, v, to, e);
    case LOSSES:
        return ps_job_losses_parse(v, f->path, to, e);
    case COLUMNS:
        return ps_job_columns_parse(v, f->path, to, e);
    case PORT:
        return ps_job_port_parse(v, f->path, to, e);
    case PORTS:
        return ps_job_ports_parse(v, f->path, to, e);
    case SIZES:
        return take_sizes(f, v, to, e);
    case METRICS:
        return ps_job_metrics_parse(v, f->path, to, e);
    case CLASSES:
        return ps_class_weights_parse(v, f->path, to, e);
    case BOUNDARIES:
        return take_boundaries(f, v, to, e);
    case VALUES:
        return take_values(f, v, to, e);
    case CALLBACKS:
        return ps_callbacks_parse(v, to, e);
    case DEVICES:
        return ps_job_devices_parse(v, f->path, devices, to, e);
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
            *(char **)to = f->type == PATH ? ps_job_resolve_path(v, text) : ps_strdup(text);
        return code;
    }
    return code;
}

// Is the field of no use to the job's strategy? strategy.name stands before all such fields.
static bool field_is_foreign(const struct field *f, const struct ps_job *job)
{
    return f->strategies && !(f->strategies & 1U << job->strategy);
}

static const char *field_fallback(const struct field *f, const struct ps_job *job)
{
    const bool in_rounds = job->strategy == PS_STRATEGY_LOCAL_STEPS || job->strategy == PS_STRATEGY_HYBRID;
    if (job->update == PS_ASYNC && f->async_fallback)
        return f->async_fallback;
    return in_rounds && f->rounds_fallback ? f->rounds_fallback : f->fallback;
}

// A field with a value takes it, one without its default.
static enum ps_code take_field(const struct field *f, const struct ps_yaml *root, struct ps_job *job,
                               struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, f->path);
    const struct ps_yaml fallback = {
        .kind = PS_YAML_SCALAR, .source = root->source, .line = 1, .text = (char *)field_fallback(f, job)};
    bool given = v && !ps_yaml_is_null(v), fits = !f->kinds || is_among(f->kinds, f, job);
    if (given && field_is_foreign(f, job))
        return ps_yaml_fail(v, e, "%s does not go with strategy.name %s", f->path, ps_job_strategies[job->strategy]);
    if (given && !fits)
        return ps_yaml_fail(v, e, "%s does not go with %s %s", f->path, deciders[f->by].path, decided_word(f, job));
    if (given)
        return take_value(f, v, job, e);
    if (f->required == ALWAYS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s is missing", root->source, f->path);
    if (is_among(f->required, f, job) && !field_is_foreign(f, job))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: %s is missing, which %s %s needs", root->source, f->path,
                       deciders[f->by].path, decided_word(f, job));
    return f->fallback && fits ? take_value(f, &fallback, job, e) : PS_OK;
}

// ---- the optimizer ------------------------------------------------------------------------------------------------

// Is what stands at path, below optimizer, taken by the table of fields?
static bool is_field(const struct ps_yaml *v, const char *path)
{
    for (EACH_FIELD(f)) {
        const char *rest = job_path_below(f->path, path, strlen(path));
        if (rest && (!*rest || v->kind == PS_YAML_MAP))
            return true;
    }
    return false;
}

static const struct ps_rule_hyper *job_hyper_of(const struct ps_rule *rule, const char *name)
{
    const struct ps_rule_hyper *h = rule->hyper;
    while (strcmp(h->name, name) != 0)
        h++;
    return h;
}

// The hyperparameter that v is named for, which rule has.
static enum ps_code job_read_hyper(const struct ps_yaml *v, const char *path, const struct ps_rule *rule, double *value,
                                   struct ps_error *e)
{
    bool on = false;
    if (job_hyper_of(rule, v->key)->type != PS_HYPER_FLAG)
        return ps_yaml_real(v, path, value, e);
    if (ps_yaml_bool(v, path, &on, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    *value = on;
    return PS_OK;
}

// Sets in hyper, which has the rule's defaults, what the file says below `at`, by the names of rule. optimizer, which
// may be NULL, is what stands there. whole: who applies the rule has all of each variable.
static enum ps_code read_hypers(const struct ps_yaml *optimizer, const char *at, const char *name,
                                const struct ps_rule *rule, bool whole, double *hyper, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    for (const struct ps_yaml *v = optimizer ? optimizer->first : NULL; v; v = v->next) {
        char path[128];
        double value;
        snprintf(path, sizeof path, "%s.%s", at, v->key);
        if (is_field(v, path) || ps_yaml_is_null(v))
            continue;
        // Its name first: an optimizer's other settings are no numbers.
        if (!ps_rule_has(rule, v->key))
            ps_rule_set(rule, hyper, v->key, 0, &why);
        if (why.code != PS_OK)
            return ps_yaml_fail(v, e, "%s %s: %s", at, name, why.text);
        if (job_read_hyper(v, path, rule, &value, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
        if (ps_rule_set(rule, hyper, v->key, value, &why) != PS_OK)
            return ps_yaml_fail(v, e, "%s %s: %s", at, name, why.text);
    }
    if ((whole ? ps_rule_check : ps_rule_check_parts)(rule, hyper, &why) != PS_OK)
        return ps_yaml_fail(optimizer, e, "%s %s: %s", at, name, why.text);
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

// A learning rate is a number, or a map that says which schedule. Before the fields are taken.
static enum ps_code check_rate(const struct ps_yaml *root, struct ps_error *e)
{
    const struct ps_yaml *rate = ps_yaml_find(root, RATE), *schedule = ps_yaml_find(root, RATE ".schedule");
    if (rate && rate->kind == PS_YAML_MAP && (!schedule || ps_yaml_is_null(schedule)))
        return ps_yaml_fail(rate, e, "%s.schedule is missing", RATE);
    return PS_OK;
}

static enum ps_code job_take_schedule(const struct ps_yaml *root, struct ps_job *job, double *hyper, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    if (ps_schedule_check(&job->schedule, &why) != PS_OK)
        return ps_yaml_fail(ps_yaml_find(root, RATE), e, "%s: %s", RATE, why.text);
    if (job->schedule.kind != PS_SCHEDULE_NONE)
        hyper[PS_HYPER_LEARNING_RATE] = ps_schedule_rate(&job->schedule, 0);
    return PS_OK;
}

// The hyperparameters that a rule has, of those of the widest rule of its optimizer. Returns how many.
static size_t take_hypers(const struct ps_rule *rule, const struct ps_rule *widest, const double *hyper,
                          struct ps_hyper *to)
{
    size_t n = 0;
    for (; n < PS_RULE_MAX_HYPERS && rule->hyper[n].name; n++)
        to[n] = (struct ps_hyper){rule->hyper[n].name, value_of(widest, hyper, rule->hyper[n].name)};
    return n;
}

// Read as the rule that has all hyperparameters of the optimizer, of which then the one with the fewest slots that will
// do is taken.
static enum ps_code take_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e)
{
    const char *name = ps_job_optimizers[job->optimizer];
    const struct ps_rule *widest = ps_rule_for_optimizer(name, 1, false), *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    const bool whole = job->strategy != PS_STRATEGY_PARAMETER_SERVER && job->strategy != PS_STRATEGY_HYBRID;
    ps_rule_defaults(widest, hyper);
    if (read_hypers(ps_yaml_find(root, "optimizer"), "optimizer", name, widest, whole, hyper, e) != PS_OK ||
        job_take_schedule(root, job, hyper, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    rule = ps_rule_for_optimizer(name, value_of(widest, hyper, "momentum"),
                                 job->nesterov || job->centered || job->amsgrad);
    job->rule = rule->name;
    job->n_hypers = take_hypers(rule, widest, hyper, job->hypers);
    job->written.rate = job->hypers[PS_HYPER_LEARNING_RATE].value;
    job->written.schedule = job->schedule;
    return PS_OK;
}

// sgd's are those of DiLoCo (Douillard et al., 2023), and delayed_nesterov's the same; the others' are Keras's. Where
// each worker's difference is applied when it arrives, momentum that follows each carries all of them too far (Liu et
// al., 2024), so sgd has none there.
static void outer_defaults(const struct ps_job *job, const char *name, const struct ps_rule *widest, double *hyper)
{
    struct ps_error ignored;
    ps_rule_defaults(widest, hyper);
    const bool delayed = strcmp(name, "delayed_nesterov") == 0;
    if (!delayed && strcmp(name, "sgd") != 0)
        return;
    ps_rule_set(widest, hyper, "learning_rate", 0.7, &ignored);
    ps_rule_set(widest, hyper, "momentum", delayed || job->update == PS_SYNC ? 0.9 : 0, &ignored);
}

static enum ps_code take_outer_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, OUTER);
    if (job->strategy != PS_STRATEGY_LOCAL_STEPS)
        return v && !ps_yaml_is_null(v)
                   ? ps_yaml_fail(v, e, "%s does not go with strategy.name %s", OUTER, ps_job_strategies[job->strategy])
                   : PS_OK;
    const char *name = ps_job_outer_optimizers[job->outer.optimizer];
    const struct ps_rule *widest = ps_rule_for_optimizer(name, 1, false), *rule;
    double hyper[PS_RULE_MAX_HYPERS], momentum;
    outer_defaults(job, name, widest, hyper);
    if (read_hypers(v, OUTER, name, widest, false, hyper, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    momentum = value_of(widest, hyper, "momentum");
    rule = ps_rule_for_optimizer(name, momentum, job->outer.nesterov && momentum > 0);
    job->outer.rule = rule->name;
    job->outer.n_hypers = take_hypers(rule, widest, hyper, job->outer.hypers);
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

static enum ps_code check_data(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const struct ps_job_data *d = &job->data;
    if (!d->x_test != !d->y_test)
        return ps_yaml_fail(ps_yaml_find(root, d->x_test ? "data.x_test" : "data.y_test"), e,
                            "data.x_test and data.y_test go together");
    if (!(d->validation_split >= 0 && d->validation_split < 1))
        return ps_yaml_expected(ps_yaml_find(root, "data.validation_split"), "data.validation_split", e,
                                "a number from 0 to below 1");
    if (!(d->noise >= 0 && d->noise <= 1e6))
        return ps_yaml_expected(ps_yaml_find(root, "data.augment.noise"), "data.augment.noise", e,
                                "a number from 0 to 1e6");
    if (d->kind == PS_DATA_CIFAR && d->classes != 10 && d->classes != 20 && d->classes != 100)
        return ps_yaml_expected(ps_yaml_find(root, "data.classes"), "data.classes", e, "10, 20 or 100");
    if (d->separator && strcmp(d->separator, "tab") != 0 &&
        (strlen(d->separator) != 1 || strchr("\"\r\n", *d->separator)))
        return ps_yaml_expected(ps_yaml_find(root, "data.separator"), "data.separator", e,
                                "a character that is no quote, or tab");
    return PS_OK;
}

// A worker that trains alone for a while has no step that others could be behind, and its own average of the weights
// is nobody else's.
static enum ps_code check_local_steps(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (job->strategy != PS_STRATEGY_LOCAL_STEPS)
        return PS_OK;
    if (job->update == PS_SSP)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.update"), e,
                            "strategy.update ssp does not go with strategy.name local_steps: expected sync or async");
    if (job->fragment_delay && job->fragment_delay >= job->local_steps)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.fragment_sync_delay"), e,
                            "strategy.fragment_sync_delay is %d: expected less than strategy.local_steps, %d",
                            job->fragment_delay, job->local_steps);
    if ((job->fragment_delay || job->fragments > 1) && job->replicas_to_aggregate)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.replicas_to_aggregate"), e,
                            "strategy.replicas_to_aggregate does not go with fragments or fragment_sync_delay");
    if (job->hypers[PS_HYPER_USE_EMA].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.use_ema"), e,
                            "optimizer.use_ema does not go with strategy.name local_steps: expected it in " OUTER
                            ", for the weights that all workers share");
    return PS_OK;
}

// For whom, where all are waited for?
static enum ps_code job_check_grace(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    static const char path[] = "strategy.grace_seconds";
    const struct ps_yaml *v = ps_yaml_find(root, path);
    if (!(job->grace_seconds >= 0 && job->grace_seconds <= 86400))
        return ps_yaml_expected(v, path, e, "a number from 0 to 86400");
    if (job->grace_seconds > 0 && !job->replicas_to_aggregate)
        return ps_yaml_fail(v, e, "%s goes with strategy.replicas_to_aggregate alone: all workers are waited for",
                            path);
    return PS_OK;
}

// What is added up on its way is never in bytes. What is pushed is scaled where its size needs that.
static enum ps_code check_compression(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const bool local = job->strategy == PS_STRATEGY_LOCAL_STEPS;
    if (job->compression != (local ? PS_COMPRESSION_FLOAT16 : PS_COMPRESSION_INT8))
        return PS_OK;
    return ps_yaml_fail(
        ps_yaml_find(root, "strategy.gradient_compression"), e,
        "strategy.gradient_compression %s does not go with strategy.name %s: expected none, bfloat16 or %s",
        compressions[job->compression], ps_job_strategies[job->strategy], local ? "int8" : "float16");
}

// The ps tasks have the tables alone, and the workers the rest: nobody has the norm of all gradients, or all averages.
static enum ps_code check_hybrid(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (job->strategy != PS_STRATEGY_HYBRID)
        return PS_OK;
    if (job->update != PS_SYNC)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.update"), e,
                            "strategy.update %s does not go with strategy.name hybrid: expected sync",
                            updates[job->update - PS_ASYNC]);
    if (job->on_existing == PS_RESUME)
        return ps_yaml_fail(ps_yaml_find(root, "on_existing"), e,
                            "on_existing resume does not go with strategy.name hybrid, as the ps tasks have the tables "
                            "alone: expected refuse or replace");
    if (job->hypers[PS_HYPER_GLOBAL_CLIPNORM].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.global_clipnorm"), e,
                            "optimizer.global_clipnorm does not go with strategy.name hybrid, where nobody has all "
                            "gradients: expected clipnorm or clipvalue");
    if (job->hypers[PS_HYPER_USE_EMA].value > 0)
        return ps_yaml_fail(ps_yaml_find(root, "optimizer.use_ema"), e,
                            "optimizer.use_ema does not go with strategy.name hybrid");
    return PS_OK;
}

// NCCL adds up what lies on the GPUs, in float32, and all of it.
static enum ps_code job_check_communication(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, "strategy.communication");
    if (job->communication != PS_COMMUNICATION_NCCL)
        return PS_OK;
    if (job->strategy == PS_STRATEGY_HYBRID)
        return ps_yaml_fail(v, e,
                            "strategy.communication nccl does not go with strategy.name hybrid: expected auto or "
                            "ring");
    if (job->compression != PS_COMPRESSION_NONE)
        return ps_yaml_fail(ps_yaml_find(root, "strategy.gradient_compression"), e,
                            "strategy.gradient_compression %s does not go with strategy.communication nccl: expected "
                            "none",
                            compressions[job->compression]);
    return PS_OK;
}

static enum ps_code job_check_warm_up(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    static const char path[] = "optimizer.warmup_epochs";
    const struct ps_yaml *v = ps_yaml_find(root, path);
    if (!(job->warmup_epochs >= 0 && job->warmup_epochs <= 1e6))
        return ps_yaml_expected(v, path, e, "a number from 0 to 1e6");
    if (job->warmup_epochs > 0 && job->scale_rate == PS_SCALE_NONE)
        return ps_yaml_fail(v, e, "%s does not go with optimizer.scale_learning_rate none: expected linear or sqrt",
                            path);
    if (job->warmup_epochs > 0 && job->schedule.warmup_steps > 0)
        return ps_yaml_fail(v, e, "%s does not go with " RATE ".warmup_steps: expected one of them", path);
    return PS_OK;
}

// The ps tasks write what they keep, where they have all of it.
static enum ps_code job_check_sharded(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (!ps_callbacks_shards(&job->callbacks) || job->strategy == PS_STRATEGY_PARAMETER_SERVER)
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "callbacks"), e,
                        "callbacks: sharded does not go with strategy.name %s, with which the ps tasks do not have all "
                        "that a checkpoint keeps: expected parameter_server",
                        ps_job_strategies[job->strategy]);
}

// What Keras saves weights as ends in .weights.h5: of other such names nobody knows what the file is to be.
static enum ps_code job_check_output(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    const char *name = job->output ? job->output : "";
    if (ps_ends_with(name, ".weights.h5") || !(ps_ends_with(name, ".h5") || ps_ends_with(name, ".hdf5")))
        return PS_OK;
    return ps_yaml_fail(ps_yaml_find(root, "output"), e,
                        "output must be a name that ends in .keras, .weights.h5 or .safetensors, not %s", name);
}

static enum ps_code check_together(const struct ps_yaml *root, const struct ps_job *job, struct ps_error *e)
{
    if (check_data(root, job, e) || check_local_steps(root, job, e) || check_hybrid(root, job, e) ||
        check_compression(root, job, e) || job_check_grace(root, job, e) || job_check_communication(root, job, e) ||
        job_check_warm_up(root, job, e) || job_check_sharded(root, job, e) || job_check_output(root, job, e))
        return e->code;
    return check_partitioner(root, job, e);
}

// ---- in and out ---------------------------------------------------------------------------------------------------

static enum ps_code take_all(const struct ps_yaml *root, const char *path, struct ps_job *job, struct ps_error *e)
{
    enum ps_code code = check_rate(root, e);
    for (const struct field *f = fields; f < fields + N_FIELDS && code == PS_OK; f++)
        code = take_field(f, root, job, e);
    if (code == PS_OK)
        code = take_optimizer(root, job, e);
    if (code == PS_OK)
        code = take_outer_optimizer(root, job, e);
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
    for (size_t i = 0; i < n_sets && code == PS_OK; i++) {
        ps_job_optimizer_open(root);
        code = ps_yaml_set(root, sets[i], e);
    }
    if (code == PS_OK)
        code = ps_job_optimizer_spell(root, e);
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

enum ps_code ps_job_check_files(const struct ps_job *job, const char *summary, struct ps_error *e)
{
    if (job->weights && access(job->weights, R_OK) != 0)
        return ps_fail(e, errno == ENOENT || errno == ENOTDIR ? PS_NOT_FOUND : PS_PERMISSION_DENIED,
                       "%s cannot be read: %s", job->weights, strerror(errno));
    if (ps_output_check(job->output, e) || (summary && ps_output_check(summary, e)))
        return e->code;
    return PS_OK;
}

static enum ps_code job_find_rule(const char *name, const struct ps_hyper *hypers, size_t n,
                                  const struct ps_rule **rule, double hyper[PS_RULE_MAX_HYPERS], struct ps_error *e)
{
    *rule = ps_rule_find(name);
    if (!*rule)
        return ps_fail(e, PS_INVALID_ARGUMENT, "no update rule is named '%s'", name);
    ps_rule_defaults(*rule, hyper);
    for (size_t i = 0; i < n; i++)
        if (ps_rule_set(*rule, hyper, hypers[i].name, hypers[i].value, e))
            return e->code;
    return PS_OK;
}

enum ps_code ps_job_rule(const struct ps_job *job, const struct ps_rule **rule, double hyper[PS_RULE_MAX_HYPERS],
                         struct ps_error *e)
{
    return job_find_rule(job->rule, job->hypers, job->n_hypers, rule, hyper, e);
}

enum ps_code ps_job_server_rule(const struct ps_job *job, const struct ps_rule **rule, double hyper[PS_RULE_MAX_HYPERS],
                                struct ps_error *e)
{
    const struct ps_outer_optimizer *outer = &job->outer;
    if (job->strategy != PS_STRATEGY_LOCAL_STEPS)
        return ps_job_rule(job, rule, hyper, e);
    return job_find_rule(outer->rule, outer->hypers, outer->n_hypers, rule, hyper, e);
}

bool ps_job_needs_ps(const struct ps_job *job)
{
    return job->strategy == PS_STRATEGY_PARAMETER_SERVER || job->strategy == PS_STRATEGY_LOCAL_STEPS ||
           job->strategy == PS_STRATEGY_HYBRID;
}

bool ps_job_needs_peers(const struct ps_job *job)
{
    return job->strategy == PS_STRATEGY_MULTI_WORKER_MIRRORED || job->strategy == PS_STRATEGY_HYBRID;
}

bool ps_job_needs_all_workers(const struct ps_job *job)
{
    return job->strategy == PS_STRATEGY_HYBRID;
}

uint32_t ps_job_min_workers(const struct ps_job *job, uint32_t workers)
{
    return ps_job_needs_all_workers(job) ? workers : (uint32_t)job->min_workers;
}

bool ps_job_goes_on(const struct ps_job *job, bool resume)
{
    for (size_t i = 0; i < job->callbacks.n; i++) {
        const char *name = ps_callback_name(&job->callbacks.v[i]);
        if (strcmp(name, "backup") == 0 || (resume && strcmp(name, "checkpoint") == 0))
            return true;
    }
    return false;
}

enum ps_code ps_job_check_resume(const struct ps_job *job, const char *file, struct ps_error *e)
{
    if (ps_job_goes_on(job, true))
        return PS_OK;
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "%s: --resume: the job writes no checkpoints: it has no callback checkpoint or backup", file);
}

void ps_job_free(struct ps_job *job)
{
    if (!job)
        return;
    for (EACH_FIELD(f))
        if (f->type == STRING || f->type == PATH || f->type == WORD)
            free(*(char **)job_member_of(job, f));
    ps_job_columns_free(&job->data.columns);
    ps_job_ports_free(&job->data.inputs);
    ps_job_ports_free(&job->data.outputs);
    ps_job_port_free(&job->data.label);
    ps_class_weights_free(&job->class_weight);
    ps_callbacks_free(&job->callbacks);
    ps_job_devices_free(&job->devices);
    free(job);
}

static void job_make_path_absolute(char **path, const char *folder)
{
    char *relative = *path;
    if (!relative || relative[0] == '/')
        return;
    *path = ps_printf("%s/%s", folder, relative);
    free(relative);
}

void ps_job_make_absolute(struct ps_job *job, const char *folder)
{
    char **path;
    for (EACH_FIELD(f))
        if (f->type == PATH)
            job_make_path_absolute(job_member_of(job, f), folder);
    for (size_t i = 0; (path = ps_callbacks_path(&job->callbacks, i)); i++)
        job_make_path_absolute(path, folder);
    for (size_t i = 0; i < job->data.columns.n; i++)
        job_make_path_absolute(&job->data.columns.of[i].vocabulary, folder);
}

static json_t *schedule_json(const struct field *f, const struct ps_schedule *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_boundaries + (f->type == VALUES); i++)
        json_array_append_new(list,
                              f->type == VALUES ? json_real(s->value[i]) : json_integer((json_int_t)s->boundary[i]));
    return list;
}

// The value of a field, or NULL where the job has none.
static json_t *field_json(const struct field *f, const struct ps_job *job)
{
    const void *at = job_member_of(job, f);
    if ((f->kinds && !is_among(f->kinds, f, job)) || field_is_foreign(f, job))
        return NULL;
    switch (f->type) {
    case COUNT:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case SMALL:
        return json_integer(*(const int *)at);
    case FLAG:
        return json_boolean(*(const bool *)at);
    case REAL:
    case QUOTIENT:
        return json_real(*(const double *)at);
    case BOUNDARIES:
    case VALUES:
        return schedule_json(f, at);
    case COLUMNS:
        return ps_job_columns_json(at);
    case PORT:
        return ps_job_port_json(at);
    case PORTS:
        return ps_job_ports_json(at);
    case SIZES:
        return *(const uint64_t *)at
                   ? json_pack("[I, I]", (json_int_t)((const uint64_t *)at)[0], (json_int_t)((const uint64_t *)at)[1])
                   : NULL;
    case LOSSES:
        return ps_job_losses_json(at);
    case CALLBACKS:
        return ps_callbacks_json(at);
    case DEVICES:
        return ps_job_devices_json(at);
    case METRICS:
        return ps_job_metrics_json(at);
    case CLASSES:
        return ps_class_weights_json(at);
    case CHOICE:  // one that is not made, that of a schedule, is below its first
        return *(const int *)at < f->first ? NULL : json_string(f->words[*(const int *)at - f->first]);
    case WORD:
    case STRING:
    case PATH:
        return json_string(*(char *const *)at);
    }
    return NULL;
}

static json_t *job_hyper_json(const struct ps_rule *rule, const struct ps_hyper *h)
{
    switch (job_hyper_of(rule, h->name)->type) {
    case PS_HYPER_FLAG:
        return json_boolean(h->value > 0);
    case PS_HYPER_COUNT:
        return json_integer((json_int_t)h->value);
    case PS_HYPER_REAL:
        break;
    }
    return json_real(h->value);
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

// sgd's momentum has a default other than 0 here, so that 0 is said where its rule has none.
static void outer_put_json(json_t *to, const struct ps_outer_optimizer *outer)
{
    if (outer->rule && strcmp(outer->rule, "sgd") == 0)
        json_object_set_new(to, "momentum", json_real(0));
    for (size_t i = 0; i < outer->n_hypers; i++)
        json_object_set_new(to, outer->hypers[i].name, job_hyper_json(ps_rule_find(outer->rule), &outer->hypers[i]));
}

// With the learning rate that the file says, whatever number of replicas it has been scaled for.
static struct ps_job job_as_written(const struct ps_job *job)
{
    struct ps_job written = *job;
    written.schedule = job->written.schedule;
    written.hypers[PS_HYPER_LEARNING_RATE].value = job->written.rate;
    return written;
}

json_t *ps_job_json(const struct ps_job *scaled)
{
    const struct ps_job written = job_as_written(scaled), *job = &written;
    json_t *root = json_object();
    for (EACH_FIELD(f)) {
        json_t *value = field_json(f, job);
        if (value)
            put_json(root, f->path, value);
    }
    json_t *optimizer = json_object_get(root, "optimizer");
    for (size_t i = 0; i < job->n_hypers; i++) {
        if (i != PS_HYPER_LEARNING_RATE || job->schedule.kind == PS_SCHEDULE_NONE)
            json_object_set_new(optimizer, job->hypers[i].name,
                                job_hyper_json(ps_rule_find(job->rule), &job->hypers[i]));
    }
    outer_put_json(json_object_get(json_object_get(root, "strategy"), "outer_optimizer"), &job->outer);
    return root;
}

// ---- what workers must have alike ---------------------------------------------------------------------------------

// With as few digits as tell it from all other numbers.
static void configuration_put_real(FILE *to, const char *key, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fprintf(to, "%s=%s\n", key, text);
}

static void configuration_put(FILE *to, const char *key, const json_t *value)
{
    if (json_is_real(value)) {
        configuration_put_real(to, key, json_real_value(value));
    } else if (json_is_string(value)) {
        fprintf(to, "%s=%s\n", key, json_string_value(value));
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fprintf(to, "%s=%s\n", key, text);
        free(text);
    }
}

char *ps_job_configuration(const struct ps_job *scaled)
{
    const struct ps_job written = job_as_written(scaled), *job = &written;
    char *text = NULL, key[64];
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        abort();  // there is no memory, as where ps_alloc ends
    for (EACH_FIELD(f)) {
        json_t *value = f->own ? NULL : field_json(f, job);
        if (value)
            configuration_put(to, f->path, value);
        json_decref(value);
    }
    for (size_t i = 0; i < job->n_hypers; i++) {
        snprintf(key, sizeof key, "optimizer.%s", job->hypers[i].name);
        if (i != PS_HYPER_LEARNING_RATE || job->schedule.kind == PS_SCHEDULE_NONE)
            configuration_put_real(to, key, job->hypers[i].value);
    }
    for (size_t i = 0; i < job->outer.n_hypers; i++) {
        snprintf(key, sizeof key, OUTER ".%s", job->outer.hypers[i].name);
        configuration_put_real(to, key, job->outer.hypers[i].value);
    }
    fclose(to);
    return text;
}
