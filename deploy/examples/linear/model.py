# SPDX-License-Identifier: Apache-2.0
# Makes model.json: linear regression.
import json

import keras
from keras import layers

model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])

with open("model.json", "w") as f:
    json.dump(json.loads(model.to_json()), f, indent=1)
    f.write("\n")
