// SPDX-License-Identifier: Apache-2.0
//
// psbench: how fast psd is on this machine, and how fast it could be.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tools/psbench/options.h"
#include "tools/psbench/plot.h"
#include "tools/psbench/report.h"
#include "tools/psbench/run.h"
#include "tools/psbench/stop.h"

static int write_plot(const struct options *o, const struct bench_cases *cases)
{
    FILE *file = fopen(o->plot, "w");
    if (!file) {
        fprintf(stderr, "psbench: cannot write %s: %s\n", o->plot, strerror(errno));
        return PS_EXIT_CREATE;
    }
    plot_write(cases, file);
    bool failed = ferror(file);
    if (fclose(file) == 0 && !failed)
        return 0;
    fprintf(stderr, "psbench: cannot write %s: %s\n", o->plot, strerror(errno));
    return PS_EXIT_WRITE;
}

static int write_results(const struct options *o, const struct bench_cases *cases)
{
    bool with_limits = o->plan.commands[BENCH_LIMIT];
    if (o->json) {
        json_t *results = report_json(cases, with_limits);
        json_dumpf(results, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        json_decref(results);
        puts("");
    } else {
        report_print(cases, with_limits, stdout);
    }
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "psbench: cannot write standard output: %s\n", strerror(errno));
        return PS_EXIT_WRITE;
    }
    return o->plot ? write_plot(o, cases) : 0;
}

static int measure(const struct options *o)
{
    struct ps_error e = {.code = PS_OK};
    struct bench_cases cases;
    int exit_code;
    bench_cases_make(&cases, &o->plan);
    stop_watch();
    if (run_all(&o->plan, &cases, &e) == PS_OK) {
        exit_code = write_results(o, &cases);
    } else {
        fprintf(stderr, "psbench: %s\n", e.text);
        exit_code = stop_signal() ? 128 + stop_signal() : ps_code_exit(e.code);
    }
    bench_cases_free(&cases);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct options o;
    int exit_code;
    ps_alloc_tune();
    if (options_parse(&o, argc, argv, &exit_code))
        exit_code = measure(&o);
    options_free(&o);
    return exit_code;
}
