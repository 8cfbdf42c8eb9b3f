// SPDX-License-Identifier: Apache-2.0
//
// The users whose jobs are here, as certificates name them, and what each may have of this ps task: jobs, and memory
// for what they declare. What is kept of their requests, and rounds that a job comes into later, do not count.
//
// Receives from: job.c, declaration.c, table.c, service. Hands to: nobody. Threads: any; the lock is taken last.
#ifndef PSD_USERS_H
#define PSD_USERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/identity.h"

struct psd_user {
    struct psd_user *next;
    uint32_t refs;               // jobs
    size_t bytes;                // declared by them
    char name[PS_USER_MAX + 1];  // as the first call said it
    char account[];              // ps_identity_account: "": there is no TLS nor munge, and no quota
};

struct psd_users {
    pthread_mutex_t lock;
    struct psd_user *first;
    uint32_t most_jobs;  // of one; 0: as many as there may be
    size_t most_bytes;   // likewise
};

void psd_users_init(struct psd_users *users, uint32_t most_jobs, size_t most_bytes);
void psd_users_fini(struct psd_users *users);  // no job is left

// With a reference; NULL: no memory. from: NULL: nobody has been asked.
struct psd_user *psd_users_find(struct psd_users *users, const struct ps_identity *from);
void psd_users_let_go(struct psd_users *users, struct psd_user *user);

// RESOURCE_EXHAUSTED: then the user would have more than it may, and nothing was taken. FAILED_PRECONDITION: likewise,
// and it would if it had nothing else.
enum ps_code psd_users_take(struct psd_users *users, struct psd_user *user, size_t bytes, struct ps_error *e);
void psd_users_give(struct psd_users *users, struct psd_user *user, size_t bytes);
// Of so many jobs that the user has here: may it have another one?
enum ps_code psd_users_check_jobs(const struct psd_users *users, const struct ps_identity *from, uint32_t jobs,
                                  struct ps_error *e);

#endif
