// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { BAR = 20 };
#define REDRAW (100 * PS_MS)

void wk_progress_init(struct wk_progress *p, bool quiet, uint64_t epochs, uint64_t steps, bool accuracy)
{
    *p = (struct wk_progress){.quiet = quiet, .epochs = epochs, .steps = steps, .accuracy = accuracy};
    p->terminal = isatty(STDOUT_FILENO);
}

void wk_progress_epoch_begin(struct wk_progress *p, uint64_t epoch)
{
    p->epoch = epoch;
    p->step = 0;
    p->examples = p->loss = p->correct = 0;
    p->began = ps_now();
    p->drawn = 0;
    p->open = true;
    if (!p->quiet) {
        printf("Epoch %" PRIu64 "/%" PRIu64 "\n", epoch + 1, p->epochs);
        fflush(stdout);
    }
}

static void print_metrics(const struct wk_progress *p)
{
    if (p->examples <= 0)
        return;
    if (p->accuracy)
        printf(" - accuracy: %.4f", p->correct / p->examples);
    printf(" - loss: %.4f", p->loss / p->examples);
}

// "\r 123/938 ━━━━━━━━━━━━━━━━━━━━ 2s 15ms/step"
static void draw(const struct wk_progress *p, bool last)
{
    double seconds = (double)(ps_now() - p->began) / (double)PS_SECOND;
    uint64_t steps = p->steps > p->step && !last ? p->steps : p->step;
    int full = steps ? (int)(BAR * p->step / steps) : BAR;
    if (p->terminal)
        printf("\r\033[K");
    printf("%" PRIu64 "/%" PRIu64 " ", p->step, steps);
    for (int i = 0; p->terminal && i < BAR; i++)
        fputs(i < full ? "\033[32m━\033[0m" : "\033[37m━\033[0m", stdout);
    printf(" %.0fs %.0fms/step", seconds, p->step ? seconds * 1000 / (double)p->step : 0);
    print_metrics(p);
}

void wk_progress_step(struct wk_progress *p, double examples, double loss, double correct)
{
    p->step++;
    p->examples += examples;
    p->loss += loss;
    p->correct += correct;
    if (p->quiet || !p->terminal || ps_now() - p->drawn < REDRAW)
        return;
    p->drawn = ps_now();
    draw(p, false);
    fflush(stdout);
}

void wk_progress_epoch_end(struct wk_progress *p, double test_loss, double test_accuracy)
{
    if (!p->open || p->quiet)
        return;
    draw(p, true);
    if (!isnan(test_loss)) {
        if (p->accuracy)
            printf(" - val_accuracy: %.4f", test_accuracy);
        printf(" - val_loss: %.4f", test_loss);
    }
    putchar('\n');
    fflush(stdout);
    p->open = false;
}

void wk_progress_fini(struct wk_progress *p)
{
    if (p->open && !p->quiet && p->terminal)
        putchar('\n');
    fflush(stdout);
    p->open = false;
}
