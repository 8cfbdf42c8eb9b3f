# SPDX-License-Identifier: Apache-2.0
"""What strategy local_steps is to compute, in plain Python: two workers train a small network with Adam, five steps at a
time, and an outer rule, SGD with Nesterov momentum, is applied to the mean of their differences.

usage: local_steps_reference.py FOLDER

Writes there the model, the data, the weights to begin with, and what comes of them: expected.safetensors, in two parts
parts.safetensors, and with a delay of two steps besides delayed.safetensors; where the differences travel as bfloat16 or
as bytes, bfloat16.safetensors and int8.safetensors; and as bytes, and what that loses is lost, lossy.safetensors."""
import copy
import json
import math
import random
import struct
import sys

IN, HIDDEN, OUT = 3, 4, 2
WORKERS, LOCAL_STEPS, BATCH, EXAMPLES, EPOCHS = 2, 5, 8, 364, 2  # the last round of an epoch: 40 examples and 4
RATE, BETA_1, BETA_2, EPSILON = 0.01, 0.9, 0.999, 1e-7
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
KEEP, VARIANCE_EPSILON = 0.9, 0.001  # of the batch normalisation

SHAPES = {
    "net/hidden/kernel": (IN, HIDDEN),
    "net/hidden/bias": (HIDDEN,),
    "net/top/kernel": (HIDDEN, OUT),
    "net/top/bias": (OUT,),
    "net/norm/moving_mean": (IN,),
    "net/norm/moving_variance": (IN,),
}
STATES = ("net/norm/moving_mean", "net/norm/moving_variance")


def as_float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def model():
    def layer(kind, **config):
        return {"class_name": kind, "config": config}

    layers = [
        layer("InputLayer", name="in", batch_shape=[None, IN]),
        layer("BatchNormalization", name="norm", momentum=KEEP, epsilon=VARIANCE_EPSILON, center=False, scale=False),
        layer("Dense", name="hidden", units=HIDDEN, activation="tanh"),
        layer("Dense", name="top", units=OUT, activation="linear"),
    ]
    return {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}


def begin(draw):
    """The variables, each a flat list."""
    w = {name: [as_float32(draw.uniform(-0.5, 0.5)) for _ in range(math.prod(s))] for name, s in SHAPES.items()}
    w[STATES[0]], w[STATES[1]] = [0.0] * IN, [1.0] * IN
    return w


def write_safetensors(path, w):
    header, at = {}, 0
    for name, values in w.items():
        end = at + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": list(SHAPES[name]), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for values in w.values():
            f.write(struct.pack("<%df" % len(values), *values))


def normalise(w, rows):
    """The rows with the batch's mean and variance, which the moving ones follow."""
    n = len(rows)
    mean = [sum(r[k] for r in rows) / n for k in range(IN)]
    variance = [sum((r[k] - mean[k]) ** 2 for r in rows) / n for k in range(IN)]
    for name, now in zip(STATES, (mean, variance)):
        w[name] = [KEEP * old + (1 - KEEP) * new for old, new in zip(w[name], now)]
    return [[(r[k] - mean[k]) / math.sqrt(variance[k] + VARIANCE_EPSILON) for k in range(IN)] for r in rows]


def gradients(w, rows, targets):
    """Of the mean squared error over all numbers of the batch."""
    g = {name: [0.0] * len(v) for name, v in w.items() if name not in STATES}
    a, b, c, d = (w[name] for name in g)
    ga, gb, gc, gd = g.values()
    for x, y in zip(rows, targets):
        h = [math.tanh(sum(x[i] * a[i * HIDDEN + j] for i in range(IN)) + b[j]) for j in range(HIDDEN)]
        out = [sum(h[j] * c[j * OUT + k] for j in range(HIDDEN)) + d[k] for k in range(OUT)]
        error = [2 * (out[k] - y[k]) / (OUT * len(rows)) for k in range(OUT)]
        for k in range(OUT):
            gd[k] += error[k]
        for j in range(HIDDEN):
            back = sum(error[k] * c[j * OUT + k] for k in range(OUT)) * (1 - h[j] ** 2)
            for k in range(OUT):
                gc[j * OUT + k] += h[j] * error[k]
            gb[j] += back
            for i in range(IN):
                ga[i * HIDDEN + j] += x[i] * back
    return g


def adam(w, g, m, v, step):
    rate = RATE * math.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
    for name, values in g.items():
        for k, x in enumerate(values):
            m[name][k] += (x - m[name][k]) * (1 - BETA_1)
            v[name][k] += (x * x - v[name][k]) * (1 - BETA_2)
            w[name][k] -= rate * m[name][k] / (math.sqrt(v[name][k]) + EPSILON)


def as_bfloat16(values):
    """Each to the nearest float whose lower 16 bits are 0, or to the even one of two."""
    bits = [struct.unpack("I", struct.pack("f", x))[0] for x in values]
    return [struct.unpack("f", struct.pack("I", (b + 0x7FFF + (b >> 16 & 1)) >> 16 << 16))[0] for b in bits]


def as_bytes(values):
    """Whole multiples, up to 127, of a scale; these variables are smaller than a group."""
    scale = as_float32(max(abs(x) for x in values) / 127)
    return [round(x / scale) * scale if scale else 0.0 for x in values]


def as_they_are(values):
    return values


class Worker:
    """What one keeps: its weights, its slots, what compression has lost of its differences, and of a part under way what
    its weights were when it was pushed."""

    def __init__(self, w):
        self.w = copy.deepcopy(w)
        self.m, self.v, self.lost = ({name: [0.0] * len(x) for name, x in w.items()} for _ in range(3))
        self.trained = self.rows = self.gradients = 0
        self.under_way = {}  # by part: the step at which it is taken, what comes, and the weights at its push
        self.pushed_rows = {}

    def step(self, batch):
        rows = normalise(self.w, [e[:IN] for e in batch])
        self.gradients += 1  # of its own, as Keras's iterations
        adam(self.w, gradients(self.w, rows, [e[IN:] for e in batch]), self.m, self.v, self.gradients)
        self.rows += len(batch)

    def difference(self, name, w, compress, keeps):
        whole = [a - b + c for a, b, c in zip(w[name], self.w[name], self.lost[name])]
        pushed = compress(whole)
        if keeps:
            self.lost[name] = [a - b for a, b in zip(whole, pushed)]
        return pushed

    def take(self, part, names):
        _, come, left = self.under_way.pop(part)
        for name in names:
            moved = [0.0] * len(come[name]) if name in STATES else [a - b for a, b in zip(self.w[name], left[name])]
            self.w[name] = [a + b for a, b in zip(come[name], moved)]

    def take_due(self, parts):
        for part in [part for part, (due, _, _) in self.under_way.items() if due <= self.trained]:
            self.take(part, parts[part])


def mean(values, counts):
    return [sum(n * x for n, x in zip(counts, column)) / sum(counts) for column in zip(*values)]


def outer(w, names, workers, counts, momentum, compress, keeps):
    """The ps tasks' part, of these variables."""
    for name in names:
        if name in STATES:
            w[name] = mean([worker.w[name] for worker in workers], counts)
            continue
        pushed = [worker.difference(name, w, compress, keeps) for worker in workers]
        for k, gradient in enumerate(mean(pushed, counts)):
            momentum[name][k] = OUTER_MOMENTUM * momentum[name][k] - OUTER_RATE * gradient
            w[name][k] += OUTER_MOMENTUM * momentum[name][k] - OUTER_RATE * gradient


class Training:
    """parts: names of the variables that are exchanged together; delay: steps that an exchange takes; keeps: what
    compress loses is added to the next difference."""

    def __init__(self, w, parts, delay, compress=as_they_are, keeps=True):
        self.w, self.parts, self.delay, self.compress, self.keeps = w, parts, delay, compress, keeps
        self.momentum = {name: [0.0] * len(x) for name, x in w.items()}
        self.workers = [Worker(w) for _ in range(WORKERS)]

    def exchange(self, part):
        names = self.parts[part]
        for worker in self.workers:
            if part in worker.under_way:
                worker.take(part, names)
        # A difference is of the weights with which the worker's training began: those that came last.
        counts = [worker.rows - worker.pushed_rows.get(part, 0) for worker in self.workers]
        outer(self.w, names, self.workers, counts, self.momentum, self.compress, self.keeps)
        for worker in self.workers:
            worker.pushed_rows[part] = worker.rows
            worker.under_way[part] = (worker.trained + self.delay, copy.deepcopy(self.w), copy.deepcopy(worker.w))

    def round(self, shares, last):
        """Each worker's examples of a period, the last of its share or not."""
        pushed = set()
        for j in range(LOCAL_STEPS):
            for worker, share in zip(self.workers, shares):
                batch = share[j * BATCH : (j + 1) * BATCH]
                if batch:
                    worker.step(batch)
                worker.trained += 1 if batch or j == 0 else 0
            for part in range(len(self.parts)):
                due = j + 1 == LOCAL_STEPS or ((j + 1) * len(self.parts) >= (part + 1) * LOCAL_STEPS and not last)
                if due and part not in pushed:
                    self.exchange(part)
                    pushed.add(part)
            for worker in self.workers:
                worker.take_due(self.parts)
        if last:
            for worker in self.workers:
                worker.w, worker.under_way = copy.deepcopy(self.w), {}

    def run(self, examples):
        share = LOCAL_STEPS * BATCH
        for _ in range(EPOCHS):
            for first in range(0, EXAMPLES, WORKERS * share):
                shares = [examples[first + r * share : first + (r + 1) * share] for r in range(WORKERS)]
                self.round(shares, first + WORKERS * share >= EXAMPLES)
        return self.w


def main(folder):
    draw = random.Random(7)
    w = begin(draw)
    examples = [[as_float32(draw.gauss(0.5, 2)) for _ in range(IN)] for _ in range(EXAMPLES)]
    for e in examples:
        e += [as_float32(math.sin(e[0]) - 0.3 * e[1]), as_float32(0.5 * e[2] * e[0] / 4)]
    with open(folder + "/model.json", "w") as f:
        json.dump(model(), f)
    with open(folder + "/data.csv", "w") as f:
        f.writelines(",".join("%.9g" % x for x in e) + "\n" for e in examples)
    write_safetensors(folder + "/begin.safetensors", w)
    # In the order in which gradients become ready, cut where half of all numbers are reached.
    halves = [list(STATES) + ["net/top/bias", "net/top/kernel"], ["net/hidden/bias", "net/hidden/kernel"]]
    for name, parts, delay in (("expected", [list(w)], 0), ("parts", halves, 0), ("delayed", halves, 2)):
        write_safetensors(folder + "/" + name + ".safetensors", Training(copy.deepcopy(w), parts, delay).run(examples))
    for name, compress, keeps in (("bfloat16", as_bfloat16, True), ("int8", as_bytes, True), ("lossy", as_bytes, False)):
        training = Training(copy.deepcopy(w), [list(w)], 0, compress, keeps)
        write_safetensors(folder + "/" + name + ".safetensors", training.run(examples))


if __name__ == "__main__":
    main(sys.argv[1])
