#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps per second on one GPU: workerd's one_device beside PyTorch, in one run. The same networks, batches,
rules and precision; each repetition measures every one of them once, and medians are shown.

    tests/bench/gpu.py --workerd build/workerd/workerd [--mnist DIR] [--precision float32,tensorfloat32] [--json F]

PyTorch runs eagerly, compiled (torch.compile, "reduce-overhead"), and with its whole step as a CUDA graph that is
replayed, each in the order of pixels and channels that is the faster. Its batches lie in pinned memory, and the next
travels while a step computes; workerd's come from its own data pipeline. PyTorch's cuDNN chooses by measuring; workerd
is as it is by default, which is deterministic. workerd's pace is that between a short and a long training: without what
starting takes. Before ResNet-56: python3 deploy/examples/resnet20/data.py, in its folder."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

EXAMPLES = os.path.join(os.path.dirname(__file__), "../../deploy/examples")
TORCH_ORDERS = torch.channels_last, torch.contiguous_format


class Convnet(nn.Module):
    """deploy/examples/mnist-cnn"""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dense1, self.dense2 = nn.Linear(1600, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(torch.flatten(x, 1))))


class Block(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)
        self.short = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class Resnet(nn.Module):
    """deploy/examples/resnet20, and its resnet56.json"""

    def __init__(self, blocks):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        layers, channels = [], 16
        for filters in 16, 32, 64:
            for k in range(blocks):
                layers.append(Block(channels, filters, 2 if filters > 16 and k == 0 else 1))
                channels = filters
        self.blocks, self.dense = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.dense(x.mean((2, 3)))


NETWORKS = {
    "mnist-cnn": {
        "job": "mnist-cnn/one_device.yaml", "shape": (1, 28, 28), "batch": 64, "make": Convnet,
        "set": ["optimizer={name: adam, learning_rate: 0.001}"],
        "rule": lambda p, capturable: torch.optim.Adam(p, lr=0.001, eps=1e-7, fused=True, capturable=capturable),
    },
    "resnet56": {
        "job": "resnet20/one_device.yaml", "shape": (3, 32, 32), "batch": 64, "make": lambda: Resnet(9),
        "set": [f"model={os.path.abspath(EXAMPLES)}/resnet20/resnet56.json",
                "optimizer={name: sgd, learning_rate: 0.1, momentum: 0.9, nesterov: true}"],
        "rule": lambda p, capturable: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    },
}


# ---- PyTorch ---------------------------------------------------------------------------------------------------------

def torch_precision(name):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = name != "float32"


def torch_step(model, rule, autocast):
    def step(x, y):
        rule.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        rule.step()
        return loss
    return step


def torch_graphed(step, x, y):
    """step, recorded: what it is given is copied to where the graph reads."""
    x, y = x.clone(memory_format=torch.preserve_format), y.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x, y)

    def replay(a, b):
        x.copy_(a, non_blocking=True)
        y.copy_(b, non_blocking=True)
        graph.replay()
        return loss
    return replay


class Torch:
    """A network in training, prepared once, in this order of pixels and channels."""

    def __init__(self, net, how, precision, order):
        torch_precision(precision)
        self.precision = precision
        images = torch.rand(64 * net["batch"], *net["shape"]).contiguous(memory_format=order).pin_memory()
        kinds = torch.randint(0, 10, (len(images),)).pin_memory()
        self.batches = list(zip(images.split(net["batch"]), kinds.split(net["batch"])))
        model = net["make"]().cuda().to(memory_format=order)
        rule = net["rule"](model.parameters(), how == "graphed")
        self.lives = model, rule  # a graph does not keep what it reads
        step = torch_step(torch.compile(model, mode="reduce-overhead") if how == "compiled" else model, rule,
                          precision == "bfloat16")
        if how == "graphed":
            self.step = torch_graphed(step, *(x.cuda() for x in self.batches[0]))
        else:
            self.step = lambda x, y: step(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
        self.run(50)

    def run(self, n):
        torch_precision(self.precision)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for k in range(n):
            self.step(*self.batches[k % len(self.batches)])
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def rate(self, seconds):
        n = max(50, int(50 / self.run(50) * seconds))
        return n / self.run(n)


# ---- workerd ---------------------------------------------------------------------------------------------------------

def workerd_seconds(args, net, precision, epochs, scratch):
    summary = os.path.join(scratch, "summary.json")
    mnist = [f"data={{kind: idx, path: {args.mnist}, scale: 1/255}}"] if args.mnist and "mnist" in net["job"] else []
    settings = net["set"] + mnist + args.set + [f"epochs={epochs}", f"output={scratch}/weights.safetensors",
                                        f"batch_size={net['batch']}", f"matmul_precision={precision}"]
    command = [args.workerd, "--job", os.path.join(EXAMPLES, net["job"]), "--summary", summary]
    for s in settings:
        command += ["--set", s]
    got = subprocess.run(command, capture_output=True, text=True)
    if got.returncode:
        sys.exit(f"{' '.join(command)}: {got.stderr[-2000:]}")
    with open(summary) as f:
        found = json.load(f)
    return found["steps"], found["steps"] * net["batch"] / found["examples_per_second"]


def workerd_rate(args, net, precision, scratch):
    few, short = workerd_seconds(args, net, precision, args.epochs, scratch)
    many, long = workerd_seconds(args, net, precision, 4 * args.epochs, scratch)
    return (many - few) / (long - short)


# ---- all of them -----------------------------------------------------------------------------------------------------

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workerd", required=True)
    p.add_argument("--networks", default="mnist-cnn,resnet56")
    p.add_argument("--precision", default="float32,tensorfloat32")
    p.add_argument("--torch", default="eager,compiled,graphed")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--seconds", type=float, default=1, help="of each of PyTorch's trainings")
    p.add_argument("--epochs", type=int, default=1, help="of workerd's short training; the long one has four times more")
    p.add_argument("--set", action="append", default=["device=gpu"], help="as workerd's")
    p.add_argument("--mnist", metavar="DIR", help="train on the MNIST that is there")
    p.add_argument("--json")
    args = p.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.networks.split(","):
            net = NETWORKS[name]
            for precision in args.precision.split(","):
                torch._dynamo.reset()
                peers = {how: [Torch(net, how, precision, order) for order in TORCH_ORDERS]
                         for how in filter(None, args.torch.split(","))}
                rates = {"workerd": [], **{how: [] for how in peers}}
                for _ in range(args.repeat):
                    rates["workerd"].append(workerd_rate(args, net, precision, scratch))
                    for how in peers:
                        rates[how].append(max(p.rate(args.seconds) for p in peers[how]))
                medians = {k: statistics.median(v) for k, v in rates.items()}
                found.append({"network": name, "precision": precision, "steps_per_s": medians, "all": rates})
                print(f"{name:10} {precision:14} " + "  ".join(
                    f"{k} {v:7.0f}/s" + (f" (x{medians['workerd'] / v:.2f})" if k != "workerd" else "")
                    for k, v in medians.items()), flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rates": found}, f, indent=1)


main()
