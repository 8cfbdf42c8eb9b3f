// SPDX-License-Identifier: Apache-2.0
//
// The limits that several programs keep, each with its unit and its reason. What psd alone keeps is in psd/limits.h,
// what the transport keeps in common/rpc/server.h, and of a message in proto/paramserver.proto.
#ifndef PS_LIMITS_H
#define PS_LIMITS_H

enum {
    PS_MAX_TASKS = 4096,        // ps tasks of a cluster: each is compared with all others, and connected to each worker
    PS_MAX_WORKERS = 65536,     // of a job: each takes about 1 KiB at the control task
    PS_MAX_PARTITIONS = 65536,  // of a job: a description of more is larger than clients decode
    PS_MAX_PROGRESS = 32,       // metrics of an epoch, kept at the control task for people to see
    PS_METRIC_NAME = 64,        // bytes of a metric's name with its end, likewise
    PS_MAX_RANK = 8,            // dimensions of a variable: its shape has its place in the struct
    PS_MAX_STARTS = 6,          // of a process that signals end: a defect would end it for ever
    // s: an observer that has sent nothing for so long may be forgotten by a ps task, with what it has sent.
    PS_SILENT_CLIENT_S = 600,
    // s: so long an observer sends an update again whose answer is lost: a copy on its way gets there before it is
    // forgotten.
    PS_UNSURE_S = 480,
    PS_FAILED_S = 24 * 3600,  // a job of the queue that failed longer ago is kept, and no news
};

#endif
