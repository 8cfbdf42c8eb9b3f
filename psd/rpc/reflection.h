// SPDX-License-Identifier: Apache-2.0
//
// gRPC server reflection: what services, files and symbols there are, out of the descriptors that protoc has written
// of proto/ and the build has embedded.
//
// Receives from: common/rpc's server, whose ps_service_method.answer psd_reflection_answer is, for both versions of the
// service: their messages are the same bytes. Threads: any; what it knows does not change.
#ifndef PSD_RPC_REFLECTION_H
#define PSD_RPC_REFLECTION_H

#include "common/base/error.h"
#include "common/wire/slice.h"

struct psd_reflection;

enum ps_code psd_reflection_create(struct psd_reflection **out, struct ps_error *e);  // RESOURCE_EXHAUSTED
void psd_reflection_destroy(struct psd_reflection *r);                                // may be NULL

// INVALID_ARGUMENT: not a request. What is not found, or not asked for, is an error_response.
enum ps_code psd_reflection_answer(void *ctx, const struct ps_slices *request, struct ps_slices *reply,
                                   struct ps_error *e);

#endif
