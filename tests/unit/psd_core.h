// SPDX-License-Identifier: Apache-2.0
//
// A psd core in a test: time that the test sets, and calls that are made and answered in place.
#ifndef TEST_PSD_CORE_H
#define TEST_PSD_CORE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/wire/wire.h"
#include "psd/service/service.h"
#include "tests/messages.h"

// An access to memory is a call under the thread sanitizer: tests that move much, or try much, do this part of it
// there.
#ifdef __SANITIZE_THREAD__
enum { TEST_PART = 8 };
#else
enum { TEST_PART = 1 };
#endif

struct answer {
    struct psd_call call;  // first
    bool answered;
    enum ps_code code;
    char text[512];
    struct ps_slices body;
};

static _Atomic uint64_t test_time = 3600 * PS_SECOND;  // of a host that has been up for longer than psd remembers

static uint64_t test_now(void *ctx)
{
    (void)ctx;
    return test_time;
}

static uint64_t test_random(void *ctx)
{
    static atomic_ullong n;
    (void)ctx;
    return 4711 + atomic_fetch_add(&n, 1);
}

static uint64_t test_resident(void *ctx)
{
    (void)ctx;
    return 0;
}

// What the core has sent to other tasks: how often, the last message, and what it hears back.
static struct test_sent {
    int n;
    struct ps_slices last;
    enum ps_code code;
} test_sent;

static void test_send(void *ctx, uint32_t task, int method, struct ps_slices *request,
                      void (*done)(void *, enum ps_code, const struct ps_slices *), void *arg)
{
    const struct ps_slices nothing = PS_SLICES_EMPTY;
    (void)ctx;
    (void)task;
    (void)method;
    test_sent.n++;
    ps_slices_clear(&test_sent.last);
    ps_slices_move(&test_sent.last, request);
    done(arg, test_sent.code, &nothing);
}

// Of the next core; NULL: it has none.
static const char *test_checkpoints;  // a folder for shards
static const char *test_queue;        // one for its queue
static uint64_t (*test_wall)(void *);

static inline struct psd_core *core_new_task(uint32_t task, uint32_t tasks, uint64_t memory)
{
    struct psd_core *core = NULL;
    struct psd_config config = {.task = task,
                                .tasks = tasks,
                                .memory_bytes = memory,
                                .heartbeat_ms = 500,
                                .dead_after_ms = 3000,
                                .checkpoints = test_checkpoints,
                                .queue = test_queue};
    struct psd_world world = {.now = test_now,
                              .random = test_random,
                              .resident = test_resident,
                              .queued = test_resident,
                              .send = test_send,
                              .wall = test_wall};
    struct ps_error e;
    if (psd_core_create(&config, &world, &core, &e))
        abort();
    return core;
}

static inline struct psd_core *core_new(uint64_t memory)
{
    return core_new_task(0, 1, memory);
}

// Time passes, with the ticks that belong to it.
static inline void core_run(struct psd_core *core, uint64_t ns)
{
    for (uint64_t end = test_time + ns; test_time < end;) {
        test_time += end - test_time < 50 * PS_MS ? end - test_time : 50 * PS_MS;
        psd_core_tick(core);
    }
}

// What fn writes to the log: how many lines, and the first of them.
static inline int lines_logged_by(void (*fn)(struct psd_core *), struct psd_core *core, char *first, size_t size)
{
    FILE *file = tmpfile();
    char line[1024];
    int n = 0;
    const int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    fn(core);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (n++ == 0)
            snprintf(first, size, "%s", line);
    fclose(file);
    return n;
}

static void on_reply(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct answer *a = (struct answer *)call;
    a->code = code;
    snprintf(a->text, sizeof a->text, "%s", text);
    ps_slices_move(&a->body, body);
    a->answered = true;
}

// Where calls bring the session of their stream; NULL: they are unary.
static struct psd_session **test_session;
static const struct ps_identity *test_from;  // who calls; NULL: nobody has been asked

// Starts a call; payload (may be NULL) is moved. The answer may come now or later.
static void ask_later(struct psd_core *core, struct answer *a, int method, const ProtobufCMessage *m,
                      struct ps_slices *payload, uint64_t deadline)
{
    *a = (struct answer){
        .call = {
            .method = method, .deadline = deadline, .reply = on_reply, .session = test_session, .from = test_from}};
    ps_msg_pack(m, payload, &a->call.request);
    psd_core_call(core, &a->call);
}

// A call that is answered at once; *reply (may be NULL) is unpacked where the code is PS_OK.
static struct answer ask(struct psd_core *core, int method, const ProtobufCMessage *m, struct ps_slices *payload,
                         const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply, struct ps_slices *bytes)
{
    struct answer a;
    struct ps_slices ignored = PS_SLICES_EMPTY;
    ask_later(core, &a, method, m, payload, UINT64_MAX);
    if (!a.answered)
        snprintf(a.text, sizeof a.text, "not answered");
    if (a.answered && a.code == PS_OK && reply &&
        ps_msg_unpack(type, &a.body, reply, bytes ? bytes : &ignored, NULL) != PS_OK)
        snprintf(a.text, sizeof a.text, "the reply cannot be unpacked");
    ps_slices_clear(&ignored);
    ps_slices_clear(&a.body);
    return a;
}

#endif
