// SPDX-License-Identifier: Apache-2.0
// The functions that wait: each starts something, sleeps, and takes the outcome.
#include "libclient/wait.h"

#include <unistd.h>

#include "libclient/client.h"
#include "libclient/convert.h"

void psc__waiter_wake(void *waiter, const struct ps_error *e)
{
    struct psc__waiter *w = waiter;
    pthread_mutex_lock(&w->lock);
    w->error = *e;
    w->done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

enum ps_code psc__waiter_wait(struct psc__waiter *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->done)
        pthread_cond_wait(&w->cond, &w->lock);
    pthread_mutex_unlock(&w->lock);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->lock);
    return w->error.code;
}

psc_code psc__waiter_end(struct psc__waiter *w, psc_error *error)
{
    psc__waiter_wait(w);
    return psc__error_out(&w->error, error);
}

psc_code psc_declare(psc_client *client, const psc_declaration *declaration, bool *resumed, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__declare(client, declaration, resumed, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_attach(psc_client *client, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__attach(client, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_barrier(psc_client *client, const char *name, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__barrier(client, name, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_lease(psc_client *client, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round,
                   psc_share *share, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__lease(client, epoch, examples, want, round, share, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_lease_ahead(psc_client *client, uint64_t epoch, uint64_t examples, uint64_t want, psc_share *share,
                         psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__lease_ahead(client, epoch, examples, want, share, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_clock(psc_client *client, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__clock(client, step, wait, clock, slowest, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_reduce(psc_client *client, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                    uint32_t *workers, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__reduce(client, name, op, dtype, data, count, workers, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_all_gather(psc_client *client, const char *name, const void *data, uint64_t bytes, void **all,
                        uint64_t *all_bytes, uint64_t *sizes, psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__all_gather(client, name, data, bytes, all, all_bytes, sizes, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

psc_code psc_broadcast(psc_client *client, const char *name, uint32_t root, void *data, uint64_t bytes,
                       psc_error *error)
{
    struct psc__waiter w = PSC__WAITER;
    psc__broadcast(client, name, root, data, bytes, psc__waiter_wake, &w);
    return psc__waiter_end(&w, error);
}

void psc_close(psc_client *client, const char *reason)
{
    struct psc__waiter w = PSC__WAITER;
    if (!client || client->pid != getpid())
        return;
    psc__leave(client, reason, psc__waiter_wake, &w);
    psc__waiter_wait(&w);
    psc__client_free(client);
}
