// SPDX-License-Identifier: Apache-2.0
//
// psctl: shows and steers a cluster of psd, and runs a whole job on one machine.
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "tools/psctl/psctl.h"

static const struct command commands[] = {
    {"run", "JOB", 1, 1, "train a job on this machine, psd and all",
     "  --ps N           ps tasks (2)\n"
     "  --workers M      workers (2)\n"
     "  --min-workers K  go on while so many workers live (default: as the job says)\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --summary FILE   where the chief writes the job's results, as JSON\n"
     "  --keep-dir       leave the directory of sockets and say where it is\n"
     "JOB is a job's YAML file. A job whose strategy is one_device runs in one\n"
     "workerd, without psd. Exit code 0: the job has finished; others: psctl(1).\n",
     command_run},
    {"plan", "JOB", 1, 1, "what would lie where, before anything is started",
     "  --ps N           ps tasks (2)\n"
     "  --set KEY=VALUE  instead of what the job's file says; may be repeated\n"
     "  --json           for programs\n"
     "JOB is a job's YAML file. Bytes of a task count values and optimizer slots.\n",
     command_plan},
    {"status", "[JOB]", 0, 1, "the ps tasks and the jobs they serve", NULL, command_status},
    {"shards", "[JOB]", 0, 1, "per ps task and job: what it holds, how busy it is", NULL, command_shards},
    {"vars", "JOB", 1, 1, "the variables of a job: shape, where they lie, version", NULL, command_vars},
    {"workers", "JOB", 1, 1, "the workers of a job: state, step, speed, loss", NULL, command_workers},
    {"get", "JOB VARIABLE", 2, 2, "a variable's value: a summary, or all of it as .npy",
     "  -o, --output FILE  write the whole value as .npy; - is standard output\n", command_get},
    {"stop", "JOB", 1, 1, "end a job and forget its variables on every ps task", NULL, command_stop},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const char cluster_help[] = "  --cluster FILE   the cluster's YAML file ($PSCTL_CLUSTER)\n"
                                   "  --ps A,B,C       or the addresses of its ps tasks (127.0.0.1:7070)\n"
                                   "  --json           for programs\n";

static void help(void)
{
    printf("usage: psctl [OPTIONS] COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-8s%-14s%s\n", commands[i].name, commands[i].operands, commands[i].summary);
    printf("\n%s  --help           this text; after a command: its own\n"
           "  --version\n\n"
           "psctl run job.yaml      trains\n"
           "psctl --ps 10.0.0.1:7070,10.0.0.2:7070 status\n",
           cluster_help);
}

static void command_usage(const struct command *command, char *to, size_t size)
{
    snprintf(to, size, "psctl %s [OPTIONS] %s", command->name, command->operands);
}

static void command_help(const struct command *command)
{
    char usage[128];
    command_usage(command, usage, sizeof usage);
    bool local = command->run == command_run || command->run == command_plan;
    printf("usage: %s\n%s.\n\n%s%s", usage, command->summary, command->help ? command->help : "",
           local ? "" : cluster_help);
}

bool call_parse(struct call *call, const struct cli_option *options, size_t n, int *exit_code)
{
    const struct command *command = call->command;
    char name[32], usage[128];
    int first;
    snprintf(name, sizeof name, "psctl %s", command->name);
    command_usage(command, usage, sizeof usage);
    enum cli_result result = cli_parse(name, call->argc, call->argv, options, n, false, &first);
    if (result == CLI_HELP)
        command_help(command);
    *exit_code = result == CLI_HELP ? 0 : PS_EXIT_USAGE;
    if (result != CLI_OK || !cli_operands(name, call->argc - first, command->min, command->max, usage))
        return false;
    call->argc -= first;
    call->argv += first;
    return true;
}

int report(const struct ps_error *e)
{
    fprintf(stderr, "psctl: %s\n", e->text);
    return ps_code_exit(e->code);
}

static const struct command *command_find(const char *name)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
        names[i] = commands[i].name;
    }
    const char *near = ps_nearest(name, names, COMMANDS);
    fprintf(stderr, "psctl: unknown command %s", name);
    if (near)
        fprintf(stderr, ", did you mean %s?\n", near);
    else
        fprintf(stderr, "; psctl --help lists the known ones\n");
    return NULL;
}

int main(int argc, char **argv)
{
    ps_alloc_tune();
    struct call call = {.target.file = getenv("PSCTL_CLUSTER")};
    bool version = false;
    const struct cli_option options[] = {TARGET_OPTIONS(&call.target),
                                         {.name = "version", .letter = 'V', .flag = &version}};
    int first;
    enum cli_result result = cli_parse("psctl", argc, argv, options, 4, true, &first);
    if (result == CLI_WRONG)
        return PS_EXIT_USAGE;
    if (result == CLI_HELP) {
        help();
        return 0;
    }
    if (version) {
        puts("psctl " PACKAGE_VERSION);
        return 0;
    }
    if (first == argc) {
        fprintf(stderr, "psctl: no command; psctl --help lists them\n");
        return PS_EXIT_USAGE;
    }
    call.command = command_find(argv[first]);
    if (!call.command)
        return PS_EXIT_USAGE;
    call.argc = argc - first;
    call.argv = argv + first;
    return call.command->run(&call);
}
