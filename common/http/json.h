// SPDX-License-Identifier: Apache-2.0
//
// JSON (RFC 8259), written value by value. Numbers that JSON does not have are the strings "NaN", "Infinity" and
// "-Infinity", as protobuf's JSON has them.
//
// Hands to: HTTP pages. No state beside the caller's; any thread.
#ifndef PS_COMMON_HTTP_JSON_H
#define PS_COMMON_HTTP_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/error.h"

#define PS_JSON_TYPE "application/json"

struct ps_json {
    FILE *to;  // text, which grows
    char *text;
    size_t len;
    bool follows;  // a value stands before the next one
};

// RESOURCE_EXHAUSTED: no memory. Otherwise ps_json_close follows.
enum ps_code ps_json_open(struct ps_json *j, struct ps_error *e);
// key: NULL in an array. bracket: '{' or '[', and '}' or ']'.
void ps_json_begin(struct ps_json *j, const char *key, char bracket);
void ps_json_end(struct ps_json *j, char bracket);
// Bytes that are not UTF-8 become U+FFFD; '<' is escaped, so that no text ends a script that it is pasted into.
void ps_json_text(struct ps_json *j, const char *key, const char *value);
void ps_json_number(struct ps_json *j, const char *key, double value);
void ps_json_count(struct ps_json *j, const char *key, uint64_t value);
void ps_json_flag(struct ps_json *j, const char *key, bool value);
void ps_json_null(struct ps_json *j, const char *key);
// *text is malloc'd. RESOURCE_EXHAUSTED: no memory, now or when something was added.
enum ps_code ps_json_close(struct ps_json *j, char **text, struct ps_error *e);

#endif
