// SPDX-License-Identifier: Apache-2.0
//
// psctl submit: a job for the workers that wait at ps task 0. It is read and checked here, and sent whole: with all
// that --set says, and paths that mean the same on every host that has them.
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/wire/wire.h"
#include "libclient/cluster.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/queue.h"
#include "tools/psctl/submit.h"
#include "workerd/job/objectives.h"

struct submit {
    long priority, workers;  // workers 0: not said
    bool wait;
    struct cli_list sets;
    char *name, *text;     // of the job
    bool alone;            // it is one worker's
    uint32_t min_workers;  // with fewer it ends
};

// The model may lie where workers find it, and this host does not.
static enum ps_code submit_check_model(const struct ps_job *job, struct ps_error *e)
{
    struct wk_objectives o;
    struct nn_model *model = NULL;
    if (access(job->model, R_OK)) {
        fprintf(stderr, "psctl: %s cannot be read here: the model is checked by the workers\n", job->model);
        return PS_OK;
    }
    enum ps_code code = nn_model_load(job->model, &model, e);
    if (code == PS_OK)
        code = wk_objectives_bind(&o, job, model, e);
    nn_model_free(model);
    return code;
}

void submit_look_at_files(const struct ps_job *job)
{
    const char *const reads[] = {job->data.path,   job->data.test_path, job->data.x, job->data.y,
                                 job->data.x_test, job->data.y_test,    job->weights};
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (reads[i] && !strpbrk(reads[i], "*?[") && access(reads[i], R_OK))
            fprintf(stderr, "psctl: %s cannot be read here: the workers look for it\n", reads[i]);
    snprintf(folder, sizeof folder, "%s", job->output);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    if (access(folder, F_OK))
        fprintf(stderr, "psctl: %s, where the output goes, is not here: worker 0 needs it\n", folder);
}

enum ps_code submit_check_workers(uint32_t min_workers, uint32_t workers, const char *option, struct ps_error *e)
{
    if (workers >= min_workers)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "the job needs %" PRIu32 " workers (strategy.min_workers), and is to have %" PRIu32 ": give %s",
                   min_workers, workers, option);
}

enum ps_code submit_load_job(const char *file, const struct cli_list *sets, struct ps_job **job, struct ps_error *e)
{
    if (ps_job_load(file, sets->items, (size_t)sets->n, job, e))
        return e->code;
    const enum ps_code code = submit_check_model(*job, e);
    if (code)
        ps_job_free(*job);
    return code;
}

// Its paths are absolute.
static void submit_take_job(struct submit *s, const struct ps_job *job)
{
    submit_look_at_files(job);
    json_t *json = ps_job_json(job);
    s->text = json_dumps(json, JSON_INDENT(1));
    s->name = ps_strdup(job->name);
    s->alone = !ps_job_needs_ps(job) && !ps_job_needs_peers(job);
    s->min_workers = ps_job_min_workers(job, 1);
    json_decref(json);
}

static enum ps_code submit_read(struct submit *s, const char *file, struct ps_error *e)
{
    char folder[PATH_MAX];
    struct ps_job *job;
    if (!getcwd(folder, sizeof folder))
        return ps_fail(e, PS_NOT_FOUND, "the current directory has no path: expected one that workers find");
    if (submit_load_job(file, &s->sets, &job, e))
        return e->code;
    const enum ps_code code = ps_job_make_absolute(job, folder, e);
    if (code == PS_OK)
        submit_take_job(s, job);
    ps_job_free(job);
    return code;
}

// As said, else as the job is made for one, else as many as the cluster has.
static enum ps_code submit_count_workers(const struct submit *s, const struct cluster *c, uint32_t *workers,
                                         struct ps_error *e)
{
    const size_t listed = c->spec->is.workers;
    *workers = s->workers ? (uint32_t)s->workers : s->alone ? 1 : (uint32_t)listed;
    if (!*workers)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the cluster lists no workers: give --workers N");
    if (listed && *workers > listed)
        return ps_fail(e, PS_FAILED_PRECONDITION, "the job is for %" PRIu32 " workers, and the cluster has %zu",
                       *workers, listed);
    if (s->alone && *workers > 1)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "the job's strategy is for one worker: expected --workers 1, not %" PRIu32, *workers);
    return submit_check_workers(s->min_workers, *workers, "--workers", e);
}

static enum ps_code submit_send(const struct submit *s, struct cluster *c, uint64_t *number, struct ps_error *e)
{
    Paramserver__V1__SubmitRequest request = PARAMSERVER__V1__SUBMIT_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (cluster_check(c, e) || submit_count_workers(s, c, &request.workers, e))
        return e->code;
    request.job = s->name;
    request.text = s->text;
    request.priority = (int32_t)s->priority;
    if (cluster_ask_one(c, 0, PARAMSERVER__V1__METHOD__SUBMIT, &request.base,
                        &paramserver__v1__submit_reply__descriptor, &reply, e))
        return e->code;
    *number = ((const Paramserver__V1__SubmitReply *)reply)->number;
    ps_msg_free(reply);
    return PS_OK;
}

static int submit_run(const struct submit *s, struct call *call)
{
    struct cluster c;
    struct ps_error e;
    uint64_t number = 0;
    char text[24];
    if (cluster_open(&c, &call->target, NULL, &e))
        return call_report(&e);
    int exit_code = submit_send(s, &c, &number, &e) ? call_report(&e) : 0;
    snprintf(text, sizeof text, "%" PRIu64, number);
    if (number && call->target.json)
        printf("{\"number\": %" PRIu64 "}\n", number);
    else if (number)
        printf("job %" PRIu64 " '%s' is queued\n", number, s->name);
    fflush(stdout);
    if (number && s->wait)
        exit_code = queue_show_output(&c, text, true);
    cluster_close(&c);
    return exit_code;
}

int command_submit(struct call *call)
{
    struct submit s = {0};
    const struct cli_option options[] = {TARGET_OPTIONS(&call->target),
                                         {.name = "set", .list = &s.sets},
                                         {.name = "priority", .number = &s.priority, .min = -1000, .max = 1000},
                                         {.name = "workers", .number = &s.workers, .min = 1, .max = PS_MAX_WORKERS},
                                         {.name = "wait", .flag = &s.wait}};
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    exit_code = submit_read(&s, call->argv[0], &e) ? call_report(&e) : submit_run(&s, call);
    free(s.sets.items);
    free(s.name);
    free(s.text);
    return exit_code;
}
