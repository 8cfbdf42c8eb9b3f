# SPDX-License-Identifier: Apache-2.0
#
# Makes metrics.json: what Keras's metrics say of three batches of 5, 5 and 3 rows.
#
#   pip install keras tensorflow-cpu
#   python tests/golden/make_metrics.py
#
# {"data": {NAME: {"output": rows, "target": rows, or "label": class of each row}},
#  "cases": [{"metric": as in a job file, "data": NAME, "value": a number, or a list of them}]}
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np

ROWS, BATCH = 13, 5
rng = np.random.default_rng(5)
M = keras.metrics


def rounded(v):
    return np.round(v, 4).astype("f4")


def softmax(v):
    v = np.exp(v)
    return rounded(v / v.sum(-1, keepdims=True))


label = rng.integers(0, 4, ROWS)
classes = softmax(rng.normal(0, 1, (ROWS, 4)) + 1.2 * np.eye(4)[label])
classes[3] = [0.3, 0.3, 0.2, 0.2]  # the first of equals
data = {
    "classes": (classes, label),
    "one_hot": (classes, np.eye(4, dtype="f4")[label]),
    "yes": (rounded(rng.uniform(0, 1, (ROWS, 1))), rng.integers(0, 2, (ROWS, 1)).astype("f4")),
    "labels": (rounded(rng.uniform(0, 1, (ROWS, 3))), rng.integers(0, 2, (ROWS, 3)).astype("f4")),
    "logits": (rounded(rng.normal(0, 2, (ROWS, 1))), rng.integers(0, 2, (ROWS, 1)).astype("f4")),
    "numbers": (rounded(rng.normal(0, 1, (ROWS, 3))), rounded(rng.normal(0, 1, (ROWS, 3)))),
    "zeros": (np.zeros((ROWS, 3), "f4"), np.zeros((ROWS, 3), "f4")),
    "none": (np.zeros((ROWS, 3), "f4"), np.eye(3, dtype="f4")[rng.integers(0, 3, ROWS)]),
    "edges": (rounded(rng.choice([0, 0.5, 0.4, 0.25, 0.1, 1, 1.5, -1], (ROWS, 1))), rng.integers(0, 2, (ROWS, 1)).astype("f4")),
}
cases = []


def case(name, metric, spec):
    output, target = data[name]
    for first in range(0, ROWS, BATCH):
        metric.update_state(target[first : first + BATCH], output[first : first + BATCH])
    cases.append({"metric": spec, "data": name, "value": np.asarray(metric.result(), "f8").round(7).tolist()})


def named(name, metric, **settings):
    case(name, metric, {"name": metric.__class__.__name__, **settings})


case("classes", M.SparseCategoricalAccuracy(), "acc")
case("one_hot", M.CategoricalAccuracy(), "accuracy")
case("yes", M.BinaryAccuracy(), "acc")
named("classes", M.SparseCategoricalAccuracy())
named("one_hot", M.CategoricalAccuracy())
named("labels", M.BinaryAccuracy(threshold=0.3), threshold=0.3)
for k in (1, 2, 3):
    named("classes", M.SparseTopKCategoricalAccuracy(k=k), k=k)
    named("one_hot", M.TopKCategoricalAccuracy(k=k), k=k)
for cls in (M.Precision, M.Recall):
    named("yes", cls())
    named("labels", cls(thresholds=0.7), thresholds=0.7)
    named("one_hot", cls(class_id=2), class_id=2)
    named("one_hot", cls(top_k=2), top_k=2)
    named("zeros", cls())
for curve in ("ROC", "PR"):
    named("yes", M.AUC(curve=curve), curve=curve)
    named("labels", M.AUC(curve=curve), curve=curve)
    named("edges", M.AUC(curve=curve, num_thresholds=5), curve=curve, num_thresholds=5)
    named("zeros", M.AUC(curve=curve), curve=curve)
named("logits", M.AUC(from_logits=True), from_logits=True)
for average in (None, "micro", "macro", "weighted"):
    named("one_hot", M.F1Score(average=average), average=average)
    named("labels", M.F1Score(average=average, threshold=0.6), average=average, threshold=0.6)
named("none", M.F1Score(average="micro"), average="micro")
for cls in (M.MeanSquaredError, M.RootMeanSquaredError, M.MeanAbsoluteError, M.MeanAbsolutePercentageError, M.CosineSimilarity):
    named("numbers", cls())
named("zeros", M.RootMeanSquaredError())
named("zeros", M.MeanAbsolutePercentageError())

document = {
    "data": {
        name: {"output": output.round(4).tolist(), "label" if target.ndim == 1 else "target": target.round(4).tolist()}
        for name, (output, target) in data.items()
    },
    "cases": cases,
}
text = json.dumps(document, separators=(",", ":"))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.json"), "w") as f:
    f.write(json.dumps(json.loads(text, parse_float=lambda s: float("%.7g" % float(s))), separators=(",", ":")) + "\n")
