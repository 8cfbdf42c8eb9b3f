// SPDX-License-Identifier: Apache-2.0
// Refcounted bytes, and slice lists of them: how tensors travel from the socket to the update rule and back without a
// copy.
//
// A slice holds one reference on its owner. Slices are values: copying the struct copies the pointer, not the
// reference; ps_slice_ref() takes one more. References may be dropped on any thread.
#ifndef PS_COMMON_SLICE_H
#define PS_COMMON_SLICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What keeps bytes alive. Embed it, or let ps_slice_new() make one. When refs falls to 0, free(owner) is called.
struct ps_owner {
    atomic_uint refs;
    void (*free)(struct ps_owner *);
};

struct ps_slice {
    const uint8_t *data;
    size_t len;
    struct ps_owner *owner;  // NULL: bytes that outlive everyone
};

// A sequence of slices read as one run of bytes.
struct ps_slices {
    struct ps_slice *v;
    size_t n, cap;
    size_t len;   // bytes in all
    bool broken;  // an addition found no memory and was dropped: this is not what was meant. Cleared by ps_slices_clear
};

void ps_owner_ref(struct ps_owner *o);
void ps_owner_unref(struct ps_owner *o);

// A fresh buffer of len bytes that the caller fills through *data before sharing it. *data NULL: no memory, and the
// slice is empty. ps_slice_copy: likewise, where len is not 0.
struct ps_slice ps_slice_new(size_t len, uint8_t **data);
struct ps_slice ps_slice_copy(const void *data, size_t len);
struct ps_slice ps_slice_ref(struct ps_slice s);
void ps_slice_unref(struct ps_slice s);

// What adds to a slice list does not fail at once: where there is no memory for it the slice list is `broken`, which
// whoever sends or reads it looks at. A slice list that is moved or packed into another breaks that one.
#define PS_SLICES_EMPTY ((struct ps_slices){0})
void ps_slices_add(struct ps_slices *r, struct ps_slice s);  // takes over s's reference; drops empty ones
void ps_slices_add_range(struct ps_slices *r, const struct ps_slices *from, size_t offset, size_t len);  // refs
void ps_slices_clear(struct ps_slices *r);                          // drops all references and the array
void ps_slices_move(struct ps_slices *to, struct ps_slices *from);  // appends; from becomes empty
void ps_slices_copy_out(const struct ps_slices *r, size_t offset, size_t len, void *to);
// len bytes at offset where they lie in one slice, else copied into scratch (which has room for len).
const uint8_t *ps_slices_peek(const struct ps_slices *r, size_t offset, size_t len, void *scratch);

#endif
