#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of the terminal in README.md: psctl top of a training that goes on, as it looks after some seconds.

    doc/terminal.py BUILD top.svg

A pseudo-terminal has what the program writes; its screen becomes an SVG of text, light and dark. Needs nothing but Python.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from html import escape

sys.dont_write_bytecode = True
from training import Training  # noqa: E402

ROWS, COLUMNS, SECONDS = 20, 126, 8
WIDE, HIGH, MARGIN, BAR = 8, 18, 16, 30  # pixels: of a character, of a line, around the text, the window's bar


class Screen:
    """As much of a VT100 as psctl needs: moves of the cursor, and what clears."""

    def __init__(self):
        self.lines = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0

    def put(self, c):
        if c == "\n":
            self.row = min(self.row + 1, ROWS - 1)
        elif c == "\r":
            self.column = 0
        elif c >= " " and self.column < COLUMNS:
            self.lines[self.row][self.column] = c
            self.column += 1

    def clear(self, row, first):
        self.lines[row][first:] = [" "] * (COLUMNS - first)

    def control(self, numbers, letter):
        if letter == "H":
            row, column = (numbers + [1, 1])[:2]
            self.row, self.column = min(max(row, 1), ROWS) - 1, min(max(column, 1), COLUMNS) - 1
        elif letter == "K":
            self.clear(self.row, self.column)
        elif letter == "J":
            first = 0 if numbers[:1] == [2] else self.row
            self.clear(first, self.column if first else 0)
            for row in range(first + 1, ROWS):
                self.clear(row, 0)

    def write(self, text):
        for match in re.finditer(r"\x1b\[\??([0-9;]*)([A-Za-z])|\x1b.|(.)", text, re.DOTALL):
            if match[3]:
                self.put(match[3])
            elif match[2]:
                self.control([int(n) for n in match[1].split(";") if n], match[2])

    def text(self):
        return [line.rstrip() for line in map("".join, self.lines)]


def watch(command):
    """The screen of a program after SECONDS; it is interrupted then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LANG="C.UTF-8", LC_ALL="C.UTF-8")
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    written, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            written += os.read(terminal, 1 << 16)
    screen = Screen()
    screen.write(written.decode())
    os.kill(pid, signal.SIGINT)
    os.waitpid(pid, 0)
    return screen.text()


STYLE = """
svg { color-scheme: light dark; }
.window { fill: #fbfcfd; stroke: #c5ccd3; } .bar { fill: #e8ecf0; } .dot { fill: #b6bfc8; }
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1c2128; white-space: pre; }
.title { fill: #57606a; } .prompt { fill: #1a7037; }
@media (prefers-color-scheme: dark) {
  .window { fill: #12161b; stroke: #3a444e; } .bar { fill: #1f262d; } .dot { fill: #55606b; }
  text { fill: #e4e8ec; } .title { fill: #9ba6b2; } .prompt { fill: #5fc77f; }
}"""


def line_of(text, row, kind=""):
    """A line as wide as its characters are on a terminal, whatever font is there."""
    x = MARGIN + WIDE * (len(text) - len(text.lstrip()))
    text = text.strip()
    return (f'<text{kind} x="{x}" y="{BAR + MARGIN + HIGH * row + 13}" textLength="{WIDE * len(text)}" '
            f'xml:space="preserve">{escape(text)}</text>')


def draw(lines, command):
    lines = [f"$ {command}"] + lines
    while not lines[-1]:
        lines.pop()
    wide, high = 2 * MARGIN + WIDE * max(map(len, lines)), BAR + 2 * MARGIN + HIGH * len(lines)
    text = [line_of(line, i, ' class="prompt"' if i == 0 else "") for i, line in enumerate(lines) if line]
    dots = "".join(f'<circle class="dot" cx="{18 + 18 * i}" cy="{BAR // 2}" r="5"/>' for i in range(3))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img">',
        f"<title>{escape(command)}</title>", f"<style>{STYLE}\n</style>",
        f'<rect class="window" x=".5" y=".5" width="{wide - 1}" height="{high - 1}" rx="8"/>',
        f'<path class="bar" d="M1 {BAR}V8.5a7.5 7.5 0 0 1 7.5-7.5H{wide - 8.5}a7.5 7.5 0 0 1 7.5 7.5V{BAR}z"/>', dots,
        *text, "</svg>", ""])


def main():
    build, path = sys.argv[1:]
    with Training(build, "mnist-cnn/ssp.yaml") as training:
        training.wait_for_steps(200)
        lines = watch([f"{build}/tools/psctl/psctl", "--cluster", training.cluster, "top"])
    with open(path, "w") as f:
        f.write(draw(lines, "psctl --cluster cluster.yaml top"))


if __name__ == "__main__":
    main()
