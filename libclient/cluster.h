// SPDX-License-Identifier: Apache-2.0
// psclient.h's cluster: common's description under its public name.
#ifndef PSC_CLUSTER_H
#define PSC_CLUSTER_H

#include "common/cluster/cluster.h"
#include "libclient/psclient.h"

struct psc_cluster {
    struct ps_cluster is;
};

#endif
