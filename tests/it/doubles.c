// SPDX-License-Identifier: Apache-2.0
//
// doubles JOB X Y ADDRESS ...: a job of one worker with a variable "d" of float64, which becomes [X, Y]; and is done.
#include <stdio.h>
#include <stdlib.h>

#include "libclient/psclient.h"

static psc_code doubles_put(psc_client *client, double values[2], psc_error *e)
{
    static const uint64_t shape[] = {2};
    const psc_variable d = {.name = "d", .dtype = PSC_FLOAT64, .shape = shape, .rank = 1};
    const psc_declaration all = {.variables = &d, .n_variables = 1, .rule = "sgd"};
    const psc_tensor tensor = {.name = "d", .data = values, .count = 2, .dtype = PSC_FLOAT64};
    psc_op *op;
    if (psc_declare(client, &all, NULL, e))
        return e->code;
    psc_put(client, &tensor, 1, NULL, NULL, &op);
    return psc_wait(op, NULL, e);
}

int main(int argc, char **argv)
{
    psc_error e;
    psc_cluster *cluster = NULL;
    psc_client *client = NULL;
    if (argc < 5) {
        fprintf(stderr, "usage: doubles JOB X Y ADDRESS ...\n");
        return 64;
    }
    double values[2] = {strtod(argv[2], NULL), strtod(argv[3], NULL)};
    const psc_options options = {.job = argv[1], .workers = 1, .update = PSC_ASYNC};
    psc_code code = psc_cluster_create((const char *const *)&argv[4], (size_t)argc - 4, &cluster, &e);
    if (code == PSC_OK)
        code = psc_connect(cluster, &options, &client, &e);
    if (code == PSC_OK)
        code = doubles_put(client, values, &e);
    if (code)
        fprintf(stderr, "doubles: %s\n", e.text);
    psc_close(client, code ? e.text : NULL);
    psc_cluster_free(cluster);
    return code ? 1 : 0;
}
