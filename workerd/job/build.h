// SPDX-License-Identifier: Apache-2.0
#ifndef WK_BUILD_H
#define WK_BUILD_H

// On standard output, as JSON: what this build and this machine have for a training, an object each of "what", "has",
// "finding", and where something is missing "advice": one sentence each. `psctl check-build` shows it.
void wk_print_build(void);

#endif
