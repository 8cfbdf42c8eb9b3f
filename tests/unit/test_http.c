// SPDX-License-Identifier: Apache-2.0
//
// Pages over HTTP: what is answered and what is refused, bounds, whose signals they are; metrics as text, with what has
// to be escaped.
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "psd/http/view.h"

// ---- pages --------------------------------------------------------------------------------------------------------

static atomic_int made;
static atomic_bool heard_signals;

static enum ps_code make_page(void *ctx, char **text, struct ps_error *e)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGALRM, SIGUSR1, SIGCHLD};
    sigset_t blocked;
    (void)e;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!sigismember(&blocked, signals[i]))
            heard_signals = true;
    made++;
    *text = ps_strdup(ctx);
    return PS_OK;
}

static enum ps_code make_failure(void *ctx, char **text, struct ps_error *e)
{
    (void)ctx;
    (void)text;
    return ps_fail(e, PS_UNAVAILABLE, "it is not ready");
}

static struct ps_http_page pages[] = {
    {"/page", "text/x-page", make_page, "what it says\n"},
    {"/failure", "text/x-page", make_failure, NULL},
    {"/empty", "text/x-page", make_page, ""},
};

static struct ps_http *start_server(const char *address)
{
    struct ps_http *h;
    struct ps_error e;
    assert_int_equal(PS_OK, ps_http_start(address, false, pages, 3, &h, &e));
    return h;
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(0, connect(fd, (struct sockaddr *)&to, sizeof to));
    return fd;
}

static void send_text(int fd, const char *text)
{
    for (size_t done = 0, n = strlen(text); done < n;) {
        const ssize_t sent = send(fd, text + done, n - done, MSG_NOSIGNAL);
        if (sent < 0)
            return;  // it has been refused already
        done += (size_t)sent;
    }
}

// All that comes until the connection is closed.
static char answer[1 << 16];
static void receive_all(int fd)
{
    size_t n = 0;
    ssize_t got;
    while (n < sizeof answer - 1 && (got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0)
        n += (size_t)got;
    answer[n] = '\0';
    close(fd);
}

static void exchange(const struct ps_http *h, const char *request)
{
    const int fd = connect_to(ps_http_port(h));
    send_text(fd, request);
    receive_all(fd);
}

static void assert_status(const char *status)
{
    if (strncmp(answer, status, strlen(status)) != 0)
        fail_msg("expected %s, got: %.200s", status, answer);
}

static void assert_has(const char *text)
{
    if (!strstr(answer, text))
        fail_msg("expected \"%s\" in: %.500s", text, answer);
}

#define CLOSE "Host: x\r\nConnection: close\r\n\r\n"

// ---- what is answered ---------------------------------------------------------------------------------------------

static void test_pages(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    (void)state;
    exchange(h, "GET /page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    assert_has("Content-Type: text/x-page\r\n");
    assert_has("\r\n\r\nwhat it says\n");
    exchange(h, "HEAD /page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    assert_has("Content-Length: 13\r\n");
    assert_null(strstr(answer, "what it says"));
    exchange(h, "GET /page?x=y HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    exchange(h, "GET /empty HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    exchange(h, "GET /page HTTP/1.1\r\nHost: x\r\n\r\nGET /failure HTTP/1.1\r\n" CLOSE);  // on one connection
    assert_has("what it says\nHTTP/1.1 503 ");
    ps_http_stop(h);
}

static void test_refusals(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    const int before = made;
    (void)state;
    exchange(h, "GET /failure HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 503 ");
    assert_has("Content-Type: text/plain; charset=utf-8\r\n");
    assert_has("\r\n\r\nit is not ready\n");
    exchange(h, "GET /pages HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 404 ");
    assert_has("\r\n\r\nthere is no such page: expected /page, /failure or /empty\n");
    exchange(h, "GET /pages HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_has("Connection: close\r\n");
    exchange(h, "GET /../page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 404 ");
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char request[128];
        snprintf(request, sizeof request, "%s /page HTTP/1.1\r\n" CLOSE, methods[i]);
        exchange(h, request);
        assert_status("HTTP/1.1 405 ");
        assert_has("Allow: GET, HEAD\r\n");
        assert_has("this method is not served: expected GET or HEAD\n");
    }
    assert_int_equal(before, made);
    ps_http_stop(h);
}

// What stands in a body is never taken as a request of its own.
static void test_bodies(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    const int before = made;
    (void)state;
    exchange(h,
             "GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: 37\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\n1234567");
    assert_status("HTTP/1.1 413 ");
    assert_has("the request has a body: expected none\n");
    exchange(h, "GET /page HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    assert_status("HTTP/1.1 413 ");
    exchange(h, "POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_status("HTTP/1.1 405 ");
    assert_null(strstr(answer + 1, "HTTP/1.1 "));
    assert_int_equal(before, made);
    exchange(h, "GET /page HTTP/1.1\r\nContent-Length: 0\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    ps_http_stop(h);
}

// What is no HTTP, or has no end, is refused, and does not matter to others.
static void test_noise(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    char *large = ps_alloc((1 << 20) + 64);
    (void)state;
    exchange(h, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_status("HTTP/1.");
    const int head = snprintf(large, 64, "GET /page HTTP/1.1\r\nX: ");
    memset(large + head, 'x', 1 << 20);
    const int fd = connect_to(ps_http_port(h));
    send_text(fd, large);
    shutdown(fd, SHUT_WR);
    receive_all(fd);
    assert_null(strstr(answer, "what it says"));
    exchange(h, "GET /page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    free(large);
    ps_http_stop(h);
}

// ---- where it listens ---------------------------------------------------------------------------------------------

static void refuses(const char *address, enum ps_code expected, const char *text)
{
    struct ps_http *h = (struct ps_http *)pages;
    struct ps_error e;
    assert_int_equal(expected, ps_http_start(address, false, pages, 3, &h, &e));
    assert_null(h);
    if (!strstr(e.text, text))
        fail_msg("%s: expected \"%s\" in: %s", address, text, e.text);
}

static void test_addresses(void **state)
{
    struct ps_http *h = start_server("localhost:0");
    char taken[32];
    (void)state;
    refuses("0.0.0.0:0", PS_FAILED_PRECONDITION, "other hosts could connect");
    refuses("unix:/tmp/http", PS_INVALID_ARGUMENT, "HTTP is not served on unix sockets");
    refuses("localhost", PS_INVALID_ARGUMENT, "expected host:port");
    snprintf(taken, sizeof taken, "127.0.0.1:%d", ps_http_port(h));
    refuses(taken, PS_ALREADY_EXISTS, "another process listens there");
    exchange(h, "GET /page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    ps_http_stop(h);
    h = start_server(taken);  // it is free again at once
    ps_http_stop(h);
    ps_http_stop(NULL);
}

static void test_signals(void **state)
{
    sigset_t before, after;
    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct ps_http *h = start_server("127.0.0.1:0");
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(0, sigismember(&after, SIGTERM));
    assert_int_equal(sigismember(&before, SIGPIPE), sigismember(&after, SIGPIPE));
    exchange(h, "GET /page HTTP/1.1\r\n" CLOSE);
    assert_status("HTTP/1.1 200 ");
    assert_false(heard_signals);
    ps_http_stop(h);
}

// As many silent connections as there may be keep another one waiting, until they have been silent for long enough.
static void test_bounds(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    int silent[PS_HTTP_CONNECTIONS];
    const uint64_t start = ps_now();
    (void)state;
    for (int i = 0; i < PS_HTTP_CONNECTIONS; i++)
        silent[i] = connect_to(ps_http_port(h));
    usleep(200000);  // they are taken in
    struct pollfd one_more = {.fd = connect_to(ps_http_port(h)), .events = POLLIN};
    send_text(one_more.fd, "GET /page HTTP/1.1\r\n" CLOSE);
    assert_int_equal(0, poll(&one_more, 1, 1000));
    receive_all(one_more.fd);
    assert_status("HTTP/1.1 200 ");
    const double seconds = (double)(ps_now() - start) / (double)PS_SECOND;
    assert_true(seconds > PS_HTTP_SILENCE - 2 && seconds < 3 * PS_HTTP_SILENCE);
    for (int i = 0; i < PS_HTTP_CONNECTIONS; i++) {
        receive_all(silent[i]);
        assert_string_equal("", answer);
    }
    ps_http_stop(h);
}

// ---- metrics ------------------------------------------------------------------------------------------------------

static void test_metrics(void **state)
{
    struct ps_metrics m;
    struct ps_error e;
    char *text;
    (void)state;
    const struct ps_label labels[] = {{"a", "plain"}, {"b", "a \"quote\", a \\ and\na line: \xc3\xa4"}};
    assert_int_equal(PS_OK, ps_metrics_open(&m, &e));
    ps_metrics_family(&m, "x_total", "counter", "What it is.");
    ps_metrics_sample(&m, labels, 2, 1);
    ps_metrics_sample(&m, NULL, 0, 999999999999999);
    ps_metrics_sample(&m, labels, 1, 0.3);
    ps_metrics_family(&m, "y", "gauge", "Another.");
    ps_metrics_sample(&m, NULL, 0, NAN);
    ps_metrics_sample(&m, NULL, 0, -INFINITY);
    ps_metrics_sample(&m, NULL, 0, INFINITY);
    ps_metrics_sample(&m, NULL, 0, 1e300);
    assert_int_equal(PS_OK, ps_metrics_close(&m, &text, &e));
    assert_string_equal("# HELP x_total What it is.\n# TYPE x_total counter\n"
                        "x_total{a=\"plain\",b=\"a \\\"quote\\\", a \\\\ and\\na line: \xc3\xa4\"} 1\n"
                        "x_total 999999999999999\n"
                        "x_total{a=\"plain\"} 0.3\n"
                        "# HELP y Another.\n# TYPE y gauge\ny NaN\ny -Inf\ny +Inf\ny 1e+300\n",
                        text);
    free(text);
}

// A job and its workers, of which one has not joined.
static char *view_of(uint32_t task)
{
    Paramserver__V1__StatusReply status = PARAMSERVER__V1__STATUS_REPLY__INIT;
    Paramserver__V1__JobStatus job = PARAMSERVER__V1__JOB_STATUS__INIT, *jobs[] = {&job};
    Paramserver__V1__Member member[2] = {PARAMSERVER__V1__MEMBER__INIT, PARAMSERVER__V1__MEMBER__INIT};
    Paramserver__V1__Member *members[] = {&member[0], &member[1]};
    Paramserver__V1__WorkersReply workers = PARAMSERVER__V1__WORKERS_REPLY__INIT, *list[] = {task ? NULL : &workers};
    struct ps_error e;
    char *text;
    status = (Paramserver__V1__StatusReply){.base = status.base,
                                            .version = "1\"2",
                                            .task = task,
                                            .uptime_ms = 1500,
                                            .limit_bytes = UINT64_C(1) << 40,
                                            .n_jobs = 1,
                                            .jobs = jobs};
    job.name = "a\"b\\c\nd";
    job.user = "alice";
    job.state = "failed";
    job.update = PARAMSERVER__V1__UPDATE__SSP;
    job.updates = 12;
    job.live_workers = 1;
    member[0].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
    member[0].loss = NAN;
    member[0].silent_ms = 250;
    member[1].rank = 1;
    member[1].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    workers.n_members = 2;
    workers.members = members;
    assert_int_equal(PS_OK, psd_view_text(&status, list, &text, &e));
    return text;
}

static void view_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("expected %s in:\n%s", line, text);
}

#define JOB "job=\"a\\\"b\\\\c\\nd\""

static void test_view(void **state)
{
    (void)state;
    char *text = view_of(0);
    view_has(text, "\nparamserver_psd_info{task=\"0\",version=\"1\\\"2\"} 1\n");
    view_has(text, "\nparamserver_psd_uptime_seconds{task=\"0\"} 1.5\n");
    view_has(text, "\nparamserver_psd_limit_bytes{task=\"0\"} 1099511627776\n");
    view_has(text, "\nparamserver_job_info{" JOB ",task=\"0\",update=\"ssp\",user=\"alice\"} 1\n");
    view_has(text, "\nparamserver_job_state{" JOB ",task=\"0\",state=\"running\"} 0\n");
    view_has(text, "\nparamserver_job_state{" JOB ",task=\"0\",state=\"failed\"} 1\n");
    view_has(text, "\nparamserver_job_updates_total{" JOB ",task=\"0\"} 12\n");
    view_has(text, "\nparamserver_job_live_workers{" JOB ",task=\"0\"} 1\n");
    view_has(text, "\nparamserver_worker_state{" JOB ",worker=\"1\",state=\"expected\"} 1\n");
    view_has(text, "\nparamserver_worker_loss{" JOB ",worker=\"0\"} NaN\n");
    view_has(text, "\nparamserver_worker_silent_seconds{" JOB ",worker=\"0\"} 0.25\n");
    assert_null(strstr(text, "paramserver_worker_loss{" JOB ",worker=\"1\""));
    free(text);
    text = view_of(1);
    view_has(text, "\nparamserver_job_updates_total{" JOB ",task=\"1\"} 12\n");
    assert_null(strstr(text, "paramserver_worker_"));
    assert_null(strstr(text, "paramserver_job_live_workers"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),   cmocka_unit_test(test_refusals),  cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_noise),   cmocka_unit_test(test_addresses), cmocka_unit_test(test_signals),
        cmocka_unit_test(test_metrics), cmocka_unit_test(test_view),      cmocka_unit_test(test_bounds),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
