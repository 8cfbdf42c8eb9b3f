#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Draws the learning curves of a training as SVG, from what its callback csv_log or json_lines wrote. Needs nothing but
# Python.
#
#   workerd --job JOB --set 'callbacks=[{name: csv_log, path: log.csv}]'
#   plot.py log.csv curve.svg [TITLE]
import csv
import json
import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 720, 300, 58, 58, 40, 86  # of the picture, around its panels, between them
COLOURS = ["#1f6fb4", "#d2601a", "#2c8a3d", "#8a4fa3", "#a5862b", "#555555"]


def read(path):
    """A list for each column, nan where a line lacks it; `epoch` counts from 1."""
    with open(path, newline="") as f:
        text = f.read().splitlines()
    lines = [json.loads(line) for line in text] if text and text[0][0] == "{" else list(csv.DictReader(text))
    names = list(dict.fromkeys(name for line in lines for name in line))
    columns = {name: [number(line.get(name)) for line in lines] for name in names}
    columns["epoch"] = [1 + e for e in columns.get("epoch", [])]
    return columns


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def nice_ticks(low, high):
    """Four to nine round numbers from low to high."""
    rough = max(high - low, 1e-12) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low, high):
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [k * 10**p for p in powers for k in (1, 2, 5) if low <= k * 10**p <= high]
    return ticks if len(ticks) <= 7 else [t for t in ticks if f"{t:e}"[0] == "1"]


class Panel:
    """One square with its axes: where a value lies, and what is drawn there."""

    def __init__(self, left, width, epochs, curves):
        self.left, self.width, self.epochs, self.curves = left, width, epochs, curves
        values = [v for c in curves.values() for v in c if math.isfinite(v)] or [0, 1]
        low, high = min(values), max(values)
        self.log = low > 0 and high / low > 30
        margin = 0 if self.log else 0.05 * (high - low) or 0.5
        self.low, self.high = low - margin, high + margin
        if self.log:
            self.low, self.high = low * 0.9, high * 1.1

    def x(self, epoch):
        first, last = self.epochs[0], self.epochs[-1]
        return self.left + (self.width * (epoch - first) / (last - first) if last > first else self.width / 2)

    def y(self, value):
        at = math.log if self.log else float
        share = (at(value) - at(self.low)) / (at(self.high) - at(self.low))
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def draw_axes(self):
        bottom = HEIGHT - BOTTOM
        for tick in (log_ticks if self.log else nice_ticks)(self.low, self.high):
            y = self.y(tick)
            yield f'<path d="M{self.left} {y:.1f}h{self.width}" stroke="#ddd"/>'
            yield f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.6g}</text>'
        for tick in nice_ticks(self.epochs[0], self.epochs[-1]):
            if tick == int(tick):
                yield f'<text x="{self.x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:.6g}</text>'
        yield f'<path d="M{self.left} {TOP}V{bottom}h{self.width}" stroke="#333" fill="none"/>'
        yield f'<text x="{self.left + self.width / 2}" y="{bottom + 33}" text-anchor="middle">epoch</text>'

    def draw_curves(self):
        for name, values in self.curves.items():
            base = name.removeprefix("val_")
            colour = COLOURS[self.bases().index(base) % len(COLOURS)]
            style = ' stroke-dasharray="4 3"' if name == base and "val_" + base in self.curves else ""
            points = [(self.x(e), self.y(v)) for e, v in zip(self.epochs, values) if math.isfinite(v)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{style}/>'

    def bases(self):
        return list(dict.fromkeys(name.removeprefix("val_") for name in self.curves))

    def draw_legend(self):
        x = self.left
        for i, name in enumerate(self.bases()):
            yield f'<text x="{x}" y="{TOP - 10}" fill="{COLOURS[i % len(COLOURS)]}">{escape(name)}</text>'
            x += 7 * len(name) + 16


def draw(columns, title):
    epochs = columns.pop("epoch")
    columns = {k: v for k, v in columns.items() if k not in ("step", "learning_rate") and any(map(math.isfinite, v))}
    losses = {k: v for k, v in columns.items() if k.removeprefix("val_") == "loss"}
    others = {k: v for k, v in columns.items() if not k.endswith("loss")}
    groups = [curves for curves in (losses, others) if curves]
    width = (WIDTH - LEFT - 14 - GAP * (len(groups) - 1)) / len(groups)
    validated = any(k.startswith("val_") for k in columns)
    key = "solid: test data, dashed: training" if validated else "training data"
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'font-family="sans-serif" font-size="12" fill="#333">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>'
    yield f'<text x="{WIDTH - 14}" y="22" text-anchor="end">{key}</text>'
    for i, curves in enumerate(groups):
        panel = Panel(LEFT + i * (width + GAP), width, epochs, curves)
        yield from panel.draw_axes()
        yield from panel.draw_curves()
        yield from panel.draw_legend()
    yield "</svg>"


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: plot.py LOG OUT.svg [TITLE]")
    columns = read(sys.argv[1])
    if not columns.get("epoch"):
        sys.exit(f"plot.py: {sys.argv[1]}: no epochs; expected what csv_log or json_lines writes")
    with open(sys.argv[2], "w") as f:
        f.write("\n".join(draw(columns, sys.argv[3] if len(sys.argv) == 4 else sys.argv[1])) + "\n")


if __name__ == "__main__":
    main()
