// SPDX-License-Identifier: Apache-2.0
//
// psctl verify: are checkpoints what was written? Each is read whole, and compared with its checksums.
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/file/safetensors.h"
#include "common/file/shards.h"
#include "tools/common/table.h"
#include "tools/psctl/psctl.h"

static const struct table_column columns[] = {
    {"file", "file", TABLE_TEXT},  {"bytes", "bytes", TABLE_BYTES},        {"arrays", "arrays", TABLE_COUNT},
    {"step", "step", TABLE_COUNT}, {"verdict", "verdict", TABLE_SENTENCE},
};

struct verify {
    struct table table;
    size_t files, checkpoints;
    int exit_code;  // that of the first file that is not as it was written
};

// Of a training, where it says so.
static json_t *verify_step(const struct ps_safetensors *s)
{
    const char *text = ps_safetensors_metadata(s, "paramserver");
    json_t *state = text ? json_loads(text, 0, NULL) : NULL;
    json_t *step = json_incref(json_object_get(state, "step"));
    json_decref(state);
    return step;
}

// Weights, of a job's output or of psctl save. A checkpoint has metadata, too: one that has lost the name of its
// checksums is not taken for weights.
static bool verify_is_other(const struct ps_safetensors *s)
{
    return s && !s->sealed && !ps_safetensors_metadata(s, "paramserver") && !ps_safetensors_metadata(s, PS_SHARD_KEY);
}

// in_folder: a file of another kind is shown, and no fault.
static void verify_file(struct verify *v, const char *path, bool in_folder)
{
    struct ps_safetensors *s = NULL;
    struct ps_error e = {.code = PS_OK};
    struct stat st = {0};
    enum ps_code code = ps_safetensors_read(path, &s, &e);
    const bool other = in_folder && verify_is_other(s);
    if (s && !s->sealed && !other)
        code = ps_fail(&e, PS_INVALID_ARGUMENT, "%s: has no checksums: expected a checkpoint", path);
    v->files++;
    v->checkpoints += !other;
    table_row(&v->table);
    table_cell(&v->table, table_text(path));
    table_cell(&v->table, stat(path, &st) ? NULL : table_count((uint64_t)st.st_size));
    table_cell(&v->table, s ? table_count(s->n) : NULL);
    table_cell(&v->table, s ? verify_step(s) : NULL);
    table_cell(&v->table, table_text(code    ? e.text
                                     : other ? "has no checksums: it is no checkpoint"
                                             : "as it was written"));
    ps_safetensors_free(s);
    if (code && !v->exit_code)
        v->exit_code = ps_code_exit(code);
}

static int verify_is_shown(const struct dirent *d)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(d->d_name), m = sizeof suffix - 1;
    return d->d_name[0] != '.' && n > m && strcmp(d->d_name + n - m, suffix) == 0;
}

static enum ps_code verify_folder(struct verify *v, const char *path, struct ps_error *e)
{
    struct dirent **entries;
    const int n = scandir(path, &entries, verify_is_shown, alphasort);
    if (n < 0)
        return ps_fail(e, PS_NOT_FOUND, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *file = ps_printf("%s/%s", path, entries[i]->d_name);
        if (access(file, F_OK) == 0)  // else a training has removed it meanwhile
            verify_file(v, file, true);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return v->checkpoints ? PS_OK : ps_fail(e, PS_NOT_FOUND, "%s: has no checkpoints", path);
}

int command_verify(struct call *call)
{
    struct verify v = {0};
    struct ps_error e = {.code = PS_OK};
    struct stat st;
    int exit_code;
    if (!call_parse(call, &(struct cli_option){.name = "json", .flag = &call->target.json}, 1, &exit_code))
        return exit_code;
    const char *path = call->argv[0];
    table_init(&v.table, columns, sizeof columns / sizeof columns[0]);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        verify_folder(&v, path, &e);
    else
        verify_file(&v, path, false);
    if (v.files || call->target.json)
        table_show(&(struct table_part){"files", &v.table, false}, 1, call->target.json, stdout);
    table_fini(&v.table);
    return e.code ? call_report(&e) : v.exit_code;
}
