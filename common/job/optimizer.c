// SPDX-License-Identifier: Apache-2.0
#include "common/job/optimizer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"

const char *const ps_job_optimizers[] = {"sgd",   "adam",   "adamw", "rmsprop", "adagrad", "adadelta",
                                         "nadam", "adamax", "lion",  "ftrl",    NULL};

const char *const ps_job_outer_optimizers[] = {"sgd",   "adam",   "adamw", "rmsprop", "adagrad",          "adadelta",
                                               "nadam", "adamax", "lion",  "ftrl",    "delayed_nesterov", NULL};

// Those that are not here, Keras's and LARS, and why: a rule is over single elements.
static const struct {
    const char *name, *why;
} optimizers_elsewhere[] = {
    {"Adafactor", "what it does to a weight depends on others"},
    {"LARS", "what it does to a weight depends on others"},
    {"Lamb", "what it does to a weight depends on others"},
    {"Muon", "what it does to a weight depends on others"},
    {"ScheduleFreeAdamW", "no rule steps from the weights' average"},
};

struct optimizer_word {
    const char *keras, *word;
};

static const struct optimizer_word optimizer_schedules[] = {
    {"PiecewiseConstantDecay", "piecewise"},
    {"ExponentialDecay", "exponential"},
    {"CosineDecay", "cosine"},
    {"CosineDecayRestarts", "cosine_restarts"},
    {"PolynomialDecay", "polynomial"},
    {"InverseTimeDecay", "inverse_time"},
};

enum { N_SCHEDULES = sizeof optimizer_schedules / sizeof *optimizer_schedules };

// ---- the tree -----------------------------------------------------------------------------------------------------

// The link to what map has under key, at the end a link to nothing.
static struct ps_yaml **optimizer_link(struct ps_yaml *map, const char *key)
{
    struct ps_yaml **link = &map->first;
    while (*link && strcmp((*link)->key, key) != 0)
        link = &(*link)->next;
    return link;
}

// NULL: map is none, has no such key, or nothing under it.
static struct ps_yaml *optimizer_member(struct ps_yaml *map, const char *key)
{
    struct ps_yaml *v = map && map->kind == PS_YAML_MAP ? *optimizer_link(map, key) : NULL;
    return v && !ps_yaml_is_null(v) ? v : NULL;
}

static bool optimizer_is_word(const struct ps_yaml *v)
{
    return v && v->kind == PS_YAML_SCALAR;
}

static void optimizer_replace_text(char **text, const char *by)
{
    free(*text);
    *text = ps_strdup(by);
}

// What stands under `from` stands under `to` then.
static enum ps_code optimizer_rename(struct ps_yaml *map, const char *from, const char *to, struct ps_error *e)
{
    struct ps_yaml *v = optimizer_member(map, from), **twin = optimizer_link(map, to), *gone = *twin;
    if (!v)
        return PS_OK;
    if (gone && !ps_yaml_is_null(gone) && !v->line == !gone->line)
        return ps_yaml_fail(v, e, "%s and %s say the same; give one of them", from, to);
    if (gone && !ps_yaml_is_null(gone) && gone->line == 0)  // it is assigned, and v stands in the file
        twin = optimizer_link(map, from), gone = v;
    else
        optimizer_replace_text(&v->key, to);
    if (gone) {
        *twin = gone->next;
        ps_yaml_free(gone);
    }
    return PS_OK;
}

// The two that a job may have.
static struct ps_yaml *optimizer_of(struct ps_yaml *root)
{
    return optimizer_member(root, "optimizer");
}

static struct ps_yaml *optimizer_outer(struct ps_yaml *root)
{
    return optimizer_member(optimizer_member(root, "strategy"), "outer_optimizer");
}

static void optimizer_open(struct ps_yaml *optimizer)
{
    if (!optimizer_is_word(optimizer))
        return;
    struct ps_yaml *name = ps_alloc(sizeof *name);
    *name = *optimizer;
    name->key = ps_strdup("name");
    name->next = NULL;
    optimizer->kind = PS_YAML_MAP;
    optimizer->text = NULL;
    optimizer->first = name;
}

void ps_job_optimizer_open(struct ps_yaml *root)
{
    optimizer_open(optimizer_of(root));
    optimizer_open(optimizer_outer(root));
}

// ---- names and keys -----------------------------------------------------------------------------------------------

// Any case will do, as in Keras.
static enum ps_code optimizer_spell_name(struct ps_yaml *name, struct ps_error *e)
{
    if (!optimizer_is_word(name))
        return PS_OK;
    for (size_t i = 0; i < sizeof optimizers_elsewhere / sizeof *optimizers_elsewhere; i++)
        if (strcasecmp(name->text, optimizers_elsewhere[i].name) == 0)
            return ps_yaml_fail(name, e, "optimizer %s is not supported: %s", optimizers_elsewhere[i].name,
                                optimizers_elsewhere[i].why);
    for (int i = 0; ps_job_outer_optimizers[i]; i++)
        if (strcasecmp(name->text, ps_job_outer_optimizers[i]) == 0)
            optimizer_replace_text(&name->text, ps_job_outer_optimizers[i]);
    return PS_OK;
}

// Keras's CosineDecay warms up from initial_learning_rate to warmup_target, and does not where there is no target.
static enum ps_code optimizer_spell_warmup(struct ps_yaml *rate, const char *kind, struct ps_error *e)
{
    struct ps_yaml *target = optimizer_member(rate, "warmup_target"), *steps = optimizer_member(rate, "warmup_steps");
    bool cosine = strcmp(kind, "cosine") == 0;
    if (target && !cosine)
        return ps_yaml_fail(target, e,
                            "warmup_target is of schedule cosine; with %s, a warm-up goes from "
                            "warmup_initial to where the schedule begins",
                            kind);
    if (target && optimizer_rename(rate, "initial_learning_rate", "warmup_initial", e) != PS_OK)
        return e->code;
    if (target)
        return optimizer_rename(rate, "warmup_target", "initial", e);
    if (cosine && steps && optimizer_member(rate, "initial_learning_rate"))
        return ps_yaml_fail(steps, e,
                            "warmup_steps needs warmup_target beside initial_learning_rate: that is where "
                            "the warm-up begins, and the target where it ends");
    return PS_OK;
}

static enum ps_code optimizer_spell_schedule(struct ps_yaml *rate, struct ps_error *e)
{
    struct ps_yaml *kind = optimizer_member(rate, "schedule");
    if (!optimizer_is_word(kind))
        return PS_OK;
    for (int i = 0; i < N_SCHEDULES; i++)
        if (strcmp(kind->text, optimizer_schedules[i].keras) == 0)
            optimizer_replace_text(&kind->text, optimizer_schedules[i].word);
    if (optimizer_spell_warmup(rate, kind->text, e) != PS_OK)
        return e->code;
    if (strcmp(kind->text, "cosine_restarts") == 0 &&
        optimizer_rename(rate, "first_decay_steps", "decay_steps", e) != PS_OK)
        return e->code;
    return optimizer_rename(rate, "initial_learning_rate", "initial", e);
}

static enum ps_code optimizer_spell(struct ps_yaml *optimizer, struct ps_error *e)
{
    if (!optimizer || optimizer->kind != PS_YAML_MAP)
        return PS_OK;
    if (optimizer_spell_name(optimizer_member(optimizer, "name"), e) != PS_OK ||
        optimizer_rename(optimizer, "lr", "learning_rate", e) != PS_OK)
        return e->code;
    return optimizer_spell_schedule(optimizer_member(optimizer, "learning_rate"), e);
}

enum ps_code ps_job_optimizer_spell(struct ps_yaml *root, struct ps_error *e)
{
    ps_job_optimizer_open(root);
    return optimizer_spell(optimizer_of(root), e) || optimizer_spell(optimizer_outer(root), e) ? e->code : PS_OK;
}
