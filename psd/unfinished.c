// SPDX-License-Identifier: Apache-2.0
#include "psd/service.h"

#define UNFINISHED(name)                                                          \
    int name(struct psd_turn *t)                                                  \
    {                                                                             \
        return ps_fail(&t->error, PS_UNIMPLEMENTED, #name " is not written yet"); \
    }

UNFINISHED(psd_assign_sub)
UNFINISHED(psd_push_pull)
UNFINISHED(psd_reduce)
UNFINISHED(psd_clock)
UNFINISHED(psd_waits)
UNFINISHED(psd_drain)
