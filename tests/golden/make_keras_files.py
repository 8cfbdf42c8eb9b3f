# SPDX-License-Identifier: Apache-2.0
#
# Makes what Keras saves, in keras_files/:
#
#   pip install keras tensorflow-cpu tf_keras h5py
#   TF_ENABLE_ONEDNN_OPTS=0 python tests/golden/make_keras_files.py [wrapped|dialects]
#
# mlp.keras               as Keras 3 writes it, byte for byte; not compiled
# mlp.weights.h5          its weights alone
# mlp_keras2.h5           the same weights as Keras 2's save_weights() names and stores them
# mlp_half.weights.h5     and in bfloat16 and float16
# NAME.keras              other models, a step of Adam after their making, packed again (deflated) to be small
# NAME.safetensors        of each .keras the weights, by Keras's variable.path
#
# and beside it cnn_keras3.json, cnn_keras2.json, one network as Keras 3 and Keras 2 (tf_keras) write it.
import json
import os
import struct
import sys
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import keras
import ml_dtypes
import numpy as np
import tf_keras

from make_zip import info

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras_files")
sys.path.insert(0, os.path.normpath(os.path.join(HERE, "../../../deploy/keras")))
import paramserver_keras


def path(name):
    return os.path.join(HERE, name)


def pack(name):
    with zipfile.ZipFile(path(name)) as z:
        entries = {n: z.read(n) for n in z.namelist()}
    with zipfile.ZipFile(path(name), "w") as z:
        for n, content in sorted(entries.items()):
            z.writestr(info(n, True), content, compresslevel=9)


def train(model):
    random = np.random.default_rng(1)
    shapes = [tuple(2 if d is None else d for d in i.shape) for i in model.inputs]
    x = [random.integers(0, 5, s) if "int" in str(i.dtype) else random.normal(size=s).astype("f4")
         for s, i in zip(shapes, model.inputs)]
    model.compile("adam", "mse")
    y = model.predict(x, verbose=0)
    model.train_on_batch(x, y + 1)


def save(name, model, weights, deflate=True):
    if deflate:
        train(model)
    random = np.random.default_rng(2)
    for v in model.non_trainable_variables:  # states that differ from each other
        if "float" in str(v.dtype):
            v.assign(random.uniform(0.5, 2, v.shape).astype("f4"))
    model.save(path(name + ".keras"))
    if deflate:
        pack(name + ".keras")
    paramserver_keras.write_safetensors(path(name + ".safetensors"), {
        n.split(":")[0]: np.asarray(v) for n, v in weights(model) if "seed" not in n and "float" in str(v.dtype)})


def keras3(model):
    return [(v.path, v) for v in model.weights]


def keras2(model):
    return [(v.name, v) for v in model.weights]


def cnn(k, inner):
    L = k.layers
    i = k.Input((6, 6, 2))
    x = L.Conv2D(2, 3, activation="relu")(i)
    x = L.BatchNormalization()(x)
    x = L.Conv2D(2, 3, trainable=False)(x)
    x = L.Dropout(0.25)(x)
    x = L.Flatten()(x)
    if inner:
        x = k.Sequential([k.Input((8,)), L.Dense(3), L.Dense(3, use_bias=False)])(x)
    x = L.Dense(2)(x)
    return k.Model(i, L.Add()([x, L.Dense(2)(x)]))


def text(k):
    L = k.layers
    i = k.Input((5,), dtype="int32")
    x = L.Embedding(5, 3)(i)
    x = L.Bidirectional(L.LSTM(2, return_sequences=True))(x)
    x = L.TimeDistributed(L.Dense(3))(x)
    x = L.GRU(2, return_sequences=True)(x)
    return k.Model(i, L.SimpleRNN(2)(x))


def attention(k):
    L = k.layers
    i = k.Input((4, 3))
    x = L.MultiHeadAttention(2, 2)(i, i)
    x = L.LayerNormalization()(x)
    return k.Model(i, L.Dense(1)(x))


# What Keras 2 saves elsewhere, or means otherwise, than Keras 3; and what lies in wrappers within each other.
def wrapped(k):
    L = k.layers
    normal = L.Normalization()
    normal.adapt(np.random.default_rng(3).normal(2, 3, (20, 4, 3)).astype("f4"))
    i = k.Input((4, 3))
    x = L.TimeDistributed(L.Dense(2))(normal(i))
    x = L.Bidirectional(L.LSTM(2, return_sequences=True, recurrent_activation="hard_sigmoid"),
                        backward_layer=L.GRU(2, return_sequences=True, go_backwards=True))(x)
    x = L.MultiHeadAttention(1, 2)(x, x)
    x = L.Reshape((2, 2, 4))(x)
    x = L.TimeDistributed(L.Bidirectional(L.SimpleRNN(2)))(x)
    return k.Model(i, L.Flatten()(x))


def mlp(k):
    return k.Sequential([k.Input((3,)), k.layers.Dense(2, activation="tanh"), k.layers.Dense(1)])


# MNIST's.
def dialects():
    def layers(L, **first):
        return [L.Conv2D(32, 3, activation="relu", **first), L.MaxPooling2D(), L.Conv2D(64, 3, activation="relu"),
                L.MaxPooling2D(), L.Flatten(), L.Dense(64, activation="relu"), L.Dense(10)]

    keras.backend.clear_session()
    models = {"cnn_keras3": keras.Sequential([keras.Input((28, 28, 1)), *layers(keras.layers)]),
              "cnn_keras2": tf_keras.Sequential(layers(tf_keras.layers, input_shape=(28, 28, 1)))}
    for name, model in models.items():
        with open(path(f"../{name}.json"), "w") as f:
            json.dump(json.loads(model.to_json()), f, indent=1)
            f.write("\n")


def main():
    if sys.argv[1:]:  # alone
        return {"wrapped": wrappers, "dialects": dialects}[sys.argv[1]]()
    os.makedirs(HERE, exist_ok=True)
    for k in (keras, tf_keras):
        k.utils.set_random_seed(1)
    m = mlp(keras)
    save("mlp", m, keras3, deflate=False)
    m.save_weights(path("mlp.weights.h5"))
    values = m.get_weights()
    m = mlp(tf_keras)
    m.set_weights(values)
    m.save_weights(path("mlp_keras2.h5"))
    with h5py.File(path("mlp_half.weights.h5"), "w") as f:
        for layer in range(2):
            group = f.create_group(f"layers/dense{'_1' if layer else ''}/vars")
            group.create_dataset("0", data=values[2 * layer].astype(ml_dtypes.bfloat16)).attrs["dtype"] = "bfloat16"
            group["1"] = values[2 * layer + 1].astype("f2")
    keras.backend.clear_session()
    save("cnn", cnn(keras, True), keras3)
    save("cnn_keras2", cnn(tf_keras, False), keras2)
    keras.backend.clear_session()
    save("text", text(keras), keras3)
    keras.backend.clear_session()
    save("attention", attention(keras), keras3)
    wrappers()
    dialects()


def wrappers():
    for k, name in ((keras, "wrapped"), (tf_keras, "wrapped_keras2")):
        k.utils.set_random_seed(1)
        k.backend.clear_session()
        save(name, wrapped(k), paramserver_keras.variables)


main()
