# SPDX-License-Identifier: Apache-2.0
"""A network of two layers of `width` units, whose size is what a figure is about."""
import json


def dense(name, units, activation):
    return {"class_name": "Dense", "config": {"name": name, "units": units, "activation": activation}}


def large_model(path, width, last):
    """last: the activation of the ten outputs."""
    layers = [{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [None, 28, 28]}},
              {"class_name": "Flatten", "config": {"name": "flatten"}},
              dense("a", width, "relu"), dense("b", width, "relu"), dense("out", 10, last)]
    with open(path, "w") as f:
        json.dump({"class_name": "Sequential", "config": {"name": "large", "layers": layers}}, f)
