// SPDX-License-Identifier: Apache-2.0
//
// psctl cheat: what to type when, on one screen.
#include <stdio.h>

#include "tools/psctl/psctl.h"

static const struct {
    const char *when, *type, *what;
} sheet[] = {
    {"train", "run JOB.yaml", "on this machine, psd and all"},
    {"", "plan JOB.yaml --memory 8G", "what lies where; does it fit?"},
    {"", "submit JOB.yaml --wait", "on a cluster whose workers wait"},
    {"", "slurm JOB.yaml -N 4", "on four nodes of a Slurm cluster"},
    {"look", "status", "is all well? what can be lost?"},
    {"", "top", "the same, live"},
    {"", "workers JOB", "step, speed and loss of each"},
    {"slow", "waits JOB", "who waits, for what, for whom"},
    {"", "trace JOB", "who made others wait, for how long"},
    {"", "shards JOB", "does one ps task do all the work?"},
    {"broken", "doctor", "what is wrong, and what to do"},
    {"", "doctor --report FILE", "one file, to send to who helps"},
    {"change", "set-lr JOB 0.01", "while it trains"},
    {"", "set-mode JOB async", "from the next epoch on"},
    {"keep", "checkpoint JOB", "now, with all to go on from"},
    {"", "verify FOLDER", "are checkpoints what was written?"},
    {"", "run JOB.yaml --resume", "go on from the newest one"},
    {"", "save JOB FILE", "the weights, for Python"},
    {"", "restore JOB FILE", "weights back into a job"},
    {"repair", "drain JOB worker:3 --wait", "one worker leaves, the others go on"},
    {"", "drain ps:1 --wait", "no new jobs; until its jobs have ended"},
    {"end", "cancel JOB", "a submitted one; it keeps its weights"},
    {"", "stop JOB", "any; the ps tasks forget it"},
};

int command_cheat(struct call *call)
{
    int exit_code;
    if (!call_parse(call, NULL, 0, &exit_code))
        return exit_code;
    for (size_t i = 0; i < sizeof sheet / sizeof sheet[0]; i++)
        printf("%-7s psctl %-26s %s\n", sheet[i].when, sheet[i].type, sheet[i].what);
    return 0;
}
