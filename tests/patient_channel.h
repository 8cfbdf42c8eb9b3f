// SPDX-License-Identifier: Apache-2.0
//
// In a test that is client and server at once nobody is silent: who does not answer is kept from running, for as long
// as the machine likes. A client that takes such a peer for a lost one, as it does after some seconds, would fail the
// test; here it waits minutes. To be included by one file of a program.
#ifndef TESTS_PATIENT_CHANNEL_H
#define TESTS_PATIENT_CHANNEL_H

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <string.h>

grpc_channel *grpc_channel_create(const char *target, grpc_channel_credentials *credentials,
                                  const grpc_channel_args *args)
{
    grpc_channel *(*next)(const char *, grpc_channel_credentials *, const grpc_channel_args *);
    grpc_arg patient[32];
    size_t n = args->num_args < 32 ? args->num_args : 32;
    *(void **)&next = dlsym(RTLD_NEXT, "grpc_channel_create");
    memcpy(patient, args->args, n * sizeof *patient);
    for (size_t i = 0; i < n; i++)
        if (strcmp(patient[i].key, GRPC_ARG_KEEPALIVE_TIMEOUT_MS) == 0)
            patient[i].value.integer = 600000;
    return next(target, credentials, &(grpc_channel_args){n, patient});
}

#endif
