// SPDX-License-Identifier: Apache-2.0
//
// The description of a cluster: a YAML file or a list of addresses (cluster.c), or TF_CONFIG (tf_config.c).
#ifndef PS_CLUSTER_H
#define PS_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/base/limits.h"
#include "common/base/name_table.h"
#include "common/cluster/tls_files.h"

enum ps_task_type { PS_TASK_NONE, PS_TASK_PS, PS_TASK_WORKER, PS_TASK_EVALUATOR };

struct ps_cluster {
    char **addresses;  // of the ps tasks
    size_t n;
    char **worker;   // [workers] their addresses; NULL where one was not said, or is none
    size_t workers;  // 0: not said
    size_t cap_worker;
    struct ps_name_table has_worker;  // the workers' addresses
    struct ps_tls_files tls;
    bool munge;              // in place of certificates
    char *munge_socket;      // munged's; NULL: libmunge's default
    bool needs_no_ps;        // set by the caller: a description without ps tasks will do
    enum ps_task_type task;  // what this process is, as TF_CONFIG says
    size_t index;            // of the ps task, or the worker's rank
};

// Each fills *c, which is {0} before but for needs_no_ps. On failure *c is {0} again, and the text names file and line,
// or the path in TF_CONFIG. INVALID_ARGUMENT: a mistake in the description; RESOURCE_EXHAUSTED: no memory; else: the
// file cannot be read.
enum ps_code ps_cluster_load(const char *path, struct ps_cluster *c, struct ps_error *e);
enum ps_code ps_cluster_parse(const char *yaml, const char *name, struct ps_cluster *c, struct ps_error *e);
enum ps_code ps_cluster_parse_tf_config(const char *json, struct ps_cluster *c, struct ps_error *e);
// Reads the file `path` if that is not NULL, else the environment's TF_CONFIG. NOT_FOUND: there is neither.
enum ps_code ps_cluster_find(const char *path, struct ps_cluster *c, struct ps_error *e);

// Appends a worker; address NULL, or no address: it has none. INVALID_ARGUMENT: another one has it.
enum ps_code ps_cluster_add_worker(struct ps_cluster *c, const char *address, struct ps_error *e);

// Certificates, in place of those that the description names; copied. INVALID_ARGUMENT: neither a folder nor files, or
// the description says munge; RESOURCE_EXHAUSTED: no memory. On failure *c is as before, here and below.
enum ps_code ps_cluster_set_tls(struct ps_cluster *c, const struct ps_tls_files *files, struct ps_error *e);
bool ps_cluster_has_tls(const struct ps_cluster *c);
// Munge in place of certificates; socket is copied, NULL: the description's, or libmunge's default. INVALID_ARGUMENT:
// there are certificates.
enum ps_code ps_cluster_set_munge(struct ps_cluster *c, const char *socket, struct ps_error *e);

// Appends a ps task. The text speaks of the address; the caller prefixes where it stands.
enum ps_code ps_cluster_add(struct ps_cluster *c, const char *address, struct ps_error *e);

void ps_cluster_fini(struct ps_cluster *c);  // frees what it owns

#endif
