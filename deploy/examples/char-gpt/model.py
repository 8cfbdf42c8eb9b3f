# SPDX-License-Identifier: Apache-2.0
# Makes model.json: a transformer of four blocks that says which character comes next. What the order of characters is,
# it knows from the causal masks and from a convolution over the last four.
import keras
from keras import layers

WINDOW, CHARACTERS, WIDTH, HEADS, BLOCKS = 64, 96, 64, 4, 4

text = keras.Input((WINDOW,), name="text", dtype="int32")
x = layers.Embedding(CHARACTERS, WIDTH)(text)
x = layers.Add()([x, layers.Conv1D(WIDTH, 4, padding="causal")(x)])
for _ in range(BLOCKS):
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y, use_causal_mask=True)
    x = layers.Add()([x, y])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(y))
    x = layers.Add()([x, y])
x = layers.LayerNormalization()(x)
model = keras.Model(text, layers.Dense(CHARACTERS, name="next")(x), name="char_gpt")

with open("model.json", "w") as f:
    f.write(model.to_json() + "\n")
