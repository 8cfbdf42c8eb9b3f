// SPDX-License-Identifier: Apache-2.0
#ifndef EMU_HOST_CODE_H
#define EMU_HOST_CODE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Copies numbers to a device and back: are they the same?
bool host_code_copies(void);

#ifdef __cplusplus
}
#endif

#endif
