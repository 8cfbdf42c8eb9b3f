// SPDX-License-Identifier: Apache-2.0
#include "common/job/field.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/job/optimizer.h"
#include "common/job/path.h"

// ---- the fields ---------------------------------------------------------------------------------------------------

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
static const char *const strategies_elsewhere[] = {"tpu", "TPUStrategy", NULL};
// TensorFlow's classes of them; NULL: there is none.
static const char *const strategy_classes[] = {
    [PS_STRATEGY_PARAMETER_SERVER] = "ParameterServerStrategy",
    [PS_STRATEGY_ONE_DEVICE] = "OneDeviceStrategy",
    [PS_STRATEGY_MIRRORED] = "MirroredStrategy",
    [PS_STRATEGY_MULTI_WORKER_MIRRORED] = "MultiWorkerMirroredStrategy",
    [PS_STRATEGY_CENTRAL_STORAGE] = "CentralStorageStrategy",
    [PS_STRATEGY_HYBRID] = NULL,
};
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
enum { BY_KIND, BY_OPTIMIZER, BY_OUTER, BY_SCHEDULE, BY_UPDATE };
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

#define AT(member) .offset = offsetof(struct ps_job, member)
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

const struct ps_job_field ps_job_fields[] = {
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

enum { N_FIELDS = sizeof ps_job_fields / sizeof *ps_job_fields };

const size_t ps_job_n_fields = N_FIELDS;

void *ps_job_field_in(const struct ps_job *job, const struct ps_job_field *f)
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

static int job_is_decided(const struct ps_job_field *f, const struct ps_job *job)
{
    return *(const int *)((const char *)job + deciders[f->by].offset);
}

static bool is_among(unsigned kinds, const struct ps_job_field *f, const struct ps_job *job)
{
    return kinds >> job_is_decided(f, job) & 1;
}

static const char *decided_word(const struct ps_job_field *f, const struct ps_job *job)
{
    return deciders[f->by].words[job_is_decided(f, job) - deciders[f->by].first];
}

// ---- unknown keys -------------------------------------------------------------------------------------------------

// An optimizer holds what its rule takes besides its fields; hypers.c looks at those.
static bool is_open(const char *path)
{
    return strcmp(path, "optimizer") == 0 || strcmp(path, OUTER) == 0;
}

// A map of the user's own names, which its field reads.
static bool is_map_field(const struct ps_job_field *f)
{
    return f->type == COLUMNS || f->type == PORTS;
}

const char *ps_job_path_below(const char *path, const char *word, size_t len)
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
        const char *rest = *parent ? ps_job_path_below(f->path, parent, strlen(parent)) : f->path;
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

enum ps_code ps_job_check_keys(const struct ps_yaml *map, const char *parent, struct ps_error *e)
{
    for (const struct ps_yaml *v = map->first; v; v = v->next) {
        char path[128];
        const char *rest = NULL;
        bool own_names = false;
        if (snprintf(path, sizeof path, "%s%s%s", parent, *parent ? "." : "", v->key) >= (int)sizeof path)
            return unknown_key(v, parent, e);
        for (EACH_FIELD(f)) {
            rest = strchr(v->key, '.') ? NULL : ps_job_path_below(f->path, path, strlen(path));
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
        if (ps_job_check_keys(v, path, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
    }
    return PS_OK;
}

// ---- values -------------------------------------------------------------------------------------------------------

// A word that users of TensorFlow know, and that is not here.
static enum ps_code choice_unsupported(const struct ps_job_field *f, const struct ps_yaml *v, struct ps_error *e)
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

static enum ps_code take_choice(const struct ps_job_field *f, const struct ps_yaml *v, int *to, struct ps_error *e)
{
    for (int i = 0; f->elsewhere && v->kind == PS_YAML_SCALAR && f->elsewhere[i]; i++)
        if (strcmp(v->text, f->elsewhere[i]) == 0)
            return choice_unsupported(f, v, e);
    for (int i = 0; f->words == ps_job_strategies && v->kind == PS_YAML_SCALAR && f->words[i]; i++)
        if (strategy_classes[i] && strcmp(v->text, strategy_classes[i]) == 0)
            return ps_yaml_fail(v, e, "%s \"%s\" is not known; did you mean \"%s\"?", f->path, v->text, f->words[i]);
    return ps_yaml_choice(v, f->path, f->words, to, e);
}

// A list of least .. most numbers.
static enum ps_code check_list(const struct ps_job_field *f, const struct ps_yaml *v, size_t least, size_t most,
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

static enum ps_code take_boundaries(const struct ps_job_field *f, const struct ps_yaml *v, struct ps_schedule *to,
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
static enum ps_code take_values(const struct ps_job_field *f, const struct ps_yaml *v, struct ps_schedule *to,
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

static enum ps_code take_quotient(const struct ps_job_field *f, const struct ps_yaml *v, double *to, struct ps_error *e)
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

static enum ps_code take_sizes(const struct ps_job_field *f, const struct ps_yaml *v, uint64_t to[2],
                               struct ps_error *e)
{
    if (v->kind != PS_YAML_LIST || !v->first || !v->first->next || v->first->next->next)
        return ps_yaml_expected(v, f->path, e, "a list of two numbers: height and width");
    if (ps_yaml_uint(v->first, f->path, f->min, f->max, &to[0], e))
        return e->code;
    return ps_yaml_uint(v->first->next, f->path, f->min, f->max, &to[1], e);
}

static enum ps_code take_value(const struct ps_job_field *f, const struct ps_yaml *v, struct ps_job *job,
                               struct ps_error *e)
{
    void *to = ps_job_field_in(job, f);
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
static bool field_is_foreign(const struct ps_job_field *f, const struct ps_job *job)
{
    return f->strategies && !(f->strategies & 1U << job->strategy);
}

bool ps_job_field_applies(const struct ps_job_field *f, const struct ps_job *job)
{
    return (!f->kinds || is_among(f->kinds, f, job)) && !field_is_foreign(f, job);
}

const char *ps_job_field_word(const struct ps_job *job, const char *path)
{
    const struct ps_job_field *f = ps_job_fields;
    while (strcmp(f->path, path) != 0)
        f++;
    return f->words[*(const int *)ps_job_field_in(job, f) - f->first];
}

static const char *field_fallback(const struct ps_job_field *f, const struct ps_job *job)
{
    const bool in_rounds = job->strategy == PS_STRATEGY_LOCAL_STEPS || job->strategy == PS_STRATEGY_HYBRID;
    if (job->update == PS_ASYNC && f->async_fallback)
        return f->async_fallback;
    return in_rounds && f->rounds_fallback ? f->rounds_fallback : f->fallback;
}

enum ps_code ps_job_field_take(const struct ps_job_field *f, const struct ps_yaml *root, struct ps_job *job,
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
