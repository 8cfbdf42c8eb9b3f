// SPDX-License-Identifier: Apache-2.0
#ifndef WK_SUPPORTED_H
#define WK_SUPPORTED_H

// On standard output: the layers, activations, losses, metrics, optimizers, schedules, callbacks and kinds of data that
// there are, from the tables by which they are read; README has the same. Then each loss and metric with its settings,
// and each kind of data, in a line.
void wk_print_supported(void);

#endif
