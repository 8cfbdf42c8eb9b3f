// SPDX-License-Identifier: Apache-2.0
//
// Requests of every method for a fuzz target: each begins as one that is right for a small job and is then changed as
// the input's bytes say, field by field. So that most inputs get past the decoder, and each byte of one means
// something.
#ifndef FUZZ_RPC_REQUESTS_H
#define FUZZ_RPC_REQUESTS_H

#include <stdbool.h>

#include "common/wire/wire.h"
#include "proto/paramserver.pb-c.h"

// The input, byte by byte; zeros after its end.
struct feed {
    const uint8_t *data;
    size_t len, at;
};
uint8_t feed_byte(struct feed *f);

enum { FUZZ_IN_SESSION = 0x80 };  // of who asks: by the session of the stream
enum { FUZZ_WORKERS = 2, FUZZ_CALLERS = 4, FUZZ_VARIABLES = 7, FUZZ_METHODS = 39 };  // values of Method, with none

// What the requests are right for: job "job" of FUZZ_WORKERS workers, as one ps task sees it.
struct fuzz_job {
    uint32_t task, tasks;
    Paramserver__V1__Update update;
    bool every_dtype;  // variables that are put and got only, too
    bool big;          // one of two blocks
    uint64_t run;
    // The last used, by Caller.worker and, of rounds, variable.
    uint64_t sequence[FUZZ_CALLERS], round[FUZZ_CALLERS][FUZZ_VARIABLES];
};

// A right one of that method, packed; consumes two bytes: which caller and sequence, which variables.
void request_make(struct fuzz_job *job, int method, struct feed *f, struct ps_slices *out);
// Changes n fields; consumes three bytes for each. What cannot be unpacked stays as it is.
void request_change(int method, int n, struct feed *f, struct ps_slices *request);

// NULL: no such method.
const ProtobufCMessageDescriptor *request_type(int method);
const ProtobufCMessageDescriptor *reply_type(int method);
const char *method_name(int method);  // as in the proto; "?": no such method

#endif
