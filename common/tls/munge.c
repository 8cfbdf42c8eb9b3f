// SPDX-License-Identifier: Apache-2.0
#include "common/tls/munge.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/tls/munged.h"
#include "common/wire/wire.h"

// How long a task waits for its turn: those behind one that munged keeps for longer end with an error.
static const uint64_t munge_patience = 2 * PS_SECOND;

STAILQ_HEAD(munge_tasks, ps_munge_task);

struct ps_munge {
    char *socket;  // NULL: libmunge's default
    bool users;
    uid_t own;
    atomic_uint refs;  // after the last the thread ends, and frees it
    pthread_mutex_t lock;
    pthread_cond_t changed;  // all below
    struct munge_tasks tasks;
    unsigned n;  // of them
    bool closed;
};

// ---- what a credential says -----------------------------------------------------------------------------------------

// The same address means another process on each host.
static bool munge_is_local(const char *address)
{
    static const char *const begins[] = {"unix:", "127.", "localhost:", "0.0.0.0:", "[::1]:", "[::]:"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(address, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void munge_text(const char *address, char text[PS_MUNGED_TEXT])
{
    char host[PS_HOST_NAME];
    const bool local = munge_is_local(address);
    snprintf(text, PS_MUNGED_TEXT, "paramserver %d %.400s%s%s", PS_PROTOCOL, address, local ? " " : "",
             local ? ps_host_name(host) : "");
}

enum ps_code ps_munge_make(struct ps_munge *m, const char *address, char **credential, struct ps_error *e)
{
    char text[PS_MUNGED_TEXT];
    munge_text(address, text);
    return ps_munged_encode(m->socket, text, credential, e);
}

// ---- who has made it ------------------------------------------------------------------------------------------------

enum { MUNGE_ENTRY = 4096, MUNGE_ENTRY_MAX = 1 << 20 };  // bytes of a user's entry at the name service

// False: the entry is larger than that.
static bool munge_ask_name(uid_t uid, size_t size, struct ps_identity *who)
{
    struct passwd entry, *found = NULL;
    char *memory = ps_try_alloc(size);
    const int failed = memory ? getpwuid_r(uid, &entry, memory, size, &found) : ENOMEM;
    if (!failed && found && ps_user_is_plain(found->pw_name))
        snprintf(who->user, sizeof who->user, "%s", found->pw_name);
    free(memory);
    return failed != ERANGE;
}

// The user's name; where there is none, or it steers a terminal, or the name service does not answer, its number.
static void munge_name(uid_t uid, struct ps_identity *who)
{
    snprintf(who->uid, sizeof who->uid, "uid%u", (unsigned)uid);
    snprintf(who->user, sizeof who->user, "%s", who->uid);
    size_t size = MUNGE_ENTRY;
    while (!munge_ask_name(uid, size, who) && size < MUNGE_ENTRY_MAX)
        size *= 4;
}

static enum ps_code munge_admit(const struct ps_munge *m, uid_t uid, struct ps_identity *who, struct ps_error *e)
{
    const bool own = uid == m->own || uid == 0;
    if (!own && !m->users)
        return ps_fail(e, PS_PERMISSION_DENIED,
                       "uid %u may not call this process of uid %u: expected the same user or root; psd "
                       "--munge-users lets others train",
                       (unsigned)uid, (unsigned)m->own);
    who->roles = own ? PS_ROLE_ALL : PS_ROLE_WORKER;
    munge_name(uid, who);
    return e->code = PS_OK;
}

enum ps_code ps_munge_identify(struct ps_munge *m, const char *credential, const char *address, struct ps_identity *who,
                               struct ps_error *e)
{
    char said[PS_MUNGED_TEXT], expected[PS_MUNGED_TEXT];
    uid_t uid;
    if (ps_munged_decode(m->socket, credential, said, &uid, e))
        return e->code;
    munge_text(address, expected);
    if (strcmp(said, expected) == 0)
        return munge_admit(m, uid, who, e);
    return ps_fail(e, PS_UNAUTHENTICATED,
                   "the munge credential is meant for '%.150s', and this is '%.150s': expected the same address in the "
                   "cluster that both are given",
                   said, expected);
}

// ---- the thread -----------------------------------------------------------------------------------------------------

static void munge_free(struct ps_munge *m)
{
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m->socket);
    free(m);
}

static void munge_run(struct ps_munge *m, struct ps_munge_task *t)
{
    t->error.code = PS_OK;
    if (ps_now() > t->until)
        ps_fail(&t->error, PS_UNAVAILABLE, PS_MUNGED " that %s has not answered in time",
                t->decodes ? "is called" : "calls");
    else if (t->decodes)
        ps_munge_identify(m, t->credential, t->address, &t->from, &t->error);
    else
        ps_munge_make(m, t->address, &t->credential, &t->error);
    t->done(t);
}

// The next task; NULL: it is closed, and there is none.
static struct ps_munge_task *munge_next(struct ps_munge *m)
{
    pthread_mutex_lock(&m->lock);
    while (STAILQ_EMPTY(&m->tasks) && !m->closed)
        pthread_cond_wait(&m->changed, &m->lock);
    struct ps_munge_task *t = STAILQ_FIRST(&m->tasks);
    if (t)
        STAILQ_REMOVE_HEAD(&m->tasks, link);
    m->n -= t != NULL;
    pthread_mutex_unlock(&m->lock);
    return t;
}

// Signals are for other threads, and a munged that is gone is an error, no SIGPIPE.
static void *munge_thread(void *arg)
{
    struct ps_munge *m = arg;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (struct ps_munge_task *t; (t = munge_next(m));)
        munge_run(m, t);
    munge_free(m);
    return NULL;
}

void ps_munge_ask(struct ps_munge *m, struct ps_munge_task *t)
{
    t->decodes = t->credential != NULL;
    t->until = ps_now() + munge_patience;
    pthread_mutex_lock(&m->lock);
    const bool full = m->n == PS_MUNGE_WAITING;
    if (!full) {
        STAILQ_INSERT_TAIL(&m->tasks, t, link);
        m->n++;
        pthread_cond_signal(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
    if (full) {
        ps_fail(&t->error, PS_UNAVAILABLE, "%d calls wait for " PS_MUNGED " that %s, which is all", PS_MUNGE_WAITING,
                t->decodes ? "is called" : "calls");
        t->done(t);
    }
}

// ---- open and close -------------------------------------------------------------------------------------------------

// NULL: no memory.
static struct ps_munge *munge_new(const char *socket, bool users)
{
    struct ps_munge *m = ps_try_alloc(sizeof *m);
    char *copy = socket ? ps_try_strdup(socket) : NULL;
    if (!m || (socket && !copy)) {
        free(m);
        free(copy);
        return NULL;
    }
    m->socket = copy;
    m->users = users;
    m->own = geteuid();
    atomic_init(&m->refs, 1);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    STAILQ_INIT(&m->tasks);
    return m;
}

enum ps_code ps_munge_open(const char *socket, bool users, struct ps_munge **munge, struct ps_error *e)
{
    pthread_t thread;
    if (ps_munged_check(e))
        return e->code;
    struct ps_munge *m = munge_new(socket, users);
    if (!m)
        return ps_no_memory(e, "munge");
    if (pthread_create(&thread, NULL, munge_thread, m)) {
        munge_free(m);
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "munge: cannot start a thread");
    }
    pthread_detach(thread);
    *munge = m;
    return PS_OK;
}

void ps_munge_ref(struct ps_munge *m)
{
    atomic_fetch_add(&m->refs, 1);
}

void ps_munge_close(struct ps_munge *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
        return;
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}
