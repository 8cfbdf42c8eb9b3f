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
train("simple_rnn_masked", lambda: over_floats(K, K.SimpleRNN(3, activation="relu", go_backwards=True, name="s")), x=f)
train("lstm", lambda: over_floats(K, K.LSTM(4, return_sequences=True, go_backwards=True, name="s"), K.LSTM(3, use_bias=False, name="t"), mask=False))
train("lstm_masked", lambda: over_ids(K, K.LSTM(4, return_sequences=True, name="s"), K.Dropout(0.0, name="d"), K.LSTM(3, name="t")), x=a)
train("lstm_keras2", lambda: over_ids(T, T.LSTM(4, return_sequences=True, name="s"), T.LSTM(3, recurrent_activation="hard_sigmoid", name="t")), x=a)
train("gru_masked", lambda: over_ids(K, K.GRU(4, return_sequences=True, name="s"), K.GRU(3, go_backwards=True, name="t")), x=a)
train("gru_before", lambda: over_floats(K, K.GRU(4, reset_after=False, return_sequences=True, name="s"), K.GRU(3, reset_after=False, use_bias=False, name="t")), x=f)
train("gru_keras2", lambda: over_floats(T, T.GRU(4, return_sequences=True, zero_output_for_mask=True, name="s"), T.GRU(3, use_bias=False, name="t")), x=f)
train("gru_zeroed", lambda: over_floats(K, K.GRU(4, return_sequences=True, zero_output_for_mask=True, name="s"), K.Flatten(name="f")), x=f)


def wide(L, layer, flat=None):
    return over_ids(L, layer, *([flat] if flat else []))


def distributed(L, *inner):
    x = i = L.Input((4, 3, 2), name="in")
    for k, layer in enumerate(inner):
        x = L.TimeDistributed(layer, name=f"t{k}")(x)
    return model_of[L](i, L.Dense(2, name="o")(L.LSTM(3, name="l")(x)), name="net")


def attention(L, causal, **settings):
    x = i = L.Input((4, 3), name="in")
    y = L.MultiHeadAttention(2, 3, name="a", **settings)(x, x, use_causal_mask=causal)
    y = L.Flatten(name="f")(L.Add(name="sum")([x, y]))
    return model_of[L](i, L.Dense(2, name="o")(y), name="net")


# Ids attend to other ids, whose mask counts; and their own, where `both`.
def cross(L, both, **settings):
    i, j = L.Input((4,), dtype="int32", name="i"), L.Input((6,), dtype="int32", name="j")
    x, z = L.Embedding(9, 4, mask_zero=both, name="x")(i), L.Embedding(9, 5, mask_zero=True, name="z")(j)
    y = L.MultiHeadAttention(2, 3, name="a", **settings)(x, value=z)
    return model_of[L]([i, j], L.Dense(2, name="o")(L.Flatten(name="f")(y)), name="net")


# A query, a value and a key of their own.
def three(L):
    i = [L.Input((n, d), name=name) for name, n, d in (("q", 3, 2), ("v", 5, 4), ("k", 5, 3))]
    m = L.Masking(name="m")(i[2])
    y = L.MultiHeadAttention(3, 2, value_dim=4, name="a")(query=i[0], value=i[1], key=m)
    return model_of[L](i, L.Dense(2, name="o")(L.Flatten(name="f")(y)), name="net")


# The title of a ticket and what else is known of it: how urgent it is, and whose it is.
def ticket(L):
    title, known = L.Input((6,), dtype="int32", name="title"), L.Input((3,), name="known")
    x = L.LSTM(4, name="lstm")(L.Embedding(9, 4, mask_zero=True, name="words")(title))
    x = L.Add(name="both")([x, L.Dense(4, activation="relu", name="other")(known)])
    outputs = [L.Dense(1, name="urgency")(x), L.Dense(3, activation="softmax", name="department")(x)]
    return model_of[L]([title, known], outputs, name="ticket")


# One recurrent layer reads two inputs, of which one has a mask.
def shared(L):
    a, b = L.Input((5, 3), name="a"), L.Input((4, 3), name="b")
    r = L.GRU(3, name="r")
    y = L.Add(name="sum")([r(L.Masking(name="m")(a)), r(b)])
    return model_of[L]([a, b], L.Dense(2, name="o")(y), name="net")


def inputs(*shapes):
    return several(*(ids(8, *s) if len(s) == 2 and s[1] == 9 else floats(8, *s) for s in shapes))


train("bidirectional", lambda: wide(K, K.Bidirectional(K.LSTM(3, return_sequences=True), name="b"), K.Flatten(name="f")), x=a)
train("bidirectional_last", lambda: wide(K, K.Bidirectional(K.GRU(3), merge_mode="mul", name="b")), x=a)
train("bidirectional_two", lambda: over_floats(K, K.Bidirectional(K.LSTM(3), backward_layer=K.GRU(3, go_backwards=True, name="back"), merge_mode="sum", name="b")), x=f)
train("bidirectional_keras2", lambda: wide(T, T.Bidirectional(T.GRU(3, return_sequences=True), merge_mode="sum", name="b"), T.Flatten(name="f")), x=a)
train("distributed", lambda: distributed(K, K.Bidirectional(K.LSTM(2, return_sequences=True)), K.Flatten(), K.Dense(3, activation="relu"), K.Dropout(0.0)))
train("distributed_keras2", lambda: distributed(T, T.Flatten()))
train("attention_causal", lambda: attention(K, True, use_bias=False, value_dim=5))
train("attention_keras2", lambda: attention(T, True, value_dim=2))
train("cross", lambda: cross(K, True), x=inputs((4, 9), (6, 9)))
train("cross_keras2", lambda: cross(T, False), x=inputs((4, 9), (6, 9)))
train("cross_three", lambda: three(K), x=inputs((3, 2), (5, 4), (5, 3)))
ticket_losses = ["mse", "sparse_categorical_crossentropy"]
known = lambda rng: rng.uniform(-1, 1, (8, 3)).astype("f4")
train("ticket", lambda: ticket(K), ticket_losses, x=several(ids(8, 6, 9), known))
train("ticket_keras2", lambda: ticket(T), ticket_losses, x=several(ids(8, 6, 9), known))
train("shared_recurrent", lambda: shared(K), x=inputs((5, 3), (4, 3)))


# A loss of each step, where the mask counts; the mask stands to the end of the model.
def tagger(L):
    i = L.Input((6,), dtype="int32", name="ids")
    x = L.Bidirectional(L.LSTM(3, return_sequences=True), name="b")(L.Embedding(9, 4, mask_zero=True, name="e")(i))
    return model_of[L](i, L.Dense(3, activation="softmax", name="o")(x), name="net")


train("tagger", lambda: tagger(K), "sparse_categorical_crossentropy", x=a)
train("tagger_keras2", lambda: tagger(T), "sparse_categorical_crossentropy", x=a)


# Two masks become one, which Keras 3 writes into the document.
def merged(L):
    i, j = L.Input((6,), dtype="int32", name="i"), L.Input((6,), dtype="int32", name="j")
    x = L.Add(name="sum")([L.Embedding(9, 4, mask_zero=True, name="x")(i), L.Embedding(9, 4, mask_zero=True, name="y")(j)])
    return model_of[L]([i, j], L.Dense(2, name="o")(L.LSTM(3, name="l")(x)), name="net")


train("merged_masks", lambda: merged(K), x=inputs((6, 9), (6, 9)))
train("merged_masks_keras2", lambda: merged(T), x=inputs((6, 9), (6, 9)))
# Keras 3 leaves out what the masks of the values leave out, of two masks, of one, and of one beside values without.
def merged_values(L):
    i, j, f = L.Input((6,), dtype="int32", name="i"), L.Input((6,), dtype="int32", name="j"), L.Input((6, 4), name="f")
    x, y = L.Embedding(9, 4, mask_zero=True, name="x")(i), L.Embedding(9, 4, mask_zero=True, name="y")(j)
    gate, narrow = L.Dense(4, activation="sigmoid", name="gate")(x), L.Dense(1, name="narrow")(y)
    short = L.Reshape((1, 4), name="short")(L.Dense(4, name="all")(L.Flatten(name="flat")(f)))
    pairs = [x, y], [x, gate], [f, x], [y, f, x], [x, narrow], [short, y], [x, y, gate]
    parts = [L.LSTM(3, name="l")(L.Multiply(name="last")([x, y]))]
    for kind in (L.Multiply, L.Maximum, L.Minimum):
        pooled = [L.GlobalMaxPooling1D(name=f"{kind.__name__}p{k}")(kind(name=f"{kind.__name__}{k}")(of)) for k, of in enumerate(pairs)]
        parts.append(L.Concatenate(name=kind.__name__)(pooled))
    return model_of[L]([i, j, f], L.Dense(2, name="o")(L.Concatenate(name="c")(parts)), name="net")


# A mask that the model makes by itself.
def own_mask():
    i, j = keras.Input((6,), dtype="int32", name="i"), keras.Input((6,), dtype="int32", name="j")
    mask = keras.ops.logical_and(keras.ops.not_equal(i, 0), keras.ops.not_equal(j, 3))
    return keras.Model([i, j], K.LSTM(3, name="r")(K.Embedding(9, 4, name="e")(i), mask=mask), name="net")


train("merged_values", lambda: merged_values(K), x=inputs((6, 9), (6, 9), (6, 4)))
train("merged_values_keras2", lambda: merged_values(T), x=inputs((6, 9), (6, 9), (6, 4)))
train("own_mask", own_mask, x=inputs((6, 9), (6, 9)))
train("pooled_mask", lambda: over_ids(K, K.GlobalAveragePooling1D(name="p")), x=a)
train("pooled_mask_keras2", lambda: over_ids(T, T.GlobalAveragePooling1D(name="p")), x=a)


# ---- states -----------------------------------------------------------------------------------------------------------

# What an encoder leaves is where its decoder begins.
def translator(L, cell, **settings):
    i, j = L.Input((6,), dtype="int32", name="i"), L.Input((5,), dtype="int32", name="j")
    x, z = L.Embedding(9, 4, mask_zero=True, name="x")(i), L.Embedding(9, 3, mask_zero=True, name="z")(j)
    state = cell(4, return_state=True, name="encoder", **settings)(x)[1:]
    y = cell(4, return_sequences=True, name="decoder", **settings)(z, initial_state=state if len(state) > 1 else state[0])
    return model_of[L]([i, j], L.Dense(3, activation="softmax", name="o")(y), name="net")


# Both ways of the encoder together.
def wide_translator(L):
    i, j = L.Input((5, 3), name="i"), L.Input((4, 3), name="j")
    y, a, b, c, d = L.Bidirectional(L.LSTM(2, return_sequences=True, return_state=True), name="encoder")(L.Masking(name="m")(i))
    state = [L.Concatenate(name="h")([a, c]), L.Concatenate(name="c")([b, d])]
    z, h, c = L.LSTM(4, return_sequences=True, return_state=True, name="decoder")(j, initial_state=state)
    parts = [L.Flatten(name="f")(y), L.Flatten(name="g")(z), h, c]
    return model_of[L]([i, j], L.Dense(2, name="o")(L.Concatenate(name="all")(parts)), name="net")


# A state that is not 0 before a step that is masked.
def first_masked(L, **settings):
    i, j = L.Input((5, 3), name="i"), L.Input((4,), name="j")
    state = L.Dense(4, activation="tanh", name="d")(j)
    y, h = L.GRU(4, return_sequences=True, return_state=True, name="g", **settings)(L.Masking(name="m")(i), initial_state=state)
    z = L.SimpleRNN(4, go_backwards=True, name="s")(y, initial_state=h)
    return model_of[L]([i, j], L.Dense(2, name="o")(L.Concatenate(name="c")([L.Flatten(name="f")(y), z])), name="net")


def held(L, api):
    r, c = api.regularizers, api.constraints
    i = L.Input((6,), dtype="int32", name="ids")
    x = L.Embedding(9, 4, embeddings_regularizer=r.L2(0.01), embeddings_constraint=c.NonNeg(), name="e")(i)
    x = L.LSTM(3, return_sequences=True, kernel_regularizer=r.L2(0.02), recurrent_regularizer=r.L1(0.01), bias_regularizer="l2",
               activity_regularizer=r.L2(0.01), kernel_constraint=c.MaxNorm(0.7), name="l")(x)
    x = L.Bidirectional(L.GRU(2, recurrent_regularizer="l1", activity_regularizer=r.L1(0.01)), name="b")(x)
    return model_of[L](i, L.Dense(2, name="o")(x), name="net")


pair = inputs((6, 9), (5, 9))
state = lambda rng: rng.uniform(-1, 1, (8, 4)).astype("f4")
for end, L, api in (("", K, keras), ("_keras2", T, tf_keras)):
    train("translator" + end, lambda: translator(L, L.LSTM), "sparse_categorical_crossentropy", x=pair)
    train("translator_gru" + end, lambda: translator(L, L.GRU, reset_after=False), "sparse_categorical_crossentropy", x=pair)
    train("wide_translator" + end, lambda: wide_translator(L), x=inputs((5, 3), (4, 3)))
    train("first_masked" + end, lambda: first_masked(L), x=several(floats(8, 5, 3), state))
    train("held" + end, lambda: held(L, api), x=a)
train("first_masked_zeroed", lambda: first_masked(K, zero_output_for_mask=True), x=several(floats(8, 5, 3), state))


# ---- masks that are joined, and masks of pairs ---------------------------------------------------------------------------

def joined(L, axis, second):
    i, j = L.Input((5,), dtype="int32", name="i"), L.Input((5, 4), name="j")
    x = L.Embedding(9, 4, mask_zero=True, name="x")(i)
    y = L.Masking(name="m")(j) if second else j
    z = L.Concatenate(axis=axis, name="c")([x, y])
    return model_of[L]([i, j], L.Dense(2, name="o")(L.LSTM(3, name="l")(z)), name="net")


# Of each pair of steps; of all steps of the query together, and the value's own.
def of_pairs(L, **settings):
    i, j = L.Input((4, 3), name="i"), L.Input((5,), dtype="int32", name="j")
    m, n = L.Input((4, 5), dtype="bool", name="m"), L.Input((1, 5), dtype="bool", name="n")
    z = L.Embedding(9, 3, mask_zero=True, name="z")(j)
    y = L.MultiHeadAttention(2, 3, name="a", kernel_regularizer="l2", dropout=0.0, **settings)(i, z, attention_mask=m)
    y = L.MultiHeadAttention(1, 2, name="b")(y, L.Embedding(9, 3, mask_zero=True, name="w")(j), attention_mask=n)
    return model_of[L]([i, j, m, n], L.Dense(2, name="o")(L.Flatten(name="f")(y)), name="net")


def truths(*shape):
    def draw(rng):
        v = rng.uniform(0, 1, (8, *shape)) < 0.7
        v[..., 0] = True  # a step that may look at nothing differs between the two Kerases
        return v

    return draw


# Attention of Keras 3 takes the masks off what it has read: the next that reads it finds none.
def stacked(L):
    i = L.Input((4,), dtype="int32", name="i")
    x = L.Embedding(9, 4, mask_zero=True, name="x")(i)
    for k in "ab":
        x = L.Add(name="add" + k)([x, L.MultiHeadAttention(2, 3, name=k)(x, x, use_causal_mask=k == "b")])
    return model_of[L](i, L.Dense(2, name="o")(L.LSTM(3, name="l")(x)), name="net")


both_masked = several(ids(8, 5, 9), floats(8, 5, 4))
for end, L in (("", K), ("_keras2", T)):
    train("joined_features" + end, lambda: joined(L, -1, True), x=both_masked)
    train("joined_half" + end, lambda: joined(L, -1, False), x=both_masked)
    train("joined_steps" + end, lambda: joined(L, 1, True), x=both_masked)
    train("stacked" + end, lambda: stacked(L), x=inputs((4, 9)))
    train("of_pairs" + end, lambda: of_pairs(L), x=several(floats(8, 4, 3), ids(8, 5, 9), truths(4, 5), truths(1, 5)))
train("joined_steps_half", lambda: joined(K, 1, False), x=both_masked)
