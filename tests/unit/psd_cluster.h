// SPDX-License-Identifier: Apache-2.0
//
// Some ps tasks in one process, with a job whose variables a test lists. What the tasks send each other lies in a
// mailbox until the test delivers it: in any order, lost on its way or on the way back, or twice.
//
// Any number of threads may use a cluster at once.
#ifndef TEST_PSD_CLUSTER_H
#define TEST_PSD_CLUSTER_H

#include "psd/control/state.h"
#include "psd/service/service.h"
#include "tests/unit/psd_core.h"

#define M(name) PARAMSERVER__V1__METHOD__##name
#define SYNC PARAMSERVER__V1__UPDATE__SYNC
#define ASYNC PARAMSERVER__V1__UPDATE__ASYNC
#define SSP PARAMSERVER__V1__UPDATE__SSP

enum { MAX_TASKS = 3, MAX_PARTITIONS = 16, MAX_VARIABLES = 6, NO_TASK = MAX_TASKS };

typedef void (*done_fn)(void *arg, enum ps_code code, const struct ps_slices *reply);

// A message from one task to another, or its answer on the way back.
struct letter {
    struct psd_call call;  // first
    struct cluster *cluster;
    uint32_t from, to;
    int method;
    bool answered;
    enum ps_code code;
    struct ps_slices body;  // of the message, then of the answer
    done_fn done;           // NULL: nobody waits for it
    void *arg;
    struct letter *next;
};

struct task {
    struct cluster *cluster;
    uint32_t index;
    struct psd_core *core;
};

// A variable of a job, in n_partitions equal parts, dealt to the tasks in turn.
struct variable {
    const char *name;
    uint64_t count;
    uint32_t n_partitions;
    bool passive;      // not trainable
    const char *rule;  // NULL: none of its own
    struct {
        const char *name;
        double value;
    } hypers[2];
};

struct cluster {
    uint32_t tasks, workers;
    struct task task[MAX_TASKS];
    pthread_mutex_t lock;  // guards the mailbox and chance
    struct letter *mail;
    size_t n_mail;
    uint64_t seed;
    double lost, repeated;  // probabilities
    uint32_t cut_off;       // a task that no letter reaches; NO_TASK: none
    uint64_t wall;          // ms: of the clock of all tasks
    uint32_t min_workers;   // as Join says; a test may change it before cluster_start()

    struct variable variables[MAX_VARIABLES];
    uint32_t n_variables;
    // What is declared, for the test to change before cluster_declare().
    Paramserver__V1__DeclareRequest declare;
    Paramserver__V1__Variable v[MAX_VARIABLES], *vs[MAX_VARIABLES];
    Paramserver__V1__Hyper h[MAX_VARIABLES][2], *hs[MAX_VARIABLES][2];
    Paramserver__V1__Partition p[MAX_PARTITIONS], *ps[MAX_PARTITIONS];
    Paramserver__V1__Hyper job_h[4], *job_hs[4];
    uint32_t n_partitions;
    Paramserver__V1__Caller callers[8];  // each worker's
    uint64_t sequence[8];
    uint64_t part_of[8];  // the round of which a part of each one's gradient came last; 0: a whole one did
    uint64_t run;         // as the last Join was told
    uint64_t newest;      // that each Join tells
};

// ---- chance -------------------------------------------------------------------------------------------------------

// splitmix64
static inline uint64_t draw(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline bool happens(uint64_t *seed, double probability)
{
    return (double)(draw(seed) >> 11) * 0x1p-53 < probability;
}

// ---- mail ---------------------------------------------------------------------------------------------------------

static inline void post(struct cluster *c, struct letter *l)
{
    pthread_mutex_lock(&c->lock);
    l->next = c->mail;
    c->mail = l;
    c->n_mail++;
    pthread_mutex_unlock(&c->lock);
}

static inline void letter_free(struct letter *l)
{
    ps_slices_clear(&l->body);
    ps_slices_clear(&l->call.request);
    free(l);
}

static void cluster_send(void *ctx, uint32_t to, int method, struct ps_slices *request, done_fn done, void *arg)
{
    struct task *task = ctx;
    struct letter *l = ps_alloc(sizeof *l);
    *l = (struct letter){.cluster = task->cluster, .from = task->index, .to = to, .method = method};
    l->done = done;
    l->arg = arg;
    ps_slices_move(&l->body, request);
    post(task->cluster, l);
}

static void on_letter_answered(struct psd_call *call, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct letter *l = (struct letter *)call;
    (void)text;
    l->answered = true;
    l->code = code;
    ps_slices_move(&l->body, body);
    post(l->cluster, l);
}

static inline void tell_sender(struct letter *l, enum ps_code code)
{
    const struct ps_slices nothing = PS_SLICES_EMPTY;
    if (l->done)
        l->done(l->arg, code, code == PS_OK ? &l->body : &nothing);
    letter_free(l);
}

static inline void hand_over(struct letter *l)
{
    l->call = (struct psd_call){.method = l->method, .deadline = UINT64_MAX, .reply = on_letter_answered};
    ps_slices_move(&l->call.request, &l->body);
    psd_core_call(l->cluster->task[l->to].core, &l->call);
}

static inline struct letter *copy_of(const struct letter *l)
{
    struct letter *copy = ps_alloc(sizeof *copy);
    uint8_t *bytes;
    *copy = (struct letter){.cluster = l->cluster, .from = l->from, .to = l->to, .method = l->method};
    ps_slices_add(&copy->body, ps_slice_new(l->body.len, &bytes));
    ps_slices_copy_out(&l->body, 0, l->body.len, bytes);
    return copy;
}

static inline struct letter *take_mail(struct cluster *c, bool *lost, bool *repeated)
{
    struct letter *l = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->n_mail) {
        struct letter **at = &c->mail;
        for (uint64_t i = draw(&c->seed) % c->n_mail; i; i--)
            at = &(*at)->next;
        l = *at;
        *at = l->next;
        c->n_mail--;
        *lost = happens(&c->seed, c->lost) || l->to == c->cut_off;
        *repeated = !l->answered && happens(&c->seed, c->repeated);
    }
    pthread_mutex_unlock(&c->lock);
    return l;
}

// Delivers one letter, any. False: there is none.
static inline bool deliver(struct cluster *c)
{
    bool lost, repeated;
    struct letter *l = take_mail(c, &lost, &repeated);
    if (!l)
        return false;
    if (repeated)
        post(c, copy_of(l));
    if (l->answered)
        tell_sender(l, lost ? PS_UNAVAILABLE : l->code);
    else if (lost)
        tell_sender(l, PS_UNAVAILABLE);
    else
        hand_over(l);
    return true;
}

static inline void deliver_all(struct cluster *c)
{
    while (deliver(c))
        continue;
}

static inline void tick(struct cluster *c)
{
    for (uint32_t i = 0; i < c->tasks; i++)
        psd_core_tick(c->task[i].core);
}

// Time passes, and what is sent meanwhile arrives.
static inline void settle(struct cluster *c, uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 50) {
        deliver_all(c);
        test_time += 50 * PS_MS;
        tick(c);
    }
    deliver_all(c);
}

// ---- the job ------------------------------------------------------------------------------------------------------

static inline void fill_variable(struct cluster *c, uint32_t i, const struct variable *from)
{
    Paramserver__V1__Variable *v = c->vs[i] = &c->v[i];
    paramserver__v1__variable__init(v);
    c->variables[i] = *from;
    v->name = (char *)from->name;
    v->dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    v->n_shape = 1;
    v->shape = &c->variables[i].count;
    v->trainable = !from->passive;
    if (from->rule)
        v->rule = (char *)from->rule;
    v->hypers = c->hs[i];
    for (; v->n_hypers < 2 && from->hypers[v->n_hypers].name; v->n_hypers++) {
        paramserver__v1__hyper__init(c->hs[i][v->n_hypers] = &c->h[i][v->n_hypers]);
        c->h[i][v->n_hypers].name = (char *)from->hypers[v->n_hypers].name;
        c->h[i][v->n_hypers].value = from->hypers[v->n_hypers].value;
    }
    for (uint32_t k = 0; k < from->n_partitions; k++) {
        Paramserver__V1__Partition *p = c->ps[c->n_partitions] = &c->p[c->n_partitions];
        paramserver__v1__partition__init(p);
        p->variable = i;
        p->first = from->count / from->n_partitions * k;
        p->count = from->count / from->n_partitions;
        p->task = c->n_partitions++ % c->tasks;
    }
}

// For the rounds of tasks that are started from now on; NULL: who makes work possible does it.
static struct ps_workers *cluster_threads;

static uint64_t cluster_wall(void *ctx)
{
    return ((struct task *)ctx)->cluster->wall;
}

static inline void task_start(struct cluster *c, uint32_t i, uint64_t memory)
{
    const struct psd_config config = {
        .task = i, .tasks = c->tasks, .memory_bytes = memory, .heartbeat_ms = 500, .dead_after_ms = 3600 * 1000};
    const struct psd_world world = {.ctx = &c->task[i],
                                    .now = test_now,
                                    .random = test_random,
                                    .resident = test_resident,
                                    .wall = cluster_wall,
                                    .send = cluster_send,
                                    .workers = cluster_threads};
    c->task[i] = (struct task){c, i, NULL};
    if (psd_core_create(&config, &world, &c->task[i].core, NULL))
        abort();
}

// A task ends, with all that it knew, and another takes its place, a second later.
static inline void cluster_restart(struct cluster *c, uint32_t task)
{
    uint64_t memory = c->task[task].core->config.memory_bytes;
    psd_core_drain(c->task[task].core);
    deliver_all(c);
    psd_core_destroy(c->task[task].core);
    c->wall += 1000;
    task_start(c, task, memory);
}

// Tasks, and a declaration that the test may still change; nobody has joined.
static inline void cluster_open(struct cluster *c, uint32_t tasks, uint32_t workers, uint64_t memory,
                                const struct variable *variables, uint32_t n)
{
    *c = (struct cluster){.tasks = tasks, .workers = workers, .n_variables = n, .seed = 1, .cut_off = NO_TASK};
    pthread_mutex_init(&c->lock, NULL);
    for (uint32_t i = 0; i < tasks; i++)
        task_start(c, i, memory);
    for (uint32_t i = 0; i < n; i++)
        fill_variable(c, i, &variables[i]);
    paramserver__v1__declare_request__init(&c->declare);
    for (uint32_t rank = 0; rank < workers; rank++)
        c->callers[rank] = caller_of(rank, 0);
    c->declare.caller = &c->callers[0];
    c->declare.update = SYNC;
    c->declare.workers = workers;
    c->declare.tasks = tasks;
    c->declare.rule = (char *)"sgd";
    c->declare.variables = c->vs;
    c->declare.n_variables = n;
    c->declare.partitions = c->ps;
    c->declare.n_partitions = c->n_partitions;
    c->declare.hypers = c->job_hs;
}

static inline void job_hyper(struct cluster *c, const char *name, double value)
{
    Paramserver__V1__Hyper *h = &c->job_h[c->declare.n_hypers];
    paramserver__v1__hyper__init(c->job_hs[c->declare.n_hypers++] = h);
    h->name = (char *)name;
    h->value = value;
}

static inline void cluster_joined(struct cluster *c, uint32_t rank, const Paramserver__V1__JoinReply *reply)
{
    c->run = c->callers[rank].run = reply->run;
    c->callers[rank].incarnation = reply->incarnation;
    c->declare.resumed_round = reply->resumed_round;
}

static inline struct answer cluster_join(struct cluster *c, uint32_t rank)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    r.caller = &c->callers[rank];
    r.on_existing = c->declare.on_existing;
    r.address = (char *)"pid 1 on here";
    r.workers = c->workers;
    r.min_workers = c->min_workers;
    r.update = c->declare.update;
    r.newest = c->newest;
    struct answer a =
        ask(c->task[0].core, M(JOIN), &r.base, NULL, &paramserver__v1__join_reply__descriptor, &reply, NULL);
    if (reply)
        cluster_joined(c, rank, (Paramserver__V1__JoinReply *)reply);
    ps_msg_free(reply);
    return a;
}

// Declares on one task.
static inline struct answer declare_at(struct cluster *c, uint32_t task)
{
    c->declare.task = task;
    return ask(c->task[task].core, M(DECLARE), &c->declare.base, NULL, NULL, NULL, NULL);
}

// Everyone joins, and the job is declared everywhere. What goes wrong is returned.
static inline struct answer cluster_try_start(struct cluster *c)
{
    struct answer a = {.answered = true};
    for (uint32_t rank = 0; rank < c->workers && a.code == PS_OK; rank++)
        a = cluster_join(c, rank);
    for (uint32_t i = c->tasks; i-- && a.code == PS_OK;)
        a = declare_at(c, i);
    return a;
}

static inline void cluster_start(struct cluster *c)
{
    struct answer a = cluster_try_start(c);
    if (!a.answered || a.code)
        fail_msg("the job does not start: %s", a.text);
}

static inline void cluster_close(struct cluster *c)
{
    struct letter *l;
    bool lost, repeated;
    for (uint32_t i = 0; i < c->tasks; i++)
        psd_core_drain(c->task[i].core);
    while ((l = take_mail(c, &lost, &repeated)))
        tell_sender(l, PS_UNAVAILABLE);
    for (uint32_t i = 0; i < c->tasks; i++)
        psd_core_destroy(c->task[i].core);
    pthread_mutex_destroy(&c->lock);
}

// ---- workers ------------------------------------------------------------------------------------------------------

static inline uint32_t first_partition(const struct cluster *c, uint32_t variable)
{
    uint32_t i = 0;
    while (c->p[i].variable != variable)
        i++;
    return i;
}

struct pushed {
    enum ps_code code;
    char text[512];
    Paramserver__V1__TensorResult result;
};

// Elements [first, first + count) of a partition, from g. Parts of a rank's gradient that follow each other are of one
// operation.
static inline struct pushed push_some(struct cluster *c, uint32_t rank, uint32_t partition, uint64_t first,
                                      uint64_t count, uint64_t round, uint64_t examples, const float *g)
{
    const Paramserver__V1__Partition *p = &c->p[partition];
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = c->callers[rank];
    ProtobufCMessage *reply = NULL;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct pushed out = {PS_OK};
    const uint64_t part_of = count < p->count ? round : 0;
    c->sequence[rank] += !part_of || part_of != c->part_of[rank];
    c->part_of[rank] = part_of;
    caller.sequence = caller.oldest = c->sequence[rank];
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.round = round;
    r.examples = examples;
    t.variable = c->v[p->variable].name;
    t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    t.first = p->first + first;
    t.count = count;
    ps_slices_add(&payload, ps_slice_copy(g, count * sizeof *g));
    struct answer a = ask(c->task[p->task].core, M(PUSH), &r.base, &payload, &paramserver__v1__update_reply__descriptor,
                          &reply, NULL);
    out.code = a.code;
    memcpy(out.text, a.text, sizeof out.text);
    if (reply)
        out.result = *((Paramserver__V1__UpdateReply *)reply)->results[0];
    ps_msg_free(reply);
    return out;
}

static inline struct pushed push_values(struct cluster *c, uint32_t rank, uint32_t partition, uint64_t round,
                                        uint64_t examples, const float *g)
{
    return push_some(c, rank, partition, 0, c->p[partition].count, round, examples, g);
}

// The same value for every element.
static inline struct pushed push(struct cluster *c, uint32_t rank, uint32_t partition, uint64_t round, float value)
{
    uint64_t n = c->p[partition].count;
    float *g = ps_alloc(n * sizeof *g);
    for (uint64_t i = 0; i < n; i++)
        g[i] = value;
    struct pushed out = push_values(c, rank, partition, round, 1, g);
    free(g);
    return out;
}

// Elements of a partition, from its first on, by Get, which has slots, from 1, or by Pull, which has averages.
static inline struct answer read_part(struct cluster *c, uint32_t partition, uint64_t count, bool averages,
                                      uint32_t slot, float *to)
{
    const Paramserver__V1__Partition *p = &c->p[partition];
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Caller caller = c->callers[0];
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    ProtobufCMessage *reply = NULL;
    struct ps_slices bytes = PS_SLICES_EMPTY;
    r.caller = &caller;
    r.tensors = tensors;
    r.n_tensors = 1;
    r.averages = averages;
    t.slot = slot;
    t.variable = c->v[p->variable].name;
    t.first = p->first;
    t.count = count;
    struct answer a = ask(c->task[p->task].core, averages ? M(PULL) : M(GET), &r.base, NULL,
                          &paramserver__v1__read_reply__descriptor, &reply, &bytes);
    if (a.code == PS_OK && bytes.len != count * sizeof *to)
        fail_msg("read: %zu bytes", bytes.len);
    ps_slices_copy_out(&bytes, 0, bytes.len, to);
    ps_slices_clear(&bytes);
    ps_msg_free(reply);
    return a;
}

static inline void read_by(struct cluster *c, uint32_t partition, uint64_t count, bool averages, float *to)
{
    struct answer a = read_part(c, partition, count, averages, 0, to);
    if (a.code)
        fail_msg("get: %s", a.text);
}

static inline void read_values(struct cluster *c, uint32_t partition, uint64_t count, float *to)
{
    read_by(c, partition, count, false, to);
}

static inline float read_first(struct cluster *c, uint32_t partition)
{
    float value;
    read_values(c, partition, 1, &value);
    return value;
}

static inline void depart(struct cluster *c, uint32_t rank, bool failed)
{
    Paramserver__V1__LeaveRequest r = PARAMSERVER__V1__LEAVE_REQUEST__INIT;
    r.caller = &c->callers[rank];
    r.failed = failed;
    struct answer a = ask(c->task[0].core, M(LEAVE), &r.base, NULL, NULL, NULL, NULL);
    if (a.code)
        fail_msg("leave: %s", a.text);
}

static inline void leave(struct cluster *c, uint32_t rank)
{
    depart(c, rank, false);
}

// ---- hyperparameters ----------------------------------------------------------------------------------------------

static inline void set_hyper_later(struct cluster *c, struct answer *a, const char *name, double value, uint64_t round,
                                   uint64_t deadline)
{
    Paramserver__V1__SetHyperRequest r = PARAMSERVER__V1__SET_HYPER_REQUEST__INIT;
    r.job = (char *)"job";
    r.name = (char *)name;
    r.value = value;
    r.round = round;
    ask_later(c->task[0].core, a, M(SET_HYPER), &r.base, NULL, deadline);
}

// The round in an answer that is OK; clears it.
static inline uint64_t round_of(struct answer *a)
{
    ProtobufCMessage *reply = NULL;
    struct ps_slices nothing = PS_SLICES_EMPTY;
    if (!a->answered || a->code)
        fail_msg("set hyper: %s", a->answered ? a->text : "not answered");
    if (ps_msg_unpack(&paramserver__v1__set_hyper_reply__descriptor, &a->body, &reply, &nothing, NULL))
        fail_msg("set hyper: a reply that is none");
    uint64_t round = ((Paramserver__V1__SetHyperReply *)reply)->round;
    ps_msg_free(reply);
    ps_slices_clear(&a->body);
    return round;
}

// Set, with all the time and mail that it needs.
static inline uint64_t set_hyper(struct cluster *c, const char *name, double value, uint64_t round)
{
    struct answer a;
    set_hyper_later(c, &a, name, value, round, UINT64_MAX);
    for (int i = 0; i < 1000 && !a.answered; i++)
        settle(c, 50);
    return round_of(&a);
}

#endif
