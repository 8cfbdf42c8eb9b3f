// SPDX-License-Identifier: Apache-2.0
#include "workerd/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/base/option.h"
#include "common/base/parse.h"
#include "common/file/output.h"
#include "config.h"
#include "workerd/job/build.h"
#include "workerd/job/supported.h"
#include "workerd/nn/device.h"

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
                           "      --ready-fd N       writes \"READY\" to this descriptor once in the job\n"
                           "  -R, --resume           goes on from the job's newest checkpoint\n"
                           "  -S, --summary FILE     where the chief writes how it went (JSON)\n"
                           "  -q, --quiet            no progress on stdout; -h, --help; -V, --version\n"
                           "      --evaluate         no training: how good are the weights? --json: as JSON\n"
                           "      --predict OUT.npy  no training: what the model says of the test split\n"
                           "      --timeline FILE    what takes how long, as a Chrome trace, for Perfetto\n"
                           "      --profile          some steps: where their time goes. --json: as JSON\n"
                           "      --show-model, --layers, --list-devices, --check-build  what there is\n"
                           "\n"
                           "Exit: 0 done; 64 usage; 65 bad input; 66 no such file; 69 no ps task; 70 defect;\n"
                           "71 memory; 73 job or rank taken, file not created; 74 file not written; 75 job\n"
                           "ended early; 77 not allowed; 78 configuration; 79 psctl stop; 128 + N signal N.\n";

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

static long options_number(const char *option, const char *text, long least, long most)
{
    long n;
    if (!ps_parse_number(text, least, most, &n)) {
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

static void options_list_devices(void)
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
static void options_take_look(struct wk_options *o, char **argv, int option)
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
        options_list_devices();
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
static void options_take_value(struct wk_options *o, char **argv, int option)
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
        o->rank = options_number("rank", optarg, 0, PS_MAX_WORKERS - 1);
        break;
    case 'w':
        o->workers = options_number("workers", optarg, 1, PS_MAX_WORKERS);
        break;
    case 'm':
        o->min_workers = options_number("min-workers", optarg, 1, PS_MAX_WORKERS);
        break;
    case 'S':
        o->summary = optarg;
        break;
    case READY_FD:
        o->ready_fd = options_number("ready-fd", optarg, 0, 65535);
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
        options_take_look(o, argv, option);
    }
}

// Without a job: is it said where to wait for one?
static bool options_may_wait(const struct wk_options *o)
{
    return (o->cluster || o->ps || getenv("TF_CONFIG")) && !o->profile && !o->timeline && o->ready_fd < 0 &&
           !wk_look_is_wanted(&o->look);
}

// Which of them go together.
static void options_check_together(const struct wk_options *o)
{
    const char *why = NULL;
    if (!o->job && !options_may_wait(o))
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

struct wk_options wk_options_parse(int argc, char **argv)
{
    struct wk_options o = {.sets = ps_alloc((size_t)argc * sizeof(char *)), .rank = -1, .ready_fd = -1};
    int option;
    while ((option = ps_option_next(argc, argv, ":j:s:c:p:r:w:m:RS:qhV", known_options)) != -1)
        options_take_value(&o, argv, option);
    if (optind < argc) {
        fputs("workerd: arguments other than options are not taken; see workerd --help\n", stderr);
        exit(PS_EXIT_USAGE);
    }
    options_check_together(&o);
    return o;
}

void wk_options_free(struct wk_options *o)
{
    free(o->sets);
    free(o->ps);
}
