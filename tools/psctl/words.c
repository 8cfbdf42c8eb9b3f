// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "common/wire/wire.h"
#include "tools/psctl/workers.h"

typedef Paramserver__V1__StatusReply Status;

enum { WORDS_JOBS = 64 };  // whose workers are asked for: one answer each

static const struct table_column columns[] = {
    {"level", "level", TABLE_TEXT}, {"state", "state", TABLE_TEXT},     {"risk", "risk", TABLE_TEXT},
    {"worst", "worst", TABLE_TEXT}, {"command", "command", TABLE_TEXT},
};

// ---- what is known ------------------------------------------------------------------------------------------------

// NULL: an error. *silent: ps:0 does not answer any more, and is not asked again.
static ProtobufCMessage *words_ask(struct cluster *c, int method, const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *reply_type, bool *silent)
{
    ProtobufCMessage *reply = NULL;
    struct ps_error e;
    if (*silent)
        return NULL;
    const enum ps_code code = cluster_ask_one(c, 0, method, request, reply_type, &reply, &e);
    *silent = cluster_is_silent(code);
    return code ? NULL : reply;
}

static void words_ask_workers(struct cluster *c, struct ps_overview *o, bool *silent)
{
    struct ps_error e;
    for (size_t i = 0; i < o->status->n_jobs && i < WORDS_JOBS && !*silent; i++)
        *silent = cluster_is_silent(workers_ask(c, o->status->jobs[i]->name, &o->workers[i], &e));
}

static void words_ask_waits(struct cluster *c, const char *only, struct ps_overview *o, bool *silent)
{
    Paramserver__V1__WaitsRequest request = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    if (only)
        request.job = (char *)only;
    o->waits = (Paramserver__V1__WaitsReply *)words_ask(c, PARAMSERVER__V1__METHOD__WAITS, &request.base,
                                                        &paramserver__v1__waits_reply__descriptor, silent);
}

static bool words_has_job(const Status *s, const char *name)
{
    size_t i = 0;
    while (i < s->n_jobs && strcmp(s->jobs[i]->name, name) != 0)
        i++;
    return i < s->n_jobs;
}

// Those that are not in it yet. Of a control task that was started again others know more.
static void words_add_jobs(Status *whole, const Status *from, const char *only)
{
    whole->jobs = ps_realloc(whole->jobs, (whole->n_jobs + from->n_jobs + 1) * sizeof *whole->jobs);
    for (size_t i = 0; i < from->n_jobs; i++)
        if ((!only || strcmp(from->jobs[i]->name, only) == 0) && !words_has_job(whole, from->jobs[i]->name))
            whole->jobs[whole->n_jobs++] = from->jobs[i];
}

// The control task's, with the memory of the task that has the least left. Its list of jobs is malloc'd.
static Status words_merge(const struct answer *answers, size_t tasks, const char *only)
{
    Status whole = *(const Status *)answers[0].reply;
    whole.jobs = NULL;
    whole.n_jobs = 0;
    whole.queue = only ? NULL : whole.queue;  // which is other jobs'
    for (size_t i = 0; i < tasks; i++) {
        const Status *s = (const Status *)answers[i].reply;
        words_add_jobs(&whole, s, only);
        whole.draining |= s->draining;
        if ((double)s->block_bytes * (double)whole.limit_bytes > (double)whole.block_bytes * (double)s->limit_bytes) {
            whole.block_bytes = s->block_bytes;
            whole.limit_bytes = s->limit_bytes;
        }
    }
    return whole;
}

// Which ps tasks have lost jobs that were declared on all of them; malloc'd.
static uint32_t *words_find_losses(const struct answer *answers, size_t tasks, const Status *whole)
{
    uint32_t *lost = ps_alloc((whole->n_jobs + 1) * sizeof *lost);
    for (size_t k = 0; k < whole->n_jobs; k++) {
        lost[k] = PS_NONE_LOST;
        for (size_t i = tasks; whole->jobs[k]->update && i-- > 0;)
            if (!words_has_job((const Status *)answers[i].reply, whole->jobs[k]->name))
                lost[k] = (uint32_t)i;
    }
    return lost;
}

static void words_forget(struct ps_overview *o)
{
    for (size_t i = 0; i < o->status->n_jobs; i++)
        if (o->workers[i])
            ps_msg_free(&o->workers[i]->base);
    if (o->waits)
        ps_msg_free(&o->waits->base);
    free(o->workers);
}

// ---- the sentences ------------------------------------------------------------------------------------------------

// of: the first of `silent` tasks that have not answered.
static void words_say_silent(const struct cluster *c, const struct answer *of, size_t task, size_t silent,
                             struct ps_summary *w)
{
    const bool answers = of && !cluster_is_silent(of->error.code);
    w->level = PS_LEVEL_BAD;
    snprintf(w->state, sizeof w->state, "ps:%zu (%.200s) %s%s.", task, psc_cluster_address(c->spec, task),
             answers ? "answers with an error" : "does not answer", silent > 1 ? "; others have not answered" : "");
    snprintf(w->risk, sizeof w->risk, "%s",
             answers ? "Not known."
                     : "Jobs stand still until it is back. If it has ended, they go on from their last backup, or are "
                       "lost.");
    snprintf(w->worst, sizeof w->worst, "%zu of %zu ps tasks have said how they are.", c->tasks - silent, c->tasks);
    snprintf(w->command, sizeof w->command, "psctl doctor");
    ps_utf8_plain(w->state);
}

// False: some have not answered, and that is said.
static bool words_all_answer(const struct cluster *c, const struct answer *answers, struct ps_summary *words)
{
    size_t silent = 0, first = 0;
    for (size_t i = c->tasks; i-- > 0;)
        if (!answers[i].reply) {
            silent++;
            first = i;
        }
    if (silent)
        words_say_silent(c, &answers[first], first, silent, words);
    return silent == 0;
}

// True: a task is part of another cluster than was asked for, and what is shown is not all of that.
static bool words_are_of_a_part(const struct cluster *c, const struct answer *answers, struct ps_summary *w)
{
    struct ps_error e = {0};
    size_t i = 0;
    while (i < c->tasks && !cluster_check_task(c, i, (const Status *)answers[i].reply, &e))
        i++;
    if (i == c->tasks)
        return false;
    w->level = PS_LEVEL_WARNING;
    snprintf(w->state, sizeof w->state, "ps:%zu (%.200s) %.200s: this is not all of its cluster.", i,
             psc_cluster_address(c->spec, i), e.text);
    snprintf(w->risk, sizeof w->risk,
             "Not known: give psctl all addresses of the cluster, in order (--ps, --cluster).");
    snprintf(w->worst, sizeof w->worst, "Not known.");
    snprintf(w->command, sizeof w->command, "psctl doctor");
    ps_utf8_plain(w->state);
    return true;
}

// The job that was asked for is at no task; whether others run is another question.
static void words_say_no_job(const char *only, struct ps_summary *w)
{
    w->level = PS_LEVEL_OK;
    snprintf(w->state, sizeof w->state, "No job %.128s runs here.", only);
    snprintf(w->risk, sizeof w->risk, "Nothing of it: it is at no ps task.");
    snprintf(w->worst, sizeof w->worst, "No worker trains it.");
    snprintf(w->command, sizeof w->command, "psctl status");
    ps_utf8_plain(w->state);
}

void words_find(struct cluster *c, const struct answer *answers, const char *only, struct ps_summary *words)
{
    bool silent = false;
    if (!words_all_answer(c, answers, words) || words_are_of_a_part(c, answers, words))
        return;
    Status status = words_merge(answers, c->tasks, only);
    uint32_t *lost = words_find_losses(answers, c->tasks, &status);
    struct ps_overview o = {.status = &status, .whole = true, .lost = lost};
    o.workers = ps_alloc((status.n_jobs + 1) * sizeof *o.workers);
    words_ask_workers(c, &o, &silent);
    words_ask_waits(c, only, &o, &silent);
    if (silent)
        words_say_silent(c, NULL, 0, 1, words);
    else if (only && status.n_jobs == 0)
        words_say_no_job(only, words);
    else
        ps_summarize(&o, words);
    words_forget(&o);
    free(status.jobs);
    free(lost);
}

// ---- shown --------------------------------------------------------------------------------------------------------

void words_print(const struct ps_summary *words)
{
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    const char *none = getenv("NO_COLOR");
    const bool colour = isatty(STDOUT_FILENO) && !(none && *none);
    printf("%s%s%s\n", colour ? colours[words->level] : "", words->state, colour ? "\033[0m" : "");
    printf("can be lost  %s\nworst        %s\ntype next    %s\n\n", words->risk, words->worst, words->command);
}

void words_table(const struct ps_summary *words, struct table *t)
{
    table_init(t, columns, sizeof columns / sizeof columns[0]);
    table_row(t);
    table_cell(t, table_text(ps_level_name(words->level)));
    table_cell(t, table_text(words->state));
    table_cell(t, table_text(words->risk));
    table_cell(t, table_text(words->worst));
    table_cell(t, table_text(words->command));
}
