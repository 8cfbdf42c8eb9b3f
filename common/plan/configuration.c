// SPDX-License-Identifier: Apache-2.0
#include "common/plan/configuration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

const char *ps_configuration_next(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

const char *ps_configuration_find(const char *text, const char *line)
{
    const size_t key_size = strcspn(line, "=\n");
    for (; *text; text = ps_configuration_next(text))
        if (strncmp(text, line, key_size) == 0 && text[key_size] == '=')
            return text;
    return NULL;
}

// What a message says of a key or a value.
static void configuration_cut(const char *at, size_t at_size, char *text, size_t size)
{
    char raw[128];
    snprintf(raw, sizeof raw, "%.*s", (int)(at_size < sizeof raw ? at_size : sizeof raw), at);
    ps_utf8_cut(raw, text, size);
}

// What a message says of the value of the key that a line has.
static void configuration_cut_value(const char *in, const char *line, char *text, size_t size)
{
    static const char not_said[] = "not said";
    const char *found = ps_configuration_find(in, line), *value = found ? strchr(found, '=') + 1 : not_said;
    configuration_cut(value, strcspn(value, "\n"), text, size);
}

static bool configuration_is(const char *line, size_t key_size, const char *key)
{
    return key_size == strlen(key) && memcmp(line, key, key_size) == 0;
}

static bool configuration_is_checkpoint(const char *line, size_t key_size)
{
    return configuration_is(line, key_size, "checkpoint");
}

static const char *configuration_expected(const char *line, size_t key_size)
{
    if (configuration_is_checkpoint(line, key_size))
        return "expected all workers to go on from the same checkpoint, or none";
    if (configuration_is(line, key_size, "data.words"))
        return "expected data with the same words or classes, in the same order";
    return "give both the same job file";
}

// The first line of `of` that `in` has not alike, or NULL.
static const char *configuration_differs(const char *of, const char *in, bool begun)
{
    for (const char *line = of; *line; line = ps_configuration_next(line)) {
        const size_t size = strcspn(line, "\n"), key_size = strcspn(line, "=\n");
        const char *other = ps_configuration_find(in, line);
        if (size > key_size && !(begun && configuration_is_checkpoint(line, key_size)) &&
            (!other || strcspn(other, "\n") != size || memcmp(other, line, size) != 0))
            return line;
    }
    return NULL;
}

enum ps_code ps_configuration_check(const char *job, bool begun, const char *ours, uint32_t rank, const char *theirs,
                                    struct ps_error *e)
{
    if (!ours[0] || !theirs[0])
        return PS_OK;
    const char *line = configuration_differs(ours, theirs, begun);
    if (!line)
        line = configuration_differs(theirs, ours, begun);
    if (!line)
        return PS_OK;
    const size_t key_size = strcspn(line, "=\n");
    char key[64], brings[64], opened[64];
    configuration_cut(line, key_size, key, sizeof key);
    configuration_cut_value(theirs, line, brings, sizeof brings);
    configuration_cut_value(ours, line, opened, sizeof opened);
    return ps_fail(e, PS_FAILED_PRECONDITION, "worker %" PRIu32 "'s %s is %s, worker 0 opened job '%s' with %s: %s",
                   rank, key, brings, job, opened, configuration_expected(line, key_size));
}
