// SPDX-License-Identifier: Apache-2.0
//
// Jobs that wait for workers, in the order of their priorities and numbers, one running at a time: each has worker 0.
//
//     queued ----> running ----> done, failed, cancelled
//        |                            ^
//        +---- cancelled -------------+
//
// A job begins when one of the workers that it needs asks and all have within PSD_QUEUE_HEARD_MS, all of one user, who
// is its taker; it ends when each has reported its end. A worker that falls silent keeps its place: the process that is
// started under its rank gets the job again. Only where the job was cancelled, or another worker of it has ended and
// this one was not heard for long after that, a silent one is counted as ended, after PSD_QUEUE_LOST_MS. (One that was
// heard trains on: the other had been asked to leave.)
//
// Two processes of one rank never train: the second one waits until the first is silent, and gives way to it where the
// first is heard again before the second is in the job. A second one that is refused its rank (exit code 73) within
// PSD_QUEUE_LOST_MS of the first's last word ends nothing: the first may train still, unless the run has failed.
//
// Each job is a file in the queue's folder (files.h), written before anybody is told of what it says; a change that
// could not be written is tried again by psd_queue_tick.
//
// Receives from: service. Hands to: files. Threads: one at a time, with no lock: it writes to disk.
#ifndef PSD_QUEUE_H
#define PSD_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/paramserver.pb-c.h"

// Values are those of QueueState.
enum psd_queue_state { PSD_QUEUED = 1, PSD_RUNNING, PSD_DONE, PSD_FAILED, PSD_CANCELLED };

// A process that waits for a job, or trains one.
struct psd_queue_client {
    uint32_t rank;
    uint8_t id[16];
    const char *user;     // for texts; "": without TLS and munge
    const char *account;  // ps_identity_account; NULL: user
};

// One worker of a job that runs.
struct psd_queue_part {
    uint8_t client[16];  // the process that has it; zero: none has asked since psd was started
    bool taken;
    uint32_t ended;     // its exit code + 1; 0: it trains
    bool lost;          // counted as ended, without a word
    bool came;          // one of its processes has been in the job, or may have been
    bool inside;        // the one that has it has been
    uint64_t before;    // ns: until then another process was heard that may be in the job; 0: there is none
    uint64_t ended_at;  // ns
    uint64_t heard;     // ns
    uint64_t received;  // bytes of the process's output
};

struct psd_queue_job {
    uint64_t number;
    char *name, *user;
    char *text;        // NULL: it has ended
    char *taker;       // the account of its workers; NULL: nobody has it
    char *taker_name;  // what their user is called; NULL: that is not known, or the same
    int32_t priority;
    uint32_t workers;
    enum psd_queue_state state;
    bool cancelled;  // asked for
    uint32_t code;
    uint64_t submitted_ms, began_ms, ended_ms;  // since 1970
    uint64_t began;                             // ns; of one that was read, when it was
    uint64_t kept_until;                        // ns; 0: the next tick says it of one that has ended
    struct psd_queue_part *parts;               // [workers], while it runs
    bool unwritten;                             // the file says something older
    bool muted;                                 // its latest output could not be kept
    struct psd_queue_job *next;                 // of a higher number
};

struct psd_queue;

// Reads what the folder has, which is made if it is not there. A file that is damaged is logged, set aside as
// NAME.damaged, and its job is gone; one that cannot be read is logged and passed over. CANNOT_CREATE,
// PERMISSION_DENIED: the folder cannot be used; ALREADY_EXISTS: another psd uses it. now: ns, monotonic, as everywhere
// here; wall: ms since 1970.
enum ps_code psd_queue_open(const char *folder, uint64_t now, struct psd_queue **queue, struct ps_error *e);
void psd_queue_close(struct psd_queue *q);  // may be NULL

struct psd_queue_submission {
    const char *name, *user, *text;
    int32_t priority;
    uint32_t workers;
};
// INVALID_ARGUMENT: a name, a number or a text that cannot be; RESOURCE_EXHAUSTED: too much waits.
enum ps_code psd_queue_submit(struct psd_queue *q, const struct psd_queue_submission *s, uint64_t wall,
                              uint64_t *number, struct ps_error *e);
// The job of a number or a name, of several of that name the one that runs, else the latest. NOT_FOUND.
enum ps_code psd_queue_find(const struct psd_queue *q, const char *what, struct psd_queue_job **job,
                            struct ps_error *e);
// Of several of the name the one that has not ended. NOT_FOUND; FAILED_PRECONDITION: several have not, or none.
enum ps_code psd_queue_cancel(struct psd_queue *q, const char *what, uint64_t wall, struct psd_queue_job **job,
                              struct ps_error *e);
// Those of the number or name that have ended are not kept any more; *forgotten is how many. NOT_FOUND;
// FAILED_PRECONDITION: none has ended.
enum ps_code psd_queue_forget(struct psd_queue *q, const char *what, uint32_t *forgotten, struct ps_error *e);
// Until it is called again with "" no job begins: why says for what workers wait. A job that runs goes on.
void psd_queue_hold(struct psd_queue *q, const char *why);
// A worker waits. *job: what it is to train; NULL: nothing yet, and why[size] says what it waits for.
// PERMISSION_DENIED: the job that runs is another user's workers'.
enum ps_code psd_queue_next(struct psd_queue *q, const struct psd_queue_client *from, uint64_t now, uint64_t wall,
                            struct psd_queue_job **job, char *why, size_t size, struct ps_error *e);

struct psd_queue_report {
    uint64_t number;
    uint64_t offset;  // of output, in all that the process has written
    const void *output;
    size_t len;
    bool ended;
    uint32_t code;
    bool waits;    // it has not been in the job yet
    bool refused;  // as the job's last run has failed: nobody trains it
};
// *stop: the process is to end.
enum ps_code psd_queue_report(struct psd_queue *q, const struct psd_queue_client *from,
                              const struct psd_queue_report *r, uint64_t now, uint64_t wall, bool *stop,
                              struct ps_error *e);
// Time passes: silent workers, files that could not be written, jobs that ended long ago. Call every second or so.
void psd_queue_tick(struct psd_queue *q, uint64_t now, uint64_t wall);

// The output of a job's workers from *offset on, which is raised to where what is kept begins. *len 0: no more yet.
enum ps_code psd_queue_read(const struct psd_queue *q, const struct psd_queue_job *job, uint64_t *offset, void *to,
                            size_t size, size_t *len, struct ps_error *e);
// In the order of their turns: those that run, those that wait, the latest ended. list is malloc'd; NULL: no memory.
struct psd_queue_job **psd_queue_list(const struct psd_queue *q, size_t *n);
const struct psd_queue_job *psd_queue_running(const struct psd_queue *q);  // NULL: none
struct psd_queue_figures {
    uint32_t queued, running, failed;
    uint32_t failed_lately;  // of these within PS_FAILED_S, and none of the name is done or has failed since
    uint64_t oldest_ms;      // submitted_ms of the first of those that are queued; 0: none is
};
struct psd_queue_figures psd_queue_count(const struct psd_queue *q, uint64_t wall);
// How many of the job's workers wait for it, or train it.
uint32_t psd_queue_present(const struct psd_queue *q, const struct psd_queue_job *job, uint64_t now);

// What its file says of it, too; the strings are the job's.
void psd_queue_describe(const struct psd_queue_job *job, Paramserver__V1__QueuedJob *out);

#endif
