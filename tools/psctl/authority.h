// SPDX-License-Identifier: Apache-2.0
//
// A small certificate authority in a folder: ca.pem, which everybody may read and every node needs; and ca.key, which
// whoever has it can make certificates with. Keys are of elliptic curve P-256.
#ifndef PSCTL_AUTHORITY_H
#define PSCTL_AUTHORITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/identity.h"

struct authority;

enum { AUTHORITY_DAYS = 3650 };

// Makes the folder, if it is not there, and an authority in it. ALREADY_EXISTS: it has one. CANNOT_CREATE,
// CANNOT_WRITE.
enum ps_code authority_create(const char *folder, struct authority **a, struct ps_error *e);
// ca.pem may hold others beside the one whose key ca.key is. NOT_FOUND: there is none; FAILED_PRECONDITION: its files
// are damaged, or of two authorities.
enum ps_code authority_open(const char *folder, struct authority **a, struct ps_error *e);
int64_t authority_until(const struct authority *a);  // s since 1970
void authority_close(struct authority *a);           // may be NULL

// Writes a certificate and its key to one file, which only its owner can read, in place of what was there. It ends with
// its authority at the latest.
enum ps_code authority_issue(const struct authority *a, enum ps_role role, const char *user, int days, const char *path,
                             struct ps_error *e);

// What stands in a certificate.
struct certificate {
    unsigned roles;  // 0: it is an authority's, or no certificate of ours
    char user[PS_USER_MAX + 1];
    int64_t until;         // s since 1970
    int64_t signed_until;  // when the authority ends that has signed it; 0: not known
    bool is_authority;
};
// A file's first. ca: a file of authorities, one of which has signed it, or several; NULL: that is not asked.
enum ps_code certificate_read(const char *path, const char *ca, struct certificate *c, struct ps_error *e);
// All of a file, in order; *v is malloc'd, also where there is an error.
enum ps_code certificate_read_all(const char *path, struct certificate **v, size_t *n, struct ps_error *e);

#endif
