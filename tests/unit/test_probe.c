// SPDX-License-Identifier: Apache-2.0
//
// Why nobody answers: each reason, made on purpose by a listener of this test's own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/psctl/probe.h"

enum {
    SHORT_MS = 300,  // for who says nothing
    PATIENCE_MS = 60000,
};

struct listener {
    int fd;
    char address[32];
    const char *says;
    size_t len;  // SIZE_MAX: nothing, and keeps the connection
    pthread_t thread;
};

// A port that nobody else can have until it is closed.
static void take_port(struct listener *l)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(l->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(l->fd, (struct sockaddr *)&a, &size), 0);
    snprintf(l->address, sizeof l->address, "127.0.0.1:%d", ntohs(a.sin_port));
}

static void listen_somewhere(struct listener *l)
{
    take_port(l);
    assert_int_equal(listen(l->fd, 8), 0);
}

// One connection: hears the preface, answers, hangs up.
static void *answer(void *arg)
{
    struct listener *l = arg;
    char heard[64];
    int fd = accept(l->fd, NULL, NULL);
    ssize_t n = read(fd, heard, sizeof heard);
    bool preface = n >= 24 && memcmp(heard, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24) == 0;
    if (preface && l->len)
        n = write(fd, l->says, l->len);
    close(fd);
    return NULL;
}

static struct probe probed(const char *says, size_t len)
{
    struct listener l = {.says = says, .len = len};
    struct probe p = {0};
    listen_somewhere(&l);
    pthread_create(&l.thread, NULL, answer, &l);
    probe(l.address, PATIENCE_MS, NULL, &p);
    pthread_join(l.thread, NULL);
    close(l.fd);
    return p;
}

static void what_is_said_tells_what_it_is(void **state)
{
    (void)state;
    static const char settings[] = "\0\0\6\4\0\0\0\0\0\0\3\0\0\0\144", goaway[] = "\0\0\10\7\0\0\0\0\0\0\0\0\0";
    static const char alert[] = "\x15\3\1\0\2\2\12", http1[] = "HTTP/1.1 400 Bad\033Request\r\nServer: x\r\n";
    struct probe p = probed(settings, 15);
    assert_int_equal(p.result, PROBE_HTTP2);
    p = probed(goaway, 13);
    assert_int_equal(p.result, PROBE_OTHER);
    p = probed(alert, 7);
    assert_int_equal(p.result, PROBE_TLS);
    p = probed(http1, sizeof http1 - 1);
    assert_int_equal(p.result, PROBE_OTHER);
    assert_string_equal(p.detail, "HTTP/1.1 400 Bad.Request");
    p = probed("", 0);
    assert_int_equal(p.result, PROBE_CLOSED);
}

static void who_does_not_accept_is_silent(void **state)
{
    (void)state;
    struct listener l = {0};
    struct probe p = {0};
    listen_somewhere(&l);
    // Where the time runs out before it is connected, once more with more of it.
    for (int ms = SHORT_MS; ms < PATIENCE_MS; ms *= 4) {
        probe(l.address, ms, NULL, &p);
        if (p.result != PROBE_NO_NAME && p.result != PROBE_UNREACHABLE)
            break;
    }
    assert_int_equal(p.result, PROBE_SILENT);
    close(l.fd);
}

static void who_does_not_listen_refuses(void **state)
{
    (void)state;
    struct listener l = {0};
    struct probe p = {0};
    take_port(&l);
    probe(l.address, PATIENCE_MS, NULL, &p);
    assert_int_equal(p.result, PROBE_REFUSED);
    close(l.fd);
}

static void addresses_that_lead_nowhere(void **state)
{
    (void)state;
    struct probe p = {0};
    char path[300] = "unix:/tmp/";
    probe("unix:/nowhere/psd", SHORT_MS, NULL, &p);
    assert_int_equal(p.result, PROBE_NO_SOCKET);
    assert_string_equal(p.detail, "No such file or directory");
    probe("unix:/dev/null", SHORT_MS, NULL, &p);
    assert_true(p.result == PROBE_REFUSED || p.result == PROBE_NO_SOCKET);
    memset(path + 10, 'x', 200);
    probe(path, SHORT_MS, NULL, &p);
    assert_int_equal(p.result, PROBE_NO_SOCKET);
    probe("no-such-host.invalid:7070", SHORT_MS, NULL, &p);
    assert_int_equal(p.result, PROBE_NO_NAME);
    assert_true(p.detail[0] != '\0');
    probe("no port", SHORT_MS, NULL, &p);
    assert_int_equal(p.result, PROBE_NO_NAME);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_tells_what_it_is),
        cmocka_unit_test(who_does_not_accept_is_silent),
        cmocka_unit_test(who_does_not_listen_refuses),
        cmocka_unit_test(addresses_that_lead_nowhere),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
