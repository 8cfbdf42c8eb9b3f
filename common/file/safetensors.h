// SPDX-License-Identifier: Apache-2.0
//
// Weights in a file: the safetensors format. 8 bytes of header length (little-endian), a JSON header
// {"name": {"dtype": "F32", "shape": [3, 3], "data_offsets": [begin, end]}, ...}, then the data, which the tensors
// cover without holes. Floats of every width are read, as float32, and F64 also as it is; written are float32 and
// float64. Tensors without elements are left out. Errors name the file and the tensor.
#ifndef PS_COMMON_SAFETENSORS_H
#define PS_COMMON_SAFETENSORS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/error.h"
#include "common/wire/dtype.h"

#define PS_SAFETENSORS_CHECKSUMS "paramserver/checksums"

struct ps_safetensor {
    const char *name;
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    uint64_t count;
    const float *data;  // (shape), row-major; NULL: what was read are no floats
    const char *dtype;  // in the file: "F32", "BF16", "I64", or any other word; not looked at when written
    // To be written where data is NULL: the same in parts, one behind the other. The caller's.
    const struct iovec *parts;
    size_t n_parts;
    // F64 alone: the same as it is in the file; to be written where it is not NULL, and data is not looked at.
    const double *doubles;
};

// A file that was read: owns its tensors' names and data. The tensors of its shards (common/file/shards.h) follow its
// own.
struct ps_safetensors {
    struct ps_safetensor *tensor;  // in the order of their data
    size_t n;
    void *header;  // what the names and types point into
    float *data;
    double *doubles;           // NULL: none are F64
    bool sealed;               // it was written with checksums, and has what was written
    struct ps_shards *shards;  // NULL: it has none
};

// A file with shards is read together with them. F16, BF16 and F64 become the float32 nearest to them, in data.
// NOT_FOUND: the file is not there, or one of its shards. As ps_code_of_file, too, where one cannot be read.
// INVALID_ARGUMENT: not what the format asks for. DATA_LOSS: cut short, or the checksums say that it is damaged. Both
// name the bytes of the file that are wrong. Any bytes may stand in the file: what is allocated is bounded by its size.
enum ps_code ps_safetensors_read(const char *path, struct ps_safetensors **out, struct ps_error *e);
// The same; INVALID_ARGUMENT also where the header names no checksums.
enum ps_code ps_safetensors_read_sealed(const char *path, struct ps_safetensors **out, struct ps_error *e);
// As ps_safetensors_read_sealed, but without its shards, whose tensors have no data.
enum ps_code ps_safetensors_read_index(const char *path, struct ps_safetensors **out, struct ps_error *e);
// One shard of a checkpoint by itself, as ps_safetensors_read_sealed.
enum ps_code ps_safetensors_read_shard(const char *path, struct ps_safetensors **out, struct ps_error *e);
void ps_safetensors_free(struct ps_safetensors *s);
// NULL: no tensor of that name.
const struct ps_safetensor *ps_safetensors_find(const struct ps_safetensors *s, const char *name);

// A sealed file of float32 that is read in the order of its data, of which a MiB at most is in memory: each is compared
// with its checksum before any of it is handed out. Threads: one at a time.
struct ps_safetensors_stream;
// Errors as ps_safetensors_read_shard, but for those of the data.
enum ps_code ps_safetensors_stream_open(const char *path, struct ps_safetensors_stream **out, struct ps_error *e);
// Its tensors, without data; lives as long as the stream.
const struct ps_safetensors *ps_safetensors_stream_tensors(const struct ps_safetensors_stream *s);
// The next n floats. DATA_LOSS: the file is damaged, or ends before them. As ps_code_of_file: it cannot be read.
enum ps_code ps_safetensors_stream_read(struct ps_safetensors_stream *s, float *to, size_t n, struct ps_error *e);
void ps_safetensors_stream_close(struct ps_safetensors_stream *s);  // may be NULL

// Writes n tensors (count is worked out from shape), as common/file/output.h writes files. The same tensors in any
// order give the same bytes.
enum ps_code ps_safetensors_write(const char *path, const struct ps_safetensor *tensors, size_t n, struct ps_error *e);

// An entry of a file's metadata: a key and a text in UTF-8.
struct ps_safetensors_text {
    const char *key, *text;
};

// The same with metadata; and sealed: behind the data stands one more tensor, PS_SAFETENSORS_CHECKSUMS of type U32,
// with the CRC-32C of the header with its length, then of each MiB of the other tensors' data. Who reads it with
// ps_safetensors_read does not see that tensor. stop (may be NULL): CANCELLED where it becomes true meanwhile.
enum ps_code ps_safetensors_write_sealed(const char *path, const struct ps_safetensor *tensors, size_t n,
                                         const struct ps_safetensors_text *texts, size_t n_texts,
                                         const atomic_bool *stop, struct ps_error *e);
// NULL: the metadata has no such key, or no text for it.
const char *ps_safetensors_metadata(const struct ps_safetensors *s, const char *key);

#endif
