// SPDX-License-Identifier: Apache-2.0
//
// Munge, by a munged of our own in a folder of our own: which credentials do, what is said of those that do not, who
// may call, what a connection is known for, and what still works while munged stands still.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/cluster/cluster.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "common/tls/munge.h"
#include "common/tls/munged.h"
#include "proto/paramserver.pb-c.h"
#include "tests/unit/rpc_reply.h"

// Two sites, each with a key; one has two hosts, each with a munged.
static char folder[] = "/tmp/test_munge.XXXXXX";
static struct site {
    char socket[sizeof folder + 16];
    pid_t munged;  // 0: none
} here, beside, elsewhere;

enum { NOBODY = 65534 };

static bool is_installed(void)
{
    return system("PATH=$PATH:/usr/sbin:/sbin; command -v munged >/dev/null && command -v mungekey >/dev/null") == 0;
}

static void start_munged(struct site *site, const char *name, const char *key)
{
    snprintf(site->socket, sizeof site->socket, "%s/%s", folder, name);
    char *command =
        ps_printf("cd %s && PATH=$PATH:/usr/sbin:/sbin && { [ -e %s ] || mungekey -c -k %s; } && exec "
                  "munged --foreground --socket %s --key-file %s/%s --pid-file %s.pid --log-file %s.log "
                  "--seed-file %s.seed 2>%s.err",
                  folder, key, key, site->socket, folder, key, site->socket, site->socket, site->socket, site->socket);
    site->munged = fork();
    if (site->munged == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    free(command);
    for (int i = 0; i < 1000 && access(site->socket, F_OK); i++)
        usleep(10000);
    assert_int_equal(0, access(site->socket, F_OK));
}

static void end_munged(struct site *site)
{
    if (!site->munged)
        return;
    kill(site->munged, SIGCONT);
    kill(site->munged, SIGTERM);
    waitpid(site->munged, NULL, 0);
    site->munged = 0;
}

static int set_up(void **state)
{
    (void)state;
    struct ps_error e;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(0, chmod(folder, 0755));
    if (ps_munged_check(&e) || !is_installed())
        return 0;
    start_munged(&here, "here", "key");
    start_munged(&beside, "beside", "key");
    start_munged(&elsewhere, "elsewhere", "other-key");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_munged(&here);
    end_munged(&beside);
    end_munged(&elsewhere);
    char *command = ps_printf("rm -r '%s'", folder);
    const int failed = system(command);
    free(command);
    return failed;
}

static struct ps_munge *open_munge(const struct site *site, bool users)
{
    struct ps_munge *m = NULL;
    struct ps_error e;
    if (ps_munge_open(site->socket, users, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

// ---- credentials ----------------------------------------------------------------------------------------------------

static const char node[] = "node1:7070";

static char *make(struct ps_munge *m, const char *address)
{
    char *credential = NULL;
    struct ps_error e;
    if (ps_munge_make(m, address, &credential, &e))
        fail_msg("%s", e.text);
    return credential;
}

// Takes over the credential.
static void refuse(struct ps_munge *m, char *credential, const char *address, enum ps_code code, const char *text)
{
    struct ps_identity who;
    struct ps_error e = {.code = PS_OK};
    ps_munge_identify(m, credential, address, &who, &e);
    if (e.code != code || !strstr(e.text, text))
        fail_msg("%d '%s', expected %d '%s'", e.code, e.text, code, text);
    free(credential);
}

static void a_credential_says_who_it_is_and_is_good_once(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false);
    struct ps_identity who;
    struct ps_error e;
    static const char *const addresses[] = {node, "unix:/run/psd", "127.0.0.1:7070", "[::1]:7070"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        char *credential = make(m, addresses[i]);
        if (ps_munge_identify(m, credential, addresses[i], &who, &e))
            fail_msg("%s", e.text);
        assert_int_equal(PS_ROLE_ALL, who.roles);
        assert_string_equal(getpwuid(geteuid())->pw_name, who.user);
        refuse(m, credential, addresses[i], PS_UNAUTHENTICATED, "was shown before");
    }
    ps_munge_close(m);
}

static void credentials_that_do_not_do(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, true), *stranger = open_munge(&elsewhere, true);
    refuse(m, make(m, "node2:7070"), node, PS_UNAUTHENTICATED, "is meant for 'paramserver 2 node2:7070'");
    refuse(m, make(stranger, node), node, PS_UNAUTHENTICATED, "is none of this site's key");
    refuse(m, ps_strdup("MUNGE:abc:"), node, PS_UNAUTHENTICATED, "is none of this site's key");
    refuse(m, ps_strdup(""), node, PS_UNAUTHENTICATED, "is none of this site's key");
    ps_munge_close(m);
    ps_munge_close(stranger);
}

// On this host "127.0.0.1:7070" is not what it is on another one.
static void a_local_address_is_this_hosts(void **state)
{
    (void)state;
    static const char *const local[] = {"unix:/run/psd", "127.0.0.1:7070", "localhost:7070", "[::1]:7070"};
    struct ps_munge *m = open_munge(&here, true);
    char said[PS_MUNGED_TEXT], host[65] = "";
    struct ps_error e;
    uid_t uid;
    assert_int_equal(0, gethostname(host, sizeof host - 1));
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        char *credential = make(m, local[i]);
        assert_int_equal(PS_OK, ps_munged_decode(here.socket, credential, said, &uid, &e));
        char *expected = ps_printf("paramserver 2 %s %s", local[i], host);
        assert_string_equal(expected, said);
        free(expected);
        free(credential);
    }
    char *credential = make(m, node);
    assert_int_equal(PS_OK, ps_munged_decode(here.socket, credential, said, &uid, &e));
    assert_string_equal("paramserver 2 node1:7070", said);
    free(credential);
    ps_munge_close(m);
}

// As one would be that comes a minute late, or from a host whose clock is wrong.
static void a_credential_ends(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, true);
    char *command = ps_printf("munge --socket %s --ttl 1 --string 'paramserver 2 %s'", here.socket, node), text[1024];
    const time_t began = time(NULL);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    assert_non_null(fgets(text, sizeof text, from));
    pclose(from);
    text[strcspn(text, "\n")] = '\0';
    sleep(3);
    struct ps_identity who;
    struct ps_error e = {.code = PS_OK};
    assert_int_equal(PS_UNAUTHENTICATED, ps_munge_identify(m, text, node, &who, &e));
    const char *made = strstr(e.text, "has expired: it was made "), *after = " s ago: expected hosts whose clocks";
    char *end = "";
    const long age = made ? strtol(strpbrk(made, "0123456789"), &end, 10) : -1;
    if (age < 3 || age > time(NULL) - began || strncmp(end, after, strlen(after)))
        fail_msg("'%s', expected an age of 3 s to %d s", e.text, (int)(time(NULL) - began));
    free(command);
    ps_munge_close(m);
}

static void nobody_answers(void **state)
{
    (void)state;
    struct site none = {.socket = "/tmp/no/munged"};
    struct ps_munge *m = open_munge(&none, false), *good = open_munge(&here, false);
    struct ps_error e;
    char *credential = NULL;
    assert_int_equal(PS_UNAVAILABLE, ps_munge_make(m, node, &credential, &e));
    assert_non_null(strstr(e.text, "munged of the host that calls makes no credential: "));
    refuse(m, make(good, node), node, PS_UNAVAILABLE, "munged of the host that is called does not answer");
    ps_munge_close(m);
    ps_munge_close(good);
}

// ---- users ----------------------------------------------------------------------------------------------------------

// Made by a process of that user.
static char *make_as(struct ps_munge *m, uid_t uid)
{
    int ends[2];
    char text[1024] = "";
    assert_int_equal(0, pipe(ends));
    const pid_t child = fork();
    if (child == 0) {
        char *credential = NULL;
        struct ps_error e;
        const bool made = setresuid(uid, uid, uid) == 0 && ps_munge_make(m, node, &credential, &e) == PS_OK;
        _exit(made && write(ends[1], credential, strlen(credential)) > 0 ? 0 : 1);
    }
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return ps_strdup(text);
}

int __real_getpwuid_r(uid_t uid, struct passwd *entry, char *memory, size_t size, struct passwd **found);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *memory, size_t size, struct passwd **found);

static atomic_int name_service_fails;       // with this error
static atomic_size_t name_service_entries;  // bytes of each

int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *memory, size_t size, struct passwd **found)
{
    *found = NULL;
    if (atomic_load(&name_service_fails))
        return atomic_load(&name_service_fails);
    return size < atomic_load(&name_service_entries) ? ERANGE : __real_getpwuid_r(uid, entry, memory, size, found);
}

static void expect_user(struct ps_munge *m, uid_t uid, const char *user, const char *account)
{
    struct ps_identity who;
    struct ps_error e;
    char *credential = make_as(m, uid);
    assert_int_equal(PS_OK, ps_munge_identify(m, credential, node, &who, &e));
    assert_string_equal(user, who.user);
    assert_string_equal(account, ps_identity_account(&who));
    free(credential);
}

// Whether the name service answers is nothing of who it is.
static void who_a_user_is_its_uid_tells(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, true);
    expect_user(m, NOBODY, "nobody", "uid65534");
    atomic_store(&name_service_fails, EIO);
    expect_user(m, NOBODY, "uid65534", "uid65534");
    atomic_store(&name_service_fails, 0);
    atomic_store(&name_service_entries, 200000);
    expect_user(m, NOBODY, "nobody", "uid65534");
    atomic_store(&name_service_entries, SIZE_MAX);
    expect_user(m, NOBODY, "uid65534", "uid65534");
    atomic_store(&name_service_entries, 0);
    ps_munge_close(m);
}

static void other_users_train_where_they_may(void **state)
{
    (void)state;
    struct ps_munge *own = open_munge(&here, false), *all = open_munge(&here, true);
    struct ps_identity who;
    struct ps_error e;
    refuse(own, make_as(own, NOBODY), node, PS_PERMISSION_DENIED, "uid 65534 may not call this process of uid 0");
    char *credential = make_as(own, NOBODY);
    if (ps_munge_identify(all, credential, node, &who, &e))
        fail_msg("%s", e.text);
    assert_int_equal(PS_ROLE_WORKER, who.roles);
    assert_string_equal("nobody", who.user);
    free(credential);
    credential = make_as(own, 54321);
    assert_int_equal(PS_OK, ps_munge_identify(all, credential, node, &who, &e));
    assert_string_equal("uid54321", who.user);
    free(credential);
    ps_munge_close(own);
    ps_munge_close(all);
}

// Of a process that is not root's: its own user and root do all.
static void its_own_user_and_root_may_do_all(void **state)
{
    (void)state;
    const uid_t from[] = {0, NOBODY, 2};
    const unsigned roles[] = {PS_ROLE_ALL, PS_ROLE_ALL, 0};
    assert_int_equal(0, seteuid(NOBODY));
    struct ps_munge *m = open_munge(&here, false);
    assert_int_equal(0, seteuid(0));
    for (int k = 0; k < 3; k++) {
        char *credential = make_as(m, from[k]);
        struct ps_identity who = {0};
        struct ps_error e;
        ps_munge_identify(m, credential, node, &who, &e);
        assert_int_equal(roles[k], who.roles);
        free(credential);
    }
    ps_munge_close(m);
}

// ---- gRPC ---------------------------------------------------------------------------------------------------------

static atomic_int handled;

static void on_call(void *ctx, struct ps_call *call)
{
    (void)ctx;
    atomic_fetch_add(&handled, 1);
    ps_call_reply(call, PS_OK, call->from->user, NULL);
}

enum {
    CALL_MS = 60000,    // a call's time, and an attempt's to connect, where it is not to run out
    PATIENCE_MS = 5000  // where it is
};

static void expect(struct ps_client *c, bool stream, enum ps_code code, const char *text)
{
    struct reply r;
    reply_ask(c, PARAMSERVER__V1__METHOD__PUSH, stream, CALL_MS, &r);
    if (r.code != code || !strstr(r.text, text))
        fail_msg("%d '%s', expected %d '%s'", r.code, r.text, code, text);
}

// Makes a call again for two minutes, while it ends with this error; PS_OK: with any.
static void ask_again(struct ps_client *c, enum ps_code error, struct reply *r)
{
    const uint64_t until = ps_now() + 2 * CALL_MS * PS_MS;
    while (reply_ask(c, PARAMSERVER__V1__METHOD__PUSH, false, PATIENCE_MS, r),
           r->code && (!error || r->code == error) && ps_now() < until)
        usleep(100000);
}

// A port that was free.
static char *free_address(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(0, bind(fd, (struct sockaddr *)&at, len));
    getsockname(fd, (struct sockaddr *)&at, &len);
    close(fd);
    return ps_printf("127.0.0.1:%d", ntohs(at.sin_port));
}

static struct ps_server *serve(struct ps_munge *m, const char *address)
{
    const struct ps_server_options options = {.munge = m, .known_as = address, .call = on_call};
    const char *addresses[] = {address, "0.0.0.0:0"};  // which munge allows
    struct ps_server *server;
    struct ps_error e;
    if (ps_server_start(addresses, 2, &options, &server, &e))
        fail_msg("%s", e.text);
    return server;
}

// Stuck is also what a server is whose threads are kept from running.
static void stop(struct ps_server *server)
{
    enum ps_stop how = PS_STOP_STUCK;
    for (const uint64_t until = ps_now() + CALL_MS * PS_MS; how == PS_STOP_STUCK && ps_now() < until;)
        how = ps_server_stop(server, PS_SECOND);
    assert_int_not_equal(PS_STOP_STUCK, how);
    ps_server_destroy(server);
}

static struct ps_client *connect_to(struct ps_munge *m, const char *address)
{
    return ps_client_create(&address, 1, &(struct ps_client_options){.attempt_ms = CALL_MS, .munge = m});
}

static void leave(struct ps_client *c)
{
    ps_client_stop(c);
    ps_client_destroy(c);
}

static void who_shows_a_credential_is_heard(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false), *stranger = open_munge(&elsewhere, false);
    char *port = free_address(), *path = ps_printf("unix:%s/psd", folder);
    const char *const addresses[] = {port, path};
    for (int k = 0; k < 2; k++) {
        struct ps_server *server = serve(m, addresses[k]);
        struct ps_client *good = connect_to(m, addresses[k]), *none = connect_to(NULL, addresses[k]),
                         *bad = connect_to(stranger, addresses[k]);
        const int before = atomic_load(&handled);
        for (int i = 0; i < 3; i++) {
            expect(good, false, PS_OK, "");
            expect(good, true, PS_OK, "");
        }
        assert_int_equal(before + 6, atomic_load(&handled));
        for (int stream = 0; stream < 2; stream++) {  // while another connection is known
            expect(none, stream, PS_UNAUTHENTICATED, "brings no munge credential");
            expect(bad, stream, PS_UNAUTHENTICATED, "is none of this site's key");
        }
        assert_int_equal(before + 6, atomic_load(&handled));
        leave(good);
        leave(none);
        leave(bad);
        stop(server);
    }
    free(port);
    free(path);
    ps_munge_close(m);
    ps_munge_close(stranger);
}

static void a_credential_is_for_one_address(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false);
    char *address = free_address();
    struct ps_server *server = serve(m, address);
    char *other = ps_printf("127.0.0.1:%d", ps_server_port(server, 1));
    struct ps_client *c = connect_to(m, other);
    const int before = atomic_load(&handled);
    expect(c, false, PS_UNAUTHENTICATED, "is meant for 'paramserver 2 127.0.0.1:");
    assert_int_equal(before, atomic_load(&handled));
    leave(c);
    stop(server);
    free(address);
    free(other);
    ps_munge_close(m);
}

// The next server does not know the connection: the client shows another credential.
static void a_server_that_was_started_again_is_shown_another(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false);
    char *address = free_address();
    struct ps_server *server = serve(m, address);
    struct ps_client *c = connect_to(m, address);
    expect(c, false, PS_OK, "");
    stop(server);
    server = serve(m, address);
    struct reply r;
    ask_again(c, PS_UNAVAILABLE, &r);  // until it has connected again
    if (r.code)
        fail_msg("%d '%s'", r.code, r.text);
    expect(c, true, PS_OK, "");
    leave(c);
    stop(server);
    free(address);
    ps_munge_close(m);
}

// Who is known goes on; who is not hears so by its deadline; and later all is as before.
static void munged_stands_still(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false), *other = open_munge(&here, false);
    char *address = free_address();
    struct ps_server *server = serve(m, address);
    struct ps_client *known = connect_to(m, address), *fresh = connect_to(other, address);
    struct reply r;
    expect(known, false, PS_OK, "");
    expect(known, true, PS_OK, "");
    kill(here.munged, SIGSTOP);
    expect(known, false, PS_OK, "");
    expect(known, true, PS_OK, "");
    for (int stream = 0; stream < 2; stream++) {
        const uint64_t began = ps_now();
        reply_ask(fresh, PARAMSERVER__V1__METHOD__PUSH, stream, PATIENCE_MS, &r);
        assert_int_not_equal(PS_OK, r.code);
        assert_true(ps_now() - began < 30 * PS_SECOND);  // and not once munged goes on
    }
    expect(known, false, PS_OK, "");
    kill(here.munged, SIGCONT);
    ask_again(fresh, PS_OK, &r);
    expect(fresh, false, PS_OK, "");
    expect(fresh, true, PS_OK, "");
    leave(known);
    leave(fresh);
    stop(server);
    free(address);
    ps_munge_close(m);
    ps_munge_close(other);
}

// The server's, while the client's makes credentials: whom the server knows passes those that wait.
static void the_servers_munged_stands_still(void **state)
{
    (void)state;
    struct ps_munge *m = open_munge(&here, false), *clients = open_munge(&beside, false);
    char *address = free_address();
    struct ps_server *server = serve(m, address);
    struct ps_client *known = connect_to(clients, address), *fresh = connect_to(clients, address);
    struct ps_slices request = PS_SLICES_EMPTY;
    struct reply r, late = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    expect(known, false, PS_OK, "");
    expect(known, true, PS_OK, "");
    kill(here.munged, SIGSTOP);
    const int before = atomic_load(&handled);
    const uint64_t began = ps_now();
    ps_client_call(fresh, 0, PARAMSERVER__V1__METHOD__PUSH,
                   &(struct ps_call_options){.deadline = began + 2 * PS_SECOND}, &request, reply_come, &late);
    for (int i = 0; i < 5; i++) {
        usleep(100000);
        expect(known, i % 2, PS_OK, "");
    }
    assert_int_equal(before + 5, atomic_load(&handled));
    pthread_mutex_lock(&late.lock);
    while (!late.come)
        pthread_cond_wait(&late.changed, &late.lock);
    pthread_mutex_unlock(&late.lock);
    assert_int_equal(PS_DEADLINE_EXCEEDED, late.code);
    assert_true(ps_now() - began < 30 * PS_SECOND);  // and not once munged goes on
    kill(here.munged, SIGCONT);
    ask_again(fresh, PS_OK, &r);
    expect(fresh, true, PS_OK, "");
    leave(known);
    leave(fresh);
    stop(server);
    free(address);
    ps_munge_close(m);
    ps_munge_close(clients);
}

// ---- a cluster's file ---------------------------------------------------------------------------------------------

static void cluster_says_munge(void **state)
{
    (void)state;
    struct ps_cluster c = {0};
    struct ps_error e;
    assert_int_equal(PS_OK, ps_cluster_parse("ps: [a:1]\nmunge: true\n", "/etc/p/c.yaml", &c, &e));
    assert_true(c.munge && !c.munge_socket);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_cluster_set_tls(&c, &(struct ps_tls_files){.folder = "/here"}, &e));
    assert_string_equal("tls and munge both say who may connect: expected one of them", e.text);
    ps_cluster_fini(&c);
    assert_int_equal(PS_OK, ps_cluster_parse("ps: [a:1]\nmunge: run/munged\n", "/etc/p/c.yaml", &c, &e));
    assert_true(c.munge);
    assert_string_equal("/etc/p/run/munged", c.munge_socket);
    ps_cluster_fini(&c);
    assert_int_equal(PS_OK, ps_cluster_parse("ps: [a:1]\nmunge: false\ntls: x\n", "c.yaml", &c, &e));
    assert_false(c.munge);
    assert_int_equal(PS_INVALID_ARGUMENT, ps_cluster_set_munge(&c, NULL, &e));
    ps_cluster_fini(&c);
    static const char *const bad[][2] = {
        {"ps: [a:1]\nmunge: true\ntls: x\n", "c.yaml: tls and munge both say who may connect: expected one of them"},
        {"ps: [a:1]\nmunge: maybe\n", "c.yaml:2: munge must be true, false or the path of munged's socket, not"},
        {"ps: [a:1]\nmunge: [x]\n", "c.yaml:2: munge must be true, false or the path of munged's socket, not a list"},
        {"ps: [a:1]\nmung: true\n", "did you mean 'munge'?"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(PS_INVALID_ARGUMENT, ps_cluster_parse(bad[i][0], "c.yaml", &c, &e));
        if (!strstr(e.text, bad[i][1]))
            fail_msg("'%s', expected '%s'", e.text, bad[i][1]);
    }
}

// A build without libmunge says so at once.
static void a_build_has_munge_or_says_so(void **state)
{
    (void)state;
    struct ps_munge *m = NULL;
    struct ps_error e = {.code = PS_OK};
    if (ps_munged_check(&e) == PS_OK)
        return;
    assert_int_equal(PS_FAILED_PRECONDITION, ps_munge_open(NULL, false, &m, &e));
    assert_non_null(strstr(e.text, "this build has none"));
}

// What can be tested here: the last two start processes of other users, all but the first two need munged.
static size_t count_tests(size_t all)
{
    struct ps_error e;
    if (ps_munged_check(&e) || !is_installed()) {
        puts("# no munged is installed here, or this build has no libmunge: only what needs neither is tested");
        return 2;
    }
    if (geteuid() == 0)
        return all;
    puts("# only root starts processes of other users: what these may is not tested");
    return all - 2;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_says_munge),
        cmocka_unit_test(a_build_has_munge_or_says_so),
        cmocka_unit_test(a_credential_says_who_it_is_and_is_good_once),
        cmocka_unit_test(credentials_that_do_not_do),
        cmocka_unit_test(a_local_address_is_this_hosts),
        cmocka_unit_test(a_credential_ends),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(who_shows_a_credential_is_heard),
        cmocka_unit_test(a_credential_is_for_one_address),
        cmocka_unit_test(a_server_that_was_started_again_is_shown_another),
        cmocka_unit_test(munged_stands_still),
        cmocka_unit_test(the_servers_munged_stands_still),
        cmocka_unit_test(other_users_train_where_they_may),
        cmocka_unit_test(who_a_user_is_its_uid_tells),
        cmocka_unit_test(its_own_user_and_root_may_do_all),
    };
    const size_t n = count_tests(sizeof tests / sizeof *tests);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("munge", tests, n, set_up, tear_down);
}
