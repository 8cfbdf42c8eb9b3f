// SPDX-License-Identifier: Apache-2.0
//
// Declare and Describe. The chief declares on every task, the control task last: once that has answered, the
// whole cluster knows the job.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/wire/codec.h"
#include "psd/control/state.h"
#include "psd/job/declaration.h"
#include "psd/service/service.h"
#include "psd/sync/sync.h"

typedef Paramserver__V1__DeclareRequest declare_t;

static enum ps_code check_update(const declare_t *r, struct ps_error *e)
{
    if (r->update != PARAMSERVER__V1__UPDATE__ASYNC && r->update != PARAMSERVER__V1__UPDATE__SSP &&
        r->update != PARAMSERVER__V1__UPDATE__SYNC)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: update is %d; expected async, sync or ssp (1 to 3)",
                       (int)r->update);
    if (r->staleness && r->update != PARAMSERVER__V1__UPDATE__SSP)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: a bound of the staleness, %" PRIu32 ", is for ssp jobs alone",
                       r->staleness);
    if (r->replicas_to_aggregate && r->update != PARAMSERVER__V1__UPDATE__SYNC)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: replicas to aggregate, %" PRIu32 ", are for sync jobs alone",
                       r->replicas_to_aggregate);
    if (r->replicas_to_aggregate > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "declare: %" PRIu32 " replicas to aggregate of %" PRIu32 " workers; expected no more than these",
                       r->replicas_to_aggregate, r->workers);
    if (r->grace_ms && !r->replicas_to_aggregate)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "declare: %" PRIu32 " ms of grace without replicas to aggregate: all are waited for anyway",
                       r->grace_ms);
    if (r->grace_ms > PSD_GRACE_MS_MAX)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: %" PRIu32 " ms of grace; expected at most %d", r->grace_ms,
                       PSD_GRACE_MS_MAX);
    return PS_OK;
}

enum {
    DESCRIBED_HYPER = 2 + 2 + (1 + 8),            // bytes in a description, and the name's
    DESCRIBED_JOB = 4096 + 64 * PSD_MAX_CHANGES,  // what is no list of variables or partitions, with changes by hand
};

// Of a message in a list, which has so much besides what it has here.
static size_t declare_bytes_in_list(const ProtobufCMessage *m, size_t more)
{
    const size_t bytes = protobuf_c_message_get_packed_size(m) + more;
    return ps_length_size(bytes) + bytes;
}

// Of all hyperparameters of a rule: a description names those, too, that the declaration leaves out.
static size_t declare_rule_bytes(const char *name)
{
    const struct ps_rule *rule = ps_rule_find(name);
    size_t bytes = 0;
    for (int i = 0; rule && i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++)
        bytes += DESCRIBED_HYPER + strlen(rule->hyper[i].name);
    return bytes;
}

// Bytes of a description of the job, at most, without the state of its partitions; *names: of them the variables'.
static size_t declare_description_bytes(const declare_t *r, size_t *names)
{
    size_t bytes = DESCRIBED_JOB + declare_rule_bytes(r->rule);
    *names = 0;
    if (r->schedule)
        bytes += declare_bytes_in_list(&r->schedule->base, 0);
    for (size_t i = 0; i < r->n_variables; i++) {
        const Paramserver__V1__Variable *v = r->variables[i];
        *names += strlen(v->name);
        bytes += declare_bytes_in_list(&v->base, v->rule[0] ? declare_rule_bytes(v->rule) : 0);
    }
    for (size_t i = 0; i < r->n_partitions; i++)
        bytes += declare_bytes_in_list(&r->partitions[i]->base, 0);
    return bytes;
}

// All who attach get the description in one message.
static enum ps_code check_description(const declare_t *r, struct ps_error *e)
{
    size_t names;
    const size_t bytes = declare_description_bytes(r, &names);
    if (bytes <= PS_HEADER_MAX)
        return PS_OK;
    return ps_fail(e, PS_INVALID_ARGUMENT,
                   "declare: a description of %zu variables takes %zu bytes, their names %zu of them; expected at most "
                   "%d: shorter names, fewer variables or partitions, or fewer rules of their own",
                   r->n_variables, bytes, names, PS_HEADER_MAX);
}

static enum ps_code check_request(struct psd_request *t, const declare_t *r)
{
    const struct psd_config *c = &t->core->config;
    struct ps_error *e = &t->error;
    if (check_update(r, e))
        return e->code;
    if (psd_check_on_existing(r->on_existing, e))
        return ps_error_prefix(e, "declare");
    if (t->caller->run == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: the request names no run; expected the one that Join gave");
    if (r->workers == 0 || r->workers > PS_MAX_WORKERS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: %" PRIu32 " workers; expected 1 to %d", r->workers,
                       PS_MAX_WORKERS);
    if (r->tasks != c->tasks || r->task != c->task)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "declare: meant for ps task %" PRIu32 " of %" PRIu32 ", this is %" PRIu32 " of %" PRIu32
                       ": the cluster descriptions differ",
                       r->task, r->tasks, c->task, c->tasks);
    if (r->n_variables == 0 || r->n_variables > PSD_MAX_VARIABLES)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: %zu variables; expected 1 to %d", r->n_variables,
                       PSD_MAX_VARIABLES);
    if (r->n_partitions > PS_MAX_PARTITIONS)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: %zu partitions; expected at most %d", r->n_partitions,
                       PS_MAX_PARTITIONS);
    if (t->caller->worker == 0 || t->caller->worker > r->workers)
        return ps_fail(e, PS_INVALID_ARGUMENT, "declare: the caller is not a worker of the job");
    return check_description(r, e);
}

static bool is_mine(const struct psd_job *job, const struct psd_request *t)
{
    return memcmp(job->declared_by, t->caller->client.data, sizeof job->declared_by) == 0;
}

// Has the job, which is declared, been declared here in the run that the request is of?
static bool is_this_run(const struct psd_request *t, struct psd_job *job)
{
    if (t->core->config.task == 0)
        return psd_control_declared(job);
    return atomic_load(&job->run) == t->caller->run;
}

// A declaration of an earlier run that comes late must not touch this one. Table lock held; job may be NULL.
static int declare_check_run(struct psd_request *t, struct psd_job *job)
{
    uint64_t run = t->caller->run,
             known = job ? atomic_load(&job->run) : psd_runs_past(&t->core->table.runs, t->caller->job);
    if (run < known || (run == known && !job))
        return ps_fail(&t->error, PS_ABORTED,
                       "job '%s' is declared for run %" PRIu64 ", which has ended: its last one here is %" PRIu64,
                       t->caller->job, run, known);
    if (run > known && job && t->core->config.task == 0)
        return ps_fail(&t->error, PS_UNAVAILABLE,
                       "job '%s' is declared for run %" PRIu64 ", of which ps task 0 has not heard yet", t->caller->job,
                       run);
    return PS_OK;
}

// Whose a job is, is the control task's to say: elsewhere one that it has not told of its members, in that run, is
// nobody's yet. Table lock held.
static bool declare_is_confirmed(struct psd_job *job)
{
    pthread_mutex_lock(&job->lock);
    const bool confirmed = job->host->task == 0 || job->view;
    pthread_mutex_unlock(&job->lock);
    return confirmed;
}

// Is it another declaration by the same client, in the run that the one before was of, which some task has refused? The
// control task, which is asked last, has not confirmed it. A copy that comes late corrects nothing.
static bool declare_corrects(const struct psd_request *t, struct psd_job *job, const declare_t *r)
{
    return is_this_run(t, job) && is_mine(job, t) && !job->resumed && job->digest != psd_declaration_digest(r) &&
           t->caller->sequence > job->declared_sequence && !declare_is_confirmed(job);
}

// May a declaration go ahead where the job has been declared already? Table lock held.
static int check_existing(struct psd_request *t, struct psd_job *job, const declare_t *r)
{
    bool same = job->digest == psd_declaration_digest(r);
    if (is_this_run(t, job) && is_mine(job, t) && same)
        return PS_OK;
    if (is_this_run(t, job))
        return ps_fail(&t->error, PS_ALREADY_EXISTS, "job '%s' has been declared in this run already%s", job->name,
                       same ? ", by another chief" : ", otherwise");
    // Who may have the name is the control task's to say: what is elsewhere is of a job that it has lost.
    if (r->on_existing == PARAMSERVER__V1__ON_EXISTING__REFUSE && t->core->config.task == 0)
        return ps_fail(&t->error, PS_ALREADY_EXISTS, "job '%s' exists: resume it, replace it, or choose another name",
                       job->name);
    if (r->on_existing == PARAMSERVER__V1__ON_EXISTING__RESUME && !same)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "job '%s' exists with other variables, partitions, workers or hyperparameters: it can only be "
                       "resumed as it was",
                       job->name);
    if (r->on_existing == PARAMSERVER__V1__ON_EXISTING__REPLACE && t->core->config.task == 0)
        return ps_fail(&t->error, PS_FAILED_PRECONDITION,
                       "job '%s' was joined to be resumed: it would have been replaced when its chief joined",
                       job->name);
    return PS_OK;
}

// Goes on with the old values in a new run, which the control task has begun when it was joined. Calls of the run
// before are answered; what it had staged is forgotten.
static void declare_resume_run(struct psd_job *job, uint64_t run, uint64_t resumed_round, struct psd_call **ready)
{
    pthread_mutex_lock(&job->lock);
    psd_job_set_run(job, run, true);
    job->resumed_round = resumed_round ? resumed_round : psd_sync_last_closed(job) + 1;
    psd_job_reset_incarnations(job);
    pthread_mutex_unlock(&job->lock);
    if (job->host->task != 0)
        psd_job_collect(job, ready);
    psd_job_begin_run(job, ready);
}

// Table lock held. Puts a new job into the table, in place of that one (may be NULL), which stays where there is no
// memory.
static struct psd_job *claim_new(struct psd_request *t, struct psd_job *old)
{
    struct psd_job *job = psd_job_new(t->caller->job, t->call->from, &t->core->host);
    if (!job) {
        ps_no_memory(&t->error, "another job");
        return NULL;
    }
    atomic_store(&job->run, t->caller->run);
    if (old) {
        psd_job_ref(old);
        t->gone = old;
        psd_job_remove(&t->core->table, old, "it was replaced", &t->ready);
    }
    psd_job_install(&t->core->table, job);
    return job;
}

// Another user's job has the name here: may it go? Not for a run that is known to be over, nor where it is that user's:
// of what the control task has never told that is not said; of what it has told, or has values of an earlier run, it is
// asked again.
static enum ps_code declare_check_other(struct psd_request *t, struct psd_job *job)
{
    const bool confirmed = declare_is_confirmed(job) || job->resumed;
    if (confirmed && (t->core->config.task == 0 || t->caller->run <= atomic_load(&job->run)))
        return psd_request_check_owner(t, job);
    const enum psd_watch_owner owner = confirmed ? psd_watch_owner(job) : PSD_OWNER_IS_GONE;
    if (owner == PSD_OWNER_STAYS)
        return psd_request_check_owner(t, job);
    if (owner == PSD_OWNER_UNKNOWN)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is %s's here: ps task 0 is asked whether it still is",
                       job->name, job->user->name);
    if (job->declaring)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is being declared", job->name);
    return (enum ps_code)declare_check_run(t, NULL);
}

// The job of this name; *job may be NULL. One of another user's goes, where it is nobody's yet, or nobody's any more.
static enum ps_code declare_find_own(struct psd_request *t, struct psd_job **job)
{
    struct psd_table *table = &t->core->table;
    *job = psd_job_lookup(table, t->caller->job);
    if (!*job || psd_request_owns(t, *job))
        return PS_OK;
    if (declare_check_other(t, *job))
        return t->error.code;
    psd_job_ref(*job);
    t->gone = *job;
    psd_job_remove(table, *job, "another user has its name now", &t->ready);
    *job = NULL;
    return PS_OK;
}

enum claim { CLAIM_FRESH, CLAIM_RESUMES, CLAIM_REPEATED };

// What stands under this name already; table lock held. PS_OK with t->job: it is to be declared afresh, to go on with
// its values in a new run, or has been declared by this client.
static int declare_claim_name(struct psd_request *t, const declare_t *r, enum claim *claim)
{
    struct psd_job *job;
    if (declare_find_own(t, &job) || declare_check_run(t, job))
        return (int)t->error.code;
    const bool failed = job && t->core->config.task == 0 && psd_job_has_failed(job);
    if (failed)
        return ps_fail(&t->error, PS_ABORTED, "job '%s' has ended: %s", job->name, job->failure);
    if (t->core->config.task == 0 && !psd_control_may_declare(job, r, &t->error))
        return (int)t->error.code;
    if (job && job->declaring)
        return ps_fail(&t->error, PS_UNAVAILABLE, "job '%s' is being declared", job->name);
    const bool exists = job && atomic_load(&job->declared), corrects = exists && declare_corrects(t, job, r);
    if (exists && !corrects && check_existing(t, job, r))
        return (int)t->error.code;
    const bool mine = exists && !corrects && is_this_run(t, job);
    // At task 0 it was let in, or not, when it was joined.
    if (t->core->config.task != 0 && !mine && psd_refuse_when_draining(t))
        return (int)t->error.code;
    const bool replaces = corrects || (exists && !mine && r->on_existing != PARAMSERVER__V1__ON_EXISTING__RESUME);
    if (!job && psd_refuse_when_draining(t))
        return (int)t->error.code;
    if (!job && psd_job_make_place(&t->core->table, t->call->from, &t->gone, &t->ready, &t->error))
        return (int)t->error.code;
    if ((!job || replaces) && !(job = claim_new(t, job)))
        return (int)t->error.code;
    *claim = mine ? CLAIM_REPEATED : exists && !replaces ? CLAIM_RESUMES : CLAIM_FRESH;
    psd_job_ref(job);
    t->job = job;
    if (*claim == CLAIM_RESUMES) {
        job->resumed = true;
        job->resumptions++;
    }
    job->declaring = *claim != CLAIM_REPEATED;
    memcpy(job->declared_by, t->caller->client.data, sizeof job->declared_by);
    job->declared_sequence = t->caller->sequence;
    return PS_OK;
}

// Table lock held. There is no room: which of the user's jobs have ended, and hold how much?
static void declare_name_ended(struct psd_request *t)
{
    const struct psd_job *first = NULL;
    uint64_t bytes = 0;
    for (struct psd_job *job = t->core->table.oldest; job; job = job->newer) {
        pthread_mutex_lock(&job->lock);
        const bool over = psd_job_is_over(job);
        pthread_mutex_unlock(&job->lock);
        if (!over || job == t->job || !psd_request_owns(t, job) || !atomic_load(&job->store.page_bytes))
            continue;
        bytes += atomic_load(&job->store.page_bytes);
        first = first ? first : job;
    }
    const size_t len = strlen(t->error.text);
    if (first)
        snprintf(t->error.text + len, sizeof t->error.text - len,
                 "; jobs that have ended hold %" PRIu64 " bytes: psctl stop %.128s", bytes, first->name);
}

// Blocks are made outside the table lock: that may take seconds, and other jobs go on.
static int declare_job(struct psd_request *t, const declare_t *r)
{
    int code = psd_job_declare(t->job, r, t->core->config.task, &t->error);
    if (code == PS_OK && t->core->config.task == 0)
        psd_control_set_declared(t->job, &t->ready);
    pthread_mutex_lock(&t->core->table.lock);
    t->job->declaring = false;
    if (code == PS_RESOURCE_EXHAUSTED)
        declare_name_ended(t);
    if (code != PS_OK && t->core->config.task != 0)
        psd_job_remove(&t->core->table, t->job, t->error.text, &t->ready);
    psd_ready_all(&t->ready, &t->core->table.joining);
    pthread_mutex_unlock(&t->core->table.lock);
    if (code == PS_FAILED_PRECONDITION)  // it never fits; what lacks room for now is asked for again and again
        ps_warn("job '%s' is refused: %s", t->caller->job, t->error.text);
    if (code != PS_OK)
        return code;
    pthread_mutex_lock(&t->job->lock);
    psd_ready_after(&t->ready, &t->job->waiting, t->caller->worker);
    pthread_mutex_unlock(&t->job->lock);
    ps_debug("job '%s': %" PRIu32 " variables, %" PRIu64 " bytes here", t->job->name, t->job->n_variables,
             (uint64_t)atomic_load(&t->job->store.page_bytes));
    return psd_job_has_failed(t->job) ? psd_request_fail_ended(t) : PS_OK;
}

// Outside the table lock, too: the gradients of all rounds are forgotten, and every block is looked at.
static int declare_resume(struct psd_request *t)
{
    struct psd_table *table = &t->core->table;
    const bool control = t->core->config.task == 0;
    const declare_t *r = (const declare_t *)t->request;
    declare_resume_run(t->job, t->caller->run, r->resumed_round, &t->ready);
    if (control) {
        // The others hear of what they have missed before workers train.
        psd_agree_press_on(t->job, psd_now(t->core), &t->ready);
        psd_control_set_declared(t->job, &t->ready);
    }
    pthread_mutex_lock(&table->lock);
    if (!control && psd_job_lookup(table, t->job->name) == t->job)  // it may have been stopped meanwhile
        psd_job_set_run(t->job, t->caller->run, false);
    t->job->declaring = false;
    psd_ready_all(&t->ready, &table->joining);  // Describe(wait) of this run
    pthread_mutex_unlock(&table->lock);
    return psd_job_has_failed(t->job) ? psd_request_fail_ended(t) : PS_OK;
}

// Job locked, which is declared. The caller is to train next: not before all tasks have the changes of the run before.
static int declare_await_change(struct psd_request *t)
{
    const struct psd_wait wait = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_CHANGE};
    if (!psd_agree_catches_up(t->job))
        return PS_OK;
    return psd_park(t, &t->job->agree->lead.waiting, &t->job->lock, &wait);
}

static int declare_reply(struct psd_request *t)
{
    Paramserver__V1__DeclareReply out = PARAMSERVER__V1__DECLARE_REPLY__INIT;
    pthread_mutex_lock(&t->job->lock);
    int code = declare_await_change(t);
    pthread_mutex_unlock(&t->job->lock);
    if (code != PS_OK)
        return code;
    out.generation = t->core->generation;
    out.resumed = t->job->resumed;
    out.resumptions = t->job->resumptions;
    return psd_request_reply(t, &out.base, NULL);
}

int psd_declare(struct psd_request *t)
{
    const declare_t *r = (const declare_t *)t->request;
    enum claim claim = CLAIM_REPEATED;
    if (check_request(t, r))
        return (int)t->error.code;
    pthread_mutex_lock(&t->core->table.lock);
    int code = declare_claim_name(t, r, &claim);
    pthread_mutex_unlock(&t->core->table.lock);
    psd_drop_gone(t);
    if (code == PS_OK && claim != CLAIM_REPEATED)
        code = claim == CLAIM_FRESH ? declare_job(t, r) : declare_resume(t);
    if (code != PS_OK)
        return code;
    psd_request_wait_with(t, declare_reply, NULL, NULL);
    return declare_reply(t);
}

// ---- describe -----------------------------------------------------------------------------------------------------

static void describe_partition(const struct psd_partition *p, Paramserver__V1__PartitionState *out)
{
    struct psd_round *round = p->round;
    uint64_t updates = 0;
    for (uint32_t k = 0; k < p->n_blocks; k++) {
        struct psd_block *b = &p->blocks[k];
        pthread_mutex_lock(&b->lock);
        out->bytes += b->page->bytes;
        updates += b->version;
        if (k == 0 || b->version < out->version)
            out->version = b->version;
        pthread_mutex_unlock(&b->lock);
    }
    out->blocks = p->n_blocks;
    out->updates = p->n_blocks ? updates / p->n_blocks : 0;
    if (round) {
        pthread_mutex_lock(&round->lock);
        out->round = round->closed;
        pthread_mutex_unlock(&round->lock);
    }
}

// The reply's sub-messages, in arrays that are freed together.
struct description {
    Paramserver__V1__DescribeReply reply;
    Paramserver__V1__Variable *variables;
    Paramserver__V1__Partition *partitions;
    Paramserver__V1__PartitionState *states;
    Paramserver__V1__Hyper *hypers;  // the job's, then those of variables; hyper_list points to them
    Paramserver__V1__Hyper **hyper_list;
    Paramserver__V1__Schedule schedule;
    Paramserver__V1__HyperChange changes[PSD_MAX_CHANGES], *change_list[PSD_MAX_CHANGES];
};

static bool describe_partitions(struct description *d, const struct psd_job *job)
{
    size_t n = job->n_partitions;
    d->partitions = ps_try_alloc_array(n, sizeof *d->partitions);
    d->states = ps_try_alloc_array(n, sizeof *d->states);
    d->reply.partitions = ps_try_alloc_array(n, sizeof(void *));
    d->reply.states = ps_try_alloc_array(n, sizeof(void *));
    if (!d->partitions || !d->states || !d->reply.partitions || !d->reply.states)
        return false;
    d->reply.n_partitions = d->reply.n_states = n;
    for (size_t i = 0; i < n; i++) {
        const struct psd_partition *p = &job->partitions[i];
        paramserver__v1__partition__init(d->reply.partitions[i] = &d->partitions[i]);
        paramserver__v1__partition_state__init(d->reply.states[i] = &d->states[i]);
        d->partitions[i].variable = p->variable;
        d->partitions[i].first = p->first;
        d->partitions[i].count = p->count;
        d->partitions[i].task = p->task;
        if (p->blocks)
            describe_partition(p, &d->states[i]);
    }
    return true;
}

// Appends the hyperparameters of a rule whose bits are set, after the *n there are. Returns how many.
static size_t describe_hypers(struct description *d, const struct ps_rule *rule, const double *hyper, uint32_t which,
                              size_t *n)
{
    size_t before = *n;
    for (int i = 0; i < PS_RULE_MAX_HYPERS && rule->hyper[i].name; i++) {
        if (!(which >> i & 1))
            continue;
        paramserver__v1__hyper__init(d->hyper_list[*n] = &d->hypers[*n]);
        d->hypers[*n].name = (char *)rule->hyper[i].name;
        d->hypers[*n].value = hyper[i];
        ++*n;
    }
    return *n - before;
}

// As declared: what the job's rule or value holds for is not named.
static void describe_variable(struct description *d, struct psd_variable *v, Paramserver__V1__Variable *out, size_t *n)
{
    paramserver__v1__variable__init(out);
    out->name = v->name;
    out->dtype = (Paramserver__V1__DType)v->dtype;
    out->n_shape = v->rank;
    out->shape = v->shape;
    out->trainable = v->trainable;
    if (v->own_rule)
        out->rule = (char *)v->rule->name;
    if (v->own) {
        out->hypers = d->hyper_list + *n;
        out->n_hypers = describe_hypers(d, v->rule, v->hyper, v->own, n);
    }
}

static bool describe_variables(struct description *d, const struct psd_job *job)
{
    size_t n_hypers = PS_RULE_MAX_HYPERS, n = 0;
    for (uint32_t i = 0; i < job->n_variables; i++)
        n_hypers += job->variables[i].own ? PS_RULE_MAX_HYPERS : 0;
    d->hypers = ps_try_alloc_array(n_hypers, sizeof *d->hypers);
    d->hyper_list = ps_try_alloc_array(n_hypers, sizeof(void *));
    d->variables = ps_try_alloc_array(job->n_variables, sizeof *d->variables);
    d->reply.variables = ps_try_alloc_array(job->n_variables, sizeof(void *));
    if (!d->hypers || !d->hyper_list || !d->variables || !d->reply.variables)
        return false;
    d->reply.hypers = d->hyper_list;
    d->reply.n_hypers = describe_hypers(d, job->rule, job->hyper, UINT32_MAX, &n);
    d->reply.n_variables = job->n_variables;
    for (uint32_t i = 0; i < job->n_variables; i++)
        describe_variable(d, &job->variables[i], d->reply.variables[i] = &d->variables[i], &n);
    return true;
}

static void describe_schedule(struct description *d, const struct psd_job *job)
{
    const struct ps_schedule *from = &job->schedule;
    Paramserver__V1__Schedule *to = &d->schedule;
    if (from->kind == PS_SCHEDULE_NONE)
        return;
    paramserver__v1__schedule__init(to);
    to->kind = (char *)ps_schedule_name(from->kind);
    to->boundaries = (uint64_t *)from->boundary;
    to->n_values = from->kind == PS_PIECEWISE ? from->n_boundaries + 1 : 0;
    to->values = (double *)from->value;
#define COPY(name) to->name = from->name;
    PS_SCHEDULE_NUMBERS(COPY)
#undef COPY
    d->reply.schedule = to;
}

static void describe_changes(struct description *d, struct psd_job *job)
{
    pthread_rwlock_rdlock(&job->snapshot_lock);
    for (uint32_t i = 0; i < job->n_changes; i++) {
        paramserver__v1__hyper_change__init(d->change_list[i] = &d->changes[i]);
        d->changes[i].name = (char *)job->rule->hyper[job->changes[i].hyper].name;
        d->changes[i].value = job->changes[i].value;
        d->changes[i].round = job->changes[i].round;
    }
    d->reply.n_changes = job->n_changes;
    d->reply.changes = d->change_list;
    pthread_rwlock_unlock(&job->snapshot_lock);
}

static int describe_reply(struct psd_request *t)
{
    struct psd_job *job = t->job;
    struct description d = {.reply = PARAMSERVER__V1__DESCRIBE_REPLY__INIT};
    int code;
    d.reply.generation = t->core->generation;
    d.reply.update = job->update;
    d.reply.workers = job->workers;
    d.reply.tasks = job->tasks;
    d.reply.task = t->core->config.task;
    d.reply.rule = (char *)job->rule->name;
    d.reply.resumptions = job->resumptions;
    d.reply.block_bytes = PS_BLOCK_BYTES;
    d.reply.replicas_to_aggregate = job->replicas_to_aggregate;
    d.reply.grace_ms = job->grace_ms;
    d.reply.staleness = job->staleness;
    d.reply.run = atomic_load(&job->run);
    describe_schedule(&d, job);
    describe_changes(&d, job);
    const bool whole = describe_variables(&d, job) && describe_partitions(&d, job);
    // Clients decode no more; nobody who trains needs the states.
    if (whole && protobuf_c_message_get_packed_size(&d.reply.base) > PS_HEADER_MAX)
        d.reply.n_states = 0;
    if (whole)
        code = psd_request_reply(t, &d.reply.base, NULL);
    else
        code = (int)ps_no_memory(&t->error, "a description of the job");
    void *const arrays[] = {d.variables,       d.partitions,       d.states,       d.hypers,
                            d.reply.variables, d.reply.partitions, d.reply.states, d.hyper_list};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    return code;
}

// Job locked. By the chief of this run; on tasks other than 0 a run is known by its declaration. A worker finds that it
// is declared when all tasks obey it.
static bool is_declared(const struct psd_request *t)
{
    const struct psd_control *c = t->job->control;
    const struct psd_member *m =
        c && t->caller->worker && t->caller->worker <= c->workers ? &c->members[t->caller->worker - 1] : NULL;
    return atomic_load(&t->job->declared) && t->caller->run <= atomic_load(&t->job->run) &&
           (!c || (c->declared && (!m || psd_view_has_member(c, m))));
}

static const struct psd_wait for_declaration = {.kind = PARAMSERVER__V1__WAIT_KIND__FOR_DECLARATION};

// The job, as it is declared in the caller's run or an earlier one; parks the call where there is none, or one of an
// earlier run alone: what it waits for is the name.
static int describe_find_job(struct psd_request *q)
{
    int code = PS_OK;
    pthread_mutex_lock(&q->core->table.lock);
    struct psd_job *job = psd_job_lookup(&q->core->table, q->caller->job), *before = q->job;
    if (job && atomic_load(&job->run) >= q->caller->run) {
        psd_job_ref(job);
        q->job = job;
    } else {
        q->job = NULL;
        code = psd_park(q, &q->core->table.joining, &q->core->table.lock, &for_declaration);
    }
    pthread_mutex_unlock(&q->core->table.lock);
    psd_job_unref(before);
    return code;
}

int psd_describe(struct psd_request *t)
{
    const Paramserver__V1__DescribeRequest *r = (const Paramserver__V1__DescribeRequest *)t->request;
    int code = PS_OK;
    if (!t->job || (r->wait && t->caller->run > atomic_load(&t->job->run)))
        code = describe_find_job(t);
    if (code != PS_OK)
        return code;
    pthread_mutex_lock(&t->job->lock);
    if (r->wait && !is_declared(t))
        code = psd_park(t, &t->job->waiting, &t->job->lock, &for_declaration);
    else if (!atomic_load(&t->job->declared))
        code = (int)ps_fail(&t->error, PS_FAILED_PRECONDITION, "job '%s' is not declared on ps task %" PRIu32 " yet",
                            t->job->name, t->core->config.task);
    else if (r->wait)
        code = declare_await_change(t);
    pthread_mutex_unlock(&t->job->lock);
    return code == PS_OK ? describe_reply(t) : code;
}
