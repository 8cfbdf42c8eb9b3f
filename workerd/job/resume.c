// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/plan/configuration.h"
#include "workerd/job/callback.h"
#include "workerd/job/checkpoints.h"
#include "workerd/strategy/configuration.h"
#include "workerd/strategy/losses.h"

// Losses: of so many steps, the newest, a checkpoint keeps the losses, so that it does not grow for ever.
enum { RESUME_VERSION = 1, RESUME_LOSSES = 100000 };

// ---- saving -------------------------------------------------------------------------------------------------------

static void resume_describe_job(struct wk_run *run)
{
    if (!run->configuration)
        run->configuration = wk_configuration(&run->env);
}

static uint64_t resume_examples_per_step(const struct wk_run *run)
{
    return ps_job_examples_per_step(run->env.job, run->env.replicas ? run->env.replicas : 1);
}

static json_t *resume_numbers(const double *v, uint64_t n)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        json_array_append_new(list, wk_number_save(v[i]));
    return list;
}

static void resume_put_history(const struct wk_history *h, json_t *to)
{
    const uint64_t kept = wk_losses_kept(h), first = kept > RESUME_LOSSES ? kept - RESUME_LOSSES : 0;
    double before = h->examples_before;
    for (uint64_t i = 0; i < first; i++)
        before += h->examples[i];
    json_object_set_new(to, "losses", kept ? resume_numbers(h->loss + first, kept - first) : json_array());
    json_object_set_new(to, "examples", kept ? resume_numbers(h->examples + first, kept - first) : json_array());
    json_object_set_new(to, "examples_before", json_real(before));
}

static json_t *resume_figures_json(const struct wk_figures *f)
{
    json_t *list = json_array();
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(list,
                              json_pack("[s, o, b]", f->v[i].name, wk_number_save(f->v[i].value), f->v[i].validation));
    return list;
}

static enum ps_code resume_fill(const struct wk_run *run, struct wk_checkpoint *c, struct ps_error *e)
{
    if (nn_replica_fetch(run->env.replica, e))
        return e->code;
    for (size_t i = 0; i < nn_model_params(run->env.model); i++) {
        const struct nn_param *p = nn_model_param(run->env.model, i);
        wk_checkpoint_put(c, NULL, p->name, p->shape, p->rank, nn_replica_param(run->env.replica, i));
    }
    c->weights = c->n;
    json_object_set_new(c->json, "version", json_integer(RESUME_VERSION));
    json_object_set_new(c->json, "configuration", json_string(run->configuration));
    json_object_set_new(c->json, "epoch", json_integer((json_int_t)run->position.epoch));
    json_object_set_new(c->json, "first", json_integer((json_int_t)run->position.first));
    json_object_set_new(c->json, "step", json_integer((json_int_t)run->position.step));
    json_object_set_new(c->json, "seed", json_integer((json_int_t)run->seed));
    json_object_set_new(c->json, "examples_per_step", json_integer((json_int_t)resume_examples_per_step(run)));
    json_object_set_new(c->json, "meter", wk_meter_save(&run->meter));
    json_object_set_new(c->json, "figures", resume_figures_json(&run->figures));
    resume_put_history(&run->history, c->json);
    json_object_set_new(c->json, "train_seconds", json_real(run->train_seconds));
    if (run->strategy->home->save(run->state, c, e))
        return e->code;
    wk_callbacks_save(run->callbacks, c);
    return nn_replica_fetch(run->env.replica, e);  // of the slots
}

enum ps_code wk_resume_save(struct wk_run *run, const struct ps_shards_of *shards, struct wk_checkpoint *c,
                            struct ps_error *e)
{
    resume_describe_job(run);
    wk_checkpoint_init(c, shards);
    const enum ps_code code = resume_fill(run, c, e);
    if (code)
        wk_checkpoint_free(c);
    return code;
}

// ---- loading ------------------------------------------------------------------------------------------------------

static const char resume_way_on[] =
    "with that file as weights it begins anew from them; or give this one another name or "
    "folder, or remove that";

static bool resume_is_of(const char *line, const char *key)
{
    return strncmp(line, key, strlen(key)) == 0;
}

// One line KEY=VALUE of the checkpoint's job, which differs from the same in this one.
static enum ps_code resume_fail_configuration(const struct wk_checkpoint *c, const char *line, size_t length,
                                              const char *now, struct ps_error *e)
{
    if (resume_is_of(line, "model="))  // the rest is a hash
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "%.200s: is of a job with another model; give this one another name or folder, or remove that",
                       c->path);
    if (resume_is_of(line, "data.words="))  // likewise
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "%.200s: is of a job whose data have other words or classes, or number them in another order; "
                       "give this one another name or folder, or remove that",
                       c->path);
    const char *other = ps_configuration_find(now, line);
    if (other)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%.200s: is of a job with %.*s, but this one has %.*s; %s", c->path,
                       (int)length, line, (int)strcspn(other, "\n"), other, resume_way_on);
    return ps_fail(e, PS_FAILED_PRECONDITION, "%.200s: is of a job with %.*s, which this one has not; %s", c->path,
                   (int)length, line, resume_way_on);
}

static bool resume_has_line(const char *text, const char *line, size_t length)
{
    for (; *text; text = ps_configuration_next(text))
        if (strcspn(text, "\n") == length && memcmp(text, line, length) == 0)
            return true;
    return false;
}

// Has the job another strategy now, or another kind of update?
static bool resume_switches(const char *was, const char *now)
{
    for (; *was; was = ps_configuration_next(was))
        if ((resume_is_of(was, "strategy.name=") || resume_is_of(was, "strategy.update=")) &&
            !resume_has_line(now, was, strcspn(was, "\n")))
            return true;
    return false;
}

// What may differ beside epochs and steps.
struct resume_changes {
    bool strategy, batch_size;
};

// Epochs and steps may be more now; who trains what, where another strategy says that, or where other replicas take
// as many examples in a step. Whether a file has a header is said again by what is in it.
static bool resume_may_differ(const char *line, const struct resume_changes *changes)
{
    return resume_is_of(line, "epochs=") || resume_is_of(line, "steps=") || resume_is_of(line, "data.header=") ||
           (changes->strategy && resume_is_of(line, "strategy.")) ||
           (changes->batch_size && (resume_is_of(line, "batch_size=") || resume_is_of(line, "strategy.devices=")));
}

// What this job says, the checkpoint's must have said; but there may be keys now that an older version did not know.
static enum ps_code resume_check_added(const struct wk_checkpoint *c, const char *was, const char *now,
                                       const struct resume_changes *changes, struct ps_error *e)
{
    for (const char *line = now; *line; line = ps_configuration_next(line))
        if (ps_job_configuration_is_optional(line) && !resume_may_differ(line, changes) &&
            !ps_configuration_find(was, line))
            return ps_fail(e, PS_FAILED_PRECONDITION, "%.200s: is of a job without %.*s, but this one has %.*s; %s",
                           c->path, (int)strcspn(line, "="), line, (int)strcspn(line, "\n"), line, resume_way_on);
    return PS_OK;
}

static enum ps_code resume_compare_jobs(const struct wk_checkpoint *c, const char *was, const char *now,
                                        const struct resume_changes *changes, struct ps_error *e)
{
    for (const char *line = was; *line; line = ps_configuration_next(line)) {
        size_t length = strcspn(line, "\n");
        if (!resume_may_differ(line, changes) && !resume_has_line(now, line, length))
            return resume_fail_configuration(c, line, length, now, e);
    }
    return resume_check_added(c, was, now, changes, e);
}

// 0: an older version has not saved it.
static uint64_t resume_saved_examples_per_step(const struct wk_checkpoint *c)
{
    const json_int_t n = json_integer_value(json_object_get(c->json, "examples_per_step"));
    return n > 0 ? (uint64_t)n : 0;
}

static enum ps_code resume_check_job(const struct wk_run *run, const struct wk_checkpoint *c, struct ps_error *e)
{
    const char *written = json_string_value(json_object_get(c->json, "configuration"));
    if (json_integer_value(json_object_get(c->json, "version")) != RESUME_VERSION || !written)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: is a checkpoint of another version of workerd", c->path);
    char *was = ps_job_configuration_renew(written);
    const bool switches = resume_switches(was, run->configuration);
    const struct resume_changes changes = {
        .strategy = switches,
        .batch_size = switches || resume_saved_examples_per_step(c) == resume_examples_per_step(run),
    };
    const enum ps_code code = resume_compare_jobs(c, was, run->configuration, &changes, e);
    free(was);
    return code;
}

// What is in shards that were not read the home brings.
static enum ps_code resume_load_params(const struct wk_run *run, const struct wk_checkpoint *c, struct ps_error *e)
{
    const bool is_index = wk_checkpoint_is_index(c);
    for (size_t i = 0; i < nn_model_params(run->env.model); i++) {
        const struct nn_param *p = nn_model_param(run->env.model, i);
        const struct ps_safetensor *t = is_index ? ps_safetensors_find(c->file, p->name) : NULL;
        if (t && !t->data && t->count == p->count)
            continue;
        if (wk_checkpoint_get(c, NULL, p->name, p->count, nn_replica_param(run->env.replica, i), e))
            return e->code;
    }
    return PS_OK;
}

// Where no step is left, the test split is evaluated once more: it may be another one now, and its confusion matrices
// are in no checkpoint. An older version has not saved of which split a figure is.
static enum ps_code resume_load_figures(struct wk_run *run, const json_t *list, struct ps_error *e)
{
    run->figures.n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        const char *name = json_string_value(json_array_get(pair, 0));
        const json_t *validation = json_array_get(pair, 2);
        double value;
        if (!name || !wk_number_load(json_array_get(pair, 1), &value))
            return ps_fail(e, PS_INVALID_ARGUMENT, "figures[%zu]: expected a name and a number", i);
        wk_figures_add(&run->figures, "", name, value);
        run->figures.v[i].validation =
            validation ? json_is_true(validation) : strncmp(name, "val_", strlen("val_")) == 0;
    }
    return PS_OK;
}

static enum ps_code resume_load_numbers(const json_t *from, const char *key, const struct wk_history *h, double *to,
                                        struct ps_error *e)
{
    const json_t *list = json_object_get(from, key);
    const uint64_t n = h->steps, listed = json_array_size(list), before = n - listed;
    if (!json_is_array(list) || listed > n || (listed < n && listed != RESUME_LOSSES))
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected one number per step", key);
    if (before < h->first)
        return ps_fail(e, PS_INVALID_ARGUMENT, "%s: expected at most the newest %" PRIu64 " steps", key, n - h->first);
    for (uint64_t i = 0; i < listed; i++) {
        if (!wk_number_load(json_array_get(list, i), &to[before + i - h->first]))
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s[%" PRIu64 "]: expected a number", key, i);
    }
    return PS_OK;
}

static enum ps_code resume_load_history(struct wk_run *run, const json_t *from, struct ps_error *e)
{
    struct wk_history *h = &run->history;
    wk_losses_free(h);
    wk_losses_extend(h, run->position.step);
    const uint64_t kept = wk_losses_kept(h);
    if (resume_load_numbers(from, "losses", h, h->loss, e) || resume_load_numbers(from, "examples", h, h->examples, e))
        return e->code;
    if (kept && run->env.replica_rank != 0) {  // what they add up to is added up over all
        memset(h->loss, 0, kept * sizeof *h->loss);
        memset(h->examples, 0, kept * sizeof *h->examples);
    }
    h->examples_before = run->env.replica_rank == 0 ? json_number_value(json_object_get(from, "examples_before")) : 0;
    h->total_examples = h->examples_before;
    for (uint64_t i = 0; i < kept; i++)
        h->total_examples += h->examples[i];
    return wk_state_real(from, "train_seconds", &run->train_seconds, e);
}

// The position is one in the order of examples that was drawn from this seed. Files of earlier versions have none.
static void resume_load_seed(struct wk_run *run, const json_t *from)
{
    const json_t *seed = json_object_get(from, "seed");
    if (json_is_integer(seed))
        run->seed = (uint64_t)json_integer_value(seed);
}

static enum ps_code resume_load_position(struct wk_run *run, const json_t *from, struct ps_error *e)
{
    struct wk_position *p = &run->position;
    if (wk_state_count(from, "epoch", &p->epoch, e) || wk_state_count(from, "first", &p->first, e) ||
        wk_state_count(from, "step", &p->step, e))
        return e->code;
    if (p->first > run->env.examples)
        return ps_fail(e, PS_INVALID_ARGUMENT, "first: expected a position in an epoch of %" PRIu64 " examples",
                       run->env.examples);
    if (p->epoch > run->env.job->epochs || (p->epoch == run->env.job->epochs && p->first))
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "it is in epoch %" PRIu64 " of its training, and the job has %" PRIu64
                       ": expected as many epochs or more, or another folder or name",
                       p->epoch + (p->first > 0), run->env.job->epochs);
    resume_load_seed(run, from);
    if (wk_meter_load(&run->meter, nn_replica_measures(run->env.replica), json_object_get(from, "meter"), e))
        return e->code;
    if (run->env.replica_rank != 0)
        wk_meter_reset(&run->meter);
    return PS_OK;
}

// What schedules and the learning rate were chosen for.
static void resume_tell_step(const struct wk_run *run, const struct wk_checkpoint *c)
{
    const uint64_t was = resume_saved_examples_per_step(c), now = resume_examples_per_step(run);
    if (was && was != now && run->env.replica_rank == 0)
        ps_warn("%s: its training took %" PRIu64 " examples a step, this one takes %" PRIu64
                "; the learning rate goes on as it was",
                c->path, was, now);
}

static enum ps_code resume_take(struct wk_run *run, const struct wk_checkpoint *c, struct ps_error *e)
{
    const json_t *from = c->json;
    if (resume_check_job(run, c, e) || resume_load_params(run, c, e))
        return e->code;
    if (resume_load_position(run, from, e) || resume_load_history(run, from, e) ||
        resume_load_figures(run, json_object_get(from, "figures"), e))
        return ps_error_prefix(e, "%.200s", c->path);
    resume_tell_step(run, c);
    const struct wk_position *p = &run->position;
    if (run->strategy->home->load(run->state, c, p->epoch, p->first, p->step, e))
        return e->code;
    return wk_callbacks_load(run->callbacks, c, e);
}

bool wk_resume_reads_shards(const struct ps_job *job)
{
    return job->strategy != PS_STRATEGY_PARAMETER_SERVER;
}

enum ps_code wk_resume_load(struct wk_run *run, struct ps_error *e)
{
    struct wk_checkpoint own = {0};
    resume_describe_job(run);
    if (!run->resume_read && wk_checkpoint_read(&own, run->resume, wk_resume_reads_shards(run->env.job), e))
        return e->code;
    enum ps_code code = resume_take(run, run->resume_read ? run->resume_read : &own, e);
    run->resumed_at = run->saved = run->position.step;
    run->saved_ms = wk_checkpoints_written_ms(run->resume);
    wk_checkpoint_free(&own);
    return code;
}

void wk_resume_take_seed(struct wk_run *run)
{
    struct wk_checkpoint own;
    struct ps_error e;
    // A job that goes on with what the ps tasks have draws from another seed than any of its checkpoints.
    if (!run->resume || run->seed != run->env.job->seed)
        return;
    if (run->resume_read) {
        resume_load_seed(run, run->resume_read->json);
    } else if (wk_checkpoint_read(&own, run->resume, false, &e) == PS_OK) {
        resume_load_seed(run, own.json);
        wk_checkpoint_free(&own);
    }
}

void wk_resume_forget(struct wk_run *run)
{
    if (!run->resume_read)
        return;
    wk_checkpoint_free(run->resume_read);
    *run->resume_read = (struct wk_checkpoint){0};
    run->resume_read = NULL;
}

// All that a training has seen is in the object.
char *wk_resume_describe(const struct wk_checkpoint *c)
{
    char *object = json_dumps(c->json, JSON_COMPACT | JSON_SORT_KEYS);
    char *text =
        ps_printf("step %" JSON_INTEGER_FORMAT ", %016" PRIx64, json_integer_value(json_object_get(c->json, "step")),
                  ps_hash(PS_HASH_SEED, object, strlen(object)));
    free(object);
    return text;
}
