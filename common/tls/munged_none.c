// SPDX-License-Identifier: Apache-2.0
//
// In place of munged.c, where configure found no libmunge.
#include "common/tls/munged.h"

enum ps_code ps_munged_check(struct ps_error *e)
{
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "munge: this build has none: it needs libmunge (Debian: libmunge-dev), where configure finds it");
}

enum ps_code ps_munged_encode(const char *socket, const char *text, char **credential, struct ps_error *e)
{
    (void)socket;
    (void)text;
    (void)credential;
    return ps_munged_check(e);
}

enum ps_code ps_munged_decode(const char *socket, const char *credential, char text[PS_MUNGED_TEXT], uid_t *uid,
                              struct ps_error *e)
{
    (void)socket;
    (void)credential;
    (void)text;
    (void)uid;
    return ps_munged_check(e);
}
