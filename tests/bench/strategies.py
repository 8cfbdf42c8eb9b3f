#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Examples per second under each strategy, with one replica and with two, each replica with one thread.

    tests/bench/strategies.py BUILD [--pairs 3] [--seconds 5] [EXAMPLE[:KEY=VALUE ...] ...]

The strategies take turns, so that a noisy machine disturbs all alike. Medians, and each as a multiple of one_device.
Where ps tasks run they share the cores with the workers. Without examples: those of the course notes.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "deploy", "examples")
COURSE = ["mnist-cnn", "resnet20:model=resnet56.json", "tickets", "char-gpt"]


def devices(n):
    return ["--set", "strategy.devices=[%s]" % ",".join("cpu:%d" % i for i in range(n))]


# name: job file, arguments of psctl run for n replicas
STRATEGIES = {
    "one_device": ("one_device", lambda n: []),
    "mirrored": ("one_device", lambda n: ["--set", "strategy.name=mirrored", *devices(n)]),
    "central_storage": ("one_device", lambda n: ["--set", "strategy.name=central_storage", *devices(n)]),
    "multi_worker_mirrored": (
        "one_device", lambda n: ["--workers", str(n), "--set", "strategy.name=multi_worker_mirrored"]),
    "hybrid": ("hybrid", lambda n: ["--ps", "1", "--workers", str(n)]),
    "async": ("async", lambda n: ["--ps", "1", "--workers", str(n)]),
    "ssp": ("ssp", lambda n: ["--ps", "1", "--workers", str(n)]),
    "sync": ("sync", lambda n: ["--ps", "1", "--workers", str(n)]),
    "local_steps": ("local_steps", lambda n: ["--ps", "1", "--workers", str(n)]),
}


class Runs:
    """Trainings of one example."""

    def __init__(self, psctl, example, scratch, seconds):
        self.name, *settings = example.split(":")
        self.psctl, self.scratch, self.seconds = psctl, scratch, seconds
        self.folder = os.path.join(EXAMPLES, self.name)
        self.settings = [word for s in settings for word in ("--set", s)]
        if os.path.exists(os.path.join(self.folder, "data.py")) and self.name != "cars":
            self.folder = os.path.join(scratch, self.name)
            subprocess.run(["cp", "-r", os.path.join(EXAMPLES, self.name), self.folder], check=True)
            subprocess.run([sys.executable, "data.py"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def rate(self, strategy, replicas, steps):
        """Examples per second of all replicas."""
        job, arguments = STRATEGIES[strategy]
        summary = os.path.join(self.scratch, "summary.json")
        command = [self.psctl, "run", *arguments(replicas), os.path.join(self.folder, job + ".yaml"),
                   "--summary", summary, "--set", "threads=1", "--set", "epochs=100000", "--set", "steps=%d" % steps,
                   "--set", "callbacks=[]", "--set", "output=" + os.path.join(self.scratch, "out.safetensors"),
                   *self.settings]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit("%s of %s: %s" % (strategy, self.name, done.stderr[-500:]))
        with open(summary) as f:
            return json.load(f)["examples_per_second"]

    def steps(self, batch_size):
        """About as many as one device takes in the time."""
        return max(8, int(self.rate("one_device", 1, 8) / batch_size * self.seconds))


    def has(self, strategy):
        return os.path.exists(os.path.join(self.folder, STRATEGIES[strategy][0] + ".yaml"))


def batch_size(folder):
    with open(os.path.join(folder, "one_device.yaml")) as f:
        return next(int(line.split(":")[1]) for line in f if line.startswith("batch_size:"))


def measure(runs, pairs):
    steps = runs.steps(batch_size(runs.folder))
    cases = [(s, n) for s in STRATEGIES if runs.has(s) for n in (1, 2)
             if s != "one_device" or n == 1]
    rates = {c: [] for c in cases}
    for _ in range(pairs):
        for case in cases:
            rates[case].append(runs.rate(*case, steps))
    return {c: statistics.median(r) for c, r in rates.items()}


def show(name, medians):
    one = medians["one_device", 1]
    print("%-24s %12s %8s %12s %8s %8s" % (name, "1 replica/s", "", "2 replicas/s", "", "2 / 1"))
    for s in dict.fromkeys(s for s, _ in medians):
        single, pair = medians[s, 1], medians.get((s, 2))
        print("%-24s %12.0f %7.2fx" % (s, single, single / one), end="")
        print(" %12.0f %7.2fx %8.2f" % (pair, pair / one, pair / single) if pair else "")
    print(flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("build")
    p.add_argument("examples", nargs="*", default=COURSE)
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--seconds", type=float, default=5)
    a = p.parse_intermixed_args()
    psctl = os.path.join(os.path.abspath(a.build), "tools", "psctl", "psctl")
    with tempfile.TemporaryDirectory() as scratch:
        for example in a.examples:
            runs = Runs(psctl, example, scratch, a.seconds)
            show(runs.name, measure(runs, a.pairs))


if __name__ == "__main__":
    main()
