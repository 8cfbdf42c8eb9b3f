// SPDX-License-Identifier: Apache-2.0
//
// A few pages over HTTP/1.1, for those who watch a daemon: a table of paths, each with a function that makes its text.
// GET and HEAD are served; 404 and 405 answer all else, 413 a request that brings a body. Nothing is authenticated or
// encrypted.
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
    PS_HTTP_SILENCE = 10,      // seconds after which a silent connection is closed
};

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
int ps_http_port(const struct ps_http *h);
// Returns when no page is being made any more. h may be NULL.
void ps_http_stop(struct ps_http *h);

#endif
