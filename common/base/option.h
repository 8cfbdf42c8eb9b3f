// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_OPTION_H
#define PS_COMMON_OPTION_H

#include <getopt.h>

// getopt_long, for letters that begin with ':' or "+:", but for two things: it says nothing on stderr, and a name that
// is cut short is not known ('?').
int ps_option_next(int argc, char *const *argv, const char *letters, const struct option *known);
// Says on stderr what ps_option_next could not take, in the words of all programs: "psd: unknown option --lisen, did
// you mean --listen?" got: '?' or ':', as it returned; argv ends with NULL.
void ps_option_say_wrong(const char *command, int got, char *const *argv, const struct option *known);

#endif
