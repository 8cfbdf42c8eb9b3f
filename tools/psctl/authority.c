// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/authority.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/file/output.h"
#include "common/tls/tls.h"

struct authority {
    X509 *certificate;
    EVP_PKEY *key;
};

enum { CLOCKS_DIFFER = 300 };  // s

// Has OpenSSL done all that was asked of it?
static enum ps_code authority_check(bool done, const char *what, struct ps_error *e)
{
    e->code = PS_OK;
    if (done)
        return PS_OK;
    const char *why = ERR_reason_error_string(ERR_get_error());
    ps_fail(e, PS_INTERNAL, "OpenSSL cannot %s: %s", what, why ? why : "it does not say why");
    ERR_clear_error();
    return e->code;
}

// ---- files --------------------------------------------------------------------------------------------------------

static bool authority_put(FILE *f, const X509 *x, EVP_PKEY *key)
{
    return (!x || PEM_write_X509(f, x) == 1) && (!key || PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
}

// A daemon's certificate stays its user's, whoever renews it, and its group's, if that could read the one before.
static enum ps_code authority_keep_owner(const struct ps_output *o, struct ps_error *e)
{
    struct stat before, made;
    e->code = PS_OK;
    if (o->in_place || stat(o->target, &before) || fstat(o->fd, &made))
        return PS_OK;
    const bool same = before.st_uid == made.st_uid && before.st_gid == made.st_gid;
    if (!same && fchown(o->fd, before.st_uid, before.st_gid))
        return ps_fail(
            e, PS_PERMISSION_DENIED,
            "%s belongs to user %u and group %u, to whom this user cannot give the new one: expected root, or "
            "that the file is removed first",
            o->path, (unsigned)before.st_uid, (unsigned)before.st_gid);
    if (!(before.st_mode & S_IRWXO) && (before.st_mode & S_IRGRP))
        (void)!fchmod(o->fd, o->mode | S_IRGRP);
    return PS_OK;
}

// Writes a file anew; what was there before stays until it is on disk. "-" is standard output.
static enum ps_code authority_write(const char *path, mode_t mode, const X509 *x, EVP_PKEY *key, struct ps_error *e)
{
    const bool printed = strcmp(path, "-") == 0;
    struct ps_output o;
    e->code = PS_OK;
    if (!printed && ps_output_open_mode(&o, path, mode, e))
        return e->code;
    if (!printed && authority_keep_owner(&o, e)) {
        ps_output_abort(&o);
        return e->code;
    }
    // What a file does not take, its end says.
    const bool written = authority_put(printed ? stdout : o.file, x, key);
    if (!printed && (written || ferror(o.file)))
        ps_output_commit(&o, e);
    else if (!written) {
        ps_fail(e, PS_CANNOT_WRITE, "%s: OpenSSL cannot write it", path);
        if (!printed)
            ps_output_abort(&o);
    }
    ERR_clear_error();
    return e->code;
}

static FILE *authority_read_file(const char *path, struct ps_error *e)
{
    FILE *f = fopen(path, "re");
    e->code = PS_OK;
    if (!f)
        ps_fail(e, errno == ENOENT ? PS_NOT_FOUND : PS_PERMISSION_DENIED, "%s: %s", path, strerror(errno));
    return f;
}

static int authority_no_passphrase(char *text, int size, int writes, void *arg)
{
    (void)text;
    (void)size;
    (void)writes;
    (void)arg;
    return -1;
}

static X509 *authority_read_certificate(const char *path, struct ps_error *e)
{
    FILE *f = authority_read_file(path, e);
    X509 *x = f ? PEM_read_X509(f, NULL, authority_no_passphrase, NULL) : NULL;
    if (f)
        fclose(f);
    if (f && !x)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: holds no certificate in PEM", path);
    ERR_clear_error();
    return x;
}

// All that a file holds, in order; NULL: none, or one is damaged.
static STACK_OF(X509) * authority_read_all(const char *path, struct ps_error *e)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    FILE *f = authority_read_file(path, e);
    X509 *x;
    ERR_clear_error();
    while (f && all && (x = PEM_read_X509(f, NULL, authority_no_passphrase, NULL)))
        sk_X509_push(all, x);
    const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (f)
        fclose(f);
    ERR_clear_error();
    if (f && all && sk_X509_num(all) > 0 && ended)
        return all;
    if (f)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: %s", path,
                ended ? "holds no certificate in PEM" : "holds a certificate that is damaged, or not whole");
    sk_X509_pop_free(all, X509_free);
    return NULL;
}

static EVP_PKEY *authority_read_key(const char *path, struct ps_error *e)
{
    FILE *f = authority_read_file(path, e);
    EVP_PKEY *key = f ? PEM_read_PrivateKey(f, NULL, authority_no_passphrase, NULL) : NULL;
    if (f)
        fclose(f);
    if (f && !key)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: holds no private key in PEM that needs no passphrase", path);
    ERR_clear_error();
    return key;
}

// ---- certificates -------------------------------------------------------------------------------------------------

static int64_t certificate_seconds(const ASN1_TIME *time)
{
    struct tm tm;
    return ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static bool authority_add(X509 *x, X509 *issuer, int what, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, what, value);
    const bool done = extension && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return done;
}

// 128 random bits, of which the first is not set: a serial number is positive.
static bool authority_number(X509 *x)
{
    unsigned char bytes[16];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40);
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    const bool done = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x));
    BN_free(number);
    return done;
}

// Unsigned, without issuer and extensions. Its validity begins a little before now, for hosts whose clocks
// are behind.
static X509 *authority_new(const char *name, EVP_PKEY *key, int days)
{
    X509 *x = X509_new();
    const bool done = x && X509_set_version(x, 2) == 1 && authority_number(x) &&
                      X509_NAME_add_entry_by_NID(X509_get_subject_name(x), NID_commonName, MBSTRING_UTF8,
                                                 (const unsigned char *)name, -1, -1, 0) == 1 &&
                      X509_gmtime_adj(X509_getm_notBefore(x), -CLOCKS_DIFFER) &&
                      X509_gmtime_adj(X509_getm_notAfter(x), 0) &&
                      X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL) && X509_set_pubkey(x, key) == 1;
    if (!done) {
        X509_free(x);
        return NULL;
    }
    return x;
}

static EVP_PKEY *authority_make_key(void)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    EVP_PKEY *key = NULL;
    const bool done = context && EVP_PKEY_keygen_init(context) == 1 &&
                      EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1 &&
                      EVP_PKEY_CTX_set_ec_param_enc(context, OPENSSL_EC_NAMED_CURVE) == 1 &&
                      EVP_PKEY_keygen(context, &key) == 1;
    EVP_PKEY_CTX_free(context);
    return done ? key : NULL;
}

// Signed by itself.
static X509 *authority_make_root(EVP_PKEY *key)
{
    char name[48];
    uint32_t number;
    if (!key || RAND_bytes((unsigned char *)&number, sizeof number) != 1)
        return NULL;
    snprintf(name, sizeof name, "paramserver authority %08x", number);
    X509 *x = authority_new(name, key, AUTHORITY_DAYS);
    const bool done = x && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
                      authority_add(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                      authority_add(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                      authority_add(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256()) > 0;
    if (!done) {
        X509_free(x);
        return NULL;
    }
    return x;
}

static bool authority_outlives(const X509 *a, const X509 *b)
{
    return !b || ASN1_TIME_compare(X509_get0_notAfter(a), X509_get0_notAfter(b)) > 0;
}

// It ends with its authority at the latest.
static X509 *authority_make_leaf(const struct authority *a, EVP_PKEY *key, enum ps_role role, const char *user,
                                 int days)
{
    char names[64];
    snprintf(names, sizeof names, "DNS:%s", ps_role_host(role));
    X509 *x = key ? authority_new(user, key, days) : NULL;
    const X509 *first = x && authority_outlives(x, a->certificate) ? a->certificate : x;
    const bool done = x && X509_set1_notAfter(x, X509_get0_notAfter(first)) == 1 &&
                      X509_set_issuer_name(x, X509_get_subject_name(a->certificate)) == 1 &&
                      authority_add(x, a->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
                      authority_add(x, a->certificate, NID_key_usage, "critical,digitalSignature") &&
                      authority_add(x, a->certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
                      authority_add(x, a->certificate, NID_subject_alt_name, names) &&
                      authority_add(x, a->certificate, NID_authority_key_identifier, "keyid") &&
                      X509_sign(x, a->key, EVP_sha256()) > 0;
    if (!done) {
        X509_free(x);
        return NULL;
    }
    return x;
}

enum ps_code authority_issue(const struct authority *a, enum ps_role role, const char *user, int days, const char *path,
                             struct ps_error *e)
{
    EVP_PKEY *key = authority_make_key();
    X509 *x = authority_make_leaf(a, key, role, user, days);
    if (authority_check(x, "make a certificate", e) == PS_OK)
        authority_write(path, 0600, x, key, e);
    X509_free(x);
    EVP_PKEY_free(key);
    return e->code;
}

// ---- the authority ------------------------------------------------------------------------------------------------

static enum ps_code authority_make_folder(const char *folder, struct ps_error *e)
{
    struct stat st;
    if (mkdir(folder, 0700) == 0 || (errno == EEXIST && stat(folder, &st) == 0 && S_ISDIR(st.st_mode)))
        return PS_OK;
    return ps_fail(e, PS_CANNOT_CREATE, "%s: %s", folder, strerror(errno));
}

static enum ps_code authority_write_both(const struct authority *a, const char *certificate, const char *key,
                                         struct ps_error *e)
{
    if (authority_write(key, 0600, NULL, a->key, e))
        return e->code;
    if (authority_write(certificate, 0644, a->certificate, NULL, e))
        unlink(key);  // so that it can be made anew
    return e->code;
}

enum ps_code authority_create(const char *folder, struct authority **authority, struct ps_error *e)
{
    char *certificate = ps_printf("%s/ca.pem", folder), *key = ps_printf("%s/ca.key", folder);
    struct authority *a = ps_alloc(sizeof *a);
    e->code = PS_OK;
    if (access(certificate, F_OK) == 0 || access(key, F_OK) == 0) {
        ps_fail(e, PS_ALREADY_EXISTS, "%s: has an authority already, of which nodes may have certificates", folder);
    } else if (authority_make_folder(folder, e) == PS_OK) {
        a->key = authority_make_key();
        a->certificate = authority_make_root(a->key);
        if (authority_check(a->certificate, "make an authority", e) == PS_OK)
            authority_write_both(a, certificate, key, e);
    }
    free(certificate);
    free(key);
    if (e->code)
        authority_close(a);
    else
        *authority = a;
    return e->code;
}

// The certificate of a key, which may be one of several; of a key that has several the last to end. NULL: none is.
static X509 *authority_find(STACK_OF(X509) * all, EVP_PKEY *key)
{
    X509 *found = NULL;
    for (int i = 0; i < sk_X509_num(all); i++) {
        X509 *x = sk_X509_value(all, i);
        if (X509_check_private_key(x, key) == 1 && authority_outlives(x, found))
            found = x;
    }
    if (found)
        X509_up_ref(found);
    return found;
}

enum ps_code authority_open(const char *folder, struct authority **authority, struct ps_error *e)
{
    char *certificate = ps_printf("%s/ca.pem", folder), *key = ps_printf("%s/ca.key", folder);
    struct authority *a = ps_alloc(sizeof *a);
    STACK_OF(X509) *all = authority_read_all(certificate, e);
    if (all)
        a->key = authority_read_key(key, e);
    if (a->key && !(a->certificate = authority_find(all, a->key)))
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: is not the key of %s", key, certificate);
    sk_X509_pop_free(all, X509_free);
    ERR_clear_error();
    free(certificate);
    free(key);
    if (e->code)
        authority_close(a);
    else
        *authority = a;
    return e->code;
}

int64_t authority_until(const struct authority *a)
{
    return certificate_seconds(X509_get0_notAfter(a->certificate));
}

void authority_close(struct authority *a)
{
    if (!a)
        return;
    X509_free(a->certificate);
    EVP_PKEY_free(a->key);
    free(a);
}

// ---- what stands in one -------------------------------------------------------------------------------------------

// As those see it to whom it is shown.
static void certificate_identify(X509 *x, struct certificate *c)
{
    BIO *bio = BIO_new(BIO_s_mem());
    struct ps_identity who = {.roles = 0};
    struct ps_error e;
    char *pem;
    if (bio && PEM_write_bio_X509(bio, x) == 1) {
        const long len = BIO_get_mem_data(bio, &pem);
        ps_tls_identify(pem, (size_t)len, false, &who, &e);
    }
    BIO_free(bio);
    c->roles = who.roles;
    strcpy(c->user, who.user);
}

static struct certificate certificate_of(X509 *x)
{
    struct certificate c = {.until = certificate_seconds(X509_get0_notAfter(x)), .is_authority = X509_check_ca(x) != 0};
    certificate_identify(x, &c);
    return c;
}

// When the last to end of those ends that have signed x; 0: none has.
static int64_t certificate_signed_until(X509 *x, STACK_OF(X509) * all)
{
    int64_t until = 0;
    for (int i = 0; i < sk_X509_num(all); i++) {
        X509 *by = sk_X509_value(all, i);
        const int64_t its = certificate_seconds(X509_get0_notAfter(by));
        if (its > until && X509_check_issued(by, x) == X509_V_OK && X509_verify(x, X509_get0_pubkey(by)) == 1)
            until = its;
    }
    return until;
}

enum ps_code certificate_read(const char *path, const char *ca, struct certificate *c, struct ps_error *e)
{
    struct ps_error none;
    X509 *x = authority_read_certificate(path, e);
    *c = (struct certificate){.roles = 0};
    if (!x)
        return e->code;
    *c = certificate_of(x);
    STACK_OF(X509) *all = ca ? authority_read_all(ca, &none) : NULL;
    c->signed_until = all ? certificate_signed_until(x, all) : 0;
    sk_X509_pop_free(all, X509_free);
    X509_free(x);
    ERR_clear_error();
    return PS_OK;
}

enum ps_code certificate_read_all(const char *path, struct certificate **v, size_t *n, struct ps_error *e)
{
    STACK_OF(X509) *all = authority_read_all(path, e);
    *n = all ? (size_t)sk_X509_num(all) : 0;
    *v = ps_alloc((*n + 1) * sizeof **v);
    for (size_t i = 0; i < *n; i++)
        (*v)[i] = certificate_of(sk_X509_value(all, (int)i));
    sk_X509_pop_free(all, X509_free);
    ERR_clear_error();
    return e->code;
}
