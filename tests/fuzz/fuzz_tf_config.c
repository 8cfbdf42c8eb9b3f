// SPDX-License-Identifier: Apache-2.0
// Any bytes as TF_CONFIG: a cluster whose parts fit each other, or a sentence.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "libclient/psclient.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void check(const psc_cluster *cluster)
{
    size_t n = psc_cluster_tasks(cluster), index = SIZE_MAX;
    const char **addresses = malloc((n + 1) * sizeof *addresses);
    psc_cluster *again;
    expect(n > 0 && !psc_cluster_address(cluster, n));
    for (size_t i = 0; i < n; i++)
        addresses[i] = psc_cluster_address(cluster, i);
    expect(psc_cluster_create(addresses, n, &again, NULL) == PSC_OK);
    switch (psc_cluster_task(cluster, &index)) {
    case PSC_TASK_NONE:
        expect(index == SIZE_MAX);
        break;
    case PSC_TASK_PS:
        expect(index < n);
        break;
    case PSC_TASK_WORKER:
        expect(index < psc_cluster_workers(cluster));
        break;
    case PSC_TASK_EVALUATOR:
        break;
    }
    psc_cluster_free(again);
    free(addresses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    psc_cluster *cluster = NULL;
    psc_error error;
    memcpy(text, data, size);
    text[size] = 0;
    if (psc_cluster_parse_tf_config(text, &cluster, &error) == PSC_OK)
        check(cluster);
    else
        expect(error.code == PSC_INVALID_ARGUMENT && strncmp(error.text, "TF_CONFIG", 9) == 0 &&
               ps_utf8_valid(error.text) && !cluster);
    psc_cluster_free(cluster);
    free(text);
    return 0;
}
