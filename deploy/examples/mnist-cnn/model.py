# SPDX-License-Identifier: Apache-2.0
# Makes model.json: Keras's example network for MNIST, two convolutions and two dense layers.
import json

import keras
from keras import layers

model = keras.Sequential([
    keras.Input((28, 28, 1)),
    layers.Conv2D(32, 3, activation="relu"),
    layers.MaxPooling2D(),
    layers.Conv2D(64, 3, activation="relu"),
    layers.MaxPooling2D(),
    layers.Flatten(),
    layers.Dense(64, activation="relu"),
    layers.Dense(10),
])

with open("model.json", "w") as f:
    json.dump(json.loads(model.to_json()), f, indent=1)
    f.write("\n")
