#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a training stands still when its ps task is killed: the seconds from SIGKILL to the next finished step.

    tests/bench/restart.py BUILD [--kills 5] [--width 15420] [--workers 2] [--steps 6] [--restart-ms 100]
                           [--update sync] [--sharded shared|own] [--folder DIR] [--set KEY=VALUE ...]
                           [--unit psd@0 --ps ADDRESS --http ADDRESS] [--log]

A psd, which is started again as systemd would do it, so many milliseconds after it has died; workers with a backup
every so many steps; a network of two layers of WIDTH units (15420: 250 million parameters, 1 GB of float32). psd is
killed three steps after a backup has been written. A row per kill has the seconds from it until psd listened again;
until the last worker had noticed, had found the backup and read it, and was in the job; until the backup's values were
put; until the other workers had pulled these; and until the first step was finished by worker 0. Beside them are the
CPU time of all processes until then, and what an ordinary step takes.

--sharded: the ps task writes the backup and loads it, in the workers' folder (shared), or in one of its own, so that the
workers have the values from it alone.

--unit: psd is a unit of this machine's systemd, as the package installs it, which starts it again; it is reached at --ps,
and has its metrics at --http (PSD_OPTIONS in psd.conf). This needs to be root, who may kill it.
"""
import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.dont_write_bytecode = True  # beside large_model.py, in the sources
from large_model import large_model  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = os.path.join(HERE, "../../deploy/examples/conv/sync.yaml")
PHASES = ["up", "noticed", "found", "joined", "put", "pulled", "step"]


def parameters(width):
    return 784 * width + width + width * width + width + 10 * width + 10


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Daemon:
    """A process; when each line of its log came, in seconds; its metrics."""

    def __init__(self, command):
        self.lines = []
        self.http = "127.0.0.1:%d" % free_port()
        self.command = [*command, "--http", self.http]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.listen_to(self.process.stderr)

    def pid(self):
        return self.process.pid

    def stop(self):
        self.process.kill()
        self.process.wait()

    def listen_to(self, log):
        threading.Thread(target=self.listen, args=[log], daemon=True).start()

    def listen(self, log):
        for line in log:
            self.lines.append((time.monotonic(), line))

    def when(self, text, since):
        """The first such line since then; None: there is none."""
        return next((at for at, line in list(self.lines) if at > since and text in line), None)

    def metric(self, name):
        """None: nobody answers, or has it."""
        try:
            with urllib.request.urlopen("http://%s/metrics" % self.http, timeout=10) as reply:
                found = re.search(r"^%s(?:\{[^}]*\})? (\S+)$" % name, reply.read().decode(), re.M)
        except OSError:
            return None
        return float(found.group(1)) if found else None

    def cpu_seconds(self):
        """Of the process that runs now."""
        with open("/proc/%d/stat" % self.pid()) as f:
            return sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


class Restarted(Daemon):
    """One that is started again whenever it has been killed, until it is stopped."""

    def __init__(self, command, after):
        super().__init__(command)
        self.stopped = threading.Event()
        self.keeper = threading.Thread(target=self.keep, args=[after])
        self.keeper.start()

    def keep(self, after):
        while self.process.wait() == -signal.SIGKILL and not self.stopped.is_set():
            time.sleep(after)
            self.start()

    def stop(self):
        self.stopped.set()
        super().stop()
        self.keeper.join()


class Unit(Daemon):
    """One that systemd starts again; its log is the journal. Stopped, nobody listens to it any more."""

    def __init__(self, name, http):
        self.lines = []
        self.http = http
        self.name = name
        self.process = subprocess.Popen(["journalctl", "--follow", "--lines=0", "--output=short-monotonic", "--unit",
                                         name], stdout=subprocess.PIPE, text=True)
        self.listen_to(self.process.stdout)

    def listen(self, log):
        """The journal is late, but says when: [  12.345678] host psd[9]: ..."""
        for line in log:
            at = re.match(r"\[ *([0-9.]+)\] ", line)
            if at:
                self.lines.append((float(at.group(1)), line))

    def pid(self):
        return int(subprocess.check_output(["systemctl", "show", "--property=MainPID", "--value", self.name]))


def wait_until(o, what, condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end or any(d.process.poll() is not None for d in o.trains):
            sys.exit("%s: it did not come to that\n%s" % (what, "".join(line for d in [o.psd, *o.trains]
                                                                        for _, line in d.lines[-10:])))
        time.sleep(0.01)


def steps(o):
    return o.trains[0].metric("paramserver_workerd_steps_total") or 0


def newest(o):
    return max((int(f.split("-")[-1].split(".")[0]) for f in os.listdir(o.backups) if f.endswith(".safetensors")),
               default=0) if os.path.isdir(o.backups) else 0


def until_step(o, what, count=1):
    """Returns when that step was finished."""
    at = steps(o) + count
    wait_until(o, what, lambda: steps(o) >= at)
    return time.monotonic()


def ordinary_step(o):
    """The faster of two, after one that may have waited for a backup."""
    times = [until_step(o, "a step") for _ in range(3)]
    return min(b - a for a, b in zip(times, times[1:]))


def kill_once(o):
    before = newest(o)
    wait_until(o, "a backup", lambda: newest(o) > before)
    ordinary, runs = ordinary_step(o), o.trains[0].metric("paramserver_workerd_restarts_total")
    victim, cpu = o.psd.pid(), sum(d.cpu_seconds() for d in o.trains)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    wait_until(o, "the workers begin anew",
               lambda: all(d.when("begins anew", killed) for d in o.trains)
               and o.trains[0].metric("paramserver_workerd_restarts_total") > runs)
    trained, at = steps(o), {}

    def look():
        moved = o.psd.metric("paramserver_job_bytes_moved_total") or 0
        # Worker 0 pulls nothing where it has read the values.
        for phase, enough in ("put", 1 - o.loads), ("pulled", o.workers - (o.sharded == "shared")):
            if phase not in at and moved >= enough * o.bytes:
                at[phase] = time.monotonic()
        return steps(o) > trained

    wait_until(o, "the next step", look)
    at["step"], cpu = time.monotonic(), sum(d.cpu_seconds() for d in [o.psd, *o.trains]) - cpu
    said = {"up": ["listening on"], "joined": ["worker %d joined" % rank for rank in range(o.workers)]}
    if o.loads:
        said["put"] = ["goes on from"]
    for phase, lines in said.items():
        wait_until(o, "psd's log", lambda: all(o.psd.when(line, killed) for line in lines))
        at[phase] = max(o.psd.when(line, killed) for line in lines)
    for phase, line in ("noticed", "begins anew"), ("found", "goes on from"):
        at[phase] = max(d.when(line, killed) or 0 for d in o.trains)
    if o.log:
        for at_line, line in sorted(entry for d in [o.psd, *o.trains] for entry in d.lines if entry[0] > killed):
            print("# %6.2f %s" % (at_line - killed, line.rstrip()), flush=True)
    return {phase: at.get(phase, killed + float("nan")) - killed for phase in PHASES}, cpu, ordinary


def show(what, times, cpu, ordinary):
    print("%-8s %7.2f s: %s (CPU %.2f, a step: %.2f)" % (what, times["step"], ", ".join(
        "%s %.2f" % (phase, times[phase]) for phase in PHASES), cpu, ordinary), flush=True)


def measure(o):
    rows = [kill_once(o) for _ in range(o.kills)]
    for i, row in enumerate(rows):
        show("kill %d" % (i + 1), *row)
    show("median", {phase: statistics.median(r[0][phase] for r in rows) for phase in PHASES},
         *(statistics.median(r[i] for r in rows) for i in (1, 2)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("--kills", type=int, default=5)
    p.add_argument("--width", type=int, default=15420)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--steps", type=int, default=6, help="between backups")
    p.add_argument("--restart-ms", type=int, default=100)
    p.add_argument("--update", default="sync")
    p.add_argument("--sharded", choices=["shared", "own"], help="the ps task writes the backup")
    p.add_argument("--folder", help="for the backups; default: a temporary one")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the job")
    p.add_argument("--unit", help="of systemd, which psd is")
    p.add_argument("--ps", metavar="ADDRESS", help="of the unit")
    p.add_argument("--http", metavar="ADDRESS", help="of the unit")
    p.add_argument("--log", action="store_true", help="show what the daemons logged after each kill")
    o = p.parse_args()
    if len({bool(o.unit), bool(o.ps), bool(o.http)}) > 1:
        p.error("--unit, --ps and --http: all of them, or none")
    if o.unit and o.sharded == "shared":
        p.error("--unit: it writes into its own folder alone, --sharded own")
    o.bytes = 4 * parameters(o.width)
    o.loads = o.sharded is not None
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        o.backups = os.path.join(folder, "backups")
        large_model(os.path.join(folder, "large.json"), o.width, "linear")
        address = o.ps or "unix:" + os.path.join(folder, "ps0")
        shards = o.backups if o.sharded == "shared" else os.path.join(folder, "shards")
        os.makedirs(shards)
        o.psd = Unit(o.unit, o.http) if o.unit else Restarted(
            [os.path.join(o.build, "psd/psd"), "--listen", address, "--checkpoints", shards], o.restart_ms / 1000)
        settings = ["name=restart", "model=" + os.path.join(folder, "large.json"), "optimizer={name: sgd}",
                    "batch_size=1", "strategy.update=" + o.update, "strategy.min_workers=%d" % o.workers,
                    "epochs=1000000", "data.train_examples=64000", "data.test_examples=10",
                    "callbacks=[{name: backup, path: %s, every_steps: %d, sharded: %s}]" % (
                        o.backups, o.steps, "true" if o.loads else "false"),
                    "output=" + os.path.join(folder, "out.safetensors"), *o.set]
        o.trains = [Daemon([os.path.join(o.build, "workerd/workerd"), "--job", JOB, "--ps", address, "--quiet",
                            "--rank", str(rank), "--workers", str(o.workers),
                            *(word for setting in settings for word in ("--set", setting))])
                    for rank in range(o.workers)]
        try:
            print("%.0f million parameters, %.2f GB" % (o.bytes / 4e6, o.bytes / 1e9), flush=True)
            measure(o)
        finally:
            for d in [*o.trains, o.psd]:
                d.stop()


main()
