// SPDX-License-Identifier: Apache-2.0
//
// A cluster as it is described: in YAML or a list of addresses (cluster.c), or in TF_CONFIG (tf_config.c).
#ifndef PSC_CLUSTER_H
#define PSC_CLUSTER_H

#include <stddef.h>

#include "common/base/error.h"
#include "libclient/psclient.h"

enum { PSC_MAX_TASKS = 4096 };  // of one kind

struct psc_cluster {
    char **addresses;  // of the ps tasks
    size_t n;
    size_t workers;      // 0: not said
    psc_task_type task;  // what this process is, where that is said
    size_t index;
};

// Appends a ps task. Fails with a sentence about the address, before which the caller puts where it stands.
enum ps_code psc__cluster_add(struct psc_cluster *c, const char *address, struct ps_error *e);

// Hands a cluster (NULL: there was no memory for it) to the caller of a public function, or frees it where *e says no.
psc_code psc__cluster_give(struct psc_cluster *c, struct ps_error *e, psc_cluster **cluster, psc_error *error);

#endif
