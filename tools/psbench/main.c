// SPDX-License-Identifier: Apache-2.0
//
// psbench: how fast psd is on this machine, and how fast it could be.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/self.h"
#include "common/file/output.h"
#include "tools/psbench/options.h"
#include "tools/psbench/plot.h"
#include "tools/psbench/report.h"
#include "tools/psbench/run.h"
#include "tools/psbench/stop.h"

static int report_error(const struct ps_error *e)
{
    fprintf(stderr, "psbench: %s\n", e->text);
    return stop_signal() ? 128 + stop_signal() : ps_code_exit(e->code);
}

static int write_plot(const struct options *o, const struct bench_cases *cases)
{
    struct ps_output output;
    struct ps_error e;
    if (ps_output_open(&output, o->plot, &e))
        return report_error(&e);
    plot_write(cases, output.file);
    return ps_output_commit(&output, &e) ? report_error(&e) : 0;
}

static int bench_write_results(const struct options *o, const struct bench_cases *cases)
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
        return ps_code_exit(PS_CANNOT_WRITE);
    }
    return o->plot ? write_plot(o, cases) : 0;
}

static int bench_measure(const struct options *o)
{
    struct ps_error e = {.code = PS_OK};
    struct bench_cases cases;
    if (o->plot && ps_output_check(o->plot, &e))
        return report_error(&e);
    bench_cases_make(&cases, &o->plan);
    stop_watch();
    int exit_code = run_all(&o->plan, &cases, &e) ? report_error(&e) : bench_write_results(o, &cases);
    bench_cases_free(&cases);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct options o;
    int exit_code;
    ps_self_begin(argc);
    ps_alloc_tune();
    signal(SIGXFSZ, SIG_IGN);  // what cannot be written is an error like others
    if (options_parse(&o, argc, argv, &exit_code))
        exit_code = bench_measure(&o);
    else
        exit_code = ps_output_end_stdout("psbench", exit_code);
    options_free(&o);
    return exit_code;
}
