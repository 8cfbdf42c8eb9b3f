// SPDX-License-Identifier: Apache-2.0
// A training loop of one's own on libpsclient: linear regression, y = w . x + b, with its own loss and gradient. Any
// number of workers train together, asynchronously; the update rule runs in the parameter servers.
//
//     custom-loop CLUSTER.yaml JOB RANK WORKERS
#include <psclient.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 4, BATCH = 32, STEPS = 400 };

static const float true_w[FEATURES] = {1.5f, -2.0f, 0.5f, 3.0f};
static const float true_b = 0.25f;

static psc_client *client;

// On an error this worker leaves, and says why: the others do not wait for it.
static void need(psc_code code, const psc_error *e)
{
    if (code == PSC_OK)
        return;
    fprintf(stderr, "custom-loop: %s\n", e->text);
    psc_close(client, e->text);
    exit(1);
}

// The mean squared error of a batch drawn at random, and its gradient.
static float loss_and_gradient(unsigned *seed, const float *w, float b, float *dw, float *db)
{
    float loss = *db = 0;
    for (int k = 0; k < FEATURES; k++)
        dw[k] = 0;
    for (int i = 0; i < BATCH; i++) {
        float x[FEATURES], error = b - true_b;
        for (int k = 0; k < FEATURES; k++) {
            x[k] = 2.0f * (float)rand_r(seed) / (float)RAND_MAX - 1.0f;
            error += (w[k] - true_w[k]) * x[k];
        }
        loss += error * error / BATCH;
        *db += 2 * error / BATCH;
        for (int k = 0; k < FEATURES; k++)
            dw[k] += 2 * error * x[k] / BATCH;
    }
    return loss;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: custom-loop CLUSTER.yaml JOB RANK WORKERS\n");
        return 64;
    }
    psc_error e;
    psc_cluster *cluster;
    psc_op *op;
    unsigned seed = (unsigned)atoi(argv[3]);
    float w[FEATURES] = {0}, b = 0, dw[FEATURES], db, loss = 0;

    psc_options options = {
        .job = argv[2], .rank = atoi(argv[3]), .workers = (uint32_t)atoi(argv[4]), .update = PSC_ASYNC};
    need(psc_cluster_load(argv[1], &cluster, &e), &e);
    need(psc_connect(cluster, &options, &client, &e), &e);

    psc_tensor weights[] = {{.name = "w", .data = w, .count = FEATURES, .dtype = PSC_FLOAT32},
                            {.name = "b", .data = &b, .count = 1, .dtype = PSC_FLOAT32}};
    psc_tensor gradients[] = {{.name = "w", .data = dw, .count = FEATURES, .dtype = PSC_FLOAT32},
                              {.name = "b", .data = &db, .count = 1, .dtype = PSC_FLOAT32}};
    // Who is started again comes to a job that goes on: it takes what is there, even where it is the chief, as all
    // others are gone; and nobody waits for it in a barrier, as it asks for no lease.
    const bool late = psc_is_late(client);
    if (psc_is_chief(client) && !late) {
        const uint64_t shape[] = {FEATURES};
        const psc_variable variables[] = {
            {.name = "w", .dtype = PSC_FLOAT32, .shape = shape, .rank = 1, .trainable = true},
            {.name = "b", .dtype = PSC_FLOAT32, .trainable = true},
        };
        const psc_hyper rate = {"learning_rate", 0.1};
        const psc_declaration declaration = {
            .variables = variables, .n_variables = 2, .rule = "sgd", .hypers = &rate, .n_hypers = 1};
        need(psc_declare(client, &declaration, NULL, &e), &e);
        psc_put(client, weights, 2, NULL, NULL, &op);
        need(psc_wait(op, NULL, &e), &e);
    } else {
        need(psc_attach(client, &e), &e);
    }
    if (!late)
        need(psc_barrier(client, "start", &e), &e);  // nobody pulls before the chief has put

    for (uint64_t step = 1; step <= STEPS; step++) {
        psc_pull(client, weights, 2, 0, NULL, NULL, &op);
        need(psc_wait(op, NULL, &e), &e);
        loss = loss_and_gradient(&seed, w, b, dw, &db);
        psc_push(client, gradients, 2, &(psc_push_options){.examples = BATCH}, NULL, NULL, &op);
        need(psc_wait(op, NULL, &e), &e);
        psc_report(client, step, 0, loss);
    }
    if (!late)
        need(psc_barrier(client, "end", &e), &e);
    psc_get(client, weights, 2, NULL, NULL, &op);
    need(psc_wait(op, NULL, &e), &e);
    printf("loss %.6f, w = (%.3f, %.3f, %.3f, %.3f), b = %.3f\n", loss, w[0], w[1], w[2], w[3], b);
    psc_close(client, NULL);
    psc_cluster_free(cluster);
    return 0;
}
