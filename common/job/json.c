// SPDX-License-Identifier: Apache-2.0
//
// A job as JSON, for programs, and as lines of text, for what workers of one job must have alike.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/job/field.h"
#include "common/job/hypers.h"
#include "common/plan/configuration.h"

static json_t *schedule_json(const struct ps_job_field *f, const struct ps_schedule *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_boundaries + (f->type == VALUES); i++)
        json_array_append_new(list,
                              f->type == VALUES ? json_real(s->value[i]) : json_integer((json_int_t)s->boundary[i]));
    return list;
}

// The value of a field, or NULL where the job has none.
static json_t *field_json(const struct ps_job_field *f, const struct ps_job *job)
{
    const void *at = ps_job_field_in(job, f);
    if (!ps_job_field_applies(f, job))
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
    switch (ps_job_hyper_of(rule, h->name)->type) {
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

enum { CONFIGURATION_VALUE = 1024 };  // bytes; a ps task keeps no configuration that is long

// What is longer, such as the weights of a thousand classes, is there by its hash.
static void configuration_put_text(FILE *to, const char *key, const char *text)
{
    const size_t size = strlen(text);
    if (size <= CONFIGURATION_VALUE)
        fprintf(to, "%s=%s\n", key, text);
    else
        fprintf(to, "%s=%zu bytes, %016" PRIx64 "\n", key, size, ps_hash(PS_HASH_SEED, text, size));
}

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
        configuration_put_text(to, key, json_string_value(value));
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        configuration_put_text(to, key, text);
        free(text);
    }
}

char *ps_job_configuration(const struct ps_job *scaled)
{
    const struct ps_job written = job_as_written(scaled), *job = &written;
    char *text = NULL, key[64];
    size_t size;
    FILE *to = ps_open_memory(&text, &size);
    for (EACH_FIELD(f)) {
        json_t *value = f->own ? NULL : field_json(f, job);
        if (f->type == COLUMNS)
            ps_job_columns_hide_paths(value);
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

static void configuration_put_older(FILE *to, const char *key, const char *value)
{
    json_t *columns = strcmp(key, "data.columns") == 0 ? json_loads(value, 0, NULL) : NULL;
    ps_job_columns_hide_paths(columns);
    if (columns)
        configuration_put(to, key, columns);
    else
        configuration_put_text(to, key, value);
    json_decref(columns);
}

char *ps_job_configuration_renew(const char *older)
{
    char *text = NULL;
    size_t size;
    FILE *to = ps_open_memory(&text, &size);
    for (; *older; older = ps_configuration_next(older)) {
        char *line = ps_printf("%.*s", (int)strcspn(older, "\n"), older), *value = strchr(line, '=');
        if (value) {
            *value = '\0';
            configuration_put_older(to, line, value + 1);
        } else {
            fprintf(to, "%s\n", line);
        }
        free(line);
    }
    fclose(to);
    return text;
}

bool ps_job_configuration_is_optional(const char *line)
{
    const size_t key = strcspn(line, "=\n");
    for (EACH_FIELD(f))
        if (strlen(f->path) == key && memcmp(f->path, line, key) == 0)
            return !f->own && !f->fallback && !f->required && f->type != METRICS;  // that are none is said
    return false;
}
