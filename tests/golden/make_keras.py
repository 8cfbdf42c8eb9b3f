# SPDX-License-Identifier: Apache-2.0
#
# Makes the golden files beside it, and deploy/examples/*/model.json, with Keras itself as the reference:
#
#   pip install keras tensorflow-cpu tf_keras
#   TF_ENABLE_ONEDNN_OPTS=0 python tests/golden/make_keras.py
#
# cnn_keras3.json, cnn_keras2.json   one network, as Keras 3 and as Keras 2 (tf_keras) write it
# tiny_conv.json                     a small network with padding, pooling and dense layers
# tiny_conv.safetensors              its weights, a batch (x, label), the loss of each of five sgd steps (losses), the
#                                    first gradients (gradient/...), and the weights afterwards (after/...)
import json
import os
import struct

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
import tf_keras

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "deploy", "examples")


def write_json(path, model):
    with open(path, "w") as f:
        json.dump(json.loads(model.to_json()), f, indent=1)
        f.write("\n")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        part = np.ascontiguousarray(value, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def sequential(layers, shape):
    keras.backend.clear_session()  # names start at "sequential", "conv2d" again
    return keras.Sequential([keras.Input(shape)] + layers())


def mnist_cnn(layers, first={}):
    return [
        layers.Conv2D(32, 3, activation="relu", **first),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(10),
    ]


def examples():
    k = keras.layers
    models = {
        "softmax": (lambda: [k.Flatten(), k.Dense(10)], (28, 28, 1)),
        "conv": (
            lambda: [
                k.Conv2D(32, 3, activation="relu"),
                k.MaxPooling2D(),
                k.Flatten(),
                k.Dense(64, activation="relu"),
                k.Dense(10),
            ],
            (28, 28, 1),
        ),
        "mnist-cnn": (lambda: mnist_cnn(k), (28, 28, 1)),
        "linear": (lambda: [k.Dense(1)], (4,)),
    }
    for name, (layers, shape) in models.items():
        write_json(os.path.join(EXAMPLES, name, "model.json"), sequential(layers, shape))


def cnn_twice():
    model = sequential(lambda: mnist_cnn(keras.layers), (28, 28, 1))
    write_json(os.path.join(HERE, "cnn_keras3.json"), model)
    model = tf_keras.Sequential(mnist_cnn(tf_keras.layers, {"input_shape": (28, 28, 1)}))
    write_json(os.path.join(HERE, "cnn_keras2.json"), model)


def tiny_conv():
    k = keras.layers
    model = sequential(
        lambda: [
            k.Conv2D(3, 3, padding="same", strides=2),
            k.ReLU(),
            k.MaxPooling2D(2, strides=1, padding="same"),
            k.Conv2D(4, (2, 3), activation="relu"),
            k.Flatten(),
            k.Dense(6, activation="relu"),
            k.Dense(3),
        ],
        (9, 8, 2),
    )
    rng = np.random.default_rng(7)
    model.set_weights([rng.normal(0, 0.4, w.shape).astype("f4") for w in model.get_weights()])
    x = rng.uniform(-1, 1, (5, 9, 8, 2)).astype("f4")
    label = rng.integers(0, 3, 5)

    tensors = {v.path: v.numpy().copy() for v in model.trainable_variables}
    tensors["x"], tensors["label"] = x, label.astype("f4")
    losses, rate = [], 0.1
    for step in range(5):
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(label, model(x, training=True), from_logits=True)
            loss = tf.reduce_mean(each)
        gradients = tape.gradient(loss, model.trainable_variables)
        losses.append(float(loss))
        for v, g in zip(model.trainable_variables, gradients):
            if step == 0:
                tensors["gradient/" + v.path] = g.numpy()
            v.assign_sub(rate * g)
    tensors["losses"] = np.array(losses)
    for v in model.trainable_variables:
        tensors["after/" + v.path] = v.numpy()
    write_json(os.path.join(HERE, "tiny_conv.json"), model)
    write_safetensors(os.path.join(HERE, "tiny_conv.safetensors"), tensors)
    print("losses", losses)


examples()
cnn_twice()
tiny_conv()
