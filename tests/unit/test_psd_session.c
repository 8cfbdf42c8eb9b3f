// SPDX-License-Identifier: Apache-2.0
//
// Short requests: tensors named by their partitions, callers by the session of their stream.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/psd_job.h"

enum { BIG = 140000, HALF = 70000 };  // elements; "big" is two partitions, each of a block

// A job of "a", partition 0, and "big", partitions 1 and 2.
static void open_cut(struct job *j, Paramserver__V1__Update update)
{
    struct declaring x;
    Paramserver__V1__Partition second = PARAMSERVER__V1__PARTITION__INIT;
    Paramserver__V1__Partition *partitions[] = {&j->pa, &j->pbig, &second};
    fill_job(j, BIG);
    forget_again();
    j->core = core_new(64 << 20);
    assert_int_equal(join(j->core, 0, update).code, PS_OK);
    assert_int_equal(join(j->core, 1, update).code, PS_OK);
    declare_init(&x, j, update, "assign_add");
    j->pbig.count = second.first = HALF;
    second.variable = 1;
    second.count = BIG - HALF;
    x.r.partitions = partitions;
    x.r.n_partitions = 3;
    struct answer a = ask(j->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("declare: %s", a.text);
}

// ---- partitions ---------------------------------------------------------------------------------------------------

static void update_of(struct update *u, uint64_t sequence, uint32_t partition, uint64_t first, uint64_t count)
{
    update_init(u, 0, sequence, "", first, count);
    u->t.dtype = PARAMSERVER__V1__DTYPE__DTYPE_NONE;
    u->t.partition = partition + 1;
}

// Element `at` of "big".
static float big_at(struct psd_core *core, uint64_t at)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    struct ps_slices bytes = PS_ROPE_EMPTY;
    ProtobufCMessage *m = NULL;
    float value = -1;
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    t.variable = (char *)"big";
    t.first = at;
    t.count = 1;
    struct answer a = ask(core, M(GET), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
    if (a.code)
        fail_msg("get: %s", a.text);
    assert_string_equal(((Paramserver__V1__ReadReply *)m)->tensors[0]->variable, "big");
    ps_slices_copy_out(&bytes, 0, sizeof value, &value);
    ps_slices_clear(&bytes);
    ps_msg_free(m);
    return value;
}

static void test_whole_partition(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    open_cut(&j, ASYNC);
    update_of(&u, 1, 2, 0, 0);
    assert_int_equal(update_ok(j.core, &u, M(PUSH), BIG - HALF, 3).outcome, PARAMSERVER__V1__OUTCOME__APPLIED);
    assert_true(big_at(j.core, HALF - 1) == 0);
    assert_true(big_at(j.core, HALF) == 3);
    assert_true(big_at(j.core, BIG - 1) == 3);
    // Without first and count a variable is the whole variable, as it was.
    update_init(&u, 0, 2, "big", 0, 0);
    update_ok(j.core, &u, M(PUSH), BIG, 1);
    assert_true(big_at(j.core, 0) == 1 && big_at(j.core, BIG - 1) == 4);
    psd_core_destroy(j.core);
}

static void test_range_of_partition(void **state)
{
    struct job j;
    struct update u;
    (void)state;
    open_cut(&j, ASYNC);
    update_of(&u, 1, 2, HALF + 5, 2);
    update_ok(j.core, &u, M(ASSIGN_ADD), 2, 7);
    assert_true(big_at(j.core, HALF + 4) == 0 && big_at(j.core, HALF + 5) == 7 && big_at(j.core, HALF + 6) == 7 &&
                big_at(j.core, HALF + 7) == 0);
    psd_core_destroy(j.core);
}

static void test_bad_partitions(void **state)
{
    static const struct {
        uint32_t partition;
        uint64_t first, count;
        const char *variable;
        enum ps_code code;
        const char *says;
    } bad[] = {
        {3, 0, 0, "", PS_NOT_FOUND, "job 'job' has no partition 3: it has 3, counted from 0"},
        {UINT32_MAX - 1, 0, 0, "", PS_NOT_FOUND, "job 'job' has no partition 4294967294: it has 3, counted from 0"},
        {1, 0, 0, "big", PS_INVALID_ARGUMENT, "variable 'big' and partition 1: expected one of them to be named"},
        {1, HALF, 1, "", PS_OUT_OF_RANGE,
         "variable 'big': partition 1 has [0, +70000), the request says [70000, +1)"},
        {2, HALF - 1, 2, "", PS_OUT_OF_RANGE,
         "variable 'big': partition 2 has [70000, +70000), the request says [69999, +2)"},
        {2, UINT64_MAX, 2, "", PS_OUT_OF_RANGE,
         "variable 'big' has 140000 elements, the request says [18446744073709551615, +2)"},
        {2, HALF, 0, "", PS_INVALID_ARGUMENT, "variable 'big': the range at 70000 is empty"},
    };
    struct job j;
    (void)state;
    open_cut(&j, ASYNC);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct update u;
        update_of(&u, 1, bad[i].partition, bad[i].first, bad[i].count);
        u.t.variable = (char *)bad[i].variable;
        struct answer a = send_update(j.core, &u, M(PUSH), 1, 1, NULL);
        assert_string_equal(a.text, bad[i].says);
        assert_int_equal(a.code, bad[i].code);
    }
    psd_core_destroy(j.core);
}

// Partitions of one variable are ranges of it: in order, one after the other, and none comes again.
static void test_order_of_partitions(void **state)
{
    static const struct {
        uint32_t partitions[3];
        bool good;
    } orders[] = {{{1, 2, 0}, true}, {{0, 1, 2}, true}, {{2, 1, 0}, false}, {{1, 0, 2}, false}, {{1, 1, 0}, false}};
    struct job j;
    (void)state;
    open_cut(&j, ASYNC);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct update u;
        Paramserver__V1__Tensor t[3], *tensors[3];
        Paramserver__V1__UpdateReply *reply = NULL;
        size_t elements = 0;
        update_of(&u, i + 1, 0, 0, 0);
        for (int k = 0; k < 3; k++) {
            uint32_t p = orders[i].partitions[k];
            t[k] = u.t;
            t[k].partition = p + 1;
            tensors[k] = &t[k];
            elements += p ? HALF : 15;
        }
        u.r.tensors = tensors;
        u.r.n_tensors = 3;
        struct answer a = send_update(j.core, &u, M(PUSH), elements, 1, &reply);
        assert_int_equal(a.code, orders[i].good ? PS_OK : PS_INVALID_ARGUMENT);
        if (reply)
            ps_msg_free(&reply->base);
    }
    assert_true(big_at(j.core, 0) == 2 && big_at(j.core, BIG - 1) == 2);
    psd_core_destroy(j.core);
}

// The answer names what was asked for, so that the client needs no name for it.
static void test_read_partitions(void **state)
{
    struct job j;
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    Paramserver__V1__Tensor t[2] = {PARAMSERVER__V1__TENSOR__INIT, PARAMSERVER__V1__TENSOR__INIT};
    Paramserver__V1__Tensor *tensors[] = {&t[0], &t[1]};
    struct ps_slices bytes = PS_ROPE_EMPTY;
    ProtobufCMessage *m = NULL;
    (void)state;
    open_cut(&j, ASYNC);
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 2;
    t[0].partition = 1;
    t[1].partition = 3;
    struct answer a = ask(j.core, M(PULL), &r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &bytes);
    assert_int_equal(a.code, PS_OK);
    const Paramserver__V1__ReadReply *reply = (Paramserver__V1__ReadReply *)m;
    assert_int_equal(reply->n_tensors, 2);
    assert_string_equal(reply->tensors[0]->variable, "");
    assert_int_equal(reply->tensors[0]->partition, 1);
    assert_int_equal(reply->tensors[1]->partition, 3);
    assert_int_equal(reply->tensors[1]->first, HALF);
    assert_int_equal(reply->tensors[1]->count, BIG - HALF);
    assert_int_equal(bytes.len, (15 + BIG - HALF) * sizeof(float));
    ps_slices_clear(&bytes);
    ps_msg_free(m);
    // Who names no run may not know this declaration.
    caller.run = caller.worker = 0;
    a = ask(j.core, M(GET), &r.base, NULL, NULL, NULL, NULL);
    assert_int_equal(a.code, PS_INVALID_ARGUMENT);
    assert_string_equal(a.text, "the request names partition 0 of job 'job', and no run of it: expected both");
    psd_core_destroy(j.core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_partition),     cmocka_unit_test(test_range_of_partition),
        cmocka_unit_test(test_bad_partitions),      cmocka_unit_test(test_order_of_partitions),
        cmocka_unit_test(test_read_partitions),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
