// SPDX-License-Identifier: Apache-2.0
//
// A terminal that shows one text at a time, the newest, cut to its size; and whose keys are read one by one. No colours,
// nothing but what every terminal since the VT100 does, and the second screen where there is one.
//
// Everything happens on the loop's thread. The terminal is as it was after screen_close, and at exit().
#ifndef PSCTL_SCREEN_H
#define PSCTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct screen {
    void (*key)(struct screen *s, char c);  // the caller's
    void *arg;

    bool keys;  // standard input is a terminal
    uv_tty_t input;
    uv_signal_t resized;
    char room[64];  // for what is read
    char *shown;    // to be cut anew where the window changes its size
};

// Is standard output a terminal that can do it?
bool screen_possible(void);
void screen_open(struct screen *s, uv_loop_t *loop);
// Shows text: lines, each ended by \n.
void screen_draw(struct screen *s, const char *text);
// The handles are closed by the loop.
void screen_close(struct screen *s);

// The first `rows` lines of text, the first `columns` characters of each (UTF-8, of width one); malloc'd.
char *screen_cut(const char *text, int rows, int columns);

#endif
