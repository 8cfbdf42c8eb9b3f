// SPDX-License-Identifier: Apache-2.0
// Any bytes as a cluster file: a cluster or a sentence, and nothing leaks.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/psclient.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    psc_cluster *cluster;
    psc_error error;
    if (psc_cluster_parse(text, "input", &cluster, &error) == PSC_OK) {
        if (psc_cluster_tasks(cluster) == 0 || !psc_cluster_address(cluster, 0))
            abort();
        psc_cluster_free(cluster);
    } else if (!error.text[0]) {
        abort();
    }
    free(text);
    return 0;
}
