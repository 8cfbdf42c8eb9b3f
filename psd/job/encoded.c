// SPDX-License-Identifier: Apache-2.0
#include "psd/job/encoded.h"

#include <inttypes.h>

#include "common/base/alloc.h"
#include "common/math/encoding.h"
#include "common/wire/wire.h"
#include "psd/job/payload.h"

bool psd_has_encoded(Paramserver__V1__Tensor *const *tensors, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n; i++)
        has |= tensors[i]->dtype == PARAMSERVER__V1__DTYPE__SCALED_INT8 ||
               tensors[i]->dtype == PARAMSERVER__V1__DTYPE__BFLOAT16;
    return has;
}

// A tensor of the request: its elements, and the payload's bytes that are its own.
struct encoded {
    const struct psd_variable *variable;
    int dtype;  // as it came; 0: its numbers are the variable's
    uint64_t first, count;
    size_t at, scales, numbers;  // in the payload: where it begins, and its bytes; scales 0: there are none
};

// Its variable and range. What comes for a variable of float32 may be encoded; for any other it is of the dtype that it
// says.
static enum ps_code encoded_find_range(const struct psd_job *job, Paramserver__V1__Tensor *t, struct encoded *x,
                                       struct ps_error *e)
{
    const Paramserver__V1__DType came = t->dtype;
    if (!ps_is_encoding((int)came))
        return psd_job_find_range(job, t, &x->variable, &x->first, &x->count, e);
    t->dtype = PARAMSERVER__V1__DTYPE__DTYPE_NONE;
    if (psd_job_find_range(job, t, &x->variable, &x->first, &x->count, e))
        return e->code;
    if (x->variable->dtype != PS_FLOAT32) {
        t->dtype = came;
        return psd_job_find_range(job, t, &x->variable, &x->first, &x->count, e);
    }
    t->dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    x->dtype = (int)came;
    return PS_OK;
}

// From *at in the payload on; moves *at past it.
static enum ps_code encoded_find(const struct psd_job *job, Paramserver__V1__Tensor *t, size_t payload, size_t *at,
                                 struct encoded *x, struct ps_error *e)
{
    *x = (struct encoded){.at = *at};
    if (encoded_find_range(job, t, x, e))
        return e->code;
    const bool encoded = x->dtype != 0;
    if (x->variable->dtype == PS_STRING)
        return ps_fail(e, PS_INVALID_ARGUMENT, "variable '%s' is string, which takes no gradient", x->variable->name);
    const size_t left = payload - *at, each = ps_dtype_size(x->variable->dtype);
    if (x->count > PS_MESSAGE_MAX / each)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': a gradient of %" PRIu64
                       " elements; a message with encoded ones brings at most %d "
                       "bytes as they are decoded",
                       x->variable->name, x->count, PS_MESSAGE_MAX);
    x->scales = encoded ? ps_encoding_scales(x->dtype, x->first, x->count) : 0;
    x->numbers = encoded ? ps_encoding_numbers(x->dtype, x->count) : x->count * each;
    const size_t bytes = x->scales + x->numbers;
    if (bytes > left || (t->bytes && t->bytes != bytes))
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "variable '%s': %" PRIu64 " elements of %s are %zu bytes; the request says %" PRIu64
                       ", and %zu are left of its payload",
                       x->variable->name, x->count, ps_dtype_name(encoded ? x->dtype : x->variable->dtype), bytes,
                       t->bytes, left);
    t->bytes = 0;
    *at += bytes;
    return PS_OK;
}

enum { ENCODED_RUN = 16 * PS_ENCODING_GROUP };

// In runs that begin where a group does.
static void encoded_decode(const struct encoded *x, struct psd_feed *feed, float *to)
{
    uint8_t scales[(ENCODED_RUN / PS_ENCODING_GROUP) * sizeof(float)], numbers[ENCODED_RUN * sizeof(uint16_t)];
    size_t scales_at = x->at, numbers_at = x->at + x->scales;
    for (size_t done = 0, n; done < x->count; done += n) {
        const uint64_t first = x->first + done;
        n = ENCODED_RUN - first % PS_ENCODING_GROUP;
        n = n < x->count - done ? n : x->count - done;
        const size_t more_scales = ps_encoding_scales(x->dtype, first, n), more = ps_encoding_numbers(x->dtype, n);
        psd_feed_copy(feed, scales_at, more_scales, scales);
        psd_feed_copy(feed, numbers_at, more, numbers);
        ps_encoding_read(x->dtype, first, n, scales, numbers, to + done);
        scales_at += more_scales;
        numbers_at += more;
    }
}

// The elements that there are already in `decoded` and the tensor's fit a message.
static enum ps_code encoded_add(const struct encoded *x, const struct ps_slices *payload, struct psd_feed *feed,
                                struct ps_slices *decoded, struct ps_error *e)
{
    const size_t bytes = x->count * ps_dtype_size(x->variable->dtype);
    uint8_t *to;
    if (bytes > PS_MESSAGE_MAX - decoded->len)
        return ps_fail(
            e, PS_INVALID_ARGUMENT,
            "variable '%s': with its gradient the message has %zu bytes as they are decoded, expected at most %d",
            x->variable->name, decoded->len + bytes, PS_MESSAGE_MAX);
    if (!x->dtype) {
        ps_slices_add_range(decoded, payload, x->at, bytes);
    } else {
        struct ps_slice floats = ps_slice_new(bytes, &to);
        if (!to)
            return ps_no_memory(e, "a gradient that is decoded");
        encoded_decode(x, feed, (float *)(void *)to);
        ps_slices_add(decoded, floats);
    }
    return decoded->broken ? ps_no_memory(e, "a gradient that is decoded") : PS_OK;
}

enum ps_code psd_decode_gradients(const struct psd_job *job, Paramserver__V1__Tensor *const *tensors, size_t n,
                                  struct ps_slices *payload, struct ps_error *e)
{
    struct ps_slices decoded = PS_SLICES_EMPTY;
    struct psd_feed feed = {.payload = payload};
    enum ps_code code = PS_OK;
    size_t at = 0;
    for (size_t i = 0; i < n && code == PS_OK; i++) {
        struct encoded x;
        code = encoded_find(job, tensors[i], payload->len, &at, &x, e);
        if (code == PS_OK)
            code = encoded_add(&x, payload, &feed, &decoded, e);
    }
    if (code == PS_OK && at != payload->len)
        code = ps_fail(e, PS_INVALID_ARGUMENT, "the tensors need %zu bytes of payload, %zu came", at, payload->len);
    if (code == PS_OK) {
        ps_slices_clear(payload);
        ps_slices_move(payload, &decoded);
    }
    ps_slices_clear(&decoded);
    return code;
}
