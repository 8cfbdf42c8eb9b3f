// SPDX-License-Identifier: Apache-2.0
//
// The server's side of gRPC without memory: each of the allocations that it makes for its calls fails once, alone and
// in rows. Every call is answered all the same: as it should be, or with RESOURCE_EXHAUSTED, or with UNAVAILABLE where
// it was on a stream that had to end. Afterwards the same calls succeed, the budget is whole, and nothing has leaked.
//
// What a call's method does here: Get echoes its request, Pull answers with a large block, Push fails, Barrier waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/rpc/server.h"
#include "tests/it/call.h"
#include "tests/messages.h"
#include "tests/nomem/nomem.h"

enum {
    GET = PARAMSERVER__V1__METHOD__GET,
    PULL = PARAMSERVER__V1__METHOD__PULL,
    PUSH = PARAMSERVER__V1__METHOD__PUSH,
    BARRIER = PARAMSERVER__V1__METHOD__BARRIER,
    LARGE = 100000,        // floats
    CALLS = 2 * 4,         // of a round: each method, unary and over the stream
    PATIENCE_MS = 120000,  // until all is let go of
};

// ---- the server ---------------------------------------------------------------------------------------------------

struct parked {
    struct parked *next;
    struct ps_call *call;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct parked *first;
    size_t n;
} waiting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static void park(struct ps_call *call)
{
    struct parked *p = call->user;
    pthread_mutex_lock(&waiting.lock);
    *p = (struct parked){waiting.first, call};
    waiting.first = p;
    waiting.n++;
    pthread_cond_signal(&waiting.changed);
    pthread_mutex_unlock(&waiting.lock);
}

static void echo(struct ps_call *call)
{
    struct ps_slices body = PS_SLICES_EMPTY;
    ps_slices_move(&body, &call->request);
    ps_call_reply(call, PS_OK, NULL, &body);
}

// By the server's only thread, whose window it opens: it stays so.
static void on_call(void *ctx, struct ps_call *call)
{
    (void)ctx;
    nomem_window(true);
    if (call->method == BARRIER) {
        park(call);
    } else if (call->method == PUSH) {
        ps_call_reply(call, PS_NOT_FOUND, "no variable 'w' in job 'job'", NULL);
    } else if (call->method == PULL) {
        struct ps_slices body = floats(LARGE, 1);
        ps_call_reply(call, PS_OK, NULL, &body);
    } else {
        echo(call);
    }
}

static void release(void)
{
    pthread_mutex_lock(&waiting.lock);
    struct parked *p = waiting.first;
    waiting.first = NULL;
    waiting.n = 0;
    pthread_mutex_unlock(&waiting.lock);
    nomem_window(true);
    for (struct parked *next; p; p = next) {
        next = p->next;  // it goes with its call
        echo(p->call);
    }
    nomem_window(false);
}

// ---- a round of calls ---------------------------------------------------------------------------------------------

static bool is_there(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    bool is = a->is_there;
    pthread_mutex_unlock(&a->lock);
    return is;
}

// Calls that wait are answered once they do; some of them may have failed before.
static void answer_parked(struct answer *unary, struct answer *stream)
{
    uint64_t until = ps_now() + PATIENCE_MS * PS_MS;
    while (!(is_there(unary) && is_there(stream)) && ps_now() < until) {
        nanosleep(&(struct timespec){0, 200000}, NULL);
        release();
    }
}

static bool is_fit(const struct answer *a, int method, bool stream, bool scarce)
{
    if (scarce && (a->code == PS_RESOURCE_EXHAUSTED || (stream && a->code == PS_UNAVAILABLE)))
        return true;
    if (method == PUSH)
        return a->code == PS_NOT_FOUND && (scarce || strstr(a->text, "variable 'w'"));
    return a->code == PS_OK && a->body.len >= (method == PULL ? LARGE * sizeof(float) : 1);
}

// All of them at once, each method over both transports.
static void call_all(struct ps_client *client, bool scarce)
{
    static const int methods[] = {GET, PULL, PUSH, BARRIER};
    struct answer answers[CALLS];
    for (int i = 0; i < CALLS; i++) {
        Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
        Paramserver__V1__Caller caller = caller_of(0, 1);
        struct ps_slices payload = floats(i % 2 ? 1024 : 4, 2);
        r.caller = &caller;
        ask(client, methods[i / 2], i % 2, &r.base, &payload, &answers[i]);
    }
    answer_parked(&answers[CALLS - 2], &answers[CALLS - 1]);
    for (int i = 0; i < CALLS; i++) {
        await(&answers[i]);
        if (!is_fit(&answers[i], methods[i / 2], i % 2, scarce))
            fail_msg("method %d%s: %s \"%s\", %zu bytes", methods[i / 2], i % 2 ? " (stream)" : "",
                     ps_code_name(answers[i].code), answers[i].text, answers[i].body.len);
        ps_slices_clear(&answers[i].body);
    }
}

static void await_nothing_left(struct ps_server *s)
{
    uint64_t until = ps_now() + PATIENCE_MS * PS_MS;
    bool left;
    while ((left = nomem_live(false) || ps_server_queued(s)) && ps_now() < until)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    if (left)
        fail_msg("%zu blocks are left, %zu bytes are queued", nomem_live(true), ps_server_queued(s));
}

// A client of its own: calls while allocations nth and k - 1 more fail, then calls while none does.
static uint64_t run(struct ps_server *s, const char *address, uint64_t nth, uint64_t k)
{
    nomem_mark();
    struct ps_client *client = ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = PATIENCE_MS});
    nomem_fail(nth, k);
    call_all(client, true);
    uint64_t count = nomem_count();
    nomem_fail(0, 0);
    call_all(client, false);
    ps_client_stop(client);
    ps_client_destroy(client);
    await_nothing_left(s);
    return count;
}

static void test_every_allocation(void **state)
{
    char directory[] = "/tmp/test_nomem_rpc.XXXXXX", address[64];
    const char *addresses[] = {address};
    const struct ps_server_options options = {.threads = 1, .call_bytes = sizeof(struct parked), .call = on_call};
    const uint64_t *rows;
    struct ps_server *s;
    struct ps_error e;
    uint64_t tried = 0;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(address, sizeof address, "unix:%s/socket", directory);
    assert_int_equal(ps_server_start(addresses, 1, &options, &s, &e), PS_OK);
    uint64_t count = run(s, address, 0, 0);  // the thread's window is open from here on
    count = run(s, address, 0, 0);
    assert_true(count > CALLS);
    for (size_t i = 0; i < nomem_rows(&rows); i++)
        for (uint64_t nth = 0; nth < count; nth += nomem_stride(), tried++) {
            uint64_t made = run(s, address, nth, rows[i]);
            count = made > count ? made : count;
        }
    print_message("# %d calls, up to %llu allocations, %llu failures\n", CALLS, (unsigned long long)count,
                  (unsigned long long)tried);
    enum ps_stop how;
    do
        how = ps_server_stop(s, PATIENCE_MS * PS_MS);
    while (how == PS_STOP_STUCK);  // its thread is kept from running
    assert_int_equal(how, PS_STOP_DONE);
    ps_server_destroy(s);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("nomem_rpc", tests, NULL, NULL);
}
