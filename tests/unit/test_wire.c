// SPDX-License-Identifier: Apache-2.0
//
// Messages and records between bytes and structs. Slice lists are cut at every place there is, since slices may end
// anywhere.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/utf8.h"
#include "common/wire/codec.h"
#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"

#define UPDATE_REQUEST (&paramserver__v1__update_request__descriptor)
#define UPDATE_REPLY (&paramserver__v1__update_reply__descriptor)

static struct ps_slice bytes(const void *data, size_t len)
{
    return (struct ps_slice){data, len, NULL};
}

static struct ps_slices slices_of(const void *data, size_t len)
{
    struct ps_slices r = PS_SLICES_EMPTY;
    ps_slices_add(&r, bytes(data, len));
    return r;
}

// The same bytes in two slices; cut 0: in slices of one byte.
static struct ps_slices split_slices(const uint8_t *data, size_t len, size_t cut)
{
    struct ps_slices r = PS_SLICES_EMPTY;
    if (cut) {
        ps_slices_add(&r, bytes(data, cut));
        ps_slices_add(&r, bytes(data + cut, len - cut));
        return r;
    }
    for (size_t i = 0; i < len; i++)
        ps_slices_add(&r, bytes(data + i, 1));
    return r;
}

static uint8_t *flatten(struct ps_slices *r, size_t *len)
{
    uint8_t *flat = malloc(r->len ? r->len : 1);
    *len = r->len;
    ps_slices_copy_out(r, 0, r->len, flat);
    ps_slices_clear(r);
    return flat;
}

static enum ps_code unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len)
{
    struct ps_slices in = slices_of(data, len), payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m = NULL;
    struct ps_error e = {0};
    enum ps_code code = ps_msg_unpack(type, &in, &m, &payload, &e);
    assert_true((code == PS_OK) == (m != NULL));
    assert_true((code == PS_OK) == (e.text[0] == 0));
    ps_msg_free(m);
    ps_slices_clear(&payload);
    ps_slices_clear(&in);
    return code;
}

// ---- messages -----------------------------------------------------------------------------------------------------

static const char PAYLOAD[] = "the tensors' bytes, long enough that their length takes two bytes as a varint: "
                              "the tensors' bytes, long enough that their length takes two bytes as a varint";

static uint8_t *packed_request(size_t *len)
{
    uint64_t shape[] = {300, 7};
    Paramserver__V1__Caller caller = PARAMSERVER__V1__CALLER__INIT;
    Paramserver__V1__Tensor tensor = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&tensor};
    Paramserver__V1__UpdateRequest m = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    struct ps_slices payload = slices_of(PAYLOAD, sizeof PAYLOAD), out = PS_SLICES_EMPTY;
    caller.job = "mnist";
    caller.sequence = UINT64_MAX;
    tensor.variable = "dense/kernel";
    tensor.shape = shape;
    tensor.n_shape = 2;
    m.caller = &caller;
    m.tensors = tensors;
    m.n_tensors = 1;
    m.round = 1000;
    ps_msg_pack(&m.base, &payload, &out);
    assert_int_equal(payload.len, 0);
    return flatten(&out, len);
}

static void check_request(const struct ps_slices *in)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct ps_error e;
    char got[sizeof PAYLOAD];
    assert_int_equal(ps_msg_unpack(UPDATE_REQUEST, in, &m, &payload, &e), PS_OK);
    const Paramserver__V1__UpdateRequest *r = (Paramserver__V1__UpdateRequest *)m;
    assert_string_equal(r->caller->job, "mnist");
    assert_true(r->caller->sequence == UINT64_MAX);
    assert_string_equal(r->tensors[0]->variable, "dense/kernel");
    assert_int_equal(r->tensors[0]->shape[0], 300);
    assert_int_equal(r->round, 1000);
    assert_int_equal(r->payload.len, 0);
    assert_int_equal(payload.len, sizeof PAYLOAD);
    ps_slices_copy_out(&payload, 0, sizeof PAYLOAD, got);
    assert_memory_equal(got, PAYLOAD, sizeof PAYLOAD);
    ps_msg_free(m);
    ps_slices_clear(&payload);
}

static void message_survives_any_cut(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_request(&len);
    for (size_t cut = 0; cut < len; cut++) {
        struct ps_slices in = split_slices(flat, len, cut);
        check_request(&in);
        ps_slices_clear(&in);
    }
    free(flat);
}

static void payload_is_not_copied(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_request(&len);
    struct ps_slices in = slices_of(flat, len), payload = PS_SLICES_EMPTY;
    ProtobufCMessage *m;
    assert_int_equal(ps_msg_unpack(UPDATE_REQUEST, &in, &m, &payload, NULL), PS_OK);
    assert_int_equal(payload.n, 1);
    assert_ptr_equal(payload.v[0].data, flat + len - sizeof PAYLOAD);
    ps_msg_free(m);
    ps_slices_clear(&payload);
    ps_slices_clear(&in);
    free(flat);
}

static void packed_message_is_protobuf(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_request(&len);
    Paramserver__V1__UpdateRequest *r = paramserver__v1__update_request__unpack(NULL, len, flat);
    assert_non_null(r);
    assert_int_equal(r->payload.len, sizeof PAYLOAD);
    assert_memory_equal(r->payload.data, PAYLOAD, sizeof PAYLOAD);
    paramserver__v1__update_request__free_unpacked(r, NULL);
    free(flat);
}

static void empty_message(void **state)
{
    (void)state;
    assert_int_equal(unpack(UPDATE_REQUEST, "", 0), PS_OK);
    assert_int_equal(unpack(UPDATE_REQUEST, "\x7a\x00", 2), PS_OK);  // a payload of no bytes
}

static void truncated_message_is_refused(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_request(&len);
    for (size_t n = len - sizeof PAYLOAD - 1; n < len; n++)  // inside the payload's length, and the payload
        assert_int_equal(unpack(UPDATE_REQUEST, flat, n), PS_INVALID_ARGUMENT);
    for (size_t n = 0; n < len; n++)
        unpack(UPDATE_REQUEST, flat, n);
    free(flat);
}

static void malformed_message_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what, *data;
        size_t len;
    } bad[] = {
        {"payload before another field", "\x7a\x01x\x18\x05", 5},
        {"two payloads", "\x7a\x01x\x7a\x01y", 6},
        {"payload that is a varint", "\x78\x05", 2},
        {"length past the end", "\x12\x05x", 3},
        {"group", "\x13\x14", 2},
        {"wire type 7", "\x1f\x01", 2},
        {"field 0", "\x00\x01", 2},
        {"varint of 11 bytes", "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
        {"tag alone", "\x18", 1},
        {"nested message that is none", "\x0a\x01\xff", 3},
        {"fixed64 cut short", "\xa1\x01\x01\x02", 4},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (unpack(UPDATE_REQUEST, bad[i].data, bad[i].len) != PS_INVALID_ARGUMENT)
            fail_msg("accepted: %s", bad[i].what);
}

static void strings_are_utf8(void **state)
{
    static const char *const good[] = {
        "", "n", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",         "n\xc3",         "\xc0\xaf",         "\xe0\x9f\xbf",
                                      "\xed\xa0\x80", "\xe2\x82 \x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"};
    Paramserver__V1__Tensor tensor = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&tensor};
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    uint8_t packed[64];
    (void)state;
    r.tensors = tensors;
    r.n_tensors = 1;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tensor.variable = (char *)good[i];
        assert_int_equal(unpack(UPDATE_REQUEST, packed, protobuf_c_message_pack(&r.base, packed)), PS_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tensor.variable = (char *)bad[i];
        assert_int_equal(unpack(UPDATE_REQUEST, packed, protobuf_c_message_pack(&r.base, packed)), PS_INVALID_ARGUMENT);
    }
}

static void expect_cut(const char *text, size_t size, const char *want)
{
    char to[32];
    memset(to, '#', sizeof to);
    ps_utf8_cut(text, to, size);
    assert_string_equal(to, want);
    assert_int_equal(to[size], '#');
}

static void a_text_is_cut_at_a_word(void **state)
{
    (void)state;
    expect_cut("", 8, "");
    expect_cut("it fits", 8, "it fits");
    expect_cut("it does not", 11, "it does...");
    expect_cut("it is done", 10, "it is...");
    expect_cut("itsoneword and more", 9, "itson...");
    expect_cut("gr\xc3\xb6\xc3\x9f"
               "er als das",
               8, "gr\xc3\xb6...");
    expect_cut("gr\xc3\xb6\xc3\x9f"
               "er als das",
               7, "gr...");
    expect_cut("n\xc3", 8, "n?");
}

// Unknown fields of every type, as a later version of the contract may send.
static void unknown_fields_are_skipped(void **state)
{
    (void)state;
    assert_int_equal(unpack(UPDATE_REQUEST,
                            "\xa0\x01\x07\xa2\x01\x01x\xa5\x01"
                            "1234"
                            "\xa1\x01"
                            "12345678",
                            23),
                     PS_OK);
}

static void bounds_hold(void **state)
{
    (void)state;
    uint8_t *big = calloc(1, PS_MESSAGE_MAX + 1);
    assert_int_equal(unpack(UPDATE_REQUEST, big, PS_MESSAGE_MAX + 1), PS_RESOURCE_EXHAUSTED);

    // 2-byte results become some 70 bytes of heap each.
    for (size_t i = 0; i < PS_HEADER_MAX; i += 2)
        memcpy(big + i, "\x12", 2);
    assert_int_equal(unpack(UPDATE_REPLY, big, PS_HEADER_MAX), PS_RESOURCE_EXHAUSTED);
    assert_int_equal(unpack(UPDATE_REPLY, big, 100000), PS_OK);
    for (size_t i = 0; i < PS_HEADER_MAX + 2; i += 2)
        memcpy(big + i, "\x12", 2);
    assert_int_equal(unpack(UPDATE_REPLY, big, PS_HEADER_MAX + 2), PS_RESOURCE_EXHAUSTED);
    free(big);
}

// ---- records ------------------------------------------------------------------------------------------------------

static void set_error(struct ps_record *r, const char *text)
{
    strcpy(r->error, text);
}

// Three records: a request, a reply with an error, one with nothing at all.
static uint8_t *packed_records(size_t *len)
{
    struct ps_slices out = PS_SLICES_EMPTY;
    struct ps_record *r = calloc(1, sizeof *r);
    r->id = 1ull << 40;
    r->method = 10;
    r->timeout_ms = 60000;
    r->priority = 1u << 31;
    r->body = slices_of(PAYLOAD, sizeof PAYLOAD);
    ps_record_pack(r, &out);
    assert_int_equal(r->body.len, 0);
    memset(r, 0, sizeof *r);
    r->id = 2;
    r->code = PS_NOT_FOUND;
    set_error(r, "no such variable");
    ps_record_pack(r, &out);
    memset(r, 0, sizeof *r);
    ps_record_pack(r, &out);
    free(r);
    return flatten(&out, len);
}

static void check_records(const struct ps_slices *in)
{
    struct ps_record r;
    size_t offset = 0;
    char got[sizeof PAYLOAD];
    assert_int_equal(ps_record_next(in, &offset, &r, NULL), PS_OK);
    assert_true(r.id == 1ull << 40);
    assert_int_equal(r.method, 10);
    assert_int_equal(r.timeout_ms, 60000);
    assert_true(r.priority == 1u << 31);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.error, "");
    assert_int_equal(r.body.len, sizeof PAYLOAD);
    ps_slices_copy_out(&r.body, 0, sizeof PAYLOAD, got);
    assert_memory_equal(got, PAYLOAD, sizeof PAYLOAD);
    ps_slices_clear(&r.body);

    assert_int_equal(ps_record_next(in, &offset, &r, NULL), PS_OK);
    assert_int_equal(r.id, 2);
    assert_int_equal(r.method, 0);
    assert_int_equal(r.priority, 0);
    assert_int_equal(r.code, PS_NOT_FOUND);
    assert_string_equal(r.error, "no such variable");
    assert_int_equal(r.body.len, 0);

    assert_int_equal(ps_record_next(in, &offset, &r, NULL), PS_OK);
    assert_int_equal(r.id, 0);
    assert_string_equal(r.error, "");
    assert_int_equal(offset, in->len);
}

static void records_survive_any_cut(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_records(&len);
    for (size_t cut = 0; cut < len; cut++) {
        struct ps_slices in = split_slices(flat, len, cut);
        check_records(&in);
        ps_slices_clear(&in);
    }
    free(flat);
}

static void packed_records_are_protobuf(void **state)
{
    (void)state;
    size_t len;
    uint8_t *flat = packed_records(&len);
    Paramserver__V1__StreamMessage *m = paramserver__v1__stream_message__unpack(NULL, len, flat);
    assert_non_null(m);
    assert_int_equal(m->n_records, 3);
    assert_int_equal(m->records[0]->timeout_ms, 60000);
    assert_int_equal(m->records[0]->body.len, sizeof PAYLOAD);
    assert_string_equal(m->records[1]->error, "no such variable");
    assert_int_equal(m->records[1]->code, PS_NOT_FOUND);

    uint8_t *again = malloc(len);
    assert_int_equal(paramserver__v1__stream_message__get_packed_size(m), len);
    paramserver__v1__stream_message__pack(m, again);
    assert_memory_equal(again, flat, len);
    paramserver__v1__stream_message__free_unpacked(m, NULL);
    free(again);
    free(flat);
}

static enum ps_code next(const char *data, size_t len, struct ps_record *r)
{
    struct ps_slices in = slices_of(data, len);
    struct ps_error e;
    size_t offset = 0;
    enum ps_code code = ps_record_next(&in, &offset, r, &e);
    ps_slices_clear(&in);
    return code;
}

static void malformed_record_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what, *data;
        size_t len;
    } bad[] = {
        {"another field", "\x12\x00", 2},
        {"record that is a varint", "\x08\x01", 2},
        {"record past the end", "\x0a\x05\x08\x01", 4},
        {"body before another field", "\x0a\x05\x7a\x01x\x08\x01", 7},
        {"body past the record",
         "\x0a\x03\x7a\x02x"
         "y",
         6},
        {"id that is bytes", "\x0a\x03\x0a\x01x", 5},
        {"error that is a varint", "\x0a\x02\x28\x01", 4},
        {"varint past the record", "\x0a\x02\x08\x80\x01", 5},
    };
    struct ps_record r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (next(bad[i].data, bad[i].len, &r) != PS_INVALID_ARGUMENT)
            fail_msg("accepted: %s", bad[i].what);
    assert_int_equal(next("\x0a\x06\x08\x07\xa2\x06\x01x", 8, &r), PS_OK);  // with an unknown field
    assert_int_equal(r.id, 7);
}

static void long_error_is_cut(void **state)
{
    (void)state;
    char data[706] = "\x0a\xbf\x05\x2a\xbc\x05";  // a record of 703 bytes, an error of 700
    struct ps_record r;
    memset(data + 6, 'e', 700);
    assert_int_equal(next(data, sizeof data, &r), PS_OK);
    assert_int_equal(strlen(r.error), sizeof r.error - 1);
}

// What is written and read by hand is what protobuf-c reads and writes.
static void tensors_by_hand(void **state)
{
    (void)state;
    const uint64_t numbers[] = {0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT;
        Paramserver__V1__TensorResult result = PARAMSERVER__V1__TENSOR_RESULT__INIT;
        uint8_t packed[256];
        struct ps_tensor_head head;
        struct ps_tensor_result found;
        t.variable = (char *)"a/kernel";
        t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
        t.n_shape = 2;
        t.shape = (uint64_t[]){3, numbers[i]};
        t.first = t.count = t.version = t.changes = t.bytes = numbers[i];
        t.partition = (uint32_t)numbers[i];
        struct ps_field f = {.data = packed, .len = paramserver__v1__tensor__pack(&t, packed)};
        for (size_t cut = 0; cut < f.len; cut++) {  // any beginning is read or refused, and no byte behind it
            uint8_t *some = memcpy(malloc(cut + 1), packed, cut);
            ps_read_tensor(&(struct ps_field){.data = some, .len = cut}, &head);
            free(some);
        }
        assert_true(ps_read_tensor(&f, &head));
        assert_int_equal(head.partition, t.partition);
        assert_true(head.first == numbers[i] && head.count == numbers[i] && head.version == numbers[i] &&
                    head.changes == numbers[i] && head.bytes == numbers[i]);
        result.outcome = PARAMSERVER__V1__OUTCOME__STAGED;
        result.version = result.staleness = result.round = result.nonfinite = numbers[i];
        result.blocks = result.duplicates = (uint32_t)numbers[i];
        f.len = paramserver__v1__tensor_result__pack(&result, packed);
        assert_true(ps_read_result(&f, &found));
        assert_true(found.version == numbers[i] && found.staleness == numbers[i] && found.round == numbers[i] &&
                    found.nonfinite == numbers[i] && found.blocks == (uint32_t)numbers[i] &&
                    found.duplicates == (uint32_t)numbers[i] && (int)found.outcome == (int)result.outcome);
        uint8_t put[PS_RESULT_BYTES];
        assert_int_equal(ps_put_result(put, 2, &found) - put, f.len + 2);
        assert_true(put[0] == (2 << 3 | PS_LENGTH) && put[1] == f.len);
        assert_memory_equal(put + 2, packed, f.len);
        uint8_t *end = ps_put_uint(packed, 6, numbers[i]);
        assert_int_equal(end - packed, ps_uint_size(numbers[i]));
        Paramserver__V1__Tensor *back = paramserver__v1__tensor__unpack(NULL, (size_t)(end - packed), packed);
        assert_true(back && back->version == numbers[i]);
        paramserver__v1__tensor__free_unpacked(back, NULL);
    }
}

// Short and long copies, from and to every place within a cache line: all bytes arrive, and none beside them change.
static void slices_are_copied_out(void **state)
{
    (void)state;
    enum { LINE = 64, LONGEST = (512 << 10) + 201, PIECES = 4, GUARD = 0xa5 };
    static const size_t lengths[] = {0, 1, 200, LONGEST - 202, LONGEST};
    uint8_t *data = malloc(LONGEST + LINE), *to = malloc(LONGEST + 3 * LINE);
    assert_true(data && to);
    for (size_t i = 0; i < LONGEST + LINE; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 24);
    for (size_t offset = 0; offset < LINE; offset++) {
        struct ps_slices r = PS_SLICES_EMPTY;
        for (size_t i = 0, at = 0; i < PIECES; i++) {  // the second is shorter than what makes a place come right
            size_t end = i == PIECES - 1 ? LONGEST + LINE : i == 1 ? at + 3 : at + LONGEST / 3 + i;
            ps_slices_add(&r, bytes(data + at, end - at));
            at = end;
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t place = LINE + (offset * 7 + i) % LINE;
            memset(to, GUARD, LONGEST + 3 * LINE);
            ps_slices_copy_out(&r, offset, lengths[i], to + place);
            assert_memory_equal(to + place, data + offset, lengths[i]);
            for (size_t k = 1; k <= LINE; k++)
                assert_true(to[place - k] == GUARD && to[place + lengths[i] + k - 1] == GUARD);
        }
        ps_slices_clear(&r);
    }
    free(data);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_by_hand),
        cmocka_unit_test(message_survives_any_cut),
        cmocka_unit_test(payload_is_not_copied),
        cmocka_unit_test(packed_message_is_protobuf),
        cmocka_unit_test(empty_message),
        cmocka_unit_test(truncated_message_is_refused),
        cmocka_unit_test(malformed_message_is_refused),
        cmocka_unit_test(strings_are_utf8),
        cmocka_unit_test(a_text_is_cut_at_a_word),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(records_survive_any_cut),
        cmocka_unit_test(packed_records_are_protobuf),
        cmocka_unit_test(malformed_record_is_refused),
        cmocka_unit_test(long_error_is_cut),
        cmocka_unit_test(slices_are_copied_out),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
