// SPDX-License-Identifier: Apache-2.0
//
// Pages over HTTP: what is answered and what is refused, bounds, whose signals they are; metrics and JSON as text, with
// what has to be escaped; the status page's sentences, and what it keeps.
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
#include "common/base/utf8.h"
#include "common/http/json.h"
#include "common/http/metrics.h"
#include "common/http/server.h"
#include "common/summary/summary.h"
#include "psd/http/history.h"
#include "psd/http/status.h"
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

// From 127.0.0.`host`.
static int connect_from(uint32_t host, int port)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(0, bind(fd, (struct sockaddr *)&from, sizeof from));
    assert_int_equal(0, connect(fd, (struct sockaddr *)&to, sizeof to));
    return fd;
}

static int connect_to(int port)
{
    return connect_from(1, port);
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

#define CLOSE "Host: localhost\r\nConnection: close\r\n\r\n"

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
    exchange(h, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\nGET /failure HTTP/1.1\r\n" CLOSE);  // on one connection
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
    exchange(h, "GET /pages HTTP/1.1\r\nHost: localhost\r\n\r\n");
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

// What a web page elsewhere could have a browser ask, by a name that resolves to this host.
static void test_names(void **state)
{
    static const struct {
        const char *host, *status;
    } asks[] = {{"localhost", "200"},       {"LocalHost:80", "200"}, {"127.0.0.1:1", "200"},
                {"10.1.2.3", "200"},        {"[::1]:80", "200"},     {"rebound.example", "421"},
                {"x:127", "421"},           {"127.0.0.1.x", "421"},  {"localhost.x", "421"},
                {"127.0.0.1 x.org", "421"}, {"[::1]", "200"},        {"[evil.example]", "421"},
                {"[::1].x", "421"},         {"[::1", "421"},         {"[127.0.0.1]", "421"}};
    char request[512];
    struct ps_http *h = start_server("127.0.0.1:0");
    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        snprintf(request, sizeof request, "GET /page HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", asks[i].host);
        exchange(h, request);
        if (strncmp(answer + strlen("HTTP/1.1 "), asks[i].status, 3) != 0)
            fail_msg("Host %s: expected %s, got %.40s", asks[i].host, asks[i].status, answer);
    }
    snprintf(request, sizeof request, "GET /page HTTP/1.1\r\nHost: %0300d\r\nConnection: close\r\n\r\n", 0);
    exchange(h, request);
    assert_status("HTTP/1.1 421 ");
    assert_null(strstr(answer, "what it says"));
    exchange(h, "GET /page HTTP/1.0\r\n\r\n");
    assert_status("HTTP/1.1 200 ");
    ps_http_stop(h);
    struct ps_error e;
    assert_int_equal(PS_OK, ps_http_start("0.0.0.0:0", true, pages, 3, &h, &e));
    exchange(h, "GET /page HTTP/1.1\r\nHost: node1.example\r\nConnection: close\r\n\r\n");  // for any name of it
    assert_status("HTTP/1.1 200 ");
    ps_http_stop(h);
}

static void test_headers(void **state)
{
    static const char *const requests[] = {"GET /page HTTP/1.1\r\n" CLOSE, "GET /failure HTTP/1.1\r\n" CLOSE,
                                           "GET /x HTTP/1.1\r\n" CLOSE, "PUT /page HTTP/1.1\r\n" CLOSE};
    struct ps_http *h = start_server("127.0.0.1:0");
    (void)state;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        exchange(h, requests[i]);
        assert_has("\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; ");
        assert_has("frame-ancestors 'none'\r\n");
        assert_has("\r\nCache-Control: no-store\r\n");
        assert_has("\r\nX-Content-Type-Options: nosniff\r\n");
        assert_has("\r\nX-Frame-Options: DENY\r\n");
        assert_has("\r\nCross-Origin-Resource-Policy: same-origin\r\n");
    }
    ps_http_stop(h);
}

// What stands in a body is never taken as a request of its own.
static void test_bodies(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    const int before = made;
    (void)state;
    exchange(h, "GET /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 37\r\n\r\nGET /page HTTP/1.1\r\nHost: "
                "x\r\n\r\n1234567");
    assert_status("HTTP/1.1 413 ");
    assert_has("the request has a body: expected none\n");
    exchange(h, "GET /page HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    assert_status("HTTP/1.1 413 ");
    exchange(
        h, "POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\nGET /page HTTP/1.1\r\nHost: x\r\n\r\n");
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

static void refuses_exactly(const char *address, const char *text)
{
    struct ps_http *h;
    struct ps_error e;
    assert_int_equal(PS_INVALID_ARGUMENT, ps_http_start(address, false, pages, 3, &h, &e));
    assert_string_equal(text, e.text);
}

static void test_addresses(void **state)
{
    struct ps_http *h = start_server("localhost:0");
    char taken[32];
    (void)state;
    refuses("0.0.0.0:0", PS_FAILED_PRECONDITION,
            "other hosts could connect, and it has neither users nor encryption; use a loopback");
    refuses("unix:/tmp/http", PS_INVALID_ARGUMENT, "HTTP is not served on unix sockets");
    refuses_exactly("localhost", "'localhost': expected host:port or [ipv6]:port");
    refuses_exactly("localhost:99999", "'localhost:99999': expected host:port or [ipv6]:port");
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
        silent[i] = connect_from(1 + (uint32_t)i % 2, ps_http_port(h));
    usleep(200000);  // they are taken in
    struct pollfd one_more = {.fd = connect_from(3, ps_http_port(h)), .events = POLLIN};
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

// One client's silent connections keep no other one waiting.
static void test_room_for_others(void **state)
{
    struct ps_http *h = start_server("127.0.0.1:0");
    int silent[PS_HTTP_CONNECTIONS];
    const uint64_t start = ps_now();
    (void)state;
    for (int i = 0; i < PS_HTTP_CONNECTIONS; i++)
        silent[i] = connect_to(ps_http_port(h));
    const int other = connect_from(2, ps_http_port(h));
    send_text(other, "GET /page HTTP/1.1\r\n" CLOSE);
    receive_all(other);
    assert_status("HTTP/1.1 200 ");
    receive_all(silent[PS_HTTP_OF_ONE]);
    assert_string_equal("", answer);
    assert_true(ps_now() - start < (PS_HTTP_SILENCE - 2) * PS_SECOND);
    for (int i = 0; i < PS_HTTP_CONNECTIONS; i++)
        if (i != PS_HTTP_OF_ONE)
            close(silent[i]);
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

static void test_json(void **state)
{
    struct ps_json j;
    struct ps_error e;
    char *text;
    (void)state;
    assert_int_equal(PS_OK, ps_json_open(&j, &e));
    ps_json_begin(&j, NULL, '{');
    ps_json_text(&j, "a\"b", "</script> \\ \"q\" \n\t\x7f \xc3\xa4");
    ps_json_text(&j, "bad", "x\xffy");
    ps_json_begin(&j, "list", '[');
    ps_json_end(&j, ']');
    ps_json_begin(&j, "numbers", '[');
    ps_json_number(&j, NULL, 0.1);
    ps_json_number(&j, NULL, NAN);
    ps_json_number(&j, NULL, INFINITY);
    ps_json_number(&j, NULL, -INFINITY);
    ps_json_count(&j, NULL, UINT64_MAX);
    ps_json_end(&j, ']');
    ps_json_begin(&j, "o", '{');
    ps_json_flag(&j, "t", true);
    ps_json_flag(&j, "f", false);
    ps_json_null(&j, "n");
    ps_json_end(&j, '}');
    ps_json_end(&j, '}');
    assert_int_equal(PS_OK, ps_json_close(&j, &text, &e));
    assert_string_equal(
        "{\"a\\\"b\":\"\\u003c/script> \\\\ \\\"q\\\" \\u000a\\u0009\\u007f \xc3\xa4\",\"bad\":\"x\\ufffdy\","
        "\"list\":[],\"numbers\":[0.1,\"NaN\",\"Infinity\",\"-Infinity\",18446744073709551615],"
        "\"o\":{\"t\":true,\"f\":false,\"n\":null}}",
        text);
    free(text);
}

// A job and its workers, of which two have not joined, and one has done no step.
static char *view_of(uint32_t task)
{
    Paramserver__V1__StatusReply status = PARAMSERVER__V1__STATUS_REPLY__INIT;
    Paramserver__V1__JobStatus job = PARAMSERVER__V1__JOB_STATUS__INIT, *jobs[] = {&job};
    Paramserver__V1__Member member[4], *members[] = {&member[0], &member[1], &member[2], &member[3]};
    Paramserver__V1__WorkersReply workers = PARAMSERVER__V1__WORKERS_REPLY__INIT, *list[] = {task ? NULL : &workers};
    Paramserver__V1__QueueFigures queue = PARAMSERVER__V1__QUEUE_FIGURES__INIT;
    struct ps_error e;
    char *text;
    queue.failed = 2;
    queue.failed_lately = 1;
    status = (Paramserver__V1__StatusReply){.base = status.base,
                                            .version = "1\"2",
                                            .task = task,
                                            .uptime_ms = 1500,
                                            .limit_bytes = UINT64_C(1) << 40,
                                            .n_jobs = 1,
                                            .jobs = jobs,
                                            .queue = task ? NULL : &queue};
    job.name = "a\"b\\c\nd";
    job.user = "alice";
    job.state = "failed";
    job.update = PARAMSERVER__V1__UPDATE__SSP;
    job.updates = 12;
    job.live_workers = 1;
    job.min_workers = 2;
    for (size_t i = 0; i < 4; i++)
        paramserver__v1__member__init(&member[i]);
    member[0].step = 7;
    member[0].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
    member[0].loss = NAN;
    member[0].silent_ms = 250;
    member[1].rank = 1;
    member[1].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    member[2].rank = 2;
    member[2].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;  // given up
    member[3].rank = 3;
    member[3].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
    workers.n_members = 4;
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
    view_has(text, "\n# TYPE paramserver_job_steps gauge\n");  // restore sets it back
    view_has(text, "\nparamserver_job_live_workers{" JOB ",task=\"0\"} 1\n");
    view_has(text, "\nparamserver_job_min_workers{" JOB ",task=\"0\"} 2\n");
    view_has(text, "\nparamserver_queue_failed_jobs{task=\"0\"} 1\n");
    view_has(text, "\nparamserver_worker_state{" JOB ",worker=\"1\",state=\"expected\"} 1\n");
    view_has(text, "\nparamserver_worker_loss{" JOB ",worker=\"0\"} NaN\n");
    view_has(text, "\nparamserver_worker_silent_seconds{" JOB ",worker=\"0\"} 0.25\n");
    view_has(text, "\nparamserver_worker_state{" JOB ",worker=\"2\",state=\"dead\"} 1\n");
    assert_null(strstr(text, "paramserver_worker_loss{" JOB ",worker=\"1\""));
    assert_null(strstr(text, "paramserver_worker_silent_seconds{" JOB ",worker=\"2\""));
    view_has(text, "\nparamserver_worker_step{" JOB ",worker=\"3\"} 0\n");
    assert_null(strstr(text, "paramserver_worker_loss{" JOB ",worker=\"3\""));
    assert_null(strstr(text, "paramserver_worker_examples_per_second{" JOB ",worker=\"3\""));
    free(text);
    text = view_of(1);
    view_has(text, "\nparamserver_job_updates_total{" JOB ",task=\"1\"} 12\n");
    assert_null(strstr(text, "paramserver_worker_"));
    assert_null(strstr(text, "paramserver_job_live_workers"));
    free(text);
}

// ---- the status page ----------------------------------------------------------------------------------------------

// A look at a job of three workers, which a test changes before it is shown.
struct scene {
    Paramserver__V1__StatusReply status;
    Paramserver__V1__JobStatus job, *jobs[1];
    Paramserver__V1__Member member[3], *members[3];
    Paramserver__V1__WorkersReply workers, *list[1];
    Paramserver__V1__Wait wait, *waits[1];
    Paramserver__V1__WaitsReply all_waits;
    struct ps_overview look;
};

static void scene_init(struct scene *s)
{
    paramserver__v1__status_reply__init(&s->status);
    paramserver__v1__job_status__init(&s->job);
    paramserver__v1__workers_reply__init(&s->workers);
    paramserver__v1__waits_reply__init(&s->all_waits);
    paramserver__v1__wait__init(&s->wait);
    for (uint32_t i = 0; i < 3; i++) {
        s->members[i] = &s->member[i];
        paramserver__v1__member__init(&s->member[i]);
        s->member[i].rank = i;
        s->member[i].state = PARAMSERVER__V1__MEMBER_STATE__LIVE;
        s->member[i].address = (char *)"pid 1 on node";
        s->member[i].step = 10 + i;
        s->member[i].examples_per_second = 100;
        s->member[i].loss = 1 + i;
    }
    s->job.name = (char *)"mnist";
    s->job.state = (char *)"running";
    s->job.update = PARAMSERVER__V1__UPDATE__SYNC;
    s->jobs[0] = &s->job;
    s->waits[0] = &s->wait;
    s->workers.n_members = 3;
    s->workers.members = s->members;
    s->list[0] = &s->workers;
    s->status.n_jobs = 1;
    s->status.jobs = s->jobs;
    s->status.limit_bytes = 1000;
    s->status.tasks = 1;
    s->look = (struct ps_overview){&s->status, s->list, NULL};
}

static void scene_says(const struct scene *s, enum ps_level level, const char *state, const char *risk,
                       const char *worst, const char *command)
{
    struct ps_summary w;
    ps_summarize(&s->look, &w);
    view_has(w.state, state);
    view_has(w.risk, risk);
    view_has(w.worst, worst);
    assert_string_equal(command, w.command);
    assert_int_equal(level, w.level);
}

static void test_words_of_a_training(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.member[0].examples_per_second = 40;
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job trains with 3 live workers, none dead.",
               "since the last checkpoint is lost",
               "Slowest is worker 0 of job mnist: step 10, 40 examples/s; the mean is 80.", "psctl top");
    scene_says(
        &s, PS_LEVEL_OK, "",
        "; if a worker dies, the others train its examples, or the job ends with fewer than strategy.min_workers.", "",
        "psctl top");
    s.workers.n_members = 1;
    scene_says(&s, PS_LEVEL_OK, "", "; if its worker dies, the job ends.", "", "psctl top");
    s.workers.n_members = 3;
    s.job.workers = 4;
    s.job.min_workers = 1;
    scene_says(&s, PS_LEVEL_OK, "", "; if a worker dies, the others train its examples.", "", "psctl top");
    s.job.min_workers = 2;
    scene_says(&s, PS_LEVEL_OK, "",
               "; if a worker dies, the others train its examples; with fewer than 2 workers the job ends.", "",
               "psctl top");
    s.job.min_workers = 3;
    scene_says(&s, PS_LEVEL_OK, "", "; if a worker dies, the job ends: it needs 3 of its 4 workers.", "", "psctl top");
    s.job.splits = 1;
    s.job.split_worker = 2;
    s.job.split_round = 7;
    scene_says(&s, PS_LEVEL_OK, "well", "The gradient of worker 2 of job mnist for round 7 counts in some", "Slowest",
               "psctl top");
    s.wait.job = s.job.name;
    s.wait.since_ms = 6500;
    s.wait.what = (char *)"round 7";
    s.wait.whom = (char *)"worker 1";
    s.all_waits.n_waits = 1;
    s.all_waits.waits = s.waits;
    s.look.waits = &s.all_waits;
    scene_says(&s, PS_LEVEL_OK, "well", "", "Longest wait: 6.5 s for round 7, of worker 1.", "psctl waits mnist");
    s.wait.job = (char *)"$(reboot)";
    scene_says(&s, PS_LEVEL_OK, "well", "", "", "psctl waits");
    s.wait.since_ms = 100;
    scene_says(&s, PS_LEVEL_OK, "well", "", "Slowest", "psctl top");
}

static void test_words_of_warnings(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.member[1].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    scene_says(&s, PS_LEVEL_WARNING, "Job mnist waits for 1 worker that has not joined yet.", "", "", "psctl doctor");
    s.job.reason = (char *)"its last run has ended: worker 1 is dead";
    scene_says(&s, PS_LEVEL_WARNING, "has not joined yet; its last run has ended: worker 1 is dead.", "", "",
               "psctl doctor");
    s.job.reason = (char *)"";
    scene_init(&s);
    s.status.draining = true;
    scene_says(&s, PS_LEVEL_WARNING, "is being drained", "", "", "psctl doctor");
    scene_init(&s);
    s.status.block_bytes = 899;
    scene_says(&s, PS_LEVEL_OK, "well", "", "", "psctl top");
    s.status.block_bytes = 950;
    scene_says(&s, PS_LEVEL_WARNING, "Memory for tensors is 95 % full", "", "", "psctl doctor");
    s.member[2].loss = NAN;
    scene_says(&s, PS_LEVEL_WARNING, "of job mnist are not finite", "", "", "psctl doctor");
}

static void test_words_of_failures(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.member[1].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    s.member[1].reason = (char *)"sent no message for 2.5 s";
    scene_says(&s, PS_LEVEL_BAD, "Worker 1 of job mnist is dead: sent no message for 2.5 s. 2 workers live.", "",
               "Worker 1 of job mnist (pid 1 on node)", "psctl doctor");
    s.member[1].address = (char *)"";
    scene_says(&s, PS_LEVEL_BAD, "", "", "Worker 1 of job mnist, which never joined.", "psctl doctor");
    s.job.state = (char *)"done";
    scene_says(&s, PS_LEVEL_OK, "1 job is done, none running", "until psctl stop", "", "psctl status");
    s.job.state = (char *)"failed";
    s.job.reason = (char *)"ps:1 is gone";
    scene_says(&s, PS_LEVEL_BAD, "Job mnist has failed: ps:1 is gone.", "stay here until psctl stop", "",
               "psctl doctor");
    s.status.n_jobs = 0;
    scene_says(&s, PS_LEVEL_OK, "waits for a job", "Nothing", "", "psctl status");
    scene_init(&s);
    s.status.task = 1;
    s.list[0] = NULL;
    scene_says(&s, PS_LEVEL_OK, "This ps task is well: 1 job trains here.", "", "ps task 0 knows", "psctl top");
}

// What is lost with a ps task: of several jobs that of which it is most.
static void test_words_of_checkpoints(void **state)
{
    Paramserver__V1__Progress progress = PARAMSERVER__V1__PROGRESS__INIT, other = progress;
    Paramserver__V1__JobStatus second, *jobs[2] = {NULL, &second};
    Paramserver__V1__WorkersReply *workers[2];
    struct scene s;
    (void)state;
    scene_init(&s);
    s.job.progress = &progress;
    scene_says(&s, PS_LEVEL_OK, "", "since the last checkpoint is lost", "", "psctl top");
    progress.checkpoints = other.checkpoints = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_NONE;
    scene_says(&s, PS_LEVEL_OK, "", "all that job mnist has trained is lost: it writes no checkpoints; if", "",
               "psctl top");
    progress.checkpoints = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_SOME;
    scene_says(&s, PS_LEVEL_OK, "", "all that job mnist has trained is lost: it has no checkpoint yet; if", "",
               "psctl top");
    progress.checkpoint_step = 1200;
    s.job.checkpoint_age_ms = 34400;
    scene_says(
        &s, PS_LEVEL_OK, "",
        "If this ps task ends, job mnist loses the last 34 s of its training, since its checkpoint of step 1200; if",
        "", "psctl top");
    second = s.job;
    second.name = (char *)"other";
    second.progress = &other;
    jobs[0] = &s.job;
    workers[0] = workers[1] = &s.workers;
    s.status.jobs = jobs;
    s.status.n_jobs = 2;
    s.look.workers = workers;
    scene_says(&s, PS_LEVEL_OK, "", "job other has trained is lost: it writes no", "", "psctl top");
    other = progress;
    second.checkpoint_age_ms = 7200000;
    scene_says(&s, PS_LEVEL_OK, "", "job other loses the last 2 h of its training, since its checkpoint of step 1200",
               "", "psctl top");
    second.age_ms = 7000;  // it went on from an old one
    scene_says(&s, PS_LEVEL_OK, "", "job mnist loses the last 34 s", "", "psctl top");
    second.state = (char *)"done";
    scene_says(&s, PS_LEVEL_OK, "", "job mnist loses", "", "psctl top");
}

static void test_words_of_a_queue(void **state)
{
    Paramserver__V1__QueueFigures queue = PARAMSERVER__V1__QUEUE_FIGURES__INIT;
    struct scene s;
    (void)state;
    scene_init(&s);
    s.status.queue = &queue;
    s.status.n_jobs = 0;
    queue.queued = 2;
    scene_says(&s, PS_LEVEL_OK, "2 jobs wait in the queue, and none runs: psctl queue says for which workers.",
               "Nothing: no job is here.", "", "psctl queue");
    queue.queued = 0;
    queue.failed = 2;
    queue.failed_lately = 1;
    scene_says(&s, PS_LEVEL_OK, "No job runs; 1 job of the queue has failed: psctl queue says which.",
               "Nothing: no job is here.", "", "psctl queue");
    s.status.n_jobs = 1;
    s.job.state = (char *)"interrupted";
    s.job.reason = (char *)"worker 0 was told to end";
    scene_says(&s, PS_LEVEL_OK, "No job runs; job mnist was interrupted: worker 0 was told to end.", "", "",
               "psctl queue");
    s.job.state = (char *)"done";
    queue.failed_lately = 0;
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job is done, none running.", "", "", "psctl status");
    s.job.state = (char *)"running";
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job trains", "", "", "psctl top");
}

// A worker that a signal has ended is not dead.
static void test_words_of_a_worker_that_left(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.member[0].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    scene_says(&s, PS_LEVEL_BAD, "Worker 0 of job mnist is dead", "", "", "psctl doctor");
    s.member[0].interrupted = true;
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job trains with 2 live workers, none dead.", "", "", "psctl top");
}

static void test_words_of_an_end_by_people(void **state)
{
    Paramserver__V1__QueueFigures queue = PARAMSERVER__V1__QUEUE_FIGURES__INIT;
    struct scene s;
    (void)state;
    scene_init(&s);
    s.job.state = (char *)"interrupted";
    s.job.reason = (char *)"worker 0 ended: by signal 15";
    s.member[0].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    scene_says(&s, PS_LEVEL_OK, "No job runs; job mnist was interrupted: worker 0 ended: by signal 15.",
               "The weights of job mnist stay here until psctl stop, or until this ps task ends.", "", "psctl status");
    s.status.queue = &queue;
    scene_says(&s, PS_LEVEL_OK, "",
               "or until this ps task ends; if the queue has trained it, until its next job begins.", "",
               "psctl status");
    s.status.tasks = 2;
    scene_says(&s, PS_LEVEL_OK, "", "What this ps task has of the weights of job mnist stays here", "", "psctl status");
}

static void test_words_of_a_job_that_is_lost(void **state)
{
    Paramserver__V1__Progress progress = PARAMSERVER__V1__PROGRESS__INIT;
    uint32_t lost = PS_NONE_LOST;
    struct scene s;
    (void)state;
    scene_init(&s);
    s.job.state = (char *)"failed";
    s.status.tasks = 2;
    s.look.whole = true;
    s.look.lost = &lost;
    scene_says(&s, PS_LEVEL_BAD, "", "The weights of job mnist stay here until psctl stop, or until a ps task ends.",
               "", "psctl doctor");
    lost = 1;
    scene_says(&s, PS_LEVEL_BAD, "", "All that job mnist has trained is lost: ps:1 has lost what it had of it.", "",
               "psctl doctor");
    s.job.progress = &progress;
    progress.checkpoint_step = 40;
    scene_says(&s, PS_LEVEL_BAD, "", "All that job mnist has trained since its checkpoint of step 40 is lost: ps:1", "",
               "psctl doctor");
    s.job.state = (char *)"running";  // its workers have not asked that ps task for anything since
    scene_says(&s, PS_LEVEL_BAD, "Job mnist ends with its workers' next step: ps:1 has lost what it had of it.",
               "All that job mnist has trained since its checkpoint of step 40 is lost: ps:1", "", "psctl doctor");
    s.job.state = (char *)"failed";
    lost = PS_NONE_LOST;
    s.job.update = 0;
    scene_says(&s, PS_LEVEL_BAD, "", "Nothing of job mnist: it ended before its variables were declared.", "",
               "psctl doctor");
}

// Of a job that worker 0 has not opened there is nothing but who waits for that.
static void test_words_of_a_job_without_worker_0(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.status.n_jobs = 0;
    s.all_waits.n_waits = 1;
    s.all_waits.waits = s.waits;
    s.wait.method = PARAMSERVER__V1__METHOD__JOIN;
    s.wait.job = (char *)"softmax";
    s.wait.what = (char *)"the job to be opened";
    s.wait.whom = (char *)"worker 0";
    s.wait.since_ms = 4000;
    s.look.waits = &s.all_waits;
    scene_says(&s, PS_LEVEL_OK, "waits for a job.", "Nothing: no job is here.", "", "psctl status");
    s.wait.since_ms = 6000;
    scene_says(&s, PS_LEVEL_WARNING, "Job softmax waits for worker 0, which has not started.",
               "Nothing: no job is here.", "Longest wait: 6.0 s for the job to be opened, of worker 0.",
               "psctl doctor");
    s.status.n_jobs = 1;  // its run before is over
    s.job.name = (char *)"softmax";
    s.job.state = (char *)"done";
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job is done, none running.", "", "Longest wait: 6.0 s",
               "psctl waits softmax");
}

// What was wrong in a job that has ended troubles nobody any more.
static void test_words_of_a_job_that_was_not_well(void **state)
{
    struct scene s;
    (void)state;
    scene_init(&s);
    s.job.nonfinite = s.job.splits = 1;
    scene_says(&s, PS_LEVEL_WARNING, "The gradients or the loss of job mnist are not finite.",
               "counts in some partitions and not in others.", "", "psctl doctor");
    s.job.state = (char *)"done";
    scene_says(&s, PS_LEVEL_OK, "All is well: 1 job is done, none running.",
               "Nothing that a worker has written to its output.", "", "psctl status");
}

// The longest that there may be: cut, and still a sentence of UTF-8.
static void test_words_of_any_length(void **state)
{
    struct scene s;
    struct ps_summary w;
    char longest[4096];
    (void)state;
    for (size_t i = 0; i + 2 < sizeof longest; i += 2)
        memcpy(&longest[i], "\xc3\xa4", 3);
    scene_init(&s);
    s.job.name = s.job.reason = s.member[0].reason = s.member[0].address = longest;
    s.member[0].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    ps_summarize(&s.look, &w);
    assert_true(ps_utf8_is_plain(w.command));
    assert_true(ps_utf8_valid(w.state) && ps_utf8_valid(w.worst) && ps_utf8_valid(w.risk));
    s.job.state = (char *)"failed";
    ps_summarize(&s.look, &w);
    assert_true(ps_utf8_valid(w.state) && strlen(w.state) > 400);
}

static void test_status(void **state)
{
    struct scene s;
    struct ps_error e;
    char *text;
    (void)state;
    scene_init(&s);
    s.member[2].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    s.job.run = UINT64_C(1) << 63;
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    view_has(text, "\"run\":\"9223372036854775808\"");
    view_has(text, "\"mode\":\"sync\"");
    view_has(text, "\"examples_per_second\":200,\"loss\":1.5,");
    view_has(text, "\"workers_in_state\":{\"expected\":0,\"live\":2,\"left\":0,\"dead\":1},\"workers\":[{\"rank\":2,");
    assert_null(strstr(text, "\"epoch\""));
    free(text);
    s.job.examples = 100;
    s.member[0].loss = INFINITY;
    s.member[2].step = 0;
    s.member[1].state = PARAMSERVER__V1__MEMBER_STATE__EXPECTED;
    s.member[1].address = (char *)"";
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    view_has(text, "\"epoch\":0,\"examples\":100,\"examples_done\":0,");
    view_has(text, "\"loss\":\"Infinity\"");
    view_has(text, "{\"rank\":1,\"state\":\"expected\",\"process\":\"\",\"excluded\":false,");
    view_has(text, "\"step\":0,\"clock\":0,\"silent_ms\":0,\"excluded\":false,");
    free(text);
    s.list[0] = NULL;
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    assert_null(strstr(text, "workers_in_state"));
    free(text);
}

static void test_words_of_how_far_it_is(void **state)
{
    static const struct {
        uint64_t ms;
        const char *words;
    } left[] = {{0, "dead. It is in epoch 3 of 20."},
                {59000, "dead. It is in epoch 3 of 20; about 59 s left."},
                {240000, "dead. It is in epoch 3 of 20; about 4 min left."},
                {7200000, "dead. It is in epoch 3 of 20; about 2 h left."}};
    Paramserver__V1__Progress progress = PARAMSERVER__V1__PROGRESS__INIT;
    struct ps_summary w;
    struct scene s;
    (void)state;
    scene_init(&s);
    s.job.progress = &progress;
    progress.epochs_ended = 2;  // and nothing is leased out
    progress.epochs = 20;
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        s.job.time_left_ms = left[i].ms;
        ps_summarize(&s.look, &w);
        view_has(w.state, left[i].words);
    }
    s.job.examples = 100;
    s.job.data_epoch = 5;
    ps_summarize(&s.look, &w);
    view_has(w.state, "dead. It is in epoch 6 of 20; about 2 h left.");
    s.job.data_epoch = 20;
    ps_summarize(&s.look, &w);
    assert_null(strstr(w.state, "epoch"));
}

static void test_progress(void **state)
{
    static Paramserver__V1__Metric metric = PARAMSERVER__V1__METRIC__INIT, *metrics[] = {&metric};
    Paramserver__V1__Progress progress = PARAMSERVER__V1__PROGRESS__INIT;
    struct ps_error e;
    struct scene s;
    char *text;
    (void)state;
    scene_init(&s);
    metric.name = (char *)"val_loss";
    metric.value = 0.25;
    progress.n_metrics = 1;
    progress.metrics = metrics;
    progress.epochs = 20;
    progress.epochs_ended = 2;
    assert_int_equal(PS_OK, psd_view_text(&s.status, s.list, &text, &e));
    assert_null(strstr(text, "paramserver_job_epochs{"));
    free(text);
    s.job.progress = &progress;
    s.job.age_ms = 5000;
    s.job.time_left_ms = 2500;
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    view_has(text, "\"age_ms\":5000,\"epochs\":20,\"epochs_ended\":2,\"time_left_ms\":2500,"
                   "\"metrics\":{\"val_loss\":0.25}");
    free(text);
    progress.checkpoints = PARAMSERVER__V1__CHECKPOINTS__CHECKPOINTS_SOME;
    progress.checkpoint_step = 1200;
    s.job.checkpoint_age_ms = 34400;
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    view_has(text, "\"checkpoints\":true,\"checkpoint_step\":1200,\"checkpoint_age_ms\":34400,\"metrics\"");
    free(text);
    assert_int_equal(PS_OK, psd_view_text(&s.status, s.list, &text, &e));
    view_has(text, "paramserver_job_epochs{job=\"mnist\",task=\"0\"} 20\n");
    view_has(text, "paramserver_job_epoch{job=\"mnist\",task=\"0\"} 3\n");  // nothing is leased out
    view_has(text, "paramserver_job_metric{job=\"mnist\",task=\"0\",metric=\"val_loss\"} 0.25\n");
    view_has(text, "paramserver_job_age_seconds{job=\"mnist\",task=\"0\"} 5\n");
    view_has(text, "paramserver_job_time_left_seconds{job=\"mnist\",task=\"0\"} 2.5\n");
    view_has(text, "paramserver_job_checkpoint_step{job=\"mnist\",task=\"0\"} 1200\n");
    view_has(text, "paramserver_job_checkpoint_age_seconds{job=\"mnist\",task=\"0\"} 34.4\n");
    free(text);
    for (s.job.data_epoch = 18; s.job.data_epoch <= 20; s.job.data_epoch++) {  // the last is trained when they are 20
        char epoch[64];
        s.job.examples = 100;
        snprintf(epoch, sizeof epoch, "paramserver_job_epoch{job=\"mnist\",task=\"0\"} %d\n",
                 s.job.data_epoch == 18 ? 19 : 20);
        assert_int_equal(PS_OK, psd_view_text(&s.status, s.list, &text, &e));
        view_has(text, epoch);
        free(text);
    }
}

// A job of more workers than are shown: the dead are among those that are.
static void test_many_workers(void **state)
{
    enum { MANY = PSD_STATUS_WORKERS + 50 };
    static Paramserver__V1__Member member[MANY], *members[MANY];
    struct scene s;
    struct ps_error e;
    char *text;
    size_t shown = 0;
    (void)state;
    scene_init(&s);
    for (uint32_t i = 0; i < MANY; i++) {
        members[i] = &member[i];
        member[i] = s.member[0];
        member[i].rank = i;
    }
    member[MANY - 1].state = PARAMSERVER__V1__MEMBER_STATE__DEAD;
    s.workers.n_members = MANY;
    s.workers.members = members;
    assert_int_equal(PS_OK, psd_status_text(&s.look, &text, &e));
    view_has(text, "\"workers\":[{\"rank\":305,\"state\":\"dead\"");
    view_has(text, "\"live\":305,\"left\":0,\"dead\":1");
    for (const char *at = text; (at = strstr(at, "\"rank\":")); at++)
        shown++;
    assert_int_equal(PSD_STATUS_WORKERS, shown);
    free(text);
}

static void history_says(struct psd_history *h, const char *what)
{
    struct ps_error e;
    char *text;
    assert_int_equal(PS_OK, psd_history_text(h, &text, &e));
    view_has(text, what);
    free(text);
}

static void test_history(void **state)
{
    struct scene s;
    struct psd_history *h = psd_history_create();
    (void)state;
    assert_non_null(h);
    scene_init(&s);
    s.status.resident_bytes = 5;
    s.job.run = 3;
    for (uint64_t i = 1; i <= PSD_HISTORY_POINTS + 2; i++) {
        s.status.clock_ms = i;
        psd_history_add(h, &s.look);
    }
    history_says(h, "{\"interval_ms\":5000,\"memory\":[[3,5,0],[4,5,0],");  // the two oldest have gone
    history_says(h, ",[362,5,0]],\"jobs\":[{\"name\":\"mnist\",\"run\":\"3\",\"points\":[[3,300,2,0],");
    s.job.run = 4;  // begins anew
    s.member[0].step = s.member[1].step = s.member[2].step = 0;
    psd_history_add(h, &s.look);
    history_says(h, "\"run\":\"4\",\"points\":[[362,null,null,0]]}]}");
    s.job.state = (char *)"done";  // keeps what it had
    psd_history_add(h, &s.look);
    history_says(h, "\"run\":\"4\",\"points\":[[362,null,null,0]]}]}");
    s.status.n_jobs = 0;
    psd_history_add(h, &s.look);
    history_says(h, "\"jobs\":[]}");
    psd_history_destroy(h);
}

// What is older than half an hour is not shown, whatever has kept the sampler from taking points.
static void test_history_of_half_an_hour(void **state)
{
    struct scene s;
    struct psd_history *h = psd_history_create();
    (void)state;
    assert_non_null(h);
    scene_init(&s);
    s.status.resident_bytes = 5;
    s.status.clock_ms = 1000;
    psd_history_add(h, &s.look);
    s.job.state = (char *)"done";
    s.status.clock_ms = 1801000;
    psd_history_add(h, &s.look);
    history_says(h, "\"memory\":[[1000,5,0],[1801000,5,0]]");
    history_says(h, "\"points\":[[1000,300,2,0]]");
    s.status.clock_ms = 1801001;
    psd_history_add(h, &s.look);
    history_says(h, "\"memory\":[[1801000,5,0],[1801001,5,0]]");
    history_says(h, "\"points\":[]");
    psd_history_destroy(h);
}

enum { MANY_JOBS = PSD_HISTORY_JOBS + 1 };
static Paramserver__V1__JobStatus many[MANY_JOBS], *many_jobs[MANY_JOBS];

// All run.
static void scene_of_many_jobs(struct scene *s)
{
    static Paramserver__V1__WorkersReply *workers[MANY_JOBS];
    static char names[MANY_JOBS][8];
    scene_init(s);
    for (size_t i = 0; i < MANY_JOBS; i++) {
        many_jobs[i] = &many[i];
        many[i] = s->job;
        snprintf(names[i], sizeof names[i], "job%zu", i);
        many[i].name = names[i];
    }
    s->status.n_jobs = MANY_JOBS;
    s->status.jobs = many_jobs;
    s->look.workers = workers;
}

static void history_lacks(struct psd_history *h, const char *what)
{
    struct ps_error e;
    char *text;
    assert_int_equal(PS_OK, psd_history_text(h, &text, &e));
    assert_null(strstr(text, what));
    free(text);
}

// Of more jobs than there is room for, the first are kept, and another one takes the place of one that is gone.
static void test_history_of_many_jobs(void **state)
{
    struct scene s;
    struct psd_history *h = psd_history_create();
    (void)state;
    assert_non_null(h);
    scene_of_many_jobs(&s);
    psd_history_add(h, &s.look);
    history_says(h, "\"job31\"");
    history_lacks(h, "\"job32\"");
    s.status.jobs = many_jobs + 1;
    s.status.n_jobs = MANY_JOBS - 1;
    psd_history_add(h, &s.look);  // finds that job0 is gone
    psd_history_add(h, &s.look);
    history_says(h, "\"job32\"");
    psd_history_destroy(h);
}

// Jobs that have ended keep nobody else from having plots: the one that ended first gives way.
static void test_history_after_many_jobs(void **state)
{
    struct scene s;
    struct psd_history *h = psd_history_create();
    (void)state;
    assert_non_null(h);
    scene_of_many_jobs(&s);
    for (size_t i = 0; i < MANY_JOBS; i++)
        many[i].state = (char *)"opening";
    psd_history_add(h, &s.look);
    history_says(h, "\"jobs\":[]}");
    for (size_t i = PSD_HISTORY_JOBS; i > 0; i--) {
        s.status.clock_ms++;
        many[i - 1].state = (char *)"running";
        psd_history_add(h, &s.look);
        many[i - 1].state = (char *)"done";
    }
    psd_history_add(h, &s.look);
    history_says(h, "\"job31\"");
    history_lacks(h, "\"job32\"");
    many[PSD_HISTORY_JOBS].state = (char *)"running";
    psd_history_add(h, &s.look);
    history_says(h, "\"job32\"");
    history_says(h, "\"job30\"");
    history_lacks(h, "\"job31\"");
    psd_history_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_words_of_a_training),
        cmocka_unit_test(test_words_of_warnings),
        cmocka_unit_test(test_words_of_failures),
        cmocka_unit_test(test_words_of_checkpoints),
        cmocka_unit_test(test_words_of_an_end_by_people),
        cmocka_unit_test(test_words_of_a_job_that_is_lost),
        cmocka_unit_test(test_words_of_a_queue),
        cmocka_unit_test(test_words_of_a_worker_that_left),
        cmocka_unit_test(test_words_of_a_job_without_worker_0),
        cmocka_unit_test(test_words_of_a_job_that_was_not_well),
        cmocka_unit_test(test_words_of_any_length),
        cmocka_unit_test(test_words_of_how_far_it_is),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_many_workers),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_of_half_an_hour),
        cmocka_unit_test(test_history_of_many_jobs),
        cmocka_unit_test(test_history_after_many_jobs),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_room_for_others),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
