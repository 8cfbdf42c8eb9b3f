// SPDX-License-Identifier: Apache-2.0
//
// workerd: trains a worker's replicas of a job and exits. 0: done; else why, on stderr and as the exit code. Without a
// job it waits for those of the queue, until a signal ends it.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/option.h"
#include "common/base/signals.h"
#include "common/file/output.h"
#include "common/job/job.h"
#include "config.h"
#include "workerd/agent/agent.h"
#include "workerd/http/http.h"
#include "workerd/job/build.h"
#include "workerd/job/checkpoints.h"
#include "workerd/job/folders.h"
#include "workerd/job/look.h"
#include "workerd/job/objectives.h"
#include "workerd/job/place.h"
#include "workerd/job/profile.h"
#include "workerd/job/recovery.h"
#include "workerd/job/replicas.h"
#include "workerd/job/resume.h"
#include "workerd/job/supported.h"
#include "workerd/job/timeline.h"
#include "workerd/nn/device.h"
#include "workerd/weights/weights.h"

static const char help[] = "Usage: workerd [--job FILE] [OPTION...]: trains a worker's replicas of a job.\n"
                           "\n"
                           "  -j, --job FILE         the job file (YAML); without it, jobs of psctl submit\n"
                           "  -s, --set KEY=VALUE    overrides a key of the job file; may be repeated\n"
                           "  -c, --cluster FILE     addresses of the ps tasks, workers; default: TF_CONFIG\n"
                           "  -p, --ps A,B,C         the same, on the command line\n"
                           "  -r, --rank I           this worker's rank, from 0; default: TF_CONFIG's, or 0\n"
                           "  -w, --workers M        workers of the job; default: the cluster's, or 1\n"
                           "  -m, --min-workers K    with fewer live workers the job ends\n"
                           "      --tls FOLDER       certificates (the cluster's); or --munge, --insecure\n"
                           "      --http ADDRESS     metrics for Prometheus and health, at this host:port\n"
                           "  -R, --resume           goes on from the job's newest checkpoint\n"
                           "  -S, --summary FILE     where the chief writes how it went (JSON)\n"
                           "  -q, --quiet            no progress on standard output\n"
                           "      --evaluate         no training: how good are the weights? --json: as JSON\n"
                           "      --predict OUT.npy  no training: what the model says of the test split\n"
                           "      --timeline FILE    what takes how long, as a Chrome trace, for Perfetto\n"
                           "      --profile          some steps: where their time goes. --json: as JSON\n"
                           "      --show-model, --layers, --list-devices, --check-build  what there is\n"
                           "  -h, --help; -V, --version\n"
                           "\n"
                           "Exit: 0 done; 64 usage; 65 bad input; 66 no such file; 69 no ps task; 70 defect;\n"
                           "73 job or rank taken, file not created; 74 file not written; 75 job ended early;\n"
                           "78 configuration; 79 stopped by psctl; 128 + N signal N.\n";

enum {
    READY_FD = 256,
    EVALUATE,
    JSON,
    PREDICT,
    INSECURE,
    TLS,
    MUNGE,
    HTTP,
    PROFILE,
    TIMELINE,
    SHOW_MODEL,
    LIST_DEVICES,
    LAYERS,
    CHECK_BUILD
};

struct options {
    const char *job, *cluster, *tls, *summary, *timeline, *http;
    char *ps;
    const char **sets;
    int n_sets;
    long rank;                  // -1: not said
    long workers, min_workers;  // 0: not said
    long ready_fd;              // -1: none
    bool quiet, resume, profile, munge, insecure;
    struct wk_look look;  // instead of training
};

static volatile sig_atomic_t stop, begun, checkpoint_signals;

// Until the training has begun there is nothing to leave in order.
static void workerd_on_signal(int number)
{
    if (!begun)
        _exit(128 + number);
    ps_signal_set(&stop, number);
}

static void workerd_on_checkpoint_signal(int number)
{
    (void)number;
    ps_signal_count(&checkpoint_signals);
}

// A second SIGINT ends it at once, as one who waits at a terminal expects. A second SIGTERM changes nothing: Slurm
// sends two within a moment.
// On a stack of its own: oneDNN's kernels use the stack pointer as they use any other register, and a signal's frame
// would be written over whatever that points to. It is for the main thread, which the kernel prefers to all others.
static void workerd_catch_signals(void)
{
    static char stack[64 << 10];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = workerd_on_signal, .sa_flags = SA_ONSTACK};
    sigaltstack(&own, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction asked = action;
    asked.sa_flags |= SA_RESTART;  // what is written meanwhile goes on
    asked.sa_handler = workerd_on_checkpoint_signal;
    sigaction(SIGUSR1, &asked, NULL);
    action.sa_flags |= SA_RESETHAND;
    sigaction(SIGINT, &action, NULL);
}

static long number_of(const char *option, const char *text, long least, long most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end || n < least || n > most) {
        fprintf(stderr, "workerd: --%s %s: expected a number from %ld to %ld\n", option, text, least, most);
        exit(PS_EXIT_USAGE);
    }
    return n;
}

static const struct option known_options[] = {{"job", 1, NULL, 'j'},
                                              {"set", 1, NULL, 's'},
                                              {"cluster", 1, NULL, 'c'},
                                              {"ps", 1, NULL, 'p'},
                                              {"rank", 1, NULL, 'r'},
                                              {"workers", 1, NULL, 'w'},
                                              {"min-workers", 1, NULL, 'm'},
                                              {"summary", 1, NULL, 'S'},
                                              {"ready-fd", 1, NULL, READY_FD},
                                              {"resume", 0, NULL, 'R'},
                                              {"quiet", 0, NULL, 'q'},
                                              {"tls", 1, NULL, TLS},
                                              {"munge", 0, NULL, MUNGE},
                                              {"insecure", 0, NULL, INSECURE},
                                              {"evaluate", 0, NULL, EVALUATE},
                                              {"json", 0, NULL, JSON},
                                              {"predict", 1, NULL, PREDICT},
                                              {"http", 1, NULL, HTTP},
                                              {"profile", 0, NULL, PROFILE},
                                              {"timeline", 1, NULL, TIMELINE},
                                              {"show-model", 0, NULL, SHOW_MODEL},
                                              {"list-devices", 0, NULL, LIST_DEVICES},
                                              {"layers", 0, NULL, LAYERS},
                                              {"check-build", 0, NULL, CHECK_BUILD},
                                              {"help", 0, NULL, 'h'},
                                              {"version", 0, NULL, 'V'},
                                              {NULL, 0, NULL, 0}};

static void workerd_list_devices(void)
{
    const struct nn_device *device;
    struct ps_error e = {PS_OK, ""};
    char text[256];
    int index;
    for (size_t i = 0; (device = nn_device_at(i)); i++) {
        device->describe(text, sizeof text);
        printf("%-5s %s\n", device->name, text);
    }
    if (nn_device_find("gpu", &device, &index, &e) == PS_OK)
        device->describe(text, sizeof text);
    printf("%-5s %s\n", "gpu", e.code ? e.text : text);
}

// One of those that look at a model, or do not even that.
static void workerd_take_look(struct options *o, char **argv, int option)
{
    switch (option) {
    case EVALUATE:
        o->look.evaluate = true;
        break;
    case JSON:
        o->look.json = true;
        break;
    case PREDICT:
        o->look.predict = optarg;
        break;
    case SHOW_MODEL:
        o->look.model = true;
        break;
    case LAYERS:
        wk_print_supported();
        exit(ps_output_end_stdout("workerd", 0));
    case CHECK_BUILD:
        wk_print_build();
        exit(ps_output_end_stdout("workerd", 0));
    case LIST_DEVICES:
        workerd_list_devices();
        exit(ps_output_end_stdout("workerd", 0));
    case 'h':
        fputs(help, stdout);
        exit(ps_output_end_stdout("workerd", 0));
    case 'V':
        puts("workerd " PACKAGE_VERSION);
        exit(ps_output_end_stdout("workerd", 0));
    default:
        ps_option_say_wrong("workerd", option, argv, known_options);
        exit(PS_EXIT_USAGE);
    }
}

// One option, whose value is optarg.
static void workerd_take_option(struct options *o, char **argv, int option)
{
    switch (option) {
    case 'j':
        o->job = *optarg ? optarg : NULL;
        break;
    case 's':
        o->sets[o->n_sets++] = optarg;
        break;
    case 'c':
        o->cluster = optarg;
        break;
    case 'p':
        free(o->ps);
        o->ps = ps_strdup(optarg);
        break;
    case 'r':
        o->rank = number_of("rank", optarg, 0, PS_MAX_WORKERS - 1);
        break;
    case 'w':
        o->workers = number_of("workers", optarg, 1, PS_MAX_WORKERS);
        break;
    case 'm':
        o->min_workers = number_of("min-workers", optarg, 1, PS_MAX_WORKERS);
        break;
    case 'S':
        o->summary = optarg;
        break;
    case READY_FD:
        o->ready_fd = number_of("ready-fd", optarg, 0, 65535);
        break;
    case 'R':
        o->resume = true;
        break;
    case 'q':
        o->quiet = true;
        break;
    case TLS:
        o->tls = optarg;
        break;
    case MUNGE:
        o->munge = true;
        break;
    case INSECURE:
        o->insecure = true;
        break;
    case HTTP:
        o->http = optarg;
        break;
    case PROFILE:
        o->profile = o->quiet = true;
        break;
    case TIMELINE:
        o->timeline = optarg;
        break;
    default:
        workerd_take_look(o, argv, option);
    }
}

// Without a job: is it said where to wait for one?
static bool workerd_may_wait(const struct options *o)
{
    return (o->cluster || o->ps || getenv("TF_CONFIG")) && !o->profile && !o->timeline && o->ready_fd < 0 &&
           !wk_look_is_wanted(&o->look);
}

// Which of them go together.
static void workerd_check_options(const struct options *o)
{
    const char *why = NULL;
    if (!o->job && !workerd_may_wait(o))
        why = "--job FILE is needed, or to wait for a job --cluster FILE or --ps A,B,C; see workerd --help";
    else if (o->ps && o->cluster)
        why = "--ps and --cluster both say where the ps tasks are: expected one of them";
    else if (o->resume && wk_look_is_wanted(&o->look))
        why = "--resume is of a training, which --evaluate, --predict and --show-model are not";
    else if (o->timeline && (o->profile || wk_look_is_wanted(&o->look)))
        why = "--timeline is of a training, which --profile, --evaluate, --predict and --show-model are not";
    else if (o->http && (o->profile || wk_look_is_wanted(&o->look)))
        why = "--http is of a training, which --profile, --evaluate, --predict and --show-model are not";
    else if (o->profile && (o->resume || wk_look_is_wanted(&o->look)))
        why = "--profile does not go with --resume, --evaluate, --predict or --show-model";
    else if (o->look.json && !o->look.evaluate && !o->profile)
        why = "--json goes with --evaluate or --profile alone";
    if (!why)
        return;
    fprintf(stderr, "workerd: %s\n", why);
    exit(PS_EXIT_USAGE);
}

static struct options workerd_parse_options(int argc, char **argv)
{
    struct options o = {.sets = ps_alloc((size_t)argc * sizeof(char *)), .rank = -1, .ready_fd = -1};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":j:s:c:p:r:w:m:RS:qhV", known_options, NULL)) != -1)
        workerd_take_option(&o, argv, option);
    if (optind < argc) {
        fputs("workerd: arguments other than options are not taken; see workerd --help\n", stderr);
        exit(PS_EXIT_USAGE);
    }
    workerd_check_options(&o);
    return o;
}

// ---- what the run stands on, in order -----------------------------------------------------------------------------

// Sets the log's name, and whether progress is shown.
static void take_place(struct wk_run *run, const struct options *o)
{
    char name[32];
    snprintf(name, sizeof name, "workerd[%" PRIu32 "]", run->env.rank);
    ps_log_init(name, PS_LOG_INFO);
    run->quiet = o->quiet;
}

static enum ps_code open_data(struct wk_run *run, const struct ps_loss *loss, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    if (wk_data_open(&job->data, run->env.model, job->seed, &run->data, e) ||
        wk_data_bind(run->data, run->env.model, loss, e))
        return e->code;
    run->env.examples = wk_data_train(run->data)->examples;
    return PS_OK;
}

// The model and the data.
static enum ps_code workerd_build(struct wk_run *run, struct nn_model **model, struct ps_error *e)
{
    const struct ps_job *job = run->env.job;
    struct wk_objectives o;
    if (nn_model_load(job->model, model, e) || wk_objectives_bind(&o, job, *model, e))
        return e->code;
    run->env.model = *model;
    return open_data(run, o.loss, e);
}

// Those that are lost are set aside at once: a worker that dies now is to find the same one when it is there again.
// Where nothing is left, they all stay as they were: what they lack may be had another time, as with a disk that is not
// mounted.
static enum ps_code workerd_search(struct wk_run *run, const struct ps_job *job, const struct options *o,
                                   struct wk_found *found, struct ps_error *e)
{
    enum ps_code code = wk_checkpoints_find(job, !o->resume, run->lost, found, e);
    if (wk_checkpoints_passes_over(code) && wk_lost_put_back(run->lost)) {
        wk_found_free(found);
        code = wk_checkpoints_find(job, !o->resume, run->lost, found, e);
    }
    if (found->path)
        wk_lost_set_aside(run->lost, found->path);
    return code;
}

// Where the training goes on: with --resume the newest checkpoint, without it a backup's.
static enum ps_code workerd_find_checkpoint(struct wk_run *run, const struct ps_job *job, const struct options *o,
                                            struct wk_found *found, struct ps_error *e)
{
    size_t folders;
    if (o->profile)
        return PS_OK;  // it trains from the beginning
    if (workerd_search(run, job, o, found, e))
        return e->code;
    run->resume = found->path;
    run->resume_read = found->path ? &found->read : NULL;
    if (o->resume && ps_job_check_resume(job, o->job, e))
        return e->code;
    run->env.checkpoint = found->words;
    if (found->path)
        ps_info("goes on from %s", found->path);
    else if (ps_job_goes_on(job, o->resume))
        ps_info("there is no %s of job '%s' in %s%s yet: begins anew", o->resume ? "checkpoint" : "backup", job->name,
                wk_checkpoints_folder(job, !o->resume, &folders),
                folders > 1 ? ", nor in the other callbacks' folders," : "");
    return PS_OK;
}

static enum ps_code workerd_prepare(struct wk_run *run, struct nn_model **model, struct ps_error *e)
{
    // Rank 0 is who writes the results, unless it dies.
    const struct ps_job *job = run->env.job;
    if (run->env.rank == 0 && (ps_job_check_files(job, run->summary, e) || wk_weights_check_output(job->output, e) ||
                               (run->folders && wk_folders_take(run->folders, job, e))))
        return e->code;
    if (run->timeline && ps_output_check(run->timeline, e))
        return e->code;
    if (workerd_build(run, model, e) || wk_timeline_open(run, e))
        return e->code;
    begun = true;
    return PS_OK;
}

// Others come to the same end within a moment, and may have heard a signal that comes here, too. Returns the code of
// what was done meanwhile, or that of a signal.
static enum ps_code workerd_await_others(uint64_t until, enum ps_code code, struct ps_error *e)
{
    const uint64_t now = ps_now(), left = now < until ? until - now : 0;
    if (left && !ps_signal_number(&stop))
        nanosleep(&(struct timespec){(time_t)(left / PS_SECOND), (long)(left % PS_SECOND)}, NULL);
    if (until && ps_signal_number(&stop))
        return ps_fail(e, PS_CANCELLED, "stopped by %s", ps_signal_name(ps_signal_number(&stop)));
    return code;
}

struct training {
    uint64_t not_before;  // ps_now: it joins the job no sooner
    struct options *o;
    const struct wk_run *run;
    struct wk_ended *ended;
    bool shown;  // this worker speaks of itself; rank 0 shows its progress
};

static enum ps_code training_made(void *arg, struct ps_error *e)
{
    const struct training *t = arg;
    return workerd_await_others(t->not_before, PS_OK, e);
}

static void training_opened(void *arg)
{
    struct training *t = arg;
    if (t->o->ready_fd >= 0) {
        dprintf((int)t->o->ready_fd, "READY\n");
        close((int)t->o->ready_fd);
        t->o->ready_fd = -1;
    }
    t->ended->opened = true;
    wk_metrics_trains(t->run->metrics);
    t->shown = !t->o->quiet && t->run->env.rank != 0;
    if (t->shown)
        ps_info("joined job '%s' as worker %" PRIu32 " of %" PRIu32, t->run->env.job->name, t->run->env.rank,
                t->run->env.workers);
}

static enum ps_code training_work(struct wk_run *run, void *arg, struct ps_error *e)
{
    const struct training *t = arg;
    return t->o->profile ? wk_profile(run, t->o->look.json, e) : wk_loop(run, e);
}

// By the number of replicas, which stays that of the start.
static enum ps_code workerd_scale_rate(const struct wk_run *run, struct ps_job *job, struct ps_error *e)
{
    const uint32_t replicas = run->env.workers * wk_replicas_of_worker(run);
    char text[160];
    if (job->scale_rate == PS_SCALE_NONE)
        return PS_OK;
    if (ps_job_scale_rate(job, replicas, run->env.examples, e))
        return e->code;
    ps_job_scale_text(job, replicas, text, sizeof text);
    if (!run->quiet && run->env.rank == 0)
        ps_info("%s", text);
    return PS_OK;
}

// Which batch normalizations are by what all replicas have: none, where these do not take their steps together.
static void workerd_synchronize(const struct wk_run *run, struct nn_model *model)
{
    const uint32_t replicas = run->env.workers * wk_replicas_of_worker(run);
    const char *layer = nn_model_synchronized(model);
    const bool together = run->strategy->home->sum && replicas > 1;
    nn_model_synchronize(model, !together                      ? NN_SYNCHRONIZE_NONE
                                : run->env.job->sync_batchnorm ? NN_SYNCHRONIZE_ALL
                                                               : NN_SYNCHRONIZE_MARKED);
    if (layer && !together && replicas > 1 && run->env.rank == 0)
        ps_warn("layer \"%s\" is synchronized: strategy %s takes no steps together, so each worker normalizes by its "
                "own batch",
                layer, run->strategy->name);
}

// NCCL listens, too, by itself: where this worker may not be reached from other hosts, on the loopback interface.
// Before there are threads.
static void workerd_keep_nccl_inside(const struct options *o)
{
    if (!o->insecure)
        setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
}

static enum ps_code workerd_train(struct training *t, struct wk_run *run, struct ps_job *job,
                                  const struct wk_place *place, struct nn_model **model, struct ps_error *e)
{
    const struct options *o = t->o;
    const struct wk_replicas_options options = {
        .peers = {.job = job->name,
                  .rank = place->rank,
                  .addresses = (const char *const *)place->cluster.worker,
                  .workers = place->workers,
                  .min_workers = run->env.min_workers,
                  .shares_memory = job->communication != PS_COMMUNICATION_RING,
                  .tls = place->tls,
                  .munge = place->munge,
                  .insecure = o->insecure,
                  .timeout = (uint64_t)job->timeout * PS_SECOND,
                  .patience = (uint64_t)job->stall_seconds * PS_SECOND,
                  .stop = run->env.stop},
        .made = training_made,
        .opened = training_opened,
        .work = training_work,
        .arg = t,
    };
    if (o->profile && run->strategy->replicates && (place->workers > 1 || job->devices.n > 1))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "--profile is of one replica where strategy %s has several: expected one worker and one device",
                       run->strategy->name);
    take_place(run, o);
    wk_metrics_begin(run->metrics, job->name, run->strategy->name, place->rank);
    if (place->tls)
        signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets as to files
    run->timeline = o->timeline ? wk_timeline_path(o->timeline, run->env.rank) : NULL;
    if (workerd_prepare(run, model, e) || workerd_scale_rate(run, job, e))
        return e->code;
    workerd_synchronize(run, *model);
    if (wk_replicas_train(run, &options, e))
        return e->code;
    if (run->drained)
        ps_info("leaves: it was asked to, or nothing was left; the others train the rest");
    else if (t->shown)
        ps_info("leaves job '%s': it is done", job->name);
    return PS_OK;
}

// Finds its place in the cluster, and trains there.
static enum ps_code workerd_take_part(struct training *t, struct wk_run *run, struct ps_job *job,
                                      struct nn_model **model, struct ps_error *e)
{
    const struct options *o = t->o;
    const struct wk_place_options asked = {o->job, o->cluster, o->ps, o->tls, o->munge, o->rank, o->workers};
    struct wk_place place;
    enum ps_code code = wk_place_find(&place, &asked, run->strategy, e);
    char *training = wk_place_training(&place);
    struct wk_folders folders = {.training = training, .rank = place.rank};
    run->folders = o->profile ? NULL : &folders;
    run->summary = o->summary;
    run->env.rank = place.rank;
    run->env.workers = place.workers;
    run->env.min_workers = (uint32_t)(o->min_workers ? o->min_workers : ps_job_min_workers(job, place.workers));
    run->env.ps = (const char *const *)place.cluster.addresses;
    run->env.n_ps = place.cluster.n;
    run->env.tls = place.tls ? &place.cluster.tls : NULL;
    run->env.munge = place.munge != NULL;
    run->env.munge_socket = place.cluster.munge_socket;
    run->env.insecure = o->insecure;
    if (code == PS_OK && place.evaluator)
        ps_info("TF_CONFIG: an evaluator takes no part in the training: nothing to do");
    else if (code == PS_OK && run->env.min_workers > place.workers)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "%s: the job needs %" PRIu32 " workers, and has %" PRIu32, o->job,
                       run->env.min_workers, place.workers);
    else if (code == PS_OK && ps_job_needs_all_workers(job) && run->env.min_workers != place.workers)
        code = ps_fail(e, PS_INVALID_ARGUMENT,
                       "--min-workers is %" PRIu32 ", but with strategy %s the job ends with the first worker that is "
                       "lost: expected %" PRIu32,
                       run->env.min_workers, run->strategy->name, place.workers);
    else if (code == PS_OK)
        code = workerd_train(t, run, job, &place, model, e);
    wk_place_fini(&place);
    wk_folders_release(&folders);
    run->folders = NULL;
    free(training);
    return code;
}

// Instead of a training.
static enum ps_code workerd_look(struct wk_run *run, const struct wk_look *look, struct nn_model **model,
                                 struct ps_error *e)
{
    bool weights = look->evaluate || look->predict;
    if (weights ? workerd_build(run, model, e) || wk_replica_create(run, 0, e)
                : nn_model_load(run->env.job->model, model, e))
        return e->code;
    begun = true;
    if (look->model)
        wk_look_at_model(run->env.job, *model);
    return weights ? wk_look_at_weights(run, look, e) : PS_OK;
}

static const struct wk_strategy *const strategy_of[] = {[PS_STRATEGY_ONE_DEVICE] = &wk_one_device,
                                                        [PS_STRATEGY_PARAMETER_SERVER] = &wk_parameter_server,
                                                        [PS_STRATEGY_LOCAL_STEPS] = &wk_local_steps,
                                                        [PS_STRATEGY_MIRRORED] = &wk_mirrored,
                                                        [PS_STRATEGY_CENTRAL_STORAGE] = &wk_central_storage,
                                                        [PS_STRATEGY_MULTI_WORKER_MIRRORED] = &wk_multi_worker_mirrored,
                                                        [PS_STRATEGY_HYBRID] = &wk_hybrid};

// What a run that has failed left on the ps tasks gives way to what the checkpoint has.
static void workerd_let_replace(struct ps_job *job, const struct options *o)
{
    if (ps_job_goes_on(job, o->resume) && job->on_existing == PS_REFUSE)
        job->on_existing = PS_REPLACE;
}

static bool workerd_is_outdated(const struct wk_run *run, const struct options *o)
{
    struct ps_error e = {.code = PS_OK};
    struct wk_found newest;
    const bool found = wk_checkpoints_find(run->env.job, !o->resume, run->lost, &newest, &e) == PS_OK;
    const bool same = newest.path && run->resume ? strcmp(newest.path, run->resume) == 0 : newest.path == run->resume;
    wk_found_free(&newest);
    return found && !same;
}

static void workerd_say_how_it_ended(const struct wk_run *run, const struct options *o, size_t lost_before,
                                     struct wk_ended *ended)
{
    const struct ps_job *job = run->env.job;
    ended->recovers = ps_job_goes_on(job, o->resume) && run->strategy->tasks != WK_TASKS_NONE && !o->profile &&
                      !wk_look_is_wanted(&o->look);
    ended->trained = run->seconds_to_first_step > 0;
    ended->lost = run->lost->n > lost_before;
    ended->outdated =
        ended->recovers && !ended->trained && !ended->lost && !ps_signal_number(&stop) && workerd_is_outdated(run, o);
    ended->checkpoint = run->resumed_at;
    ended->patience = (uint64_t)job->timeout * PS_SECOND;
}

// Joins the job no sooner than at that time (ps_now), and reads the checkpoint and builds the model before.
static enum ps_code workerd_run_job(struct wk_run *run, struct options *o, uint64_t not_before, struct wk_ended *ended,
                                    struct ps_error *e)
{
    struct nn_model *model = NULL;
    struct ps_job *job = NULL;
    struct wk_found checkpoint = {0};
    const size_t lost_before = run->lost->n;
    enum ps_code code = ps_job_load(o->job, o->sets, (size_t)o->n_sets, &job, e);
    run->env.job = job;
    if (code == PS_OK) {
        run->strategy = strategy_of[job->strategy];
        workerd_let_replace(job, o);
    }
    if (code == PS_OK && wk_look_is_wanted(&o->look)) {
        code = workerd_look(run, &o->look, &model, e);
    } else {
        struct training t = {.not_before = not_before, .o = o, .run = run, .ended = ended};
        if (code == PS_OK)
            code = workerd_find_checkpoint(run, job, o, &checkpoint, e);
        code = code == PS_OK ? workerd_take_part(&t, run, job, &model, e) : workerd_await_others(not_before, code, e);
    }
    code = wk_timeline_close(run, code, e);
    wk_resume_forget(run);
    if (job)
        workerd_say_how_it_ended(run, o, lost_before, ended);
    wk_run_free(run);
    nn_replica_free(run->env.replica);
    wk_data_free(run->data);
    nn_model_free(model);
    ps_job_free(job);
    wk_found_free(&checkpoint);
    return code;
}

// psctl run says when it began, so that seconds_to_first_step is what its user waited.
static uint64_t started_at(void)
{
    const char *text = getenv("PS_STARTED_NS");
    uint64_t now = ps_now(), began = text ? strtoull(text, NULL, 10) : now;
    return began && began < now ? began : now;
}

// The runs of the job that this worker takes part in: one, unless others are lost.
static enum ps_code workerd_run_jobs(struct options *o, struct wk_metrics *metrics, struct ps_error *e)
{
    const uint64_t started = started_at(), moment = 250 * PS_MS;
    struct wk_recovery recovery = {0};
    struct wk_lost lost = {0};
    uint64_t not_before = 0;
    for (;;) {
        struct wk_run run = {.started = started,
                             .env.stop = &stop,
                             .env.checkpoint_signals = &checkpoint_signals,
                             .metrics = metrics,
                             .lost = &lost};
        run.env.waits = metrics ? &metrics->waits : NULL;
        struct wk_ended ended = {0};
        e->code = workerd_run_job(&run, o, not_before, &ended, e);
        if (!wk_recovery_begins(&recovery, &ended, ps_now(), e))
            break;
        if (ps_signal_number(&stop)) {
            const struct ps_error why = *e;
            ps_fail(e, PS_CANCELLED, "stopped by %s: %s", ps_signal_name(ps_signal_number(&stop)), why.text);
            break;
        }
        ps_warn("%s; begins anew from the newest backup", e->text);
        not_before = ps_now() + moment;
    }
    wk_lost_free(&lost);
    return e->code;
}

// The same with --http: the metrics are there from before the first run until after the last.
static enum ps_code workerd_run_jobs_watched(struct options *o, struct ps_error *e)
{
    struct wk_metrics metrics;
    struct wk_http *http;
    if (!o->http)
        return workerd_run_jobs(o, NULL, e);
    wk_metrics_init(&metrics);
    enum ps_code code = wk_http_start(&metrics, o->http, o->insecure, &http, e);
    if (code == PS_OK)
        code = workerd_run_jobs(o, &metrics, e);
    wk_http_stop(http);
    wk_metrics_fini(&metrics);
    return code;
}

// ---- without a job ------------------------------------------------------------------------------------------------

static enum ps_code workerd_check_rank(const struct wk_place *place, struct ps_error *e)
{
    if (!place->cluster.workers || place->rank < place->cluster.workers)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "--rank is %" PRIu32 ", but the cluster has %zu workers: ranks go from 0 to %zu", place->rank,
                   place->cluster.workers, place->cluster.workers - 1);
}

// Waits for jobs of the queue and has them trained, until a signal comes.
static enum ps_code workerd_wait_for_jobs(const struct options *o, char *const *args, struct ps_error *e)
{
    const struct wk_place_options asked = {"without --job", o->cluster, o->ps,         o->tls,
                                           o->munge,        o->rank,    PS_MAX_WORKERS};
    struct wk_place place;
    char name[32];
    enum ps_code code = wk_place_find(&place, &asked, &wk_parameter_server, e);
    if (code == PS_OK && place.evaluator)
        code = ps_fail(e, PS_FAILED_PRECONDITION, "TF_CONFIG: an evaluator trains no jobs: expected a worker");
    if (code == PS_OK)
        code = workerd_check_rank(&place, e);
    if (code == PS_OK) {
        snprintf(name, sizeof name, "workerd[%" PRIu32 "]", place.rank);
        ps_log_init(name, PS_LOG_INFO);
        begun = true;
        wk_agent_run(&(struct wk_agent_options){.args = args,
                                                .ps = (const char *const *)place.cluster.addresses,
                                                .n_ps = place.cluster.n,
                                                .tls = place.tls,
                                                .munge = place.munge,
                                                .rank = place.rank,
                                                .stop = &stop});
    }
    wk_place_fini(&place);
    return code;
}

// A failed write to standard output is an error, unless the run has failed already.
static enum ps_code workerd_end_output(enum ps_code code, struct ps_error *e)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code)
        return code;
    // A flush before this one may have met the error, and its reason is gone.
    return ps_fail(e, PS_CANNOT_WRITE, "cannot write standard output%s%s", errno ? ": " : "",
                   errno ? strerror(errno) : "");
}

int main(int argc, char **argv)
{
    struct ps_error e = {0};
    prctl(PR_SET_NAME, "workerd");  // where it runs /proc/self/exe, or a bundle's loader, it would be called that
    ps_alloc_tune();
    struct options o = workerd_parse_options(argc, argv);
    ps_log_init("workerd", PS_LOG_INFO);
    workerd_catch_signals();
    workerd_keep_nccl_inside(&o);
    enum ps_code code =
        o.job ? workerd_end_output(workerd_run_jobs_watched(&o, &e), &e) : workerd_wait_for_jobs(&o, argv, &e);
    if (code != PS_OK)
        ps_error_log("%s", e.text);
    free(o.sets);
    free(o.ps);
    const int number = ps_signal_number(&stop);
    return number && (code == PS_CANCELLED || !o.job) ? 128 + number : ps_code_exit(code);
}
