# SPDX-License-Identifier: Apache-2.0
#
# Makes the golden files beside it, and model.json of the examples in deploy/examples that have no model.py, with Keras
# itself as the reference:
#
#   pip install keras tensorflow-cpu tf_keras
#   TF_ENABLE_ONEDNN_OPTS=0 python tests/golden/make_keras.py [examples|cnn_twice|tiny_conv|trainings]...
#
# cnn_keras3.json, cnn_keras2.json   one network, as Keras 3 and as Keras 2 (tf_keras) write it
# tiny_conv.json                     a small network with padding, pooling and dense layers
# tiny_conv.safetensors              its weights, a batch (x, label), the loss of each of five sgd steps (losses), the
#                                    first gradients (gradient/...), and the weights afterwards (after/...)
# trained_*.json, .safetensors       small networks, each compiled, and trained by sgd in order over x and its label or
#                                    target, in batches of five of which the last is shorter: the weights at first, the
#                                    loss of each step (losses), the first gradients, the weights afterwards, and the
#                                    predictions for x (output) and their loss (evaluated) with these
import json
import os
import struct
import sys

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



# sgd by the gradients of model.compute_loss in a tf.function, as fit does it.
def train(name, layers, shape, loss, rows, steps, scale=0.4):
    model = sequential(layers, shape)
    model.compile(loss=loss)
    rng = np.random.default_rng(11)
    model.set_weights([rng.normal(0, scale, w.shape).astype("f4") for w in model.get_weights()])
    outputs = model.output_shape[-1]
    x = rng.uniform(-1, 1, (rows, *shape)).astype("f4")
    y = rng.uniform(-1, 1, (rows, outputs)).astype("f4") if loss == "mse" else rng.integers(0, outputs, rows)

    @tf.function(reduce_retracing=True)
    def step_on(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    tensors = {v.path: v.numpy().copy() for v in model.trainable_variables}
    tensors.update({"x": x, "target" if loss == "mse" else "label": y.astype("f4")})
    losses = []
    for step in range(steps):
        at = step * 5 % (rows + -rows % 5)
        value, gradients = step_on(x[at : at + 5], y[at : at + 5])
        losses.append(float(value))
        for v, g in zip(model.trainable_variables, gradients):
            if step == 0:
                tensors["gradient/" + v.path] = g.numpy()
            v.assign_sub(0.1 * g)
    for v in model.trainable_variables:
        tensors["after/" + v.path] = v.numpy()
    tensors["losses"] = np.array(losses)
    tensors["output"] = model.predict(x, verbose=0)
    tensors["evaluated"] = np.array([model.evaluate(x, y, batch_size=5, verbose=0)])
    write_json(os.path.join(HERE, f"trained_{name}.json"), model)
    write_safetensors(os.path.join(HERE, f"trained_{name}.safetensors"), tensors)
    print(name, losses, tensors["evaluated"])


# wrong: some labels have a probability far below 1e-7, where Keras clips what it does not know to be a softmax.
def trainings():
    k, xent = keras.layers, "sparse_categorical_crossentropy"
    wrong = {"shape": (6,), "loss": xent, "rows": 12, "steps": 7}
    train("softmax", lambda: [k.Dense(5, activation="softmax")], scale=12, **wrong)
    train("softmax_layer", lambda: [k.Dense(8, activation="relu"), k.Dense(5), k.Softmax()], scale=3, **wrong)
    train("softmax_flatten", lambda: [k.Dense(5, activation="softmax"), k.Flatten()], scale=12, **wrong)
    train("softmax_mse", lambda: [k.Dense(6, activation="relu"), k.Dense(4, activation="softmax")], (7,), "mse", 8, 6)
    strided = lambda: [
        k.Conv2D(4, (4, 3), strides=(3, 2), padding="same", activation="relu"),
        k.MaxPooling2D((3, 2), strides=(2, 3), padding="same"),
        k.Conv2D(3, 2, strides=2, padding="same"),
        k.Flatten(),
        k.Dense(3),
    ]
    train("strided", strided, (11, 9, 2), "mse", 7, 6)


for make in sys.argv[1:] or ["examples", "cnn_twice", "tiny_conv", "trainings"]:
    globals()[make]()
