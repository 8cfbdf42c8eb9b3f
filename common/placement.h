// SPDX-License-Identifier: Apache-2.0
// Which ps task owns which part of which variable. Pure; used by libclient (the chief's declaration) and
// psctl plan.
#ifndef PS_COMMON_PLACEMENT_H
#define PS_COMMON_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum ps_placement { PS_ROUND_ROBIN, PS_GREEDY };
enum ps_partitioner { PS_PARTITION_NONE, PS_PARTITION_FIXED, PS_PARTITION_MIN_BYTES, PS_PARTITION_MAX_BYTES };

struct ps_placement_spec {
    enum ps_placement placement;
    enum ps_partitioner partitioner;
    uint64_t partitioner_arg; // fixed: parts; min_bytes, max_bytes: bytes of values
};

// A variable as placement sees it: its first dimension is what partitions are cut along
// (tf.fixed_size_partitioner and kin), a scalar stays whole.
struct ps_placement_var {
    const char *name;   // greedy breaks ties by it, so that the order of declaration does not matter
    uint64_t rows;      // first dimension; 1 for a scalar
    uint64_t row_count; // elements per row
    uint32_t elem_size; // bytes
    uint32_t slots;     // further copies of the value that the rule keeps: they count for the load
};

struct ps_partition {
    uint32_t var;   // index into vars
    uint64_t first; // elements
    uint64_t count;
    uint32_t task;
};

// "round_robin" | "greedy"; "none" | "fixed:N" | "min_bytes:B" | "max_bytes:B" (B with KiB, MiB, GiB
// suffixes).
enum ps_code ps_placement_parse(const char *placement, const char *partitioner,
                                struct ps_placement_spec *spec, struct ps_error *e);

// *out is malloc'd: partitions in order of (var, first). Every task index is < tasks.
enum ps_code ps_placement_plan(const struct ps_placement_spec *spec, const struct ps_placement_var *vars,
                               size_t n_vars, uint32_t tasks, struct ps_partition **out, size_t *n_out,
                               struct ps_error *e);

#endif
