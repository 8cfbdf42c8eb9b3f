// SPDX-License-Identifier: Apache-2.0
#include "common/http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/rpc/address.h"

struct ps_http {
    const struct ps_http_page *pages;
    size_t n_pages;
    struct MHD_Daemon *daemon[PS_ADDRESSES_MAX];
    size_t n;
    bool is_local;   // no other host can connect
    char name[256];  // that is listened on, without the port
};

// ---- answers ------------------------------------------------------------------------------------------------------

static bool http_add_headers(struct MHD_Response *response)
{
    static const char *const headers[][2] = {
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (MHD_add_response_header(response, headers[i][0], headers[i][1]) != MHD_YES)
            return false;
    return true;
}

// Takes the text over. MHD_NO: no memory; the connection is closed.
static enum MHD_Result http_send(struct MHD_Connection *connection, unsigned status, const char *type, char *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_NO;
    if (!response) {
        free(text);
        return MHD_NO;
    }
    // What was refused may have a body, which is not read.
    const bool closes = status >= MHD_HTTP_BAD_REQUEST && status < MHD_HTTP_INTERNAL_SERVER_ERROR;
    if (http_add_headers(response) && MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) &&
        (!closes || MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close")) &&
        (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
         MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET ", " MHD_HTTP_METHOD_HEAD)))
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

// One sentence.
static enum MHD_Result http_say(struct MHD_Connection *connection, unsigned status, const char *sentence)
{
    char *line = NULL;
    return asprintf(&line, "%s\n", sentence) < 0 ? MHD_NO : http_send(connection, status, PS_HTTP_PLAIN, line);
}

static enum MHD_Result http_say_not_found(const struct ps_http *h, struct MHD_Connection *connection)
{
    char sentence[512];
    size_t len = (size_t)snprintf(sentence, sizeof sentence, "there is no such page: expected");
    for (size_t i = 0; i < h->n_pages && len < sizeof sentence; i++)
        len += (size_t)snprintf(sentence + len, sizeof sentence - len, "%s %s",
                                i == 0               ? ""
                                : i + 1 < h->n_pages ? ","
                                                     : " or",
                                h->pages[i].path);
    return http_say(connection, MHD_HTTP_NOT_FOUND, sentence);
}

static enum MHD_Result http_send_page(struct MHD_Connection *connection, const struct ps_http_page *page)
{
    char *text = NULL;
    struct ps_error e;
    if (page->make(page->ctx, &text, &e))
        return http_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, e.text);
    return http_send(connection, MHD_HTTP_OK, page->type, text);
}

// ---- requests -----------------------------------------------------------------------------------------------------

static const struct ps_http_page *http_find(const struct ps_http *h, const char *path)
{
    for (size_t i = 0; i < h->n_pages; i++)
        if (strcmp(h->pages[i].path, path) == 0)
            return &h->pages[i];
    return NULL;
}

static bool http_has_body(struct MHD_Connection *connection)
{
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return (length && strspn(length, "0") != strlen(length)) ||
           MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

// host: of a request, with or without a port; NULL: it names none.
static bool http_is_own_name(const struct ps_http *h, const char *host)
{
    char name[sizeof h->name];
    struct in6_addr ignored;
    if (!host)
        return true;
    const bool v6 = host[0] == '[';
    host += v6;
    const size_t len = strcspn(host, v6 ? "]" : ":");
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    if (v6)
        return host[len] == ']' && strchr(":", host[len + 1]) && inet_pton(AF_INET6, name, &ignored) == 1;
    return inet_pton(AF_INET, name, &ignored) == 1 || strcasecmp(name, "localhost") == 0 ||
           strcasecmp(name, h->name) == 0;
}

static bool http_is_for_us(const struct ps_http *h, struct MHD_Connection *connection)
{
    return !h->is_local ||
           http_is_own_name(h, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST));
}

// A request's headers have come. *page: what is to be answered when all of it has; NULL: it has been refused.
static enum MHD_Result http_take(const struct ps_http *h, struct MHD_Connection *connection, const char *method,
                                 const char *path, const struct ps_http_page **page)
{
    *page = NULL;
    if (!http_is_for_us(h, connection))
        return http_say(connection, MHD_HTTP_MISDIRECTED_REQUEST,
                        "this server has another name: expected as Host localhost, an address, or the name that it "
                        "listens on");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return http_say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "this method is not served: expected GET or HEAD");
    if (http_has_body(connection))
        return http_say(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the request has a body: expected none");
    *page = http_find(h, path);
    return *page ? MHD_YES : http_say_not_found(h, connection);
}

// Called with a request's headers, *state NULL, and again when all of it has come.
static enum MHD_Result http_on_request(void *ctx, struct MHD_Connection *connection, const char *path,
                                       const char *method, const char *version, const char *data, size_t *len,
                                       void **state)
{
    const struct ps_http *h = ctx;
    const struct ps_http_page *page = *state;
    (void)version, (void)data, (void)len;
    if (page)
        return http_send_page(connection, page);
    enum MHD_Result result = http_take(h, connection, method, path, &page);
    *state = (void *)page;
    return result;
}

// ---- start and end ------------------------------------------------------------------------------------------------

static bool http_is_loopback(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)at)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
}

static void http_set_names(struct ps_http *h, const char *address, const struct ps_addresses *found)
{
    const char *port = strrchr(address, ':');
    snprintf(h->name, sizeof h->name, "%.*s", (int)(port ? port - address : 0), address);
    h->is_local = true;
    for (size_t i = 0; i < found->n; i++)
        h->is_local = h->is_local && http_is_loopback(&found->at[i]);
}

static void http_set_port(struct sockaddr_storage *at, int port)
{
    if (at->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)at)->sin_port = htons((uint16_t)port);
}

static enum ps_code http_listen(struct ps_http *h, const char *address, const struct sockaddr_storage *at,
                                unsigned connections, struct ps_error *e)
{
    const unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC;
    errno = 0;
    h->daemon[h->n] =
        MHD_start_daemon(at->ss_family == AF_INET6 ? flags | MHD_USE_DUAL_STACK : flags, 0, NULL, NULL, http_on_request,
                         h, MHD_OPTION_SOCK_ADDR, at, MHD_OPTION_CONNECTION_LIMIT, connections,
                         MHD_OPTION_PER_IP_CONNECTION_LIMIT, connections * PS_HTTP_OF_ONE / PS_HTTP_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PS_HTTP_SILENCE, MHD_OPTION_END);
    if (!h->daemon[h->n])
        return ps_fail(e, errno == EADDRINUSE ? PS_ALREADY_EXISTS : PS_UNAVAILABLE, "cannot listen on %s: %s", address,
                       errno ? strerror(errno) : "libmicrohttpd does not start");
    h->n++;
    return PS_OK;
}

// The first one's port is that of all.
static enum ps_code http_listen_all(struct ps_http *h, const char *address, struct ps_addresses *found,
                                    struct ps_error *e)
{
    for (size_t i = 0; i < found->n; i++) {
        if (i > 0)
            http_set_port(&found->at[i], ps_http_port(h));
        if (http_listen(h, address, &found->at[i], (unsigned)(PS_HTTP_CONNECTIONS / found->n), e))
            return e->code;
    }
    return PS_OK;
}

// The server's threads inherit what is blocked: signals are the process's other threads'.
static enum ps_code http_start_threads(struct ps_http *h, const char *address, struct ps_addresses *found,
                                       struct ps_error *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    enum ps_code code = http_listen_all(h, address, found, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

enum ps_code ps_http_start(const char *address, bool insecure, const struct ps_http_page *pages, size_t n,
                           struct ps_http **http, struct ps_error *e)
{
    struct ps_addresses found;
    *http = NULL;
    if (strncmp(address, "unix:", 5) == 0)
        return ps_fail(e, PS_INVALID_ARGUMENT, "'%s': HTTP is not served on unix sockets: expected host:port", address);
    const enum ps_code admitted = ps_address_admit(address, insecure, &found, e);
    if (admitted == PS_INVALID_ARGUMENT)
        return ps_fail(e, admitted, "'%s': expected host:port or [ipv6]:port", address);
    if (admitted == PS_FAILED_PRECONDITION)
        return ps_fail(
            e, PS_FAILED_PRECONDITION,
            "refusing to serve HTTP on %s: other hosts could connect, and it has neither users nor encryption; "
            "use a loopback address (ssh -L reaches it), or start psd or workerd with --insecure",
            address);
    if (admitted)
        return admitted;
    struct ps_http *h = ps_try_alloc(sizeof *h);
    if (!h)
        return ps_no_memory(e, "the HTTP server");
    h->pages = pages;
    h->n_pages = n;
    http_set_names(h, address, &found);
    enum ps_code code = http_start_threads(h, address, &found, e);
    if (code == PS_OK)
        *http = h;
    else
        ps_http_stop(h);
    return code;
}

enum ps_code ps_http_open(const char *address, bool insecure, const struct ps_http_page *pages, size_t n,
                          const char *what, struct ps_http **http, struct ps_error *e)
{
    if (ps_http_start(address, insecure, pages, n, http, e))
        return ps_error_prefix(e, "--http");
    ps_info("metrics: port %d of %s, %s", ps_http_port(*http), address, what);
    return PS_OK;
}

int ps_http_port(const struct ps_http *h)
{
    return MHD_get_daemon_info(h->daemon[0], MHD_DAEMON_INFO_BIND_PORT)->port;
}

void ps_http_stop(struct ps_http *h)
{
    for (size_t i = 0; h && i < h->n; i++)
        MHD_stop_daemon(h->daemon[i]);
    free(h);
}

enum ps_code ps_http_make_ok(void *ctx, char **text, struct ps_error *e)
{
    (void)ctx;
    *text = ps_try_strdup("ok\n");
    return *text ? PS_OK : ps_no_memory(e, "an answer");
}
