// SPDX-License-Identifier: Apache-2.0
//
// A small certificate authority in a folder: ca.pem, which everybody may read and every node needs; and ca.key, which
// whoever has it can make certificates with. Keys are of elliptic curve P-256.
#ifndef PSCTL_AUTHORITY_H
#define PSCTL_AUTHORITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tls/identity.h"

struct authority;

enum { AUTHORITY_DAYS = 3650 };

// Makes the folder, if it is not there, and an authority in it. ALREADY_EXISTS: it has one. CANNOT_CREATE,
// CANNOT_WRITE.
enum ps_code authority_create(const char *folder, struct authority **a, struct ps_error *e);
// NOT_FOUND: there is none; FAILED_PRECONDITION: its files are damaged, or of two authorities.
enum ps_code authority_open(const char *folder, struct authority **a, struct ps_error *e);
void authority_close(struct authority *a);  // may be NULL

// Writes a certificate and its key to one file, which only its owner can read, in place of what was there.
enum ps_code authority_issue(const struct authority *a, enum ps_role role, const char *user, int days, const char *path,
                             struct ps_error *e);

// What stands in a file's first certificate.
struct certificate {
    unsigned roles;  // 0: it is an authority's, or no certificate of ours
    char user[PS_USER_MAX + 1];
    int64_t until;  // s since 1970
    bool is_authority;
};
enum ps_code certificate_read(const char *path, struct certificate *c, struct ps_error *e);

#endif
