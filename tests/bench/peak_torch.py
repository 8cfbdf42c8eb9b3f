#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch takes at most for one step of ResNet-20 with batches of 64, besides what it has before: by its own
profiler, with and without relus in place. Beside it, what workerd takes:

    workerd --job deploy/examples/resnet20/one_device.yaml --set batch_size=64 --show-model | tail -n 1"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile


def conv(channels, filters, stride, size=3):
    return nn.Sequential(nn.Conv2d(channels, filters, size, stride, size // 2, bias=False), nn.BatchNorm2d(filters))


class Block(nn.Module):
    def __init__(self, channels, filters, stride, in_place):
        super().__init__()
        self.first, self.second = conv(channels, filters, stride), conv(filters, filters, 1)
        self.short = conv(channels, filters, stride, 1) if stride > 1 else nn.Identity()
        self.in_place = in_place

    def forward(self, x):
        y = self.second(F.relu(self.first(x), inplace=self.in_place))
        y = y.add_(self.short(x)) if self.in_place else y + self.short(x)
        return F.relu(y, inplace=self.in_place)


def network(in_place):
    layers, channels = [conv(3, 16, 1), nn.ReLU(in_place)], 16
    for stage, filters in enumerate((16, 32, 64)):
        for k in range(3):
            layers.append(Block(channels, filters, 2 if stage and k == 0 else 1, in_place))
            channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def peak(in_place):
    model = network(in_place).to(memory_format=torch.channels_last)
    x = torch.rand(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (64,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    taken = most = 0
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        taken += event.nbytes()
        most = max(most, taken)
    if not events:
        sys.exit("the profiler has seen no memory")
    return most / 2**20


print(f"PyTorch {torch.__version__}: {peak(False):.1f} MiB, with relus in place {peak(True):.1f} MiB")
