// SPDX-License-Identifier: Apache-2.0
//
// Replies of the data calls. A reply builder has all the memory that its reply may need, so that an update, which has
// it made before it changes anything, is answered once it has. Values are the pinned pages' own memory.
//
// Receives from: update, read. Threads: each belongs to its request.
#ifndef PSD_REPLY_H
#define PSD_REPLY_H

#include "common/wire/codec.h"
#include "common/wire/wire.h"
#include "psd/service/service.h"

struct psd_reply {
    struct ps_slices slices;  // the header's slice, then the values
    uint8_t *header;
    size_t room;                        // bytes of it
    Paramserver__V1__Tensor **tensors;  // for the reply, as is n_tensors
    size_t n_tensors;
    Paramserver__V1__Tensor *own;
    const struct psd_extent *last;  // of the last tensor
};

// Bytes of a result, and of a tensor's header besides its name, at most.
enum { PSD_RESULT_BYTES = PS_RESULT_BYTES, PSD_TENSOR_BYTES = 80 };

// For n_results, and the values of n extents, in their order.
enum ps_code psd_reply_init(struct psd_reply *d, size_t n_results, const struct psd_extent *extents, size_t n,
                            struct ps_error *e);
void psd_reply_fini(struct psd_reply *d);
// Pinned extents of one tensor; takes over the references. Strings of a tensor come in one call.
void psd_reply_add(struct psd_reply *d, const struct psd_extent *extents, const struct psd_pinned *pinned, size_t n);
// What the extents, which are no strings, hold now, between two atomic updates; averages: as psd_pin_average has them.
void psd_reply_add_values(struct psd_reply *d, struct psd_job *job, const struct psd_extent *extents, size_t n,
                          bool averages);
// reply points to the tensors. The builder is empty then. INTERNAL: the header is larger than what was reserved for it,
// which is a mistake in the bounds above; nothing is written.
int psd_reply_send(struct psd_reply *d, struct psd_request *t, const ProtobufCMessage *reply);
// Likewise an UpdateReply, of the results for which the builder has room; written by hand, as it answers every small
// push.
int psd_reply_send_results(struct psd_reply *d, struct psd_request *t, const Paramserver__V1__TensorResult *results,
                           size_t n);

// Parks the call at the first round of the extents' partitions, from extent *at (at first 0) on, that has not closed
// round `wanted`: it goes on from there. PS_OK: all have. ABORTED: nobody is left to close it.
int psd_wait_for_round(struct psd_request *t, const struct psd_extents *extents, uint64_t wanted, size_t *at);

#endif
