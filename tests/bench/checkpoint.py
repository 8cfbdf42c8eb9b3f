#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What checkpoints cost: examples per second with one every so many seconds, as a multiple of those without.

    tests/bench/checkpoint.py BUILD [--pairs 5] [--seconds 20] [--every 2] [--width 8800] [--folder DIR] [CASE ...]

Cases: conv, a small network on one device; sync, the same with one ps task and two workers; large, a network of two
layers of WIDTH units with Adam on one device, whose checkpoint has 12 bytes for each of its parameters (1 GB); large-ps,
the same with one ps task and a worker that waits for its device most of the time, as with a GPU. Trainings with and
without take turns, so that a noisy machine disturbs both alike; printed are each pair's ratio and the median.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # beside large_model.py, in the sources
from large_model import large_model  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "deploy", "examples")


def cases(o):
    conv = os.path.join(EXAMPLES, "conv")
    large = ["--set", "model=" + os.path.join(o.folder, "large.json"), "--set", "optimizer={name: adam}",
             "--set", "batch_size=1"]
    return {"conv": (os.path.join(conv, "one_device.yaml"), []),
            "sync": (os.path.join(conv, "sync.yaml"), ["--ps", "1", "--workers", "2"]),
            "large": (os.path.join(conv, "one_device.yaml"), large),
            "large-ps": (os.path.join(conv, "sync.yaml"),
                         ["--ps", "1", "--workers", "1", *large, "--set", "delay_ms=%d" % o.delay])}


def rate(o, case, steps, every):
    """Examples per second of a training of so many steps; every: seconds between its checkpoints, or 0."""
    job, arguments = cases(o)[case]
    summary = os.path.join(o.folder, "summary.json")
    callbacks = "[{name: checkpoint, path: %s, every_seconds: %d, sharded: %s}]" % (
        os.path.join(o.folder, case), every, "true" if o.sharded else "false")
    command = [os.path.join(o.build, "tools/psctl/psctl"), "run", *arguments, job, "--summary", summary,
               "--set", "epochs=1000000", "--set", "data.train_examples=64000", "--set", "data.test_examples=10",
               "--set", "steps=%d" % steps, "--set", "callbacks=" + (callbacks if every else "[]"),
               "--set", "output=" + os.path.join(o.folder, "out.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **o.env})
    if done.returncode:
        sys.exit("%s: %s" % (case, done.stderr[-500:]))
    with open(summary) as f:
        return json.load(f)["examples_per_second"]


def measure(o, case):
    batch = 1 if case.startswith("large") else 64 * (2 if case == "sync" else 1)
    steps = max(4, int(rate(o, case, 8 if batch == 1 else 100, 0) / batch * o.seconds))
    ratios = []
    for pair in range(o.pairs):
        order = [0, o.every] if pair % 2 else [o.every, 0]
        rates = {every: rate(o, case, steps, every) for every in order}
        ratios.append(rates[o.every] / rates[0])
        print("%-10s pair %d: %9.1f examples/s without, %9.1f with: %.3f"
              % (case, pair + 1, rates[0], rates[o.every], ratios[-1]), flush=True)
    files = [os.path.join(at, f) for at, _, names in os.walk(os.path.join(o.folder, case)) for f in names]
    size = max(map(os.path.getsize, files), default=0)
    print("%-10s median %.3f, one of %.1f MB every %d s, %d pairs of %d steps"
          % (case, statistics.median(ratios), size / 1e6, o.every, o.pairs, steps), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--every", type=int, default=2)
    p.add_argument("--width", type=int, default=8800)
    p.add_argument("--delay", type=int, default=500, help="ms that a step of the large network waits for its device")
    p.add_argument("--sharded", action="store_true", help="the ps task writes what it keeps")
    p.add_argument("--folder", help="for the checkpoints; default: a temporary one")
    p.add_argument("--workerd", help="instead of the build's")
    p.add_argument("case", nargs="*", default=["conv", "sync", "large"])
    o = p.parse_intermixed_args()
    o.env = {"WORKERD": o.workerd} if o.workerd else {}
    with tempfile.TemporaryDirectory(dir=o.folder) as o.folder:
        large_model(os.path.join(o.folder, "large.json"), o.width, "relu")
        for case in o.case:
            measure(o, case)


main()
