// SPDX-License-Identifier: Apache-2.0
#include "workerd/agent/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/signals.h"
#include "common/base/starts.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "workerd/agent/child.h"
#include "workerd/agent/rpc/ask.h"

enum {
    ASK_MS = 500,             // between two questions for a job
    SILENT_ASKS = 2,          // what it waits for is logged after so many
    REPORT_MS = 200,          // a report is made with all output, and where there is none for so long
    AGAIN_MS = 1000,          // before what has failed is tried again
    OUTPUT_BYTES = 64 << 10,  // of output in one report: psd takes no more
    KILL_AFTER_S = 60,        // the process that was told to end has so long
};

typedef Paramserver__V1__NextReply Job;

struct agent {
    const struct wk_agent_options *options;
    struct wk_ask *ask;
    uint8_t id[16];
    char said[sizeof((struct ps_error *)0)->text];  // what it waits for, as it was logged last
    int asks;                                       // with another answer than that
};

// One job, while it is trained.
struct training {
    struct agent *agent;
    const Job *job;
    struct wk_child child;
    struct ps_log_relay relay;     // to stderr
    uint8_t output[OUTPUT_BYTES];  // not reported yet
    size_t len;
    uint64_t offset;   // of it, in all that was written
    uint64_t stopped;  // when the process was told to end, ns; 0: it was not
    bool stop;         // ps task 0 said that it is to end
    bool came;         // one of its processes has been in the job
    bool lost;         // the last report did not arrive: said once
    int code;          // once it has ended: its exit code
};

static bool agent_is_stopped(const struct agent *a)
{
    return ps_signal_number(a->options->stop) != 0;
}

// ---- reports ------------------------------------------------------------------------------------------------------

static void training_consume(struct training *t, size_t n)
{
    memmove(t->output, t->output + n, t->len - n);
    t->len -= n;
    t->offset += n;
}

// code: the exit code, of an end; -1: it trains.
static enum ps_code training_report(struct training *t, int code, struct ps_error *e)
{
    Paramserver__V1__ReportRequest r = PARAMSERVER__V1__REPORT_REQUEST__INIT;
    struct agent *a = t->agent;
    ProtobufCMessage *reply;
    r.number = t->job->number;
    r.rank = a->options->rank;
    r.client = (ProtobufCBinaryData){sizeof a->id, a->id};
    r.offset = t->offset;
    r.output = (ProtobufCBinaryData){t->len, t->output};
    r.ended = code >= 0;
    r.code = code >= 0 ? (uint32_t)code : 0;
    t->came |= wk_child_came(&t->child);
    r.waits = !t->came;
    if (wk_ask(a->ask, PARAMSERVER__V1__METHOD__REPORT, &r.base, &paramserver__v1__report_reply__descriptor, &reply, e))
        return e->code;
    t->stop |= ((const Paramserver__V1__ReportReply *)reply)->stop;
    ps_msg_free(reply);
    training_consume(t, t->len);
    return PS_OK;
}

// Output for which there is no room, as no report arrives, is dropped, from the oldest on.
static void training_try_report(struct training *t)
{
    struct ps_error e;
    const bool lost = training_report(t, -1, &e) != PS_OK;
    if (lost && !t->lost)
        ps_warn("a report did not arrive, the job goes on: %s", e.text);
    t->lost = lost;
    if (lost && t->len == sizeof t->output)
        training_consume(t, sizeof t->output / 2);
}

// Would ps task 0 say so again?
static bool training_is_refused(enum ps_code code)
{
    return code == PS_PERMISSION_DENIED || code == PS_INVALID_ARGUMENT || code == PS_FAILED_PRECONDITION;
}

// Until it has arrived, is refused for good, or a signal came: without it the job would not end.
static void training_report_end(struct training *t, int code)
{
    struct ps_error e;
    while (training_report(t, code, &e) != PS_OK) {
        if (agent_is_stopped(t->agent))
            return;
        if (training_is_refused(e.code)) {
            ps_error_log("the end of job '%s' is refused, and not reported: %s", t->job->job, e.text);
            return;
        }
        if (!t->lost)
            ps_warn("the end of job '%s' did not arrive, tries again: %s", t->job->job, e.text);
        t->lost = true;
        ps_sleep(AGAIN_MS * PS_MS);
    }
}

// ---- the process --------------------------------------------------------------------------------------------------

static void training_take_output(struct training *t, int wait_ms)
{
    uint8_t *to = t->output + t->len;
    const size_t n = wk_child_read(&t->child, to, sizeof t->output - t->len, wait_ms);
    ps_log_pass(&t->relay, to, n);  // where nobody reads it, ps task 0 still gets it
    t->len += n;
}

static void training_tell_to_end(struct training *t)
{
    const uint64_t now = ps_now();
    if (!t->stop && !agent_is_stopped(t->agent))
        return;
    if (!t->stopped) {
        wk_child_kill(&t->child, SIGTERM);
        t->stopped = now;
    } else if (now - t->stopped > KILL_AFTER_S * PS_SECOND) {
        wk_child_kill(&t->child, SIGKILL);
    }
}

// Until the process has ended and what it wrote is reported, as far as that can be.
static void training_watch(struct training *t)
{
    for (bool ended = false; !ended;) {
        training_tell_to_end(t);
        ended = wk_child_has_ended(&t->child);
        training_take_output(t, ended ? 0 : REPORT_MS);
        training_try_report(t);
    }
    for (size_t before = 1; before && t->len < sizeof t->output;) {  // what is left in the pipe
        before = t->len;
        training_take_output(t, 0);
        before = t->len - before;
    }
    ps_log_pass_end(&t->relay);
    wk_child_close(&t->child);
}

static int training_exit_code(const struct training *t)
{
    const int status = t->child.status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Returns its exit code.
static int training_run_once(struct training *t)
{
    const struct wk_agent_options *o = t->agent->options;
    struct ps_error e;
    if (wk_child_start(&t->child, o->args, t->job->text, t->job->workers, &e)) {
        ps_error_log("job '%s' cannot be trained: %s", t->job->job, e.text);
        return ps_code_exit(e.code);
    }
    training_watch(t);
    return training_exit_code(t);
}

// A line of the agent's own among the output.
static void training_say(struct training *t, const char *text)
{
    const int room = (int)(sizeof t->output - t->len);
    ps_warn("%s", text);
    const int n =
        snprintf((char *)t->output + t->len, (size_t)room, "workerd[%" PRIu32 "]: %s\n", t->agent->options->rank, text);
    t->len += n < room ? (size_t)n : 0;
}

// Has a signal ended it that was not this one's? Then it is started again, some times.
static bool training_has_crashed(const struct training *t, int code, struct ps_starts *starts)
{
    return code > 128 && WIFSIGNALED(t->child.status) && !t->stopped && !t->stop && ps_starts_again(starts, ps_now());
}

// False: this process is to end before the training has, and the job is this rank's still.
static bool training_run(struct training *t)
{
    char text[160];
    struct ps_starts starts = {0};
    while (!agent_is_stopped(t->agent)) {
        ps_starts_note(&starts, ps_now());
        const int code = training_run_once(t);
        if (!training_has_crashed(t, code, &starts)) {
            ps_info("job %" PRIu64 " '%s' has ended here with exit code %d", t->job->number, t->job->job, code);
            t->code = code;
            return !t->stopped || t->stop;
        }
        if (agent_is_stopped(t->agent))
            break;
        snprintf(text, sizeof text, "the worker was ended by signal %d: it is started again", code - 128);
        training_say(t, text);
        ps_sleep(AGAIN_MS * PS_MS);
    }
    return false;
}

static void agent_tell(const struct agent *a, bool waits)
{
    if (a->options->waits)
        a->options->waits(a->options->arg, waits);
}

static void agent_train(struct agent *a, const Job *job)
{
    struct training *t = ps_alloc(sizeof *t);
    *t = (struct training){.agent = a, .job = job};
    ps_info("trains job %" PRIu64 " '%s', with %" PRIu32 " worker%s", job->number, job->job, job->workers,
            job->workers == 1 ? "" : "s");
    agent_tell(a, false);
    const bool ended = training_run(t);
    agent_tell(a, true);
    if (ended)
        training_report_end(t, t->code);
    free(t);
}

// ---- waiting ------------------------------------------------------------------------------------------------------

// What is new is said once it holds for a second.
static void agent_say(struct agent *a, const char *text)
{
    if (strcmp(a->said, text) == 0)
        a->asks = 0;
    else if (++a->asks > SILENT_ASKS) {
        ps_info("waits for a job: %s", text);
        snprintf(a->said, sizeof a->said, "%s", text);
        a->asks = 0;
    }
}

static void agent_ask(struct agent *a)
{
    Paramserver__V1__NextRequest r = PARAMSERVER__V1__NEXT_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct ps_error e;
    r.rank = a->options->rank;
    r.client = (ProtobufCBinaryData){sizeof a->id, a->id};
    if (wk_ask(a->ask, PARAMSERVER__V1__METHOD__NEXT, &r.base, &paramserver__v1__next_reply__descriptor, &reply, &e)) {
        agent_say(a, e.text);
        return;
    }
    const Job *job = (const Job *)reply;
    if (job->number) {
        agent_train(a, job);
        a->said[0] = '\0';
    } else {
        agent_say(a, job->waits);
    }
    ps_msg_free(reply);
}

enum ps_code wk_agent_run(const struct wk_agent_options *options, struct ps_error *e)
{
    struct agent a = {.options = options};
    signal(SIGPIPE, SIG_IGN);  // where nobody reads what is written here, ps task 0 still gets it
    for (size_t i = 0; i < sizeof a.id; i += sizeof(uint64_t)) {
        const uint64_t part = ps_random();
        memcpy(a.id + i, &part, sizeof part);
    }
    a.ask = wk_ask_open(options->ps, options->n_ps, options->tls, options->munge, e);
    if (!a.ask)
        return e->code;
    while (!agent_is_stopped(&a)) {
        agent_ask(&a);
        if (!agent_is_stopped(&a))
            ps_sleep(ASK_MS * PS_MS);
    }
    ps_info("signal %d: stops waiting for jobs", ps_signal_number(options->stop));
    wk_ask_close(a.ask);
    return PS_OK;
}
