// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/screen.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/alloc.h"

#define SECOND_SCREEN "\033[?1049h"
#define FIRST_SCREEN "\033[?1049l"
#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

// ---- cutting ------------------------------------------------------------------------------------------------------

static bool starts_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

char *screen_cut(const char *text, int rows, int columns)
{
    char *cut = ps_alloc(strlen(text) + 1), *to = cut;
    int row = 0, column = 0;
    for (; *text && row < rows; text++) {
        bool newline = *text == '\n';
        column += starts_character(*text);
        if (newline || column <= columns)
            *to++ = *text;
        if (newline) {
            row++;
            column = 0;
        }
    }
    *to = '\0';
    return cut;
}

// ---- the terminal -------------------------------------------------------------------------------------------------

static struct winsize screen_window(void)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    if (size.ws_row == 0)
        size.ws_row = 24;
    if (size.ws_col == 0)
        size.ws_col = 80;
    return size;
}

bool screen_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static bool locale_is_utf8(void)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool utf8 = locale && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    if (locale)
        freelocale(locale);
    return utf8;
}

// The last line stays empty: a newline after it would scroll.
void screen_draw(struct screen *s)
{
    struct winsize size = screen_window();
    const struct table_screen room = {size.ws_row - 1, size.ws_col, s->utf8};
    char *text = NULL;
    size_t length;
    FILE *to = ps_open_memory(&text, &length);
    s->draw(s, &room, to);
    fclose(to);
    char *cut = screen_cut(text, room.rows, room.columns), *rest = cut;
    fputs(HOME, stdout);
    for (char *line; (line = strsep(&rest, "\n")) && rest;)
        printf("%s" CLEAR_LINE "\n", line);
    fputs(CLEAR_BELOW, stdout);
    fflush(stdout);
    free(cut);
    free(text);
}

static void on_resize(uv_signal_t *handle, int signum)
{
    (void)signum;
    screen_draw(handle->data);
}

static void screen_on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct screen *s = handle->data;
    (void)suggested;
    *buf = uv_buf_init(s->room, sizeof s->room);
}

static void on_keys(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct screen *s = stream->data;
    if (n < 0)
        uv_read_stop(stream);
    for (ssize_t i = 0; i < n; i++)
        s->key(s, buf->base[i]);
}

static void reset_mode(void)
{
    uv_tty_reset_mode();
}

void screen_open(struct screen *s, uv_loop_t *loop)
{
    s->utf8 = locale_is_utf8();
    uv_signal_init(loop, &s->resized);
    s->resized.data = s;
    uv_signal_start(&s->resized, on_resize, SIGWINCH);
    s->keys = uv_guess_handle(STDIN_FILENO) == UV_TTY && uv_tty_init(loop, &s->input, STDIN_FILENO, 1) == 0;
    if (s->keys) {
        s->input.data = s;
        atexit(reset_mode);
        uv_tty_set_mode(&s->input, UV_TTY_MODE_RAW);
        uv_read_start((uv_stream_t *)&s->input, screen_on_room, on_keys);
    }
    fputs(SECOND_SCREEN HIDE_CURSOR HOME CLEAR_BELOW, stdout);
    fflush(stdout);
}

void screen_close(struct screen *s)
{
    uv_close((uv_handle_t *)&s->resized, NULL);
    if (s->keys) {
        uv_tty_reset_mode();
        uv_close((uv_handle_t *)&s->input, NULL);
    }
    fputs(SHOW_CURSOR FIRST_SCREEN, stdout);
    fflush(stdout);
}
