// SPDX-License-Identifier: Apache-2.0
//
// Gradients that came encoded (common/math/encoding.h) become those of float32: whoever goes on with the request knows
// of no encoding.
//
// Receives from: service. Hands to: locate, apply, the rounds. Threads: any; a request belongs to its thread.
#ifndef PSD_ENCODED_H
#define PSD_ENCODED_H

#include "common/wire/slice.h"
#include "psd/job/locate.h"

bool psd_has_encoded(Paramserver__V1__Tensor *const *tensors, size_t n);
// Puts floats in the place of the payload's encoded gradients, and the dtype in the tensors' headers. INVALID_ARGUMENT:
// more floats than a message may bring, or fewer bytes than the ranges need; as psd_job_locate where a range is none.
enum ps_code psd_decode_gradients(const struct psd_job *job, Paramserver__V1__Tensor *const *tensors, size_t n,
                                  struct ps_slices *payload, struct ps_error *e);

#endif
