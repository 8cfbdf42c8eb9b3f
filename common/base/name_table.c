// SPDX-License-Identifier: Apache-2.0
#include "common/base/name_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"

enum { NAME_TABLE_FIRST_ROOM = 16 };

// Where the name is, or the free place where it would be. There is room.
static struct ps_name_entry *name_table_place(const struct ps_name_table *names, const char *name)
{
    size_t i = (size_t)ps_hash(PS_HASH_SEED, name, strlen(name));
    for (;; i++) {
        struct ps_name_entry *place = &names->at[i & (names->room - 1)];
        if (!place->name || strcmp(place->name, name) == 0)
            return place;
    }
}

void *ps_name_table_find(const struct ps_name_table *names, const char *name)
{
    return names->room ? name_table_place(names, name)->what : NULL;
}

static bool name_table_grow(struct ps_name_table *names)
{
    struct ps_name_table more = {.n = names->n, .room = names->room ? names->room * 2 : NAME_TABLE_FIRST_ROOM};
    more.at = ps_try_alloc_array(more.room, sizeof *more.at);
    if (!more.at)
        return false;
    for (size_t i = 0; i < names->room; i++)
        if (names->at[i].name)
            *name_table_place(&more, names->at[i].name) = names->at[i];
    free(names->at);
    *names = more;
    return true;
}

bool ps_name_table_put(struct ps_name_table *names, const char *name, void *what)
{
    if ((names->n + 1) * 2 > names->room && !name_table_grow(names))
        return false;
    *name_table_place(names, name) = (struct ps_name_entry){name, what};
    names->n++;
    return true;
}

void ps_name_table_free(struct ps_name_table *names)
{
    free(names->at);
    *names = (struct ps_name_table){NULL};
}
