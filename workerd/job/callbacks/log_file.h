// SPDX-License-Identifier: Apache-2.0
//
// A file that grows with the training, which goes on where the file cannot be written. Where it has a line per epoch,
// every worker knows the last one: whoever takes over finds by what is in the file whether the chief that was lost has
// written it.
#ifndef WK_LOG_FILE_H
#define WK_LOG_FILE_H

#include <stdio.h>

#include "workerd/job/callback.h"

struct wk_log_file {
    const char *path;  // the caller's
    FILE *stream;      // NULL: it has not been opened, or that has failed when this worker took over
    uint64_t written;  // so long it was after the last flush
    bool failed;       // the last flush has, as the log says
    uint64_t length;   // at which a training that goes on opens it
    bool goes_on;
    char *line;      // of the last epoch that has ended; NULL: none has
    uint64_t epoch;  // whose line that is
    bool has_last;   // another worker has written lines, the last one of
    uint64_t last;   // this epoch
};

void wk_log_file_init(struct wk_log_file *f, const char *path);
// Empty where the training begins; cut to the length that the checkpoint knew where it goes on from one; else as long
// as it is: this worker takes over, or no step is left. CANNOT_CREATE; but who takes over says so, and goes on without.
enum ps_code wk_log_file_open(struct wk_log_file *f, const struct wk_run *run, bool takes_over, struct ps_error *e);
bool wk_log_file_is_empty(const struct wk_log_file *f);
// What cannot be written is lost, whole: the file ends where the last flush did. The log says so the first time.
void wk_log_file_flush(struct wk_log_file *f);
void wk_log_file_close(struct wk_log_file *f);

// ---- a line per epoch ----
// After a chief that was lost: half a line is cut off, and the last epoch's is put where it is missing. A line of an
// epoch begins with `lead` and then its number, which may stand in quotes.
void wk_log_file_take_over(struct wk_log_file *f, const char *lead);
// The line of an epoch that has ended: the chief writes it, unless another one has; all remember it. Takes `line`.
void wk_log_file_put(struct wk_log_file *f, const struct wk_moment *m, char *line);

void wk_log_file_save(const struct wk_log_file *f, json_t *to);
enum ps_code wk_log_file_load(struct wk_log_file *f, const json_t *from, struct ps_error *e);

#endif
