// SPDX-License-Identifier: Apache-2.0
//
// The value of a job's variable, or of some of its rows: what get reads and put writes.
#ifndef PSCTL_VALUE_H
#define PSCTL_VALUE_H

#include <stdint.h>

#include "common/wire/dtype.h"
#include "tools/psctl/cluster.h"
#include "tools/psctl/npy.h"

struct value {
    const psc_variable *variable;  // valid until the cluster is closed
    uint64_t shape[PS_MAX_RANK];   // of the rows chosen
    uint64_t first;                // element of the variable
    struct npy_array array;        // shape points to the above; data is malloc'd, zeroed
    uint64_t version;
};

// Finds the variable of the job that the cluster was opened for and makes room for its rows (operand_rows; NULL: all).
// NOT_FOUND suggests a name.
enum ps_code value_open(struct cluster *c, const char *job, const char *name, const char *rows, struct value *v,
                        struct ps_error *e);
// Has a value of that type its like in a file of float32? float32, float64, bfloat16, float16.
bool value_is_float(psc_dtype dtype);
// Of that variable, whole.
enum ps_code value_of(const psc_variable *variable, struct value *v, struct ps_error *e);
enum ps_code value_get(struct cluster *c, struct value *v, struct ps_error *e);
// Exactly once, however often it has to be sent.
enum ps_code value_put(struct cluster *c, struct value *v, struct ps_error *e);
// After the cluster is closed: an operation that failed may write to the data until then.
void value_fini(struct value *v);

#endif
