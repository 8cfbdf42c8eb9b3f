// SPDX-License-Identifier: Apache-2.0
#ifndef PSC_CLUSTER_H
#define PSC_CLUSTER_H

#include <stddef.h>

struct psc_cluster {
    char **addresses;  // of the ps tasks
    size_t n;
    size_t workers;  // 0: not said
};

#endif
