// SPDX-License-Identifier: Apache-2.0
//
// Against a live psd, over unary calls and the gathered stream: one push under one sequence takes effect once, whether
// 64 threads send it or its connection is cut at every byte of a request, or of an answer, and it is sent again. And a
// Get of 256 MB whose reader stalls keeps its version while pushes to single blocks go on, at little memory.
//
//     exactly_once PSD-SOCKET      serving, with room for 600 MB
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "tests/it/call.h"
#include "tests/it/proxy.h"
#include "tests/messages.h"

enum { N = 15, BIG = 64 << 20, THREADS = 64 };
#define M(name) PARAMSERVER__V1__METHOD__##name

static char psd_address[128], proxy_address[128];
static struct proxy *proxy;
static struct ps_client *direct;
static uint64_t sequence;
static float expected;

// ---- calls --------------------------------------------------------------------------------------------------------

// *reply (may be NULL) is unpacked where the code is PS_OK, *bytes gets its payload.
static enum ps_code call(struct ps_client *client, int method, bool stream, const ProtobufCMessage *m,
                         struct ps_slices *payload, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply,
                         struct ps_slices *bytes)
{
    struct answer a;
    struct ps_slices ignored = PS_SLICES_EMPTY;
    uint64_t until = ps_now() + call_timeout;
    for (;;) {
        ask(client, method, stream, m, payload, &a);
        // Without a payload it may be asked again: psd may not have run for a while.
        if (await(&a) != PS_UNAVAILABLE || payload || ps_now() > until)
            break;
        ps_slices_clear(&a.body);
    }
    if (a.code == PS_OK && reply)
        a.code = ps_msg_unpack(type, &a.body, reply, bytes ? bytes : &ignored, NULL);
    if (a.code != PS_OK && a.code != PS_UNAVAILABLE)
        print_message("# %s: %s\n", ps_code_name(a.code), a.text);
    ps_slices_clear(&ignored);
    ps_slices_clear(&a.body);
    return a.code;
}

static enum ps_code push_once(struct ps_client *client, bool stream, const char *name, uint64_t first, uint64_t count,
                              uint64_t seq)
{
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = caller_of(0, seq);
    struct ps_slices payload = floats(count, 1);
    r.caller = &caller;
    r.n_tensors = 1;
    r.tensors = tensors;
    t.variable = (char *)name;
    t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    t.first = first;
    t.count = count;
    return call(client, M(PUSH), stream, &r.base, &payload, NULL, NULL, NULL);
}

// Over a connection that nobody cuts; a psd that does not run for two seconds may break it all the same.
static enum ps_code push(struct ps_client *client, bool stream, const char *name, uint64_t first, uint64_t count,
                         uint64_t seq)
{
    uint64_t until = ps_now() + call_timeout;
    enum ps_code code;
    do
        code = push_once(client, stream, name, first, count, seq);
    while (code == PS_UNAVAILABLE && client == direct && ps_now() < until);
    return code;
}

static float value_of(const char *name)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = caller_of(0, 0);
    ProtobufCMessage *reply = NULL;
    struct ps_slices bytes = PS_SLICES_EMPTY;
    float value = -1;
    r.caller = &caller;
    r.n_tensors = 1;
    r.tensors = tensors;
    t.variable = (char *)name;
    t.count = 1;
    assert_int_equal(
        call(direct, M(GET), false, &r.base, NULL, &paramserver__v1__read_reply__descriptor, &reply, &bytes), PS_OK);
    ps_slices_copy_out(&bytes, 0, sizeof value, &value);
    ps_slices_clear(&bytes);
    ps_msg_free(reply);
    return value;
}

// ---- set-up -------------------------------------------------------------------------------------------------------

static void join(void)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    r.caller = &caller;
    r.address = (char *)"test";
    r.workers = 1;
    r.update = PARAMSERVER__V1__UPDATE__ASYNC;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(
        call(direct, M(JOIN), false, &r.base, NULL, &paramserver__v1__join_reply__descriptor, &reply, NULL), PS_OK);
    test_run = ((Paramserver__V1__JoinReply *)reply)->run;
    ps_msg_free(reply);
}

static void declare(void)
{
    uint64_t small_shape[] = {N}, big_shape[] = {BIG};
    Paramserver__V1__Variable small = PARAMSERVER__V1__VARIABLE__INIT, big = PARAMSERVER__V1__VARIABLE__INIT;
    Paramserver__V1__Partition p = PARAMSERVER__V1__PARTITION__INIT, q = PARAMSERVER__V1__PARTITION__INIT;
    Paramserver__V1__Variable *variables[] = {&small, &big};
    Paramserver__V1__Partition *partitions[] = {&p, &q};
    Paramserver__V1__DeclareRequest r = PARAMSERVER__V1__DECLARE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    small.name = (char *)"small";
    big.name = (char *)"big";
    small.shape = small_shape;
    big.shape = big_shape;
    small.n_shape = big.n_shape = 1;
    small.dtype = big.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    small.trainable = big.trainable = true;
    p.count = N;
    q.variable = 1;
    q.count = BIG;
    r.caller = &caller;
    r.update = PARAMSERVER__V1__UPDATE__ASYNC;
    r.workers = r.tasks = 1;
    r.rule = (char *)"assign_add";
    r.n_variables = r.n_partitions = 2;
    r.variables = variables;
    r.partitions = partitions;
    assert_int_equal(call(direct, M(DECLARE), false, &r.base, NULL, NULL, NULL, NULL), PS_OK);
}

// The control task must go on hearing of the worker, or it is dead after a while.
static void heartbeat(void)
{
    Paramserver__V1__HeartbeatRequest r = PARAMSERVER__V1__HEARTBEAT_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    r.caller = &caller;
    assert_int_equal(call(direct, M(HEARTBEAT), false, &r.base, NULL, NULL, NULL, NULL), PS_OK);
}

static struct ps_client *client_of(const char *address)
{
    return ps_client_create(&address, 1, NULL);
}

static void end_client(struct ps_client *client)
{
    ps_client_stop(client);
    ps_client_destroy(client);
}

// ---- tests --------------------------------------------------------------------------------------------------------

struct racer {
    bool stream;
    uint64_t seq;
    enum ps_code code;
};

static void *race(void *arg)
{
    struct racer *r = arg;
    r->code = push(direct, r->stream, "small", 0, N, r->seq);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[THREADS];
    struct racer racer[THREADS];
    (void)state;
    for (int round = 0; round < 20; round++) {
        sequence++;
        for (int i = 0; i < THREADS; i++) {
            racer[i] = (struct racer){.stream = i % 2, .seq = sequence};
            assert_int_equal(pthread_create(&thread[i], NULL, race, &racer[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(racer[i].code, PS_OK);
        }
        assert_true(value_of("small") == ++expected);
    }
}

// Bytes that a whole push takes in a direction, from the first of the connection on. Where psd is late to take the
// connection, the client gives up, and another sends it again.
static uint64_t measure(int direction, bool stream)
{
    enum ps_code code;
    uint64_t until = ps_now() + call_timeout, bytes;
    sequence++;
    do {
        struct ps_client *client = client_of(proxy_address);
        proxy_passed(proxy, direction);
        code = push(client, stream, "small", 0, N, sequence);
        end_client(client);
        bytes = proxy_passed(proxy, direction);
    } while (code == PS_UNAVAILABLE && ps_now() < until);
    assert_int_equal(code, PS_OK);
    expected++;
    return bytes;
}

static void cut_everywhere(int direction, bool stream)
{
    uint64_t all = measure(direction, stream), answered = 0;
    for (uint64_t bytes = 1; bytes <= all; bytes++) {
        proxy_cut_after(proxy, direction, bytes);
        struct ps_client *client = client_of(proxy_address);
        answered += push(client, stream, "small", 0, N, ++sequence) == PS_OK;
        end_client(client);
        assert_int_equal(push(direct, !stream, "small", 0, N, sequence), PS_OK);
        float found = value_of("small");
        if (found != ++expected)
            fail_msg("cut after %" PRIu64 " bytes: %g, expected %g", bytes, (double)found, (double)expected);
        if (bytes % 10 == 0)
            heartbeat();
    }
    proxy_cut_after(proxy, direction, UINT64_MAX);
    print_message("# %s, %s: cut at each of %" PRIu64 " bytes, %" PRIu64 " answered all the same\n",
                  stream ? "stream" : "unary", direction == PROXY_UP ? "request" : "answer", all, answered);
    assert_true(answered < all);
}

static void test_cut_unary_request(void **state)
{
    (void)state;
    cut_everywhere(PROXY_UP, false);
}

static void test_cut_unary_answer(void **state)
{
    (void)state;
    cut_everywhere(PROXY_DOWN, false);
}

static void test_cut_stream_request(void **state)
{
    (void)state;
    cut_everywhere(PROXY_UP, true);
}

static void test_cut_stream_answer(void **state)
{
    (void)state;
    cut_everywhere(PROXY_DOWN, true);
}

static uint64_t resident(void)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    assert_int_equal(
        call(direct, M(STATUS), false, &r.base, NULL, &paramserver__v1__status_reply__descriptor, &reply, NULL), PS_OK);
    uint64_t bytes = ((Paramserver__V1__StatusReply *)reply)->resident_bytes;
    ps_msg_free(reply);
    return bytes;
}

static void push_blocks(float *sum)
{
    enum { BLOCK = PS_BLOCK_BYTES / 4 };
    for (uint64_t k = 0; k < 16; k++)
        assert_int_equal(push(direct, true, "big", k % 8 * 61 * BLOCK, BLOCK, ++sequence), PS_OK);
    *sum += 2;
}

// A block has no memory before somebody reads or changes it: a read of all of them does.
static void touch_all(const Paramserver__V1__ReadRequest *all)
{
    Paramserver__V1__ReadRequest r = *all;
    do {
        ProtobufCMessage *m = NULL;
        struct ps_slices bytes = PS_SLICES_EMPTY;
        assert_int_equal(
            call(direct, M(GET), false, &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes), PS_OK);
        r.offset = ((Paramserver__V1__ReadReply *)m)->next_offset;
        r.snapshot = ((Paramserver__V1__ReadReply *)m)->snapshot;
        ps_msg_free(m);
        ps_slices_clear(&bytes);
    } while (r.offset);
}

// The reader takes a message, stalls while others push, takes the next one.
static void test_stalled_reader(void **state)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = caller_of(0, 0);
    float before = 0, after = 0;
    uint64_t done = 0, grown = 0;
    (void)state;
    push_blocks(&before);
    r.caller = &caller;
    r.n_tensors = 1;
    r.tensors = tensors;
    t.variable = (char *)"big";
    touch_all(&r);
    uint64_t least = resident();
    after = before;
    do {
        ProtobufCMessage *m = NULL;
        struct ps_slices bytes = PS_SLICES_EMPTY;
        assert_int_equal(
            call(direct, M(GET), false, &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes), PS_OK);
        for (size_t i = 0; i < bytes.len; i += sizeof(float)) {
            float x, scratch;
            uint64_t block = (done + i) / PS_BLOCK_BYTES;
            memcpy(&x, ps_slices_peek(&bytes, i, sizeof x, &scratch), sizeof x);
            if (x != (block % 61 == 0 && block < 8 * 61 ? before : 0))
                fail_msg("element %" PRIu64 " is %g", (done + i) / 4, (double)x);
        }
        done += bytes.len;
        r.offset = ((Paramserver__V1__ReadReply *)m)->next_offset;
        r.snapshot = ((Paramserver__V1__ReadReply *)m)->snapshot;
        ps_slices_clear(&bytes);
        ps_msg_free(m);
        push_blocks(&after);
        heartbeat();
        uint64_t now = resident();
        grown = now > least + grown ? now - least : grown;
    } while (r.offset);
    print_message("# resident memory grew by %.1f MB\n", (double)grown / 1e6);
    assert_int_equal(done, (uint64_t)BIG * sizeof(float));
    assert_true(value_of("big") == after);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep freed memory for a while
    assert_true(grown < 16000000);
#endif
}

static int set_up(void **state)
{
    (void)state;
    direct = client_of(psd_address);
    join();
    declare();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_client(direct);
    proxy_stop(proxy);
    return 0;
}

int main(int argc, char **argv)
{
    char listen_path[100];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),           cmocka_unit_test(test_cut_unary_request),
        cmocka_unit_test(test_cut_unary_answer),  cmocka_unit_test(test_cut_stream_request),
        cmocka_unit_test(test_cut_stream_answer), cmocka_unit_test(test_stalled_reader),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: exactly_once PSD-SOCKET\n");
        return PS_EXIT_USAGE;
    }
    ps_alloc_tune();
    snprintf(listen_path, sizeof listen_path, "%s.proxy", argv[1]);
    snprintf(psd_address, sizeof psd_address, "unix:%s", argv[1]);
    snprintf(proxy_address, sizeof proxy_address, "unix:%s", listen_path);
    proxy = proxy_start(listen_path, argv[1]);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
