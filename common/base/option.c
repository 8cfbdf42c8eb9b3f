// SPDX-License-Identifier: Apache-2.0
#include "common/base/option.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/error.h"

enum { OPTIONS_MAX = 64 };

// The one that getopt_long has looked at last: a letter among others has no word of its own. letter[3]
static const char *option_given(char *const *argv, const struct option *known, char *letter)
{
    const char *word = argv[optind - 1];
    bool has_name = optopt == 0 || optopt > CHAR_MAX;
    for (; known->name && !has_name; known++)
        has_name = known->val == optopt && strncmp(word, "--", 2) == 0;  // it was given a value that it does not take
    snprintf(letter, 3, "-%c", has_name ? '\0' : optopt);
    return has_name ? word : letter;
}

// NULL: none is.
static const char *option_near(const char *given, const struct option *known)
{
    const char *names[OPTIONS_MAX];
    char word[64];
    int n = 0;
    for (; known->name && n < OPTIONS_MAX; known++)
        names[n++] = known->name;
    snprintf(word, sizeof word, "%s", given + strspn(given, "-"));
    word[strcspn(word, "=")] = '\0';
    return strlen(word) > 1 ? ps_nearest(word, names, n) : NULL;
}

void ps_option_say_wrong(const char *command, int got, char *const *argv, const struct option *known)
{
    char letter[3];
    const char *given = option_given(argv, known, letter), *near = option_near(given, known);
    if (got == ':')
        fprintf(stderr, "%s: %s needs a value\n", command, argv[optind - 1]);
    else if (near)
        fprintf(stderr, "%s: unknown option %s, did you mean --%s?\n", command, given, near);
    else
        fprintf(stderr, "%s: unknown option %s; %s --help lists the known ones\n", command, given, command);
}
