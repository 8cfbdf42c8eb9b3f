// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint in shards: each ps task has written what it keeps to a file of its own, and the file that a worker
// writes last names them. A shard is a sealed safetensors file; it lies in a folder of the job's name beside that file,
//
//     FOLDER/digits-0000000020.safetensors
//     FOLDER/digits/digits-0000000020-01234567890abcde-ps-0-of-2.safetensors
//     FOLDER/digits/digits-0000000020-01234567890abcde-ps-1-of-2.safetensors
//
// with the checkpoint's id in its name, and under PS_SHARD_KEY: none is ever written over. A tensor is in one shard, or
// its slices are in several, as flat arrays named NAME[FIRST:END] by their elements. A ps task that keeps nothing has
// no shard. The index, under PS_SHARDS_KEY of the worker's file, is JSON:
// {"name": ..., "checkpoint": ID, "files": [relative to FOLDER, ...], "tensors": {NAME: [its shape], ...}}
#ifndef PS_COMMON_SHARDS_H
#define PS_COMMON_SHARDS_H

#include <stdint.h>

#include "common/file/safetensors.h"

#define PS_SHARD_KEY "paramserver/shard"
#define PS_SHARDS_KEY "paramserver/shards"

// What shards of one checkpoint have in common.
struct ps_shards_of {
    const char *job, *name;  // folder, and what the files' names begin with: NAME-STEP
    uint64_t id;             // no other checkpoint's: of a series (the upper half), and drawn at random
    uint32_t tasks;          // ps tasks
};

// Of which series of checkpoints, such as those that one folder keeps, is one?
static inline uint32_t ps_shards_series(uint64_t id)
{
    return (uint32_t)(id >> 32);
}

// Can text be the name of a folder or what that of a file begins with, wherever it comes from? Letters, digits, '.',
// '_' and '-', of which '.' is not the first; at most 160.
bool ps_shards_is_name(const char *text);
// Is file, without its folder, a shard of NAME-STEP, or what a process that was killed has left of one?
bool ps_shards_is_of(const char *file, const char *name, uint64_t *id);
// Is a file that was read a shard of the checkpoint with this id?
bool ps_shards_has_id(const struct ps_safetensors *file, uint64_t id);

// All malloc'd; NULL: no memory.
char *ps_shards_id(uint64_t id);                                        // as files have it
char *ps_shards_path(const struct ps_shards_of *of, uint32_t task);     // relative to FOLDER
char *ps_shards_slice(const char *name, uint64_t first, uint64_t end);  // NAME[FIRST:END]
// The index of shards that have these n tensors. NULL also where a name is not UTF-8.
char *ps_shards_index(const struct ps_shards_of *of, const struct ps_safetensor *tensors, size_t n);

// Reads the shards that the file at path, which is *s, names, and adds their tensors to *s; nothing where it names
// none. reads false: without their data. NOT_FOUND: a shard is not there. As ps_code_of_file: one cannot be read.
// DATA_LOSS, INVALID_ARGUMENT: one is not as it was written, is of another checkpoint, or the index is not what is said
// above. Only what the shards bring is allocated.
enum ps_code ps_shards_join(struct ps_safetensors *s, const char *path, bool reads, struct ps_error *e);
// Has the file (may be NULL) shards? Fills in *of but for the job; its name lives as long as *s.
bool ps_shards_get(const struct ps_safetensors *s, struct ps_shards_of *of);
uint64_t ps_shards_elements(const struct ps_safetensors *s);  // of all tensors in its shards
// The id of the checkpoint whose file is at path, by its header alone; 0: it has no shards. Errors as
// ps_safetensors_stream_open.
enum ps_code ps_shards_peek(const char *path, uint64_t *id, struct ps_error *e);
// What the file at path says of its shards, freed with ps_shards_free. NULL: it has none, or cannot be read.
struct ps_shards *ps_shards_named(const char *path);
// Removes those that lie beside path. shards: may be NULL.
void ps_shards_unlink(const struct ps_shards *shards, const char *path);
// Removes the file at path, if it is there, and then those, so that one that is found has its shards. Had it any,
// wherever they lie?
bool ps_shards_remove(const char *path);
void ps_shards_free(struct ps_shards *shards);  // may be NULL

#endif
