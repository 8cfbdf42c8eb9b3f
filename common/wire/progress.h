// SPDX-License-Identifier: Apache-2.0
//
// How far a job's training is, as its chief says: kept by the chief's client and by the control task, and as a message.
#ifndef PS_COMMON_PROGRESS_H
#define PS_COMMON_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "proto/paramserver.pb-c.h"

// Does the job write checkpoints?
enum ps_checkpoints {
    PS_CHECKPOINTS_UNKNOWN = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_UNKNOWN,
    PS_CHECKPOINTS_NONE = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_NONE,
    PS_CHECKPOINTS_SOME = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_SOME,
};

struct ps_progress {
    uint64_t epochs, ended;  // epochs 0: not said
    enum ps_checkpoints checkpoints;
    uint64_t checkpoint;     // the step of the newest; 0: there is none yet
    uint64_t checkpoint_ms;  // when that was written, since 1970
    size_t n;
    struct ps_progress_metric {
        char name[PS_METRIC_NAME];  // plain UTF-8
        double value;
    } metric[PS_MAX_PROGRESS];
};

// Appends one; a long name is cut. Of more than PS_MAX_PROGRESS the last ones stay.
void ps_progress_add(struct ps_progress *p, const char *name, double value);
// What is more than PS_MAX_PROGRESS is left out, and what has no name, or one that is there already. Where there are no
// metrics those of the same epoch stay. A chief that does not know of the newest checkpoint takes nothing back.
void ps_progress_read(struct ps_progress *p, const Paramserver__V1__Progress *from);

struct ps_progress_message {
    Paramserver__V1__Progress base;
    Paramserver__V1__Metric metric[PS_MAX_PROGRESS], *pointers[PS_MAX_PROGRESS];
};

// Is made in *to, and points into both. NULL: it was not said.
Paramserver__V1__Progress *ps_progress_write(const struct ps_progress *p, struct ps_progress_message *to);

#endif
