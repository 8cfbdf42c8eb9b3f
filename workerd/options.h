// SPDX-License-Identifier: Apache-2.0
//
// workerd's command line.
#ifndef WK_OPTIONS_H
#define WK_OPTIONS_H

#include <stdbool.h>

#include "workerd/job/look.h"

struct wk_options {
    const char *job;  // a file; NULL: it waits for jobs of the queue
    const char *cluster, *tls, *summary, *timeline, *http;
    char *ps;
    const char **sets;
    int n_sets;
    long rank;                  // -1: not said
    long workers, min_workers;  // 0: not said
    long ready_fd;              // -1: none
    bool quiet, resume, profile, munge, insecure;
    struct wk_look look;  // instead of training
};

// Parses argv, whose memory the options go on using. --help, --version and what else only tells what there is print
// and exit with 0; a command line that is wrong is said on stderr and exits with PS_EXIT_USAGE.
struct wk_options wk_options_parse(int argc, char **argv);
void wk_options_free(struct wk_options *o);

#endif
