// SPDX-License-Identifier: Apache-2.0
//
// What the control task keeps of a job besides its share of the variables: who its workers are and whether
// they live, barriers, and the leases of the epoch's examples.
//
//     EXPECTED --Join--> LIVE --Leave--> LEFT
//                         |  \--silence, Leave(failed)--> DEAD
//                         ^------------------Join------------/ (async: a later incarnation)
//
// All of it is guarded by the job's lock.
#ifndef PSD_CONTROL_H
#define PSD_CONTROL_H

#include "psd/service.h"

struct psd_range {
    uint64_t first, count;
};

struct psd_member {
    Paramserver__V1__MemberState state;
    uint8_t client[16];
    uint64_t incarnation;
    char address[80];
    uint64_t last_seen;  // ns
    uint64_t step;
    double images_per_second, loss;
    char reason[160];  // LEFT, DEAD

    // It is in a barrier while entered > passed: the sequences of the last one it entered, and was let
    // through.
    uint64_t barrier_entered, barrier_passed;
    char barrier_name[80];
    struct psd_waiters in_barrier;  // its parked calls: more than one where it has sent again

    struct psd_waiters for_lease;  // as above
    struct psd_range lease;        // count 0: none
    uint64_t lease_sequence;       // under which it was given
};

// One joint pass over the data.
struct psd_epoch {
    uint64_t number, examples;
    uint64_t next;  // examples below it have been given out
    uint64_t done;
    struct psd_range *returned;
    size_t n_returned;
};

struct psd_control {
    Paramserver__V1__Update update;
    uint32_t workers, min_workers;
    uint64_t epoch;              // of the membership; goes on from one run of a job to the next
    bool declared;               // by the chief of this run: the other tasks know it
    struct psd_member *members;  // [workers]
    struct psd_epoch data;
    bool departed;   // someone has left or died: the other tasks must know
    uint64_t *told;  // [tasks] the epoch that each task has acknowledged
    bool *telling;   // [tasks] a message is under way
    uint32_t tasks;
};

#endif
