# SPDX-License-Identifier: Apache-2.0
from golden import keras, tf_keras, train

k = keras.layers


def two_ends():
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    x = k.Dense(5, activation="relu", name="both")
    left, right = x(k.Dense(4, name="left")(a)), x(k.Dense(4, name="right")(b))
    sum = k.Add(name="sum")([left, right])
    return keras.Model([a, b], [k.Dense(2, name="far")(sum), k.Dense(3, activation="softmax", name="kind")(left)], name="two")


def tower(layers, model, shape):
    x = i = layers.Input(shape, name="in") if layers is tf_keras.layers else keras.Input(shape, name="in")
    x = layers.Conv2D(3, 3, padding="same", activation="relu", name="c1")(x)
    y = layers.Conv2D(3, 3, padding="same", name="c2")(x)
    x = layers.ReLU(name="r")(layers.Add(name="sum")([x, y]))
    x = layers.Flatten(name="f")(layers.MaxPooling2D(name="p")(x))
    return model(i, layers.Dense(4, name="o")(x), name="tower")


logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train("two_ends", two_ends, ["mse", "sparse_categorical_crossentropy"], rows=12)
train("residual", lambda: tower(k, keras.Model, (6, 5, 2)), logits)
train("residual_keras2", lambda: tower(tf_keras.layers, tf_keras.Model, (6, 5, 2)),
      tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
