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
// A worker that waits here, in a collective or for a lease, pushes nothing meanwhile. A sync job therefore excludes it from
// rounds after a while: rounds go on without it, so unequal numbers of batches hang nobody. A worker that joins a running
// sync job is excluded too. When all live workers wait, they go on together: all are included again, and nobody is let go
// before every ps task knows that.
//
// One file per subject; each calls only those above it:
//     state.h, state.c  structs, predicates     lease.c       Lease: the epoch's examples
//     view.c            who takes part          collective.c  Barrier, Reduce
//     ssp.c             Clock                   member.c      coming, going, silence
//                                               control.c     what goes on after a change; telling the other tasks
//
// Receives from: service, which decodes, calls one function here, then psd_control_advance, then, unlocked,
// psd_control_broadcast. Hands to: calls that may go on (*ready) and views to tell. Never waits: a function that returns
// PSD_WAITS has noted what its caller waits for, and the caller parks the call. Threads: any; everything is guarded by the
// job's lock, and functions say "unlocked" where they expect that it is not held.
#ifndef PSD_CONTROL_STATE_H
#define PSD_CONTROL_STATE_H

#include "psd/service/service.h"

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

// A member's last collective: a barrier or a reduction. It is in it while entered > passed: the sequence of the one that it
// entered, and of the last that it passed.
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
    uint8_t client[16];
    uint64_t incarnation;
    uint64_t since;  // tasks that have heard of this epoch obey the incarnation; 0: all do
    char address[80];
    uint64_t last_seen;  // ns
    uint64_t step;
    double images_per_second, loss;
    char reason[PSD_REASON_MAX];  // LEFT, DEAD
    bool draining;                // asked to leave

    bool newcomer;            // sync: it joined a running job and has had no assignment yet: no collective waits for it
    bool excluded;            // sync: rounds do not wait for it
    uint64_t waits_since;     // ns, in a collective or for a lease; 0: it waits for neither
    uint64_t counted;         // sync: the last round in which its gradient counts somewhere
    uint64_t counted_in_all;  // and in all partitions, as far as was told

    struct psd_participation participation;

    struct psd_waiters for_lease;
    uint64_t asks_epoch, asks_sequence, asks_round;  // what its parked calls ask for
    uint64_t lease_sequence;                         // under which the lease was given
    struct psd_assignment lease;

    struct psd_waiters for_clock;
    uint64_t clock;       // ssp: its steps, counted from where it was level with the others
    uint64_t clock_step;  // of its own that are in it
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
    bool over;                              // for everyone
    uint64_t next;                          // async: examples below it have been given out
    uint64_t done;                          // trained
    PSD_LIST(struct psd_assignment, left);  // came back, or sync: is still to be shared out
    PSD_LIST(struct psd_unfinished, unfinished);
    uint64_t round;  // sync: the last one closed when the shares of the moment were handed out
};

struct psd_control {
    Paramserver__V1__Update update;
    uint32_t workers, min_workers, staleness;
    uint64_t opened, join_within;  // ns
    uint64_t epoch;                // of the membership; goes on from one run of a job to the next
    bool declared;                 // by the chief of this run: the other tasks know it
    bool begun;                    // someone has been let through a meeting, or has got a lease
    struct psd_member *members;    // [workers]
    struct psd_epoch data;

    uint64_t slowest;   // ssp: the least clock
    uint64_t farthest;  // the greatest lead over it with which anyone was let go

    uint32_t tasks;
    uint64_t changed;  // the epoch of the last change that ps tasks must know; 0: none
    uint64_t *acked;   // [tasks] the epoch that each task has acknowledged
    uint64_t *open;    // [tasks] the least round that it had open then; 0: none
    bool *in_flight;   // [tasks] a SetMembers has been sent and is not answered

    struct psd_pool *pool;
    size_t room;  // taken from it for all this
};

static inline bool psd_is_live(const struct psd_member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__LIVE;
}

static inline bool psd_is_expected(const struct psd_member *m)
{
    return m->state == PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
}

static inline bool psd_in_collective(const struct psd_member *m)
{
    return m->participation.entered > m->participation.passed;
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

// ---- state.c ------------------------------------------------------------------------------------------------------

enum { PSD_WAITS = -1 };  // besides a ps_code: the call is to be parked

const char *psd_state_name(Paramserver__V1__MemberState state);  // "live", "not joined yet", ...
uint32_t psd_count_state(const struct psd_control *c, Paramserver__V1__MemberState state);
// The caller as a live member, which this is a sign of life of; NULL: the error says why it is none.
struct psd_member *psd_member_live(struct psd_job *job, const Paramserver__V1__Caller *caller, uint64_t now,
                                   struct ps_error *e);
// m begins to wait, in a collective or for a lease; m goes on.
void psd_member_waits(struct psd_member *m, uint64_t now);
void psd_member_goes_on(struct psd_control *c, struct psd_member *m);
// ABORTED: the message is of a call that its caller has given up, or a late copy: it must not undo what came after it.
int psd_fail_superseded(const Paramserver__V1__Caller *caller, const char *what, uint64_t newest, struct ps_error *e);

// ---- view.c -------------------------------------------------------------------------------------------------------

struct psd_member_list {
    Paramserver__V1__Member *members, **pointers;
    size_t n;
};
// False: no memory.
bool psd_members_list(const struct psd_control *c, uint64_t now, struct psd_member_list *list);
// The same in two steps: memory for so many, as many as the job has workers; then what cannot fail.
bool psd_members_reserve(uint32_t workers, struct psd_member_list *list);
void psd_members_fill(const struct psd_control *c, uint64_t now, struct psd_member_list *list);
enum { PSD_MEMBER_BYTES = 224 + PSD_REASON_MAX };  // of one in a message, at most
void psd_members_list_free(struct psd_member_list *list);

// Who takes part has changed: tasks must be told.
void psd_view_changed(struct psd_control *c);
// Does every task know?
bool psd_view_is_known(const struct psd_control *c);
// Does every task obey this member as its present incarnation?
bool psd_view_has_member(const struct psd_control *c, const struct psd_member *m);
// The last round that takes no more gradients in any partition, when its task was told; 0: none, or there are no rounds.
uint64_t psd_view_closed(const struct psd_control *c);

// Which rounds of each worker count on a task: in some partition there, and in all of them.
struct psd_counted {
    uint64_t *some, *all;  // [workers]
    uint64_t open;         // the least round that takes gradients; 0: there are none
};
bool psd_counted_init(struct psd_counted *k, uint32_t workers);  // false: no memory
void psd_counted_free(struct psd_counted *k);

bool psd_view_init(struct psd_view *view, uint64_t epoch, uint32_t workers);  // false: no memory
// Whom rounds wait for: a worker that is live and not excluded, or is still expected.
bool psd_view_includes(Paramserver__V1__MemberState state, bool excluded);
bool psd_is_gone(Paramserver__V1__MemberState state);
// A worker that is gone, as the task's blocks must know it: who is fenced changes nothing any more.
struct psd_departure {
    bool is;
    uint64_t incarnation;
};
void psd_view_fence(struct psd_job *job, uint32_t rank, Paramserver__V1__MemberState state, uint64_t incarnation);
// Unlocked. This task's rounds and staged updates hear of a view; says what counts here.
void psd_view_take(struct psd_job *job, const struct psd_view *view, const struct psd_departure *gone,
                   struct psd_counted *counted, struct psd_call **ready);
// A task has acknowledged the view of this epoch.
void psd_view_acked(struct psd_job *job, uint32_t task, uint64_t epoch, const struct psd_counted *counted);

// ---- ssp.c --------------------------------------------------------------------------------------------------------

// Clocks, or who is counted, may have changed.
void psd_clock_advance(struct psd_control *c, struct psd_call **ready);
// All have waited for all: they are level now.
void psd_clock_align(struct psd_control *c);
// m comes, or goes on after it waited for something else: level with the slowest, not behind.
void psd_clock_level(struct psd_control *c, struct psd_member *m);
// m has finished `step` steps. PSD_WAITS: in m->for_clock.
int psd_clock_step(struct psd_job *job, struct psd_member *m, const Paramserver__V1__ClockRequest *r,
                   Paramserver__V1__ClockReply *out, struct psd_call **ready, struct ps_error *e);

// ---- lease.c ------------------------------------------------------------------------------------------------------

// m asks for what it trains next. PSD_WAITS: in m->for_lease. *given: count 0 with PS_OK: the epoch is done.
int psd_lease_take(struct psd_job *job, struct psd_member *m, const Paramserver__V1__LeaseRequest *r,
                   struct psd_assignment *given, struct psd_call **ready, struct ps_error *e);
// A member is gone: what it had not trained comes back.
void psd_lease_return(struct psd_control *c, uint32_t rank, struct psd_call **ready);
// sync: every live worker waits for a lease and every task has said what counted.
void psd_lease_assign(struct psd_job *job, struct psd_call **ready);
// Nobody trains the rest of this epoch.
void psd_lease_end_epoch(struct psd_control *c, struct psd_call **ready);
void psd_epoch_free(struct psd_epoch *d);

// ---- collective.c -------------------------------------------------------------------------------------------------

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
void psd_members_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);

// ---- control.c ----------------------------------------------------------------------------------------------------

// In the room of the run before, which is over (may be NULL). NULL: no memory, or it does not fit the pool's limit
// (RESOURCE_EXHAUSTED).
struct psd_control *psd_control_new(struct psd_pool *pool, struct psd_control *before,
                                    const Paramserver__V1__JoinRequest *r, uint32_t tasks, uint64_t now,
                                    struct ps_error *e);
// Lets go on whom the last change allows to. Call it after each.
void psd_control_advance(struct psd_job *job, struct psd_call **ready);
// Unlocked. Tells the view to those tasks that do not know it, this one at once. Call it after psd_control_advance.
void psd_control_broadcast(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);

#endif
