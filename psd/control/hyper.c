// SPDX-License-Identifier: Apache-2.0
#include "psd/control/hyper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "psd/service/service.h"

typedef Paramserver__V1__PrepareHyperRequest__Phase phase_t;
#define NONE PARAMSERVER__V1__PREPARE_HYPER_REQUEST__PHASE__PHASE_NONE
#define PREPARE PARAMSERVER__V1__PREPARE_HYPER_REQUEST__PHASE__PREPARE
#define COMMIT PARAMSERVER__V1__PREPARE_HYPER_REQUEST__PHASE__COMMIT
#define FORGET PARAMSERVER__V1__PREPARE_HYPER_REQUEST__PHASE__FORGET

enum {
    AHEAD = 4,            // rounds between the last one known to be closed and the one that is tried first
    AHEAD_MAX = 4096,     // it is doubled with every try
    SILENT_MS = 2000,     // a task that has not answered in a phase by then does not answer
    HELD_TOO_LONG = 5000  // ms
};

// Where one task stands in the phase.
enum answer { TO_ASK, ASKED, ANSWERED };

struct psd_hyper_change {
    uint64_t decided;            // changes up to this number are committed or forgotten here
    struct psd_change prepared;  // number 0: none
    uint64_t since;              // ns, as those below
    bool logged;

    // At the control task: the change that it makes.
    phase_t phase;             // NONE: all tasks have heard the end of it
    struct psd_change change;  // its number goes on growing
    uint64_t asked;            // the round asked for; 0: any
    uint64_t ahead;            // of this try
    uint64_t begun;            // ns: the phase
    enum answer *answers;      // [tasks]
    uint32_t tasks;
    bool too_late;           // a task has closed the round, and
    uint64_t greatest;       // this is the greatest that any has
    struct psd_call *owner;  // who asked for it, unless answered; its call is in waiting until there is an outcome
    bool outcome;            // it is decided, as `error` says
    struct ps_error error;
    struct psd_waiters waiting;  // the owner, and those who will ask for other changes
};

size_t psd_hyper_change_bytes(const struct psd_job *job, uint32_t task)
{
    return sizeof(struct psd_hyper_change) + (task == 0 ? job->tasks * sizeof(enum answer) : 0);
}

enum ps_code psd_hyper_change_create(struct psd_job *job, uint32_t task, struct ps_error *e)
{
    struct psd_hyper_change *x = ps_try_alloc(sizeof *x);
    if (!x)
        return ps_no_memory(e, "changes of hyperparameters");
    job->tuning = x;
    x->tasks = task == 0 ? job->tasks : 0;
    x->answers = ps_try_alloc_array(x->tasks, sizeof *x->answers);
    return x->answers ? PS_OK : ps_no_memory(e, "changes of hyperparameters");
}

void psd_hyper_change_free(struct psd_hyper_change *x)
{
    if (!x)
        return;
    free(x->answers);
    free(x);
}

static bool is_sync(const struct psd_job *job)
{
    return job->update == PARAMSERVER__V1__UPDATE__SYNC;
}

static const char *name_of(const struct psd_job *job, const struct psd_change *change)
{
    return job->rule->hyper[change->hyper].name;
}

// ---- the list of changes ------------------------------------------------------------------------------------------

// The greatest and the least round that is decided among this task's partitions (none: 0, UINT64_MAX). No partition here
// needs what was in use before the least.
static void decided_rounds(struct psd_job *job, uint64_t *greatest, uint64_t *least)
{
    *greatest = 0;
    *least = UINT64_MAX;
    for (uint32_t i = 0; i < job->n_partitions; i++) {
        if (!job->partitions[i].round)
            continue;
        uint64_t decided = psd_round_decided(job->partitions[i].round);
        *greatest = decided > *greatest ? decided : *greatest;
        *least = decided < *least ? decided : *least;
    }
}

// Does a later one hold in all rounds from `least` on in which this one would?
static bool is_superseded(const struct psd_job *job, uint32_t i, uint64_t least)
{
    const struct psd_change *v = job->changes;
    for (uint32_t k = i + 1; k < job->n_changes; k++)
        if (v[k].hyper == v[i].hyper && (v[k].round <= least || v[k].round <= v[i].round))
            return true;
    return false;
}

// Forgets what no round from `least` on can need. Cut held exclusively.
static void prune(struct psd_job *job, uint64_t least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < job->n_changes; i++)
        if (!is_superseded(job, i, least))
            job->changes[kept++] = job->changes[i];
    job->n_changes = kept;
}

// Is there room for one more, once what is not needed any more has gone? A task without rounds does not know how far
// they are elsewhere; what it evaluates changes for it does not apply itself. It takes the older half to be over.
static bool make_room(struct psd_job *job, uint64_t least)
{
    pthread_rwlock_wrlock(&job->cut);
    if (job->n_changes == PSD_MAX_CHANGES)
        prune(job, least == UINT64_MAX ? job->changes[PSD_MAX_CHANGES / 2].round : least);
    bool room = job->n_changes < PSD_MAX_CHANGES;
    pthread_rwlock_unlock(&job->cut);
    return room;
}

static void append(struct psd_job *job, const struct psd_change *change)
{
    pthread_rwlock_wrlock(&job->cut);
    job->changes[job->n_changes++] = *change;
    pthread_rwlock_unlock(&job->cut);
}

void psd_hyper_change_resume(struct psd_job *job, struct psd_call **ready)
{
    struct psd_hyper_change *x = job->tuning;
    pthread_mutex_lock(&job->lock);
    atomic_store(&job->held, 0);
    x->prepared.number = 0;
    if (x->tasks == 0)
        x->decided = 0;  // the control task may have restarted, and count from 1 again
    x->phase = NONE;
    x->outcome = false;
    x->owner = NULL;
    psd_ready_all(ready, &x->waiting);
    pthread_rwlock_wrlock(&job->cut);
    for (uint32_t i = 0; i < job->n_changes; i++)
        job->changes[i].round = 0;
    prune(job, 0);
    pthread_rwlock_unlock(&job->cut);
    pthread_mutex_unlock(&job->lock);
}

// ---- one task's part ----------------------------------------------------------------------------------------------

// What a task has to say.
struct verdict {
    enum ps_code code;  // PS_OK; RESOURCE_EXHAUSTED, FAILED_PRECONDITION
    bool prepared;
    uint64_t greatest;
};

// Job locked. What was prepared is decided now.
static void decide(struct psd_job *job, uint64_t number)
{
    struct psd_hyper_change *x = job->tuning;
    if (number > x->decided)
        x->decided = number;
    if (x->prepared.number && x->prepared.number <= x->decided) {
        x->prepared.number = 0;
        atomic_store(&job->held, 0);
    }
}

// The round is held first and looked at then: what closes it has its lock, and sees the one or is seen by the other.
static struct verdict prepare(struct psd_core *core, struct psd_job *job, const struct psd_change *change)
{
    struct psd_hyper_change *x = job->tuning;
    struct verdict v = {.code = PS_OK};
    uint64_t least;
    pthread_mutex_lock(&job->lock);
    bool fresh = change->number > x->decided && change->number > x->prepared.number;
    if (fresh) {
        decide(job, x->prepared.number);  // of an earlier one nothing will be heard any more
        x->prepared = *change;
        x->since = psd_now(core);
        x->logged = false;
        atomic_store(&job->held, change->round);
    }
    pthread_mutex_unlock(&job->lock);
    decided_rounds(job, &v.greatest, &least);
    bool room = make_room(job, least);
    pthread_mutex_lock(&job->lock);
    v.prepared = x->prepared.number == change->number && v.greatest < change->round && room;
    pthread_mutex_unlock(&job->lock);
    if (!room)
        v.code = PS_RESOURCE_EXHAUSTED;
    return v;
}

static struct verdict commit(struct psd_job *job, const struct psd_change *change)
{
    struct psd_hyper_change *x = job->tuning;
    struct verdict v = {.code = PS_OK, .prepared = true};
    pthread_mutex_lock(&job->lock);
    if (change->number > x->decided) {
        bool prepared = x->prepared.number == change->number;
        if (is_sync(job) ? !prepared : !make_room(job, 0))
            v.code = is_sync(job) ? PS_FAILED_PRECONDITION : PS_RESOURCE_EXHAUSTED;
        else
            append(job, is_sync(job) ? &x->prepared : change);
        if (v.code == PS_OK)
            decide(job, change->number);
    }
    pthread_mutex_unlock(&job->lock);
    return v;
}

// What a task does with one message, whether it came over the network or is its own.
static struct verdict take(struct psd_core *core, struct psd_job *job, phase_t phase, const struct psd_change *change,
                           struct psd_call **ready)
{
    struct verdict v = {.code = PS_OK};
    uint64_t least;
    if (phase == PREPARE)
        v = prepare(core, job, change);
    else if (phase == COMMIT)
        v = commit(job, change);
    else
        decided_rounds(job, &v.greatest, &least);
    if (phase == FORGET || (phase == PREPARE && !v.prepared)) {
        pthread_mutex_lock(&job->lock);
        decide(job, change->number);
        pthread_mutex_unlock(&job->lock);
    }
    if (!psd_round_is_held(job, UINT64_MAX))
        psd_sync_advance_all(job, ready);
    return v;
}

static enum ps_code check_run(struct psd_request *t, const Paramserver__V1__PrepareHyperRequest *r)
{
    t->job = psd_job_find(t->core, r->job);
    if (!t->job || !atomic_load(&t->job->declared))
        return ps_fail(&t->error, PS_NOT_FOUND, "prepare hyper: ps task %" PRIu32 " has no job '%.128s'",
                       t->core->config.task, r->job);
    if (t->core->config.task == 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "prepare hyper: changes are made here, at the control task: ask for one with SetHyper");
    pthread_mutex_lock(&t->job->lock);
    bool same = strcmp(t->job->run_id, r->run_id) == 0;
    pthread_mutex_unlock(&t->job->lock);
    if (!same)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION, "prepare hyper: job '%s' is in another run here than '%.32s'",
                       t->job->name, r->run_id);
    return atomic_load(&t->job->failed) == 2 ? (enum ps_code)psd_request_fail_ended(t) : PS_OK;
}

static enum ps_code check_prepare(struct psd_request *t, const Paramserver__V1__PrepareHyperRequest *r)
{
    double scratch[PS_RULE_MAX_HYPERS];
    struct ps_error *e = &t->error;
    if (r->phase != PREPARE && r->phase != COMMIT && r->phase != FORGET)
        return ps_fail(e, PS_INVALID_ARGUMENT, "prepare hyper: phase %d is none of PREPARE, COMMIT, FORGET",
                       (int)r->phase);
    if (r->change == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "prepare hyper: changes are counted from 1");
    if (ps_rule_set(t->job->rule, scratch, r->name, r->value, e))
        return ps_error_prefix(e, "prepare hyper");
    if (is_sync(t->job) ? r->round == 0 : r->round != 0 || r->phase != COMMIT)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       is_sync(t->job) ? "prepare hyper: a change of a sync job names its round, from 1"
                                       : "prepare hyper: a job without rounds takes COMMIT alone, for round 0");
    return PS_OK;
}

int psd_prepare_hyper(struct psd_request *t)
{
    const Paramserver__V1__PrepareHyperRequest *r = (const Paramserver__V1__PrepareHyperRequest *)t->request;
    Paramserver__V1__PrepareHyperReply out = PARAMSERVER__V1__PREPARE_HYPER_REPLY__INIT;
    if (check_run(t, r) || check_prepare(t, r))
        return (int)t->error.code;
    const struct psd_change change = {r->change, r->round, psd_hyper_find(t->job->rule, r->name), r->value};
    struct verdict v = take(t->core, t->job, r->phase, &change, &t->ready);
    if (v.code == PS_FAILED_PRECONDITION)
        return ps_fail(&t->error, v.code, "prepare hyper: change %" PRIu64 " is not prepared here", r->change);
    if (v.code)
        return ps_fail(&t->error, v.code, "prepare hyper: %d changes wait for their rounds already", PSD_MAX_CHANGES);
    out.generation = t->core->generation;
    out.prepared = v.prepared;
    out.round = v.greatest;
    return psd_request_reply(t, &out.base, NULL);
}

// ---- the control task: phases -------------------------------------------------------------------------------------

// All of these: job locked.

static void begin_phase(struct psd_core *core, struct psd_hyper_change *x, phase_t phase)
{
    x->phase = phase;
    x->begun = psd_now(core);
    for (uint32_t i = 0; i < x->tasks; i++)
        x->answers[i] = TO_ASK;
}

static void begin_try(struct psd_core *core, struct psd_job *job, uint64_t round)
{
    struct psd_hyper_change *x = job->tuning;
    x->change.number++;
    x->change.round = round;
    x->too_late = false;
    begin_phase(core, x, is_sync(job) ? PREPARE : COMMIT);
}

// The owner is told, and the others may ask again when all tasks know.
static void set_outcome(struct psd_hyper_change *x, struct psd_call **ready)
{
    x->outcome = x->owner != NULL;
    psd_ready_all(ready, &x->waiting);
}

static void give_up(struct psd_core *core, struct psd_hyper_change *x, struct psd_call **ready)
{
    begin_phase(core, x, FORGET);
    set_outcome(x, ready);
}

static bool have_all_answered(const struct psd_hyper_change *x)
{
    for (uint32_t i = 0; i < x->tasks; i++)
        if (x->answers[i] != ANSWERED)
            return false;
    return true;
}

static uint32_t first_silent(const struct psd_hyper_change *x)
{
    uint32_t task = 0;
    while (task < x->tasks && x->answers[task] == ANSWERED)
        task++;
    return task;
}

// A task has answered in this phase.
static void take_verdict(struct psd_core *core, struct psd_job *job, uint32_t task, const struct verdict *v,
                         struct psd_call **ready)
{
    struct psd_hyper_change *x = job->tuning;
    x->answers[task] = ANSWERED;
    x->greatest = v->greatest > x->greatest ? v->greatest : x->greatest;
    if (x->phase != PREPARE || v->prepared)
        return;
    if (v->code == PS_OK && x->asked) {
        ps_fail(&x->error, PS_OUT_OF_RANGE,
                "set hyper: round %" PRIu64 " is closed on ps task %" PRIu32 ", which has closed %" PRIu64
                ": name a later one, or none",
                x->asked, task, v->greatest);
        give_up(core, x, ready);
    } else if (v->code == PS_OK) {
        x->too_late = true;
        begin_phase(core, x, FORGET);
    } else {
        ps_fail(&x->error, v->code, "set hyper: ps task %" PRIu32 " does not take %s = %g: %s", task,
                name_of(job, &x->change), x->change.value,
                v->code == PS_RESOURCE_EXHAUSTED ? "too many changes wait for their rounds there"
                                                 : ps_code_name(v->code));
        give_up(core, x, ready);
    }
}

// Goes from a phase that is over to the next one. False: it is not over, or nothing follows.
static bool end_phase(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_hyper_change *x = job->tuning;
    if (x->phase == NONE || !have_all_answered(x))
        return false;
    if (x->phase == PREPARE) {
        begin_phase(core, x, COMMIT);
        return true;
    }
    if (x->phase == FORGET && x->too_late) {
        x->ahead = x->ahead < AHEAD_MAX ? 2 * x->ahead : x->ahead;
        begin_try(core, job, x->greatest + x->ahead);
        return true;
    }
    if (x->phase == COMMIT && is_sync(job))
        ps_info("job '%s': %s is %g from round %" PRIu64 " on", job->name, name_of(job, &x->change), x->change.value,
                x->change.round);
    else if (x->phase == COMMIT)
        ps_info("job '%s': %s is %g now", job->name, name_of(job, &x->change), x->change.value);
    if (x->phase == COMMIT)
        x->error.code = PS_OK;
    begin_phase(core, x, NONE);
    set_outcome(x, ready);
    return false;
}

static bool is_stuck(const struct psd_hyper_change *x, uint64_t now)
{
    return x->phase != NONE && now >= x->begun + SILENT_MS * PS_MS && !have_all_answered(x);
}

// What is not begun everywhere is given up; what goes on keeps nobody waiting: they ask again, and are told.
static void check_time(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_hyper_change *x = job->tuning;
    uint64_t now = psd_now(core);
    if (!is_stuck(x, now))
        return;
    if (x->phase != PREPARE) {
        psd_ready_all(ready, &x->waiting);
        return;
    }
    ps_fail(&x->error, PS_UNAVAILABLE,
            "set hyper: ps task %" PRIu32 " has not answered for %.1f s; nothing has changed", first_silent(x),
            (double)(now - x->begun) / (double)PS_SECOND);
    give_up(core, x, ready);
}

// ---- the control task: messages -----------------------------------------------------------------------------------

// A PrepareHyper under way. It holds a reference on the job.
struct asking {
    struct psd_core *core;
    struct psd_job *job;
    uint32_t task;
    phase_t phase;
    struct psd_change change;
};

static void go_on(struct psd_core *core, struct psd_job *job, struct psd_call **ready);

static struct verdict read_reply(phase_t phase, enum ps_code code, const struct ps_slices *reply)
{
    struct verdict v = {.code = code};
    struct ps_slices nothing = PS_ROPE_EMPTY;
    ProtobufCMessage *m = NULL;
    if (code == PS_OK)
        v.code = ps_msg_unpack(&paramserver__v1__prepare_hyper_reply__descriptor, reply, &m, &nothing, NULL);
    if (v.code == PS_OK) {
        v.prepared = phase == PREPARE && ((Paramserver__V1__PrepareHyperReply *)m)->prepared;
        v.greatest = ((Paramserver__V1__PrepareHyperReply *)m)->round;
    }
    ps_slices_clear(&nothing);
    ps_msg_free(m);
    return v;
}

// Has the task been heard? Where it may not have been, cannot know yet or has no memory, it is asked again at the next
// tick.
static bool is_answer(phase_t phase, enum ps_code code)
{
    return code == PS_OK || (phase == PREPARE && code != PS_UNAVAILABLE && code != PS_DEADLINE_EXCEEDED &&
                             code != PS_CANCELLED && code != PS_UNKNOWN && code != PS_RESOURCE_EXHAUSTED);
}

static void on_answer(void *arg, enum ps_code code, const struct ps_slices *reply)
{
    struct asking *a = arg;
    struct psd_hyper_change *x = a->job->tuning;
    struct psd_call *ready = NULL;
    struct verdict v = read_reply(a->phase, code, reply);
    pthread_mutex_lock(&a->job->lock);
    bool current = x->phase == a->phase && x->change.number == a->change.number && x->answers[a->task] == ASKED;
    if (current && is_answer(a->phase, v.code))
        take_verdict(a->core, a->job, a->task, &v, &ready);
    else if (current)
        x->answers[a->task] = TO_ASK;
    pthread_mutex_unlock(&a->job->lock);
    if (current && is_answer(a->phase, v.code))
        go_on(a->core, a->job, &ready);
    psd_run_ready(a->core, ready);
    psd_job_unref(a->core, a->job);
    free(a);
}

// Job locked. False: there is no memory for it; the next tick tries again.
static bool pack(const struct psd_job *job, const struct asking *a, struct ps_slices *message)
{
    Paramserver__V1__PrepareHyperRequest m = PARAMSERVER__V1__PREPARE_HYPER_REQUEST__INIT;
    m.job = job->name;
    m.run_id = (char *)job->run_id;
    m.change = a->change.number;
    m.name = (char *)name_of(job, &a->change);
    m.value = a->change.value;
    m.round = a->change.round;
    m.phase = a->phase;
    ps_msg_pack(&m.base, NULL, message);
    return !message->broken;
}

// Job locked. The next task but this one that is to be asked, with what; NULL: none.
static struct asking *next_message(struct psd_core *core, struct psd_job *job, struct ps_slices *message)
{
    struct psd_hyper_change *x = job->tuning;
    uint32_t task = 1;
    while (task < x->tasks && x->answers[task] != TO_ASK)
        task++;
    struct asking *a = x->phase != NONE && task < x->tasks ? ps_try_alloc(sizeof *a) : NULL;
    if (!a)
        return NULL;
    *a = (struct asking){core, job, task, x->phase, x->change};
    if (!pack(job, a, message)) {
        ps_slices_clear(message);
        free(a);
        return NULL;
    }
    x->answers[task] = ASKED;
    return a;
}

static void ask_others(struct psd_core *core, struct psd_job *job)
{
    struct asking *a;
    do {
        struct ps_slices message = PS_ROPE_EMPTY;
        pthread_mutex_lock(&job->lock);
        a = next_message(core, job, &message);
        pthread_mutex_unlock(&job->lock);
        if (!a)
            return;
        pthread_mutex_lock(&core->table);
        job->refs++;
        pthread_mutex_unlock(&core->table);
        core->world.send(core->world.ctx, a->task, PARAMSERVER__V1__METHOD__PREPARE_HYPER, &message, on_answer, a);
    } while (true);
}

// The control task's own part in the phase.
static void ask_self(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    struct psd_hyper_change *x = job->tuning;
    pthread_mutex_lock(&job->lock);
    const phase_t phase = x->phase;
    const struct psd_change change = x->change;
    bool now = phase != NONE && x->answers[0] == TO_ASK;
    if (now)
        x->answers[0] = ASKED;
    pthread_mutex_unlock(&job->lock);
    if (!now)
        return;
    struct verdict v = take(core, job, phase, &change, ready);
    pthread_mutex_lock(&job->lock);
    if (x->phase == phase && x->change.number == change.number)
        take_verdict(core, job, 0, &v, ready);
    pthread_mutex_unlock(&job->lock);
}

// Asks whom the phase has not asked yet, and goes through as many phases as are over. No lock held.
static void go_on(struct psd_core *core, struct psd_job *job, struct psd_call **ready)
{
    bool next;
    do {
        ask_self(core, job, ready);
        ask_others(core, job);
        pthread_mutex_lock(&job->lock);
        next = end_phase(core, job, ready) || (job->tuning->phase != NONE && job->tuning->answers[0] == TO_ASK);
        pthread_mutex_unlock(&job->lock);
    } while (next);
}

// ---- SetHyper -----------------------------------------------------------------------------------------------------

static enum ps_code check_job(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r)
{
    struct ps_error *e = &t->error;
    if (t->core->config.task != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "set hyper: this is ps task %" PRIu32 ", hyperparameters are changed at task 0",
                       t->core->config.task);
    t->job = psd_job_find(t->core, r->job);
    if (!t->job)
        return ps_fail(e, PS_NOT_FOUND, "set hyper: there is no job '%.128s'", r->job);
    if (!atomic_load(&t->job->declared) || !psd_control_declared(t->job))
        return ps_fail(e, PS_FAILED_PRECONDITION, "set hyper: job '%s' is not declared yet", t->job->name);
    if (r->round && !is_sync(t->job))
        return ps_fail(e, PS_INVALID_ARGUMENT, "set hyper: job '%s' is not sync: it has no rounds", t->job->name);
    return PS_OK;
}

static int check_alive(struct psd_request *t)
{
    return atomic_load(&t->job->failed) == 2 ? psd_request_fail_ended(t) : PS_OK;
}

// The value, beside all others that are in force or to come.
static enum ps_code check_value(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r)
{
    struct psd_job *job = t->job;
    double hyper[PS_RULE_MAX_HYPERS];
    pthread_rwlock_rdlock(&job->cut);
    for (int i = 0; i < PS_RULE_MAX_HYPERS; i++)
        hyper[i] = psd_hyper_of_job(job, i, UINT64_MAX);
    pthread_rwlock_unlock(&job->cut);
    if (ps_rule_set(job->rule, hyper, r->name, r->value, &t->error) || ps_rule_check(job->rule, hyper, &t->error))
        return ps_error_prefix(&t->error, "set hyper");
    return PS_OK;
}

// All of these: job locked.

static int claim_outcome(struct psd_request *t, uint64_t *round)
{
    struct psd_hyper_change *x = t->job->tuning;
    x->owner = NULL;
    x->outcome = false;
    t->error = x->error;
    *round = x->change.round;
    if (x->phase == NONE)
        psd_ready_all(&t->ready, &x->waiting);
    return (int)t->error.code;
}

static int start(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r, uint64_t greatest)
{
    struct psd_hyper_change *x = t->job->tuning;
    if (r->round && r->round <= greatest)
        return ps_fail(&t->error, PS_OUT_OF_RANGE,
                       "set hyper: round %" PRIu64 " is closed already, the last one is %" PRIu64
                       ": name a later one, or none",
                       r->round, greatest);
    int code = psd_park(t, &x->waiting);
    if (code != PSD_PARKED)
        return code;
    x->owner = t->call;
    x->outcome = false;
    x->error = (struct ps_error){PS_OK, ""};
    x->change.hyper = psd_hyper_find(t->job->rule, r->name);
    x->change.value = r->value;
    x->asked = r->round;
    x->ahead = AHEAD;
    x->greatest = greatest;
    begin_try(t->core, t->job, is_sync(t->job) ? r->round ? r->round : greatest + AHEAD : 0);
    return code;
}

// A task does not answer: what is said to it is said until it does, but not for this caller.
static int fail_stuck(struct psd_request *t, uint64_t now)
{
    struct psd_hyper_change *x = t->job->tuning;
    double seconds = (double)(now - x->begun) / (double)PS_SECOND;
    bool own = x->owner == t->call;
    if (own && x->phase == COMMIT)
        return ps_fail(&t->error, PS_UNAVAILABLE,
                       "set hyper: %s becomes %g, and ps task %" PRIu32 " has not heard of it for %.1f s: it will when "
                       "it answers",
                       name_of(t->job, &x->change), x->change.value, first_silent(x), seconds);
    if (own)
        x->too_late = false;  // there is no other try
    return ps_fail(&t->error, PS_UNAVAILABLE,
                   "set hyper: ps task %" PRIu32 " has not answered for %.1f s, and must hear of an earlier change "
                   "first; nothing has changed",
                   first_silent(x), seconds);
}

// The round that uses the change, when all tasks have it. Job locked.
static int set_hyper(struct psd_request *t, const Paramserver__V1__SetHyperRequest *r, uint64_t greatest,
                     uint64_t *round)
{
    struct psd_hyper_change *x = t->job->tuning;
    uint64_t now = psd_now(t->core), since = t->call->parked_since;
    if (x->owner == t->call && x->outcome)
        return claim_outcome(t, round);
    if (is_stuck(x, now) && since && now >= since + SILENT_MS * PS_MS)
        return fail_stuck(t, now);
    if (x->owner || x->phase != NONE)
        return psd_park(t, &x->waiting);
    return check_value(t, r) ? (int)t->error.code : start(t, r, greatest);
}

int psd_set_hyper(struct psd_request *t)
{
    const Paramserver__V1__SetHyperRequest *r = (const Paramserver__V1__SetHyperRequest *)t->request;
    Paramserver__V1__SetHyperReply out = PARAMSERVER__V1__SET_HYPER_REPLY__INIT;
    uint64_t greatest, least;
    if (check_job(t, r))
        return (int)t->error.code;
    decided_rounds(t->job, &greatest, &least);
    pthread_mutex_lock(&t->job->lock);
    int code = check_alive(t);
    if (code == PS_OK)
        code = set_hyper(t, r, greatest, &out.round);
    if (code != PSD_PARKED && t->job->tuning->owner == t->call)
        t->job->tuning->owner = NULL;
    pthread_mutex_unlock(&t->job->lock);
    if (code == PSD_PARKED)
        go_on(t->core, t->job, &t->ready);
    out.generation = t->core->generation;
    return code == PS_OK ? psd_request_reply(t, &out.base, NULL) : code;
}

// ---- time ---------------------------------------------------------------------------------------------------------

// Job locked.
static void log_held(struct psd_job *job, uint64_t now)
{
    struct psd_hyper_change *x = job->tuning;
    if (!x->prepared.number || x->logged || now < x->since + HELD_TOO_LONG * PS_MS)
        return;
    x->logged = true;
    ps_warn("job '%s': rounds from %" PRIu64 " on have waited for %.1f s to hear from ps task 0 whether %s becomes %g",
            job->name, x->prepared.round, (double)(now - x->since) / (double)PS_SECOND, name_of(job, &x->prepared),
            x->prepared.value);
}

void psd_hyper_change_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready)
{
    if (!atomic_load(&job->declared) || atomic_load(&job->failed) == 2)
        return;
    pthread_mutex_lock(&job->lock);
    log_held(job, now);
    bool under_way = job->tuning->phase != NONE;
    if (under_way)
        check_time(core, job, ready);
    pthread_mutex_unlock(&job->lock);
    if (under_way)
        go_on(core, job, ready);
}

static bool is_in(const struct psd_waiters *list, const struct psd_call *call)
{
    const struct psd_call *at = list->first;
    while (at && at != call)
        at = at->next;
    return at != NULL;
}

// Job locked.
static void say_what(const struct psd_job *job, char *what, char *whom, size_t size)
{
    const struct psd_hyper_change *x = job->tuning;
    uint32_t silent = first_silent(x);
    snprintf(what, size, "%s to become %g on all ps tasks", name_of(job, &x->change), x->change.value);
    whom[0] = '\0';
    if (x->phase != NONE && silent < x->tasks)
        snprintf(whom, size, "ps task %" PRIu32, silent);
}

bool psd_hyper_change_walk(struct psd_job *job, bool (*look)(struct psd_waiters *list, void *arg), void *arg,
                           char *what, char *whom, size_t size)
{
    bool wanted = false;
    if (!atomic_load(&job->declared))
        return false;
    pthread_mutex_lock(&job->lock);
    struct psd_hyper_change *x = job->tuning;
    if (x->waiting.n) {
        bool parked = is_in(&x->waiting, x->owner);
        wanted = look(&x->waiting, arg);
        if (parked && !is_in(&x->waiting, x->owner))
            x->owner = NULL;  // it is answered otherwise; the change goes on
    }
    if (wanted)
        say_what(job, what, whom, size);
    pthread_mutex_unlock(&job->lock);
    return wanted;
}
