// SPDX-License-Identifier: Apache-2.0
#include "psd/options.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/machine.h"
#include "common/base/option.h"
#include "common/base/parse.h"
#include "common/cluster/cluster.h"
#include "common/file/output.h"
#include "common/plan/cost.h"
#include "config.h"

static const char help[] =
    "Usage: psd [OPTION...]\n"
    "A parameter server: one ps task of a cluster, for any number of jobs.\n"
    "\n"
    "  -l, --listen ADDRESS     host:port or unix:/path; may be repeated; default:\n"
    "                           this task's in the cluster, or 127.0.0.1:7070\n"
    "      --tls FOLDER         certificates, for connections of both kinds (psctl tls init\n"
    "                           makes them); default: the cluster's\n"
    "      --munge              munge in place of certificates (the cluster's munge: true)\n"
    "      --munge-users        all users whom munge knows may train; default: psd's own, root\n"
    "      --insecure           listen where other hosts can connect, without either\n"
    "  -t, --task I             this task's index, from 0; default: TF_CONFIG's, or 0\n"
    "  -c, --cluster FILE       addresses of all ps tasks (YAML); default: TF_CONFIG\n"
    "  -p, --peers A,B,C        the same, on the command line\n"
    "  -m, --memory BYTES       in all, from 4M on (K, M, G, T: KiB, MiB, ...);\n"
    "                           default: 3/4 of the machine's or the cgroup's\n"
    "      --user-jobs N        that one user may have here; default: all\n"
    "      --user-memory BYTES  that jobs of one user may take; default: all\n"
    "      --queue FOLDER       task 0: where jobs of psctl submit are kept, and workers\n"
    "                           without a job get them; default: none\n"
    "      --checkpoints FOLDER where this task writes its part of checkpoints; default: none\n"
    "      --http ADDRESS       a status page, /status.json, /metrics for Prometheus,\n"
    "                           /healthz, /readyz at this host:port; default: none\n"
    "      --threads N          that serve; default: by clients, up to 1 + cores/4 or 2\n"
    "      --heartbeat-ms N     how often workers report; default 500\n"
    "      --dead-after-ms N    silence that counts as death; default 2500\n"
    "      --stall-after-ms N   who waits longer is logged; default 60000, 0: never\n"
    "      --ready-fd N         write \"READY PORT\" to this descriptor when serving\n"
    "  -v, --verbose            say more on standard error\n"
    "  -q, --quiet              say only what is wrong\n"
    "  -h, --help; -V, --version\n"
    "\n"
    "Exit: 0 stopped by SIGTERM, SIGINT or SIGHUP; 64 usage; 65 bad input; 66 no such file;\n"
    "69 address not usable; 73 in use, not created; 77 not permitted; 78 needs TLS, munge, --insecure.\n";

enum {
    INSECURE = 256,
    THREADS,
    HEARTBEAT,
    DEAD_AFTER,
    STALL_AFTER,
    READY_FD,
    TLS,
    MUNGE,
    MUNGE_USERS,
    USER_JOBS,
    USER_MEMORY,
    HTTP,
    QUEUE,
    CHECKPOINTS
};

#define TASK_UNSAID UINT32_MAX

static const struct option known[] = {{"listen", 1, NULL, 'l'},
                                      {"insecure", 0, NULL, INSECURE},
                                      {"tls", 1, NULL, TLS},
                                      {"munge", 0, NULL, MUNGE},
                                      {"munge-users", 0, NULL, MUNGE_USERS},
                                      {"task", 1, NULL, 't'},
                                      {"cluster", 1, NULL, 'c'},
                                      {"peers", 1, NULL, 'p'},
                                      {"memory", 1, NULL, 'm'},
                                      {"user-jobs", 1, NULL, USER_JOBS},
                                      {"user-memory", 1, NULL, USER_MEMORY},
                                      {"http", 1, NULL, HTTP},
                                      {"queue", 1, NULL, QUEUE},
                                      {"checkpoints", 1, NULL, CHECKPOINTS},
                                      {"threads", 1, NULL, THREADS},
                                      {"heartbeat-ms", 1, NULL, HEARTBEAT},
                                      {"dead-after-ms", 1, NULL, DEAD_AFTER},
                                      {"stall-after-ms", 1, NULL, STALL_AFTER},
                                      {"verbose", 0, NULL, 'v'},
                                      {"quiet", 0, NULL, 'q'},
                                      {"ready-fd", 1, NULL, READY_FD},
                                      {"help", 0, NULL, 'h'},
                                      {"version", 0, NULL, 'V'},
                                      {NULL, 0, NULL, 0}};

static void options_say(const char *option, const char *text, const char *expected)
{
    fprintf(stderr, "psd: --%s %s: expected %s\n", option, text, expected);
}

static void options_refuse(const char *option, const char *text, const char *expected)
{
    options_say(option, text, expected);
    exit(PS_EXIT_USAGE);
}

static long options_parse_number(const char *option, const char *text, long min, long max)
{
    char expected[64];
    long n;
    if (!ps_parse_number(text, min, max, &n)) {
        snprintf(expected, sizeof expected, "a number from %ld to %ld", min, max);
        options_refuse(option, text, expected);
    }
    return n;
}

static uint64_t options_parse_bytes(const char *option, const char *text)
{
    uint64_t n;
    if (!ps_parse_bytes(text, &n))
        options_refuse(option, text, "a number of bytes such as 512M or 8G");
    return n;
}

static void options_list_push(const char ***list, size_t *n, const char *text)
{
    *list = ps_realloc(*list, (*n + 1) * sizeof **list);
    (*list)[(*n)++] = ps_strdup(text);
}

static void push_all(const char ***list, size_t *n, char *text)
{
    for (char *at = text, *one; (one = strtok_r(at, ",", &at));)
        options_list_push(list, n, one);
}

// Which task this is, as TF_CONFIG says.
static enum ps_code take_task(struct psd_options *o, const struct ps_cluster *cluster, struct ps_error *e)
{
    switch (cluster->task) {
    case PS_TASK_PS:
        o->task = (uint32_t)cluster->index;
        return PS_OK;
    case PS_TASK_NONE:
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "TF_CONFIG: task is missing: it or --task must say which ps task this is");
    default:
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "TF_CONFIG: task.type must be ps for psd; a worker or chief starts workerd");
    }
}

// What the command line says goes before what the cluster says.
static void options_take_tls(struct psd_options *o, struct ps_tls_files *from)
{
    if (o->tls.folder)
        return;
    o->tls = *from;
    *from = (struct ps_tls_files){NULL};
}

static void options_take_munge(struct psd_options *o, struct ps_cluster *from)
{
    o->munge |= from->munge;
    o->munge_socket = from->munge_socket;
    from->munge_socket = NULL;
}

// The cluster of --cluster, else TF_CONFIG's, if there is one.
static enum ps_code load_cluster(struct psd_options *o, const char *path, struct ps_error *e)
{
    struct ps_cluster cluster = {0};
    enum ps_code code = ps_cluster_find(path, &cluster, e);
    if (code == PS_NOT_FOUND && !path)
        return PS_OK;
    if (code)
        return code;
    for (size_t i = 0; i < cluster.n; i++)
        options_list_push(&o->peers, &o->n_peers, cluster.addresses[i]);
    options_take_tls(o, &cluster.tls);
    options_take_munge(o, &cluster);
    if (!path && o->task == TASK_UNSAID)
        code = take_task(o, &cluster, e);
    ps_cluster_fini(&cluster);
    return code;
}

// Is it an option that takes a number?
static bool options_take_number(struct psd_options *o, int option)
{
    const struct {
        int option;
        const char *name;
        long min, max;
        void *to;  // an int, or a uint32_t
    } numbers[] = {
        {'t', "task", 0, PS_MAX_TASKS - 1, &o->task},
        {THREADS, "threads", 1, 256, &o->threads},
        {HEARTBEAT, "heartbeat-ms", 10, 3600000, &o->heartbeat_ms},
        {DEAD_AFTER, "dead-after-ms", 20, 3600000, &o->dead_after_ms},
        {STALL_AFTER, "stall-after-ms", 0, 3600000, &o->stall_after_ms},
        {READY_FD, "ready-fd", 0, 65535, &o->ready_fd},
        {USER_JOBS, "user-jobs", 1, 1000000, &o->user_jobs},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].option == option) {
            const int n = (int)options_parse_number(numbers[i].name, optarg, numbers[i].min, numbers[i].max);
            memcpy(numbers[i].to, &n, sizeof n);
            return true;
        }
    return false;
}

static void options_take(struct psd_options *o, char **argv, int option, const char **cluster)
{
    if (options_take_number(o, option))
        return;
    switch (option) {
    case 'l':
        options_list_push(&o->listen, &o->n_listen, optarg);
        break;
    case INSECURE:
        o->insecure = true;
        break;
    case TLS:
        free(o->tls.folder);
        o->tls.folder = ps_strdup(optarg);
        break;
    case MUNGE:
        o->munge = true;
        break;
    case MUNGE_USERS:
        o->munge_users = true;
        break;
    case 'c':
        *cluster = optarg;
        break;
    case 'p':
        push_all(&o->peers, &o->n_peers, optarg);
        break;
    case 'm':
        o->memory = options_parse_bytes("memory", optarg);
        if (o->memory < PS_MEMORY_LEAST)
            options_refuse("memory", optarg, "at least 4M, with which requests of up to 1 MiB fit");
        break;
    case USER_MEMORY:
        o->user_memory = options_parse_bytes("user-memory", optarg);
        break;
    case HTTP:
        o->http = optarg;
        break;
    case QUEUE:
        o->queue = optarg;
        break;
    case CHECKPOINTS:
        o->checkpoints = optarg;
        break;
    case 'v':
        o->log_level = PS_LOG_DEBUG;
        break;
    case 'q':
        o->log_level = PS_LOG_WARNING;
        break;
    case 'h':
        fputs(help, stdout);
        exit(ps_output_end_stdout("psd", 0));
    case 'V':
        puts("psd " PACKAGE_VERSION);
        exit(ps_output_end_stdout("psd", 0));
    default:
        ps_option_say_wrong("psd", option, argv, known);
        exit(PS_EXIT_USAGE);
    }
}

// What the gRPC core would refuse without a reason.
static void options_check_listen(const char *address)
{
    char folder[4096], text[4200];
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0) {
        if (strlen(address + 5) >= sizeof folder)
            return;
        strcpy(folder, address + 5);
        const char *parent = dirname(folder);
        if (access(parent, W_OK | X_OK) == 0)
            return;
        const int error = errno;
        snprintf(text, sizeof text, "a socket in a folder that can be written; %s: %s", parent, strerror(error));
        options_say("listen", address, text);
        exit(error == EACCES || error == EROFS ? ps_code_exit(PS_PERMISSION_DENIED) : PS_EXIT_USAGE);
    }
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
        strtoul(colon + 1, NULL, 10) > 65535)
        options_refuse("listen", address, "a port from 0 to 65535");
}

// Certificates, or munge, or neither; and what goes with them alone.
static void options_check_users(const struct psd_options *o)
{
    const bool tls = ps_tls_files_given(&o->tls);
    const char *why = NULL;
    if (tls && o->munge)
        why = "tls and munge both say who may connect: expected one of them";
    else if ((o->user_jobs || o->user_memory) && !tls && !o->munge)
        why =
            "--user-jobs and --user-memory are of users whom certificates or munge name: expected --tls or --munge, or "
            "tls or munge in the cluster's file";
    else if (o->munge_users && !o->munge)
        why = "--munge-users are those whom munge names: expected --munge, or munge in the cluster's file";
    if (!why)
        return;
    fprintf(stderr, "psd: %s\n", why);
    exit(PS_EXIT_USAGE);
}

// What belongs together, and what was not said.
static void options_complete(struct psd_options *o)
{
    if (o->task == TASK_UNSAID)
        o->task = 0;
    if (o->n_peers && o->task >= o->n_peers) {
        fprintf(stderr, "psd: --task %u: there are %zu ps tasks, the first is 0\n", o->task, o->n_peers);
        exit(PS_EXIT_USAGE);
    }
    if (!o->n_peers && o->task) {
        fprintf(stderr, "psd: --task %u: the others are needed too: --cluster FILE or --peers A,B,C\n", o->task);
        exit(PS_EXIT_USAGE);
    }
    options_check_users(o);
    if (o->dead_after_ms < 2 * o->heartbeat_ms) {
        fprintf(stderr, "psd: --dead-after-ms %u: expected at least twice --heartbeat-ms %u\n", o->dead_after_ms,
                o->heartbeat_ms);
        exit(PS_EXIT_USAGE);
    }
    if (!o->n_listen)
        options_list_push(&o->listen, &o->n_listen, o->n_peers ? o->peers[o->task] : "127.0.0.1:7070");
    if (!o->n_peers)
        options_list_push(&o->peers, &o->n_peers, o->listen[0]);
    for (size_t i = 0; i < o->n_listen; i++)
        options_check_listen(o->listen[i]);
    if (!o->memory) {
        struct ps_machine_memory machine = ps_machine_memory("");
        o->memory = machine.bytes / 4 * 3;
        o->memory_why = machine.why;
    }
}

enum ps_code psd_options_parse(int argc, char **argv, struct psd_options *o, struct ps_error *e)
{
    const char *cluster = NULL;
    int option;
    *o = (struct psd_options){
        .task = TASK_UNSAID,
        .log_level = PS_LOG_INFO,
        .ready_fd = -1,
        .heartbeat_ms = 500,
        .dead_after_ms = 2500,
        .stall_after_ms = 60000,
    };
    while ((option = ps_option_next(argc, argv, ":l:t:c:p:m:vqhV", known)) != -1)
        options_take(o, argv, option, &cluster);
    if (optind < argc) {
        fprintf(stderr, "psd: %s: arguments other than options are not taken; see psd --help\n", argv[optind]);
        exit(PS_EXIT_USAGE);
    }
    if (cluster && o->n_peers) {
        fputs("psd: --cluster and --peers say the same: give one of them\n", stderr);
        exit(PS_EXIT_USAGE);
    }
    if (!o->n_peers && load_cluster(o, cluster, e))
        return e->code;
    options_complete(o);
    return PS_OK;
}

static void list_free(const char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)list[i]);
    free(list);
}

void psd_options_free(struct psd_options *o)
{
    ps_tls_files_clear(&o->tls);
    free(o->munge_socket);
    list_free(o->listen, o->n_listen);
    list_free(o->peers, o->n_peers);
}
