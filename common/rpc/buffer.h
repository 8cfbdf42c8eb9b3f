// SPDX-License-Identifier: Apache-2.0
//
// Slice lists and the gRPC core's byte buffers, turned into each other without copying what is large.
//
// Used by server and client. Any thread.
#ifndef PS_COMMON_RPC_BUFFER_H
#define PS_COMMON_RPC_BUFFER_H

#include <grpc/byte_buffer.h>

#include "common/wire/slice.h"
#include "common/wire/wire.h"

// What waits for the stream goes into one message up to here, but always at least one record. Larger ones gain nothing
// and would leave the cache between the socket's copy and the update rule.
enum { PS_GATHER_BYTES = 512 << 10, PS_GATHER_LEAST = 32 << 10, PS_GATHER_RECORDS = 400 };

// How much the next message gathers of records that have a priority: on a slow network what leaves in a millisecond,
// or PS_GATHER_LEAST, since what is not gathered yet can be overtaken. limit: of the message before, of so many bytes,
// which took ns to leave; one that was not half full says nothing of the network.
static inline size_t ps_gather_next(size_t limit, size_t bytes, uint64_t ns)
{
    const uint64_t ms = 1000000, next = ns > ms ? bytes * ms / ns : 2 * limit;
    if (bytes < limit / 2)
        return limit;
    return next < PS_GATHER_LEAST ? PS_GATHER_LEAST : next < PS_GATHER_BYTES ? (size_t)next : PS_GATHER_BYTES;
}

// How much a message may have with a record of this priority.
static inline size_t ps_gather_most(size_t limit, uint32_t priority)
{
    return priority ? limit : PS_GATHER_BYTES;
}

// HTTP/2's: what may be under way on a stream (a round trip's worth at several GB/s), and in one frame (all that HTTP/2
// allows: a frame that ends in a tensor splits an element).
enum {
    PS_LOOK_AHEAD = 4 << 20,
    PS_LOOK_AHEAD_LEAST = 64 << 10,
    PS_FRAME_MAX = (16 << 20) - 1,
    PS_FRAME_LEAST = 16 << 10,
};

// Bytes of a record besides its body and text, at most, and what that leaves for the body.
enum { PS_RECORD_OVERHEAD = PS_RECORD_HEAD, PS_BODY_MAX = PS_MESSAGE_MAX - PS_RECORD_OVERHEAD };

// Appends the buffer's bytes to *out; takes over the buffer, which lives until the last of its slices is dropped; then
// freed (may be NULL) is told, on any thread, with any lock held. False: no memory; the buffer is gone, freed not told.
bool ps_slices_from_buffer(struct ps_slices *out, grpc_byte_buffer *buffer, void (*freed)(void *arg, size_t bytes),
                           void *arg);

// Slices that the core has references on. It may hold them longer than the calls they were sent with, and drop them on
// a thread of its own.
struct ps_loans {
    atomic_uint back;  // so many have been dropped, modulo 2^32
    atomic_size_t out;
    atomic_bool abandoned;
};

// A byte buffer being put together: small slices are copied, one after the other into few large ones; of the others it
// holds references, counted in *loans. On the stack of one thread.
struct ps_packer {
    grpc_byte_buffer *buffer;
    struct ps_loans *loans;
    grpc_slice run;  // of small ones; its memory is at..end
    uint8_t *at, *end;
    size_t used;  // of the run
    bool broken;  // there was no memory, or what was to be packed was broken
};

void ps_packer_init(struct ps_packer *p, struct ps_loans *loans);
void ps_packer_add_record(struct ps_packer *p, const struct ps_record_head *head,
                          struct ps_slices *body);  // *body becomes empty
// Likewise, with a body of few bytes, which are copied.
void ps_packer_add_small_record(struct ps_packer *p, const struct ps_record_head *head, const void *body, size_t len);
grpc_byte_buffer *ps_packer_end(struct ps_packer *p);  // NULL: it was broken

// All of that for one list of slices.
grpc_byte_buffer *ps_slices_to_buffer(struct ps_slices *in, struct ps_loans *loans);
bool ps_loans_wait(struct ps_loans *loans, int limit_ms);  // has the core dropped all by then?
// Waits until the core has dropped all; what they were sent on must be closed. False: it still holds some (of a unix
// socket whose other end neither reads nor closes). Their owners are then never told, and *loans must live on.
bool ps_loans_settle(struct ps_loans *loans);

// Owners whose references wait to be dropped.
struct ps_releases {
    struct ps_owner **v;
    size_t n, cap;
};

// The gRPC core may drop slices in any of its functions. Between begin and end, references that this thread would
// drop through this module collect in *to instead: for a thread that holds locks which an owner's free may want.
void ps_releases_begin(struct ps_releases *to);
void ps_releases_end(void);
void ps_releases_move(struct ps_releases *to, struct ps_releases *from);  // appends; from becomes empty
void ps_releases_run(struct ps_releases *r);                              // drops them and the array

#endif
