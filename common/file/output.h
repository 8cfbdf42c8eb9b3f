// SPDX-License-Identifier: Apache-2.0
//
// A file that a program leaves behind. A regular file appears whole and on disk, or not at all: what was at its path
// before stays until then. Through a symbolic link its target is written. A device, a pipe and what /proc names are
// written to as they stand and never replaced; what /dev/stdout and /dev/fd/N name, from where that descriptor is. A
// folder is refused.
//
//     if (ps_output_open(&o, path, e))
//         return e->code;
//     fwrite(..., o.file);               // errors are kept
//     return ps_output_commit(&o, e);    // or ps_output_abort
//
// Errors name the path as it was given: PS_CANNOT_CREATE, PS_CANNOT_WRITE. Threads: one per struct.
#ifndef PS_COMMON_OUTPUT_H
#define PS_COMMON_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/base/error.h"

struct ps_output {
    FILE *file;        // to be written to, and closed by nobody else
    const char *path;  // the caller's, for messages; lives as long as the output does
    int fd;
    int error;                      // errno of the first write that failed; 0: none
    bool in_place;                  // not replaced by renaming
    mode_t mode;                    // of a regular file, without what the umask takes; 0: that of the one before
    char target[PATH_MAX];          // what is written: path with its symbolic links followed
    char temporary[PATH_MAX + 32];  // what becomes the target, unless it is written in place
};

enum ps_code ps_output_open(struct ps_output *o, const char *path, struct ps_error *e);
// A regular file gets this mode whatever the one before had, which may be write-protected, as a key is.
enum ps_code ps_output_open_mode(struct ps_output *o, const char *path, mode_t mode, struct ps_error *e);
// Ends the output: on PS_OK it is on disk under its name, else what was there before is.
enum ps_code ps_output_commit(struct ps_output *o, struct ps_error *e);
// Ends the output; what was there before stays.
void ps_output_abort(struct ps_output *o);

// Makes the folder, and those above it, where they are not there. PS_CANNOT_CREATE.
enum ps_code ps_make_folder(const char *folder, struct ps_error *e);

// Could that be made, or is it there, and files in it be created, as far as can be seen now? PS_CANNOT_CREATE.
enum ps_code ps_folder_check(const char *folder, struct ps_error *e);

// Could path be opened so, as far as can be seen now? Nothing is created. Errors as ps_output_open's.
enum ps_code ps_output_check(const char *path, struct ps_error *e);

// Would both be written to the same file, or be the same folder, however it is spelled and though it is not there yet?
// Not where that is a device, a pipe or what is open, to which several may write.
bool ps_output_same(const char *a, const char *b);

// Would what is written to path go where standard output goes, as to /dev/stdout?
bool ps_output_is_stdout(const char *path);

// Flushes standard output. Returns exit_code, or where not all of it could be written says so on stderr, with the
// program's name, and returns CANNOT_WRITE's unless exit_code is an error's already.
int ps_output_end_stdout(const char *program, int exit_code);

// Where a process is killed while it writes a file, what there is stays beside it, under the file's name with an ending
// more. Is that one?
bool ps_output_is_ending(const char *ending);
// Removes those of this user beside what path names that are older than a day: another process may be writing a younger
// one.
void ps_output_clean(const char *path);

// What stands behind the last slash of a path.
const char *ps_file_name(const char *path);

#endif
