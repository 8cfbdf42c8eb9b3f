// SPDX-License-Identifier: Apache-2.0
//
// A few pages over HTTP/1.1, for those who watch a daemon: a table of paths, each with a function that makes its text.
// GET and HEAD are served; 404 and 405 answer all else, 413 a request that brings a body. Nothing is authenticated or
// encrypted.
//
// Browsers are told to keep nothing, to run and load nothing but pages of this server, and to show none of them in a
// frame. Where only this host can connect, 421 answers a request whose Host is another name than localhost, an address
// or the name that is listened on: else a web page from anywhere could have its own name resolve to 127.0.0.1 and read
// what is served here (DNS rebinding). Where other hosts can connect, whoever reaches the port sees the pages anyway.
//
// Receives from: the network. Hands to: the pages' functions. Threads: one for each address, which runs these functions
// one at a time, with all signals blocked.
#ifndef PS_COMMON_HTTP_SERVER_H
#define PS_COMMON_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

enum {
    PS_HTTP_CONNECTIONS = 64,  // at a time, of all addresses; those who come then wait until one goes
    PS_HTTP_OF_ONE = 48,       // of one client's address, which leaves room for others' health checks; more are closed
    PS_HTTP_SILENCE = 10,      // seconds after which a silent connection is closed
};

#define PS_HTTP_PLAIN "text/plain; charset=utf-8"

struct ps_http_page {
    const char *path;  // "/metrics"
    const char *type;  // of its content, as in Content-Type
    // *text is malloc'd, the server's from then on. An error is answered with 503, its text in plain text.
    enum ps_code (*make)(void *ctx, char **text, struct ps_error *e);
    void *ctx;
};

struct ps_http;

// Listens on "host:port" or "[ipv6]:port" (port 0: one that is free): on each address that the name stands for. The
// pages live as long as the server. INVALID_ARGUMENT: it is no such address. FAILED_PRECONDITION: other hosts could
// connect, and insecure is false. ALREADY_EXISTS, PERMISSION_DENIED, UNAVAILABLE: it cannot be listened on.
enum ps_code ps_http_start(const char *address, bool insecure, const struct ps_http_page *pages, size_t n,
                           struct ps_http **http, struct ps_error *e);
// The same for the option --http: an error says so, and the log says where it listens, and what is to be seen there.
enum ps_code ps_http_open(const char *address, bool insecure, const struct ps_http_page *pages, size_t n,
                          const char *what, struct ps_http **http, struct ps_error *e);
int ps_http_port(const struct ps_http *h);
// Returns when no page is being made any more. h may be NULL.
void ps_http_stop(struct ps_http *h);

// A page that says "ok". ctx is not looked at.
enum ps_code ps_http_make_ok(void *ctx, char **text, struct ps_error *e);

#endif
