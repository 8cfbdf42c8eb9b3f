// SPDX-License-Identifier: Apache-2.0
//
// Command lines: options declared as a table that says where each value goes, on top of getopt_long.
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

enum { CLI_OPTIONS_MAX = 16 };

// Exactly one of flag, text, number and list is set; all but flag take a value.
struct cli_option {
    const char *name;  // "--name"
    char letter;       // "-l"; 0: none
    bool *flag;
    const char **text;
    enum ps_code (*check)(const char *text, struct ps_error *e);  // of text; NULL: any is right
    long *number;
    long min, max;          // of number, both inclusive
    struct cli_list *list;  // may be given several times
};

// Points into argv. Room for as many as a command line has is made once; free items.
struct cli_list {
    const char **items;
    int n;
};

enum cli_result { CLI_OK, CLI_HELP, CLI_WRONG };

// Takes the options out of argv[1 .. argc - 1]; *first is the index of the first operand, operands stand last
// (with `stop_at_operand` the options end at the first operand). CLI_HELP: --help was among them. CLI_WRONG:
// said on stderr what is wrong; `command` names the part of the program that was meant ("psctl run").
enum cli_result cli_parse(const char *command, int argc, char **argv, const struct cli_option *options, size_t n,
                          bool stop_at_operand, int *first);

// What cli_parse has put into lists, for those who do not go on with it.
void cli_free_lists(const struct cli_option *options, size_t n);

// Checks that there are between min and max operands; else says so, and how the usage is, and returns false.
bool cli_operands(const char *command, char *const *argv, int given, int min, int max, const char *usage);

#endif
