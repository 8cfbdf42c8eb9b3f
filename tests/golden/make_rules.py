#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/rules.h: what Keras 3's optimizers make of the same weights and gradients.

Run with keras, numpy and scipy installed:  tests/golden/make_rules.py > tests/golden/rules.h
"""
import os

os.environ["KERAS_BACKEND"] = "numpy"

import keras  # noqa: E402
import numpy as np  # noqa: E402

STEPS, N = 20, 8

CASES = [
    ("sgd", [("learning_rate", 0.05)], keras.optimizers.SGD),
    ("momentum", [("learning_rate", 0.05), ("momentum", 0.9)], keras.optimizers.SGD),
    ("momentum", [("learning_rate", 0.05), ("momentum", 0.9), ("nesterov", 1)], keras.optimizers.SGD),
    ("adam", [], keras.optimizers.Adam),
    ("adam", [("learning_rate", 0.02), ("beta_1", 0.8), ("beta_2", 0.95), ("epsilon", 1e-4)], keras.optimizers.Adam),
]


def weights():
    """Exact in float32, as gradient() is."""
    return np.array([(i * 29 % 17 - 8) / 8 for i in range(N)], "float32")


def gradient(step):
    """step from 1. Element 3 is always 0."""
    g = [((step * 37 + i * 101) % 257 - 128) / 64 for i in range(N)]
    g[3] = 0
    return np.array(g, "float32")


def train(optimizer):
    w = keras.Variable(weights())
    optimizer.build([w])
    after = []
    for step in range(1, STEPS + 1):
        optimizer.apply([gradient(step)], [w])
        after.append(w.numpy().copy())
    slots = [v.numpy().copy() for v in optimizer.variables if v.shape == w.shape]
    return after, slots


def row(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values) + "}"


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by make_rules.py with Keras {keras.__version__}; not edited by hand.")
    print("// clang-format off")
    print(f"enum {{ GOLDEN_STEPS = {STEPS}, GOLDEN_N = {N} }};")
    print(f"static const float golden_weights[GOLDEN_N] = {row(weights())};")
    print("static const float golden_gradient[GOLDEN_STEPS][GOLDEN_N] = {")
    for step in range(1, STEPS + 1):
        print(f"    {row(gradient(step))},")
    print("};")
    print("static const struct golden {")
    print("    const char *rule;")
    print("    struct { const char *name; double value; } hyper[4];")
    print("    float slot[2][GOLDEN_N];             // after the last step")
    print("    float after[GOLDEN_STEPS][GOLDEN_N]; // the weights after each step")
    print("} golden[] = {")
    for rule, hypers, optimizer in CASES:
        after, slots = train(optimizer(**dict(hypers)))
        named = ", ".join(f'{{"{name}", {value:g}}}' for name, value in hypers) or "{NULL, 0}"
        print(f'    {{"{rule}", {{{named}}},')
        print("     {" + ",\n      ".join(map(row, slots or [[0]])) + "},")
        print("     {" + ",\n      ".join(map(row, after)) + "}},")
    print("};")


if __name__ == "__main__":
    main()
