# SPDX-License-Identifier: Apache-2.0
"""[--perfetto] [--has CATEGORY,...] [--only CATEGORY,...] [--operators N] [--steps N] [--bytes N] [--examples N] FILE ...

Fails unless the files together are a Chrome trace that viewers show as it was meant, and hold

    --has        spans of these categories; --only: and of no others
    --steps      so many steps of each replica, each with an optimizer where there is one at all
    --operators  so many operators in each, the forward pass before the backward pass
    --bytes      so many bytes of gradients that are pushed for each, the first while the backward pass goes on
    --examples   so many that are evaluated, by all replicas together

--perfetto: what Perfetto's own parser finds in them is the same. TRACE_PROCESSOR names its trace_processor_shell; without
it the package downloads one.
"""
import argparse
import bisect
import collections
import json
import os
import sys
import tempfile
from decimal import Decimal

CATEGORIES = {"epoch", "step", "forward", "backward", "optimizer", "feed", "pull", "push", "push_pull", "all_reduce",
              "wait", "evaluation", "callback"}


def load(paths):
    events = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            part = json.load(f, parse_float=Decimal)
        pids = {event["pid"] for event in part}
        assert pids and not pids & {event["pid"] for event in events}, f"{path}: replicas {pids}"
        events += part
    return events


# Nanoseconds. Viewers have microseconds as a double, and must find the same.
def time(event, key):
    ns = event[key] * 1000
    assert ns == int(ns) == int(float(event[key]) * 1000) and 0 <= ns < 2**53, (key, event)
    return int(ns)


class Span:
    def __init__(self, event):
        self.name, self.category, self.value = event["name"], event["cat"], event.get("args", {})
        self.replica, self.track = event["pid"], event["tid"]
        self.start = time(event, "ts")
        self.end = self.start + time(event, "dur")
        assert self.category in CATEGORIES and self.name, event
        assert all(type(value) is int and value >= 0 for value in self.value.values()), event

    def __repr__(self):
        return f"{self.category} {self.name} {self.value} [{self.start}, {self.end}] of {self.replica}/{self.track}"


def check_names(events):
    """Processes and threads have names, once each."""
    found = collections.Counter()
    names = {}
    for event in events:
        if event["ph"] == "M":
            found[event["name"], event["pid"], event["tid"] if "thread" in event["name"] else 0] += 1
            names[event["name"], event["pid"], event["tid"]] = event["args"]
        else:
            assert event["ph"] == "X", event
    assert set(found.values()) == {1}, found
    for event in events:
        process = [v["name"] for k, v in names.items() if k[:2] == ("process_name", event["pid"])]
        assert process[0].startswith(f"replica {event['pid'] - 1} ("), process
        thread = names["thread_name", event["pid"], event["tid"]]["name"]
        stream = (event["tid"] - 1) // 1000
        assert thread.split()[0] == ("compute", "communication", "data")[stream], thread
        assert names["thread_sort_index", event["pid"], event["tid"]]["sort_index"] == event["tid"] - 1


def check_tracks(spans):
    """Those of a track lie within each other or beside each other, and beside each other alone but where it computes."""
    tracks = collections.defaultdict(list)
    for span in spans:
        tracks[span.replica, span.track].append(span)
    for (_, track), of_track in tracks.items():
        around = []
        for span in sorted(of_track, key=lambda s: (s.start, -s.end)):
            while around and around[-1].end <= span.start:
                around.pop()
            assert not around or span.end <= around[-1].end, f"{span} overlaps {around[-1]}"
            assert not around or track == 1, f"{span} in {around[-1]}"
            around.append(span)


def check_steps(spans, want):
    steps = collections.defaultdict(list)
    replicas = {span.replica for span in spans}
    compute = sorted((span for span in spans if span.track == 1), key=lambda s: (s.start, -s.end))
    for span in compute:
        if span.category == "step":
            steps[span.replica].append(span)
    starts = {replica: [span.start for span in compute if span.replica == replica] for replica in replicas}
    by_replica = {replica: [span for span in compute if span.replica == replica] for replica in replicas}
    optimizes = any(span.category == "optimizer" for span in spans)
    assert steps
    for of_replica in (steps[replica] for replica in replicas):
        numbers = [step.value["step"] for step in of_replica]
        assert numbers == sorted(set(numbers)) and (want.steps is None or len(numbers) == want.steps), numbers
        for step in of_replica:
            near = slice(bisect.bisect_left(starts[step.replica], step.start),
                         bisect.bisect_left(starts[step.replica], step.end))
            inside = [span for span in by_replica[step.replica][near] if span.end <= step.end and span is not step]
            operators = [span for span in inside if span.category in ("forward", "backward")]
            passes = [span.category for span in operators]
            assert passes == sorted(passes, reverse=True) and set(passes) == {"forward", "backward"}, inside
            assert want.operators is None or len(operators) == want.operators, inside
            assert sum(span.end - span.start for span in operators) <= step.end - step.start, step
            assert sum(span.category == "optimizer" for span in inside) == optimizes, inside
            assert sum(span.category == "wait" and span.name == "batch" for span in inside) == 1, inside
            step.backward_ends = operators[-1].end


def check_bytes(spans, want):
    steps = [span for span in spans if span.category == "step"]
    pushes = [span for span in spans if span.category in ("push", "push_pull", "all_reduce")]
    assert sum(span.value["bytes"] for span in pushes) == want * len(steps), (len(pushes), len(steps))
    for step in steps:
        begun = [span for span in pushes if span.replica == step.replica and step.start <= span.start < step.end]
        assert sum(span.value["bytes"] for span in begun) == want, (step, begun)
        assert len({span.name for span in begun}) == len(begun), begun
        assert len(begun) == 1 or min(span.start for span in begun) <= step.backward_ends, (step, begun)


def check_perfetto(events, spans, has):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(events, f, default=float)
        f.flush()
        trace = TraceProcessor(trace=f.name, config=TraceProcessorConfig(bin_path=os.environ.get("TRACE_PROCESSOR")))
        rows = trace.query("select category, count(*) n, sum(dur) total from slice group by category")
        found = {row.category: (row.n, row.total) for row in rows}
        wrong = {row.name: row.value for row in trace.query("select name, value from stats "
                                                            "where value > 0 and severity in ('error', 'data_loss')")}
        names = {(row.pid, row.name) for row in trace.query("select process.pid, thread.name from slice "
                 "join thread_track on slice.track_id = thread_track.id join thread using (utid) "
                 "join process using (upid) group by 1, 2")}
        trace.close()
    print("#", found, names)
    want = {category: (len(of), sum(span.end - span.start for span in of)) for category in CATEGORIES
            if (of := [span for span in spans if span.category == category])}
    assert found == want and not wrong, (found, want, wrong)
    assert not has or has <= set(found), has - set(found)
    assert {pid for pid, _ in names} == {span.replica for span in spans}, names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--perfetto", action="store_true")
    parser.add_argument("--has", default="")
    parser.add_argument("--only", default="")
    for number in ("operators", "steps", "bytes", "examples"):
        parser.add_argument(f"--{number}", type=int)
    parser.add_argument("files", nargs="+")
    want = parser.parse_args()
    events = load(want.files)
    check_names(events)
    spans = [Span(event) for event in events if event["ph"] == "X"]
    has, only = set(filter(None, want.has.split(","))), set(filter(None, want.only.split(",")))
    found = {span.category for span in spans}
    print("#", collections.Counter(span.category for span in spans))
    assert has | only <= found, f"none of {has | only - found}"
    assert not only or found <= only, f"also {found - only}"
    check_tracks(spans)
    check_steps(spans, want)
    if want.bytes is not None:
        check_bytes(spans, want.bytes)
    if want.examples is not None:
        evaluated = sum(span.value["examples"] for span in spans if span.category == "evaluation")
        assert evaluated == want.examples, evaluated
    if want.perfetto:
        check_perfetto(events, spans, has | only)


sys.exit(main())
