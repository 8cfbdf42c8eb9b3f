# SPDX-License-Identifier: Apache-2.0
"""A training for pictures: two ps tasks and three workers on this machine, which end with it."""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE = 120  # seconds
examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../deploy/examples")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Training:
    def __init__(self, build, job, *sets):
        self.build, self.job, self.sets = build, job, sets

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ps-picture.", ignore_cleanup_errors=True)
        self.cluster = f"{self.folder.name}/cluster.yaml"
        with open(self.cluster, "w") as f:
            f.write(json.dumps({"ps": [f"127.0.0.1:{free_port()}" for _ in range(2)]}))
        self.url = f"http://127.0.0.1:{free_port()}/"
        http = ["--http", self.url.split("/")[2]]
        self.servers = [self.start("psd", "--task", str(i), *(http if i == 0 else [])) for i in range(2)]
        self.workers = [self.start("workerd", "--rank", str(i), "--workers", "3", "--quiet", "--job", f"{examples}/{self.job}",
                                   *self.options()) for i in range(3)]
        return self

    def __exit__(self, *_):
        for process in self.workers + self.servers:
            process.kill()
            process.wait()
        self.folder.cleanup()

    def options(self):
        sets = ("epochs=100", "data.train_examples=20000", "data.test_examples=256", "threads=1",
                f"output={self.folder.name}/weights.safetensors", *self.sets)
        return [word for s in sets for word in ("--set", s)]

    def start(self, program, *options):
        log = open(f"{self.folder.name}/{program}.log", "a")
        return subprocess.Popen([f"{self.build}/{program}/{program}", "--cluster", self.cluster, *options], stdout=log, stderr=log)

    def status(self):
        with urllib.request.urlopen(f"{self.url}status.json") as reply:
            return json.load(reply)

    def wait_for_steps(self, steps):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if any(job["steps"] >= steps for job in self.status()["jobs"]):
                    return
            except OSError:
                pass  # it is not there yet
            time.sleep(0.5)
        for name in sorted(os.listdir(self.folder.name)):
            if name.endswith(".log"):
                sys.stderr.write(open(f"{self.folder.name}/{name}").read())
        sys.exit("the training has not begun")
