// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a message of the gathered stream. The records that are taken from it are the same however the bytes lie
// in slices; protobuf-c, where it takes the message too, finds the same ones; and they survive being packed again.
#include <stdlib.h>
#include <string.h>

#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

// splitmix64 (Steele, Lea, Flood 2014)
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// Slices of 1 to `most` bytes that end at places which follow from the seed. Each is memory of its own, so that
// sanitizers see the first byte read past its end.
static struct ps_slices cut(const uint8_t *data, size_t size, size_t most, uint64_t seed)
{
    struct ps_slices r = PS_SLICES_EMPTY;
    for (size_t at = 0, n; at < size; at += n) {
        n = 1 + next(&seed) % most;
        n = n < size - at ? n : size - at;
        ps_slices_add(&r, ps_slice_copy(data + at, n));
    }
    return r;
}

static bool same(const struct ps_slices *a, const struct ps_slices *b)
{
    uint8_t *x = malloc(a->len + 1), *y = malloc(b->len + 1);
    ps_slices_copy_out(a, 0, a->len, x);
    ps_slices_copy_out(b, 0, b->len, y);
    bool equal = a->len == b->len && memcmp(x, y, a->len) == 0;
    free(x);
    free(y);
    return equal;
}

static void expect_same(const struct ps_record *a, const struct ps_record *b)
{
    expect(a->id == b->id && a->method == b->method && a->timeout_ms == b->timeout_ms && a->code == b->code &&
           a->priority == b->priority);
    expect(strcmp(a->error, b->error) == 0 && same(&a->body, &b->body));
}

static void repack(const struct ps_record *r)
{
    struct ps_record copy = *r, again;
    struct ps_slices packed = PS_SLICES_EMPTY;
    size_t at = 0;
    copy.body = PS_SLICES_EMPTY;
    ps_slices_add_range(&copy.body, &r->body, 0, r->body.len);
    ps_record_pack(&copy, &packed);
    expect(copy.body.len == 0);
    expect(ps_record_next(&packed, &at, &again, NULL) == PS_OK && at == packed.len);
    expect_same(r, &again);
    ps_slices_clear(&again.body);
    ps_slices_clear(&packed);
}

// What protobuf-c makes of the same record.
static void compare(const struct ps_record *r, const Paramserver__V1__Record *p)
{
    size_t n = strlen(p->error) < sizeof r->error ? strlen(p->error) : sizeof r->error - 1;
    uint8_t *body = malloc(r->body.len + 1);
    ps_slices_copy_out(&r->body, 0, r->body.len, body);
    expect(r->id == p->id && r->method == (uint32_t)p->method && r->timeout_ms == p->timeout_ms && r->code == p->code &&
           r->priority == p->priority);
    expect(strncmp(r->error, p->error, n) == 0 && r->error[n] == 0);
    expect(r->body.len == p->body.len && (!p->body.len || memcmp(body, p->body.data, p->body.len) == 0));
    free(body);
}

// All records of a message, as two slice lists of the same bytes have them. p: NULL where protobuf-c refused.
static void walk(const struct ps_slices *a, const struct ps_slices *b, const Paramserver__V1__StreamMessage *p)
{
    size_t n = 0, at_a = 0, at_b = 0;
    while (at_a < a->len) {
        struct ps_record r, s;
        struct ps_error e = {0}, f = {0};
        size_t before = at_a;
        enum ps_code code = ps_record_next(a, &at_a, &r, &e);
        expect(ps_record_next(b, &at_b, &s, &f) == code && strcmp(e.text, f.text) == 0 && at_a == at_b);
        if (code) {
            expect(e.text[0] && at_a == before && r.body.n == 0 && s.body.n == 0);
            return;
        }
        expect(at_a > before && at_a <= a->len && r.body.len < at_a - before && !r.body.broken);
        expect_same(&r, &s);
        repack(&r);
        if (p) {
            expect(n < p->n_records);
            compare(&r, p->records[n]);
        }
        n++;
        ps_slices_clear(&r.body);
        ps_slices_clear(&s.body);
    }
    expect(!p || n == p->n_records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t seed = size;
    for (size_t i = 0; i < size && i < 64; i++)
        seed = seed * 31 + data[i];
    struct ps_slices whole = cut(data, size, size + 1, 0), few = cut(data, size, 40, seed),
                     many = cut(data, size, 3, seed);
    Paramserver__V1__StreamMessage *p = paramserver__v1__stream_message__unpack(NULL, size, data);
    walk(&whole, &few, p);
    walk(&few, &many, NULL);
    if (p)
        paramserver__v1__stream_message__free_unpacked(p, NULL);
    ps_slices_clear(&whole);
    ps_slices_clear(&few);
    ps_slices_clear(&many);
    return 0;
}
