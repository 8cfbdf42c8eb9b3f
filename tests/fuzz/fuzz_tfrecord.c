// SPDX-License-Identifier: Apache-2.0
//
// TFRecord files and tf.train.Examples: whatever the bytes, an error or features that lie in the buffer. The bytes are
// taken as a file, and as the data of a record, whose CRC nobody could guess.
#include <stdlib.h>

#include "workerd/data/tfrecord.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look_at(struct wk_bytes b, const uint8_t *bytes, size_t size)
{
    if (b.n && (b.at < bytes || b.n > size || b.at > bytes + size - b.n))
        abort();
}

static void read_example(const uint8_t *bytes, size_t size)
{
    struct wk_example x = {.rest = {bytes, size}};
    struct wk_feature f;
    struct ps_error e;
    for (bool more = true; wk_example_next(&x, &f, &more, &e) == PS_OK && more;) {
        struct wk_bytes value;
        double number;
        look_at(f.name, bytes, size);
        while (wk_feature_next_bytes(&f, &value))
            look_at(value, bytes, size);
        while (wk_feature_next_number(&f, &number))
            ;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ps_error e;
    uint64_t length;
    read_example(bytes, size);
    for (uint64_t at = 0; at < size && size - at >= PS_TFRECORD_HEAD;
         at += PS_TFRECORD_HEAD + length + PS_TFRECORD_TAIL) {
        if (wk_record_header(bytes + at, at, size, &length, &e) != PS_OK)
            break;
        if (length > size - at - PS_TFRECORD_HEAD - PS_TFRECORD_TAIL)
            abort();
        read_example(bytes + at + PS_TFRECORD_HEAD, (size_t)length);
    }
    return 0;
}
