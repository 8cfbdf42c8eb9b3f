// SPDX-License-Identifier: Apache-2.0
#ifndef WK_SUPPORTED_H
#define WK_SUPPORTED_H

// On standard output: the layers, activations, losses, metrics, optimizers, schedules and callbacks that there are,
// from the tables that are read by. README's table is this.
void wk_print_supported(void);

#endif
