// SPDX-License-Identifier: Apache-2.0
// A thread that waits for a psc__done_fn.
#ifndef PSC_WAIT_H
#define PSC_WAIT_H

#include <pthread.h>
#include <stdbool.h>

#include "common/base/error.h"
#include "libclient/psclient.h"

struct psc__waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    struct ps_error error;
};

#define PSC__WAITER ((struct psc__waiter){.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER})

void psc__waiter_wake(void *waiter, const struct ps_error *e);      // a psc__done_fn
enum ps_code psc__waiter_wait(struct psc__waiter *w);               // then w is gone but for its error
psc_code psc__waiter_end(struct psc__waiter *w, psc_error *error);  // waits, and gives the error out

#endif
