// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job find each other: all call one of them, the host, which answers when the last one has come.
// Worker 0 hosts the first meeting. Where one of a session is lost, those who are left meet at the lowest of them, and
// go on if they are more than half of that session, or half of it with its lowest: no two groups go on side by side.
// One that has died may come back: it asks all others where the session is, and waits at the lowest of that.
//
// A newcomer of a session counts in that from when it has what the others have: until then they are to go on where all
// newcomers die. Some see that moment before others do, so there is one between in which both have to be a majority: of
// the others, and of all. Whoever counts the others alone, and whoever counts all, shares members with each who counts
// both; and nobody counts all before everybody counts both.
//
// Receives from: peers.c. Hands to: common/rpc. Threads: one waits; calls come on others.
#ifndef WK_RENDEZVOUS_H
#define WK_RENDEZVOUS_H

#include <pthread.h>

#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "workerd/collective/rpc/options.h"

// Of whom a majority has to be left.
enum wk_majority { WK_OF_OTHERS_THAN_NEWCOMERS, WK_OF_BOTH, WK_OF_ALL };

struct wk_rendezvous {
    const struct wk_peers_options *options;
    char *own_host;
    // A new one whenever the workers meet: where an attempt to connect has failed before, a worker that has come since
    // would be taken for lost.
    struct ps_client *client;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct guest {
        struct ps_call *call;  // NULL: it has not come, or has been answered
        char *host, *ring_at;
        bool is_new;       // it has not been of the last session
        uint64_t after;    // the last session that it has been of; 0: none
    } * guest;             // [workers] who want to meet here
    bool *lost;            // [workers] of the last session, as far as is known
    uint64_t *left;        // [workers] the last session that each has left by itself, as it says; 0: none
    uint64_t *heard;       // [workers] when each has answered last whether it lives; 0: it has not,
    uint64_t busy;         // and when one of them was still in the last session
    const char *why;       // the last session has ended, while the workers meet; NULL: there has been none
    bool over;             // nobody is let in any more
    bool answered;         // the host has said something,
    struct ps_error said;  // what that was,
    uint32_t asked;        // whose word that is
    uint32_t sent_to;      // and to whom it has sent this worker; UINT32_MAX: to nobody

    // It hosted those who are left of the last session, who are too few to go on, and no others can.
    bool leads_rest;
    bool stopped;  // a signal has ended the last meeting
    bool running;  // the job had begun before the last session,
    bool joined;   // and this worker had not been there
    bool admits;   // others have come to the last session that had not been of the one before
    // The last session: its members in the order of ranks, what names their hosts, and where these take connections.
    uint64_t session;  // 0: there has been none
    uint64_t before;   // the one before it
    uint32_t n;
    uint32_t *rank;
    char **host, **ring_at;
    bool *newcomer;  // [workers] who had not been of the one before, or had nothing yet of what the others had
    enum wk_majority majority;
};

void wk_rendezvous_init(struct wk_rendezvous *v, const struct wk_peers_options *options);
void wk_rendezvous_fini(struct wk_rendezvous *v);

// A call of the method has come: the session that has ended for its caller, and in why the reason; 0: none has, or the
// caller is refused. A caller is gone.
uint64_t wk_rendezvous_call(struct wk_rendezvous *v, struct ps_call *call, char *why, size_t size);
void wk_rendezvous_cancel(struct wk_rendezvous *v, struct ps_call *call);
// A worker of the session is not waited for any more.
void wk_rendezvous_lose(struct wk_rendezvous *v, uint32_t rank);
// A worker says that it leaves this session by itself: it is not lost, also where it does not answer any more.
void wk_rendezvous_leave(struct wk_rendezvous *v, uint32_t rank, uint64_t session);
// Has it been in the last session for longer than all others that are not lost, as far as is known? arrival: of
// each worker of the job; of several with the least the lowest leads. NULL: all have the same.
bool wk_rendezvous_leads(struct wk_rendezvous *v, const double *arrival);
// Asks whoever leads in place of this worker whether it lives. Where it does not answer, it is lost, and so on with the
// next. While nobody else meets here.
void wk_rendezvous_ask_leader(struct wk_rendezvous *v, const double *arrival);
// Are there newcomers in the last session? All its members say the same.
bool wk_rendezvous_has_newcomers(struct wk_rendezvous *v);
// The newcomers have what the others have; all_know: everybody has said so here once.
void wk_rendezvous_welcome(struct wk_rendezvous *v, bool all_know);
// Is this worker a newcomer that has not been welcomed?
bool wk_rendezvous_is_newcomer(struct wk_rendezvous *v);
// Nobody is let in any more; those who wait hear that this worker has ended.
void wk_rendezvous_end(struct wk_rendezvous *v);

// How many wait here to come back.
uint32_t wk_rendezvous_guests(struct wk_rendezvous *v);

// Waits until all have come, and begins a session. One that lives and is still busy in the last session, as with a long
// evaluation, is waited for, however long that takes.
// admits: where this worker is the host, it lets those in who want to
// come back; else they wait on. why: by which the last one has ended; NULL: this is the first.
// DEADLINE_EXCEEDED, UNAVAILABLE: who has not come. FAILED_PRECONDITION, ALREADY_EXISTS: the host refuses this worker,
// or too few are left. CANCELLED: a signal.
enum ps_code wk_rendezvous_meet(struct wk_rendezvous *v, bool admits, const char *why, struct ps_error *e);

#endif
