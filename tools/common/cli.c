// SPDX-License-Identifier: Apache-2.0
#include "tools/common/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/option.h"
#include "common/base/parse.h"

enum { LONG_BASE = 256, HELP = LONG_BASE + CLI_OPTIONS_MAX };

// What getopt_long wants: long options whose value is LONG_BASE + index, and the letters, led by the
// character that decides about operands and by ":" (a missing value is told from an unknown option).
static void cli_translate(const struct cli_option *options, size_t n, bool stop_at_operand, struct option *longs,
                          char *letters)
{
    if (stop_at_operand)
        *letters++ = '+';
    *letters++ = ':';
    *letters++ = 'h';
    for (size_t i = 0; i < n; i++) {
        int value = options[i].flag ? no_argument : required_argument;
        longs[i] = (struct option){options[i].name, value, NULL, LONG_BASE + (int)i};
        if (options[i].letter)
            *letters++ = options[i].letter;
        if (options[i].letter && value == required_argument)
            *letters++ = ':';
    }
    *letters = '\0';
    longs[n] = (struct option){"help", no_argument, NULL, HELP};
    longs[n + 1] = (struct option){0};
}

static bool cli_store_number(const char *command, const struct cli_option *option, const char *value)
{
    if (!ps_parse_number(value, option->min, option->max, option->number)) {
        fprintf(stderr, "%s: --%s is %s, expected a number from %ld to %ld\n", command, option->name, value,
                option->min, option->max);
        return false;
    }
    return true;
}

static bool cli_store_text(const char *command, const struct cli_option *option, const char *value)
{
    struct ps_error e;
    if (option->check && option->check(value, &e)) {
        fprintf(stderr, "%s: --%s: %s\n", command, option->name, e.text);
        return false;
    }
    *option->text = value;
    return true;
}

static bool cli_store(const char *command, const struct cli_option *option, const char *value, int argc)
{
    if (option->flag) {
        *option->flag = true;
    } else if (option->text) {
        return cli_store_text(command, option, value);
    } else if (option->list) {
        if (!option->list->items)
            option->list->items = ps_alloc((size_t)argc * sizeof *option->list->items);
        option->list->items[option->list->n++] = value;
    } else {
        return cli_store_number(command, option, value);
    }
    return true;
}

static const struct cli_option *cli_find(const struct cli_option *options, size_t n, int got)
{
    for (size_t i = 0; i < n; i++)
        if (got == LONG_BASE + (int)i || (options[i].letter && got == options[i].letter))
            return &options[i];
    return NULL;
}

enum cli_result cli_parse(const char *command, int argc, char **argv, const struct cli_option *options, size_t n,
                          bool stop_at_operand, int *first)
{
    struct option longs[CLI_OPTIONS_MAX + 2];
    char letters[2 * CLI_OPTIONS_MAX + 4];
    cli_translate(options, n, stop_at_operand, longs, letters);
    optind = 0;  // glibc: start over
    int got;
    while ((got = ps_option_next(argc, argv, letters, longs)) != -1) {
        const struct cli_option *option = cli_find(options, n, got);
        if (got == HELP || got == 'h')
            return CLI_HELP;
        if (!option)
            ps_option_say_wrong(command, got, argv, longs);
        if (!option || !cli_store(command, option, optarg, argc))
            return CLI_WRONG;
    }
    *first = optind;
    return CLI_OK;
}

void cli_free_lists(const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!options[i].list)
            continue;
        free(options[i].list->items);
        *options[i].list = (struct cli_list){0};
    }
}

// The word of "command [OPTIONS] A B" that stands for the operand; NULL: it names none. to[size]
static const char *cli_operand(const char *usage, int operand, char *to, size_t size)
{
    const char *at = strchr(usage, '|') ? NULL : strstr(usage, "[OPTIONS]");
    for (int i = 0; at && i <= operand; i++)
        at = (at = strchr(at, ' ')) ? at + strspn(at, " ") : NULL;
    if (!at || !*at || *at == '[')
        return NULL;
    snprintf(to, size, "%.*s", (int)strcspn(at, " "), at);
    return to;
}

// All of them: which one is too many, as a word of a value that was not quoted, only who has typed them knows.
static void cli_say_too_many(const char *command, char *const *argv, int given, const char *usage)
{
    fprintf(stderr, "%s: too many arguments:", command);
    for (int i = 0; i < given; i++)
        fprintf(stderr, " %s", argv[i]);
    fprintf(stderr, "; usage: %s\n", usage);
}

bool cli_operands(const char *command, char *const *argv, int given, int min, int max, const char *usage)
{
    if (given >= min && given <= max)
        return true;
    char word[32];
    const char *missing = given < min ? cli_operand(usage, given, word, sizeof word) : NULL;
    if (missing)
        fprintf(stderr, "%s: %s is missing; usage: %s\n", command, missing, usage);
    else if (given < min)
        fprintf(stderr, "%s: something is missing; usage: %s\n", command, usage);
    else
        cli_say_too_many(command, argv, given, usage);
    return false;
}
