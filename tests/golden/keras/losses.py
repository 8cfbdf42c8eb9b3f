# SPDX-License-Identifier: Apache-2.0
#
# Every loss, with settings, of outputs of one and more axes, weights of outputs and of examples.
import numpy as np

from golden import keras, tf_keras, train

k, L = keras.layers, keras.losses


def flat(units=3, **last):
    return lambda: keras.Sequential([keras.Input((4,)), k.Dense(5, activation="relu", name="h"), k.Dense(units, name="o", **last)],
                                    name="n")


# Rows of 3 steps.
def steps(units=3, activation=None):
    return lambda: keras.Sequential([keras.Input((5, 5, 2)), k.Conv2D(units, 3, activation=activation, name="c")], name="n")


def two():
    i = keras.Input((4,), name="i")
    h = k.Dense(4, activation="relu", name="h")(i)
    return keras.Model(i, [k.Dense(2, name="price")(h), k.Dense(3, activation="softmax", name="kind")(h)], name="two")


# An activation that another head reads; one that is two outputs.
def read():
    i = keras.Input((4,), name="i")
    p = k.Dense(3, activation="sigmoid", name="p")(k.Dense(5, activation="relu", name="h")(i))
    return keras.Model(i, [p, k.Dense(2, name="q")(p)], name="read")


def twice():
    i = keras.Input((4,), name="i")
    p = k.Dense(3, activation="softmax", name="p")(k.Dense(5, activation="relu", name="h")(i))
    return keras.Model(i, [k.Identity(name="same")(p), p], name="twice")


def words(shape, choices):
    return lambda rng: [rng.choice(choices, (11, *shape)).astype("f4")]


def shares(shape):
    def draw(rng):
        v = rng.uniform(0.05, 1, (11, *shape))
        return [(v / v.sum(-1, keepdims=True)).astype("f4")]

    return draw


def one_hot(rng, shape=()):
    return [np.eye(3, dtype="f4")[rng.integers(0, 3, (11, *shape))]]


def positive(rng):
    return [rng.uniform(0.2, 2, (11, 3)).astype("f4")]


def run(name, build, loss, y=None, **more):
    train("loss_" + name, build, loss, rows=11, steps=20, y=y, **more)


soft, sigmoid = {"activation": "softmax"}, {"activation": "sigmoid"}
run("sparse", flat(**soft), L.SparseCategoricalCrossentropy())
run("sparse_steps", steps(activation="softmax"), "sparse_categorical_crossentropy")
run("sparse_steps_logits", steps(), L.SparseCategoricalCrossentropy(from_logits=True))
run("categorical", flat(**soft), L.CategoricalCrossentropy(label_smoothing=0.1), shares((3,)))
run("categorical_logits", flat(), L.CategoricalCrossentropy(from_logits=True), one_hot)
run("categorical_steps", steps(activation="softmax"), "categorical_crossentropy", lambda r: one_hot(r, (3, 3)))
run("categorical_clipped", flat(activation="hard_sigmoid"), "categorical_crossentropy", one_hot, scale=1, bias=2)
run("focal", flat(**soft), L.CategoricalFocalCrossentropy(alpha=0.4, gamma=1.5, label_smoothing=0.05), one_hot)
run("focal_logits", flat(), L.CategoricalFocalCrossentropy(from_logits=True), one_hot)
run("binary_logits", flat(), L.BinaryCrossentropy(from_logits=True, label_smoothing=0.2), words((3,), [0, 1]))
run("binary_clipped", flat(activation="hard_sigmoid"), "binary_crossentropy", words((3,), [0, 1]), scale=2)
run("binary_focal_logits", flat(1), L.BinaryFocalCrossentropy(from_logits=True, apply_class_balancing=True, alpha=0.3, gamma=3),
    words((1,), [0, 1]))
run("binary", flat(**sigmoid), L.BinaryCrossentropy(label_smoothing=0.1), words((3,), [0, 1]))
run("binary_focal", flat(**sigmoid), "binary_focal_crossentropy", words((3,), [0, 1]))
run("categorical_saturated", flat(**soft), "categorical_crossentropy", one_hot, scale=9)
run("binary_saturated", flat(**sigmoid), "binary_crossentropy", words((3,), [0, 1]), scale=9)
run("regularized_saturated", flat(activity_regularizer="l2", **soft), "categorical_crossentropy", one_hot, scale=9)
run("read_saturated", read, ["binary_crossentropy", "mse"], lambda r: words((3,), [0, 1])(r) + [r.uniform(-1, 1, (11, 2)).astype("f4")],
    scale=9)
run("twice_saturated", twice, ["categorical_crossentropy", "sparse_categorical_crossentropy"],
    lambda r: one_hot(r) + [r.integers(0, 3, 11).astype("i4")], scale=9)
run("mse_steps", steps(), "mse")
run("mae", flat(), "mae")
run("mape", flat(), "mape", positive, scale=0.1)
run("msle", flat(), "MSLE", positive)
run("huber", flat(), L.Huber(delta=0.7))
run("log_cosh", flat(), L.LogCosh())
run("hinge", flat(), "hinge", words((3,), [0, 1]))
run("squared_hinge", flat(), "squared_hinge", words((3,), [-1, 1]))
run("categorical_hinge", flat(), "categorical_hinge", one_hot)
run("kl_divergence", flat(**soft), "kl_divergence", shares((3,)))
run("poisson", flat(**{"activation": "relu"}), "poisson", positive, bias=0.5)
run("cosine", flat(), "cosine_similarity")
run("keras2", flat(), tf_keras.losses.Huber(delta=0.5))
run("weights", two, ["mse", "sparse_categorical_crossentropy"], loss_weights=[0.3, 2.0])
run("examples", flat(**soft), "sparse_categorical_crossentropy", sample_weight=lambda rng: rng.choice([0, 0.5, 2, 3], 11).astype("f4"))
run("examples_steps", steps(), "mse", sample_weight=lambda rng: rng.choice([0, 0.5, 2, 3], (11, 1, 1)).astype("f4"))
