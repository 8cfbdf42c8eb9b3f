// SPDX-License-Identifier: Apache-2.0
//
// Why does nobody answer at an address? Finds out with plain sockets: resolves, connects, says what an HTTP/2 client
// says first and looks at what comes back.
#ifndef PSCTL_PROBE_H
#define PSCTL_PROBE_H

struct ps_tls;

enum probe_result {
    PROBE_HTTP2,        // it speaks HTTP/2, as gRPC servers do
    PROBE_NO_NAME,      // the name does not resolve
    PROBE_NO_SOCKET,    // there is no such file, or it is none of ours to use
    PROBE_REFUSED,      // nobody listens
    PROBE_UNREACHABLE,  // no route, or no answer to the attempt to connect
    PROBE_SILENT,       // connected, then nothing
    PROBE_CLOSED,       // connected, then hung up
    PROBE_TLS,          // it wants to speak TLS, and this process has no certificate
    PROBE_PLAIN,        // it does not speak TLS, as this process would
    PROBE_UNTRUSTED,    // this process does not trust its certificate
    PROBE_NOT_TRUSTED,  // it does not trust this process's
    PROBE_OTHER,        // it says something else
};

struct probe {
    enum probe_result result;
    char detail[160];  // the system's reason, or the beginning of what was said; may be empty
};

// Takes at most timeout_ms in all. tls: what to show, and whom to trust; NULL: TLS is not spoken. Any thread.
void probe(const char *address, int timeout_ms, struct ps_tls *tls, struct probe *p);

#endif
