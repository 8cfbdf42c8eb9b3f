// SPDX-License-Identifier: Apache-2.0
//
// One call of psctl: which command, with which options and operands. What is wrong with it is said here.
//
// Receives from: main, all commands. Calls: tools/common/cli.
#ifndef PSCTL_CALL_H
#define PSCTL_CALL_H

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

// The command's own help, on stdout.
void call_help(const struct command *command);

// Parses a command's options and checks the number of its operands, which become call->argv[0 .. argc - 1].
// Where it returns false the command is over with *exit_code: help was asked for, or the command line is
// wrong.
bool call_parse(struct call *call, const struct cli_option *options, size_t n, int *exit_code);

// Says what is wrong with the command line, and how the usage is; returns PS_EXIT_USAGE.
int call_wrong(const struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

// "psctl: text" on stderr; returns the exit code that belongs to the error.
int call_report(const struct ps_error *e);

#endif
