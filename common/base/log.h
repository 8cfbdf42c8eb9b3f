// SPDX-License-Identifier: Apache-2.0
// One line per event on stderr: "psd[0] W text". What would begin another line, or steer a terminal, is left out. Any
// thread.
//
// Where stderr is the journal's (JOURNAL_STREAM, systemd.exec(5)), the journal knows the time and is told the priority:
// "<4>psd[0] text" (sd-daemon(3)), so that journalctl -p warning finds it. Where the environment says
// PARAMSERVER_LOG=json, a line is an object for programs:
//
//   {"time": "2025-01-31T23:59:59.123Z", "level": "warning", "program": "psd[0]", "text": "..."}
#ifndef PS_COMMON_LOG_H
#define PS_COMMON_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ps_log_level { PS_LOG_ERROR, PS_LOG_WARNING, PS_LOG_INFO, PS_LOG_DEBUG };

// name is copied, the environment read; call before threads start. level: messages above it are dropped. Where a file,
// of the log or another, reaches RLIMIT_FSIZE, writing fails from now on, and does not end the process.
void ps_log_init(const char *name, enum ps_log_level level);
// From now on every line for people begins with the time, "2025-01-31T23:59:59.123Z ".
void ps_log_times(void);
void ps_log(enum ps_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Of a line that others can cause as often as they like: one in ten seconds is written. All zero before the first. Any
// thread.
struct ps_log_seldom {
    atomic_ullong due;       // ns
    atomic_ullong left_out;  // since the last that was written
};
enum { PS_LOG_MORE = 64 };
// Is one to be written at `now` (ns)? True: `more` is for its end, "; 12 more since the last such line", or empty.
bool ps_log_is_due(struct ps_log_seldom *s, uint64_t now, char more[PS_LOG_MORE]);

// What another process of this program writes to a pipe. One thread.
struct ps_log_relay {
    char line[4096];  // more than any of ps_log has
    size_t len;       // of it, so far
    bool inside;      // it goes on a longer one
};
// Passes it on to stderr; where that is the journal's, line by line, those for people with their priority: without this
// the journal takes the errors of a process behind a pipe for information. Where lines are objects, those that are none
// become the text of one, of level info. All zero before the first call.
void ps_log_pass(struct ps_log_relay *r, const void *bytes, size_t n);
void ps_log_pass_end(struct ps_log_relay *r);  // what has come of the last line is one

#define ps_error_log(...) ps_log(PS_LOG_ERROR, __VA_ARGS__)
#define ps_warn(...) ps_log(PS_LOG_WARNING, __VA_ARGS__)
#define ps_info(...) ps_log(PS_LOG_INFO, __VA_ARGS__)
#define ps_debug(...) ps_log(PS_LOG_DEBUG, __VA_ARGS__)

#endif
