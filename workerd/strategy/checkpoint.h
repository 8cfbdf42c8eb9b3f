// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint: named float arrays and one JSON object, in a safetensors file (the object is its metadata, under
// "paramserver"). The model's variables have their own names, what an optimizer keeps of them "SLOT/VARIABLE", what a
// callback keeps "callbacks/CALLBACK/NAME".
//
// A file appears whole and on disk, or not at all; it is sealed: DATA_LOSS where a bit of it has changed.
#ifndef WK_CHECKPOINT_H
#define WK_CHECKPOINT_H

#include <jansson.h>

#include "common/file/shards.h"

struct wk_checkpoint;

// Brings the arrays that are put without data; whoever makes one has it as the first member of his own.
struct wk_checkpoint_fetch {
    // By the training's thread, between the steps whose state is wanted: each such array has memory to be filled.
    void (*begin)(struct wk_checkpoint_fetch *f, struct wk_checkpoint *c);
    // By any thread, after begin: waits until all have come.
    enum ps_code (*wait)(struct wk_checkpoint_fetch *f, struct ps_error *e);
    void (*free)(struct wk_checkpoint_fetch *f);
};

// Removes the shards NAME-STEP of this series, but for those of the n checkpoints in keep.
typedef enum ps_code wk_prune_shards_fn(void *arg, const char *name, uint32_t series, const uint64_t *keep, size_t n,
                                        struct ps_error *e);

struct wk_checkpoint {
    json_t *json;
    // To be written.
    struct ps_safetensor *array;  // names are owned, data is not
    size_t n;
    size_t weights;                     // the first so many of them are the model's variables
    struct wk_checkpoint_fetch *fetch;  // NULL: all arrays have data
    // name (owned) NULL: all goes into one file. Else the arrays without data go into shards, which the fetch brings
    // about; whoever makes it fills in the rest.
    struct ps_shards_of shards;
    // Read.
    struct ps_safetensors *file;
    bool whole;        // its shards, too, where it has any
    const char *path;  // the caller's
};

// shards: of which name and id, where it is to have any; NULL: all goes into one file.
void wk_checkpoint_init(struct wk_checkpoint *c, const struct ps_shards_of *shards);
void wk_checkpoint_free(struct wk_checkpoint *c);
// An array named PREFIX/NAME, or NAME where prefix is NULL; it has to live until it is written. data NULL: c->fetch
// brings it, or has it written to a shard.
void wk_checkpoint_put(struct wk_checkpoint *c, const char *prefix, const char *name, const uint64_t *shape,
                       size_t rank, const float *data);
// An array of count elements, which lives as long as *c; NULL, and FAILED_PRECONDITION: there is none of that name and
// size.
const float *wk_checkpoint_find(const struct wk_checkpoint *c, const char *prefix, const char *name, uint64_t count,
                                struct ps_error *e);
// Has it shards that were not read? Those who have written them load them.
bool wk_checkpoint_is_index(const struct wk_checkpoint *c);
// Copies it.
enum ps_code wk_checkpoint_get(const struct wk_checkpoint *c, const char *prefix, const char *name, uint64_t count,
                               float *to, struct ps_error *e);

// What is kept of a rule beside its slots: the learning rate, whether it was set and so follows no schedule any more,
// and how many more times the rule has been applied than the training has taken steps (modulo 2^64).
// INVALID_ARGUMENT: it is not there.
void wk_checkpoint_put_rule(struct wk_checkpoint *c, double rate, bool is_set, uint64_t ahead);
enum ps_code wk_checkpoint_get_rule(const struct wk_checkpoint *c, double *rate, bool *is_set, uint64_t *ahead,
                                    struct ps_error *e);

enum ps_code wk_checkpoint_write(struct wk_checkpoint *c, const char *path, struct ps_error *e);
// whole: with its shards. Errors as ps_safetensors_read_sealed; INVALID_ARGUMENT: it is no checkpoint. path has to
// outlive *c.
enum ps_code wk_checkpoint_read(struct wk_checkpoint *c, const char *path, bool whole, struct ps_error *e);
// The object of the file at path, by its header alone; NULL: it has none, or cannot be read.
json_t *wk_checkpoint_peek(const char *path);
// Is a file a checkpoint, whatever else it is good for?
bool wk_checkpoint_is_one(const struct ps_safetensors *file);

#endif
