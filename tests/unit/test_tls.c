// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS: which files do, what is said of those that do not, what is taken up while processes run, and who may call
// what over connections of both kinds, gRPC's and those of OpenSSL.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/cluster/cluster.h"
#include "common/rpc/client.h"
#include "common/rpc/method.h"
#include "common/rpc/server.h"
#include "common/tls/tls.h"
#include "proto/paramserver.pb-c.h"
#include "tests/unit/hearing.h"
#include "tests/unit/rpc_reply.h"
#include "tools/psctl/authority.h"

// A folder with an authority and a certificate of each role, of user alice; and another authority's.
static char folder[] = "/tmp/test_tls.XXXXXX", other[sizeof folder + 8];

static char *in(const char *where, const char *name)
{
    return ps_printf("%s/%s", where, name);
}

static void issue(const char *where, enum ps_role role, const char *user, int days, const char *to)
{
    struct authority *a;
    struct ps_error e;
    char *path = in(where, to);
    assert_int_equal(PS_OK, authority_open(where, &a, &e));
    assert_int_equal(PS_OK, authority_issue(a, role, user, days, path, &e));
    authority_close(a);
    free(path);
}

static void fill(const char *where)
{
    struct authority *a;
    struct ps_error e;
    assert_int_equal(PS_OK, authority_create(where, &a, &e));
    authority_close(a);
    issue(where, PS_ROLE_PSD, "psd", 30, "psd.pem");
    issue(where, PS_ROLE_WORKER, "alice", 30, "worker.pem");
    issue(where, PS_ROLE_ADMIN, "alice", 30, "admin.pem");
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(other, sizeof other, "%s/other", folder);
    fill(folder);
    fill(other);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char *command = ps_printf("rm -r '%s'", folder);
    const int failed = system(command);
    free(command);
    return failed;
}

static struct ps_tls *open_files(const char *ca, const char *certificate, const char *key, enum ps_role role)
{
    struct ps_tls *tls = NULL;
    struct ps_error e;
    const struct ps_tls_files files = {.ca = (char *)ca, .certificate = (char *)certificate, .key = (char *)key};
    if (ps_tls_open(&files, role, &tls, &e))
        fail_msg("%s", e.text);
    return tls;
}

static struct ps_tls *open_folder(const char *where, enum ps_role role)
{
    struct ps_tls *tls = NULL;
    struct ps_error e;
    const struct ps_tls_files files = {.folder = (char *)where};
    if (ps_tls_open(&files, role, &tls, &e))
        fail_msg("%s", e.text);
    return tls;
}

// Of that user, whatever the folder has.
static struct ps_tls *open_user(enum ps_role role, const char *user)
{
    char *ca = in(folder, "ca.pem"), *certificate = in(folder, "user.pem");
    issue(folder, role, user, 30, "user.pem");
    struct ps_tls *tls = open_files(ca, certificate, NULL, role);
    free(ca);
    free(certificate);
    return tls;
}

// Trusts both authorities, and has a certificate of the other one: a change from one to the other that is half done.
static struct ps_tls *open_half(void)
{
    char *ca = in(folder, "both.pem"), *certificate = in(other, "worker.pem");
    char *command = ps_printf("cat '%s/ca.pem' '%s/ca.pem' >'%s'", folder, other, ca);
    assert_int_equal(system(command), 0);
    struct ps_tls *tls = open_files(ca, certificate, NULL, PS_ROLE_WORKER);
    free(command);
    free(ca);
    free(certificate);
    return tls;
}

// ---- files --------------------------------------------------------------------------------------------------------

static void refuse(const char *ca, const char *certificate, const char *key, enum ps_role role, enum ps_code code,
                   const char *text)
{
    struct ps_tls *tls = NULL;
    struct ps_error e = {.code = PS_OK};
    char *paths[3] = {in(folder, ca), in(folder, certificate), key ? in(folder, key) : NULL};
    const struct ps_tls_files files = {.ca = paths[0], .certificate = paths[1], .key = paths[2]};
    ps_tls_open(&files, role, &tls, &e);
    if (e.code != code || !strstr(e.text, text))
        fail_msg("'%s', expected '%s'", e.text, text);
    assert_null(tls);
    for (int i = 0; i < 3; i++)
        free(paths[i]);
}

static void write_text(const char *name, const char *text)
{
    char *path = in(folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, 0600);
    free(path);
}

static void files_that_do_not_do(void **state)
{
    (void)state;
    struct ps_tls *tls = open_folder(folder, PS_ROLE_WORKER);
    assert_string_equal("alice", ps_tls_user(tls));
    ps_tls_close(tls);
    issue(folder, PS_ROLE_PSD, "psd", -1, "expired.pem");
    write_text("empty.pem", "");
    write_text("damaged.pem", "-----BEGIN CERTIFICATE-----\nabcd\n-----END CERTIFICATE-----\n");
    refuse("none.pem", "psd.pem", NULL, PS_ROLE_PSD, PS_NOT_FOUND, "none.pem: No such file");
    refuse("ca.pem", "none.pem", NULL, PS_ROLE_PSD, PS_NOT_FOUND, "none.pem: No such file");
    refuse("empty.pem", "psd.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION, "empty.pem: holds no certificate");
    refuse("ca.pem", "damaged.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION, "damaged.pem: holds no certificate");
    refuse("ca.pem", "psd.pem", "ca.pem", PS_ROLE_PSD, PS_PERMISSION_DENIED, "ca.pem: holds a private key that every");
    refuse("ca.pem", "psd.pem", "empty.pem", PS_ROLE_PSD, PS_FAILED_PRECONDITION, "empty.pem: holds no private key");
    refuse("ca.pem", "psd.pem", "worker.pem", PS_ROLE_PSD, PS_FAILED_PRECONDITION, "is not that of the certificate in");
    refuse("ca.pem", "expired.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION, "expired.pem: has expired, on 2");
    refuse("other/ca.pem", "psd.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION, "is not signed by an authority of");
    refuse("ca.pem", "worker.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION,
           "is a certificate of role worker: expected psd, DNS name psd.paramserver");
    char *ca = in(folder, "ca.pem"), *two = in(folder, "two.pem");
    char *command = ps_printf("cat '%s' '%s/ca.pem' | head -c -30 >'%s'", ca, other, two);
    assert_int_equal(0, system(command));
    refuse("two.pem", "psd.pem", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION,
           "two.pem: holds a certificate that is damaged");
    unlink(two);
    free(ca);
    free(two);
    free(command);
    refuse("ca.pem", "other", NULL, PS_ROLE_PSD, PS_FAILED_PRECONDITION, "other: expected a file");
}

// ---- new files ----------------------------------------------------------------------------------------------------

static uint64_t look(struct ps_tls *tls, struct ps_error *e)
{
    usleep(1100 * 1000);  // it looks once per second
    return ps_tls_look(tls, e);
}

static void new_files_are_taken_up_once_they_belong_together(void **state)
{
    (void)state;
    struct ps_error e;
    struct ps_tls_pem before, after;
    char *ca = in(folder, "ca.pem"), *certificate = in(folder, "one.pem"), *key = in(folder, "two.pem");
    issue(folder, PS_ROLE_PSD, "psd", 30, "one.pem");
    issue(folder, PS_ROLE_PSD, "psd", 30, "next.pem");
    char *next = in(folder, "next.pem");
    assert_int_equal(0, link(certificate, key));
    struct ps_tls *tls = open_files(ca, certificate, key, PS_ROLE_PSD);
    const uint64_t version = ps_tls_version(tls);
    assert_int_equal(PS_OK, ps_tls_pem(tls, &before, &e));
    assert_int_equal(version, look(tls, &e));
    assert_int_equal(PS_OK, e.code);

    assert_int_equal(0, rename(next, certificate));  // its key comes later
    assert_int_equal(version, look(tls, &e));
    assert_int_equal(PS_FAILED_PRECONDITION, e.code);
    assert_non_null(strstr(e.text, "two.pem: its key is not that of the certificate in"));
    assert_int_equal(version, look(tls, &e));
    assert_int_equal(PS_OK, e.code);  // it has been said
    assert_int_equal(PS_OK, ps_tls_pem(tls, &after, &e));
    assert_string_equal(before.certificate, after.certificate);
    ps_tls_pem_free(&after);

    assert_int_equal(0, unlink(key));
    assert_int_equal(0, link(certificate, key));
    assert_int_equal(version + 1, look(tls, &e));
    assert_int_equal(PS_OK, e.code);
    assert_int_equal(PS_OK, ps_tls_pem(tls, &after, &e));
    assert_string_not_equal(before.certificate, after.certificate);
    ps_tls_pem_free(&before);
    ps_tls_pem_free(&after);
    ps_tls_close(tls);
    free(ca);
    free(certificate);
    free(key);
    free(next);
}

// What is refused is tried again, without a word; and a process stays its user's.
static void refused_files_are_tried_again(void **state)
{
    (void)state;
    struct ps_error e;
    char *ca = in(folder, "ca.pem"), *certificate = in(folder, "mine.pem");
    issue(folder, PS_ROLE_WORKER, "alice", 30, "mine.pem");
    struct ps_tls *tls = open_files(ca, certificate, NULL, PS_ROLE_WORKER);
    const uint64_t version = ps_tls_version(tls);
    issue(folder, PS_ROLE_WORKER, "bob", 30, "mine.pem");
    assert_int_equal(version, look(tls, &e));
    assert_non_null(strstr(e.text, "mine.pem: is bob's: this process is alice's"));
    issue(folder, PS_ROLE_WORKER, "alice", 30, "mine.pem");
    assert_int_equal(0, chmod(certificate, 0644));
    assert_int_equal(version, look(tls, &e));
    assert_int_equal(PS_PERMISSION_DENIED, e.code);
    assert_int_equal(version, look(tls, &e));
    assert_int_equal(PS_OK, e.code);
    assert_int_equal(0, chmod(certificate, 0600));
    assert_int_equal(version + 1, look(tls, &e));
    ps_tls_close(tls);
    free(ca);
    free(certificate);
}

static void a_certificate_says_who_it_is(void **state)
{
    (void)state;
    struct ps_identity who;
    struct ps_error e;
    struct ps_tls_pem pem;
    struct ps_tls *tls = open_folder(folder, PS_ROLE_WORKER), *bob = open_user(PS_ROLE_WORKER, "bob");
    assert_int_equal(PS_OK, ps_tls_pem(tls, &pem, &e));
    assert_int_equal(PS_OK, ps_tls_identify(pem.certificate, strlen(pem.certificate), false, &who, &e));
    assert_int_equal(PS_ROLE_WORKER, who.roles);
    assert_string_equal("alice", who.user);
    assert_true(ps_tls_accepts(tls, pem.certificate, PS_ROLE_WORKER));
    assert_false(ps_tls_accepts(bob, pem.certificate, PS_ROLE_WORKER));
    assert_false(ps_tls_accepts(tls, pem.certificate, PS_ROLE_PSD));
    assert_int_equal(PS_PERMISSION_DENIED, ps_tls_identify(pem.ca, strlen(pem.ca), false, &who, &e));
    assert_int_equal(PS_UNAUTHENTICATED, ps_tls_identify("", 0, false, &who, &e));
    ps_tls_pem_free(&pem);
    char until[PS_TLS_TIME];
    assert_false(ps_tls_ends_soon(tls, until));
    assert_non_null(strstr(until, "UTC"));
    issue(folder, PS_ROLE_WORKER, "alice", -1, "past.pem");
    char *path = in(folder, "past.pem"), text[4096] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_int_equal(PS_OK, ps_tls_identify(text, n, false, &who, &e));  // it was shown before it had
    assert_int_equal(PS_UNAUTHENTICATED, ps_tls_identify(text, n, true, &who, &e));
    assert_string_equal("the client's certificate has expired", e.text);
    free(path);
    ps_tls_close(tls);
    ps_tls_close(bob);
}

// ---- connections of OpenSSL ---------------------------------------------------------------------------------------

struct ends {
    int fd[2];
    SSL *ssl[2];
};

// True: both ends have shown what they are, and believe each other. Each has verified the other once it can read.
static bool shake_hands(struct ends *p)
{
    bool finished[2] = {false, false};
    char byte = 'x';
    for (int i = 0; i < 1000 && (!finished[0] || !finished[1]); i++)
        for (int k = 0; k < 2; k++) {
            const int n = finished[k] ? 1 : k ? SSL_read(p->ssl[k], &byte, 1) : SSL_write(p->ssl[k], &byte, 1);
            const int error = n > 0 ? SSL_ERROR_NONE : SSL_get_error(p->ssl[k], n);
            finished[k] |= n > 0;
            if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
                return false;
        }
    return finished[0] && finished[1];
}

static bool meet(struct ps_tls *connects, struct ps_tls *listens, bool *own)
{
    struct ends p;
    assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p.fd));
    p.ssl[0] = ps_tls_connection(connects, p.fd[0], false, PS_ROLE_WORKER);
    p.ssl[1] = ps_tls_connection(listens, p.fd[1], true, PS_ROLE_WORKER);
    assert_false(ps_tls_is_own_user(connects, p.ssl[0]));  // nobody has shown anything
    const bool met = shake_hands(&p);
    if (own)
        *own = met && ps_tls_is_own_user(connects, p.ssl[0]) && ps_tls_is_own_user(listens, p.ssl[1]);
    for (int k = 0; k < 2; k++) {
        SSL_free(p.ssl[k]);
        close(p.fd[k]);
    }
    return met;
}

static void workers_know_each_other(void **state)
{
    (void)state;
    struct ps_tls *alice = open_folder(folder, PS_ROLE_WORKER), *bob = open_user(PS_ROLE_WORKER, "bob"),
                  *stranger = open_folder(other, PS_ROLE_WORKER), *psd = open_folder(folder, PS_ROLE_PSD);
    bool own;
    assert_true(meet(alice, alice, &own));
    assert_true(own);
    assert_true(meet(alice, bob, &own));
    assert_false(own);
    assert_false(meet(alice, stranger, NULL));
    assert_false(meet(stranger, alice, NULL));
    assert_false(meet(alice, psd, NULL));
    assert_false(meet(psd, alice, NULL));
    ps_tls_close(alice);
    ps_tls_close(bob);
    ps_tls_close(stranger);
    ps_tls_close(psd);
}

// ---- gRPC ---------------------------------------------------------------------------------------------------------

static atomic_int handled;
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_user[PS_USER_MAX + 1];

static void on_call(void *ctx, struct ps_call *call)
{
    (void)ctx;
    atomic_fetch_add(&handled, 1);
    pthread_mutex_lock(&last_lock);
    strcpy(last_user, call->from->user);
    pthread_mutex_unlock(&last_lock);
    ps_call_reply(call, PS_OK, "", NULL);
}

enum { CALL_MS = 60000 };  // a call's time, and an attempt's to connect: it is not to run out

static struct ps_server *serve(struct ps_tls *tls, char **address)
{
    const struct ps_server_options options = {.tls = tls, .call = on_call};
    const char *any[] = {"127.0.0.1:0", "0.0.0.0:0"};  // which TLS allows
    struct ps_server *server;
    struct ps_error e;
    if (ps_server_start(any, 2, &options, &server, &e))
        fail_msg("%s", e.text);
    *address = ps_printf("127.0.0.1:%d", ps_server_port(server, 1));
    return server;
}

static void stop(struct ps_server *server, char *address)
{
    ps_server_stop(server, PS_SECOND);
    ps_server_destroy(server);
    free(address);
}

static void ask_as(const char *address, struct ps_tls *tls, enum ps_role to, int method, bool stream, struct reply *r)
{
    const struct ps_client_options options = {.attempt_ms = CALL_MS, .tls = tls, .to = to};
    struct ps_client *c = ps_client_create(&address, 1, &options);
    reply_ask(c, method, stream, 2 * CALL_MS, r);
    ps_client_stop(c);
    ps_client_destroy(c);
}

static void roles_may_call_their_methods(void **state)
{
    (void)state;
    struct ps_tls *tls[] = {open_folder(folder, PS_ROLE_PSD), open_folder(folder, PS_ROLE_WORKER),
                            open_folder(folder, PS_ROLE_ADMIN)};
    char *address;
    struct ps_server *server = serve(tls[0], &address);
    for (int k = 0; k < 3; k++)
        for (int method = 1; method < PS_METHODS; method++) {
            struct reply r;
            if (!ps_method_path(method))
                continue;
            const bool may = ps_method_roles(method) & 1U << k;
            const int before = atomic_load(&handled);
            ask_as(address, tls[k], PS_ROLE_PSD, method, false, &r);
            assert_int_equal(may ? PS_OK : PS_PERMISSION_DENIED, r.code);
            assert_int_equal(before + may, atomic_load(&handled));
            pthread_mutex_lock(&last_lock);
            const bool seen = strcmp(k ? "alice" : "psd", last_user) == 0;
            pthread_mutex_unlock(&last_lock);
            assert_true(seen || !may);
        }
    // The roles by their words.
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__STOP_JOB));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__SET_MODE));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__DRAIN));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__WORKERS));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__WAITS));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__TRACE));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__SUBMIT));
    assert_int_equal(PS_ROLE_ADMIN, ps_method_roles(PARAMSERVER__V1__METHOD__CANCEL));
    assert_int_equal(PS_ROLE_WORKER, ps_method_roles(PARAMSERVER__V1__METHOD__NEXT));
    assert_int_equal(PS_ROLE_WORKER, ps_method_roles(PARAMSERVER__V1__METHOD__REPORT));
    assert_int_equal(PS_ROLE_PSD, ps_method_roles(PARAMSERVER__V1__METHOD__SET_MEMBERS));
    assert_int_equal(PS_ROLE_WORKER, ps_method_roles(PARAMSERVER__V1__METHOD__RENDEZVOUS));
    assert_int_equal(PS_STREAM_ROLES, ps_method_roles(PARAMSERVER__V1__METHOD__PUSH));
    struct reply r;
    ask_as(address, tls[1], PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, true, &r);
    assert_int_equal(PS_OK, r.code);
    ask_as(address, tls[0], PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, true, &r);
    assert_int_equal(PS_PERMISSION_DENIED, r.code);
    assert_non_null(strstr(r.text, "has a certificate of role psd: expected worker or admin"));
    stop(server, address);
    for (int k = 0; k < 3; k++)
        ps_tls_close(tls[k]);
}

// The log says from where a call has come that is not its caller's to make.
static void who_may_not_call_is_logged(void **state)
{
    (void)state;
    struct ps_tls *psd = open_folder(folder, PS_ROLE_PSD), *worker = open_folder(folder, PS_ROLE_WORKER);
    char *address, said[4096], *end;
    struct ps_server *server = serve(psd, &address);
    struct hearing h = hearing_begin();
    struct reply r;
    ask_as(address, worker, PS_ROLE_PSD, PARAMSERVER__V1__METHOD__DRAIN, false, &r);
    hearing_end(&h, said, sizeof said);
    assert_int_equal(PS_PERMISSION_DENIED, r.code);
    char *line = strstr(said, " W refused a call from ipv4:127.0.0.1:");
    if (!line)
        fail_msg("'%s'", said);
    assert_true(strtol(line + strlen(" W refused a call from ipv4:127.0.0.1:"), &end, 10) > 0);
    assert_memory_equal(end, ": Drain: 'alice' has a certificate of role worker: expected admin\n",
                        strlen(": Drain: 'alice' has a certificate of role worker: expected admin\n"));
    stop(server, address);
    ps_tls_close(psd);
    ps_tls_close(worker);
}

static void who_shows_nothing_is_not_heard(void **state)
{
    (void)state;
    struct ps_tls *psd = open_folder(folder, PS_ROLE_PSD), *worker = open_folder(folder, PS_ROLE_WORKER),
                  *stranger = open_folder(other, PS_ROLE_WORKER);
    struct reply r;
    char *address, *plain_address;
    struct ps_tls *half = open_half();
    struct ps_server *server = serve(psd, &address);
    const int before = atomic_load(&handled);
    ask_as(address, NULL, PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    ask_as(address, stranger, PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    assert_string_equal("its certificate is not of an authority that this process trusts, or has expired", r.text);
    ask_as(address, worker, PS_ROLE_WORKER, PARAMSERVER__V1__METHOD__PUSH, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    assert_string_equal("its certificate is of another role", r.text);
    ask_as(address, half, PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    assert_string_equal("it has closed the connection: it has ended, or does not take this process's certificate",
                        r.text);
    assert_int_equal(before, atomic_load(&handled));
    stop(server, address);

    server = serve(worker, &address);  // calls of other workers
    ask_as(address, worker, PS_ROLE_WORKER, PARAMSERVER__V1__METHOD__ABORT, false, &r);
    assert_int_equal(PS_OK, r.code);
    struct ps_tls *bob = open_user(PS_ROLE_WORKER, "bob");
    ask_as(address, bob, PS_ROLE_WORKER, PARAMSERVER__V1__METHOD__ABORT, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    assert_string_equal("its certificate is of another role, or of another user's", r.text);
    ps_tls_close(bob);
    stop(server, address);

    const struct ps_server_options options = {.call = on_call};
    const char *any = "127.0.0.1:0";
    struct ps_error e;
    assert_int_equal(PS_OK, ps_server_start(&any, 1, &options, &server, &e));
    plain_address = ps_printf("127.0.0.1:%d", ps_server_port(server, 0));
    ask_as(plain_address, worker, PS_ROLE_PSD, PARAMSERVER__V1__METHOD__PUSH, false, &r);
    assert_int_equal(PS_UNAVAILABLE, r.code);
    assert_string_equal("it does not speak TLS", r.text);
    assert_int_equal(before + 1, atomic_load(&handled));
    stop(server, plain_address);
    ps_tls_close(psd);
    ps_tls_close(worker);
    ps_tls_close(stranger);
    ps_tls_close(half);
}

// ---- a cluster's file ---------------------------------------------------------------------------------------------

static void cluster_names_the_files(void **state)
{
    (void)state;
    struct ps_cluster c = {0};
    struct ps_error e;
    assert_int_equal(PS_OK, ps_cluster_parse("ps: [a:1]\ntls: certificates\n", "/etc/p/c.yaml", &c, &e));
    assert_true(ps_cluster_has_tls(&c));
    assert_string_equal("/etc/p/certificates", c.tls.folder);
    ps_cluster_fini(&c);
    assert_int_equal(PS_OK, ps_cluster_parse("ps: [a:1]\ntls: {ca: /x/ca.crt, certificate: tls.crt, key: tls.key}\n",
                                             "c.yaml", &c, &e));
    assert_string_equal("/x/ca.crt", c.tls.ca);
    assert_string_equal("tls.crt", c.tls.certificate);
    assert_string_equal("tls.key", c.tls.key);
    assert_int_equal(PS_OK, ps_cluster_set_tls(&c, &(struct ps_tls_files){.folder = "/here"}, &e));
    assert_null(c.tls.ca);
    assert_string_equal("/here", c.tls.folder);
    ps_cluster_fini(&c);
    static const char *const bad[][2] = {
        {"ps: [a:1]\ntls: [x]\n", "c.yaml:2: tls must be a folder, or a map of ca, certificate and key, not a list"},
        {"ps: [a:1]\ntls: {ca: x}\n", "c.yaml:2: tls: expected ca and certificate, and key where that is another"},
        {"ps: [a:1]\ntls: {cert: x}\n", "c.yaml:2: unknown key 'tls.cert'; expected ca, certificate or key"},
        {"ps: [a:1]\ntls: ''\n", "c.yaml:2: tls must be a path"},
        {"ps: [a:1]\ntls:\n", "c.yaml:2: tls must be a folder, or a map of ca, certificate and key, not empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(PS_INVALID_ARGUMENT, ps_cluster_parse(bad[i][0], "c.yaml", &c, &e));
        if (!strstr(e.text, bad[i][1]))
            fail_msg("'%s', expected '%s'", e.text, bad[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_do_not_do),
        cmocka_unit_test(new_files_are_taken_up_once_they_belong_together),
        cmocka_unit_test(refused_files_are_tried_again),
        cmocka_unit_test(a_certificate_says_who_it_is),
        cmocka_unit_test(workers_know_each_other),
        cmocka_unit_test(roles_may_call_their_methods),
        cmocka_unit_test(who_may_not_call_is_logged),
        cmocka_unit_test(who_shows_nothing_is_not_heard),
        cmocka_unit_test(cluster_names_the_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("tls", tests, set_up, tear_down);
}
