// SPDX-License-Identifier: Apache-2.0
//
// psctl check-build: asks the workerd that `psctl run` would start what it has.
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/program.h"
#include "tools/psctl/psctl.h"

enum { BUILD_LEFT = 19, BUILD_WIDTH = 79 };

extern char **environ;

// ---- workerd ------------------------------------------------------------------------------------------------------

// Its standard output is the file's, which is -1 where it does not start.
static pid_t build_start(const char *workerd, int out[2])
{
    char *argv[] = {(char *)workerd, (char *)"--check-build", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    posix_spawn_file_actions_addclose(&actions, out[1]);
    errno = posix_spawn(&pid, workerd, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return errno ? -1 : pid;
}

static json_t *build_read(int fd, pid_t pid)
{
    int status;
    json_t *rows = json_loadfd(fd, 0, NULL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (json_is_array(rows) && status == 0)
        return rows;
    json_decref(rows);
    return NULL;
}

static enum ps_code build_ask(const char *workerd, json_t **rows, struct ps_error *e)
{
    int out[2];
    if (pipe(out))
        return ps_fail(e, PS_UNAVAILABLE, "pipe: %s", strerror(errno));
    const pid_t pid = build_start(workerd, out);
    const int error = errno;
    close(out[1]);
    *rows = pid < 0 ? NULL : build_read(out[0], pid);
    close(out[0]);
    if (pid < 0)
        return ps_fail(e, PS_UNAVAILABLE, "%s cannot be started: %s", workerd, strerror(error));
    if (!*rows)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s --check-build: expected the workerd of this psctl's version",
                       workerd);
    return PS_OK;
}

// ---- what is shown ------------------------------------------------------------------------------------------------

static void build_add_program(json_t *rows, const char *name, const char *path)
{
    json_array_insert_new(rows, 0, json_pack("{ss sb ss}", "what", name, "has", 1, "finding", path));
}

static void build_add_psd(json_t *rows)
{
    char psd[PATH_MAX];
    struct ps_error e;
    if (program_find("psd", "PSD", psd, sizeof psd, &e) == PS_OK)
        build_add_program(rows, "psd", psd);
    else
        json_array_insert_new(rows, 0,
                              json_pack("{ss sb ss ss}", "what", "psd", "has", 0, "finding", e.text, "advice",
                                        "install it where jobs of parameter_server and local_steps have to run"));
}

// Words from column BUILD_LEFT on; returns the column after the last one.
static int build_print_words(const char *text, int column)
{
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (column > BUILD_LEFT && column + 1 + n > BUILD_WIDTH)
            column = printf("\n%*s", BUILD_LEFT, "") - 1;
        column += printf("%s%.*s", column > BUILD_LEFT ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    return column;
}

static void build_print(const json_t *row)
{
    const char *advice = json_string_value(json_object_get(row, "advice"));
    int column = printf("[%c] %-*s", json_is_true(json_object_get(row, "has")) ? 'x' : ' ', BUILD_LEFT - 4,
                        json_string_value(json_object_get(row, "what")));
    column = build_print_words(json_string_value(json_object_get(row, "finding")), column);
    if (advice) {
        column += printf(";");
        build_print_words(advice, column);
    }
    putchar('\n');
}

static void build_show(const json_t *rows, bool json)
{
    size_t i;
    const json_t *row;
    if (json) {
        json_dumpf(rows, stdout, JSON_INDENT(2));
        putchar('\n');
        return;
    }
    json_array_foreach(rows, i, row) build_print(row);
}

int command_check_build(struct call *call)
{
    const struct cli_option options[] = {{.name = "json", .flag = &call->target.json}};
    char workerd[PATH_MAX];
    json_t *rows;
    struct ps_error e;
    int exit_code;
    if (!call_parse(call, options, 1, &exit_code))
        return exit_code;
    if (program_find("workerd", "WORKERD", workerd, sizeof workerd, &e) || build_ask(workerd, &rows, &e))
        return call_report(&e);
    build_add_psd(rows);
    build_show(rows, call->target.json);
    json_decref(rows);
    return 0;
}
