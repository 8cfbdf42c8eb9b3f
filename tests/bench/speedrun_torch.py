# SPDX-License-Identifier: Apache-2.0
"""speedrun_torch.py DIR SEED CORES: the speedrun's training in PyTorch, whose data lie in memory as tensors."""
import gzip
import math
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

data, seed, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(cores)
torch.manual_seed(seed)


def idx(name, header):
    path = os.path.join(data, name)
    with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as f:
        return np.frombuffer(f.read(), np.uint8, offset=header)


def split(name):
    x = torch.from_numpy(idx(f"{name}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).astype("float32") / 255)
    y = torch.from_numpy(idx(f"{name}-labels-idx1-ubyte", 8).astype("int64"))
    return x.contiguous(memory_format=torch.channels_last), y


class Net(nn.Module):
    """With the initial values that Keras draws: GlorotUniform and zeros."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dense1, self.dense2 = nn.Linear(1600, 64), nn.Linear(64, 10)
        for layer in self.children():
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(torch.flatten(x, 1))))


(x, y), (x_test, y_test) = split("train"), split("t10k")
model = Net().to(memory_format=torch.channels_last)
optimizer = torch.optim.Adam(model.parameters(), lr=0.004, eps=1e-7, fused=True)
step = 0
for epoch in range(2):
    order = torch.randperm(len(x))
    for i in order.split(64):
        optimizer.param_groups[0]["lr"] = 0.002 * (1 + math.cos(math.pi * min(step / 1876, 1)))
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x[i]), y[i]).backward()
        optimizer.step()
        step += 1
    with torch.no_grad():
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x_test.split(1000), y_test.split(1000)))
    print(f"epoch {epoch + 1}: val_accuracy: {right / len(x_test):.4f}", flush=True)
