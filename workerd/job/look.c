// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/look.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "workerd/job/evaluate.h"
#include "workerd/job/objectives.h"

bool wk_look_is_wanted(const struct wk_look *look)
{
    return look->model || look->evaluate || look->predict;
}

// Who wants to see a model need not have a loss that fits it.
static void look_print_memory(const struct ps_job *job, const struct nn_model *model)
{
    struct wk_objectives o;
    struct nn_replica *r = NULL;
    struct ps_error e = {0};
    if (wk_objectives_bind(&o, job, model, &e) ||
        nn_replica_create(model, job->device, job->batch_size, job->threads, job->seed, o.loss, &r, &e))
        return;
    printf("Memory of a step of %d rows: %.2f MiB between layers\n", job->batch_size,
           (double)nn_replica_arena(r) / (1 << 20));
    nn_replica_free(r);
}

void wk_look_at_model(const struct ps_job *job, const struct nn_model *model)
{
    char *text = nn_model_summary(model);
    fputs(text, stdout);
    free(text);
    look_print_memory(job, model);
}

static const char *look_name(const struct wk_figure *v)
{
    return v->name + strlen("val_");
}

static void look_print_json(const struct wk_run *run, const char *weights)
{
    json_t *all =
        json_pack("{s:s, s:I}", "weights", weights, "examples", (json_int_t)wk_data_test(run->data)->examples);
    for (size_t i = 0; i < run->figures.n; i++) {
        double x = run->figures.v[i].value;
        json_object_set_new(all, look_name(&run->figures.v[i]), isfinite(x) ? json_real(x) : json_null());
    }
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(all);
}

static void look_print(const struct wk_run *run, const char *weights)
{
    printf("%s: %" PRIu64 " examples", weights, wk_data_test(run->data)->examples);
    char text[WK_FIGURE_TEXT];
    for (size_t i = 0; i < run->figures.n; i++)
        printf(" - %s: %s", look_name(&run->figures.v[i]), wk_figure_text(run->figures.v[i].value, text));
    putchar('\n');
}

static enum ps_code look_evaluate(struct wk_run *run, const struct wk_look *look, const char *weights,
                                  struct ps_error *e)
{
    if (wk_data_test(run->data)->examples == 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the job's data have no test split, which is what is evaluated");
    if (wk_evaluate(run, e))
        return e->code;
    if (look->json)
        look_print_json(run, weights);
    else
        look_print(run, weights);
    return PS_OK;
}

// Before the job has written any, those that come with a .keras file.
static const char *look_weights(const struct wk_run *run)
{
    const struct ps_job *job = run->env.job;
    if (job->weights)
        return job->weights;
    return nn_model_metadata(run->env.model) && access(job->output, F_OK) ? job->model : job->output;
}

// Who has trained a job that begins with weights, and looks at it, may mean what it has written.
static void look_warn_of_newer(const struct ps_job *job)
{
    struct stat read, written;
    if (job->weights && strcmp(job->weights, job->output) != 0 && stat(job->weights, &read) == 0 &&
        stat(job->output, &written) == 0 && S_ISREG(written.st_mode) && written.st_mtime > read.st_mtime)
        ps_warn("these are the weights that the job begins with; %s, which it has written, is newer: "
                "--set weights=%s looks at that",
                job->output, job->output);
}

static void look_say_where(const struct wk_run *run, const struct wk_look *look, const char *weights)
{
    FILE *to = look->json ? stderr : stdout;
    fprintf(to, "%s: predictions of %" PRIu64 " examples written to ", weights, wk_data_test(run->data)->examples);
    for (size_t k = 0; k < nn_model_outputs(run->env.model); k++) {
        char *path = wk_predict_path(run, look->predict, k);
        fprintf(to, "%s%s", k ? ", " : "", path);
        free(path);
    }
    fputc('\n', to);
}

enum ps_code wk_look_at_weights(struct wk_run *run, const struct wk_look *look, struct ps_error *e)
{
    const char *weights = look_weights(run);
    look_warn_of_newer(run->env.job);
    if (wk_load_weights(&run->env, weights, e))
        return e->code;
    if (look->evaluate && look_evaluate(run, look, weights, e))
        return e->code;
    if (!look->predict || wk_predict(run, look->predict, e))
        return look->predict ? e->code : PS_OK;
    look_say_where(run, look, weights);
    return PS_OK;
}
