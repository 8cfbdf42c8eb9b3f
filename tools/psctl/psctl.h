// SPDX-License-Identifier: Apache-2.0
//
// What psctl's commands share. main.c owns the table of commands; each command is one function in a file of
// its own.
#ifndef PSCTL_PSCTL_H
#define PSCTL_PSCTL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "tools/common/cli.h"

// Which cluster a command is about, and how it answers. Set by options before or after the command's name.
struct target {
    const char *file;  // --cluster; NULL: $PSCTL_CLUSTER, if it is set
    const char *ps;    // --ps A,B,C
    const char *tls;   // --tls FOLDER; NULL: $PSCTL_TLS, if it is set
    bool munge;        // --munge
    long timeout;      // --timeout, seconds that an answer may take; 0: not given
    bool json;
};

#define TARGET_OPTIONS(t)                                                                                            \
    {.name = "cluster", .text = &(t)->file}, {.name = "ps", .text = &(t)->ps}, {.name = "tls", .text = &(t)->tls},   \
        {.name = "timeout", .number = &(t)->timeout, .min = 1, .max = 3600}, {.name = "munge", .flag = &(t)->munge}, \
    {                                                                                                                \
        .name = "json", .flag = &(t)->json                                                                           \
    }

// One call of psctl. argv[0] is the command's name.
struct call {
    const struct command *command;
    int argc;
    char **argv;
    struct target target;
};

// Which of the options of struct target a command takes.
enum command_takes {
    TAKES_NONE,
    TAKES_JSON,
    TAKES_CLUSTER,  // all
};

struct command {
    const char *name;
    const char *operands;           // "JOB VARIABLE"
    int min, max;                   // how many
    const char *summary;            // in the list of commands, and above its own help
    const char *help;               // the lines under the usage: options, what is shown
    int (*run)(struct call *call);  // returns the exit code
    enum command_takes takes;
    // A line of several commands in the list of them, in place of this one's own. names NULL: it has its own; "": the
    // line of another one names it.
    struct {
        const char *names, *summary;
    } listed;
};

int command_run(struct call *call);
int command_plan(struct call *call);
int command_status(struct call *call);
int command_shards(struct call *call);
int command_vars(struct call *call);
int command_workers(struct call *call);
int command_get(struct call *call);
int command_put(struct call *call);
int command_stop(struct call *call);
int command_jobs(struct call *call);
int command_waits(struct call *call);
int command_trace(struct call *call);
int command_set(struct call *call);
int command_set_lr(struct call *call);
int command_set_mode(struct call *call);
int command_checkpoint(struct call *call);
int command_drain(struct call *call);
int command_doctor(struct call *call);
int command_check_build(struct call *call);
int command_top(struct call *call);
int command_verify(struct call *call);
int command_save(struct call *call);
int command_restore(struct call *call);
int command_tls(struct call *call);
int command_submit(struct call *call);
int command_slurm(struct call *call);
int command_queue(struct call *call);
int command_cancel(struct call *call);
int command_logs(struct call *call);
int command_cheat(struct call *call);
int command_help(struct call *call);

// Parses a command's options and checks the number of its operands, which become call->argv[0 .. argc - 1].
// Where it returns false the command is over with *exit_code: help was asked for, or the command line is
// wrong.
bool call_parse(struct call *call, const struct cli_option *options, size_t n, int *exit_code);

// Says what is wrong with the command line, and how the usage is; returns PS_EXIT_USAGE.
int call_wrong(const struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

// "psctl: text" on stderr; returns the exit code that belongs to the error.
int report(const struct ps_error *e);

#endif
