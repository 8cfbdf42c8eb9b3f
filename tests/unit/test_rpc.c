// SPDX-License-Identifier: Apache-2.0
//
// The gRPC server and client against each other, in one process, over unix sockets and loopback. The server's handler
// is a little core: what it does with a request is the request's first byte.
//
//     e   echo            f   fail with NOT_FOUND           p   park until release() answers with an echo
//     b   answer with 1 MiB                             l   likewise, without the request's bytes
//     n   a number follows (4 bytes): must be the next one of its stream
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/address.h"
#include "common/rpc/buffer.h"
#include "common/rpc/client.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/cq.h"
#include "common/rpc/method.h"
#include "common/rpc/server.h"
#include "common/rpc/server_inside.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"
#include "proto/worker.pb-c.h"
#include "tests/unit/hearing.h"

enum {
    PUSH = PARAMSERVER__V1__METHOD__PUSH,
    STATUS = PARAMSERVER__V1__METHOD__STATUS,
    HEARTBEAT = PARAMSERVER__V1__METHOD__HEARTBEAT,
    SUM_SQUARES = PARAMSERVER__V1__METHOD__SUM_SQUARES,
    OPEN = PARAMSERVER__V1__METHOD__OPEN,
    MEET_S = 10,                 // for another thread
    WAIT_S = 120,                // for what comes for certain: however slow this machine is
    CALL_MS = WAIT_S * 1000 / 2  // a call's time where it is not to run out
};

// ---- the little core ----------------------------------------------------------------------------------------------

struct user {
    struct user *next;
    struct ps_call *call;
};

struct core {
    pthread_mutex_t lock;
    struct user *parked;
    size_t n_parked, n_calls, n_cancelled;
    size_t n_streams_ended;  // that had a name
    uint32_t next_number;
    bool out_of_order;
    bool ends;                // nothing is parked any more
    uint64_t deadline, came;  // of the last call
    pthread_t thread;         // that served the last call
    size_t n_changes;         // of it
    size_t n_together;
    bool met;
};

static void echo(struct ps_call *call)
{
    struct ps_slices body = PS_SLICES_EMPTY;
    ps_slices_move(&body, &call->request);
    ps_call_reply(call, PS_OK, NULL, &body);
}

enum { BIG = 1 << 20 };

static void answer_big(struct ps_call *call)
{
    struct ps_slices body = PS_SLICES_EMPTY;
    uint8_t *data;
    struct ps_slice s = ps_slice_new(BIG, &data);
    memset(data, 'b', BIG);
    ps_slices_add(&body, s);
    ps_call_reply(call, PS_OK, NULL, &body);
}

// Open gives its stream a name.
static void name_stream(struct ps_call *call)
{
    char *name = calloc(1, call->request.len + 1);
    ps_slices_copy_out(&call->request, 0, call->request.len, name);
    free(*call->stream);
    *call->stream = name;
    ps_call_reply(call, PS_OK, NULL, NULL);
}

static void tell_stream(struct ps_call *call)
{
    const char *name = !call->stream ? "no stream" : *call->stream ? *call->stream : "no name";
    struct ps_slices body = PS_SLICES_EMPTY;
    ps_slices_add(&body, ps_slice_copy(name, strlen(name)));
    ps_call_reply(call, PS_OK, NULL, &body);
}

static void park(struct core *core, struct ps_call *call)
{
    struct user *u = call->user;
    u->call = call;
    u->next = core->parked;
    core->parked = u;
    core->n_parked++;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void release(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    struct user *u = core->parked;
    core->parked = NULL;
    core->n_parked = 0;
    pthread_mutex_unlock(&core->lock);
    while (u) {
        struct ps_call *call = u->call;
        u = u->next;  // it goes with its call
        echo(call);
    }
}

// As it is now; for its numbers.
static struct core look(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    struct core copy = *core;
    pthread_mutex_unlock(&core->lock);
    return copy;
}

// Until two of the server's threads are here at once, or for long.
static void meet(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    core->met |= ++core->n_together >= 2;
    pthread_mutex_unlock(&core->lock);
    for (uint64_t until = ps_now() + MEET_S * PS_SECOND; !look(core).met && ps_now() < until;)
        pause_ms(1);
    pthread_mutex_lock(&core->lock);
    core->n_together--;
    pthread_mutex_unlock(&core->lock);
}

static void on_call(void *ctx, struct ps_call *call)
{
    struct core *core = ctx;
    uint8_t head[5] = {'e'};
    uint32_t number;
    ps_slices_copy_out(&call->request, 0, sizeof head, head);
    memcpy(&number, head + 1, sizeof number);
    if (head[0] == 'n' && number % 500 == 0)
        pause_ms(2);  // time to be overtaken
    pthread_mutex_lock(&core->lock);
    core->n_calls++;
    core->deadline = call->deadline;
    core->came = ps_now();
    core->n_changes += !pthread_equal(core->thread, pthread_self());
    core->thread = pthread_self();
    if (head[0] == 'n')
        core->out_of_order |= number != core->next_number++;
    bool parks = (head[0] == 'p' || head[0] == 'l') && !core->ends;
    if (parks && head[0] == 'l') {
        ps_slices_clear(&call->request);
        ps_call_let_go(call);
    }
    if (parks)
        park(core, call);
    pthread_mutex_unlock(&core->lock);
    if (parks)
        return;  // whoever lets it go may have done so: it is not here any more
    if (head[0] == 'r')
        release(core);
    if (head[0] == 'm')
        meet(core);
    if (call->method == OPEN)
        name_stream(call);
    else if (head[0] == 's')
        tell_stream(call);
    else if (head[0] == 'f')
        ps_call_reply(call, PS_NOT_FOUND, "no variable 'w' in job 'j'", NULL);
    else if (head[0] == 'u')
        ps_call_reply(call, PS_UNAVAILABLE, "variable 'a: b': not yet: later", NULL);
    else if (head[0] == 'b')
        answer_big(call);
    else
        echo(call);
}

// The client of a call is gone: one that waits here ends.
static void on_cancel(void *ctx, struct ps_call *call)
{
    struct core *core = ctx;
    bool found = false;
    pthread_mutex_lock(&core->lock);
    core->n_cancelled++;
    for (struct user **u = &core->parked; *u; u = &(*u)->next)
        if ((*u)->call == call) {
            *u = (*u)->next;
            core->n_parked--;
            found = true;
            break;
        }
    pthread_mutex_unlock(&core->lock);
    if (found)
        ps_call_reply(call, PS_CANCELLED, "", NULL);
}

static void on_stream_ended(void *ctx, void *stream)
{
    struct core *core = ctx;
    free(stream);
    pthread_mutex_lock(&core->lock);
    core->n_streams_ended++;
    pthread_mutex_unlock(&core->lock);
}

static size_t parked(struct core *core)
{
    return look(core).n_parked;
}

static void await_parked(struct core *core, size_t n)
{
    size_t now;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; (now = parked(core)) < n && ps_now() < until;)
        pause_ms(1);
    assert_int_equal(now, n);
}

// As clients go, a call of theirs that is still on its way may be parked and ended again: what was seen once counts.
static void await_parked_at_most(struct core *core, size_t n)
{
    size_t now;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; (now = parked(core)) > n && ps_now() < until;)
        pause_ms(1);
    assert_int_equal(now, n);
}

static void await_parked_some(struct core *core, size_t n)
{
    for (uint64_t until = ps_now() + PS_SECOND; parked(core) < n && ps_now() < until;)
        pause_ms(1);
}

// ---- answers ------------------------------------------------------------------------------------------------------

struct answer {
    bool done;
    enum ps_code code;
    char text[512];
    struct ps_slices body;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local bool inside_call;

static void on_answer(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct answer *a = arg;
    assert_false(inside_call);
    pthread_mutex_lock(&lock);
    assert_false(a->done);
    a->code = code;
    snprintf(a->text, sizeof a->text, "%s", text);
    ps_slices_move(&a->body, reply);
    a->done = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool answered(const struct answer *a)
{
    pthread_mutex_lock(&lock);
    bool done = a->done;
    pthread_mutex_unlock(&lock);
    return done;
}

static void await(struct answer *a)
{
    const uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    struct timespec t = {(time_t)(until / PS_SECOND), (long)(until % PS_SECOND)};
    int error = 0;
    pthread_mutex_lock(&lock);
    while (!a->done && error == 0)
        error = pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &t);
    bool done = a->done;
    pthread_mutex_unlock(&lock);
    assert_true(done);
}

static void ask(struct ps_client *c, bool stream, int method, uint32_t timeout_ms, struct ps_slice request,
                struct answer *a)
{
    struct ps_slices slices = PS_SLICES_EMPTY;
    memset(a, 0, sizeof *a);
    ps_slices_add(&slices, request);
    inside_call = true;
    ps_client_call(c, 0, method,
                   &(struct ps_call_options){.stream = stream,
                                             .deadline = timeout_ms ? ps_now() + timeout_ms * PS_MS : UINT64_MAX},
                   &slices, on_answer, a);
    inside_call = false;
    assert_int_equal(slices.len, 0);
}

static struct ps_slice text(const char *s)
{
    return (struct ps_slice){(const uint8_t *)s, strlen(s), NULL};
}

static enum ps_code ask_and_await(struct ps_client *c, bool stream, uint32_t timeout_ms, const char *request,
                                  struct answer *a)
{
    ask(c, stream, PUSH, timeout_ms, text(request), a);
    await(a);
    ps_slices_clear(&a->body);
    return a->code;
}

// ---- a method beside the contract ---------------------------------------------------------------------------------

#define WATCH_PATH "/test.Test/Watch"

// What is watched: a number, which is told as "state N".
static struct {
    atomic_int state, last, answers;
    struct ps_server *_Atomic overtaken;  // the next answer is overtaken by a change
} watched;

static enum ps_code tell_state(void *ctx, const struct ps_slices *request, struct ps_slices *reply, struct ps_error *e)
{
    char text[32];
    int state = atomic_load(&watched.state), n = snprintf(text, sizeof text, "state %d", state);
    assert_ptr_equal(ctx, &watched);
    atomic_fetch_add(&watched.answers, 1);
    atomic_store(&watched.last, state);
    struct ps_server *overtaken = atomic_exchange(&watched.overtaken, NULL);
    if (overtaken) {
        atomic_fetch_add(&watched.state, 1);
        ps_server_changed(overtaken);
    }
    if (request->len != 3)
        return ps_fail(e, PS_INVALID_ARGUMENT, "who asks?");
    ps_slices_add(reply, ps_slice_copy(text, (size_t)n));
    return PS_OK;
}

static const struct ps_service_method watch_method = {WATCH_PATH, PS_SERVICE_WATCH, tell_state, &watched};

static void set_state(struct ps_server *s, int state)
{
    atomic_store(&watched.state, state);
    ps_server_changed(s);
}

// ---- a server and a client of it ----------------------------------------------------------------------------------

struct pair {
    char directory[32], address[64];
    struct core core;
    struct ps_server *server;
    struct ps_client *client;
    size_t bytes;  // the server's budget
    bool cancels;  // the handler wants to hear of clients that are gone
};

static void serve(struct pair *p, int threads)
{
    const struct ps_server_options options = {.threads = threads,
                                              .bytes = p->bytes,
                                              .call_bytes = sizeof(struct user),
                                              .call = on_call,
                                              .cancel = p->cancels ? on_cancel : NULL,
                                              .stream_ended = on_stream_ended,
                                              .ctx = &p->core,
                                              .methods = &watch_method,
                                              .n_methods = 1};
    const char *address = p->address;
    struct ps_error e;
    if (ps_server_start(&address, 1, &options, &p->server, &e))
        fail_msg("%s", e.text);
}

static struct ps_client *connect_to(const char *address)
{
    return ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = CALL_MS});
}

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    strcpy(p->directory, "/tmp/test_rpc.XXXXXX");
    if (!mkdtemp(p->directory))
        return -1;
    snprintf(p->address, sizeof p->address, "unix:%s/socket", p->directory);
    pthread_mutex_init(&p->core.lock, NULL);
    serve(p, 2);
    p->client = connect_to(p->address);
    *state = p;
    return 0;
}

static void close_client(struct ps_client *c)
{
    ps_client_stop(c);
    ps_client_destroy(c);
}

// Stuck is also what a server is whose threads are kept from running.
static enum ps_stop stop_server(struct ps_server *s, uint64_t grace)
{
    enum ps_stop how = PS_STOP_STUCK;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; how == PS_STOP_STUCK && ps_now() < until;)
        how = ps_server_stop(s, grace);
    return how;
}

static void set_ends(struct core *core, bool ends)
{
    pthread_mutex_lock(&core->lock);
    core->ends = ends;
    pthread_mutex_unlock(&core->lock);
}

static void close_server(struct pair *p)
{
    set_ends(&p->core, true);
    release(&p->core);
    assert_int_equal(stop_server(p->server, WAIT_S * PS_SECOND), PS_STOP_DONE);
    ps_server_destroy(p->server);
    p->server = NULL;
    set_ends(&p->core, false);
}

// Nothing is in flight any more.
static void await_idle(struct pair *p)
{
    size_t queued;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; (queued = ps_server_queued(p->server)) && ps_now() < until;)
        pause_ms(1);
    assert_int_equal(queued, 0);
}

static int teardown(void **state)
{
    struct pair *p = *state;
    if (p->client)
        close_client(p->client);
    if (p->server)
        close_server(p);
    pthread_mutex_destroy(&p->core.lock);
    char command[64];
    snprintf(command, sizeof command, "%s/socket", p->directory);
    unlink(command);
    rmdir(p->directory);
    free(p);
    return 0;
}

// ---- calls --------------------------------------------------------------------------------------------------------

static void methods_are_the_contract(void **state)
{
    (void)state;
    const ProtobufCServiceDescriptor *services[] = {
        &paramserver__v1__parameter_server__descriptor, &paramserver__v1__admin__descriptor,
        &paramserver__v1__queue__descriptor, &paramserver__v1__peer__descriptor, &paramserver__v1__worker__descriptor};
    size_t found = 0;
    for (size_t s = 0; s < sizeof services / sizeof *services; s++)
        for (unsigned i = 0; i < services[s]->n_methods; i++) {
            char path[128];
            snprintf(path, sizeof path, "/%s/%s", services[s]->name, services[s]->methods[i].name);
            bool known = strcmp(path, PS_STREAM_PATH) == 0;
            for (int m = 1; m < PS_METHODS; m++)
                known |= strcmp(path, ps_method_path(m)) == 0;
            if (!known)
                fail_msg("%s is missing", path);
            found++;
        }
    assert_int_equal(found, PS_METHODS);  // all but 0, and the stream
    assert_int_equal(paramserver__v1__method__descriptor.n_values, PS_METHODS);
    assert_null(ps_method_path(0));
    assert_null(ps_method_path(PS_METHODS));
}

static void check_echo(struct ps_client *c, bool stream, size_t len)
{
    struct answer a;
    uint8_t *data, *got = malloc(len + 1);
    struct ps_slice request = ps_slice_new(len, &data);
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i ? i * 2654435761u >> 7 : 'e');
    ask(c, stream, PUSH, CALL_MS, ps_slice_ref(request), &a);
    await(&a);
    if (a.code)
        fail_msg("%zu bytes: %s", len, a.text);
    assert_int_equal(a.body.len, len);
    ps_slices_copy_out(&a.body, 0, len, got);
    assert_memory_equal(got, data, len);
    ps_slices_clear(&a.body);
    ps_slice_unref(request);
    free(got);
}

static void echoes_every_size(void **state)
{
    struct pair *p = *state;
    static const size_t sizes[] = {0, 1, 23, 24, 2048, 2049, 65536, PS_BLOCK_BYTES, PS_CHUNK_MAX + 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_echo(p->client, false, sizes[i]);
        check_echo(p->client, true, sizes[i]);
    }
}

static void errors_arrive(void **state)
{
    struct pair *p = *state;
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        assert_int_equal(ask_and_await(p->client, stream, CALL_MS, "f", &a), PS_NOT_FOUND);
        assert_string_equal(a.text, "no variable 'w' in job 'j'");
        assert_int_equal(ask_and_await(p->client, stream, CALL_MS, "u", &a), PS_UNAVAILABLE);
        assert_string_equal(a.text, "variable 'a: b': not yet: later");
    }
}

static void admin_calls_are_unary(void **state)
{
    struct pair *p = *state;
    struct answer a;
    ask(p->client, true, STATUS, CALL_MS, text("e"), &a);
    await(&a);
    assert_int_equal(a.code, PS_OK);
    ps_slices_clear(&a.body);
}

static void too_large_a_request_is_refused(void **state)
{
    struct pair *p = *state;
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        uint8_t *data;
        struct ps_slice request = ps_slice_new(PS_MESSAGE_MAX, &data);
        memset(data, 'e', PS_MESSAGE_MAX);
        ask(p->client, stream, PUSH, CALL_MS, request, &a);
        await(&a);
        assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    }
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
}

// Requests of one stream are taken up in order, by however many threads; replies find their calls.
static void stream_keeps_order(void **state)
{
    enum { N = 20000 };
    struct pair *p = *state;
    struct answer *a = calloc(N, sizeof *a);
    close_server(p);
    serve(p, 4);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t *data;
        struct ps_slice request = ps_slice_new(i % 100 ? 40 : 30000, &data);
        memset(data, 0, request.len);
        data[0] = 'n';
        memcpy(data + 1, &i, sizeof i);
        ask(p->client, true, PUSH, 0, request, &a[i]);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t number;
        await(&a[i]);
        if (a[i].code)
            fail_msg("%u: %s", i, a[i].text);
        ps_slices_copy_out(&a[i].body, 1, sizeof number, &number);
        assert_int_equal(number, i);
        ps_slices_clear(&a[i].body);
    }
    assert_false(look(&p->core).out_of_order);
    assert_int_equal(look(&p->core).n_calls, N);
    free(a);
}

// Two threads that poll for one stream hand it to and fro.
static void serve_one_stream(struct pair *p)
{
    enum { N = 2000 };
    const unsigned others = 1 + ps_thread_processors() / 4;  // at most; each was in the queue when the stream came
    for (int i = 0; i < N; i++)
        assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
    assert_in_range(look(&p->core).n_changes, 1, 1 + 2 * others);
}

static void serve_more_streams(struct pair *p)
{
    enum { N = 4 };
    struct ps_client *clients[N];
    struct answer a[N];
    for (int i = 0; i < N; i++) {
        clients[i] = connect_to(p->address);
        assert_int_equal(ask_and_await(clients[i], true, CALL_MS, "e", &a[i]), PS_OK);
    }
    for (int i = 0; i < N; i++)
        ask(clients[i], true, PUSH, 0, text("m"), &a[i]);
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        ps_slices_clear(&a[i].body);
    }
    assert_true(look(&p->core).met);
    for (int i = 0; i < N; i++)
        close_client(clients[i]);
}

// A client's stream ends at the server some time after the client has left.
static void await_streams(struct pair *p, size_t n)
{
    const atomic_size_t *left = &p->server->n_streams;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; atomic_load(left) > n && ps_now() < until;)
        pause_ms(1);
    assert_int_equal(atomic_load(left), n);
}

// Where there is no stream any more.
static void serve_unary_calls(struct pair *p)
{
    enum { N = 4 };
    struct answer a[N];
    await_streams(p, 1);
    pause_ms(300);  // one thread serves a stream: the others come to rest
    close_client(p->client);
    p->client = connect_to(p->address);
    await_streams(p, 0);
    pthread_mutex_lock(&p->core.lock);
    p->core.met = false;
    pthread_mutex_unlock(&p->core.lock);
    for (int i = 0; i < N; i++)
        ask(p->client, false, PUSH, 0, text("m"), &a[i]);
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        ps_slices_clear(&a[i].body);
    }
    assert_true(look(&p->core).met);
}

static void threads_follow_streams(void **state)
{
    struct pair *p = *state;
    close_server(p);
    serve(p, 0);
    serve_one_stream(p);
    if (ps_thread_processors() == 1)
        return;
    serve_more_streams(p);
    serve_unary_calls(p);
}

// The owner of a request's bytes may want a lock that the caller holds: it must not be told from inside the call.
struct guarded {
    struct ps_owner owner;
    uint8_t bytes[100000];
};

static size_t freed;

static void guarded_free(struct ps_owner *o)
{
    assert_false(inside_call);
    __atomic_fetch_add(&freed, 1, __ATOMIC_SEQ_CST);
    free(o);
}

static void owners_are_let_go_outside_of_calls(void **state)
{
    enum { N = 300 };
    struct pair *p = *state;
    struct answer *a = calloc(N, sizeof *a);
    freed = 0;
    for (int i = 0; i < N; i++) {
        struct guarded *g = calloc(1, sizeof *g);
        g->owner.refs = 1;
        g->owner.free = guarded_free;
        ask(p->client, i % 3, PUSH, CALL_MS, (struct ps_slice){g->bytes, i % 2 ? sizeof g->bytes : 100, &g->owner},
            &a[i]);
    }
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    close_client(p->client);
    p->client = NULL;
    assert_int_equal(__atomic_load_n(&freed, __ATOMIC_SEQ_CST), N);
    free(a);
}

// ---- deadlines and waiting ----------------------------------------------------------------------------------------

static void deadlines_hold(void **state)
{
    struct pair *p = *state;
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
    for (int stream = 0; stream < 2; stream++) {
        const uint64_t before = ps_now();
        const size_t calls = look(&p->core).n_calls;
        struct core core;
        uint32_t ms = 900;
        // One that the handler has not seen by then is made again, with more time.
        for (;; ms *= 2) {
            struct answer a;
            uint64_t asked = ps_now();
            assert_int_equal(ask_and_await(p->client, stream, ms, "p", &a), PS_DEADLINE_EXCEEDED);
            assert_true(ps_now() - asked >= (ms - 10) * PS_MS);
            assert_string_equal(a.text, "no answer to Push");
            core = look(&p->core);
            if (core.n_calls > calls || ms > CALL_MS)
                break;
        }
        // The handler was told to answer 150 ms before the time is over, which the core may round up by a hundredth.
        assert_in_range(core.deadline, before, core.came + (ms + ms / 100 - 100) * PS_MS);
        release(&p->core);  // too late: dropped
    }
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
}

static void a_parked_call_delays_nobody(void **state)
{
    struct pair *p = *state;
    struct answer waiting;
    ask(p->client, true, PUSH, 0, text("p"), &waiting);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
    assert_false(answered(&waiting));
    release(&p->core);
    await(&waiting);
    assert_int_equal(waiting.code, PS_OK);
    ps_slices_clear(&waiting.body);
}

// Parked calls are cheap: many more fit than a client may need, over one stream and as unary calls.
static void many_calls_park(void **state)
{
    enum { N = 10000 };
    struct pair *p = *state;
    struct answer *a = calloc(N, sizeof *a);
    for (int i = 0; i < N; i++)
        ask(p->client, i % 10, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, N);
    assert_in_range(ps_server_queued(p->server), N, 64 << 20);
    release(&p->core);
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    await_idle(p);
    free(a);
}

static void restart(struct pair *p, size_t bytes)
{
    close_server(p);
    p->bytes = bytes;
    serve(p, 2);
}

// What the calls of all clients take is bounded. A stream with many waits until some are answered, one with few does
// not; unary calls are refused.
static void calls_are_bounded(void **state)
{
    enum { BUDGET = 16 << 20, FIT = BUDGET / 4 / 1024, N = FIT + 2000, SLACK = 3 * 400 };  // messages under way
    struct pair *p = *state;
    struct answer *a = calloc(N, sizeof *a), b;
    restart(p, BUDGET);
    struct ps_client *other = connect_to(p->address);
    for (int i = 0; i < N; i++)
        ask(p->client, true, PUSH, 0, text("p"), &a[i]);
    size_t before = 0, n;
    while ((n = parked(&p->core)) < FIT || n != before) {
        before = n;
        pause_ms(100);
    }
    assert_in_range(n, FIT, FIT + SLACK);
    assert_int_equal(ask_and_await(other, false, CALL_MS, "e", &b), PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(b.text, "wait here"));
    assert_int_equal(ask_and_await(other, true, CALL_MS, "e", &b), PS_OK);
    for (int i = 0; i < N; i++) {
        while (!answered(&a[i])) {
            release(&p->core);
            pause_ms(1);
        }
        await(&a[i]);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    close_client(other);
    await_idle(p);
    free(a);
}

static struct ps_slice bytes_of(char what, size_t len)
{
    uint8_t *data;
    struct ps_slice s = ps_slice_new(len, &data);
    memset(data, what, len);
    return s;
}

// Requests of all clients together are bounded: beyond half of the budget each brings one message at most, which it
// began to send when there was room or which is its first, and everyone is answered in the end.
static void requests_are_bounded(void **state)
{
    enum { BUDGET = 64 << 20, CLIENTS = 24, EACH = 8, LEN = 2 << 20, BESIDE = 64 << 10 };  // what is no body
    struct pair *p = *state;
    struct ps_client *c[CLIENTS];
    struct answer *a = calloc(CLIENTS * EACH, sizeof *a);
    size_t most = 0;
    restart(p, BUDGET);
    for (int i = 0; i < CLIENTS; i++)
        c[i] = connect_to(p->address);
    for (int i = 0; i < CLIENTS * EACH; i++)
        ask(c[i % CLIENTS], true, PUSH, 0, bytes_of('p', LEN), &a[i]);
    // As long as it takes until half of it is there, then for a while.
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    for (int i = 0; i < 50; i += most >= BUDGET / 2 || ps_now() > until) {
        size_t now = ps_server_queued(p->server);
        most = now > most ? now : most;
        pause_ms(10);
    }
    for (int i = 0; i < CLIENTS * EACH; i++)
        while (!answered(&a[i])) {
            release(&p->core);
            pause_ms(1);
        }
    print_message("# at most %zu of %d MiB were in flight\n", most >> 20, BUDGET >> 20);
    assert_in_range(most, BUDGET / 2, BUDGET / 2 + CLIENTS * (LEN + BESIDE));
    for (int i = 0; i < CLIENTS * EACH; i++) {
        if (a[i].code)
            fail_msg("%d: %s: %s", i, ps_code_name(a[i].code), a[i].text);
        assert_int_equal(a[i].body.len, LEN);
        ps_slices_clear(&a[i].body);
    }
    for (int i = 0; i < CLIENTS; i++)
        close_client(c[i]);
    await_idle(p);
    free(a);
}

static enum ps_code ask_method(struct ps_client *c, int method, bool stream)
{
    struct answer a;
    ask(c, stream, method, CALL_MS, text("e"), &a);
    await(&a);
    ps_slices_clear(&a.body);
    return a.code;
}

// Calls that wait have taken all the room there is for calls: those of the control lane have their own, and those for
// norms, which wait, too, another.
static void control_calls_have_a_room_of_their_own(void **state)
{
    enum { BUDGET = 16 << 20, FIT = BUDGET / 4 / 16384, NORMS = BUDGET / 16 / 16384, REFUSED = 50 };
    enum { CALLS = FIT + REFUSED, N = CALLS + NORMS };
    struct pair *p = *state;
    struct answer *a = calloc(N, sizeof *a);
    struct ps_client *c[N / 16 + 1];
    restart(p, BUDGET);
    for (int i = 0; i < N; i++) {  // few of each: a connection has an eighth
        if (i % 16 == 0)
            c[i / 16] = connect_to(p->address);
        ask(c[i / 16], false, i < CALLS ? PUSH : SUM_SQUARES, 0, text("p"), &a[i]);
    }
    for (int refused = 0, i; refused < REFUSED; pause_ms(1))
        for (refused = 0, i = 0; i < N; i++)
            refused += answered(&a[i]);
    await_parked(&p->core, FIT + NORMS);
    assert_int_equal(ask_method(p->client, PUSH, false), PS_RESOURCE_EXHAUSTED);
    assert_int_equal(ask_method(p->client, SUM_SQUARES, false), PS_RESOURCE_EXHAUSTED);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask_method(p->client, HEARTBEAT, i % 2), PS_OK);
        assert_int_equal(ask_method(p->client, STATUS, false), PS_OK);
    }
    release(&p->core);
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        ps_slices_clear(&a[i].body);
    }
    for (int i = 0; i <= (N - 1) / 16; i++)
        close_client(c[i]);
    await_idle(p);
    free(a);
}

// A connection takes a number of calls, and further ones wait at the client: those of control, where they go apart, do
// not.
static void control_calls_pass_those_that_wait(void **state)
{
    enum { BUDGET = 16 << 20, TAKEN = BUDGET / 4 / 16384 / 8, N = 2 * TAKEN };
    struct pair *p = *state;
    struct answer a[N];
    const char *address = p->address;
    restart(p, BUDGET);
    struct ps_client *c =
        ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = CALL_MS, .control_apart = true});
    for (int i = 0; i < N; i++)
        ask(c, false, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, TAKEN);
    int heard = 0;
    while (heard < 10 && ask_method(c, HEARTBEAT, heard % 2) == PS_OK)
        heard++;
    const size_t waiting = parked(&p->core);
    for (int i = 0; i < N; i++) {
        for (; !answered(&a[i]); pause_ms(1))
            release(&p->core);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    assert_int_equal(heard, 10);
    assert_int_equal(waiting, TAKEN);
    close_client(c);
    await_idle(p);
}

// A client whose stream the server does not read, for what it has brought already, is heard all the same.
static void heartbeats_do_not_wait_behind_data(void **state)
{
    enum { BUDGET = 16 << 20, N = 64, LEN = 512 << 10 };
    struct pair *p = *state;
    struct answer a[N], late;
    restart(p, BUDGET);
    for (int i = 0; i < N; i++)
        ask(p->client, true, PUSH, 0, bytes_of('p', LEN), &a[i]);
    await_parked(&p->core, BUDGET / 4 / LEN);
    ask(p->client, true, PUSH, 0, text("e"), &late);
    for (int i = 0; i < 10; i++)
        assert_int_equal(ask_method(p->client, HEARTBEAT, true), PS_OK);
    assert_false(answered(&late));
    for (int i = 0; i < N; i++) {
        while (!answered(&a[i])) {
            release(&p->core);
            pause_ms(1);
        }
        ps_slices_clear(&a[i].body);
    }
    await(&late);
    ps_slices_clear(&late.body);
    await_idle(p);
}

// Calls that wait without their requests' bytes keep nobody from sending what they wait for: a gradient's parts, of
// which there are more than a stream may have unanswered.
static void who_lets_go_gets_more(void **state)
{
    enum { BUDGET = 16 << 20, N = 64, LEN = 512 << 10 };
    struct pair *p = *state;
    struct answer a[N];
    restart(p, BUDGET);
    for (int i = 0; i < N; i++)
        ask(p->client, true, PUSH, 0, bytes_of('l', LEN), &a[i]);
    await_parked(&p->core, N);
    assert_in_range(ps_server_queued(p->server), N, 1 << 20);
    release(&p->core);
    for (int i = 0; i < N; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    await_idle(p);
}

// Some have taken what room there is, with requests that wait: others get in all the same.
static void who_has_nothing_gets_in(void **state)
{
    enum { BUDGET = 64 << 20, CLIENTS = 3, EACH = 12, LEN = 2 << 20 };
    struct pair *p = *state;
    struct ps_client *c[CLIENTS + 1];
    struct answer *a = calloc(CLIENTS * EACH, sizeof *a), b;
    restart(p, BUDGET);
    for (int i = 0; i <= CLIENTS; i++)
        c[i] = connect_to(p->address);
    for (int i = 0; i < CLIENTS * EACH; i++)
        ask(c[i % CLIENTS], true, PUSH, 0, bytes_of('p', LEN), &a[i]);
    for (size_t before = 0, n; (n = parked(&p->core)) < BUDGET / 2 / LEN - 2 || n != before; before = n)
        pause_ms(200);
    assert_in_range(ps_server_queued(p->server), BUDGET / 2 - 2 * LEN, BUDGET / 4 * 3);
    assert_int_equal(ask_and_await(c[CLIENTS], true, CALL_MS, "e", &b), PS_OK);
    assert_int_equal(ask_and_await(c[CLIENTS], false, CALL_MS, "e", &b), PS_OK);
    for (int i = 0; i < CLIENTS * EACH; i++) {
        while (!answered(&a[i])) {
            release(&p->core);
            pause_ms(1);
        }
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    for (int i = 0; i <= CLIENTS; i++)
        close_client(c[i]);
    await_idle(p);
    free(a);
}

// Clients that once brought much and bring nothing now are not kept room for.
static void the_idle_take_no_room(void **state)
{
    enum { BUDGET = 64 << 20, CLIENTS = 24, LEN = 2 << 20 };
    struct pair *p = *state;
    struct ps_client *c[CLIENTS];
    struct answer a;
    restart(p, BUDGET);
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = connect_to(p->address);
        ask(c[i], true, PUSH, CALL_MS, bytes_of('e', LEN), &a);
        await(&a);
        assert_int_equal(a.code, PS_OK);
        ps_slices_clear(&a.body);
    }
    for (int i = CLIENTS; i-- > 0;)
        assert_int_equal(ask_and_await(c[i], true, CALL_MS, "e", &a), PS_OK);
    for (int i = 0; i < CLIENTS; i++)
        close_client(c[i]);
    await_idle(p);
}

static void streams_are_bounded(void **state)
{
    enum { N = 32 };
    struct pair *p = *state;
    struct ps_client *c[N + 1];
    struct answer a;
    restart(p, N * PS_STREAM_OWN);
    for (int i = 0; i <= N; i++) {
        c[i] = connect_to(p->address);
        assert_int_equal(ask_and_await(c[i], true, CALL_MS, "e", &a), i < N ? PS_OK : PS_RESOURCE_EXHAUSTED);
    }
    assert_non_null(strstr(a.text, "32 streams are open"));
    close_client(c[0]);
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    while (ask_and_await(c[N], true, CALL_MS, "e", &a) && ps_now() < until)
        pause_ms(10);
    assert_int_equal(a.code, PS_OK);
    for (int i = 1; i <= N; i++)
        close_client(c[i]);
}

// ---- ends ---------------------------------------------------------------------------------------------------------

static void nobody_there_is_said_soon(void **state)
{
    struct pair *p = *state;
    close_server(p);
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        assert_int_equal(ask_and_await(p->client, stream, 600000, "e", &a), PS_UNAVAILABLE);  // not by its deadline
        assert_true(strlen(a.text) > 0);
    }
}

static void a_server_that_returns_is_found(void **state)
{
    struct pair *p = *state;
    struct answer a;
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &a), PS_OK);
    close_server(p);
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &a), PS_UNAVAILABLE);
    serve(p, 2);
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    for (int stream = 0; stream < 2; stream++) {
        while (ask_and_await(p->client, stream, CALL_MS, "e", &a) == PS_UNAVAILABLE && ps_now() < until)
            pause_ms(20);
        assert_int_equal(a.code, PS_OK);
    }
}

static void expect_stream(struct pair *p, bool stream, const char *name)
{
    struct answer a;
    char got[32] = "";
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    ask(p->client, stream, PUSH, CALL_MS, text("s"), &a);
    for (await(&a); a.code == PS_UNAVAILABLE && ps_now() < until; await(&a)) {
        pause_ms(20);
        ask(p->client, stream, PUSH, CALL_MS, text("s"), &a);
    }
    assert_int_equal(a.code, PS_OK);
    ps_slices_copy_out(&a.body, 0, a.body.len, got);
    ps_slices_clear(&a.body);
    assert_string_equal(got, name);
}

// Whatever a client calls over a stream, the opening is there before it: on the first stream, once it has changed, on
// the stream after a cut. The server gives back what the handler has kept of a stream.
static void streams_begin_with_the_opening(void **state)
{
    struct pair *p = *state;
    expect_stream(p, true, "no name");
    ps_client_open(p->client, 0, OPEN, text("first"));
    expect_stream(p, true, "first");
    expect_stream(p, false, "no stream");
    ps_client_open(p->client, 0, OPEN, text("second"));
    expect_stream(p, true, "second");
    expect_stream(p, true, "second");
    assert_int_equal(look(&p->core).n_streams_ended, 0);
    close_server(p);
    assert_int_equal(look(&p->core).n_streams_ended, 1);
    serve(p, 2);
    expect_stream(p, true, "second");
    close_client(p->client);
    p->client = NULL;
    close_server(p);
    assert_int_equal(look(&p->core).n_streams_ended, 2);
}

static void a_cut_ends_what_waits(void **state)
{
    struct pair *p = *state;
    struct answer a[4];
    for (int i = 0; i < 4; i++)
        ask(p->client, i % 2, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, 4);
    assert_int_equal(stop_server(p->server, 50 * PS_MS), PS_STOP_CUT);
    for (int i = 0; i < 4; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_UNAVAILABLE);
    }
    release(&p->core);  // the handler's calls have outlived the server's connections
    ps_server_destroy(p->server);
    p->server = NULL;
}

// One has arrived, the others may not have been sent; a unary call is none of a stream's.
static void a_client_cuts_its_streams(void **state)
{
    struct pair *p = *state;
    struct answer a[4], unary, next;
    const size_t size = 4 << 20;
    uint8_t *data;
    ask(p->client, true, PUSH, 0, text("p"), &a[0]);
    ask(p->client, false, PUSH, 0, text("p"), &unary);
    await_parked(&p->core, 2);
    for (int i = 1; i < 4; i++) {
        struct ps_slice large = ps_slice_new(size, &data);
        memset(data, 'p', size);
        ask(p->client, true, PUSH, 0, large, &a[i]);
    }
    ps_client_cut(p->client);
    for (int i = 0; i < 4; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_UNAVAILABLE);
        assert_non_null(strstr(a[i].text, "nobody waits for its answers"));
    }
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &next), PS_OK);
    release(&p->core);
    await(&unary);
    assert_int_equal(unary.code, PS_OK);
    ps_slices_clear(&unary.body);
}

static void calls_outlive_the_server(void **state)
{
    struct pair *p = *state;
    struct answer a[2];
    for (int i = 0; i < 2; i++)
        ask(p->client, i, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, 2);
    assert_int_equal(stop_server(p->server, 0), PS_STOP_CUT);
    ps_server_destroy(p->server);
    p->server = NULL;
    release(&p->core);
    await(&a[0]);
    await(&a[1]);
}

static void a_client_that_leaves_is_forgotten(void **state)
{
    struct pair *p = *state;
    struct ps_client *other = connect_to(p->address);
    struct answer a[2];
    for (int i = 0; i < 2; i++)
        ask(other, i, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, 2);
    close_client(other);
    for (int i = 0; i < 2; i++) {
        assert_true(a[i].done);
        assert_int_equal(a[i].code, PS_CANCELLED);
    }
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
    close_server(p);  // which answers them, to nobody
}

// What it had waiting here, on both transports, ends with it, and the room comes back.
static void calls_of_a_client_that_is_gone_end(void **state)
{
    enum { N = 500 };
    struct pair *p = *state;
    p->cancels = true;
    restart(p, 0);
    struct ps_client *other = connect_to(p->address);
    struct answer *a = calloc(N, sizeof *a), kept[2];
    for (int i = 0; i < 2; i++)
        ask(p->client, i, PUSH, 0, text("p"), &kept[i]);
    for (int i = 0; i < N; i++)
        ask(other, i % 2, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, N + 2);
    close_client(other);
    await_parked_at_most(&p->core, 2);
    assert_int_equal(look(&p->core).n_cancelled, N);
    release(&p->core);
    for (int i = 0; i < 2; i++) {
        await(&kept[i]);
        assert_int_equal(kept[i].code, PS_OK);
        ps_slices_clear(&kept[i].body);
    }
    await_idle(p);
    free(a);
}

// Clients come and go while their calls are answered: each call is answered once, whoever is first.
static void calls_are_answered_while_their_clients_go(void **state)
{
    enum { ROUNDS = 30, N = 100 };
    struct pair *p = *state;
    p->cancels = true;
    restart(p, 0);
    struct answer *a = calloc(N, sizeof *a);
    for (int k = 0; k < ROUNDS; k++) {
        struct ps_client *other = connect_to(p->address);
        for (int i = 0; i < N; i++)
            ask(other, i % 2, PUSH, i % 3 ? 0 : 1 + (unsigned)k, text(i % 5 ? "p" : "e"), &a[i]);
        await_parked_some(&p->core, k % 2 ? N / 2 : 1);
        if (k % 3)
            release(&p->core);
        close_client(other);
        for (int i = 0; i < N; i++)
            ps_slices_clear(&a[i].body);
    }
    await_parked_at_most(&p->core, 0);
    await_idle(p);
    free(a);
}

static void drained_server_answers_what_it_has(void **state)
{
    struct pair *p = *state;
    struct answer a[2], late;
    for (int i = 0; i < 2; i++)
        ask(p->client, i, PUSH, 0, text("p"), &a[i]);
    await_parked(&p->core, 2);
    ps_server_drain(p->server);
    assert_int_equal(ask_and_await(p->client, false, CALL_MS, "e", &late), PS_UNAVAILABLE);
    release(&p->core);
    for (int i = 0; i < 2; i++) {
        await(&a[i]);
        assert_int_equal(a[i].code, PS_OK);
        ps_slices_clear(&a[i].body);
    }
    assert_int_equal(stop_server(p->server, WAIT_S * PS_SECOND), PS_STOP_DONE);
    ps_server_destroy(p->server);
    p->server = NULL;
}

// Calls with a priority, each named by the second letter of its request, and their order.
struct raced {
    struct ps_client *client;
    char answered[512];
    struct answer released;
};

static void note_answer(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct raced *r = arg;
    char body[2];
    (void)text;
    assert_int_equal(code, PS_OK);
    ps_slices_copy_out(reply, 0, sizeof body, (uint8_t *)body);
    r->answered[strlen(r->answered)] = body[1];
}

static void ask_raced(struct raced *r, const char *request, uint32_t priority)
{
    struct ps_slices slices = PS_SLICES_EMPTY;
    ps_slices_add(&slices, text(request));
    ps_client_call(r->client, 0, PUSH,
                   &(struct ps_call_options){.deadline = UINT64_MAX, .stream = true, .priority = priority}, &slices,
                   note_answer, r);
}

// While replies are told nothing is sent: these wait together.
static void race(void *arg, enum ps_code code, const char *what, struct ps_slices *reply)
{
    (void)code, (void)what, (void)reply;
    ask_raced(arg, "pa", 1);
    ask_raced(arg, "pb", 3);
    ask_raced(arg, "pc", 0);
    ask_raced(arg, "pd", 2);
}

// All that is parked is answered, the last first, before anything is sent.
static void release_raced(struct pair *p, struct raced *r)
{
    ask(p->client, true, PUSH, 0, text("r"), &r->released);
    await(&r->released);
    ps_slices_clear(&r->released.body);
}

// As far as what has no priority; and so do their answers, which are given from the last to the first.
static void what_has_a_higher_priority_goes_first(void **state)
{
    struct pair *p = *state;
    struct raced r = {.client = p->client};
    struct ps_slices request = PS_SLICES_EMPTY;
    char arrived[5] = "";
    ps_slices_add(&request, text("e"));
    ps_client_call(p->client, 0, PUSH, &(struct ps_call_options){.deadline = UINT64_MAX, .stream = true}, &request,
                   race, &r);
    await_parked(&p->core, 4);
    pthread_mutex_lock(&p->core.lock);
    struct user *u = p->core.parked;
    for (int i = 4; i--; u = u->next)
        ps_slices_copy_out(&u->call->request, 1, 1, (uint8_t *)&arrived[i]);
    pthread_mutex_unlock(&p->core.lock);
    assert_string_equal(arrived, "bacd");
    release_raced(p, &r);
    assert_string_equal(r.answered, "dcba");
}

static void a_message_gathers_what_leaves_in_a_millisecond(void **state)
{
    (void)state;
    enum { MS = 1000000, ALL = PS_GATHER_BYTES };
    assert_int_equal(ps_gather_next(ALL, ALL, MS / 2), ALL);
    assert_int_equal(ps_gather_next(ALL, ALL, 4 * MS), ALL / 4);
    assert_int_equal(ps_gather_next(ALL / 4, ALL / 4, MS / 10), ALL / 2);
    assert_int_equal(ps_gather_next(ALL, ALL, 1000 * MS), PS_GATHER_LEAST);
    assert_int_equal(ps_gather_next(ALL / 4, 60, MS / 10), ALL / 4);  // says nothing of the network
    assert_int_equal(ps_gather_next(ALL / 4, 60, 10 * MS), ALL / 4);
    assert_int_equal(ps_gather_most(ALL / 4, 1), ALL / 4);
    assert_int_equal(ps_gather_most(ALL / 4, 0), ALL);
}

// What a client's priorities can cost psd is bounded.
static void an_answer_goes_before_so_many_others(void **state)
{
    struct pair *p = *state;
    struct raced r = {.client = p->client};
    ask_raced(&r, "pz", 2);
    await_parked(&p->core, 1);
    for (int i = 0; i < 300; i++)
        ask_raced(&r, "px", 1);
    await_parked(&p->core, 301);
    release_raced(p, &r);
    assert_int_equal(strlen(r.answered), 301);
    assert_int_equal(strchr(r.answered, 'z') - r.answered, 300 - 256);
}

struct chain {
    struct ps_client *client;
    int calls;
    struct answer last;
};

static void call_again(void *arg, enum ps_code code, const char *what, struct ps_slices *reply)
{
    struct chain *chain = arg;
    struct ps_slices request = PS_SLICES_EMPTY;
    (void)what;
    (void)reply;
    assert_int_equal(code, PS_CANCELLED);
    if (chain->calls++ < 3)
        ps_client_call(chain->client, 0, PUSH,
                       &(struct ps_call_options){.stream = chain->calls % 2, .deadline = UINT64_MAX}, &request,
                       call_again, chain);
    else
        ps_client_call(chain->client, 0, PUSH, &(struct ps_call_options){.stream = true, .deadline = UINT64_MAX},
                       &request, on_answer, &chain->last);
}

static void calls_made_while_stopping_end(void **state)
{
    struct pair *p = *state;
    struct chain chain = {.client = p->client};
    struct ps_slices request = PS_SLICES_EMPTY;
    ps_slices_add(&request, text("p"));
    ps_client_call(p->client, 0, PUSH, &(struct ps_call_options){.stream = true, .deadline = UINT64_MAX}, &request,
                   call_again, &chain);
    await_parked(&p->core, 1);
    close_client(p->client);
    p->client = NULL;
    assert_int_equal(chain.calls, 4);
    assert_true(chain.last.done);
    assert_int_equal(chain.last.code, PS_CANCELLED);
}

// ---- timers -------------------------------------------------------------------------------------------------------

struct order {
    int n, seen[8];
    uint64_t least[8], most[8];  // when each was due
    struct answer last;
};

static struct order order;

static void note(void *arg)
{
    order.seen[order.n++] = (int)(intptr_t)arg;
    if (order.n == 8)
        on_answer(&order.last, PS_OK, "", &(struct ps_slices){0});
}

static void never(void *arg)
{
    (void)arg;
    abort();
}

static void start_timer(struct ps_client *c, int i, uint64_t delay)
{
    order.least[i] = ps_now() + delay;
    ps_client_after(c, delay, note, (void *)(intptr_t)i);
    order.most[i] = ps_now() + delay;
}

static void timers_run_in_order(void **state)
{
    static const int delays[8] = {50, 10, 80, 30, 20, 70, 60, 40};
    struct pair *p = *state;
    memset(&order, 0, sizeof order);
    uint64_t before = ps_now();
    ps_client_after(p->client, 3600 * PS_SECOND, never, NULL);
    for (int i = 0; i < 8; i++)
        start_timer(p->client, i, (uint64_t)delays[i] * PS_MS);
    await(&order.last);
    assert_true(ps_now() - before >= 80 * PS_MS);
    for (int i = 0; i < 8; i++)
        for (int k = i + 1; k < 8; k++)
            assert_true(order.least[order.seen[i]] <= order.most[order.seen[k]]);
}

// ---- polling ------------------------------------------------------------------------------------------------------

// In place of libc's: how often this thread let others run, and what they do with its core. There are threads that poll
// for the pair of the other tests.
static _Thread_local int n_yields;
static _Thread_local bool core_is_wanted;

int sched_yield(void)
{
    n_yields++;
    if (core_is_wanted)
        nanosleep(&(struct timespec){.tv_nsec = PS_MS}, NULL);
    return 0;
}

// Of n waits for nothing, those that polled before.
static int polled_of(struct ps_cq *cq, int n)
{
    int polled = 0;
    for (int i = 0; i < n; i++) {
        n_yields = 0;
        assert_int_equal(ps_cq_step(cq, 0), PS_CQ_TIMEOUT);
        polled += n_yields > 0;
    }
    return polled;
}

static void event_came(struct ps_event *ev, bool ok)
{
    (void)ev;
    (void)ok;
}

// Batches of no operations, which are complete at once.
static void let_events_come(struct ps_cq *cq, int n)
{
    struct ps_event event = {.fn = event_came};
    grpc_channel_credentials *none = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create("unix:nobody", none, NULL);
    grpc_call *call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, cq->queue,
                                               grpc_slice_from_static_string("/none"), NULL,
                                               gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    for (int i = 0; i < n; i++) {
        assert_true(ps_cq_batch(cq, call, NULL, 0, &event));
        assert_int_equal(ps_cq_step(cq, UINT64_MAX), PS_CQ_EVENT);
    }
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(none);
}

static void who_polls_in_vain_polls_seldom(void **state)
{
    struct ps_cq cq;
    (void)state;
    ps_cq_init(&cq);
    assert_in_range(polled_of(&cq, 10), 1, 5);  // 5, where nobody takes this thread's core
    assert_int_equal(polled_of(&cq, 320), 10);
    let_events_come(&cq, 32);  // one of which is met by who tries again
    assert_int_equal(polled_of(&cq, 1), 1);
    let_events_come(&cq, 32);
    core_is_wanted = true;
    assert_int_equal(polled_of(&cq, 10), 1);
    core_is_wanted = false;
    ps_cq_close(&cq);
    assert_int_equal(ps_cq_step(&cq, UINT64_MAX), PS_CQ_SHUTDOWN);
    ps_cq_fini(&cq);
}

// ---- addresses ----------------------------------------------------------------------------------------------------

static enum ps_code try_address(const char *address, bool insecure, struct ps_error *e)
{
    const struct ps_server_options options = {.insecure = insecure, .call = on_call};
    struct ps_server *s;
    enum ps_code code = ps_server_start(&address, 1, &options, &s, e);
    if (code == PS_OK) {
        assert_true((strncmp(address, "unix:", 5) == 0) == (ps_server_port(s, 0) == 0));
        stop_server(s, 0);
        ps_server_destroy(s);
    }
    return code;
}

static void only_loopback_without_insecure(void **state)
{
    struct ps_error e;
    (void)state;
    assert_int_equal(try_address("127.0.0.1:0", false, &e), PS_OK);
    assert_int_equal(try_address("127.1.2.3:0", false, &e), PS_OK);
    assert_int_equal(try_address("localhost:0", false, &e), PS_OK);
    assert_int_equal(try_address("0.0.0.0:0", false, &e), PS_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "0.0.0.0:0"));
    assert_non_null(strstr(e.text, "--insecure"));
    assert_int_equal(try_address("[::]:0", false, &e), PS_FAILED_PRECONDITION);
    assert_int_equal(try_address("192.0.2.1:0", false, &e), PS_FAILED_PRECONDITION);
    assert_int_equal(try_address("0.0.0.0:0", true, &e), PS_OK);
    assert_int_equal(try_address("192.0.2.1:0", true, &e), PS_UNAVAILABLE);  // not an address of this host
}

// Otherwise what is listened on could be another address than the one that was found to be loopback.
static atomic_int lookups;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    atomic_fetch_add(&lookups, strcmp(host, "localhost") == 0);
    const bool own_name = strcmp(host, "node1") == 0 && !(hints->ai_flags & AI_NUMERICHOST);
    return next(own_name ? "127.0.1.1" : host, service, hints, list);
}

// What a server that starts there says.
static char *said_of_start(const char *address, bool insecure)
{
    static char said[1024];
    struct ps_error e;
    struct hearing heard = hearing_begin();
    const enum ps_code code = try_address(address, insecure, &e);
    hearing_end(&heard, said, sizeof said);
    assert_int_equal(code, PS_OK);
    return said;
}

static void a_name_is_looked_up_once_and_is_warned_of_where_it_is_loopback(void **state)
{
    struct ps_error e;
    (void)state;
    atomic_store(&lookups, 0);
    assert_int_equal(try_address("localhost:0", false, &e), PS_OK);
    assert_int_equal(atomic_load(&lookups), 1);
    assert_non_null(strstr(said_of_start("node1:0", true), "node1:0 is 127.0.1.1:0 here: other hosts cannot connect"));
    assert_string_equal(said_of_start("node1:0", false), "");
    assert_string_equal(said_of_start("127.0.1.1:0", true), "");
    assert_string_equal(said_of_start("127.1:0", true), "");
    assert_string_equal(said_of_start("[::1]:0", true), "");
    assert_string_equal(said_of_start("localhost:0", true), "");
    assert_string_equal(said_of_start("0.0.0.0:0", true), "");
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const bad[] = {"",        "nonsense",   ":7070",  "127.0.0.1", "127.0.0.1:",     "127.0.0.1:x",
                                      "host:-1", "host:70000", "[::1:7", "::1:7",     "ipv4:1.2.3.4:5", "unix:"};
    struct ps_error e;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (try_address(bad[i], true, &e) != PS_INVALID_ARGUMENT)
            fail_msg("accepted: '%s'", bad[i]);
}

static void an_address_in_use_is_named(void **state)
{
    struct pair *p = *state;
    const struct ps_server_options options = {.call = on_call};
    const char *any = "127.0.0.1:0";
    char taken[32];
    struct ps_server *s;
    struct ps_error e;
    assert_int_equal(try_address(p->address, false, &e), PS_ALREADY_EXISTS);
    assert_non_null(strstr(e.text, p->address));
    assert_int_equal(ps_server_start(&any, 1, &options, &s, &e), PS_OK);
    snprintf(taken, sizeof taken, "127.0.0.1:%d", ps_server_port(s, 0));
    assert_int_equal(try_address(taken, false, &e), PS_ALREADY_EXISTS);
    assert_non_null(strstr(e.text, taken));
    stop_server(s, 0);
    ps_server_destroy(s);
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);  // was not disturbed
}

static void a_stale_socket_is_replaced(void **state)
{
    struct pair *p = *state;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ps_error e;
    close_server(p);
    strcpy(to.sun_path, p->address + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    close(fd);
    assert_int_equal(try_address(p->address, false, &e), PS_OK);

    FILE *f = fopen(to.sun_path, "w");  // what is no socket is left alone
    fclose(f);
    assert_int_equal(try_address(p->address, false, &e), PS_ALREADY_EXISTS);
    struct stat st;
    assert_int_equal(stat(to.sun_path, &st), 0);
}

// A socket whose name is looked at, and bound: was its folder locked each time?
static const char *_Atomic looked_at;
static atomic_int looks, unlocked;

static void look_at_lock(const struct sockaddr *to)
{
    const char *path = atomic_load(&looked_at);
    char folder[sizeof((struct sockaddr_un *)NULL)->sun_path];
    if (!path || to->sa_family != AF_UNIX || strcmp(((const struct sockaddr_un *)to)->sun_path, path) != 0)
        return;
    strcpy(folder, path);
    *strrchr(folder, '/') = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    atomic_fetch_add(&looks, 1);
    atomic_fetch_add(&unlocked, flock(fd, LOCK_EX | LOCK_NB) == 0);
    close(fd);
}

int bind(int fd, const struct sockaddr *to, socklen_t len)
{
    int (*next)(int, const struct sockaddr *, socklen_t);
    *(void **)&next = dlsym(RTLD_NEXT, "bind");
    look_at_lock(to);
    return next(fd, to, len);
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    int (*next)(int, const struct sockaddr *, socklen_t);
    *(void **)&next = dlsym(RTLD_NEXT, "connect");
    look_at_lock(to);
    return next(fd, to, len);
}

// Else two processes that are started at once could both find that nobody listens, and one would serve nobody.
static void a_socket_is_taken_by_one(void **state)
{
    struct pair *p = *state;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ps_error e;
    char address[sizeof p->address + 8];
    snprintf(address, sizeof address, "%s.2", p->address);
    strcpy(to.sun_path, address + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    close(fd);
    atomic_store(&looked_at, to.sun_path);
    enum ps_code code = try_address(address, false, &e);
    atomic_store(&looked_at, NULL);
    assert_int_equal(code, PS_OK);
    assert_true(atomic_load(&looks) >= 2);
    assert_int_equal(atomic_load(&unlocked), 0);
    int held = ps_address_hold(address);  // it was let go
    assert_true(held >= 0);
    ps_address_let_go(held);
}

// What there is instead of a server, in words of ours. said: what it says to who connects; NULL: nothing, and that it
// takes the connection is the system's doing.
static void no_server(struct pair *p, const char *said, int attempt_ms, uint32_t timeout_ms, enum ps_code code,
                      const char *expected)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct answer a = {0};
    const char *address = p->address;
    strcpy(to.sun_path, address + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 8), 0);
    struct ps_client *c = ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = attempt_ms});
    ask(c, false, PUSH, timeout_ms, text("e"), &a);
    int peer = said ? accept(fd, NULL, NULL) : -1;
    if (said)
        assert_int_equal(write(peer, said, strlen(said)), strlen(said));
    await(&a);
    assert_int_equal(a.code, code);
    if (!strstr(a.text, expected))
        fail_msg("'%s' without '%s'", a.text, expected);
    close_client(c);
    if (said)
        close(peer);
    close(fd);
    unlink(to.sun_path);
}

static void who_is_no_server_is_said(void **state)
{
    struct pair *p = *state;
    close_server(p);
    no_server(p, NULL, 2000, CALL_MS, PS_UNAVAILABLE, "it takes the connection, then does not answer");
    no_server(p, NULL, CALL_MS, 500, PS_DEADLINE_EXCEEDED, "no answer to Push");
    no_server(p, "HTTP/1.1 400 Bad Request\r\n\r\n", CALL_MS, CALL_MS, PS_UNAVAILABLE,
              "what listens there is no gRPC server");
}

// A server's first words in HTTP/2, to whoever connects: does one of them acknowledge these?
static bool preface_is_acknowledged(int fd, int ms)
{
    static const char settings[9] = {0, 0, 0, 4, 0}, acknowledged[5] = {0, 0, 0, 4, 1};
    const uint64_t until = ps_now() + (uint64_t)ms * PS_MS;
    bool found = false;
    while (!found && ps_now() < until) {
        struct pollfd comes = {.fd = fd, .events = POLLIN};
        const int peer = poll(&comes, 1, 100) == 1 ? accept(fd, NULL, NULL) : -1;
        char said[4096];
        size_t len = 0;
        ssize_t got = peer < 0 ? 0 : write(peer, settings, sizeof settings);
        for (; got > 0 && len < sizeof said && !found; len += got > 0 ? (size_t)got : 0) {
            got = read(peer, said + len, sizeof said - len);  // until the client gives the attempt up
            found = got > 0 && memmem(said, len + (size_t)got, acknowledged, sizeof acknowledged);
        }
        if (peer >= 0)
            close(peer);
    }
    return found;
}

// The last attempt has failed, and with it each call until the next has not: the core makes that while no call is made.
static void a_connection_that_is_silent_is_said(void **state)
{
    (void)state;
    char *text = ps__call_text(&(struct ps__pending){0}, PS_UNAVAILABLE, "keepalive watchdog timeout");
    assert_string_equal(text, "it has been silent for some seconds");
    free(text);
}

static void connects_while_nothing_is_under_way(void **state)
{
    struct pair *p = *state;
    const char *address = p->address;
    close_server(p);
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        struct ps_client *c = ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = CALL_MS});
        assert_int_equal(ask_and_await(c, stream, CALL_MS, "e", &a), PS_UNAVAILABLE);
        snprintf(to.sun_path, sizeof to.sun_path, "%s", p->address + strlen("unix:"));
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
        assert_int_equal(listen(fd, 8), 0);
        assert_true(preface_is_acknowledged(fd, WAIT_S * 1000));
        close_client(c);
        close(fd);
        unlink(to.sun_path);
    }
}

static void a_path_too_long_is_not_connected_to(void **state)
{
    char path[256] = "unix:/tmp/";
    const char *address = path;
    struct answer a = {0};
    (void)state;
    memset(path + strlen(path), 'a', 200);
    struct ps_client *c = connect_to(address);
    assert_int_equal(ask_and_await(c, false, CALL_MS, "e", &a), PS_UNAVAILABLE);
    assert_string_equal(a.text, "its path is too long for a unix socket");
    close_client(c);
}

// Memory that is sent, and how many have dropped it.
static atomic_int dropped;

static void count_dropped(struct ps_owner *o)
{
    (void)o;
    atomic_fetch_add(&dropped, 1);
}

// Listens at the pair's address; whoever connects is given all the window there is, and is never read.
static int deaf_listen(const struct pair *p)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, p->address + strlen("unix:"));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void *deaf_accept(void *arg)
{
    static const uint8_t settings[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff};
    static const uint8_t window[] = {0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0};
    const int *listener = arg;
    for (int fd; (fd = accept(*listener, NULL, NULL)) >= 0;)
        if (send(fd, settings, sizeof settings, MSG_NOSIGNAL) < 0 || send(fd, window, sizeof window, MSG_NOSIGNAL) < 0)
            close(fd);
    return NULL;
}

// It is not lent to the core for longer than the peer is waited for, nor than the client lives; however the client
// spells the path that the peer is bound to.
static void memory_comes_back_from_a_deaf_peer(void **state)
{
    static uint8_t data[4 << 20];
    struct pair *p = *state;
    const char *const path = p->address + strlen("unix:");
    char link[sizeof p->address + 8], linked[2 * sizeof p->address], slashes[2 * sizeof p->address];
    close_server(p);
    snprintf(link, sizeof link, "%s.link", p->directory);
    snprintf(linked, sizeof linked, "unix:%s/%s", link, strrchr(path, '/') + 1);
    snprintf(slashes, sizeof slashes, "unix://%s", path);
    assert_int_equal(symlink(p->directory, link), 0);
    int listener = deaf_listen(p);
    pthread_t thread;
    pthread_create(&thread, NULL, deaf_accept, &listener);
    for (int how = 0; how < 8; how++) {
        const bool stream = how & 1, stops = how & 2;
        const char *address = how < 4 ? p->address : stream ? linked : slashes;
        struct ps_owner memory = {.free = count_dropped};
        struct answer a;
        atomic_init(&memory.refs, 1);
        atomic_store(&dropped, 0);
        struct ps_client *c = ps_client_create(&address, 1, NULL);
        ask(c, stream, PUSH, stops ? CALL_MS : 500, (struct ps_slice){data, sizeof data, &memory}, &a);
        if (stops)
            pause_ms(200);
        for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; !stops && !atomic_load(&dropped) && ps_now() < until;)
            pause_ms(1);
        ps_client_stop(c);
        assert_int_equal(atomic_load(&dropped), 1);
        ps_client_destroy(c);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    unlink(link);
    unlink(path);
}

// ---- a system that gives no threads -------------------------------------------------------------------------------

static atomic_int refused_threads;  // the next ones that this program's own code, but not the gRPC core, asks for

static bool is_of_this_program(void *(*function)(void *))
{
    Dl_info its, ours;
    void *at;
    memcpy(&at, &function, sizeof at);
    return dladdr(at, &its) && dladdr(&refused_threads, &ours) && its.dli_fbase == ours.dli_fbase;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *arg)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (is_of_this_program(function) && atomic_load(&refused_threads) > 0) {
        atomic_fetch_sub(&refused_threads, 1);
        return EAGAIN;
    }
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, function, arg);
}

static void see_mask(void *arg)
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    const int is = 1 + (sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR2) && !sigismember(&mask, SIGSEGV) &&
                        !sigismember(&mask, SIGPROF));
    atomic_store((atomic_int *)arg, is);
}

static void a_client_leaves_signals_to_the_program(void **state)
{
    struct pair *p = *state;
    atomic_int seen = 0;
    sigset_t mask;
    ps_client_after(p->client, 0, see_mask, &seen);
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; !atomic_load(&seen) && ps_now() < until;)
        pause_ms(1);
    assert_int_equal(atomic_load(&seen), 2);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
}

static void a_client_without_a_thread_is_none(void **state)
{
    struct pair *p = *state;
    atomic_store(&refused_threads, 1);
    errno = 0;
    struct ps_client *c = connect_to(p->address);
    const int why = errno;
    atomic_store(&refused_threads, 0);
    assert_null(c);
    assert_int_equal(why, EAGAIN);
}

static void a_server_without_a_thread_does_not_start(void **state)
{
    struct pair *p = *state;
    const char *address = "127.0.0.1:0";
    const struct ps_server_options options = {.threads = 2, .call = on_call, .ctx = &p->core};
    struct ps_server *s;
    struct ps_error e;
    atomic_store(&refused_threads, 2);
    const enum ps_code code = ps_server_start(&address, 1, &options, &s, &e);
    atomic_store(&refused_threads, 0);
    assert_int_equal(code, PS_RESOURCE_EXHAUSTED);
    assert_null(s);
    assert_non_null(strstr(e.text, "no thread for connections"));
}

static void a_server_goes_on_with_fewer_threads(void **state)
{
    struct pair *p = *state;
    char said[512];
    close_client(p->client);
    assert_int_equal(stop_server(p->server, 0), PS_STOP_DONE);
    ps_server_destroy(p->server);
    struct hearing h = hearing_begin();
    atomic_store(&refused_threads, 1);
    serve(p, 2);
    atomic_store(&refused_threads, 0);
    hearing_end(&h, said, sizeof said);
    assert_non_null(strstr(said, "1 of 2 threads for connections: "));
    p->client = connect_to(p->address);
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
}

// ---- what does not speak our language -----------------------------------------------------------------------------

// Enough of HTTP/2 to send any bytes as a message, and to find the status in what comes back: the gRPC core writes
// headers as they are.
struct raw {
    int fd;
    uint8_t out[70000];
    size_t n;
};

static void put(struct raw *r, const void *data, size_t len)
{
    memcpy(r->out + r->n, data, len);
    r->n += len;
}

static void put_frame(struct raw *r, uint8_t type, uint8_t flags, uint8_t stream, const void *data, size_t len)
{
    const uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags, 0, 0, 0, stream};
    put(r, head, sizeof head);
    put(r, data, len);
}

static size_t put_header(uint8_t *to, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    to[0] = 0;  // literal, not indexed
    to[1] = (uint8_t)n;
    memcpy(to + 2, name, n);
    to[2 + n] = (uint8_t)v;
    memcpy(to + 3 + n, value, v);
    return 3 + n + v;
}

static void raw_open(struct raw *r, const struct pair *p, const char *path, const char *encoding)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    uint8_t headers[512];
    size_t n = 0;
    r->n = 0;
    strcpy(to.sun_path, p->address + strlen("unix:"));
    r->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(r->fd, (struct sockaddr *)&to, sizeof to), 0);
    put(r, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    put_frame(r, 4, 0, 0, "", 0);
    n += put_header(headers + n, ":method", "POST");
    n += put_header(headers + n, ":scheme", "http");
    n += put_header(headers + n, ":path", path);
    n += put_header(headers + n, ":authority", "test");
    n += put_header(headers + n, "te", "trailers");
    n += put_header(headers + n, "content-type", "application/grpc");
    n += put_header(headers + n, "grpc-encoding", encoding);
    put_frame(r, 1, 4, 1, headers, n);
}

static void raw_message(struct raw *r, bool compressed, const void *data, size_t len)
{
    uint8_t message[20000] = {compressed, 0, 0, (uint8_t)(len >> 8), (uint8_t)len};
    memcpy(message + 5, data, len);
    put_frame(r, 0, 0, 1, message, len + 5);
}

static void await_calls(struct pair *p, size_t n)
{
    size_t now;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; (now = look(&p->core).n_calls) < n && ps_now() < until;)
        pause_ms(1);
    assert_true(now >= n);
}

// Opens a stream with all the window there is, asks for n large answers on it, and reads nothing.
static void raw_deaf(struct raw *r, const struct pair *p, int n)
{
    static const uint8_t window[] = {0, 4, 0x7f, 0xff, 0xff, 0xff}, more[] = {0x7f, 0, 0, 0};
    struct ps_slices message = PS_SLICES_EMPTY;
    uint8_t data[4000];
    for (int i = 0; i < n; i++) {
        struct ps_record record = {.id = (uint64_t)i + 1, .method = PUSH};
        ps_slices_add(&record.body, text("b"));
        ps_record_pack(&record, &message);
    }
    size_t len = message.len;
    ps_slices_copy_out(&message, 0, len, data);
    ps_slices_clear(&message);
    raw_open(r, p, PS_STREAM_PATH, "identity");
    put_frame(r, 4, 0, 0, window, sizeof window);
    put_frame(r, 8, 0, 0, more, sizeof more);
    raw_message(r, false, data, len);
    assert_int_equal(send(r->fd, r->out, r->n, 0), r->n);
}

// So many bytes are there to be read, and are not.
static void raw_await_unread(const struct raw *r, int least)
{
    int n = 0;
    for (uint64_t until = ps_now() + WAIT_S * PS_SECOND; n < least && ps_now() < until; pause_ms(1))
        assert_int_equal(ioctl(r->fd, FIONREAD, &n), 0);
    assert_true(n >= least);
}

// A client that has the server write as much as it likes, and reads none of it.
static void a_client_that_does_not_read(void **state)
{
    struct pair *p = *state;
    struct raw r;
    raw_deaf(&r, p, 4);
    raw_await_unread(&r, BIG / 16);  // part of an answer: more of it is being written than the socket takes
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
    assert_int_equal(ps_server_stop(p->server, 100 * PS_MS), PS_STOP_STUCK);
    close(r.fd);
    close_server(p);
}

// Requests of a client that does not read its answers wait, as messages already taken in.
static void answers_are_bounded(void **state)
{
    enum { ASKED = 100 };
    struct pair *p = *state;
    struct raw r;
    raw_deaf(&r, p, ASKED);
    await_calls(p, PS_STREAM_ANSWERS / BIG);
    pause_ms(500);
    assert_in_range(look(&p->core).n_calls, PS_STREAM_ANSWERS / BIG, PS_STREAM_ANSWERS / BIG + 8);
    close(r.fd);
    await_idle(p);
}

// While such clients have all the room that there is for answers, large ones of unary calls are refused; that does not
// last, since their calls are cancelled in the end.
static void unread_answers_are_dropped(void **state)
{
    enum { BUDGET = 8 << 20 };
    struct pair *p = *state;
    struct answer a;
    struct raw r;
    restart(p, BUDGET);
    const uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    uint64_t before;
    // Where it was dropped before another call met it, another of its kind comes.
    for (;;) {
        size_t calls = look(&p->core).n_calls;
        before = ps_now();
        raw_deaf(&r, p, 20);
        await_calls(p, calls + BUDGET / 2 / BIG);  // that much is theirs before others take any
        while (ask_and_await(p->client, false, CALL_MS, "b", &a) == PS_OK && ps_now() - before < 10 * PS_SECOND)
            pause_ms(1);
        if (a.code || ps_now() > until)
            break;
        close(r.fd);
        await_idle(p);
    }
    assert_int_equal(a.code, PS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(a.text, "do not read"));
    assert_int_equal(ask_and_await(p->client, false, CALL_MS, "e", &a), PS_OK);
    while (ask_and_await(p->client, false, CALL_MS, "b", &a) && ps_now() < until)
        pause_ms(100);
    assert_int_equal(a.code, PS_OK);
    assert_true(ps_now() - before >= 8 * PS_SECOND);
    close(r.fd);
    await_idle(p);
}

// Sends what was put together; the status that comes back, and its text.
static int raw_status(struct raw *r, char *what, size_t size)
{
    uint8_t in[65536];
    size_t n = 0;
    ssize_t got;
    int status = -1;
    struct timeval patience = {WAIT_S, 0};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(send(r->fd, r->out, r->n, 0), r->n);
    *what = 0;
    while (status < 0 && (got = recv(r->fd, in + n, sizeof in - n, 0)) > 0) {
        n += (size_t)got;
        uint8_t *at = memmem(in, n, "grpc-status", 11), *message = memmem(in, n, "grpc-message", 12);
        if (at && at + 12 + at[11] <= in + n)
            status = atoi((char *)memcpy((char[8]){0}, at + 12, at[11] < 7 ? at[11] : 7));
        if (message)
            snprintf(what, size, "%.*s", message[12] & 0x7f, message + 13);
    }
    close(r->fd);
    return status;
}

static void malformed_messages_end_their_stream(void **state)
{
    struct pair *p = *state;
    static const struct {
        const char *data;
        size_t len;
    } bad[] = {{"garbage", 7}, {"\x12\x01x", 3}, {"\x0a\x05x", 3}, {"\x0a\x05\x7a\x01x\x08\x01", 7}, {"\xff", 1}};
    char what[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct raw r;
        raw_open(&r, p, PS_STREAM_PATH, "identity");
        raw_message(&r, false, bad[i].data, bad[i].len);
        assert_int_equal(raw_status(&r, what, sizeof what), PS_INVALID_ARGUMENT);
        assert_non_null(strstr(what, "not a record"));
    }
    assert_int_equal(look(&p->core).n_calls, 0);
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
}

static void a_message_of_too_many_records_ends_its_stream(void **state)
{
    struct pair *p = *state;
    uint8_t data[2 * (PS_MESSAGE_RECORDS + 1)];
    char what[256];
    struct raw r;
    for (size_t i = 0; i < sizeof data; i += 2)
        memcpy(data + i, "\x0a\x00", 2);
    raw_open(&r, p, PS_STREAM_PATH, "identity");
    raw_message(&r, false, data, sizeof data);
    assert_int_equal(raw_status(&r, what, sizeof what), PS_RESOURCE_EXHAUSTED);
    assert_int_equal(look(&p->core).n_calls, 0);
}

static void compressed_messages_are_refused(void **state)
{
    struct pair *p = *state;
    char what[256];
    struct raw r;
    raw_open(&r, p, PS_STREAM_PATH, "gzip");
    raw_message(&r, true, "\x1f\x8b\x08\x00", 4);
    assert_int_equal(raw_status(&r, what, sizeof what), PS_UNIMPLEMENTED);
}

static void unknown_methods_are_unimplemented(void **state)
{
    struct pair *p = *state;
    char what[256];
    struct raw r;
    raw_open(&r, p, "/some.other.Service/Method", "identity");
    assert_int_equal(raw_status(&r, what, sizeof what), PS_UNIMPLEMENTED);
}

// ---- watching -----------------------------------------------------------------------------------------------------

static void raw_send(struct raw *r)
{
    assert_int_equal(send(r->fd, r->out, r->n, MSG_NOSIGNAL), r->n);
    r->n = 0;
}

// A watch under way, whose client lets the server send so many bytes.
static void raw_watch(struct raw *r, const struct pair *p, uint8_t window)
{
    const uint8_t settings[] = {0, 4, 0, 0, 0, window};
    raw_open(r, p, WATCH_PATH, "identity");
    put_frame(r, 4, 0, 0, settings, sizeof settings);
    raw_message(r, false, "who", 3);
    raw_send(r);
}

// Reads until one of two texts comes; true: it is the first.
static bool raw_await(struct raw *r, const char *text, const char *other)
{
    static uint8_t in[1 << 20];
    size_t n = 0;
    ssize_t got;
    struct timeval patience = {WAIT_S, 0};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (n < sizeof in && (got = recv(r->fd, in + n, sizeof in - n, 0)) > 0) {
        n += (size_t)got;
        if (memmem(in, n, other, strlen(other)))
            return false;
        if (memmem(in, n, text, strlen(text)))
            return true;
    }
    fail_msg("neither '%s' nor '%s' has come", text, other);
    return false;
}

static void await_answers(int n)
{
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    while (atomic_load(&watched.answers) < n && ps_now() < until)
        pause_ms(1);
    assert_true(atomic_load(&watched.answers) >= n);
}

static void await_answer_of(int state)
{
    uint64_t until = ps_now() + WAIT_S * PS_SECOND;
    while (atomic_load(&watched.last) != state && ps_now() < until)
        pause_ms(1);
    assert_int_equal(atomic_load(&watched.last), state);
}

static void a_watch_tells_every_change_once(void **state)
{
    struct pair *p = *state;
    struct raw r;
    char text[32];
    atomic_store(&watched.state, 100);
    raw_watch(&r, p, 255);
    assert_true(raw_await(&r, "state 100", "state 101"));
    for (int i = 101; i < 110; i++) {
        ps_server_changed(p->server);  // nothing has: what comes next is the next state
        set_state(p->server, i);
        snprintf(text, sizeof text, "state %d", i);
        assert_true(raw_await(&r, text, "state 100"));
    }
    // Whoever answers finds nothing new, and is told meanwhile that there is.
    pause_ms(20);
    atomic_store(&watched.overtaken, p->server);
    ps_server_changed(p->server);
    assert_true(raw_await(&r, "state 110", "state 111"));
    ps_server_drain(p->server);
    assert_true(raw_await(&r, "shutting down", "state"));
    close(r.fd);
}

// Changes that a watcher does not take are not kept for it: it gets the last one.
static void a_watcher_that_does_not_read_misses_changes(void **state)
{
    enum { CHANGES = 10000, WINDOW = 5 + 7 };  // of bytes: the first message
    static const uint8_t more[] = {0, 0, 0, 100};
    struct pair *p = *state;
    struct raw r;
    atomic_store(&watched.state, 0);
    atomic_store(&watched.answers, 0);
    raw_watch(&r, p, WINDOW);
    assert_true(raw_await(&r, "state 0", "state 1"));
    set_state(p->server, 1000001);
    await_answer_of(1000001);  // finds no room on the stream
    for (int i = 2; i <= CHANGES; i++)
        set_state(p->server, 1000000 + i);
    pause_ms(50);
    assert_in_range(atomic_load(&watched.answers), 2, 10);
    put_frame(&r, 8, 0, 1, more, sizeof more);
    raw_send(&r);
    assert_true(raw_await(&r, "state 1010000", "state 1000002"));
    close(r.fd);
}

// It is not waited for either.
static void a_watcher_that_does_not_read_delays_no_end(void **state)
{
    struct pair *p = *state;
    struct raw r;
    atomic_store(&watched.answers, 0);
    raw_watch(&r, p, 0);
    await_answers(1);
    const uint64_t grace = 600 * PS_SECOND;  // waiting for the watcher would take all of it
    assert_int_equal(ps_server_stop(p->server, grace), PS_STOP_DONE);
    ps_server_destroy(p->server);
    p->server = NULL;
    close(r.fd);
}

// The stop of a server whose pause before it closes its connections ends when the test says so.
struct held_stop {
    struct pair *pair;
    atomic_bool pauses, goes_on;
};

static _Thread_local struct held_stop *held_stop;  // until it pauses

// Locks sleep too, for microseconds.
int nanosleep(const struct timespec *time, struct timespec *left)
{
    int (*next)(const struct timespec *, struct timespec *);
    const bool is_pause = held_stop && time->tv_nsec >= (long)(100 * PS_MS);
    struct held_stop *held = is_pause ? held_stop : NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "nanosleep");
    if (held) {
        held_stop = NULL;
        atomic_store(&held->pauses, true);
    }
    while (held && !atomic_load(&held->goes_on))
        next(&(struct timespec){.tv_nsec = PS_MS}, NULL);
    return next(time, left);
}

static void *stop_in_time(void *arg)
{
    const struct held_stop *stop = held_stop = arg;
    assert_int_equal(stop_server(stop->pair->server, WAIT_S * PS_SECOND), PS_STOP_DONE);
    held_stop = NULL;
    return NULL;
}

// Reads until the text comes, or for so long; answers pings, as clients do.
static bool raw_await_or(struct raw *r, const char *text, int ms)
{
    static const uint8_t ping[] = {0, 0, 8, 6, 0, 0, 0, 0, 0};
    uint8_t in[1 << 14], *from = in, *at;
    size_t n = 0;
    ssize_t got;
    struct timeval patience = {ms / 1000, ms % 1000 * 1000};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (n < sizeof in && !memmem(in, n, text, strlen(text)) && (got = recv(r->fd, in + n, sizeof in - n, 0)) > 0) {
        n += (size_t)got;
        for (; (at = memmem(from, (size_t)(in + n - from), ping, sizeof ping)) && at + 17 <= in + n; from = at + 17) {
            put_frame(r, 6, 1, 0, at + 9, 8);
            raw_send(r);
        }
    }
    return memmem(in, n, text, strlen(text));
}

// Whoever is told of the end may write, and still reads what was said before: its connection is not closed at once, but
// after a pause.
static void a_client_may_write_when_its_calls_have_ended(void **state)
{
    struct pair *p = *state;
    struct held_stop stop = {.pair = p};
    struct raw r;
    pthread_t thread;
    raw_watch(&r, p, 255);
    assert_true(raw_await_or(&r, "state", 1000 * WAIT_S));
    pthread_create(&thread, NULL, stop_in_time, &stop);
    const bool ended = raw_await_or(&r, "shutting down", 1000 * WAIT_S);
    const bool more = raw_await_or(&r, "a pause", 20);
    put_frame(&r, 6, 0, 0, "still on", 8);
    const bool sent = send(r.fd, r.out, r.n, MSG_NOSIGNAL) == (ssize_t)r.n;
    const bool open = sent && raw_await_or(&r, "still on", 1000 * WAIT_S);
    atomic_store(&stop.goes_on, true);
    close(r.fd);
    pthread_join(thread, NULL);
    ps_server_destroy(p->server);
    p->server = NULL;
    assert_true(ended && !more && open);
    assert_true(atomic_load(&stop.pauses));
}

static void watchers_come_and_go_while_all_changes(void **state)
{
    struct pair *p = *state;
    for (int i = 0; i < 300; i++) {
        struct raw r;
        raw_watch(&r, p, 255);
        set_state(p->server, i);
        if (i % 3)
            raw_await(&r, "state", "nothing else");
        set_state(p->server, i + 1);
        close(r.fd);
    }
    assert_int_equal(ask_and_await(p->client, true, CALL_MS, "e", &(struct answer){0}), PS_OK);
}

static void a_bad_watch_is_refused(void **state)
{
    struct pair *p = *state;
    char what[256];
    struct raw r;
    raw_open(&r, p, WATCH_PATH, "identity");
    raw_message(&r, false, "nobody", 6);
    assert_int_equal(raw_status(&r, what, sizeof what), PS_INVALID_ARGUMENT);
    assert_non_null(strstr(what, "who asks?"));
    uint8_t large[PS_SERVICE_REQUEST_MAX + 1] = {0};
    raw_open(&r, p, WATCH_PATH, "identity");
    raw_message(&r, false, large, sizeof large);
    assert_int_equal(raw_status(&r, what, sizeof what), PS_RESOURCE_EXHAUSTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(methods_are_the_contract),
    TEST(echoes_every_size),
    TEST(errors_arrive),
    TEST(admin_calls_are_unary),
    TEST(too_large_a_request_is_refused),
    TEST(stream_keeps_order),
    TEST(threads_follow_streams),
    TEST(owners_are_let_go_outside_of_calls),
    TEST(deadlines_hold),
    TEST(a_parked_call_delays_nobody),
    TEST(many_calls_park),
    TEST(calls_are_bounded),
    TEST(requests_are_bounded),
    TEST(control_calls_have_a_room_of_their_own),
    TEST(control_calls_pass_those_that_wait),
    TEST(heartbeats_do_not_wait_behind_data),
    TEST(who_has_nothing_gets_in),
    TEST(who_lets_go_gets_more),
    TEST(the_idle_take_no_room),
    TEST(streams_are_bounded),
    TEST(nobody_there_is_said_soon),
    TEST(a_server_that_returns_is_found),
    TEST(streams_begin_with_the_opening),
    TEST(a_cut_ends_what_waits),
    TEST(a_client_cuts_its_streams),
    TEST(calls_outlive_the_server),
    TEST(a_client_that_leaves_is_forgotten),
    TEST(calls_of_a_client_that_is_gone_end),
    TEST(calls_are_answered_while_their_clients_go),
    TEST(drained_server_answers_what_it_has),
    TEST(what_has_a_higher_priority_goes_first),
    TEST(an_answer_goes_before_so_many_others),
    TEST(a_message_gathers_what_leaves_in_a_millisecond),
    TEST(calls_made_while_stopping_end),
    TEST(timers_run_in_order),
    TEST(who_polls_in_vain_polls_seldom),
    cmocka_unit_test(only_loopback_without_insecure),
    cmocka_unit_test(a_name_is_looked_up_once_and_is_warned_of_where_it_is_loopback),
    cmocka_unit_test(bad_addresses_are_refused),
    TEST(a_client_leaves_signals_to_the_program),
    TEST(a_client_without_a_thread_is_none),
    TEST(a_server_without_a_thread_does_not_start),
    TEST(a_server_goes_on_with_fewer_threads),
    TEST(who_is_no_server_is_said),
    TEST(a_connection_that_is_silent_is_said),
    TEST(connects_while_nothing_is_under_way),
    TEST(memory_comes_back_from_a_deaf_peer),
    cmocka_unit_test(a_path_too_long_is_not_connected_to),
    TEST(an_address_in_use_is_named),
    TEST(a_stale_socket_is_replaced),
    TEST(a_socket_is_taken_by_one),
    TEST(a_client_that_does_not_read),
    TEST(answers_are_bounded),
    TEST(unread_answers_are_dropped),
    TEST(malformed_messages_end_their_stream),
    TEST(a_message_of_too_many_records_ends_its_stream),
    TEST(compressed_messages_are_refused),
    TEST(unknown_methods_are_unimplemented),
    TEST(a_watch_tells_every_change_once),
    TEST(a_watcher_that_does_not_read_misses_changes),
    TEST(a_watcher_that_does_not_read_delays_no_end),
    TEST(a_client_may_write_when_its_calls_have_ended),
    TEST(watchers_come_and_go_while_all_changes),
    TEST(a_bad_watch_is_refused),
};

// The core looks at all clients' sockets every few seconds, whoever polls; not here: where nobody polls, that is seen.
int main(void)
{
    setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "0", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
