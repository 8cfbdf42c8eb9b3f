// SPDX-License-Identifier: Apache-2.0
//
// A job file becomes a job in four steps: the tree is read and assignments laid over it; keys that no field has are
// refused; every field takes its value or default (field.h); what no field can know alone is checked (together.h).
#include "common/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "common/file/output.h"
#include "common/file/yaml.h"
#include "common/job/field.h"
#include "common/job/hypers.h"
#include "common/job/optimizer.h"
#include "common/job/together.h"

// ---- from a file --------------------------------------------------------------------------------------------------

// The name goes into file names and onto the wire.
static enum ps_code job_take_name(const struct ps_yaml *root, const char *path, struct ps_job *job, struct ps_error *e)
{
    const struct ps_yaml *v = ps_yaml_find(root, "name");
    const char *base = ps_file_name(path), *dot = strrchr(base, '.');
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

static enum ps_code job_take_all(const struct ps_yaml *root, const char *path, struct ps_job *job, struct ps_error *e)
{
    enum ps_code code = ps_job_check_rate(root, e);
    for (size_t i = 0; i < ps_job_n_fields && code == PS_OK; i++)
        code = ps_job_field_take(&ps_job_fields[i], root, job, e);
    if (code == PS_OK)
        code = ps_job_take_optimizer(root, job, e);
    if (code == PS_OK)
        code = ps_job_take_outer_optimizer(root, job, e);
    if (code == PS_OK)
        code = job_take_name(root, path, job, e);
    if (code == PS_OK)
        code = ps_job_check_together(root, job, e);
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
        code = ps_job_check_keys(root, "", e);
    if (code == PS_OK)
        code = job_take_all(root, path, j, e);
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

// ---- questions ----------------------------------------------------------------------------------------------------

// Two of them in one file would be what was written last, and the other one would be lost.
static enum ps_code job_check_apart(const struct ps_job *job, const char *summary, const char *timeline,
                                    struct ps_error *e)
{
    const char *const path[] = {job->output, summary, timeline};
    static const char *const what[] = {"output", "--summary", "--timeline"};
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        const char *callback = path[i] ? ps_callbacks_writer(&job->callbacks, path[i]) : NULL;
        if (callback)
            return ps_fail(e, PS_INVALID_ARGUMENT, "callback %s writes to %.256s, as %s: expected another path",
                           callback, path[i], what[i]);
        for (size_t k = 0; k < i; k++)
            if (path[i] && path[k] && ps_output_same(path[i], path[k]))
                return ps_fail(e, PS_INVALID_ARGUMENT, "%s writes to %.256s, as %s: expected another path", what[i],
                               path[i], what[k]);
    }
    return PS_OK;
}

enum ps_code ps_job_check_files(const struct ps_job *job, const char *summary, const char *timeline, struct ps_error *e)
{
    if (job->weights && access(job->weights, R_OK) != 0)
        return ps_fail(e, ps_code_of_file(errno), "%s cannot be read: %s", job->weights, strerror(errno));
    if (ps_output_check(job->output, e) || (summary && ps_output_check(summary, e)))
        return e->code;
    return job_check_apart(job, summary, timeline, e);
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

// ---- the whole job ------------------------------------------------------------------------------------------------

void ps_job_free(struct ps_job *job)
{
    if (!job)
        return;
    for (EACH_FIELD(f))
        if (f->type == STRING || f->type == PATH || f->type == WORD)
            free(*(char **)ps_job_field_in(job, f));
    ps_job_columns_free(&job->data.columns);
    ps_job_ports_free(&job->data.inputs);
    ps_job_ports_free(&job->data.outputs);
    ps_job_port_free(&job->data.label);
    ps_class_weights_free(&job->class_weight);
    ps_callbacks_free(&job->callbacks);
    ps_job_devices_free(&job->devices);
    free(job);
}

// *wrong: the path, where it is not UTF-8.
static void job_make_path_absolute(char **path, const char *folder, const char **wrong)
{
    char *relative = *path;
    if (!relative)
        return;
    if (relative[0] != '/') {
        *path = ps_printf("%s/%s", folder, relative);
        free(relative);
    }
    if (!ps_utf8_valid(*path))
        *wrong = *path;
}

enum ps_code ps_job_make_absolute(struct ps_job *job, const char *folder, struct ps_error *e)
{
    const char *wrong = NULL;
    char **path;
    for (EACH_FIELD(f))
        if (f->type == PATH)
            job_make_path_absolute(ps_job_field_in(job, f), folder, &wrong);
    for (size_t i = 0; (path = ps_callbacks_path(&job->callbacks, i)); i++)
        job_make_path_absolute(path, folder, &wrong);
    for (size_t i = 0; i < job->data.columns.n; i++)
        job_make_path_absolute(&job->data.columns.of[i].vocabulary, folder, &wrong);
    return wrong ? ps_fail(e, PS_INVALID_ARGUMENT, "the path %s is not UTF-8: expected one that a job can hold", wrong)
                 : PS_OK;
}
