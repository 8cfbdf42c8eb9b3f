// SPDX-License-Identifier: Apache-2.0
//
// What the control task keeps of a job besides its share of the variables: who its workers are and whether they live,
// where they meet, what each of them trains next, and the clock of ssp.
//
//     EXPECTED --Join--> LIVE --Leave--> LEFT
//         |               |  \--silence, Leave(failed)--> DEAD
//         |               ^------------------Join------------/ (a later incarnation)
//         \--nobody came in time--> DEAD
//
// A worker that waits here, in a meeting or for a lease, pushes nothing meanwhile. In a sync job it therefore rests after
// a while: rounds go on without it, so unequal numbers of batches hang nobody. So does one that came late. When all who
// live wait, they go on together: everyone takes part again, and nobody is let go before every ps task knows that.
//
//     member.c   Join, Heartbeat, Leave, deaths       meeting.c  Barrier, Reduce
//     roster.c   who takes part, told to all tasks    lease.c    Lease: the epoch's examples
//     clock.c    Clock: ssp                           control.c  what moves on when something has changed
//
// All of it is guarded by the job's lock. Functions say "locked" where they expect that.
#ifndef PSD_CONTROL_H
#define PSD_CONTROL_H

#include "psd/service/service.h"

// Batches [first + k * stride, + count), k = 0, 1, ... steps - 1, cut off at end; one may be empty. count 0: none.
struct psd_share {
    uint64_t first, count, stride, end, steps;
};

// What came of a meeting, kept for those who ask again. Shared by the members who were in it.
struct psd_outcome {
    uint32_t refs;
    struct ps_error error;  // why there is none
    struct psd_page *value;
    uint64_t bytes;
    uint32_t n_ranks;
    uint32_t *ranks;   // [n_ranks] who took part
    uint64_t *counts;  // [n_ranks] elements that each brought
};

// A member's last meeting. It is in it while entered > passed: the sequences of the one it entered, and was let through.
struct psd_visit {
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

    bool fresh;               // sync: it came late and has had no share yet: no meeting waits for it
    bool resting;             // sync: rounds do not wait for it
    uint64_t waits_since;     // ns, in a meeting or for a lease; 0: it does neither
    uint64_t counted;         // sync: the last round in which its gradient counts somewhere
    uint64_t counted_in_all;  // and in all partitions, as far as was told

    struct psd_visit visit;

    struct psd_waiters for_lease;
    uint64_t asks_epoch, asks_sequence, asks_round;  // what its parked calls ask for
    uint64_t lease_sequence;                         // under which the lease was given
    struct psd_share lease;

    struct psd_waiters for_clock;
    uint64_t clock;       // ssp: its steps, counted from where it was level with the others
    uint64_t clock_step;  // of its own that are in it
};

// What a worker that is gone has not trained of its share. It is known once every task has said which rounds counted.
struct psd_orphan {
    uint32_t rank;
    struct psd_share share;
};

// A growing list of T; n_##name of cap_##name are in use.
#define PSD_LIST(T, name) \
    T *name;              \
    size_t n_##name, cap_##name

// One joint pass over the data.
struct psd_epoch {
    uint64_t number, examples, batch;  // batch: sync
    bool over;                         // for everyone
    uint64_t next;                     // async: examples below it have been given out
    uint64_t done;                     // trained
    PSD_LIST(struct psd_share, left);  // came back, or sync: is still to be shared out
    PSD_LIST(struct psd_orphan, orphans);
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
    uint64_t *told;    // [tasks] the epoch that each task has acknowledged
    uint64_t *open;    // [tasks] the least round that it had open then; 0: none
    bool *telling;     // [tasks] a message is under way

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
    return m->visit.entered > m->visit.passed;
}

// Does a meeting wait for it, or has it come?
static inline bool psd_is_awaited(const struct psd_member *m)
{
    return psd_is_live(m) && (!m->fresh || psd_in_collective(m));
}

static inline bool psd_in_lease(const struct psd_member *m)
{
    return m->for_lease.n > 0;
}

// ---- member.c -----------------------------------------------------------------------------------------------------

// Locked. The caller as a live member, or NULL with the error.
struct psd_member *psd_live_member(struct psd_request *t);
// Locked. "live", "not joined yet", ...
const char *psd_state_name(Paramserver__V1__MemberState state);
uint32_t psd_count_state(const struct psd_control *c, Paramserver__V1__MemberState state);
// Locked. A message of a call that its caller has given up, or a late copy: it must not undo what came after it.
int psd_fail_superseded(struct psd_request *t, const char *what, uint64_t newest);
// Declares those dead who are silent, or never came. For the control task alone.
void psd_members_tick(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);

// ---- roster.c -----------------------------------------------------------------------------------------------------

struct psd_member_list {
    Paramserver__V1__Member *members, **pointers;
    size_t n;
};
// Locked. False: no memory.
bool psd_members_list(const struct psd_control *c, uint64_t now, struct psd_member_list *list);
// The same in two steps: memory for so many, as many as the job has workers; then, locked, what cannot fail.
bool psd_members_reserve(uint32_t workers, struct psd_member_list *list);
void psd_members_fill(const struct psd_control *c, uint64_t now, struct psd_member_list *list);
enum { PSD_MEMBER_BYTES = 224 + PSD_REASON_MAX };  // of one in a message, at most
void psd_members_list_free(struct psd_member_list *list);

// Locked. Who takes part has changed: tasks must be told.
void psd_view_changed(struct psd_control *c);
// Locked. Does every task know?
bool psd_view_is_known(const struct psd_control *c);
// Locked. Does every task obey this member as its present incarnation?
bool psd_view_has_member(const struct psd_control *c, const struct psd_member *m);
// Locked. The last round that takes no more gradients in any partition, when its task was told; 0: none, or there are no rounds.
uint64_t psd_view_closed(const struct psd_control *c);
// Unlocked. Tells those tasks that do not know, this one at once.
void psd_view_spread(struct psd_core *core, struct psd_job *job, uint64_t now, struct psd_call **ready);

// ---- meeting.c, lease.c, clock.c ----------------------------------------------------------------------------------

// Locked: everyone who lives is in a meeting: lets them through.
void psd_collective_end(struct psd_job *job, struct psd_call **ready);
void psd_visit_clear(struct psd_visit *v);

// Locked: a member is gone, what it had not trained comes back.
void psd_lease_return(struct psd_control *c, uint32_t rank, struct psd_call **ready);
// Locked; sync: everyone who lives waits for a lease and every task has said what counted.
void psd_lease_share_out(struct psd_job *job, struct psd_call **ready);
// Locked: nobody trains the rest of this epoch.
void psd_lease_give_up(struct psd_control *c, struct psd_call **ready);
bool psd_lease_has_more(const struct psd_control *c);
void psd_epoch_free(struct psd_epoch *d);

// Locked: clocks, or who is counted, may have changed.
void psd_clock_advance(struct psd_control *c, struct psd_call **ready);
// Locked: all have waited for all, they are level now.
void psd_clock_align(struct psd_control *c);
// Locked: m comes, or goes on after it waited for something else: level with the slowest, not behind.
void psd_clock_level(struct psd_control *c, struct psd_member *m);

// ---- control.c ----------------------------------------------------------------------------------------------------

// In the room of the run before, which is over (may be NULL). NULL: no memory, or it does not fit the pool's limit
// (RESOURCE_EXHAUSTED).
struct psd_control *psd_control_new(struct psd_pool *pool, struct psd_control *before,
                                    const Paramserver__V1__JoinRequest *r, uint32_t tasks, uint64_t now,
                                    struct ps_error *e);
// Locked. Lets go on whom the last change allows to. Call it after each, and psd_view_spread when unlocked.
void psd_control_advance(struct psd_job *job, struct psd_call **ready);
// Locked. m begins to wait, in a meeting or for a lease.
void psd_control_waits(struct psd_member *m, uint64_t now);
// Locked. It goes on.
void psd_control_goes_on(struct psd_control *c, struct psd_member *m);

#endif
