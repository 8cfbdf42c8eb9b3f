// SPDX-License-Identifier: Apache-2.0
//
// What stands under which name, found by a hash: for long lists in which no name may be there twice. The names are the
// caller's and live as long as the table, which is {0} before the first. Threads: one per struct.
#ifndef PS_COMMON_NAME_TABLE_H
#define PS_COMMON_NAME_TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct ps_name_table {
    struct ps_name_entry {
        const char *name;  // NULL: the place is free
        void *what;
    } * at;
    size_t n, room;  // room: a power of 2, or 0
};

// What was put under a name, or NULL.
void *ps_name_table_find(const struct ps_name_table *names, const char *name);
// Puts what, which is not NULL, under a name that is not there. False: no memory, and the table is as it was.
bool ps_name_table_put(struct ps_name_table *names, const char *name, void *what);
void ps_name_table_free(struct ps_name_table *names);  // what was put stays; the table is {0} again

#endif
