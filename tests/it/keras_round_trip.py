# SPDX-License-Identifier: Apache-2.0
"""keras_round_trip.py keras|tf_keras NUMBER: what Keras compiles is exported, trained by workerd for 100 steps in order, and
imported again; it predicts what Keras's own training does. .keras and .weights.h5 files go both ways. TAP, without a
plan; the first point follows NUMBER."""
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np

keras = importlib.import_module(sys.argv[1])
L = keras.layers
TOP = os.environ["top_srcdir"]
WORKERD = os.path.join(os.environ["top_builddir"], "workerd", "workerd")
sys.path.insert(0, os.path.join(TOP, "deploy", "keras"))
import paramserver_keras

N, BATCH, EPOCHS = 160, 8, 5
random = np.random.default_rng(0)
schedules = keras.optimizers.schedules
SYNCHRONIZES = keras.backend.backend() == "tensorflow"  # on the others Keras refuses to


def mlp():
    x = random.normal(size=(N, 4)).astype("f4")
    model = keras.Sequential([keras.Input((4,)), L.Dense(8, activation="tanh"), L.Dense(2)])
    return model, lambda: (keras.optimizers.Adam(schedules.CosineDecay(0.01, 80)), "mse"), x, np.stack(
        [x[:, 0] * x[:, 1], x.sum(1)], 1)


# What is averaged, accumulated, weighed by the class and watched by callbacks.
def mlp_averaged():
    x = random.normal(size=(N, 4)).astype("f4")
    model = keras.Sequential([keras.Input((4,)), L.Dense(8, activation="tanh"), L.Dense(2)])
    how = lambda: (keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9),
                   keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, how, x, (x[:, 0] * x[:, 1] > 0).astype("i4"), {
        "class_weight": {0: 1.0, 1: 3.0},
        "callbacks": lambda: [keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=0, min_delta=0.5)]}


def mlp_legacy():
    model, _, x, y = mlp()
    return model, lambda: (keras.optimizers.legacy.Adam(0.01, amsgrad=True), "mse"), x, y


# What is clipped is the mean of what was accumulated.
def mlp_accumulated():
    x = random.normal(size=(N, 4)).astype("f4")
    model = keras.Sequential([keras.Input((4,)), L.Dense(8, activation="tanh"), L.Dense(2)])
    steps = {} if sys.argv[1] == "tf_keras" else {"gradient_accumulation_steps": 4}
    return model, lambda: (keras.optimizers.SGD(0.5, global_clipnorm=0.3, **steps), "mse"), x, np.stack(
        [x[:, 0] * x[:, 1], x.sum(1)], 1)


def nested():
    x = random.normal(size=(N, 4)).astype("f4")
    i, j = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model(j, L.Dense(6, activation="tanh")(j))
    model = keras.Model(i, L.Dense(1)(keras.Sequential([keras.Input((6,)), L.Dense(5, activation="tanh")])(inner(i))))
    return model, lambda: (keras.optimizers.SGD(0.05), "mse"), x, x[:, :1] * x[:, 1:2]


# Outputs by name, whose order is not the document's; one of them is an inner model's first call.
def inside():
    x = random.normal(size=(N, 4)).astype("f4")
    i, j = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model(j, L.Dense(4, activation="tanh", name="dense_of_inner")(j), name="inner")
    first = inner(i)
    model = keras.Model(i, {"z": first, "a": L.Dense(1, name="second")(inner(L.Dense(4)(first)))})
    how = lambda: {"optimizer": keras.optimizers.SGD(0.05), "loss": {"z": "mse", "a": keras.losses.Huber(delta=0.5)},
                   "loss_weights": {"z": 0.5, "a": 1.0}}
    monitor = "z_loss" if sys.argv[1] == "keras" else "inner_loss"
    return model, how, x, {"z": np.tanh(x[:, ::-1]), "a": x[:, :1]}, {
        "callbacks": lambda: [keras.callbacks.ReduceLROnPlateau(monitor=monitor, mode="min", factor=0.5, patience=0, min_delta=0.5)]}


def cnn(normalise=False):
    x = random.normal(size=(N, 8, 8, 2)).astype("f4")
    i = keras.Input((8, 8, 2))
    y = L.Conv2D(4, 3, activation="relu")(i)
    y = L.BatchNormalization(momentum=0.9, synchronized=SYNCHRONIZES)(y) if normalise else y
    y = L.Flatten()(L.MaxPooling2D()(y))
    model = keras.Model(i, L.Dense(3)(L.Dense(6, activation="relu")(y)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return model, lambda: (keras.optimizers.SGD(0.02, momentum=0.9), loss), x, (x[:, :4, :, 0].sum((1, 2)) > 0).astype("i4") + (x[:, 4:, :, 1].sum((1, 2)) > 0)


def cnn_normalised():
    return cnn(True)


def normalized():
    x = random.normal(3, 2, size=(N, 4)).astype("f4")
    normalization = L.Normalization()
    normalization.adapt(x)
    model = keras.Sequential([keras.Input((4,)), normalization, L.Dense(8, activation="tanh"), L.Dense(1)])
    return model, lambda: (keras.optimizers.SGD(0.05), "mse"), x, x[:, :1] * 0.2


def lstm():
    x = random.normal(size=(N, 6, 3)).astype("f4")
    model = keras.Sequential([keras.Input((6, 3)), L.LSTM(5), L.Dense(1)])
    return model, lambda: (keras.optimizers.RMSprop(0.005), "mse"), x, x[:, :, 0].sum(1, keepdims=True)


def attention():
    x = random.normal(size=(N, 5, 4)).astype("f4")
    i = keras.Input((5, 4))
    y = L.LayerNormalization()(L.Add()([i, L.MultiHeadAttention(2, 3)(i, i)]))
    model = keras.Model(i, L.Dense(1)(L.Flatten()(y)))
    return model, lambda: (keras.optimizers.Adam(0.01), "mse"), x, x[:, :, 0].max(1, keepdims=True)


# Two inputs, two outputs: losses with settings and weights of their own.
def branches():
    x = [random.normal(size=(N, 4)).astype("f4"), random.normal(size=(N, 6, 3)).astype("f4")]
    i, j = keras.Input((4,), name="flat"), keras.Input((6, 3), name="steps")
    both = L.Concatenate()([L.Dense(6, activation="tanh")(i), L.GRU(5)(j)])
    model = keras.Model([i, j], [L.Dense(1, name="price")(both), L.Dense(3, name="kind")(both)])
    y = [x[0][:, :1], (x[1][:, 0, 0] > 0).astype("i4") + (x[0][:, 1] > 0)]
    how = lambda: {"optimizer": keras.optimizers.SGD(0.05), "loss_weights": [0.5, 1.0],
                   "loss": [keras.losses.Huber(delta=0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True)]}
    return model, how, x, y


# By name, beside strings, which only CSV brings.
def words():
    word = random.choice(np.array(["red", " red", "green ", "blue, light"], dtype=object), N)
    lookup = L.StringLookup()
    lookup.adapt(word)
    i, j = keras.Input((1,), dtype="string", name="word"), keras.Input((2,), name="numbers")
    both = L.Concatenate()([L.Flatten()(L.Embedding(5, 3)(lookup(i))), j])
    model = keras.Model({"word": i, "numbers": j}, L.Dense(1)(L.Dense(8, activation="tanh")(both)))
    numbers = random.normal(size=(N, 2)).astype("f4")
    return model, lambda: (keras.optimizers.SGD(0.05), "mse"), {
        "word": word[:, None], "numbers": numbers}, (numbers[:, 0] + (word == "red")).astype("f4")


def workerd(job, folder, **sets):
    command = [WORKERD, "--job", job, "--quiet"]
    for key, value in sets.items():
        command += [f"--{key}", value] if key == "summary" else ["--set", f"{key}={value}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip())


def difference(a, b):
    if isinstance(a, dict):
        return max(difference(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return max(map(difference, a, b))
    return float(np.abs(a - b).max())


def compile(model, how):
    how = how()
    model.compile(**how) if isinstance(how, dict) else model.compile(*how)


def as_keras_takes(x):
    """Strings as a tensor."""
    if not isinstance(x, dict):
        return x
    import tensorflow
    return {k: tensorflow.constant(v.tolist()) if v.dtype == object else v for k, v in x.items()}


def round_trip(make):
    model, how, x, y, *fit = make()
    fit = fit[0] if fit else {}
    callbacks = fit.pop("callbacks", list)
    compile(model, how)
    own, x = x, as_keras_takes(x)
    before = model.predict(x, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        at = {name: os.path.join(folder, name) for name in
              ("net.keras", "trained.safetensors", "trained.keras", "trained.weights.h5")}
        job = paramserver_keras.export(model, folder, own, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False,
                                        callbacks=callbacks(), **fit)
        model.save(at["net.keras"])
        workerd(job, folder, output=at["trained.safetensors"])
        results = {}
        paramserver_keras.load(model, at["trained.safetensors"])
        results["exported, imported"] = model.predict(x, verbose=0)
        if HDF5:
            # The model and its weights from the one file that Keras has saved.
            lines = [line for line in open(job) if '"weights"' not in line]
            open(job, "w").writelines(lines)
            workerd(job, folder, model=at["net.keras"], output=at["trained.keras"])
            workerd(job, folder, model=at["net.keras"], output=at["trained.weights.h5"])
            again = keras.models.load_model(at["trained.keras"])
            results[".keras, as it was saved and loaded"] = again.predict(x, verbose=0)
            model.load_weights(at["trained.weights.h5"])
            results[".weights.h5"] = model.predict(x, verbose=0)
        fresh = keras.models.load_model(at["net.keras"], compile=False)
        compile(fresh, how)
        fresh.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks(),
                  **fit)
        wanted = fresh.predict(x, verbose=0)
    moved = difference(wanted, before)
    for name, predicted in results.items():
        far = difference(predicted, wanted)
        point(far < 1e-3 < 0.1 * moved, f"{make.__name__}, {name}: at most {far:.1e} from Keras, which moved {moved:.2f}")


def import_scripts():
    model, how, x, y = mlp()
    model.compile(*how())
    with tempfile.TemporaryDirectory() as folder:
        at = {name: os.path.join(folder, name) for name in ("net.keras", "x.npy", "y.npy", "job", "back.keras")}
        model.save(at["net.keras"])
        np.save(at["x.npy"], x)
        np.save(at["y.npy"], y)
        scripts = os.path.join(TOP, "deploy", "keras")
        dialect = ["--tf-keras"] if sys.argv[1] == "tf_keras" else []
        trained = os.path.join(at["job"], "trained.safetensors")
        run = lambda *words: subprocess.run([sys.executable, *words, *dialect], check=True, capture_output=True)
        run(os.path.join(scripts, "export.py"), at["net.keras"], at["job"], at["x.npy"], at["y.npy"],
            "--batch-size", str(BATCH))
        workerd(os.path.join(at["job"], "job.yaml"), at["job"], output=trained)
        run(os.path.join(scripts, "import.py"), at["net.keras"], trained, at["back.keras"])
        paramserver_keras.load(model, trained)
        far = difference(keras.models.load_model(at["back.keras"]).predict(x, verbose=0), model.predict(x, verbose=0))
    point(far < 1e-6, "export.py and import.py do the same")


# A Sequential model that has not met its input is exported as fit would build it; one that cannot be is refused.
def deferred():
    _, how, x, y = mlp()
    make = lambda: keras.Sequential([L.Dense(8, activation="tanh"), L.Dense(2)])
    model = make()
    compile(model, how)
    with tempfile.TemporaryDirectory() as folder:
        trained = os.path.join(folder, "trained.safetensors")
        job = paramserver_keras.export(model, folder, x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False)
        workerd(job, folder, output=trained)
        model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
        wanted = model.predict(x, verbose=0)
        paramserver_keras.load(model, trained)
    far = difference(model.predict(x, verbose=0), wanted)
    point(far < 1e-3, f"a model that export has built: at most {far:.1e} from Keras")
    for wrong in {"x": x}, [x, x], "x.npy":
        model = make()
        compile(model, how)
        expect_refusal("keras.Input", model, wrong, y)


# Metrics of each output, with names of their own or twice the same, and Keras's names of their figures.
def named_metrics():
    new = keras.metrics
    yield ["sigmoid"], [[new.AUC(curve="PR", name="auc_pr"), new.AUC(name="auc"), "acc", new.MeanSquaredError()]], [
        "loss", "val_auc_pr", "val_auc", "val_acc", "acc", "val_mean_squared_error"]
    yield ["sigmoid", "tanh"], [[new.AUC(curve="PR", name="a"), "mse"], [new.MeanAbsoluteError(name="auc"), "mse"]], [
        "val_loss", "val_tanh_loss", "val_sigmoid_a", "val_tanh_auc", "tanh_mse"]


# A callback monitors in the job what it monitors in Keras: from one epoch both have the same figures of it.
def monitors():
    x = random.normal(size=(N, 4)).astype("f4")
    for outputs, metrics, watched in named_metrics():
        i = keras.Input((4,))
        model = keras.Model(i, [L.Dense(1, activation=o, name=o)(i) for o in outputs])
        y = [(x[:, k] > 0).astype("f4")[:, None] for k in range(len(outputs))]
        y = y if len(y) > 1 else y[0]
        model.compile("sgd", ["mse"] * len(outputs), metrics=metrics)
        callbacks = [keras.callbacks.EarlyStopping(monitor, mode="min") for monitor in watched]
        arguments = {"batch_size": BATCH, "epochs": 1, "shuffle": False, "validation_data": (x, y)}
        with tempfile.TemporaryDirectory() as folder:
            summary = os.path.join(folder, "summary.json")
            job = paramserver_keras.export(model, folder, x, y, callbacks=callbacks, **arguments)
            workerd(job, folder, output=os.path.join(folder, "o.safetensors"), summary=summary)
            with open(job) as f, open(summary) as g:
                names, figures = [c["monitor"] for c in json.load(f)["callbacks"]], json.load(g)["figures"]
        known = model.fit(x, y, verbose=0, **arguments).history
        for monitor, name in zip(watched, names):
            far = abs(known[monitor][-1] - figures[name])
            point(far < 1e-3, f"{monitor} is {name} in the job: {far:.1e} from Keras")
        after = paramserver_keras.figure_names(paramserver_keras.metrics_by_output(
            model.get_compile_config()["metrics"], outputs), outputs)
        point(not {n.removeprefix("val_") for n in watched} - set(after), "of a model that has trained, too")
        expect_refusal("val_precision", model, x, y, callbacks=[keras.callbacks.EarlyStopping("val_precision", mode="max")])


# A job's batch is that of each replica, fit's that of all replicas of the model.
def replicated():
    import tensorflow
    two = {"name": "mirrored", "devices": ["cpu:0", "cpu:1"]}
    four = {"name": "mirrored", "devices": [f"cpu:{i}" for i in range(4)]}
    alone, how, x, y = mlp()
    with tensorflow.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        mirrored = mlp()[0]
        compile(mirrored, how)
    compile(alone, how)
    for model, strategy, wanted in ((alone, two, 64), (mirrored, None, 64), (mirrored, {"name": "mirrored"}, 64),
                                    (mirrored, two, 32), (mirrored, four, 16), (mirrored, {"name": "parameter_server"}, 32),
                                    (mirrored, {**two, "name": "multi_worker_mirrored"}, 32)):
        with tempfile.TemporaryDirectory() as folder:
            with open(paramserver_keras.export(model, folder, x, y, batch_size=64, strategy=strategy)) as f:
                batch_size = json.load(f)["batch_size"]
        point(batch_size == wanted, f"64 examples under {strategy}: {batch_size} of a replica")
    expect_refusal("multiple of 4", mirrored, x, y, batch_size=66, strategy=four)


def boards():
    model, how, x, y = mlp()
    model.compile(*how())
    for freq, steps in ("epoch", None), ("batch", 1), (20, 20):
        callback = keras.callbacks.TensorBoard("board", write_images=True, update_freq=freq)
        with tempfile.TemporaryDirectory() as folder:
            with open(paramserver_keras.export(model, folder, x, y, callbacks=[callback])) as f:
                of, = json.load(f)["callbacks"]
        point(of.get("update_steps") == steps and of.get("write_images"), f"update_freq {freq}: the callback is {of}")


# The mode is said, or found by the figure's name.
def modes():
    model, _, x, y = mlp()
    model.compile("sgd", "mse", metrics=["mae"])
    for mode in "max", "min", "auto":
        callbacks = [keras.callbacks.EarlyStopping("loss", mode=mode), keras.callbacks.ReduceLROnPlateau("loss", mode=mode)]
        with tempfile.TemporaryDirectory() as folder:
            with open(paramserver_keras.export(model, folder, x, y, callbacks=callbacks)) as f:
                found = [c.get("mode") for c in json.load(f)["callbacks"]]
        good = {mode, "min"} if mode == "auto" else {mode}
        point(set(found) <= good, f"mode {mode} is {found} in the job")


# Callbacks that write the training itself: the job writes as often, and what it has written is taken back.
def checkpoints():
    model, how, x, y = mlp()
    model.compile(*how())
    with tempfile.TemporaryDirectory() as folder:
        to = lambda name: os.path.join(folder, name)
        callbacks = [keras.callbacks.ModelCheckpoint(to("all/{epoch}.keras")),
                     keras.callbacks.ModelCheckpoint(to("best/w.weights.h5"), "loss", save_best_only=True,
                                                     save_weights_only=True, mode="min"),
                     keras.callbacks.BackupAndRestore(to("backups"), save_freq=5, delete_checkpoint=False)]
        job = paramserver_keras.export(model, to("net"), x, y, batch_size=BATCH, epochs=2, callbacks=callbacks)
        with open(job) as f:
            of = json.load(f)["callbacks"]
        expected = [{"name": "checkpoint", "path": to("all"), "keep": 0, "save_best_only": False},
                    {"name": "checkpoint", "path": to("best"), "keep": 1, "save_best_only": True, "monitor": "loss", "mode": "min"},
                    {"name": "backup", "path": to("backups"), "every_steps": 5, "delete_checkpoint": False}]
        point(of == expected, f"checkpoints are {of}")
        workerd(job, folder, output=to("o.safetensors"))
        files = [n for n in sorted(os.listdir(to("all"))) if n.endswith(".safetensors")]
        point(len(files) == 2, f"each epoch's is there: {files}")
        paramserver_keras.load(model, to("o.safetensors"))
        trained = model.predict(x, verbose=0)
        model.set_weights([0 * w for w in model.get_weights()])
        paramserver_keras.load(model, os.path.join(to("all"), files[-1]))
        point(np.array_equal(model.predict(x, verbose=0), trained), "the last one has the weights")
    for word, arguments in (("folder", {"filepath": "{epoch}/a.keras"}),
                            ("save_freq", {"filepath": "a.keras", "save_best_only": True, "save_freq": 3}),
                            ("initial_value_threshold", {"filepath": "a.keras", "save_best_only": True,
                                                         "initial_value_threshold": 0.5})):
        expect_refusal(word, model, x, y, callbacks=[keras.callbacks.ModelCheckpoint(**arguments)])


# In one folder a job's would write the same files: each has a folder there.
def checkpoints_in_one_folder():
    model, how, x, y = mlp()
    model.compile(*how())
    Checkpoint, Backup = keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        to = lambda name: os.path.join(folder, name)
        callbacks = [Checkpoint(to("ck/best.keras"), "loss", save_best_only=True), Checkpoint(to("ck/last-{epoch:02d}.keras")),
                     Checkpoint(to("ck/w.weights.h5"), save_weights_only=True), Checkpoint(to("one/a.keras"))]
        job = paramserver_keras.export(model, to("net"), x, y, batch_size=BATCH, epochs=2, callbacks=callbacks)
        with open(job) as f:
            paths = [c["path"] for c in json.load(f)["callbacks"]]
        point(paths == [to(n) for n in ("ck/best", "ck/last", "ck/w", "one")], f"each has a folder of its own: {paths}")
        try:
            workerd(job, folder, output=to("o.safetensors"))
        except RuntimeError as e:
            point(False, f"workerd takes them: {e}")
        files = [len([n for n in os.listdir(p) if n.endswith(".safetensors")]) if os.path.isdir(p) else 0 for p in paths]
        point(files == [1, 2, 1, 1], f"so many checkpoints are there: {files}")
    for names in (("ck/a.keras", "ck/a-{epoch}.keras"), ("ck/best.keras", "ck/{epoch:02d}-{loss:.2f}.keras"),
                  ("ck/a.keras", "ck/b.keras", "ck/a/c.keras"), ("ck/a.keras", "ck/a.keras")):
        expect_refusal("give each a folder of its own", model, x, y, callbacks=[Checkpoint(n) for n in names])
    expect_refusal("save_freq", model, x, y, callbacks=[Checkpoint("ck/a.keras", save_freq=0)])
    if sys.argv[1] == "tf_keras":
        expect_refusal("save_before_preemption", model, x, y, callbacks=[Backup("b", save_before_preemption=True)])
        return
    with tempfile.TemporaryDirectory() as folder:
        with open(paramserver_keras.export(model, folder, x, y, callbacks=[Backup("b", double_checkpoint=True)])) as f:
            of, = json.load(f)["callbacks"]
        point("keep" not in of, f"double_checkpoint is what a job has in any case: {of}")


def write_tensors(path, metadata, **tensors):
    """A file of safetensors. tensors: name -> dtype, array."""
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, value) in tensors.items():
        end = len(data) + value.nbytes
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), end]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


# What psctl save writes of a variable of float64; a checkpoint's checksums; one whose values are elsewhere.
def tensors_of_other_types():
    value = np.array([0.1, -2.0, 3.0, 1e300])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.safetensors")
        write_tensors(path, {}, a=("F64", value), b=("U32", np.arange(2, dtype="<u4")), c=("F32", value[:3].astype("<f4")))
        read = paramserver_keras.read_safetensors(path)
        point(set(read) == {"a", "c"} and np.array_equal(read["a"], value), f"float64 is read: {read}")
        write_tensors(path, {"paramserver/shards": "{}"}, a=("F32", np.zeros(2, "<f4")))
        try:
            paramserver_keras.read_safetensors(path)
            point(False, "a checkpoint in shards is refused")
        except ValueError as e:
            point("shards" in str(e), f"a checkpoint in shards is refused: {e}")


# Settings reach the job; those that it lacks are refused.
def settings():
    model = keras.Sequential([keras.Input((4,)), L.Dense(3, activation="softmax")])
    metrics = [keras.metrics.SparseTopKCategoricalAccuracy(k=2), "accuracy"]
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(), metrics=metrics)
    x, y = np.zeros((N, 4), "f4"), np.zeros(N, "i4")
    with tempfile.TemporaryDirectory() as folder:
        with open(paramserver_keras.export(model, folder, x, y, class_weight=None)) as f:
            job = json.load(f)
    metrics = job["metrics"]
    point("class_weight" not in job, "class_weight=None is none")
    point(metrics == [{"name": "sparse_top_k_categorical_accuracy", "k": 2}, "accuracy"], f"metrics are {metrics}")
    for word, loss in (("ignore_class", keras.losses.SparseCategoricalCrossentropy(ignore_class=0)),
                       ("reduction", keras.losses.SparseCategoricalCrossentropy(reduction="sum"))):
        model.compile("sgd", loss)
        expect_refusal(word, model, x, y)
    for metric in keras.metrics.Accuracy(), keras.metrics.Accuracy(name="acc"):
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=[metric])
        expect_refusal("Accuracy", model, x, y)
    model.compile("sgd", "sparse_categorical_crossentropy")
    expect_refusal("generator", model, (0 for _ in x), y)
    model, how, x, y = branches()
    compile(model, how)
    for word, wrong in (("flat", x[0]), ("price", {"flat": x[0]}), ("rows", [x[0], x[1][1:]])):
        expect_refusal({"price": "keys", "rows": "differ"}.get(word, word), model, wrong, y)


# Bytes, as TensorFlow has strings, are the words that they spell.
def words_of_bytes():
    spelt = [["red"], ["gr\u00fcn"], ["blue, light"]]
    for kind in "S", object:
        value = np.array([[word.encode() for word in row] for row in spelt], dtype=kind)
        found = paramserver_keras.column(value)
        point(found.dtype.kind == "U" and found.tolist() == spelt, f"bytes of dtype {value.dtype} are {found.tolist()}")


# Of an optimizer's state, which a job does not take over, export warns.
def trained_before():
    model, how, x, y = mlp()
    compile(model, how)
    for steps in 0, N // BATCH:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            paramserver_keras.export(model, folder, x, y)
        said = [str(w.message) for w in caught if "optimizer has taken" in str(w.message)]
        point(len(said) == (steps > 0) and all(f" {steps} steps" in text for text in said), f"{steps} steps: {said}")
        model.fit(x, y, batch_size=BATCH, verbose=0)


def expect_refusal(word, model, x, y, **fit):
    try:
        paramserver_keras.export(model, os.path.join(tempfile.gettempdir(), "refused"), x, y, **fit)
        point(False, f"{word} is refused")
    except ValueError as e:
        point(word in str(e), f"{word} is refused: {e}")


def refused():
    model, _, x, y = mlp()
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)
    for word, compiled, fit in (("loss_weights", {"loss_weights": [2.0]}, {}), ("sample_weight", {}, {"sample_weight": np.ones(N)}),
                                ("validation_data", {}, {"validation_data": (x, y, np.ones(N))}),
                                ("steps_per_epoch", {}, {"steps_per_epoch": 3}), ("initial_epoch", {}, {"initial_epoch": 1}),
                                ("LearningRateScheduler", {}, {"callbacks": [scheduler]})):
        model.compile("sgd", "mse", **compiled)
        expect_refusal(word, model, x, y, **fit)
    for excluded in ["bias"], []:
        decays = keras.optimizers.AdamW(0.01)
        decays.exclude_from_weight_decay(var_names=excluded)
        model.compile(decays, "mse")
        if excluded:
            expect_refusal("exclude_from_weight_decay", model, x, y)
    with tempfile.TemporaryDirectory() as folder:
        point(paramserver_keras.export(model, folder, x, y), "nothing is excluded from weight decay")


# What is called as one of Keras's and is not.
def refused_namesakes():
    def relu(x):
        return 100 * x

    def huber(target, output):
        return 100 * keras.losses.huber(target, output)

    class Huber(keras.losses.Loss):
        def call(self, target, output):
            return huber(target, output)

    class AUC(keras.metrics.AUC):
        pass

    class SGD(keras.optimizers.SGD):
        pass

    class CosineDecay(schedules.CosineDecay):
        pass

    class EarlyStopping(keras.callbacks.EarlyStopping):
        pass

    model, _, x, y = mlp()
    for word, how in (("loss huber", {"loss": huber}), ("loss Huber", {"loss": [Huber()]}),
                      ("metric huber", {"metrics": ["mse", huber]}), ("metric AUC", {"metrics": [[AUC()]]}),
                      ("metric cosine_similarity", {"metrics": [keras.losses.cosine_similarity]}),
                      ("metric CosineSimilarity", {"metrics": [keras.losses.CosineSimilarity()]}),
                      ("optimizer SGD", {"optimizer": SGD(0.1)}),
                      ("schedule CosineDecay", {"optimizer": keras.optimizers.SGD(CosineDecay(0.1, 9))})):
        model.compile(**{"optimizer": "sgd", "loss": "mse", **how})
        expect_refusal(word, model, x, y)
    metrics = [keras.losses.huber, keras.metrics.CosineSimilarity(), "cosine_similarity", "mae"]
    model.compile("sgd", keras.losses.cosine_similarity, metrics=metrics)
    expect_refusal("callback EarlyStopping", model, x, y, callbacks=[EarlyStopping("loss")])
    with tempfile.TemporaryDirectory() as folder:
        point(paramserver_keras.export(model, folder, x, y), "a loss and metrics of Keras's own are exported")
    inner = keras.Sequential([keras.Input((6, 3)), L.LSTM(2, recurrent_activation=relu)])
    model = keras.Sequential([keras.Input((6, 3)), inner, L.Dense(1)])
    model.compile("sgd", "mse")
    expect_refusal("activation relu", model, np.zeros((N, 6, 3), "f4"), np.zeros(N, "f4"))


def refused_legacy():
    model, _, x, y = mlp()
    legacy = keras.optimizers.legacy
    for word, optimizer in (("decay", legacy.SGD(0.1, decay=0.01)), ("RMSprop", legacy.RMSprop(0.1))):
        model.compile(optimizer, "mse")
        expect_refusal(word, model, x, y)


points = failed = 0


def point(good, text):
    global points, failed
    points += 1
    failed += not good
    print("ok" if good else "not ok", f"{int(sys.argv[2]) + points} - {sys.argv[1]}: {text}", flush=True)


def has_hdf5():
    with open(os.path.join(os.environ["top_builddir"], "config.status")) as f:
        return 'S["HAVE_HDF5_TRUE"]=""' in f.read()


HDF5 = has_hdf5()
keras.utils.set_random_seed(1)
only = sys.argv[3:]
for make in (mlp, mlp_averaged, mlp_accumulated, nested, inside, cnn, cnn_normalised, normalized, lstm, attention, branches) + (
        (words,) if keras.backend.backend() == "tensorflow" else ()) + ((mlp_legacy,) if sys.argv[1] == "tf_keras" else ()):
    if not only or make.__name__ in only:
        try:
            round_trip(make)
        except RuntimeError as e:
            lacks = "a layer of those that" in str(e)
            point(lacks, f"{make.__name__}{' # SKIP' if lacks else ''}: {e}")
for one in (deferred, checkpoints, checkpoints_in_one_folder, tensors_of_other_types) + (
        (replicated,) if keras.backend.backend() == "tensorflow" else ()):
    if not only or one.__name__ in only:
        one()
if not only:
    import_scripts()
    monitors()
    modes()
    boards()
    settings()
    words_of_bytes()
    trained_before()
    refused()
    refused_namesakes()
    if sys.argv[1] == "tf_keras":
        refused_legacy()
sys.exit(failed > 0)
