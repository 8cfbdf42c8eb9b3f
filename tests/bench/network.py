#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a slow network costs each strategy: two workers and a ps task, each in a network namespace of its own, behind a
token bucket. Needs root, iproute2, procps and a kernel with sch_tbf.

    tests/bench/network.py [--job FILE] BUILD RATE[,RATE ...] [WAY ...]      e.g.  tests/bench/network.py build 10mbit,1gbit,free

A way is a strategy with settings, a name of WAYS; all of them without one. Every way is run at each rate in turn. The
table: milliseconds from one step of worker 0 to the next; which part of its time it waits for others; MB that it sends per
step. The kernel keeps 128 kB that a connection has not sent (tcp_notsent_lowat), as workerd(8) says of such networks.
Models of other sizes: --set, given after --, goes to each worker; --job: another job than mnist-cnn, with its own data.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

RING = ["strategy.name=multi_worker_mirrored", "strategy.communication=ring"]
# Strategy, and examples that worker 0 and 1 train together.
WAYS = {
    "ring": (RING, 6400),
    "ring-bfloat16": (RING + ["strategy.gradient_compression=bfloat16"], 6400),
    "sync": (["strategy.name=parameter_server", "strategy.update=sync"], 6400),
    "async": (["strategy.name=parameter_server", "strategy.update=async"], 6400),
    "local_steps": (["strategy.name=local_steps", "strategy.local_steps=500", "strategy.fragments=4",
                     "strategy.fragment_sync_delay=250"], 256000),
}
HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "../../deploy/examples/mnist-cnn/one_device.yaml")
ADDRESS = "10.213.78.%d"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Network:
    """Three hosts on a switch: workers 0 and 1, and the ps task."""

    def __init__(self):
        self.name = "psn%d" % os.getpid()
        self.hosts = ["%s-%d" % (self.name, i) for i in range(3)]

    def __enter__(self):
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "add", "switch", "type", "bridge")
        ip("-n", self.name, "link", "set", "switch", "up")
        for i, host in enumerate(self.hosts):
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", "to%d" % i, "netns", self.name)
            ip("-n", host, "addr", "add", ADDRESS % (i + 1) + "/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", self.name, "link", "set", "to%d" % i, "master", "switch", "up")
        return self

    def __exit__(self, *why):
        for name in [self.name, *self.hosts]:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def limit(self, rate):
        for host in self.hosts:
            ip("netns", "exec", host, "sysctl", "--quiet", "--write", "net.ipv4.tcp_notsent_lowat=131072")
            tc = ["tc", "-n", host, "qdisc"]
            subprocess.run(tc + ["del", "dev", "eth0", "root"], check=False, stderr=subprocess.DEVNULL)
            if rate != "free":
                # A burst that holds the largest packet: of a smaller one the kernel cuts each into pieces of 1500
                # bytes, which takes both cores.
                subprocess.run(tc + ["add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "80kb", "latency",
                                     "50ms"], check=True)

    def sent(self):
        text = subprocess.run(["ip", "-n", self.hosts[0], "-s", "-j", "link", "show", "eth0"], check=True,
                              capture_output=True).stdout
        return json.loads(text)[0]["stats64"]["tx"]["bytes"]

    def start(self, host, log, *command):
        return subprocess.Popen(["ip", "netns", "exec", self.hosts[host], *command], stdout=log, stderr=log)


def read_timeline(timeline):
    """A step in ms, without what comes before the first, and which part of the time the computing thread waits."""
    with open(timeline, encoding="utf-8") as f:
        events = json.load(f)
    spans, begun = collections.Counter(), []
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for e in events:
        if e["ph"] == "X" and threads[e["pid"], e["tid"]].startswith("compute"):
            spans[e["cat"]] += e["dur"]
            begun += [e["ts"]] if e["name"] == "step" else []
    begun.sort()
    return (begun[-1] - begun[0]) / (len(begun) - 1) / 1000, spans["wait"] / spans["epoch"]


def run(network, build, job, way, more):
    sets, examples = WAYS[way]
    sets = sets + ["epochs=1", "threads=1"]
    if job == JOB:
        sets += ["data.train_examples=%d" % examples, "data.test_examples=100"]
    log = open("log", "w+", encoding="utf-8")
    with open("cluster.yaml", "w", encoding="utf-8") as f:
        f.write('ps: ["%s:7070"]\nworker: ["%s:7071", "%s:7071"]\n' % (ADDRESS % 3, ADDRESS % 1, ADDRESS % 2))
    psd = network.start(2, log, build + "/psd/psd", "--insecure", "--cluster", "cluster.yaml", "--task", "0")
    before = network.sent()
    workers = []
    for rank in range(2):
        command = [build + "/workerd/workerd", "--insecure", "--job", job, "--cluster", "cluster.yaml", "--rank",
                   str(rank), "--summary", "summary.json", "--timeline", "timeline%d.json" % rank]
        for one in sets + ["output=weights%d.safetensors" % rank]:
            command += ["--set", one]
        workers.append(network.start(rank, log, *command, *more))
    codes = [w.wait() for w in workers]
    psd.terminate()
    psd.wait()
    if codes != [0, 0]:
        log.seek(0)
        sys.exit("%s: workerd ended with %s:\n%s" % (way, codes, log.read()[-2000:]))
    with open("summary.json", encoding="utf-8") as f:
        summary = json.load(f)
    steps = summary["steps"]
    return *read_timeline("timeline0.json"), (network.sent() - before) / steps / 1e6


def main():
    words = sys.argv[1:]
    more = words[words.index("--") + 1:] if "--" in words else []
    words = words[:words.index("--")] if "--" in words else words
    job = os.path.abspath(words[1]) if words[:1] == ["--job"] else JOB
    words = words[2:] if words[:1] == ["--job"] else words
    if len(words) < 2 or not set(words[2:]) <= set(WAYS):
        sys.exit(__doc__)
    build, rates, ways = os.path.abspath(words[0]), words[1].split(","), words[2:] or list(WAYS)
    with tempfile.TemporaryDirectory() as scratch, Network() as network:
        os.chdir(scratch)
        print("%-14s %8s %10s %7s %10s" % ("way", "rate", "ms/step", "waits", "MB/step"))
        for way in ways:
            for rate in rates:
                network.limit(rate)
                ms, wait, mb = run(network, build, job, way, more)
                print("%-14s %8s %10.2f %6.1f%% %10.3f" % (way, rate, ms, 100 * wait, mb), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
