// SPDX-License-Identifier: Apache-2.0
#include "common/tls/munged.h"

#include <inttypes.h>
#include <munge.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"

enum ps_code ps_munged_check(struct ps_error *e)
{
    return e->code = PS_OK;
}

// What libmunge needs for one question; munge_ctx_destroy frees it.
static enum ps_code munged_context(const char *socket, munge_ctx_t *context, struct ps_error *e)
{
    *context = munge_ctx_create();
    if (!*context)
        return ps_no_memory(e, "a munge credential");
    if (munge_ctx_set(*context, MUNGE_OPT_TTL, PS_MUNGED_SECONDS) == EMUNGE_SUCCESS &&
        (!socket || munge_ctx_set(*context, MUNGE_OPT_SOCKET, socket) == EMUNGE_SUCCESS))
        return e->code = PS_OK;
    ps_fail(e, PS_FAILED_PRECONDITION, "munge: %s", munge_ctx_strerror(*context));
    munge_ctx_destroy(*context);
    return e->code;
}

// Did munged not answer? It may be about to start.
static bool munged_is_silent(munge_err_t error)
{
    return error == EMUNGE_SOCKET || error == EMUNGE_TIMEOUT || error == EMUNGE_SNAFU;
}

// What libmunge says in full, or in short.
static const char *munged_words(munge_ctx_t context, munge_err_t error)
{
    const char *words = munge_ctx_strerror(context);
    return words ? words : munge_strerror(error);
}

enum ps_code ps_munged_encode(const char *socket, const char *text, char **credential, struct ps_error *e)
{
    munge_ctx_t context;
    if (munged_context(socket, &context, e))
        return e->code;
    const munge_err_t error = munge_encode(credential, context, text, (int)strlen(text));
    if (error != EMUNGE_SUCCESS)
        ps_fail(e, munged_is_silent(error) ? PS_UNAVAILABLE : PS_UNAUTHENTICATED,
                PS_MUNGED " that calls makes no credential: %s", munged_words(context, error));
    munge_ctx_destroy(context);
    return e->code;
}

// ---- taking one apart -----------------------------------------------------------------------------------------------

// By how much the clock of its host goes before this one's, as far as one can tell.
static int64_t munged_ahead(munge_ctx_t context)
{
    time_t made = 0, shown = 0;
    munge_ctx_get(context, MUNGE_OPT_ENCODE_TIME, &made);
    munge_ctx_get(context, MUNGE_OPT_DECODE_TIME, &shown);
    return (int64_t)made - (int64_t)shown;
}

static enum ps_code munged_refuse(munge_ctx_t context, munge_err_t error, struct ps_error *e)
{
    if (munged_is_silent(error))
        return ps_fail(e, PS_UNAVAILABLE, PS_MUNGED " that is called does not answer: %s",
                       munged_words(context, error));
    switch (error) {
    case EMUNGE_CRED_EXPIRED:
        return ps_fail(e, PS_UNAUTHENTICATED,
                       "the munge credential has expired: it was made %" PRId64
                       " s ago: expected hosts whose clocks agree within %d s",
                       -munged_ahead(context), PS_MUNGED_SECONDS);
    case EMUNGE_CRED_REWOUND:
        return ps_fail(e, PS_UNAUTHENTICATED,
                       "the munge credential was made %" PRId64
                       " s in the future: expected hosts whose clocks agree within %d s",
                       munged_ahead(context), PS_MUNGED_SECONDS);
    case EMUNGE_CRED_REPLAYED:
        return ps_fail(e, PS_UNAUTHENTICATED, "the munge credential was shown before: each is good once");
    default:
        return ps_fail(e, PS_UNAUTHENTICATED, "the munge credential is none of this site's key: %s",
                       munged_words(context, error));
    }
}

static enum ps_code munged_take_text(const void *said, int len, char text[PS_MUNGED_TEXT], struct ps_error *e)
{
    if (len < 0 || len >= PS_MUNGED_TEXT)
        return ps_fail(e, PS_UNAUTHENTICATED, "the munge credential says %d bytes: expected fewer than %d", len,
                       PS_MUNGED_TEXT);
    if (len > 0)
        memcpy(text, said, (size_t)len);
    text[len] = '\0';
    return e->code = PS_OK;
}

// Of one that has expired, too, munged says what is in it.
enum ps_code ps_munged_decode(const char *socket, const char *credential, char text[PS_MUNGED_TEXT], uid_t *uid,
                              struct ps_error *e)
{
    munge_ctx_t context;
    void *said = NULL;
    int len = 0;
    gid_t gid;
    if (munged_context(socket, &context, e))
        return e->code;
    const munge_err_t error = munge_decode(credential, context, &said, &len, uid, &gid);
    if (error != EMUNGE_SUCCESS)
        munged_refuse(context, error, e);
    else
        munged_take_text(said, len, text, e);
    free(said);
    munge_ctx_destroy(context);
    return e->code;
}
