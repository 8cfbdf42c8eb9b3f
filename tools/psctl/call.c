// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static const char call_cluster_help[] =
    "  --cluster FILE   the cluster's YAML ($PSCTL_CLUSTER, $TF_CONFIG, this host's)\n"
    "  --ps A,B,C       or the addresses of its ps tasks (127.0.0.1:7070)\n"
    "  --tls FOLDER     certificates ($PSCTL_TLS; default: as the cluster says)\n"
    "  --munge          munge in place of them\n"
    "  --timeout S      seconds that each answer may take (5)\n"
    "  --json           for programs\n";

static void call_usage(const struct command *command, char *to, size_t size)
{
    bool options = command->help || command->takes != TAKES_NONE;
    snprintf(to, size, "psctl %s %s%s", command->name, options ? "[OPTIONS] " : "", command->operands);
}

void call_help(const struct command *command)
{
    char usage[128];
    call_usage(command, usage, sizeof usage);
    printf("usage: %s\n%s.\n\n%s%s", usage, command->summary, command->help ? command->help : "",
           command->takes == TAKES_CLUSTER ? call_cluster_help : "");
}

// None of what a command takes has an empty name.
static bool call_has_empty(char *const *operands, int n)
{
    for (int i = 0; i < n; i++)
        if (!*operands[i])
            return true;
    return false;
}

static bool call_take(struct call *call, const struct cli_option *options, size_t n, int *exit_code)
{
    const struct command *command = call->command;
    char name[32], usage[128];
    int first;
    snprintf(name, sizeof name, "psctl %s", command->name);
    call_usage(command, usage, sizeof usage);
    enum cli_result result = cli_parse(name, call->argc, call->argv, options, n, false, &first);
    if (result == CLI_HELP)
        call_help(command);
    *exit_code = result == CLI_HELP ? 0 : PS_EXIT_USAGE;
    if (result != CLI_OK ||
        !cli_operands(name, call->argv + first, call->argc - first, command->min, command->max, usage))
        return false;
    call->argc -= first;
    call->argv += first;
    if (call_has_empty(call->argv, call->argc)) {
        fprintf(stderr, "%s: an argument is empty; usage: %s\n", name, usage);
        return false;
    }
    return true;
}

bool call_parse(struct call *call, const struct cli_option *options, size_t n, int *exit_code)
{
    const bool taken = call_take(call, options, n, exit_code);
    if (!taken)
        cli_free_lists(options, n);
    return taken;
}

int call_wrong(const struct call *call, const char *format, ...)
{
    char usage[128], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    call_usage(call->command, usage, sizeof usage);
    fprintf(stderr, "psctl %s: %s; usage: %s\n", call->command->name, text, usage);
    return PS_EXIT_USAGE;
}

int call_report(const struct ps_error *e)
{
    char text[sizeof e->text];
    strcpy(text, e->text);
    ps_utf8_plain(text);  // it may be another process's
    fprintf(stderr, "psctl: %s\n", text);
    return ps_code_exit(e->code);
}
