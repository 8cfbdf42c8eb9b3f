// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job find each other: all call worker 0, which answers when the last one has come.
#ifndef WK_RENDEZVOUS_H
#define WK_RENDEZVOUS_H

#include <pthread.h>

#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "workerd/collective/rpc/peers.h"

struct wk_rendezvous {
    const struct wk_peers_options *options;  // until it is over
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ps_call **guest;  // [workers] at worker 0: who has come; NULL: not yet
    uint32_t come;
    bool over;             // they have been answered
    bool answered;         // elsewhere: worker 0 has said something
    struct ps_error said;  // what that was
    uint64_t session;      // of the answer; at worker 0 drawn in the beginning
    char **host;           // [workers] likewise; "": it shares no memory
};

void wk_rendezvous_init(struct wk_rendezvous *v, const struct wk_peers_options *options);
void wk_rendezvous_fini(struct wk_rendezvous *v);

// At worker 0: a call of the method has come, or its caller is gone.
void wk_rendezvous_call(struct wk_rendezvous *v, struct ps_call *call);
void wk_rendezvous_cancel(struct wk_rendezvous *v, struct ps_call *call);

// Waits until all have come. At worker 0 the guests are still to be answered; elsewhere `client` calls it. Errors as
// wk_peers_open.
enum ps_code wk_rendezvous_wait(struct wk_rendezvous *v, struct ps_client *client, struct ps_error *e);
// At worker 0: all who have come go on, or hear why not.
void wk_rendezvous_end(struct wk_rendezvous *v, const struct ps_error *why);

#endif
