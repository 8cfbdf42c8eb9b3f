// SPDX-License-Identifier: Apache-2.0
// Which ps task owns which part of which variable. Pure; used by libclient (the chief's declaration) and psctl plan.
#ifndef PS_COMMON_PLACEMENT_H
#define PS_COMMON_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/limits.h"

enum ps_placement { PS_ROUND_ROBIN, PS_GREEDY };
enum ps_partitioner { PS_PARTITION_NONE, PS_PARTITION_FIXED, PS_PARTITION_MIN_BYTES, PS_PARTITION_MAX_BYTES };

struct ps_placement_spec {
    enum ps_placement placement;
    enum ps_partitioner partitioner;
    uint64_t partitioner_arg;  // fixed: parts; min_bytes, max_bytes: bytes of values
};

// A variable as placement sees it: its first dimension is what partitions are cut along (tf.fixed_size_partitioner
// and kin), a scalar stays whole.
struct ps_placement_var {
    const char *name;    // greedy breaks ties by it, so that the order of declaration does not matter
    uint64_t rows;       // first dimension; 1 for a scalar
    uint64_t row_count;  // elements per row
    uint32_t elem_size;  // bytes
    uint32_t slots;      // further copies of the value that the rule keeps: they count for the load
};

struct ps_partition {
    uint32_t var;    // index into vars
    uint64_t first;  // elements
    uint64_t count;
    uint32_t task;
};

// "round_robin" | "greedy" (NULL: greedy); "none" | "fixed:N" | "min_bytes:B" | "max_bytes:B" (B with KiB, MiB, GiB
// suffixes; NULL: none). INVALID_ARGUMENT says what there is.
enum ps_code ps_placement_parse(const char *placement, const char *partitioner, struct ps_placement_spec *spec,
                                struct ps_error *e);

// Cuts each variable along its rows into contiguous parts that differ by at most one row, the longer ones first:
//   fixed:N      N parts, or one per row where there are fewer;
//   min_bytes:B  as many parts as there are tasks, or fewer so that none is smaller than B (one at least);
//   max_bytes:B  as few parts as keep each <= B, or one per row where a row alone is more.
// Then places them: round robin over the partitions in order of (var, first), or greedily, the heaviest first (values
// and slots), each onto the task that has least (the lowest such index).
//
// *out is malloc'd: partitions in order of (var, first). Every task index is < tasks. INVALID_ARGUMENT: no tasks, a
// variable without elements, or bytes beyond 63 bits; RESOURCE_EXHAUSTED: more than PS_MAX_PARTITIONS, or no memory.
enum ps_code ps_placement_plan(const struct ps_placement_spec *spec, const struct ps_placement_var *vars, size_t n_vars,
                               uint32_t tasks, struct ps_partition **out, size_t *n_out, struct ps_error *e);

#endif
