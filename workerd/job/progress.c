// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/progress.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { BAR = 20, LEAST_BAR = 5, LINE = 65536 };  // columns; bytes of what stands after the bar
#define REDRAW (100 * PS_MS)

// ---- the terminal -------------------------------------------------------------------------------------------------

static bool progress_has_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

// https://no-color.org: set and not empty.
static bool progress_has_colour(void)
{
    const char *no = getenv("NO_COLOR");
    return !no || !*no;
}

static bool progress_has_utf8(void)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool utf8 = locale && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    if (locale)
        freelocale(locale);
    return utf8;
}

static int progress_columns(void)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    return size.ws_col ? size.ws_col : 80;
}

void wk_progress_init(struct wk_progress *p, bool quiet, uint64_t epochs, uint64_t steps)
{
    *p = (struct wk_progress){.quiet = quiet, .epochs = epochs, .steps = steps};
    p->terminal = progress_has_terminal();
    p->colour = progress_has_colour();
    p->utf8 = progress_has_utf8();
}

// ---- an epoch -----------------------------------------------------------------------------------------------------

static void progress_head(struct wk_progress *p)
{
    if (!p->quiet && !p->headed)
        printf("Epoch %" PRIu64 "/%" PRIu64 "\n", p->epoch + 1, p->epochs);
    p->headed = !p->quiet;
}

void wk_progress_epoch_begin(struct wk_progress *p, uint64_t epoch, uint64_t step)
{
    p->epoch = epoch;
    p->step = p->from = step;
    p->began = ps_now();
    p->drawn = 0;
    p->open = true;
    p->headed = false;
    progress_head(p);
    fflush(stdout);
}

// ---- what stands after the bar, as Keras writes it ----------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void progress_add(char line[LINE], const char *format, ...)
{
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, LINE - n, format, args);
    va_end(args);
}

// "45s", "1:05", "2:00:05".
static void progress_add_time(char line[LINE], double seconds)
{
    unsigned long s = (unsigned long)(seconds + 0.5);
    if (s >= 3600)
        progress_add(line, " %lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else if (s >= 60)
        progress_add(line, " %lu:%02lu", s / 60, s % 60);
    else
        progress_add(line, " %lus", s);
}

static void progress_add_step_time(char line[LINE], double seconds)
{
    if (seconds >= 1 || seconds == 0)
        progress_add(line, " %.0fs/step", seconds);
    else if (seconds >= 1e-3)
        progress_add(line, " %.0fms/step", seconds * 1e3);
    else
        progress_add(line, " %.0fus/step", seconds * 1e6);
}

static void progress_add_figures(char line[LINE], const struct wk_figures *figures)
{
    char text[WK_FIGURE_TEXT];
    for (size_t i = 0; i < figures->n; i++)
        progress_add(line, " - %s: %s", figures->v[i].name, wk_figure_text(figures->v[i].value, text));
}

// While the epoch lasts the time is what is left of it, at the end what it took.
static void progress_tail(const struct wk_progress *p, const struct wk_figures *figures, uint64_t steps, bool last,
                          char line[LINE])
{
    double seconds = (double)(ps_now() - p->began) / (double)PS_SECOND;
    double per_step = p->step > p->from ? seconds / (double)(p->step - p->from) : 0;
    line[0] = '\0';
    progress_add_time(line, last ? seconds : per_step * (double)(steps - p->step));
    progress_add_step_time(line, per_step);
    progress_add_figures(line, figures);
}

// ---- the line -----------------------------------------------------------------------------------------------------

static void progress_bar(const struct wk_progress *p, int bar, int full)
{
    static const char *const mark[2][2] = {{"-", "="}, {"\xe2\x94\x81", "\xe2\x94\x81"}};  // U+2501
    static const char *const blank = " ";
    fputs(p->colour ? "\033[32m" : "", stdout);
    for (int i = 0; i < full; i++)
        fputs(mark[p->utf8][1], stdout);
    fputs(p->colour ? "\033[37m" : "", stdout);
    for (int i = full; i < bar; i++)
        fputs(p->colour || !p->utf8 ? mark[p->utf8][0] : blank, stdout);
    fputs(p->colour ? "\033[0m" : "", stdout);
}

// "\r 123/938 ━━━━━━━━━━━━━━━━━━━━ 2s 15ms/step": no wider than the terminal while it is drawn over.
static void progress_draw(const struct wk_progress *p, const struct wk_figures *figures, bool last)
{
    char head[48], tail[LINE];
    uint64_t steps = p->steps > p->step && !last ? p->steps : p->step;
    int digits = snprintf(NULL, 0, "%" PRIu64, steps), columns = progress_columns() - 1;
    int before = snprintf(head, sizeof head, "%*" PRIu64 "/%" PRIu64, digits, p->step, steps);
    progress_tail(p, figures, steps, last, tail);
    if (!p->terminal) {
        printf("%s%s", head, tail);
        return;
    }
    int room = columns - before - 1 - (int)strlen(tail), bar = room < BAR ? room : BAR;
    printf("\r\033[K%s", head);
    if (bar >= LEAST_BAR) {
        putchar(' ');
        progress_bar(p, bar, steps ? (int)((uint64_t)bar * p->step / steps) : bar);
    } else if (!last && before + (int)strlen(tail) > columns) {
        tail[columns > before ? columns - before : 0] = '\0';
    }
    fputs(tail, stdout);
}

// Others trained it all, or there is less than a batch.
static void progress_draw_none(const struct wk_figures *figures)
{
    char line[LINE] = "no step of this epoch was trained here";
    progress_add_figures(line, figures);
    fputs(line, stdout);
}

bool wk_progress_step(struct wk_progress *p)
{
    p->step++;
    return !p->quiet && p->terminal && ps_now() - p->drawn >= REDRAW;
}

void wk_progress_show(struct wk_progress *p, const struct wk_figures *figures)
{
    p->drawn = ps_now();
    progress_head(p);
    progress_draw(p, figures, false);
    fflush(stdout);
}

void wk_progress_epoch_end(struct wk_progress *p, const struct wk_figures *figures)
{
    if (!p->open || p->quiet)
        return;
    progress_head(p);
    if (p->step)
        progress_draw(p, figures, true);
    else
        progress_draw_none(figures);
    putchar('\n');
    fflush(stdout);
    p->open = false;
}

void wk_progress_fini(struct wk_progress *p)
{
    if (p->open && p->headed && !p->quiet && p->terminal)
        putchar('\n');
    fflush(stdout);
    p->open = false;
}
