# SPDX-License-Identifier: Apache-2.0
#
# Sequences: embeddings, recurrent layers, masks, wrappers, attention.
import numpy as np

from golden import keras, tf_keras, train

K, T = keras.layers, tf_keras.layers
model_of = {K: keras.Model, T: tf_keras.Model}


# Whole numbers below `ids`, which end in zeros; some steps between them are 0, too.
def ids(rows, steps, below):
    def draw(rng):
        x = rng.integers(1, below, (rows, steps)).astype("i4")
        for i, end in enumerate(rng.integers(2, steps + 1, rows)):
            x[i, end:] = 0
        x[0, 1] = 0
        return x

    return draw


def floats(rows, steps, features):
    def draw(rng):
        x = rng.uniform(-1, 1, (rows, steps, features)).astype("f4")
        for i, end in enumerate(rng.integers(2, steps + 1, rows)):
            x[i, end:] = 0
        x[1, 0] = 0
        return x

    return draw


def several(*draws):
    return lambda rng: [d(rng) for d in draws]


def over_ids(L, *layers, mask=True, steps=6, dtype="int32"):
    i = L.Input((steps,), dtype=dtype, name="ids")
    x = L.Embedding(9, 4, mask_zero=mask, name="e")(i)
    for layer in layers:
        x = layer(x)
    return model_of[L](i, L.Dense(2, name="o")(x), name="net")


def over_floats(L, *layers, steps=5, mask=True):
    x = i = L.Input((steps, 3), name="in")
    if mask:
        x = L.Masking(0.0, name="m")(x)
    for layer in layers:
        x = layer(x)
    return model_of[L](i, L.Dense(2, name="o")(x), name="net")


a, f = several(ids(8, 6, 9)), several(floats(8, 5, 3))
train("embedding", lambda: over_ids(K, K.Flatten(name="f"), mask=False), x=a)
train("embedding_float", lambda: over_ids(K, K.LSTM(3, name="l"), dtype="float32"), x=a)
train("embedding_keras2", lambda: over_ids(T, T.Flatten(name="f"), mask=False, dtype="int64"), x=a)
train("simple_rnn", lambda: over_floats(K, K.SimpleRNN(4, return_sequences=True, name="s"), K.SimpleRNN(3, name="t"), mask=False))
train("simple_rnn_masked", lambda: over_floats(K, K.SimpleRNN(3, activation="relu", go_backwards=True, name="s")), x=f)
train("lstm", lambda: over_floats(K, K.LSTM(4, return_sequences=True, go_backwards=True, name="s"), K.LSTM(3, use_bias=False, name="t"), mask=False))
train("lstm_masked", lambda: over_ids(K, K.LSTM(4, return_sequences=True, name="s"), K.Dropout(0.0, name="d"), K.LSTM(3, name="t")), x=a)
train("lstm_keras2", lambda: over_ids(T, T.LSTM(4, return_sequences=True, name="s"), T.LSTM(3, recurrent_activation="hard_sigmoid", name="t")), x=a)
train("lstm_hard", lambda: over_floats(K, K.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", name="t"), mask=False))
train("gru", lambda: over_floats(K, K.GRU(3, name="s"), mask=False))
train("gru_masked", lambda: over_ids(K, K.GRU(4, return_sequences=True, name="s"), K.GRU(3, go_backwards=True, name="t")), x=a)
train("gru_before", lambda: over_floats(K, K.GRU(4, reset_after=False, return_sequences=True, name="s"), K.GRU(3, reset_after=False, use_bias=False, name="t")), x=f)
train("gru_keras2", lambda: over_floats(T, T.GRU(4, return_sequences=True, zero_output_for_mask=True, name="s"), T.GRU(3, use_bias=False, name="t")), x=f)
train("gru_zeroed", lambda: over_floats(K, K.GRU(4, return_sequences=True, zero_output_for_mask=True, name="s"), K.Flatten(name="f")), x=f)
