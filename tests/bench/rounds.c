// SPDX-License-Identifier: Apache-2.0
//
// A large sync round beside another job on one psd: how long that job's pushes take meanwhile, and how much memory psd
// has used at most. Not a test: figures depend on the machine.
//
//     rounds [--psd PATH] [--workers N] [--mb N] [--rounds N] [--parts N] [--in-order | --async]
//     rounds --rounds 0 --workers 1 --mb 6144      the large variable is declared, and that is all
//
// N workers (16) push a gradient of MB (256) each for some rounds (2), all at once, or one after the other with
// --in-order; with --async they push outside of rounds, for comparison. The variable is in one part, or in --parts.
// The other job pushes 64 KiB at a time, for 5 s before and for 5 s or more meanwhile, and must live on.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/psclient.h"

static struct {
    const char *psd;
    uint32_t workers, mb, rounds, parts;
    bool in_order, async;
} o = {"psd/psd", 16, 256, 2, 1, false, false};

static char address[64];
static float *gradient;  // shared by the processes of all workers: its contents do not matter

static void die(const char *what, const char *why)
{
    fprintf(stderr, "rounds: %s: %s\n", what, why);
    exit(1);
}

static void check(psc_code code, const char *what, const psc_error *e)
{
    if (code != PSC_OK)
        die(what, e->text);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static pid_t child(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

// ---- psd ----------------------------------------------------------------------------------------------------------

static pid_t start_psd(const char *dir)
{
    int ready[2];
    char memory[32], descriptor[16], line[64];
    if (pipe(ready))
        die("pipe", "no descriptor");
    snprintf(address, sizeof address, "unix:%s/psd", dir);
    snprintf(memory, sizeof memory, "%" PRIu64 "M", (uint64_t)(o.workers + 2) * o.mb * 5 / 4 + 2048);
    snprintf(descriptor, sizeof descriptor, "%d", ready[1]);
    pid_t pid = child();
    if (pid == 0) {
        execl(o.psd, o.psd, "--listen", address, "--memory", memory, "--ready-fd", descriptor, (char *)NULL);
        die(o.psd, "cannot be started");
    }
    close(ready[1]);
    if (read(ready[0], line, sizeof line) <= 0)
        die(o.psd, "does not serve");
    close(ready[0]);
    return pid;
}

// MiB of a line of /proc/PID/status.
static uint64_t status_mib(pid_t pid, const char *name)
{
    char path[64], line[128];
    uint64_t kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), " %" SCNu64, &kb);
    if (f)
        fclose(f);
    return kb >> 10;
}

// ---- the jobs -----------------------------------------------------------------------------------------------------

static psc_client *join(const char *job, uint32_t rank, uint32_t workers, psc_update update, uint64_t count)
{
    psc_error e;
    psc_cluster *cluster;
    psc_client *client;
    const char *const at = address;
    const psc_options options = {.job = job, .rank = (int)rank, .workers = workers, .update = update};
    check(psc_cluster_create(&at, 1, &cluster, &e), "cluster", &e);
    check(psc_connect(cluster, &options, &client, &e), job, &e);
    if (rank == 0) {
        char partitioner[32];
        snprintf(partitioner, sizeof partitioner, "fixed:%" PRIu32, strcmp(job, "large") == 0 ? o.parts : 1);
        const psc_variable w = {.name = "w", .dtype = PSC_FLOAT32, .shape = &count, .rank = 1, .trainable = true};
        const psc_declaration d = {.variables = &w, .n_variables = 1, .rule = "sgd", .partitioner = partitioner};
        check(psc_declare(client, &d, NULL, &e), "declare", &e);
    } else {
        check(psc_attach(client, &e), "attach", &e);
    }
    psc_cluster_free(cluster);
    return client;
}

static void push(psc_client *client, float *data, uint64_t count, uint64_t round)
{
    psc_error e;
    psc_op *op;
    psc_tensor t = {.name = "w", .dtype = PSC_FLOAT32, .data = data, .count = count};
    const psc_push_options options = {.round = round, .examples = 1};
    psc_push(client, &t, 1, &options, NULL, NULL, &op);
    check(psc_wait(op, NULL, &e), "push", &e);
}

// One element of each part: returns when all of them have closed the round.
static void await_round(psc_client *client, uint64_t count, uint64_t round)
{
    psc_error e;
    psc_op *op;
    psc_tensor *t = calloc(o.parts, sizeof *t);
    float *values = calloc(o.parts, sizeof *values);
    if (!t || !values)
        die("pull", "no memory");
    for (uint32_t i = 0; i < o.parts; i++)
        t[i] = (psc_tensor){.name = "w",
                            .dtype = PSC_FLOAT32,
                            .data = &values[i],
                            .count = 1,
                            .part = true,
                            .first = count / o.parts * i + (i ? 1 : 0)};
    psc_pull(client, t, o.parts, round, NULL, NULL, &op);
    check(psc_wait(op, NULL, &e), "pull", &e);
    free(values);
    free(t);
}

// On a cluster the workers have CPUs of their own: here they leave psd and the other job what these want.
static void train(uint32_t rank)
{
    setpriority(PRIO_PROCESS, 0, 19);
    const uint64_t count = (uint64_t)o.mb << 18;
    psc_error e;
    double start = seconds();
    psc_client *client = join("large", rank, o.workers, o.async ? PSC_ASYNC : PSC_SYNC, count);
    if (rank == 0)
        printf("declared: %" PRIu32 " MiB in %.3f s\n", o.mb, seconds() - start);
    check(psc_barrier(client, "begin", &e), "barrier", &e);
    for (uint64_t round = 1; round <= o.rounds; round++) {
        double begun = seconds();
        char name[32];
        for (uint32_t r = 0; o.in_order && r < rank; r++) {
            snprintf(name, sizeof name, "%" PRIu64 ".%" PRIu32, round, r);
            check(psc_barrier(client, name, &e), "barrier", &e);
        }
        push(client, gradient, count, o.async ? 0 : round);
        for (uint32_t r = rank; o.in_order && r < o.workers; r++) {
            snprintf(name, sizeof name, "%" PRIu64 ".%" PRIu32, round, r);
            check(psc_barrier(client, name, &e), "barrier", &e);
        }
        await_round(client, count, o.async ? 0 : round);
        if (rank == 0)
            printf("round %" PRIu64 ": %.2f s, %.2f GB/s\n", round, seconds() - begun,
                   (double)o.workers * (double)count * 4 / 1e9 / (seconds() - begun));
    }
    psc_close(client, NULL);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { PUSHES = 1 << 20, SMALL = 16384 };

// Pushes for so long, or as long as there are children besides psd.
static void measure(psc_client *client, const char *when, double at_most, pid_t psd, uint32_t children)
{
    static double took[PUSHES];
    static float small[SMALL];
    size_t n = 0;
    double begun = seconds(), now = begun;
    uint64_t peak = 0;
    while (n < PUSHES && (children || now - begun < at_most)) {
        push(client, small, SMALL, 0);
        double end = seconds();
        took[n++] = end - now;
        now = end;
        uint64_t resident = n % 64 == 0 ? status_mib(psd, "VmRSS:") : 0;
        peak = resident > peak ? resident : peak;
        int status = 0;
        if (children && waitpid(-1, &status, WNOHANG) > 0)
            children--;
        if (status)
            die("a worker", "has failed");
    }
    qsort(took, n, sizeof *took, ascending);
    printf("%s: %zu pushes of 64 KiB, %.0f/s; p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.2f ms; psd %" PRIu64
           " MiB at most\n",
           when, n, (double)n / (now - begun), took[n / 2] * 1e3, took[n * 99 / 100] * 1e3, took[n * 999 / 1000] * 1e3,
           took[n - 1] * 1e3, peak);
}

static void parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"psd", 1, NULL, 'p'},   {"workers", 1, NULL, 'w'},  {"mb", 1, NULL, 'm'},    {"rounds", 1, NULL, 'r'},
        {"parts", 1, NULL, 'n'}, {"in-order", 0, NULL, 'i'}, {"async", 0, NULL, 'a'}, {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (c) {
        case 'p':
            o.psd = optarg;
            break;
        case 'w':
            o.workers = number;
            break;
        case 'm':
            o.mb = number;
            break;
        case 'r':
            o.rounds = number;
            break;
        case 'n':
            o.parts = number;
            break;
        case 'i':
            o.in_order = true;
            break;
        case 'a':
            o.async = true;
            break;
        default:
            exit(64);
        }
    }
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/rounds-XXXXXX", path[64];
    parse(argc, argv);
    if (!mkdtemp(dir))
        die(dir, "cannot be made");
    gradient = mmap(NULL, (size_t)o.mb << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gradient == MAP_FAILED)
        die("gradient", "no memory");
    if (o.rounds)
        memset(gradient, 0, (size_t)o.mb << 20);
    pid_t psd = start_psd(dir), prober = child();
    if (prober == 0) {
        // gRPC's threads do not survive a fork: the workers are forked before this process has any.
        int go[2];
        if (pipe(go))
            die("pipe", "no descriptor");
        for (uint32_t rank = 0; rank < o.workers; rank++)
            if (child() == 0) {
                char c;
                close(go[1]);
                while (read(go[0], &c, 1) > 0)
                    continue;
                train(rank);
                exit(0);
            }
        close(go[0]);
        psc_client *client = join("small", 0, 1, PSC_ASYNC, SMALL);
        measure(client, "alone", 5, psd, 0);
        close(go[1]);
        measure(client, "beside", 5, psd, o.workers);
        psc_error e;
        check(psc_health(client, &e), "the other job", &e);
        psc_close(client, NULL);
        exit(0);
    }
    int status;
    waitpid(prober, &status, 0);
    printf("psd: %" PRIu64 " MiB at most; the variable %" PRIu32 " MiB, one gradient of each worker %" PRIu32 " MiB\n",
           status_mib(psd, "VmHWM:"), o.mb, o.workers * o.mb);
    kill(psd, SIGTERM);
    waitpid(psd, NULL, 0);
    snprintf(path, sizeof path, "%s/psd", dir);
    unlink(path);
    rmdir(dir);
    return status != 0;
}
