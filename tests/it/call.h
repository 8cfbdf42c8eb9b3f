// SPDX-License-Identifier: Apache-2.0
//
// A call to task 0 of a client of common/rpc, and the wait for its answer.
#ifndef TESTS_IT_CALL_H
#define TESTS_IT_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "common/wire/wire.h"

static const uint64_t call_timeout = 60 * PS_SECOND;

struct answer {
    pthread_mutex_t lock;
    pthread_cond_t came;
    bool is_there;
    enum ps_code code;
    char text[512];
    struct ps_slices body;  // to be cleared
};

static inline void take_answer(void *arg, enum ps_code code, const char *text, struct ps_slices *body)
{
    struct answer *a = arg;
    pthread_mutex_lock(&a->lock);
    a->code = code;
    snprintf(a->text, sizeof a->text, "%s", text);
    ps_slices_move(&a->body, body);
    a->is_there = true;
    pthread_cond_signal(&a->came);
    pthread_mutex_unlock(&a->lock);
}

// payload (may be NULL) is moved.
static inline void ask(struct ps_client *client, int method, bool stream, const ProtobufCMessage *m,
                       struct ps_slices *payload, struct answer *a)
{
    struct ps_slices request = PS_SLICES_EMPTY;
    *a = (struct answer){.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};
    ps_msg_pack(m, payload, &request);
    ps_client_call(client, 0, method, &(struct ps_call_options){.stream = stream, .deadline = ps_now() + call_timeout},
                   &request, take_answer, a);
}

static inline enum ps_code await(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->is_there)
        pthread_cond_wait(&a->came, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return a->code;
}

#endif
