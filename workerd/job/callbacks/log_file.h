// SPDX-License-Identifier: Apache-2.0
//
// A file that grows with the training.
#ifndef WK_LOG_FILE_H
#define WK_LOG_FILE_H

#include <stdio.h>

#include "workerd/job/callback.h"

struct wk_log_file {
    const char *path;  // the caller's
    FILE *stream;
    uint64_t length;  // at which a training that goes on opens it
    bool goes_on;
};

void wk_log_file_init(struct wk_log_file *f, const char *path);
// Empty where the training begins; cut to the length that the checkpoint knew where it goes on from one; else as long
// as it is: another worker wrote it before this one, or no step is left. CANNOT_CREATE.
enum ps_code wk_log_file_open(struct wk_log_file *f, const struct wk_run *run, struct ps_error *e);
bool wk_log_file_is_empty(const struct wk_log_file *f);
enum ps_code wk_log_file_flush(struct wk_log_file *f, struct ps_error *e);  // CANNOT_WRITE
void wk_log_file_close(struct wk_log_file *f);

void wk_log_file_save(const struct wk_log_file *f, json_t *to);
enum ps_code wk_log_file_load(struct wk_log_file *f, const json_t *from, struct ps_error *e);

#endif
