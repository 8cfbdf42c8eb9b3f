// SPDX-License-Identifier: Apache-2.0
//
// The control task's state machine: what it keeps of a job besides its share of the variables. Who the workers are and
// whether they live, the collective that each is in, what each of them trains next, and the clock of ssp.
//
//     EXPECTED --Join--> LIVE --Leave--> LEFT
//         |               |  \--silence, Leave(failed)--> DEAD
//         |               ^------------------Join------------/ (a later incarnation)
//         \--nobody came in time--> DEAD
//
// Between two epochs the mode may change. Where rounds begin or end with that, all live workers wait for a lease of the
// next one, and all ps tasks agree (agree.h) before anybody gets it.
//
// A worker that waits here, in a collective or for a lease, pushes nothing meanwhile. A sync job therefore excludes it
// from rounds after a while: rounds go on without it, so unequal numbers of batches hang nobody. A worker that joins a
// running sync job is excluded too. When all live workers wait, they go on together: all are included again, and nobody
// is let go before every ps task knows that. A worker whose call has ended without that, and which does not wait again
// soon, trains: it is included, too.
//
// One file per subject; each calls only those above it, which tests/lint/layers.sh sees to:
//     order.h (common)  queues and heaps of ranks     collective.c  Barrier, Reduce
//     state.h, state.c  structs, what is counted      waiting.c     parked calls: whom they wait for, their deadlines
//     view.c            who takes part                member.c      coming, going, silence
//     ssp.c             Clock                         mode.c        SetMode: async, ssp or sync from the next epoch on
//     lease.c           Lease: the epoch's examples   control.c     what goes on after a change; telling the other tasks
// agree.c and propose.c, which mode.c and control.c call; rounds.c and agreement.c, which call them all: agree.h.
//
// Nothing here walks over all members but what concerns all of them: the end of a collective, a sync epoch's
// assignments.
//
// Receives from: service, which decodes, calls one function here, then psd_control_advance, then, unlocked,
// psd_control_broadcast. Hands to: calls that may go on (*ready) and views to tell. Never waits: a function that
// returns PSD_WAITS has noted what its caller waits for, and the caller parks the call. Threads: any; everything is
// guarded by the job's lock, and functions say "unlocked" where they expect that it is not held.
#ifndef PSD_CONTROL_STATE_H
#define PSD_CONTROL_STATE_H

#include "common/base/log.h"
#include "common/base/order.h"
#include "common/wire/progress.h"
#include "psd/control/agree.h"
#include "psd/job/host.h"
#include "psd/limits.h"

// Batches [first + k * stride, + count), k = 0, 1, ... steps - 1, cut off at end; one may be empty. count 0: none.
struct psd_assignment {
    uint64_t first, count, stride, end, steps;
};

// The result of a collective, kept for those who ask again. Shared by the members who were in it.
struct psd_outcome {
    uint32_t refs;
    struct ps_error error;  // why there is no value
    struct psd_page *value;
    uint64_t bytes;
    uint32_t n_ranks;
    uint32_t *ranks;   // [n_ranks] who took part
    uint64_t *counts;  // [n_ranks] elements that each brought
};

// A member's last collective: a barrier or a reduction. It is in it while entered > passed, the sequences of the one
// that it entered and of the last that it passed, and a call of it waits there: a call whose time is over has entered
// nothing.
struct psd_participation {
    uint64_t entered, passed;
    char name[80];
    Paramserver__V1__ReduceOp op;  // REDUCE_NONE: a barrier
    int dtype;
    uint64_t count;
    uint32_t root;
    struct psd_page *value;  // what it brings; NULL: nothing
    struct psd_outcome *outcome;
    struct psd_waiters waiting;  // its parked calls: more than one where it has sent again
};

enum { PSD_REASON_MAX = PSD_FAILURE_MAX - 64 };  // a failure names the member, and how many remain

struct psd_member {
    Paramserver__V1__MemberState state;
    uint32_t tallied;     // as what psd_member_recount has counted it
    uint64_t changed_at;  // the epoch at which tasks and clients had to hear of it last
    uint8_t client[16];
    uint64_t incarnation;
    uint64_t arrival;  // the epoch with which it joined a job that had begun; 0: it was there from the beginning
    uint64_t since;    // tasks that have heard of this epoch obey the incarnation; 0: all do
    char address[80];
    uint64_t last_seen;  // ns, on psd_control_awake's clock
    uint64_t step;
    double examples_per_second, loss;
    char reason[PSD_REASON_MAX];  // LEFT, DEAD
    bool interrupted, failed;     // DEAD: by a signal; of something else that it has told
    bool draining;                // asked to leave

    bool newcomer;            // it joined a running sync job, or waits for the next epoch when others are at the end of
                              // this one: until its next assignment no collective waits for it
    bool excluded;            // sync: rounds do not wait for it
    uint64_t waits_since;     // ns, in a collective or for a lease; 0: it waits for neither
    uint64_t withdrawn_at;    // ns, on psd_control_awake's clock, excluded: when its wait ended with nothing; 0: it did
                              // not, or it has asked again
    uint64_t counted;         // sync: the last round in which its gradient counts somewhere
    uint64_t counted_in_all;  // when it is gone: and in all partitions of the n_counted tasks that have answered
    uint32_t n_counted;
    uint64_t split;  // the round that was named because these differ

    struct psd_participation participation;

    struct psd_waiters for_lease;
    uint64_t asks_epoch, asks_sequence, asks_round;  // what its parked calls ask for
    uint64_t lease_sequence;                         // under which the lease was given
    uint64_t none_sequence;                          // async: the last that asked ahead and got nothing
    struct psd_assignment lease;
    struct psd_assignment before;  // async: given before the lease, and not trained yet

    struct psd_waiters for_clock;
    uint64_t clock;       // ssp: its steps, counted from where it was level with the others
    uint64_t clock_step;  // of its own that are in it
    bool clock_starts;    // its next step begins the clock: those before it were not ssp

    struct psd_waiters successors;  // Joins under its rank that wait until it is gone
    uint64_t succeeded_at;          // ns, on psd_control_awake's clock: when the first of them came
};

// The assignment of a worker that is gone. How much of it was trained is known once every task has said which rounds
// counted.
struct psd_unfinished {
    uint32_t rank;
    struct psd_assignment rest;
};

// A growing list of T; n_##name of cap_##name are in use.
#define PSD_LIST(T, name) \
    T *name;              \
    size_t n_##name, cap_##name

// One joint pass over the data.
struct psd_epoch {
    uint64_t number, examples, batch;       // batch: sync
    uint64_t rounds;                        // sync: batches that are handed out at once; 0: all
    uint64_t begin, begin_epoch;            // sync: examples before the first that is handed out, of this epoch
    bool over;                              // for everyone
    uint64_t next;                          // async: examples below it have been given out
    uint64_t done;                          // trained
    PSD_LIST(struct psd_assignment, left);  // came back, or sync: is still to be shared out
    PSD_LIST(struct psd_unfinished, unfinished);
    // sync: the last round closed when the shares of the moment were handed out, to how many workers, and the set that
    // they are shares of.
    uint64_t round;
    uint32_t sharers;
    struct psd_assignment shared;
};

// How many members are what; see psd_member_recount.
struct psd_tally {
    uint32_t live, expected;
    uint32_t awaited;        // live, and a collective waits for it or has it
    uint32_t in_collective;  // live
    uint32_t in_lease;       // live, and in no collective
    uint32_t busy;           // live, and waits neither in a collective nor for a lease
};

// Checkpoints that people ask the chief for.
struct psd_checkpoints {
    uint64_t asked, over;        // how many; the last one that is written, or has failed
    bool failed;                 // that one,
    char text[PSD_FAILURE_MAX];  // and its path, or why
};

// How the workers update: mode.c.
struct psd_mode {
    Paramserver__V1__Update update;
    uint32_t staleness;  // ssp
};

struct psd_control {
    Paramserver__V1__Update update;  // as the job was opened, as is staleness; now it is mode.update
    uint32_t workers, min_workers, staleness;
    bool follows_mode;           // the workers train each epoch in the mode that its leases name
    struct psd_mode mode, next;  // of the epoch that is being leased; of the one after it
    struct psd_mode replaced;    // that the last change of next has taken the place of; UPDATE_NONE: none
    struct psd_rounds {
        bool kept;  // all tasks have room for them
        int asked;  // the psd_rounds_change that they are asked for; 0: none
    } rounds;
    struct psd_checkpoints checkpoints;
    struct ps_progress progress;
    uint32_t mover;                // the member whose call or departure may have let others go on last, as in Caller
    uint64_t opened, join_within;  // ns
    char before[PSD_FAILURE_MAX];  // why the run before this one has ended; empty: there was none, or it was done
    uint64_t last_heard;           // ns: of any member
    uint64_t speed_at;             // ns: when this was added up,
    double speed;                  // examples per second of the live members
    uint64_t epoch;                // of the membership; goes on from one run of a job to the next
    uint64_t first_epoch;          // of this run
    // Client ids of the processes that have been worker 0, the latest at (n_openers - 1) % PSD_OPENERS. A Join of one
    // of them that comes late, when its run is over, opens no other.
    uint8_t openers[PSD_OPENERS][16];
    uint32_t n_openers;
    char *configuration;                      // the opener's, that of all workers
    Paramserver__V1__OnExisting on_existing;  // how this run was opened: how its chief declares
    uint64_t resumed_round;                   // that was open when the run before ended; 0: there was none
    bool declared;                            // by the chief of this run: the other tasks know it
    bool lost_chief;                          // the last chief that went is dead, and no signal has ended it
    bool begun;                               // someone has been let through a collective, or has got a lease
    struct ps_log_seldom refusals;            // of other tasks to hear who takes part
    bool refused;                             // who wanted to begin another run, as this one has failed
    struct psd_member *members;               // [workers]
    struct psd_epoch data;

    // What psd_member_recount keeps, so that nothing walks over all members.
    struct psd_tally tally;
    struct ps_heap seniority;       // live members, the chief first: by arrival, then by rank
    struct ps_queue silent;         // live members, the one that was heard longest ago first
    struct ps_queue idle;           // sync: live members that wait and are not excluded yet, the longest first
    struct ps_queue withdrawn;      // live members that are excluded and wait no more, by withdrawn_at
    struct ps_queue in_collective;  // live members
    struct ps_queue in_lease;       // live members
    struct ps_queue succeeded;      // members that have successors
    struct ps_queue changes;        // members by changed_at
    struct ps_heap clocks;          // of those that are counted: ssp.c
    struct ps_heap gates;           // members that wait for the clock, by the slowest clock that lets them go
    struct ps_heap deadlines;       // members that have parked calls, by the earliest deadline
    uint64_t splits, split_round;   // departures whose last gradient counts in a part; the last one's round and rank
    uint32_t split_rank;
    uint64_t slept;    // ns for which this process did not run: nobody was heard meanwhile
    uint64_t visited;  // members looked at so far: tests count them

    uint64_t steps_before, iterations_before;  // of the checkpoint from which the job goes on
    uint64_t furthest;                         // the greatest step that a member has reported

    uint64_t slowest;   // ssp: the least clock
    uint64_t farthest;  // the greatest lead over it with which anyone was let go

    uint32_t tasks;
    uint64_t changed;  // the epoch of the last change that ps tasks must know; 0: none
    bool known;        // every task has acknowledged it
    uint64_t *acked;   // [tasks] the epoch that each task has acknowledged; not declared: 1, that the run has ended
    uint64_t *open;    // [tasks] the least round that it had open then; 0: none
    bool *in_flight;   // [tasks] a SetMembers has been sent and is not answered

    struct psd_pool *pool;
    size_t room;  // taken from it for all this
};

static inline bool psd_is_live(const struct psd_member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE;
}

// The member that has been live for longest: its callbacks remember most. PS_NO_ITEM: nobody is.
static inline uint32_t psd_chief(const struct psd_control *c)
{
    return ps_heap_first(&c->seniority);
}

static inline bool psd_is_expected(const struct psd_member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
}

static inline bool psd_in_collective(const struct psd_member *m)
{
    return m->participation.entered > m->participation.passed && m->participation.waiting.n > 0;
}

// Does a collective wait for it, or has it come?
static inline bool psd_is_awaited(const struct psd_member *m)
{
    return psd_is_live(m) && (!m->newcomer || psd_in_collective(m));
}

static inline bool psd_in_lease(const struct psd_member *m)
{
    return m->for_lease.n > 0;
}

// Has the member of this rank left because its training was done? All have come to the end of the run then: nobody can
// take part in it under that rank.
static inline bool psd_member_is_through(const struct psd_member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__LEFT && m->incarnation && !m->draining;
}

// m, if it waits for the clock of ssp, goes on when the slowest is here.
static inline uint64_t psd_clock_gate(const struct psd_control *c, const struct psd_member *m)
{
    const uint64_t staleness = c->mode.staleness;
    const bool waits = c->mode.update == PARAMSERVER__V1__UPDATE__SSP && m->clock > staleness;
    return waits ? m->clock - staleness : 0;
}

// ---- state.c ------------------------------------------------------------------------------------------------------

enum { PSD_WAITS = -2 };  // besides a ps_code: the call is to be parked

const char *psd_state_name(Paramserver__V1__MemberState state);  // "live", "not joined yet", ...
static inline bool psd_is_gone(Paramserver__V1__MemberState state)
{
    return state == PARAMSERVER__V1__MEMBER_STATE__LEFT || state == PARAMSERVER__V1__MEMBER_STATE__DEAD;
}

static inline uint32_t psd_rank_of(const struct psd_control *c, const struct psd_member *m)
{
    return (uint32_t)(m - c->members);
}

// Time for silence: it stands still while this process does not run.
static inline uint64_t psd_control_awake(const struct psd_control *c, uint64_t now)
{
    return now > c->slept ? now - c->slept : 0;
}

// Something of m has changed: keeps the tally, the queues and the heaps. Call it after each change.
void psd_member_recount(struct psd_control *c, struct psd_member *m);
// m is heard now.
void psd_member_heard(struct psd_control *c, struct psd_member *m, uint64_t now);
// The caller as a live member, which this is a sign of life of; NULL: the error says why it is none.
struct psd_member *psd_member_live(struct psd_job *job, const Paramserver__V1__Caller *caller, uint64_t now,
                                   struct ps_error *e);
// m's call has been parked, in a collective or for a lease; m goes on.
void psd_member_waits(struct psd_control *c, struct psd_member *m, uint64_t now);
void psd_member_goes_on(struct psd_control *c, struct psd_member *m);
// ABORTED: the message is of a call that its caller has given up, or a late copy: it must not undo what came after it.
int psd_fail_superseded(const Paramserver__V1__Caller *caller, const char *what, uint64_t newest, struct ps_error *e);

// ---- view.c -------------------------------------------------------------------------------------------------------

struct psd_member_list {
    Paramserver__V1__Member *members, **pointers;
    size_t n;
};
// Members as messages tell them: those that have changed since that epoch (0: all). False: no memory.
bool psd_members_list(struct psd_control *c, uint64_t since, uint64_t now, struct psd_member_list *list);
// Are they more than a reply to a worker names?
bool psd_members_are_many(struct psd_control *c, uint64_t since);
// All of them in two steps: memory for so many, as many as the job has workers; then what cannot fail.
bool psd_members_reserve(uint32_t workers, struct psd_member_list *list);
uint64_t psd_member_silent_ms(const struct psd_control *c, uint32_t rank, uint64_t now);  // 0: it was never heard
void psd_members_fill(struct psd_control *c, uint64_t now, struct psd_member_list *list);
enum { PSD_MEMBER_BYTES = 224 + PSD_REASON_MAX };  // of one in a message, at most
void psd_members_list_free(struct psd_member_list *list);

// What tasks must know of m has changed.
void psd_view_changed(struct psd_control *c, struct psd_member *m);
// What clients alone must know of m has.
void psd_view_joined(struct psd_control *c, struct psd_member *m);
// All tasks must be told of all members.
void psd_view_broadcast(struct psd_control *c);
// Does every task know?
bool psd_view_is_known(struct psd_control *c);
// Does every task obey this member as its present incarnation?
bool psd_view_has_member(const struct psd_control *c, const struct psd_member *m);
// The last round that takes no more gradients in any partition, when its task was told; 0: none, or there are no
// rounds.
uint64_t psd_view_closed(const struct psd_control *c);

// What a message says of some members, or of all: since 0.
struct psd_view_delta {
    uint64_t since, epoch;  // members that have changed after `since`, as they are at `epoch`
    size_t n;
    struct psd_view_entry {
        uint32_t rank;
        Paramserver__V1__MemberState state;
        bool excluded;
        uint64_t incarnation;
        uint64_t counted, counted_in_all;  // the answer: rounds in which its gradient counts on the task
    } * v;                                 // [n]
    uint64_t open;                         // the answer: the least round that takes gradients; 0: there are none
};
bool psd_view_delta_init(struct psd_view_delta *d, size_t n);  // false: no memory
void psd_view_delta_free(struct psd_view_delta *d);
// Members that have changed since that epoch; those of an earlier run: all. False: no memory.
bool psd_view_delta_since(struct psd_control *c, uint64_t since, struct psd_view_delta *d);
// Unlocked. A task hears of a view of the job's `run`: its rounds and staged updates do, and it answers in d what
// counts here. ABORTED: it has not heard what was before `since`, and is to be told of all. FAILED_PRECONDITION:
// another run has begun.
enum ps_code psd_view_take(struct psd_job *job, uint64_t run, uint32_t workers, struct psd_view_delta *d,
                           struct psd_call **ready, struct ps_error *e);
// A task has acknowledged d, and answered in it.
void psd_view_acked(struct psd_job *job, uint32_t task, const struct psd_view_delta *d);
// Job locked. Its rounds begin, with those who take part at the moment.
void psd_view_begin_rounds(struct psd_job *job, struct psd_call **ready);
// Job locked. Has this task been told that all members are gone? view may be NULL: it was told of none.
bool psd_view_all_gone(const struct psd_task_view *view);
void psd_view_free(struct psd_task_view *view);  // may be NULL

// ---- ssp.c --------------------------------------------------------------------------------------------------------

// Clocks, or who is counted, may have changed.
void psd_clock_advance(struct psd_control *c, struct psd_call **ready);
// All have waited for all: they are level now.
void psd_clock_align(struct psd_control *c);
// The epoch that begins has this mode, which is another than that of the one before.
void psd_clock_change_mode(struct psd_control *c, const struct psd_mode *mode, struct psd_call **ready);
// m comes, or goes on after it waited for something else: level with the slowest, not behind.
void psd_clock_level(struct psd_control *c, struct psd_member *m);
// m has finished `step` steps. PSD_WAITS: in m->for_clock.
int psd_clock_step(struct psd_job *job, struct psd_member *m, const Paramserver__V1__ClockRequest *r,
                   Paramserver__V1__ClockReply *out, struct psd_call **ready, struct ps_error *e);

// ---- mode.c -------------------------------------------------------------------------------------------------------

static inline bool psd_mode_is_sync(const struct psd_mode *m)
{
    return m->update == PARAMSERVER__V1__UPDATE__SYNC;
}

static inline bool psd_mode_equals(const struct psd_mode *a, const struct psd_mode *b)
{
    return a->update == b->update && a->staleness == b->staleness;
}

static inline bool psd_control_is_sync(const struct psd_control *c)
{
    return psd_mode_is_sync(&c->mode);
}

// Must rounds begin or end before the next epoch does?
static inline bool psd_mode_switches(const struct psd_control *c)
{
    return psd_mode_is_sync(&c->mode) != psd_mode_is_sync(&c->next);
}

// Job locked. The next epoch is to be trained in that mode. PSD_WAITS: in the agreement's waiting; psd_agree_go_on
// follows, unlocked. was_parked: it has waited so. Who has waited for all to come to rounds goes on where there will be
// none.
int psd_mode_set(struct psd_job *job, const Paramserver__V1__SetModeRequest *r, bool was_parked,
                 Paramserver__V1__SetModeReply *out, struct psd_call **ready, struct ps_error *e);
// All live workers wait for the next epoch, which they must not begin before: asks the tasks for it, if that has not
// been done. psd_mode_decided follows.
void psd_mode_switch(struct psd_job *job, struct psd_call **ready);
// Gives room for rounds back that is not needed any more.
void psd_mode_tidy(struct psd_job *job);
// What a proposal to change the rounds says. False: it is none.
bool psd_mode_read(const struct psd_proposal *p, enum psd_rounds_change *change, struct psd_mode *mode);
// All tasks have this change of the rounds. False: it is of the run before, and nothing has changed; else
// psd_control_advance is to follow.
bool psd_mode_decided(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready);

// ---- lease.c ------------------------------------------------------------------------------------------------------

// m asks for what it trains next. PSD_WAITS: in m->for_lease. *given: count 0 with PS_OK: the epoch is done, or it asks
// ahead and there is nothing.
int psd_lease_take(struct psd_job *job, struct psd_member *m, const Paramserver__V1__LeaseRequest *r,
                   struct psd_assignment *given, struct psd_call **ready, struct ps_error *e);
// A member is gone: what it had not trained comes back.
void psd_lease_return(struct psd_control *c, uint32_t rank);
// sync: every live worker waits for a lease and every task has said what counted.
void psd_lease_assign(struct psd_job *job, struct psd_call **ready);
// async, ssp: where a range has come back and somebody waits for one, the member that has waited longest goes on. If it
// dies before it takes the range, the next call of this function finds the range still there. Before the first epoch:
// late workers, who waited for those from the beginning to say which it is, go on where none of these lives. True:
// there was such a member.
bool psd_lease_offer(struct psd_control *c, struct psd_call **ready);
// sync, likewise, before the rounds end: where a round is closed in some partitions and open in others, shares without
// examples close it. False: there is none.
bool psd_lease_mend(struct psd_job *job, struct psd_call **ready);
// The epoch is over, and the next has another mode: nothing of it is left. closed: the last round that there was.
void psd_lease_change_mode(struct psd_control *c, uint64_t closed);
void psd_lease_wake_all(struct psd_control *c, struct psd_call **ready);
// Nobody trains the rest of this epoch.
void psd_lease_end_epoch(struct psd_control *c, struct psd_call **ready);
// How many examples of the epoch are trained; closed: the last round closed here, of a sync job.
uint64_t psd_lease_done(const struct psd_control *c, uint64_t closed);
void psd_epoch_free(struct psd_epoch *d);

// ---- collective.c -------------------------------------------------------------------------------------------------

// Bytes that a worker brings to a reduction, and that come of it: a reply, which names all who took part, then has at
// most PS_CHUNK_MAX, which is what any gRPC client takes.
enum { PSD_REDUCE_MAX = PS_CHUNK_MAX - (256 << 10) };

// m enters a collective, or asks again what came of it. PS_OK: it is over, its result is m's. PSD_WAITS: in
// m->participation.waiting.
int psd_collective_enter(struct psd_job *job, struct psd_member *m, const Paramserver__V1__Caller *caller,
                         const struct psd_participation *wish, const struct ps_slices *value, struct psd_call **ready,
                         struct ps_error *e);
// Every live worker is in one: lets them through.
void psd_collective_complete(struct psd_job *job, struct psd_call **ready);
void psd_participation_clear(struct psd_participation *p);
const char *psd_reduce_op_name(Paramserver__V1__ReduceOp op);

// ---- member.c -----------------------------------------------------------------------------------------------------

// The caller leaves, as LEFT or DEAD; repeated, it does nothing.
enum ps_code psd_member_leave(struct psd_job *job, const Paramserver__V1__LeaveRequest *r, uint64_t now,
                              struct psd_call **ready, struct ps_error *e);
// Declares those dead who are silent, or never came.
void psd_members_tick(struct psd_job *job, uint64_t now, struct psd_call **ready);
// Nobody waits for those of a run that begins who are marked as drained. Job locked.
void psd_members_leave_out_drained(struct psd_job *job, struct psd_call **ready);

// ---- Join, one step after the other ----

// Was this process worker 0 in a run that is over? Then its Join comes late.
bool psd_control_was_opened_by(const struct psd_control *c, const uint8_t *client);
// May the caller be the member of its rank? PSD_WAITS: when that is gone, which it may be without our knowing: the call
// is to be parked in its successors (psd_member_succeeded). was_parked: it has waited so.
int psd_member_check_join(struct psd_job *job, const Paramserver__V1__JoinRequest *r, bool was_parked,
                          struct ps_error *e);
// The caller is the member of its rank now, if it was not.
struct psd_member *psd_member_admit(struct psd_job *job, const Paramserver__V1__JoinRequest *r, uint64_t now);
// A Join is about to be parked in m's successors.
void psd_member_succeeded(struct psd_control *c, struct psd_member *m, uint64_t now);

// ---- waiting.c ----------------------------------------------------------------------------------------------------

// m's client says that it waits on, though no call of its is here.
void psd_member_waits_on(struct psd_control *c, struct psd_member *m, uint64_t now);
// Those who have not asked again, though they were heard, train: rounds wait for them again.
void psd_members_include_withdrawn(struct psd_control *c, uint64_t now);
// Moves all calls that wait there to *ready.
void psd_member_release(struct psd_member *m, struct psd_call **ready);
// Unlocked. Over the calls of members that wait.
void psd_members_walk(struct psd_job *job, const struct psd_look *look);
// A parked call has been taken out of its list, whose lock is held, because its client is gone: where that list is a
// member's, the member has entered nothing and asked for nothing.
void psd_control_forget_call(const struct psd_call *call, const pthread_mutex_t *lock);
// Appends "worker 1 (live, step 17, silent 0.2 s)" to text. c may be NULL: the rank alone.
void psd_member_name(const struct psd_control *c, uint32_t rank, uint64_t now, char *text, size_t size);

// ---- control.c ----------------------------------------------------------------------------------------------------

// In the room of the run before, which is over (may be NULL). NULL: no memory, or it does not fit the pool's limit
// (RESOURCE_EXHAUSTED).
struct psd_control *psd_control_new(const struct psd_host *host, struct psd_control *before,
                                    const Paramserver__V1__JoinRequest *r, struct ps_error *e);
// old->lock is not held. Of a run that is not open yet: marks those who had left the one of old, which has failed, as
// they were asked to. Not worker 0, who opens it, and nobody where people begin it: the one of old was interrupted, or
// nothing was heard of it for as long as it waited for workers.
void psd_control_take_drained(struct psd_control *c, struct psd_job *old);
// Unlocked. c is the job's from now on: a new run begins, in which nobody waits yet. Who still waits in the run before
// is moved to *ready.
void psd_control_open(struct psd_job *job, struct psd_control *c, Paramserver__V1__OnExisting how,
                      struct psd_call **ready);
// Lets go on whom the last change allows to. Call it after each.
void psd_control_advance(struct psd_job *job, struct psd_call **ready);
// Unlocked. Tells the view to those tasks that do not know it, this one at once. Call it after psd_control_advance.
void psd_control_broadcast(struct psd_job *job, uint64_t now, struct psd_call **ready);

extern const struct psd_component psd_control_component;
extern const struct psd_component psd_watch_component;  // watch.c

// ---- watch.c ------------------------------------------------------------------------------------------------------

enum psd_watch_owner { PSD_OWNER_UNKNOWN, PSD_OWNER_STAYS, PSD_OWNER_IS_GONE };
// Unlocked, elsewhere than at the control task: has that said lately that the job is still its user's? Where it has not
// it is asked.
enum psd_watch_owner psd_watch_owner(struct psd_job *job);

// ---- what others ask; unlocked ----

bool psd_control_may_declare(struct psd_job *job, const Paramserver__V1__DeclareRequest *r, struct ps_error *e);
// Has the chief of this run declared the job here, at the control task, and with that everywhere?
bool psd_control_declared(struct psd_job *job);
void psd_control_set_declared(struct psd_job *job, struct psd_call **ready);
// State, reason, live workers, epoch.
void psd_control_describe(struct psd_job *job, Paramserver__V1__JobStatus *out, char *reason, size_t size,
                          struct ps_progress *progress);

#endif
