# SPDX-License-Identifier: Apache-2.0
#
# What the scripts beside it share: a model that Keras trains for a few steps, written down so that others can be held
# against it (tests/unit/test_keras.c). Each script makes the goldens of one family of layers:
#
#   pip install keras tensorflow-cpu tf_keras
#   TF_ENABLE_ONEDNN_OPTS=0 python tests/golden/keras/FAMILY.py [NAME]...
#
# NAME.json         {"model": what model.to_json() gives, "loss": ..., "batch": rows of a batch}; where 1e-4 of the
#                   greatest number of a tensor is not to be expected, "tolerance"; where more is, "each": of every
#                   number, or of 1 where it is less; "words" whose places inputs of strings have, -1 for any other
# NAME.safetensors  the weights at first, by variable.path; x, or x/INPUT of each of several; y, or y/OUTPUT likewise;
#                   sample_weight, where examples count differently;
#                   losses, of each step of sgd with rate 0.1 over the rows in order, whose last batch may be shorter;
#                   gradient/PATH of the first step; after/PATH, the weights afterwards; output, or output/OUTPUT, what
#                   the trained model predicts for x, and evaluated, the loss of that
#
# All numbers are float32, labels too.
import json
import os
import struct
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
import tf_keras

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH = 5


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        value = np.asarray(value)
        part = np.ascontiguousarray(value, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


# "dense/kernel" of both dialects: Keras 2's names end in ":0".
def path_of(v):
    return getattr(v, "path", v.name).split(":")[0]


# Sequential models have none.
def names(model):
    return getattr(model, "output_names", ["output"])


def named(what, names, values):
    return {what: values[0]} if len(values) == 1 else {f"{what}/{n}": v for n, v in zip(names, values)}


# build: () -> a Keras model of either dialect, whose names are as in a fresh process. loss: what compile takes, of one
# output, or a list of one for each. x: (rng) -> the list of inputs, where they are not uniform in [-1, 1). y: likewise.
# words: those of the inputs of strings; the golden has their places in this list, -1 for others. seed: of all that is
# drawn. scale: of the weights, which are drawn too; those named in keep stay as Keras makes them;
# bias is added to biases. loss_weights: of each output. sample_weight: (rng) -> of each example. says: pairs of
# activations, of which the model's JSON has the second for the first.
def train(name, build, loss="mse", rows=8, steps=5, x=None, y=None, scale=0.4, keep=(), seed=11, bias=0, loss_weights=None,
          sample_weight=None, words=(), tolerance=None, each=None, says=()):
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    keras.backend.clear_session()
    tf_keras.backend.clear_session()
    model = build()
    outputs = getattr(model, "output_names", ["o"])
    rng = np.random.default_rng(seed)
    losses = loss if isinstance(loss, list) else [loss] * len(model.outputs)
    model.compile(loss=losses if len(losses) > 1 else losses[0], loss_weights=loss_weights)
    for v in model.trainable_variables:
        if not any(k in path_of(v) for k in keep):
            v.assign(rng.normal(bias if "bias" in path_of(v) else 0, scale, v.shape).astype("f4"))
    xs = x(rng) if x else [rng.uniform(-1, 1, (rows, *i.shape[1:])).astype("f4") for i in model.inputs]
    if y:
        ys = y(rng)
    else:
        ys = [draw_target(rng, rows, o.shape[1:], kind) for o, kind in zip(model.outputs, losses)]
    places = [np.vectorize(lambda w: list(words).index(w) if w in words else -1)(v) if v.dtype.kind == "U" else v for v in xs]
    xs = [tf.constant(v) if v.dtype.kind == "U" else v for v in xs]
    pack = lambda v: v if len(v) > 1 else v[0]
    spoken = model(pack([v[:1] for v in xs]))
    keys = sorted(spoken) if isinstance(spoken, dict) else None
    pack_y = lambda v: dict(zip(keys, v)) if keys else pack(v)
    tensors = {path_of(v): v.numpy().copy() for v in model.variables if wanted(v)}
    tensors.update(named("x", [i.name.split(":")[0] for i in model.inputs], places))
    tensors.update(named("y", names(model), ys))
    weight = sample_weight(rng) if sample_weight else None
    if sample_weight:
        tensors["sample_weight"] = weight

    @tf.function(reduce_retracing=True)
    def step_on(bx, by, bw):
        with tf.GradientTape() as tape:
            value = model.compute_loss(x=bx, y=by, y_pred=model(bx, training=True), sample_weight=bw)
        return value, tape.gradient(value, model.trainable_variables)

    seen = []
    for step in range(steps):
        at = step * BATCH % (rows + -rows % BATCH)
        value, gradients = step_on(pack([v[at : at + BATCH] for v in xs]), pack_y([v[at : at + BATCH] for v in ys]),
                                   None if weight is None else weight[at : at + BATCH])
        seen.append(float(value))
        for v, g in zip(model.trainable_variables, gradients):
            g = tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
            if step == 0:
                tensors["gradient/" + path_of(v)] = g.numpy()
            v.assign_sub(0.1 * g)
            if getattr(v, "constraint", None):
                v.assign(v.constraint(v))
    for v in model.variables:
        if wanted(v):
            tensors["after/" + path_of(v)] = v.numpy()
    tensors["losses"] = np.array(seen)
    out = model.predict(pack(xs), verbose=0, batch_size=BATCH)
    out = [out[key] for key in keys] if keys else out if isinstance(out, list) else [out]
    tensors.update(named("output", names(model), out))
    evaluated = model.evaluate(pack(xs), pack_y(ys), batch_size=BATCH, verbose=0, sample_weight=weight)
    tensors["evaluated"] = np.array([evaluated[0] if isinstance(evaluated, list) else evaluated])
    text = model.to_json()
    for word, other in says:
        text = text.replace(f'"activation": "{word}"', f'"activation": "{other}"')
    document = {"model": json.loads(text), "loss": pack([loss_config(v, w) for v, w in zip(losses, loss_weights or [1] * 9)]), "batch": BATCH}
    document.update({key: v for key, v in (("tolerance", tolerance), ("each", each), ("words", list(words))) if v})
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(document, f, separators=(",", ":"))
        f.write("\n")
    write_safetensors(os.path.join(HERE, name + ".safetensors"), tensors)
    print(name, len(model.layers), "layers", [round(v, 4) for v in seen], tensors["evaluated"])


# Counters and seeds are no weights.
def wanted(v):
    return v.dtype in ("float32", tf.float32)


def draw_target(rng, rows, shape, kind):
    if "sparse" in str(kind if isinstance(kind, str) else kind.name):
        return rng.integers(0, shape[-1], (rows, *shape[:-1])).astype("i4")
    return rng.uniform(-1, 1, (rows, *shape)).astype("f4")


# As a job file has it: a name, or an object with the name and the settings that are not Keras's defaults, which Huber
# does not tell.
def loss_config(loss, weight=1):
    if isinstance(loss, str):
        return loss if weight == 1 else {"name": loss, "weight": weight}
    settings = lambda v: {**v.get_config(), **v._fn_kwargs}
    config, default = settings(loss), settings(type(loss)())
    changed = {k: v for k, v in config.items() if v != default[k] and k not in ("reduction", "dtype")}
    return {"name": config["name"], **changed, **({} if weight == 1 else {"weight": weight})}
