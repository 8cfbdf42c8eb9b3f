// SPDX-License-Identifier: Apache-2.0
//
// Parts of requests, for tests that speak the protocol themselves.
#ifndef TEST_MESSAGES_H
#define TEST_MESSAGES_H

#include <string.h>

#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"

// A payload of n equal numbers; broken: no memory.
static inline struct ps_slices floats(size_t n, float value)
{
    struct ps_slices r = PS_SLICES_EMPTY;
    uint8_t *data;
    struct ps_slice s = ps_slice_new(n * sizeof(float), &data);
    for (size_t i = 0; data && i < n; i++)
        ((float *)data)[i] = value;
    ps_slices_add(&r, s);
    r.broken |= !data;
    return r;
}

// The run that callers name, and the incarnation that they have from the beginning of it: the first that a psd without
// a wall clock gives out, unless a test has learnt another.
static uint64_t test_run = 1;

// The caller of a request by worker `rank` (below 8) of job "job".
static inline Paramserver__V1__Caller caller_of(uint32_t rank, uint64_t sequence)
{
    static uint8_t ids[8][16];
    Paramserver__V1__Caller c = PARAMSERVER__V1__CALLER__INIT;
    memset(ids[rank], 'a' + (int)rank, 16);
    c.protocol = PS_PROTOCOL;
    c.job = (char *)"job";
    c.client.data = ids[rank];
    c.client.len = 16;
    c.incarnation = c.run = test_run;
    c.sequence = sequence;
    c.oldest = sequence;
    c.worker = rank + 1;
    return c;
}

#endif
