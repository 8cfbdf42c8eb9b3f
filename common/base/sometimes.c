// SPDX-License-Identifier: Apache-2.0
#include "common/base/sometimes.h"

_Atomic uint64_t ps_sometimes_met[PS_N_SOMETIMES];

const char *ps_sometimes_text(enum ps_sometimes what)
{
    static const char *const texts[] = {
#define X(NAME, text) text,
        PS_SOMETIMES(X)
#undef X
    };
    return texts[what];
}
