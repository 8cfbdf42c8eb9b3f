# SPDX-License-Identifier: Apache-2.0
#
# Makes initializers.json: what a million numbers are that each of Keras's initializers draws for a kernel (200, 200).
#
#   pip install keras tensorflow-cpu
#   python tests/golden/make_initializers.py
#
# [{"initializer": as a layer's config has it, "bounded": nothing lies beyond min and max, "min", "max", "mean",
#   "deviation"}]
import json
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np

I = keras.initializers
SHAPE, DRAWS = (200, 200), 25
UNBOUNDED = {"RandomNormal", "Orthogonal"}
CASES = [
    *(getattr(I, name)() for name in (
        "GlorotUniform", "GlorotNormal", "HeUniform", "HeNormal", "LecunUniform", "LecunNormal", "RandomUniform",
        "RandomNormal", "TruncatedNormal", "Zeros", "Ones", "Constant", "VarianceScaling", "Identity", "Orthogonal")),
    I.RandomUniform(1, 4), I.RandomNormal(3, 0.5), I.TruncatedNormal(-1, 0.2), I.Constant(-0.5),
    I.Orthogonal(3), I.VarianceScaling(2), I.VarianceScaling(distribution="untruncated_normal"),
    I.VarianceScaling(3, "fan_avg", "uniform"), I.VarianceScaling(1, "fan_out"),
]


def case(initializer):
    config = keras.saving.serialize_keras_object(initializer)
    v = []
    for seed in range(DRAWS):
        if "seed" in config["config"]:
            initializer = type(initializer)(**{**config["config"], "seed": seed})
        v.append(np.asarray(initializer(SHAPE), "f8"))
    normal = config["class_name"] in UNBOUNDED or config["config"].get("distribution") == "untruncated_normal"
    found = {"min": np.min(v), "max": np.max(v), "mean": np.mean(v), "deviation": np.std(v)}
    return {"initializer": {"class_name": config["class_name"], "config": config["config"]}, "bounded": not normal,
            **{key: float(f"{value:.7g}") for key, value in found.items()}}


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "initializers.json"), "w") as f:
    f.write("[" + ",\n".join(json.dumps(case(c), separators=(",", ":")) for c in CASES) + "]\n")
