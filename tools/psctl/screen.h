// SPDX-License-Identifier: Apache-2.0
//
// A terminal that shows one text at a time, written anew for its size; and whose keys are read one by one. No colours,
// nothing but what every terminal since the VT100 does, and the second screen where there is one.
//
// Everything happens on the loop's thread. The terminal is as it was after screen_close, and at exit().
#ifndef PSCTL_SCREEN_H
#define PSCTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <uv.h>

#include "tools/common/table.h"

struct screen {
    // The caller's: writes what is to be seen, lines, each ended by \n; is told of a key.
    void (*draw)(struct screen *s, const struct table_screen *size, FILE *to);
    void (*key)(struct screen *s, char c);
    void *arg;

    bool utf8;  // the locale's
    bool keys;  // standard input is a terminal
    uv_tty_t input;
    uv_signal_t resized;
    char room[64];  // for what is read
};

// Is standard output a terminal that can do it?
bool screen_possible(void);
void screen_open(struct screen *s, uv_loop_t *loop);
// Shows what draw writes. So does a window that changes its size.
void screen_draw(struct screen *s);
// The handles are closed by the loop.
void screen_close(struct screen *s);

// The first `rows` lines of text, the first `columns` characters of each (UTF-8, of width one); malloc'd.
char *screen_cut(const char *text, int rows, int columns);

#endif
