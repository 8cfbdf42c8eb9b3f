// SPDX-License-Identifier: Apache-2.0
//
// What the code under test says on standard error. After cmocka.h.
#ifndef TESTS_UNIT_HEARING_H
#define TESTS_UNIT_HEARING_H

#include <stdio.h>
#include <unistd.h>

struct hearing {
    FILE *file;
    int before;
};

static inline struct hearing hearing_begin(void)
{
    const struct hearing h = {tmpfile(), dup(2)};
    assert_true(h.file && h.before >= 0 && dup2(fileno(h.file), 2) == 2);
    return h;
}

// What was said since, as much of it as fits.
static inline void hearing_end(struct hearing *h, char *said, size_t size)
{
    dup2(h->before, 2);
    close(h->before);
    rewind(h->file);
    said[fread(said, 1, size - 1, h->file)] = '\0';
    fclose(h->file);
}

#endif
