# SPDX-License-Identifier: Apache-2.0
"""keras_models.py keras|tf_keras NUMBER [NAME]...: every model of tests/golden/keras in this dialect, and some besides, with weights at
random: what Keras saves (.keras, .weights.h5, .h5) is read, and predicts what Keras does; what is written of it (.keras,
.weights.h5, safetensors) Keras loads, and predicts what workerd does. TAP, without a plan; the first point follows
NUMBER."""
import glob
import importlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

keras = importlib.import_module(sys.argv[1])
L = keras.layers
TOP = os.environ["top_srcdir"]
WORKERD = os.path.join(os.environ["top_builddir"], "workerd", "workerd")
sys.path.insert(0, os.path.join(TOP, "deploy", "keras"))
import paramserver_keras

KERAS2 = sys.argv[1] == "tf_keras"
TOLERANCE = 1e-4  # of the greatest number of an output; a golden may say another


# ---- models ---------------------------------------------------------------------------------------------------------


def adapted():
    normal = L.Normalization()
    normal.adapt(np.random.default_rng(3).normal(2, 3, (20, 4)).astype("f4"))
    i = keras.Input((4,), name="i")
    return keras.Model(i, L.Dense(2, name="o")(normal(i)), name="net")


def adapted_sequential():
    normal = L.Normalization(axis=None)
    normal.adapt(np.random.default_rng(3).normal(2, 3, (20, 4)).astype("f4"))
    return keras.Sequential([keras.Input((4,)), normal, L.Dense(2)], name="net")


# Wrappers and attention in all the ways in which their variables lie within each other.
def wrapped():
    i = keras.Input((5, 4), name="i")
    x = L.TimeDistributed(L.Dense(3))(i)
    x = L.TimeDistributed(L.LayerNormalization())(x)
    x = L.Bidirectional(L.GRU(2, return_sequences=True))(x)
    x = L.Bidirectional(L.LSTM(2, return_sequences=True), backward_layer=L.GRU(2, return_sequences=True, go_backwards=True))(x)
    x = L.Bidirectional(L.SimpleRNN(3, return_sequences=True))(x)
    y = L.MultiHeadAttention(2, 3)(x, x)
    y = L.MultiHeadAttention(1, 2, use_bias=False)(y, x)
    return keras.Model(i, L.Add()([L.LSTM(3)(y), L.LSTM(3)(x)]), name="net")


# Layers of the same classes in models within each other, without names of their own.
def deep():
    inner = keras.Sequential([keras.Input((4,)), L.Dense(3), L.LayerNormalization(), L.Dense(4)])
    j = keras.Input((4,))
    functional = keras.Model(j, L.Dense(4)(inner(L.Dense(4)(j))))
    i = keras.Input((4,), name="i")
    return keras.Model(i, L.Dense(2)(functional(L.Dense(4)(functional(i)))), name="net")


def golden(path):
    with open(path) as f:
        document = json.load(f)
    tensors = paramserver_keras.read_safetensors(path[: -len("json")] + "safetensors")
    document["model"].pop("compile_config", None)
    return (keras.models.model_from_json(json.dumps(document["model"])), tensors,
            max(TOLERANCE, document.get("tolerance", 0)))


def is_own_dialect(path):
    with open(path) as f:
        return KERAS2 == ("2." in json.load(f)["model"].get("keras_version", "3."))


# What adapt() has set is taken over by the layer at once.
def adapted_variables(model):
    return {id(v) for layer in model.layers if isinstance(layer, L.Normalization) for v in layer.variables}


def draw_weights(model):
    rng, keep = np.random.default_rng(5), adapted_variables(model)
    for v in model.variables:
        if "float" in str(v.dtype) and id(v) not in keep:
            v.assign(rng.uniform(0.5, 2, v.shape) if "variance" in v.name else rng.normal(0, 0.4, v.shape))


def input_names(model):
    return [i.name.split(":")[0] for i in model.inputs]


def draw_inputs(model, tensors):
    rng = np.random.default_rng(6)
    names = input_names(model)
    if "x" in tensors:
        return [tensors["x"]]
    return [tensors[f"x/{n}"] if f"x/{n}" in tensors else rng.normal(size=(6, *i.shape[1:])).astype("f4")
            for n, i in zip(names, model.inputs)]


# ---- predictions ----------------------------------------------------------------------------------------------------


def keras_predicts(model, xs):
    xs = [np.asarray(x, "i4" if "int" in str(i.dtype) else "f4") for x, i in zip(xs, model.inputs)]
    out = model(xs if len(xs) > 1 else xs[0], training=False)
    if isinstance(out, dict):
        out = [out[n] for n in model.output_names]
    return [np.asarray(o) for o in (out if isinstance(out, (list, tuple)) else [out])]


def run(folder, **sets):
    command = [WORKERD, "--job", os.path.join(folder, "job.yaml"), "--quiet"]
    for key, value in sets.items():
        command += [f"--{key}", value] if key == "predict" else ["--set", f"{key}={value}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip())


def workerd_predicts(net, folder, **sets):
    path = os.path.join(folder, "out.npy")
    run(folder, predict=path, **sets)
    if len(net.outputs) == 1:
        return [np.load(path)]
    return [np.load(os.path.join(folder, f"out-{n}.npy")) for n in net.output_names]


# Of a learning rate of 0: what it writes is what was read, but for states that follow the data.
def write_job(model, folder, xs):
    names = input_names(model)
    outputs = getattr(model, "output_names", ["o"])
    arrays = dict(zip(names, xs))
    for n, o in zip(outputs, model.outputs):
        arrays[f"target of {n}"] = np.zeros((len(xs[0]), *o.shape[1:]), "f4")
    np.savez(os.path.join(folder, "data.npz"), **arrays)
    data = os.path.join(folder, "data.npz")
    job = {"model": os.path.join(folder, "net.keras"),
           "data": {"kind": "npz", "path": data, "test_path": data, "shuffle": False,
                    "label": [a for a in arrays if a not in names]},
           "loss": "mse", "optimizer": {"name": "sgd", "learning_rate": 0}, "strategy": {"name": "one_device"},
           "batch_size": len(xs[0]), "output": os.path.join(folder, "written.keras")}
    if len(names) > 1:
        job["data"]["inputs"] = {n: n for n in names}
    if len(outputs) > 1:
        job["data"]["outputs"] = {n: f"target of {n}" for n in outputs}
        job["loss"] = ["mse"] * len(outputs)
    with open(os.path.join(folder, "job.yaml"), "w") as f:
        json.dump(job, f)


def farthest(found, wanted):
    return max(np.abs(np.asarray(a, "f8").ravel() - np.asarray(b, "f8").ravel()).max() / max(0.01, np.abs(b).max())
               for a, b in zip(found, wanted))


# ---- files ----------------------------------------------------------------------------------------------------------


# What Keras writes: [what, file of the model, file of the weights].
def save(model, folder):
    at = lambda name: os.path.join(folder, name)
    model.save(at("net.keras"))
    model.save_weights(at("net.weights.h5"))
    with open(at("net.json"), "w") as f:
        f.write(model.to_json())
    saved = [(".keras", at("net.keras"), at("net.keras")), (".weights.h5", at("net.json"), at("net.weights.h5"))]
    if KERAS2:
        model.save_weights(at("net.h5"))
        saved.append((".h5", at("net.json"), at("net.h5")))
    model.save(at("whole.h5"))
    saved.append((".h5 of the whole model", at("net.json"), at("whole.h5")))
    paramserver_keras.write_safetensors(at("net.safetensors"), {
        n: np.asarray(v) for n, v in paramserver_keras.variables(model)})
    saved.append((".safetensors as it is exported", at("net.json"), at("net.safetensors")))
    return saved


def check(name, model, tensors, tolerance=TOLERANCE):
    xs = draw_inputs(model, tensors)
    draw_weights(model)
    wrong = []

    def expect(what, of):
        try:
            far = of()
            if not far < tolerance:
                wrong.append(f"{what}: {far:.1e}")
        except Exception as e:
            wrong.append(f"{what}: {type(e).__name__} {str(e)[:300]}".replace("\n", " "))

    with tempfile.TemporaryDirectory() as folder:
        at = lambda file: os.path.join(folder, file)
        wanted = keras_predicts(model, xs)
        write_job(model, folder, xs)
        for what, architecture, weights in save(model, folder):
            expect("read " + what, lambda: farthest(workerd_predicts(model, folder, model=architecture, weights=weights),
                                                    wanted))
        for suffix in ("keras", "weights.h5", "safetensors"):
            expect(f"write .{suffix}", lambda: written(model, folder, xs, at("written." + suffix)))
    point(not wrong, name + (": " + "; ".join(wrong) if wrong else ""))


def written(model, folder, xs, path):
    run(folder, output=path)
    wanted = workerd_predicts(model, folder, weights=path)
    if path.endswith(".keras"):
        again = keras.models.load_model(path, compile=False)
    else:
        again = keras.models.model_from_json(model.to_json())
        paramserver_keras.load(again, path)
    return farthest(keras_predicts(again, xs), wanted)


points = failed = 0


def point(good, text):
    global points, failed
    points += 1
    failed += not good
    print("ok" if good else "not ok", f"{int(sys.argv[2]) + points} - {sys.argv[1]}: {text}", flush=True)


only = sys.argv[3:]
for make in (adapted, adapted_sequential, wrapped, deep):
    if not only or make.__name__ in only:
        keras.backend.clear_session()
        check(make.__name__, make(), {})
for path in sorted(glob.glob(os.path.join(TOP, "tests", "golden", "keras", "*.json"))):
    name = os.path.basename(path)[: -len(".json")]
    if (not only or name in only) and is_own_dialect(path):
        keras.backend.clear_session()
        try:
            model, tensors, tolerance = golden(path)
        except Exception as e:
            point(False, f"{name}: {str(e)[:200]}")
            continue
        check(name, model, tensors, tolerance)
sys.exit(failed > 0)
