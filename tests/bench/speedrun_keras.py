# SPDX-License-Identifier: Apache-2.0
"""speedrun_keras.py DIR SEED CORES: the speedrun's training in Keras."""
import gzip
import os
import sys

import numpy as np

data, seed, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def idx(name, header):
    path = os.path.join(data, name)
    with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as f:
        return np.frombuffer(f.read(), np.uint8, offset=header)


def split(name):
    x = idx(f"{name}-images-idx3-ubyte", 16).reshape(-1, 28, 28, 1).astype("float32") / 255
    return x, idx(f"{name}-labels-idx1-ubyte", 8).astype("int32")


import keras  # noqa: E402

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores)
keras.utils.set_random_seed(seed)
x, y = split("train")
model = keras.Sequential([
    keras.layers.Input((28, 28, 1)),
    keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Conv2D(64, 3, activation="relu"), keras.layers.MaxPooling2D(),
    keras.layers.Flatten(), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.004, 1876)),
              keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
              jit_compile=bool(int(os.environ.get("KERAS_JIT", "0"))))


class Show(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1}: val_accuracy: {logs['val_accuracy']:.4f}", flush=True)


model.fit(x, y, 64, 2, verbose=0, validation_data=split("t10k"), validation_batch_size=1000, callbacks=[Show()])
