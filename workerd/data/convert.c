// SPDX-License-Identifier: Apache-2.0
//
// From what a source has to what a batch has.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "workerd/data/data_internal.h"

size_t wk_part_raw(const struct wk_part *part)
{
    size_t most = 1;
    for (size_t i = 0; i < part->source->columns; i++)
        if (part->source->column[i].count > most)
            most = part->source->column[i].count;
    return most * sizeof(float);
}

// The float nearest to the product: that of a byte and 1/255 is the one nearest to the quotient.
static void convert_bytes(const uint8_t *from, size_t n, double scale, float *to)
{
    float value[256];
    if (scale == 1) {
        for (size_t i = 0; i < n; i++)
            to[i] = from[i];
        return;
    }
    for (int i = 0; i < 256; i++)
        value[i] = (float)(i * scale);
    for (size_t i = 0; i < n; i++)
        to[i] = value[from[i]];
}

static enum ps_code convert_floats(const float *from, size_t n, double scale, float *to, struct ps_error *e)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        to[i] = (float)((double)from[i] * scale);
        finite &= fabsf(to[i]) <= FLT_MAX;
    }
    for (size_t i = 0; !finite && i < n; i++)
        if (!(fabsf(to[i]) <= FLT_MAX))
            return ps_fail(e, PS_INVALID_ARGUMENT, "element %zu is %g, which times scale %g is no float32", i,
                           (double)from[i], scale);
    return PS_OK;
}

static void convert_ints(const int32_t *from, size_t n, double scale, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)(from[i] * scale);
}

static double convert_value(const void *from, enum nn_dtype dtype, size_t i)
{
    if (dtype == NN_UINT8)
        return ((const uint8_t *)from)[i];
    return dtype == NN_INT32 ? ((const int32_t *)from)[i] : (double)((const float *)from)[i];
}

static enum ps_code convert_to_ints(const struct wk_port *port, const void *from, enum nn_dtype dtype, size_t n,
                                    int32_t *to, struct ps_error *e)
{
    double least = port->label ? 0 : INT32_MIN, most = port->classes ? port->classes - 1 : INT32_MAX;
    for (size_t i = 0; i < n; i++) {
        double value = convert_value(from, dtype, i);
        if (!(value >= least && value <= most && value == floor(value)))
            return ps_fail(e, PS_INVALID_ARGUMENT, "%s is %.15g, expected an integer from %.0f to %.0f%s",
                           port->label ? "the label" : "the value", value, least, most,
                           port->classes ? ": the model has so many classes" : "");
        to[i] = (int32_t)value;
    }
    return PS_OK;
}

static enum ps_code convert_values(const struct wk_port *port, const void *from, enum nn_dtype dtype, size_t n,
                                   void *to, struct ps_error *e)
{
    if (port->dtype == NN_INT32)
        return convert_to_ints(port, from, dtype, n, to, e);
    if (dtype == NN_FLOAT)
        return convert_floats(from, n, port->scale, to, e);
    if (dtype == NN_UINT8)
        convert_bytes(from, n, port->scale, to);
    else
        convert_ints(from, n, port->scale, to);
    return PS_OK;
}

// What needs no conversion is read in its place.
static bool convert_is_needed(const struct wk_port *port, enum nn_dtype dtype)
{
    return dtype != port->dtype || port->label || (dtype == NN_FLOAT && port->scale != 1);
}

enum ps_code wk_port_read(const struct wk_part *part, const struct wk_port *port, uint64_t example, void *raw, void *to,
                          struct ps_error *e)
{
    const struct wk_source *s = part->source;
    uint8_t *at = to;
    for (size_t i = 0; i < port->n; i++) {
        const struct wk_column *c = &s->column[port->column[i]];
        bool needed = convert_is_needed(port, c->dtype);
        enum ps_code code = s->class->read(s, example, port->column[i], needed ? raw : at, e);
        if (code == PS_OK && needed)
            code = convert_values(port, raw, c->dtype, c->count, at, e);
        if (code != PS_OK) {
            char where[512];
            s->class->where(s, example, port->column[i], where, sizeof where);
            return ps_error_prefix(e, "%s", where);
        }
        at += c->count * sizeof(float);
    }
    return PS_OK;
}
