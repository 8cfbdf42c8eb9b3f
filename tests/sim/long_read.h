// SPDX-License-Identifier: Apache-2.0
//
// Reads of several messages, with an update right behind them, while a psd is short of memory. What such a read has
// pinned is given up in the midst of it, so that the update finds room, and it begins again.
#ifndef SIM_LONG_READ_H
#define SIM_LONG_READ_H

#include "tests/sim/trainer.h"

// What the job of a trial with SIM_LONG_READ has besides: "long", of LONG_COUNT elements in each of its partitions. The
// first one is more than a message, and nobody but the reader below changes it.
enum { LONG_COUNT = (4 << 20) / sizeof(float) + 1000 };

struct long_read {
    struct trial *trial;  // NULL: it was never started
    struct psc_client *client;
    float *values;
    float begun;    // how often 1 has been added to the first and the last element
    int under_way;  // operations
    uint64_t reads;
    bool stop;  // set it: no read begins any more
};

// A few reads, some time after each other, beside the training.
void long_read_start(struct long_read *r, struct trial *t);
bool long_read_is_idle(void *r);  // nothing of it is under way
void long_read_free(struct long_read *r);

#endif
