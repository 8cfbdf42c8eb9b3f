// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/report.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/self.h"
#include "common/base/utf8.h"
#include "common/file/output.h"
#include "config.h"

extern char **environ;

enum { REPORT_WORDS = 24, REPORT_LINE = 4096, REPORT_PATIENCE = 10 };  // seconds, beside that of an answer

// A command of psctl's, in a process of its own: what one of them does not come to say, the others do.
struct section {
    const char *command, *operand;  // operand may be NULL
    FILE *said;                     // its standard output and error; NULL: it could not be started, see error
    pid_t pid;
    int error, status;
};

// ---- the sections -------------------------------------------------------------------------------------------------

static const char *const of_cluster[] = {"status", "shards", "jobs", "waits", "trace", "queue", "check-build"};
static const char *const of_job[] = {"jobs", "workers", "vars"};
enum {
    OF_CLUSTER = sizeof of_cluster / sizeof of_cluster[0],
    OF_JOB = sizeof of_job / sizeof of_job[0],
};

static void section_take_option(const char **args, size_t *n, const char *option, const char *value)
{
    if (!value)
        return;
    args[(*n)++] = option;
    args[(*n)++] = value;
}

static void section_begin(struct section *s, const struct target *target)
{
    const char *args[REPORT_WORDS] = {s->command};
    char timeout[16];
    const bool asks_cluster = strcmp(s->command, "check-build") != 0;
    size_t n = 1;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t group;
    snprintf(timeout, sizeof timeout, "%ld", target->timeout);
    section_take_option(args, &n, "--cluster", asks_cluster ? target->file : NULL);
    section_take_option(args, &n, "--ps", asks_cluster ? target->ps : NULL);
    section_take_option(args, &n, "--tls", asks_cluster ? target->tls : NULL);
    section_take_option(args, &n, "--timeout", asks_cluster ? timeout : NULL);
    if (target->munge && asks_cluster)
        args[n++] = "--munge";
    section_take_option(args, &n, "--", s->operand);
    s->said = tmpfile();
    s->error = s->said ? 0 : errno;
    if (!s->said)
        return;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(s->said), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(s->said), STDERR_FILENO);
    posix_spawnattr_init(&group);  // of its own
    posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
    char **words = ps_self_words(args);
    s->error = posix_spawn(&s->pid, "/proc/self/exe", &actions, &group, words, environ);
    free(words);
    posix_spawnattr_destroy(&group);
    posix_spawn_file_actions_destroy(&actions);
}

// One that does not end, as with a driver of a GPU that hangs, is ended, with those that it has started.
static void section_end(struct section *s, uint64_t until)
{
    pid_t ended = 0;
    while (!s->error && (ended = waitpid(s->pid, &s->status, WNOHANG)) == 0 && ps_now() < until)
        ps_sleep(10 * PS_MS);
    if (s->error || ended)
        return;
    kill(-s->pid, SIGKILL);
    while (waitpid(s->pid, &s->status, 0) < 0 && errno == EINTR)
        ;
}

static void section_write(struct section *s, FILE *to)
{
    char line[REPORT_LINE];
    snprintf(line, sizeof line, "%s%s", s->operand ? " " : "", s->operand ? s->operand : "");
    ps_utf8_plain(line);
    fprintf(to, "\n## psctl %s%s\n\n```\n", s->command, line);
    if (s->error)
        fprintf(to, "(it was not started: %s)\n", strerror(s->error));
    if (s->said)
        rewind(s->said);
    while (s->said && fgets(line, sizeof line, s->said)) {
        line[strcspn(line, "\n")] = '\0';
        ps_utf8_plain(line);
        fprintf(to, "%s\n", line);
    }
    if (!s->error && WIFSIGNALED(s->status))
        fprintf(to, "(it was ended by signal %d%s)\n", WTERMSIG(s->status),
                WTERMSIG(s->status) == SIGKILL ? ", as it did not end itself" : "");
    else if (!s->error && WEXITSTATUS(s->status))
        fprintf(to, "(exit code %d)\n", WEXITSTATUS(s->status));
    fprintf(to, "```\n");
    if (s->said)
        fclose(s->said);
}

// All at the same time: where ps tasks are silent, each waits for as long as the others.
static void report_ask(const struct target *target, const char *const *jobs, size_t n_jobs, FILE *to)
{
    const size_t n = OF_CLUSTER + n_jobs * OF_JOB;
    struct section *sections = ps_alloc(n * sizeof *sections);
    const uint64_t until = ps_now() + (uint64_t)(target->timeout + REPORT_PATIENCE) * PS_SECOND;
    for (size_t i = 0; i < n; i++) {
        const size_t of = i < OF_CLUSTER ? 0 : (i - OF_CLUSTER) / OF_JOB;
        sections[i].command = i < OF_CLUSTER ? of_cluster[i] : of_job[(i - OF_CLUSTER) % OF_JOB];
        sections[i].operand = i < OF_CLUSTER ? NULL : jobs[of];
        section_begin(&sections[i], target);
    }
    for (size_t i = 0; i < n; i++) {
        section_end(&sections[i], until);
        section_write(&sections[i], to);
    }
    free(sections);
}

// ---- this machine -------------------------------------------------------------------------------------------------

// NAME="Debian GNU/Linux 12 (bookworm)" of /etc/os-release; "": it is not there.
static void report_system(char *to, size_t size)
{
    char line[256];
    FILE *f = fopen("/etc/os-release", "r");
    snprintf(to, size, "%s", "");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "PRETTY_NAME=\"%127[^\"]", to) == 1)
            break;
    if (f)
        fclose(f);
}

static void report_machine(FILE *to)
{
    char system[128], when[40] = "";
    struct utsname u;
    struct tm tm;
    const time_t now = time(NULL);
    const struct ps_machine_memory memory = ps_machine_memory("");
    if (uname(&u))
        memset(&u, 0, sizeof u);
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    report_system(system, sizeof system);
    fprintf(to, "# A report of psctl doctor\n\n```\n");
    fprintf(to, "when     %s\npsctl    %s\nhost     %s, %s\nkernel   %s %s %s\n", when, PACKAGE_VERSION, u.nodename,
            *system ? system : "no /etc/os-release", u.sysname, u.release, u.machine);
    fprintf(to, "machine  %ld cores, %.1f GiB of memory (%s)\n", sysconf(_SC_NPROCESSORS_ONLN),
            (double)memory.bytes / (1 << 30), memory.why);
}

static bool report_has_variable(const char *variable)
{
    static const char *const begins[] = {"PSCTL_", "PSD=",  "WORKERD=",   "TF_CONFIG=", "CUDA_VISIBLE_DEVICES=",
                                         "NCCL_",  "GRPC_", "SLURM_JOB_", "no_proxy="};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void report_environment(FILE *to)
{
    char text[REPORT_LINE];
    for (char **v = environ; *v; v++) {
        if (!report_has_variable(*v))
            continue;
        snprintf(text, sizeof text, "%s", *v);
        ps_utf8_plain(text);
        fprintf(to, "set      %s\n", text);
    }
    fprintf(to, "```\n");
}

// ---- the file -----------------------------------------------------------------------------------------------------

static void report_put(FILE *to, const struct findings *findings, const struct target *target, const char *const *jobs,
                       size_t n_jobs)
{
    report_machine(to);
    report_environment(to);
    fprintf(to, "\n## psctl doctor\n\n```\n");
    findings_show(findings, false, to);
    fprintf(to, "```\n");
    report_ask(target, jobs, n_jobs, to);
}

enum ps_code report_write(const char *path, const struct findings *findings, const struct target *target,
                          const char *const *jobs, size_t n_jobs, struct ps_error *e)
{
    struct ps_output o;
    if (strcmp(path, "-") == 0) {
        report_put(stdout, findings, target, jobs, n_jobs);
        return PS_OK;
    }
    if (ps_output_open(&o, path, e))
        return e->code;
    report_put(o.file, findings, target, jobs, n_jobs);
    return ps_output_commit(&o, e);
}
