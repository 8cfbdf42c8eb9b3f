# SPDX-License-Identifier: Apache-2.0
#
# From Keras to a job of paramserver, and back. Keras 3 (any back end) and tf_keras; needs nothing but these and numpy.
#
#   import paramserver_keras
#   model.compile(...)
#   paramserver_keras.export(model, "net", x, y, batch_size=32, epochs=5)    # instead of model.fit(x, y, ...)
#   # psctl run net/job.yaml, or workerd --job net/job.yaml
#   paramserver_keras.load(model, "net/trained.safetensors")
import csv
import json
import os
import re
import struct
import warnings

import numpy as np

KERAS = ("keras", "tf_keras")
# Settings of Keras's optimizers that mean nothing here, or are refused where they ask for something.
OPTIMIZER_UNUSED = {"name", "is_legacy_optimizer", "jit_compile"}
OPTIMIZER_OF_EMA = {"ema_momentum", "ema_overwrite_frequency"}
OPTIMIZER_REFUSED = {"loss_scale_factor", "decay"}
# Attributes that have what exclude_from_weight_decay was called with, which is in no config.
EXCLUDED_FROM_DECAY = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern", "_exclude_from_weight_decay_names")
# Of each callback of Keras's that a job has: its name there, and the attributes that are its settings.
CALLBACKS = {
    "EarlyStopping": ("early_stopping", {"monitor": "monitor", "mode": "mode", "min_delta": "min_delta", "patience": "patience",
                                         "baseline": "baseline", "restore_best_weights": "restore_best_weights",
                                         "start_from_epoch": "start_from_epoch"}),
    "ReduceLROnPlateau": ("reduce_lr_on_plateau", {"monitor": "monitor", "mode": "mode", "factor": "factor", "patience": "patience",
                                                   "min_delta": "min_delta", "cooldown": "cooldown", "min_lr": "min_lr"}),
    "CSVLogger": ("csv_log", {"filename": "path", "sep": "separator"}),
    "TensorBoard": ("tensorboard", {"log_dir": "path", "histogram_freq": "histogram_freq",
                                    "write_images": "write_images", "update_freq": "update_steps"}),
    "TerminateOnNaN": ("terminate_on_nan", {}),
    "ModelCheckpoint": ("checkpoint", {"save_freq": "every_steps", "save_best_only": "save_best_only", "monitor": "monitor",
                                       "mode": "mode"}),
    "BackupAndRestore": ("backup", {"backup_dir": "path", "save_freq": "every_steps",
                                    "delete_checkpoint": "delete_checkpoint"}),
}
BY_EPOCH = ("update_steps", "epoch"), ("every_steps", "epoch")  # which is a job's default
COMPARES = {"less": "min", "greater": "max"}
# Settings of Keras's callbacks that a job's lack, and what they are there.
CALLBACK_FIXED = {"append": (False,), "period": (1,), "load_weights_on_restart": (False,), "save_before_preemption": (False,)}
# Arguments of fit that say how much is shown or how it runs, and change nothing.
FIT_UNUSED = {"verbose", "workers", "use_multiprocessing", "max_queue_size"}
# Those that a job has no counterpart of, and what they are where they ask for nothing.
FIT_REFUSED = {"steps_per_epoch": None, "initial_epoch": 0, "validation_steps": None, "validation_batch_size": None,
               "validation_freq": 1, "sample_weight": None}
SETTING_UNUSED = {"name", "dtype", "fn"}
# Settings of Keras's losses and metrics that a job's lack, and what they are there.
LOSS_FIXED = {"reduction": ("sum_over_batch_size", "auto"), "axis": (-1,), "ignore_class": (None,)}
METRIC_FIXED = {"summation_method": ("interpolation",), "multi_label": (False,), "num_labels": (None,),
                "label_weights": (None,), "axis": (-1,), "beta": (1.0,)}


# ---- safetensors ----------------------------------------------------------------------------------------------------

FLOATS = {"F32": "<f4", "F64": "<f8"}


def write_safetensors(path, tensors):
    """tensors: name -> array; written as float32."""
    header, data = {}, b""
    for name, value in sorted(tensors.items()):
        part = np.ascontiguousarray(value, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(np.shape(value)), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """name -> array, of the floats in a file that paramserver wrote."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    if "paramserver/shards" in header.pop("__metadata__", {}):
        raise ValueError(f"{path} is a checkpoint whose values are in shards beside it: expected the job's output, or what "
                         "psctl save writes")
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], FLOATS[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items() if t["dtype"] in FLOATS}


# ---- what was compiled ----------------------------------------------------------------------------------------------


def snake_case(name):
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def class_and_config(serialized):
    """Of an object, one that Keras has serialized, or one's name."""
    if isinstance(serialized, str):
        return serialized, {}
    if hasattr(serialized, "get_config"):  # a loss, of whose settings Keras's get_config may lack some
        return type(serialized).__name__, {**serialized.get_config(), **getattr(serialized, "_fn_kwargs", {})}
    if callable(serialized):
        return serialized.__name__, {}
    name, config = serialized["class_name"], serialized["config"]
    if name == "function":  # a function by its name
        return config, {}
    return name.split(">")[-1], config  # tf_keras: "Custom>Adam"


def origin(one):
    """The module of an object, a class or a function, or of one that Keras has serialized."""
    if isinstance(one, dict):
        return one.get("module", "keras") or ""
    return (one if hasattr(one, "__name__") else type(one)).__module__ or ""


def expect_own(kind, one, packages=KERAS):
    """Refuses what is not Keras's own: a job knows it by its name alone, which it may share with one that is."""
    if isinstance(one, str):
        return
    module = origin(one)
    name = one["class_name"] if isinstance(one, dict) else getattr(one, "__name__", type(one).__name__)
    if module.split(".")[0] not in packages:
        raise ValueError(f"{kind} {name} is not Keras's own and has no counterpart in a job: expected one of Keras's")
    if snake_case(name) == "cosine_similarity" and f".{kind}" not in module:
        raise ValueError(f"{kind} {name} of {module} has the other sign in a job: expected that of keras.metrics as a "
                         "metric, that of keras.losses as a loss")


def each(nested):
    """What was compiled, one by one: of lists and maps by the outputs what is in them."""
    if nested is None or is_one(nested):
        return [] if nested is None else [nested]
    return [one for part in (nested.values() if isinstance(nested, dict) else nested) for one in each(part)]


def plain_number(x):
    """0.001 of the float32 that is nearest to it."""
    return float(str(np.float32(x))) if isinstance(x, float) and np.float32(x) == x else x


def optimizer_settings(serialized):
    name, config = class_and_config(serialized)
    settings = {"name": name.lower()}
    if name == "RMSprop" and "decay" in config and not config["momentum"]:
        raise ValueError("legacy optimizer RMSprop without momentum, which adds epsilon to the root, has no counterpart "
                         "in a job: expected tf_keras.optimizers.RMSprop")
    for key, value in config.items():
        if key in OPTIMIZER_UNUSED or value is None or value is False or (key, value) == ("decay", 0):
            continue
        if key in OPTIMIZER_OF_EMA and not config.get("use_ema"):
            continue
        if key in OPTIMIZER_REFUSED:
            raise ValueError(f"optimizer {name}: {key} = {value} has no counterpart in a job")
        if isinstance(value, dict):  # a schedule
            expect_own("schedule", value)
            schedule, inner = class_and_config(value)
            value = {"schedule": schedule}
            value.update({k: plain_number(v) for k, v in inner.items()
                          if k != "name" and v is not None and (k, v) != ("warmup_steps", 0)})
        settings[key] = plain_number(value)
    return settings


def settings_of(kind, serialized, fixed):
    """The name of a loss or metric, which is that of Keras's class, and what it was told."""
    name, config = class_and_config(serialized)
    name = snake_case(name)
    for key, values in fixed.items():
        if key in config and config[key] not in values:
            raise ValueError(f"{kind} {name}: {key} = {config[key]!r} has no counterpart in a job")
    settings = {"name": name}
    settings.update({k: v for k, v in config.items()
                     if k not in SETTING_UNUSED and k not in fixed and v is not None and v is not False})
    return settings


def is_one(serialized):
    if isinstance(serialized, dict):
        return "class_name" in serialized
    return isinstance(serialized, str) or hasattr(serialized, "get_config") or callable(serialized)


def by_output(what, serialized, names):
    """A list or map of something for each output as a map by their names."""
    if isinstance(serialized, dict) and not is_one(serialized):
        unknown = sorted(set(serialized) - set(names))
        if unknown:
            raise ValueError(f"{what} of compile names {', '.join(unknown)}; the model's outputs are {', '.join(names)}")
        return {n: serialized.get(n) for n in names}
    if isinstance(serialized, (list, tuple)) and len(serialized) == len(names):
        return dict(zip(names, serialized))
    raise ValueError(f"{what} of compile: expected one for each of the outputs {', '.join(names)}, not {serialized!r}")


def loss_settings(serialized, names=(), weights=None):
    """Of one output, or of several a map by their names."""
    if len(names) < 2:
        if not is_one(serialized):
            serialized, = by_output("loss", serialized, list(names) or ["the output"]).values()
        return settings_of("loss", serialized, LOSS_FIXED)
    losses = {n: serialized for n in names} if is_one(serialized) else by_output("loss", serialized, names)
    if None in losses.values():
        raise ValueError("loss of compile: an output without a loss has no counterpart in a job")
    losses = {n: settings_of("loss", loss, LOSS_FIXED) for n, loss in losses.items()}
    for n, weight in (by_output("loss_weights", weights, names) if weights else {}).items():
        losses[n]["weight"] = 1.0 if weight is None else float(weight)
    return losses


def metrics_by_output(serialized, names):
    """A list of metrics for each output that has some, by the outputs' names."""
    if not serialized:
        return {}
    nested = isinstance(serialized, (list, tuple)) and any(isinstance(m, (list, tuple)) for m in serialized)
    if len(names) > 1 or nested or isinstance(serialized, dict) and not is_one(serialized):
        of = by_output("metrics", serialized, names)
    else:
        of = {names[0]: serialized}
    return {n: [m] if is_one(m) else list(m) for n, m in of.items() if m}


def metric_list(metrics):
    for m in metrics:
        if not isinstance(m, str) and snake_case(class_and_config(m)[0]) == "accuracy":
            raise ValueError("metric Accuracy, of outputs that equal their targets, has no counterpart in a job: "
                             "expected the string \"accuracy\", or BinaryAccuracy and its like")
    found = [settings_of("metric", m, METRIC_FIXED) for m in metrics]
    return [m["name"] if len(m) == 1 else m for m in found]


def metric_settings(metrics, names):
    """As loss_settings. metrics: of metrics_by_output."""
    found = {n: metric_list(m) for n, m in metrics.items()}
    return found if len(names) > 1 and found else found.get(names[0], [])


def told_apart(names):
    """The second x is x_1, as Keras and a job call it."""
    found = []
    for name in names:
        one, n = name, 0
        while one in found:
            n += 1
            one = f"{name}_{n}"
        found.append(one)
    return found


def figure_names(metrics, names, keys=None):
    """Of each figure that a training has in Keras, its name in a job. There a metric is called by its class, whatever
    name it has in Keras. keys: what Keras calls the outputs, if not names."""
    keras, job = [], []
    key_of = dict(zip(names, keys or names))
    for output, of in metrics.items():
        before, prefix = (f"{key_of[output]}_", f"{output}_") if len(names) > 1 else ("", "")
        for metric in of:
            class_name, config = class_and_config(metric)
            # A model of tf_keras that has been trained has put the output's name before that of the metric.
            keras.append(before + config.get("name", class_name).removeprefix(before))
            job.append(prefix + settings_of("metric", metric, METRIC_FIXED)["name"])
    losses = {f"{key_of[n]}_loss": f"{n}_loss" for n in names if len(names) > 1}
    return {"lr": "learning_rate", "learning_rate": "learning_rate", **dict(zip(told_apart(keras), told_apart(job))),
            "loss": "loss", **losses}


def monitored(callback, figures):
    """The job's name of the figure that a callback monitors. figures: of figure_names."""
    name = callback.monitor
    prefix = "val_" if name.startswith("val_") and name not in figures else ""
    if name[len(prefix):] not in figures:
        known = ", ".join(n for n in figures if n != "lr")
        raise ValueError(f"callback {type(callback).__name__}: monitor {name!r} is no figure of this model's: expected "
                         f"one of {known}, or val_ and one of them")
    return prefix + figures[name[len(prefix):]]


def checkpoint_settings(callback, settings):
    """What filepath says: a job's checkpoints are files JOB-STEP.safetensors in a folder, which load takes."""
    folder, name = os.path.split(os.path.abspath(callback.filepath))
    if "{" in folder:
        raise ValueError(f"callback ModelCheckpoint: a folder by the epoch, as in filepath {callback.filepath!r}, has no "
                         "counterpart in a job")
    if callback.save_best_only and "every_steps" in settings:
        raise ValueError(f"callback ModelCheckpoint: save_best_only with save_freq = {callback.save_freq} has no counterpart "
                         "in a job: expected save_freq \"epoch\"")
    if callback.save_best_only and callback.best is not None and np.isfinite(callback.best):
        raise ValueError(f"callback ModelCheckpoint: initial_value_threshold, or a best of {callback.best} that it has seen, "
                         "has no counterpart in a job")
    return {**settings, "path": folder, "keep": 0 if "{" in name else 1}


def callback_settings(callback, figures):
    name = type(callback).__name__
    if name not in CALLBACKS:
        raise ValueError(f"callback {name} has no counterpart in a job: expected {', '.join(CALLBACKS)}")
    expect_own("callback", callback)
    for key, values in CALLBACK_FIXED.items():
        if getattr(callback, key, values[0]) not in values:
            raise ValueError(f"callback {name}: {key} = {getattr(callback, key)} has no counterpart in a job")
    if not getattr(callback, "save_freq", "epoch"):
        raise ValueError(f"callback {name}: save_freq = {callback.save_freq} has no counterpart in a job: expected "
                         "\"epoch\" or a number of steps")
    job_name, attributes = CALLBACKS[name]
    settings = {"name": job_name}
    for attribute, key in attributes.items():
        value = getattr(callback, attribute, None)
        if attribute == "mode" and value is None:  # tf_keras's EarlyStopping keeps only what it compares by
            value = COMPARES.get(getattr(callback.monitor_op, "__name__", None))
        if value is None or (key, value) in BY_EPOCH:
            continue
        if key in ("monitor", "mode") and not getattr(callback, "save_best_only", True):
            continue
        if key == "update_steps":  # 1 is "batch" to Keras
            value = 1 if value == "batch" else int(value)
        if key == "monitor":
            value = monitored(callback, figures)
        value = os.path.abspath(value) if key == "path" else value
        settings[key] = abs(float(value)) if key == "min_delta" else value  # whose sign Keras turns by the mode
    return checkpoint_settings(callback, settings) if name == "ModelCheckpoint" else settings


def checkpoint_stem(filepath):
    """best of ck/best-{epoch:02d}.weights.h5."""
    name = re.sub(r"(\.weights)?\.(keras|h5|hdf5)$", "", os.path.basename(filepath))
    return re.sub(r"\{[^}]*\}", "", name).strip(" -_.")


def callbacks_settings(callbacks, figures):
    """Of each callback. Those of ModelCheckpoint that share a folder, where a job's would write the same files, have
    one in it by the file's name each."""
    settings = [callback_settings(c, figures) for c in callbacks]
    found = [(s, c.filepath) for s, c in zip(settings, callbacks) if s["name"] == "checkpoint"]
    folders = [os.path.realpath(s["path"]) for s, _ in found]
    for (of, filepath), folder in zip(found, folders):
        if folders.count(folder) > 1:
            of["path"] = os.path.join(of["path"], checkpoint_stem(filepath))
    paths = [os.path.realpath(s["path"]) for s, _ in found]
    for path, folder, (_, filepath) in zip(paths, folders, found):
        if paths.count(path) > 1 or path == folder and folders.count(folder) > 1:
            raise ValueError(f"callback ModelCheckpoint: filepath {filepath!r} has no folder of its own in a job, whose "
                             "checkpoints are not told apart by their files' names: give each a folder of its own")
    return settings


def fit_settings(arguments, figures):
    """What model.fit takes besides what export names, as a job has it; the others stay. figures: of figure_names."""
    settings = {}
    for key, value in arguments.items():
        if key == "callbacks":
            settings[key] = callbacks_settings(list(value or []), figures)
        elif key == "class_weight":
            if value:
                settings[key] = {int(k): float(v) for k, v in value.items()}
        elif key in FIT_REFUSED:
            if value is not None and (key == "sample_weight" or value != FIT_REFUSED[key]):
                raise ValueError(f"{key} of fit has no counterpart in an exported job")
        elif key not in FIT_UNUSED:
            settings[key] = value
    return settings


def compiled(model):
    config = model.get_compile_config() if hasattr(model, "get_compile_config") else None
    if not config or config.get("optimizer") is None:
        raise ValueError("expected a compiled model: call model.compile(optimizer=..., loss=...) first")
    told = model._compile_config.config  # the objects themselves
    for kind, key in ("optimizer", "optimizer"), ("loss", "loss"), ("metric", "metrics"):
        for one in each(told.get(key)):
            expect_own(kind, one)
    for key in ("loss_weights", "weighted_metrics"):
        if config.get(key) and (key == "weighted_metrics" or len(model.outputs) < 2):
            raise ValueError(f"{key} of compile has no counterpart in an exported job")
    if any(getattr(model.optimizer, attribute, None) for attribute in EXCLUDED_FROM_DECAY):
        raise ValueError("exclude_from_weight_decay of the optimizer has no counterpart in a job")
    return config


# ---- export and import ----------------------------------------------------------------------------------------------


def variables(model, prefix=""):
    """Name, as workerd has it but for the model's own, and variable: all weights and states, and no random numbers'
    states, nor what a vocabulary's terms weigh, which the document has. Keras's paths lack the names of inner models
    where these were built by themselves."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from variables(layer, f"{prefix}{layer.name}/")
            continue
        for v in () if hasattr(layer, "get_vocabulary") else layer.weights:
            if "float" not in str(getattr(v, "dtype", "")):
                continue
            path = v.path if hasattr(v, "path") else v.name.split(":")[0]
            if "seed_generator" not in path:
                yield f"{prefix}{layer.name}/{path.rpartition(layer.name + '/')[2]}", v


def document(model):
    """model.to_json(), and in it the vocabularies that adapt() has found."""
    for layer in model._flatten_layers():
        for key in "activation", "recurrent_activation":
            if callable(getattr(layer, key, None)):
                expect_own("activation", getattr(layer, key), (*KERAS, "tensorflow"))  # tf.nn's are the same
    found = json.loads(model.to_json())

    def fill(config, model):
        layers = {layer.name: layer for layer in model.layers}
        for layer in config["layers"]:
            inner = layer["config"]
            of = layers.get(inner["name"])
            if "layers" in inner:
                fill(inner, of)
            elif layer["class_name"] in ("StringLookup", "IntegerLookup") and inner.get("vocabulary") is None:
                terms = of.get_vocabulary(include_special_tokens=False)
                inner["vocabulary"] = [str(t) if layer["class_name"] == "StringLookup" else int(t) for t in terms]

    fill(found["config"], model)
    return found


def column(value):
    """An array as workerd reads it."""
    kind, value = type(value).__name__, np.asarray(value)
    if value.ndim == 0:
        raise ValueError(f"expected an array whose first dimension is the examples', not a {kind}")
    if value.dtype.kind in "OS":  # bytes are UTF-8, as in TensorFlow
        text = [v.decode() if isinstance(v, bytes) else str(v) for v in value.flat]
        return np.array(text, dtype=str).reshape(value.shape)
    if value.dtype.kind == "U":
        return value
    if value.ndim == 2 and value.shape[1] == 1 and value.dtype.kind in "iu":
        value = value[:, 0]  # labels
    if value.dtype.kind == "f":
        value = value.astype("float32")
    return np.ascontiguousarray(value.astype("uint8") if value.dtype.kind == "b" else value)


def columns(what, values, names):
    """fit's x or y, an array or a list or map of them, as a map by the names of the model's inputs or outputs."""
    if isinstance(values, dict):
        if set(values) != set(names):
            raise ValueError(f"{what} has the keys {', '.join(map(str, values))}; the model has {', '.join(names)}")
        return {n: column(values[n]) for n in names}
    if len(names) == 1 and not (isinstance(values, (list, tuple)) and len(values) == 1 and np.ndim(values[0]) > 0):
        return {names[0]: column(values)}
    if not isinstance(values, (list, tuple)) or len(values) != len(names):
        raise ValueError(f"expected {what} to be an array for each of {', '.join(names)}: a list or a dict of them")
    return {n: column(v) for n, v in zip(names, values)}


def input_names(model):
    return [i._keras_history[0].name for i in model.inputs]  # the layer's; a tensor of Keras 3 may have another one


def output_names(model):
    return list(getattr(model, "output_names", None) or [model.layers[-1].name])


def output_keys(model):
    """What Keras calls each of output_names: of outputs that are a dict its keys, in their order."""
    outputs = getattr(model, "_outputs_struct", getattr(model, "_nested_outputs", None))
    return sorted(outputs) if isinstance(outputs, dict) else output_names(model)


def by_output_name(of, model):
    """A dict by output_keys as one by output_names; what is none stays."""
    name_of = dict(zip(output_keys(model), output_names(model)))
    return {name_of.get(k, k): v for k, v in of.items()} if isinstance(of, dict) and not is_one(of) else of


def build(model, x):
    """A Sequential model that does not know its input yet learns it from x, as in fit."""
    if getattr(model, "inputs", None):
        return
    one = x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x
    shape = getattr(one, "shape", ())
    if type(model).__name__ != "Sequential" or not shape or np.asarray(one).dtype.kind in "OSU":
        raise ValueError("expected a model that knows its inputs: a Functional one, or a Sequential one that begins with "
                         "keras.Input(shape)")
    model.build((None, *(shape[1:] or (1,))))


def save_csv(path, arrays):
    """Arrays of strings are read from CSV only. Returns the names of each one's fields."""
    fields = {}
    for name, value in arrays.items():
        if value.ndim > 2:
            raise ValueError(f"{name} has shape {value.shape}; beside strings, which go to a CSV file, expected (rows, n)")
        width = value.size // len(value)
        fields[name] = [name] if width == 1 else [f"{name}_{i}" for i in range(width)]
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow([field for of in fields.values() for field in of])
        flat = [value.reshape(len(value), -1).tolist() for value in arrays.values()]
        writer.writerows(sum(row, []) for row in zip(*flat))
    return fields


def split_arrays(split, x, y, model):
    inputs, outputs = input_names(model), output_names(model)
    if set(inputs) & set(outputs):
        raise ValueError(f"{', '.join(set(inputs) & set(outputs))} is an input and an output: give one another name")
    arrays = {**columns("x" + split, x, inputs), **columns("y" + split, by_output_name(y, model), outputs)}
    rows = {n: len(v) for n, v in arrays.items()}
    if len(set(rows.values())) > 1:
        raise ValueError("the arrays' first dimensions differ: " + ", ".join(f"{n} {r}" for n, r in rows.items()))
    return arrays


def save_data(folder, model, splits):
    """splits: "" and "_test" -> (x, y). One input and one output in .npy files; where there are strings a CSV file for
    each split, else an .npz."""
    inputs, outputs, data = input_names(model), output_names(model), {}
    for split, (x, y) in splits.items():
        arrays = split_arrays(split, x, y, model)
        strings = any(v.dtype.kind == "U" for v in arrays.values())
        data["kind"] = "csv" if strings else "npy" if len(arrays) == 2 else "npz"
        file = f"{(split or '_train')[1:]}.{data['kind']}"
        if data["kind"] == "npy":
            for name, value in zip(("x", "y"), arrays.values()):
                data[name + split] = f"{name}{split}.npy"
                np.save(os.path.join(folder, data[name + split]), value)
            continue
        data["test_path" if split else "path"] = file
        if strings:
            fields = save_csv(os.path.join(folder, file), arrays)
            data.update(header=True, label=sum((fields[n] for n in outputs), []))
        else:
            fields = {n: [n] for n in arrays}
            np.savez(os.path.join(folder, file), **arrays)
        of = {n: f if len(f) > 1 else f[0] for n, f in fields.items()}
        data.update(inputs={n: of[n] for n in inputs}, outputs={n: of[n] for n in outputs})
    return data


def batch_of_replica(model, batch_size, strategy):
    """Of a model that tf.distribute replicates fit's batch is that of all replicas, a job's that of each."""
    n = getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1)
    strategy = strategy or {"name": "one_device"}
    if n > 1 and strategy.get("name") in ("one_device", "mirrored", "central_storage"):  # as many as its devices
        n = len(strategy.get("devices") or ["default"])
    if batch_size % n:
        raise ValueError(f"batch_size {batch_size} is that of the model's replicas together: expected a multiple of {n}, "
                         "the job's replicas")
    return batch_size // n


def export(model, folder, x, y, batch_size=32, epochs=1, validation_data=None, shuffle=True, validation_split=0.0,
           strategy=None, **more):
    """Writes model.json, weights.safetensors, the data and job.yaml. The arguments are model.fit's, class_weight and
    callbacks among them; of a model with several inputs or outputs x and y are lists or dicts of arrays. What a job has
    no counterpart of is refused. Of several ModelCheckpoint in one folder, as ck/best.keras and ck/last.keras, each has
    one in it, ck/best and ck/last. An optimizer that has taken steps begins anew, of which a warning tells.
    strategy and what else there is (steps, seed, threads, ...) go to the job file as they are, batch_size too, which is
    that of each replica in a job. Only of a model compiled under a tf.distribute strategy of several replicas it is that of
    all together, as fit has it, and is divided by the replicas: with mirrored and central_storage the devices in strategy,
    with one_device one, else as many as the model's.
    Returns the path of job.yaml."""
    build(model, x)
    config, names = compiled(model), output_names(model)
    steps = int(np.asarray(model.optimizer.iterations))
    if steps:
        warnings.warn(f"the optimizer has taken {steps} steps: in the job it begins anew, with no moments and at its "
                      "schedule's first learning rate", stacklevel=2)
    metrics = metrics_by_output(by_output_name(config.get("metrics"), model), names)
    # tf_keras has figures by the outputs' names.
    keys = output_keys(model) if hasattr(model, "_outputs_struct") else names
    more = fit_settings(more, figure_names(metrics, names, keys))
    job = {
        "name": re.sub(r"[^A-Za-z0-9_.-]", "_", model.name).lstrip(".")[:128],
        "model": "model.json",
        "weights": "weights.safetensors",
        "data": {},
        "loss": loss_settings(by_output_name(model.loss, model), names, by_output_name(config.get("loss_weights"), model)),
        "metrics": metric_settings(metrics, names),
        "optimizer": optimizer_settings(config["optimizer"]),
        "strategy": strategy or {"name": "one_device"},
        "batch_size": batch_of_replica(model, int(batch_size or 32), strategy),
        "epochs": int(epochs),
        "output": "trained.safetensors",
    }
    job.update(more)
    os.makedirs(folder, exist_ok=True)
    splits = {"": (x, y)}
    if validation_data is not None:
        if any(weights is not None for weights in validation_data[2:]):
            raise ValueError("weights of validation_data's examples have no counterpart in a job")
        splits["_test"] = validation_data[:2]
    job["data"] = save_data(folder, model, splits)
    job["data"]["shuffle"] = bool(shuffle)
    if validation_split and validation_data is None:  # as fit has it
        job["data"]["validation_split"] = float(validation_split)
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(document(model), f, indent=1)
    write_safetensors(os.path.join(folder, "weights.safetensors"), {n: np.asarray(v) for n, v in variables(model)})
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        json.dump(job, f, indent=2)  # which is YAML
        f.write("\n")
    return path


def has_parts(name, parts):
    """Are these parts of name, in their order, the last one as its last?"""
    left = iter(name.split("/"))
    return name.split("/")[-1] == parts[-1] and all(p in left for p in parts)


def tensor_of(name, tensors, short, v):
    """The name of a variable's tensor. A Keras that has built a layer from a document leaves out parts of the name:
    lstm/kernel is lstm/lstm_cell/kernel."""
    if name in tensors:
        return name
    parts = name.split("/")[1:]
    if "/".join(parts) in short:
        return short["/".join(parts)]
    found = [n for n, full in short.items() if has_parts(n, parts) and tensors[full].shape == tuple(v.shape)]
    return short[found[0]] if len(found) == 1 else None


def finalize(model):
    """Normalization goes by what its variables were when it was told so."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            finalize(layer)
        elif hasattr(layer, "finalize_state") and type(layer).__name__ == "Normalization":
            layer.finalize_state()


def load(model, path):
    """Puts trained weights, a file of workerd's of any kind, into the model."""
    if not str(path).endswith(".safetensors"):
        model.load_weights(path)
        return
    tensors, wanted = read_safetensors(path), list(variables(model))
    short = {name.split("/", 1)[-1]: name for name in tensors}  # without the model's name
    taken = {name: tensor_of(f"{model.name}/{name}", tensors, short, v) for name, v in wanted}
    missing = [name for name, v in wanted if taken[name] is None or tensors[taken[name]].shape != tuple(v.shape)]
    if missing or len(set(taken.values())) < len(taken):
        raise ValueError(f"{path} has no tensors of the right shape for {', '.join(missing) or 'each variable'}")
    for name, v in wanted:
        v.assign(tensors[taken[name]])
    finalize(model)
