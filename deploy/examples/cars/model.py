# SPDX-License-Identifier: Apache-2.0
# Makes model.json: the price of a used car from three numbers and two categories.
import keras
from keras import layers

numbers = keras.Input((3,), name="numbers")  # age, km, power
brand = keras.Input((1,), name="brand", dtype="int32")
fuel = keras.Input((1,), name="fuel", dtype="int32")
x = layers.Concatenate()([
    layers.Normalization(mean=[7.5, 110, 105], variance=[19, 4900, 1400])(numbers),
    layers.Flatten()(layers.Embedding(6, 3, name="brands")(brand)),
    layers.Flatten()(layers.Embedding(3, 2, name="fuels")(fuel)),
])
for units in 32, 16:
    x = layers.Dense(units, activation="relu")(x)
model = keras.Model([numbers, brand, fuel], layers.Dense(1, name="price")(x), name="cars")

with open("model.json", "w") as f:
    f.write(model.to_json() + "\n")
