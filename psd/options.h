// SPDX-License-Identifier: Apache-2.0
//
// psd's command line.
#ifndef PSD_OPTIONS_H
#define PSD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/cluster/tls_files.h"

struct psd_options {
    const char **listen;  // "host:port" or "unix:/path"
    size_t n_listen;
    const char **peers;  // the addresses of all ps tasks
    size_t n_peers;
    uint32_t task;            // index into peers
    const char *http;         // "host:port"; NULL: no HTTP
    const char *queue;        // a folder; NULL: no queue
    const char *checkpoints;  // a folder; NULL: no shards are written
    bool insecure;
    struct ps_tls_files tls;
    bool munge, munge_users;  // in place of TLS; may all its users train?
    char *munge_socket;       // munged's; NULL: libmunge's default
    enum ps_log_level log_level;
    uint64_t memory;         // bytes
    uint32_t user_jobs;      // 0: no quota
    uint64_t user_memory;    // bytes; likewise
    const char *memory_why;  // what the default is 3/4 of; NULL: --memory said it
    int threads;
    int ready_fd;  // -1: none
    uint32_t heartbeat_ms, dead_after_ms, stall_after_ms;
};

// Parses argv and fills in the defaults. --help and --version print and exit with 0; a command line that is wrong is
// said on stderr and exits with PS_EXIT_USAGE. Errors: the cluster file's or TF_CONFIG's, also where that says that
// this process is no ps task (FAILED_PRECONDITION).
enum ps_code psd_options_parse(int argc, char **argv, struct psd_options *o, struct ps_error *e);
void psd_options_free(struct psd_options *o);

#endif
