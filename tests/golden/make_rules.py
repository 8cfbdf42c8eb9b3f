#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Keras 3's optimizers make of the same weights and gradients, and its schedules of a step.

Run with keras, numpy and scipy installed:

    tests/golden/make_rules.py rules > tests/golden/rules.h
    tests/golden/make_rules.py schedules > tests/golden/schedules.h
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "numpy"

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.optimizers import schedules  # noqa: E402

STEPS, N = 20, 17
KEPT = [1, 2, 5, STEPS]  # the steps after which the weights are kept

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "momentum": keras.optimizers.SGD,
    "nesterov": keras.optimizers.SGD,
    "adagrad": keras.optimizers.Adagrad,
    "adadelta": keras.optimizers.Adadelta,
    "rmsprop": keras.optimizers.RMSprop,
    "rmsprop_momentum": keras.optimizers.RMSprop,
    "rmsprop_centered": keras.optimizers.RMSprop,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "adam_amsgrad": keras.optimizers.Adam,
    "adamw_amsgrad": keras.optimizers.AdamW,
    "nadam": keras.optimizers.Nadam,
    "adamax": keras.optimizers.Adamax,
    "lion": keras.optimizers.Lion,
    "ftrl": keras.optimizers.Ftrl,
}

# Arguments of Keras's that pick the rule.
PICKED_BY = {"nesterov": {"nesterov": True}, "rmsprop_centered": {"centered": True},
             "adam_amsgrad": {"amsgrad": True}, "adamw_amsgrad": {"amsgrad": True}}

CASES = [
    ("sgd", {"learning_rate": 0.05}),
    ("sgd", {"learning_rate": 0.05, "weight_decay": 0.1, "clipvalue": 0.5}),
    ("sgd", {"learning_rate": 0.05, "clipnorm": 0.75}),
    ("sgd", {"learning_rate": 0.05, "clipnorm": 100.0}),
    ("momentum", {"learning_rate": 0.05, "momentum": 0.9}),
    ("momentum", {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1, "global_clipnorm": 1.5}),
    ("nesterov", {"learning_rate": 0.05, "momentum": 0.9}),
    ("nesterov", {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.02}),
    ("adagrad", {"learning_rate": 0.5}),
    ("adagrad", {"learning_rate": 0.5, "initial_accumulator_value": 0.75, "epsilon": 1e-3, "clipvalue": 1.0}),
    ("adadelta", {"learning_rate": 100.0}),
    ("adadelta", {"learning_rate": 2.0, "rho": 0.8, "epsilon": 1e-2, "weight_decay": 0.004}),
    ("rmsprop", {"learning_rate": 0.05}),
    ("rmsprop", {"learning_rate": 0.05, "rho": 0.75, "epsilon": 1e-2, "clipvalue": 0.25}),
    ("rmsprop_momentum", {"learning_rate": 0.05, "momentum": 0.9}),
    ("rmsprop_centered", {"learning_rate": 0.05, "epsilon": 1e-3}),
    ("rmsprop_centered", {"learning_rate": 0.05, "rho": 0.5, "momentum": 0.75, "epsilon": 1e-3, "weight_decay": 0.1}),
    ("adam", {}),
    ("adam", {"learning_rate": 0.02, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4, "global_clipnorm": 2.0}),
    ("adamw", {"learning_rate": 0.05}),
    ("adamw", {"learning_rate": 0.05, "weight_decay": 0.25, "beta_1": 0.5}),
    ("adam_amsgrad", {"learning_rate": 0.05, "beta_2": 0.6}),
    ("adamw_amsgrad", {"learning_rate": 0.05, "beta_1": 0.5, "beta_2": 0.75, "clipvalue": 1.0}),
    ("nadam", {}),
    ("nadam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-4, "weight_decay": 0.1}),
    ("adamax", {}),
    ("adamax", {"learning_rate": 0.05, "beta_1": 0.75, "beta_2": 0.5, "epsilon": 1e-2, "clipnorm": 2.0}),
    ("lion", {}),
    ("lion", {"learning_rate": 0.05, "beta_1": 0.5, "beta_2": 0.75, "weight_decay": 0.25}),
    ("ftrl", {"learning_rate": 0.5}),
    ("ftrl", {"learning_rate": 0.5, "learning_rate_power": -0.75, "initial_accumulator_value": 0.5,
              "l1_regularization_strength": 0.5, "l2_regularization_strength": 0.25,
              "l2_shrinkage_regularization_strength": 0.125, "beta": 0.0625}),
    ("ftrl", {"learning_rate": 0.5, "learning_rate_power": 0.0, "l1_regularization_strength": 0.25,
              "beta": 0.5}),
    ("ftrl", {"learning_rate": 0.5, "l1_regularization_strength": 1.0, "weight_decay": 0.1, "clipvalue": 1.0}),
    ("sgd", {"learning_rate": 0.05, "gradient_accumulation_steps": 3, "clipvalue": 0.5, "weight_decay": 0.1}),
    ("adam", {"learning_rate": 0.05, "gradient_accumulation_steps": 4}),
    ("momentum", {"learning_rate": 0.05, "momentum": 0.9, "use_ema": True}),
    ("adamax", {"learning_rate": 0.05, "use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}),
    ("nadam", {"learning_rate": 0.05, "gradient_accumulation_steps": 2, "use_ema": True, "ema_momentum": 0.75,
               "ema_overwrite_frequency": 3}),
    ("ema", {}),
    ("ema", {"momentum": 0.75}),
]

# Of Keras's arguments, those that are not there or pick a rule.
NOT_HYPERS = {"name", "loss_scale_factor", "amsgrad", "nesterov", "centered"}

# Steps at which schedules are looked at, besides those given.
SCHEDULES = [
    ("constant", {"initial": 0.5}, []),
    ("piecewise", {"boundaries": [0], "values": [0.5, 0.25]}, []),
    ("piecewise", {"boundaries": [10, 20, 21], "values": [0.5, 0.25, 1.0, 0.1]}, [9, 10, 11, 20, 21, 22, 1000]),
    ("exponential", {"initial": 0.1, "decay_steps": 10, "decay_rate": 0.5}, [5, 9, 10, 11, 25, 1000]),
    ("exponential", {"initial": 0.1, "decay_steps": 10, "decay_rate": 0.96, "staircase": True},
     [9, 10, 11, 19, 20, 1000]),
    ("exponential", {"initial": 0.001, "decay_steps": 100, "decay_rate": 4.0}, [50, 100, 130]),
    ("cosine", {"initial": 0.1, "decay_steps": 100}, [10, 25, 33, 50, 66, 75, 99, 100, 101, 1000]),
    ("cosine", {"initial": 0.1, "decay_steps": 7, "alpha": 0.25}, [2, 3, 4, 5, 6, 7, 8]),
    ("cosine", {"initial": 0.4, "decay_steps": 100, "alpha": 0.1, "warmup_steps": 10, "warmup_initial": 0.05},
     [4, 9, 10, 11, 60, 109, 110, 111]),
    ("cosine_restarts", {"initial": 0.1, "decay_steps": 10, "t_mul": 2.0, "m_mul": 1.0},
     [5, 9, 10, 11, 20, 29, 30, 69, 70, 100]),
    ("cosine_restarts", {"initial": 0.5, "decay_steps": 8, "t_mul": 1.0, "m_mul": 0.75, "alpha": 0.1},
     [4, 7, 8, 9, 16, 31, 33, 100]),
    ("cosine_restarts", {"initial": 0.5, "decay_steps": 10, "t_mul": 1.5, "m_mul": 1.25, "alpha": 0.01},
     [7, 10, 12, 24, 26, 47, 48, 200]),
    ("polynomial", {"initial": 0.1, "decay_steps": 100, "end_learning_rate": 0.0001, "power": 1.0},
     [10, 50, 99, 100, 101, 1000]),
    ("polynomial", {"initial": 0.1, "decay_steps": 10, "end_learning_rate": 0.02, "power": 2.5, "cycle": True},
     [5, 9, 10, 11, 15, 20, 21, 25, 1005]),
    ("polynomial", {"initial": 0.01, "decay_steps": 7, "end_learning_rate": 0.5, "power": 0.5}, [3, 6, 7, 8]),
    ("inverse_time", {"initial": 0.1, "decay_steps": 10, "decay_rate": 0.5}, [5, 10, 25, 1000]),
    ("inverse_time", {"initial": 0.1, "decay_steps": 10, "decay_rate": 3.0, "staircase": True}, [9, 10, 11, 20, 1000]),
]


def weights():
    """Exact in float32, as gradient() is."""
    return np.array([(i * 29 % 17 - 8) / 8 for i in range(N)], "float32")


def gradient(step):
    """step from 1. Element 3 is always 0."""
    g = [((step * 37 + i * 101) % 257 - 128) / 64 for i in range(N)]
    g[3] = 0
    return np.array(g, "float32")


def train(rule, hypers):
    optimizer = OPTIMIZERS[rule](**hypers, **PICKED_BY.get(rule, {}))
    w = keras.Variable(weights())
    optimizer.build([w])
    after = []
    for step in range(1, STEPS + 1):
        optimizer.apply([gradient(step)], [w])
        if step in KEPT:
            after.append(w.numpy().copy())
    slots = {v.name.removeprefix(w.name + "_"): v.numpy().copy() for v in optimizer.variables if v.shape == w.shape}
    return after, {name.removeprefix("variable_"): v for name, v in slots.items()}


def average(hypers):
    """The moving mean of a batch normalization that sees one example a step."""
    layer = keras.layers.BatchNormalization(**hypers)
    layer.build((1, N))
    layer.moving_mean.assign(weights())
    after = []
    for step in range(1, STEPS + 1):
        layer(gradient(step).reshape(1, N), training=True)
        if step in KEPT:
            after.append(layer.moving_mean.numpy().copy())
    return after, {}


def defaults():
    for rule in ("sgd", "adagrad", "adadelta", "rmsprop", "adam", "adamw", "nadam", "adamax", "lion", "ftrl"):
        for name, value in OPTIMIZERS[rule]().get_config().items():
            if name not in NOT_HYPERS and not (name == "momentum" and value == 0):
                yield rule, name, np.float64(f"{value or 0:.6g}")
    yield "ema", "momentum", keras.layers.BatchNormalization().momentum


def keras_schedule(kind, initial=0.0, warmup_steps=0, warmup_initial=0.0, **rest):
    if kind == "constant":
        return lambda step: initial
    if kind == "piecewise":
        return schedules.PiecewiseConstantDecay(**rest)
    if kind == "exponential":
        return schedules.ExponentialDecay(initial, **rest)
    if kind == "inverse_time":
        return schedules.InverseTimeDecay(initial, **rest)
    if kind == "polynomial":
        return schedules.PolynomialDecay(initial, **rest)
    if kind == "cosine_restarts":
        return schedules.CosineDecayRestarts(initial, first_decay_steps=rest.pop("decay_steps"), **rest)
    if warmup_steps:
        return schedules.CosineDecay(warmup_initial, warmup_target=initial, warmup_steps=warmup_steps, **rest)
    return schedules.CosineDecay(initial, **rest)


def numbers(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def head():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by make_rules.py with Keras {keras.__version__}; not edited by hand.")
    print("// clang-format off")


def write_rules():
    print(f"enum {{ GOLDEN_STEPS = {STEPS}, GOLDEN_KEPT = {len(KEPT)}, GOLDEN_N = {N} }};")
    print(f"static const int golden_kept[GOLDEN_KEPT] = {numbers(KEPT)};")
    print(f"static const float golden_weights[GOLDEN_N] = {numbers(weights())};")
    print("static const float golden_gradient[GOLDEN_STEPS][GOLDEN_N] = {")
    for step in range(1, STEPS + 1):
        print(f"    {numbers(gradient(step))},")
    print("};")
    print("static const struct { const char *rule, *name; double value; } golden_default[] = {")
    for rule, name, value in defaults():
        print(f'    {{"{rule}", "{name}", {value:g}}},')
    print("};")
    print("static const struct golden {")
    print("    const char *rule;")
    print("    struct { const char *name; double value; } hyper[8];")
    print("    struct { const char *name; float value[GOLDEN_N]; } slot[5];  // after the last step")
    print("    float after[GOLDEN_KEPT][GOLDEN_N];                           // the weights after the kept steps")
    print("} golden[] = {")
    for rule, hypers in CASES:
        after, slots = average(hypers) if rule == "ema" else train(rule, hypers)
        named = ", ".join(f'{{"{name}", {value:g}}}' for name, value in hypers.items()) or "{NULL, 0}"
        kept = ",\n      ".join(f'{{"{name}", {numbers(value)}}}' for name, value in slots.items()) or "{NULL, {0}}"
        print(f'    {{"{rule}", {{{named}}},')
        print("     {" + kept + "},")
        print("     {" + ",\n      ".join(map(numbers, after)) + "}},")
    print("};")


def write_schedules():
    print("static const struct golden {")
    print("    struct ps_schedule schedule;")
    print("    size_t n;")
    print("    uint64_t step[12];")
    print("    double rate[12];")
    print("} golden[] = {")
    for kind, setting, steps in SCHEDULES:
        rate = keras_schedule(kind, **setting)
        steps = sorted({0, 1} | set(steps))
        fields = [f".kind = PS_{kind.upper()}"]
        for name, value in setting.items():
            if name == "boundaries":
                fields.append(f".n_boundaries = {len(value)}")
            name = {"boundaries": "boundary", "values": "value"}.get(name, name)
            fields.append(f".{name} = {numbers(value) if isinstance(value, list) else f'{value:g}'}")
        print(f"    {{{{{', '.join(fields)}}},")
        print(f"     {len(steps)}, {numbers(steps)},")
        print(f"     {numbers(float(rate(np.int64(s))) for s in steps)}}},")
    print("};")


if __name__ == "__main__":
    head()
    {"rules": write_rules, "schedules": write_schedules}[sys.argv[1]]()
