#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Types what a transcript in a README shows, and compares what is seen with what is said there.

    replay.py FILE HEADING RUN

Of the section under HEADING the indented blocks are read. Their lines "HOST$ COMMAND", or "HOST# COMMAND", are typed: RUN is called
with HOST and COMMAND ("": a bare "$"); a block that begins with a comment, "# NAME.yaml", becomes that file. What follows a
command is its output. Numbers may be others, but for those without a unit in a sentence (a line that ends in a full stop);
lines may be in another order; "you" is who runs this; "..." stands for any lines. Commands that only look are typed again for a minute, until they show what they are to show. Those
that serve or train (psd, workerd), and journalctl -f, stay until the transcript is over. Where an output names
"job N", N stands for that number in the commands that follow.
"""
import collections
import getpass
import re
import signal
import subprocess
import sys
import time

PATIENCE = 60
UNAVAILABLE = 69  # a server that was typed before it is not there yet, and nothing has been done
STAYS = re.compile(r"^(psd|workerd)\b|^journalctl .*-f")
LOOKS = re.compile(r"^(psctl (--?\S+ \S+ )*(status|queue|jobs|workers|shards|doctor)|cat|grep|squeue|systemctl status|journalctl)\b")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,:]*(e[-+]\d+)?( min \d\d s| h \d\d min| ?(ns|us|ms|s|min|h|d|%|[KMG]?i?B)\b)?(/s|/step)?|(?<=\s)-(?=\s|$)")


USER = re.compile(r"\b%s\b" % re.escape(getpass.getuser()))


def plain(line):
    line = USER.sub("you", line)
    sentence = line.endswith(".")
    return " ".join(NUMBER.sub(lambda number: number[0] if sentence and not number[2] else " N ", line).split())


def blocks(path, heading):
    """Lists of lines of the indented blocks of a section."""
    block, inside, found = [], False, []
    for line in open(path, encoding="utf-8").read().splitlines() + ["#"]:
        if block and not line.startswith("    "):
            found.append(block)
            block = []
        if line.startswith("#") and not line.startswith("    "):
            inside = line.lstrip("# ") == heading
        elif inside and line.startswith("    "):
            block.append(line[4:])
    return found


def commands(block):
    """(host, command, output lines) of a block."""
    typed = []
    for line in block:
        prompt = re.match(r"([a-z0-9]*[$]|[a-z0-9]+#) +(.*)", line)
        if prompt:
            typed.append((prompt[1][:-1], re.sub(r"\s{2,}# .*", "", prompt[2]), []))
        elif typed:
            typed[-1][2].append(line)
    return typed


def shows(seen, wanted):
    """None, or the line that lacks. Without a "..." nothing else may be there."""
    there = collections.Counter(plain(line) for line in seen if line.strip())
    for line in wanted:
        if line.strip() in ("", "..."):
            continue
        if not there[plain(line)]:
            return line
        there[plain(line)] -= 1
    more = [line for line, n in there.items() if n]
    return "nothing more, but there is: " + more[0] if wanted and "..." not in wanted and more else None


class Replay:
    def __init__(self, run):
        self.run, self.stay, self.jobs = run, [], {}

    def type(self, host, command, wanted):
        command = re.sub(r"\d+", lambda n: self.jobs.get(n[0], n[0]), command)
        if STAYS.match(command):
            self.stay.append((command, subprocess.Popen([self.run, host, command], stdout=sys.stderr)))
            return
        end = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run([self.run, host, command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            seen = done.stdout.splitlines()
            lacks = shows(seen, wanted)
            if done.returncode == 0 and lacks is None:
                break
            looks = LOOKS.match(command) or done.returncode == UNAVAILABLE
            if not looks or time.monotonic() > end:
                sys.exit("%s$ %s: exit code %d, expected the line: %s\nseen:\n%s"
                         % (host, command, done.returncode, lacks, "\n".join(seen)))
            time.sleep(0.1)
        print("%s$ %s\n%s" % (host, command, done.stdout), end="", file=sys.stderr, flush=True)
        numbers = [re.findall(r"job (\d+)", "\n".join(lines)) for lines in (wanted, seen)]
        self.jobs.update(zip(*numbers))

    def check(self):
        for command, process in self.stay:
            if process.poll() not in (None, 0):
                sys.exit("%s: has ended with exit code %d" % (command, process.returncode))

    def end(self):
        for _, process in self.stay:
            process.terminate()
        for _, process in self.stay:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def main():
    path, heading, run = sys.argv[1:]
    replay, typed = Replay(run), 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    try:
        for block in blocks(path, heading):
            name = re.fullmatch(r"# (\S+\.yaml)", block[0])
            if name:
                with open(name[1], "w", encoding="utf-8") as f:
                    f.write("\n".join(block) + "\n")
                continue
            for host, command, wanted in commands(block):
                replay.type(host, command, wanted)
                typed += 1
        replay.check()
    finally:
        replay.end()
    if not typed:
        sys.exit("%s: nothing to type under '%s'" % (path, heading))


main()
