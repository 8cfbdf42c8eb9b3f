// SPDX-License-Identifier: Apache-2.0
//
// psctl slurm: a job for nodes of a Slurm cluster. It is read and checked here, on the login node, and becomes a
// command line for sbatch, with the installed script that starts servers and workers. --dry-run shows it instead.
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "tools/common/program.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/submit.h"

struct slurm {
    const char *file, *script;
    long nodes, ps_tasks;  // 0: not said, until slurm_count
    struct cli_list sets;
    bool munge, dry_run;
    char **options;        // those of sbatch behind --; ends with NULL
    char *name;            // of the job
    char *shards;          // the folder of those that the servers write; NULL: none
    long cores, gpus;      // of a worker
    uint32_t min_workers;  // with fewer the job ends
};

// Cuts off what stands behind --.
static char **slurm_cut_options(struct call *call)
{
    for (int i = 1; i < call->argc; i++)
        if (strcmp(call->argv[i], "--") == 0) {
            call->argv[i] = NULL;
            call->argc = i;
            return call->argv + i + 1;
        }
    return call->argv + call->argc;
}

// ---- an array -------------------------------------------------------------------------------------------------------

// The numbers of the array's tasks, as the user has sbatch queue one; NULL: none.
static const char *slurm_array(const struct slurm *s)
{
    for (char **option = s->options; *option; option++)
        for (size_t i = 0; i < 2; i++) {
            static const char *const names[] = {"--array", "-a"};
            const size_t n = strlen(names[i]);
            if (strncmp(*option, names[i], n) == 0)
                return (*option)[n] ? *option + n + ((*option)[n] == '=') : option[1] ? option[1] : "";
        }
    return getenv("SBATCH_ARRAY_INX");
}

// What a task of the array has in place of text: its number for each %a. malloc'd.
static char *slurm_of_task(const char *text, int digits, const char *number)
{
    char *all = NULL;
    size_t size;
    FILE *to = ps_open_memory(&all, &size);
    for (const char *at; (at = strstr(text, "%a")); text = at + 2)
        fprintf(to, "%.*s%.*s", (int)(at - text), text, digits, number);
    fputs(text, to);
    fclose(to);
    return all;
}

// A path of callbacks is part of sbatch's command line, which is to have its %a.
static bool slurm_keeps(const char *set)
{
    return strncmp(set, "callbacks", strlen("callbacks")) == 0;
}

// Of an array the job of its first task is read. *job is set only on success.
static enum ps_code slurm_load_job(const struct slurm *s, struct ps_job **job, struct ps_error *e)
{
    const char *array = slurm_array(s);
    if (!array)
        return submit_load_job(s->file, &s->sets, job, e);
    const char *number = isdigit((unsigned char)*array) ? array : "1";
    const int digits = (int)strspn(number, "0123456789");
    char *file = slurm_of_task(s->file, digits, number);
    struct cli_list sets = {.items = ps_alloc((size_t)(s->sets.n + 1) * sizeof *sets.items), .n = s->sets.n};
    char **made = ps_alloc((size_t)(sets.n + 1) * sizeof *made);
    for (int i = 0; i < sets.n; i++) {
        const char *set = s->sets.items[i];
        sets.items[i] = slurm_keeps(set) ? set : (made[i] = slurm_of_task(set, digits, number));
    }
    const enum ps_code code = submit_load_job(file, &sets, job, e);
    for (int i = 0; i < sets.n; i++)
        free(made[i]);
    free(made);
    free(sets.items);
    free(file);
    return code;
}

// ---- the job --------------------------------------------------------------------------------------------------------

static bool is_gpu(const char *device)
{
    return strcmp(device, "gpu") == 0 || strcmp(device, "cuda") == 0;  // two names of one kind
}

// As psctl run does, it says what has no effect.
static void slurm_count(struct slurm *s, const struct ps_job *job)
{
    const char *strategy = ps_job_strategies[job->strategy];
    const bool has_ps = ps_job_needs_ps(job);
    if (!has_ps && s->ps_tasks)
        fprintf(stderr, "psctl: strategy %s has no ps tasks: --ps-tasks %ld is not used\n", strategy, s->ps_tasks);
    s->ps_tasks = !has_ps ? 0 : s->ps_tasks ? s->ps_tasks : 1;
    if (!has_ps && !ps_job_needs_peers(job) && s->nodes > 1) {
        fprintf(stderr, "psctl: strategy %s has one worker: --nodes %ld is not used\n", strategy, s->nodes);
        s->nodes = 1;
    }
    if (s->nodes == 0)
        s->nodes = s->ps_tasks > 0 ? s->ps_tasks : 1;
}

static void slurm_take_job(struct slurm *s, const struct ps_job *job)
{
    const struct ps_job_devices *d = &job->devices;
    const char *shards = ps_callbacks_shards(&job->callbacks);
    s->name = ps_strdup(job->name);
    s->shards = shards ? ps_strdup(shards) : NULL;
    s->cores = job->threads * (d->n ? (long)d->n : 1);
    s->gpus = !d->n && is_gpu(job->device);
    for (size_t i = 0; i < d->n; i++)
        s->gpus += is_gpu(d->device[i].kind);
    s->min_workers = ps_job_min_workers(job, 1);
    slurm_count(s, job);
}

// A job whose paths cannot be made absolute, or have no folder to be relative to, is trained all the same.
static void slurm_look_at_files(struct ps_job *job)
{
    char folder[PATH_MAX];
    if (getcwd(folder, sizeof folder) && ps_job_make_absolute(job, folder, NULL) == PS_OK)
        submit_look_at_files(job);
}

static bool slurm_is_one_of(const char *option, const char *const *known)
{
    while (*known && strncmp(option, *known, strlen(*known)) != 0)
        known++;
    return *known != NULL;
}

// Does this option of sbatch say how many tasks there are? One on each node is what there is without it.
static bool slurm_is_task_count(const char *option)
{
    static const char *const known[] = {"-n", "--nt", "--tasks-per-node", NULL};
    return slurm_is_one_of(option, known) && strcmp(option, "--ntasks-per-node=1") != 0;
}

static bool slurm_is_node_count(const char *option)
{
    static const char *const known[] = {"-N", "-w", "-F", "--nod", NULL};
    return slurm_is_one_of(option, known);
}

// Do options behind -- say how many workers there are, or lines of the script? Those do not say how many nodes: psctl's
// own --nodes, which stands before, counts.
static bool slurm_has_worker_count(const struct slurm *s, const char *script)
{
    bool has = false;
    char line[1024], *rest;
    for (char **option = s->options; *option; option++)
        has |= slurm_is_node_count(*option) || slurm_is_task_count(*option);
    FILE *from = fopen(script, "re");
    while (from && fgets(line, sizeof line, from)) {
        char *word = strtok_r(line, " \t\n", &rest);
        if (!word || strcmp(word, "#SBATCH") != 0)
            continue;
        while ((word = strtok_r(NULL, " \t\n", &rest)))
            has |= slurm_is_task_count(word);
    }
    if (from)
        fclose(from);
    return has;
}

static enum ps_code slurm_check_workers(const struct slurm *s, const char *script, struct ps_error *e)
{
    return slurm_has_worker_count(s, script) ? PS_OK
                                             : submit_check_workers(s->min_workers, (uint32_t)s->nodes, "--nodes", e);
}

// ---- the command line -----------------------------------------------------------------------------------------------

// A word of it, in quotes where a shell would see something else in it.
static void slurm_add(FILE *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (*word && !word[strspn(word, plain)]) {
        fprintf(to, " %s", word);
        return;
    }
    fputs(" '", to);
    for (; *word; word++)
        *word == '\'' ? fputs("'\\''", to) : fputc(*word, to);
    fputc('\'', to);
}

// malloc'd. Of two options of sbatch that say the same the last one holds: the user's.
static char *slurm_command(const struct slurm *s, const char *script)
{
    char *text = NULL;
    size_t size;
    FILE *to = ps_open_memory(&text, &size);
    fprintf(to, "sbatch --parsable --nodes=%ld", s->nodes);
    slurm_add(to, "--job-name");
    slurm_add(to, s->name);
    if (s->cores > 1)
        fprintf(to, " --cpus-per-task=%ld", s->cores);
    if (s->gpus > 0)
        fprintf(to, " --gpus-per-task=%ld", s->gpus);
    for (char **option = s->options; *option; option++)
        slurm_add(to, *option);
    slurm_add(to, script);
    fprintf(to, " --ps-tasks %ld%s", s->ps_tasks, s->munge ? " --munge" : "");
    if (s->shards && s->ps_tasks > 0) {
        slurm_add(to, "--checkpoints");
        slurm_add(to, s->shards);
    }
    slurm_add(to, s->file);
    for (int i = 0; i < s->sets.n; i++) {
        slurm_add(to, "--set");
        slurm_add(to, s->sets.items[i]);
    }
    fclose(to);
    return text;
}

// ---- sbatch ---------------------------------------------------------------------------------------------------------

// cluster: "" where sbatch has named none.
static void slurm_say(const struct slurm *s, const char *number, const char *cluster)
{
    printf("Slurm has queued '%s' as job %s; what to type next:\n  squeue --jobs %s%s%s\n", s->name, number, number,
           *cluster ? " --clusters " : "", cluster);
    if (s->ps_tasks > 0 && slurm_array(s))
        printf("  psctl status --cluster paramserver-%s_TASK/cluster.yaml    # once the array's task TASK runs\n",
               number);
    else if (s->ps_tasks > 0)
        printf("  psctl status --cluster paramserver-%s/cluster.yaml    # once it runs\n", number);
    fflush(stdout);
}

// Typed inside a job of Slurm: what that one was given would be the new one's, too, and contradict what it is given.
static void slurm_forget_outer(void)
{
    char name[256];
    for (char **at = getenv("SLURM_JOB_ID") ? environ : NULL; at && *at;) {
        const size_t n = strcspn(*at, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, *at);
        const bool outer =
            n < sizeof name && strncmp(name, "SLURM_", strlen("SLURM_")) == 0 && strcmp(name, "SLURM_CONF") != 0;
        if (outer && unsetenv(name) == 0)
            at = environ;
        else
            at++;
    }
}

// sbatch writes the job's number, and of several clusters ";CLUSTER"; what is wrong it says itself. Where it was told
// to wait, its exit code is the job's.
static int slurm_queue(const struct slurm *s, const char *command)
{
    struct ps_error e;
    char line[256] = "";
    slurm_forget_outer();
    FILE *from = popen(command, "r");
    if (!from)
        return call_report((ps_fail(&e, PS_RESOURCE_EXHAUSTED, "cannot start sbatch: %m"), &e));
    const char *got = fgets(line, sizeof line, from);
    const size_t digits = strspn(line, "0123456789");
    if (digits) {
        line[strcspn(line, "\n")] = '\0';
        const char *cluster = line[digits] == ';' ? line + digits + 1 : "";
        line[digits] = '\0';
        slurm_say(s, line, cluster);
    } else if (got) {
        fputs(line, stderr);
    }
    const int status = pclose(from), code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || digits)
        return code;
    ps_fail(&e, PS_FAILED_PRECONDITION, "sbatch has not queued %s, and ended with exit code %d", s->file, code);
    return call_report(&e);
}

static enum ps_code slurm_find_script(const struct slurm *s, char *to, size_t size, struct ps_error *e)
{
    if (!s->script && program_find_data("slurm/paramserver.sbatch", to, size, e))
        return ps_error_prefix(e, "--script FILE may name what sbatch is to run");
    if (s->script)
        snprintf(to, size, "%s", s->script);
    return access(to, R_OK) ? ps_fail(e, PS_NOT_FOUND, "cannot read %s: %m", to) : PS_OK;
}

static int slurm_run(struct slurm *s)
{
    struct ps_error e;
    struct ps_job *job;
    char script[PATH_MAX], sbatch[PATH_MAX];
    if (slurm_load_job(s, &job, &e))
        return call_report(&e);
    slurm_take_job(s, job);
    slurm_look_at_files(job);
    ps_job_free(job);
    if (slurm_find_script(s, script, sizeof script, &e) || slurm_check_workers(s, script, &e))
        return call_report(&e);
    if (!s->dry_run && !program_on_path("sbatch", sbatch, sizeof sbatch)) {
        ps_fail(&e, PS_UNAVAILABLE, "there is no sbatch on PATH: expected a host from which Slurm takes jobs");
        return call_report(&e);
    }
    char *command = slurm_command(s, script);
    const int exit_code = s->dry_run ? (puts(command), 0) : slurm_queue(s, command);
    free(command);
    return exit_code;
}

static bool slurm_is_heterogeneous(const struct slurm *s)
{
    char **option = s->options;
    while (*option && strcmp(*option, ":") != 0)
        option++;
    return *option != NULL;
}

int command_slurm(struct call *call)
{
    struct slurm s = {.options = slurm_cut_options(call)};
    const struct cli_option options[] = {{.name = "nodes", .letter = 'N', .number = &s.nodes, .min = 1, .max = 100000},
                                         {.name = "ps-tasks", .number = &s.ps_tasks, .min = 1, .max = 100000},
                                         {.name = "set", .list = &s.sets},
                                         {.name = "script", .text = &s.script},
                                         {.name = "munge", .flag = &s.munge},
                                         {.name = "dry-run", .flag = &s.dry_run}};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    s.file = call->argv[0];
    if (slurm_is_heterogeneous(&s))
        exit_code =
            call_wrong(call, "a ':' behind -- makes a job of several components, of which the first alone would "
                             "train: expected none");
    else if (s.nodes && s.ps_tasks > s.nodes)
        exit_code =
            call_wrong(call, "--ps-tasks is %ld and --nodes %ld: each server needs a node", s.ps_tasks, s.nodes);
    else
        exit_code = slurm_run(&s);
    free(s.sets.items);
    free(s.shards);
    free(s.name);
    return exit_code;
}
