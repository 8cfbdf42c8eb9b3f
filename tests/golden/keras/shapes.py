# SPDX-License-Identifier: Apache-2.0
from golden import keras, tf_keras, train

k = keras.layers


def net(layers, model, shape, *between):
    x = i = layers.Input(shape, name="in") if layers is tf_keras.layers else keras.Input(shape, name="in")
    for layer in between:
        x = layer(x)
    return model(i, layers.Dense(2, name="o")(x), name="net")


def both(name, shape, *between):
    train(name, lambda: net(k, keras.Model, shape, *[make(k) for make in between]))
    train(name + "_keras2", lambda: net(tf_keras.layers, tf_keras.Model, shape, *[make(tf_keras.layers) for make in between]))


dense = lambda n, name: lambda layers: layers.Dense(n, name=name)
both("reshape", (6,), dense(12, "d"), lambda layers: layers.Reshape((3, -1), name="r"), dense(3, "e"))
both("permute", (4, 3), dense(5, "d"), lambda layers: layers.Permute((2, 1), name="p"), dense(3, "e"))
both("repeat", (4,), dense(5, "d"), lambda layers: layers.RepeatVector(3, name="r"), dense(3, "e"))
