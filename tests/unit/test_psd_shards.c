// SPDX-License-Identifier: Apache-2.0
//
// Shards of checkpoints at the psd core: a Get writes what the task has at one instant, while updates go on; LoadShard
// puts it back, once; what is wrong changes nothing; and what is not needed is removed.
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/file/shards.h"
#include "tests/unit/psd_store.h"

static char folder[] = "/tmp/test_psd_shards.XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    test_checkpoints = folder;
    return mkdtemp(folder) ? 0 : -1;
}

static size_t files(bool remove)
{
    DIR *dir = opendir(in_folder("job"));
    size_t n = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        n++;
        if (remove)
            unlinkat(dirfd(dir), d->d_name, 0);
    }
    if (dir)
        closedir(dir);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    files(true);
    rmdir(in_folder("job"));
    return rmdir(folder);
}

// ---- calls that wait for the thread -------------------------------------------------------------------------------

struct waited {
    struct answer a;  // first
    sem_t answered;
};

static void on_waited(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct waited *w = (struct waited *)call;
    on_reply(call, code, text, body);
    sem_post(&w->answered);
}

static void ask_ahead(struct psd_core *core, int method, const ProtobufCMessage *m, struct waited *w)
{
    *w = (struct waited){.a.call = {.method = method, .deadline = UINT64_MAX, .reply = on_waited}};
    sem_init(&w->answered, 0, 0);
    ps_msg_pack(m, NULL, &w->a.call.request);
    psd_core_call(core, &w->a.call);
}

static void await_answer(struct waited *w)
{
    sem_wait(&w->answered);
    sem_destroy(&w->answered);
}

static struct answer ask_and_wait(struct psd_core *core, int method, const ProtobufCMessage *m,
                                  const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply)
{
    struct waited w;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    ask_ahead(core, method, m, &w);
    await_answer(&w);
    if (w.a.code == PS_OK && reply)
        assert_int_equal(ps_msg_unpack(type, &w.a.body, reply, &nothing, NULL), PS_OK);
    ps_slices_clear(&nothing);
    ps_slices_clear(&w.a.body);
    return w.a;
}

struct writing {
    struct reading_of x;
    Paramserver__V1__Shard shard;
    uint64_t version;
};

static void write_init(struct writing *w, const char *name, uint64_t checkpoint)
{
    *w = (struct writing){0};
    read_init(&w->x);
    paramserver__v1__shard__init(&w->shard);
    w->shard.name = (char *)name;
    w->shard.checkpoint = checkpoint;
    w->x.r.shard = &w->shard;
}

static struct answer write_send(struct store *s, struct writing *w)
{
    ProtobufCMessage *m = NULL;
    struct answer a = ask_and_wait(s->core, M(GET), &w->x.r.base, &paramserver__v1__read_reply__descriptor, &m);
    if (m) {
        const Paramserver__V1__ReadReply *r = (const Paramserver__V1__ReadReply *)m;
        assert_int_equal(r->n_tensors, 0);
        assert_int_equal(r->next_offset, 0);
        w->version = r->version;
        ps_msg_free(m);
    }
    return a;
}

static uint64_t loaded;             // elements that the last one had
static uint64_t load_sequence = 1;  // of the next

static struct answer load(struct store *s, const char *name, uint64_t checkpoint, uint64_t steps)
{
    ProtobufCMessage *m = NULL;
    Paramserver__V1__LoadShardRequest r = PARAMSERVER__V1__LOAD_SHARD_REQUEST__INIT;
    Paramserver__V1__Shard shard = PARAMSERVER__V1__SHARD__INIT;
    Paramserver__V1__Caller caller = caller_of(0, load_sequence);
    r.caller = &caller;
    r.shard = &shard;
    r.steps = steps;
    shard.name = (char *)name;
    shard.checkpoint = checkpoint;
    const struct answer a =
        ask_and_wait(s->core, M(LOAD_SHARD), &r.base, &paramserver__v1__load_shard_reply__descriptor, &m);
    if (m)
        loaded = ((Paramserver__V1__LoadShardReply *)m)->elements;
    ps_msg_free(m);
    return a;
}

static void expect(struct answer a, enum ps_code code, const char *text)
{
    if (a.code != code || !strstr(a.text, text))
        fail_msg("%s: %s; expected %s: %s", ps_code_name(a.code), a.text, ps_code_name(code), text);
}

// ---- the job ------------------------------------------------------------------------------------------------------

enum { N = 2 * BLOCK + 7 };  // three blocks

static const struct spec specs[] = {{"w", D(FLOAT32), N, true}, {"frozen", D(FLOAT32), 5, false}};

static void push(struct store *s, uint64_t sequence, float by)
{
    struct change c;
    change_init(&c, 0, sequence);
    change_floats(&c, "w", 0, N, by);
    const struct answer a = change_send(s, &c, M(PUSH));
    if (a.code)
        fail_msg("push: %s", a.text);
    change_fini(&c);
}

static void open_job(struct store *s)
{
    store_open(s, PARAMSERVER__V1__UPDATE__ASYNC, "momentum", 1 << 30, specs, 2);
}

static void write_all(struct store *s, struct writing *w)
{
    read_range(&w->x, "w", 0, N);
    read_range(&w->x, "w", 0, N)->slot = 1;
    expect(write_send(s, w), PS_OK, "");
}

// A job after its first step, and the shard of it.
static void open_and_write(struct store *s, struct writing *w)
{
    open_job(s);
    push(s, 1, 1);
    write_init(w, "job-0000000001", 7);
    write_all(s, w);
}

static bool all_are(struct store *s, float value, float slot)
{
    bool are = true;
    for (uint32_t k = 0; k < 3; k++) {
        struct psd_block *b = store_block(s, "w", k);
        const float *v = (const float *)b->page->data, *m = v + psd_slot_offset(b->value_bytes, 0) / sizeof *m;
        for (uint32_t i = 0; i < b->count; i++)
            are &= v[i] == value && m[i] == slot;
    }
    return are;
}

// ---- tests --------------------------------------------------------------------------------------------------------

static void what_is_written_comes_back(void **state)
{
    struct store s;
    struct writing w;
    struct ps_safetensors *file;
    struct ps_error e;
    (void)state;
    open_job(&s);
    push(&s, 1, 1);
    push(&s, 2, 2);
    const float value = get_float(&s, "w", N - 1);
    const float slot = *(const float *)(store_block(&s, "w", 0)->page->data +
                                        psd_slot_offset(store_block(&s, "w", 0)->value_bytes, 0));
    assert_true(all_are(&s, value, slot) && slot != 0);
    write_init(&w, "job-0000000002", 7);
    write_all(&s, &w);
    assert_int_equal(w.version, store_block(&s, "w", 0)->version);

    assert_int_equal(
        ps_safetensors_read_shard(in_folder("job/job-0000000002-0000000000000007-ps-0-of-1.safetensors"), &file, &e),
        PS_OK);
    assert_int_equal(file->n, 2);
    assert_string_equal(ps_safetensors_metadata(file, PS_SHARD_KEY), "0000000000000007");
    const struct ps_safetensor *t = ps_safetensors_find(file, "w"), *m = ps_safetensors_find(file, "momentum/w");
    assert_true(t && m && t->count == N && m->count == N && t->rank == 1);
    for (size_t i = 0; i < N; i++)
        assert_true(t->data[i] == value && m->data[i] == slot);
    ps_safetensors_free(file);

    push(&s, 3, 4);
    assert_false(all_are(&s, value, slot));
    const uint64_t version = store_block(&s, "w", 0)->version;
    expect(load(&s, "job-0000000002", 7, 41), PS_OK, "");
    assert_true(all_are(&s, value, slot));
    assert_int_equal(store_block(&s, "w", 2)->steps, 41);
    assert_int_equal(store_block(&s, "w", 0)->version, version + 2);  // values, and a slot
    const uint64_t before = store_digest(&s);
    loaded = 0;
    expect(load(&s, "job-0000000002", 7, 41), PS_OK, "");  // as after an answer that was lost
    assert_true(store_digest(&s) == before);
    assert_int_equal(loaded, 2 * N);
    psd_core_destroy(s.core);
    files(true);
}

// The pages of the instant in which the call came.
static void updates_go_on_meanwhile(void **state)
{
    struct store s;
    struct writing w;
    struct waited call = {.a.call = {.method = M(GET), .deadline = UINT64_MAX, .reply = on_waited}};
    struct ps_safetensors *file;
    struct ps_error e;
    (void)state;
    open_job(&s);
    push(&s, 1, 1);
    const float value = get_float(&s, "w", 0);
    write_init(&w, "job-0000000001", 7);
    read_range(&w.x, "w", 0, N);
    sem_init(&call.answered, 0, 0);
    ps_msg_pack(&w.x.r.base, NULL, &call.a.call.request);
    psd_core_call(s.core, &call.a.call);
    push(&s, 2, 1);
    push(&s, 3, 1);
    assert_true(get_float(&s, "w", 0) != value);
    sem_wait(&call.answered);
    sem_destroy(&call.answered);
    expect(call.a, PS_OK, "");
    ps_slices_clear(&call.a.body);
    assert_int_equal(
        ps_safetensors_read_shard(in_folder("job/job-0000000001-0000000000000007-ps-0-of-1.safetensors"), &file, &e),
        PS_OK);
    for (size_t i = 0; i < N; i++)
        assert_true(file->tensor[0].data[i] == value);
    ps_safetensors_free(file);
    assert_int_equal(s.core->snapshots.pinned, 0);
    psd_core_destroy(s.core);
    files(true);
}

static void a_part_says_which(void **state)
{
    struct store s;
    struct writing w;
    struct ps_safetensors *file;
    struct ps_error e;
    (void)state;
    open_job(&s);
    write_init(&w, "job-0000000001", 7);
    read_range(&w.x, "w", 3, BLOCK);
    expect(write_send(&s, &w), PS_OK, "");
    assert_int_equal(
        ps_safetensors_read_shard(in_folder("job/job-0000000001-0000000000000007-ps-0-of-1.safetensors"), &file, &e),
        PS_OK);
    char *name = ps_shards_slice("w", 3, 3 + BLOCK);
    assert_int_equal(file->n, 1);
    assert_string_equal(file->tensor[0].name, name);
    assert_int_equal(file->tensor[0].count, BLOCK);
    free(name);
    ps_safetensors_free(file);
    // Of what is no partition of this job nothing is put.
    const uint64_t before = store_digest(&s);
    expect(load(&s, "job-0000000001", 7, 0), PS_FAILED_PRECONDITION, "its variables lie otherwise");
    assert_true(store_digest(&s) == before);
    psd_core_destroy(s.core);
    files(true);
}

static void requests_are_checked(void **state)
{
    static const struct spec strings[] = {{"s", D(STRING), 3, false}};
    struct store s;
    struct writing w;
    (void)state;
    open_job(&s);
    static const char *const names[] = {"", "../x", "a/b", ".hidden"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_init(&w, names[i], 7);
        read_range(&w.x, "w", 0, N);
        expect(write_send(&s, &w), PS_INVALID_ARGUMENT, "expected a name of letters");
        expect(load(&s, names[i], 7, 0), PS_INVALID_ARGUMENT, "expected a name of letters");
    }
    write_init(&w, "job-1", 7);
    read_range(&w.x, "w", 0, N);
    w.x.r.snapshot = 1;
    expect(write_send(&s, &w), PS_INVALID_ARGUMENT, "a snapshot of its own");
    loaded = 1;
    expect(load(&s, "job-1", 7, 0), PS_OK, "");  // as of a task that keeps nothing
    assert_int_equal(loaded, 0);
    psd_core_destroy(s.core);

    store_open(&s, PARAMSERVER__V1__UPDATE__ASYNC, "sgd", 1 << 30, strings, 1);
    write_init(&w, "job-1", 7);
    read_range(&w.x, "s", 0, 3);
    expect(write_send(&s, &w), PS_INVALID_ARGUMENT, "variable 's' is string: a shard has float32 alone");
    psd_core_destroy(s.core);

    // A copy of all blocks has to fit beside them.
    store_open(&s, PARAMSERVER__V1__UPDATE__ASYNC, "sgd", N * sizeof(float) * 3 / 2, specs, 1);
    write_init(&w, "job-1", 7);
    read_range(&w.x, "w", 0, N);
    expect(write_send(&s, &w), PS_OUT_OF_RANGE, "has no room for a copy");
    assert_int_equal(files(false), 0);
    // Or nobody changes them.
    w.shard.alone = true;
    expect(write_send(&s, &w), PS_OK, "");
    psd_core_destroy(s.core);
    assert_int_equal(files(true), 1);
}

static void without_a_folder_none_is_written(void **state)
{
    struct store s;
    struct writing w;
    (void)state;
    test_checkpoints = NULL;
    open_job(&s);
    test_checkpoints = folder;
    write_init(&w, "job-1", 7);
    read_range(&w.x, "w", 0, N);
    expect(write_send(&s, &w), PS_FAILED_PRECONDITION, "--checkpoints FOLDER");
    expect(load(&s, "job-1", 7, 0), PS_FAILED_PRECONDITION, "--checkpoints FOLDER");
    psd_core_destroy(s.core);
}

static void a_shard_is_loaded_as_it_was_written_or_not_at_all(void **state)
{
    struct store s;
    struct writing w;
    char path[256];
    (void)state;
    open_and_write(&s, &w);
    const uint64_t before = store_digest(&s);
    snprintf(path, sizeof path, "%s", in_folder("job/job-0000000001-0000000000000007-ps-0-of-1.safetensors"));
    assert_int_equal(link(path, in_folder("job/job-0000000001-0000000000000008-ps-0-of-1.safetensors")), 0);
    expect(load(&s, "job-0000000001", 8, 0), PS_FAILED_PRECONDITION, "it is a shard of another checkpoint");
    FILE *f = fopen(path, "r+");
    fseek(f, 2000, SEEK_SET);
    const int c = fgetc(f);
    fseek(f, 2000, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
    expect(load(&s, "job-0000000001", 7, 0), PS_FAILED_PRECONDITION, "is damaged: bytes");
    assert_true(store_digest(&s) == before);  // the first MiB already
    assert_int_equal(truncate(path, 1000), 0);
    expect(load(&s, "job-0000000001", 7, 0), PS_FAILED_PRECONDITION, path);
    assert_true(store_digest(&s) == before);
    psd_core_destroy(s.core);
    files(true);
}

// Of a series: what nobody names is left by one that was not written to its end.
static void those_that_nobody_names_are_removed(void **state)
{
    static const uint64_t series = UINT64_C(5) << 32, other = UINT64_C(6) << 32;
    static const struct {
        const char *name;
        uint64_t id;
    } all[] = {{"job-0000000010", series | 1},        {"job-0000000010", series | 2}, {"job-0000000020", series | 3},
               {"job-backup-0000000010", series | 1}, {"job-0000000010", other | 1},  {"other-0000000010", series | 1}};
    uint64_t keep[] = {series | 2};
    struct store s;
    struct writing w;
    Paramserver__V1__PruneShardsRequest r = PARAMSERVER__V1__PRUNE_SHARDS_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    ProtobufCMessage *m = NULL;
    (void)state;
    open_job(&s);
    for (size_t i = 0; i < 6; i++) {
        write_init(&w, all[i].name, all[i].id);
        write_all(&s, &w);
    }
    assert_int_equal(files(false), 6);
    r.caller = &caller;
    r.name = (char *)"job";
    r.series = 5;
    r.keep = keep;
    r.n_keep = 1;
    expect(ask_and_wait(s.core, M(PRUNE_SHARDS), &r.base, &paramserver__v1__prune_shards_reply__descriptor, &m), PS_OK,
           "");
    assert_int_equal(((Paramserver__V1__PruneShardsReply *)m)->removed, 2);
    ps_msg_free(m);
    assert_int_equal(files(false), 4);
    assert_int_equal(access(in_folder("job/job-0000000010-0000000500000002-ps-0-of-1.safetensors"), F_OK), 0);
    r.name = (char *)"../job";
    expect(ask_and_wait(s.core, M(PRUNE_SHARDS), &r.base, NULL, NULL), PS_INVALID_ARGUMENT, "expected a name");
    psd_core_destroy(s.core);
    files(true);
}

// Those that wait need room, too; and a task that shuts down writes nothing to its end.
static void shards_that_wait_are_counted_and_end_with_the_core(void **state)
{
    struct store s;
    struct writing w;
    (void)state;
    store_open(&s, PARAMSERVER__V1__UPDATE__ASYNC, "sgd", N * sizeof(float) * 7 / 2, specs, 1);
    write_init(&w, "job-0000000001", 7);
    read_range(&w.x, "w", 0, N);
    atomic_fetch_add(&s.core->shard_bytes, N * sizeof(float) * 2);
    expect(write_send(&s, &w), PS_OUT_OF_RANGE, "has no room for a copy");
    atomic_fetch_sub(&s.core->shard_bytes, N * sizeof(float) * 2);
    expect(write_send(&s, &w), PS_OK, "");
    assert_int_equal(atomic_load(&s.core->shard_bytes), 0);
    files(true);
    psd_core_drain(s.core);
    expect(write_send(&s, &w), PS_UNAVAILABLE, "is shutting down");
    psd_core_destroy(s.core);
    assert_int_equal(files(false), 0);
}

// ---- who waits ----------------------------------------------------------------------------------------------------

static const Paramserver__V1__WaitsReply *ask_waits(struct store *s, ProtobufCMessage **m)
{
    Paramserver__V1__WaitsRequest r = PARAMSERVER__V1__WAITS_REQUEST__INIT;
    r.job = (char *)"job";
    assert_int_equal(ask(s->core, M(WAITS), &r.base, NULL, &paramserver__v1__waits_reply__descriptor, m, NULL).code,
                     PS_OK);
    return (const Paramserver__V1__WaitsReply *)*m;
}

static uint32_t count_waits(struct store *s)
{
    ProtobufCMessage *m;
    const uint32_t n = ask_waits(s, &m)->total;
    ps_msg_free(m);
    return n;
}

static void assert_waits_for_file(struct store *s, size_t loads)
{
    ProtobufCMessage *m;
    const Paramserver__V1__WaitsReply *r = ask_waits(s, &m);
    assert_int_equal(r->n_waits, loads + 1);
    for (size_t i = 0; i < r->n_waits; i++) {
        assert_string_equal(r->waits[i]->job, "job");
        assert_string_equal(r->waits[i]->what, "a file");
        assert_string_equal(r->waits[i]->whom, "this ps task's disk");
        assert_int_equal(r->waits[i]->worker, 1);
        loads -= r->waits[i]->method == M(LOAD_SHARD);
    }
    assert_int_equal(loads, 0);
    ps_msg_free(m);
}

static void assert_traced(struct store *s, const uint64_t waited_ms[], size_t n)
{
    ProtobufCMessage *m;
    Paramserver__V1__TraceRequest r = PARAMSERVER__V1__TRACE_REQUEST__INIT;
    r.job = (char *)"job";
    assert_int_equal(ask(s->core, M(TRACE), &r.base, NULL, &paramserver__v1__trace_reply__descriptor, &m, NULL).code,
                     PS_OK);
    const Paramserver__V1__TraceReply *t = (const Paramserver__V1__TraceReply *)m;
    assert_int_equal(t->n_waits, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(t->waits[i]->kind, PARAMSERVER__V1__WAIT_KIND__FOR_FILE);
        assert_string_equal(t->waits[i]->what, "a file on the ps task's disk");
        assert_int_equal(t->waits[i]->waited_us, waited_ms[i] * 1000);
    }
    ps_msg_free(m);
}

static void make_pipe(char path[256], uint64_t checkpoint)
{
    mkdir(in_folder("job"), 0777);
    snprintf(path, 256, "%s/job/job-0000000001-%016" PRIx64 "-ps-0-of-1.safetensors", folder, checkpoint);
    assert_int_equal(mkfifo(path, 0666), 0);
}

static void load_ahead(struct store *s, uint32_t rank, uint64_t checkpoint, struct waited *w)
{
    Paramserver__V1__LoadShardRequest r = PARAMSERVER__V1__LOAD_SHARD_REQUEST__INIT;
    Paramserver__V1__Shard shard = PARAMSERVER__V1__SHARD__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, checkpoint);
    r.caller = &caller;
    r.shard = &shard;
    shard.name = (char *)"job-0000000001";
    shard.checkpoint = checkpoint;
    ask_ahead(s->core, M(LOAD_SHARD), &r.base, w);
}

static void prune_ahead(struct store *s, struct waited *w)
{
    Paramserver__V1__PruneShardsRequest r = PARAMSERVER__V1__PRUNE_SHARDS_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    r.caller = &caller;
    r.name = (char *)"job";
    ask_ahead(s->core, M(PRUNE_SHARDS), &r.base, w);
}

// The thread has gone as far as it can. If it has not, what is to be seen is the same.
static void let_it_go_on(void)
{
    usleep(20000);
    test_time += 30 * PS_MS;
}

// Shards that are pipes are as those on a disk that does not answer. Who waits for them, and who waits behind, is seen
// meanwhile and afterwards: where the thread works on the first and the others are parked, and where it has taken up
// the others.
static void who_waits_for_a_file_is_seen(void **state)
{
    static const uint64_t waited_ms[] = {60, 60, 30};  // who waited last first
    char first[256], second[256];
    struct store s;
    struct waited reads, reads_next, behind;
    (void)state;
    open_job(&s);
    make_pipe(first, 7);
    make_pipe(second, 8);
    assert_int_equal(count_waits(&s), 0);
    load_ahead(&s, 0, 7, &reads);
    load_ahead(&s, 0, 8, &reads_next);
    prune_ahead(&s, &behind);
    let_it_go_on();
    assert_waits_for_file(&s, 2);
    close(open(first, O_WRONLY));
    await_answer(&reads);
    while (count_waits(&s) > 2)  // it has been answered before it is done
        sched_yield();
    let_it_go_on();
    assert_waits_for_file(&s, 1);
    close(open(second, O_WRONLY));
    await_answer(&reads_next);
    await_answer(&behind);
    expect(reads.a, PS_FAILED_PRECONDITION, "0000000007-ps-0-of-1.safetensors");
    expect(reads_next.a, PS_FAILED_PRECONDITION, "0000000008-ps-0-of-1.safetensors");
    expect(behind.a, PS_OK, "");
    ps_slices_clear(&behind.a.body);
    while (count_waits(&s))
        sched_yield();
    assert_traced(&s, waited_ms, 3);
    psd_core_destroy(s.core);
    files(true);
}

// The control task has said that it is dead.
static void take_for_dead(struct store *s, uint32_t rank)
{
    struct psd_job *job = s->core->table.newest;
    pthread_mutex_lock(&job->lock);
    job->incarnations[rank]++;
    pthread_mutex_unlock(&job->lock);
}

// Another worker trains on, and has written checkpoints of its own. What comes late, and what has waited for the
// thread, changes nothing.
static void a_worker_that_was_taken_for_dead_loads_and_removes_nothing(void **state)
{
    char path[256];
    struct store s;
    struct writing w;
    struct waited reads, loads, prunes;
    (void)state;
    open_and_write(&s, &w);
    push(&s, 2, 1);
    const uint64_t before = store_digest(&s);
    make_pipe(path, 8);
    load_ahead(&s, 1, 8, &reads);
    load_ahead(&s, 0, 7, &loads);
    prune_ahead(&s, &prunes);
    take_for_dead(&s, 0);
    close(open(path, O_WRONLY));
    await_answer(&reads);
    await_answer(&loads);
    await_answer(&prunes);
    expect(loads.a, PS_ABORTED, "worker 0 of job 'job': this process was taken for dead");
    expect(prunes.a, PS_ABORTED, "worker 0 of job 'job': this process was taken for dead");
    load_ahead(&s, 0, 7, &loads);
    prune_ahead(&s, &prunes);
    await_answer(&loads);
    await_answer(&prunes);
    expect(loads.a, PS_ABORTED, "was taken for dead");
    expect(prunes.a, PS_ABORTED, "was taken for dead");
    assert_true(store_digest(&s) == before);
    assert_int_equal(files(false), 2);
    psd_core_destroy(s.core);
    files(true);
}

// Between its beginning and its end a job may become another run.
static void another_run_loads_it_again(void **state)
{
    struct store s;
    struct writing w;
    (void)state;
    open_and_write(&s, &w);
    const float value = get_float(&s, "w", 0);
    psd_core_destroy(s.core);
    open_job(&s);
    assert_true(get_float(&s, "w", 0) == 0);
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    assert_true(get_float(&s, "w", N - 1) == value);
    psd_core_destroy(s.core);
    files(true);
}

// A call is a repetition where its sequence is the last one's. Another call puts the same shard again.
static void a_shard_is_loaded_as_often_as_it_is_asked_for(void **state)
{
    struct store s;
    struct writing w;
    (void)state;
    open_and_write(&s, &w);
    const float value = get_float(&s, "w", 0);
    load_sequence = 5;
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    push(&s, 2, 1);
    const float trained = get_float(&s, "w", 0);
    assert_true(trained != value);
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    assert_int_equal(loaded, 2 * N);
    assert_true(get_float(&s, "w", 0) == trained);
    load_sequence = 6;
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    assert_int_equal(loaded, 2 * N);
    assert_true(get_float(&s, "w", 0) == value);

    // A copy of the call before comes late.
    push(&s, 3, 1);
    const uint64_t before = store_digest(&s);
    load_sequence = 5;
    expect(load(&s, "job-0000000001", 7, 3), PS_ABORTED, "has asked for another since (sequence 6, this is 5)");
    load_sequence = 0;
    expect(load(&s, "job-0000000001", 7, 3), PS_INVALID_ARGUMENT, "sequence 0: expected one from 1");
    assert_true(store_digest(&s) == before);
    load_sequence = 7;
    expect(load(&s, "job-0000000001", 8, 3), PS_OK, "");
    assert_int_equal(loaded, 0);
    load_sequence = 6;  // though nothing was put by the last one
    expect(load(&s, "job-0000000001", 7, 3), PS_ABORTED, "has asked for another since");
    assert_true(store_digest(&s) == before);
    load_sequence = 1;
    psd_core_destroy(s.core);
    files(true);
}

// What was not there at first is looked for again.
static void a_shard_that_comes_later_is_found(void **state)
{
    struct store s;
    struct writing w;
    (void)state;
    open_job(&s);
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    assert_int_equal(loaded, 0);
    push(&s, 1, 1);
    write_init(&w, "job-0000000001", 7);
    write_all(&s, &w);
    expect(load(&s, "job-0000000001", 7, 3), PS_OK, "");
    assert_int_equal(loaded, 2 * N);
    psd_core_destroy(s.core);
    files(true);
}

static void create_without_permission(void)
{
    const struct psd_config config = {.tasks = 1, .memory_bytes = 64 << 20, .checkpoints = folder};
    const struct psd_world world = {
        .now = test_now, .random = test_random, .resident = test_resident, .queued = test_resident, .send = test_send};
    const uid_t nobody = 65534;
    struct psd_core *core;
    struct ps_error e = {.code = PS_OK};
    const bool other = geteuid() != 0 || setresuid(nobody, nobody, nobody) == 0;
    const bool refused = other && psd_core_create(&config, &world, &core, &e) == PS_PERMISSION_DENIED;
    _exit(refused && strstr(e.text, "--checkpoints: ") == e.text && strstr(e.text, ": Permission denied: ") ? 0 : 1);
}

// When psd starts, not when the first checkpoint is due.
static void a_folder_that_cannot_be_written_is_refused(void **state)
{
    int status = -1;
    (void)state;
    assert_int_equal(0, chmod(folder, 0555));
    const pid_t child = fork();
    if (child == 0)
        create_without_permission();
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_int_equal(0, chmod(folder, 0700));
    assert_int_equal(0, status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(updates_go_on_meanwhile),
        cmocka_unit_test(a_part_says_which),
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(without_a_folder_none_is_written),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_refused),
        cmocka_unit_test(a_shard_is_loaded_as_it_was_written_or_not_at_all),
        cmocka_unit_test(those_that_nobody_names_are_removed),
        cmocka_unit_test(shards_that_wait_are_counted_and_end_with_the_core),
        cmocka_unit_test(who_waits_for_a_file_is_seen),
        cmocka_unit_test(a_worker_that_was_taken_for_dead_loads_and_removes_nothing),
        cmocka_unit_test(another_run_loads_it_again),
        cmocka_unit_test(a_shard_is_loaded_as_often_as_it_is_asked_for),
        cmocka_unit_test(a_shard_that_comes_later_is_found),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
