// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_OPTION_H
#define PS_COMMON_OPTION_H

#include <getopt.h>

// Says on stderr what getopt_long could not take, in the words of all programs: "psd: unknown option --lisen, did you
// mean --listen?" got: '?' or ':', as it returns with opterr 0 and letters that begin with ':'.
void ps_option_say_wrong(const char *command, int got, char *const *argv, const struct option *known);

#endif
