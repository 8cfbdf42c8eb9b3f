// SPDX-License-Identifier: Apache-2.0
//
// A job of variables of any dtype in a psd core, and the data calls on it, for tests that ask the core directly.
#ifndef TEST_PSD_STORE_H
#define TEST_PSD_STORE_H

#include "common/base/hash.h"
#include "common/wire/dtype.h"
#include "psd/sync/round.h"
#include "tests/unit/psd_job.h"

#define D(name) PARAMSERVER__V1__DTYPE__##name
#define OUTCOME(name) PARAMSERVER__V1__OUTCOME__##name

enum { RANGES = 8, BLOCK = PS_BLOCK_BYTES / sizeof(float) };

struct spec {
    const char *name;
    Paramserver__V1__DType dtype;
    uint64_t count;
    bool trainable;
};

// Job "job" of two workers with these variables, each one partition. The rule momentum has one of 0.5.
struct store {
    struct psd_core *core;
    Paramserver__V1__Variable v[RANGES], *variables[RANGES];
    Paramserver__V1__Partition p[RANGES], *partitions[RANGES];
    uint64_t shape[RANGES];
};

static inline struct answer store_declare_for(struct store *s, Paramserver__V1__Update update, const char *rule,
                                              const struct spec *specs, uint32_t n, uint32_t workers)
{
    struct declaring x;
    struct job j = {.core = s->core};
    for (uint32_t i = 0; i < n; i++) {
        paramserver__v1__variable__init(s->variables[i] = &s->v[i]);
        paramserver__v1__partition__init(s->partitions[i] = &s->p[i]);
        s->shape[i] = specs[i].count;
        s->v[i].name = (char *)specs[i].name;
        s->v[i].dtype = specs[i].dtype;
        s->v[i].n_shape = 1;
        s->v[i].shape = &s->shape[i];
        s->v[i].trainable = specs[i].trainable;
        s->p[i].variable = i;
        s->p[i].count = specs[i].count;
    }
    Paramserver__V1__Hyper half = PARAMSERVER__V1__HYPER__INIT, *hypers[] = {&half};
    declare_init(&x, &j, update, rule);
    half.name = (char *)"momentum";
    half.value = 0.5;
    x.r.hypers = hypers;
    x.r.n_hypers = strcmp(rule, "momentum") == 0;
    x.r.variables = s->variables;
    x.r.partitions = s->partitions;
    x.r.n_variables = x.r.n_partitions = n;
    x.r.workers = workers;
    return ask(s->core, M(DECLARE), &x.r.base, NULL, NULL, NULL, NULL);
}

static inline struct answer store_declare(struct store *s, Paramserver__V1__Update update, const char *rule,
                                          const struct spec *specs, uint32_t n)
{
    return store_declare_for(s, update, rule, specs, n, 2);
}

static inline void store_open(struct store *s, Paramserver__V1__Update update, const char *rule, uint64_t memory,
                              const struct spec *specs, uint32_t n)
{
    forget_again();
    s->core = core_new(memory);
    assert_int_equal(join(s->core, 0, update).code, PS_OK);
    assert_int_equal(join(s->core, 1, update).code, PS_OK);
    struct answer a = store_declare(s, update, rule, specs, n);
    if (a.code)
        fail_msg("declare: %s", a.text);
}

static inline struct psd_block *store_block(struct store *s, const char *name, uint32_t k)
{
    const struct psd_variable *v = psd_job_variable(s->core->table.newest, name);
    return &s->core->table.newest->partitions[v->first_partition].blocks[k];
}

// Everything that a data call may change: values, slots, versions, what is staged.
static inline uint64_t store_digest(struct store *s)
{
    const struct psd_job *job = s->core->table.newest;
    uint64_t h = PS_HASH_SEED;
    for (uint32_t i = 0; i < job->n_partitions; i++)
        for (uint32_t k = 0; k < job->partitions[i].n_blocks; k++) {
            struct psd_block *b = &job->partitions[i].blocks[k];
            int slots = job->variables[job->partitions[i].variable].blank.slots;
            uint64_t numbers[] = {b->version, b->steps, b->round, b->value_bytes};
            psd_page_unref(psd_block_pin(b));  // which fills one that is blank
            h = ps_hash(h, b->page->data, b->value_bytes);
            for (int slot = 0; slot < slots; slot++)
                h = ps_hash(h, b->page->data + psd_slot_offset(b->value_bytes, slot), b->value_bytes);
            h = ps_hash(h, numbers, sizeof numbers);
        }
    bool staged = job->staged != NULL;
    h = ps_hash(h, &staged, sizeof staged);
    return h;
}

// How many blocks have taken this request.
static inline int store_taken(struct store *s, const Paramserver__V1__Caller *caller)
{
    const struct psd_job *job = s->core->table.newest;
    const struct psd_client *c = job->clients.oldest;
    int n = 0;
    while (c && memcmp(c->id, caller->client.data, sizeof c->id) != 0)
        c = c->newer;
    for (uint32_t i = 0; c && i < job->n_partitions; i++)
        for (uint32_t k = 0; k < job->partitions[i].n_blocks; k++)
            n += psd_block_has_taken(&job->partitions[i].blocks[k],
                                     &(struct psd_request_id){c->number, caller->sequence, 0});
    return n;
}

// ---- updates ------------------------------------------------------------------------------------------------------

struct change {
    Paramserver__V1__UpdateRequest r;
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor t[RANGES], *tensors[RANGES];
    uint8_t *bytes;
    size_t len, cut;  // cut: bytes of each slice of the payload; 0: it is one
    // Of the reply, where it was OK:
    Paramserver__V1__TensorResult results[RANGES];
    uint64_t round;
    struct ps_slices values;
};

static inline void change_init(struct change *c, uint32_t rank, uint64_t sequence)
{
    *c = (struct change){.caller = caller_of(rank, sequence)};
    paramserver__v1__update_request__init(&c->r);
    c->r.caller = &c->caller;
    c->r.tensors = c->tensors;
    c->r.examples = 1;
}

static inline Paramserver__V1__Tensor *change_range(struct change *c, const char *name, Paramserver__V1__DType dtype,
                                                    uint64_t first, uint64_t count)
{
    Paramserver__V1__Tensor *t = c->tensors[c->r.n_tensors] = &c->t[c->r.n_tensors];
    c->r.n_tensors++;
    paramserver__v1__tensor__init(t);
    t->variable = (char *)name;
    t->dtype = dtype;
    t->first = first;
    t->count = count;
    return t;
}

// Room for so many bytes more of the payload.
static inline void *change_room(struct change *c, size_t len)
{
    c->bytes = realloc(c->bytes, c->len + len + 1);
    c->len += len;
    return c->bytes + c->len - len;
}

static inline void change_bytes(struct change *c, const void *data, size_t len)
{
    memcpy(change_room(c, len), data, len);
}

// A range of floats that are all alike.
static inline Paramserver__V1__Tensor *change_floats(struct change *c, const char *name, uint64_t first, uint64_t count,
                                                     float value)
{
    uint8_t *to = change_room(c, count * sizeof value);
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * sizeof value, &value, sizeof value);
    return change_range(c, name, D(FLOAT32), first, count);
}

static inline void change_fini(struct change *c)
{
    free(c->bytes);
    ps_slices_clear(&c->values);
}

static inline struct ps_slices change_payload(const struct change *c)
{
    struct ps_slices payload = PS_SLICES_EMPTY;
    for (size_t at = 0, n; at < c->len; at += n) {
        n = c->cut && c->cut < c->len - at ? c->cut : c->len - at;
        ps_slices_add(&payload, ps_slice_copy(c->bytes + at, n));
    }
    return payload;
}

static inline void change_take_reply(struct change *c, int method, struct ps_slices *body)
{
    ProtobufCMessage *m = NULL;
    bool pull = method == M(PUSH_PULL);
    const ProtobufCMessageDescriptor *type =
        pull ? &paramserver__v1__push_pull_reply__descriptor : &paramserver__v1__update_reply__descriptor;
    assert_int_equal(ps_msg_unpack(type, body, &m, &c->values, NULL), PS_OK);
    const Paramserver__V1__PushPullReply *p = (const Paramserver__V1__PushPullReply *)m;
    const Paramserver__V1__UpdateReply *u = (const Paramserver__V1__UpdateReply *)m;
    assert_int_equal(pull ? p->n_results : u->n_results, c->r.n_tensors);
    for (size_t i = 0; i < c->r.n_tensors; i++)
        c->results[i] = pull ? *p->results[i] : *u->results[i];
    c->round = pull ? p->round : 0;
    ps_msg_free(m);
}

// May be sent again and again.
static inline struct answer change_send(struct store *s, struct change *c, int method)
{
    struct answer a;
    struct ps_slices payload = change_payload(c);
    ask_later(s->core, &a, method, &c->r.base, &payload, UINT64_MAX);
    if (!a.answered)
        fail_msg("method %d is not answered", method);
    if (a.code == PS_OK)
        change_take_reply(c, method, &a.body);
    ps_slices_clear(&a.body);
    return a;
}

// It is taken, and every tensor has this outcome.
static inline void change_ok(struct store *s, struct change *c, int method, Paramserver__V1__Outcome outcome)
{
    struct answer a = change_send(s, c, method);
    if (a.code)
        fail_msg("%s: %s", ps_code_name(a.code), a.text);
    for (size_t i = 0; i < c->r.n_tensors; i++)
        assert_int_equal(c->results[i].outcome, outcome);
}

// It is refused, with this in its sentence, and has changed nothing.
static inline void change_refused(struct store *s, struct change *c, int method, enum ps_code code, const char *text)
{
    uint64_t before = store_digest(s);
    int taken = store_taken(s, &c->caller);
    struct answer a = change_send(s, c, method);
    if (a.code != code || !strstr(a.text, text))
        fail_msg("%s: %s; expected %s: %s", ps_code_name(a.code), a.text, ps_code_name(code), text);
    if (store_digest(s) != before || store_taken(s, &c->caller) != taken)
        fail_msg("it has changed something: %s", a.text);
}

// ---- reads --------------------------------------------------------------------------------------------------------

struct reading_of {
    Paramserver__V1__ReadRequest r;
    Paramserver__V1__Caller caller;
    Paramserver__V1__Tensor t[RANGES], *tensors[RANGES];
    Paramserver__V1__ReadReply *reply;
    struct ps_slices values;
};

static inline void read_init(struct reading_of *x)
{
    *x = (struct reading_of){.caller = caller_of(0, 0)};
    paramserver__v1__read_request__init(&x->r);
    x->r.caller = &x->caller;
    x->r.tensors = x->tensors;
}

static inline Paramserver__V1__Tensor *read_range(struct reading_of *x, const char *name, uint64_t first,
                                                  uint64_t count)
{
    Paramserver__V1__Tensor *t = x->tensors[x->r.n_tensors] = &x->t[x->r.n_tensors];
    x->r.n_tensors++;
    paramserver__v1__tensor__init(t);
    t->variable = (char *)name;
    t->first = first;
    t->count = count;
    return t;
}

static inline void read_fini(struct reading_of *x)
{
    ps_msg_free(x->reply ? &x->reply->base : NULL);
    ps_slices_clear(&x->values);
    x->reply = NULL;
}

static inline struct answer read_send(struct store *s, struct reading_of *x, int method)
{
    ProtobufCMessage *m = NULL;
    read_fini(x);
    struct answer a = ask(s->core, method, &x->r.base, NULL, &paramserver__v1__read_reply__descriptor, &m, &x->values);
    x->reply = (Paramserver__V1__ReadReply *)m;
    return a;
}

static inline void read_ok(struct store *s, struct reading_of *x, int method)
{
    struct answer a = read_send(s, x, method);
    if (a.code)
        fail_msg("%s: %s", ps_code_name(a.code), a.text);
}

static inline void read_refused(struct store *s, struct reading_of *x, int method, enum ps_code code, const char *text)
{
    uint64_t before = store_digest(s);
    struct answer a = read_send(s, x, method);
    if (a.code != code || !strstr(a.text, text))
        fail_msg("%s: %s; expected %s: %s", ps_code_name(a.code), a.text, ps_code_name(code), text);
    assert_true(store_digest(s) == before);
}

// Elements [first, first + count) of a variable, `bytes` in all, by a Get of one message.
static inline void get_values(struct store *s, const char *name, uint64_t first, uint64_t count, void *to, size_t bytes)
{
    struct reading_of x;
    read_init(&x);
    read_range(&x, name, first, count);
    read_ok(s, &x, M(GET));
    assert_int_equal(x.values.len, bytes);
    ps_slices_copy_out(&x.values, 0, bytes, to);
    read_fini(&x);
}

static inline float get_float(struct store *s, const char *name, uint64_t i)
{
    float x;
    get_values(s, name, i, 1, &x, sizeof x);
    return x;
}

#endif
