// SPDX-License-Identifier: Apache-2.0
#include "psd/job/users.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void psd_users_init(struct psd_users *users, uint32_t most_jobs, size_t most_bytes)
{
    *users = (struct psd_users){.most_jobs = most_jobs, .most_bytes = most_bytes};
    pthread_mutex_init(&users->lock, NULL);
}

void psd_users_fini(struct psd_users *users)
{
    pthread_mutex_destroy(&users->lock);
}

// Locked. Where the pointer to it stands; to NULL: it is none.
static struct psd_user **users_seek(struct psd_users *users, const char *account)
{
    struct psd_user **at = &users->first;
    while (*at && strcmp((*at)->account, account) != 0)
        at = &(*at)->next;
    return at;
}

struct psd_user *psd_users_find(struct psd_users *users, const struct ps_identity *from)
{
    const char *account = ps_identity_account(from);
    pthread_mutex_lock(&users->lock);
    struct psd_user **at = users_seek(users, account);
    if (!*at && (*at = ps_try_alloc(sizeof **at + strlen(account) + 1))) {
        strcpy((*at)->account, account);
        strcpy((*at)->name, from ? from->user : "");
    }
    struct psd_user *user = *at;
    if (user)
        user->refs++;
    pthread_mutex_unlock(&users->lock);
    return user;
}

void psd_users_let_go(struct psd_users *users, struct psd_user *user)
{
    pthread_mutex_lock(&users->lock);
    const bool last = --user->refs == 0;
    if (last)
        *users_seek(users, user->account) = user->next;
    pthread_mutex_unlock(&users->lock);
    if (last)
        free(user);
}

enum ps_code psd_users_take(struct psd_users *users, struct psd_user *user, size_t bytes, struct ps_error *e)
{
    const size_t most = user->account[0] && users->most_bytes ? users->most_bytes : SIZE_MAX;
    pthread_mutex_lock(&users->lock);
    const size_t had = user->bytes;
    const bool fits = had <= most && bytes <= most - had;
    user->bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&users->lock);
    if (fits)
        return PS_OK;
    if (bytes > most)  // waiting for the end of its other jobs is of no use
        return ps_fail(e, PS_FAILED_PRECONDITION, "the job needs %zu bytes; user %s may have %zu", bytes, user->name,
                       most);
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "the job needs %zu bytes; user %s has %zu of %zu in use", bytes,
                   user->name, had, most);
}

void psd_users_give(struct psd_users *users, struct psd_user *user, size_t bytes)
{
    pthread_mutex_lock(&users->lock);
    user->bytes -= bytes;
    pthread_mutex_unlock(&users->lock);
}

enum ps_code psd_users_check_jobs(const struct psd_users *users, const struct ps_identity *from, uint32_t jobs,
                                  struct ps_error *e)
{
    if (!*ps_identity_account(from) || !users->most_jobs || jobs < users->most_jobs)
        return PS_OK;
    return ps_fail(e, PS_RESOURCE_EXHAUSTED, "user %s has %" PRIu32 " job%s here, and may have no more: stop one",
                   from->user, jobs, jobs == 1 ? "" : "s");
}
