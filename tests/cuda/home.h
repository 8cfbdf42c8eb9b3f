// SPDX-License-Identifier: Apache-2.0
//
// A home of variables that does at once all that a home may do with a variable: home.c is compiled to be watched, so
// that the emulator sees whether the replica still uses that memory.
#ifndef TESTS_CUDA_HOME_H
#define TESTS_CUDA_HOME_H

#include "workerd/nn/model.h"

enum { HOME_VARIABLES = 16 };

struct home {
    const struct nn_model *model;
    struct nn_replica *replica;
    float rate;
    size_t needed[HOME_VARIABLES], ready[HOME_VARIABLES];  // in this order
    size_t n_needed, n_ready;
    size_t refuse;                    // 1 + the variable that never comes; 0: all do
    size_t most;                      // after so many are ready no more are wanted; 0: all are
    float *gradient[HOME_VARIABLES];  // where it is not NULL: a copy
};

// Applies the gradient when it is ready.
struct nn_hooks home_hooks(struct home *home);

#endif
