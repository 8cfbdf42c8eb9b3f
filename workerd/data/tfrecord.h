// SPDX-License-Identifier: Apache-2.0
//
// TFRecord files and the tf.train.Example messages in them, parsed where they lie: what is returned points into the
// caller's buffer.
#ifndef WK_TFRECORD_H
#define WK_TFRECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/file/tfrecord.h"

struct wk_bytes {
    const uint8_t *at;
    size_t n;
};

// The header of the record at byte `at` of a file of so many bytes, which has at least the header from there on.
enum ps_code wk_record_header(const uint8_t header[PS_TFRECORD_HEAD], uint64_t at, uint64_t size, uint64_t *length,
                              struct ps_error *e);
// length bytes of data and the footer.
enum ps_code wk_record_check(const uint8_t *record, uint64_t length, struct ps_error *e);

// Values are the numbers of Feature's fields.
enum wk_feature_kind { WK_FEATURE_NONE, WK_FEATURE_BYTES, WK_FEATURE_FLOAT, WK_FEATURE_INT };

struct wk_feature {
    struct wk_bytes name;
    enum wk_feature_kind kind;
    struct wk_bytes list, packed;  // what is left of it
};

// An Example: begins as {.rest = {bytes, n}}.
struct wk_example {
    struct wk_bytes rest, features;
};
enum ps_code wk_example_next(struct wk_example *x, struct wk_feature *feature, bool *more, struct ps_error *e);

// The next element of a feature; false: there is none more, of this kind.
bool wk_feature_next_bytes(struct wk_feature *f, struct wk_bytes *value);
bool wk_feature_next_number(struct wk_feature *f, double *value);

#endif
