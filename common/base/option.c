// SPDX-License-Identifier: Apache-2.0
#include "common/base/option.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/error.h"

enum { OPTIONS_MAX = 64 };

// The name in "--name=value". name[64]
static void option_name(const char *word, char *name)
{
    snprintf(name, 64, "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
}

static bool option_is_known(const char *word, const struct option *known)
{
    char name[64];
    option_name(word, name);
    while (known->name && strcmp(known->name, name) != 0)
        known++;
    return known->name != NULL;
}

int ps_option_next(int argc, char *const *argv, const char *letters, const struct option *known)
{
    int at = -1;
    opterr = 0;
    const int got = getopt_long(argc, argv, letters, known, &at);
    if (got == '?' || got == ':' || got == -1 || at < 0)
        return got;
    const bool value_apart = known[at].has_arg == required_argument && optarg == argv[optind - 1];
    if (option_is_known(argv[optind - 1 - value_apart], known))
        return got;
    optind -= value_apart;  // as getopt_long leaves what it does not know
    optopt = 0;
    return '?';
}

// Was it a name that getopt_long has looked at last, and not a letter?
static bool option_was_name(const char *word, const struct option *known)
{
    bool was = optopt == 0 || optopt > CHAR_MAX;
    for (; known->name && !was; known++)
        was = known->val == optopt && strncmp(word, "--", 2) == 0;
    return was;
}

// A word such as -0.5, which getopt_long takes for letters; NULL: it was none.
static const char *option_number(int got, char *const *argv)
{
    if (got != '?' || optopt > CHAR_MAX || (!isdigit(optopt) && optopt != '.'))
        return NULL;
    for (int i = optind; i >= optind - 1; i--)  // it is passed with its last letter
        if (argv[i] && argv[i][0] == '-' && argv[i][1] == optopt)
            return argv[i];
    return NULL;
}

// The only name that begins so, else the nearest. NULL: none is.
static const char *option_near(const char *given, const struct option *known)
{
    const char *names[OPTIONS_MAX], *begins = NULL;
    char word[64];
    int n = 0, n_begin = 0;
    option_name(given, word);
    for (; known->name && n < OPTIONS_MAX; known++) {
        names[n++] = known->name;
        if (*word && strncmp(known->name, word, strlen(word)) == 0) {
            begins = known->name;
            n_begin++;
        }
    }
    return n_begin == 1 ? begins : strlen(word) > 1 ? ps_nearest(word, names, n) : NULL;
}

void ps_option_say_wrong(const char *command, int got, char *const *argv, const struct option *known)
{
    const char *word = argv[optind - 1], *number = option_number(got, argv);
    const bool is_name = option_was_name(word, known), is_known = is_name && option_is_known(word, known);
    const char letter[] = {'-', (char)(is_name ? 0 : optopt), '\0'}, *given = is_name ? word : letter;
    const char *near = is_name && !is_known ? option_near(word, known) : NULL;
    if (number)
        fprintf(stderr, "%s: %s: no negative number is taken here\n", command, number);
    else if (got == ':' && (is_known || !is_name))
        fprintf(stderr, "%s: %s needs a value\n", command, given);
    else if (is_known && strchr(word, '='))
        fprintf(stderr, "%s: %.*s takes no value\n", command, (int)strcspn(word, "="), word);
    else if (near)
        fprintf(stderr, "%s: unknown option %s, did you mean --%s?\n", command, given, near);
    else
        fprintf(stderr, "%s: unknown option %s; %s --help lists the known ones\n", command, given, command);
}
