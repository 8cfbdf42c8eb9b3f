// SPDX-License-Identifier: Apache-2.0
//
// Agreement: a change takes effect in one round on all ps tasks. What changes is opaque here: a proposal has a kind,
// which says what to do with its value, and the value's bytes.
//
// async, ssp: COMMIT is sent to every task, where the change takes effect as it comes. sync: all blocks of all tasks
// change in the same round, in two phases. What takes effect between two rounds, whatever the mode (psd_agree_rounds),
// goes through the same two, and holds no round; a task that says UNAVAILABLE is asked again:
//
//            all have prepared                 all have it
//   PREPARE ------------------------> COMMIT -------------> the proposer is answered
//      | \--one has closed the round, refuses, or is silent--> FORGET --all have forgotten--> tried again, further ahead,
//      |                                                                                     or it has failed
//      +-- a task that has prepared does not close the round, nor those after it, until it hears what was decided;
//          after PSD_INQUIRE_AFTER_MS it asks: INQUIRE
//
// One change at a time: a second proposal is refused with ABORTED until every task has heard the end of the first. The
// same proposal, as of a caller whose answer was lost, or that was told of a silent task, waits for the same outcome.
//
// A task that is silent for PSD_AGREE_SILENT_MS in a phase keeps no proposer waiting: it is told UNAVAILABLE. A change
// that has come to COMMIT is made all the same: where the run ends meanwhile, in the next one, in which nobody trains
// before all tasks have heard of it, or one has been silent for so long. Messages may be lost, late, repeated or
// overtake each other: what was not acknowledged is sent again, and a proposal whose number is decided at a task is not
// decided once more. A task that inquires hears FORGET for what the control task does not know: so a PREPARE that
// nobody commits holds rounds for seconds.
//
// Receives from: service (SetHyper, SetMode), control (at the end of an epoch), peers. Hands to: the kinds, the rounds,
// the other tasks. Threads: any; guarded by the job's lock, but for job->held, which is atomic.
#ifndef PSD_CONTROL_AGREE_H
#define PSD_CONTROL_AGREE_H

#include "psd/job/component.h"
#include "psd/limits.h"

typedef Paramserver__V1__AgreeRequest__Phase psd_agree_phase;
#define PSD_AGREE_NONE PARAMSERVER__V1__AGREE_REQUEST__PHASE__PHASE_NONE
#define PSD_AGREE_PREPARE PARAMSERVER__V1__AGREE_REQUEST__PHASE__PREPARE
#define PSD_AGREE_COMMIT PARAMSERVER__V1__AGREE_REQUEST__PHASE__COMMIT
#define PSD_AGREE_FORGET PARAMSERVER__V1__AGREE_REQUEST__PHASE__FORGET
#define PSD_AGREE_INQUIRE PARAMSERVER__V1__AGREE_REQUEST__PHASE__INQUIRE

struct psd_proposal {
    uint64_t number;  // grows from one to the next; 0: there is none
    uint64_t round;   // the first that uses it; async, ssp: 0
    bool any_round;   // nobody has named that round
    int kind;         // AgreeKind
    size_t bytes;
    uint8_t value[PSD_AGREE_VALUE_MAX];
};

// What a kind of change does on one task. The job's lock is held in `take`, `forget` and `done`, and where the kind is
// between rounds in `reserve`; otherwise it may be.
struct psd_agree_kind {
    const char *name;      // of what asks for it: "set hyper"
    const char *room_for;  // what bytes that lack would be for
    bool between_rounds;   // else it takes effect in one. A task that refuses says so until it hears FORGET
    enum ps_code (*check)(const struct psd_job *job, const struct psd_proposal *p, struct ps_error *e);
    // Makes room for one more, so that take cannot fail. No partition here needs what held before round `least`
    // (UINT64_MAX: there are no rounds). RESOURCE_EXHAUSTED: there is no room; *missing: the bytes that lack, 0: it is
    // not bytes that lack. UNAVAILABLE: not yet.
    enum ps_code (*reserve)(struct psd_job *job, const struct psd_proposal *p, uint64_t least, uint64_t *missing);
    void (*take)(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready);  // p is decided
    void (*forget)(struct psd_job *job, const struct psd_proposal *p);  // what reserve has done; may be NULL
    // At the control task: all tasks have it. May be NULL.
    void (*done)(struct psd_job *job, const struct psd_proposal *p, struct psd_call **ready);
    // "learning_rate becomes 0.1"
    void (*describe)(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size);
};

struct psd_agree_kinds {
    const struct psd_agree_kind *const *v;  // [n] by AgreeKind; NULL: there is none of that number
    size_t n;
};

// Where one task stands in the phase.
enum psd_agree_answer { PSD_TO_ASK, PSD_ASK_LATER, PSD_ASKED, PSD_ANSWERED };  // later: at the next tick

// The control task's own part: the proposal that it makes.
struct psd_agree_lead {
    psd_agree_phase phase;  // NONE: all tasks have heard the end of it
    struct psd_proposal p;  // its number goes on growing
    uint64_t asked;         // the round asked for; 0: any
    uint64_t ahead;         // rounds, of this try
    uint64_t begun;         // ns: the phase
    uint64_t silent_at;     // ns: then a task is silent, and who waits for the outcome is told so
    uint32_t tasks, n_answered;
    enum psd_agree_answer *answers;  // [tasks]
    bool too_late;                   // a task has closed the round, and
    uint64_t greatest;               // this is the greatest that any has
    bool begun_before;               // in an earlier run, in which tasks have it: it is not given up
    bool decided;                    // there is an outcome: as `error` says
    struct ps_error error;
    struct psd_waiters waiting;  // for the outcome
};

struct psd_agree {
    struct psd_agree_kinds kinds;
    uint64_t decided;              // proposals up to this number are committed or forgotten here
    struct psd_proposal prepared;  // number 0: none
    uint64_t since;                // ns: prepared
    uint64_t inquired;             // ns: asked what became of it; 0: not yet
    bool logged;                   // that it has held rounds for long
    struct psd_agree_lead lead;
};

// ---- the component ------------------------------------------------------------------------------------------------

extern const struct psd_component psd_agree_component;  // agreement.c, which calls the other two

// ---- agree.c: what every task does --------------------------------------------------------------------------------

// What a task has to say.
struct psd_agree_verdict {
    // PS_OK; RESOURCE_EXHAUSTED, FAILED_PRECONDITION: it is not prepared here; UNAVAILABLE: not yet.
    enum ps_code code;
    uint64_t missing;  // bytes
    bool prepared;
    uint64_t greatest;  // round that is decided here
};

const struct psd_agree_kind *psd_agree_kind_of(const struct psd_job *job, int kind);  // NULL: there is none
// Unlocked. What this task does with a message, whether it came over the network or is its own.
struct psd_agree_verdict psd_agree_take(struct psd_job *job, psd_agree_phase phase, const struct psd_proposal *p,
                                        struct psd_call **ready);
void psd_agree_describe(const struct psd_job *job, const struct psd_proposal *p, char *text, size_t size);
// Packs a message about p; false: no memory.
bool psd_agree_pack(const struct psd_job *job, psd_agree_phase phase, const struct psd_proposal *p,
                    struct ps_slices *message);
// Unlocked. The greatest round that is decided among this task's partitions; 0: none.
uint64_t psd_agree_decided_round(struct psd_job *job);
// Unlocked. Time passes for what is prepared here: it is logged, and inquired about.
void psd_agree_watch(struct psd_job *job, uint64_t now);

// ---- propose.c: what the control task does besides ----------------------------------------------------------------

// Locked. The job's proposal from now on, unless there is another: ABORTED. asked: a round, or 0; greatest:
// psd_agree_decided_round.
// PSD_WAITS: in lead.waiting; psd_agree_go_on follows, unlocked. Where it was parked and the outcome is there, PS_OK
// with the round, or the error.
int psd_agree_propose(struct psd_job *job, const struct psd_proposal *p, uint64_t asked, uint64_t greatest,
                      bool was_parked, uint64_t *round, struct ps_error *e);
// Unlocked. Asks those tasks that the phase has not asked yet, and goes through as many phases as are over.
void psd_agree_go_on(struct psd_job *job, struct psd_call **ready);
// Locked. The job goes on in another run: who waits for an outcome is told that the one before is over. A
// hyperparameter's change that some tasks have is proposed again: the others have forgotten it, or never heard of it.
void psd_agree_lead_again(struct psd_job *job, struct psd_call **ready);
// Unlocked. Time passes for the proposal that is being made.
void psd_agree_press_on(struct psd_job *job, uint64_t now, struct psd_call **ready);
void psd_agree_walk(struct psd_job *job, const struct psd_look *look);  // over the calls that wait for an outcome
// Locked. What was decided of a proposal: PREPARE: nothing yet; COMMIT: of that round. *newest: the greatest number
// that there has been.
psd_agree_phase psd_agree_decision(const struct psd_job *job, uint64_t number, uint64_t *round, uint64_t *newest);

// Does a change wait for tasks to hear of it?
static inline bool psd_agree_is_busy(const struct psd_job *job)
{
    return job->agree->lead.phase != PSD_AGREE_NONE;
}

// Locked. Do tasks hear just now of a change that others have had since an earlier run? Who is about to train waits in
// lead.waiting: until they have, or one is silent.
static inline bool psd_agree_catches_up(const struct psd_job *job)
{
    const struct psd_agree_lead *x = &job->agree->lead;
    return x->begun_before && x->phase != PSD_AGREE_NONE && !x->decided;
}

extern const struct psd_agree_kind psd_agree_hyper;   // hyper.c
extern const struct psd_agree_kind psd_agree_rounds;  // rounds.c

// ---- rounds.c: a job comes into its rounds, or leaves them --------------------------------------------------------

enum psd_rounds_change {
    PSD_ROUNDS_KEEP = 1,  // room for them
    PSD_ROUNDS_BEGIN,     // with the proposal's round
    PSD_ROUNDS_END,       // the proposal's is the first that there is not; with COMMIT, it may be a later one
    PSD_ROUNDS_GIVE_UP,   // the room
};

#endif
