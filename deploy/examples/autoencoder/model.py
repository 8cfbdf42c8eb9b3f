# SPDX-License-Identifier: Apache-2.0
# Makes model.json: a digit of 784 pixels through 16 numbers, and back.
import keras
from keras import layers

image = keras.Input((28, 28, 1), name="image")
x = layers.Conv2D(16, 3, 2, padding="same", activation="relu")(image)
x = layers.Conv2D(32, 3, 2, padding="same", activation="relu")(x)
code = layers.Dense(16, name="code")(layers.Flatten()(x))
x = layers.Reshape((7, 7, 32))(layers.Dense(7 * 7 * 32, activation="relu")(code))
x = layers.Conv2DTranspose(16, 3, 2, padding="same", activation="relu")(x)
decoded = layers.Conv2DTranspose(1, 3, 2, padding="same", activation="sigmoid", name="decoded")(x)
model = keras.Model(image, decoded, name="autoencoder")

with open("model.json", "w") as f:
    f.write(model.to_json() + "\n")
