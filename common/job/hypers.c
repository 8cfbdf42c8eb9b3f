// SPDX-License-Identifier: Apache-2.0
#include "common/job/hypers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/job/field.h"
#include "common/job/optimizer.h"

// Keys of an optimizer: a rule's, and the fields beside it.
enum { MAX_KNOWN = PS_RULE_MAX_HYPERS + 8 };

// Is what stands at path, below optimizer, taken by the table of fields?
static bool hypers_is_field(const struct ps_yaml *v, const char *path)
{
    for (EACH_FIELD(f)) {
        const char *rest = ps_job_path_below(f->path, path, strlen(path));
        if (rest && (!*rest || v->kind == PS_YAML_MAP))
            return true;
    }
    return false;
}

const struct ps_rule_hyper *ps_job_hyper_of(const struct ps_rule *rule, const char *name)
{
    const struct ps_rule_hyper *h = rule->hyper;
    while (strcmp(h->name, name) != 0)
        h++;
    return h;
}

// The hyperparameter that v is named for, which rule has.
static enum ps_code hypers_read_one(const struct ps_yaml *v, const char *path, const struct ps_rule *rule,
                                    double *value, struct ps_error *e)
{
    bool on = false;
    if (ps_job_hyper_of(rule, v->key)->type != PS_HYPER_FLAG)
        return ps_yaml_real(v, path, value, e);
    if (ps_yaml_bool(v, path, &on, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    *value = on;
    return PS_OK;
}

// All keys that the job's optimizer may have: the rule's, and those of the fields below `at`. Returns how many.
static int hypers_known(const struct ps_job *job, const char *at, const struct ps_rule *rule,
                        const char *known[MAX_KNOWN])
{
    int n = 0;
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        known[n++] = rule->hyper[i].name;
    for (EACH_FIELD(f)) {
        const char *key = ps_job_path_below(f->path, at, strlen(at));
        if (!key || !*key || strchr(key, '.') || !ps_job_field_applies(f, job))
            continue;
        assert(n < MAX_KNOWN);
        known[n++] = key;
    }
    return n;
}

static bool hypers_is_of_schedule(const char *at, const char *key)
{
    for (EACH_FIELD(f)) {
        const char *rest = strcmp(at, "optimizer") == 0 ? ps_job_path_below(f->path, RATE, strlen(RATE)) : NULL;
        if (rest && *rest && strcmp(rest, key) == 0)
            return true;
    }
    return false;
}

static enum ps_code hypers_unknown(const struct ps_yaml *v, const struct ps_job *job, const char *at, const char *name,
                                   const struct ps_rule *rule, struct ps_error *e)
{
    const char *known[MAX_KNOWN];
    const int n = hypers_known(job, at, rule, known);
    const char *nearest = ps_nearest(v->key, known, n);
    char list[384] = "";
    if (hypers_is_of_schedule(at, v->key))
        return ps_yaml_fail(v, e, "%s %s has no \"%s\"; expected it in %s, which is a map then", at, name, v->key,
                            RATE);
    if (nearest)
        return ps_yaml_fail(v, e, "%s %s has no \"%.60s\"; did you mean \"%s\"?", at, name, v->key, nearest);
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", known[i]);
    return ps_yaml_fail(v, e, "%s %s has no \"%.60s\"; it has %s", at, name, v->key, list);
}

// Sets in hyper, which has the rule's defaults, what the file says below `at`, by the names of rule. optimizer, which
// may be NULL, is what stands there. whole: who applies the rule has all of each variable.
static enum ps_code hypers_read(const struct ps_yaml *optimizer, const struct ps_job *job, const char *at,
                                const char *name, const struct ps_rule *rule, bool whole, double *hyper,
                                struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    for (const struct ps_yaml *v = optimizer ? optimizer->first : NULL; v; v = v->next) {
        char path[128];
        double value;
        snprintf(path, sizeof path, "%s.%s", at, v->key);
        if (hypers_is_field(v, path) || ps_yaml_is_null(v))
            continue;
        // Its name first: an optimizer's other settings are no numbers.
        if (!ps_rule_has(rule, v->key))
            return hypers_unknown(v, job, at, name, rule, e);
        if (hypers_read_one(v, path, rule, &value, e) != PS_OK)
            return PS_INVALID_ARGUMENT;
        if (ps_rule_set(rule, hyper, v->key, value, &why) != PS_OK)
            return ps_yaml_fail(v, e, "%s %s: %s", at, name, why.text);
    }
    if ((whole ? ps_rule_check : ps_rule_check_parts)(rule, hyper, &why) != PS_OK)
        return ps_yaml_fail(optimizer, e, "%s %s: %s", at, name, why.text);
    return PS_OK;
}

// The value that hyper has for a name of rule; 0 where rule has no such name.
static double hypers_value(const struct ps_rule *rule, const double *hyper, const char *name)
{
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        if (strcmp(rule->hyper[i].name, name) == 0)
            return hyper[i];
    return 0;
}

enum ps_code ps_job_check_rate(const struct ps_yaml *root, struct ps_error *e)
{
    const struct ps_yaml *rate = ps_yaml_find(root, RATE), *schedule = ps_yaml_find(root, RATE ".schedule");
    if (rate && rate->kind == PS_YAML_MAP && (!schedule || ps_yaml_is_null(schedule)))
        return ps_yaml_fail(rate, e, "%s.schedule is missing", RATE);
    return PS_OK;
}

static enum ps_code hypers_take_schedule(const struct ps_yaml *root, struct ps_job *job, double *hyper,
                                         struct ps_error *e)
{
    struct ps_error why = {.code = PS_OK};
    if (ps_schedule_check(&job->schedule, &why) != PS_OK)
        return ps_yaml_fail(ps_yaml_find(root, RATE), e, "%s: %s", RATE, why.text);
    if (job->schedule.kind != PS_SCHEDULE_NONE)
        hyper[PS_HYPER_LEARNING_RATE] = ps_schedule_rate(&job->schedule, 0);
    return PS_OK;
}

// The hyperparameters that a rule has, of those of the widest rule of its optimizer. Returns how many.
static size_t hypers_take(const struct ps_rule *rule, const struct ps_rule *widest, const double *hyper,
                          struct ps_hyper *to)
{
    size_t n = 0;
    for (; n < PS_RULE_MAX_HYPERS && rule->hyper[n].name; n++)
        to[n] = (struct ps_hyper){rule->hyper[n].name, hypers_value(widest, hyper, rule->hyper[n].name)};
    return n;
}

// Read as the rule that has all hyperparameters of the optimizer, of which then the one with the fewest slots that will
// do is taken.
enum ps_code ps_job_take_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e)
{
    const char *name = ps_job_optimizers[job->optimizer];
    const struct ps_rule *widest = ps_rule_for_optimizer(name, 1, false), *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    const bool whole = job->strategy != PS_STRATEGY_PARAMETER_SERVER && job->strategy != PS_STRATEGY_HYBRID;
    ps_rule_defaults(widest, hyper);
    if (hypers_read(ps_yaml_find(root, "optimizer"), job, "optimizer", name, widest, whole, hyper, e) != PS_OK ||
        hypers_take_schedule(root, job, hyper, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    rule = ps_rule_for_optimizer(name, hypers_value(widest, hyper, "momentum"),
                                 job->nesterov || job->centered || job->amsgrad);
    job->rule = rule->name;
    job->n_hypers = hypers_take(rule, widest, hyper, job->hypers);
    job->written.rate = job->hypers[PS_HYPER_LEARNING_RATE].value;
    job->written.schedule = job->schedule;
    return PS_OK;
}

// sgd's are those of DiLoCo (Douillard et al., 2023), and delayed_nesterov's the same; the others' are Keras's. Where
// each worker's difference is applied when it arrives, momentum that follows each carries all of them too far (Liu et
// al., 2024), so sgd has none there.
static void hypers_outer_defaults(const struct ps_job *job, const char *name, const struct ps_rule *widest,
                                  double *hyper)
{
    struct ps_error ignored;
    ps_rule_defaults(widest, hyper);
    const bool delayed = strcmp(name, "delayed_nesterov") == 0;
    if (!delayed && strcmp(name, "sgd") != 0)
        return;
    ps_rule_set(widest, hyper, "learning_rate", 0.7, &ignored);
    ps_rule_set(widest, hyper, "momentum", delayed || job->update == PS_SYNC ? 0.9 : 0, &ignored);
}

enum ps_code ps_job_take_outer_optimizer(const struct ps_yaml *root, struct ps_job *job, struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, OUTER);
    if (job->strategy != PS_STRATEGY_LOCAL_STEPS)
        return v && !ps_yaml_is_null(v)
                   ? ps_yaml_fail(v, e, "%s does not go with strategy.name %s", OUTER, ps_job_strategies[job->strategy])
                   : PS_OK;
    const char *name = ps_job_outer_optimizers[job->outer.optimizer];
    const struct ps_rule *widest = ps_rule_for_optimizer(name, 1, false), *rule;
    double hyper[PS_RULE_MAX_HYPERS], momentum;
    hypers_outer_defaults(job, name, widest, hyper);
    if (hypers_read(v, job, OUTER, name, widest, false, hyper, e) != PS_OK)
        return PS_INVALID_ARGUMENT;
    momentum = hypers_value(widest, hyper, "momentum");
    rule = ps_rule_for_optimizer(name, momentum, job->outer.nesterov && momentum > 0);
    job->outer.rule = rule->name;
    job->outer.n_hypers = hypers_take(rule, widest, hyper, job->outer.hypers);
    return PS_OK;
}
