// SPDX-License-Identifier: Apache-2.0
#include "common/job/outputs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

// ---- YAML as JSON -------------------------------------------------------------------------------------------------

static json_t *outputs_scalar(const struct ps_yaml *v)
{
    char *end;
    if (ps_yaml_is_null(v))
        return json_null();
    if (v->quoted || !*v->text)
        return json_string(v->text);
    if (strcmp(v->text, "true") == 0 || strcmp(v->text, "false") == 0)
        return json_boolean(*v->text == 't');
    errno = 0;
    long long whole = strtoll(v->text, &end, 10);
    if (!*end && !errno)
        return json_integer(whole);
    double real = strtod(v->text, &end);
    json_t *number = *end ? NULL : json_real(real);
    return number ? number : json_string(v->text);
}

static json_t *outputs_value(const struct ps_yaml *v)
{
    if (v->kind == PS_YAML_SCALAR)
        return outputs_scalar(v);
    json_t *to = v->kind == PS_YAML_LIST ? json_array() : json_object();
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (v->kind == PS_YAML_LIST)
            json_array_append_new(to, outputs_value(item));
        else
            json_object_set_new(to, item->key, outputs_value(item));
    return to;
}

// The line of a key of v, or of v.
static const struct ps_yaml *outputs_find(const struct ps_yaml *v, const char *key)
{
    const struct ps_yaml *found = key && v->kind == PS_YAML_MAP ? ps_yaml_find(v, key) : NULL;
    return found ? found : v;
}

// Is it one loss or metric, not several by the names of outputs?
static bool outputs_is_one(const struct ps_yaml *v)
{
    return v->kind == PS_YAML_SCALAR ||
           (v->kind == PS_YAML_MAP && (ps_yaml_find(v, "name") || ps_yaml_find(v, "class_name")));
}

static enum ps_code outputs_take_name(const struct ps_yaml *v, const char *what, char to[PS_OUTPUT_NAME],
                                      struct ps_error *e)
{
    if (snprintf(to, PS_OUTPUT_NAME, "%s", v->key ? v->key : "") >= PS_OUTPUT_NAME)
        return ps_yaml_expected(v, what, e, "by names of outputs, of at most %d bytes", PS_OUTPUT_NAME - 1);
    return PS_OK;
}

// ---- losses -------------------------------------------------------------------------------------------------------

static enum ps_code losses_take(const struct ps_yaml *v, const char *what, struct ps_job_losses *to, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    const char *key;
    if (to->n == PS_MAX_OUTPUTS)
        return ps_yaml_fail(v, e, "%s: there are more than %d", what, PS_MAX_OUTPUTS);
    if (outputs_take_name(v, what, to->of[to->n].output, e))
        return e->code;
    json_t *json = outputs_value(v);
    if (ps_loss_read(what, json, &to->of[to->n].loss, &key, &why))
        ps_yaml_fail(outputs_find(v, key), e, "%s", why.text);
    else
        to->n++;
    json_decref(json);
    return why.code;
}

enum ps_code ps_job_losses_parse(const struct ps_yaml *v, const char *what, struct ps_job_losses *to,
                                 struct ps_error *e)
{
    char path[PS_OUTPUT_NAME + 32];
    enum ps_code code = PS_OK;
    size_t i = 0;
    if (outputs_is_one(v)) {
        code = losses_take(v, what, to, e);
        to->of[0].output[0] = '\0';
        return code;
    }
    to->listed = true;
    for (const struct ps_yaml *item = v->first; item && code == PS_OK; item = item->next) {
        if (item->key)
            snprintf(path, sizeof path, "%s.%.160s", what, item->key);
        else
            snprintf(path, sizeof path, "%s[%zu]", what, i++);
        code = losses_take(item, path, to, e);
    }
    if (code == PS_OK && !to->n)
        return ps_yaml_expected(v, what, e, "the name of a loss, or one for each output");
    return code;
}

json_t *ps_job_losses_json(const struct ps_job_losses *losses)
{
    const bool named = losses->n && *losses->of[0].output;
    json_t *all = named ? json_object() : json_array();
    for (size_t i = 0; i < losses->n; i++) {
        json_t *one = ps_named_json(&ps_losses, losses->of[i].loss.kind, &losses->of[i].loss);
        if (named)
            json_object_set_new(all, losses->of[i].output, one);
        else
            json_array_append_new(all, one);
    }
    if (losses->listed)
        return all;
    json_t *one = json_incref(json_array_get(all, 0));
    json_decref(all);
    return one;
}

// ---- metrics ------------------------------------------------------------------------------------------------------

static enum ps_code metrics_take(const struct ps_yaml *v, const char *what, const char *output,
                                 struct ps_job_metrics *to, struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    const char *key;
    if (to->n == PS_MAX_METRICS)
        return ps_yaml_fail(v, e, "%s: there are more than %d", what, PS_MAX_METRICS);
    json_t *json = outputs_value(v);
    snprintf(to->of[to->n].output, sizeof to->of[to->n].output, "%s", output);
    if (ps_metric_read(what, json, &to->of[to->n].metric, &key, &why))
        ps_yaml_fail(outputs_find(v, key), e, "%s", why.text);
    else
        to->n++;
    json_decref(json);
    return why.code;
}

static enum ps_code metrics_take_list(const struct ps_yaml *v, const char *what, const char *output,
                                      struct ps_job_metrics *to, struct ps_error *e)
{
    char path[PS_OUTPUT_NAME + 64];
    size_t i = 0;
    if (v->kind == PS_YAML_SCALAR || (*output && outputs_is_one(v)))
        return *output ? metrics_take(v, what, output, to, e)
                       : ps_yaml_expected(v, what, e, "a list such as [accuracy]");
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        snprintf(path, sizeof path, "%s[%zu]", what, i++);
        if (metrics_take(item, path, output, to, e))
            return e->code;
    }
    return PS_OK;
}

enum ps_code ps_job_metrics_parse(const struct ps_yaml *v, const char *what, struct ps_job_metrics *to,
                                  struct ps_error *e)
{
    char path[PS_OUTPUT_NAME + 32], output[PS_OUTPUT_NAME];
    if (v->kind != PS_YAML_MAP)
        return metrics_take_list(v, what, "", to, e);
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        if (outputs_take_name(item, what, output, e))
            return e->code;
        snprintf(path, sizeof path, "%s.%s", what, output);
        if (metrics_take_list(item, path, output, to, e))
            return e->code;
    }
    return PS_OK;
}

// With its name as it was written.
static json_t *metric_json(const struct ps_metric *metric)
{
    json_t *one = ps_named_json(&ps_metrics, metric->kind, metric);
    json_object_set_new(one, "name", json_string(metric->label));
    return one;
}

json_t *ps_job_metrics_json(const struct ps_job_metrics *metrics)
{
    const bool named = metrics->n && *metrics->of[0].output;
    json_t *all = named ? json_object() : json_array();
    for (size_t i = 0; i < metrics->n; i++) {
        const char *output = metrics->of[i].output;
        if (named && !json_object_get(all, output))
            json_object_set_new(all, output, json_array());
        json_array_append_new(named ? json_object_get(all, output) : all, metric_json(&metrics->of[i].metric));
    }
    return all;
}

// ---- weights of classes -------------------------------------------------------------------------------------------

static int class_weight_compare(const void *a, const void *b)
{
    const struct ps_class_weight *x = a, *y = b;
    return (x->class > y->class) - (x->class < y->class);
}

static enum ps_code class_weight_take(const struct ps_yaml *v, const char *what, struct ps_class_weight *to,
                                      struct ps_error *e)
{
    char *end;
    double weight;
    errno = 0;
    long class = strtol(v->key, &end, 10);
    if (*end || end == v->key || errno || class < 0 || class > INT32_MAX - 1)
        return ps_yaml_fail(v, e, "%s: a class must be a whole number from 0, not \"%.60s\"", what, v->key);
    if (ps_yaml_real(v, what, &weight, e))
        return e->code;
    if (!(weight >= 0 && weight <= 1e30))
        return ps_yaml_expected(v, what, e, "numbers from 0 to 1e30");
    *to = (struct ps_class_weight){(int32_t) class, (float)weight};
    return PS_OK;
}

enum ps_code ps_class_weights_parse(const struct ps_yaml *v, const char *what, struct ps_class_weights *to,
                                    struct ps_error *e)
{
    size_t n = 0;
    if (v->kind != PS_YAML_MAP)
        return ps_yaml_expected(v, what, e, "a map from class numbers to weights, such as {0: 1, 1: 5}");
    if (!v->first)
        return PS_OK;
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        n++;
    to->of = ps_alloc(n * sizeof *to->of);
    for (const struct ps_yaml *item = v->first; item; item = item->next)
        if (class_weight_take(item, what, &to->of[to->n++], e))
            return e->code;
    qsort(to->of, to->n, sizeof *to->of, class_weight_compare);
    return PS_OK;
}

void ps_class_weights_free(struct ps_class_weights *w)
{
    free(w->of);
}

json_t *ps_class_weights_json(const struct ps_class_weights *w)
{
    json_t *map = w->n ? json_object() : NULL;
    for (size_t i = 0; i < w->n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", (int)w->of[i].class);
        json_object_set_new(map, key, json_real((double)w->of[i].weight));
    }
    return map;
}

// ---- the model's outputs ------------------------------------------------------------------------------------------

static enum ps_code outputs_place(const char *what, const char *name, const char *const *outputs, size_t n,
                                  size_t *place, struct ps_error *e)
{
    for (size_t k = 0; k < n; k++)
        if (strcmp(outputs[k], name) == 0) {
            *place = k;
            return PS_OK;
        }
    const char *near = ps_nearest(name, outputs, (int)n);
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s: the model has no output \"%s\"; %s \"%s\"%s", what, name,
                   near ? "did you mean" : "its first is", near ? near : outputs[0], near ? "?" : "");
}

static enum ps_code losses_bind_each(const struct ps_job_losses *losses, const char *const *outputs, size_t n,
                                     struct ps_loss *to, struct ps_error *e)
{
    bool given[PS_MAX_OUTPUTS] = {false};
    for (size_t i = 0; i < losses->n; i++) {
        size_t place = i;
        if (*losses->of[i].output && outputs_place("loss", losses->of[i].output, outputs, n, &place, e))
            return e->code;
        to[place] = losses->of[i].loss;
        given[place] = true;
    }
    for (size_t k = 0; k < n; k++)
        if (!given[k])
            return ps_fail(e, PS_FAILED_PRECONDITION, "loss: output \"%s\" of the model has none", outputs[k]);
    return PS_OK;
}

enum ps_code ps_job_losses_bind(const struct ps_job_losses *losses, const char *const *outputs, size_t n,
                                struct ps_loss *to, struct ps_error *e)
{
    for (size_t k = 0; k < n; k++)
        to[k] = losses->of[0].loss;
    if (!losses->listed)
        return PS_OK;
    if (losses->n > n)
        return ps_fail(e, PS_FAILED_PRECONDITION, "loss: there are %zu, but the model has %zu output%s", losses->n, n,
                       n == 1 ? "" : "s");
    return losses_bind_each(losses, outputs, n, to, e);
}

enum ps_code ps_job_metrics_bind(const struct ps_job_metrics *metrics, const char *const *outputs, size_t n,
                                 size_t *output, struct ps_error *e)
{
    for (size_t i = 0; i < metrics->n; i++) {
        output[i] = 0;
        if (!*metrics->of[i].output && n > 1)
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "metrics: the model has %zu outputs: expected a map such as {%s: [%s]}", n, outputs[0],
                           metrics->of[i].metric.label);
        if (*metrics->of[i].output && outputs_place("metrics", metrics->of[i].output, outputs, n, &output[i], e))
            return e->code;
    }
    return PS_OK;
}
