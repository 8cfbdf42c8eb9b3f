// SPDX-License-Identifier: Apache-2.0
// What is declared: variables, the partitions they are cut into, who owns these, and the versions this client's pulls
// met. Constant once made, except versions and marks, which the client's lock guards.
#ifndef PSC_LAYOUT_H
#define PSC_LAYOUT_H

#include "common/base/error.h"
#include "common/base/name_table.h"
#include "common/plan/placement.h"
#include "libclient/psclient.h"

struct psc__partition {
    uint32_t variable;
    uint32_t task;
    uint64_t first, count;  // elements of the variable
    uint64_t first_block;   // index into versions
};

struct psc__variable {
    psc_variable is;       // owns name, shape, rule and hypers
    uint64_t count;        // elements
    uint32_t elem_size;    // 0: strings
    uint32_t block_elems;  // elements per block
    uint32_t first_partition, n_partitions;
    uint64_t mark;  // the last operation that named it,
    uint32_t nth;   // and its first tensor that did
};

struct psc__layout {
    struct psc__variable *variables;
    size_t n_variables;
    struct psc__partition *partitions;  // by variable, then first
    size_t n_partitions;
    uint64_t *versions;  // per block
    uint64_t n_blocks;
    uint64_t marks;              // operations so far
    struct ps_name_table names;  // of the variables
};

// Copies all. INVALID_ARGUMENT: an empty or repeated name, a shape or dtype that is none, partitions that do not cover
// their variables in order, an owner that is not among the tasks. RESOURCE_EXHAUSTED: no memory.
enum ps_code psc__layout_create(const psc_variable *variables, size_t n_variables,
                                const struct ps_partition *partitions, size_t n_partitions, uint32_t tasks,
                                uint64_t block_bytes, struct psc__layout **layout, struct ps_error *e);
void psc__layout_free(struct psc__layout *l);

struct psc__variable *psc__layout_find(const struct psc__layout *l, const char *name);  // NULL: no such variable
// NOT_FOUND, with the nearest name there is.
enum ps_code psc__layout_no_such(const struct psc__layout *l, const char *name, struct ps_error *e);

// Blocks that a range of a partition touches; *first is an index into versions.
uint64_t psc__layout_blocks(const struct psc__variable *v, const struct psc__partition *p, uint64_t range_first,
                            uint64_t range_count, uint64_t *first);

#endif
