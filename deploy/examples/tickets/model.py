# SPDX-License-Identifier: Apache-2.0
# Makes model.json: who should read a customer's ticket, and how urgently? After Keras's guide to the functional API.
import keras
from keras import layers

WORDS = 128

title = keras.Input((8,), name="title", dtype="int32")
body = keras.Input((24,), name="body", dtype="int32")
words = layers.Embedding(WORDS, 32, mask_zero=True, name="words")  # of both; 0 is no word
read = layers.LSTM(32, name="read_title")(words(title)), layers.LSTM(32, name="read_body")(words(body))
x = layers.Concatenate()(read)
priority = layers.Dense(1, activation="sigmoid", name="priority")(x)
department = layers.Dense(4, name="department")(x)
model = keras.Model([title, body], [priority, department], name="tickets")

with open("model.json", "w") as f:
    f.write(model.to_json() + "\n")
