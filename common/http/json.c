// SPDX-License-Identifier: Apache-2.0
#include "common/http/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"

enum ps_code ps_json_open(struct ps_json *j, struct ps_error *e)
{
    *j = (struct ps_json){0};
    j->to = open_memstream(&j->text, &j->len);
    return j->to ? PS_OK : ps_no_memory(e, "a JSON text");
}

static void json_put_char(FILE *to, unsigned char c, bool valid)
{
    if (c == '"' || c == '\\')
        fprintf(to, "\\%c", c);
    else if (c < ' ' || c == '<' || c == 0x7f)
        fprintf(to, "\\u%04x", c);
    else if (c >= 0x80 && !valid)
        fputs("\\ufffd", to);
    else
        fputc(c, to);
}

static void json_put_string(FILE *to, const char *text)
{
    const bool valid = ps_utf8_valid(text);
    fputc('"', to);
    for (; *text; text++)
        json_put_char(to, (unsigned char)*text, valid);
    fputc('"', to);
}

// What stands before a value.
static void json_put_key(struct ps_json *j, const char *key)
{
    if (j->follows)
        fputc(',', j->to);
    j->follows = true;
    if (!key)
        return;
    json_put_string(j->to, key);
    fputc(':', j->to);
}

void ps_json_begin(struct ps_json *j, const char *key, char bracket)
{
    json_put_key(j, key);
    fputc(bracket, j->to);
    j->follows = false;
}

void ps_json_end(struct ps_json *j, char bracket)
{
    fputc(bracket, j->to);
    j->follows = true;
}

void ps_json_text(struct ps_json *j, const char *key, const char *value)
{
    json_put_key(j, key);
    json_put_string(j->to, value);
}

void ps_json_number(struct ps_json *j, const char *key, double value)
{
    json_put_key(j, key);
    if (isnan(value))
        fputs("\"NaN\"", j->to);
    else if (isinf(value))
        fputs(value > 0 ? "\"Infinity\"" : "\"-Infinity\"", j->to);
    else
        fprintf(j->to, "%.15g", value);
}

void ps_json_count(struct ps_json *j, const char *key, uint64_t value)
{
    json_put_key(j, key);
    fprintf(j->to, "%" PRIu64, value);
}

void ps_json_flag(struct ps_json *j, const char *key, bool value)
{
    json_put_key(j, key);
    fputs(value ? "true" : "false", j->to);
}

void ps_json_null(struct ps_json *j, const char *key)
{
    json_put_key(j, key);
    fputs("null", j->to);
}

enum ps_code ps_json_close(struct ps_json *j, char **text, struct ps_error *e)
{
    const bool failed = ferror(j->to) != 0;
    if (fclose(j->to) == 0 && !failed) {
        *text = j->text;
        return PS_OK;
    }
    free(j->text);
    return ps_no_memory(e, "a JSON text");
}
