# SPDX-License-Identifier: Apache-2.0
# Makes cifar/data_batch_1.bin to 5 and test_batch.bin: invented images in CIFAR-10's format, for a first try without a
# download. Usage: data.py [IMAGES]. A class is a texture: two waves through each other. An image is a piece of it from
# anywhere, in colours of its own, with noise, and in part behind a piece of another class.
import math
import os
import random
import sys

SIDE, SHEET = 32, 96
draw = random.Random(7)
NOISE = int.from_bytes(b"\x1f" * SIDE * SIDE, "little")


def texture(kind):
    """Rows of a sheet that images are cut from."""
    angle, period = math.pi * kind / 10, 5 + kind % 3 * 2
    return [bytes(int(127.5 + 60 * math.sin(2 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) / period)
                      + 60 * math.sin(2 * math.pi * (y * math.cos(angle) - x * math.sin(angle)) / 11))
                  for x in range(SHEET)) for y in range(SHEET)]


def piece(sheet):
    top, left = draw.randrange(SHEET - SIDE), draw.randrange(SHEET - SIDE)
    return [row[left:left + SIDE] for row in sheet[top:top + SIDE]]


def image(sheets, kind):
    rows, other = piece(sheets[kind]), piece(sheets[draw.randrange(10)])
    top, left, size = draw.randrange(16), draw.randrange(16), draw.randrange(8, 20)
    for y in range(top, min(SIDE, top + size)):
        rows[y] = rows[y][:left] + other[y][left:left + size] + rows[y][left + size:]
    planes = b""
    for _ in range(3):
        low, span = draw.randrange(100), draw.uniform(-0.5, 0.5)
        colour = bytes(min(223, max(0, int(low + 60 + span * (v - 128)))) for v in range(256))
        plane = int.from_bytes(b"".join(rows).translate(colour), "little") ^ draw.getrandbits(8 * SIDE * SIDE) & NOISE
        planes += plane.to_bytes(SIDE * SIDE, "little")
    return bytes([kind]) + planes


sheets = [texture(kind) for kind in range(10)]
n = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
os.makedirs("cifar", exist_ok=True)
for name, images in [(f"data_batch_{i}", n // 5) for i in range(1, 6)] + [("test_batch", n // 5)]:
    with open(f"cifar/{name}.bin", "wb") as f:
        for _ in range(images):
            f.write(image(sheets, draw.randrange(10)))
