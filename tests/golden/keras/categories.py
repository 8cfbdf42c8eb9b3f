# SPDX-License-Identifier: Apache-2.0
#
# Features that are categories: vocabularies, bins, places.
import numpy as np

from golden import keras, tf_keras, train

K, T = keras.layers, tf_keras.layers
model_of = {K: keras.Model, T: tf_keras.Model}


def numbers(low, high, *shape):
    return lambda rng: rng.integers(low, high, (8, *shape)).astype("i4")


def floats(*shape):
    return lambda rng: rng.uniform(-1, 1, (8, *shape)).astype("f4")


def several(*draws):
    return lambda rng: [d(rng) for d in draws]


# What the numbers are: a vector each, or an embedding of one.
def joined(L, inputs, vectors):
    x = L.Concatenate(name="c")(vectors) if len(vectors) > 1 else vectors[0]
    return model_of[L](inputs, L.Dense(2, name="o")(L.Dense(3, activation="tanh", name="h")(x)), name="net")


def encoded(L):
    a, b = L.Input((1,), dtype="int32", name="a"), L.Input((4,), dtype="int32", name="b")
    w, f = L.Input((4,), name="w"), L.Input((3,), name="f")
    count = L.CategoryEncoding(5, output_mode="count", name="count")
    x = [L.CategoryEncoding(6, output_mode="one_hot", name="one")(a), L.CategoryEncoding(5, name="multi")(b), count(b)]
    x += [count(b, count_weights=w), L.CategoryEncoding(2, output_mode="multi_hot", name="floats")(L.Rescaling(0.5, 0.6, name="r")(f))]
    return joined(L, [a, b, w, f], x)


def bins(L):
    i, j = L.Input((1,), name="i"), L.Input((3,), name="j")
    e = L.Embedding(4, 2, name="e")(L.Discretization([-0.5, 0.0, 0.25], name="d")(j))
    x = [L.Discretization([-0.5, 0.5], output_mode="one_hot", name="one")(i), L.Flatten(name="f")(e)]
    return joined(L, [i, j], x + [L.Discretization([0.0], output_mode="count", name="count")(j)])


def integers(L):
    i, j, k = [L.Input(s, dtype="int64", name=n) for n, s in (("i", (4,)), ("j", (1,)), ("k", (3,)))]
    ids = L.IntegerLookup(vocabulary=[12, -3, 7, 1], mask_token=0, num_oov_indices=2, name="ids")(i)
    e = L.LSTM(3, name="l")(L.Embedding(7, 2, mask_zero=True, name="e")(ids))
    one = L.IntegerLookup(vocabulary=[5, 3, 4, 2], num_oov_indices=0, output_mode="one_hot", name="one")(j)
    times = L.IntegerLookup(vocabulary=[1, 2, 3], output_mode="tf_idf", idf_weights=[0.5, 1.5, 0.3], name="times")(k)
    many = L.IntegerLookup(vocabulary=[1, 3], mask_token=2, max_tokens=6, pad_to_max_tokens=True, output_mode="count", name="many")(k)
    return joined(L, [i, j, k], [e, one, times, many])


words = ["red", "green", "dark blue", "\u00fc", ""]


def strings(L):
    i, j = L.Input((1,), dtype="string", name="i"), L.Input((3,), dtype="string", name="j")
    ids = L.StringLookup(vocabulary=words[:4], mask_token="", name="ids")(j)
    e = L.GlobalAveragePooling1D(name="p")(L.Embedding(6, 2, mask_zero=True, name="e")(ids))
    one = L.StringLookup(vocabulary=["[UNK]"] + words[:4], mask_token="", output_mode="one_hot", name="one")(i)
    return joined(L, [i, j], [e, one, L.StringLookup(vocabulary=words[:4], mask_token="", output_mode="count", name="n")(j)])


def some(*shape):
    def draw(rng):
        v = np.array(words + ["other"])[rng.integers(0, 6, (8, *shape))]
        if len(v[0]) > 1:
            v[:, 0] = words[0]  # a mean of nothing is none
        return v

    return draw


ids = several(numbers(-3, 13, 4), numbers(2, 6, 1), numbers(0, 5, 3))
for end, L in (("", K), ("_keras2", T)):
    train("encoded" + end, lambda: encoded(L), x=several(numbers(0, 6, 1), numbers(0, 5, 4), floats(4), floats(3)))
    train("bins" + end, lambda: bins(L), x=several(floats(1), floats(3)))
    train("integer_lookup" + end, lambda: integers(L), x=ids)
    train("string_lookup" + end, lambda: strings(L), x=several(some(1), some(3)), words=words)
