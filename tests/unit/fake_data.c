// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/math/encoding.h"
#include "common/wire/dtype.h"
#include "tests/unit/fake_inside.h"

// ---- variables ----------------------------------------------------------------------------------------------------

static struct variable *find(struct fake *f, uint32_t task, const char *name)
{
    struct task *t = &f->in->tasks[task];
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->variables[i].name, name) == 0)
            return &t->variables[i];
    return NULL;
}

static const Paramserver__V1__Partition *partition_of(struct fake *f, const Paramserver__V1__Tensor *t)
{
    return f->in->declared->partitions[t->partition - 1];
}

// What a Tensor of a request names: libclient names partitions.
static struct variable *named(struct fake *f, uint32_t task, const Paramserver__V1__Tensor *t)
{
    return &f->in->tasks[task].variables[partition_of(f, t)->variable];
}

// A whole partition becomes the range that it has.
static void spell_out(struct fake *f, Paramserver__V1__Tensor **tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Paramserver__V1__Tensor *t = tensors[i];
        if (t->first || t->count)
            continue;
        t->first = partition_of(f, t)->first;
        t->count = partition_of(f, t)->count;
    }
}

static const struct part *part_of(const struct variable *v, uint64_t element)
{
    size_t i = 0;
    while (element >= v->parts[i].first + v->parts[i].count)
        i++;
    return &v->parts[i];
}

// The block of an element, and where it ends; `end` at the latest.
static uint32_t block_of(const struct variable *v, uint64_t element, uint64_t end, uint64_t *block_end)
{
    const struct part *p = part_of(v, element);
    uint64_t i = (element - p->first) / v->block_elems;
    *block_end = (i + 1) * v->block_elems < p->count ? p->first + (i + 1) * v->block_elems : p->first + p->count;
    if (end < *block_end)
        *block_end = end;
    return p->block + (uint32_t)i;
}

uint32_t fake_owner(struct fake *f, const char *variable, uint64_t element)
{
    return part_of(find(f, 0, variable), element)->task;
}

const void *fake_at(struct fake *f, const char *variable, uint64_t element)
{
    const struct variable *v = find(f, fake_owner(f, variable, element), variable);
    return v->strings ? (const void *)&v->strings[element] : v->values + element * v->elem_size;
}

float fake_value(struct fake *f, const char *variable, uint64_t element)
{
    return *(const float *)fake_at(f, variable, element);
}

static void make_variable(struct variable *v, const Paramserver__V1__Variable *from)
{
    v->name = ps_strdup(from->name);
    v->dtype = (int)from->dtype;
    v->count = 1;
    for (size_t k = 0; k < from->n_shape; k++)
        v->count *= from->shape[k];
    v->elem_size = (uint32_t)ps_dtype_size(v->dtype);
    v->block_elems = v->elem_size ? PS_BLOCK_BYTES / v->elem_size : PS_STRING_BLOCK;
    if (v->elem_size)
        v->values = ps_alloc(v->count * v->elem_size);
    else
        v->strings = ps_alloc(v->count * sizeof *v->strings);
}

void fake_make_variables(struct fake *f, uint32_t task, const Paramserver__V1__DeclareRequest *r)
{
    struct task *t = &f->in->tasks[task];
    if (t->n)
        return;
    for (size_t i = 0; i < r->n_variables; i++)
        make_variable(&t->variables[t->n++], r->variables[i]);
    for (size_t i = 0; i < r->n_partitions; i++) {
        const Paramserver__V1__Partition *p = r->partitions[i];
        struct variable *v = &t->variables[p->variable];
        const struct part *last = v->n_parts ? &v->parts[v->n_parts - 1] : NULL;
        uint32_t block = last ? last->block + (uint32_t)((last->count + v->block_elems - 1) / v->block_elems) : 0;
        v->parts[v->n_parts++] = (struct part){p->first, p->count, p->task, block};
    }
}

void fake_free_variables(struct fake *f)
{
    for (uint32_t t = 0; t < FAKE_TASKS; t++) {
        struct task *task = &f->in->tasks[t];
        for (size_t i = 0; i < task->n; i++) {
            struct variable *v = &task->variables[i];
            for (uint64_t k = 0; v->strings && k < v->count; k++)
                free(v->strings[k].data);
            free(v->strings);
            free(v->values);
            free(v->name);
        }
        for (size_t i = 0; i < task->n_staged; i++)
            ps_slices_clear(&task->staged[i].request);
    }
}

// ---- updates ------------------------------------------------------------------------------------------------------

// A tensor's values: numbers one after the other, or lengths and then bytes.
struct values {
    const uint8_t *at;    // of the next element, or of its length
    const uint8_t *text;  // of the next string
};

static void set_string(psc_string *s, struct values *from)
{
    uint32_t len;
    memcpy(&len, from->at, sizeof len);
    free(s->data);
    s->data = ps_alloc(len);
    s->len = len;
    memcpy(s->data, from->text, len);
    from->text += len;
}

// Elements [first, end) of one block.
static void change(struct variable *v, int method, uint64_t first, uint64_t end, struct values *from)
{
    for (uint64_t i = first; i < end; i++) {
        float sign = method == PARAMSERVER__V1__METHOD__ASSIGN_SUB ? -1 : 1, given;
        if (v->strings) {
            set_string(&v->strings[i], from);
        } else if (method == PARAMSERVER__V1__METHOD__PUT) {
            memcpy(v->values + i * v->elem_size, from->at, v->elem_size);
        } else {
            memcpy(&given, from->at, sizeof given);
            ((float *)(void *)v->values)[i] += sign * given;
        }
        from->at += v->strings ? PS_STRING_LENGTH : v->elem_size;
    }
}

static void skip(const struct variable *v, uint64_t n, struct values *from)
{
    for (uint64_t i = 0; v->strings && i < n; i++) {
        uint32_t len;
        memcpy(&len, from->at + i * sizeof len, sizeof len);
        from->text += len;
    }
    from->at += n * (v->strings ? PS_STRING_LENGTH : v->elem_size);
}

// What becomes of a block that has not seen the sequence. A partition's gradient is whole with its last element.
static Paramserver__V1__Outcome fresh(const struct call *c, const Paramserver__V1__UpdateRequest *r,
                                      const Paramserver__V1__Tensor *t, bool staging)
{
    const Paramserver__V1__Partition *p = partition_of(c->f, t);
    if (staging || (r->round && c->f->counts_whole && t->first + t->count < p->first + p->count))
        return PARAMSERVER__V1__OUTCOME__STAGED;
    if (r->round == 0)
        return PARAMSERVER__V1__OUTCOME__APPLIED;
    uint64_t closed = c->f->round - (c->f->runs_behind && p->first > 0);
    return r->round <= closed && !c->counted ? PARAMSERVER__V1__OUTCOME__STALE : PARAMSERVER__V1__OUTCOME__QUEUED;
}

// A sequence comes to a block in one request only, however often that is sent.
static void watch_block(struct call *c, struct variable *v, uint32_t b, const Paramserver__V1__UpdateRequest *r)
{
    uint64_t mark = (r->tensors[0]->first * 31 + r->tensors[0]->count + 1) * 131 + r->tensors[0]->partition;
    c->f->split_blocks += v->by[b] == r->caller->sequence && v->touched[b] != mark;
    v->by[b] = r->caller->sequence;
    v->touched[b] = mark;
}

// `ours`: blocks that this request was the first to come to, before this tensor.
static void update_tensor(struct call *c, const Paramserver__V1__UpdateRequest *r, const Paramserver__V1__Tensor *t,
                          struct values from, bool staging, bool (*ours)[FAKE_BLOCKS],
                          Paramserver__V1__TensorResult *out)
{
    struct task *task = &c->f->in->tasks[c->task];
    struct variable *v = named(c->f, c->task, t);
    uint64_t end = t->first + t->count, next;
    out->version = UINT64_MAX;
    for (uint64_t i = t->first; i < end; i = next) {
        uint32_t b = block_of(v, i, end, &next);
        bool *mark = &v->seen[b][r->caller->sequence], *our = &ours[v - task->variables][b], mine = *our;
        bool seen = !mine && (r->caller->sequence < task->oldest || *mark) && !c->counted;
        *our = !seen;
        out->blocks++;
        out->duplicates += seen;
        watch_block(c, v, b, r);
        Paramserver__V1__Outcome outcome = seen ? PARAMSERVER__V1__OUTCOME__DUPLICATE : fresh(c, r, t, staging);
        if (outcome == PARAMSERVER__V1__OUTCOME__APPLIED)
            change(v, c->method, i, next, &from);
        else
            skip(v, next - i, &from);
        if (!staging) {
            v->version[b] += outcome == PARAMSERVER__V1__OUTCOME__APPLIED && !mine;
            *mark = true;
        }
        if (v->version[b] < out->version)
            out->version = v->version[b];
        if (!seen)
            out->outcome = outcome;
    }
    if (out->duplicates == out->blocks)
        out->outcome = PARAMSERVER__V1__OUTCOME__DUPLICATE;
    out->round = out->outcome == PARAMSERVER__V1__OUTCOME__STALE ? c->f->round + 1 : r->round;
    out->staleness = out->version - 1 - t->version;
}

static size_t bytes_of(struct call *c, const Paramserver__V1__Tensor *t)
{
    const struct variable *v = named(c->f, c->task, t);
    if (ps_is_encoding((int)t->dtype))
        return ps_encoding_scales((int)t->dtype, t->first, t->count) + ps_encoding_numbers((int)t->dtype, t->count);
    return v->strings ? t->bytes : t->count * v->elem_size;
}

// The floats of a gradient that came encoded. NULL: it came as it is.
static float *decoded(const Paramserver__V1__Tensor *t, const uint8_t *bytes)
{
    if (!ps_is_encoding((int)t->dtype))
        return NULL;
    float *x = ps_alloc(t->count * sizeof *x);
    ps_encoding_read((int)t->dtype, t->first, t->count, bytes,
                     bytes + ps_encoding_scales((int)t->dtype, t->first, t->count), x);
    return x;
}

struct results {
    Paramserver__V1__TensorResult of[FAKE_RANGES], *pointers[FAKE_RANGES];
    size_t n;
    bool duplicate;  // all of them
};

static void update_all(struct call *c, const Paramserver__V1__UpdateRequest *r, const struct ps_slices *payload,
                       bool staging, struct results *out)
{
    static bool ours[FAKE_VARIABLES][FAKE_BLOCKS];
    uint8_t *bytes = ps_alloc(payload->len);
    size_t at = 0;
    memset(ours, 0, sizeof ours);
    ps_slices_copy_out(payload, 0, payload->len, bytes);
    out->n = r->n_tensors;
    out->duplicate = true;
    for (size_t i = 0; i < r->n_tensors; i++) {
        Paramserver__V1__TensorResult *result = out->pointers[i] = &out->of[i];
        const Paramserver__V1__Tensor *t = r->tensors[i];
        paramserver__v1__tensor_result__init(result);
        float *plain = decoded(t, bytes + at);
        struct values from = {plain ? (const uint8_t *)plain : bytes + at, bytes + at + t->count * PS_STRING_LENGTH};
        update_tensor(c, r, t, from, staging, ours, result);
        at += bytes_of(c, t);
        out->duplicate = out->duplicate && result->outcome == PARAMSERVER__V1__OUTCOME__DUPLICATE;
        for (uint64_t k = 0; c->method == PARAMSERVER__V1__METHOD__PUSH && k < t->count; k++)
            result->nonfinite += !isfinite(((const float *)(const void *)from.at)[k]);
        free(plain);
    }
    free(bytes);
}

// ---- atomic updates -----------------------------------------------------------------------------------------------

// True: this was the last one that was missing, and the others have been applied.
static bool stage(struct call *c, const Paramserver__V1__UpdateRequest *r, const struct ps_slices *payload)
{
    struct task *t = &c->f->in->tasks[c->task];
    uint64_t bytes = payload->len;
    bool known = false;
    if (c->f->forgets_staged)
        return false;
    for (size_t i = 0; i < t->n_staged; i++) {
        struct ps_slices body = PS_SLICES_EMPTY;
        ProtobufCMessage *m;
        if (t->staged[i].sequence != r->caller->sequence)
            continue;
        ps_msg_unpack(&paramserver__v1__update_request__descriptor, &t->staged[i].request, &m, &body, NULL);
        Paramserver__V1__Tensor *first = ((Paramserver__V1__UpdateRequest *)m)->tensors[0];
        spell_out(c->f, &first, 1);
        known |= first->first == r->tensors[0]->first && first->partition == r->tensors[0]->partition;
        bytes += body.len;
        ps_slices_clear(&body);
        ps_msg_free(m);
    }
    if (known)
        return false;
    if (bytes < r->atomic_bytes) {
        struct staged *s = &t->staged[t->n_staged++];
        s->sequence = r->caller->sequence;
        ps_slices_add_range(&s->request, &c->request, 0, c->request.len);
        return false;
    }
    for (size_t i = 0; i < t->n_staged; i++) {
        struct ps_slices body = PS_SLICES_EMPTY;
        ProtobufCMessage *m;
        struct results ignored;
        if (t->staged[i].sequence != r->caller->sequence)
            continue;
        ps_msg_unpack(&paramserver__v1__update_request__descriptor, &t->staged[i].request, &m, &body, NULL);
        spell_out(c->f, ((Paramserver__V1__UpdateRequest *)m)->tensors,
                  ((Paramserver__V1__UpdateRequest *)m)->n_tensors);
        update_all(c, (Paramserver__V1__UpdateRequest *)m, &body, false, &ignored);
        ps_slices_clear(&body);
        ps_msg_free(m);
    }
    return true;
}

// A sequence that has taken effect is not staged again.
static bool is_done(struct call *c, const Paramserver__V1__UpdateRequest *r)
{
    uint64_t end;
    const struct variable *v = named(c->f, c->task, r->tensors[0]);
    return v->seen[block_of(v, r->tensors[0]->first, UINT64_MAX, &end)][r->caller->sequence];
}

// ---- reads --------------------------------------------------------------------------------------------------------

struct reading {
    Paramserver__V1__Tensor tensors[FAKE_RANGES], *pointers[FAKE_RANGES];
    size_t n;
    struct ps_slices payload;
    size_t limit;
    uint64_t at, from, next_offset;  // bytes
    bool joins;
};

static size_t range_bytes(const struct variable *v, uint64_t first, uint64_t end)
{
    size_t bytes = (end - first) * (v->strings ? PS_STRING_LENGTH : v->elem_size);
    for (uint64_t i = first; v->strings && i < end; i++)
        bytes += v->strings[i].len;
    return bytes;
}

// Of slot k: the values of a variable of floats, and 1000 k more.
static void add_slot(struct reading *r, const struct variable *v, uint32_t slot, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        float value;
        memcpy(&value, v->values + i * sizeof value, sizeof value);
        value += 1000 * (float)slot;
        ps_slices_add(&r->payload, ps_slice_copy(&value, sizeof value));
    }
}

static void add_values(struct reading *r, const struct variable *v, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; v->strings && i < end; i++) {
        uint32_t len = (uint32_t)v->strings[i].len;
        ps_slices_add(&r->payload, ps_slice_copy(&len, sizeof len));
    }
    for (uint64_t i = first; v->strings && i < end; i++)
        ps_slices_add(&r->payload, ps_slice_copy(v->strings[i].data, v->strings[i].len));
    if (!v->strings)
        ps_slices_add(&r->payload, ps_slice_copy(v->values + first * v->elem_size, (end - first) * v->elem_size));
}

static void add_tensor(struct reading *r, const struct variable *v, const Paramserver__V1__Tensor *asked, uint32_t b,
                       uint64_t first, uint64_t end, bool join)
{
    Paramserver__V1__Tensor *t;
    if (join) {
        t = r->pointers[r->n - 1];
    } else {
        t = r->pointers[r->n] = &r->tensors[r->n];
        r->n++;
        paramserver__v1__tensor__init(t);
        t->partition = asked->partition;
        t->slot = asked->slot;
        t->first = first;
        t->version = UINT64_MAX;
    }
    t->count += end - first;
    t->changes += v->version[b];
    t->version = v->version[b] < t->version ? v->version[b] : t->version;
    t->bytes += v->strings ? range_bytes(v, first, end) : 0;
}

static void read_range(struct reading *r, const struct variable *v, const Paramserver__V1__Tensor *t)
{
    uint64_t end = t->first + t->count, next;
    size_t before = r->n;
    for (uint64_t k = t->first; k < end; k = next) {
        uint32_t b = block_of(v, k, end, &next);
        size_t bytes = range_bytes(v, k, next);
        if (r->at >= r->from && (r->payload.len + bytes <= r->limit || r->payload.len == 0) && !r->next_offset) {
            // Joined strings would need their lengths side by side: this fake sends them block by block.
            add_tensor(r, v, t, b, k, next, r->joins && !v->strings && r->n > before);
            if (t->slot)
                add_slot(r, v, t->slot, k, next);
            else
                add_values(r, v, k, next);
        } else if (r->at >= r->from && !r->next_offset) {
            r->next_offset = r->at;
        }
        r->at += bytes;
    }
}

static uint64_t changes_of(const struct variable *v, const Paramserver__V1__Tensor *t)
{
    uint64_t end = t->first + t->count, next, changes = 0;
    for (uint64_t k = t->first; k < end; k = next)
        changes += v->version[block_of(v, k, end, &next)];
    return changes;
}

static void read_all(struct call *c, Paramserver__V1__Tensor **tensors, size_t n, bool if_newer, struct reading *out)
{
    out->joins = c->f->joins;
    for (size_t i = 0; i < n; i++) {
        const struct variable *v = named(c->f, c->task, tensors[i]);
        if (!if_newer || changes_of(v, tensors[i]) != tensors[i]->changes)
            read_range(out, v, tensors[i]);
    }
}

void fake_read(struct call *c, const Paramserver__V1__ReadRequest *r)
{
    Paramserver__V1__ReadReply out = PARAMSERVER__V1__READ_REPLY__INIT;
    struct reading reading = {.limit = c->f->reply_bytes ? c->f->reply_bytes : SIZE_MAX, .from = r->offset};
    if (r->release) {
        c->f->released += r->snapshot == 99;
        out.generation = c->f->generation[c->task];
        fake_answer_with(c, &out.base, &reading.payload);
        return;
    }
    spell_out(c->f, r->tensors, r->n_tensors);
    read_all(c, r->tensors, r->n_tensors, r->if_newer, &reading);
    out.tensors = reading.pointers;
    out.n_tensors = reading.n;
    out.next_offset = reading.next_offset;
    out.generation = c->f->generation[c->task];
    out.snapshot = r->snapshot || out.next_offset ? 99 : 0;
    out.round = c->f->round;
    out.last_round = c->f->round + c->task;
    fake_note(c, r->caller, r->tensors, r->n_tensors,
              (struct fake_arrival){.round = r->round, .snapshot = r->snapshot});
    fake_answer_with(c, &out.base, &reading.payload);
}

// ---- the whole of an update ---------------------------------------------------------------------------------------

static void reply_update(struct call *c, struct results *results)
{
    Paramserver__V1__UpdateReply out = PARAMSERVER__V1__UPDATE_REPLY__INIT;
    out.generation = c->f->generation[c->task];
    out.n_results = results->n;
    out.results = results->pointers;
    fake_answer_with(c, &out.base, NULL);
}

static void reply_push_pull(struct call *c, const Paramserver__V1__UpdateRequest *r, struct results *results)
{
    Paramserver__V1__PushPullReply out = PARAMSERVER__V1__PUSH_PULL_REPLY__INIT;
    struct reading reading = {.limit = SIZE_MAX};
    read_all(c, r->tensors, r->n_tensors, false, &reading);
    out.generation = c->f->generation[c->task];
    out.n_results = results->n;
    out.results = results->pointers;
    out.tensors = reading.pointers;
    out.n_tensors = reading.n;
    out.round = c->f->round - (c->f->runs_behind && r->tensors[0]->first > 0);
    fake_answer_with(c, &out.base, &reading.payload);
}

static bool has_nonfinite(const struct ps_slices *payload)
{
    float f;
    for (size_t i = 0; i + sizeof f <= payload->len; i += sizeof f) {
        ps_slices_copy_out(payload, i, sizeof f, &f);
        if (!isfinite(f))
            return true;
    }
    return false;
}

void fake_update(struct call *c, const Paramserver__V1__UpdateRequest *r, const struct ps_slices *payload)
{
    struct task *t = &c->f->in->tasks[c->task];
    struct results results = {0};
    spell_out(c->f, r->tensors, r->n_tensors);
    t->oldest = r->caller->oldest > t->oldest ? r->caller->oldest : t->oldest;
    if (r->refuse_nonfinite && has_nonfinite(payload)) {
        fake_answer(c, PS_INVALID_ARGUMENT, "the gradient is not finite");
        return;
    }
    bool staging = r->atomic_bytes && !is_done(c, r) && !stage(c, r, payload);
    update_all(c, r, payload, staging, &results);
    fake_note(
        c, r->caller, r->tensors, r->n_tensors,
        (struct fake_arrival){
            .round = r->round, .bytes = payload->len, .atomic_bytes = r->atomic_bytes, .duplicate = results.duplicate});
    if (c->method != PARAMSERVER__V1__METHOD__PUSH_PULL) {
        reply_update(c, &results);
    } else if (r->round > c->f->round) {
        c->counted = true;
        fake_park(c);
    } else {
        reply_push_pull(c, r, &results);
    }
}
