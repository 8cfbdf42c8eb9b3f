# SPDX-License-Identifier: Apache-2.0
# Makes model.json: softmax regression on MNIST's images.
import json

import keras
from keras import layers

model = keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(10)])

with open("model.json", "w") as f:
    json.dump(json.loads(model.to_json()), f, indent=1)
    f.write("\n")
