// SPDX-License-Identifier: Apache-2.0
//
// workerd: trains one replica of a job and exits. 0: done; else why, on stderr and as the exit code.
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/clock.h"
#include "common/job.h"
#include "common/log.h"
#include "config.h"
#include "libclient/psclient.h"
#include "workerd/job/loop.h"
#include "workerd/job/summary.h"

static const char help[] = "Usage: workerd --job FILE [OPTION...]\n"
                           "Trains one replica of a job.\n"
                           "\n"
                           "  -j, --job FILE           the job file (YAML)\n"
                           "  -s, --set KEY=VALUE      overrides a key of the job file; may be repeated\n"
                           "  -c, --cluster FILE       the cluster file: addresses of the ps tasks, workers\n"
                           "  -p, --ps A,B,C           the same, on the command line\n"
                           "  -r, --rank I             this worker's rank, from 0; default 0\n"
                           "  -w, --workers M          workers of the job; default: the cluster file's, or 1\n"
                           "  -m, --min-workers K      with fewer live workers the job ends; default: the job file's\n"
                           "  -S, --summary FILE       where the chief writes how it went (JSON)\n"
                           "  -q, --quiet              no progress on standard output\n"
                           "  -h, --help               this text\n"
                           "  -V, --version            the version\n"
                           "\n"
                           "Exit: 0 done; 64 usage; 65 bad input; 66 no such file; 69 a ps task cannot be\n"
                           "reached; 73 job or rank taken; 75 the job has ended early; 78 configuration;\n"
                           "128 + N stopped by signal N.\n";

struct options {
    const char *job, *cluster, *summary;
    char *ps;
    const char **sets;
    int n_sets;
    long rank, workers, min_workers;
    bool quiet;
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    stop = number;
}

static long number_of(const char *option, const char *text, long least)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end || n < least || n > 4096) {
        fprintf(stderr, "workerd: --%s %s: expected a number from %ld to 4096\n", option, text, least);
        exit(PS_EXIT_USAGE);
    }
    return n;
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"job", 1, NULL, 'j'},   {"set", 1, NULL, 's'},     {"cluster", 1, NULL, 'c'},     {"ps", 1, NULL, 'p'},
        {"rank", 1, NULL, 'r'},  {"workers", 1, NULL, 'w'}, {"min-workers", 1, NULL, 'm'}, {"summary", 1, NULL, 'S'},
        {"quiet", 0, NULL, 'q'}, {"help", 0, NULL, 'h'},    {"version", 0, NULL, 'V'},     {NULL, 0, NULL, 0}};
    struct options o = {.sets = ps_alloc((size_t)argc * sizeof(char *))};
    int c;
    while ((c = getopt_long(argc, argv, "j:s:c:p:r:w:m:S:qhV", known, NULL)) != -1) {
        switch (c) {
        case 'j':
            o.job = optarg;
            break;
        case 's':
            o.sets[o.n_sets++] = optarg;
            break;
        case 'c':
            o.cluster = optarg;
            break;
        case 'p':
            o.ps = ps_strdup(optarg);
            break;
        case 'r':
            o.rank = number_of("rank", optarg, 0);
            break;
        case 'w':
            o.workers = number_of("workers", optarg, 1);
            break;
        case 'm':
            o.min_workers = number_of("min-workers", optarg, 1);
            break;
        case 'S':
            o.summary = optarg;
            break;
        case 'q':
            o.quiet = true;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        case 'V':
            puts("workerd " PACKAGE_VERSION);
            exit(0);
        default:
            fputs("workerd: see workerd --help\n", stderr);
            exit(PS_EXIT_USAGE);
        }
    }
    if (!o.job || optind < argc) {
        fprintf(stderr, "workerd: %s; see workerd --help\n",
                o.job ? "arguments other than options are not taken" : "--job FILE is needed");
        exit(PS_EXIT_USAGE);
    }
    return o;
}

// ---- what the run stands on, in order -----------------------------------------------------------------------------

// The ps tasks' addresses, from --ps or --cluster, into run->env.
static enum ps_code find_cluster(struct wk_run *run, const struct options *o, psc_cluster **cluster, struct ps_error *e)
{
    psc_error error;
    const char **ps = NULL;
    if (run->strategy != &wk_parameter_server)
        return PS_OK;
    if (o->cluster) {
        if (psc_cluster_load(o->cluster, cluster, &error))
            return ps_fail(e, (enum ps_code)error.code, "%s", error.text);
        run->env.n_ps = psc_cluster_tasks(*cluster);
        ps = ps_alloc(run->env.n_ps * sizeof *ps);
        for (size_t i = 0; i < run->env.n_ps; i++)
            ps[i] = psc_cluster_address(*cluster, i);
        if (!o->workers && psc_cluster_workers(*cluster))
            run->env.workers = (uint32_t)psc_cluster_workers(*cluster);
    } else if (o->ps) {
        for (char *at = o->ps, *one; (one = strtok_r(at, ",", &at));) {
            ps = ps_realloc(ps, (run->env.n_ps + 1) * sizeof *ps);
            ps[run->env.n_ps++] = one;
        }
    } else {
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "%s: strategy parameter_server needs ps tasks: --cluster FILE or --ps A,B,C", o->job);
    }
    run->env.ps = ps;
    if (run->env.rank >= run->env.workers)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "--rank %" PRIu32 " of %" PRIu32 " workers: expected one below the number", run->env.rank,
                       run->env.workers);
    return PS_OK;
}

static enum ps_code open_data(struct wk_run *run, const struct nn_loss *loss, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    const struct ps_job_data *d = &job->data;
    struct wk_data_spec spec = {.kind = (enum wk_data_kind)d->kind,
                                .path = d->path,
                                .test_path = d->test_path,
                                .x = d->x,
                                .y = d->y,
                                .x_test = d->x_test,
                                .y_test = d->y_test,
                                .train_examples = d->train_examples,
                                .test_examples = d->test_examples,
                                .seed = job->seed,
                                .labels = loss->kind == NN_SPARSE_XENT};
    if (wk_data_open(&spec, &run->data, e) || wk_data_check(run->data, run->env.model, loss, e))
        return e->code;
    run->env.examples = wk_data_train(run->data)->examples;
    return PS_OK;
}

static enum ps_code prepare(struct wk_run *run, const struct options *o, psc_cluster **cluster, struct ps_job *job,
                            struct nn_model **model, struct ps_error *e)
{
    struct nn_loss loss = {job->loss == PS_LOSS_MSE ? NN_MSE : NN_SPARSE_XENT, job->from_logits};
    run->env.job = job;
    run->env.stop = run->stop;
    run->env.rank = (uint32_t)o->rank;
    run->env.workers = o->workers ? (uint32_t)o->workers : 1;
    run->env.min_workers = (uint32_t)(o->min_workers ? o->min_workers : job->min_workers);
    run->strategy = job->strategy == PS_STRATEGY_ONE_DEVICE ? &wk_one_device : &wk_parameter_server;
    if (find_cluster(run, o, cluster, e) || nn_model_load(job->model, model, e) ||
        nn_model_check_loss(*model, &loss, e))
        return e->code;
    run->env.model = *model;
    if (open_data(run, &loss, e) ||
        nn_replica_create(*model, job->device, job->batch_size, job->threads, job->seed, &loss, &run->env.replica, e))
        return e->code;
    return run->strategy->open(&run->env, &run->state, e);
}

static enum ps_code conclude(struct wk_run *run, const struct options *o, struct ps_error *e)
{
    if (!run->chief)
        return PS_OK;
    if (wk_save_weights(run, e) || (o->summary && wk_save_summary(run, o->summary, e)))
        return e->code;
    return PS_OK;
}

static enum ps_code work(struct wk_run *run, const struct options *o, struct ps_error *e)
{
    psc_cluster *cluster = NULL;
    struct nn_model *model = NULL;
    struct ps_job *job = NULL;
    enum ps_code code = ps_job_load(o->job, o->sets, (size_t)o->n_sets, &job, e);
    if (code == PS_OK)
        code = prepare(run, o, &cluster, job, &model, e);
    if (code == PS_OK)
        code = wk_loop(run, e);
    if (code == PS_OK && run->drained)
        ps_info("leaves: it was asked to, and the others train the rest");
    if (code == PS_OK)
        code = conclude(run, o, e);
    if (run->state)
        run->strategy->close(run->state, code ? e->text : NULL);
    wk_run_free(run);
    nn_replica_free(run->env.replica);
    wk_data_free(run->data);
    nn_model_free(model);
    free((void *)run->env.ps);
    psc_cluster_free(cluster);
    ps_job_free(job);
    return code;
}

// psctl run says when it began, so that seconds_to_first_step is what its user waited.
static uint64_t started_at(void)
{
    const char *text = getenv("PS_STARTED_NS");
    uint64_t now = ps_now(), began = text ? strtoull(text, NULL, 10) : now;
    return began && began < now ? began : now;
}

int main(int argc, char **argv)
{
    char name[32];
    struct ps_error e = {0};
    struct wk_run run = {.started = started_at(), .stop = &stop};
    ps_alloc_tune();
    struct options o = parse(argc, argv);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    snprintf(name, sizeof name, "workerd[%ld]", o.rank);
    ps_log_init(name, PS_LOG_INFO);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    run.quiet = o.quiet || o.rank != 0;
    enum ps_code code = work(&run, &o, &e);
    if (code != PS_OK)
        ps_error_log("%s", e.text);
    free(o.sets);
    free(o.ps);
    return code == PS_CANCELLED && stop ? 128 + stop : ps_code_exit(code);
}
