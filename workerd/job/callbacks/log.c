// SPDX-License-Identifier: Apache-2.0
//
// One line per epoch: csv_log as Keras's CSVLogger writes it, json_lines an object. A training that goes on from a
// checkpoint cuts the file back to what it was then, and a worker that takes over looks at what the chief that was lost
// has written, so that no epoch stands in it twice and none is missing.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/job/callbacks/log_file.h"

// As Python writes it: the fewest digits that tell a number from all others; with an exponent where that is below -4 or
// above 15.
enum { LOG_NUMBER = 40 };
static const char *log_number(double x, char to[LOG_NUMBER])
{
    char text[LOG_NUMBER];
    int digits = 0;
    if (!isfinite(x))
        return isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
    do
        snprintf(text, sizeof text, "%.*e", digits++, x);
    while (digits < 17 && strtod(text, NULL) != x);
    int exponent = atoi(strchr(text, 'e') + 1), decimals = digits - 1 - exponent;
    if (exponent < -4 || exponent > 15)
        strcpy(to, text);
    else
        snprintf(to, LOG_NUMBER, "%.*f", decimals > 1 ? decimals : 1, x);
    return to;
}

// ---- csv_log ------------------------------------------------------------------------------------------------------

struct csv_log {
    struct wk_log_file file;
    const char *separator;     // the settings'
    struct wk_figures column;  // the names, with the first line; no figures: there is none yet
    bool headed;               // that line stands in the file, if it was empty
};

static enum ps_code csv_log_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                 struct ps_error *e)
{
    struct csv_log *s = ps_alloc(sizeof *s);
    (void)run;
    (void)e;
    wk_log_file_init(&s->file, ps_callback_text(settings, "path"));
    s->separator = ps_callback_text(settings, "separator");
    *state = s;
    return PS_OK;
}

static void csv_log_close(void *state)
{
    struct csv_log *s = state;
    wk_log_file_close(&s->file);
    wk_figures_free(&s->column);
    free(s);
}

// As RFC 4180 has it, and Keras's CSVLogger: in quotes where the separator, a quote or an end of a line is in it.
static void csv_log_put_field(const struct csv_log *s, FILE *to, const char *text)
{
    if (!strstr(text, s->separator) && !strpbrk(text, "\"\r\n")) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text; text++)
        fprintf(to, *text == '"' ? "\"%c" : "%c", *text);
    fputc('"', to);
}

// At the head of an empty file.
static void csv_log_put_head(struct csv_log *s)
{
    if (s->headed || !s->file.stream || !wk_log_file_is_empty(&s->file))
        return;
    s->headed = true;
    csv_log_put_field(s, s->file.stream, "epoch");
    for (size_t i = 0; i < s->column.n; i++) {
        fputs(s->separator, s->file.stream);
        csv_log_put_field(s, s->file.stream, s->column.v[i].name);
    }
    fputs("\r\n", s->file.stream);
}

static enum ps_code csv_log_begin(void *state, struct wk_run *run, bool takes_over, struct ps_error *e)
{
    struct csv_log *s = state;
    if (wk_log_file_open(&s->file, run, takes_over, e))
        return e->code;
    if (s->column.n > 0)
        csv_log_put_head(s);
    if (takes_over)
        wk_log_file_take_over(&s->file, "");
    return PS_OK;
}

static char *csv_log_line(const struct csv_log *s, const struct wk_moment *m)
{
    char *line, text[LOG_NUMBER];
    size_t n;
    FILE *to = ps_open_memory(&line, &n);
    snprintf(text, sizeof text, "%" PRIu64, m->epoch);
    csv_log_put_field(s, to, text);
    for (size_t i = 0; i < s->column.n; i++) {
        const double *value = wk_figures_find(&m->run->figures, s->column.v[i].name);
        fputs(s->separator, to);
        csv_log_put_field(s, to, value ? log_number(*value, text) : "NA");
    }
    fputs("\r\n", to);
    fclose(to);
    return line;
}

static enum ps_code csv_log_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    struct csv_log *s = state;
    (void)e;
    if (s->column.n == 0)
        wk_figures_copy(&s->column, &m->run->figures);
    if (m->leads)
        csv_log_put_head(s);
    wk_log_file_put(&s->file, m, csv_log_line(s, m));
    s->headed &= !s->file.failed;
    return PS_OK;
}

static void csv_log_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    struct csv_log *s = state;
    json_t *names = json_array();
    (void)arrays;
    (void)prefix;
    for (size_t i = 0; i < s->column.n; i++)
        json_array_append_new(names, json_string(s->column.v[i].name));
    json_object_set_new(to, "columns", names);
    wk_log_file_save(&s->file, to);
}

static enum ps_code csv_log_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                 const char *prefix, struct ps_error *e)
{
    struct csv_log *s = state;
    const json_t *names = json_object_get(from, "columns");
    (void)arrays;
    (void)prefix;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name)
            return ps_fail(e, PS_INVALID_ARGUMENT, "columns: expected names");
        wk_figures_add(&s->column, "", name, 0);
    }
    return wk_log_file_load(&s->file, from, e);
}

const struct wk_callback_class wk_csv_log = {
    .name = "csv_log",
    .hears_epochs = true,
    .open = csv_log_open,
    .close = csv_log_close,
    .begin = csv_log_begin,
    .epoch_end = csv_log_epoch_end,
    .save = csv_log_save,
    .load = csv_log_load,
};

// ---- json_lines ---------------------------------------------------------------------------------------------------

#define JSON_LINE "{\"epoch\": "

static enum ps_code json_lines_open(const struct ps_callback *settings, const struct wk_run *run, void **state,
                                    struct ps_error *e)
{
    struct wk_log_file *f = ps_alloc(sizeof *f);
    (void)run;
    (void)e;
    wk_log_file_init(f, ps_callback_text(settings, "path"));
    *state = f;
    return PS_OK;
}

static void json_lines_close(void *state)
{
    wk_log_file_close(state);
    free(state);
}

static enum ps_code json_lines_begin(void *state, struct wk_run *run, bool takes_over, struct ps_error *e)
{
    if (wk_log_file_open(state, run, takes_over, e))
        return e->code;
    if (takes_over)
        wk_log_file_take_over(state, JSON_LINE);
    return PS_OK;
}

// {"epoch": 0, "step": 938, "loss": 0.25}; a NaN is null.
static enum ps_code json_lines_epoch_end(void *state, struct wk_moment *m, struct ps_error *e)
{
    char *line, text[LOG_NUMBER];
    size_t n;
    (void)e;
    FILE *to = ps_open_memory(&line, &n);
    fprintf(to, JSON_LINE "%" PRIu64 ", \"step\": %" PRIu64, m->epoch, m->run->position.step);
    for (size_t i = 0; i < m->run->figures.n; i++) {
        const struct wk_figure *v = &m->run->figures.v[i];
        json_t *name = json_string(v->name);
        fputs(", ", to);
        json_dumpf(name, to, JSON_ENCODE_ANY);
        fprintf(to, ": %s", isfinite(v->value) ? log_number(v->value, text) : "null");
        json_decref(name);
    }
    fputs("}\n", to);
    fclose(to);
    wk_log_file_put(state, m, line);
    return PS_OK;
}

static void json_lines_save(void *state, json_t *to, struct wk_checkpoint *arrays, const char *prefix)
{
    (void)arrays;
    (void)prefix;
    wk_log_file_save(state, to);
}

static enum ps_code json_lines_load(void *state, const json_t *from, const struct wk_checkpoint *arrays,
                                    const char *prefix, struct ps_error *e)
{
    (void)arrays;
    (void)prefix;
    return wk_log_file_load(state, from, e);
}

const struct wk_callback_class wk_json_lines = {
    .name = "json_lines",
    .hears_epochs = true,
    .open = json_lines_open,
    .close = json_lines_close,
    .begin = json_lines_begin,
    .epoch_end = json_lines_epoch_end,
    .save = json_lines_save,
    .load = json_lines_load,
};
