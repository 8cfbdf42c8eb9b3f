// SPDX-License-Identifier: Apache-2.0
//
// What a layer that makes whole numbers of its input gives: the numbers, or vectors that have a place for each.
#ifndef NN_LAYERS_CATEGORIES_H
#define NN_LAYERS_CATEGORIES_H

#include "workerd/nn/layer.h"

enum nn_encoding { NN_AS_INT, NN_AS_ONE_HOT, NN_AS_MULTI_HOT, NN_AS_COUNT, NN_AS_TF_IDF };

// Sets b->out, of numbers like b->in[0]. A vector of one number replaces it: (steps, 1) becomes (steps, depth).
enum ps_code nn_categories_build(struct nn_building *b, enum nn_encoding encoding, int64_t depth, struct ps_error *e);
// Of numbers, int32 like the call's input; weights, which may be -1, are floats like them, and counted instead of ones.
int nn_categories_emit(struct nn_emitter *m, const struct nn_call *call, enum nn_encoding encoding, int64_t depth,
                       int numbers, int weights);
// Whole numbers of the call's input: cut off, where they are floats.
int nn_categories_input(struct nn_emitter *m, const struct nn_call *call);

#endif
