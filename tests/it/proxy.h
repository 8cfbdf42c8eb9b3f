// SPDX-License-Identifier: Apache-2.0
//
// A proxy between two unix sockets that cuts connections at a chosen byte.
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stddef.h>
#include <stdint.h>

struct proxy;

enum { PROXY_UP, PROXY_DOWN };  // client to server, and back

struct proxy *proxy_start(const char *listen_path, const char *server_path);
// From now on each new connection is cut once `bytes` have passed in this direction; UINT64_MAX: never.
void proxy_cut_after(struct proxy *p, int direction, uint64_t bytes);
// The connections that are open now are cut once `bytes` more have passed in this direction; 0: at once.
void proxy_cut(struct proxy *p, int direction, uint64_t bytes);
// Connections that were cut so far, by a limit or at once.
uint64_t proxy_cuts(struct proxy *p);
// Bytes that have passed in a direction over all connections since the last call.
uint64_t proxy_passed(struct proxy *p, int direction);
void proxy_stop(struct proxy *p);

#endif
