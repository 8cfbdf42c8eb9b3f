// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "tools/psbench/report.h"

enum { WIDTH = 760, HEIGHT = 460, LEFT = 70, RIGHT = 200, TOP = 20, BOTTOM = 50, TICK = 4 };

// The ranges of the axes: whole powers of two of bytes, whole powers of ten of GB/s.
struct plot_axes {
    double x0, x1, y0, y1;
};

static double plot_x(const struct plot_axes *a, double bytes)
{
    return LEFT + (log2(bytes) - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double plot_y(const struct plot_axes *a, double gb_per_s)
{
    return HEIGHT - BOTTOM - (log10(gb_per_s) - a->y0) / (a->y1 - a->y0) * (HEIGHT - TOP - BOTTOM);
}

static void plot_range(struct plot_axes *a, const struct bench_cases *cases)
{
    *a = (struct plot_axes){INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t i = 0; i < cases->n; i++) {
        struct report_numbers n;
        report_sum_up(&cases->v[i], &n);
        a->x0 = fmin(a->x0, log2((double)cases->v[i].size));
        a->x1 = fmax(a->x1, log2((double)cases->v[i].size));
        if (n.gb_per_s.min > 0) {
            a->y0 = fmin(a->y0, floor(log10(n.gb_per_s.min)));
            a->y1 = fmax(a->y1, ceil(log10(n.gb_per_s.max)));
        }
    }
    if (a->x1 - a->x0 < 1) {
        a->x0 -= 1;
        a->x1 += 1;
    }
    if (!(a->y1 > a->y0)) {
        a->y0 = isfinite(a->y0) ? a->y0 - 1 : -1;
        a->y1 = a->y0 + 2;
    }
}

static void plot_size_label(char *to, size_t size, double bytes)
{
    static const char *const units[] = {"", "K", "M", "G"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 3; unit++)
        bytes /= 1024;
    snprintf(to, size, "%g%s", bytes, units[unit]);
}

static void plot_write_axes(const struct plot_axes *a, FILE *to)
{
    char label[16];
    double step = fmax(1, ceil((a->x1 - a->x0) / 10));
    for (double x = ceil(a->x0); x <= a->x1; x += step) {
        plot_size_label(label, sizeof label, exp2(x));
        fprintf(to, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", plot_x(a, exp2(x)), TOP,
                plot_x(a, exp2(x)), HEIGHT - BOTTOM);
        fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", plot_x(a, exp2(x)),
                HEIGHT - BOTTOM + 18, label);
    }
    for (double y = a->y0; y <= a->y1; y++) {
        fprintf(to, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n", LEFT, plot_y(a, pow(10, y)),
                WIDTH - RIGHT, plot_y(a, pow(10, y)));
        fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, plot_y(a, pow(10, y)) + 4,
                pow(10, y));
    }
    fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">bytes per call</text>\n", (WIDTH - RIGHT + LEFT) / 2,
            HEIGHT - 12);
    fprintf(to, "<text x=\"18\" y=\"%d\" transform=\"rotate(-90 18 %d)\" text-anchor=\"middle\">GB/s</text>\n",
            HEIGHT / 2, HEIGHT / 2);
}

// All but the size.
static bool plot_same_line(const struct bench_case *a, const struct bench_case *b)
{
    return a->target == b->target && a->command == b->command && a->transport == b->transport && a->rule == b->rule &&
           a->workers == b->workers;
}

static bool plot_begins_line(const struct bench_cases *cases, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (plot_same_line(&cases->v[k], &cases->v[i]))
            return false;
    return true;
}

static void plot_write_line(const struct plot_axes *a, const struct bench_cases *cases, size_t first, int index,
                            FILE *to)
{
    static const char *const colours[] = {"#1b6ca8", "#d1495b", "#2e933c", "#8f5fbf", "#e08e1b", "#4a4a4a"};
    const struct bench_case *c = &cases->v[first];
    const char *colour = colours[index % (int)(sizeof colours / sizeof *colours)];
    const char *dash = c->target == BENCH_PSD ? "" : " stroke-dasharray=\"5 4\"";
    struct report_numbers n;
    fprintf(to, "<g stroke=\"%s\" fill=\"none\"%s>\n<polyline stroke-width=\"2\" points=\"", colour, dash);
    for (size_t i = first; i < cases->n; i++) {
        report_sum_up(&cases->v[i], &n);
        if (plot_same_line(&cases->v[i], c) && n.gb_per_s.median > 0)
            fprintf(to, "%.1f,%.1f ", plot_x(a, (double)cases->v[i].size), plot_y(a, n.gb_per_s.median));
    }
    fprintf(to, "\"/>\n");
    for (size_t i = first; i < cases->n; i++) {
        report_sum_up(&cases->v[i], &n);
        if (plot_same_line(&cases->v[i], c) && n.gb_per_s.min > 0)
            fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                    plot_x(a, (double)cases->v[i].size), plot_y(a, n.gb_per_s.min), plot_x(a, (double)cases->v[i].size),
                    plot_y(a, n.gb_per_s.max));
    }
    int y = TOP + 12 + 18 * index, x = WIDTH - RIGHT + 16;
    fprintf(to, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"2\"/>\n</g>\n", x, y - TICK, x + 24,
            y - TICK);
    char workers[32] = "";
    if (c->workers > 1)
        snprintf(workers, sizeof workers, " x %ld", c->workers);
    fprintf(to, "<text x=\"%d\" y=\"%d\">%s %s %s %s%s</text>\n", x + 30, y, bench_targets[c->target],
            bench_commands[c->command], c->target == BENCH_MEMORY ? "" : bench_transports[c->transport],
            c->command == BENCH_MEMCPY || c->command == BENCH_PULL ? "" : bench_rules[c->rule], workers);
}

void plot_write(const struct bench_cases *cases, FILE *to)
{
    struct plot_axes axes;
    int index = 0;
    plot_range(&axes, cases);
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<style>text { font: 12px sans-serif; } .grid { stroke: #ddd; }</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    plot_write_axes(&axes, to);
    for (size_t i = 0; i < cases->n; i++)
        if (plot_begins_line(cases, i))
            plot_write_line(&axes, cases, i, index++, to);
    fputs("</svg>\n", to);
}
