// SPDX-License-Identifier: Apache-2.0
//
// The settings of SimpleRNN, LSTM and GRU; Bidirectional changes two of them.
#ifndef NN_LAYERS_RNN_H
#define NN_LAYERS_RNN_H

#include "workerd/nn/layer.h"
#include "workerd/nn/ops/rnn.h"

struct nn_recurrent {
    int units;
    struct nn_function act, gate;  // as the document has them
    enum nn_rnn_function rnn_act, rnn_gate;
    double dropout;  // of the inputs
    bool use_bias, sequences, backwards, zero_masked, forget_bias, reset_after;
};

extern const struct nn_layer_class nn_layer_simple_rnn, nn_layer_lstm, nn_layer_gru;

bool nn_layer_is_recurrent(const struct nn_layer *l);

#endif
