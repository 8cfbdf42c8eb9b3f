// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/stop.h"

#include <signal.h>

#include "common/base/signals.h"

static volatile sig_atomic_t stop_came;

static void stop_note(int signum)
{
    stop_came = signum;
}

void stop_watch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = stop_note};  // without SA_RESTART: what waits goes on to look
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (ps_signal_ends(signals[i]))
            sigaction(signals[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool stop_asked(struct ps_error *e)
{
    if (stop_came)
        ps_fail(e, PS_CANCELLED, "%s", ps_signal_name(stop_came));
    return stop_came != 0;
}

int stop_signal(void)
{
    return stop_came;
}
