#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psbench beside other programs that do the same work, in one run: every repetition measures each of them once, size by
size, so that each pair of figures comes from the same seconds. Shows medians, and the median of the pairs' ratios.

    tests/bench/peers.py --psbench build/tools/psbench/psbench \\
        --peer 'ps-lite=/path/to/bench {command} {size} {window} {seconds}' --json peers.json

A peer's command line has these words filled in, and prints one JSON object with gb_per_s (10^9 bytes of the variable per
second; a number, or psbench's {"median": ...}) and, where it knows them, client_cpu_s_per_gb, server_cpu_s_per_gb and
p50_us. It starts its own server. tests/bench/allreduce_mpi.c is a peer of allreduce:

        --commands allreduce --peer 'mpi=mpirun -n 2 --mca btl tcp,self ./allreduce_mpi {size} {seconds}' -- --workers 2

Another build's psbench is a peer, too:

        --peer 'before=OLD/psbench {command} --size {size} --window {window} --seconds {seconds} --repeat 1 --no-limit --json'
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OURS, SOCKET = "psbench", "socket"


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def window_of(size):
    """psbench's own default."""
    for limit, window in ((16 << 10, 64), (256 << 10, 16), (2 << 20, 8), (32 << 20, 4)):
        if size <= limit:
            return window
    return 2


def run(words):
    """What the program prints. Peers have been seen to hang or to end at their start: three attempts."""
    for attempts in (2, 1, 0):
        try:
            return subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=120).stdout
        except subprocess.SubprocessError as error:
            print(error, file=sys.stderr)
            if not attempts:
                raise


def measure(words):
    figures = json.loads(run(words))
    rate = figures["gb_per_s"]
    figures["gb_per_s"] = rate["median"] if isinstance(rate, dict) else rate
    return figures


def measure_ours(psbench, options, command, size, window, seconds):
    """Two figures: psbench's, and the plain socket's that it measures right after."""
    words = [psbench, command, "--size", str(size), "--window", str(window), "--seconds", str(seconds)]
    ours = measure(words + ["--repeat", "1", "--json"] + options)
    figures = {OURS: ours}
    if "limit_gb_per_s" in ours:
        figures[SOCKET] = {"gb_per_s": ours["limit_gb_per_s"]["median"]}
    return figures


def fill(template, **words):
    return [word.format(**words) for word in shlex.split(template)]


def spread(values):
    known = [v for v in values if v is not None]
    return {"median": statistics.median(known), "min": min(known), "max": max(known)} if known else None


def cpu(figures):
    both = [figures.get("client_cpu_s_per_gb"), figures.get("server_cpu_s_per_gb")]
    return None if None in both else sum(both)


def sum_up(rounds):
    """Of one command and size: per program its figures, and ours as a ratio to each of the others."""
    programs = {}
    for name in rounds[0]:
        of = [r[name] for r in rounds]
        programs[name] = {"gb_per_s": spread([f["gb_per_s"] for f in of]), "cpu_s_per_gb": spread([cpu(f) for f in of]),
                          "p50_us": spread([f.get("p50_us") for f in of])}
        if name != OURS:
            programs[name]["ratio"] = spread([r[OURS]["gb_per_s"] / r[name]["gb_per_s"] for r in rounds])
    return programs


def show(results, names):
    def cell(s, digits):
        return "-" if s is None else f"{s['median']:.{digits}f}"

    others = [n for n in names if n != OURS]
    head = ["command", "size", OURS + " GB/s"] + [n + " GB/s" for n in others] + ["x " + n for n in others]
    head += ["CPU s/GB " + n for n in names if n != SOCKET]
    rows = [head]
    for r in results:
        p = r["programs"]
        row = [r["command"], r["said"]] + [cell(p[n]["gb_per_s"], 3) for n in [OURS] + others]
        row += [cell(p[n]["ratio"], 2) for n in others]
        rows.append(row + [cell(p[n]["cpu_s_per_gb"], 3) for n in names if n != SOCKET])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(word.ljust(w) if i < 2 else word.rjust(w) for i, (word, w) in enumerate(zip(row, widths))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--psbench", default="build/tools/psbench/psbench")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--commands", default="push,pull,pushpull")
    parser.add_argument("--sizes", default="1K,4K,64K,1M,4M,16M,64M")
    parser.add_argument("--window", type=int, help="calls under way; default: psbench's, by size")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("options", nargs="*", help="after --: more options for psbench")
    args = parser.parse_args()
    peers = dict(p.split("=", 1) for p in args.peer)
    cases = [(c, s) for c in args.commands.split(",") for s in args.sizes.split(",")]
    rounds = {case: [] for case in cases}
    for i in range(args.repeat):
        for command, said in cases:
            size = size_of(said)
            words = {"command": command, "size": size, "window": args.window or window_of(size), "seconds": args.seconds}
            print(f"{i + 1} of {args.repeat}: {command} {said}", file=sys.stderr)
            figures = measure_ours(args.psbench, args.options, **words)
            figures.update((name, measure(fill(template, **words))) for name, template in peers.items())
            rounds[command, said].append(figures)
    results = [{"command": c, "said": s, "size": size_of(s), "repeat": args.repeat, "programs": sum_up(rounds[c, s])}
               for c, s in cases]
    show(results, list(results[0]["programs"]))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


main()
