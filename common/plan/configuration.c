// SPDX-License-Identifier: Apache-2.0
#include "common/plan/configuration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

// The value of the line of `text` that has this key, or NULL; *size is its length.
static const char *configuration_find(const char *text, const char *key, size_t key_size, size_t *size)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, key_size) != 0 || line[key_size] != '=')
            continue;
        const char *value = line + key_size + 1;
        *size = strcspn(value, "\n");
        return value;
    }
    return NULL;
}

// What a message says of a key or a value; NULL: it is not there.
static void configuration_cut(const char *at, size_t at_size, char *text, size_t size)
{
    char raw[128];
    snprintf(raw, sizeof raw, "%.*s", at ? (int)(at_size < sizeof raw ? at_size : sizeof raw) : 8,
             at ? at : "not said");
    ps_utf8_cut(raw, text, size);
}

static const char configuration_checkpoint[] = "checkpoint";

static bool configuration_is_checkpoint(const char *line, size_t key_size)
{
    return key_size == sizeof configuration_checkpoint - 1 && memcmp(line, configuration_checkpoint, key_size) == 0;
}

// The first line of `of` that `in` has not alike, or NULL.
static const char *configuration_differs(const char *of, const char *in, bool begun)
{
    for (const char *line = of; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const size_t size = strcspn(line, "\n"), key_size = strcspn(line, "=\n");
        size_t other_size = 0;
        const char *other = configuration_find(in, line, key_size, &other_size);
        if (size > key_size && !(begun && configuration_is_checkpoint(line, key_size)) &&
            (!other || other_size != size - key_size - 1 || memcmp(other, line + key_size + 1, other_size) != 0))
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
    size_t their_size = 0, our_size = 0;
    const char *their = configuration_find(theirs, line, key_size, &their_size);
    const char *our = configuration_find(ours, line, key_size, &our_size);
    char key[64], brings[64], opened[64];
    configuration_cut(line, key_size, key, sizeof key);
    configuration_cut(their, their_size, brings, sizeof brings);
    configuration_cut(our, our_size, opened, sizeof opened);
    return ps_fail(e, PS_FAILED_PRECONDITION, "worker %" PRIu32 "'s %s is %s, worker 0 opened job '%s' with %s: %s",
                   rank, key, brings, job, opened,
                   configuration_is_checkpoint(line, key_size)
                       ? "expected all workers to go on from the same checkpoint, or none"
                       : "give both the same job file");
}
