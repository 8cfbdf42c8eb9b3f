// SPDX-License-Identifier: Apache-2.0
//
// The progress bar on a terminal of the test's: what it says, that it stays on its line, when it has colours. Time is
// made up.
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "workerd/job/progress.h"

uint64_t __wrap_ps_now(void);

static uint64_t now = PS_SECOND;

uint64_t __wrap_ps_now(void)
{
    return now;
}

enum { STEPS = 100, SHOWN = 65536 };

static uint64_t steps_here = STEPS;  // of a whole epoch

// Two thirds of an epoch of a second a step, where it goes on with step `from`; to its end where `whole`.
static void show(uint64_t from, bool whole)
{
    struct wk_progress p;
    struct wk_figures f = {.n = 0};
    wk_figures_add(&f, "", "accuracy", 0.5);
    wk_figures_add(&f, "", "loss", 1.25);
    wk_progress_init(&p, false, 3, STEPS);
    wk_progress_epoch_begin(&p, 0, from);
    for (uint64_t i = from; i < (whole ? steps_here : STEPS * 2 / 3); i++) {
        now += PS_SECOND;
        if (wk_progress_step(&p))
            wk_progress_show(&p, &f);
    }
    wk_figures_add(&f, "val_", "loss", 2.5);
    if (whole)
        wk_progress_epoch_end(&p, &f);
    wk_progress_fini(&p);
    wk_figures_free(&f);
    fflush(stdout);
}

static void be_on_terminal(int terminal, int columns, uint64_t from, bool whole)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int fd = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    if (fd < 0 || ioctl(fd, TIOCSWINSZ, &size) != 0 || dup2(fd, STDOUT_FILENO) < 0)
        _exit(1);
    show(from, whole);
    _exit(0);
}

// What the terminal gets: text[SHOWN].
static void on_terminal(int columns, const char *term, const char *no_color, uint64_t from, bool whole, char *text)
{
    size_t n = 0;
    ssize_t got;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), status;
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    setenv("TERM", term, 1);
    setenv("NO_COLOR", no_color, 1);
    setenv("LC_ALL", "C", 1);
    fflush(NULL);
    // Until this end is closed what the child has written can be read.
    int keep = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    pid_t child = fork();
    assert_true(child >= 0 && keep >= 0);
    if (child == 0)
        be_on_terminal(terminal, columns, from, whole);
    close(keep);
    while (n < SHOWN - 1 && (got = read(terminal, text + n, SHOWN - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(terminal);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The greatest width of what is drawn over, and in last the last line, without colours.
static size_t widest(const char *text, char last[256])
{
    size_t width = 0, most = 0;
    for (; *text; text++) {
        if (*text == '\033') {
            text += strcspn(text, "mK");
        } else if (*text == '\r') {
            most = width > most ? width : most;
            width = 0;
        } else if (*text != '\n' && width < 255) {
            last[width++] = *text;
            last[width] = '\0';
        }
    }
    return most;
}

// "Epoch 1/3" is no wider.
static void stays_on_its_line(void **state)
{
    static char text[SHOWN];
    char last[256];
    (void)state;
    for (int columns = 20; columns <= 100; columns += 10) {
        on_terminal(columns, "xterm", "", 0, false, text);
        size_t most = widest(text, last);
        if (most >= (size_t)columns)
            fail_msg("%zu columns of %d", most, columns);
    }
    // The last one, which is not drawn over, is cut nowhere; its bar goes where there is no room.
    on_terminal(80, "xterm", "", 0, true, text);
    widest(text, last);
    assert_string_equal(last, "100/100 ===== 1:40 1s/step - accuracy: 0.5000 - loss: 1.2500 - val_loss: 2.5000");
    on_terminal(50, "xterm", "", 0, true, text);
    widest(text, last);
    assert_string_equal(last, "100/100 1:40 1s/step - accuracy: 0.5000 - loss: 1.2500 - val_loss: 2.5000");
}

// A small loss is none of 0.
static void shows_figures_as_keras(void **state)
{
    static const struct {
        double value;
        const char *text;
    } of[] = {{0.5, "0.5000"},        {1234.56789, "1234.5679"},
              {0.001, "0.0010"},      {0.000999, "9.9900e-04"},
              {-7e-9, "-7.0000e-09"}, {0, "0.0000"},
              {-NAN, "nan"},          {INFINITY, "inf"}};
    char text[WK_FIGURE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_string_equal(wk_figure_text(of[i].value, text), of[i].text);
}

// 66 of 100 steps of a second: 34 seconds are left, however many steps were made before it went on.
static void says_what_is_left(void **state)
{
    static char text[SHOWN];
    char last[256];
    (void)state;
    for (uint64_t from = 0; from < 60; from += 30) {
        on_terminal(100, "xterm", "1", from, false, text);
        widest(text, last);
        assert_string_equal(last, " 66/100 =============------- 34s 1s/step - accuracy: 0.5000 - loss: 1.2500");
        assert_null(strstr(text, "\033[3"));
    }
}

static void a_dumb_terminal_gets_lines(void **state)
{
    static char text[SHOWN];
    (void)state;
    on_terminal(80, "dumb", "", 0, true, text);
    assert_string_equal(text, "Epoch 1/3\r\n100/100 1:40 1s/step - accuracy: 0.5000 - loss: 1.2500 - val_loss: "
                              "2.5000\r\n");
}

// A worker that comes late, or a data set of less than a batch.
static void an_epoch_without_steps_says_so(void **state)
{
    static char text[SHOWN];
    (void)state;
    steps_here = 0;
    on_terminal(80, "dumb", "", 0, true, text);
    assert_string_equal(text, "Epoch 1/3\r\nno step of this epoch was trained here - accuracy: 0.5000 - loss: 1.2500 - "
                              "val_loss: 2.5000\r\n");
    steps_here = STEPS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shows_figures_as_keras), cmocka_unit_test(stays_on_its_line),
                                       cmocka_unit_test(says_what_is_left),
                                       cmocka_unit_test(a_dumb_terminal_gets_lines),
                                       cmocka_unit_test(an_epoch_without_steps_says_so)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
