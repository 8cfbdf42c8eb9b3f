// SPDX-License-Identifier: Apache-2.0
//
// Files that two programs must not both write: a lock beside them, which names its owner. The kernel lets it go when
// the owner's process ends, however that ends. It is seen from all hosts that share the folder, where its file system
// has locks (flock(2); NFS has).
#ifndef PS_COMMON_LOCK_H
#define PS_COMMON_LOCK_H

#include "common/base/error.h"

struct ps_lock {
    char *path;  // NULL: not held
    int fd;
};

// owner: who may hold it together, as one of them takes the place of another: a line. holder: who this is, for people:
// a line. Returns OK also where another process of that owner holds it, and where the file system has no locks, and
// then holds nothing. ALREADY_EXISTS: another owner does; the text names its holder and the file. CANNOT_CREATE:
// also where the file is something else's, which stays. ps_lock_release follows in any case.
enum ps_code ps_lock_take(struct ps_lock *lock, const char *path, const char *owner, const char *holder,
                          struct ps_error *e);
// Removes the file, if it is held.
void ps_lock_release(struct ps_lock *lock);

#endif
