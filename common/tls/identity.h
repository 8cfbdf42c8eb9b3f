// SPDX-License-Identifier: Apache-2.0
//
// Who somebody is, as a certificate says: its role, by a DNS name among its subject alternative names; and its user, by
// the common name of its subject, as with etcd and Kubernetes. A certificate does not say on which host it is used. Or
// as munge says: the uid.
#ifndef PS_COMMON_TLS_IDENTITY_H
#define PS_COMMON_TLS_IDENTITY_H

#include <stdbool.h>

// What one may do: bits, since a certificate may name several.
enum ps_role {
    PS_ROLE_PSD = 1,     // a ps task: is called, and calls the others
    PS_ROLE_WORKER = 2,  // trains jobs of its user; is called by other workers of that user
    PS_ROLE_ADMIN = 4,   // looks at all jobs and changes them
    PS_ROLE_ALL = 7
};

enum { PS_USER_MAX = 64 };  // bytes: what X.509 allows for a common name
enum { PS_UID_TEXT = 16 };

struct ps_identity {
    unsigned roles;              // of enum ps_role; all of them where there is no TLS
    char user[PS_USER_MAX + 1];  // for texts; "": there is no TLS nor munge
    // As whom calls are compared where that is not the name: munge's "uid1000", which stays what it is while the name
    // service does not answer. "": the name.
    char uid[PS_UID_TEXT];
};

// What two calls of one user have alike, and of two users never. "": nobody has been asked; who may be NULL then.
static inline const char *ps_identity_account(const struct ps_identity *who)
{
    return !who ? "" : who->uid[0] ? who->uid : who->user;
}

const char *ps_role_name(enum ps_role role);  // "worker"
const char *ps_role_host(enum ps_role role);  // "worker.paramserver", in a certificate
// Of the name; 0: there is no such role.
enum ps_role ps_role_find(const char *name);
// "worker", "worker or admin"; "none".
enum { PS_ROLES_TEXT = 40 };
void ps_roles_text(unsigned roles, char text[PS_ROLES_TEXT]);
// Can text be a user? 1 to PS_USER_MAX bytes that steer no terminal.
bool ps_user_is_plain(const char *text);

#endif
