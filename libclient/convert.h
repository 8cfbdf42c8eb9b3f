// SPDX-License-Identifier: Apache-2.0
// Errors cross the public boundary: psclient.h stands alone, so it has a psc_error of its own.
#ifndef PSC_CONVERT_H
#define PSC_CONVERT_H

#include <string.h>

#include "common/base/error.h"
#include "libclient/psclient.h"

_Static_assert(sizeof(struct ps_error) == sizeof(psc_error), "psc_error is ps_error under its public name");
_Static_assert((int)PSC_UNAUTHENTICATED == (int)PS_UNAUTHENTICATED, "the codes are the same");

// to may be NULL. On success the text is empty.
static inline psc_code psc__error_out(const struct ps_error *from, psc_error *to)
{
    if (to) {
        to->code = (psc_code)from->code;
        memcpy(to->text, from->text, sizeof to->text);
        if (from->code == PS_OK)
            to->text[0] = 0;
    }
    return (psc_code)from->code;
}

#endif
