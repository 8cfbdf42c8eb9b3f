# SPDX-License-Identifier: Apache-2.0
#
# From Keras to a job of paramserver, and back. Keras 3 (any back end) and tf_keras; needs nothing but these and numpy.
#
#   import paramserver_keras
#   model.compile(...)
#   paramserver_keras.export(model, "net", x, y, batch_size=32, epochs=5)    # instead of model.fit(x, y, ...)
#   # psctl run net/job.yaml, or workerd --job net/job.yaml
#   paramserver_keras.load(model, "net/trained.safetensors")
import json
import os
import re
import struct

import numpy as np

# Settings of Keras's optimizers that mean nothing here, or are refused where they ask for something.
OPTIMIZER_UNUSED = {"name", "is_legacy_optimizer", "jit_compile"}
OPTIMIZER_OF_EMA = {"ema_momentum", "ema_overwrite_frequency"}
OPTIMIZER_REFUSED = {"loss_scale_factor", "decay"}
# Of each callback of Keras's that a job has: its name there, and the attributes that are its settings.
CALLBACKS = {
    "EarlyStopping": ("early_stopping", {"monitor": "monitor", "mode": "mode", "min_delta": "min_delta", "patience": "patience",
                                         "baseline": "baseline", "restore_best_weights": "restore_best_weights",
                                         "start_from_epoch": "start_from_epoch"}),
    "ReduceLROnPlateau": ("reduce_lr_on_plateau", {"monitor": "monitor", "mode": "mode", "factor": "factor", "patience": "patience",
                                                   "min_delta": "min_delta", "cooldown": "cooldown", "min_lr": "min_lr"}),
    "CSVLogger": ("csv_log", {"filename": "path", "sep": "separator"}),
    "TensorBoard": ("tensorboard", {"log_dir": "path", "histogram_freq": "histogram_freq"}),
    "TerminateOnNaN": ("terminate_on_nan", {}),
}
# Arguments of fit that say how much is shown or how it runs, and change nothing.
FIT_UNUSED = {"verbose", "workers", "use_multiprocessing", "max_queue_size"}
# Those that a job has no counterpart of, and what they are where they ask for nothing.
FIT_REFUSED = {"steps_per_epoch": None, "initial_epoch": 0, "validation_steps": None, "validation_batch_size": None,
               "validation_freq": 1, "sample_weight": None}
LOSS_UNUSED = {"name", "reduction", "dtype", "axis", "fn", "ignore_class"}
SHORT_NAMES = {"mean_squared_error": "mse", "acc": "accuracy"}


# ---- safetensors ----------------------------------------------------------------------------------------------------


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
    """name -> float32 array, of a file that paramserver wrote."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


# ---- what was compiled ----------------------------------------------------------------------------------------------


def snake_case(name):
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def class_and_config(serialized):
    """Of an object that Keras has serialized, or of its name."""
    if isinstance(serialized, str):
        return serialized, {}
    name, config = serialized["class_name"], serialized["config"]
    if name == "function":  # a function by its name
        return config, {}
    return name.split(">")[-1], config  # tf_keras: "Custom>Adam"


def plain_number(x):
    """0.001 of the float32 that is nearest to it."""
    return float(str(np.float32(x))) if isinstance(x, float) and np.float32(x) == x else x


def optimizer_settings(serialized):
    name, config = class_and_config(serialized)
    settings = {"name": name.lower()}
    for key, value in config.items():
        if key in OPTIMIZER_UNUSED or value is None or value is False:
            continue
        if key in OPTIMIZER_OF_EMA and not config.get("use_ema"):
            continue
        if key in OPTIMIZER_REFUSED:
            raise ValueError(f"optimizer {name}: {key} = {value} has no counterpart in a job")
        if isinstance(value, dict):  # a schedule
            schedule, inner = class_and_config(value)
            value = {"schedule": schedule}
            value.update({k: plain_number(v) for k, v in inner.items()
                          if k != "name" and v is not None and (k, v) != ("warmup_steps", 0)})
        settings[key] = plain_number(value)
    return settings


def loss_settings(serialized):
    if isinstance(serialized, (list, tuple)) and len(serialized) == 1:
        serialized = serialized[0]
    if not isinstance(serialized, str) and not (isinstance(serialized, dict) and "class_name" in serialized):
        raise ValueError("expected one loss; a job with a loss for each output is written by hand")
    name, config = class_and_config(serialized)
    name = snake_case(name)
    settings = {"name": SHORT_NAMES.get(name, name)}
    settings.update({k: v for k, v in config.items() if k not in LOSS_UNUSED and v not in (None, False, 0)})
    return settings


def metric_names(serialized):
    names = []
    for metric in serialized or []:
        if isinstance(metric, (list, tuple)):
            names += metric_names(metric)
        else:
            name = snake_case(class_and_config(metric)[0])
            names.append(SHORT_NAMES.get(name, name))
    return names


def callback_settings(callback):
    name = type(callback).__name__
    if name not in CALLBACKS:
        raise ValueError(f"callback {name} has no counterpart in a job: expected {', '.join(CALLBACKS)}")
    if getattr(callback, "append", False):
        raise ValueError(f"callback {name}: append = True has no counterpart in a job")
    job_name, attributes = CALLBACKS[name]
    settings = {"name": job_name}
    for attribute, key in attributes.items():
        value = getattr(callback, attribute, None)
        if value is None:
            continue
        value = os.path.abspath(value) if key == "path" else value
        settings[key] = abs(float(value)) if key == "min_delta" else value  # whose sign Keras turns by the mode
    return settings


def fit_settings(arguments):
    """What model.fit takes besides what export names, as a job has it; the others stay."""
    settings = {}
    for key, value in arguments.items():
        if key == "callbacks":
            settings[key] = [callback_settings(c) for c in value or []]
        elif key == "class_weight":
            settings[key] = {int(k): float(v) for k, v in (value or {}).items()}
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
    for key in ("loss_weights", "weighted_metrics"):
        if config.get(key):
            raise ValueError(f"{key} of compile has no counterpart in an exported job")
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
            path = v.path if hasattr(v, "path") else v.name.split(":")[0]
            if "seed_generator" not in path and "float" in str(v.dtype):
                yield f"{prefix}{layer.name}/{path.rpartition(layer.name + '/')[2]}", v


def save_array(folder, name, value):
    value = np.asarray(value)
    if value.ndim == 2 and value.shape[1] == 1 and value.dtype.kind in "iu":
        value = value[:, 0]  # labels
    np.save(os.path.join(folder, name), value.astype("float32") if value.dtype == np.float64 else value)
    return name


def export(model, folder, x, y, batch_size=32, epochs=1, validation_data=None, shuffle=True, validation_split=0.0,
           strategy=None, **more):
    """Writes model.json, weights.safetensors, the data and job.yaml. The arguments are model.fit's, class_weight and
    callbacks among them; what a job has no counterpart of is refused. strategy and what else there is (steps, seed,
    threads, ...) go to the job file as they are. Returns the path of job.yaml."""
    config, more = compiled(model), fit_settings(more)
    job = {
        "model": "model.json",
        "weights": "weights.safetensors",
        "data": {"kind": "npy", "shuffle": bool(shuffle)},
        "loss": loss_settings(config["loss"]),
        "metrics": metric_names(config.get("metrics")),
        "optimizer": optimizer_settings(config["optimizer"]),
        "strategy": strategy or {"name": "one_device"},
        "batch_size": int(batch_size or 32),
        "epochs": int(epochs),
        "output": "trained.safetensors",
    }
    if validation_split and validation_data is None:  # as fit has it
        job["data"]["validation_split"] = float(validation_split)
    job.update(more)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.json"), "w") as f:
        json.dump(json.loads(model.to_json()), f, indent=1)
    write_safetensors(os.path.join(folder, "weights.safetensors"), {n: np.asarray(v) for n, v in variables(model)})
    arrays = {"x": x, "y": y}
    if validation_data is not None:
        arrays.update(x_test=validation_data[0], y_test=validation_data[1])
    for name, value in arrays.items():
        job["data"][name] = save_array(folder, name + ".npy", value)
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
