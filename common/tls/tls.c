// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { TLS_CA, TLS_CERTIFICATE, TLS_KEY, TLS_FILES };
enum { TLS_FILE_MAX = 1 << 20 };  // bytes

static const uint64_t look_every = PS_SECOND;

// What tells that a file has been written anew.
struct signature {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

// What the files have held at one time.
struct contents {
    char *pem[TLS_FILES];
    SSL_CTX *context;  // made of them
    char user[PS_USER_MAX + 1];
};

struct ps_tls {
    atomic_uint refs;
    char *path[TLS_FILES];
    enum ps_role role;
    char user[PS_USER_MAX + 1];
    pthread_mutex_t lock;  // guards what follows
    struct contents now;
    uint64_t version, looked;
    bool looking;                      // a thread looks at the files, whose is what follows
    struct signature seen[TLS_FILES];  // of the last that were looked into
    bool refused;                      // those do not do, or did not when they were looked into
};

// ---- files --------------------------------------------------------------------------------------------------------

static enum ps_code tls_fail_file(struct ps_error *e, const char *path, int error)
{
    return ps_fail(e,
                   error == ENOENT   ? PS_NOT_FOUND
                   : error == EACCES ? PS_PERMISSION_DENIED
                                     : PS_UNAVAILABLE,
                   "%s: %s", path, strerror(error));
}

static enum ps_code tls_read_all(int fd, const char *path, size_t size, char **text, struct ps_error *e)
{
    size_t have = 0;
    ssize_t n = 1;
    *text = ps_try_alloc(size + 1);
    while (*text && have < size && (n = read(fd, *text + have, size - have)) > 0)
        have += (size_t)n;
    if (*text && n >= 0)
        return PS_OK;
    const int error = errno;
    free(*text);
    *text = NULL;
    return n < 0 ? tls_fail_file(e, path, error) : ps_no_memory(e, "a certificate");
}

static enum ps_code tls_read_file(const char *path, bool is_key, char **text, struct ps_error *e)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tls_fail_file(e, path, errno);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > TLS_FILE_MAX)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: expected a file of at most 1 MiB", path);
    else if (is_key && st.st_mode & S_IROTH)
        ps_fail(e, PS_PERMISSION_DENIED, "%s: holds a private key that every user can read: expected mode 0600", path);
    else
        e->code = tls_read_all(fd, path, (size_t)st.st_size, text, e);
    close(fd);
    return e->code;
}

static void tls_sign(const struct ps_tls *t, struct signature seen[TLS_FILES])
{
    struct stat st;
    memset(seen, 0, TLS_FILES * sizeof *seen);
    for (int i = 0; i < TLS_FILES; i++)
        if (stat(t->path[i], &st) == 0) {
            seen[i].device = st.st_dev;
            seen[i].inode = st.st_ino;
            seen[i].size = st.st_size;
            seen[i].changed = st.st_ctim;
        }
}

// ---- what is in them ----------------------------------------------------------------------------------------------

static int tls_no_passphrase(char *text, int size, int writes, void *arg)
{
    (void)text;
    (void)size;
    (void)writes;
    (void)arg;
    return -1;
}

// Each certificate of a text, in order. What is wrong with it; NULL: nothing.
static const char *tls_each_certificate(const char *pem, bool (*take)(SSL_CTX *context, X509 *x, int k),
                                        SSL_CTX *context)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x;
    bool taken = true;
    int n = 0;
    ERR_clear_error();
    for (; bio && taken && (x = PEM_read_bio_X509(bio, NULL, tls_no_passphrase, NULL)); n++) {
        taken = take(context, x, n);
        X509_free(x);
    }
    const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    const char *wrong = !taken   ? "holds a certificate that OpenSSL does not take, such as one with a short key"
                        : n == 0 ? "holds no certificate in PEM"
                        : !ended ? "holds a certificate that is damaged, or not whole"
                                 : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return wrong;
}

static bool tls_trust(SSL_CTX *context, X509 *x, int k)
{
    (void)k;
    return X509_STORE_add_cert(SSL_CTX_get_cert_store(context), x) == 1;
}

static bool tls_show(SSL_CTX *context, X509 *x, int k)
{
    return (k ? SSL_CTX_add1_chain_cert(context, x) : SSL_CTX_use_certificate(context, x)) == 1;
}

static enum ps_code tls_take_key(const struct ps_tls *t, const struct contents *c, struct ps_error *e)
{
    BIO *bio = BIO_new_mem_buf(c->pem[TLS_KEY], -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, tls_no_passphrase, NULL) : NULL;
    BIO_free(bio);
    if (!key)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: holds no private key in PEM that needs no passphrase",
                t->path[TLS_KEY]);
    else if (X509_check_private_key(SSL_CTX_get0_certificate(c->context), key) != 1 ||
             SSL_CTX_use_PrivateKey(c->context, key) != 1)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: its key is not that of the certificate in %s", t->path[TLS_KEY],
                t->path[TLS_CERTIFICATE]);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return e->code;
}

static void tls_time_text(const ASN1_TIME *at, char text[PS_TLS_TIME])
{
    struct tm tm;
    if (ASN1_TIME_to_tm(at, &tm) != 1 || !strftime(text, PS_TLS_TIME, "%Y-%m-%d %H:%M:%S UTC", &tm))
        strcpy(text, "an unknown time");
}

// Of the process's own certificate, or of one above it.
static enum ps_code tls_fail_chain(const struct ps_tls *t, const X509_STORE_CTX *check, struct ps_error *e)
{
    char when[PS_TLS_TIME];
    X509 *x = X509_STORE_CTX_get_current_cert((X509_STORE_CTX *)check);
    const int error = X509_STORE_CTX_get_error((X509_STORE_CTX *)check);
    const char *path = t->path[X509_STORE_CTX_get_error_depth((X509_STORE_CTX *)check) > 0 ? TLS_CA : TLS_CERTIFICATE];
    if (error == X509_V_ERR_CERT_HAS_EXPIRED) {
        tls_time_text(X509_get0_notAfter(x), when);
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: has expired, on %s", path, when);
    }
    if (error == X509_V_ERR_CERT_NOT_YET_VALID) {
        tls_time_text(X509_get0_notBefore(x), when);
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: is valid from %s on: is this host's clock right?", path, when);
    }
    return ps_fail(e, PS_FAILED_PRECONDITION, "%s: is not signed by an authority of %s: %s", t->path[TLS_CERTIFICATE],
                   t->path[TLS_CA], X509_verify_cert_error_string(error));
}

static enum ps_code tls_check_chain(const struct ps_tls *t, SSL_CTX *context, struct ps_error *e)
{
    X509 *x = SSL_CTX_get0_certificate(context);
    STACK_OF(X509) *chain = NULL;
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    SSL_CTX_get0_chain_certs(context, &chain);
    if (!check || X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), x, chain) != 1)
        ps_no_memory(e, "a certificate");
    else if (X509_verify_cert(check) != 1)
        tls_fail_chain(t, check, e);
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return e->code;
}

static unsigned tls_roles(X509 *x)
{
    unsigned roles = 0;
    for (unsigned role = 1; role < PS_ROLE_ALL; role <<= 1)
        if (X509_check_host(x, ps_role_host(role), 0,
                            X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1)
            roles |= role;
    return roles;
}

static bool tls_read_user(X509 *x, char user[PS_USER_MAX + 1])
{
    const X509_NAME *name = X509_get_subject_name(x);
    const int at = X509_NAME_get_index_by_NID((X509_NAME *)name, NID_commonName, -1);
    unsigned char *text = NULL;
    const int n = at < 0 ? -1 : ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    const bool fits = n > 0 && n <= PS_USER_MAX && !memchr(text, 0, (size_t)n);
    if (fits) {
        memcpy(user, text, (size_t)n);
        user[n] = '\0';
    }
    OPENSSL_free(text);
    ERR_clear_error();
    return fits && ps_user_is_plain(user);
}

static enum ps_code tls_check_identity(const struct ps_tls *t, struct contents *c, struct ps_error *e)
{
    X509 *x = SSL_CTX_get0_certificate(c->context);
    const unsigned roles = tls_roles(x);
    char text[PS_ROLES_TEXT];
    ps_roles_text(roles, text);
    if (!(roles & t->role))
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: is a certificate of role %s: expected %s, DNS name %s",
                       t->path[TLS_CERTIFICATE], text, ps_role_name(t->role), ps_role_host(t->role));
    if (!tls_read_user(x, c->user))
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: expected a common name of 1 to %d bytes, which names its user",
                       t->path[TLS_CERTIFICATE], PS_USER_MAX);
    if (t->user[0] && strcmp(t->user, c->user) != 0)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: is %s's: this process is %s's", t->path[TLS_CERTIFICATE],
                       c->user, t->user);
    return PS_OK;
}

static enum ps_code tls_take(const struct ps_tls *t, struct contents *c, struct ps_error *e)
{
    c->context = SSL_CTX_new(TLS_method());
    if (!c->context)
        return ps_no_memory(e, "TLS");
    // As gRPC does: what is trusted need not be the root of all.
    X509_STORE_set_flags(SSL_CTX_get_cert_store(c->context), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
    const char *wrong = tls_each_certificate(c->pem[TLS_CA], tls_trust, c->context);
    if (wrong)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: %s", t->path[TLS_CA], wrong);
    wrong = tls_each_certificate(c->pem[TLS_CERTIFICATE], tls_show, c->context);
    if (wrong)
        return ps_fail(e, PS_FAILED_PRECONDITION, "%s: %s", t->path[TLS_CERTIFICATE], wrong);
    if (tls_take_key(t, c, e) || tls_check_chain(t, c->context, e))
        return e->code;
    return tls_check_identity(t, c, e);
}

// For sockets of ours: TLS 1.3 alone; no session tickets, which the end that sends never reads; and a close without a
// word counts as the end of the data, as with plain sockets: messages carry their length.
static void tls_harden(SSL_CTX *context)
{
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

static void contents_free(struct contents *c)
{
    for (int i = 0; i < TLS_FILES; i++)
        free(c->pem[i]);
    SSL_CTX_free(c->context);
}

// On failure *c is to be freed all the same.
static enum ps_code tls_load(const struct ps_tls *t, struct contents *c, struct ps_error *e)
{
    *c = (struct contents){.context = NULL};
    e->code = PS_OK;
    for (int i = 0; i < TLS_FILES && e->code == PS_OK; i++)
        tls_read_file(t->path[i], i == TLS_KEY, &c->pem[i], e);
    if (e->code || tls_take(t, c, e))
        return e->code;
    tls_harden(c->context);
    return PS_OK;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

static char *tls_in_folder(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + sizeof "/.pem";
    char *path = ps_try_alloc(size);
    if (path)
        snprintf(path, size, "%s/%s.pem", folder, name);
    return path;
}

static bool tls_set_paths(struct ps_tls *t, const struct ps_tls_files *f)
{
    const char *key = f->key ? f->key : f->certificate;
    t->path[TLS_CA] = f->folder ? tls_in_folder(f->folder, "ca") : ps_try_strdup(f->ca);
    t->path[TLS_CERTIFICATE] =
        f->folder ? tls_in_folder(f->folder, ps_role_name(t->role)) : ps_try_strdup(f->certificate);
    t->path[TLS_KEY] = f->folder ? tls_in_folder(f->folder, ps_role_name(t->role)) : ps_try_strdup(key);
    return t->path[TLS_CA] && t->path[TLS_CERTIFICATE] && t->path[TLS_KEY];
}

enum ps_code ps_tls_open(const struct ps_tls_files *files, enum ps_role role, struct ps_tls **tls, struct ps_error *e)
{
    struct ps_tls *t = ps_try_alloc(sizeof *t);
    e->code = PS_OK;
    if (!t)
        return ps_no_memory(e, "TLS");
    pthread_mutex_init(&t->lock, NULL);
    atomic_init(&t->refs, 1);
    t->role = role;
    t->version = 1;
    t->looked = ps_now();
    if (!tls_set_paths(t, files)) {
        ps_no_memory(e, "TLS");
    } else {
        tls_sign(t, t->seen);
        tls_load(t, &t->now, e);
    }
    strcpy(t->user, t->now.user);
    if (e->code)
        ps_tls_close(t);
    else
        *tls = t;
    return e->code;
}

void ps_tls_ref(struct ps_tls *t)
{
    atomic_fetch_add(&t->refs, 1);
}

void ps_tls_close(struct ps_tls *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    contents_free(&t->now);
    for (int i = 0; i < TLS_FILES; i++)
        free(t->path[i]);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

// By the thread that has set `looking`: files may be slow to read, and nobody else waits for them.
static void tls_look_again(struct ps_tls *t, struct ps_error *e)
{
    struct signature seen[TLS_FILES];
    struct contents found;
    tls_sign(t, seen);
    const bool changed = memcmp(seen, t->seen, sizeof seen) != 0;
    if (!changed && !t->refused)
        return;
    memcpy(t->seen, seen, sizeof seen);
    t->refused = tls_load(t, &found, e) != PS_OK;
    if (t->refused && !changed)
        e->code = PS_OK;  // it has been said
    if (!t->refused) {
        pthread_mutex_lock(&t->lock);
        const struct contents before = t->now;
        t->now = found;
        t->version++;
        pthread_mutex_unlock(&t->lock);
        found = before;
    }
    contents_free(&found);
}

uint64_t ps_tls_look(struct ps_tls *t, struct ps_error *e)
{
    e->code = PS_OK;
    pthread_mutex_lock(&t->lock);
    const bool looks = !t->looking && ps_now() >= t->looked + look_every;
    t->looking |= looks;
    pthread_mutex_unlock(&t->lock);
    if (looks)
        tls_look_again(t, e);
    pthread_mutex_lock(&t->lock);
    if (looks) {
        t->looking = false;
        t->looked = ps_now();
    }
    const uint64_t version = t->version;
    pthread_mutex_unlock(&t->lock);
    return version;
}

uint64_t ps_tls_version(struct ps_tls *t)
{
    pthread_mutex_lock(&t->lock);
    const uint64_t version = t->version;
    pthread_mutex_unlock(&t->lock);
    return version;
}

enum ps_code ps_tls_pem(struct ps_tls *t, struct ps_tls_pem *pem, struct ps_error *e)
{
    pthread_mutex_lock(&t->lock);
    *pem = (struct ps_tls_pem){ps_try_strdup(t->now.pem[TLS_CA]), ps_try_strdup(t->now.pem[TLS_CERTIFICATE]),
                               ps_try_strdup(t->now.pem[TLS_KEY])};
    pthread_mutex_unlock(&t->lock);
    if (pem->ca && pem->certificate && pem->key)
        return PS_OK;
    ps_tls_pem_free(pem);
    return ps_no_memory(e, "a certificate");
}

void ps_tls_pem_free(struct ps_tls_pem *pem)
{
    free(pem->ca);
    free(pem->certificate);
    free(pem->key);
}

struct ssl_st *ps_tls_connection(struct ps_tls *t, int fd, bool listens, enum ps_role to)
{
    pthread_mutex_lock(&t->lock);
    SSL *connection = SSL_new(t->now.context);
    pthread_mutex_unlock(&t->lock);
    if (connection)
        SSL_set_hostflags(connection, X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (!connection || SSL_set_fd(connection, fd) != 1 || SSL_set1_host(connection, ps_role_host(to)) != 1) {
        SSL_free(connection);
        ERR_clear_error();
        return NULL;
    }
    if (listens)
        SSL_set_accept_state(connection);
    else
        SSL_set_connect_state(connection);
    return connection;
}

static X509 *tls_parse(const char *pem, size_t len)
{
    BIO *bio = len < TLS_FILE_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, tls_no_passphrase, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return x;
}

enum ps_code ps_tls_identify(const char *pem, size_t len, bool resumed, struct ps_identity *who, struct ps_error *e)
{
    X509 *x = tls_parse(pem, len);
    *who = (struct ps_identity){.roles = 0};
    e->code = PS_OK;
    if (!x)
        return ps_fail(e, PS_UNAUTHENTICATED, "the certificate cannot be read");
    who->roles = tls_roles(x);
    if (resumed && X509_cmp_current_time(X509_get0_notAfter(x)) <= 0)
        ps_fail(e, PS_UNAUTHENTICATED, "the client's certificate has expired");
    else if (!tls_read_user(x, who->user) || !who->roles)
        ps_fail(e, PS_PERMISSION_DENIED, "the certificate names no %s: expected one as psctl tls issue makes",
                who->roles ? "user" : "role");
    X509_free(x);
    return e->code;
}

bool ps_tls_accepts(const struct ps_tls *t, const char *pem, enum ps_role to)
{
    struct ps_identity who;
    struct ps_error e;
    return ps_tls_identify(pem, strlen(pem), false, &who, &e) == PS_OK && who.roles & to &&
           (to != PS_ROLE_WORKER || strcmp(who.user, t->user) == 0);
}

bool ps_tls_is_own_user(const struct ps_tls *t, const struct ssl_st *connection)
{
    char user[PS_USER_MAX + 1];
    X509 *x = SSL_is_init_finished(connection) ? SSL_get_peer_certificate(connection) : NULL;
    const bool is = x && tls_read_user(x, user) && strcmp(user, t->user) == 0;
    X509_free(x);
    return is;
}

int64_t ps_tls_until(struct ps_tls *t)
{
    struct tm tm;
    pthread_mutex_lock(&t->lock);
    const bool read = ASN1_TIME_to_tm(X509_get0_notAfter(SSL_CTX_get0_certificate(t->now.context)), &tm) == 1;
    pthread_mutex_unlock(&t->lock);
    return read ? (int64_t)timegm(&tm) : 0;
}

bool ps_tls_ends_soon(struct ps_tls *t, char until[PS_TLS_TIME])
{
    time_t soon = time(NULL) + PS_TLS_SOON_DAYS * 24 * 3600;
    pthread_mutex_lock(&t->lock);
    const ASN1_TIME *end = X509_get0_notAfter(SSL_CTX_get0_certificate(t->now.context));
    tls_time_text(end, until);
    const bool ends = X509_cmp_time(end, &soon) <= 0;
    pthread_mutex_unlock(&t->lock);
    return ends;
}

const char *ps_tls_user(const struct ps_tls *t)
{
    return t->user;
}
