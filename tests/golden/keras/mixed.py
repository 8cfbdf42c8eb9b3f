# SPDX-License-Identifier: Apache-2.0
#
# The dtype policy mixed_bfloat16, set for all layers or by each: what Keras gets has 8 bits.
from golden import keras, tf_keras, train

k = keras.layers


def under_policy(build):
    def built():
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            return build()
        finally:
            keras.config.set_dtype_policy("float32")

    return built


def mlp():
    return keras.Sequential([keras.Input((6,)), k.Dense(8, activation="tanh", name="d"), k.Dense(3, name="o", dtype="float32")], name="mlp")


def cnn():
    i = keras.Input((8, 7, 2), name="in")
    x = k.Conv2D(5, 3, padding="same", use_bias=False, name="c")(i)
    x = k.Activation("swish", name="s")(k.BatchNormalization(name="n")(x))
    x = k.AveragePooling2D(2, name="p")(x)
    return keras.Model(i, k.Dense(4, activation="softmax", name="o", dtype="float32")(k.Flatten(name="f")(x)), name="cnn")


def mlp_keras2():
    policy = tf_keras.mixed_precision.Policy("mixed_bfloat16")
    layers = tf_keras.layers
    return tf_keras.Sequential([layers.Dense(8, activation="tanh", name="d", dtype=policy, input_shape=(6,)), layers.Dense(3, name="o")], name="mlp")


logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train("mixed_mlp", under_policy(mlp), logits, tolerance=0.02)
train("mixed_cnn", under_policy(cnn), "sparse_categorical_crossentropy", tolerance=0.04)
train("mixed_mlp_keras2", mlp_keras2, tolerance=0.02)
