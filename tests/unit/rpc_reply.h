// SPDX-License-Identifier: Apache-2.0
//
// A call by a client of common/rpc, and what came of it.
#ifndef TESTS_UNIT_RPC_REPLY_H
#define TESTS_UNIT_RPC_REPLY_H

#include <pthread.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"

struct reply {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool come;
    enum ps_code code;
    char text[512];
};

static inline void reply_come(void *arg, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct reply *r = arg;
    (void)body;
    pthread_mutex_lock(&r->lock);
    r->come = true;
    r->code = code;
    snprintf(r->text, sizeof r->text, "%s", text);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

// Calls an empty method of ps task 0, and waits for the answer.
static inline void reply_ask(struct ps_client *c, int method, bool stream, int ms, struct reply *r)
{
    struct ps_slices request = PS_SLICES_EMPTY;
    const struct ps_call_options options = {.stream = stream, .deadline = ps_now() + (uint64_t)ms * PS_MS};
    *r = (struct reply){.code = PS_OK};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    ps_client_call(c, 0, method, &options, &request, reply_come, r);
    pthread_mutex_lock(&r->lock);
    while (!r->come)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
}

#endif
