// SPDX-License-Identifier: Apache-2.0
//
// Weights in a file: the safetensors format. 8 bytes of header length (little-endian), a JSON header
// {"name": {"dtype": "F32", "shape": [3, 3], "data_offsets": [begin, end]}, ...}, then the data, which the tensors
// cover without holes. Floats of every width are read, as float32; written is float32. Errors name the file and the
// tensor.
#ifndef PS_COMMON_SAFETENSORS_H
#define PS_COMMON_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/wire/dtype.h"

#define PS_SAFETENSORS_CHECKSUMS "paramserver/checksums"

struct ps_safetensor {
    const char *name;
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    uint64_t count;
    const float *data;  // (shape), row-major; NULL: what was read are no floats
    const char *dtype;  // in the file: "F32", "BF16", "I64"; static; not looked at when written
};

// A file that was read: owns its tensors' names and data.
struct ps_safetensors {
    struct ps_safetensor *tensor;  // in the order of their data
    size_t n;
    void *header;  // what the names point into
    float *data;
    bool sealed;  // it was written with checksums, and has what was written
};

// F16, BF16 and F64 become the float32 nearest to them. NOT_FOUND: the file cannot be opened. INVALID_ARGUMENT: not
// what the format asks for. DATA_LOSS: cut short, or the checksums say that it is damaged. Both name the bytes of the
// file that are wrong. Any bytes may stand in the file: what is allocated is bounded by its size.
enum ps_code ps_safetensors_read(const char *path, struct ps_safetensors **out, struct ps_error *e);
// The same; INVALID_ARGUMENT also where the header names no checksums.
enum ps_code ps_safetensors_read_sealed(const char *path, struct ps_safetensors **out, struct ps_error *e);
void ps_safetensors_free(struct ps_safetensors *s);
// NULL: no tensor of that name.
const struct ps_safetensor *ps_safetensors_find(const struct ps_safetensors *s, const char *name);

// Writes n tensors (count is worked out from shape), as common/file/output.h writes files. The same tensors in any
// order give the same bytes.
enum ps_code ps_safetensors_write(const char *path, const struct ps_safetensor *tensors, size_t n, struct ps_error *e);
// The same with one entry in the file's metadata, key with a text in UTF-8; and sealed: behind the data stands one more
// tensor, PS_SAFETENSORS_CHECKSUMS of type U32, with the CRC-32C of the header with its length, then of each MiB of the
// other tensors' data. Who reads it with ps_safetensors_read does not see that tensor.
enum ps_code ps_safetensors_write_sealed(const char *path, const struct ps_safetensor *tensors, size_t n,
                                         const char *key, const char *text, struct ps_error *e);
// NULL: the metadata has no such key, or no text for it.
const char *ps_safetensors_metadata(const struct ps_safetensors *s, const char *key);

#endif
